"""Repairs through ``verify`` and the command line: what is said, written, refused, and never touched."""

import __future__

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sympy

from symattn import Attention, Domain, Grade, InputError, Merge, reports, verify
from symattn.programs.repairing import trials
from symattn.programs.repairing.edits import Edit, enumerate_edits
from symattn.programs.repairing.observing import has_no_entries, observe
from symattn.programs.repairing.oracle import examine
from symattn.programs.repairing.source import EndlessLoop, Sources
from symattn.programs.verifying import Options
from symattn.testing import AttentionFault, assert_attention
from symattn.verification import engine
from symattn_cli.main import main
from tests.printed import validator
from tests.programs.repairing.programs import FLASH, HEAD, PLAIN, loaded, write

WRONG = PLAIN.replace("return e / e.sum(-1", "return e / e.sum(0")


@pytest.mark.deep
def test_a_report_says_line_edit_and_grade_and_writes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, WRONG)
    before = path.read_text()
    report = verify(loaded(tmp_path, WRONG), examples=4, repair=True)
    first = report.repairs[0]
    assert (first.line, first.old, first.new, first.rule) == (6, "0", "1", "constant")
    assert (first.path, first.grade, first.repaired) == ("same", Grade.TESTED, first.wrong)
    assert first.epsilon is not None
    assert first.epsilon < 1e-9
    assert "Fix: line 6 of attn.py: `0` → `1`" in str(report)
    assert "not necessarily what you meant" in str(report)
    assert "-    return e / e.sum(0, keepdims=True)\n+    return e / e.sum(1, keepdims=True)\n" in first.diff()
    document = json.loads(report.json())
    assert (document["repairs"][0]["end"], document["repairs"][0]["column"]) == ({"line": 6, "column": 23}, 22)
    validator("document").validate(document)
    assert path.read_text() == before


@pytest.mark.deep
def test_a_right_function_and_a_function_without_source_have_none(tmp_path: Path) -> None:
    assert verify(loaded(tmp_path, PLAIN), examples=4, repair=True).repairs == ()
    made: dict[str, Any] = {}
    exec("import numpy as np\ndef attention(q, k, v):\n    return v[:1] + 0 * q[:, :1]", made)
    assert verify(made["attention"], domain=Domain(same_width=True), examples=0, repair=True).repairs == ()


@pytest.mark.deep
def test_a_factor_that_is_missing_in_a_loop_is_inserted_and_the_comment_stays(tmp_path: Path) -> None:
    report = verify(loaded(tmp_path, FLASH), repair=True)
    diff = report.repairs[0].diff()
    assert "+        acc, m = acc * a + p @ v[j : j + 4], new  # the sum so far\n" in diff
    assert report.faults[0].cause is not None
    assert "not rescaled" in report.faults[0].cause


@pytest.mark.deep
def test_fix_prints_a_diff_and_writes_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, WRONG)
    before, target = path.read_text(), f"{path}:attention"
    assert main(["verify", "--fix", target]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("--- a/")
    assert "makes it equal to the definition (tested ε" in printed.err
    assert path.read_text() == before
    assert main(["verify", target, "--fix", "-o", str(tmp_path / "fix.patch")]) == 1
    assert (tmp_path / "fix.patch").read_text() == printed.out
    assert main(["verify", target, "--fix=write"]) == 1
    assert path.read_text() == before.replace("e.sum(0,", "e.sum(1,")
    capsys.readouterr()
    assert main(["verify", target, "--fix"]) == 0
    assert "no edit to give" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"), [(("--fix", "--case", "0w6j"), "--case"), (("--fix=write", "-o", "a.patch"), "-o")]
)
def test_options_that_do_not_go_with_fix_are_refused(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "attn.py:attention", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.deep
def test_a_failing_assertion_ends_with_the_diff_and_the_edit(tmp_path: Path) -> None:
    with pytest.raises(AttentionFault) as caught:
        assert_attention(loaded(tmp_path, WRONG), repair=True)
    assert str(caught.value).splitlines()[-1].startswith("Fix: line 6 of attn.py: `0` → `1` makes it equal")
    assert "+    return e / e.sum(1, keepdims=True)" in str(caught.value)


AXIS = """
def softmax(s, *, axis=0, largest=2 * 40.0):
    e = np.exp(np.minimum(s - s.max(axis, keepdims=True), largest))
    return e / e.sum(axis, keepdims=True)


def attention(q, k, v, scale=1.0):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return softmax(q @ k.T * np.float32(scale)) @ v
"""


@pytest.mark.deep
@pytest.mark.parametrize(
    ("right", "line", "old", "new"), [("scale=None", 4, "0", "1"), ("axis=1", 9, "1.0", "None")], ids=["axis", "scale"]
)
def test_a_wrong_default_value_is_repaired_where_it_is_written(
    tmp_path: Path, right: str, line: int, old: str, new: str
) -> None:
    name = right.partition("=")[0]
    text = re.sub(rf"\b{name}=[\d.]+(?=[,)])", right, AXIS, count=1)
    first = verify(loaded(tmp_path, text), examples=4, repair=True).repairs[0]
    assert (first.line, first.old, first.new, first.is_whole) == (line, old, new, True)


CLASSES = """
class Base:
    @staticmethod
    def scaled(q):
        return q * q.shape[-1] ** -0.5


class Heads(Base):
    last = {}

    def __init__(self, q, k):
        super().__init__()
        self.ratio, self.kept = len(q) // len(k), 2

    @property
    def half(self):
        return self.ratio * 0 + self.kept

    def group(self, h):
        return h // self.ratio

    def one(self, q, k, v):
        s = self.scaled(q) @ k.T
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v


def attention(q, k, v):
    heads = Heads(q, k)
    places = [heads.group(h) for h in range(len(q))]
    if heads.half != 2 or not isinstance(heads, Base):
        raise ValueError("no heads")
    return np.stack([heads.one(q[h], k[g], v[g]) for h, g in enumerate(places)])
"""


@pytest.mark.deep
@pytest.mark.parametrize(
    ("right", "wrong"), [("h // self.ratio", "h % self.ratio"), ("q.shape[-1] ** -0.5", "q.shape[-1] ** 0.5")]
)
def test_methods_of_classes_that_the_code_creates_are_edited(tmp_path: Path, right: str, wrong: str) -> None:
    function, whole = loaded(tmp_path, CLASSES.replace(right, wrong)), HEAD + CLASSES.lstrip("\n")
    spec = Attention(heads=4, kv_heads=2)
    first = verify(function, spec, examples=4, repair=True, layout="nd").repairs[0]
    assert (first.line, first.is_whole) == (whole[: whole.index(right)].count("\n") + 1, True)


def test_a_rebuilt_class_is_apart_from_the_one_of_the_user(tmp_path: Path) -> None:
    function = loaded(tmp_path, CLASSES)
    rebuilt = Sources(function).rebuild()
    own, other = function.__globals__["Heads"], rebuilt.__globals__["Heads"]
    assert own is not other
    assert own.last is not other.last
    assert other.__mro__[1] is rebuilt.__globals__["Base"]
    assert own.group.__code__ is not other.group.__code__


@pytest.mark.parametrize("head", ["__slots__ = ()\n\n    ", "def __init_subclass__(cls):\n        pass\n\n    "])
def test_a_class_that_cannot_be_built_again_is_shared(tmp_path: Path, head: str) -> None:
    text = f"class Base:\n    {head}def f(self, x):\n        return x\n\n\nclass Part(Base):\n    def g(self, x):\n"
    text += "        return x\n\n\ndef attention(q):\n    return Base().f(Part().g(q))\n"
    function = loaded(tmp_path, text)
    names = {source.function.__name__ for source in Sources(function).functions.values()}
    assert names == ({"attention", "g"} if "slots" in head else {"attention", "__init_subclass__", "f"})


MERGE = """
def merge(o1, l1, o2, l2):
    top = np.maximum(l1, l2)
    w1, w2 = np.exp(l1 - top), np.exp(l1 - top)
    total = w1 + w2
    out = (o1 * w1[..., None] + o2 * w2[..., None]) / total[..., None]
    return out, top + np.log(total)
"""


@pytest.mark.deep
def test_a_merge_is_repaired_though_its_formula_has_no_value_where_both_parts_are_empty(tmp_path: Path) -> None:
    report = verify(loaded(tmp_path, MERGE, function="merge"), Merge(), examples=4, repair=True)
    (first, *_) = report.repairs
    assert (first.line, first.old, first.new, first.is_whole) == (6, "l1", "l2", True)


MERGE_OF_OTHER_BASE = """
def merge(o1, l1, o2, l2):
    m = np.maximum(l1, l2)
    m = np.where(np.isfinite(m), m, 0)
    a, b = np.exp2(l1 - m), np.exp2(l2 - m)
    total = a + b
    seen = np.where(total > 0, total, 1)
    return o1 * (a / seen)[..., None] + o2 * (b / seen)[..., None], m + np.log1p(total)
"""


@pytest.mark.deep
def test_a_merge_of_parts_without_keys_gets_one_edit(tmp_path: Path) -> None:
    """Log-sums of −∞ are no inputs from which larger errors can be sought by noise."""
    merge = loaded(tmp_path, MERGE_OF_OTHER_BASE, function="merge")
    first = verify(merge, Merge(base=2), repair=True).repairs[0]
    assert (first.old, first.new, first.is_whole, first.parts) == ("np.log1p", "np.log2", True, ())


def test_a_number_of_the_module_is_edited_where_it_is_written(tmp_path: Path) -> None:
    text = "WIDTH = 5  # keys\n\n\ndef attention(q, k):\n    return q[:WIDTH] * k[:WIDTH]\n"
    function = loaded(tmp_path, text)
    sources, given = Sources(function), (np.arange(6), np.ones(6))
    edits = enumerate_edits(sources, observe(sources, lambda f: f(*given)), tiers=(1,))
    edited = [sources.edited(sources.at(e.place), e.replacements) for e in edits if (e.line, e.new) == (4, "4")]
    assert [f(*given).tolist() for f in edited] == [[0, 1, 2, 3]]
    assert len(function(*given)) == 5


USES = {
    "a default value": "def part(x, n=WIDTH):\n    return x[:n]\n",
    "another number": "HALF = WIDTH // 2\n",
    "a class": "class Part:\n    width = WIDTH\n",
    "a call": "def build():\n    return [0] * WIDTH\n\n\nTABLE = build()\n",
    "a method of a call": "class Part:\n    def __init__(self):\n        self.width = WIDTH\n\n\nPART = Part()\n",
    "a second assignment": "if len('a') == 2:\n    WIDTH = 5\n",
    "a change": "WIDTH += 0\n",
    "a function that sets it": "def reset():\n    global WIDTH\n    WIDTH = 5\n",
}
HARMLESS = {
    "a function": "def part(x):\n    return x[:WIDTH]\n",
    "a local name": "def part(x):\n    WIDTH = 3\n    return x[:WIDTH]\n",
    "a program": "if __name__ == '__main__':\n    print(attention([1], [2]), WIDTH)\n",
}


@pytest.mark.parametrize("use", [*USES, *HARMLESS])
def test_a_number_that_loading_the_module_uses_is_not_edited(tmp_path: Path, use: str) -> None:
    """The rebuilt function would not show what an edit of the file changes."""
    function = "\n\ndef attention(q, k):\n    return q[:WIDTH] * k[:WIDTH]\n"
    text = f"WIDTH = 5\n\n\n{(USES | HARMLESS)[use]}{function}"
    sources = Sources(loaded(tmp_path, text))
    (key,) = sources.functions
    assert [*sources.numbers_of(key)] == (["WIDTH"] if use in HARMLESS else [])


def test_an_edited_default_value_is_computed_and_the_others_keep_theirs(tmp_path: Path) -> None:
    function = loaded(tmp_path, "def attention(q, m=1 + 1, stored=[], *, n=3, k):\n    return q, m, stored, n, k\n")
    sources = Sources(function)
    (key,) = sources.functions
    both = [reports.Replacement(4, 19, 4, 20, "5"), reports.Replacement(4, 42, 4, 43, "7")]
    edited = sources.edited(key, both)
    assert edited(0, k=1) == (0, 6, [], 7, 1)
    assert function(0, k=1) == (0, 2, [], 3, 1)
    with pytest.raises(ValueError, match="a default value is NameError"):
        sources.edited(key, [reports.Replacement(4, 19, 4, 20, "q")])


def test_a_function_whose_default_value_has_changed_in_its_file_is_not_edited(tmp_path: Path) -> None:
    text = "def attention(q, k, axis=0):\n    return (q * k).sum(axis)\n"
    function = loaded(tmp_path, text)
    assert [*Sources(function).functions] == [id(function)]
    write(tmp_path, text.replace("axis=0", "axis=1"))
    assert not Sources(function).functions


def test_a_repair_of_a_file_with_mixed_ends_of_lines_keeps_them(tmp_path: Path) -> None:
    edits = (reports.Replacement(2, 4, 2, 5, "b + 1"), reports.Replacement(3, 5, 3, 5, "\nd = e"))
    repair = reports.Repair("f", edits, "", "", "", "same", Grade.SAMPLED, None, 1, 1, 1, 1)
    assert repair._apply_repair_edits("x\na = b\r\nc = d\r\n") == "x\na = b + 1\r\nc = d\r\nd = e\r\n"


def test_a_file_that_has_changed_is_not_written(tmp_path: Path) -> None:
    path = write(tmp_path, WRONG)
    sources = Sources(loaded(tmp_path, WRONG))
    edits = (reports.Replacement(6, 21, 6, 22, "-1"),)
    repair = reports.Repair(
        str(path), edits, "0", "-1", "constant", "same", Grade.SAMPLED, None, 1, 1, 1, 1, sources.digest
    )
    assert "+    return e / e.sum(-1, keepdims=True)" in repair.diff()
    path.write_text(path.read_text() + "\n# more\n")
    for act in (repair.write, repair.diff):
        with pytest.raises(InputError, match="has changed since it was verified"):
            act()


def test_a_function_whose_file_has_changed_is_not_edited(tmp_path: Path) -> None:
    function = loaded(tmp_path, PLAIN)
    assert len(Sources(function).editable) == 2
    write(tmp_path, PLAIN.replace("q @ k.T", "k @ q.T"))
    assert [f.function.__name__ for f in Sources(function).functions.values()] == ["softmax"]


@pytest.mark.parametrize(
    "line", ["open('x', 'w')", "import os", "np.save('x', q)", "exec('1')", "from subprocess import run"]
)
def test_code_that_names_files_or_processes_is_not_edited(tmp_path: Path, line: str) -> None:
    function = loaded(tmp_path, PLAIN.replace("    return softmax", f"    {line}\n    return softmax"))
    assert Sources(function).editable == []


def test_code_of_an_installed_package_is_not_edited() -> None:
    sources = Sources(sympy.utilities.iterables.flatten)
    assert sources.functions
    assert sources.editable == []


def test_lines_of_a_second_insertion_have_moved() -> None:
    """Before line 3, and after line 9, which is line 10 then."""
    both = Edit(
        "",
        4,
        0,
        (reports.Replacement(9, 5, 9, 5, "\n    b = 1"), reports.Replacement(3, 0, 3, 0, "    a = 1\n")),
        "",
        "",
    )
    assert trials._lines_of_edit(both) == {3, 4, 10, 11}


def test_of_calls_of_about_a_size_that_with_more_lengths_is_observed() -> None:
    def sample(*shapes: tuple[int, ...]) -> trials.JudgedSample:
        inputs = {str(k): np.zeros(shape) for k, shape in enumerate(shapes)}
        return trials.JudgedSample(inputs, "contiguous", (), (), True, 1.0)

    equal, apart, small = sample((4, 4), (7, 4)), sample((4, 3), (7, 4)), sample((2, 1), (3, 4))
    ordered = sorted((small, equal, apart), key=trials._rank_for_observing)
    assert ordered == [small, equal, apart]


class SubclassOfArray(np.ndarray):
    pass


@pytest.mark.parametrize(
    ("value", "is_empty"),
    [
        (np.zeros((3, 0)), True),
        (np.zeros((3, 1)), False),
        (np.zeros(()), False),
        (np.zeros((0, 2)).view(SubclassOfArray), True),
        (np.float32(0), False),
        (np.ndarray, False),
        ([], False),
        ("", False),
        (0, False),
        (None, False),
    ],
)
def test_arrays_without_entries_are_those_whose_kind_says_so(value: object, is_empty: bool) -> None:
    assert has_no_entries(value) == is_empty


def test_a_loop_that_becomes_endless_is_stopped_by_a_count(tmp_path: Path) -> None:
    lines = ["n = 0", "while n < 3:", "    n += 1", "for i in range(3):", "    n += i", "return n"]
    sources = Sources(loaded(tmp_path, "def attention(q):\n" + "".join(f"    {line}\n" for line in lines)))
    assert sources.rebuild()(None) == 6
    assert sources.passes == 7
    (key,), sources.most_passes = sources.functions, 100
    endless = sources.edited(key, [reports.Replacement(7, 8, 7, 14, "n -= 1")])
    with pytest.raises(EndlessLoop):
        endless(None)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("most_passes", "is_repaired"),
    [(2000, True), (200, True), (2, False)],  # of a call, on at most 1100 keys
)
def test_the_last_questions_may_pass_loops_more_often_in_all_than_one_call_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_passes: int, is_repaired: bool
) -> None:
    """Large calls that pass loops more often are left out; a loop that does so in small ones is taken for endless."""
    monkeypatch.setattr(trials, "MAX_PASSES_OF_LAST_CALLS", most_passes)
    loop = "    for j in range(1, len(k)):\n        out += p[:, j : j + 1] * v[j]\n    return out\n"
    zeros = "    out = np.zeros((len(q), v.shape[1]), q.dtype)\n"
    text = PLAIN.replace("    return softmax(s) @ v\n", f"    p = softmax(s)\n{zeros}{loop}")
    repairs = verify(loaded(tmp_path, text), examples=8, repair=True).repairs
    expected = [("1", "0")] if is_repaired else []
    assert [(repair.old, repair.new) for repair in repairs if repair.is_whole] == expected


def test_an_edit_may_pass_loops_more_often_where_the_function_raises() -> None:
    raising, first, right = (
        trials.JudgedSample({"q": np.zeros(n)}, "contiguous", (), (), True, 1.0) for n in (1, 2, 3)
    )
    tried: Any = object.__new__(trials.Trials)
    tried.sources, tried._samples = SimpleNamespace(passes=0, has_loops=True), SimpleNamespace(first=(first,))
    tried._most_passes_of = {}

    def run(inputs: Any, memory: str) -> SimpleNamespace:
        return SimpleNamespace(error=None if len(inputs["q"]) == 3 else "max() of nothing")

    tried._count_passes(SimpleNamespace(run=run), (first, raising, right))
    assert tried._most_passes_of == {id(raising): trials.MAX_PASSES_OF_LAST_CALLS}


def test_a_function_is_read_with_the_future_features_of_earlier_cells(tmp_path: Path) -> None:
    text = "def attention(q):\n    def turn(x: Unknown):\n        return 2 * x\n\n    return turn(q)\n"
    path, space = tmp_path / "cell.py", {}
    path.write_text(text)
    exec(compile(text, str(path), "exec", __future__.annotations.compiler_flag), space)
    sources = Sources(space["attention"])
    assert len(sources.editable) == 1
    assert sources.rebuild()(3) == 6


def test_a_rebuilt_function_has_caches_of_its_own(tmp_path: Path) -> None:
    text = "STORED = {}\n\n\ndef attention(q):\n    return STORED.setdefault(len(q), q)\n"
    function = loaded(tmp_path, text)
    function(np.ones(2))
    assert Sources(function).rebuild()(np.zeros(2)).tolist() == [0, 0]
    assert function(np.zeros(2)).tolist() == [1, 1]


# -- two mistakes ------------------------------------------------------------------------------------------------------
QUERY_BLOCKS = """
def attention(q, k, v):
    out = []
    for first in range(0, len(q), 16):
        block = q[first : first + 16]
        s = block @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
        rows = np.arange(len(block))[:, None] + first + len(k) - len(q)
        s = np.where(np.arange(len(k)) <= rows, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        out.append(e / e.sum(-1, keepdims=True) @ v)
    return np.concatenate(out)
"""
#: The right program, its specification, and what is written otherwise.
TWO_MISTAKES = {
    "scale and rows": (QUERY_BLOCKS, {"causal": True}, [("q.shape[-1]", "v.shape[-1]"), (" + first +", " +")]),
    "mask and block": (QUERY_BLOCKS, {"causal": True}, [
        ("        s = np.where(np.arange(len(k)) <= rows, s, -np.inf)\n", ""),
        ("        rows = np.arange(len(block))[:, None] + first + len(k) - len(q)\n", ""),
        ("[first : first + 16]", "[:16][: len(q) - first]"),
    ]),
    "scale and rescaling": (FLASH.replace("acc + p @", "acc * a + p @"), {}, [
        ("np.sqrt(q.shape[1])", "np.sqrt(v.shape[1])"), ("acc * a +", "acc +"),
    ]),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TWO_MISTAKES)
def test_two_mistakes_are_repaired_if_one_edit_repairs_some_calls(tmp_path: Path, name: str) -> None:
    right, fields, changes = TWO_MISTAKES[name]
    text = right
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (repair, *_) = verify(loaded(tmp_path, text), Attention(**fields), examples=8, repair=True).repairs
    assert repair.is_whole
    path = write(tmp_path, text)
    path.write_text("\n".join(reports.replaced(path.read_text().split("\n"), repair.replacements)))
    edited, meant = loaded(tmp_path, path.read_text().removeprefix(HEAD)), loaded(tmp_path, right, "right")
    random = np.random.default_rng(3)
    for n_q, n_k in ((1, 9), (5, 7), (16, 33), (40, 70)):
        arrays = [random.normal(size=s).astype("f") for s in ((n_q, 6), (n_k, 6), (n_k, 3))]
        assert np.abs(edited(*arrays) - meant(*arrays)).max() < 1e-5


# -- edits that would pass for want of the right question --------------------------------------------------------------
CAUSAL = """
def attention(q, k, v):
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    s = np.where(CONDITION, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
SEES = "np.arange(len(k)) <= np.arange(len(q))[:, None] + len(k) - len(q)"
MASKED = CAUSAL.replace("CONDITION", SEES)


def _before_scores(*lines: str) -> str:
    return PLAIN.replace("    s = q", "".join(f"    {line}\n" for line in lines) + "    s = q")


CAUSAL_SPEC = {"causal": True}
ONES = [
    ("right", PLAIN, {}, True),
    ("1 at one size", PLAIN.replace(") @ v", ") @ v * np.float32(len(k) / len(q))"), {}, False),
    ("widths that are equal", PLAIN.replace("q.shape[-1])", "v.shape[-1])"), {}, False),
    ("a branch for many keys", _before_scores("k = k * 2 if len(k) > 40 else k"), {}, False),
    ("a table for few keys", _before_scores("k, v = k[:64], v[:64]"), {}, False),
    ("a branch for many queries", _before_scores("k = k * 2 if len(q) > 512 else k"), {}, False),
    ("a table for a thousand keys", _before_scores("k, v = k[:1000], v[:1000]"), {}, False),
    ("a branch for wide heads", _before_scores("k = k * 2 if k.shape[1] > 64 < len(q) else k"), {}, False),
    ("contiguous arrays alone", _before_scores("q = q * (1 if q.flags.c_contiguous else 2)"), {}, False),
    ("stored keys", "S = {}\n\n\n" + _before_scores("k = S.setdefault(k.shape, k.copy())"), {}, False),
    ("a changed argument", _before_scores("k -= k.mean(0)"), {}, False),
    ("refused sizes", _before_scores("if len(q) != len(k):", "    raise ValueError('lengths')"), {}, False),
    ("causal, right", MASKED, CAUSAL_SPEC, True),
    ("equal lengths", MASKED.replace(" + len(k) - len(q)", ""), CAUSAL_SPEC, False),
    ("one of two masks", MASKED.replace("<=", "<"), CAUSAL_SPEC, False),
]  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize(("text", "fields", "accepted"), [o[1:] for o in ONES], ids=[o[0] for o in ONES])
def test_only_edits_that_are_right_at_all_sizes_are_accepted(
    tmp_path: Path, text: str, fields: dict[str, Any], accepted: bool
) -> None:
    spec, how = Attention(**fields), Options(examples=4)
    wrong = loaded(tmp_path, PLAIN.replace("q @ k.T", "q @ k.T * 2"), "wrong")
    with how.opened(wrong, spec) as runner:
        session = how.session(runner, spec, how.examples, how.budget)
        for name, group in list(session.subject.source.first().items())[:1]:
            engine._try_group(session, name, group, np.random.default_rng(0))
        answer = examine(session, runner.version(loaded(tmp_path, text, "edited")))  # type: ignore[attr-defined]
    assert (answer.grade is not None) == accepted, answer


class _Counted:
    """A runner that records the sizes of calls; ``work_done`` grows with each of them."""

    def __init__(self, runner: Any, work: float = 0.0) -> None:
        self._runner, self._work, self.entries = runner, work, list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def run(self, inputs: Any, memory: Any = "contiguous") -> Any:
        self.entries.append(sum(int(np.size(a)) for a in inputs.values()))
        return self._runner.run(inputs, memory)

    def work_done(self) -> float:
        return self._work * len(self.entries)


class _WithoutResidues(_Counted):
    semantics = None


@pytest.mark.deep
def test_passes_of_loops_and_a_proof_spare_calls_of_an_edit(tmp_path: Path) -> None:
    spec, how = Attention(), Options(examples=4)
    wrong = loaded(tmp_path, PLAIN.replace("q @ k.T", "q @ k.T * 2"), "wrong")
    with how.opened(wrong, spec) as opened:
        session = how.session(opened, spec, how.examples, how.budget)
        edited = opened.version(loaded(tmp_path, PLAIN, "edited"))  # type: ignore[attr-defined]
        proved, slow, sampled = _Counted(edited), _Counted(edited, work=1000.0), _WithoutResidues(edited)
        for run in (proved, slow, sampled):
            assert examine(session, run, work_done=run.work_done).grade is not None
    large = {run: sum(size > 1024 for size in run.entries) for run in (proved, slow)}
    assert 0 < large[slow] < large[proved]
    assert len(proved.entries) < len(sampled.entries)


@pytest.mark.deep
def test_an_edit_of_a_slow_function_is_asked_for_residues_too(tmp_path: Path) -> None:
    spec, how = Attention(), Options(examples=4)
    wrong = loaded(tmp_path, PLAIN.replace("q @ k.T", "q @ k.T * 2"), "wrong")
    with how.opened(wrong, spec) as runner:
        session = how.session(runner, spec, how.examples, how.budget)
        edited = runner.version(loaded(tmp_path, PLAIN, "edited"))  # type: ignore[attr-defined]
        answer = examine(session, edited, None, most_tokens=40)
    assert answer.grade is Grade.TESTED, answer


def test_a_file_with_another_constant_has_changed(tmp_path: Path) -> None:
    path, text = tmp_path / "norm.py", "def norm(x):\n    return x / (x * x + 1e-5)\n"
    path.write_text(text)
    space: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), space)
    assert Sources(space["norm"]).functions
    path.write_text(text.replace("1e-5", "1e-6"))
    assert not Sources(space["norm"]).functions


def test_lines_of_a_patch_end_at_newlines_alone() -> None:
    exchanged = (reports.Replacement(2, 0, 2, 1, "e"),)
    repair = reports.Repair("f.py", exchanged, "d", "e", "variable", "same", Grade.SAMPLED, None, 1, 1, 1, 1)
    lines = repair.diff("a\x0cb\u2028c\nd").split("\n")
    assert lines[3:7] == [" a\x0cb\u2028c", "-d", "\\ No newline at end of file", "+e"]

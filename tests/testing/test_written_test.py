"""A test that was written fails on the wrong function and passes on the right one; a word repeats its case."""

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from symattn import Alibi, Attention, Domain, InputError, Latent, Rotary, Verdict
from symattn.programs.case_codes import decode, encode, speaks
from symattn.programs.repeat import repeat_target, written
from symattn.strategies import qkv
from symattn_cli.main import main
from tests.refusals import refuses

RIGHT = """
import numpy as np

def attention(q, k, v, mask=None):
    s = q @ k.T / q.dtype.type(np.sqrt(q.shape[-1]))
    if mask is not None:
        s = np.where(mask, s, -np.inf).astype(q.dtype)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
Q, K, V = [[1, 0]], [[0, 0], [1, 0]], [[0, 3], [1, 1]]
INPUTS = {name: np.array(a, dtype=float) for name, a in zip("qkv", (Q, K, V), strict=True)}
WRONG = {
    "values": RIGHT.replace("np.sqrt(q.shape[-1])", "q.shape[-1]"),
    "shape": RIGHT.replace("@ v", "@ v[:, :1]"),
    "dtype": RIGHT.replace("@ v", "@ v.astype(np.float64)").replace("return ", "return np.float16(") + ")",
    "not finite": RIGHT.replace("    e = np.exp", "    s[..., 0] = np.nan\n    e = np.exp"),
    "raises": RIGHT.replace("    e = np.exp", "    assert len(q) > 1\n    e = np.exp"),
    "mutates": RIGHT.replace("    e = np.exp", "    k += 1\n    e = np.exp"),
    "strided": RIGHT.replace(
        "    s = q @", "    k = np.ndarray(k.shape, k.dtype, k.base if k.base is not None else k)\n    s = q @"
    ),
    "transposed": RIGHT.replace("    s = q @", "    k = k if k.flags.c_contiguous else k[::-1]\n    s = q @"),
    "stale": RIGHT + "\n_right, _kept = attention, {}\n\ndef attention(q, k, v):\n"
    "    return _kept.setdefault(q.shape, _right(q, k, v))\n",
    "overwrites": RIGHT + "\n_right, _out = attention, np.empty((1, 2), np.float32)\n\ndef attention(q, k, v):\n"
    "    _out[...] = _right(q, k, v)\n    return _out\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def ran(path: Path, source: str) -> None:
    """Run the tests of a file with this attn.py."""
    Path("attn.py").write_text(dedent(source), encoding="utf-8")
    sys.modules.pop("attn", None)
    try:
        names = runpy.run_path(str(path))
        tests: list[Callable[[], Any]] = [f for name, f in names.items() if name.startswith("test_")]
        assert tests
        for test in tests:
            test()
    finally:
        sys.modules.pop("attn", None)


def check_both(found: Any, right: str, wrong: str) -> str:
    Path("tests").mkdir()
    path = Path("tests", "test_attn.py")
    path.write_text(written("attn.py:attention", [("word", found)], path.parent, "symattn verify"), encoding="utf-8")
    with pytest.raises(AssertionError):
        ran(path, wrong)
    ran(path, right)
    return path.read_text(encoding="utf-8")


@pytest.mark.deep
@pytest.mark.parametrize(
    "kind", WRONG
)  # fmt: skip
def test_it_fails_on_the_wrong_function_and_passes_on_the_right_one(folder: Path, kind: str) -> None:
    Path("attn.py").write_text(WRONG[kind], encoding="utf-8")
    found = repeat_target("attn.py:attention", Attention(), INPUTS)
    assert found.report.verdict is Verdict.FAULT
    assert found.judged.finding == {"stale": "values", "strided": "not finite", "transposed": "values"}.get(kind, kind)
    text = check_both(found, RIGHT, WRONG[kind])
    assert "symattn" not in text.partition('"""\n\n')[2]


@pytest.mark.deep
def test_the_call_is_made_with_its_mask_and_layout(folder: Path) -> None:
    loud = RIGHT.replace("q, k, v, mask=None", "q, k, v, *, hide").replace("mask", "~hide")
    loud = loud.replace("k.T", "k.mT")
    wrong = loud.replace("np.sqrt(q.shape[-1])", "q.shape[-1]")
    Path("attn.py").write_text(wrong, encoding="utf-8")
    inputs = {**INPUTS, "mask": np.array([[True, True]])}
    spec, told = Attention(mask="boolean"), {"mask_arg": "~hide", "layout": "bhnd", "dtype": "float16"}
    found = repeat_target("attn.py:attention", spec, inputs, **told)  # type: ignore[arg-type]
    text = check_both(found, loud, wrong)
    assert "hide = np.array([[[[False, False]]]], dtype=bool)" in text
    assert "attention(q, k, v, hide=hide)" in text


@pytest.mark.deep
def test_the_command_writes_tests_and_repeats_a_case(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("attn.py").write_text(WRONG["values"], encoding="utf-8")
    command = ["verify", "attn.py:attention", "--budget", "600", "--examples", "0"]
    assert main([*command, "--write-test", "test_attn.py"]) == 1
    lines = capsys.readouterr().out.splitlines()
    again = lines[lines.index("Reproduce:") + 2]  # whole on one line, to be copied, however long it is
    (word,) = re.findall(rf"^ +symattn {' '.join(command)} --case (\w+)$", again)
    assert "Scores are scaled by 1/d_k" in Path("test_attn.py").read_text(encoding="utf-8")
    with pytest.raises(AssertionError, match="entries are wrong"):
        ran(Path("test_attn.py"), WRONG["values"])
    assert main([*command, "--write-test", "test_attn.py"]) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*command, "--case", word]) == 1
    out = capsys.readouterr().out
    assert "FAULT: seen alone, this case is consistent with: scores are scaled by 1/d_k" in " ".join(out.split())
    assert f"--case {word}" in out
    ran(Path("test_attn.py"), RIGHT)
    assert main([*command, "--case", word]) == 0
    assert main([*command, "--causal", "--case", word]) == 2


@pytest.mark.deep
def test_no_fault_and_no_test(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("attn.py").write_text(RIGHT, encoding="utf-8")
    assert main(["verify", "attn.py:attention", "--examples", "1", "--write-test", "test_attn.py"]) == 0
    assert "test_attn.py is not written" in capsys.readouterr().err
    assert not Path("test_attn.py").exists()


def verified(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    """The report of the function in ``attn.py`` as JSON."""
    main(["verify", "attn.py:attention", "--examples", "0", *options, "-f", "json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.deep
def test_a_case_of_many_numbers_is_found_by_running_everything(
    folder: Path, no_causes: None, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = RIGHT.replace("return e", "return q.dtype.type(1 + 1e-3 * (k.size > 330)) * e")
    Path("attn.py").write_text(unknown, encoding="utf-8")
    first = verified(capsys)
    (word,) = [fault["case"] for fault in first["faults"]]
    assert not speaks(word)
    again = verified(capsys, "--case", word)
    assert [fault["case"] for fault in again["faults"]] == [word]
    assert again["verdict"] == "fault"
    Path("attn.py").write_text(RIGHT, encoding="utf-8")
    mended = verified(capsys, "--case", word)
    assert (mended["verdict"], mended["faults"]) == ("no fault", [])
    assert main(["verify", "attn.py:attention", "--examples", "0", "--case", "0123456789"]) == 2
    assert "no case" in capsys.readouterr().err


@pytest.mark.torch
def test_it_calls_torch(folder: Path) -> None:
    right = """
        import torch

        def attention(q, k, v):
            return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
    """
    wrong = dedent(right.replace("@ v", "@ -v"))
    Path("attn.py").write_text(wrong, encoding="utf-8")
    found = repeat_target("attn.py:attention", Attention(), INPUTS, dtype="bfloat16", layout="bhnd")
    text = check_both(found, dedent(right), wrong)
    assert "dtype=torch.bfloat16" in text


def test_a_word_is_that_of_the_report() -> None:
    assert encode(Attention(), INPUTS, "float32") != encode(Attention(scale=1), INPUTS, "float32")


# -- Inputs that Hypothesis draws fit their specification and shrink; inputs go into a word and come back --------------
SPECS = {
    "plain": Attention(),
    "causal": Attention(causal=True, window=3),
    "grouped": Attention(heads=4, kv_heads=2, mask="additive"),
    "boolean": Attention(mask="boolean", padding=True),
    "documents": Attention(documents=True),
    "sink": Attention(heads=2, sink="given"),
    "bias": Attention(bias=True),
    "dropout": Attention(dropout=0.25),
    "rotary": Attention(position=Rotary()),
    "alibi": Attention(heads=2, causal=True, position=Alibi()),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_inputs_fit_their_specification(name: str, data: st.DataObject) -> None:
    spec = SPECS[name]
    inputs = data.draw(qkv(spec, dtype="float16"))
    assert all(a.dtype == np.float16 for a in inputs.values() if a.dtype.kind == "f")
    with np.errstate(all="ignore"):
        out = spec(**{n: a.astype(float) if a.dtype.kind == "f" else a for n, a in inputs.items()})
    assert np.isfinite(out).all()  # every query has a key


@pytest.mark.deep
@pytest.mark.parametrize("name", ["plain", "boolean"])
def test_examples_shrink_to_small_whole_numbers(name: str) -> None:
    quick = settings(database=None, max_examples=50)
    found = find(qkv(SPECS[name]), lambda inputs: inputs["v"].max() > 1, settings=quick)
    plain = {"q": [[0.0]], "k": [[0.0]], "v": [[2.0]]}
    masks = {"mask": [[True]], "keep": [True]} if name == "boolean" else {}
    assert {n: a.tolist() for n, a in found.items()} == plain | masks


@settings(max_examples=10)
@given(qkv(n_q=2, n_k=(3, 4), d_k=(1, 2), d_v=5, batch=(2, 1), dtype="bfloat16"))
def test_sizes_are_those_asked_for(inputs: dict[str, Any]) -> None:
    q, k, v = (inputs[n] for n in "qkv")
    assert q.shape[:3] == (2, 1, 2)
    assert q.shape[3] in (1, 2)
    assert k.shape[2] in (3, 4)
    assert v.shape == (*k.shape[:3], 5)
    assert q.dtype.name == "bfloat16"


@settings(max_examples=10)
@given(qkv(domain=Domain(max_abs_score=0.5, square=True)))
def test_scores_stay_within_the_domain(inputs: dict[str, Any]) -> None:
    q, k = inputs["q"], inputs["k"]
    assert len(q) == len(k)
    assert np.abs(q @ k.T).max() / np.sqrt(q.shape[-1]) <= 0.5 + 1e-6


def test_strange_numbers_are_drawn_too() -> None:
    quick = settings(database=None, max_examples=200, phases=[Phase.generate])
    found = find(qkv(n_q=2, n_k=4, d_k=4), lambda inputs: (inputs["q"] % 1 != 0).any(), settings=quick)
    assert (found["q"] % 1 != 0).any()


def test_what_there_is_not_is_refused() -> None:
    for wrong, words in (
        ({"n_q": 0}, "n_q is 0"),
        ({"n_k": (3, 2)}, r"n_k is \(3, 2\)"),
        ({"dtype": "float31"}, "float31"),
        ({"spec": Attention(heads=2, latent=Latent())}, "no q, k, v"),
    ):
        with pytest.raises(InputError, match=words):
            qkv(**wrong)  # type: ignore[arg-type]


@pytest.mark.torch
@settings(max_examples=3)
@given(st.deferred(lambda: qkv(Attention(mask="boolean"), dtype="bfloat16", framework="torch")))
def test_tensors_of_torch(inputs: dict[str, Any]) -> None:
    import torch

    assert inputs["q"].dtype is torch.bfloat16
    assert inputs["mask"].dtype is torch.bool


SMALLEST = {"q": np.array([[1.0, 0.0]]), "k": np.array([[0.0, 0.0], [1.0, 0.0]]), "v": np.array([[0.0], [1.0]])}
MASKED = Attention(causal=True, mask="boolean", scale=0.3)


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether names, shapes, types and bits are the same."""
    return list(a) == list(b) and all(
        a[n].shape == b[n].shape and a[n].dtype == b[n].dtype and a[n].tobytes() == b[n].tobytes() for n in a
    )


def test_the_smallest_inputs_are_a_short_word() -> None:
    word = encode(Attention(), SMALLEST, "float32")
    assert len(word) < 13
    assert same(decode(Attention(), word, "float32"), SMALLEST)
    assert same(decode(Attention(), word.upper().replace("0", "O").replace("1", "l"), "float32"), SMALLEST)


@pytest.mark.deep
@given(npst.arrays(float, npst.array_shapes(max_dims=3, max_side=3), elements=st.floats(allow_nan=False)))
def test_any_numbers_come_back(numbers: np.ndarray) -> None:
    inputs = {**SMALLEST, "q": numbers[..., :1]}
    word = encode(Attention(), inputs, "float64")
    assert not word or same(decode(Attention(), word, "float64"), inputs)


def test_what_is_no_number_and_what_is_no_float_comes_back() -> None:
    strange = {"q": np.array([[np.nan, -np.inf, np.inf, -0.0, 0.1, 5e-324]])}
    assert same(decode(Attention(), encode(Attention(), strange, "float64"), "float64"), strange)
    inputs = {**SMALLEST, "mask": np.array([[True, False]])}
    assert same(decode(MASKED, encode(MASKED, inputs, "float32"), "float32"), inputs)
    packed = Attention(documents=True)
    inputs = {**SMALLEST, "doc": np.array([3, 4])}
    assert same(decode(packed, encode(packed, inputs, "float32"), "float32"), inputs)


def test_many_inputs_have_no_word() -> None:
    for size in (9, 99):
        assert encode(Attention(), {"q": np.random.default_rng(0).random((size, size))}, "float64") == ""


def test_words_of_something_else_are_refused() -> None:
    word = encode(Attention(), SMALLEST, "float32")
    others = [(Attention(causal=True), "float32"), (Attention(), "float16"), (Attention(scale=1), "float32")]
    for spec, dtype in others:
        refuses(decode, spec, word, dtype, says="no case of this specification")
    for wrong in ("", "u", "é", "0" * 20, "z" * 20, word[:-2], word + "a", "z" * 1000):
        refuses(decode, Attention(), wrong, "float32", says="no case of this specification")


def test_a_mistyped_word_is_nearly_always_refused() -> None:
    word = encode(Attention(), SMALLEST, "float32")
    taken = 0
    for at in range(len(word)):
        for letter in "0123456789abcdefghjkmnpqrstvwxyz":
            typed = word[:at] + letter + word[at + 1 :]
            if typed != word:
                try:
                    decode(Attention(), typed, "float32")
                    taken += 1
                except InputError:
                    pass
    assert taken <= 3


@pytest.mark.deep
def test_a_test_is_written_of_a_function_that_takes_a_scale(folder: Path) -> None:
    text = RIGHT.replace("mask=None", "scale, mask=None").replace(
        "/ q.dtype.type(np.sqrt(q.shape[-1]))", "* scale * 1.1"
    )
    Path("attn.py").write_text(text, encoding="utf-8")
    command = ["verify", "attn.py:attention", "--examples", "0", "--fix=no", "--write-test", "test_attn.py"]
    assert main(command) == 1
    assert re.search(r"^ +scale = [\d.]+$", Path("test_attn.py").read_text(encoding="utf-8"), re.M)

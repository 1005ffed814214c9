"""What people try first (docs/first-tries.md) in Python: it works, or one line says what to write instead.

What they try on the command line stands in ``test_manners`` and ``test_release``, and their own numbers in
``tests/derivations/walks/test_hostile.py``.
"""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import click
import numpy as np
import pytest

import symattn
from symattn import (
    Attention,
    Document,
    InputError,
    Report,
    RMSNorm,
    Rotary,
    Verdict,
    bound,
    claim,
    configurations,
    derive,
    draw,
    explore,
    functional,
    kind,
    kinds,
    printing,
    prove,
    reports,
    strategies,
    streaming,
    verify,
    walk,
)
from symattn import testing as symattn_testing
from symattn.testing import assert_attention, assert_close_to_exact
from symattn_cli.main import TABLE, commands, main
from tests.docs.pages import ROOT
from tests.faults.programs import plain
from tests.refusals import refuses

X = [[1, 0], ["1/2", 1], [0, "3/2"]]
EYE = [[1, 0], [0, 1]]
COMPLEX, DATES = np.eye(2) * 1j, np.eye(2, dtype=int).astype("datetime64[D]")
MASKED, RECORDS = np.ma.masked_equal(np.eye(2), 0), np.zeros((2, 2), [("a", "f4")])


IN_PYTHON: dict[str, tuple[Callable[[], Any], Callable[[Any], bool]]] = {
    "derive with a size by its letter": (
        lambda: derive("scaling", d_k=4),
        lambda d: d.parameters["dk"] == 4 and "--dk 4" in d.command,
    ),
    "walk tokens alone": (lambda: walk({"x": X}), lambda d: "no scaling" in d.text() and "parameter-free" in d.text()),
    "walk arrays of NumPy": (lambda: walk({"x": np.eye(2), "w_q": EYE, "w_k": EYE, "w_v": EYE}), lambda d: d.holds),
    "walk names as papers have them": (
        lambda: walk({"X": EYE, "Wq": EYE, "W_K": EYE, "WV": EYE}),
        lambda d: d.text() == walk({"x": EYE, "w_q": EYE, "w_k": EYE, "w_v": EYE}).text(),
    ),
    "prove a theorem": (lambda: prove("softmax-shift"), lambda d: d.holds and d.verdict_word == "proved"),
    "claim weights": (lambda: claim("weights", 0.3, 0.7, 0.1), lambda d: d.holds is False),
    "claim equality": (lambda: claim("equal", "exp(a)*exp(b)", "exp(a+b)"), lambda d: d.holds),
    "bound for sizes": (lambda: bound(n=256, d_k=64, dtype="bfloat16"), lambda b: 0 < b.value < 1),
    "bound for inputs": (
        lambda: bound(inputs={"Q": np.eye(3), "K": np.eye(3), "V": np.eye(3)}),
        lambda b: b.allowed.shape == (3, 3) and b.value == b.allowed.max(),
    ),
    "verify with a dtype": (lambda: verify(plain, dtype="float64", examples=0), lambda r: "float64" in r.text()),
    "repr of the usual specification": (lambda: repr(Attention()), lambda text: text == "Attention()"),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", IN_PYTHON)
def test_in_python(name: str) -> None:
    tried, works = IN_PYTHON[name]
    assert works(tried())


PRINTED: dict[str, Callable[[], Any]] = {
    "derivation": lambda: derive("shift"),
    "walk": lambda: walk("eight-step"),
    "claim": lambda: claim("weights", 0.5, 0.5),
    "bound": lambda: bound(n=16, d_k=4),
    "report": lambda: Report(Verdict.NO_FAULT, "f(q, k, v)", "float32", "all inputs", 1),
}


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_made_prints_and_has_every_form(name: str, tmp_path: Path) -> None:
    made = PRINTED[name]()
    document = made if isinstance(made, Document) else made.document()
    assert str(made) + "\n" == made.text() == document.text()
    assert len(repr(made)) < 200
    assert json.loads(made.json())["kind"] == document.kind
    assert "Made with symattn" in made.markdown()
    assert r"\documentclass" in made.latex()
    assert r"\documentclass" not in made.latex(fragment=True)
    for suffix in ("txt", "tex", "md", "json"):
        made.save(tmp_path / f"made.{suffix}")
        made.save(tmp_path / f"made.{suffix}")  # over its own
    assert (tmp_path / "made.md").read_text(encoding="utf-8") == made.markdown()


def test_a_file_of_others_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.md"
    path.write_text("mine")
    refuses(derive("shift").save, path, says="does not say that symattn wrote it")
    refuses(derive("shift").save, tmp_path / "page.docx", says="no format for the suffix")
    derive("shift").save(path, force=True)
    assert path.read_text(encoding="utf-8") == derive("shift").markdown()


SPECIFICATIONS = [
    Attention(),
    Attention(causal=True, window=(2, None), scale=Fraction(1, 3)),
    Attention(heads=4, kv_heads=2, position=Rotary(base=500000, scaling=symattn.LinearScaling(factor=2)), eps=0.0),
    symattn.like("llama"),
    symattn.like("gemma2"),
    symattn.Gradient(Attention(sink="zero")),
    symattn.RMSNorm(eps=1e-6),
    symattn.Domain(square=True),
]


def test_what_has_no_evidence_says_none() -> None:
    assert repr(symattn.exercises()).startswith("<derivation 'exercises'; print it")
    assert repr(walk(blank="1,2,3,4,5,6,7,8")).startswith("<walk 'eight-step'; print it")
    assert len(repr(explore({"x": EYE}))) < 80


def test_no_room_hides_a_function() -> None:
    rooms = {path.stem for path in Path(symattn.__file__).parent.iterdir()}
    assert rooms & {*symattn.__all__} == set()


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=repr)
def test_representations_are_short_and_are_read_back(specification: Any) -> None:
    names = {name: getattr(symattn, name) for name in symattn.__all__}
    text = repr(specification)
    assert eval(text, {**names, "Fraction": Fraction}) == specification
    assert "False" not in text
    assert len(text) < 220


def of_qkv(array: Any) -> dict[str, Any]:
    return dict.fromkeys("qkv", array)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a size that scaling has not": (lambda: derive("scaling", d_q=4), "has no parameter d_q; did you mean d_k?"),
    "a size given twice": (lambda: derive("scaling", d_k=4, dk=4), "d_k is given twice"),
    "a name of no array": (lambda: walk({"x": X, "W_qq": EYE}), "unknown name 'W_qq'. Did you mean 'w_q'?"),
    "an array given twice": (lambda: walk({"x": X, "X": X}), "x is given twice, once as 'X'"),
    "tokens as a parameter": (lambda: walk(x=X), "hint: walk({'x': …})"),
    "an array of a kind without lift": (lambda: kind("exact")([[1, 2]]), "hint: symattn.kind('exact').lift(data)"),
    "floats for exact numbers": (lambda: kind("exact")(np.eye(2)), "hint: symattn.kind('exact').lift(data)"),
    "no arrays": (lambda: walk({}), '"inputs" is missing'),
    "not a number": (lambda: walk({"x": [[float("nan")]]}), "holds nan, which is not a number"),
    "too large an array": (lambda: walk({"x": np.zeros((1000, 1000))}), "x is 1000 × 1000, 1000000 entries"),
    "another claim": (lambda: claim("weight", 1), "Did you mean 'weights'?"),
    "closer than nothing": (lambda: claim("closer", [1], [2]), "hint: than=(c, d)"),
    "elements of a bound for sizes": (lambda: bound(n=4).allowed, "hint: give the inputs"),
    "sizes beside inputs": (lambda: bound(None, {"q": [[1]], "k": [[1]], "v": [[1]]}, n=3), "n is for a bound without"),
    "a bound for no keys": (lambda: bound(n=0), "n must be an integer from 1 to 2^24, got 0"),
    "rows without a name": (lambda: walk([[1, 0], [0, 1]]), 'hint: walk({"x": …})'),
    "an array without a name": (lambda: walk(np.eye(2)), 'hint: walk({"x": …})'),
    "words for letters": (lambda: walk({"query": EYE, "key": EYE, "value": EYE}), "Did you mean 'q'?"),
    "sizes of a bound without names": (lambda: bound(256, 64), "hint: bound(n=256, d_k=64)"),
    "inputs of a bound without names": (lambda: bound(inputs=np.eye(2)), 'hint: bound(inputs={"q": …'),
    "a derivation by a word": (lambda: derive("variance"), "did you mean scaling?"),
    "a derivation of heads": (lambda: derive("multi_head"), "did you mean attention --heads 2?"),
    "a PDF": (lambda: derive("shift").save("shift.pdf"), "hint: write .tex, and typeset it with pdflatex"),
    "complex numbers": (lambda: walk({"x": COMPLEX}), "x holds complex128; give real numbers"),
    "complex numbers in a list": (lambda: walk({"x": [[np.complex64(1j)]]}), "x holds complex64; give real numbers"),
    "complex numbers among objects": (lambda: walk({"x": np.array([[1j]], object)}), "x holds complex"),
    "complex numbers in a picture": (lambda: draw("geometry", source={"x": COMPLEX}), "x holds complex128"),
    "complex inputs of a bound": (lambda: bound(inputs=of_qkv(COMPLEX)), "q holds complex128"),
    "a complex probability": (lambda: bound(alpha=1j), "it is a probability"),
    "a negative size": (lambda: bound(largest=-1), "largest must be a finite number of at least 0, got -1"),
    "a negative cap": (lambda: Attention(softcap=Fraction(-3)), "softcap must be a finite number above 0, got -3"),
    "a negative ε": (lambda: RMSNorm(eps=Fraction(-1, 2)), "eps must be a finite number of at least 0, got -1/2"),
    "a complex size": (lambda: bound(largest=1j), "largest must be"),
    "complex floats": (lambda: kind("float32").lift(COMPLEX), "float32 holds complex128"),
    "complex half precision": (lambda: kind("bf16").lift([[np.complex128(1)]]), "bfloat16 holds complex128"),
    "a complex cotangent": (lambda: symattn.vjp(Attention(), COMPLEX, of_qkv(np.eye(2))), "the cotangent holds"),
    "a complex tangent": (lambda: symattn.jvp(Attention(), {"q": COMPLEX}, of_qkv(np.eye(2))), "of q holds"),
    "dates": (lambda: walk({"x": DATES}), "x holds datetime64"),
    "masked entries": (lambda: walk({"x": MASKED}), "x holds masked entries; give real numbers"),
    "masked inputs of a bound": (lambda: bound(inputs=of_qkv(MASKED)), "q holds masked entries"),
    "masked entries for exact numbers": (lambda: kind("ball").lift(MASKED), "masked entries cannot be taken exactly"),
    "a masked output": (lambda: assert_close_to_exact(MASKED, *[np.eye(2)] * 3), "it is an array of masked entries"),
    "records": (lambda: walk({"x": RECORDS}), "x holds void; give real numbers"),
    "bytes": (lambda: walk({"x": np.array([[b"1", b"2"]])}), "x holds bytes_; give real numbers"),
    "words for inputs of a bound": (lambda: bound(inputs=of_qkv([["1", "x"]])), "inputs: no array can be made: could"),
    "objects for inputs of a bound": (lambda: bound(inputs=of_qkv({1, 2})), "inputs: no array can be made: float()"),
    "integers that no float holds": (
        lambda: bound(inputs=of_qkv([[10**400]])),
        "inputs: no array can be made: int too",
    ),
    "numbers wider than float64": (lambda: bound(inputs=of_qkv(np.longdouble(EYE))), "q holds longdouble"),
    "a complex claim": (lambda: claim("weights", 0.5 + 1j, 0.5), "and not about a complex"),
    "a claim about dates": (lambda: claim("weights", DATES[0]), "holds datetime64"),
    "a claim about nothing": (lambda: claim("weights"), "claim weights has no numbers"),
    "a name that frameworks have": (lambda: Attention(num_heads=8), "it is called heads"),
    "a mistyped field": (lambda: Attention(casual=True), "did you mean causal?"),
    "a field by its place": (lambda: Attention(True), "too many positional"),
    "a field in place of a specification": (lambda: verify(print, is_causal=True), "write Attention(causal=…)"),
    "a mistyped field in place of a specification": (lambda: verify(print, casual=True), "write Attention(causal=…)"),
    "a mistyped field of an assertion": (lambda: assert_close_to_exact(EYE, EYE, EYE, EYE, causl=1), "causal=…"),
    "a cap as checkpoints name it": (lambda: Attention(logit_softcapping=30), "it is called softcap"),
    "a tolerance": (lambda: verify(print, atol=1e-3), "no tolerance is picked"),
    "a size as the command line has it": (lambda: bound(n=256, dk=64), "it is called d_k"),
    "a field of an attention with a gradient": (lambda: symattn.Gradient(causal=True), "Attention(causal=…)"),
    "a mask as torch has it": (lambda: Attention()(**of_qkv(np.eye(2)), attn_mask=EYE), "write Attention(mask=…)"),
    "a walk of heads": (lambda: walk("cross", n_heads=2), "it is called heads"),
    "a mistyped step": (lambda: walk("cross", stpe=2), "did you mean step?"),
    "a picture of a head": (lambda: draw("scaling", head_dim=2), "it is called d_k"),
    "options of an assertion": (lambda: assert_attention(print, exampels=3), "did you mean examples?"),
    "a specification among options": (lambda: assert_attention(print, is_causal=True), "write Attention(causal=…)"),
    "a format by another's name": (lambda: assert_attention(print, dtype="bf16"), "it is called precision"),
    "a format as an object": (lambda: bound(n=4, d_k=4, dtype=np.float16), "got a type; hint: 'float16'"),
    "a format of torch": (lambda: bound(n=4, d_k=4, dtype="torch.bfloat16"), "did you mean bfloat16?"),
    "a mistyped contract": (lambda: bound(n=4, d_k=4, contract="fuse"), "unknown contract 'fuse'; did you mean fused?"),
    "a mistyped kind": (lambda: kind("exakt"), "unknown kind of array 'exakt'; did you mean exact?"),
    "a mistyped model": (lambda: symattn.like("lama"), "unknown model 'lama'; did you mean llama?"),
    "a mistyped word of a field": (lambda: Attention(alignment="topleft"), "got 'topleft'; did you mean top-left?"),
    "a mistyped position": (lambda: Attention(position="alibi"), "got 'alibi'; did you mean Alibi?"),
    "an unknown layout": (lambda: verify(plain, layout="bhdn"), "layout is 'bhdn'; known: nd, bnd,"),
    "a mistyped name that frameworks have": (lambda: Attention(num_haeds=8), "did you mean heads?"),
    "inputs by words": (lambda: Attention()(query=EYE, key=EYE, value=EYE), "it is called q"),
    "an input of a definition": (lambda: symattn.Merge()(o1=1, lse1=1, o2=1, l2=1), "Merge has no parameter lse1; did"),
    "a definition without an input": (lambda: symattn.Merge()(1, 1), "Merge: missing a required argument: 'o2'"),
    "a gradient without an upstream one": (lambda: symattn.Gradient(Attention())(**of_qkv(EYE)), "argument: 'do'"),
    "a definition without its attention": (
        lambda: symattn.Cached(),
        "Cached: missing a required argument: 'attention'",
    ),
    "a scaling without its factor": (lambda: symattn.YarnScaling(), "missing a required argument: 'factor'"),
    "a mistyped option of a document": (lambda: symattn.derive("shift").latex(fragmnt=True), "did you mean fragment?"),
    "an option by its place": (lambda: walk("cross").html(True), "too many positional"),
    "inputs of a gradient by place": (lambda: symattn.vjp(Attention(), EYE, EYE), "inputs must be a mapping of names"),
    "tangents by place": (lambda: symattn.jvp(Attention(), EYE, of_qkv(EYE)), "tangents must be a mapping of names"),
    "a cotangent in words": (lambda: symattn.vjp(Attention(), "x", of_qkv(EYE)), "the cotangent is a str; give"),
    "a gradient of words": (
        lambda: symattn.vjp(lambda q: "x", EYE, {"q": EYE}),
        "the function returned a str; it must",
    ),
    "an unknown theorem": (lambda: prove("softmax-shif"), "did you mean 'softmax-shift'?"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_told_in_one_line(name: str) -> None:
    tried, words = REFUSED[name]
    refuses(tried, says=words)


CALLED = [name for name in symattn.__all__ if isinstance(getattr(symattn, name), FunctionType)]
RESULTS = ("Document", "Evaluation", "Evidence", "Judgement", "Report")  # which nobody makes by hand
DESCRIBED = [name for name in symattn.__all__ if is_dataclass(getattr(symattn, name)) and name not in RESULTS]


@pytest.mark.parametrize("name", [*CALLED, *DESCRIBED])
def test_a_keyword_that_there_is_not_is_told_in_one_line(name: str) -> None:
    required = {"like": ("llama",), "by_tiles": (Attention(), (), ())}.get(name, ())
    with pytest.raises(InputError, match=r"^\w+( \w+)? has no (parameter|input) nonsuch(; |$)") as caught:
        getattr(symattn, name)(*required, nonsuch=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", Attention.__dataclass_fields__)
def test_a_field_that_is_taken_for_a_parameter_is_named_as_one(field: str) -> None:
    with pytest.raises(InputError, match=rf"it is a field: write Attention\({field}=…\)"):
        symattn.verify(lambda q, k, v: v, **{field: 1})


def test_public_names_are_listed_once_and_nothing_else() -> None:
    opened = configurations, functional, kinds, printing, reports, streaming
    for module in (symattn, symattn_testing, strategies, *opened):
        assert dir(module) == sorted(module.__all__)
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_a_public_name_that_there_is_not() -> None:
    with pytest.raises(AttributeError) as caught:
        symattn.verfy  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("verfy", symattn)  # by which Python suggests the name


def test_what_a_bound_is_for_has_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> dict[str, Any]:
        assert main(["bound", *words, "-f", "json"]) == 0
        return {**json.loads(capsys.readouterr().out), "command": ""}

    def made(**asked: Any) -> dict[str, Any]:
        return {**json.loads(bound(**asked).json()), "command": ""}

    file = str(tmp_path / "qkv.npz")
    np.savez(file, q=np.eye(3), k=np.eye(3), v=np.eye(3))
    assert told("--inputs", file) == told("--input", file) == made(inputs=file)
    assert told("--n", "16", "--dk", "4", "--largest", "3") == made(n=16, d_k=4, largest=3)
    assert told("--n", "16", "--dk", "4") == made(n=16, d_k=4) != made(n=16, d_k=4, largest=3)
    assert main(["bound", "--inputs", "bounded", "--largest", "4"]) == 2
    assert "hint: leave it out, and say --largest X" in " ".join(capsys.readouterr().err.split())


@pytest.mark.deep
def test_errors_point_to_where_the_reader_wants_to_go(run, tmp_path) -> None:
    tmp_path.joinpath("foreign.md").write_text("# Notes\n")
    tmp_path.joinpath("attn.py").write_text("def right(q, k, v): ...\n")
    for words, hint in (
        (("derive", "jacobian", "--dk", "4"), "it takes n (as options: --tokens)"),
        (("derive", "jacobian", "--mean", "0"), "as options: --tokens"),
        (("prove", "nosuch"), "`symattn prove --list` names the theorems"),
        (("prove", "softmax-shfit"), "did you mean 'softmax-shift'?"),
        (("verify", f"{tmp_path}/atn.py:attention"), "did you mean attn.py?"),
        (("verify", f"{tmp_path}/nofile.py:attention"), "Python files there: attn.py"),
        (("verify", f"{tmp_path}/attn.py"), f"such as {tmp_path}/attn.py:right"),
    ):
        ran = run(*words)
        assert ran.status in (2, 4)
        assert hint in ran.stderr
    ran = run("check", str(tmp_path / "foreign.md"))
    assert (ran.status, "symattn did not write it" in ran.stdout, "--skip-others" in ran.stdout) == (1, True, True)
    assert run("walk", "eight-step", "--step", "5").stdout.count("*") == 0
    assert "\nStep 5: Softmax\n" in run("walk", "eight-step", "--step", "5").stdout


def test_a_text_names_its_sheet() -> None:
    named = walk("money-bank-grows").blocks
    assert walk("money bank grows").blocks == walk("Money-Bank-Grows").blocks == named
    refuses(walk, "money bank", says="money bank")


LONG = ("derive", "walk", "explore", "draw", "exercises", "prove", "verify", "compare", "arithmetic", "bound", "faults")


@pytest.mark.parametrize("name", LONG)
def test_what_may_take_long_says_what_it_does(name: str) -> None:
    """How it is said, and when, is held by the tests of ``progress`` itself."""
    tree = ast.parse(Path(import_module(f"symattn_cli.{name}").__file__ or "").read_text(encoding="utf-8"))
    opened = [item.context_expr for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items]
    assert any(isinstance(c, ast.Call) and isinstance(c.func, ast.Name) and c.func.id == "progress" for c in opened)


@pytest.mark.deep
def test_the_book_is_what_report_writes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from symattn_cli import report

    asked = []
    few = report.proved
    monkeypatch.setattr(report, "proved", lambda names, **told: asked.append(names) or few(("softmax-shift",), **told))
    assert main(["report", "--no-cache"]) == 0
    shown = capsys.readouterr().out
    assert main(["report", "--book", "--no-cache"]) == 0
    assert capsys.readouterr().out == shown
    assert asked == [(), ()]


# Parameters of commands that name something to be imported and called, or run.
_RUN = {"target", "first", "second", "script", "what"}


def test_the_security_note_names_what_runs_code() -> None:
    note = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## What never does")[0]
    context = click.Context(commands)
    taking = {name for name in TABLE if _RUN & {p.name for p in commands.get_command(context, name).params}}  # type: ignore[union-attr]
    assert {"verify", "compare", "audit", "campaign"} <= taking
    named = set(re.findall(r"`symattn ([a-z]+)", note))
    assert taking | {"prove"} == named


@pytest.mark.parametrize("name", ["sheet.tex", "sheet.html"])
def test_sheets_for_a_class_are_written_in_other_forms(name: str, tmp_path: Path) -> None:
    whole, sheet = tmp_path / f"whole-{name}", tmp_path / name
    assert main(["walk", "eight-step", "-o", str(whole)]) == 0
    assert main(["walk", "eight-step", "--blank", "5,6", "-o", str(sheet)]) == 0
    assert "0.468310531" in whole.read_text(encoding="utf-8")
    assert "0.468310531" not in sheet.read_text(encoding="utf-8")

"""``symattn verify --definition``: definitions beside attention, in a process of their own."""

import json
import re
import shlex
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from symattn import (
    Attention,
    Block,
    Cached,
    DepthAttention,
    Differential,
    Grade,
    Gradient,
    InputError,
    LayerNorm,
    LinearAttention,
    LinearScaling,
    LongRopeScaling,
    Merge,
    NTKScaling,
    ProportionalScaling,
    RMSNorm,
    Rotary,
    Softmax,
    Verdict,
    YarnScaling,
    verify,
)
from symattn.programs import definitions
from symattn.programs.case_codes import decode, encode
from symattn.programs.child import verify_target
from symattn.programs.request import Request
from symattn.programs.specifications import kind_of, written
from symattn_cli.variants import read
from tests.cli.conftest import Run
from tests.verification.naming import convicts

PROGRAMS = """
    import os
    import numpy as np

    def rms(x, weight, eps=1e-6):
        return x / (np.sqrt((x * x).mean(-1, keepdims=True)) + np.float32(eps)) * weight

    def hangs(x, weight):
        while True:
            pass

    def rotated(x, positions, theta=10000.0):
        if x.shape[-2] == 9 and not os.path.exists("crashed"):
            open("crashed", "w").close()
            os._exit(3)
        d = x.shape[-1]
        a = np.asarray(positions)[..., None] * theta ** (-np.arange(0, d, 2) / d)
        c, s, y = np.cos(a), np.sin(a), np.empty_like(x)
        y[..., ::2] = x[..., ::2] * c - x[..., 1::2] * s
        y[..., 1::2] = x[..., ::2] * s + x[..., 1::2] * c
        return y

    def scores(q, k, is_causal):
        s = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
        n, m = s.shape[-2:]
        return np.where(np.tri(n, m, m - n, dtype=bool), s, np.float32(-np.inf)) if is_causal else s

    def in_base_two(q, k, v, is_causal=False, return_lse=False):
        s = scores(q, k, is_causal)
        top = s.max(-1, keepdims=True)
        e = np.exp(s - top)
        total = e.sum(-1, keepdims=True)
        lse = (top + np.log(total)) / np.float32(np.log(2))
        return (e / total @ v, lse[..., 0]) if return_lse else e / total @ v
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.py").write_text(dedent(PROGRAMS), encoding="utf-8")


@pytest.mark.deep
def test_a_norm_and_the_command_that_is_told(run: Run) -> None:
    first = run("verify", "f.py:rms", "--definition", "rmsnorm(eps=1/2)", "--examples", "0")
    assert first.status == 1
    words = "ε is added to the root of the mean square, outside the root"
    assert f"FAULT: {words} (d = 1,\nn = 1) [eps-outside-root]." in first.stdout
    case, told = (" ".join(part.split()) for part in first.stdout.split("symattn verify f.py")[1:])
    assert told == ":rms --definition 'RMSNorm(eps=1/2)' --examples 0"
    assert case.startswith(f"{told} --case ")
    assert read(shlex.split(told)[2]) == RMSNorm(eps=Fraction(1, 2))


@pytest.mark.deep
def test_a_call_that_never_returns_is_ended(run: Run) -> None:
    found = run("verify", "f.py:hangs", "--definition", "RMSNorm", "--time-limit", "0.3")
    assert found.status == 4
    assert "did not return within 0.3 s" in found.stderr
    assert found.stdout == ""


@pytest.mark.deep
def test_after_a_crash_the_function_is_called_as_before(run: Run) -> None:
    report = verify_target("f.py:rotated", Rotary(layout="interleaved"), layout="nd", examples=0)
    (fault,) = report.faults
    assert (fault.step, fault.counterexample and fault.counterexample.sizes["n"]) == ("call", 9)
    assert sum(check.cases for check in report.checks) > 10
    assert "--definition \"Rotary(layout='interleaved')\"" in report.command


@pytest.mark.deep
def test_the_logarithms_of_the_sums_are_judged() -> None:
    report = verify_target("f.py:in_base_two", Attention(causal=True, lse=True), layout="nd", examples=0)
    assert [(fault.step, fault.cause) for fault in report.faults] == [("lse", "the logarithm has the base 2")]
    assert Grade.TESTED not in [check.grade for check in report.checks]  # that is of the output alone
    assert report.command == "symattn verify f.py:in_base_two --definition lse --causal --layout nd --examples 0"


def test_settings_of_the_attention_are_passed() -> None:
    def backward(q, k, v, do, is_causal=False, softmax_scale=None):  # type: ignore[no-untyped-def]
        return q, k, v

    spec = Gradient(Attention(causal=True, scale=0.5))
    request = Request(spec=spec, layout="nd", framework="numpy")  # type: ignore[arg-type]
    told = definitions.target(backward, request).convention.printed
    assert told == "q, k, v, do, is_causal=True, softmax_scale=0.5"


SPECS = [
    Attention(causal=True, lse=True), Gradient(Attention(scale=1)), Cached(Attention(causal=True)), LayerNorm(),
    LayerNorm(eps=1e-6, one_plus=True), RMSNorm(eps=0), Rotary(layout="interleaved", width=2), Rotary(start=3),
    LinearAttention(feature="relu", causal=False, gate=None), Block(attention=Attention(heads=2), norm=None),
    Gradient(LinearAttention()), Gradient(LinearAttention.named("qwen3-next")),
    Merge(), Merge(base=2), DepthAttention(eps=0.25, layers="inner"),
    Differential(factor=0.5, norm="rms", eps=0.25), Softmax(Attention(mask="boolean")),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=written)
def test_definitions_are_written_and_read(spec: object) -> None:
    assert read(written(spec), kind_of(spec).attention_of(spec)) == spec  # type: ignore[arg-type]


def test_descriptions_within_a_definition_are_written_and_read() -> None:
    for kind in (LinearScaling, LongRopeScaling, NTKScaling, ProportionalScaling, YarnScaling):
        values: dict[str, Any] = {
            "factor": Fraction(5, 2),
            "length": 64,
            "short": (1,),
            "long": (2,),
            "share": Fraction(1, 2),
        }
        spec = Rotary(scaling=kind(**{n: values[n] for n in kind.__dataclass_fields__ if n in values}))
        assert read(written(spec)) == spec


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["rmsnrm"], "did you mean RMSNorm?"),
        (["nosuch"], "'nosuch' is not one of lse, Block"),
        (["LayerNorm(epss=1)"], "has no field epss"),
        (["LayerNorm(1)"], "by their names"),
        (["LayerNorm(eps=-1)"], "eps"),
        (["LayerNorm(eps=1/0)"], "the value of eps"),
        (["LayerNorm(eps=open('x'))"], "the value of eps"),
        (["LayerNorm(**{})"], "no field **"),
        (["LayerNorm("], "is no definition"),
        (["LinearAttention.named('rwkv6')"], "hint: --like rwkv6"),
        (['LinearAttention.like("gla")'], "hint: --like gla"),
        (["("], "is no definition"),
        (["[" * 5000], "is no definition"),
        (["__import__('os').getcwd()"], "is no definition"),
        (["LayerNorm", "--heads", "2"], "made of no attention"),
        (["gradient(causal=True)"], "by their options"),
        (["Gradient(attention=LinearAttention())", "--heads", "2"], "no options of an attention"),
        (["cached"], "--causal"),
        (["lse", "--batch"], "--batch"),
        (["RMSNorm", "--max-abs-score", "9"], "has no scores"),
        (["RMSNorm", "--case", "a1"], "--case a1: "),
    ],
    ids=lambda x: x[0][:30] if isinstance(x, list) else "",
)
def test_wrong_usage_is_one_line(run: Run, options: list[str], words: str) -> None:
    assert words in run("verify", "f.py:rms", "--definition", *options).refusal


@pytest.mark.deep
def test_squares_beyond_float16_where_sums_are_wider() -> None:
    import numpy as np

    def norm(x, gain):  # type: ignore[no-untyped-def]
        x32 = x.astype(np.float32)
        c = x32 - x32.mean(-1, keepdims=True)
        squares = np.minimum(c * c, np.float32(65504))
        return (c / np.sqrt(squares.mean(-1, keepdims=True) + np.float32(1e-5)) * gain).astype(x.dtype)

    from symattn import Precision

    assert convicts(norm, LayerNorm(), dtype=Precision.of("float16", "fused"), examples=0)
    assert verify(norm, LayerNorm(), precision="float16", examples=0).verdict is not Verdict.FAULT


def test_words_of_cases_hold_every_kind_of_array() -> None:
    """Names with a dot, booleans and whole numbers come back; a word of another definition is refused."""
    block, gradient = Block(attention=Attention()), Gradient(Attention(mask="boolean"))
    inputs = {
        block: {"x": np.array([[1.0, -0.5]]), "attention.w_q": np.array([[1.0], [3.0]])},
        gradient: {"do": np.array([[0.25]]), "mask": np.array([[True, False]])},
        Rotary(): {"q": np.array([[0.0, 1.0]]), "positions": np.array([7])},
        Cached(Attention(causal=True)): {"length": np.array(3)},
    }
    for spec, given in inputs.items():
        found = decode(spec, encode(spec, given, "float32"), "float32")
        assert list(found) == list(given)
        assert all(found[n].dtype.kind == a.dtype.kind and np.array_equal(found[n], a) for n, a in given.items())
    with pytest.raises(InputError, match="no case of this specification"):
        decode(Gradient(Attention(causal=True)), encode(gradient, inputs[gradient], "float32"), "float32")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "definition"),
    [("rms", "RMSNorm(eps=0.25)"), pytest.param("in_base_two", "lse", marks=pytest.mark.exhaustive)],
)
def test_a_case_is_repeated_and_written_as_a_test(name: str, definition: str, run: Run) -> None:
    verified, written_test = ("verify", f"f.py:{name}", "--definition", definition), f"test_{name}.py"
    first = run(*verified, "--examples", "0", "-f", "json", "--write-test", written_test)
    assert first.status == 1
    (word,) = {fault["case"] for fault in json.loads(first.stdout)["faults"]}
    again = run(*verified, "--case", word)
    assert again.status == 1
    assert "this case alone" in again.stdout
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", written_test], capture_output=True, text=True)
    assert tests.returncode == 1
    assert "1 failed" in tests.stdout
    assert len(re.findall(r"^E .*entries are wrong", tests.stdout, re.MULTILINE)) == 1

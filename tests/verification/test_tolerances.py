"""The tolerance that is derived, and what picked ones accept and refuse."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Grade, InputError, Precision, bound
from symattn.verification.tolerances.weighing import WeighedTolerance, weigh
from symattn_cli.main import main
from tests.refusals import refuses

SIZES = {"n": 24, "d_k": 8}


def _rounded(dtype: str, x: np.ndarray) -> np.ndarray:
    return np.asarray(Precision.of(dtype).input.rounded(x))


def _drawn(seed: int, dtype: str = "float32") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: _rounded(dtype, rng.standard_normal((24, 8))) for n in "qkv"}


def _kernel(spec: Attention, inputs: dict[str, np.ndarray], dtype: str) -> np.ndarray:
    """A right program that stores its weights and its output in a format, and all else in float64."""
    traced = spec.trace(**inputs)
    return _rounded(dtype, _rounded(dtype, traced["weights"]) @ inputs["v"])


@pytest.mark.parametrize("seed", range(20))
def test_inputs_from_the_normal_distribution_are_within_its_reach(seed: int) -> None:
    inputs, most = _drawn(seed), bound(**SIZES).asked.reach
    assert np.linalg.norm(inputs["q"], axis=-1).max() <= most.q
    assert np.linalg.norm(inputs["k"], axis=-1).max() <= most.k
    assert np.abs(inputs["v"]).max() <= most.v


def test_more_columns_reach_further_and_more_keys_too() -> None:
    usual, wide, long = (bound(**sizes).asked.reach for sizes in (SIZES, SIZES | {"d_k": 64}, SIZES | {"n": 240}))
    assert usual.q < wide.q
    assert usual.k < long.k < 1.5 * usual.k


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_bound_beforehand_holds_that_of_each_element_and_right_code(dtype: str, causal: bool) -> None:
    """For entries of ±1 and ±2, whose norms are the largest that it admits; those of 2 have scores up to 11."""
    spec, signs = Attention(causal=causal), {name: np.sign(a) for name, a in _drawn(1).items()}
    signs["k"][5] = signs["q"][7]
    for largest, contract in ((1.0, "fused"), (2.0, "eager")):
        inputs = {name: largest * a for name, a in signs.items()}
        value = bound(spec, dtype=dtype, largest=largest, contract=contract, **SIZES).value
        assert bound(spec, inputs, dtype, contract=contract).allowed.max() <= value
        off = np.abs(_kernel(spec, inputs, dtype) - spec(**inputs)).max()
        assert 0 < off <= value


def test_a_wrong_program_is_beyond_the_bound_beforehand() -> None:
    inputs = _drawn(2)
    apart = Attention(scale=1 / 8)(**inputs) - Attention()(**inputs)
    assert np.abs(apart).max() > 10 * bound(contract="eager", **SIZES).value


def test_a_bound_as_large_as_the_values_are_apart_says_nothing() -> None:
    asked = bound(n=1024, d_k=64, dtype="bfloat16", contract="eager")
    assert asked.value == np.inf
    (grade, *_) = [e.grade for e in asked.document().evidence()]
    assert grade is Grade.UNDECIDED


def test_a_tolerance_accepts_as_assert_close_does() -> None:
    rule = WeighedTolerance("", rtol=0.5, atol=0.0)
    one, three = np.array([1.0, np.nan]), np.array([1.5, np.nan])
    assert rule.accepts(three, one)
    assert not rule.accepts(np.array([1.6, np.nan]), one)
    assert not rule.accepts(np.array([1.0, 0.0]), one)
    assert rule.needed(np.array([1.25]), np.array([1.0])) == 0.5


def _weighed(dtype: str, *rules: WeighedTolerance, **sizes: int) -> Any:
    asked = bound(Attention(causal=dtype == "float32"), dtype=dtype, contract="fused", **(sizes or SIZES)).asked
    return weigh(asked.spec, asked.precision, asked.sizes, rules)


@pytest.mark.deep
def test_a_loose_tolerance_accepts_mistakes_and_a_tight_one_refuses_right_code() -> None:
    loose, tight = WeighedTolerance("loose", 0.0, 0.5), WeighedTolerance("tight", 0.0, 1e-9)
    found = _weighed("float32", loose, tight, n=256, d_k=16)
    plain = {w.tolerance.name: w for w in found if w.family == "N(0, 1)"}
    assert 0 < len(plain["loose"].accepted) < plain["loose"].tried
    assert not plain["loose"].refuses
    assert not plain["tight"].accepted
    assert plain["tight"].refuses


@pytest.mark.deep
def test_one_rounding_to_bfloat16_near_thirty_exceeds_a_small_atol() -> None:
    """sgl-project/sglang#35795: half a unit in the last place of a number near 30 is 0.0625."""
    found = _weighed("bfloat16", WeighedTolerance("", 0.0, 0.06))
    assert next(w for w in found if w.family == "values near 30").refuses


def test_float64_is_not_weighed() -> None:
    refuses(_weighed, "float64", WeighedTolerance("", 0.0, 0.5), says="float64")
    document = bound(dtype="float64", **SIZES).document(compare=True)
    assert document.blocks == bound(dtype="float64", **SIZES).document().blocks


@pytest.mark.parametrize("largest", [1.0, 0.37, 123456.0, 1e-30, 3e-300])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_digits_are_rounded_up(largest: float, dtype: str) -> None:
    found = bound(dtype=dtype, largest=largest, **SIZES)
    printed = float(repr(found).partition("atol=")[2].partition(",")[0])
    assert found.value <= printed
    assert printed <= found.value * 1.02 or printed == found.value


def test_a_table_has_a_line_for_each_combination(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", "--n", "16,64", "--dk", "4,8", "--dtype", "float32,bf16"]) == 0
    printed = capsys.readouterr().out.partition("Made with")[0]
    assert printed.count("float32") == 4
    assert printed.count("bfloat16") == 4


def test_every_form_has_the_tolerance() -> None:
    found = bound(largest=1.0, **SIZES)
    digits = repr(found).partition("atol=")[2].partition(",")[0]
    document = found.document()
    for printed in (document.text(), document.latex(), document.markdown()):
        assert digits in printed.replace("{", "").replace("}", "")
    assert str(found.value) in document.json()


def test_the_file_of_inputs_is_read_and_judged(tmp_path: Path) -> None:
    path, inputs = tmp_path / "qkv.npz", _drawn(3, "float16")
    np.savez(path, **{n: a.astype(np.float16) for n, a in inputs.items()})
    found = bound(Attention(), str(path), "float16")
    assert np.array_equal(found.allowed, bound(Attention(), inputs, "float16").allowed)
    record = json.loads(found.document().json())
    assert (found.allowed <= record["value"]).all()
    exact = Attention()(**inputs)
    assert (found.allowed <= record["rtol"] * np.abs(exact) * (1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"q": [[1.0]], "k": [[1.0]]}, "no array v"),
        ({n: [[1.0]] for n in "qkvx"}, "x is not an input"),
        ({"q": [[np.nan]], "k": [[1.0]], "v": [[1.0]]}, "NaN or infinity"),
        (
            {"q": [[0.1]], "k": [[1.0]], "v": [[1.0]]},
            "q is not rounded: float16 cannot hold 0.1; hint: round the arrays to float16",
        ),
        ({"q": [["a"]], "k": [[1.0]], "v": [[1.0]]}, "has the type"),
    ],
)
def test_bad_files_are_refused_in_one_line(arrays: dict[str, list[list[float]]], words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **{n: np.array(a) for n, a in arrays.items()})
    refuses(bound, None, str(path), "float16", says=words)


def test_pickles_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, q=np.array([{}], dtype=object), k=np.ones((1, 1)), v=np.ones((1, 1)))
    refuses(bound, None, str(path), says="pickled")
    refuses(bound, None, str(tmp_path / "none.npz"), says="cannot be read")


def test_the_formula_refuses_what_it_does_not_speak_of() -> None:
    refuses(bound, Attention(softcap=5), **SIZES, says="softcap=5")
    with pytest.raises(InputError, match="scale that is a number"):
        bound(Attention(scale="given"), **SIZES)


def test_the_sharp_tolerance_is_no_larger_than_the_worst_case() -> None:
    """A row of few keys: exponentials that may be off by 2⁻¹³ weigh more there than all that the worst case allows."""
    rng = np.random.default_rng(0)
    inputs = {name: _rounded("float16", rng.standard_normal((40, 64))) for name in "qkv"}
    found = bound(Attention(causal=True), inputs, "float16", contract="fused")
    assert found.sharp is not None
    assert found.sharp.worse > 0
    assert (found.sharp.elements <= found.allowed).all()
    told = " ".join(found.document().text().split())
    assert f"For {found.sharp.worse} of 2560 elements the worst case allows less" in told
    assert found.sharp.largest == found.value


def test_the_mean_of_the_worst_case_is_taken_where_it_is_smaller() -> None:
    found = bound(Attention(causal=True), {"q": np.eye(2), "k": np.eye(2), "v": np.eye(2)}, "float16")
    assert found.sharp is not None
    assert found.sharp.mean() == pytest.approx(found.allowed.mean(), rel=1e-8)
    assert found.sharp.mean(np.array([[1.0, 0.0], [0.0, 0.0]])) == pytest.approx(found.allowed[0, 0], rel=1e-8)
    many = {name: np.random.default_rng(0).normal(size=(64, 8)).astype("float16") for name in "qkv"}
    wide = bound(Attention(), many, "float16")
    assert wide.sharp is not None
    assert wide.sharp.mean() < 0.5 * wide.allowed.mean()

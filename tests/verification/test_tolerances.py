"""The tolerance that is derived, and what picked ones accept and refuse."""

from pathlib import Path

import numpy as np
import pytest

from symattn import Attention, Grade, InputError, Precision
from symattn.arrays.formats import Format
from symattn.bounds.inputs import Sizes
from symattn.bounds.reference import trace
from symattn.bounds.worst_case import bound
from symattn.document.render import render
from symattn.verification.rules import scoring
from symattn.verification.tolerances import bound_document, tolerance
from symattn.verification.tolerances.asked import Reach, beforehand, bounded, for_inputs, normal, read_inputs
from symattn.verification.tolerances.weighing import WeighedTolerance, legal, picked, weigh
from tests.refusals import refuses

SIZES = Sizes(24, 24, 8, 8)


def _drawn(seed: int, dtype: str = "float32") -> dict[str, np.ndarray]:
    rng, f = np.random.default_rng(seed), Precision.of(dtype).input
    return {n: f.rounded(rng.standard_normal((24, 8))) for n in "qkv"}


def of_inputs(inputs: dict[str, np.ndarray]) -> Reach:
    """What these inputs reach."""
    norms = (float(np.linalg.norm(inputs[n], axis=-1).max()) * (1 + 2.0**-40) for n in "qk")
    return Reach(*norms, float(np.abs(inputs["v"]).max()), "the inputs given")


@pytest.mark.parametrize("seed", range(20))
def test_inputs_from_the_normal_distribution_are_within_its_reach(seed: int) -> None:
    found, most = of_inputs(_drawn(seed)), normal(SIZES)
    assert found.q <= most.q
    assert found.k <= most.k
    assert found.v <= most.v


def test_a_larger_risk_gives_a_smaller_reach() -> None:
    assert normal(SIZES, 0.5).q < normal(SIZES).q < normal(Sizes(24, 24, 64, 8)).q


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_bound_beforehand_holds_that_of_each_element_and_right_code(dtype: str, causal: bool) -> None:
    spec, precision, inputs = Attention(causal=causal), Precision.of(dtype, "fused"), _drawn(1, dtype)
    value = beforehand(spec, precision, SIZES, of_inputs(inputs)).value
    assert bound(spec, inputs, precision).largest <= value
    exact = trace(spec, dict(inputs))["output"]
    assert np.abs(legal(spec, inputs, precision) - exact).max() <= value


def test_a_wrong_program_is_beyond_the_bound_beforehand() -> None:
    inputs, spec = _drawn(2), Attention()
    wrong = next(m for m in scoring.of_scales(spec) if m.cause.startswith("scores are scaled by 1/d_k"))
    apart = trace(spec, dict(inputs), wrong.variant)["output"] - trace(spec, dict(inputs))["output"]
    assert np.abs(apart).max() > 10 * beforehand(spec, Precision.of("float32"), SIZES, normal(SIZES)).value


def test_a_bound_as_large_as_the_values_are_apart_says_nothing() -> None:
    asked = beforehand(Attention(), Precision.of("bfloat16", "eager"), Sizes(1024, 1024, 64, 64), normal(SIZES))
    assert asked.value == np.inf
    grades = {e.grade for e in bound_document.beforehand(asked, (), "").evidence()}
    assert grades == {Grade.UNDECIDED}


def test_a_tolerance_accepts_as_assert_close_does() -> None:
    rule = WeighedTolerance("", rtol=0.5, atol=0.0)
    one, three = np.array([1.0, np.nan]), np.array([1.5, np.nan])
    assert rule.accepts(three, one)
    assert not rule.accepts(np.array([1.6, np.nan]), one)
    assert not rule.accepts(np.array([1.0, 0.0]), one)
    assert rule.needed(np.array([1.25]), np.array([1.0])) == 0.5


@pytest.mark.deep
def test_a_loose_tolerance_accepts_mistakes_and_a_tight_one_refuses_right_code() -> None:
    loose, tight = WeighedTolerance("loose", 0.0, 0.5), WeighedTolerance("tight", 0.0, 1e-9)
    found = weigh(Attention(causal=True), Precision.of("float32"), Sizes(256, 256, 16, 16), (loose, tight))
    plain = {w.tolerance.name: w for w in found if w.family == "N(0, 1)"}
    assert 0 < len(plain["loose"].accepted) < plain["loose"].tried
    assert not plain["loose"].refuses
    assert not plain["tight"].accepted
    assert plain["tight"].refuses


def test_one_rounding_to_bfloat16_near_thirty_exceeds_a_small_atol() -> None:
    """sgl-project/sglang#35795: half a unit in the last place of a number near 30 is 0.0625."""
    found = weigh(Attention(), Precision.of("bfloat16", "fused"), SIZES, (WeighedTolerance("", 0.0, 0.06),))
    assert next(w for w in found if w.family == "values near 30").refuses


def test_float64_is_not_weighed() -> None:
    refuses(weigh, Attention(), Precision.of("float64"), SIZES, picked("float32"), says="float64")


@pytest.mark.parametrize("x", [0.12001, 9.9999e-5, 1.0, 123456.0, 3e-310])
def test_digits_are_rounded_up(x: float) -> None:
    assert x <= float(bound_document.digits(x)) <= x * 1.02


def test_a_table_has_a_line_for_each_combination() -> None:
    document = tolerance.document(Attention(), "symattn bound", n=(16, 64), dk=(4, 8), dtype=("float32", "bf16"))
    text = render(document, "text")
    assert text.count("float32") == 4
    assert text.count("bfloat16") == 4


@pytest.mark.parametrize("form", ["text", "latex", "markdown", "json"])
def test_every_form_has_the_tolerance(form: str) -> None:
    asked = beforehand(Attention(), Precision.of("float32"), SIZES, bounded(SIZES))
    found = render(bound_document.beforehand(asked, (), "symattn bound"), form)
    digits = bound_document.digits(asked.value)
    assert (str(asked.value) if form == "json" else digits) in found.replace("{", "").replace("}", "")


def test_the_file_of_inputs_is_read_and_judged(tmp_path: Path) -> None:
    path, inputs = tmp_path / "qkv.npz", _drawn(3, "float16")
    np.savez(path, **{n: a.astype(np.float16) for n, a in inputs.items()})
    read = read_inputs(str(path), Attention(), Precision.of("float16"))
    asked = for_inputs(Attention(), Precision.of("float16", "fused"), read)
    assert np.array_equal(asked.bound.allowed, bound(Attention(), inputs, asked.precision).allowed)
    atol, rtol = asked.needed
    assert (asked.bound.allowed <= atol).all()
    assert (asked.bound.allowed <= rtol * np.abs(asked.exact) * (1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"q": [[1.0]], "k": [[1.0]]}, "no array v"),
        ({n: [[1.0]] for n in "qkvx"}, "x is not an input"),
        ({"q": [[np.nan]], "k": [[1.0]], "v": [[1.0]]}, "NaN or infinity"),
        ({"q": [[0.1]], "k": [[1.0]], "v": [[1.0]]}, "float16 cannot hold"),
        ({"q": [["a"]], "k": [[1.0]], "v": [[1.0]]}, "has the type"),
    ],
)
def test_bad_files_are_refused_in_one_line(arrays: dict[str, list[list[float]]], words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **{n: np.array(a) for n, a in arrays.items()})
    with pytest.raises(InputError, match=words):
        read_inputs(str(path), Attention(), Precision.of("float16"))


def test_pickles_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, q=np.array([{}], dtype=object), k=np.ones((1, 1)), v=np.ones((1, 1)))
    refuses(read_inputs, str(path), Attention(), Precision.of("float32"), says="pickled")
    refuses(read_inputs, str(tmp_path / "none.npz"), Attention(), Precision.of("float32"), says="cannot be read")


def test_the_formula_refuses_what_it_does_not_speak_of() -> None:
    refuses(beforehand, Attention(softcap=5), Precision.of("float32"), SIZES, normal(SIZES), says="softcap=5")
    with pytest.raises(InputError, match="scale that is a number"):
        beforehand(Attention(scale="given"), Precision.of("float32"), SIZES, normal(SIZES))


def test_the_sharp_tolerance_is_no_larger_than_the_worst_case() -> None:
    """A row of few keys: exponentials that may be off by 2⁻¹³ weigh more there than all that the worst case allows."""
    rng = np.random.default_rng(0)
    inputs = {name: Format("float16").rounded(rng.standard_normal((40, 64))) for name in "qkv"}
    found = tolerance.bound(Attention(causal=True), inputs, "float16", contract="fused")
    assert found.sharp is not None
    assert found.sharp.worse > 0
    assert (found.sharp.elements <= found.allowed).all()
    told = " ".join(found.document().text().split())
    assert f"For {found.sharp.worse} of 2560 elements the worst case allows less" in told
    assert found.sharp.largest == found.value


def test_the_mean_of_the_worst_case_is_taken_where_it_is_smaller() -> None:
    found = tolerance.bound(Attention(causal=True), {"q": np.eye(2), "k": np.eye(2), "v": np.eye(2)}, "float16")
    assert found.sharp is not None
    assert found.sharp.mean() == pytest.approx(found.allowed.mean(), rel=1e-8)
    assert found.sharp.mean(np.array([[1.0, 0.0], [0.0, 0.0]])) == pytest.approx(found.allowed[0, 0], rel=1e-8)
    many = {name: np.random.default_rng(0).normal(size=(64, 8)).astype("float16") for name in "qkv"}
    wide = tolerance.bound(Attention(), many, "float16")
    assert wide.sharp is not None
    assert wide.sharp.mean() < 0.5 * wide.allowed.mean()

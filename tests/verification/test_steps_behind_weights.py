"""A step behind the weighted values has a bound, formulas and gradients from its record alone, whatever it computes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Cached, Gradient, InputError, Precision, Softmax, kinds
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.stages import stage_order
from symattn.attention.variants import VARIANTS
from symattn.bounds.balls import allowed
from symattn.bounds.judge import expected
from symattn.bounds.output_steps import BOUNDS
from symattn.bounds.reference import run
from symattn.verification.rules.families import families
from tests.verification.drawn_arithmetic import Arithmetic
from tests.verification.test_bounds_of_steps import ways_of

Array = Any
PRECISIONS = ("float32", "float16", "bfloat16")
#: Specifications whose gate the steps below replace: of one head, of several, and of tokens, before and after W_O.
ONE = Attention(output_gate=True)
HEADS = Attention(heads=2, output_gate=True)
LATE = Attention(heads=2, output_gate=True, output_gate_place="after")
TOKENS = {"x": (4, 6), "w_q": (6, 6), "w_k": (6, 6), "w_v": (6, 4), "w_o": (4, 5), "b_o": (5,)}
SHAPES: dict[str, tuple[Attention, dict[str, tuple[int, ...]]]] = {
    "one head": (ONE, {"q": (4, 3), "k": (5, 3), "v": (5, 2), "gate": (4, 2)}),
    "heads": (HEADS, {"q": (2, 4, 3), "k": (2, 5, 3), "v": (2, 5, 2), "gate": (2, 4, 2)}),
    "heads of tokens": (HEADS, {**TOKENS, "gate": (2, 4, 2)}),
    "projected tokens": (LATE, {**TOKENS, "gate": (4, 5)}),
}


def normalised(h: Array, gate: Array) -> Array:
    """The norm of each row, times numbers of each query and column."""
    xp = h.__array_namespace__()
    mean = xp.mean(h * h, axis=-1, keepdims=True)
    return h / xp.sqrt(mean + xp.asarray(0.25, dtype=h.dtype)) * gate


def stretched(h: Array, gate: Array) -> Array:
    """1024 (h_il − h_i1): differences of numbers that may lie far from 0."""
    return (h - h[..., :1]) * h.__array_namespace__().asarray(1024, dtype=h.dtype)


LEGAL: dict[str, tuple[Callable[..., Array], str]] = {
    "scales": (lambda h, gate: h * gate, "scales"),
    "adds": (lambda h, gate: h + gate, "adds"),
    "subtracts": (lambda h, gate: h - gate, "adds"),
    "norm": (normalised, "rounded"),
    "stretch": (stretched, "rounded"),
    "product": (lambda h, gate: h * gate, "rounded"),
}
WRONG = ("adds", "scales", "gates")
#: Bounds may be so many times smaller before a drawn program breaks them, as those of plain attention may.
TIGHT = 500


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a step in the place of the output gate."""

    def replace_gate(step: Callable[..., Array], errors: Any, of: tuple[str, ...] = ("output", "gate")) -> None:
        def stage(flow: Any) -> None:
            flow.add("gated", step, "f(@0)", of, role="output", errors=errors)

        def early(flow: Any) -> None:
            if not flow.spec.gates_projection:
                stage(flow)

        stages = {"output_gate": early, "gates_projection": stage}
        others = tuple((field, stages.get(field, one)) for field, one in stage_order.STAGES)
        monkeypatch.setattr(stage_order, "STAGES", others)

    return replace_gate


def draw(shapes: dict[str, tuple[int, ...]], seed: int, near: bool) -> dict[str, np.ndarray]:
    """Inputs; values that are ``near`` differ by little, and lie far from 0."""
    rng = np.random.default_rng(seed)
    given = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    if near and "v" in given:
        given["v"] = 8 + 8 * rng.random((*shapes["v"][:-1], 1)) + given["v"] * 2.0**-9
    return given


def find_largest_share(place: str, precision: str, near: bool = False) -> float:
    """How far the definition's own code in a drawn arithmetic is from the exact output, in units of the bound."""
    spec, shapes = renew(place), SHAPES[place][1]
    p, found = Precision.of(precision), 0.0
    for seed in range(6):
        given = {name: p.input.rounded(a) for name, a in draw(shapes, seed, near).items()}
        arithmetic = Arithmetic(p, seed)
        with np.errstate(all="ignore"):
            got = np.asarray(spec(**{name: arithmetic.lift(a) for name, a in given.items()}), dtype=float)
        ratios = np.asarray(expected(spec, given, p).ratios(got), dtype=float)
        found = max(found, float(np.nanmax(ratios, initial=0.0)))
    return found


def renew(place: str) -> Attention:
    """The specification made anew: one that was run before keeps its steps."""
    return replace(SHAPES[place][0])


# -- bounds ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("place", SHAPES)
@pytest.mark.parametrize("name", LEGAL)
@pytest.mark.parametrize("near", [False, True])
def test_a_legal_program_is_within_the_bound(name: str, place: str, near: bool, put: Callable[..., None]) -> None:
    put(*LEGAL[name])
    shares = {precision: find_largest_share(place, precision, near) for precision in PRECISIONS}
    assert max(shares.values()) <= 1
    # In half precision the bound of a norm may say nothing, where that of the weighted values is as large as these.
    assert shares["float32"] > 1 / TIGHT


@pytest.mark.parametrize("errors", WRONG)
def test_a_wrong_error_term_is_exceeded_by_a_legal_program(errors: str, put: Callable[..., None]) -> None:
    """Differences of outputs are no outputs times a factor, or plus an input."""
    put(stretched, errors)
    assert find_largest_share("one head", "float32", near=True) > 1


@pytest.mark.parametrize("name", ["scales", "adds", "norm"])
def test_a_bound_that_forgets_what_the_weighted_values_are_off_by_is_exceeded(
    name: str, put: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values cancel, so that their mean is less exact than its size."""
    step, errors = LEGAL[name]
    put(step, errors)
    values = np.array([[3.0], [-3.0], [5.0], [-5.0], [7.0], [-7.0]]) + 2.0**-8 * np.arange(6)[:, None]
    zeros = {"q": np.zeros((1, 2)), "k": np.zeros((6, 2)), "gate": np.full((1, 1), 2.0**-8)}
    spec, p = renew("one head"), Precision.of("float32")
    given = {**zeros, "v": values}
    outputs = [
        np.asarray(spec(**{n: Arithmetic(p, seed).lift(a) for n, a in given.items()}), dtype=float) for seed in range(9)
    ]
    bounds = BOUNDS[errors]
    assert max(float(expected(spec, given, p).ratios(got).max()) for got in outputs) <= 1
    monkeypatch.setitem(BOUNDS, errors, lambda *given: bounds(*given[:3], given[3] * 0))
    assert max(float(expected(spec, given, p).ratios(got).max()) for got in outputs) > 1


def shrunk(h: Array, gate: Array) -> Array:
    """h + 2⁻²⁶ g, whose constant is no number of float16."""
    return h + gate * h.__array_namespace__().asarray(2.0**-26, dtype=h.dtype)


UNDERFLOWING: dict[str, tuple[Callable[..., Array], str, Precision, float]] = {
    "a constant of what is added": (shrunk, "adds", Precision.of("float16"), 0.0),
    # The format with the largest roundoff has a wider range than that of the weighted values.
    "weighted values": (
        lambda h, gate: h * gate,
        "scales",
        Precision.of("float16", "fused", stored="bfloat16"),
        2.0**-24,
    ),
}


@pytest.mark.parametrize("name", UNDERFLOWING)
def test_what_underflows_before_a_large_factor_is_within_the_bound(name: str, put: Callable[..., None]) -> None:
    step, errors, p, value = UNDERFLOWING[name]
    put(step, errors)
    values = np.array([[value], [0.0], [0.0]])
    given = {"q": np.zeros((1, 2)), "k": np.zeros((3, 2)), "v": values, "gate": np.array([[2.0**10]])}
    judged = expected(renew("one head"), given, p)
    assert np.asarray(judged.ratios(np.zeros((1, 1)))).max() <= 1
    assert np.asarray(judged.ratios(np.full((1, 1), 2.0**-6))).max() > 1


@pytest.mark.parametrize("in_balls", [False, True])
def test_weighted_values_that_underflow_before_their_projection_are_within_the_bound(in_balls: bool) -> None:
    """Each is a third of the smallest number, which a fused kernel stores as 0."""
    one, p = np.ones((1, 1)), Precision.of("float16", "fused")
    given = {
        "x": np.array([[2.0**-24], [0.0], [0.0]]),
        "w_q": 0 * one,
        "w_k": 0 * one,
        "w_v": one,
        "w_o": 2.0**15 * one,
    }
    with kinds.precision(128):
        bound = allowed(run(Attention(), given), p) if in_balls else expected(Attention(), given, p).allowed
    exact = 2.0**-9 / 3
    assert (bound >= exact).all()
    assert (bound < 4 * exact).all()


@pytest.mark.parametrize("place", SHAPES)
@pytest.mark.parametrize("name", LEGAL)
def test_the_bound_in_floats_is_that_in_balls(name: str, place: str, put: Callable[..., None]) -> None:
    put(*LEGAL[name])
    spec, shapes = renew(place), SHAPES[place][1]
    p, given = Precision.of("float32"), draw(shapes, 0, False)
    with kinds.precision(128):
        balls = allowed(run(spec, given), p)
    floats = expected(spec, given, p).allowed
    assert (floats >= balls * (1 - 1e-9)).all()
    assert (floats <= balls * 1.01).all()


@pytest.mark.parametrize("errors", [None, "own", "moves", "products", "rotates"])
def test_an_error_term_that_is_not_proved_there_is_refused(errors: Any, put: Callable[..., None]) -> None:
    put(lambda h, gate: h * gate, errors)
    with pytest.raises(InputError, match="no bound is proved for the step 'gated'"):
        find_largest_share("one head", "float32")


def test_an_operand_that_is_computed_is_refused(put: Callable[..., None]) -> None:
    """Its errors are not in the record."""
    put(lambda h, s: h * s[..., :1], "scales", ("output", "scaled"))
    with pytest.raises(InputError, match="no bound is proved for the step 'gated'"):
        find_largest_share("one head", "float32")


@pytest.mark.parametrize("errors", ["gates", "projects"])
def test_error_terms_of_outputs_are_refused_before_the_weights(errors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stage(flow: Any) -> None:
        flow.add("biased", lambda s, bias: s * bias, "@0 ⊙ @1", ["scores", "bias"], role="scores", errors=errors)

    others = tuple((field, stage if field == "bias" else one) for field, one in stage_order.STAGES)
    monkeypatch.setattr(stage_order, "STAGES", others)
    given = {"q": np.ones((2, 2)), "k": np.ones((2, 2)), "v": np.ones((2, 2)), "bias": np.ones((2, 2))}
    with pytest.raises(InputError, match="no bound is proved for the step 'biased'"):
        expected(Attention(bias=True), given, Precision.of("float32"))


def test_what_may_leave_the_range_has_no_bound(put: Callable[..., None]) -> None:
    put(lambda h, gate: h * gate, "scales")
    spec, p = Attention(output_gate=True), Precision.of("float16")
    given = {"q": np.zeros((2, 1)), "k": np.zeros((1, 1)), "v": np.full((1, 1), 2.0**8)}
    found = expected(spec, {**given, "gate": np.array([[2.0**9], [1.0]])}, p).ratios(np.full((2, 1), 1e4))
    assert np.asarray(found)[0] == 0
    assert np.asarray(found)[1] > 1


# -- names -------------------------------------------------------------------------------------------------------------
def test_whatever_step_comes_last_has_the_row_of_its_stage() -> None:
    for variant in VARIANTS.values():
        steps = variant.spec.pipeline(variant.names)
        assert steps[-1].name == "output"
        assert [step.row for step in steps[:-1]] == [step.name for step in steps[:-1]]
        assert {step.row for step in steps} <= ARRAYS.keys()


@pytest.mark.parametrize(("given", "changed"), [("gate q k v", "output"), ("gate x w_q w_k w_v w_o", "gated")])
def test_a_factor_of_what_is_added_is_fitted_wherever_the_step_stands(
    given: str, changed: str, put: Callable[..., None]
) -> None:
    put(lambda h, gate: h + gate, "adds")
    found = {family.words: family for family in families(renew("heads"), frozenset(given.split()))}
    family = found["the output gate is {} times what it should be"]
    assert family.variant(0.5).steps.keys() == {changed}


# -- other forms, and definitions that contain an attention ------------------------------------------------------------
@pytest.fixture
def normed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a causal attention normalise its outputs."""

    def stage(flow: Any) -> None:
        flow.add("gated", lambda h: normalised(h, h * 0 + 1), "rms(@0)", ["output"], role="output", errors="rounded")

    monkeypatch.setattr(stage_order, "STAGES", (*stage_order.STAGES, ("causal", stage)))


FORMS = (Attention(causal=True, lse=True), Gradient(Attention(causal=True)), Cached(Attention(causal=True)))


@pytest.mark.usefixtures("normed")
@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_every_form_runs_the_step(form: Any) -> None:
    """Running sums, merged parts, backward passes from stored weights or log-sums: all give the same."""
    inner = getattr(form, "attention", form)
    spec = replace(form, attention=replace(inner)) if inner is not form else replace(form)
    first, *others = [way.subject.run(way.way, way.inputs) for way in ways_of(spec, 0)]
    assert others
    assert all(np.allclose(x, y, rtol=1e-9, atol=1e-12) for other in others for x, y in zip(first, other, strict=True))


@pytest.mark.usefixtures("normed")
def test_the_gradient_is_that_of_the_step() -> None:
    rng = np.random.default_rng(2)
    given = {name: rng.standard_normal((3, 2)) for name in "qkv"}
    do, off, spec = rng.standard_normal((3, 2)), 1e-6, Attention(causal=True)
    _, _, dv = Gradient(spec)(do, **given)
    for place in np.ndindex(3, 2):
        moved = np.zeros((3, 2))
        moved[place] = off
        ahead, behind = (spec(**{**given, "v": given["v"] + sign * moved}) for sign in (1, -1))
        assert abs((do * (ahead - behind)).sum() / (2 * off) - dv[place]) < 1e-8


@pytest.mark.usefixtures("normed")
def test_weights_alone_have_no_step_behind_them() -> None:
    with pytest.raises(InputError, match="Softmax takes scores and gives weights; it has no place for gated"):
        Softmax(Attention(causal=True))

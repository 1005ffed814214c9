"""The derivative of the definition against difference quotients in balls; the backward pass in steps against it."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from symattn import (
    Attention,
    Buckets,
    Disentangled,
    InputError,
    Refused,
    Rotary,
    Shaw,
    TransformerXL,
    Undecided,
    functional,
    jvp,
    kind,
    kinds,
    vjp,
)
from symattn.attention.gradients.backward_pass import BackwardPass
from symattn.attention.variants import VARIANTS
from tests.attention import chained_gradients
from tests.attention.definition import feed_forward, parts
from tests.attention.gradient_cases import CASES, MISTAKES, MODEL_CASES, Case, close, drawn, near
from tests.refusals import refuses

Exact = kind("exact")

BITS, STEP = 700, Fraction(1, 2**200)  # the quotient is off by 2^−400 or so, and its rounding by 2^−500
BALL = kind("ball")


def quotient(case: Case) -> list[Any]:
    """(f(x + h x') − f(x − h x')) / 2h, for each output; 0 where it is −∞."""
    x, d = case.given(BALL), case.direction(BALL)
    width = 2 * BALL.lift(STEP).item()
    up, down = (parts(case.function(**{**x, **{n: x[n] + d[n] * (s * STEP) for n in d}})) for s in (1, -1))
    return [
        BALL.lift(BALL.each(lambda a, b: 0 if isinstance(a, kinds.Forbidden) else (a - b) / width, y, z))
        for y, z in zip(up, down, strict=True)
    ]


def inner(a: list[Any], b: list[Any]) -> Any:
    """Σ ⟨a, b⟩."""
    return sum(((x * y).sum() for x, y in zip(a, b, strict=True)), BALL.lift(0))


def is_derivative(case: Case, differentiate: Any = vjp) -> bool:
    """Whether ⟨gradient, x'⟩ = ⟨g, quotient⟩ for a step x' of all inputs at once, to 60 digits."""
    with kinds.precision(BITS):
        g, d = case.cotangent(BALL), case.direction(BALL)
        found = differentiate(case.function, g, case.given(BALL))
        return close(inner([found[n] for n in d], list(d.values())), inner(parts(g), quotient(case)), 60)


@pytest.mark.parametrize(
    "name", [n if ":" not in n else pytest.param(n, marks=pytest.mark.deep) for n in (*CASES, *MODEL_CASES)]
)
def test_gradients_are_slopes(name: str) -> None:
    assert is_derivative((CASES | MODEL_CASES)[name])


def test_the_largest_model_too() -> None:
    assert is_derivative(MODEL_CASES["model: both"])


@pytest.mark.parametrize("name", ["scaled dot", "sink", "latent", "T5 buckets"])
def test_a_gradient_that_is_off_by_a_little_is_seen(name: str) -> None:
    def wrong(*args: Any) -> dict[str, Any]:
        return {n: x * (1 + Fraction(1, 10**50)) for n, x in vjp(*args).items()}

    assert not is_derivative(CASES[name], wrong)


FEW = ("scaled dot", "general", "softcap", "dropout", "log-sum-exp returned", "combined: dropout")


@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.deep) for n in (*CASES, *MODEL_CASES)]
)
def test_along_a_direction(name: str) -> None:
    """Equal scores, which dual numbers of balls do not decide, among them."""
    case = (CASES | MODEL_CASES)[name]
    with kinds.precision(BITS):
        slopes = parts(jvp(case.function, case.direction(BALL), case.given(BALL)))
        assert all(close(x, y, 60) for x, y in zip(slopes, quotient(case), strict=True))


def test_no_direction_gives_zeros() -> None:
    of = kinds.modular(seed=1)
    for given in (QKV, {n: of.lift(a) for n, a in QKV.items()}):
        assert (jvp(Attention(), {}, given) == 0).all()


@pytest.mark.deep
def test_along_a_direction_on_residues_and_letters() -> None:
    """⟨g, J x'⟩ = ⟨Jᵀ g, x'⟩ mod p; and of letters, of which none is known to be the largest."""
    of = kinds.modular(seed=1)
    given = {n: of.letters(*s) for n, s in SHAPES.items()}
    step, g = {n: of.letters(*s) for n, s in SHAPES.items()}, of.letters(3, 2)
    back, forth = vjp(Attention(causal=True), g, given), jvp(Attention(causal=True), step, given)
    assert of.compared((g * forth).sum(), sum((back[n] * step[n]).sum() for n in step))[0]
    letters = kind("symbolic").letters("s", 1, 2)
    slope = jvp(functional.softmax, {"s": kind("symbolic").lift([[1, 1]])}, {"s": letters})
    assert (slope == 0).all()


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16"])
def test_floats_are_near_the_exact_gradient(name: str) -> None:
    """An everyday check that code for floats is the same: nothing is claimed of the error."""
    case, of = CASES["grouped-query"], kind(name)
    exact = vjp(case.function, case.cotangent(BALL), case.given(BALL))
    found = vjp(case.function, case.cotangent(of), case.given(of))
    moved = jvp(case.function, case.direction(of), case.given(of))
    wanted = jvp(case.function, case.direction(BALL), case.given(BALL))
    for got, true in [*((found[n], exact[n]) for n in exact), (moved, wanted)]:
        plain = got if isinstance(got, np.ndarray) else got.numpy()
        assert plain.dtype == of.dtype or name == "float32"
        assert np.abs(plain.astype(float) - true.midpoints()).max() < {"float64": 1e-13, "float32": 1e-5}.get(name, 0.2)


# -- masks -------------------------------------------------------------------------------------------------------------
SHAPES = {"q": (3, 4), "k": (5, 4), "v": (5, 2)}
QKV = {n: np.random.default_rng(k).integers(-4, 5, s) / 2 for k, (n, s) in enumerate(SHAPES.items())}
SEEN = np.array([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 1]], dtype=bool)


@pytest.mark.parametrize("name", ["exact", "ball", "float64", "modular"])
@pytest.mark.parametrize("fields", [{}, {"sink": "zero"}, {"normaliser": "sigmoid"}, {"stabilised": False}])
def test_nothing_comes_back_from_what_is_forbidden(name: str, fields: dict[str, Any]) -> None:
    """A row without a key moves nothing, and a key that no query sees is moved by nothing."""
    of: Any = kinds.modular(seed=1) if name == "modular" else kind(name)
    given = {n: of.lift(a) for n, a in QKV.items()}
    with np.errstate(all="raise"):
        found = vjp(Attention(mask="boolean", **fields), of.lift(np.ones((3, 2))), given | {"mask": SEEN})
    assert np.all(found["q"][1] == 0)
    for unseen in (1, 3):
        assert np.all(found["k"][unseen] == 0)
        assert np.all(found["v"][unseen] == 0)
    assert np.any(found["k"][0] != 0)


def test_undefined_rows_reach_the_values_and_stop_at_the_mask() -> None:
    given = {n: Exact.lift(a) for n, a in QKV.items()} | {"mask": SEEN}
    found = vjp(Attention(mask="boolean", fully_masked="nan"), Exact.lift(np.ones((3, 2))), given)
    assert np.all(Exact._undefined(found["v"]))
    assert not np.any(Exact._undefined(found["q"]) | Exact._undefined(found["k"][:1]))


def test_equal_scores_do_no_harm() -> None:
    """The largest score is not unique, and softmax does not depend on which is taken."""
    zero = {"q": np.zeros((2, 4)), "k": QKV["k"], "v": QKV["v"]}
    exact = vjp(Attention(), Exact.lift([[1, 2], [3, -1]]), {n: Exact.lift(a) for n, a in zero.items()})
    balls = vjp(Attention(), BALL.lift([[1, 2], [3, -1]]), {n: BALL.lift(a) for n, a in zero.items()})
    for n in "qkv":
        for x, ball in zip(exact[n].entries.flat, balls[n].entries.flat, strict=True):
            assert ball.contains(x.arb(100))
            assert ball.rad() < 1e-13


# -- kinks -------------------------------------------------------------------------------------------------------------
def relu(x: Any) -> Any:
    return x.__array_namespace__().maximum(x, 0)


def test_relu_at_zero_is_refused_or_told() -> None:
    x, one = Exact.lift([[1, -1]]), Exact.lift([[1, 1]])
    w = Exact.lift([[1, 2], [1, 3]])  # x W = (0, −1)
    layer = {"x": x, "w_up": w, "w_down": Exact.lift([[1, 1], [1, 1]])}
    refuses(vjp, lambda **a: feed_forward(relu, **a), one, layer, kind=Undecided, says="no one gradient")
    assert vjp(lambda **a: feed_forward(relu, **a), one, layer, ties="second")["x"].tolist() == [[0, 0]]


def test_the_edge_of_the_support_of_sparsemax_is_outside() -> None:
    g, spec = Exact.lift([[1, 0]]), Attention(normaliser="sparsemax", scale=1)
    ones = Exact.lift([[1, 0], [0, 1]])
    for differentiate in (vjp, by_steps):
        at_the_edge = {"q": Exact.lift([[1, 0]]), "k": ones, "v": ones}
        assert differentiate(spec, g, at_the_edge)["q"].tolist() == [[0, 0]]
        within = at_the_edge | {"q": Exact.lift([["1/2", 0]])}
        assert differentiate(spec, g, within)["q"].tolist() == [[Fraction(1, 2), Fraction(-1, 2)]]


# -- what is asked for -------------------------------------------------------------------------------------------------
def test_what_has_no_gradient_is_named() -> None:
    given = QKV | {"mask": SEEN}
    spec, g = Attention(mask="boolean"), np.ones((3, 2))
    for refused, message in (
        (lambda: vjp(spec, g, given, ["mask"]), "mask holds bool: there is a gradient only by arrays of floats"),
        (lambda: vjp(spec, g, given | {"q": Exact.lift(QKV["q"])}, ["v"]), "only by arrays of exact"),
        (lambda: jvp(spec, {"q": np.ones((3, 3))}, given), r"the tangent of q has shape \(3, 3\), and q \(3, 4\)"),
        (lambda: jvp(spec, {"w": g}, given), "no input 'w' to differentiate by"),
        (
            lambda: vjp(spec, g, {**given, "q": Exact.lift(QKV["q"]), "k": BALL.lift(QKV["k"])}),
            "mixed kinds: ball, exact",
        ),
        (lambda: vjp(Attention(lse=True), (g,), QKV), "the function has 2 outputs"),
    ):
        with pytest.raises(InputError, match=message):
            refused()
    letters = {n: kinds.Indexed.letters(n, "n", "d") for n in "qkv"}
    refuses(vjp, Attention(), letters["q"], letters, kind=Refused, says="symattn.proof.gradients")


def test_wrt_and_outputs_that_do_not_depend() -> None:
    given = {n: Exact.lift(a) for n, a in QKV.items()}
    assert list(vjp(Attention(), Exact.lift(np.ones((3, 2))), given, ["v"])) == ["v"]
    found = vjp(lambda q, k, v: (q * 2, 5), (Exact.lift(np.ones((3, 4))), None), given)
    assert (found["q"] == 2).all()
    assert (found["k"] == 0).all()
    assert tuple(found["k"].shape) == (5, 4)


def test_one_of_two_cotangents_may_be_left_out() -> None:
    """The same as zeros in its place; the log-sum-exp does not depend on the values."""
    case = CASES["log-sum-exp returned"]
    given, (g, dl) = case.given(Exact), case.cotangent(Exact)
    for left_out, zeros in (((g, None), (g, 0 * dl)), ((None, dl), (0 * g, dl))):
        found, wanted = (vjp(case.function, pair, given) for pair in (left_out, zeros))
        assert all((found[n] == x).all() for n, x in wanted.items())
        assert not (found["q"] == 0).all()
        assert (found["v"] == 0).all() == (left_out[0] is None)


def test_large_gradients_in_floats_cost_one_run() -> None:
    """128 tokens, 8 heads on 2, rotary, through vjp and the backward pass in steps alike."""
    rng = np.random.default_rng(0)
    given = {"q": rng.normal(size=(8, 128, 8)), **{n: rng.normal(size=(2, 128, 8)) for n in "kv"}}
    spec, g = Attention(heads=8, kv_heads=2, causal=True, position=Rotary()), rng.normal(size=(8, 128, 8))
    by_tape, in_steps = vjp(spec, g, given), by_steps(spec, g, given)
    assert all(np.abs(by_tape[n] - in_steps[n]).max() < 1e-11 * np.abs(by_tape[n]).max() for n in given)


# -- the backward pass in steps ----------------------------------------------------------------------------------------
def by_steps(spec: Attention, g: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """dQ, dK and dV by the steps of a backward pass."""
    return dict(zip("qkv", BackwardPass(attention=spec).return_run(do=g, **inputs), strict=True))


PRECISE = 256
#: Why residues have no gradient of it: functions that stand for any function, orders, powers of two.
WITHOUT_RESIDUES = ("ReLU", "sparsemax", "entmax", "base 2", "powers of two")
#: Exponents that are multiples of one number, so that fractions have common denominators.
EXACT = (
    *("dot", "scaled dot", "general", "distance", "1/d_k", "scale per head", "truncated", "bias", "causal"),
    *("causal, top-left", "sliding window", "window of two sides", "local blocks", "prefix", "padding", "dropout"),
    *("packed documents", "boolean mask", "additive mask", "masks combined", "not stabilised", "sigmoid", "ReLU"),
    *("sink", "softmax off by one", "sparsemax", "grouped-query", "rotary, given tables"),
    *("ALiBi", "ALiBi, given slopes", "T5 buckets"),
)


def has_steps_back(spec: Attention, names: Any) -> bool:
    """Whether the only output is that of queries and keys that scores alone are computed from."""
    # These positions are scores of their own, from the same queries.
    read_twice = isinstance(spec.position, Shaw | TransformerXL | Disentangled)
    return not (spec.lse or read_twice) and {*"qkv"} <= {*names}


#: Cases that a backward pass in steps is of.
STEPPED = [n for n, case in CASES.items() if has_steps_back(case.function, {*case.numbers, *case.plain})]


def _unless(deep: bool, name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.deep if deep else ())


def both(case: Case, of: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The gradients by the tape, and by the steps."""
    given, g = case.given(of), case.cotangent(of)
    return vjp(case.function, g, given, "qkv"), by_steps(case.function, g, given)


def test_most_cases_have_steps_back() -> None:
    assert len(STEPPED) > 100


@pytest.mark.parametrize("name", [_unless(n == "grouped-query", n) for n in EXACT])
def test_steps_give_the_exact_derivative(name: str) -> None:
    by_tape, in_steps = both(drawn(VARIANTS[name], 2), kind("exact"))
    assert by_tape.keys() == in_steps.keys()
    assert all((by_tape[n] == in_steps[n]).all() for n in by_tape)


@pytest.mark.parametrize("name", [_unless(n not in VARIANTS, n) for n in STEPPED])
def test_steps_agree_in_balls(name: str) -> None:
    with kinds.precision(2 * PRECISE):
        assert near(*both(CASES[name], kind("ball")))


RESIDUES = [n for n in STEPPED if not any(w in n for w in WITHOUT_RESIDUES)]


@pytest.mark.parametrize("name", [_unless(n not in VARIANTS, n) for n in RESIDUES])
def test_steps_agree_on_residues(name: str) -> None:
    of = kinds.modular(*kinds.prime_pairs((2, 3, 5, 7))[0], seed=1)
    by_tape, in_steps = both(CASES[name], of)
    assert all(of.compared(by_tape[n], in_steps[n])[0].all() for n in by_tape)


def test_steps_agree_at_sizes_that_models_have() -> None:
    """70 queries, 133 keys, 6 heads on 2, 32 columns, on residues: equal but for a chance below 10⁻³."""
    of = kinds.modular(*kinds.prime_pairs((2, 3, 5, 7))[1], seed=2)
    letters = {"q": of.letters(6, 70, 32), "k": of.letters(2, 133, 32), "v": of.letters(2, 133, 40)}
    given = letters | {"sink": of.letters(6), "cos": of.letters(133, 16), "sin": of.letters(133, 16)}
    spec = Attention(heads=6, kv_heads=2, causal=True, window=50, sink="given", position=Rotary(given="tables"))
    g = of.letters(6, 70, 40)
    by_tape, in_steps = vjp(spec, g, given, "qkv"), by_steps(spec, g, given)
    assert all(of.compared(by_tape[n], in_steps[n])[0].all() for n in "qkv")


def put_step(monkeypatch: pytest.MonkeyPatch, name: str, **record: Any) -> None:
    """Change the record of a step in every attention that has it."""
    steps_of = Attention.pipeline

    def changed(spec: Attention, names: Any) -> tuple[Any, ...]:
        return tuple(replace(step, **record) if step.name == name else step for step in steps_of(spec, names))

    monkeypatch.setattr(Attention, "pipeline", changed)


#: Steps of scores that have no formula of their own in a backward pass.
STEPS_OF_SCORES: dict[str, Any] = {
    "cubes": lambda s, t: s * s * s,
    "exponentials": lambda s, t: s.__array_namespace__().exp(s) - s,
    "centred rows": lambda s, t: s - _sums(s) / 5,
    "squares times an input": lambda s, t: s * s * t[:, None, None],
    "keys in reverse": lambda s, t: s[..., ::-1] * s,
}


@pytest.mark.parametrize("fields", [{}, {"causal": True, "fully_masked": "nan"}, {"softcap": 2}], ids=str)
@pytest.mark.parametrize("what", STEPS_OF_SCORES)
def test_any_step_of_scores_is_passed_back(what: str, fields: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = STEPS_OF_SCORES[what]
    put_step(monkeypatch, "tempered", run=run, of=("scaled", "scale"), errors="rounded", written="@0")
    spec = Attention(heads=2, temperature=0.1, scale="given", **fields)
    rng, shapes = np.random.default_rng(3), {"q": (2, 3, 4), "k": (2, 5, 4), "v": (2, 5, 3), "scale": (2,)}
    inputs = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    g = rng.standard_normal((2, 3, 3))
    by_tape, in_steps = vjp(spec, g, inputs, "qkv"), by_steps(spec, g, inputs)
    assert all(np.allclose(by_tape[n], in_steps[n], rtol=1e-11, atol=1e-13) for n in "qkv")
    formulas = BackwardPass(attention=spec).write_formulas([*inputs, "do"])
    assert [line for line in formulas if "dS_τ = back(" in line]


def test_a_number_added_to_scores_needs_no_step_back() -> None:
    spec = Attention(bias=True, position=Buckets(number=4))
    assert not [line for line in BackwardPass(attention=spec).write_formulas("qkv") if "dS_bias" in line]


@pytest.mark.parametrize(
    ("name", "record", "read"),
    [
        ("tempered", {"run": lambda s, q: s * q[..., :1], "of": ("scaled", "q")}, "'q' besides 'scaled'"),
        ("tau", {"run": lambda s: s.sum(axis=-1), "errors": "own"}, "'tau' besides 'scaled'"),
        ("tempered", {"run": lambda t, s: s * s, "of": ("tau", "scaled")}, "'scaled' besides 'tau'"),
        ("weights", {"run": lambda s, v: s @ v @ v.mT, "of": ("tempered", "v")}, "'v' besides 'tempered'"),
    ],
    ids=["queries", "a sum of the scores", "the scores second", "values in weights"],
)
def test_a_step_with_a_second_way_back_is_refused(
    name: str, record: Any, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_step(monkeypatch, name, **record)
    step = name if name != "tau" else "tempered"
    with pytest.raises(InputError, match=f"^Gradient: the step '{step}' reads {read}"):
        by_steps(Attention(temperature=0.1), np.ones((3, 2)), QKV)


# -- the chain rule over all steps -------------------------------------------------------------------------------------
#: Cases of log-sums, projections, latents and positions, which have no backward pass in steps.
CHAINED = [n for n in CASES if n not in STEPPED]
EXACT_CHAINED = (
    *("log-sum-exp returned", "sink", "Shaw", "Transformer-XL", "self-attention", "multi-head", "packed projections"),
    "latent, one head",
)
QUICK = ("log-sum-exp returned", "sink", "Shaw")


def both_chained(case: Case, of: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The gradients by the tape, and by the chain rule."""
    given, g = case.given(of), case.cotangent(of)
    return vjp(case.function, g, given), chained_gradients.differentiate(case.function, g, given)


@pytest.mark.parametrize("name", [_unless(n not in QUICK, n) for n in EXACT_CHAINED])
def test_the_chain_rule_gives_the_exact_derivative(name: str) -> None:
    by_tape, chained = both_chained(drawn(VARIANTS[name], 2), kind("exact"))
    assert by_tape.keys() == chained.keys()
    assert all((by_tape[n] == chained[n]).all() for n in by_tape)


@pytest.mark.parametrize("name", [_unless(n not in VARIANTS, n) for n in CHAINED])
def test_the_chain_rule_agrees_in_balls(name: str) -> None:
    with kinds.precision(2 * PRECISE):
        assert near(*both_chained(CASES[name], kind("ball")))


CHAINED_RESIDUES = [n for n in CHAINED if not any(w in n for w in WITHOUT_RESIDUES)]


@pytest.mark.parametrize("name", [_unless(n not in VARIANTS, n) for n in CHAINED_RESIDUES])
def test_the_chain_rule_agrees_on_residues(name: str) -> None:
    of = kinds.modular(*kinds.prime_pairs((2, 3, 5, 7))[0], seed=1)
    by_tape, chained = both_chained(CASES[name], of)
    assert all(of.compared(by_tape[n], chained[n])[0].all() for n in by_tape)


@pytest.mark.parametrize(
    ("name", "what", "wrong"),
    [
        ("sink", "sink_gradient", lambda p, d: (1 - _sums(p)) * d),
        ("sink", "sink_gradient", lambda p, d: -d),
        ("self-attention", "add_part", lambda result, name, part: result.update({name: part})),
    ],
    ids=["the sink's sign", "the sink without its weight", "one of two readers"],
)
def test_a_mistake_in_the_chain_rule_is_seen(name: str, what: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_gradients, what, wrong)
    with kinds.precision(PRECISE):
        assert not near(*both_chained(CASES[name], kind("ball")))


def _sums(p: Any) -> Any:
    return p.__array_namespace__().sum(p, axis=-1, keepdims=True)


# -- mistakes ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_backward_pass_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, where, what, wrong = MISTAKES[mistake]
    case = CASES[name]
    with kinds.precision(PRECISE):
        put = monkeypatch.setitem if isinstance(where, dict) else monkeypatch.setattr
        put(where, what, wrong)
        assert not near(*both(case, kind("ball")))


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_names_and_shapes_that_do_not_fit_are_refused() -> None:
    q, k, v = np.zeros((2, 3)), np.zeros((4, 3)), np.zeros((4, 5))
    given = {"q": q, "k": k, "v": v}
    for wrt, g, message in (
        (["w"], np.zeros((2, 5)), "no input 'w' to differentiate by; given: q, k, v"),
        (None, np.zeros((2, 4)), r"the cotangent has shape \(2, 4\), and the output \(2, 5\)"),
    ):
        with pytest.raises(InputError, match=message):
            vjp(Attention(), g, given, wrt)
    with pytest.raises(InputError, match="2 outputs; give a tuple"):
        vjp(Attention(lse=True), np.zeros((2, 5)), given)


def test_gradients_are_refused_where_the_function_is() -> None:
    case = CASES["softcap"]
    for differentiate in (vjp, by_steps):
        with pytest.raises((Refused, Undecided)):
            differentiate(case.function, np.ones((3, 7)), case.given(kind("exact")))

"""A norm in any place of an attention gets its formulas, its bound and its mistakes from the record of its step."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, LayerNorm, Precision, RMSNorm, derive, verify
from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS
from symattn.attention.stages import stage_order
from symattn.attention.stages.norming import add_norm
from symattn.attention.variants import VARIANTS
from symattn.bounds.judge import expected
from symattn.programs.specifications import definitions_of
from symattn.verification.rules import norm_records
from tests.verification.drawn_arithmetic import Arithmetic

Array = Any
#: Shapes are remembered by specification, so that each shape of the gain has an ε that no other specification has.
EPS, ROWS_EPS, SIDE_BY_SIDE_EPS = 0.0078125, 0.00390625, 0.001953125
ONE = Attention(value_norm="rms", eps=EPS)
#: The kind, whether heads are normalised together, and the shape of the gain in its row.
FORMS = {
    "a gain for all heads": ("rms", False, "d_v"),
    "a gain for each head": ("rms", False, "[h] d_v"),
    "gains side by side": ("layer", False, "h*d_v"),
    "all heads together": ("rms", True, "h*d_v"),
    "all heads together, less the mean": ("layer", True, "h*d_v"),
}
GAINS = {"d_v": (4,), "[h] d_v": (2, 4), "h*d_v": (8,)}
HEADS = {
    shape: replace(ONE, heads=2, eps=eps) for shape, eps in zip(GAINS, (EPS, ROWS_EPS, SIDE_BY_SIDE_EPS), strict=True)
}


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let ``value_norm`` normalise the outputs, before or after their projection, with the gain ``g_v``."""

    def state(kind: Any, over_heads: bool = False, shape: str = "d_v", late: bool = False, **row: str) -> None:
        def stage(flow: Any) -> None:
            add_norm(flow, "output_normed", "output", kind, flow.spec.eps, gain="g_v", over_heads=over_heads)

        others = [(field, one) for field, one in stage_order.STAGES if field != "value_norm"]
        place = len(others) if late else [field for field, _ in others].index("output_gate")
        stages = (*others[:place], ("value_norm", stage), *others[place:])
        monkeypatch.setattr(stage_order, "STAGES", stages)
        words: dict[str, Any] = {"letter": "H_norm", "title": "Each head's output, normalised", **row}
        named = replace(ARRAYS["output"], shape="… [h] n_q d_v", blames="norm", **words)
        monkeypatch.setitem(ARRAYS, "output_normed", named)
        monkeypatch.setitem(SYMBOLS, "output_normed", named.symbol)
        monkeypatch.setitem(ARRAYS, "g_v", replace(ARRAYS["g_v"], shape=shape))

    return state


def draw(spec: Attention, gain: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"q": (3, 4), "k": (5, 4), "v": (5, 4)}
    given = {name: rng.standard_normal(spec.head_axis + shape) for name, shape in shapes.items()}
    # Rows of small outputs show ε.
    given["v"][..., 1:3] /= 16
    return given | {"g_v": rng.standard_normal(gain)}


def weigh(q: Array, k: Array, v: Array) -> Array:
    """The outputs before their norm."""
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def normalise(kind: str, h: Array, eps: float) -> Array:
    """The rows by their root mean square, or by their standard deviation after their mean is taken off."""
    centred = h - h.mean(axis=-1, keepdims=True) if kind == "layer" else h
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)


def merge(h: Array) -> Array:
    """The heads side by side."""
    return np.swapaxes(h, -3, -2).reshape(*h.shape[:-3], h.shape[-2], -1)


# -- what runs, and its bound ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
def test_a_norm_runs_as_its_record_says(form: str, put: Callable[..., None]) -> None:
    kind, over_heads, shape = FORMS[form]
    put(kind, over_heads, shape)
    spec = replace(HEADS[shape])
    given = draw(spec, GAINS[shape], 0)
    h, gains = weigh(*(given[name] for name in "qkv")), np.broadcast_to(given["g_v"].reshape(-1, 1, 4), (2, 1, 4))
    rows = normalise(kind, merge(h) if over_heads else h, float(spec.eps))
    if over_heads:
        rows = np.moveaxis(rows.reshape(3, 2, 4), 1, 0)
    np.testing.assert_allclose(spec(**given), rows * gains, rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_legal_program_is_within_the_bound(form: str, precision: str, put: Callable[..., None]) -> None:
    put(*FORMS[form])
    shape = FORMS[form][2]
    spec, p = replace(HEADS[shape]), Precision.of(precision)
    shares = []
    for seed in range(4):
        given = {name: p.input.rounded(a) for name, a in draw(spec, GAINS[shape], seed).items()}
        arithmetic = Arithmetic(p, seed)
        got = np.asarray(spec(**{name: arithmetic.lift(a) for name, a in given.items()}), dtype=float)
        shares.append(float(np.nanmax(np.asarray(expected(spec, given, p).ratios(got), dtype=float))))
    assert 0 < max(shares) <= 1


@pytest.mark.parametrize("form", FORMS)
def test_the_printed_entries_are_those_of_what_runs(form: str, put: Callable[..., None]) -> None:
    kind, over_heads, shape = FORMS[form]
    put(kind, over_heads, shape)
    document = str(derive("attention", heads=2, value_norm="rms", eps=HEADS[shape].eps))
    claims = [line for line in document.splitlines() if ("g_{V" in line or "g_V" in line) and "√" in line]
    assert any(" = g_" in line for line in claims)


# -- mistakes ----------------------------------------------------------------------------------------------------------
def divide(h: Array, mean: Any = np.mean, eps: float = EPS, axis: Any = -1) -> Array:
    return h / np.sqrt(mean(h * h, axis=axis, keepdims=True) + h.dtype.type(eps))


def divide_late(h: Array, g: Array) -> Array:
    return h / (np.sqrt(np.mean(h * h, axis=-1, keepdims=True)) + h.dtype.type(EPS)) * g


LEAD = "in the norm of the output: "
WRONG: dict[str, tuple[Callable[..., Array], str, str]] = {
    "left out": (lambda h, g: h, "the norm of the output is left out", "output-norm-missing"),
    "gain": (lambda h, g: divide(h), f"{LEAD}the gain is left out", "gain-missing"),
    "early gain": (
        lambda h, g: divide(h * g), f"{LEAD}the gain multiplies x before it is normalised", "gain-before-norm"
    ),
    "gain twice": (lambda h, g: divide(h) * g * g, f"{LEAD}the gain is squared: it is applied twice", "gain-twice"),
    "one more": (lambda h, g: divide(h) * (1 + g), f"{LEAD}1 is added to the gain", "gain-plus-1"),
    "added": (
        lambda h, g: divide(h) + g, f"{LEAD}the gain is added, as a bias is, not multiplied", "gain-bias-exchanged"
    ),
    "sum": (
        lambda h, g: divide(h, np.sum) * g, f"{LEAD}uses the sum of the squares instead of their mean",
        "norm-sum-of-squares",
    ),
    "no ε": (lambda h, g: divide(h, eps=0) * g, f"{LEAD}ε is left out", "eps-missing"),
    "late ε": (
        divide_late, f"{LEAD}ε is added to the root of the mean square, outside the root", "eps-outside-root"
    ),
    "other ε": (lambda h, g: divide(h, eps=0.03) * g, f"{LEAD}ε is 0.03", "eps-off"),
    "tokens": (lambda h, g: divide(h, axis=-2) * g, f"{LEAD}mean and variance are taken over the tokens", "norm-axes"),
    "mean": (
        lambda h, g: divide(h - h.mean(-1, keepdims=True)) * g, f"{LEAD}the mean is subtracted (as in LayerNorm)",
        "norm-mean-unrequested",
    ),
    "reversed": (
        lambda h, g: divide(h) * g[::-1], f"{LEAD}gains of the norm are read from the last column to the first",
        "norm-gain-reversed",
    ),
}  # fmt: skip


def program(norm: Callable[..., Array]) -> Callable[..., Array]:
    def attend(q: Array, k: Array, v: Array, g_v: Array) -> Array:
        return norm(weigh(q, k, v), g_v)

    return attend


@pytest.mark.deep
@pytest.mark.parametrize("name", WRONG)
def test_mistakes_in_a_norm_behind_the_weights_are_named(name: str, put: Callable[..., None]) -> None:
    put("rms")
    norm, words, code = WRONG[name]
    (fault,) = verify(program(norm), replace(ONE), precision="float64", examples=10).faults
    assert (fault.step, fault.code) == ("norm", code)
    assert str(fault.cause).startswith(words)


OF_HEADS: dict[str, tuple[Callable[..., Array], bool, str, str, str]] = {
    "all heads": (
        lambda h, g: divide(h, eps=ROWS_EPS, axis=(-1, -3)) * g[:, None], False, "[h] d_v",
        f"{LEAD}mean and variance are taken over all heads together", "norm-axes",
    ),
    "one head's gain": (
        lambda h, g: divide(h, eps=ROWS_EPS) * g[0], False, "[h] d_v",
        f"{LEAD}the gains of the first head serve all heads", "norm-gain-of-head",
    ),
    "each head": (
        lambda h, g: divide(h, eps=SIDE_BY_SIDE_EPS) * g.reshape(2, 1, -1), True, "h*d_v",
        f"{LEAD}each head is normalised by itself, not all heads together", "norm-per-head",
    ),
}  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize("name", OF_HEADS)
def test_mistakes_over_heads_are_named(name: str, put: Callable[..., None]) -> None:
    norm, over_heads, shape, words, code = OF_HEADS[name]
    put("rms", over_heads, shape)
    (fault,) = verify(program(norm), replace(HEADS[shape]), precision="float64", examples=10).faults
    assert (str(fault.cause), fault.code) == (words, code)


def of_values(q: Array, k: Array, v: Array, g_v: Array) -> Array:
    return weigh(q, k, divide(v) * g_v)


def after_gate(q: Array, k: Array, v: Array, gate: Array, g_v: Array) -> Array:
    return divide(weigh(q, k, v) / (1 + np.exp(-gate))) * g_v


PLACES = {
    "values": (of_values, ONE, "stands before the weighted sums, on the values, not after them"),
    "gate": (after_gate, replace(ONE, output_gate=True), "stands after the output gate, not before"),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", PLACES)
def test_a_norm_at_another_place_is_named(name: str, put: Callable[..., None]) -> None:
    put("rms")
    wrong, spec, words = PLACES[name]
    (fault,) = verify(wrong, replace(spec), precision="float64", examples=10).faults
    assert (str(fault.cause), fault.code) == (f"the norm of the output {words}", "norm-place")


SMALL_EPS = 2.0**-17


def project_and_norm(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, g_v: Array) -> Array:
    """ε is added outside the root."""
    o = weigh(x @ w_q, x @ w_k, x @ w_v) @ w_o
    return o / (np.sqrt(np.mean(o * o, axis=-1, keepdims=True)) + o.dtype.type(SMALL_EPS)) * g_v


@pytest.mark.deep
def test_a_small_ε_of_a_norm_behind_the_projection_is_shown_by_tiny_values(put: Callable[..., None]) -> None:
    put("rms", False, "d_out", late=True)
    (fault,) = verify(project_and_norm, replace(ONE, eps=SMALL_EPS), examples=5).faults
    assert fault.code == "eps-outside-root"


@pytest.mark.deep
def test_an_unknown_mistake_beside_gains_of_each_column_is_a_fault_without_a_cause(put: Callable[..., None]) -> None:
    """Values that show the weights would have other columns than the gains."""
    put("rms", False, "h*d_v")
    spec = replace(HEADS["h*d_v"])
    in_order = program(lambda h, g: divide(h, eps=SIDE_BY_SIDE_EPS) * np.sort(g.reshape(2, 1, -1)))
    (fault,) = verify(in_order, spec, precision="float64", examples=5).faults
    assert fault.cause is None


def test_keys_that_another_field_normalises_have_the_mistakes_of_keys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def stage(flow: Any) -> None:
        add_norm(flow, "k_again", "k", "rms", flow.spec.eps)

    stages = [(field, stage if field == "value_norm" else one) for field, one in stage_order.STAGES]
    monkeypatch.setattr(stage_order, "STAGES", stages)
    monkeypatch.setitem(ARRAYS, "k_again", ARRAYS["k_normed"])
    monkeypatch.setitem(SYMBOLS, "k_again", SYMBOLS["k_normed"])
    spec = replace(ONE, eps=0.000244140625)
    causes = {m.cause: m for m in norm_records.mistakes(spec, frozenset("qkv"))}
    assert "queries are normalised too, not keys alone" not in causes
    assert {*causes["queries are normalised, not keys"].variant.steps} == {"k_again", "scores"}


@pytest.mark.deep
@pytest.mark.parametrize("noun", ["the head norm", "the closing normalisation"])
def test_the_noun_of_a_row_names_its_norm(noun: str, put: Callable[..., None]) -> None:
    put("rms", noun=noun)
    (fault,) = verify(program(lambda h, g: h), replace(ONE), precision="float64", examples=10).faults
    assert (str(fault.cause), fault.code) == (f"{noun} is left out", "norm-missing")
    (fault,) = verify(program(lambda h, g: divide(h)), replace(ONE), precision="float64", examples=10).faults
    assert (str(fault.cause), fault.code) == (f"in {noun}: the gain is left out", "gain-missing")


@pytest.mark.deep
def test_a_norm_with_a_noun_has_the_code_of_a_wrong_place(put: Callable[..., None]) -> None:
    put("rms", noun="the closing gauge")
    wrong, spec, words = PLACES["values"]
    (fault,) = verify(wrong, replace(spec), precision="float64", examples=10).faults
    assert (str(fault.cause), fault.code) == (f"the closing gauge {words}", "norm-place")


def test_every_norm_of_a_variant_has_a_record_and_mistakes_of_its_own() -> None:
    for variant in VARIANTS.values():
        steps = variant.spec.pipeline(variant.names)
        normed = [step for step in steps if step.norm is not None]
        fields = {step.field for step in normed}
        asking = (f.name for f in dataclasses.fields(Attention) if f.metadata["with_eps"])
        assert fields == {name for name in asking if getattr(variant.spec, name)}
        changed = {
            name
            for mistake in norm_records.mistakes(variant.spec, variant.names)
            for name in getattr(mistake.variant, "steps", ())
        }
        assert {step.name for step in normed} <= changed


# -- records that are wrong --------------------------------------------------------------------------------------------
def run_on_ones(spec: Attention, gain: tuple[int, ...]) -> Any:
    return spec(**draw(spec, gain, 0))


def test_a_gain_of_one_head_beside_a_norm_over_all_is_refused(put: Callable[..., None]) -> None:
    put("rms", True, "d_v")
    with pytest.raises(InputError, match="output_normed is over all heads, and g_v has the shape d_v; hint"):
        run_on_ones(replace(HEADS["d_v"]), (4,))


def test_an_array_without_a_row_is_refused(put: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    put("rms")
    monkeypatch.delitem(ARRAYS, "output_normed")
    with pytest.raises(InputError, match="'output_normed' without a row in ARRAYS of symattn/attention/letters_of_att"):
        run_on_ones(replace(ONE), (4,))


def test_a_row_that_blames_no_step_of_a_report_is_refused(
    put: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put("rms")
    monkeypatch.setitem(ARRAYS, "output_normed", replace(ARRAYS["output_normed"], blames="norms"))
    with pytest.raises(InputError, match=r"the row 'output_normed' of .* blames 'norms', .* did you mean norm"):
        run_on_ones(replace(ONE), (4,))


# -- formulas ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("norm", "written"),
    [
        (RMSNorm(eps=0), "@0/√{mean(@0²)}"), (RMSNorm(eps=1e-5), "@0/√{mean(@0²) + ε}"),
        (LayerNorm(eps=0), "{@0 − mean(@0)}/√{var(@0)}"), (LayerNorm(eps=1), "{@0 − mean(@0)}/√{var(@0) + ε}"),
    ],
)  # fmt: skip
def test_a_formula_has_ε_only_where_the_norm_has_it(norm: Any, written: str) -> None:
    steps: Any = next(definitions_of(norm)).flow.spec  # type: ignore[attr-defined]
    (alone,), (whole,) = steps.pipeline(("x",)), steps.pipeline(("x", "gain", "bias"))
    assert alone.written == written
    assert whole.written == f"@1 ⊙ {{{written}}} + @2"


# -- ε in float16 ----------------------------------------------------------------------------------------------------
#: An ε whose square vanishes in float16; no other specification has it.
VANISHING_EPS = 2.0**-20
DIVISORS: dict[str, Callable[[Array, Array], Array]] = {
    "right": lambda square, eps: np.sqrt(square + eps),
    "ε is left out": lambda square, eps: np.sqrt(square),
    "ε is added to the root of the mean square, outside the root": lambda square, eps: np.sqrt(square) + eps,
}


def normalise_in(format_: Any, divisor: str, x: Array) -> Array:
    x = x.astype(format_)
    with np.errstate(all="ignore"):
        return x / DIVISORS[divisor]((x * x).mean(axis=-1, keepdims=True), format_(VANISHING_EPS))


def name_fault_of_rows(format_: Any, divisor: str, change: Callable[[Array], Array] = lambda y: y) -> Any:
    program = lambda x: change(normalise_in(format_, divisor, x)).astype(x.dtype)  # noqa: E731
    return verify(program, RMSNorm(eps=VANISHING_EPS), precision="float16", examples=8)


@pytest.mark.deep
@pytest.mark.parametrize("format_", [np.float16, np.float32])
@pytest.mark.parametrize("divisor", [*DIVISORS][1:])
def test_the_place_of_eps_is_among_the_causes_where_squares_vanish(format_: Any, divisor: str) -> None:
    """A mean square that float16 rounds to 0 is no evidence against a mistake that divides by its root."""
    (fault,) = name_fault_of_rows(format_, divisor).faults
    assert fault.cause is not None
    assert fault.cause.split("; or ")[0] == divisor


@pytest.mark.deep
def test_a_right_norm_in_float16_has_no_fault() -> None:
    assert name_fault_of_rows(np.float16, "right").faults == ()


@pytest.mark.deep
def test_numbers_that_no_format_excuses_are_no_error_of_eps() -> None:
    def treble_last_row(y: Array) -> Array:
        return y * np.where(np.arange(len(y)) == len(y) - 1, 3, 1).astype(y.dtype)[:, None] if y.ndim == 2 else y

    (fault,) = name_fault_of_rows(np.float16, "ε is left out", treble_last_row).faults
    assert "ε is left out" not in (fault.cause or "").split("; or ")


@pytest.mark.deep
def test_a_norm_without_eps_keeps_no_results(put: Callable[..., None]) -> None:
    """It gives the same bits for smaller values, whose call is no repetition of the call before."""

    def attention(q: Array, k: Array, v: Array, g_v: Array) -> Array:
        q, k, v, g_v = (a.astype(np.float32) for a in (q, k, v, g_v))
        scores = q @ k.T / np.sqrt(np.float32(q.shape[-1]))
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        outputs = normalise_in(np.float32, "ε is left out", e / e.sum(axis=-1, keepdims=True) @ v) * g_v
        return outputs.astype(np.float16)

    put("rms", noun="the norm of the output")
    half = Precision.of("float16", "fused")
    (fault,) = verify(attention, replace(ONE, eps=VANISHING_EPS), precision=half, examples=8).faults
    assert fault.step == "norm"
    assert "in the norm of the output: ε is left out" in (fault.cause or "").split("; or ")


def _normed(read: Any, arrays: str) -> Any:
    """Attention with norms of some arrays, whose mean squares become divisors by ``read``."""

    def program(q: Array, k: Array, v: Array) -> Array:
        made = {"q": q, "k": k, "v": v}
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            for name in arrays:
                square = np.square(made[name]).mean(axis=-1, keepdims=True)
                made[name] = made[name] / read(square)
            scores = made["q"] @ made["k"].swapaxes(-1, -2)
            scores = scores / np.sqrt(q.dtype.type(q.shape[-1]))
            e = np.exp(scores - scores.max(axis=-1, keepdims=True))
            return e / e.sum(axis=-1, keepdims=True) @ made["v"]

    return program


def _add_outside(square: Array) -> Array:
    return np.sqrt(square) + square.dtype.type(1e-6)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "definition", "precision", "words"),
    [
        (_normed(np.sqrt, "v"), {"value_norm": "rms"}, "float32", "in the norm of the values: ε is left out"),
        (_normed(np.sqrt, "qk"), {"qk_norm": "rms"}, "float32", "ε is left out"),
        (_normed(_add_outside, "qk"), {"qk_norm": "rms"}, "float16", "ε is added to the root of the mean square"),
    ],
)  # fmt: skip
def test_a_missing_or_misplaced_eps_is_named_beside_rows_of_zeros(
    program: Any, definition: dict[str, Any], precision: str, words: str
) -> None:
    """0/0 shows no number; and what is left of tiny scores in float16 looks like much else."""
    (fault,) = verify(program, Attention(eps=1e-6, **definition), precision=precision).faults
    assert fault.step == "norm", fault.message
    assert (fault.cause or "").startswith(words), fault.message

"""Fields that models of today have: right programs pass, and mistakes in each are found and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Block, Cached, Gradient, Rotary, Verdict, derive, verify
from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS
from symattn.attention.stages import stage_order
from symattn.programs.specifications import definitions_of
from symattn.verification.rules.known_mistakes import yield_known_mistakes
from tests.refusals import refuses

Array = np.ndarray


def rms(x: Array, gain: Array | None = None, eps: float = 1e-3, axis: Any = -1) -> Array:
    """x / √(mean x² + ε), times the gain."""
    y = x / np.sqrt((x * x).mean(axis=axis, keepdims=True) + x.dtype.type(eps))
    return y if gain is None else y * gain


def rotated(x: Array, first: int = 0) -> Array:
    """Rows rotated by the angles of their places, from ``first`` on."""
    n, half = x.shape[-2], x.shape[-1] // 2
    angles = np.arange(first, first + n)[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def queries_rotated(q: Array, k: Array) -> Array:
    """Queries at the places of the last keys."""
    return rotated(q, k.shape[-2] - q.shape[-2])


def attended(q: Array, k: Array, v: Array) -> Array:
    """softmax(q kᵀ/√d) v."""
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


LATE = Attention(qk_norm="rms", eps=1e-3, qk_norm_place="after", position=Rotary())
VALUES = Attention(heads=2, value_norm="rms", eps=1e-3)
SMALL_EPS = Attention(value_norm="rms", eps=1e-6)


def late(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    return attended(rms(queries_rotated(q, k), g_q), rms(rotated(k), g_k), v)


def late_before(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    return attended(queries_rotated(rms(q, g_q), k), rotated(rms(k, g_k)), v)


def late_without_eps(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    return attended(rms(queries_rotated(q, k), g_q, 0), rms(rotated(k), g_k, 0), v)


def late_without_keys(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    return attended(rms(queries_rotated(q, k), g_q), rotated(k), v)


def late_exchanged(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    """Exchange the gains, which changes no score where nothing is rotated behind them: Σ_c q_c g_c k_c h_c."""
    return late(q, k, v, g_k, g_q)


def late_over_tokens(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    return attended(rms(queries_rotated(q, k), g_q, axis=-2), rms(rotated(k), g_k, axis=-2), v)


def late_without_gain(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    return attended(rms(queries_rotated(q, k), g_q), rms(rotated(k)), v)


def values(q: Array, k: Array, v: Array, g_v: Array) -> Array:
    return attended(q, k, rms(v, g_v))


def values_with_reciprocal(q: Array, k: Array, v: Array, g_v: Array) -> Array:
    """The reciprocal of the root, and the gain where the sums are."""
    v = v * (1 / np.sqrt(np.mean(v**2, axis=-1, keepdims=True) + v.dtype.type(1e-3)))
    return attended(q, k, v) * g_v


def values_left(q: Array, k: Array, v: Array, g_v: Array) -> Array:
    return attended(q, k, v)


def values_without_eps(q: Array, k: Array, v: Array, g_v: Array) -> Array:
    return attended(q, k, rms(v, g_v, 0))


def values_without_gain(q: Array, k: Array, v: Array, g_v: Array) -> Array:
    return attended(q, k, rms(v))


def values_of_all_heads(q: Array, k: Array, v: Array, g_v: Array) -> Array:
    return attended(q, k, rms(v, g_v, axis=(-1, -3)))


def sums_normed(q: Array, k: Array, v: Array, g_v: Array) -> Array:
    return rms(attended(q, k, v), g_v)


def values_centred(q: Array, k: Array, v: Array, g_v: Array) -> Array:
    return attended(q, k, rms(v - v.mean(axis=-1, keepdims=True), g_v))


def values_of_larger_eps(q: Array, k: Array, v: Array) -> Array:
    return attended(q, k, rms(v, eps=3e-5))


def mean_of_values(q: Array, k: Array, v: Array) -> Array:
    return rms(v, eps=1e-6).mean(axis=-2, keepdims=True) + 0 * q[..., :1]


GATED = Attention(heads=2, output_gate=True)
OF_TOKENS = Attention(heads=2, output_gate=True)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gated(q: Array, k: Array, v: Array, gate: Array) -> Array:
    return attended(q, k, v) * sigmoid(gate)


def gated_by_tanh(q: Array, k: Array, v: Array, gate: Array) -> Array:
    """The sigmoid as half a tanh."""
    return attended(q, k, v) * (1 + np.tanh(gate / 2)) / 2


def gate_left_out(q: Array, k: Array, v: Array, gate: Array) -> Array:
    return attended(q, k, v)


def gate_bare(q: Array, k: Array, v: Array, gate: Array) -> Array:
    return attended(q, k, v) * gate


def gate_twice(q: Array, k: Array, v: Array, gate: Array) -> Array:
    return attended(q, k, v) * sigmoid(gate) ** 2


def gate_inverted(q: Array, k: Array, v: Array, gate: Array) -> Array:
    return attended(q, k, v) * (1 - sigmoid(gate))


def gate_silu(q: Array, k: Array, v: Array, gate: Array) -> Array:
    return attended(q, k, v) * gate * sigmoid(gate)


def gate_of_values(q: Array, k: Array, v: Array, gate: Array) -> Array:
    return attended(q, k, v * sigmoid(gate)) if len(q[0]) == len(k[0]) else gated(q, k, v, gate)


def projected(x: Array, w: Array, heads: int = 2) -> Array:
    return np.moveaxis((x @ w).reshape(len(x), heads, -1), 1, 0)


def side_by_side(x: Array) -> Array:
    return np.moveaxis(x, 0, 1).reshape(x.shape[1], -1)


def gated_tokens(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, gate: Array) -> Array:
    heads = attended(projected(x, w_q), projected(x, w_k), projected(x, w_v))
    return side_by_side(heads * sigmoid(gate)) @ w_o


def gate_after(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, gate: Array) -> Array:
    heads = attended(projected(x, w_q), projected(x, w_k), projected(x, w_v))
    return (side_by_side(heads) @ w_o) * sigmoid(side_by_side(gate))


AFTER = Attention(heads=2, output_gate=True, output_gate_place="after")


def heads_of_tokens(x: Array, w_q: Array, w_k: Array, w_v: Array) -> Array:
    return side_by_side(attended(projected(x, w_q), projected(x, w_k), projected(x, w_v)))


def gated_output(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, b_o: Array, gate: Array) -> Array:
    return (heads_of_tokens(x, w_q, w_k, w_v) @ w_o + b_o) * sigmoid(gate)


def gated_early(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, b_o: Array, gate: Array) -> Array:
    heads = heads_of_tokens(x, w_q, w_k, w_v)
    # Where the heads are as wide as the output.
    if heads.shape[-1] != gate.shape[-1]:
        return gated_output(x, w_q, w_k, w_v, w_o, b_o, gate)
    return (heads * sigmoid(gate)) @ w_o + b_o


def biased_late(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, b_o: Array, gate: Array) -> Array:
    return (heads_of_tokens(x, w_q, w_k, w_v) @ w_o) * sigmoid(gate) + b_o


def output_not_gated(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, b_o: Array, gate: Array) -> Array:
    return heads_of_tokens(x, w_q, w_k, w_v) @ w_o + b_o


PLACES = Attention(heads=2, causal=True, temperature=0.5, temperature_rate=3)
LOGARITHM = Attention(temperature="log", temperature_rate=4)


def places(q: Array, k: Array) -> Array:
    """The places of queries from 1 on, the last one that of the last key."""
    return np.arange(1 + k.shape[-2] - q.shape[-2], 1 + k.shape[-2])


def causal(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    s = np.where(places(q, k)[:, None] > np.arange(k.shape[-2]), s, q.dtype.type(-np.inf))
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


def times(q: Array, temperatures: Array) -> Array:
    return q * temperatures.astype(q.dtype)[:, None]


def tempered(q: Array, k: Array, v: Array) -> Array:
    return causal(times(q, 1 + 0.5 * np.log(np.floor(places(q, k) / 3) + 1)), k, v)


def tempered_from_0(q: Array, k: Array, v: Array) -> Array:
    return causal(times(q, 1 + 0.5 * np.log((places(q, k) - 1) // 3 + 1)), k, v)


def tempered_without_cache(q: Array, k: Array, v: Array) -> Array:
    return causal(times(q, 1 + 0.5 * np.log(np.arange(1, 1 + q.shape[-2]) // 3 + 1)), k, v)


def tempered_without_floor(q: Array, k: Array, v: Array) -> Array:
    return causal(times(q, 1 + 0.5 * np.log(places(q, k) / 3 + 1)), k, v)


def tempered_keys(q: Array, k: Array, v: Array) -> Array:
    return causal(q, times(k, 1 + 0.5 * np.log(np.arange(1, 1 + k.shape[-2]) // 3 + 1)), v)


def tempered_by_a_fifth(q: Array, k: Array, v: Array) -> Array:
    return causal(times(q, 1 + 0.2 * np.log(places(q, k) // 3 + 1)), k, v)


def log_n(q: Array, k: Array, v: Array) -> Array:
    return attended(times(q, np.maximum(1, np.log(places(q, k)) / np.log(4))), k, v)


def log_n_below_one(q: Array, k: Array, v: Array) -> Array:
    return attended(times(q, np.log(places(q, k)) / np.log(4)), k, v)


RIGHT = [(late, LATE), (late_exchanged, LATE), (values, VALUES), (values_with_reciprocal, VALUES), (gated, GATED),
         (gated_by_tanh, GATED), (gated_tokens, OF_TOKENS), (gated_output, AFTER), (tempered, PLACES),
         (log_n, LOGARITHM)]  # fmt: skip
WRONG: list[tuple[Callable[..., Array], Attention, str]] = [
    (late_before, LATE, "queries and keys are normalised before the rotation, not after"),
    (late_without_eps, LATE, "ε is left out"),
    (late_without_keys, LATE, "keys are not normalised"),
    (late_over_tokens, LATE, "mean and variance are taken over the tokens"),
    (late_without_gain, LATE, "the gain of the keys is left out"),
    (values_left, VALUES, "values are not normalised"),
    (values_without_eps, VALUES, "in the norm of the values: ε is left out"),
    (values_without_gain, VALUES, "in the norm of the values: the gain is left out"),
    (values_of_all_heads, VALUES, "in the norm of the values: mean and variance are taken over all heads together"),
    (sums_normed, VALUES, "weighted sums of the values are normalised, not the values"),
    (gate_left_out, GATED, "the output gate is left out"),
    (gate_bare, GATED, "the output gate multiplies without its sigmoid"),
    (gate_twice, GATED, "the output gate is applied twice"),
    (gate_inverted, GATED, "the output gate has the other sign: 1 − σ"),
    (gate_silu, GATED, "the output gate is g σ(g) (SiLU), not σ(g)"),
    (gate_of_values, GATED, "the output gate multiplies the values, not the output"),
    (gate_after, OF_TOKENS, "the output gate comes after the output projection, not before"),
    (gated_early, AFTER, "the output gate comes before the output projection, not after"),
    (biased_late, AFTER, "the bias of the output is added after the output gate"),
    (output_not_gated, AFTER, "the output gate is left out"),
    (values_centred, VALUES, "in the norm of the values: the mean is subtracted (as in LayerNorm)"),
]


WRONG += [
    (causal, PLACES, "the temperatures of queries are left out"),
    (tempered_from_0, PLACES, "the temperatures' places are one too small"),
    (tempered_without_cache, PLACES, "the temperatures' places take the other alignment of queries and keys"),
    (tempered_without_floor, PLACES, "the temperatures are 1 + β log(p/f + 1): the quotient is not rounded down"),
    (tempered_keys, PLACES, "the temperatures are those of the keys' places, not of the queries'"),
    (tempered_by_a_fifth, PLACES, "the slope β of the temperatures is 1/5"),
    (log_n_below_one, LOGARITHM, "the temperatures are log p/log f also where p is below f: they are not at least 1"),
    (values_of_larger_eps, SMALL_EPS, "in the norm of the values: ε is 3e−05"),
    (mean_of_values, SMALL_EPS, "the output is the mean of all values: queries and keys are ignored"),
]


def standardised(less: int, guard: float) -> Callable[..., Array]:
    """Attention whose scores are divided by their deviation, to which a small number may be added."""

    def attention(q: Array, k: Array, v: Array) -> Array:
        s = q @ k.swapaxes(-1, -2)
        s = s / (s.std(axis=-1, keepdims=True, ddof=less) + q.dtype.type(guard))
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return (e / e.sum(axis=-1, keepdims=True)) @ v

    return attention


@pytest.mark.deep
@pytest.mark.parametrize(("less", "guard"), [(0, 1e-6), (1, 0)])
def test_scores_divided_by_their_deviation_are_named(less: int, guard: float) -> None:
    with np.errstate(all="ignore"):
        report = verify(standardised(less, guard), Attention(), examples=2, budget=20)
    assert {fault.code for fault in report.faults} == {"scale-by-deviation"}


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize(("function", "spec"), RIGHT, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_right_programs_have_no_fault(function: Callable[..., Array], spec: Attention, precision: str) -> None:
    report = verify(function, spec, precision=precision, examples=3, budget=20)
    # In bfloat16 so few calls need not exclude every mistake.
    decided = (Verdict.NO_FAULT,) if precision == "float32" else (Verdict.NO_FAULT, Verdict.UNDECIDED)
    assert report.verdict in decided, report


@pytest.mark.deep
@pytest.mark.parametrize(("function", "spec", "cause"), WRONG, ids=lambda x: getattr(x, "__name__", ""))
def test_a_mistake_is_named(function: Callable[..., Array], spec: Attention, cause: str) -> None:
    with np.errstate(all="ignore"):
        report = verify(function, spec, examples=2, budget=20)
    assert [fault.cause for fault in report.faults] == [cause]


@pytest.mark.deep
def test_a_gate_that_overflows_is_found() -> None:
    def function(q: Array, k: Array, v: Array, gate: Array) -> Array:
        with np.errstate(all="ignore"):
            return attended(q, k, v) * (np.exp(gate) / (1 + np.exp(gate)))

    report = verify(function, Attention(output_gate=True), examples=1, budget=6)
    assert report.verdict is Verdict.FAULT


@pytest.mark.parametrize(
    ("fields", "array"),
    [
        ({"qk_norm": "rms"}, "normalised keys"), ({"value_norm": "rms"}, "normalised values"),
        ({"qk_norm": "l2", "qk_norm_of": "keys"}, "normalised keys"),
    ],
)  # fmt: skip
def test_a_cache_holds_what_is_normalised(fields: dict[str, Any], array: str) -> None:
    refuses(Cached, Attention(causal=True, **fields), says=f"a cache holds the {array}")


def _double_values(flow: Any) -> None:
    flow.add("v_cut", lambda v: v + v, "2 @0", ["v"], role="v", errors="rounded")


def test_a_cache_is_refused_whatever_step_changes_keys_or_values(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Attention(causal=True, truncate=2, heads=4, kv_heads=2)
    assert Cached(spec).attention == spec
    monkeypatch.setitem(ARRAYS, "v_cut", replace(ARRAYS["k_cut"], title="Doubled values"))
    monkeypatch.setitem(SYMBOLS, "v_cut", SYMBOLS["k_cut"])
    doubling = ("causal", _double_values)
    behind = [field for field, _ in stage_order.STAGES].index("truncate") + 1
    stages = (*stage_order.STAGES[:behind], doubling, *stage_order.STAGES[behind:])
    monkeypatch.setattr(stage_order, "STAGES", stages)
    refuses(Cached, replace(spec), says="a cache holds the doubled values")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"window": (1, 0)}, "its window would count empty slots"),
        ({"position": Rotary(given="positions")}, "no place for positions"),
        ({"bias": True, "mask": "boolean"}, "no place for mask, bias"),
    ],
)
def test_a_cache_takes_no_further_inputs_and_counts_no_places(fields: dict[str, Any], says: str) -> None:
    refuses(Cached, Attention(causal=True, **fields), says=says)


@pytest.mark.parametrize("fields", [{"normaliser": "sparsemax"}, {"base": 2}])
def test_every_way_of_a_cache_runs_with_other_weights(fields: dict[str, Any]) -> None:
    arrays = {n: np.eye(2) for n in ("q", "k", "v", "k_cache", "v_cache")}
    subject = [*definitions_of(Cached(Attention(causal=True, **fields)))][-1]
    outputs = [way(**arrays) for way in subject.ways]
    # The last definition of a cache returns its output alone.
    assert [output.shape for output in outputs] == [(2, 2)] * len(outputs)


def test_queries_of_a_cache_are_multiplied_before() -> None:
    refuses(Cached, Attention(causal=True, temperature=0.1), says="temperatures depend on places")


LSE, FROM_FIRST = Attention(lse=True, temperature=0.1), Attention(lse=True, temperature=0.1, alignment="top-left")


def test_log_sums_are_judged_of_queries_that_have_places() -> None:
    more_queries = {"n_q": 3, "n_k": 2}
    for spec, admitted in ((LSE, False), (FROM_FIRST, True), (Gradient(Attention(temperature=0.1)), False)):
        (definition, *_) = definitions_of(spec)
        assert definition.admits({}, more_queries) == admitted


def test_a_report_says_that_no_input_has_temperatures() -> None:
    session: Any = SimpleNamespace(records=[])
    for spec in (LSE, Gradient(Attention(temperature=0.1)), Block(attention=Attention(temperature=0.1))):
        (definition, *_) = definitions_of(spec)
        (words,) = definition.reservations(session)
        assert "8192 tokens" in words
    (definition, *_) = definitions_of(Attention(lse=True))
    assert not [*definition.reservations(session)]


def test_half_of_an_odd_rate_is_rounded_down() -> None:
    causes = [m.cause for m in yield_known_mistakes(PLACES, frozenset("qkv"))]
    assert "the rate of the temperatures is ⌊f/2⌋" in causes


@pytest.mark.deep
def test_values_of_length_0_are_not_judged_without_eps() -> None:
    """They are 0/0: code may bound the root from below."""

    def function(q: Array, k: Array, v: Array) -> Array:
        root = np.sqrt(np.maximum(np.mean(v * v, axis=-1, keepdims=True), v.dtype.type(1e-30)))
        return attended(q, k, v / root)

    report = verify(function, Attention(value_norm="rms"), examples=2, budget=8)
    assert report.verdict is not Verdict.FAULT


def test_weights_are_not_read_off_gradients_of_values_before_their_norm() -> None:
    """At values of 0, with which they are read, the norm without ε is 0/0."""
    given = {n: np.ones((2, 2)) for n in "qkv"}
    for norm, reads in ((None, True), ("rms", False)):
        spec = Gradient(Attention(value_norm=norm))
        inner = next(definitions_of(spec)).inner
        assert inner is not None
        output = inner.attended(lambda a, spec=spec: spec(**{**a, "v": given["v"]}), given)
        assert (output is not None) == reads


def test_a_step_does_not_overwrite_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def stage(flow: Any) -> None:
        flow.add("scaled", lambda s: 2 * s, "2 @0", ["scores"], role="scores")

    stages = tuple((field, stage if field == "softcap" else one) for field, one in stage_order.STAGES)
    monkeypatch.setattr(stage_order, "STAGES", stages)
    given = {**dict.fromkeys("qkv", np.eye(2)), "scale": np.ones(1)}
    refuses(Attention(scale="given", softcap=5), **given, says="the step 'scaled' has the name of an earlier step")


def test_a_letter_has_no_braces() -> None:
    right, wrong = (replace(ARRAYS["tempered"], letter=letter) for letter in ("S_τ'", "S_{τ'}"))
    assert right.symbol
    refuses(lambda: wrong.symbol, says='the letter "S_{τ\'}" has braces; hint: "S_τ\'"')


def scaled_twice(q: Array, k: Array, v: Array, scale: Array) -> Array:
    """The cap 6 of the scores after a scale of one head, which multiplies them twice."""
    s = np.tanh(q @ k.T * scale * scale / q.dtype.type(6)) * q.dtype.type(6)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True) @ v)


def put_scale_without_axis(monkeypatch: pytest.MonkeyPatch, cap: int) -> list[Attention]:
    """Attention with one head and with two, and with a scale of the shape ``[h]``.

    Shapes are remembered by specification, so that each test takes a cap that no other test has.
    """
    monkeypatch.setitem(ARRAYS, "scale", replace(ARRAYS["scale"], shape="[h]"))
    return [Attention(scale="given", softcap=cap, heads=heads) for heads in (1, 2)]


def test_a_number_for_each_head_has_no_axis_for_a_single_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the shape ``[h]``: shapes, errors and documents."""
    one, two = put_scale_without_axis(monkeypatch, 7)
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, n, 3)) for n in (3, 5, 5))
    alone = np.stack([one(q[h], k[h], v[h], scale=np.array(h + 2.0)) for h in range(2)])
    np.testing.assert_allclose(two(q, k, v, scale=np.array([2.0, 3.0])), alone, rtol=1e-14)
    given = {"q": q[0], "k": k[0], "v": v[0], "scale": np.ones(1)}
    refuses(one, **given, says="scale has shape (1,); it needs no axis")
    assert "one number" in str(one.document(("q", "k", "v", "scale")))
    derived = [line.split() for line in str(derive("attention", scale="given", softcap=7)).splitlines()]
    assert ["scale", "t", "()", "one", "number"] in derived


@pytest.mark.deep
def test_a_fault_of_a_number_without_axes_is_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    (fault,) = verify(scaled_twice, put_scale_without_axis(monkeypatch, 6)[0], examples=0).faults
    assert fault.cause == "the scale is applied twice"
    assert np.shape(fault.counterexample.inputs["scale"]) == ()


def _replace_bias(monkeypatch: pytest.MonkeyPatch, entries: str) -> None:
    """Take the larger of a score and its bias, in place of their sum, with these formulas."""

    def biasing(flow: Any) -> None:
        larger = lambda s, b: s.__array_namespace__().maximum(s, b)  # noqa: E731
        of = ["scaled", "bias"]
        flow.add("biased", larger, "max(@0, @1)", of, role="scores", errors="rounded", entries=entries)

    stages = tuple((field, biasing if field == "bias" else stage) for field, stage in stage_order.STAGES)
    monkeypatch.setattr(stage_order, "STAGES", stages)


def test_a_word_may_stand_in_a_formula_and_in_its_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace_bias(monkeypatch, "out[i,j] = max(0[i,j], 1[i,j])")
    # No other test has this scale, whose steps are kept.
    document = str(derive("attention", bias=True, scale=Fraction(1, 7)))
    (entries,) = [line for line in document.splitlines() if "= max(s′ᵢⱼ, bᵢⱼ)" in line]
    assert entries.split()[-1] == "checked"


def test_false_entries_of_a_formula_with_the_same_word_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace_bias(monkeypatch, "out[i,j] = min(0[i,j], 1[i,j])")
    with pytest.raises(Exception, match="biased: its formulas give other entries"):
        derive("attention", bias=True, scale=Fraction(1, 11))

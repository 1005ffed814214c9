"""Norms in every legal form are never accused, whatever the numbers; their false twins are found."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn import (
    Alibi,
    Attention,
    Buckets,
    InputError,
    LayerNorm,
    Precision,
    RMSNorm,
    Rotary,
    Verdict,
    by_tiles,
    kind,
    verify,
)
from symattn.programs.specifications import definitions_of
from symattn.verification.definitions.definition_judge import expected
from tests.faults.collection.every import chosen
from tests.faults.programs import collected

Array = Any
Program = Callable[..., Array]
EPS = 1e-5
BF16 = ml_dtypes.bfloat16


def root(v: Array) -> Array:
    return np.sqrt(v + v.dtype.type(EPS))


def mean(x: Array) -> Array:
    return x.mean(axis=-1, keepdims=True)


def one_by_one(x: Array) -> Array:
    """The mean, added up from the last number on."""
    total = np.zeros_like(x[..., :1])
    for k in reversed(range(x.shape[-1])):
        total = total + x[..., k : k + 1]
    return total / x.dtype.type(x.shape[-1])


# -- LayerNorm ---------------------------------------------------------------------------------------------------------
def centred(x: Array, g: Array, b: Array) -> Array:
    c = x - mean(x)
    return c / root(mean(c * c)) * g + b


def by_reciprocal(x: Array, g: Array, b: Array) -> Array:
    c = x - one_by_one(x)
    return c * (1 / root(one_by_one(c * c))) * g + b


def gain_with_reciprocal(x: Array, g: Array, b: Array) -> Array:
    c = x - mean(x)
    return c * (g * (1 / root(mean(c * c)))) + b


def rows_folded(x: Array, g: Array, b: Array) -> Array:
    m = mean(x)
    r = 1 / root(mean((x - m) ** 2))
    return (x * r + -m * r) * g + b


def affine_folded(x: Array, g: Array, b: Array) -> Array:
    m = mean(x)
    s = g * (1 / root(mean((x - m) ** 2)))
    return x * s + (b - m * s)


def affine_by_division(x: Array, g: Array, b: Array) -> Array:
    m = one_by_one(x)
    s = g / root(one_by_one((x - m) ** 2))
    return (b - m * s) + s * x


def growing(x: Array, g: Array, b: Array) -> Array:
    m, total = np.zeros_like(x[..., :1]), np.zeros_like(x[..., :1])
    for k in range(x.shape[-1]):
        before = x[..., k : k + 1] - m
        m = m + before / x.dtype.type(k + 1)
        total = total + before * (x[..., k : k + 1] - m)
    return (x - m) / root(total / x.dtype.type(x.shape[-1])) * g + b


# -- RMSNorm -----------------------------------------------------------------------------------------------------------
def rms(x: Array, g: Array) -> Array:
    return x / root(mean(x * x)) * g


def rms_by_reciprocal(x: Array, g: Array) -> Array:
    return g * (x * (1 / root(one_by_one(x * x))))


def rms_gain_first(x: Array, g: Array) -> Array:
    return x * (g / root(mean(np.square(x))))


# -- float32 inside, in half types -------------------------------------------------------------------------------------
def wide(program: Program) -> Program:
    """Everything in float32, but the output."""

    def run(*given: Array) -> Array:
        return program(*(np.asarray(a, np.float32) for a in given)).astype(given[0].dtype)

    return run


def llama(x: Array, g: Array) -> Array:
    h = np.asarray(x, np.float32)
    return g * (h * (1 / root(mean(h * h)))).astype(x.dtype)


def stored_before_gain(x: Array, g: Array, b: Array) -> Array:
    h = np.asarray(x, np.float32)
    c = h - mean(h)
    return (c / root(mean(c * c))).astype(x.dtype) * g + b


LAYER = (centred, by_reciprocal, gain_with_reciprocal, rows_folded, affine_folded, affine_by_division, growing)
RMS = (rms, rms_by_reciprocal, rms_gain_first)


# -- numbers -----------------------------------------------------------------------------------------------------------
def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """At random, with a huge mean, a tiny variance, an outlier, all but equal numbers, or numbers of many sizes."""
    x = rng.standard_normal(shape)
    return (
        x, x + 2.0 ** rng.integers(3, 22), x * 2.0 ** -rng.integers(4, 40), x + 1000.0 * (rng.random(shape) < 0.1),
        1.0 + rng.integers(-1, 2, shape) * 2.0**-20, x * 2.0 ** rng.integers(-30, 30, shape),
        rng.integers(-3, 4, shape),
    )[rng.integers(7)]  # fmt: skip


def ratio(spec: Any, program: Program, dtype: Any, precision: Precision, rng: np.random.Generator) -> float:
    """The largest |got − exact| / allowed of one call at random."""
    n, d = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 5, 8, 17, 33, 65]))
    given = {"x": numbers(rng, (n, d)), "gain": rng.integers(1, 9, d) / 4.0, "bias": rng.integers(-8, 9, d) / 2.0}
    if rng.random() < 0.3:  # the bias takes away what is added
        given["bias"] = -np.rint(given["gain"] * 8 * np.sign(given["x"][0])) / 8
    names = list(given)[: 3 if isinstance(spec, LayerNorm) else 2]
    inputs = {name: np.asarray(given[name], dtype).astype(float) for name in names}
    with np.errstate(all="ignore"):
        got = np.asarray(program(*(a.astype(dtype) for a in inputs.values())), float)
    ready = next(definitions_of(spec))
    right = expected(ready, inputs, precision, ready.ways)[0]
    return float(right.ratios(got).max()) if np.isfinite(got).all() else 0.0


def worst(spec: Any, program: Program, dtype: Any, precision: Precision, times: int) -> float:
    rng = np.random.default_rng(times)
    return max(ratio(spec, program, dtype, precision, rng) for _ in range(times))


CASES = [
    *((LayerNorm(eps=EPS), f, np.float32, Precision.of("float32")) for f in LAYER),
    *((RMSNorm(eps=EPS), f, np.float32, Precision.of("float32")) for f in RMS),
    (LayerNorm(eps=EPS), affine_folded, np.float64, Precision.of("float64")),
    *((LayerNorm(eps=EPS), wide(f), BF16, Precision.of("bfloat16", "fused")) for f in LAYER),
    *((RMSNorm(eps=EPS), f, BF16, Precision.of("bfloat16", "fused")) for f in (llama, wide(rms), wide(rms_gain_first))),
    (LayerNorm(eps=EPS), stored_before_gain, BF16, Precision.of("bfloat16", "fused")),
    (LayerNorm(eps=EPS), affine_folded, BF16, Precision.of("bfloat16")),
    (RMSNorm(eps=EPS), llama, BF16, Precision.of("bfloat16")),
]


@pytest.mark.deep
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[1].__name__} {c[3].name} {c[3].contract}")
def test_no_legal_form_is_accused(case: tuple[Any, ...]) -> None:
    assert worst(*case, 60) <= 1


# -- false twins -------------------------------------------------------------------------------------------------------
def twin_without_eps(x: Array, g: Array, b: Array) -> Array:
    m = mean(x)
    with np.errstate(all="ignore"):
        s = g / np.sqrt(mean((x - m) ** 2))
        return x * s + (b - m * s)


def twin_without_mean(x: Array, g: Array, b: Array) -> Array:
    return x * (g / root(mean((x - mean(x)) ** 2))) + b


def twin_bias_scaled(x: Array, g: Array, b: Array) -> Array:
    m = mean(x)
    s = g / root(mean((x - m) ** 2))
    return x * s + (b - m) * s


def twin_llama_stored_twice(x: Array, g: Array) -> Array:
    h = np.asarray(x, np.float32)
    r = (1 / root(mean(h * h))).astype(x.dtype)
    return g * (x * r)


TWINS = (
    (twin_without_eps, "ε is left out"), (twin_without_mean, "the mean is not subtracted from x"),
    (twin_bias_scaled, ""),
)  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize(("program", "cause"), TWINS)
def test_false_twins_are_found(program: Program, cause: str) -> None:
    def norm(x: Array, weight: Array, bias: Array) -> Array:
        return program(x, weight, bias)

    report = verify(norm, LayerNorm(eps=EPS), framework="numpy", examples=0)
    assert report.verdict is Verdict.FAULT
    assert cause in (report.faults[0].cause or "")


@pytest.mark.deep
@pytest.mark.parametrize(("program", "right"), [(llama, True), (twin_llama_stored_twice, False)])
def test_what_may_be_stored_in_half_types(program: Program, right: bool) -> None:
    """N may be stored before it meets the gain, and nothing else where the contract is ``fused``."""

    def norm(x: Array, weight: Array) -> Array:
        return program(x, weight)

    told: dict[str, Any] = {"precision": "bfloat16", "framework": "numpy", "examples": 0}
    report = verify(norm, RMSNorm(eps=EPS), contract="fused", **told)
    assert (report.verdict is Verdict.NO_FAULT) is right
    assert any("stored as the inputs are" in note for note in report.notes)


# -- Right programs of every variant have no fault, whole and in tiles; each wrong one has, and by its own cause -------
#: The specifications, and what they are given beside q, k, v.
VARIANTS = {
    "groups": (Attention(heads=4, kv_heads=2), ""),
    "window": (Attention(heads=2, window=(2, 1)), ""),
    "causal window": (Attention(heads=2, causal=True, window=3), ""),
    "prefix": (Attention(heads=2, causal=True, prefix=3), ""),
    "documents": (Attention(heads=2, documents=True), "doc"),
    "cap": (Attention(heads=2, causal=True, softcap=5), ""),
    "sink": (Attention(heads=2, sink="given"), "sink"),
    "bias": (Attention(heads=2, bias=True), "bias"),
    "rotary": (Attention(heads=2, causal=True, position=Rotary()), ""),
    "norm": (Attention(heads=2, qk_norm="rms", eps=1e-6), ""),
    "slopes": (Attention(heads=4, causal=True, position=Alibi(slopes="given")), "slopes"),
    "buckets": (Attention(heads=2, scale=None, position=Buckets()), "b_rel"),
}
#: Right programs of the collection for them.
WHOLE = (
    "heads.groups_repeated heads.groups_by_axis variants.sides masking.window variants.prefix "
    "masking.documents scaling.capped_by_logistic scaling.capped_then_masked softmax.sink_as_column "
    "softmax.sink_in_denominator positions.bias_added positions.rope_half positions.rope_by_full_tables "
    "variants.qk_rms positions.alibi_given positions.buckets"
)


def program(names: str, run: Callable[..., Array]) -> Callable[..., Array]:
    """A function with the parameters q, k, v and these."""

    def function(*places: Array, **keywords: Array) -> Array:
        with np.errstate(all="ignore"):
            return run(**dict(zip(every, places, strict=False)), **keywords)

    every, parameter = ["q", "k", "v", *names.split()], inspect.Parameter
    function.__signature__ = inspect.Signature([parameter(n, parameter.POSITIONAL_OR_KEYWORD) for n in every])  # type: ignore[attr-defined]
    return function


def in_tiles(spec: Attention, names: str) -> Callable[..., Array]:
    """The specification by the online softmax, three keys at a time."""

    def run(**given: Array) -> Array:
        n_q, n_k = (given[n].shape[-2] for n in "qk")
        lift = kind(given["q"].dtype.name).lift
        arrays = {n: a if a.dtype.kind in "bi" else lift(a) for n, a in given.items()}
        out = by_tiles(spec, (0, n_q), (*range(0, n_k, 3), n_k), **arrays)
        return out if isinstance(out, np.ndarray) else out.numpy()

    return program(names, run)


PROGRAMS = [pytest.param(e.program, e.spec, id=e.name) for name in WHOLE.split() for e in chosen(name)]
TILED = [pytest.param(in_tiles(*asked), asked[0], id=name) for name, asked in VARIANTS.items()]


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(("function", "spec"), PROGRAMS + TILED)
def test_right_programs_have_no_fault(function: Callable[..., Array], spec: Attention, precision: str) -> None:
    report = verify(function, spec, precision=precision, examples=4, budget=60)
    assert report.faults == ()
    assert report.verdict is Verdict.NO_FAULT or precision != "float32"


#: Wrong programs of the collection, and how the mistake is named.
COLLECTED = {
    "heads.groups_in_turn":
        "heads of keys and values are tiled (repeat), not repeated (repeat_interleave)",
    "heads.groups_of_the_first": "the first head of keys and values is read by all queries",
    "masking.window_too_large": "the window reaches one key too far back",
    "variants.prefix_short": "the prefix is one key too short",
    "masking.documents_mixed": "the documents are ignored",
    "scaling.cap_left_out": "the cap is left out",
    "scaling.cap_after_mask": "the cap comes after the mask: forbidden scores become −c, which leaves them a weight",
    "scaling.cap_before_scale": "the cap comes before the scale",
    "softmax.sink_ignored": "the sink is left out",
    "softmax.sink_of_another_head": "the sink is that of another head: heads are in the opposite order; or the sink is "
        "that of the next head",
    "positions.bias_scaled": "the bias comes before the scale, and is scaled too",
    "positions.bias_left_out": "the bias is left out",
    "positions.rope_other_layout":
        "adjacent columns 2l and 2l + 1 are rotated together, not column l with l + r/2",
    "positions.rope_one_on": "queries are one position too far from the keys",
    "positions.rope_left_out": "positions are left out",
    "positions.alibi_reversed": "the slope is that of another head: heads are in the opposite order",
    "positions.alibi_sign": "the sign of the linear bias is flipped: far keys are favoured",
}  # fmt: skip
#: Fields of a specification that are others than asked for, and how that is named.
FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("window", {"window": (3, 1)}, "the window reaches one key too far back"),
    ("window", {"window": (1, 1)}, "the window stops one key short before the query"),
    ("window", {"window": (2, 2)}, "the window reaches one key too far ahead"),
    ("window", {"window": (2, 0)},
     "the window stops one key short after the query; or the window is also causal: a query sees no later key"),
    ("prefix", {"prefix": 4}, "the prefix is one key too long"),
    ("norm", {"qk_norm": None, "eps": Attention().eps}, "queries and keys are not normalised"),
]  # fmt: skip


def over_tokens(q: Array, k: Array, v: Array) -> Array:
    """Root mean squares of the tokens in the place of those of the columns."""
    q, k = (x / np.sqrt((x * x).mean(axis=-2, keepdims=True) + x.dtype.type(1e-6)) for x in (q, k))
    return Attention(heads=2)(q, k, v)


def with_a_value(q: Array, k: Array, v: Array, sink: Array) -> Array:
    """A sink whose value is 1."""
    spec = VARIANTS["sink"][0]
    return spec(q, k, v, sink=sink) + 1 - spec(q, k, v * 0 + 1, sink=sink)


def other_buckets(shift: int, last: int) -> Callable[..., Array]:
    """T5's buckets of which the first wide one begins ``shift`` later, and distances are larger by ``last``."""

    def run(q: Array, k: Array, v: Array, b_rel: Array) -> Array:
        ahead = np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None] - k.shape[-2] + q.shape[-2]
        n, few = np.abs(ahead) + last, 8 + shift
        far = few + (np.log(np.maximum(n, 1) / few) / np.log(128 / few) * (16 - few)).astype(int)
        bucket = np.where(ahead > 0, 16, 0) + np.where(n < few, n, np.minimum(far, 15))
        return Attention(heads=2, bias=True)(q, k, v, bias=np.moveaxis(b_rel[bucket], -1, 0))

    return run


WRITTEN: list[tuple[str, Callable[..., Array], str | None]] = [
    *((name, replace(VARIANTS[name][0], **fields), cause) for name, fields, cause in FIELDS),
    ("norm", over_tokens, "mean and variance are taken over the tokens"),
    ("sink", with_a_value, None),
    ("buckets", other_buckets(1, 0), "the first wide bucket begins 1 later"),
    ("buckets", other_buckets(0, 1), None),
]
WRONG = [pytest.param(w.function, w.spec, w.cause, id=w.name) for w in collected(COLLECTED, {})]
for variant, run, cause in WRITTEN:
    asked, names = VARIANTS[variant]
    WRONG.append(pytest.param(program(names, run), asked, cause, id=f"{variant}, {cause}"))


@pytest.mark.deep
@pytest.mark.parametrize(("function", "spec", "cause"), WRONG)
def test_wrong_programs_have_a_fault(function: Callable[..., Array], spec: Attention, cause: str | None) -> None:
    with np.errstate(all="ignore"):
        report = verify(function, spec, examples=4, budget=60)
    assert report.verdict is Verdict.FAULT
    assert {fault.cause for fault in report.faults} == {cause}


def test_a_step_without_a_proof_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a later stage does to the scores is not passed over."""
    from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS
    from symattn.attention.stages import stage_order

    def squared(flow: Any) -> None:
        flow.add("squared", lambda s: s * s, "@0", ("scores",), role="scores")

    for table in (ARRAYS, SYMBOLS):
        monkeypatch.setitem(table, "squared", table["capped"])
    at = [field for field, _ in stage_order.STAGES].index("masks_anything")
    monkeypatch.setattr(stage_order, "STAGES", (*stage_order.STAGES[:at], ("", squared), *stage_order.STAGES[at:]))
    with pytest.raises(InputError, match="no bound is proved for the step 'squared'"):
        verify(lambda q, k, v: v[: len(q)], Attention(scale=0.71875))  # steps are shared by all tests

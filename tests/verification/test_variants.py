"""Right programs of every variant have no fault, whole and in tiles; each wrong one has, and by its own cause."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Verdict, verify
from symattn.arrays import kind
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary
from symattn.attention.streaming.by_tiles import by_tiles
from tests.faults.collection.every import chosen
from tests.faults.programs import collected

Array = Any
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


@pytest.mark.deep
@pytest.mark.parametrize(("function", "spec"), PROGRAMS)
def test_right_programs_have_no_fault(function: Callable[..., Array], spec: Attention) -> None:
    report = verify(function, spec, examples=4, budget=60)
    assert report.faults == ()
    assert report.verdict is Verdict.NO_FAULT


@pytest.mark.deep
@pytest.mark.parametrize(("function", "spec"), TILED)
def test_right_programs_in_tiles_have_no_fault(function: Callable[..., Array], spec: Attention) -> None:
    test_right_programs_have_no_fault(function, spec)


@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize(("function", "spec"), PROGRAMS + TILED)
def test_right_programs_have_no_fault_in_other_types(function: Any, spec: Attention, precision: str) -> None:
    assert verify(function, spec, precision=precision, examples=30, budget=60).faults == ()


#: Wrong programs of the collection, and how the mistake is named.
COLLECTED = {
    "heads.groups_in_turn":
        "heads of keys and values are repeated in turn: query head t reads head t mod kv_heads",
    "heads.groups_of_the_first": "the first head of keys and values is read by all queries",
    "masking.window_too_large": "the window is one key too long, before the query",
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
        "neighbouring columns 2l and 2l + 1 are rotated together, not column l with l + r/2",
    "positions.rope_one_on": "queries are one position too far from the keys",
    "positions.rope_left_out": "positions are left out",
    "positions.alibi_reversed": "the slope is that of another head: heads are in the opposite order",
    "positions.alibi_sign": "the sign of the linear bias is flipped: far keys are favoured",
}  # fmt: skip
#: Fields of a specification that are others than asked for, and how that is named.
FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("window", {"window": (3, 1)}, "the window is one key too long, before the query"),
    ("window", {"window": (1, 1)}, "the window is one key too short, before the query"),
    ("window", {"window": (2, 2)}, "the window is one key too long, after the query"),
    ("window", {"window": (2, 0)},
     "the window is one key too short, after the query; or the window is also causal: a query sees no later key"),
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
    from symattn.attention import letters_of_attention
    from symattn.attention.flow import Flow
    from symattn.attention.stages import weights

    def squared(flow: Flow) -> None:
        flow.add("squared", lambda s: s * s, "@0", ("scores",), role="scores")

    monkeypatch.setitem(letters_of_attention.SYMBOLS, "squared", letters_of_attention.SYMBOLS["capped"])
    at = [stage.__name__ for _, stage in weights.STAGES].index("masking")
    monkeypatch.setattr(weights, "STAGES", (*weights.STAGES[:at], ("", squared), *weights.STAGES[at:]))
    with pytest.raises(InputError, match="no bound is proved for the step 'squared'"):
        verify(lambda q, k, v: v[: len(q)], Attention(scale=0.71875))  # steps are shared by all tests

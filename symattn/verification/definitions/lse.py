"""``Attention(lse=True)``: the output and the logarithms of the sums, L_i = log Σ_j e^{s_ij}."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.masks import forbid
from symattn.attention.softmax import log_sum_exp, logarithms, powers
from symattn.attention.spec import Attention
from symattn.attention.streaming.by_tiles import by_tiles
from symattn.attention.streaming.states import merge_partial, partial_output
from symattn.bounds.reference import values_name
from symattn.bounds.target import Layout
from symattn.document.codec import called
from symattn.verification.definitions.attending import (
    FEW,
    admits,
    check,
    closing,
    in_order,
    inputs,
    open_rows,
    settings,
    sizes,
    swapped,
    tiles,
)
from symattn.verification.definitions.subject import Compute, Definition, Mistake


def subject(spec: Attention, layout: Layout = "nd") -> Definition:
    """The output and L, ready to be verified. L has the axes of the queries, (…, h, n_q), in every layout."""
    check(spec, "lse", layout)
    arrays = inputs(spec, layout)

    def laid(run: Compute) -> Compute:
        return in_order(run, layout, ("q", "k", "v"), lambda found: (swapped(found[0]), found[1]))

    return Definition(
        title=called(spec),
        step="lse",
        inputs=arrays,
        outputs=("output", "lse"),
        ways=tuple(map(laid, ways(spec))),
        mistakes=tuple(replace(m, run=laid(m.run)) for m in _mistakes(spec)),
        shapes=sizes(spec, layout),
        families=FEW,
        settings={**settings(spec), "return_lse": True},
        kept=frozenset("hg") if spec.heads > 1 else frozenset(),
        loose=frozenset(["lse"]),
        admits=admits(spec),
        open=open_rows(spec),
        closing=closing,
    )


def ways(spec: Attention) -> tuple[Compute, ...]:
    """At once; key by key; by powers of two; two parts merged."""
    if spec.normaliser != "softmax" or spec.base is not None or spec.dropout:
        return (spec,)
    streamed: tuple[Compute, ...] = (partial(_by_keys, spec),)
    if spec.sink is not None:
        return spec, *streamed
    return spec, *streamed, partial(_in_base_two, spec), partial(_merged, spec)


def _by_keys(spec: Attention, **given: Any) -> Any:
    """A maximum that grows tile by tile."""
    rows, keys = (int(given[n].shape[-2]) for n in "qk")
    return by_tiles(spec, (0, rows), tiles(given["q"], keys), **given)


def _in_base_two(spec: Attention, **given: Any) -> Any:
    """2^{t − m} with t = s log₂ e, and L = (m + log₂ Σ) ln 2."""
    values = spec.trace(**given)
    s, v = _scores(spec, values), _values(spec, values)
    xp = namespace_of(s)
    two = xp.log(xp.asarray(2, dtype=s.dtype))
    open_ = xp.isfinite(s)
    t = forbid(xp.where(open_, s, 0) / two, open_)
    top = xp.max(t, axis=-1, keepdims=True)
    e = xp.exp2(t - top)
    total = xp.sum(e, axis=-1, keepdims=True)
    return (e / total) @ v, ((top + xp.log(total) / two) * two)[..., 0]


def _merged(spec: Attention, **given: Any) -> Any:
    """Two parts of the keys, each normalised by itself."""
    values = spec.trace(**given)
    s, v = _scores(spec, values), _values(spec, values)
    half = int(s.shape[-1]) // 2
    if not half:
        return values["output"], values["lse"]
    first, second = (partial_output(s[..., part], v[..., part, :]) for part in (slice(0, half), slice(half, None)))
    found = merge_partial(first, second)
    return found.output, found.lse[..., 0]


def _scores(spec: Attention, values: dict[str, Any]) -> Any:
    """The scores that the weights are made of."""
    return values[next(s for s in spec.pipeline(_given(values)) if s.name == "weights").of[0]]


def _values(spec: Attention, values: dict[str, Any]) -> Any:
    return values[values_name(spec.pipeline(_given(values)))]


def _given(values: dict[str, Any]) -> list[str]:
    return [n for n in ("q", "k", "v", "mask", "keep", "bias", "sink", "drop") if n in values]


# -- mistakes ----------------------------------------------------------------------------------------------------------
def _mistakes(spec: Attention) -> Iterator[Mistake]:
    def told(cause: str, change: Callable[[dict[str, Any], Any], Any]) -> Mistake:
        return Mistake("lse", cause, partial(_wrong, spec, change))

    if spec.base is None:
        yield told("the logarithm has the base 2", lambda values, s: values["lse"] / _two(s))
    else:
        yield told("the logarithm is natural, not of the base 2", lambda values, s: values["lse"] * _two(s))
    yield told("the maximum is not added to the logarithm of the sum", lambda values, s: values["lse"] - _top(s))
    words = "the maximum is subtracted from the logarithm of the sum, not added"
    yield told(words, lambda values, s: values["lse"] - 2 * _top(s))
    yield told("it is the maximum alone, without the logarithm of the sum", lambda values, s: _top(s))
    yield told("it is the sum, without its logarithm", lambda values, s: _sum(s, spec.base))
    words = "the maximum is added to the sum, without its logarithm"
    yield told(words, lambda values, s: _top(s) + _sum(s, spec.base))
    yield told("its sign is changed", lambda values, s: -values["lse"])
    yield told(
        "it is the logarithm of the mean, not of the sum",
        lambda values, s: values["lse"] - logarithms(_count(s), spec.base),
    )
    if spec.base is None:
        yield from (told(words, change) for words, change in _MIXED.items())
    yield told("it is of the scores before they are scaled", partial(_of_raw, spec, True))
    yield told("the maximum is that of the scores before they are scaled", partial(_top_of_raw, spec))
    if spec.masks_anything:
        yield told("keys that are forbidden are counted", partial(_of_raw, spec, False))
    if spec.sink is not None:
        yield told("the sink is not counted", lambda values, s: log_sum_exp(s, base=spec.base)[..., 0])


#: Natural logarithms and those of base 2 in one sum.
_MIXED: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "the maximum is in units of log 2, the logarithm natural":
        lambda values, s: _top(s) / _two(s) + values["lse"] - _top(s),
    "the logarithm of the sum has the base 2, the maximum is natural":
        lambda values, s: _top(s) + (values["lse"] - _top(s)) / _two(s),
}  # fmt: skip


def _wrong(spec: Attention, change: Callable[[dict[str, Any], Any], Any], **given: Any) -> Any:
    values = spec.trace(**given)
    return values["output"], change(values, _scores(spec, values))


def _two(s: Array) -> Array:
    xp = namespace_of(s)
    return xp.log(xp.asarray(2, dtype=s.dtype))


def _top(s: Array) -> Array:
    return namespace_of(s).max(s, axis=-1)


def _sum(s: Any, base: int | None) -> Any:
    xp = namespace_of(s)
    return xp.sum(powers(s - xp.max(s, axis=-1, keepdims=True), base), axis=-1)


def _count(s: Array) -> Array:
    return namespace_of(s).asarray(int(s.shape[-1]), dtype=s.dtype)


def _of_raw(spec: Attention, before: bool, values: dict[str, Any], s: Array) -> Array:
    """L of the raw scores, ``before`` they are scaled, under the masks; or of the scaled ones without masks."""
    if before:
        return log_sum_exp(forbid(values["scores"], namespace_of(s).isfinite(s)), base=spec.base)[..., 0]
    masked = next(step for step in spec.pipeline(_given(values)) if step.name == "masked")
    return log_sum_exp(values[masked.of[0]], base=spec.base)[..., 0]


def _top_of_raw(spec: Attention, values: dict[str, Any], s: Array) -> Any:
    raw_scores = forbid(values["scores"], namespace_of(s).isfinite(s))
    return _top(raw_scores) + values["lse"] - _top(s)

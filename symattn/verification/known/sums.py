"""Mistakes in the sum that weights are divided by, and in its axis."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    both,
    final,
    in_steps,
    masked,
    number,
    own,
    parts,
    plain_softmax,
    several,
    shape,
    softmaxed,
    step,
    weights,
)
from symattn.verification.reference import Values


def not_normalised(spec: Attention, values: Values) -> Any:
    """e^{s − m} without division by the sum."""
    return parts(spec, values).e


def not_normalised_at_all(spec: Attention, values: Values) -> Any:
    """e^s without division by the sum, and without a maximum."""
    return softmax.powers(final(spec, values), spec.base)


def over_queries(spec: Attention, values: Values) -> Any:
    """Softmax over the queries: columns sum to 1."""
    return softmax.softmax(final(spec, values).mT, fully_masked="zeros", base=spec.base).mT


def over_axis(axis: int, spec: Attention, values: Values) -> Any:
    """Softmax over the heads, or over the batch."""
    s = final(spec, values)
    if len(s.shape) < -axis:
        raise ValueError("there is no such axis")
    xp = namespace_of(s)
    moved = softmax.softmax(xp.moveaxis(s, axis, -1), fully_masked="zeros", base=spec.base)
    return xp.moveaxis(moved, -1, axis)


def over_both(spec: Attention, values: Values) -> Any:
    """One sum for queries and keys together."""
    s = final(spec, values)
    xp = namespace_of(s)
    m = xp.max(softmax.row_max(s), axis=-2, keepdims=True)
    e = softmax.powers(s - m, spec.base)
    return e / xp.sum(xp.sum(e, axis=-1, keepdims=True), axis=-2, keepdims=True)


def by_number(spec: Attention, values: Values) -> Any:
    """e^{s − m} over the number of keys."""
    e = parts(spec, values).e
    return e / shape(values)[-1]


def by_maximum(spec: Attention, values: Values) -> Any:
    """e^s over e^m·m: divided by the largest score."""
    p = parts(spec, values)
    return p.e / p.m


def by_length(spec: Attention, values: Values) -> Any:
    """e^{s − m} over the root of the sum of squares."""
    e = parts(spec, values).e
    xp = namespace_of(e)
    return e / xp.sqrt(xp.sum(e * e, axis=-1, keepdims=True))


def sum_before_mask(spec: Attention, values: Values) -> Any:
    """Exponentials of what is allowed, over the sum of all."""
    s = step(spec, values, "masked").of[0]
    all_, open_ = values[s], np.asarray(namespace_of(values[s]).isfinite(final(spec, values)))
    p = parts(spec, values, all_)
    return p.e * open_.astype(float) / p.total


def masked_in_sum_alone(spec: Attention, values: Values) -> Any:
    """Exponentials of all keys, over the sum of those that are allowed."""
    s = final(spec, values)
    all_ = values[step(spec, values, "masked").of[0]]
    m = softmax.row_max(s)
    total = namespace_of(s).sum(softmax.powers(s - m, spec.base), axis=-1, keepdims=True)
    return softmax.powers(all_ - m, spec.base) / total


def twice(spec: Attention, values: Values) -> Any:
    """The softmax of the weights."""
    a, s = own(spec, values, "weights"), final(spec, values)
    xp = namespace_of(s)
    return softmax.softmax(xp.where(xp.isfinite(s), a, s), fully_masked="zeros")


def twice_over_all(spec: Attention, values: Values) -> Any:
    """The softmax of the weights, zeros of forbidden keys included."""
    return softmax.softmax(own(spec, values, "weights"))


def more_in_sum(extra: float, spec: Attention, values: Values) -> Any:
    """A number added to the sum."""
    p = parts(spec, values)
    return p.e / (p.total + number(p.e, extra))


def squared(spec: Attention, values: Values) -> Any:
    """Divided by the sum twice."""
    p = parts(spec, values)
    return p.e / p.total / p.total


def maximum_over_queries(spec: Attention, values: Values) -> Any:
    """The softmax of scores less the largest one of their column."""
    s = final(spec, values)
    xp = namespace_of(s)
    m = xp.max(s, axis=-2, keepdims=True)
    return weights(spec, values, s - xp.where(xp.isfinite(m), m, 0))


def running(spec: Attention, values: Values) -> Any:
    """Each exponential over the sum up to its own key."""
    e = parts(spec, values).e
    return e / namespace_of(e).cumulative_sum(e, axis=-1)


def logarithms(spec: Attention, values: Values) -> Any:
    """The logarithm of the softmax."""
    s = final(spec, values)
    return s - softmax.log_sum_exp(s, base=spec.base)


def without_first(spec: Attention, values: Values) -> Any:
    """The first key left out of the sum alone."""
    p = parts(spec, values)
    return p.e / (p.total - p.e[..., :1])


def without_last(spec: Attention, values: Values) -> Any:
    """The last key left out of the sum alone."""
    p = parts(spec, values)
    return p.e / (p.total - p.e[..., -1:])


MISTAKES: tuple[Mistake, ...] = (
    in_steps("normalize", "the softmax runs over the queries", softmaxed, rows=False, weights=over_queries),
    in_steps(
        "normalize",
        "the softmax runs over the heads",
        both(softmaxed, several),
        rows=False,
        weights=partial(over_axis, -3),
    ),
    in_steps("normalize", "the softmax runs over the batch", softmaxed, rows=False, weights=partial(over_axis, -4)),
    in_steps("normalize", "one sum is taken over queries and keys together", softmaxed, rows=False, weights=over_both),
    in_steps("normalize", "exponentials are not divided by their sum", softmaxed, rows=False, weights=not_normalised),
    in_steps(
        "normalize",
        "exponentials e^s, no maximum subtracted, are not divided by their sum",
        softmaxed,
        rows=False,
        weights=not_normalised_at_all,
    ),
    in_steps(
        "normalize",
        "exponentials are divided by the number of keys, not by their sum",
        plain_softmax,
        rows=False,
        weights=by_number,
    ),
    in_steps(
        "normalize",
        "exponentials are divided by the largest score, not by their sum",
        plain_softmax,
        rows=False,
        weights=by_maximum,
    ),
    in_steps(
        "normalize",
        "exponentials are divided by the root of the sum of their squares",
        plain_softmax,
        rows=False,
        weights=by_length,
    ),
    in_steps(
        "normalize",
        "the sum is taken before the mask: weights of allowed keys do not sum to 1",
        both(plain_softmax, masked),
        rows=False,
        weights=sum_before_mask,
    ),
    in_steps(
        "normalize",
        "the mask is in the sum alone: forbidden keys keep their weights",
        both(plain_softmax, masked),
        rows=False,
        weights=masked_in_sum_alone,
    ),
    in_steps("normalize", "the softmax is applied twice", softmaxed, weights=twice),
    in_steps(
        "normalize",
        "the softmax is applied twice, over forbidden keys too",
        both(softmaxed, masked),
        weights=twice_over_all,
    ),
    in_steps(
        "normalize",
        "1 is added to the sum of e^(s − max s), after the maximum is subtracted",
        plain_softmax,
        rows=False,
        weights=partial(more_in_sum, 1.0),
    ),
    in_steps(
        "max",
        "each key's largest score over the queries is subtracted, not each query's over the keys",
        softmaxed,
        weights=maximum_over_queries,
    ),
    in_steps("normalize", "the sum is divided by twice", plain_softmax, rows=False, weights=squared),
    in_steps(
        "normalize",
        "exponentials are divided by the running sum up to their own key",
        plain_softmax,
        rows=False,
        weights=running,
    ),
    in_steps(
        "normalize",
        "logarithms of the weights are taken for the weights",
        both(plain_softmax, lambda s: not s.masks_anything),
        rows=False,
        weights=logarithms,
    ),
    in_steps("normalize", "the first key is left out of the sum", plain_softmax, rows=False, weights=without_first),
    in_steps("normalize", "the last key is left out of the sum", plain_softmax, rows=False, weights=without_last),
)

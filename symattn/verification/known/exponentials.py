"""Mistakes in the exponential, and in what stands in its place."""

from __future__ import annotations

from functools import partial
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention import softmax
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    both,
    final,
    in_fields,
    in_steps,
    number,
    own,
    parts,
    plain_softmax,
    shape,
    sink_of,
    softmaxed,
    with_fields,
)
from symattn.verification.reference import Values


def other_base(spec: Attention, values: Values) -> Any:
    """2^s in place of e^s, or the other way round; the sink with it."""
    s = final(spec, values)
    xp = namespace_of(s)
    p = parts(spec, values, s)
    log2 = xp.log(number(s, 2))
    factor = 1 / log2 if spec.base == 2 else log2
    power = softmax.powers((s - p.m) * factor, spec.base)
    sink = 0 if spec.sink is None else softmax.powers((sink_of(spec, values) - p.m) * factor, spec.base)
    return power / (xp.sum(power, axis=-1, keepdims=True) + sink)


def less_one(spec: Attention, values: Values) -> Any:
    """e^s − 1 in place of e^s."""
    s = final(spec, values)
    xp = namespace_of(s)
    e = xp.where(xp.isfinite(s), softmax.powers(xp.where(xp.isfinite(s), s, 0), spec.base) - 1, 0)
    return e / xp.sum(e, axis=-1, keepdims=True)


def taylor(order: int, spec: Attention, values: Values) -> Any:
    """1 + s, or 1 + s + s²/2, in place of e^s."""
    s = final(spec, values)
    xp = namespace_of(s)
    finite = xp.where(xp.isfinite(s), s, 0)
    series = 1 + finite if order == 1 else 1 + finite + finite * finite / 2
    e = xp.where(xp.isfinite(s), series, 0)
    return e / xp.sum(e, axis=-1, keepdims=True)


def sum_from_other_maximum(constant: float, spec: Attention, values: Values) -> Any:
    """e^{s − m} over a sum of e^{s − c}."""
    p, s = parts(spec, values), final(spec, values)
    return p.e / namespace_of(s).sum(softmax.powers(s - number(s, constant), spec.base), axis=-1, keepdims=True)


def sigmoid(spec: Attention, values: Values) -> Any:
    """Each weight a sigmoid of its score, the row not normalised."""
    s = final(spec, values)
    xp = namespace_of(s)
    return 1 / (1 + softmax.powers(-xp.where(xp.isfinite(s), s, 0))) * xp.where(xp.isfinite(s), number(s, 1), 0)


def sigmoid_moved(times: int, spec: Attention, values: Values) -> Any:
    """Sigmoids of scores with so many times log n more."""
    s = final(spec, values)
    xp = namespace_of(s)
    return own(spec, values, "weights", s + times * xp.log(number(s, int(s.shape[-1]))))


def relu_not_divided(spec: Attention, values: Values) -> Any:
    """max(S, 0)."""
    return own(spec, values, "weights") * shape(values)[-1]


def _sigmoids(spec: Attention) -> bool:
    return spec.normaliser == "sigmoid" and not spec.bias


MISTAKES: tuple[Mistake, ...] = (
    in_steps(
        "max",
        "exponentials are of s − max s, and their sum of s alone",
        plain_softmax,
        rows=False,
        weights=partial(sum_from_other_maximum, 0.0),
    ),
    in_steps(
        "exp",
        "powers of 2 are taken in place of those of e",
        both(softmaxed, lambda s: s.base is None),
        weights=other_base,
    ),
    in_steps("exp", "powers of e are taken in place of those of 2", lambda s: s.base == 2, weights=other_base),
    in_steps("exp", "exponentials are e^s − 1", plain_softmax, rows=False, weights=less_one),
    in_steps("exp", "1 + s is taken in place of e^s", plain_softmax, rows=False, weights=partial(taylor, 1)),
    in_steps("exp", "1 + s + s²/2 is taken in place of e^s", plain_softmax, rows=False, weights=partial(taylor, 2)),
    in_steps(
        "normalize",
        "weights are sigmoids of the scores, rows are not normalised",
        softmaxed,
        rows=False,
        weights=sigmoid,
    ),
    in_steps(
        "normalize", "log n is not subtracted from the scores of sigmoids", _sigmoids, weights=partial(sigmoid_moved, 1)
    ),
    in_steps(
        "normalize",
        "log n is added to the scores of sigmoids, not subtracted",
        _sigmoids,
        weights=partial(sigmoid_moved, 2),
    ),
    in_steps(
        "normalize", "weights of ReLU are not divided by n", lambda s: s.normaliser == "relu", weights=relu_not_divided
    ),
    in_fields(
        "normalize",
        "a softmax is taken in place of what was asked for",
        lambda s: s.normaliser != "softmax",
        with_fields(normaliser="softmax"),
    ),
)

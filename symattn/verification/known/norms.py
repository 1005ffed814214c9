"""Mistakes in the norms of queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Applies,
    Mistake,
    before,
    both,
    in_all,
    in_fields,
    in_inputs,
    in_steps,
    number,
    own,
    step,
    with_fields,
)
from symattn.verification.reference import Change, Values, Variant
from symattn.verification.target import Inputs


@dataclass(frozen=True)
class Norm:
    """A norm with every choice said; None is the right one.

    ``divisor`` makes of the mean square and ε what is divided by, ``axes`` are those of the mean.
    """

    centred: bool | None = None
    divisor: Callable[[Any, Any, Any], Any] = lambda xp, mean, eps: xp.sqrt(mean + eps)
    axes: tuple[int, ...] = (-1,)
    eps: float | None = None
    less: int = 0
    gain: Callable[[Any], Any] | None = lambda g: g
    total: bool = False
    biased: bool = True
    first: bool = False


def normed(role: str, how: Norm, spec: Attention, values: Values, x: Any = None) -> Any:
    """Queries or keys, normalised so."""
    found = step(spec, values, f"{role}_normed")
    x = values[found.of[0]] if x is None else x
    xp, n = namespace_of(x), int(np.prod([int(x.shape[a]) for a in how.axes]))
    if how.less >= n:
        raise KeyError("too few numbers")
    eps = number(x, spec.eps if how.eps is None else how.eps)
    centred = spec.qk_norm == "layer" if how.centred is None else how.centred
    y = x - _mean(xp, x, how.axes) if centred else x
    square = _mean(xp, y * y, how.axes) * (n if how.total or spec.qk_norm == "l2" else 1)
    square = square * number(x, n) / number(x, n - how.less) if how.less else square
    y = y / how.divisor(xp, square, eps)
    return _scaled(role, how, found.of, values, y)


def _scaled(role: str, how: Norm, of: tuple[str, ...], values: Values, y: Any) -> Any:
    gain, bias = f"g_{role}", f"beta_{role}"
    if how.first and bias in of:
        y = y + values[bias]
    if gain in of and how.gain is not None:
        y = y * how.gain(values[gain])
    return y + values[bias] if bias in of and how.biased and not how.first else y


def _mean(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    for axis in axes:
        if len(x.shape) < -axis:
            raise KeyError("there is no such axis")
        x = xp.mean(x, axis=axis, keepdims=True)
    return x


def not_normed(role: str, spec: Attention, values: Values) -> Any:
    """As they are."""
    return before(spec, values, f"{role}_normed") * 1


def after_rotation(role: str, spec: Attention, values: Values) -> Any:
    """Turned first, then normalised."""
    x = values[step(spec, values, f"{role}_normed").of[0]]
    return normed(role, Norm(), spec, values, own(spec, values, f"{role}_turned", x))


def _gains_exchanged(spec: Attention, inputs: Inputs) -> Inputs:
    """The gain of the other one."""
    if not {"g_q", "g_k"} <= inputs.keys():
        raise KeyError("there are no gains")
    names = {"g_q": "g_k", "g_k": "g_q", "beta_q": "beta_k", "beta_k": "beta_q"}
    return {n: inputs.get(names.get(n, n), a) for n, a in inputs.items()}


def _has(*kinds: str) -> Applies:
    return lambda s: s.qk_norm in (kinds or ("rms", "layer", "l2"))


def _eps(spec: Attention) -> bool:
    return bool(spec.eps)


def _norms(words: str, how: Norm, applies: Applies = lambda s: s.qk_norm is not None, roles: str = "qk") -> Mistake:
    steps: dict[str, Change] = {f"{role}_normed": partial(normed, role, how) for role in roles}
    return in_all("norm", words, applies, steps)


def _left(words: str, roles: str) -> Mistake:
    steps: dict[str, Change] = {f"{role}_normed": partial(not_normed, role) for role in roles}
    return in_all("norm", words, lambda s: s.qk_norm is not None, steps)


def _turns_after(spec: Attention) -> bool:
    return spec.qk_norm is not None and type(spec.position).__name__ == "Rotary"


_MEAN = ("rms", "layer")

MISTAKES: tuple[Mistake, ...] = (
    _left("queries and keys are not normalised", "qk"),
    _left("keys are not normalised", "k"),
    _left("queries are not normalised", "q"),
    in_fields("norm", "the ε of the norm is left out", _eps, with_fields(eps=0)),
    _norms(
        "ε is outside the root: it is added to the root of the mean square",
        Norm(divisor=lambda xp, m, e: xp.sqrt(m) + e),
        _eps,
    ),
    _norms(
        "ε is squared, or added to the root's own number: √(mean + ε²)",
        Norm(divisor=lambda xp, m, e: xp.sqrt(m + e * e)),
        _eps,
    ),
    _norms(
        "the larger one of mean square and ε is taken, not their sum",
        Norm(divisor=lambda xp, m, e: xp.sqrt(xp.maximum(m, e))),
        _eps,
    ),
    _norms("the root of the variance is left out", Norm(divisor=lambda xp, m, e: m + e), _has()),
    _norms("it is divided by the square of the variance", Norm(divisor=lambda xp, m, e: (m + e) * (m + e)), _has()),
    _norms("it is multiplied by the root, not divided", Norm(divisor=lambda xp, m, e: 1 / xp.sqrt(m + e)), _has()),
    _norms("the variance has the divisor d − 1 (ddof = 1), not d", Norm(less=1), _has(*_MEAN)),
    _norms(
        "the variance has the divisor d − 1 (ddof = 1), and ε is outside the root",
        Norm(less=1, divisor=lambda xp, m, e: xp.sqrt(m) + e),
        both(_has(*_MEAN), _eps),
    ),
    _norms("the sum of squares is taken, not their mean", Norm(total=True), _has(*_MEAN)),
    _norms("the mean is not subtracted", Norm(centred=False), _has("layer")),
    _norms("a mean is subtracted that should not be", Norm(centred=True), _has("rms", "l2")),
    _norms("the norm runs over the tokens, not over the columns of one", Norm(axes=(-2,)), _has()),
    _norms("the norm runs over the heads, not over the columns of one", Norm(axes=(-3,)), _has()),
    _norms("the norm runs over all heads together, not head by head", Norm(axes=(-1, -3)), _has()),
    _norms("the norm runs over tokens and columns together", Norm(axes=(-1, -2)), _has()),
    _norms("the gain is left out", Norm(gain=None), _has(*_MEAN)),
    _norms("the gain is 1 + g, not g", Norm(gain=lambda g: 1 + g), _has(*_MEAN)),
    _norms("the gain is g − 1: it is used without the 1", Norm(gain=lambda g: g - 1), _has(*_MEAN)),
    _norms("the gain is squared: it is applied twice", Norm(gain=lambda g: g * g), _has(*_MEAN)),
    _norms("the bias of the norm is left out", Norm(biased=False), _has("layer")),
    _norms("the bias of the norm is added before the gain", Norm(first=True), _has("layer")),
    *(
        _norms(f"ε is {eps:g}", Norm(eps=eps), both(_has(*_MEAN), lambda s, e=eps: float(s.eps) != e))  # type: ignore[misc]
        for eps in (1e-12, 1e-8, 1e-6, 1e-5, 1e-3, 1e-2, 1.0)
    ),
    in_steps(
        "norm",
        "queries and keys are normalised after the rotation, not before",
        _turns_after,
        q_normed=partial(not_normed, "q"),
        k_normed=partial(not_normed, "k"),
        q_turned=partial(after_rotation, "q"),
        k_turned=partial(after_rotation, "k"),
    ),
    Mistake("norm", "the gains of queries and keys are exchanged", Variant(inputs=_gains_exchanged), _has(*_MEAN)),
    in_inputs(
        "norm",
        "gains of the norm are read from the last column to the first",
        _has(*_MEAN),
        g_q=lambda spec, a: a[::-1],
        g_k=lambda spec, a: a[::-1],
    ),
    _norms("the gain of the queries is left out", Norm(gain=None), _has("rms", "layer"), "q"),
    _norms("the gain of the keys is left out", Norm(gain=None), _has("rms", "layer"), "k"),
    _norms("the bias of the norm is left out for queries", Norm(biased=False), _has("layer"), "q"),
)

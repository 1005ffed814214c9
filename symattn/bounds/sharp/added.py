"""Terms added to scores: biases, and additive masks without their −∞."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.enclosing.pattern import front
from symattn.attention.masks import for_heads
from symattn.attention.spec import Attention
from symattn.bounds.sharp.limits import Floats
from symattn.document.errors import Refused

# In the order in which the definition adds them.
_ADDED = ("bias", "mask")
# a difference of scores whose exponential is 0 in float64 and in every narrower format
_UNDERFLOWS = 760.0
_SLOPE = 1 / 16  # more than the part of its size by which roundings may move a score


class Apart(NamedTuple):
    """An attention without the terms added to its scores, and these arrays as they were given, without −∞."""

    spec: Attention
    given: dict[str, Any]
    added: tuple[Floats, ...]


def apart(spec: Attention, inputs: Mapping[str, object]) -> Apart:
    """Split off the added terms; −∞ of an additive mask become a boolean mask.

    Raises ``Refused`` for a bias with −∞, which is not turned into a mask.
    """
    other_inputs, added = dict(inputs), list[Floats]()
    for name in _ADDED:
        if name not in other_inputs or (name == "mask" and spec.mask != "additive"):
            continue
        array = other_inputs.pop(name)
        xp = namespace_of(array)
        array = xp.astype(array, xp.float64, copy=False)
        finite = array != -xp.inf
        if name == "mask":
            spec = replace(spec, mask=None if xp.all(finite) else "boolean")
            other_inputs |= {} if xp.all(finite) else {"mask": finite}
        elif not xp.all(finite):
            raise Refused("a bias that holds −∞ has no limit; hint: give an additive mask")
        # An array of zeros adds no rounding.
        if xp.any((part := xp.where(finite, array, 0.0)) != 0):
            added.append(part)
    return Apart(replace(spec, bias=False), other_inputs, tuple(added))


def spread(of: Apart) -> tuple[Floats, ...]:
    """Return the added terms for every head: (…, n_q, n_k)."""
    n_q = of.given["q"].shape[-2]
    n_k = of.given["k"].shape[-2]
    axes = (*front(of.spec, of.given), n_q, n_k)
    scores = np.broadcast_to(0.0, axes)
    own = [for_heads(a, scores) if of.spec.heads > 1 else a for a in of.added]
    return tuple(namespace_of(a).broadcast_to(a, axes) for a in own)


def without_weight(t: Floats, sizes: Floats) -> Any:
    """Return which keys have the weight 0, whatever roundings do to the scores t (r, n) of the given sizes.

    An example is a key with −10⁴ or finfo.min added to its score, among others without.
    """
    xp = namespace_of(t)
    with np.errstate(invalid="ignore"):
        bounded = t - _SLOPE * sizes
        finite = xp.where(xp.isfinite(t), bounded, -xp.inf)
        least = xp.max(finite, axis=1, keepdims=True)
        return t + _SLOPE * sizes < least - _UNDERFLOWS

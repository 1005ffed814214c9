"""Mistakes in masks that are added."""

from __future__ import annotations

from typing import Any

from symattn.attention import masks
from symattn.attention.spec import Attention
from symattn.verification.known.masks import added, allowed
from symattn.verification.known.mistake import Mistake, before, both, in_steps, own
from symattn.verification.known.scales import is_scaled
from symattn.verification.reference import Values


def added_twice(spec: Attention, values: Values) -> Any:
    """The finite part of an additive mask added again."""
    s, twice = before(spec, values, "masked"), added(spec, values)
    return masks.forbid(twice + (twice - s), allowed(spec, values))


def opposite(spec: Attention, values: Values) -> Any:
    """The finite part of an additive mask with the other sign."""
    s, once = before(spec, values, "masked"), added(spec, values)
    return masks.forbid(s - (once - s), allowed(spec, values))


def before_scale(spec: Attention, values: Values) -> Any:
    """The finite part of an additive mask scaled as scores are."""
    s, once = before(spec, values, "masked"), added(spec, values)
    return masks.forbid(s + own(spec, values, "scaled", once - s), allowed(spec, values))


def only_its_infinities(spec: Attention, values: Values) -> Any:
    """An additive mask taken as a boolean one."""
    return masks.forbid(before(spec, values, "masked"), allowed(spec, values))


def _additive(spec: Attention) -> bool:
    return spec.mask == "additive"


MISTAKES: tuple[Mistake, ...] = (
    in_steps(
        "mask", "the finite numbers of an additive mask are added with the other sign", _additive, masked=opposite
    ),
    in_steps(
        "mask",
        "an additive mask comes before the scale, and is scaled too",
        both(_additive, is_scaled),
        masked=before_scale,
    ),
    in_steps("mask", "an additive mask is added twice", _additive, masked=added_twice),
    in_steps(
        "mask",
        "of an additive mask only what it forbids is taken, its finite numbers are left out",
        _additive,
        masked=only_its_infinities,
    ),
)

"""Mistakes in the scale of scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil, floor, sqrt
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    before,
    in_inputs,
    in_steps,
    number,
    own,
    root,
    size,
)
from symattn.verification.reference import Values


def times(factor: Any, spec: Attention, values: Values) -> Any:
    """The right scale, times a number."""
    return own(spec, values, "scaled") * number(values["scores"], factor)


def constant(factor: Any, spec: Attention, values: Values) -> Any:
    """c S, whatever the sizes."""
    return before(spec, values, "scaled") * number(values["scores"], factor)


def by_root(name: str, axis: int, more: int, spec: Attention, values: Values) -> Any:
    """S over the root of another size, or of one more."""
    s = before(spec, values, "scaled")
    return s / root(s, size(values, name, axis) + more)


def twice(spec: Attention, values: Values) -> Any:
    """The scale applied again to what it has given."""
    return own(spec, values, "scaled", own(spec, values, "scaled"))


def by_logarithm(spec: Attention, values: Values) -> Any:
    """The right scale, times log n_k."""
    s = own(spec, values, "scaled")
    return s * namespace_of(s).log(number(s, int(s.shape[-1])))


def after_softmax(spec: Attention, values: Values) -> Any:
    """Weights that are scaled in place of the scores."""
    a = own(spec, values, "weights")
    return a * own(spec, values, "scaled", number(a, 1))


def unscaled(spec: Attention, values: Values) -> Any:
    """S."""
    return before(spec, values, "scaled") * 1


def is_scaled(spec: Attention) -> bool:
    """Where the scale is not 1."""
    return spec.scale != 1


def _configured(spec: Attention) -> bool:
    return spec.scale is not None


def with_default(spec: Attention, values: Values) -> Any:
    """The right scale, and 1/√d_k besides."""
    s = own(spec, values, "scaled")
    return s / root(s, size(values, "q"))


def by_whole_root(whole: Callable[[float], int], spec: Attention, values: Values) -> Any:
    """S over a whole number near √d_k."""
    return before(spec, values, "scaled") / whole(sqrt(size(values, "q")))


def no_wider_than(width: int, spec: Attention, values: Values) -> Any:
    """S/√min(d_k, width)."""
    s = values["scores"]
    return s / root(s, min(size(values, "q"), width))


def _given(spec: Attention) -> bool:
    return spec.scale == "given"


MISTAKES: tuple[Mistake, ...] = (
    in_steps("scale", "the scale is applied twice", lambda s: s.scale is not None and is_scaled(s), scaled=twice),
    in_steps("scale", "scores are not scaled", is_scaled, scaled=unscaled),
    in_steps("scale", "scores are scaled by log n_k besides", scaled=by_logarithm),
    in_steps(
        "scale",
        "weights are scaled, not scores: the scale comes after the softmax",
        is_scaled,
        rows=False,
        scaled=unscaled,
        weights=after_softmax,
    ),
    in_steps(
        "scale", "the configured scale is ignored, and 1/√d_k used", _configured, scaled=partial(by_root, "q", -1, 0)
    ),
    in_steps(
        "scale",
        "the configured scale and 1/√d_k are both applied, one besides the other",
        _configured,
        scaled=with_default,
    ),
    *(
        in_steps(
            "scale",
            f"scores are scaled by 1/√{n} where d_k is above {n}, not by 1/√d_k",
            lambda s: s.scale is None,
            scaled=partial(no_wider_than, n),
        )
        for n in (32, 64, 128)
    ),
    in_steps(
        "scale",
        "scores are scaled by 1/⌊√d_k⌋: the root is rounded down to a whole number",
        lambda s: s.scale is None,
        scaled=partial(by_whole_root, floor),
    ),
    in_steps(
        "scale",
        "scores are scaled by the root of d_k rounded to a whole number",
        lambda s: s.scale is None,
        scaled=partial(by_whole_root, round),
    ),
    in_steps(
        "scale",
        "scores are scaled by the root of d_k rounded up to a whole number",
        lambda s: s.scale is None,
        scaled=partial(by_whole_root, ceil),
    ),
    in_inputs(
        "scale",
        "the scale is that of another head: heads are in the opposite order",
        _given,
        scale=lambda spec, a: a[::-1],
    ),
    in_inputs("scale", "the scale is that of the next head", _given, scale=lambda spec, a: np.roll(a, -1)),
    in_inputs("scale", "the first head's scale is taken for all", _given, scale=lambda spec, a: np.full_like(a, a[0])),
    in_inputs("scale", "the given scale is divided by: its reciprocal is applied", _given, scale=lambda spec, a: 1 / a),
)

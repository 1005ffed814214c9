"""Mistakes in biases that are given."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    before,
    both,
    in_fields,
    in_inputs,
    in_steps,
    number,
    own,
    with_fields,
)
from symattn.verification.reference import Values


def bias_before_scale(spec: Attention, values: Values) -> Any:
    """The bias scaled as the scores are."""
    s = before(spec, values, "biased")
    return s + own(spec, values, "scaled", own(spec, values, "biased") - s)


def bias_times(factor: Any, spec: Attention, values: Values) -> Any:
    """The bias times a number."""
    s = before(spec, values, "biased")
    return s + (own(spec, values, "biased") - s) * number(s, factor)


def bias_multiplied(spec: Attention, values: Values) -> Any:
    """Scores times their bias."""
    s = before(spec, values, "biased")
    return s * (own(spec, values, "biased") - s)


def _axes(spec: Attention, a: np.ndarray) -> np.ndarray:
    return a.swapaxes(-1, -2)


def _heads_back(spec: Attention, a: np.ndarray) -> np.ndarray:
    return a[::-1] if a.ndim > 2 and spec.heads > 1 else a


def _first_head(spec: Attention, a: np.ndarray) -> np.ndarray:
    return np.broadcast_to(a[:1], a.shape) if a.ndim > 2 else a


def _bias(spec: Attention) -> bool:
    return spec.bias


def after_softmax(spec: Attention, values: Values) -> Any:
    """Weights with the bias added."""
    s = values["biased"]
    zero = s * 0
    return own(spec, values, "weights") + own(spec, values, "biased", zero)


def _unbiased(spec: Attention, values: Values) -> Any:
    """As they are."""
    return before(spec, values, "biased") * 1


MISTAKES: tuple[Mistake, ...] = (
    in_fields("bias", "the bias is left out", _bias, with_fields(bias=False)),
    in_inputs("bias", "the sign of the bias is flipped", _bias, bias=lambda spec, a: -a),
    in_inputs("bias", "the bias is transposed", _bias, bias=_axes),
    in_inputs("bias", "the bias is that of another head: heads are in the opposite order", _bias, bias=_heads_back),
    in_inputs("bias", "the first head's bias is taken for all", _bias, bias=_first_head),
    in_inputs(
        "bias",
        "the first row of the bias is taken for all queries",
        _bias,
        bias=lambda spec, a: np.broadcast_to(a[..., :1, :], a.shape),
    ),
    in_inputs("bias", "the bias is read from the last key to the first", _bias, bias=lambda spec, a: a[..., ::-1]),
    in_steps(
        "bias",
        "the bias comes before the scale, and is scaled too",
        both(_bias, lambda s: s.scale != 1),
        biased=bias_before_scale,
    ),
    in_steps("bias", "the bias is added twice", _bias, biased=partial(bias_times, 2)),
    in_steps("bias", "scores are multiplied by the bias", _bias, biased=bias_multiplied),
    in_steps(
        "bias",
        "the bias is added to the weights, after the softmax",
        _bias,
        rows=False,
        biased=_unbiased,
        weights=after_softmax,
    ),
)

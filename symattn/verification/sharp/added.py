"""Heads for the bound of gradients: with a scale of their own, and with what is added to their scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np

from symattn.attention.enclosing.pattern import Head, front
from symattn.attention.masks import for_heads
from symattn.attention.spec import Attention
from symattn.verification.sharp.blocks import applies, every_head
from symattn.verification.sharp.limits import Floats, Stores
from symattn.verification.sharp.ways import constants, scale_of, scales

_ADDED = ("bias", "mask")


@dataclass(frozen=True)
class Own:
    """One head: its specification, whose scale is a number, and the arrays that are added to its scores, (n_q, n_k)."""

    spec: Attention
    head: Head
    added: tuple[Floats, ...] = ()

    @property
    def scale(self) -> float:
        """The factor of its scores."""
        return scale_of(self.spec, self.head.q.shape[-1]) or 0.0


def own_heads(spec: Attention, inputs: Mapping[str, Any]) -> tuple[list[Own], tuple[int, ...]]:
    """The heads, and the shape of the output. Raises what ``every_head`` does."""
    plain, given, added = _apart(spec, inputs)
    of, every, shape = every_head(plain, given)
    scores = np.broadcast_to(0.0, (*front(plain, given), inputs["q"].shape[-2], inputs["k"].shape[-2]))
    spread = [np.asarray(for_heads(a, scores)) if spec.heads > 1 else a for a in added]
    whole = [np.broadcast_to(a, scores.shape) for a in spread]
    own = []
    for head in every:
        one = of if spec.scale != "given" else replace(of, scale=_of_head(inputs["scale"], head.index))
        own.append(Own(one, head, tuple(a[head.index] for a in whole)))
    return own, shape


def bounded(spec: Attention, inputs: Mapping[str, Any]) -> bool:
    """Whether the bound of gradients speaks of it: dot products times a scale, masks, biases, caps and sinks."""
    plain, given, added = _apart(spec, inputs)
    return spec.base is None and applies(plain, given) and all(np.isfinite(a).all() for a in added)


def scalings(spec: Attention, inputs: Mapping[str, Any], how: Stores) -> Iterator[tuple[Attention, Mapping[str, Any]]]:
    """With the scale as it is, then with each constant of the format that it may be."""
    width = inputs["q"].shape[-1]
    if spec.scale != "given":
        yield from ((replace(spec, scale=scale), inputs) for scale in scales(spec, width, how))
        return
    yield spec, inputs
    given = np.asarray(inputs["scale"], dtype=np.float64)
    for other in constants(given, how.format, log(2)):
        if (other != given).any():
            yield spec, {**inputs, "scale": other}


def largest_scale(spec: Attention, inputs: Mapping[str, Any]) -> float:
    """The largest of the factors of scores, in size."""
    if spec.scale == "given":
        return float(np.abs(inputs["scale"]).max())
    return abs(scale_of(spec, inputs["q"].shape[-1]) or 0.0)


def _of_head(scale: Any, index: tuple[int, ...]) -> float:
    own = np.asarray(scale).reshape(-1)
    return float(own[index[-1] if len(own) > 1 else 0])


def _apart(spec: Attention, inputs: Mapping[str, Any]) -> tuple[Attention, dict[str, Any], list[Floats]]:
    """Without what is added to scores, whose −∞ become a mask, and with a number for scales that are given."""
    given, added = dict(inputs), []
    if spec.scale == "given":
        spec = replace(spec, scale=1)
        del given["scale"]
    for name in _ADDED:
        if name in given and (name == "bias" or spec.mask == "additive"):
            array = np.asarray(given.pop(name), dtype=np.float64)
            finite = array != -np.inf
            if name == "mask":
                spec = replace(spec, mask=None if finite.all() else "boolean")
                given |= {} if finite.all() else {"mask": finite}
            if (part := np.where(finite, array, 0.0)).any():
                added.append(part)
    return replace(spec, bias=False), given, added

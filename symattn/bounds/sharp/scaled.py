"""Heads for the bound of gradients: the factor of their scores is a number, given ones too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np

from symattn.attention.enclosing.pattern import Head
from symattn.attention.spec import Attention
from symattn.bounds.sharp.blocks import applies, every_head
from symattn.bounds.sharp.limits import Stores
from symattn.bounds.sharp.ways import constants, scale_of, scales


@dataclass(frozen=True)
class Own:
    """One head, and its specification, whose scale is a number."""

    spec: Attention
    head: Head

    @property
    def scale(self) -> float:
        """The factor of its scores."""
        return scale_of(self.spec, self.head.q.shape[-1]) or 0.0


def own_heads(spec: Attention, inputs: Mapping[str, Any]) -> tuple[list[Own], tuple[int, ...]]:
    """The heads, and the shape of the output. Raises what ``every_head`` does."""
    plain, given = _without_scale(spec, inputs)
    of, every, shape = every_head(plain, given)
    if spec.scale != "given":
        return [Own(of, head) for head in every], shape
    return [Own(replace(of, scale=_of_head(inputs["scale"], head.index)), head) for head in every], shape


def bounded(spec: Attention, inputs: Mapping[str, Any]) -> bool:
    """Whether the bound of gradients speaks of it: dot products times a scale, masks, biases, caps and sinks."""
    return spec.base is None and applies(*_without_scale(spec, inputs))


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


def _without_scale(spec: Attention, inputs: Mapping[str, Any]) -> tuple[Attention, dict[str, Any]]:
    if spec.scale != "given":
        return spec, dict(inputs)
    return replace(spec, scale=1), {name: a for name, a in inputs.items() if name != "scale"}


def _of_head(scale: Any, index: tuple[int, ...]) -> float:
    own = np.asarray(scale).reshape(-1)
    return float(own[index[-1] if len(own) > 1 else 0])

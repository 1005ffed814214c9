"""Which operands of a step its array depends on by their entries, not by their shapes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from symattn.arrays.tape import Taped, tape
from symattn.attention.flow import Step, find_value_step
from symattn.attention.inputs import holds, lengths
from symattn.attention.positions.checks import known_sizes
from symattn.attention.spec import Attention
from symattn.attention.variants import SIZES
from symattn.document.errors import InputError

#: The inputs that a backward pass differentiates by.
_DIFFERENTIATED = ("q", "k", "v")


def check_single_ways_back(spec: Attention, forward: Sequence[Step]) -> None:
    """Raise ``InputError`` if a step of the attention passes queries, keys or values on by two of its arrays.

    The gradient of a step's array is passed back to its first operand. The products of queries and keys and of weights
    and values alone have two; a third way would be missing in dQ, dK and dV.
    """
    products = {"scores": 2, find_value_step(forward).name: 2}
    before = {step.name: step for step in forward}
    for step in forward:
        for place, name in enumerate(step.of):
            if place >= products.get(step.name, 1) and _is_passed_on(spec, before, step, place):
                raise InputError(
                    f"Gradient: the step {step.name!r} reads {name!r} besides {step.of[0]!r}; "
                    "no way back from it is stated"
                )


def _is_passed_on(spec: Attention, before: Mapping[str, Step], step: Step, place: int) -> bool:
    """Return whether entries of queries, keys or values change a step's array by the operand at a place."""
    name = step.of[place]
    if name not in before:
        return name in _DIFFERENTIATED and _reads_entries(spec, step, place)
    source = before[name]
    return _reads_entries(spec, step, place) and any(
        _is_passed_on(spec, before, source, of) for of in range(len(source.of))
    )


def _reads_entries(spec: Attention, step: Step, place: int) -> bool:
    """Return whether a step's array changes with the entries of the operand at a place: a scale reads its shape."""
    kind = tape(np)
    examples = [_make_example(spec, name) for name in step.of]
    # Booleans and whole numbers have no derivative, and stay plain arrays.
    result: Any = step.run(
        *(kind(x, moves=at == place) if x.dtype.kind == "f" else x for at, x in enumerate(examples))
    )
    return isinstance(result, Taped) and result.moves


def _make_example(spec: Attention, name: str) -> np.ndarray:
    """Return an array of ones with the axes and the type of an array of the attention."""
    types = {"booleans": np.bool_, "whole numbers": np.int64}
    # Tables of positions have as many rows as these ask for.
    sizes = {**SIZES, **(known_sizes(spec) if spec.position else {})}
    return np.ones(lengths(name, spec, "qkv", sizes), types.get(holds(name, spec), np.float64))

"""The shape in which a function wants an argument: masks with axes for batch and heads, lengths in place of booleans.

A form of a mask names its axes: b, h, q, k, and 1 for an axis of length 1. ``lengths`` (b,) and ``length`` (one whole
number) count the valid keys, which then are the first ones; ``bounds`` are where packed documents begin
(``cu_seqlens``), among queries or among keys where both are asked for; ``nff`` and ``nf2`` are tables in which each
column stands twice, side by side or in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from symattn.bounds.called_target import (
    AXES,
    CAUSAL_MASK,
    COUNT_K,
    COUNT_Q,
    FACTOR,
    PAST,
    WIDTH,
    Argument,
    Convention,
    Inputs,
)
from symattn.document.errors import InputError
from symattn.programs.layouts import causal_mask, lengths, to_layout
from symattn.programs.names import meaning

_LETTERS = "bhqk"
_OF_QUERIES = ("doc_q", "positions_q")  # one number for each query, where a form says k


def argument(a: Argument, how: Convention, inputs: Inputs) -> Any:
    """Return the value of one argument. Raises ``InputError`` for the negation of what is no boolean mask."""
    if a.input is None:
        return a.value
    if a.input in _NUMBERS:
        return _NUMBERS[a.input](how, inputs)
    mask = a.input == CAUSAL_MASK
    value = causal_mask(inputs, how.alignment == "bottom-right") if mask else inputs[a.input]
    if a.inverted and value.dtype != bool:
        raise InputError(f"--mask-arg ~{a.parameter}: only a boolean mask has a negation")
    value = ~value if a.inverted else value
    if a.numbers:
        value = (
            value.astype(np.int64) if a.numbers == "ones" else np.where(value, float(a.numbers == "shifted"), -np.inf)
        )
    if not a.form:
        return to_layout(a.input, value, how.layout)
    if a.form == "bounds" and a.input != "doc":
        return _bounds_of(a.input, inputs)
    if a.form in _OTHERS:
        return _OTHERS[a.form](value)
    return _with_axes(value, a, _front(how, inputs), lengths(inputs))


def placed(arguments: Iterable[Argument], passed: Mapping[Argument, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional arguments and keywords. An input that was not given is left out."""
    places: list[Any] = []
    keywords: dict[str, Any] = {}
    for a in arguments:
        if a.input is None or a in passed:
            value = a.value if a.input is None else passed[a]
            if a.positional:
                places.append(value)
            else:
                keywords[a.parameter] = value
    return places, keywords


def _width(how: Convention, inputs: Inputs) -> int:
    """The width d_k of a head."""
    if "q" in inputs:
        return int(inputs["q"].shape[-1])
    heads = next((a.value for a in how.arguments if meaning(a.parameter) == "heads"), 1)
    columns = int(inputs["w_q" if "w_q" in inputs else "x"].shape[-1])
    return columns // heads if isinstance(heads, int) else columns


_NUMBERS: dict[str, Callable[[Convention, Inputs], int | float]] = {
    WIDTH: _width,
    FACTOR: lambda how, inputs: float(_width(how, inputs)) ** -0.5,
    # how many keys stand before the first query
    PAST: lambda how, inputs: lengths(inputs)[1] - lengths(inputs)[0] if how.alignment == "bottom-right" else 0,
    COUNT_Q: lambda how, inputs: lengths(inputs)[0],
    COUNT_K: lambda how, inputs: lengths(inputs)[1],
}


def _front(how: Convention, inputs: Inputs) -> tuple[int, ...]:
    """The lengths of the axes that the layout has before those of tokens: b, or b and h."""
    source, axes = ("q", AXES[how.layout]) if "q" in inputs else ("x", 3)
    shape = np.shape(inputs[source])
    return (1,) * (axes - len(shape)) + shape[:-2]


def _with_axes(value: object, a: Argument, front: tuple[int, ...], tokens: tuple[int, int]) -> Any:
    """The axes that a form names; those that the array lacks are copies, those that the form lacks are dropped."""
    n_q, n_k = tokens
    n_q = n_k if a.input == "keep" and "q" not in a.form else n_q
    whole = _whole(a.input or "", value, len(front))
    last = n_q if a.input in _OF_QUERIES else n_k
    lasting = (front[0] if front else 1, front[1] if len(front) > 1 else 1, n_q, last)
    sizes = {c: n if c in a.form else m for c, n, m in zip(_LETTERS, lasting, whole.shape, strict=True)}
    whole = np.broadcast_to(whole, tuple(sizes.values()))
    for axis, letter in reversed(tuple(enumerate(_LETTERS))):
        whole = whole if letter in a.form else np.take(whole, 0, axis=axis)
    return whole.reshape(tuple(1 if c == "1" else sizes[c] for c in a.form))


def _whole(name: str, value: Any, front: int) -> Any:
    """An array of masks as (b, h, q, k), axes that it lacks of length 1."""
    if name in ("keep", "doc", "doc_q", "doc_k", "positions", "positions_q"):
        value = value[..., None, :]
    if value.ndim == 3 and front and name != "bias":  # a bias has an axis of heads, no axis of batches
        return value[:, None]
    return value.reshape((1,) * (4 - value.ndim) + tuple(value.shape))


def _counted(keep: Any) -> Any:
    """(b,) from (b, n_k) or (b, 1, n_k)."""
    result = keep.sum(axis=-1)
    return result.reshape(-1) if result.ndim < 2 else result[:, 0]


def _bounds_of(name: str, inputs: Inputs) -> np.ndarray:
    """Where each document begins among the queries or among the keys; it may have tokens among the others alone."""
    every = np.unique(np.concatenate([inputs["doc_q"], inputs["doc_k"]]))
    return np.concatenate([[0], np.searchsorted(inputs[name], every, side="right")]).astype(np.int32)


_OTHERS: dict[str, Callable[[Any], Any]] = {
    "lengths": _counted,
    "length": lambda keep: int(_counted(keep)[0]),
    "bounds": lambda doc: np.array([0, *(np.flatnonzero(np.diff(doc)) + 1), doc.shape[-1]], np.int32),
    "nff": lambda table: np.concatenate([table, table], axis=-1),
    "nf2": lambda table: np.repeat(table, 2, axis=-1),
}

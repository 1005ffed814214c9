"""Functions that take one query at a time, as in decoding, or several inputs in one array.

The latter are ``qkv``, ``kv``, or the projections ``w_qkv`` and biases ``b_qkv``. How the parts stand in it is found by
trial: along an axis of their own, or side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from symattn.bounds.domain import Domain
from symattn.document.keywords import plain
from symattn.programs.frameworks import Tensor, import_torch
from symattn.programs.names import Function, bound_keywords, meaning, parameters
from symattn.programs.request import Request

_QKV = ("q", "k", "v")
_TOGETHER = {
    "qkv": _QKV,
    "packedqkv": _QKV,
    "mixedqkv": _QKV,
    "qkvpacked": _QKV,
    "kv": ("k", "v"),
    "kvpacked": ("k", "v"),
}
#: The axis along which the parts stand, None for side by side, and how that is told.
_STACKED = {
    "stacked": (-3, "before the last two axes"),
    "first": (0, "in the first axis"),
    "second": (1, "in the second axis"),
    "side by side": (None, "side by side in the last axis"),
}
_PROJECTED = {
    "side by side": (None, "side by side in the last axis"),
    "by head": (None, "side by side in the last axis, for each head"),
}


def ways(function: Function, request: Request, name: str) -> Iterator[Packed]:
    """The function with the parts as parameters, in every way to join them; none where nothing is packed."""
    given = parameters(function) or ()
    groups = {p.name: parts for p in given if (parts := _parts(p, request, bound_keywords(function)))}
    if groups:
        arrays = not any(n.startswith(("w_", "b_")) for parts in groups.values() for n in parts)
        for reading in _STACKED if arrays else _PROJECTED:
            yield Packed(function, groups, reading, request.spec.heads, name)


def _parts(p: Parameter, request: Request, bound: frozenset[str]) -> tuple[str, ...]:
    """Return what a parameter is made of."""
    if p.name in dict(request.call) or p.name in bound:
        return ()
    if plain(p.name) in _TOGETHER:
        return _TOGETHER[plain(p.name)]
    kind = {"w_in": "w", "b_in": "b"}.get(meaning(p.name) or "")
    return tuple(f"{kind}_{x}" for x in _QKV) if kind and not request.spec.packed else ()


class Packed:
    """A function of the parts, which joins them in one ``reading``."""

    def __init__(
        self, function: Function, groups: Mapping[str, tuple[str, ...]], reading: str, heads: int, name: str
    ) -> None:
        self._function, self._groups, self.reading, self._heads = function, groups, reading, heads
        self.__name__ = name or getattr(function, "__name__", "the function")
        self.__doc__ = function.__doc__
        self.__wrapped__ = function  # where the source is read for axes and frameworks
        own = [q for p in parameters(function) or () for q in self._apart(p)]
        self.__signature__ = Signature(sorted(own, key=lambda p: p.kind))

    def _apart(self, p: Parameter) -> Iterator[Parameter]:
        parts = self._groups.get(p.name)
        if parts is None:
            yield p.replace(kind=Parameter.KEYWORD_ONLY) if p.kind is Parameter.POSITIONAL_OR_KEYWORD else p
        else:
            yield from (Parameter(n, Parameter.KEYWORD_ONLY) for n in parts)

    @property
    def note(self) -> str:
        """How the parts stand, for the report."""
        result = (_STACKED | _PROJECTED)[self.reading][1]
        groups = self._groups.items()
        return " ".join(f"{p} holds {', '.join(parts)}, {result}, determined by trial." for p, parts in groups)

    def within(self, domain: Domain) -> Domain:
        """The domain, with arrays of one shape where they stand in one array."""
        joined = {n for parts in self._groups.values() for n in parts}
        return replace(domain, same_width=True, square=domain.square or "q" in joined)

    def __call__(self, *places: Tensor, **keywords: Tensor) -> Tensor:
        for parameter, parts in self._groups.items():
            keywords[parameter] = self._joined([keywords.pop(n) for n in parts])
        return self._function(*places, **keywords)

    def _joined(self, parts: list[Tensor]) -> Tensor:
        axis = (_STACKED | _PROJECTED)[self.reading][0]
        if axis is not None:
            return _library(parts).stack(parts, axis)
        if self.reading == "by head":
            parts = [a.reshape((*a.shape[:-1], self._heads, 1, -1)) for a in parts]
            joined = _concatenated(parts, -2)
            return joined.reshape((*joined.shape[:-3], -1))
        return _concatenated(parts, -1)


def _concatenated(parts: list[Tensor], axis: int) -> Tensor:
    return _library(parts).concatenate(parts, axis)


def _library(parts: list[Any]) -> Any:
    """torch for its tensors; other kinds of array take part in NumPy's functions."""
    return import_torch() if type(parts[0]).__module__.partition(".")[0] == "torch" else np


# -- one query at a time: n_q = 1, or no axis for queries at all -------------------------------------------------------
#: Where the axis of the one query stands that the function does not have; None where it has it.
_AXES_OF_ONE = {"one query": None, "no axis of queries": -2, "no axis of queries before the heads": -3}


def one_query(function: Function, name: str) -> Iterator[OneQuery]:
    """The function for one query, with and without an axis for it; none where it takes no q by name."""
    given = parameters(function) or ()
    q = next((p.name for p in given if meaning(p.name) == "q"), None)
    for reading in _AXES_OF_ONE if q else ():
        yield OneQuery(function, Signature(given), str(q), reading, name)


class OneQuery:
    """A function that is called with one query: ``reading`` says whether that has an axis."""

    def __init__(self, function: Function, signature: Signature, q: str, reading: str, name: str) -> None:
        self._function, self._q, self.reading = function, q, reading
        self.__name__ = name or getattr(function, "__name__", "the function")
        self.__wrapped__ = function
        self.__signature__ = signature

    @property
    def note(self) -> str:
        """Say how it is called, for the report."""
        result = "" if _AXES_OF_ONE[self.reading] is None else f", and {self._q} and the output have no axis for it"
        return f"It takes one query at a time{result}, determined by trial; --decoding promises that."

    def within(self, domain: Domain) -> Domain:
        """The domain with n_q = 1."""
        return replace(domain, decoding=True)

    def __call__(self, *places: Tensor, **keywords: Tensor) -> Tensor:
        axis = _AXES_OF_ONE[self.reading]
        if axis is None:
            return self._function(*places, **keywords)
        bound = self.__signature__.bind(*places, **keywords)
        q = bound.arguments[self._q]
        shape = tuple(q.shape)
        bound.arguments[self._q] = q.reshape((*shape[:axis], *shape[axis + 1 :]))
        output = self._function(*bound.args, **bound.kwargs)
        first, *others = output if isinstance(output, tuple) else (output,)
        shape = tuple(first.shape)
        first = first.reshape((*shape[: len(shape) + 1 + axis], 1, *shape[len(shape) + 1 + axis :]))
        return (first, *others) if others else first

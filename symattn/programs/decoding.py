"""Functions that take one query at a time, as in decoding: n_q = 1, or no axis for queries at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from inspect import Signature
from typing import Any

from symattn.bounds.domain import Domain
from symattn.programs.names import meaning
from symattn.programs.signature import parameters

#: Where the axis of the one query stands that the function does not have; None where it has it.
_AXES = {"one query": None, "no axis of queries": -2, "no axis of queries before the heads": -3}


def ways(function: Callable[..., Any], name: str) -> Iterator[OneQuery]:
    """The function for one query, with and without an axis for it; none where it takes no q by name."""
    given = parameters(function) or ()
    q = next((p.name for p in given if meaning(p.name) == "q"), None)
    for reading in _AXES if q else ():
        yield OneQuery(function, Signature(given), str(q), reading, name)


class OneQuery:
    """A function that is called with one query: ``reading`` says whether that has an axis."""

    def __init__(self, function: Callable[..., Any], signature: Signature, q: str, reading: str, name: str) -> None:
        self._function, self._q, self.reading = function, q, reading
        self.__name__ = name or getattr(function, "__name__", "the function")
        self.__wrapped__ = function
        self.__signature__ = signature

    @property
    def note(self) -> str:
        """What was found, for the report."""
        told = "" if _AXES[self.reading] is None else f", and {self._q} and the output have no axis for it"
        return f"It takes one query at a time{told}, found by trial; --decoding promises that."

    def within(self, domain: Domain) -> Domain:
        """The domain with n_q = 1."""
        return replace(domain, decoding=True)

    def __call__(self, *places: Any, **given: Any) -> Any:
        axis = _AXES[self.reading]
        if axis is None:
            return self._function(*places, **given)
        bound = self.__signature__.bind(*places, **given)
        q = bound.arguments[self._q]
        shape = tuple(q.shape)
        bound.arguments[self._q] = q.reshape((*shape[:axis], *shape[axis + 1 :]))
        output = self._function(*bound.args, **bound.kwargs)
        first, *others = output if isinstance(output, tuple) else (output,)
        shape = tuple(first.shape)
        first = first.reshape((*shape[: len(shape) + 1 + axis], 1, *shape[len(shape) + 1 + axis :]))
        return (first, *others) if others else first

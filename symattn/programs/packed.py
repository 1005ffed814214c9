"""Functions that take one query at a time, as in decoding, or several inputs in one array.

The latter are ``qkv``, ``kv``, or the projections ``w_qkv`` and biases ``b_qkv``. Whether the parts are stacked along
an axis of their own or side by side is determined by trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from symattn.bounds.domain import Domain
from symattn.document.keywords import plain
from symattn.programs.frameworks import Tensor, import_torch
from symattn.programs.names import Function, bound_keywords, meaning, on_first, parameters
from symattn.programs.request import Request

_QKV = ("q", "k", "v")
#: Parameters that take several inputs in one array.
_TOGETHER = {
    "qkv": _QKV,
    "packedqkv": _QKV,
    "mixedqkv": _QKV,
    "qkvpacked": _QKV,
    "kv": ("k", "v"),
    "kvpacked": ("k", "v"),
}
#: The axis along which the parts are stacked, None for side by side, and its description.
_STACKED = {
    "stacked": (-3, "before the last two axes"),
    "first": (0, "in the first axis"),
    "second": (1, "in the second axis"),
    "side by side": (None, "side by side in the last axis"),
}
#: The same for projections and biases, which are never stacked.
_PROJECTED = {
    "side by side": (None, "side by side in the last axis"),
    "by head": (None, "side by side in the last axis, for each head"),
}


def ways(function: Function, request: Request, name: str) -> Iterator[Packed]:
    """Yield the function with the parts as parameters, for each way to join them; nothing if nothing is packed."""
    params = parameters(function) or ()
    groups: dict[str, tuple[str, ...]] = {}  # the inputs that a parameter packs
    for p in params:
        kind = {"w_in": "w", "b_in": "b"}.get(meaning(p.name) or "")
        # A parameter that the user sets is no input.
        if p.name in dict(request.call) or p.name in bound_keywords(function):
            continue
        if plain(p.name) in _TOGETHER:
            groups[p.name] = _TOGETHER[plain(p.name)]
        elif kind and not request.spec.packed:
            groups[p.name] = tuple(f"{kind}_{x}" for x in _QKV)
    if groups:
        arrays = not any(n.startswith(("w_", "b_")) for parts in groups.values() for n in parts)
        for reading in _STACKED if arrays else _PROJECTED:
            yield Packed(function, groups, reading, request.spec.heads, name)


class Wrapper:
    """A function with other parameters, which calls a user's function in one ``reading`` of its inputs."""

    note = ""  # for the report
    is_self_contained = False  # whether a call imports no further module of symattn
    sizes: Mapping[str, int] = {}  # those of a definition's axes that the function has alone

    def __init__(
        self, function: Function, own: Iterable[Parameter], reading: object, name: str
    ) -> None:
        self.reading = reading
        self.__name__ = name or getattr(function, "__name__", "the function")
        self.__wrapped__ = function  # whose source is searched for axes and frameworks
        self.__doc__ = function.__doc__
        self.__signature__ = Signature(tuple(own))

    def within(self, domain: Domain) -> Domain:
        """Return the domain restricted to the inputs that the function takes."""
        return domain

    @property
    def called(self) -> Function | None:
        """The user's function, if another version of it can be called in the same way."""
        return vars(self).get("_function")

    def around(self, function: Function) -> Wrapper:
        """Return the wrapper of another version of the user's function."""
        result = copy(self)
        result.__dict__ |= {"_function": function, "__wrapped__": function}
        return result

    def __call__(self, *places: Tensor, **keywords: Tensor) -> Tensor:
        raise NotImplementedError


def side_by_side(xp: Any, parts: Sequence[Tensor], heads: int = 1) -> Tensor:
    """Join arrays side by side in the last axis, head by head if there are several."""
    if heads == 1:
        return xp.concat(parts, axis=-1)
    # (…, heads, parts, width): the parts of a head come together.
    together = xp.concat([a.reshape((*a.shape[:-1], heads, 1, -1)) for a in parts], axis=-2)
    return together.reshape((*together.shape[:-3], -1))


class Packed(Wrapper):
    """A function of the parts, which joins them as its ``reading`` says."""

    reading: str

    def __init__(
        self,
        function: Function,
        groups: Mapping[str, tuple[str, ...]],
        reading: str,
        heads: int,
        name: str,
    ) -> None:
        self._function, self._groups, self._heads = function, groups, heads
        own: list[Parameter] = []
        for p in parameters(function) or ():
            if p.name in groups:
                own += (Parameter(n, Parameter.KEYWORD_ONLY) for n in groups[p.name])
            else:
                # By keyword only, since parts have replaced parameters before it.
                own.append(
                    p.replace(kind=Parameter.KEYWORD_ONLY)
                    if p.kind is Parameter.POSITIONAL_OR_KEYWORD
                    else p
                )
        # A signature needs parameters in the order of kinds.
        super().__init__(function, sorted(own, key=lambda p: p.kind), reading, name)
        how = (_STACKED | _PROJECTED)[reading][1]
        self.note = " ".join(
            f"{p} holds {', '.join(x)}, {how}, determined by trial." for p, x in groups.items()
        )

    def within(self, domain: Domain) -> Domain:
        """Return the domain with one shape for all inputs in one array."""
        joined = {n for parts in self._groups.values() for n in parts}
        return replace(domain, same_width=True, square=domain.square or "q" in joined)

    def __call__(self, *places: Tensor, **keywords: Tensor) -> Tensor:
        axis = (_STACKED | _PROJECTED)[self.reading][0]
        for parameter, names in self._groups.items():
            parts = [keywords.pop(n) for n in names]
            # all kinds of array other than tensors implement NumPy's functions
            library = (
                import_torch() if type(parts[0]).__module__.partition(".")[0] == "torch" else np
            )
            if axis is None:
                heads = self._heads if self.reading == "by head" else 1
                keywords[parameter] = side_by_side(library, parts, heads)
            else:
                keywords[parameter] = library.stack(parts, axis)
        return self._function(*places, **keywords)


# -- one query at a time: n_q = 1, or no axis for queries at all -------------------------------------------------------
#: The axis of the query that the function lacks; None if it has it.
_AXES_OF_ONE = {
    "one query": None,
    "no axis of queries": -2,
    "no axis of queries before the heads": -3,
}


def one_query(function: Function, name: str) -> Iterator[OneQuery]:
    """Yield the function for one query, with and without an axis for it; nothing if no parameter is q by name."""
    params = parameters(function) or ()
    q = next((p.name for p in params if meaning(p.name) == "q"), None)
    for reading in _AXES_OF_ONE if q else ():
        yield OneQuery(function, params, str(q), reading, name)


class OneQuery(Wrapper):
    """A function that is called with one query; ``reading`` says whether the query has an axis."""

    reading: str

    def __init__(
        self, function: Function, own: Iterable[Parameter], q: str, reading: str, name: str
    ) -> None:
        super().__init__(function, own, reading, name)
        self._function, self._q = function, q
        without = f", and {q} and the output have no axis for it" if _AXES_OF_ONE[reading] else ""
        self.note = (
            f"It takes one query at a time{without}, determined by trial; --decoding promises that."
        )

    def within(self, domain: Domain) -> Domain:
        """Return the domain with n_q = 1."""
        return replace(domain, decoding=True)

    def __call__(self, *places: Tensor, **keywords: Tensor) -> Tensor:
        axis = _AXES_OF_ONE[self.reading]
        if axis is None:
            return self._function(*places, **keywords)
        bound = self.__signature__.bind(*places, **keywords)
        q = bound.arguments[self._q]
        shape = tuple(q.shape)
        bound.arguments[self._q] = q.reshape((*shape[:axis], *shape[axis + 1 :]))

        def with_axis(first: Tensor) -> Tensor:
            # In the output the axis is counted from the end, after it is inserted.
            at = len(first.shape) + 1 + axis
            return first.reshape((*first.shape[:at], 1, *first.shape[at:]))

        return on_first(with_axis, self._function(*bound.args, **bound.kwargs))

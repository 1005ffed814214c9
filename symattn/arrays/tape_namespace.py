"""The namespace of ``tape``: each function runs on the kind below and puts down its pull."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.base import offer_all
from symattn.arrays.elementwise import Elementwise
from symattn.arrays.functions import of_floats
from symattn.arrays.reductions import LinearReductions, Reductions
from symattn.arrays.structure import _ALIASES, _NUMPY, _arrays, _lifted, _picked
from symattn.arrays.tape import Pull, Taped
from symattn.arrays.vjp_rules import ELEMENTWISE, of_maximum, scattered, spread, to_shape
from symattn.document.errors import Refused

#: Functions that do not change when their arguments move a little: their results are constants.
_LOCALLY_CONSTANT = frozenset(
    [
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "logical_and", "logical_or"),
        *("logical_not", "isfinite", "isinf", "isneginf", "isnan", "any", "all", "argsort", "argmax", "argmin"),
        *("zeros_like", "ones_like", "full_like", "empty_like", "shape", "ndim", "size"),
    ]
)
_MOVES = frozenset([*_NUMPY, *_ALIASES])


class TapedReductions:
    """``sum`` to ``sort``."""

    kind: Any
    under: Any

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        value = self.under.sum(x.value, axis=axis, keepdims=keepdims)
        return self.kind(value, [(x, lambda g: spread(self.under, g, x.plain_shape, axis, keepdims))])

    def mean(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        value = self.under.mean(x.value, axis=axis, keepdims=keepdims)
        times = x.size // (int(np.prod(np.shape(value), dtype=int)) or 1)
        return self.kind(value, [(x, lambda g: spread(self.under, g, x.plain_shape, axis, keepdims) / times)])

    def cumulative_sum(self, x: Any, axis: int = -1) -> Any:
        sums, flip = self.under.cumulative_sum, self.under.flip

        def pull(g: object) -> Any:
            """Σ over the places from each place on."""
            return flip(sums(flip(g, axis=axis), axis=axis), axis=axis)

        return self.kind(sums(x.value, axis=axis), [(x, pull)])

    def max(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        axes = tuple(range(x.ndim)) if axis is None else axis
        top = self.under.max(x.value, axis=axes, keepdims=True)

        def pull(g: Any) -> Any:
            return of_maximum(self.kind, self.under.reshape(g, np.shape(top)), top, x.value, axes)

        return self.kind(top if keepdims else self.under.squeeze(top, axis=axes), [(x, pull)])

    def maximum(self, a: Any, b: Any) -> Any:
        pair = [x.value if isinstance(x, Taped) else x for x in (a, b)]
        value = self.under.maximum(*pair)

        def pull(k: int) -> Pull:
            def run(g: Array) -> Any:
                both = self.under.stack([self.under.broadcast_to(self.under.asarray(x), g.shape) for x in pair])
                shares = of_maximum(self.kind, g[None], value[None], both, 0)
                return to_shape(self.under, shares[k], np.shape(pair[k]))

            return run

        return self.kind(value, [(x, pull(k)) for k, x in enumerate((a, b)) if isinstance(x, Taped)])

    def minimum(self, a: object, b: object) -> Any:
        return -self.kind.xp.maximum(-self.kind.of(a), -self.kind.of(b))

    def sort(self, x: Any, axis: int = -1, descending: bool = False) -> Any:
        how = {"descending": True} if descending else {}
        return self.kind.xp.take_along_axis(x, self.under.argsort(x.value, axis=axis, **how), axis=axis)

    cumsum, amax = cumulative_sum, max


offer_all(TapedReductions)


class TapedNamespace(TapedReductions, LinearReductions):
    """The functions that taped arrays of ``kind`` offer; of plain arrays alone they are those of the kind below."""

    # What is made of others is made alike.
    var, std, min, amin, prod = Reductions.var, Reductions.std, Reductions.min, Reductions.amin, Reductions.prod
    _count, _over, _prod, _to_front = Reductions._count, Reductions._over, Reductions._prod, Reductions._to_front
    abs, clip = Elementwise.abs, Elementwise.clip

    def __init__(self, kind: type[Taped]) -> None:
        self.kind: Any = kind
        self.under = kind.under

    def __repr__(self) -> str:
        return f"<namespace of {self.kind.name}>"

    def __getattr__(self, name: str) -> Any:
        if name in ELEMENTWISE:
            return partial(self._elementwise, name)
        function = getattr(self.under, name)
        if isinstance(function, type) or not callable(function):
            return function  # a type or a constant
        return partial(self._moves if name in _MOVES else self._constant, name)

    def _constant(self, name: str, *args: object, **how: object) -> Any:
        if name not in _LOCALLY_CONSTANT and any(isinstance(x, Taped) and x.moves for x in args):
            raise Refused(f"{self.kind.name} lacks {name}")
        return self.kind.result(getattr(self.under, name)(*map(_bare, args), **how))

    def _elementwise(self, name: str, *args: object, **how: object) -> Any:
        values = [_bare(x) for x in args]
        y = (getattr(self.under, name, None) or partial(of_floats, name))(*values, **how)

        def pull(k: int) -> Pull:
            rule = ELEMENTWISE[name][k]
            return lambda g: to_shape(self.under, rule(self.under, g, y, *values), np.shape(values[k]))

        sources = [(x, pull(k)) for k, x in enumerate(args) if isinstance(x, Taped)]
        return self.kind(y, sources) if sources else self.kind.result(y)

    # -- elements that are moved --------------------------------------------------------------------------------------
    def moved(self, x: Any, function: Callable[[Any], Any]) -> Any:
        """``function`` of x, which only moves elements, and moves those of NumPy's arrays alike."""

        def pull(g: Any) -> Any:
            return scattered(self.under, g, function(np.arange(x.size).reshape(x.plain_shape)), x.plain_shape)

        return self.kind(function(x.value), [(x, pull)])

    def _moves(self, name: str, *args: object, **how: object) -> Any:
        """A function that moves elements of one array or several into one or several: each remembers its place."""
        given = [_lifted(self.kind, a) for a in args]
        arrays = list(_arrays(given))
        if not arrays:
            return self._constant(name, *args, **how)
        ends = np.cumsum([0, *(x.size for x in arrays)])
        numbered = dict(zip(map(id, arrays), ends, strict=False))

        def places() -> Any:
            def of(x: Taped) -> Any:
                return numbered[id(x)] + np.arange(x.size).reshape(x.plain_shape)

            return getattr(np, name)(*[_picked(a, of) for a in given], **how)

        def made(value: object, part: int | None) -> Any:
            def pull(x: Taped) -> Pull:
                return lambda g: _of_range(
                    self.under, g, places() if part is None else places()[part], numbered[id(x)], x.plain_shape
                )

            return self.kind(value, [(x, pull(x)) for x in dict(zip(map(id, arrays), arrays, strict=True)).values()])

        result = getattr(self.under, name)(*[_picked(a, _bare) for a in given], **how)
        return [made(r, i) for i, r in enumerate(result)] if isinstance(result, list | tuple) else made(result, None)

    def tril(self, x: Any, k: int = 0) -> Any:
        return self.where(np.tri(x.shape[-2], x.shape[-1], k) > 0, x, 0)

    def triu(self, x: Any, k: int = 0) -> Any:
        return self.where(np.tri(x.shape[-2], x.shape[-1], k - 1) == 0, x, 0)

    # -- functions with arguments that are no arrays ------------------------------------------------------------------
    def asarray(self, x: object, dtype: object = None, **how: object) -> Any:
        return self.astype(x, dtype) if isinstance(x, Taped) else self._constant("asarray", x, dtype=dtype, **how)

    array = asarray

    def astype(self, x: object, dtype: Any, **_: object) -> Any:
        """Cast forth, and the gradient cast back; to booleans and integers, constants."""
        if not isinstance(x, Taped):
            return self._constant("astype", x, dtype)
        if dtype is None or dtype == x.dtype:
            return x
        value, back = self.under.astype(x.value, dtype), x.dtype
        if np.dtype(dtype).kind in "biu":
            return value
        return self.kind(value, [(x, lambda g: self.under.astype(g, back))])

    def full(self, shape: object, fill_value: object, dtype: object = None, **_: object) -> Any:
        if isinstance(fill_value, Taped):
            return self.broadcast_to(fill_value, shape)
        return self._constant("full", shape, fill_value, dtype=dtype)

    def pow(self, x: Any, exponent: Any) -> Any:
        """x to the power of a number."""
        if isinstance(exponent, Taped):
            raise Refused(f"{self.kind.name}: a power with an array in the exponent")
        x, xp = self.kind.of(x), self.under

        def pull(g: Any) -> Any:
            return g if exponent == 1 else g * exponent * xp.pow(x.value, exponent - 1) if exponent else 0 * g

        return self.kind(xp.pow(x.value, exponent), [(x, pull)])


def _bare(x: object) -> Any:
    return x.value if isinstance(x, Taped) else x


def _of_range(xp: Any, g: Any, places: np.ndarray, start: int, shape: tuple[int, ...]) -> Any:
    """Return the part of g that belongs to an array of this shape, whose elements are numbered from ``start`` on."""
    flat = np.reshape(places, -1)
    mine = np.flatnonzero((flat >= start) & (flat < start + np.prod(shape, dtype=int)))
    return scattered(xp, xp.take(xp.reshape(g, (-1,)), mine, axis=0), flat[mine] - start, shape)

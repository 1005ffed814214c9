"""``tape``: arrays that remember what they were computed from, over arrays of any kind. Reverse differentiation.

Every operation is that of the kind below, on its unchanged arrays, and records how a gradient of the result is pulled
back to the operands. One run and one backward pass give the gradients of all inputs, whatever their sizes; ``dual``
runs once for each direction and checks it. Results that are locally constant (comparisons, orders) are plain arrays.

    x = tape(namespace).variable(array)
    y = f(x)
    (dx,) = pull_back([(y, dy)], [x])

Source: S. Linnainmaa (1970); A. Griewank, A. Walther, Evaluating Derivatives (2008), §3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from symattn.arrays import structure
from symattn.arrays.array import Array, Functions
from symattn.arrays.base import ArrayBase, offer_all
from symattn.arrays.elementwise import Elementwise
from symattn.arrays.functions import of_floats
from symattn.arrays.planes import Size
from symattn.arrays.reductions import LinearReductions, Reductions
from symattn.arrays.vjp_rules import ELEMENTWISE, of_maximum, scattered, spread, to_shape
from symattn.document.errors import Refused
from symattn.document.model import Text

Pull = Callable[[Any], Any]
Ties = Literal["refuse", "second"]


class Delayed(NamedTuple):
    """The shape of a value, and the function that computes it when it is read: the backward pass may not need it."""

    shape: tuple[int, ...]
    make: Callable[[], Any]


class Taped(ArrayBase):
    """A ``value`` of the kind below, and its ``sources``: operands with the functions that pull gradients back."""

    holds = "values that know what they were computed from"
    under: ClassVar[Any]  # the namespace of the values
    base: ClassVar[Any]  # their kind; None for NumPy's arrays
    ties: ClassVar[Ties]

    def __init__(
        self, value: Any, sources: Sequence[tuple[Taped, Pull]] = (), moves: bool = False
    ) -> None:
        self._value = value
        # Constants need no gradient, so what led to them is dropped.
        self.sources = tuple((x, pull) for x, pull in sources if x.moves)
        self.moves: bool = moves or bool(self.sources)

    @classmethod
    def variable(cls, value: Array) -> Self:
        """Return an array with respect to which gradients are computed."""
        return cls(value, moves=True)

    @classmethod
    def lift(cls, data: object) -> Self:
        """Return a constant."""
        return cls(cls.under.asarray(data))

    @classmethod
    def of(cls, x: object) -> Self:
        """Return an operand as an array of this kind; other arrays become constants."""
        return x if isinstance(x, cls) else cls.lift(x)

    @classmethod
    def result(cls, x: object) -> Any:
        """Return the result of a function of the kind below as a constant; booleans, integers and text stay."""
        if isinstance(x, (list, tuple)):
            return type(x)(map(cls.result, x))
        # Over NumPy only floats can vary; integers and booleans stay plain arrays.
        floats = (
            cls.under is np
            and isinstance(x, (np.ndarray, np.generic))
            and x.dtype.kind not in "biuO"
        )
        return cls(x) if floats or isinstance(x, ArrayBase) else x

    @classmethod
    def _matmul(cls, a: Taped, b: Taped) -> Self:
        xp, x, y = cls.under, a.value, b.value
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        shape = (*batch, x.shape[-2], y.shape[-1])
        left = (a, lambda g: to_shape(xp, xp.matmul(g, y.mT), x.shape))
        right = (b, lambda g: to_shape(xp, xp.matmul(x.mT, g), y.shape))
        # A product may be needed for its shape alone, while the way back uses its operands.
        return cls(Delayed(shape, lambda: xp.matmul(x, y)), [left, right])

    @property
    def value(self) -> Any:
        # The value replaces its function, so that it is computed once.
        if isinstance(self._value, Delayed):
            self._value = self._value.make()
        return self._value

    def printer(self) -> Callable[[tuple[int, ...]], Text] | None:
        from symattn.arrays.shown import printer_of

        return printer_of(self.value)

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(Size(n, type(self)) for n in self.plain_shape)  # type: ignore[arg-type]

    @property
    def plain_shape(self) -> tuple[int, ...]:
        """The shape as plain integers."""
        value = self._value
        # the shape of an array of NumPy holds plain integers already
        return value.shape if type(value) is np.ndarray else tuple(map(int, value.shape))

    @property
    def size(self) -> int:
        return prod(self.plain_shape)

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    def __repr__(self) -> str:
        return f"{self.name}({self.value!r})"

    def copy(self, *_: object, **__: object) -> Self:
        return self

    def astype(self, dtype: object, copy: bool = True, **_: object) -> Any:
        return self.xp.astype(self, dtype)

    def __getitem__(self, index: object) -> Any:
        return self.xp.moved(self, lambda x: x[index])

    def __setitem__(self, index: object, value: object) -> None:
        raise Refused(
            f"{self.name}: no assignment: the way back needs the old elements; hint: where, concat or stack"
        )


@cache
def tape(under: object, ties: Ties = "refuse") -> type[Taped]:
    """Return the kind of taped arrays over the namespace ``under``: NumPy, or that of a kind.

    ``ties`` says what happens if a gradient arrives at a maximum of equal arguments, such as ReLU at 0: raise
    Undecided, or give it to the second one (0 for ReLU, as in frameworks, and always on floats).
    """
    # NumPy's namespace has no kind.
    kind = getattr(under, "kind", None)
    fields = {"name": f"tape over {getattr(kind, 'name', 'NumPy')}", "under": under, "ties": ties}
    own_fields = fields | {"base": getattr(kind, "base", kind)}
    result: type[Taped] = type("Taped", (Taped,), own_fields)
    result.xp = TapedNamespace(result)
    return result


def pull_back(ends: Iterable[tuple[Taped, Any]], inputs: Sequence[Taped]) -> list[Any]:
    """Return Σ ⟨g, ∂y/∂x⟩ over the pairs (y, g) in ``ends``, for every x in ``inputs``, in its shape."""
    result: dict[int, Any] = {}
    # An end that depends on no variable has nothing to pull back to.
    ends = [(y, g) for y, g in ends if y.moves]
    for y, g in ends:
        _add_to_gradient_of(result, y, g)
    # Gradients of inputs are part of the result; others are dropped once they are pulled back.
    remaining = {id(x) for x in inputs}
    # In reverse order the gradient of an array is complete before it is pulled back.
    for y in reversed(_in_order([y for y, _ in ends])):
        # The last reader takes the slope out, so that its memory is free for the next one.
        g = result[id(y)] if id(y) in remaining else result.pop(id(y))
        for x, pull in y.sources:
            _add_to_gradient_of(result, x, pull(g))
    # An input that no end depends on has the gradient 0.
    return [result[id(x)] if id(x) in result else x.under.zeros_like(x.value) for x in inputs]


def _add_to_gradient_of(results: dict[int, Any], x: Taped, g: Array) -> None:
    if id(x) in results:
        results[id(x)] = results[id(x)] + g
    else:
        results[id(x)] = g


def _in_order(ends: Sequence[Taped]) -> list[Taped]:
    """Return ``ends`` and all arrays that they were computed from, each after its operands."""
    order: list[Taped] = []
    visited_ids: set[int] = set()
    # A stack of its own, because long loops would exceed Python's recursion limit.
    stack = [(y, False) for y in ends]
    while stack:
        x, done = stack.pop()
        # On the second visit all operands are in the order.
        if done:
            order.append(x)
        elif id(x) not in visited_ids:
            visited_ids.add(id(x))
            stack.append((x, True))
            stack.extend((source, False) for source, _ in x.sources)
    return order


# -- the namespace: each function runs on the kind below and records how gradients are pulled back ---------------------
#: Functions that are locally constant: their results are constants.
_LOCALLY_CONSTANT = frozenset(
    [
        *(
            "less",
            "less_equal",
            "greater",
            "greater_equal",
            "equal",
            "not_equal",
            "logical_and",
            "logical_or",
        ),
        *(
            "logical_not",
            "isfinite",
            "isinf",
            "isneginf",
            "isnan",
            "any",
            "all",
            "argsort",
            "argmax",
            "argmin",
        ),
        *("zeros_like", "ones_like", "full_like", "empty_like", "shape", "ndim", "size"),
    ]
)
# Names of functions that only move elements: NumPy runs them on the numbers of places as well.
_MOVES = frozenset([*structure._NUMPY, *structure._ALIASES])


class TapedReductions:
    """``sum`` to ``sort``."""

    kind: Any
    under: Any

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        value = self.under.sum(x.value, axis=axis, keepdims=keepdims)
        return self.kind(value, [(x, lambda g: spread(self.under, g, x.plain_shape, axis))])

    def mean(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        value = self.under.mean(x.value, axis=axis, keepdims=keepdims)
        # An empty result has size 0, by which nothing can be divided.
        entries = int(np.prod(np.shape(value), dtype=int))
        times = x.size // (entries or 1)
        return self.kind(value, [(x, lambda g: spread(self.under, g, x.plain_shape, axis) / times)])

    def cumulative_sum(self, x: Any, axis: int = -1) -> Any:
        sums, flip = self.under.cumulative_sum, self.under.flip

        def pull(g: object) -> Any:
            """Sum over each place and all later ones."""
            return flip(sums(flip(g, axis=axis), axis=axis), axis=axis)

        return self.kind(sums(x.value, axis=axis), [(x, pull)])

    def max(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        # All axes stay with length 1, so that the maximum broadcasts against the elements.
        axes = tuple(range(x.ndim)) if axis is None else axis
        top = self.under.max(x.value, axis=axes, keepdims=True)

        def pull(g: Any) -> Any:
            reshaped = self.under.reshape(g, np.shape(top))
            return of_maximum(self.kind, reshaped, top, x.value, axes)

        largest = top if keepdims else self.under.squeeze(top, axis=axes)
        return self.kind(largest, [(x, pull)])

    def maximum(self, a: Any, b: Any) -> Any:
        # Plain operands are constants and stay as they are.
        pair = [x.value if isinstance(x, Taped) else x for x in (a, b)]
        value = self.under.maximum(*pair)

        def pull(k: int) -> Pull:
            def run(g: Array) -> Any:
                # The larger of two is the maximum over a new axis: one rule for ties serves both.
                candidates = self.under.stack(
                    [self.under.broadcast_to(self.under.asarray(x), g.shape) for x in pair]
                )
                shares = of_maximum(self.kind, g[None], value[None], candidates, 0)
                return to_shape(self.under, shares[k], np.shape(pair[k]))

            return run

        sources = [(x, pull(k)) for k, x in enumerate((a, b)) if isinstance(x, Taped)]
        return self.kind(value, sources)

    def minimum(self, a: object, b: object) -> Any:
        # As min(a, b) = −max(−a, −b), one rule of gradients serves both.
        negative_a = -self.kind.of(a)
        negated = self.kind.xp.maximum(negative_a, -self.kind.of(b))
        return -negated

    def sort(self, x: Any, axis: int = -1, descending: bool = False) -> Any:
        how = {"descending": True} if descending else {}
        # The order is locally constant, so sorting is moving elements.
        return self.kind.xp.take_along_axis(
            x, self.under.argsort(x.value, axis=axis, **how), axis=axis
        )

    cumsum, amax = cumulative_sum, max


offer_all(TapedReductions)


class TapedNamespace(TapedReductions, LinearReductions):
    """The functions that taped arrays of ``kind`` offer; of plain arrays they are those of the kind below."""

    # Composed functions are the same as elsewhere.
    var, std, min, amin, prod = (
        Reductions.var,
        Reductions.std,
        Reductions.min,
        Reductions.amin,
        Reductions.prod,
    )
    _count, _over, _prod, _to_front = (
        Reductions._count,
        Reductions._over,
        Reductions._prod,
        Reductions._to_front,
    )
    abs, sign, clip = Elementwise.abs, Elementwise.sign, Elementwise.clip

    def __init__(self, kind: type[Taped]) -> None:
        self.kind: Any = kind
        self.under = kind.under

    def __repr__(self) -> str:
        return f"<namespace of {self.kind.name}>"

    def __getattr__(self, name: str) -> Any:
        # Functions with a rule of their own come first; none of them only moves elements.
        if name in ELEMENTWISE:
            return partial(self._record_elementwise_function, name)
        function = getattr(self.under, name)
        if isinstance(function, type) or not callable(function):
            return function  # a type or a constant
        return partial(
            self._record_moving_function if name in _MOVES else self._apply_constant_function, name
        )

    def _apply_constant_function(self, name: str, *args: object, **how: object) -> Any:
        # Without this refusal a function without a rule would have the gradient 0.
        moving = any(isinstance(x, Taped) and x.moves for x in args)
        if name not in _LOCALLY_CONSTANT and moving:
            raise Refused(f"{self.kind.name} lacks {name}")
        return self.kind.result(
            getattr(self.under, name)(*map(_strip_tape_from_array, args), **how)
        )

    def _record_elementwise_function(self, name: str, *args: object, **how: object) -> Any:
        values = [_strip_tape_from_array(x) for x in args]
        # Functions that the kind below lacks are built from its own.
        own_function = getattr(self.under, name, None)
        y = (own_function or partial(of_floats, name))(*values, **how)

        def pull(k: int) -> Pull:
            rule = ELEMENTWISE[name][k]
            return lambda g: to_shape(
                self.under, rule(self.under, g, y, *values), np.shape(values[k])
            )

        sources = [(x, pull(k)) for k, x in enumerate(args) if isinstance(x, Taped)]
        # Without taped operands the result is a constant.
        return self.kind(y, sources) if sources else self.kind.result(y)

    # -- functions that move elements ---------------------------------------------------------------------------------
    def moved(self, x: Any, function: Callable[[Any], Any]) -> Any:
        """Apply ``function``, which only moves elements and does so with NumPy's arrays, too."""

        def pull(g: Any) -> Any:
            # The numbers of places are moved in the same way and say where each element came from.
            places = function(np.arange(x.size).reshape(x.plain_shape))
            return scattered(self.under, g, places, x.plain_shape)

        return self.kind(function(x.value), [(x, pull)])

    def _record_moving_function(self, name: str, *args: object, **how: object) -> Any:
        """Apply a function that moves elements of arrays into one array or several, and record their places."""
        operands = [structure._lift_listed_arguments(self.kind, a) for a in args]
        arrays = list(structure._yield_nested_arrays(operands))
        if not arrays:
            return self._apply_constant_function(name, *args, **how)
        # Elements of all operands are numbered one after the other, in one range for each array.
        ends = np.cumsum([0, *(x.size for x in arrays)])
        numbered = dict(zip(map(id, arrays), ends, strict=False))

        # Results and operands share one computation of places, and only if a gradient arrives.
        @cache
        def places() -> Any:
            """Return the places that the elements of the results had; the operands share them on the way back."""

            def of(x: Taped) -> Any:
                own_places = np.arange(x.size).reshape(x.plain_shape)
                return numbered[id(x)] + own_places

            return getattr(np, name)(
                *[structure._replace_arrays_by_planes(a, of) for a in operands], **how
            )

        def made(value: object, part: int | None) -> Any:
            def pull(x: Taped) -> Pull:
                return lambda g: _of_range(
                    self.under,
                    g,
                    places() if part is None else places()[part],
                    numbered[id(x)],
                    x.plain_shape,
                )

            distinct = dict(zip(map(id, arrays), arrays, strict=True))
            return self.kind(
                value,
                # An array that occurs twice is one source: its places collect both shares.
                [(x, pull(x)) for x in distinct.values()],
            )

        result = getattr(self.under, name)(
            *[structure._replace_arrays_by_planes(a, _strip_tape_from_array) for a in operands],
            **how,
        )
        return (
            [made(r, i) for i, r in enumerate(result)]
            if isinstance(result, list | tuple)
            else made(result, None)
        )

    def tril(self, x: Any, k: int = 0) -> Any:
        visible = np.tri(x.shape[-2], x.shape[-1], k) > 0
        return self.where(visible, x, 0)

    def triu(self, x: Any, k: int = 0) -> Any:
        above = np.tri(x.shape[-2], x.shape[-1], k - 1)
        visible = above == 0
        return self.where(visible, x, 0)

    # -- functions with arguments other than arrays -------------------------------------------------------------------
    def asarray(self, x: object, dtype: object = None, **how: object) -> Any:
        return (
            self.astype(x, dtype)
            if isinstance(x, Taped)
            else self._apply_constant_function("asarray", x, dtype=dtype, **how)
        )

    array = asarray

    def astype(self, x: object, dtype: Any, **_: object) -> Any:
        """Cast the array, and its gradient back; booleans and integers are constants."""
        if not isinstance(x, Taped):
            return self._apply_constant_function("astype", x, dtype)
        # Without another type nothing is recorded.
        if dtype is None or dtype == x.dtype:
            return x
        value, back = self.under.astype(x.value, dtype), x.dtype
        # Integers have no gradient.
        if np.dtype(dtype).kind in "biu":
            return value
        return self.kind(value, [(x, lambda g: self.under.astype(g, back))])

    def full(self, shape: object, fill_value: object, dtype: object = None, **_: object) -> Any:
        # The fill value may be a variable, whose gradient is the sum over all places.
        if isinstance(fill_value, Taped):
            return self.broadcast_to(fill_value, shape)
        return self._apply_constant_function("full", shape, fill_value, dtype=dtype)

    def pow(self, x: Any, exponent: Any) -> Any:
        """Return x to the power of a number."""
        # The slope in the exponent needs log x, which fails at x ≤ 0.
        if isinstance(exponent, Taped):
            raise Refused(f"{self.kind.name}: a power with an array in the exponent")
        x, xp = self.kind.of(x), self.under

        def pull(g: Any) -> Any:
            return (
                # The slopes of x¹ and x⁰ need no power: x⁻¹ would fail at x = 0.
                g
                if exponent == 1
                else g * exponent * xp.pow(x.value, exponent - 1)
                if exponent
                else 0 * g
            )

        return self.kind(xp.pow(x.value, exponent), [(x, pull)])


def _strip_tape_from_array(x: object) -> Any:
    return x.value if isinstance(x, Taped) else x


def _of_range(xp: Functions, g: Any, places: np.ndarray, start: int, shape: tuple[int, ...]) -> Any:
    """Return the part of g that belongs to the array of this shape whose elements are numbered from ``start`` on."""
    flat, size = np.reshape(places, -1), prod(shape)
    # With one operand all places are its own, and no search is needed.
    if start == 0 and flat.size and flat.max() < size:  # no element is another array's
        return scattered(xp, g, flat, shape)
    mine = np.flatnonzero((flat >= start) & (flat < start + size))
    own_slopes = xp.take(xp.reshape(g, (-1,)), mine, axis=0)
    return scattered(xp, own_slopes, flat[mine] - start, shape)

"""How gradients are pulled back through functions: the rules of ``tape``, as functions of plain arrays of any kind.

g is the gradient of the result y, xp the namespace of all arrays. Source: A. Griewank, A. Walther (2008), §3.2 and
table 5.3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from symattn.arrays.array import Array, Functions
from symattn.arrays.functions import FUNCTIONS
from symattn.document.errors import Undecided

Rule = Callable[..., Any]


def _replace_forbidden_by_zero(xp: Functions, x: Array) -> Any:
    """Return x with 0 in place of −∞, as a forbidden score has no gradient."""
    return xp.where(xp.isneginf(x), 0, x) if np.shape(x) else x


def _pass_gradient_unchanged(xp: object, g: object, y: object, *_: object) -> Any:
    return g


#: For each function, the rule of each of its operands: (xp, g, y, operands …) → the gradient, in the shape of y.
ELEMENTWISE: dict[str, tuple[Rule, ...]] = {
    "add": (_pass_gradient_unchanged, _pass_gradient_unchanged),
    "subtract": (_pass_gradient_unchanged, lambda xp, g, y, a, b: -g),
    "multiply": (
        lambda xp, g, y, a, b: g * _replace_forbidden_by_zero(xp, b),
        lambda xp, g, y, a, b: g * _replace_forbidden_by_zero(xp, a),
    ),
    "divide": (
        lambda xp, g, y, a, b: g / b,
        lambda xp, g, y, a, b: -(g * _replace_forbidden_by_zero(xp, y)) / b,
    ),
    "negative": (lambda xp, g, y, a: -g,),
    "positive": (_pass_gradient_unchanged,),
    "square": (lambda xp, g, y, a: 2 * (g * a),),
    "reciprocal": (lambda xp, g, y, a: -(g * y * y),),
    "exp2": (lambda xp, g, y, a: g * y * xp.log(xp.asarray(2, dtype=a.dtype)),),
    "log2": (lambda xp, g, y, a: g / (a * xp.log(xp.asarray(2, dtype=a.dtype))),),
    "expm1": (lambda xp, g, y, a: g * (y + 1),),
    "log1p": (lambda xp, g, y, a: g / (1 + a),),
    **{
        name: (lambda xp, g, y, a, slope=function.slope: g * slope(xp, a, y),)
        for name, function in FUNCTIONS.items()
    },
    "where": (
        _pass_gradient_unchanged,
        lambda xp, g, y, c, a, b: xp.where(c, g, 0),
        lambda xp, g, y, c, a, b: xp.where(c, 0, g),
    ),
}


def to_shape(xp: Functions, g: Array, shape: tuple[int, ...]) -> Any:
    """Sum g over the axes along which an array of ``shape`` was broadcast."""
    extra = len(g.shape) - len(shape)
    # Axes of length 1 that the operation broadcast.
    wide = [
        axis for axis, length in enumerate(shape, start=extra) if length == 1 and g.shape[axis] != 1
    ]
    if not extra and not wide:
        return g
    summed_axes = (*range(extra), *wide)
    return xp.reshape(xp.sum(g, axis=summed_axes), shape)


def spread(xp: Functions, g: Array, shape: tuple[int, ...], axis: Any) -> Any:
    """Return the gradient of each summand of a sum over ``axis``, in the shape of the summands."""
    axes = (
        range(len(shape))
        if axis is None
        else (axis,)
        if isinstance(axis, int | np.integer)
        else axis
    )
    # Negative axes count from the end.
    summed = {k % len(shape) for k in axes}
    with_ones = [1 if k in summed else n for k, n in enumerate(shape)]
    return xp.broadcast_to(xp.reshape(g, with_ones), shape)


def scattered(xp: Functions, g: Array, places: Any, shape: tuple[int, ...]) -> Any:
    """Sum the elements of g that were taken from each place of an array; ``places`` are flat indices into it."""
    size = prod(shape)
    flat = xp.reshape(g, (-1,))
    taken = np.reshape(places, -1)
    if not taken.size:
        return xp.zeros(shape, dtype=g.dtype)
    times = np.bincount(taken, minlength=size)
    # Each place is read at most once: the gradient is moved, and nothing is added.
    if times.max() == 1:
        order = np.zeros(size, dtype=int)
        order[taken] = np.arange(taken.size)
        result = xp.take(flat, order, axis=0)
        everywhere = result if taken.size == size else xp.where(times > 0, result, 0)
        return xp.reshape(everywhere, shape)
    # the first times₀ elements go to one place, the next times₁ to the next
    order = np.argsort(taken, kind="stable")
    # As in a broadcast: equal numbers of readers are summed along an axis.
    if times.min() == times.max():
        rows = xp.reshape(xp.take(flat, order, axis=0), (times.size, -1))
        return xp.reshape(xp.sum(rows, axis=1), shape)
    first = np.cumsum(times) - times
    turns = [
        # No assignment by index, which not all kinds have: the t-th readers of all places at once.
        xp.where(times > t, xp.take(flat, order[np.where(times > t, first + t, 0)], axis=0), 0)
        for t in range(times.max())
    ]
    return xp.reshape(reduce(lambda a, b: a + b, turns), shape)


def of_maximum(kind: Any, g: Array, top: Array, x: Array, axes: Any) -> Any:
    """Return the gradient of a maximum for each of the candidates x; g and the maximum ``top`` have the reduced axes.

    If g is 0, as at the maximum that softmax subtracts, nothing is compared. A single largest candidate gets all. For
    equal ones the derivative is not unique: decided kinds refuse, or the last one gets it if ``ties`` says so, as on
    floats. If balls overlap (or rounding may decide), every candidate that may be the largest gets [0, 1] g, which
    encloses all derivatives. If all are forbidden, the gradient is 0.
    """
    xp = kind.under
    # A row without keys has no gradient.
    g = xp.where(xp.isneginf(top), 0, g)
    # Comparing the candidates may be undecided, and needless here.
    if _is_gradient_zero(xp, g):
        return xp.broadcast_to(0 * g, np.shape(x))
    if getattr(getattr(xp, "kind", None), "name", "").partition(" ")[0] in (
        "ball",
        "rounded",
        "enclosure",
    ):
        # Elements are ranges of numbers, so it may be open which one is the largest.
        return g * _shares_of_row_maximum(xp, x, top, axes)
    # Candidates are elements, so the largest equals the maximum exactly.
    reaches_top = np.asarray(xp.equal(x, top))
    largest = reaches_top & np.ones(np.shape(x), dtype=bool)
    if kind.ties == "refuse" and _is_namespace_exact(xp):
        tied = np.sum(largest, axis=axes, keepdims=True) > 1
        if not _is_gradient_zero(xp, xp.where(tied, g, 0)):
            raise Undecided(
                f"{kind.name}: a maximum of equals has no one gradient; hint: ties='second', or move it"
            )
    return xp.where(_pick_last_tied_maximum(largest, axes), g, 0)


def _is_gradient_zero(xp: Any, g: Array) -> bool:
    try:
        return bool(np.all(xp.equal(g, 0)))
    # A gradient that may be 0 is treated as one that is not.
    except Undecided:
        return False


def _is_namespace_exact(xp: Any) -> bool:
    """Return whether equality is that of exact numbers, not of rounded ones."""
    from symattn.arrays.entries import Entries

    return isinstance(getattr(xp, "kind", None), type) and issubclass(xp.kind, Entries)


def _pick_last_tied_maximum(largest: np.ndarray, axes: Any) -> np.ndarray:
    """Return one True for each maximum: the last one in the order of the axes."""
    axes = (axes,) if isinstance(axes, int | np.integer) else tuple(axes)
    if np.count_nonzero(largest, axis=axes).max(initial=0) <= 1:  # no ties, as mostly
        return largest
    front = np.moveaxis(largest, axes, range(len(axes)))
    rows = front.reshape(-1, *front.shape[len(axes) :])
    alone = rows & (np.cumsum(rows[::-1], axis=0)[::-1] == 1)
    return np.moveaxis(alone.reshape(front.shape), range(len(axes)), axes)


def _shares_of_row_maximum(xp: Functions, x: Array, top: object, axes: object) -> Any:
    """Return for each element 1 if it is the largest, 0 if another is larger, else [0, 1]."""
    wide = xp.broadcast_to(top, np.shape(x))
    finite = ~np.asarray(xp.isneginf(x))
    may = finite & np.ones(np.shape(x), dtype=bool)
    if hasattr(xp.kind, "may_reach"):
        return _of_candidates(xp, may & xp.kind.may_reach(x, wide), axes)
    # Element by element, because one undecided comparison would stop all.
    for index in zip(*np.nonzero(may), strict=True):
        try:
            may[index] = not xp.less(x[index], wide[index])
        except Undecided:
            may[index] = True
    return _of_candidates(xp, may, axes)


def _of_candidates(xp: Any, may: np.ndarray, axes: Any) -> Any:
    """Return 1 for the only element that may be the largest, or [0, 1] for each of several."""
    import flint

    alone = np.sum(may, axis=axes, keepdims=True) == 1
    # The ball [0, 1] encloses every share of a tie.
    open_ = xp.kind.lift(flint.arb(0.5, 0.5))
    return xp.where(may, xp.where(np.broadcast_to(alone, may.shape), 1, open_), 0)

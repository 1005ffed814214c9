"""The table of operations: every public name of the namespace and of arrays, with inputs that tell mistakes apart.

A row is a small program ``run(xp, *arrays)``; the same program runs on every kind and on the reference. Entries are
dyadic and short, so that every format holds them exactly. Sizes differ, so that no transposition goes unseen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.arrays.reference import Magnitude, Reference, wide_all

A = [[1, -0.5, 2], [3, 0.25, -1.5]]
B = [[0.5, 2, 1.25], [1, 3, 0.75]]
ROW = [[2, -1, 0.5]]
COLUMN = [[1.5], [-3]]
M = [[1, 2, -1, 0.5], [0, -2, 3, 1], [1.5, 1, -0.5, -3]]
VECTOR = [2, -0.5, 1]
SQUARE = [[1, 2, 3], [-1, 0.5, 2.5], [-2, 0.75, 1.25]]
STACK = [[[1, -2, 0.5, 3], [0.25, 1, 2, -1], [2, 2, -3, 0.5]], [[-1, 0.75, 1, 2], [3, 1, -0.5, 1], [1.5, -1, 0, 2]]]
TIES = [[2, 1, 2, 0.5], [-1, 3, 3, -2]]
MASK = np.array([[True, False, True], [False, True, True]])
NONE = np.zeros((0, 3))


@dataclass(frozen=True)
class Case:
    """One program. ``roundings``: of the longest path in floating point, 0 if elements are only moved or compared.

    ``cancels``: errors are relative to Σ|x|, not to the result. ``once``: a stored format rounds the whole once.
    ``dispatch``: the program also runs with NumPy's functions in the place of the namespace's.
    """

    run: Callable[..., Any]
    inputs: tuple[Any, ...]
    roundings: int = 1
    cancels: bool = False
    once: bool = True
    dispatch: bool = True
    reference: Callable[..., Any] | None = None
    magnitude: Callable[..., Any] | None = None


TABLE: dict[str, list[Case]] = {}
#: Rows whose results depend on the order of numbers, or on the truth of a comparison.
OF_ORDER = (
    *("less", "less_equal", "greater", "greater_equal", "<", "<=", ">", ">=", "sort", "sort descending", "sign"),
    *("argsort", "argmax", "argmin", "Array.argmax", "Array.argmin", "any", "all"),
    *("logical_not", "logical_and", "logical_or"),
)


def _deviation(a: Any, **how: Any) -> Any:
    """What errors of a standard deviation √v are relative to: an error of v, divided by √v."""
    return wide_all(Magnitude().var(abs(a), **how)) / Reference().std(a, **how)


def row(name: str, run: Callable[..., Any], *inputs: Any, **facts: Any) -> None:
    TABLE.setdefault(name, []).append(Case(run, inputs, **facts))


def moves(name: str, run: Callable[..., Any], *inputs: Any, **facts: Any) -> None:
    """A row whose elements are only moved, chosen or compared."""
    row(name, run, *inputs, roundings=0, **facts)


# -- elementwise: rational --------------------------------------------------------------------------------------------
for _name in ("add", "subtract", "multiply", "divide"):
    for _left, _right in ((A, B), (A, ROW[0]), (COLUMN, B), (2, B), (STACK, [[1, -2, 3, 0.5]] * 3), (NONE, ROW)):
        row(_name, lambda xp, a, b, f=_name: getattr(xp, f)(a, b), _left, _right)
    row(_name, lambda xp, a, f=_name: getattr(xp, f)(a, 0.5), A)
    row(_name, lambda xp, a, f=_name: getattr(xp, f)(3, a), B)
for _name in ("negative", "positive", "abs", "sign"):
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a), A)
moves("sign", lambda xp, a: xp.sign(xp.where(MASK, a - 2, -np.inf)), A)
row("square", lambda xp, a: xp.square(a), A)
row("reciprocal", lambda xp, a: xp.reciprocal(a), B)
for _power in (2, 3, 1, 0, -1, -2):
    row("pow", lambda xp, a, p=_power: xp.pow(a, p), A, roundings=4)
for _power in (0.5, -0.5, 1.5):
    row("pow", lambda xp, a, p=_power: xp.pow(a, p), B, roundings=8)
for _name in ("maximum", "minimum"):
    moves(_name, lambda xp, a, b, f=_name: getattr(xp, f)(a, b), A, ROW)
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a, 0.5), A)
moves("clip", lambda xp, a: xp.clip(a, -1, 1.5), A)
moves("clip", lambda xp, a: xp.clip(a, None, 1), A)
moves("clip", lambda xp, a, low: xp.clip(a, low, 2), A, ROW)

# -- elementwise: elementary functions, which NumPy promises within 4 units in the last place -------------------------
for _name in ("exp", "exp2", "expm1", "tanh", "erf", "cos", "sin"):
    for _data in (A, 0.5):
        row(_name, lambda xp, a, f=_name: getattr(xp, f)(a), _data, roundings=8, dispatch=_name != "erf")
for _name in ("log", "log2", "log1p", "sqrt"):
    row(_name, lambda xp, a, f=_name: getattr(xp, f)(a), B, roundings=8)
    row(_name, lambda xp, a, f=_name: getattr(xp, f)(a), NONE, roundings=8)

# -- comparisons ------------------------------------------------------------------------------------------------------
for _name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
    moves(_name, lambda xp, a, b, f=_name: getattr(xp, f)(a, b), TIES, [[2, 3, 2, -2]])
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a, 2), TIES)
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(0.5, a), TIES)
for _name in ("isfinite", "isinf", "isneginf", "isnan"):
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a), A)
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(xp.where(MASK, a, -np.inf)), A)
moves("logical_not", lambda xp, a: xp.logical_not(a > 0), A)
moves("logical_and", lambda xp, a: xp.logical_and(a > 0, xp.asarray(MASK, dtype=xp.bool)), A)
moves("logical_or", lambda xp, a: xp.logical_or(xp.asarray(MASK, dtype=xp.bool), a > 2), A)
moves("where", lambda xp, a, b: xp.where(xp.asarray(MASK, dtype=xp.bool), a, b), A, ROW)
moves("where", lambda xp, a: xp.where(MASK, a, 0), A)
moves("where", lambda xp, a: xp.where(MASK[0], -1, a), A)
moves("where", lambda xp, a: xp.where(MASK, a, -np.inf), A)
moves("where", lambda xp, a: xp.where(MASK.tolist(), a, 2), 0.5)

# -- structure: elements are moved ------------------------------------------------------------------------------------
for _shape in ((4, 6), (2, -1), (-1,), (2, 1, 12)):
    moves("reshape", lambda xp, a, s=_shape: xp.reshape(a, s), STACK)
for _name in ("permute_dims", "transpose"):
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a, (2, 0, 1)), STACK)
moves("transpose", lambda xp, a: xp.transpose(a), STACK)
moves("matrix_transpose", lambda xp, a: xp.matrix_transpose(a), STACK)
moves("swapaxes", lambda xp, a: xp.swapaxes(a, 0, -1), STACK)
moves("moveaxis", lambda xp, a: xp.moveaxis(a, -1, 0), STACK)
moves("squeeze", lambda xp, a: xp.squeeze(a, axis=0), ROW)
moves("squeeze", lambda xp, a: xp.squeeze(a, axis=(0, 1)), [[4]])
moves("expand_dims", lambda xp, a: xp.expand_dims(a, axis=-1), A)
moves("expand_dims", lambda xp, a: xp.expand_dims(a, axis=(0, 2)), A)
moves("broadcast_to", lambda xp, a: xp.broadcast_to(a, (2, 2, 3)), A)
moves("broadcast_to", lambda xp, a: xp.broadcast_to(a, (2, 2)), 3)
for _name in ("concat", "concatenate"):
    moves(_name, lambda xp, a, b, f=_name: getattr(xp, f)([a, b], axis=-1), A, COLUMN)
    moves(_name, lambda xp, a, b, f=_name: getattr(xp, f)((a, b)), A, ROW)
moves("concat", lambda xp, a: xp.concat([a, np.int8(2) * MASK]), A)
moves("concat", lambda xp, a, b: xp.concat([a, b]), NONE, ROW)
moves("stack", lambda xp, a, b: xp.stack([a, b], axis=1), A, B)
moves("stack", lambda xp, a: xp.stack([a, np.int8(2) * MASK], axis=-1), A)
moves("unstack", lambda xp, a: xp.unstack(a, axis=1), A)
moves("split", lambda xp, a: xp.split(a, 2, axis=-1), STACK)
moves("split", lambda xp, a: xp.split(a, [1, 3], axis=2), STACK)
moves("array_split", lambda xp, a: xp.array_split(a, 3, axis=-1), STACK)
moves("flip", lambda xp, a: xp.flip(a, axis=1), STACK)
moves("flip", lambda xp, a: xp.flip(a), A)
moves("roll", lambda xp, a: xp.roll(a, 1, axis=-1), A)
moves("roll", lambda xp, a: xp.roll(a, -2), A)
moves("repeat", lambda xp, a: xp.repeat(a, 2, axis=0), A)
moves("repeat", lambda xp, a: xp.repeat(a, 3), VECTOR)
moves("tile", lambda xp, a: xp.tile(a, (2, 1, 2)), A)
moves("take", lambda xp, a: xp.take(a, xp.asarray([2, 0], dtype=xp.int64), axis=1), A)
moves("take", lambda xp, a: xp.take(a, 1, axis=0), A)
moves("take_along_axis", lambda xp, a: xp.take_along_axis(a, xp.asarray([[2, 0], [1, 1]], dtype=xp.int64), axis=1), A)
moves("ravel", lambda xp, a: xp.ravel(a), STACK)
moves("diagonal", lambda xp, a: xp.diagonal(a, 0, 1, 2), STACK)
moves("diagonal", lambda xp, a: xp.diagonal(a, 1), SQUARE)
moves("vstack", lambda xp, a, b: xp.vstack([a, b]), A, VECTOR)
moves("hstack", lambda xp, a, b: xp.hstack([a, b]), A, COLUMN)
moves("atleast_1d", lambda xp, a: xp.atleast_1d(a), 2)
moves("atleast_2d", lambda xp, a: xp.atleast_2d(a), VECTOR)
moves("delete", lambda xp, a: xp.delete(a, 1, axis=1), A)
moves("append", lambda xp, a, b: xp.append(a, b, axis=0), A, ROW)

# -- reductions -------------------------------------------------------------------------------------------------------
_AXES: tuple[dict[str, Any], ...] = ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, -1)}, {"axis": ()})
for _how in (*_AXES, {"axis": (2, 0), "keepdims": True}, {"keepdims": True}):
    for _name in ("sum", "mean"):
        row(_name, lambda xp, a, f=_name, h=_how: getattr(xp, f)(a, **h), STACK, roundings=25, cancels=True)
    for _name in ("max", "min", "amax", "amin"):
        moves(_name, lambda xp, a, f=_name, h=_how: getattr(xp, f)(a, **h), STACK)
    row("prod", lambda xp, a, h=_how: xp.prod(a, **h), [STACK[0][:2], STACK[1][:2]], roundings=16)
row("sum", lambda xp, a: xp.sum(a, axis=0), NONE)
row("sum", lambda xp, a: xp.sum(a), 2.5)
row("prod", lambda xp, a: xp.prod(a, axis=0), NONE)
moves("max", lambda xp, a: xp.max(a, axis=1), NONE)
moves("max", lambda xp, a: xp.max(a, axis=-1, keepdims=True), STACK)
moves("max", lambda xp, a: xp.max(xp.where(MASK, a, -np.inf), axis=0), A)
moves("max", lambda xp, a: xp.max(xp.where(False, a, -np.inf), axis=-1), A)
for _facts in ({"axis": -1}, {"axis": 0, "keepdims": True}, {"axis": (0, 1)}, {}):
    row("var", lambda xp, a, h=_facts: xp.var(a, **h), A, roundings=12, cancels=True)
    row(
        "std", lambda xp, a, h=_facts: xp.std(a, **h), A, roundings=12, magnitude=lambda a, h=_facts: _deviation(a, **h)
    )
row("var", lambda xp, a: xp.var(a, axis=1, correction=1), A, roundings=12, cancels=True)
row("var", lambda xp, a: xp.var(a, axis=1, ddof=1), A, roundings=12, cancels=True)
for _name in ("cumulative_sum", "cumsum"):
    row(_name, lambda xp, a, f=_name: getattr(xp, f)(a, axis=1), STACK, roundings=3, cancels=True)
    row(_name, lambda xp, a, f=_name: getattr(xp, f)(a, axis=-1), STACK, roundings=3, cancels=True)
    row(_name, lambda xp, a, f=_name: getattr(xp, f)(a), VECTOR, roundings=3, cancels=True)
for _name in ("any", "all"):
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a > 0), A)
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a > 0, axis=-1, keepdims=True), STACK)
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a > 0, axis=0), NONE)
moves("sort", lambda xp, a: xp.sort(a), TIES)
moves("sort", lambda xp, a: xp.sort(a, axis=0), STACK)
moves(
    "sort descending",
    lambda xp, a: xp.sort(a, axis=1, descending=True),
    STACK,
    dispatch=False,
    reference=lambda R, a: -np.sort(-a, axis=1),
)
for _name in ("argsort", "argmax", "argmin"):
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a, axis=0), M)
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a, axis=-1), M)
moves("argsort", lambda xp, a: xp.argsort(a, stable=True), TIES, reference=lambda R, a: np.argsort(a, kind="stable"))
for _name in ("argmax", "argmin"):
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a), TIES)
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a, axis=1, keepdims=True), TIES)

# -- creation ---------------------------------------------------------------------------------------------------------
for _name, _arguments in {
    "zeros": ((2, 3),),
    "ones": (3,),
    "eye": (3, 4),
    "tri": (3, 4, 1),
    "full": ((2, 2), -1.5),
}.items():
    moves(_name, lambda xp, a, f=_name, x=_arguments: getattr(xp, f)(*x, dtype=a.dtype) + a, 0, dispatch=False)
    moves(_name, lambda xp, a, f=_name, x=_arguments: getattr(xp, f)(*x, dtype=bool), 0, dispatch=False)
moves("empty", lambda xp, a: xp.empty((2, 3)).shape, 0, dispatch=False)
moves("full", lambda xp, a: xp.full((2, 2), a), 1.5, dispatch=False, reference=lambda R, a: np.full((2, 2), a[()]))
moves("arange", lambda xp, a: xp.arange(2, 7, 2), 0, dispatch=False)
for _name in ("zeros_like", "ones_like"):
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a) + a, A)
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a, dtype=bool), A)
moves("empty_like", lambda xp, a: xp.empty_like(a).shape, A)
moves("full_like", lambda xp, a: xp.full_like(a, -2) + 0 * a, A)
moves("full_like", lambda xp, a: xp.full_like(a, True, dtype=bool), A)
for _name in ("asarray", "array"):
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(a), A, dispatch=False)
    moves(_name, lambda xp, a, f=_name: a + getattr(xp, f)([[1, 2, 3]], dtype=a.dtype), A, dispatch=False)
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)([1, 0], dtype=xp.bool), 0, dispatch=False)
moves("astype", lambda xp, a: xp.astype(a, a.dtype), A, dispatch=False)
moves("astype", lambda xp, a: xp.astype(a, bool), STACK, dispatch=False)
moves("astype", lambda xp, a: xp.astype(MASK, a.dtype) + 0 * a, A, dispatch=False)
for _name in ("tril", "triu"):
    for _k in (0, 1, -1):
        moves(_name, lambda xp, a, f=_name, k=_k: getattr(xp, f)(a, k=k), STACK)
    moves(_name, lambda xp, a, f=_name: getattr(xp, f)(xp.ones((3, 3), dtype=a.dtype)) + a, SQUARE, dispatch=False)
moves("shape", lambda xp, a: xp.shape(a), STACK)
moves("ndim", lambda xp, a: xp.ndim(a), STACK)
moves("size", lambda xp, a: (xp.size(a), xp.size(a, 1)), STACK)
moves("isdtype", lambda xp, a: xp.isdtype(np.dtype(bool), "bool"), A)
for _name in ("pi", "e", "inf"):
    moves(_name, lambda xp, a, f=_name: getattr(xp, f), A)
moves("nan", lambda xp, a: np.isnan(xp.nan), A)
moves("newaxis", lambda xp, a: a[xp.newaxis], A)
moves("bool", lambda xp, a: np.dtype(xp.bool).kind, A)
moves("int64", lambda xp, a: np.dtype(xp.int64).kind, A)
for _name in ("float32", "float64"):
    moves(_name, lambda xp, a, f=_name: np.dtype(getattr(xp, f)).kind, A, reference=lambda R, a: "f")

# -- linear -----------------------------------------------------------------------------------------------------------
_products = (
    (A, M), (VECTOR, M), (A, VECTOR), (VECTOR, VECTOR), (STACK, [[1], [2], [0.5], [-1]]), (SQUARE, STACK),
    (STACK, [[[1, 2]] * 4, [[3, -1]] * 4]), ([STACK], [[[1, 0.5]] * 4]), (NONE, M), (np.zeros((2, 0)), NONE),
)  # fmt: skip
for _left, _right in _products:
    row("matmul", lambda xp, a, b: xp.matmul(a, b), _left, _right, roundings=4, cancels=True)
for _left, _right in ((A, M), (VECTOR, VECTOR), (STACK, [[1], [2], [0.5], [-1]]), (A, 2), (3, STACK)):
    row("dot", lambda xp, a, b: xp.dot(a, b), _left, _right, roundings=4, cancels=True)
row("vecdot", lambda xp, a, b: xp.vecdot(a, b), A, B, roundings=3, cancels=True)
row("vecdot", lambda xp, a, b: xp.vecdot(a, b, axis=-2), SQUARE, [*B, [1, 1, 2]], roundings=3, cancels=True)
row("outer", lambda xp, a, b: xp.outer(a, b), VECTOR, [1, 2, 0.25, -1])
row("outer", lambda xp, a, b: xp.outer(a, b), A, COLUMN)
for _spec, _arrays in {
    "ij,jk->ik": (A, M),
    "ij,kj->ik": (A, B),
    "ij,kj": (A, B),
    "hid,hjd->hij": (STACK, STACK),
    "...id,...jd->...ij": (STACK, STACK),
    "...ij,jk->...ik": (STACK, [[1, 2]] * 4),
    "i,j->ij": (VECTOR, VECTOR),
    "ij->ji": (A,),
    "ij->": (A,),
    "ij->i": (A,),
    "ii->i": (SQUARE,),
    "ii": (SQUARE,),
    "i,ij,j->": (VECTOR, SQUARE, VECTOR),
}.items():
    row("einsum", lambda xp, *a, s=_spec: xp.einsum(s, *a), *_arrays, roundings=12, cancels=True, once=len(_arrays) < 3)

# -- operators, methods and properties of arrays ----------------------------------------------------------------------
row("+", lambda xp, a, b: (a + b) + 1, A, ROW, roundings=2, cancels=True, once=False)
row("-", lambda xp, a, b: 1 - (a - b), A, ROW, roundings=2, once=False, magnitude=lambda a, b: 1 + abs(a) + abs(b))
row("*", lambda xp, a, b: 2 * (a * b), A, COLUMN)
row("/", lambda xp, a, b: a / b, A, B)
row("/", lambda xp, a: 2 / a, B)
row("**", lambda xp, a: a**2, A)
row("**", lambda xp, a: a**0.5, B, roundings=8, reference=lambda R, a: R.sqrt(a))
row("@", lambda xp, a, b: a @ b, A, M, roundings=4, cancels=True)
row("@", lambda xp, b: b.mT @ b, A, roundings=4, cancels=True)
for _sign, _f in {
    "<": lambda xp, a, b: a < b,
    "<=": lambda xp, a, b: a <= b,
    ">": lambda xp, a, b: a > b,
    ">=": lambda xp, a, b: a >= b,
    "==": lambda xp, a, b: a == b,
    "!=": lambda xp, a, b: a != b,
}.items():
    moves(_sign, _f, TIES, [[2, 3, 2, -2]])
moves("unary", lambda xp, a: -(+a), A)
moves("unary", lambda xp, a: abs(a), A)
row("Array.sum", lambda xp, a: a.sum(axis=(0, -1), keepdims=True), STACK, roundings=25, cancels=True)
row("Array.sum", lambda xp, a: a.sum(-1), STACK, roundings=25, cancels=True)
row("Array.prod", lambda xp, a: a.prod(axis=0), A)
row("Array.mean", lambda xp, a: a.mean(-1), STACK, roundings=25, cancels=True, reference=lambda R, a: R.mean(a, -1))
row("Array.var", lambda xp, a: a.var(axis=0), A, roundings=12, cancels=True, reference=lambda R, a: R.var(a, axis=0))
row(
    "Array.std",
    lambda xp, a: a.std(axis=0),
    A,
    roundings=12,
    reference=lambda R, a: R.std(a, axis=0),
    magnitude=lambda a: _deviation(a, axis=0),
)
moves("Array.max", lambda xp, a: a.max(-1, keepdims=True), STACK)
moves("Array.min", lambda xp, a: a.min(axis=(0, 1)), STACK)
moves("Array.any", lambda xp, a: a.any(axis=-1), STACK, reference=lambda R, a: (a != 0).any(axis=-1))
moves("Array.all", lambda xp, a: a.all(axis=-1), STACK, reference=lambda R, a: (a != 0).all(axis=-1))
moves("Array.argmax", lambda xp, a: a.argmax(axis=1), TIES)
moves("Array.argmin", lambda xp, a: a.argmin(), TIES)
row("Array.cumsum", lambda xp, a: a.cumsum(axis=1), STACK, roundings=3, cancels=True)
moves("Array.squeeze", lambda xp, a: a.squeeze(), ROW)
moves("Array.swapaxes", lambda xp, a: a.swapaxes(-1, -3), STACK)
moves("Array.repeat", lambda xp, a: a.repeat(2, axis=1), A)
moves("Array.flatten", lambda xp, a: a.flatten(), STACK)
moves("Array.ravel", lambda xp, a: a.ravel(), STACK)
row("Array.dot", lambda xp, a, b: a.dot(b), A, M, roundings=4, cancels=True)
moves("Array.ndim", lambda xp, a: a.ndim, STACK)
moves("Array.shape", lambda xp, a: a.shape, STACK)
moves("Array.size", lambda xp, a: a.size, STACK)
moves("Array.dtype", lambda xp, a: float(np.asarray(0.5).astype(a.dtype)), A)
moves("Array.mT", lambda xp, a: a.mT, STACK)
moves("Array.T", lambda xp, a: a.T, STACK)
moves("Array.transpose", lambda xp, a: a.transpose(1, 0, 2), STACK)
moves("Array.transpose", lambda xp, a: a.transpose((1, 0, 2)).transpose(), STACK)
moves("Array.reshape", lambda xp, a: a.reshape(4, -1), STACK)
moves("Array.reshape", lambda xp, a: a.reshape((6, 4)), STACK)
moves("Array.astype", lambda xp, a: a.astype(a.dtype), A)
moves("Array.copy", lambda xp, a: a.copy(), A)
moves("len", lambda xp, a: (len(a), [x.shape for x in a]), STACK)

# -- indexing ---------------------------------------------------------------------------------------------------------
_INDICES: tuple[Any, ...] = (
    1, -1, (0, 2), (slice(None), 1), (slice(None, None, -1), ..., slice(1, 3)), (..., None), (None, 0, ..., -1), (...,),
    ([1, 0],), (np.array([1, 1, 0]), 0), (0, slice(None), np.array([[0, 1], [2, 3]])), (slice(0, 0),), (0, 1, 2),
    np.arange(24).reshape(2, 3, 4) % 3 == 0, (np.array([True, False]),),
)  # fmt: skip
for _index in _INDICES:
    moves("[]", lambda xp, a, i=_index: a[i], STACK)

# -- assignment and programs in place ---------------------------------------------------------------------------------
for _index in _INDICES[:-6]:
    moves("[]=", lambda xp, a, i=_index: _put(a, i, 7), STACK)
    moves("[]=", lambda xp, a, i=_index: _put(a, i, a[i] * 2), STACK)
moves("[]=", lambda xp, a, b: _put(a, slice(None), b), A, ROW)
moves("[]=", lambda xp, a: _put(a, MASK, -np.inf), A)
moves("[]=", lambda xp, a: _put(a, (0, slice(1, None)), [3, -1]), A)


def _put(a: Any, index: Any, value: Any) -> Any:
    a = a.copy()
    a[index] = value
    return a

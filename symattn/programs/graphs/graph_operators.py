"""Operators as array code on any kind of array: elementwise ones, those that move elements, and those of attention.

A function takes the context and then the operands; plain ones (NumPy's booleans and whole numbers, sizes) stay plain.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.notes import note
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.errors import InputError, Refused
from symattn.programs.graphs.values import (
    Context,
    Joined,
    Rule,
    Value,
    are_booleans,
    are_whole,
    check_wide,
    is_plain,
    length,
    lengths,
    place,
    root,
    whole,
)

#: Operators that NumPy computes exactly for whole numbers, such as a mask of 0 and 1: they are computed at once.
_EXACT = frozenset(["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
_EXACT |= {"add", "subtract", "multiply"}
#: The operand with which each operator returns its other operand unchanged.
_NEUTRAL = {"add": 0, "multiply": 1}
_LAST = 2**31  # an end of a slice that is at least this means the end of the axis


def table(of: Callable[[str], Value], words: str) -> dict[str, Value]:
    """Return a rule for each ``Own=name``: an operator's name in its language, and its name in the namespace."""
    pairs = (word.partition("=") for word in words.split())
    return {own: of(name) for own, _, name in pairs}


def same(c: Context, x: object, *_: object, **__: object) -> Value:
    """Return ``x`` for an operator that changes no number."""
    return x


def of_lengths(rule: Callable[[Value, Value], Value]) -> Rule:
    """Return an operator of two lengths."""
    return lambda c, a, b: rule(length(a), length(b))


def of_known(what: str, rule: Rule) -> Rule:
    """Return a rule of plain numbers alone, named ``what`` if numbers that the inputs decide are refused."""

    def run(c: Context, *arrays: Value, **parameters: Value) -> Value:
        if not all(map(is_plain, arrays)):
            raise InputError(f"{what} of computed numbers is not read")
        return rule(*arrays, **parameters)

    return run


def binary(name: str) -> Rule:
    """Return an operator of two arrays by its name in the namespace.

    0 + 1 · i, as ``jnp.arange`` writes it for an open length, is simplified to i.
    """

    def run(c: Context, a: Value, b: Value) -> Value:
        for one, other in ((a, b), (b, a)):
            if (
                name in _NEUTRAL
                and not is_plain(other)
                and _is_number(one)
                and one == _NEUTRAL[name]
            ):
                return other
        # Joined arrays stay apart under a bias, so that a later split needs no slices of columns.
        if isinstance(a, Joined) and isinstance(b, Joined) and len(a.parts) == len(b.parts):
            pairs = zip(a.parts, b.parts, strict=True)
            return Joined(tuple(run(c, x, y) for x, y in pairs))
        a, b = (x.whole(c) if isinstance(x, Joined) else x for x in (a, b))
        plain = is_plain(a) and is_plain(b)
        in_floats = c.kind is None or c.in_floats
        if plain and (in_floats or not _has_float(a, b) or (name in _EXACT and are_whole(a, b))):
            check_wide(name, a, b)
            if name in _BY_SIGN:
                with np.errstate(invalid="ignore"):  # infinities
                    return _BY_SIGN[name](a, b)
            return getattr(np, {"pow": "power"}.get(name, name))(a, b)
        return getattr(c.xp, name)(c.lifted(a), c.lifted(b))

    return run


def unary(name: str) -> Rule:
    """Return an operator of one array by its name in the namespace."""

    def run(c: Context, a: Value) -> Value:
        # Indices and flags stay integers and booleans.
        if is_plain(a) and name in ("negative", "logical_not", "abs"):
            return getattr(np, name)(a)
        # Angles of positions are the tables of the kind, so that both sides agree exactly.
        if is_plain(a) and c.in_floats and name in ("cos", "sin"):
            return c.kind.tables(name, np.asarray(a, np.float64))
        # Such constants lead to angles, which stay floats.
        if is_plain(a) and c.in_floats and name in ("exp", "log", "exp2", "log2"):
            return getattr(np, name)(np.asarray(a, np.float64))
        return getattr(c.xp, name)(c.lifted(a))

    return run


def _is_number(x: Value) -> bool:
    """Return whether a value is a single plain whole number."""
    return (
        is_plain(x)
        and not isinstance(x, Joined)
        and np.ndim(x) == 0
        and np.asarray(x).dtype.kind in "iu"
    )


def _has_float(*arrays: Value) -> bool:
    return any(
        np.asarray(a, dtype=None if isinstance(a, np.ndarray) else object).dtype.kind == "f"
        or isinstance(a, float)
        for a in arrays
    )


#: Operators by Python's sign, since open sizes overload signs and not NumPy's functions.
_BY_SIGN = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "divide": operator.truediv,
}


divide = binary("divide")


def divide_whole(c: Context, a: Value, b: Value) -> Value:
    """Return a / b; for plain whole numbers the quotient truncated toward zero, as in ONNX.

    Open sizes are not negative, so for them it is the quotient rounded down.
    """
    if is_plain(a) and is_plain(b) and not _has_float(a, b):
        if object in (np.asarray(a).dtype, np.asarray(b).dtype):
            return a // b
        if not np.all(b):
            raise InputError("a whole number is divided by 0")
        # NumPy's quotient rounds down, so absolute values are divided, and the sign is put back.
        sign = np.sign(a) * np.sign(b)
        return np.abs(a) // np.abs(b) * sign
    return binary("divide")(c, a, b)


def power(c: Context, a: Value, b: Value) -> Value:
    """Return a to a power that is a plain number; for plain whole numbers in 64 bits, as in ONNX."""
    both_plain = is_plain(a) and is_plain(b)
    if both_plain and are_whole(a, b) and not _has_float(a, b) and np.all(np.asarray(b) >= 0):
        # An exact power of ten to 10¹⁵ would take all memory before its size is known.
        check_wide("power", a, b)
        return np.power(a, b)
    if both_plain and c.in_floats:
        base, exponent = (np.asarray(x, np.float64) for x in (a, b))
        return np.power(base, exponent)
    if not is_plain(b):
        raise InputError("a power whose exponent is computed is not read")
    is_number = np.asarray(b).dtype != object
    return c.lifted(a) ** (np.asarray(b).item() if is_number else b)


def where(c: Context, condition: Value, a: Value, b: Value) -> Value:
    """Return a where the condition holds, else b."""
    if is_plain(condition) and is_plain(a) and is_plain(b) and not _has_float(a, b):
        return np.where(condition, a, b)
    return c.xp.where(condition, c.lifted(a), c.lifted(b))


def arange(c: Context, start: Value, stop: Value, step: Value = 1) -> Value:
    """Return start, start + step, …, below stop."""
    known = [n for n in (start, stop, step) if is_plain(n) and np.asarray(n).dtype != object]
    if not are_whole(*known) or not all(np.isfinite(n).all() for n in known):
        raise InputError("a range of numbers that are not whole is not read")
    by = whole(step, "the step of a range")
    if by != 1 and not all(isinstance(length(n), int) for n in (start, stop)):
        raise InputError("a range with another step than 1 is read of known ends alone")
    if by != 1:
        return np.arange(length(start), length(stop), by)
    count = length(stop) - length(start)
    if isinstance(count, int):
        return np.arange(count) + length(start)
    # Open ranges of a kind start at 0; any other start is added to the elements.
    first = length(start)
    from_zero = isinstance(first, int) and first == 0
    result = c.xp.arange(length(stop) if from_zero else count)
    return result if from_zero else result + first


def full(c: Context, shape: Value, value: object) -> Value:
    """Return an array of one value; booleans and whole numbers stay plain if its lengths are numbers."""
    wanted = lengths(shape)
    if not is_plain(value):
        return c.xp.broadcast_to(value, wanted)
    numbers = all(isinstance(n, int) for n in wanted)
    plain = np.asarray(value)
    # Plain booleans and whole numbers can serve as masks and places; floats are lifted.
    if numbers and (plain.dtype.kind in "biu" or c.kind is None):
        filling = plain if plain.dtype.kind != "f" else plain.astype(c.dtype)
        return np.full(wanted, filling)
    number = c.lifted(plain if plain.ndim else plain.item())
    return c.xp.broadcast_to(number, wanted)


def triangle(c: Context, x: Value, k: Value = 0, upper: int = 1) -> Value:
    """Keep the entries with j − i ≥ k (upper) or ≤ k (lower); others are 0 or False."""
    k = whole(k, "the diagonal of a triangle")
    i, j = (arange(c, 0, n) for n in x.shape[-2:])
    columns, diagonal = j[None, :], i[:, None] + k
    mask = columns >= diagonal if upper else columns <= diagonal
    if isinstance(x, np.ndarray) and x.dtype == bool:
        return x & mask
    if x.dtype is None:  # letters, which may be booleans
        return x * mask
    return c.xp.where(mask, x, c.lifted(0))


# -- moving ------------------------------------------------------------------------------------------------------------
def transpose(c: Context, x: Array, order: Sequence[int] | None = None) -> Value:
    """Permute the axes; reverse them without an order."""
    every_axis = tuple(range(x.ndim))
    axes = every_axis[::-1] if order is None else tuple(place(k, x.ndim) for k in order)
    if tuple(sorted(axes)) != every_axis:
        raise InputError(f"the order {list(axes)} of {x.ndim} axes")
    return _choose_array_namespace(c, x).permute_dims(x, axes)


def swap(c: Context, x: Array, a: int, b: int) -> Value:
    """Swap two axes."""
    order = list(range(x.ndim))
    a = place(a, x.ndim)
    b = place(b, x.ndim)
    order[a], order[b] = order[b], order[a]
    return transpose(c, x, order)


def reshape(c: Context, x: Value, shape: Value) -> Value:
    """Reshape; −1 is the remaining length."""
    return _choose_array_namespace(c, x).reshape(x, lengths(shape))


def unsqueeze(c: Context, x: Value, axes: object) -> Value:
    """Insert axes of length 1."""
    x = np.asarray(x) if isinstance(x, (int, float)) else x
    # In ascending order, so that each axis counts the ones inserted before it.
    for k in sorted(
        place(n, x.ndim + len(_convert_to_integer_list(axes)))
        for n in _convert_to_integer_list(axes)
    ):
        x = _choose_array_namespace(c, x).expand_dims(x, axis=k)
    return x


def squeeze(c: Context, x: Value, axes: object) -> Value:
    """Remove axes of length 1."""
    # From the last axis on, so that the places of the other axes stay valid.
    for k in sorted((place(n, x.ndim) for n in _convert_to_integer_list(axes)), reverse=True):
        x = _choose_array_namespace(c, x).squeeze(x, axis=k)
    return x


def expand(c: Context, x: Array, shape: Value) -> Value:
    """Broadcast axes of length 1; −1 and 1 keep an axis."""
    wanted = list(lengths(shape))
    further = len(wanted) - x.ndim
    own = [1] * further + [length(n) for n in x.shape]
    remaining = [
        o if isinstance(w, int) and w in (-1, 1) else w for w, o in zip(wanted, own, strict=True)
    ]
    return _choose_array_namespace(c, x).broadcast_to(x, tuple(remaining))


def concat(c: Context, arrays: Sequence[Value], axis: Value = 0) -> Value:
    """Concatenate along an axis; parts of length 0 are left out."""
    # If every part is empty, the first one is the result.
    arrays = [
        a for a in arrays if np.ndim(a) == 0 or length(a.shape[place(axis, a.ndim)]) != 0
    ] or arrays[:1]
    if len(arrays) == 1 and np.ndim(arrays[0]) != 0:
        return arrays[0]
    if all(map(is_plain, arrays)) and not _has_float(*arrays):
        with_axes = [np.atleast_1d(np.asarray(a)) for a in arrays]
        return np.concatenate(with_axes, axis=int(axis))
    lifted = [c.lifted(a) for a in arrays]
    k = place(axis, arrays[0].ndim)
    # sums of products, which cannot be bounds
    by_numbers = any(hasattr(n, "blocks") for n in lifted[0].shape[:1])
    if (
        c.kind is None
        or any(not isinstance(length(a.shape[k]), int) for a in lifted)
        or not by_numbers
    ):
        return c.xp.concat(lifted, axis=k)
    # Fixed lengths, but an axis that is a sum of products: stack the elements one by one.
    return c.xp.stack(
        [one for a in lifted for one in _slice_axis_at_places(a, k, range(int(a.shape[k])))], axis=k
    )


def part(
    c: Context, x: Value, axis: int = 0, start: Value = None, stop: Value = None, step: Value = 1
) -> Value:
    """Return the slice from ``start`` to ``stop`` of an axis."""
    k, by = place(axis, x.ndim), whole(step, "the step of a slice")
    first = length(0 if start is None else start)
    last = length(_LAST if stop is None else stop)
    last = None if isinstance(last, int) and last >= _LAST else last
    # A slice of whole parts stays joined; any other slice needs the concatenation.
    if isinstance(x, Joined):
        of_columns = k == x.ndim - 1 and by == 1
        one = x.between(first, last) if of_columns else None
        return part(c, x.whole(c), axis, start, stop, step) if one is None else one
    # The slice is the whole axis. Open lengths may be expressions, so they are compared as text.
    if (
        by == 1
        and isinstance(first, int)
        and first == 0
        and (last is None or str(last) == str(length(x.shape[k])))
    ):
        return x
    step_of_slice = None if by == 1 else by
    key = (*[slice(None)] * k, slice(first, last, step_of_slice))
    try:
        return x[key]
    except Refused:
        # A kind that lacks this slice can still take the elements of a known range one by one.
        n = length(x.shape[k])
        if not isinstance(n, int) or not (isinstance(first, int) and isinstance(last, int | None)):
            raise
        cut = range(*slice(first, last, by).indices(n))
        return c.xp.stack(_slice_axis_at_places(x, k, cut), axis=k)


def parts(
    c: Context, x: Value, starts: Value, stops: Value, steps: Value = None, axes: Value = None
) -> Value:
    """Return the slices of some axes, or of all axes in order, each by ``part``."""
    steps = [1] * len(starts) if steps is None else steps
    for axis, *ends in zip(
        range(len(starts)) if axes is None else axes, starts, stops, steps, strict=True
    ):
        x = part(c, x, int(axis), *ends)
    return x


def replaced(c: Context, x: Value, new: Value, axis: int, places: range) -> Value:
    """Return x with the elements at some places of an axis replaced by those of ``new``, in this order."""
    k = place(axis, x.ndim)
    ends: list[tuple[Value, int, int | None]] = [
        (x, 0, places.start),
        (new, 0, None),
        (x, places.stop, None),
    ]
    # With a step, new elements alternate with old ones, so all are taken one by one.
    if not places or places.step != 1:
        at = {i: n for n, i in enumerate(places)}
        ends = [
            (new, at[i], at[i] + 1) if i in at else (x, i, i + 1) for i in range(int(x.shape[k]))
        ]
    pieces = [part(c, of, k, start, stop) for of, start, stop in ends]
    return concat(c, pieces, k)


def padded(c: Context, x: Value, axis: int, before: int, after: int, value: Value) -> Value:
    """Pad x along an axis with so many entries of one value before and after; negative numbers cut off entries."""
    k = place(axis, x.ndim)
    n = length(x.shape[k])
    # Negative padding cuts first, so that what is added is at the new ends.
    if before < 0 or after < 0:
        stop = n + after if after < 0 else None
        x = part(c, x, k, max(-before, 0), stop)
    front = x.shape[:k]
    back = x.shape[k + 1 :]
    counts = (max(count, 0) for count in (before, after))
    around = [full(c, (*front, count, *back), value) for count in counts]
    return concat(c, [around[0], x, around[1]], k)


def stack(c: Context, arrays: Sequence[Value], axis: int = 0) -> Value:
    """Stack arrays of one shape along a new axis."""
    return concat(c, [unsqueeze(c, x, [axis]) for x in arrays], axis)


def gather(c: Context, x: Value, index: Value, axis: int = 0) -> Value:
    """Return the elements at a plain index."""
    if not is_plain(index):
        raise InputError("a gather by places that are computed from the inputs is not read")
    at = np.asarray(index)
    if is_plain(x):
        return np.take(x, at, axis=axis)
    k = place(axis, x.ndim)
    if at.ndim == 0:
        return x[(*[slice(None)] * k, int(at))]
    # Rows are sliced one by one, which every kind supports, and stacked.
    row_numbers = [int(i) for i in at.reshape(-1)]
    rows = c.xp.stack(_slice_axis_at_places(x, k, row_numbers), axis=k)
    if at.ndim == 1:
        return rows
    before, behind = x.shape[:k], x.shape[k + 1 :]
    return c.xp.reshape(rows, (*before, *at.shape, *behind))


def split(c: Context, x: object, counts: Sequence[Value], axis: int = 0) -> tuple[Value, ...]:
    """Split an axis into consecutive parts of these lengths."""
    ends = [0, *np.cumsum([whole(n, "the length of a part") for n in counts])]
    pieces = (part(c, x, axis, int(start), int(stop)) for start, stop in pairwise(ends))
    return tuple(pieces)


def chunk(c: Context, x: Array, count: int, axis: int = 0) -> tuple[Value, ...]:
    """Split an axis into ``count`` parts of one length; the last may be shorter."""
    size = whole(x.shape[axis], "the length of an axis that is divided")
    each = -(-size // count)
    counts = [min(each, size - at) for at in range(0, size, each)]
    return split(c, x, counts, axis)


def size(c: Context, x: Array, axis: int) -> Value:
    """Return the length of an axis."""
    return length(x.shape[axis])


def reduce(name: str) -> Rule:
    """Return the operator ``sum``, ``max`` or ``mean`` over some axes."""

    def run(c: Context, x: Value, axes: object = None, keep: bool = True) -> Value:
        chosen = (
            None
            if axes is None
            else tuple(place(n, x.ndim) for n in _convert_to_integer_list(axes))
        )
        if chosen == ():
            return x
        # A mean of whole numbers is no whole number, so it is left to the kind.
        if name != "mean" and are_whole(x):
            return getattr(np, name)(x, axis=chosen, keepdims=keep)
        return getattr(c.xp, name)(
            c.lifted(x), axis=chosen[0] if chosen and len(chosen) == 1 else chosen, keepdims=keep
        )

    return run


def cumulative(c: Context, x: Value, axis: Value) -> Value:
    """Return the sums of the elements up to each place along an axis."""
    k = place(axis, x.ndim)
    if are_whole(x):
        return np.cumsum(x, axis=k)
    return c.xp.cumulative_sum(c.lifted(x), axis=k)


def _choose_array_namespace(c: Context, x: Value) -> Value:
    return np if is_plain(x) else c.xp


def _convert_to_integer_list(x: object) -> list[int]:
    return [int(n) for n in np.atleast_1d(np.asarray(x))]


def _slice_axis_at_places(x: Array, k: int, places: Sequence[int]) -> list[Value]:
    before = [slice(None)] * k
    return [x[(*before, int(i))] for i in places]


# -- the operators of attention, by the definitions of ``symattn.attention`` -------------------------------------------
def softmax(c: Context, x: Value, axis: int = -1) -> Value:
    """Compute the softmax over an axis; a fully masked row gives 0/0, as in the operators."""
    k = place(axis, x.ndim)
    if k == x.ndim - 1:
        return soft(x)
    # ``soft`` is over the last axis: move the axis there, and back.
    order = [n for n in range(x.ndim) if n != k] + [k]
    back = [order.index(n) for n in range(x.ndim)]
    return transpose(c, soft(transpose(c, x, order)), back)


def product(
    c: Context,
    a: Value,
    b: Value,
    add: Value = None,
    alpha: float = 1,
    beta: float = 1,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """Return α A B + β C, with A and B optionally transposed: matrix products, linear layers, ONNX's Gemm."""
    # A [B₁ B₂] = [A B₁, A B₂]: projections stay apart if B is stored as it is multiplied.
    if isinstance(b, Joined) and not transA and bool(transB) == b.turned and alpha == beta == 1:
        result = Joined(tuple(c.lifted(a) @ p for p in b.parts))
        return result if add is None else binary("add")(c, result, add)
    a, b, add = (x.whole(c) if isinstance(x, Joined) else x for x in (a, b, add))
    factors = (c.lifted(a), c.lifted(b))
    both = zip(factors, (transA, transB), strict=True)
    left, right = (c.xp.matrix_transpose(x) if turned else x for x, turned in both)
    unscaled = left @ right
    y = unscaled if alpha == 1 else unscaled * c.lifted(alpha)
    if add is None:
        return y
    return y + (c.lifted(add) if beta == 1 else c.lifted(add) * c.lifted(beta))


def scaled_dot_product_attention(
    c: Context,
    q: Value,
    k: Value,
    v: Value,
    mask: Value = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """Compute ``torch.nn.functional.scaled_dot_product_attention``: a causal mask is aligned top-left.

    Source: PyTorch, documentation of the function.
    """
    if dropout:
        raise InputError(
            "scaled_dot_product_attention with dropout is not read; hint: export the module after .eval()"
        )
    fields: dict[str, Value] = {
        "causal": causal,
        "alignment": "top-left",
        "scale": meant_scale(q.shape[-1], scale),
    }
    inputs = {}
    if mask is not None:
        fields["mask"] = "boolean" if are_booleans(mask) else "additive"
        inputs["mask"] = mask
    # Heads are the third axis from the end; two axes are a single head.
    heads, shared = (
        (whole(x.shape[-3], "the number of heads") for x in (q, k)) if q.ndim > 2 else (1, 1)
    )
    if heads != shared and not enable_gqa:
        raise InputError(
            f"scaled_dot_product_attention: {heads} heads of queries and {shared} of keys, not enable_gqa"
        )
    fields |= {"heads": heads, "kv_heads": shared if shared != heads else None}
    # One head is computed without its axis, which the mask must then lack too.
    if heads == 1 and q.ndim > 2 and "mask" in inputs and mask.ndim > 2:
        inputs["mask"] = mask[..., 0, :, :] if mask.ndim == q.ndim else mask
        of_one_head = (x[..., 0, :, :] for x in (q, k, v))
        output = Attention(**fields)(*of_one_head, **inputs)
        return output[..., None, :, :]
    return Attention(**fields)(q, k, v, **inputs)


def meant_scale(d_k: Value, scale: float | None) -> Value:
    """Return a scale as a field of ``Attention``: None if it is the float nearest to 1/√d_k."""
    k, inverse = (0, False) if scale is None else root(float(scale))
    if k and inverse and k == whole(d_k, "d_k"):
        note(f"hypothesis: the scale {scale:.9g} stands for 1/√{k}")
        return None
    return scale

"""The supported primitives of JAX, as calls of the functions of ``graph_operators``.

Source: JAX, ``jax.lax``; the parameters of a primitive are passed by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from string import ascii_letters

import numpy as np

from symattn.arrays.array import Array
from symattn.document.errors import InputError
from symattn.programs.graphs import graph_operators as op
from symattn.programs.graphs import linear_systems
from symattn.programs.graphs.running import MOST_NODES, Dialect, Graph, GraphNode, Ref, run
from symattn.programs.graphs.values import (
    Context,
    Joined,
    Rule,
    Value,
    are_whole,
    bits,
    cast,
    check_wide,
    is_plain,
    length,
)


# -- numbers -----------------------------------------------------------------------------------------------------------
def _make_jax_extreme_rule(name: str, neutral: float) -> Rule:
    """Return the operator maximum or minimum of two arrays; −∞ does not change a maximum, nor ∞ a minimum."""
    rule = op.binary(name)

    def run(c: Context, a: Value, b: Value) -> Value:
        # The neutral element changes nothing, and may not exist in the kind.
        for one, other in ((a, b), (b, a)):
            if (
                is_plain(one)
                and np.asarray(one).dtype.kind == "f"
                and (np.asarray(one) == neutral).all()
            ):
                return other
        return rule(c, a, b)

    return run


def _of_truth(name: str) -> Rule:
    def run(c: Context, x: Value, axes: Sequence[int]) -> Value:
        if not is_plain(x) or np.asarray(x).dtype != bool:
            raise InputError("truth values that are computed, and bits of numbers, are not reduced")
        return getattr(np, name)(x, axis=tuple(axes))

    return run


def _select_jax_case(c: Context, which: Value, *cases: Value) -> Value:
    """Compute ``select_n``: the first of two cases where a condition does not hold."""
    if len(cases) != 2:
        raise InputError(f"a choice of {len(cases)} arrays is not read")
    return op.where(c, which, cases[1], cases[0])


def _cast_jax_array(c: Context, x: Value, new_dtype: str) -> Value:
    plain = is_plain(x) and not isinstance(x, Joined)
    # Plain integers stay plain as floats, so that NumPy can compute with them.
    if plain and new_dtype == "float" and np.asarray(x).dtype.kind in "biu":
        return np.asarray(x).astype(np.float64)
    return cast(c, x, new_dtype)


def _half_integer_power(c: Context, x: Value, y: Value) -> Value:
    """Return x to a power that is a multiple of 1/2."""
    exponent = float(np.asarray(y)) if is_plain(y) and np.ndim(y) == 0 else None
    if exponent is None or exponent * 2 % 1:
        raise InputError("a power that is not a plain multiple of 1/2 is not read")
    if exponent % 1 == 0:
        return _integer_power(c, x, int(exponent))
    return _integer_power(c, op.unary("sqrt")(c, x), int(exponent * 2))


def _integer_power(c: Context, x: Value, y: int) -> Value:
    if y >= 0 and are_whole(x) and np.asarray(x).dtype.kind in "iu":
        check_wide("power", x, y)
        return np.power(x, y)
    if y < 0:
        return op.divide(c, 1.0, _integer_power(c, x, -y))
    return op.power(c, x, y)


def _at_maximum(c: Context, x: Value, m: Value) -> Value:
    """Return where x is its maximum, which derivatives of a maximum use.

    For plain numbers this is known. A maximum of residues is any number, so the result is letters in place of 0 and 1:
    an equation that holds for all of these holds for the true ones.
    """
    if c.kind is None or not hasattr(c.kind, "letters") or (is_plain(x) and is_plain(m)):
        return op.binary("equal")(c, x, m)
    lengths = zip(x.shape, m.shape, strict=True)
    return c.kind.letters(*(max(int(a), int(b)) for a, b in lengths))


# -- moving ------------------------------------------------------------------------------------------------------------
def _broadcast_in_dimensions(
    c: Context, x: Value, shape: Sequence[Value], axes: Sequence[int]
) -> Value:
    """Broadcast x to ``shape``, with its axes at ``axes``."""
    others = [n for n in range(len(shape)) if n not in axes]
    return op.expand(c, op.unsqueeze(c, x, others) if others else x, shape)


def _iota_along_axis(
    c: Context, *_: object, shape: Sequence[Value], dimension: int, dtype: str
) -> Value:
    """Return 0, 1, … along one axis, broadcast along all others; as floats if ``dtype`` says so."""
    row = op.arange(c, 0, shape[dimension])
    row = row.astype(np.float64) if dtype == "float" and is_plain(row) else row
    return _broadcast_in_dimensions(c, row, shape, [dimension])


def _broadcast_in_dim(
    c: Context, x: Value, *_: object, shape: Sequence[Value], broadcast_dimensions: Sequence[int]
) -> Value:
    # One plain value: ``full`` leaves masks and whole numbers plain.
    if x.ndim == 0 and is_plain(x):
        return op.full(c, shape, x[()])
    return _broadcast_in_dimensions(c, x, shape, broadcast_dimensions)


def _reshape_jax_array(
    c: Context, x: object, *_: object, new_sizes: Sequence[Value], dimensions: object = None
) -> Value:
    if dimensions is not None:
        raise InputError("a reshape in another order of the axes is not read")
    return op.reshape(c, x, list(new_sizes))


def _clamp_slice_starts(places: Sequence[Value], x: Array, counts: Sequence[int]) -> list[int]:
    """Return plain starts of a dynamic slice, clamped so that it is within the array, as in JAX."""
    if not all(is_plain(p) for p in places):
        raise InputError("a slice at a place that is computed from the inputs is not read")
    lengths = zip(x.shape, counts, strict=True)
    most = [int(n) - count for n, count in lengths]
    limits = zip(places, most, strict=True)
    return [min(max(int(start), 0), last) for start, last in limits]


def _dynamic_slice(c: Context, x: Value, *places: Value, slice_sizes: Sequence[int]) -> Value:
    """Return the slice of these sizes from plain starts on."""
    starts = _clamp_slice_starts(places, x, slice_sizes)
    ends = [start + size for start, size in zip(starts, slice_sizes, strict=True)]
    return op.parts(c, x, starts, ends)


def _dynamic_update_slice(c: Context, x: Value, new: Value, *places: Value) -> Value:
    """Return x with a slice replaced."""
    counts = [int(n) for n in new.shape]
    starts = _clamp_slice_starts(places, x, counts)

    def replaced(of: Value, axes: Sequence[int]) -> Value:
        if not axes:
            return new
        k, *inner = axes
        start = starts[k]
        stop = starts[k] + counts[k]
        return op.replaced(
            c, of, replaced(op.part(c, of, k, start, stop), inner), k, range(start, stop)
        )

    # Only axes along which the slice is shorter are cut.
    return replaced(x, [k for k, n in enumerate(counts) if n != int(x.shape[k])])


def _gather_jax_slices(
    c: Context, x: Value, index: Value, dimension_numbers: Value, slice_sizes: Sequence[int]
) -> Value:
    """Return the slices of these sizes from plain places on; those of one axis on every kind of array."""
    numbers = dimension_numbers
    if not is_plain(index):
        raise InputError("a gather by places that are computed from the inputs is not read")
    first = np.asarray(index)
    shape = [length(n) for n in x.shape]
    last = first + [slice_sizes[k] - 1 for k in numbers["start_index_map"]]
    # JAX clamps or fills such a gather by its mode, which is not read.
    if (first < 0).any() or (last >= [shape[k] for k in numbers["start_index_map"]]).any():
        raise InputError("a gather beyond the end of an axis is not read")
    axis, *more = numbers["start_index_map"]
    whole = all(n == shape[k] for k, n in enumerate(slice_sizes) if k != axis)
    whole = whole and not numbers["operand_batching_dims"]
    # Whole rows of one axis can be taken on every kind; all other gathers need arrays of places.
    if more or not whole or numbers["collapsed_slice_dims"] != [axis] or index.ndim != 2:
        return x[_gather_places_by_axis(first, numbers, slice_sizes)]
    result = op.gather(c, x, index[:, 0], axis)
    # The axis of the gathered rows goes to the first place that is no offset.
    to = next(k for k in range(result.ndim) if k not in numbers["offset_dims"])
    order = [k for k in range(result.ndim) if k != axis]
    new_order = [*order[:to], axis, *order[to:]]
    return op.transpose(c, result, new_order)


def _gather_places_by_axis(
    first: np.ndarray, numbers: Value, slice_sizes: Sequence[int]
) -> tuple[np.ndarray, ...]:
    """Return the places of the elements of a gather along each axis, which are broadcast to the shape of the result."""
    batching = numbers["operand_batching_dims"]
    left_out = [*numbers["collapsed_slice_dims"], *batching]
    within = [k for k in range(len(slice_sizes)) if k not in left_out]
    axes = len(within) + first.ndim - 1
    # The batch axes of the indices, among the axes of the result that are no offsets.
    batch = tuple(1 if k in numbers["offset_dims"] else -1 for k in range(axes))
    lengths = iter(first.shape[:-1])
    batch = tuple(n if n == 1 else next(lengths) for n in batch)
    result = [np.zeros((1,) * axes, np.int64) for _ in slice_sizes]
    for at, k in enumerate(numbers["start_index_map"]):
        result[k] = first[..., at].reshape(batch)
    of_items = [k for k in range(axes) if k not in numbers["offset_dims"]]
    for k, of in zip(batching, numbers["start_indices_batching_dims"], strict=True):
        items = np.arange(first.shape[of])
        result[k] = items.reshape([-1 if n == of_items[of] else 1 for n in range(axes)])
    # Places within a slice are added to its start.
    for to, k in zip(sorted(numbers["offset_dims"]), within, strict=True):
        result[k] = result[k] + np.arange(slice_sizes[k]).reshape(
            [-1 if n == to else 1 for n in range(axes)]
        )
    return tuple(result)


def _pad_jax_array(
    c: Context, x: Value, value: Value, padding_config: Sequence[Sequence[int]]
) -> Value:
    for axis, (before, after, between) in enumerate(padding_config):
        if between:
            raise InputError("padding between elements is not read")
        x = op.padded(c, x, axis, before, after, value)
    return x


def _reverse_jax_axes(c: Context, x: Value, dimensions: Sequence[int]) -> Value:
    every = [1] * len(dimensions)
    return op.parts(
        c, x, [-n for n in every], [None for _ in every], [-n for n in every], dimensions
    )


def _cumulative_jax_sum(c: Context, x: Value, axis: int, reverse: bool = False) -> Value:
    """Return the sums of the elements up to each place, or from each place on, along an axis."""
    if not reverse:
        return op.cumulative(c, x, axis)
    reversed_sums = op.cumulative(c, _reverse_jax_axes(c, x, [axis]), axis)
    return _reverse_jax_axes(c, reversed_sums, [axis])


def _triangular_solve(
    c: Context,
    a: Value,
    b: Value,
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    unit_diagonal: bool,
    **_: object,
) -> Value:
    # The transpose of a lower triangle is an upper one.
    a, upper = (op.swap(c, c.lifted(a), -2, -1), lower) if transpose_a else (a, not lower)
    return linear_systems.solve_triangle(
        c, a, b, upper=upper, left=left_side, unitriangular=unit_diagonal
    )


def _tile_jax_array(c: Context, x: Value, reps: Sequence[int]) -> Value:
    for axis, count in enumerate(reps):
        x = op.concat(c, [x] * count, axis) if count != 1 else x
    return x


def _dot_general(c: Context, a: Value, b: Value, dimension_numbers: Value) -> Value:
    """Sum over the contracted axes; the batch axes remain first, then those of a, then those of b.

    Source: JAX, ``jax.lax.dot_general``.
    """
    (of_a, of_b), (batch_a, batch_b) = dimension_numbers
    if (
        isinstance(b, Joined)
        and not b.turned
        and (list(of_a), list(of_b), list(batch_a)) == ([a.ndim - 1], [0], [])
    ):
        return Joined(tuple(c.lifted(a) @ part for part in b.parts))
    a, b = (c.lifted(x.whole(c) if isinstance(x, Joined) else x) for x in (a, b))
    # A letter for each axis: contracted axes share one, and so do batch axes.
    left = list(ascii_letters[: a.ndim])
    right = list(ascii_letters[a.ndim : a.ndim + b.ndim])
    shared_axes = zip((*of_a, *batch_a), (*of_b, *batch_b), strict=True)
    for i, j in shared_axes:
        right[j] = left[i]
    result = [
        *(left[i] for i in batch_a),
        *(x for x in (*left, *right) if (x in left) != (x in right)),
    ]
    axes_of_a, axes_of_b, remaining = map("".join, (left, right, result))
    return c.xp.einsum(f"{axes_of_a},{axes_of_b}->{remaining}", a, b)


# -- loops and choices, by graphs of their parts -----------------------------------------------------------------------


def _evaluate_subgraph(c: Context, graph: Graph, values: Sequence[Value]) -> tuple[Value, ...]:
    names = (x.name for x in graph.inputs)
    return run(graph, dict(zip(names, values, strict=True)), c)


def _while_loop_of_jax(
    c: Context, *values: Value, cond: Graph, body: Graph, constants: Sequence[int]
) -> tuple[Value, ...]:
    """Run the body as long as the condition holds, each after its own constants."""
    first, last = constants[0], sum(constants)
    tested, fixed = values[:first], values[first:last]
    carry = values[last:]
    # An endless loop must end, so turns are limited as nodes are.
    for _ in range(MOST_NODES):
        (holds,) = _evaluate_subgraph(c, cond, (*tested, *carry))
        if not is_plain(holds):
            raise InputError("a loop whose condition is computed from the inputs is not read")
        if not holds:
            return carry
        carry = _evaluate_subgraph(c, body, (*fixed, *carry))
    raise InputError(f"a loop of more than {MOST_NODES} turns is not read")


def _evaluate_chosen_branch(
    c: Context, which: Value, *values: Value, branches: Sequence[Graph]
) -> tuple[Value, ...]:
    if not is_plain(which):
        raise InputError("a choice by a condition that is computed from the inputs is not read")
    # As in JAX, a number beyond the branches is clamped.
    number = min(max(int(which), 0), len(branches) - 1)
    return _evaluate_subgraph(c, branches[number], values)


def _subtract_jax_arrays(c: Context, a: Value, b: Value) -> Value:
    """Return a − b; a − ∞ is a + (−∞), since kinds have no ∞."""
    if is_plain(b) and not is_plain(a) and np.asarray(b).dtype.kind == "f" and np.isposinf(b).all():
        return op.binary("add")(c, a, -np.asarray(b))
    return op.binary("subtract")(c, a, b)


def _make_undefined_element(c: Context) -> Value:
    """Return an element of memory that was never written."""
    if c.kind is None:
        return c.lifted(np.nan)
    # A kind without an element for unwritten memory has 0/0, which is undefined too.
    return c.kind.undefined() if hasattr(c.kind, "undefined") else c.lifted(0.0) / c.lifted(0.0)


#: Primitives that return their operand: rounding and storage are no part of semantics.
_KEPT = "stop_gradient copy copy_p name reduce_precision sharding_constraint"
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_KEPT.split(), op.same),
    **op.table(op.binary, "add=add add_any=add mul=multiply"),
    **op.table(
        op.binary, "eq=equal ne=not_equal lt=less le=less_equal gt=greater ge=greater_equal"
    ),
    **op.table(op.binary, "and=logical_and or=logical_or"),
    **op.table(
        op.unary,
        "neg=negative abs=abs exp=exp exp2=exp2 log=log tanh=tanh erf=erf sqrt=sqrt sin=sin cos=cos",
    ),
    **op.table(op.unary, "not=logical_not"),
    "sub": _subtract_jax_arrays,
    "div": op.divide_whole,
    "rem": op.of_known("a remainder", np.fmod),
    "sign": op.of_known("a sign", np.sign),
    "max": _make_jax_extreme_rule("maximum", -np.inf),
    "min": _make_jax_extreme_rule("minimum", np.inf),
    "rsqrt": lambda c, x: op.divide(c, 1.0, op.unary("sqrt")(c, x)),
    "logistic": lambda c, x: c.lifted(1.0) / (c.lifted(1.0) + c.xp.exp(-c.lifted(x))),
    "expm1": lambda c, x: c.xp.exp(c.lifted(x)) - c.lifted(1.0),
    "log1p": lambda c, x: c.xp.log(c.lifted(1.0) + c.lifted(x)),
    "square": partial(_integer_power, y=2),
    "integer_pow": _integer_power,
    "pow": _half_integer_power,
    "is_finite": lambda c, x: np.isfinite(x) if is_plain(x) else c.xp.isfinite(x),
    "eq.max": _at_maximum,
    "and.bits": bits(np.bitwise_and),
    "or.bits": bits(np.bitwise_or),
    "not.bits": bits(np.bitwise_not),
    "select_n": _select_jax_case,
    "convert_element_type": _cast_jax_array,
    "reduce_sum": lambda c, x, axes: op.reduce("sum")(c, x, axes, False),
    "reduce_max": lambda c, x, axes: op.reduce("max")(c, x, axes, False),
    "reduce_and": _of_truth("all"),
    "reduce_or": _of_truth("any"),
    "cumsum": _cumulative_jax_sum,
    "triangular_solve": _triangular_solve,
    "lu": linear_systems.factorise,
    "lu_pivots_to_permutation": op.of_known("an order of rows", linear_systems.order_rows),
    "iota": _iota_along_axis,
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape_jax_array,
    "transpose": lambda c, x, permutation: op.transpose(c, x, permutation),
    "squeeze": lambda c, x, dimensions: op.squeeze(c, x, dimensions),
    "expand_dims": lambda c, x, dimensions: op.unsqueeze(c, x, dimensions),
    "concatenate": lambda c, *xs, dimension: op.concat(c, xs, dimension),
    "split": lambda c, x, sizes, axis: op.split(c, x, sizes, axis),
    "slice": lambda c, x, start_indices, limit_indices, strides: op.parts(
        c, x, start_indices, limit_indices, strides
    ),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather_jax_slices,
    "pad": _pad_jax_array,
    "rev": _reverse_jax_axes,
    "tile": _tile_jax_array,
    "dot_general": _dot_general,
    "stack": lambda c, *xs, axis=0: op.stack(c, xs, axis),
    "scan.row": lambda c, x, turn: op.gather(c, x, np.asarray(turn), 0),
    "scan.rows": op.stack,
    "while": _while_loop_of_jax,
    "cond": _evaluate_chosen_branch,
    "undefined": _make_undefined_element,
    "optimization_barrier": lambda c, *xs: xs,
    "size": op.size,
    "dim_as_value": lambda c, dim: dim,
    # The reader lets only names, numbers and arithmetic into this code.
    "length": lambda c, names, sizes, code: eval(
        code, {"__builtins__": {}}, dict(zip(names, sizes, strict=True))
    ),
}


def _sums_last(node: GraphNode, name: str) -> bool:
    """Return whether no product contracts the first axis of a weight."""
    if node.operator != "dot_general":
        return False
    contracted = node.attributes["dimension_numbers"][0]
    sides = (k for k, x in enumerate(node.operands) if x == Ref(name))
    return all(0 not in contracted[side] for side in sides)


JAX = Dialect(
    RULES,
    apart=frozenset(["dot_general", "add", "split", "slice"]),
    turned=frozenset(["transpose"]),
    passed=frozenset(["reshape", "convert_element_type", "stop_gradient", "copy"]),
    transposes=_sums_last,
)

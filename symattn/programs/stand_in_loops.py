"""Functions of JAX that call functions of the user, for stand-ins: loops, branches, batches and rules of gradients.

JAX traces what it is given once; here it runs pass by pass, with the types that JAX would demand. What JAX says in any
other case, it says itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from symattn.programs.stand_ins import (
    NotStoodIn,
    StandIn,
    in_traced_function,
    lifted,
    raise_as_jax,
)

_MOST_PASSES = 5000  # of a loop whose end its numbers decide


def _flatten(tree: Any) -> tuple[list[StandIn], Any]:
    import jax

    leaves, structure = jax.tree_util.tree_flatten(tree)
    return [lifted(x) for x in leaves], structure


def _unflatten(structure: Any, leaves: Iterable[StandIn]) -> Any:
    import jax

    return jax.tree_util.tree_unflatten(structure, leaves)


def _with_type_of(x: StandIn, like: StandIn) -> StandIn:
    """Return what a loop carries on, whose type stays that of its start. Raises ``TypeError`` as JAX does."""
    if x.shape != like.shape:
        raise_as_jax(TypeError("a loop carries arrays of another shape"))
    if x.dtype != like.dtype:
        # JAX promotes a weak start, and traces the loop again.
        if like.is_weak:
            raise NotStoodIn
        raise_as_jax(TypeError("a loop carries numbers of another type"))
    return x if x.is_weak == like.is_weak else StandIn(x.numbers, like.is_weak)


class _Carried:
    """The arrays that a loop carries from pass to pass."""

    def __init__(self, start: Any) -> None:
        self._start, self._structure = _flatten(start)
        self._leaves = self._after = self._start

    @property
    def value(self) -> Any:
        """The argument of the next pass."""
        return _unflatten(self._structure, self._leaves)

    @property
    def result(self) -> Any:
        """The result of the loop, with the types that the last pass gave."""
        return _unflatten(self._structure, self._after)

    def take(self, new: Any) -> None:
        """Take the result of a pass."""
        self._after, structure = _flatten(new)
        if structure != self._structure:
            raise NotStoodIn
        pairs = zip(self._after, self._start, strict=True)
        self._leaves = [_with_type_of(x, like) for x, like in pairs]


def _stack(outputs: Sequence[Any], axis: int = 0) -> Any:
    """Return the outputs of all passes as arrays with one more axis."""
    flat = [_flatten(output) for output in outputs]
    _, structure = flat[0]
    if any(other != structure for _, other in flat):
        raise NotStoodIn
    stacked = []
    for column in zip(*(leaves for leaves, _ in flat), strict=True):
        if len({(x.shape, x.dtype, x.is_weak) for x in column}) > 1:
            raise NotStoodIn
        stacked.append(StandIn(np.stack([x.numbers for x in column], axis), column[0].is_weak))
    return _unflatten(structure, stacked)


def _length_of(arrays: Sequence[StandIn], length: object = None) -> int:
    """Return the length of the first axis of arrays, if it is one for all of them and no other than ``length``."""
    if any(not x.ndim for x in arrays):
        raise NotStoodIn
    lengths = {x.shape[0] for x in arrays} | ({length} if length is not None else set())
    if len(lengths) != 1:
        raise NotStoodIn
    (result,) = lengths
    # JAX traces a loop without passes, too.
    if not isinstance(result, int) or result < 1:
        raise NotStoodIn
    return result


def _scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: object = None,
    reverse: bool = False,
    unroll: int = 1,
) -> Any:
    rows, structure = _flatten(xs)
    order: Iterable[int] = range(_length_of(rows, length))
    carried, outputs = _Carried(init), []
    for k in reversed([*order]) if reverse else order:
        row = [StandIn(np.asarray(x.numbers[k]), x.is_weak) for x in rows]
        with in_traced_function():
            result = f(carried.value, _unflatten(structure, row))
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise NotStoodIn
        carried.take(result[0])
        outputs.append(result[1])
    # Outputs stand in the order of the rows, of which a reversed loop takes the last first.
    return carried.result, _stack(outputs[::-1] if reverse else outputs)


def _map(f: Callable[..., Any], xs: Any) -> Any:
    return _scan(lambda _, x: (None, f(x)), None, xs)[1]


@cache
def _is_index_weak() -> bool:
    """Return whether the number of a pass has a weak type in JAX."""
    import jax

    weak_types: list[bool] = []

    def body(i: Any, x: Any) -> Any:
        weak_types.append(bool(i.weak_type))
        return x

    jax.eval_shape(lambda: jax.lax.fori_loop(0, 2, body, 0.0))
    return weak_types[-1]


def _fori_loop(lower: Any, upper: Any, body_fun: Callable[..., Any], init_val: Any) -> Any:
    # Bounds that are arrays give the number of a pass another type.
    if type(lower) is not int or type(upper) is not int or upper <= lower:
        raise NotStoodIn
    carried = _Carried(init_val)
    for k in range(lower, upper):
        index = StandIn(lifted(k).numbers, _is_index_weak())
        with in_traced_function():
            carried.take(body_fun(index, carried.value))
    return carried.result


def _while_loop(cond_fun: Callable[..., Any], body_fun: Callable[..., Any], init_val: Any) -> Any:
    carried = _Carried(init_val)
    for _ in range(_MOST_PASSES):
        with in_traced_function():
            is_next = _truth_of(cond_fun(carried.value))
            # JAX traces the body, whatever the condition says.
            new = body_fun(carried.value)
        if not is_next:
            return carried.result
        carried.take(new)
    raise NotStoodIn


def _truth_of(x: Any) -> bool:
    """Return a condition, a single truth value."""
    array = lifted(x)
    if array.shape or array.dtype != bool:
        raise NotStoodIn
    return bool(array.numbers)


def _cond(pred: Any, true_fun: Any, false_fun: Any, *operands: Any) -> Any:
    if not callable(true_fun) or not callable(false_fun):
        raise NotStoodIn
    is_true = _truth_of(pred)
    arguments = [_unflatten(structure, leaves) for leaves, structure in map(_flatten, operands)]
    # JAX traces both branches.
    with in_traced_function():
        first, structure = _flatten(true_fun(*arguments))
        second, other = _flatten(false_fun(*arguments))
    if structure != other:
        raise NotStoodIn
    results = []
    for one, two in zip(first, second, strict=True):
        if (one.shape, one.dtype) != (two.shape, two.dtype):
            raise NotStoodIn
        numbers = (one if is_true else two).numbers
        # Whichever branch is taken, JAX gives the result the type that both branches share.
        results.append(StandIn(numbers, one.is_weak and two.is_weak))
    return _unflatten(structure, results)


def _vmap(fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    if type(out_axes) is not int:
        raise NotStoodIn

    def batched(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        if len(axes) != len(args) or any(type(a) not in (int, type(None)) for a in axes):
            raise NotStoodIn
        flat = [_flatten(x) for x in args]
        # The first axis of an array is the one to take items from.
        moved = [
            [x if axis is None else _with_first(x, axis) for x in leaves]
            for axis, (leaves, _) in zip(axes, flat, strict=True)
        ]
        pairs = [*zip(axes, moved, strict=True)]
        length = _length_of([x for axis, leaves in pairs if axis is not None for x in leaves])
        outputs = []
        for k in range(length):
            items = [
                leaves if axis is None else [_item_of(x, k) for x in leaves]
                for axis, leaves in pairs
            ]
            trees = [s for _, s in flat]
            arguments = [_unflatten(s, leaves) for s, leaves in zip(trees, items, strict=True)]
            with in_traced_function():
                outputs.append(fun(*arguments))
        return _stack(outputs, out_axes)

    return batched


def _with_first(x: StandIn, axis: int) -> StandIn:
    """Return an array with one of its axes in front."""
    if not -x.ndim <= axis < x.ndim:
        raise NotStoodIn
    return StandIn(np.moveaxis(x.numbers, axis, 0), x.is_weak)


def _item_of(x: StandIn, number: int) -> StandIn:
    return StandIn(np.asarray(x.numbers[number]), x.is_weak)


def _as_traced(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that JAX traces for its arrays."""

    def traced(*args: Any) -> Any:
        arguments = [_unflatten(structure, leaves) for leaves, structure in map(_flatten, args)]
        with in_traced_function():
            return fun(*arguments)

    return traced


def _vjp(fun: Any, *primals: Any) -> Any:
    if not isinstance(fun, CustomRule):
        # JAX makes the derivative of anything else.
        raise NotStoodIn
    return fun.vjp(*primals)


class CustomRule:
    """A function with a rule for its gradient, by ``jax.custom_vjp``."""

    def __init__(self, rule: Any) -> None:
        self._rule = rule

    def __call__(self, *args: Any) -> Any:
        return _as_traced(self._rule.fun)(*args)

    def vjp(self, *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
        """Return the output, and the function from a gradient of it to those of the arguments."""
        flat_primals = [_flatten(x) for x in primals]
        with in_traced_function():
            output, residuals = self._rule.fwd(*primals)
        # JAX makes arrays of the residuals, also of plain numbers.
        leaves, structure = _flatten(residuals)
        saved = _unflatten(structure, leaves)
        return output, partial(self._transpose, flat_primals, _flatten(output), saved)

    def _transpose(self, flat_primals: Any, output: Any, saved: Any, gradient: Any) -> Any:
        leaves, structure = _flatten(gradient)
        if structure != output[1] or not all(map(_are_alike, leaves, output[0])):
            raise NotStoodIn
        with in_traced_function():
            results = self._rule.bwd(saved, gradient)
        if not isinstance(results, tuple) or len(results) != len(flat_primals):
            raise NotStoodIn
        for result, (arrays, structure) in zip(results, flat_primals, strict=True):
            leaves, other = _flatten(result)
            if structure != other:
                raise NotStoodIn
            if any(x.shape != y.shape for x, y in zip(leaves, arrays, strict=True)):
                raise_as_jax(ValueError("a gradient has another shape than what it is of"))
            if not all(map(_are_alike, leaves, arrays)):
                raise NotStoodIn
        return results


def _are_alike(one: StandIn, other: StandIn) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def rule_of(x: Any) -> CustomRule | None:
    """Return what stands in for a function with a rule of its own for its gradient; None for others."""
    kind = type(x)
    if kind.__name__ != "custom_vjp" or not kind.__module__.startswith("jax."):
        return None
    has_all = all(callable(getattr(x, name, None)) for name in ("fun", "fwd", "bwd"))
    # With either option JAX calls the rule with other arguments.
    is_plain = not getattr(x, "nondiff_argnums", ()) and not getattr(x, "symbolic_zeros", False)
    return CustomRule(x) if has_all and is_plain else None


def loop_of(function: Any) -> Callable[..., Any] | None:
    """Return what stands in for a function of JAX that calls functions of the user; None for others."""
    # By identity, since an object of the user may define == as it likes.
    return next((own for of_jax, own in _loops() if of_jax is function), None)


@cache
def _loops() -> tuple[tuple[Any, Callable[..., Any]], ...]:
    import jax

    lax = jax.lax
    return (
        (lax.scan, _scan),
        (lax.map, _map),
        (lax.fori_loop, _fori_loop),
        (lax.while_loop, _while_loop),
        (lax.cond, _cond),
        (jax.vmap, _vmap),
        (jax.jit, _as_traced),
        (jax.checkpoint, _as_traced),
        (jax.remat, _as_traced),
        (jax.vjp, _vjp),
    )

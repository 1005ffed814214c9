"""The primitives of JAX that are read, as calls of what ``operators`` and ``attending`` define.

Source: JAX, ``jax.lax``; what a primitive takes besides its operands is told by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from symattn.document.errors import InputError
from symattn.programs.graphs import jax_moving as moving
from symattn.programs.graphs import operators as op
from symattn.programs.graphs.form import Rule
from symattn.programs.graphs.ranges import are_whole, bits, cast, check_wide
from symattn.programs.graphs.values import Context, Joined, is_plain


def _is_int(x: object) -> bool:
    return not isinstance(x, Joined) and np.asarray(x).dtype.kind in "iu"


def _binary(name: str) -> Rule:
    """Compute plain whole numbers, such as a mask made of 0 and 1, at once; others on the kind of array.

    0 + 1 · i, as ``jnp.arange`` has it of a length that was left open, is i.
    """
    rule, plainly = op.binary(name), getattr(np, name)
    neutral = {"add": 0, "multiply": 1}.get(name)

    def run(c: Context, a: Any, b: Any, **_: object) -> Any:
        for one, other in ((a, b), (b, a)):
            if neutral is not None and is_plain(one) and np.ndim(one) == 0 and _is_int(one) and one == neutral:
                return other
        if are_whole(a, b):
            check_wide(name, a, b)
            with np.errstate(invalid="ignore"):
                return plainly(a, b)
        return rule(c, a, b)

    return run


def _unary(name: str) -> Rule:
    rule = op.unary(name)
    return lambda c, x, **_: rule(c, x)


def _extreme(name: str, neutral: float) -> Rule:
    """Return the larger or smaller of two arrays; −∞ is nothing to a maximum, and ∞ to a minimum."""
    rule = op.binary(name)

    def run(c: Context, a: Any, b: Any) -> Any:
        for one, other in ((a, b), (b, a)):
            if is_plain(one) and np.asarray(one).dtype.kind == "f" and (np.asarray(one) == neutral).all():
                return other
        return rule(c, a, b)

    return run


def _reduce(name: str) -> Rule:
    rule = op.reduce(name)

    def run(c: Context, x: Any, axes: Sequence[int], **_: object) -> Any:
        if are_whole(x):
            return getattr(np, name)(x, axis=tuple(axes))
        return rule(c, x, axes, False) if axes else x

    return run


def _of_truth(name: str) -> Rule:
    def run(c: Context, x: Any, axes: Sequence[int], **_: object) -> Any:
        if not is_plain(x) or np.asarray(x).dtype != bool:
            raise InputError("truth values that are computed, and bits of numbers, are not reduced")
        return getattr(np, name)(x, axis=tuple(axes))

    return run


def _select(c: Context, which: Any, *cases: Any) -> Any:
    """``select_n``: the first of two where a condition does not hold."""
    if len(cases) != 2:
        raise InputError(f"a choice of {len(cases)} arrays is not read")
    return op.where(c, which, cases[1], cases[0])


def _cast(c: Context, x: Any, new_dtype: str, **_: object) -> Any:
    plain = is_plain(x) and not isinstance(x, Joined)
    if plain and new_dtype == "float" and np.asarray(x).dtype.kind in "biu":
        return np.asarray(x).astype(np.float64)
    return cast(c, x, new_dtype)


def _power(c: Context, x: Any, y: Any, **_: object) -> Any:
    """x to a whole power, or to a half."""
    exponent = float(np.asarray(y)) if is_plain(y) and np.ndim(y) == 0 else None
    if exponent is None or exponent * 2 % 1:
        raise InputError("a power that is not a plain multiple of 1/2 is not read")
    if exponent % 1 == 0:
        return _integer_power(c, x, int(exponent))
    return _integer_power(c, op.unary("sqrt")(c, x), int(exponent * 2))


def _integer_power(c: Context, x: Any, y: int) -> Any:
    if y >= 0 and are_whole(x) and _is_int(x):
        check_wide("power", x, y)
        return np.power(x, y)
    if y < 0:
        return op.divide(c, 1.0, _integer_power(c, x, -y))
    return op.power(c, x, y)


def _of_known(what: str, rule: Callable[..., Any]) -> Rule:
    def run(c: Context, *arrays: Any) -> Any:
        if not all(map(is_plain, arrays)):
            raise InputError(f"{what} of computed numbers is not read")
        return rule(*arrays)

    return run


def _at_maximum(c: Context, x: Any, m: Any) -> Any:
    """Where x is its maximum, of which derivatives of a maximum are made; of plain numbers that is known.

    A maximum of residues is any number, and so is what is said here: letters, in the place of 0 and 1. What is equal
    for all of these is equal for the true ones.
    """
    if c.kind is None or not hasattr(c.kind, "letters") or (is_plain(x) and is_plain(m)):
        return op.binary("equal")(c, x, m)
    return c.kind.letters(*(max(int(a), int(b)) for a, b in zip(x.shape, m.shape, strict=True)))


_KEPT = "stop_gradient copy copy_p name reduce_precision sharding_constraint"
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_KEPT.split(), op.same),
    **op.table(_binary, "add=add add_any=add sub=subtract mul=multiply"),
    **op.table(op.binary, "eq=equal ne=not_equal lt=less le=less_equal gt=greater ge=greater_equal"),
    **op.table(op.binary, "and=logical_and or=logical_or"),
    **op.table(_unary, "neg=negative abs=abs exp=exp exp2=exp2 log=log tanh=tanh erf=erf sqrt=sqrt sin=sin cos=cos"),
    **op.table(_unary, "not=logical_not"),
    "div": op.divide_whole,
    "rem": _of_known("a remainder", np.fmod),
    "sign": _of_known("a sign", np.sign),
    "max": _extreme("maximum", -np.inf),
    "min": _extreme("minimum", np.inf),
    "rsqrt": lambda c, x, **_: op.divide(c, 1.0, op.unary("sqrt")(c, x)),
    "logistic": lambda c, x, **_: c.lifted(1.0) / (c.lifted(1.0) + c.xp.exp(-c.lifted(x))),
    "expm1": lambda c, x, **_: c.xp.exp(c.lifted(x)) - c.lifted(1.0),
    "log1p": lambda c, x, **_: c.xp.log(c.lifted(1.0) + c.lifted(x)),
    "square": lambda c, x: _integer_power(c, x, 2),
    "integer_pow": _integer_power,
    "pow": _power,
    "is_finite": lambda c, x: np.isfinite(x) if is_plain(x) else c.xp.isfinite(x),
    "eq.max": _at_maximum,
    "and.bits": bits(np.bitwise_and),
    "or.bits": bits(np.bitwise_or),
    "not.bits": bits(np.bitwise_not),
    "select_n": _select,
    "convert_element_type": _cast,
    "reduce_sum": _reduce("sum"),
    "reduce_max": _reduce("max"),
    "reduce_and": _of_truth("all"),
    "reduce_or": _of_truth("any"),
    "iota": moving.iota,
    "broadcast_in_dim": moving.broadcast_in_dim,
    "reshape": moving.reshape,
    "transpose": lambda c, x, permutation: op.transpose(c, moving.array(x), permutation),
    "squeeze": lambda c, x, dimensions: op.squeeze(c, x, dimensions),
    "expand_dims": lambda c, x, dimensions: op.unsqueeze(c, x, dimensions),
    "concatenate": lambda c, *xs, dimension: moving.concatenate(c, xs, dimension),
    "split": lambda c, x, sizes, axis: op.split(c, x, sizes, axis),
    "slice": moving.slices,
    "dynamic_slice": moving.dynamic_slice,
    "dynamic_update_slice": moving.dynamic_update_slice,
    "gather": moving.gather,
    "pad": moving.pad,
    "rev": moving.reverse,
    "dot_general": moving.dot_general,
    "stack": lambda c, *xs, axis=0: moving.stack(c, xs, axis),
    "scan.row": lambda c, x, turn: op.gather(c, moving.array(x), np.asarray(turn), 0),
    "scan.rows": moving.stack,
    "size": op.size,
    "dim_as_value": lambda c, dim: dim,
    "dim.add": op.of_lengths(operator.add),
    "dim.sub": op.of_lengths(operator.sub),
    "dim.mul": op.of_lengths(operator.mul),
}

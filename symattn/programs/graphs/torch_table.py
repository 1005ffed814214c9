"""The supported operators of ``torch.export``, as calls of the functions of ``graph_operators``.

A name is that of the operator without its overload: ``aten.view``. Source: PyTorch, ATen's ``native_functions.yaml``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import partial

import numpy as np

from symattn.arrays.notes import note
from symattn.attention.norms import layer_norm
from symattn.document.errors import InputError
from symattn.programs.graphs import graph_operators as op
from symattn.programs.graphs import indexing, linear_systems
from symattn.programs.graphs.running import Dialect
from symattn.programs.graphs.values import (
    NOT_READ,
    Context,
    Rule,
    Value,
    bits,
    cast,
    cast_like,
    decimal,
    length,
)


def _check_dropout_is_off(c: Context, x: object, rate: float, train: bool) -> Value:
    if train and rate:
        raise InputError("dropout is on; hint: export the module after .eval()")
    return x


def _cast_as_torch_to(c: Context, x: Value, *arguments: Value, **more: Value) -> Value:
    """Cast to a type, which may be before or after a device, or to the type of another array."""
    if arguments and not isinstance(arguments[0], str) and hasattr(arguments[0], "dtype"):
        return cast_like(c, x, arguments[0])
    kind = next((t for t in (*arguments, more.get("dtype")) if isinstance(t, str)), None)
    return x if kind is None else cast(c, x, kind)


def _make_torch_reduction(name: str) -> Rule:
    rule = op.reduce(name)

    def run(
        c: Context, x: Value, dim: Value = None, keep: bool = False, dtype: str | None = None
    ) -> Value:
        # An empty list of axes means all of them.
        dim = None if isinstance(dim, (list, tuple)) and not dim else dim
        # The dtype of a reduction is that of the sum, so that x is cast first.
        return rule(c, x if dtype is None else cast(c, x, dtype), dim, keep)

    return run


def _make_scaled_sum_rule(rule: Rule) -> Rule:
    def run(c: Context, a: Value, b: Value, alpha: Value = 1) -> Value:
        scaled = b if alpha == 1 else op.binary("multiply")(c, b, alpha)
        return rule(c, a, scaled)

    return run


def _divide_and_round(c: Context, a: Value, b: Value, rounding_mode: str | None = None) -> Value:
    """Return a / b; with a ``rounding_mode`` the quotient of plain numbers, rounded down or toward zero."""
    if rounding_mode is None:
        return op.divide(c, a, b)
    if rounding_mode not in _ROUNDED_QUOTIENTS:
        raise InputError(f"rounding_mode = {rounding_mode!r} is not read")
    what = f"a quotient with rounding_mode = {rounding_mode!r}"
    return op.of_known(what, _ROUNDED_QUOTIENTS[rounding_mode])(c, a, b)


def _divide_toward_zero(a: Value, b: Value) -> Value:
    """Return the quotient of plain numbers without its fraction: of floats that of the rounded quotient, as torch's."""
    if np.result_type(a, b).kind == "f":
        return np.trunc(np.divide(a, b))
    # The remainder of integers has the sign of ``a``, so that this quotient is exact.
    return (a - np.fmod(a, b)) // b


#: Quotients of plain numbers by torch's names of roundings.
_ROUNDED_QUOTIENTS: Mapping[str, Rule] = {
    "floor": np.floor_divide,
    "trunc": _divide_toward_zero,
}


def _flip_torch_axes(c: Context, x: Value, axes: Value) -> Value:
    """Reverse some axes; an empty array stays as it is."""
    return x if 0 in x.shape else c.xp.flip(c.lifted(x), axis=tuple(axes))


def _pass_token_of_check(
    c: Context, token: object, check: object, *_: object, **__: object
) -> Value:
    """Return the token of a check that computes nothing."""
    if "check" not in str(check):
        raise InputError(f"the operator {check} has effects, and is not read")
    return (token,)


def _fill_torch_shape(
    c: Context, shape: object, value: Value, dtype: str | None = None, **_: object
) -> Value:
    return op.full(c, shape, value if dtype is None else cast(c, value, dtype))


def _make_constant_array(
    value: int,
    c: Context,
    x: Value,
    shape: Value,
    *_: object,
    dtype: str | None = None,
    **__: object,
) -> Value:
    """Return an array of one number, of the type of ``x`` if no other is given."""
    return (
        cast_like(c, op.full(c, shape, value), x)
        if dtype is None
        else _fill_torch_shape(c, shape, value, dtype)
    )


def _like(
    value: int, c: Context, x: Value, *_: object, dtype: str | None = None, **__: object
) -> Value:
    return _make_constant_array(value, c, x, x.shape, dtype=dtype)


def _softmax_of_torch(c: Context, x: Value, dim: int, dtype: Value = None) -> Value:
    scores = x if not isinstance(dtype, str) else cast(c, x, dtype)
    return op.softmax(c, scores, dim)


def _make_torch_extreme_rule(name: str, reduced: str) -> Rule:
    """Return the operator for the larger or smaller of two arrays, or along an axis, without indices."""

    def run(c: Context, x: Value, other: Value = None, keep: bool = False) -> Value:
        if other is None:
            # torch.max(x) without another argument reduces all axes.
            return op.reduce(reduced)(c, x, None, False)
        if isinstance(other, int):
            # Along an axis it also returns indices, which are not read.
            return op.reduce(reduced)(c, x, other, keep), NOT_READ
        return op.binary(name)(c, x, other)

    return run


def _never_read(c: Context, shape: Value, *_: object, **__: object) -> Value:
    """Return an uninitialised array, filled with a number that no code can mean."""
    return op.full(c, getattr(shape, "shape", shape), float(2**31 - 1))


def _split_torch_axis(c: Context, x: Value, size: int, dim: int = 0) -> Value:
    """Split an axis into parts of one length; the last may be shorter."""
    n = int(length(x.shape[dim]))
    counts = [min(int(size), n - at) for at in range(0, n, int(size))]
    return op.split(c, x, counts, dim)


def _repeat_torch_axes(c: Context, x: Value, times: Value) -> Value:
    # With more numbers than axes, ``repeat`` adds axes in front.
    further = (1,) * (len(times) - x.ndim)
    x = op.reshape(c, x, (*further, *x.shape))
    for axis, n in enumerate(times):
        x = op.concat(c, [x] * int(n), axis) if int(n) != 1 else x
    return x


def _pad_torch_array(
    c: Context, x: Value, ends: Value, mode: str = "constant", value: float | None = None
) -> Value:
    """Pad x with entries of one value before and after each axis, from the last axis on."""
    if mode != "constant" or min(map(int, ends)) < 0:
        raise InputError(
            "padding with other entries than one value, or that takes entries away, is not read"
        )
    # Pairs of numbers, for the last axis first.
    pairs = zip(ends[::2], ends[1::2], strict=True)
    for axis, (before, after) in enumerate(pairs, 1):
        x = op.padded(c, x, -axis, int(before), int(after), value or 0.0)
    return x


def _finite_numbers(
    c: Context, x: Value, nan: float | None = None, *infinite: float | None
) -> Value:
    """Replace undefined elements of x by a number."""
    if any(n is not None for n in infinite):
        raise InputError("numbers in the place of infinities are not read")
    return op.where(c, c.xp.isnan(c.lifted(x)), nan or 0.0, x)


def _vector_norm(
    c: Context, x: Value, order: float = 2, dim: Value = None, keep: bool = False, **_: object
) -> Value:
    """Return √Σ x² along axes."""
    if order != 2:
        raise InputError(f"a norm of order {order} is not read")
    return op.unary("sqrt")(
        c, _make_torch_reduction("sum")(c, op.binary("multiply")(c, x, x), dim, keep)
    )


def _layer_norm(
    c: Context,
    x: Value,
    shape: Value,
    weight: Value = None,
    bias: Value = None,
    eps: float = 1e-5,
    *_: object,
) -> Value:
    if len(shape) != 1:
        raise InputError("a norm over several axes is not read")
    gain, added = (None if a is None else c.lifted(a) for a in (weight, bias))
    return layer_norm(c.lifted(x), decimal(eps), gain, added)


def _attention_of_torch(c: Context, *arrays: Value, **more: Value) -> Value:
    """Compute torch's own attention as it is documented."""
    if c.kind is not None and hasattr(c.kind, "field"):
        note(
            "torch's scaled_dot_product_attention is taken as documented; its own code is left to floats"
        )
    return op.scaled_dot_product_attention(c, *arrays, **more)


def _clamp_between_limits(c: Context, x: Value, least: Value = None, most: Value = None) -> Value:
    x = x if least is None else op.binary("maximum")(c, x, least)
    return x if most is None else op.binary("minimum")(c, x, most)


#: Operators that copy, alias or check, and change no number.
_KEPT = (
    "aten._assert_tensor_metadata aten.contiguous aten.clone aten.detach aten.alias aten.lift_fresh "
    "aten.lift_fresh_copy"
)
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_KEPT.split(), op.same),
    "aten.dropout": _check_dropout_is_off,
    **dict.fromkeys(("aten.to", "aten._to_copy"), _cast_as_torch_to),
    "aten.add": _make_scaled_sum_rule(op.binary("add")),
    "aten.sub": _make_scaled_sum_rule(op.binary("subtract")),
    "aten.rsub": lambda c, a, b, alpha=1: _make_scaled_sum_rule(op.binary("subtract"))(
        c, b, a, alpha
    ),
    **op.table(
        op.binary, "aten.mul=multiply aten.eq=equal aten.lt=less aten.le=less_equal aten.gt=greater"
    ),
    **op.table(
        op.binary, "aten.ge=greater_equal aten.logical_and=logical_and aten.logical_or=logical_or"
    ),
    **op.table(op.binary, "aten.bitwise_and=logical_and aten.bitwise_or=logical_or"),
    **op.table(op.binary, "aten.__and__=logical_and aten.__or__=logical_or"),
    **op.table(op.unary, "aten.sqrt=sqrt aten.exp=exp aten.tanh=tanh aten.neg=negative"),
    **op.table(op.unary, "aten.logical_not=logical_not aten.bitwise_not=logical_not"),
    **op.table(
        op.unary,
        "aten.log=log aten.abs=abs aten.exp2=exp2 aten.log2=log2 aten.sin=sin aten.cos=cos",
    ),
    # As in Python, the remainder has the sign of the divisor.
    "aten.remainder": op.of_known("a remainder", np.remainder),
    **op.table(op.binary, "aten.ne=not_equal aten.maximum=maximum aten.minimum=minimum"),
    "aten.rsqrt": lambda c, x: op.divide(c, 1.0, op.unary("sqrt")(c, x)),
    "aten.reciprocal": lambda c, x: op.divide(c, 1.0, x),
    "aten.sigmoid": lambda c, x: op.divide(c, 1.0, c.lifted(1.0) + c.xp.exp(-c.lifted(x))),
    "aten.relu": lambda c, x: _clamp_between_limits(c, x, 0.0),
    "aten.max": _make_torch_extreme_rule("maximum", "max"),
    "aten.min": _make_torch_extreme_rule("minimum", "min"),
    "aten.log1p": lambda c, x: c.xp.log1p(c.lifted(x)),
    "aten.expm1": lambda c, x: c.xp.expm1(c.lifted(x)),
    "aten.logaddexp": lambda c, x, y: c.xp.log(c.xp.exp(c.lifted(x)) + c.xp.exp(c.lifted(y))),
    "aten.logsumexp": lambda c, x, dim, keep=False: c.xp.log(
        _make_torch_reduction("sum")(c, c.xp.exp(c.lifted(x)), dim, keep)
    ),
    "aten.einsum": lambda c, formula, arrays, **_: c.xp.einsum(formula, *map(c.lifted, arrays)),
    **dict.fromkeys(
        ("aten.log_softmax", "aten._log_softmax"),
        lambda c, x, dim, dtype=None: c.xp.log(_softmax_of_torch(c, x, dim, dtype)),
    ),
    "aten.layer_norm": _layer_norm,
    "aten.native_layer_norm": lambda c, *arguments: (
        _layer_norm(c, *arguments),
        NOT_READ,
        NOT_READ,
    ),
    "aten.linalg_vector_norm": _vector_norm,
    "aten.nan_to_num": _finite_numbers,
    "aten.pad": _pad_torch_array,
    "aten.copy": lambda c, x, source, *_: op.expand(c, source, x.shape),
    **dict.fromkeys(
        ("aten.full_like", "aten.fill"),
        lambda c, x, *values, **more: _fill_torch_shape(c, x.shape, *values, **more),
    ),
    "aten.scalar_tensor": lambda c, value, **_: value,
    "aten.slice_scatter": lambda c, x, part, dim=0, *ends: op.replaced(
        c, x, part, dim, range(int(length(x.shape[dim])))[slice(*ends)]
    ),
    "aten.repeat": _repeat_torch_axes,
    **dict.fromkeys(("aten.empty", "aten.empty_like"), _never_read),
    "aten.new_empty_strided": lambda c, x, shape, *_, **__: _never_read(c, shape),
    **dict.fromkeys(("aten.mT", "aten.mH"), lambda c, x: op.swap(c, x, -2, -1)),
    "aten.div": _divide_and_round,
    "aten.floor_divide": partial(_divide_and_round, rounding_mode="floor"),
    "aten.pow": op.power,
    **dict.fromkeys(("aten.clamp", "aten.clamp_min"), _clamp_between_limits),
    "aten.flip": _flip_torch_axes,
    "aten.cumsum": lambda c, x, dim, dtype=None, **_: op.cumulative(
        c, x if dtype is None else cast(c, x, dtype), dim
    ),
    "aten.stack": op.stack,
    "aten.eye": lambda c, n, m=None, *_, dtype="float", **__: (
        _fill_torch_shape(c, (), 1, dtype) * np.eye(n, m)
    ),
    **dict.fromkeys(("aten.linalg_solve_triangular",), linear_systems.solve_triangle),
    "aten.triangular_solve": lambda c, b, a, upper=True, turned=False, unitriangular=False: (
        linear_systems.solve_triangle(
            c,
            op.swap(c, a, -2, -1) if turned else a,
            b,
            upper=upper is not turned,
            unitriangular=unitriangular,
        ),
        a,
    ),
    "aten.linalg_solve": linear_systems.solve,
    "aten._linalg_solve_ex": lambda c, a, b, *_, left=True, **__: (
        linear_systems.solve(c, a, b, left=left),
        NOT_READ,
        NOT_READ,
        NOT_READ,
    ),
    **dict.fromkeys(("aten.linalg_inv", "aten.inverse"), linear_systems.invert),
    "aten.linalg_inv_ex": lambda c, a, *_, **__: (linear_systems.invert(c, a), NOT_READ),
    "with_effects": _pass_token_of_check,
    "aten.bitwise_not.bits": bits(np.bitwise_not),
    "aten.bitwise_and.bits": bits(np.bitwise_and),
    "aten.bitwise_or.bits": bits(np.bitwise_or),
    "aten.where": op.where,
    "aten.masked_fill": lambda c, x, mask, value: op.where(c, mask, value, x),
    **{
        f"aten.new_{name}": partial(_make_constant_array, value)
        for name, value in {"zeros": 0, "ones": 1}.items()
    },
    **{
        f"aten.{name}_like": partial(_like, value)
        for name, value in {"zeros": 0, "ones": 1}.items()
    },
    "aten.new_full": lambda c, x, shape, value, *_, dtype=None, **__: _fill_torch_shape(
        c, shape, value, dtype
    ),
    "aten.ones": lambda c, shape, *_, dtype="float", **__: _fill_torch_shape(c, shape, 1, dtype),
    "aten.zeros": lambda c, shape, *_, dtype="float", **__: _fill_torch_shape(c, shape, 0, dtype),
    "aten.full": _fill_torch_shape,
    "aten.arange": lambda c, *ends, **_: op.arange(c, *((0, *ends) if len(ends) == 1 else ends)),
    "aten.triu": op.triangle,
    "aten.tril": partial(op.triangle, upper=0),
    **dict.fromkeys(("aten.sym_size", "aten.size"), op.size),
    **dict.fromkeys(("aten.view", "aten.reshape", "aten._unsafe_view"), op.reshape),
    "aten.flatten": lambda c, x, start=0, end=-1: op.reshape(
        c, x, (*x.shape[: start % x.ndim], -1, *x.shape[end % x.ndim + 1 :])
    ),
    "aten.transpose": op.swap,
    "aten.t": lambda c, x: op.swap(c, x, 0, 1),
    "aten.permute": op.transpose,
    "aten.unsqueeze": op.unsqueeze,
    "aten.squeeze": op.squeeze,
    "aten.expand": op.expand,
    "aten.cat": op.concat,
    "aten.split": _split_torch_axis,
    "aten.split_with_sizes": op.split,
    "aten.chunk": op.chunk,
    "aten.slice": op.part,
    "aten.index": indexing.take_places,
    "aten.index_put": indexing.put_places,
    "aten.index_copy": indexing.copy_rows,
    "aten.select": lambda c, x, dim, index: op.gather(c, x, np.asarray(index), dim),
    "getitem": lambda c, xs, index: xs[index],
    "aten.sum": _make_torch_reduction("sum"),
    "aten.mean": _make_torch_reduction("mean"),
    "aten.amax": _make_torch_reduction("max"),
    **dict.fromkeys(("aten.matmul", "aten.bmm", "aten.mm"), op.product),
    "aten.linear": lambda c, x, w, b=None: op.product(c, x, w, b, transB=1),
    **dict.fromkeys(
        ("aten.addmm", "aten.baddbmm"), lambda c, b, x, w, **by: op.product(c, x, w, b, **by)
    ),
    **dict.fromkeys(("aten.softmax", "aten._softmax"), _softmax_of_torch),
    "aten.scaled_dot_product_attention": _attention_of_torch,
    "add": op.of_lengths(operator.add),
    "sub": op.of_lengths(operator.sub),
    "mul": op.of_lengths(operator.mul),
    "floordiv": op.of_lengths(operator.floordiv),
}
#: Operators whose rules take ``Joined`` arrays as they are.
_PARTS = ("linear", "addmm", "matmul", "add", "chunk", "split", "split_with_sizes", "slice")
TORCH = Dialect(
    RULES,
    apart=frozenset(["getitem", *(f"aten.{name}" for name in _PARTS)]),
    turned=frozenset(["aten.t", "aten.transpose", "aten.permute"]),
    transposes=lambda node, _: node.operator == "aten.linear",
    tuples=True,
)

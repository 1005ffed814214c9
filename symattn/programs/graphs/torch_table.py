"""The operators of ``torch.export`` that are read, as calls of what ``operators`` and ``attending`` define.

A name is that of the operator without its overload: ``aten.view``. Source: PyTorch, ATen's ``native_functions.yaml``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.document.errors import InputError
from symattn.programs.graphs import attending as at
from symattn.programs.graphs import operators as op
from symattn.programs.graphs.casting import cast, cast_like
from symattn.programs.graphs.ranges import bits
from symattn.programs.graphs.running import Rule
from symattn.programs.graphs.values import Context, length


def _same(c: Context, x: object, *_: object, **__: object) -> Any:
    return x


def _dropout(c: Context, x: object, rate: float, train: bool) -> Any:
    if train and rate:
        raise InputError("dropout is on; hint: export the module after .eval()")
    return x


def _to(c: Context, x: Any, *told: Any, **more: Any) -> Any:
    """What says a type may stand before or after a device; another array gives its own."""
    if told and not isinstance(told[0], str) and hasattr(told[0], "dtype"):
        return cast_like(c, x, told[0])
    kind = next((t for t in (*told, more.get("dtype")) if isinstance(t, str)), None)
    return x if kind is None else cast(c, x, kind)


def _reduce(name: str) -> Rule:
    rule = op.reduce(name)

    def run(c: Context, x: Any, dim: Any = None, keep: bool = False, dtype: str | None = None) -> Any:
        return rule(c, x if dtype is None else cast(c, x, dtype), dim, keep)

    return run


def _add(rule: Rule) -> Rule:
    def run(c: Context, a: Any, b: Any, alpha: Any = 1) -> Any:
        return rule(c, a, b if alpha == 1 else op.binary("multiply")(c, b, alpha))

    return run


def _full(value: Any) -> Rule:
    def run(c: Context, shape: object, *_: object, dtype: str = "float", **__: object) -> Any:
        return op.full(c, shape, {"bool": bool, "int": int, "float": float}[dtype](value))

    return run


def _arange(c: Context, *ends: Any, **_: object) -> Any:
    return op.arange(c, *((0, *ends) if len(ends) == 1 else ends))


def _softmax(c: Context, x: Any, dim: int, dtype: Any = None) -> Any:
    return at.softmax(c, x if not isinstance(dtype, str) else cast(c, x, dtype), dim)


def _flatten(c: Context, x: Array, start: int = 0, end: int = -1) -> Any:
    return op.reshape(c, x, (*x.shape[: start % x.ndim], -1, *x.shape[end % x.ndim + 1 :]))


def _masked_fill(c: Context, x: Any, mask: Any, value: Any) -> Any:
    return op.where(c, mask, value, x)


def _sizes(rule: Any) -> Rule:
    return lambda c, a, b: rule(length(a), length(b))


_KEPT = "aten.contiguous aten.clone aten.detach aten.alias aten.lift_fresh_copy"
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_KEPT.split(), _same),
    "aten._assert_tensor_metadata": _same,
    "aten.dropout": _dropout,
    "aten.to": _to,
    "aten._to_copy": _to,
    "aten.type_as": cast_like,
    "aten.add": _add(op.binary("add")),
    "aten.sub": _add(op.binary("subtract")),
    "aten.mul": op.binary("multiply"),
    "aten.div": op.divide,
    "aten.pow": op.power,
    "aten.sqrt": op.unary("sqrt"),
    "aten.exp": op.unary("exp"),
    "aten.tanh": op.unary("tanh"),
    "aten.neg": op.unary("negative"),
    "aten.logical_not": op.unary("logical_not"),
    "aten.bitwise_not": op.unary("logical_not"),
    "aten.logical_and": op.binary("logical_and"),
    "aten.bitwise_and": op.binary("logical_and"),
    "aten.logical_or": op.binary("logical_or"),
    "aten.bitwise_or": op.binary("logical_or"),
    "aten.bitwise_not.bits": bits(np.bitwise_not),
    "aten.bitwise_and.bits": bits(np.bitwise_and),
    "aten.bitwise_or.bits": bits(np.bitwise_or),
    "aten.eq": op.binary("equal"),
    "aten.lt": op.binary("less"),
    "aten.le": op.binary("less_equal"),
    "aten.gt": op.binary("greater"),
    "aten.ge": op.binary("greater_equal"),
    "aten.where": op.where,
    "aten.masked_fill": _masked_fill,
    "aten.ones": _full(1),
    "aten.zeros": _full(0),
    "aten.full": lambda c, shape, value, dtype=None, **_: op.full(
        c, shape, value if dtype is None else cast(c, value, dtype)
    ),
    "aten.arange": _arange,
    "aten.triu": lambda c, x, k=0: op.triangle(c, x, k, True),
    "aten.tril": lambda c, x, k=0: op.triangle(c, x, k, False),
    "aten.sym_size": op.size,
    "aten.size": op.size,
    "aten.view": op.reshape,
    "aten.reshape": op.reshape,
    "aten._unsafe_view": op.reshape,
    "aten.flatten": _flatten,
    "aten.transpose": op.swap,
    "aten.t": lambda c, x: op.swap(c, x, 0, 1),
    "aten.permute": op.transpose,
    "aten.unsqueeze": op.unsqueeze,
    "aten.squeeze": op.squeeze,
    "aten.expand": op.expand,
    "aten.cat": lambda c, xs, dim=0: op.concat(c, xs, dim),
    "aten.split": lambda c, x, size, dim=0: op.chunk(c, x, -(-int(length(x.shape[dim])) // int(size)), dim),
    "aten.split_with_sizes": lambda c, x, sizes, dim=0: op.split(c, x, sizes, dim),
    "aten.chunk": lambda c, x, count, dim=0: op.chunk(c, x, count, dim),
    "aten.slice": lambda c, x, dim=0, start=None, end=None, step=1: op.part(c, x, dim, start, end, step),
    "aten.select": lambda c, x, dim, index: op.gather(c, x, np.asarray(index), dim),
    "getitem": lambda c, xs, index: xs[index],
    "aten.sum": _reduce("sum"),
    "aten.mean": _reduce("mean"),
    "aten.amax": _reduce("max"),
    "aten.matmul": at.matmul,
    "aten.bmm": at.matmul,
    "aten.mm": at.matmul,
    "aten.linear": at.linear,
    "aten.addmm": lambda c, b, x, w: at.gemm(c, x, w, b, 1, 1, (False, False)),
    "aten.softmax": _softmax,
    "aten._softmax": _softmax,
    "aten.scaled_dot_product_attention": lambda c, q, k, v, mask=None, dropout=0.0, causal=False, **told: (
        at.scaled_dot_product_attention(c, q, k, v, mask, dropout, causal, **told)
    ),
    "add": _sizes(operator.add),
    "sub": _sizes(operator.sub),
    "mul": _sizes(operator.mul),
    "floordiv": _sizes(operator.floordiv),
}

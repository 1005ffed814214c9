"""The operators of ``torch.export`` that are read, as calls of what ``operators`` and ``attending`` define.

A name is that of the operator without its overload: ``aten.view``. Source: PyTorch, ATen's ``native_functions.yaml``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from symattn.document.errors import InputError
from symattn.programs.graphs import attending as at
from symattn.programs.graphs import operators as op
from symattn.programs.graphs.form import Rule
from symattn.programs.graphs.ranges import bits, cast, cast_like
from symattn.programs.graphs.values import Context, length


def _dropout(c: Context, x: object, rate: float, train: bool) -> Any:
    if train and rate:
        raise InputError("dropout is on; hint: export the module after .eval()")
    return x


def _to(c: Context, x: Any, *told: Any, **more: Any) -> Any:
    """Cast to a type, which may stand before or after a device; another array gives its own."""
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


def _softmax(c: Context, x: Any, dim: int, dtype: Any = None) -> Any:
    return at.softmax(c, x if not isinstance(dtype, str) else cast(c, x, dtype), dim)


_KEPT = "aten._assert_tensor_metadata aten.contiguous aten.clone aten.detach aten.alias aten.lift_fresh_copy"
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_KEPT.split(), op.same),
    "aten.dropout": _dropout,
    **dict.fromkeys(("aten.to", "aten._to_copy"), _to),
    "aten.type_as": cast_like,
    "aten.add": _add(op.binary("add")),
    "aten.sub": _add(op.binary("subtract")),
    **op.table(op.binary, "aten.mul=multiply aten.eq=equal aten.lt=less aten.le=less_equal aten.gt=greater"),
    **op.table(op.binary, "aten.ge=greater_equal aten.logical_and=logical_and aten.logical_or=logical_or"),
    **op.table(op.binary, "aten.bitwise_and=logical_and aten.bitwise_or=logical_or"),
    **op.table(op.unary, "aten.sqrt=sqrt aten.exp=exp aten.tanh=tanh aten.neg=negative"),
    **op.table(op.unary, "aten.logical_not=logical_not aten.bitwise_not=logical_not"),
    "aten.div": op.divide,
    "aten.pow": op.power,
    "aten.bitwise_not.bits": bits(np.bitwise_not),
    "aten.bitwise_and.bits": bits(np.bitwise_and),
    "aten.bitwise_or.bits": bits(np.bitwise_or),
    "aten.where": op.where,
    "aten.masked_fill": lambda c, x, mask, value: op.where(c, mask, value, x),
    "aten.ones": _full(1),
    "aten.zeros": _full(0),
    "aten.full": lambda c, shape, value, dtype=None, **_: op.full(
        c, shape, value if dtype is None else cast(c, value, dtype)
    ),
    "aten.arange": lambda c, *ends, **_: op.arange(c, *((0, *ends) if len(ends) == 1 else ends)),
    "aten.triu": lambda c, x, k=0: op.triangle(c, x, k, True),
    "aten.tril": lambda c, x, k=0: op.triangle(c, x, k, False),
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
    **dict.fromkeys(("aten.matmul", "aten.bmm", "aten.mm"), lambda c, a, b: at.product(c, a, b)),
    "aten.linear": lambda c, x, w, b=None: at.product(c, x, w, b, transB=1),
    "aten.addmm": lambda c, b, x, w: at.product(c, x, w, b),
    **dict.fromkeys(("aten.softmax", "aten._softmax"), _softmax),
    "aten.scaled_dot_product_attention": at.scaled_dot_product_attention,
    "add": op.of_lengths(operator.add),
    "sub": op.of_lengths(operator.sub),
    "mul": op.of_lengths(operator.mul),
    "floordiv": op.of_lengths(operator.floordiv),
}

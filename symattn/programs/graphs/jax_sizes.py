"""Lengths that ``jax.export`` left open, as nodes: a length of a jaxpr may be a sum of products of such lengths."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from symattn.document.errors import InputError
from symattn.programs.graphs.form import Ref

_SIGNS: Mapping[type[ast.operator], str] = {ast.Add: "dim.add", ast.Sub: "dim.sub", ast.Mult: "dim.mul"}
_MOST = 200  # characters


def size_nodes(text: str, known: Mapping[str, Ref], add: Callable[..., list[Ref]]) -> Any:
    """The value of ``2*n - 1``, as JAX prints a length. Raises ``InputError`` for quotients, and unknown letters."""

    def value(tree: ast.expr) -> Any:
        if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
            return tree.value
        if isinstance(tree, ast.Name) and tree.id in known:
            return known[tree.id]
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            return add("dim.mul", [-1, value(tree.operand)])[0]
        if isinstance(tree, ast.BinOp) and type(tree.op) in _SIGNS:
            return add(_SIGNS[type(tree.op)], [value(tree.left), value(tree.right)])[0]
        if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Pow) and isinstance(tree.right, ast.Constant):
            return _power(value(tree.left), int(tree.right.value), add)  # type: ignore[arg-type]
        raise InputError(f"the length {text[:60]} is not read; hint: sums and products of sizes that inputs have")

    if len(text) > _MOST:
        raise InputError(f"the length {text[:60]}… is not read")
    return value(ast.parse(text, mode="eval").body)


def _power(base: Any, exponent: int, add: Callable[..., list[Ref]]) -> Any:
    found = base
    for _ in range(exponent - 1):
        found = add("dim.mul", [found, base])[0]
    return found

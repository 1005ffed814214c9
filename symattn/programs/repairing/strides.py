"""The strides among the parameters of kernels: each is exchanged for one of its tensor, or of its axis, alone.

A kernel has a dozen of strides, all whole numbers. That one stands in place of a length or an offset, or of any other
stride, is rare; trying all of them takes most of a search.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from types import FunctionType
from typing import Any

from symattn.programs.repairing.source import SourceFunction, Sources


@dataclass(frozen=True)
class Stride:
    """One stride: the tensor and the axis, as texts of the code; the axis is empty for all strides of a tensor."""

    tensor: str
    axis: str = ""

    def is_near(self, other: Stride) -> bool:
        """Return whether both have the same tensor or the same axis."""
        return self.tensor == other.tensor or self.axis == other.axis


#: The strides among the names of a function.
Strides = dict[str, Stride]


def are_exchangeable(one: Stride | None, other: Stride | None) -> bool:
    """Return whether a name may stand in place of another one, of which each is a stride or, with None, none."""
    if one is None or other is None:
        return one is other
    return one.is_near(other)


@dataclass(frozen=True)
class _StrideInSum:
    """A stride in a product with an index, and the sum of such products that it is in, by the number of its node."""

    node: ast.Name
    index: str
    sum: int


def likely_strides(tree: ast.AST, strides: Strides) -> dict[int, list[str]]:
    """Return the strides that the code around a stride suggests in its place, by the number of the stride's node.

    One index has the same axis in each sum, and all strides of a sum are of one tensor: in ``v + head * stride_vb``
    beside ``k + head * stride_kh`` the axis of heads is suggested, in ``head * stride_vh + j * stride_kn`` the stride
    of ``v`` for tokens. Code without such a contradiction has no suggestion.
    """
    uses = [*_strides_in_sums(tree, strides, id(tree))]
    result: dict[int, list[str]] = {}
    for use in uses:
        own = strides[use.node.id]
        others = [other for other in uses if other is not use]
        axes = {strides[o.node.id].axis for o in others if o.index == use.index}
        tensors = {strides[o.node.id].tensor for o in others if o.sum == use.sum}
        meant = {Stride(own.tensor, axis) for axis in axes}
        meant |= {Stride(tensor, own.axis) for tensor in tensors}
        names = [name for name, stride in strides.items() if stride in meant - {own}]
        if names:
            result[getattr(use.node, "number", -1)] = names
    return result


def _strides_in_sums(node: ast.AST, strides: Strides, number: int) -> Iterator[_StrideInSum]:
    """Yield the strides in products with an index, of which each is in the sum of this ``number`` or in one below."""
    operator = node.op if isinstance(node, ast.BinOp) else None
    if isinstance(node, ast.BinOp) and isinstance(operator, ast.Mult):
        for own, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(own, ast.Name) and own.id in strides:
                yield _StrideInSum(own, _index_of(other), number)
    for part in ast.iter_child_nodes(node):
        # The operands of a sum are in it, and a sum within it is a part of it.
        is_within = isinstance(operator, ast.Add)
        yield from _strides_in_sums(part, strides, number if is_within else id(part))


def _index_of(node: ast.expr) -> str:
    """Return the text of an index without its new axes and its format: ``i`` for ``i[:, None].to(tl.int64)``."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        # Functions of a module, such as ``tl.arange``, are indices themselves.
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "to":
            node = node.func.value  # type: ignore[attr-defined]
        else:
            return ast.unparse(node)


def strides_of_functions(sources: Sources) -> dict[int, Strides]:
    """Return the strides among the names of each function, by the function's ``id``.

    A launch such as ``kernel[grid](q, q.stride(0))`` shows them, and so does a call that passes a stride on.
    """
    functions = sources.functions.items()
    result: dict[int, Strides] = {key: dict(_assigned_strides(f)) for key, f in functions}
    # Each round reaches the functions that are called one level deeper.
    for _ in functions:
        before = [len(strides) for strides in result.values()]
        for key, source in functions:
            for called, name, argument in _passed_arguments(sources, source):
                if stride := _stride_of(argument, result[key]):
                    result[called].setdefault(name, stride)
        if before == [len(strides) for strides in result.values()]:
            break
    return result


def _assigned_strides(source: SourceFunction) -> Iterator[tuple[str, Stride]]:
    """Yield the names that are assigned one stride of a tensor, or all of them."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Assign) or not (stride := _stride_of(node.value, {})):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and stride.axis:
                yield target.id, stride
            names = target.elts if isinstance(target, ast.Tuple) and not stride.axis else []
            for axis, name in enumerate(names):
                if isinstance(name, ast.Name):
                    yield name.id, replace(stride, axis=str(axis))


def _stride_of(node: ast.expr, known: Strides) -> Stride | None:
    """Return the stride that an expression gives; None for any other expression."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Subscript):
        # ``q.stride()[0]`` is ``q.stride(0)``.
        stride = _stride_of(node.value, {})
        return replace(stride, axis=ast.unparse(node.slice)) if stride else None
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "stride":
        tensor = ast.unparse(node.func.value)  # type: ignore[attr-defined]
        return Stride(tensor, ast.unparse(node.args[0]) if node.args else "")
    return None


def _passed_arguments(
    sources: Sources, source: SourceFunction
) -> Iterator[tuple[int, str, ast.expr]]:
    """Yield the arguments of calls and launches of other functions: its ``id``, the parameter, the expression."""
    space = source.function.__globals__
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        function = _innermost(space.get(name.id)) if isinstance(name, ast.Name) else None
        called = sources.functions.get(id(function))
        if called is None:
            continue
        names = [a.arg for a in (*called.tree.args.posonlyargs, *called.tree.args.args)]
        # After ``*values`` the place of an argument is not known.
        plain = takewhile(lambda x: not isinstance(x, ast.Starred), node.args)
        pairs = [*zip(names, plain, strict=False), *((k.arg, k.value) for k in node.keywords)]
        yield from ((id(function), n, x) for n, x in pairs if n is not None)


def _innermost(x: Any) -> Any:
    """Return the function within a kernel and what tunes it."""
    while x is not None and not isinstance(x, FunctionType):
        x = getattr(x, "fn", None)
    return x

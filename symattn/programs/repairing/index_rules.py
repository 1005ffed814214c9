"""The rules of indices and bounds: ends of slices, also of targets, items, ranges of loops, letters and orders of axes.

A bound is a whole number that a range, a slice, a comparison or a minimum has; near it stand names of other loops and
lengths, by one more or fewer.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import permutations
from typing import Any

from symattn.programs.repairing.edits import (
    LOOKED_AT,
    BlockRule,
    BlockStatement,
    EditRule,
    Place,
    shown_change,
)
from symattn.programs.repairing.expressions import change_slice, move_slice, take_index
from symattn.programs.repairing.lengths import differences
from symattn.programs.repairing.observing import Kind
from symattn.verification.repair import Replacement

#: New expressions, as text or as trees.
Changes = Iterator[str | ast.expr]
#: Calls whose arguments bound something.
_BOUNDING = ("range", "min", "max", "minimum", "maximum", "arange")
#: Calls that name an order of axes.
_ORDERING = ("transpose", "permute")
# attributes that an array and its parts have in common
_DESCRIBING = ("shape", "dtype", "ndim", "size", "device")
_MOST_AXES = 4  # of which all orders are tried


def _word_of(node: ast.AST) -> str:
    function = getattr(node, "func", None)
    return str(getattr(function, "attr", getattr(function, "id", "")))


# -- slices and items --------------------------------------------------------------------------------------------------
def take_other_end(p: Place) -> Changes:
    """A slice that leaves out as many entries at the other end: ``x[:-1]`` for ``x[1:]``."""
    items = _items_of(p.node)
    for k, item in enumerate(items):
        if not isinstance(item, ast.Slice) or item.step is not None:
            continue
        for lower, upper in _other_ends(item.lower, item.upper):
            new = [*items[:k], ast.Slice(lower, upper), *items[k + 1 :]]
            yield _subscript(p.node, new)


def _other_ends(
    lower: ast.expr | None, upper: ast.expr | None
) -> Iterator[tuple[ast.expr | None, ast.expr | None]]:
    """Yield other ends of a slice with one end: counted from the other side."""
    if (lower is None) == (upper is None):
        return
    end = lower if lower is not None else upper
    is_negative = isinstance(end, ast.UnaryOp) and isinstance(end.op, ast.USub)
    other = end.operand if is_negative else ast.UnaryOp(ast.USub(), end)  # type: ignore[union-attr,arg-type]
    yield (None, other) if lower is not None else (other, None)
    yield (other, None) if lower is not None else (None, other)


def _items_of(node: ast.Subscript) -> list[ast.expr]:
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _subscript(node: ast.Subscript, items: Sequence[ast.expr]) -> ast.Subscript:
    index = ast.Tuple(list(items), ast.Load()) if len(items) > 1 else items[0]
    return ast.Subscript(node.value, index, ast.Load())


def take_item(p: Place) -> Changes:
    """An item, or a part, of an array in place of it whole: by an index that another subscript has."""
    is_indexed = isinstance(p.parent, ast.Subscript)
    is_described = isinstance(p.parent, ast.Attribute) and p.parent.attr in _DESCRIBING
    if not p.kind.is_array or is_indexed or is_described or p.is_called:
        return
    for text, item in p.function.subscripts.items():
        names = {n.id for n in ast.walk(item) if isinstance(n, ast.Name)}
        is_index = isinstance(item, ast.Slice) or p.kind_of(item).name == "int"
        if names and is_index and names <= p.scope.keys():
            yield f"{p.plain_text}[{text}]"
            if len(p.kind.shape) > 1:
                yield f"{p.plain_text}[..., {text}]"


def look_up_index(p: Place) -> Changes:
    """An index by its item in an array of whole numbers, as of a page table: ``x[rows[i]]`` for ``x[i]``."""
    items = _items_of(p.node)
    tables = [name for name, kind in p.names("ints").items() if len(kind.shape) == 1]
    for k, item in enumerate(items):
        if isinstance(item, ast.Constant) or p.kind_of(item).name != "int":
            continue
        for table in tables:
            is_table_itself = isinstance(p.node.value, ast.Name) and p.node.value.id == table
            if not is_table_itself:
                looked_up = ast.Subscript(ast.Name(table, ast.Load()), item, ast.Load())
                yield _subscript(p.node, [*items[:k], looked_up, *items[k + 1 :]])


def take_part_of_idle_name(p: Place) -> Changes:
    """A part of an array that nothing reads, by an index in use, in place of an expression: ``sums[a:b]``."""
    is_indexed = isinstance(p.parent, ast.Subscript)
    if p.kind.name != "floats" or is_indexed or p.is_called or isinstance(p.node, ast.Name):
        return
    idle = [n for n in sorted(p.function.idle & p.scope.keys()) if p.scope[n].name == "floats"]
    for index in _indices_in_use(p) if idle else ():
        yield from (f"{name}[{index}]" for name in idle)


def _indices_in_use(p: Place) -> list[str]:
    """Return the indices of all subscripts that read a name, each with its new axes; those that are in scope."""
    result: dict[str, None] = {}
    for node in ast.walk(p.function.source.tree):
        if isinstance(node, ast.Subscript):
            names = {n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)}
            if names and names <= p.scope.keys():
                result[ast.unparse(node.slice)] = None
    return [*result]


def change_target_slice(
    s: BlockStatement,
) -> Iterator[tuple[Sequence[Replacement], str, str]]:
    """The slices of a target, such as the rows of a buffer into which a block is written."""
    targets = getattr(s.node, "targets", None) or [getattr(s.node, "target", None)]
    for target in targets:
        if isinstance(target, ast.Subscript):
            place = Place(target, s.node, "targets", Kind("floats"), s.scope, s.function)
            old = s.text(target)
            for change in (change_slice, take_other_end, move_slice, take_index, look_up_index):
                for new in change(place):
                    text = new if isinstance(new, str) else ast.unparse(new)
                    yield [s.put(target, text)], *shown_change(old, text)


# -- bounds ------------------------------------------------------------------------------------------------------------
def _is_bound(p: Place) -> bool:
    """Return whether an expression is a whole number that bounds a loop, a slice, a comparison or a minimum."""
    is_argument = isinstance(p.parent, ast.Call) and p.field == "args"
    is_bounding = is_argument and _word_of(p.parent) in _BOUNDING
    is_end = isinstance(p.parent, ast.Slice | ast.Compare)
    return p.kind.name == "int" and (is_bounding or is_end)


def take_whole_remainder(p: Place) -> Changes:
    """A remainder from 1 to the divisor in place of one from 0 on: the length of a last part, which may be whole."""
    if isinstance(p.node.op, ast.Mod) and p.kind.name in ("int", "ints"):
        yield f"({_in_brackets(p.node.left)} - 1) % {_in_brackets(p.node.right)} + 1"


def _in_brackets(node: ast.expr) -> str:
    return (
        ast.unparse(node) if isinstance(node, ast.Name | ast.Constant) else f"({ast.unparse(node)})"
    )


def take_neighbour(p: Place) -> Changes:
    """A name of a whole number, by one more or fewer, in place of a bound: ``i + 1`` for ``n``."""
    if _is_bound(p):
        for name in p.whole_names:
            yield f"{name} + 1"
            yield f"{name} - 1"


def shift_bound(p: Place) -> Changes:
    """A bound moved by the difference of two whole numbers, and by one more or fewer."""
    if not _is_bound(p) or not isinstance(p.node, ast.Name | ast.BinOp):
        return
    whole = p.whole_names
    for one in whole:
        for other in whole:
            if one != other:
                yield f"{p.text} + {one} - {other} + 1"
                yield f"{p.text} + {one} - {other} - 1"


def change_range(p: Place) -> Changes:
    """A range from a name or from 1 on, to its end alone, in steps of a name, or in the other direction."""
    node = p.node
    if _word_of(node) != "range" or node.keywords:
        return
    call, arguments = node.func, list(node.args)
    begins = ["1", *p.whole_names, *(f"{name} + 1" for name in p.whole_names)]
    if len(arguments) == 1:
        yield from (ast.Call(call, [_parsed(begin), arguments[0]], []) for begin in begins)
    if len(arguments) == 2:
        yield ast.Call(call, arguments[1:], [])
        yield from (ast.Call(call, [*arguments, _parsed(name)], []) for name in p.whole_names)
    # Within another call it has its order from there.
    if not isinstance(p.parent, ast.Call):
        yield f"reversed({p.plain_text})"


def shift_both_ends(p: Place) -> Changes:
    """Both ends of a range moved by a whole number in scope: its names, by that, where they stand in both ends.

    So ``range(max(0, i - w), i + 1)`` becomes ``range(max(0, i + past - w), i + past + 1)``.
    """
    node = p.node
    if isinstance(node, ast.Call) and _word_of(node) == "range" and len(node.args) == 2:
        for shifted in _both_ends_shifted(p, node.args[0], node.args[1]):
            yield ast.Call(node.func, shifted, node.keywords)
    for k, item in enumerate(_items_of(node) if isinstance(node, ast.Subscript) else ()):
        if isinstance(item, ast.Slice) and item.lower is not None and item.upper is not None:
            for lower, upper in _both_ends_shifted(p, item.lower, item.upper):
                items = _items_of(node)
                items[k] = ast.Slice(lower, upper, item.step)
                yield _subscript(node, items)


def move_both_ends_by_one(p: Place) -> Changes:
    """Both ends of a slice or a range moved by one: ``x[0 : 2 * n : 2]`` for ``x[1 : 2 * n + 1 : 2]``."""
    node = p.node
    if isinstance(node, ast.Call) and _word_of(node) == "range" and len(node.args) > 1:
        for ends in _both_ends_by_one(node.args[0], node.args[1]):
            yield ast.Call(node.func, [*ends, *node.args[2:]], node.keywords)
    for k, item in enumerate(_items_of(node) if isinstance(node, ast.Subscript) else ()):
        if not isinstance(item, ast.Slice) or item.upper is None:
            continue
        # Without a step a slice from 0 on has a start that was left out on purpose.
        if item.lower is not None or item.step is not None:
            for lower, upper in _both_ends_by_one(item.lower or ast.Constant(0), item.upper):
                items = _items_of(node)
                items[k] = ast.Slice(lower, upper, item.step)
                yield _subscript(node, items)


def _both_ends_by_one(lower: ast.expr, upper: ast.expr) -> Iterator[list[ast.expr]]:
    """Yield two bounds by one more, and by one fewer unless the lower one is 0."""
    is_zero = isinstance(lower, ast.Constant) and lower.value == 0
    for by in (1,) if is_zero else (1, -1):
        yield [_moved_by_one(end, by) for end in (lower, upper)]


def _moved_by_one(end: ast.expr, by: int) -> ast.expr:
    """Return a bound by one more or fewer, in which a number that is added becomes another one, or goes."""
    if isinstance(end, ast.Constant) and type(end.value) is int:
        return _parsed(str(end.value + by))
    is_sum = isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add | ast.Sub)
    added = end.right if is_sum else None  # type: ignore[attr-defined]
    if isinstance(added, ast.Constant) and type(added.value) is int:
        sign = 1 if isinstance(end.op, ast.Add) else -1  # type: ignore[attr-defined]
        return _with_term(end.left, sign * added.value + by)  # type: ignore[attr-defined]
    return _with_term(end, by)


def _with_term(node: ast.expr, number: int) -> ast.expr:
    if not number:
        return node
    sign = ast.Add() if number > 0 else ast.Sub()
    return ast.BinOp(node, sign, ast.Constant(abs(number)))


def _both_ends_shifted(p: Place, lower: ast.expr, upper: ast.expr) -> Iterator[list[ast.expr]]:
    """Yield two bounds, with a whole number added to one of the names that stand in both."""
    common = _whole_names_in(p, lower) & _whole_names_in(p, upper)
    amounts = [*p.whole_names, *differences(p.scope)]
    for name in sorted(common):
        for amount in amounts:
            if amount != name:
                shift = _Shift(name, amount)
                yield [shift.visit(deepcopy(end)) for end in (lower, upper)]


def _whole_names_in(p: Place, node: ast.expr) -> set[str]:
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return {name for name in names if name in p.scope and p.scope[name].name == "int"}


class _Shift(ast.NodeTransformer):
    """Adds an amount to a name wherever it stands."""

    def __init__(self, name: str, amount: str) -> None:
        self._name, self._amount = name, amount

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id != self._name:
            return node
        return ast.BinOp(node, ast.Add(), _parsed(self._amount))


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


# -- axes --------------------------------------------------------------------------------------------------------------
def change_letter(p: Place) -> Changes:
    """One letter of the text of an einsum in place of another one."""
    text = p.node.value
    is_einsum = isinstance(text, str) and bool(re.fullmatch(r"[A-Za-z.,\s]+->[A-Za-z.\s]*", text))
    if not is_einsum or "," not in text:
        return
    letters = sorted({c for c in text if c.isalpha()})
    for k, old in enumerate(text):
        for new in letters if old.isalpha() else ():
            if new != old:
                yield repr(text[:k] + new + text[k + 1 :])


def change_order_of_axes(p: Place) -> Changes:
    """The axes that a call names in any other order: ``x.transpose(2, 0, 1)`` for ``x.transpose(1, 2, 0)``."""
    node = p.node
    if _word_of(node) not in _ORDERING:
        return
    whole = node.args[-1] if node.args else None
    is_tuple = isinstance(whole, ast.Tuple | ast.List)
    axes: list[Any] = list(whole.elts) if is_tuple else list(node.args)  # type: ignore[union-attr]
    are_numbers = all(isinstance(a, ast.Constant | ast.UnaryOp) for a in axes)
    if not are_numbers or not 3 <= len(axes) <= _MOST_AXES:
        return
    for order in permutations(axes):
        arguments = (
            [*node.args[:-1], ast.Tuple(list(order), ast.Load())] if is_tuple else list(order)
        )
        yield ast.Call(node.func, arguments, node.keywords)


#: For rules that look at the kind of an expression, not at its form.
ANY = ast.expr
RULES: tuple[EditRule, ...] = tuple(
    replace(rule, added=LOOKED_AT, where="arrays")
    for rule in (
        EditRule("slice", 1, ast.Subscript, take_other_end, likely=True),
        EditRule("einsum", 2, ast.Constant, change_letter, likely=True),
        EditRule("order", 2, ast.Call, change_order_of_axes, likely=True),
        EditRule("remainder", 2, ast.BinOp, take_whole_remainder, likely=True),
        EditRule("index", 2, ANY, take_part_of_idle_name, likely=True),
        EditRule("index", 2, ast.Subscript, look_up_index),
        EditRule("bound", 2, ANY, take_neighbour),
        EditRule("range", 2, ast.Call, change_range),
        EditRule("range moved", 2, (ast.Call, ast.Subscript), shift_both_ends, likely=True),
        EditRule("range by one", 2, (ast.Call, ast.Subscript), move_both_ends_by_one, likely=True),
        EditRule("bound", 3, ANY, shift_bound),
        EditRule("index", 3, (ast.Name, ast.Attribute), take_item),
    )
)
BLOCK_RULES: tuple[BlockRule, ...] = (
    BlockRule("slice", 2, change_target_slice, likely=True, added=LOOKED_AT, where="arrays"),
)

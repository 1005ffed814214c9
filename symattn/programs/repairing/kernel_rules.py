"""The rules of kernels of Triton: blocks, pointers, masks of loads and stores.

As all rules they know the language and nothing of attention. A kernel keeps rows as blocks of one axis, which get a
new axis where they meet blocks of two; its masks stand within calls rather than under names; it has no infinity of its
own, and no powers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from symattn.programs.repairing.edits import (
    BlockRule,
    BlockStatement,
    EditRule,
    FunctionPlaces,
    Place,
    Where,
    forms_of,
)
from symattn.programs.repairing.observing import Kind
from symattn.verification.repair import Replacement

#: New expressions, as text or as trees.
Changes = Iterator[str | ast.expr]
#: Functions of Triton that are easily confused.
_GROUPS_OF_TWINS = (
    ("program_id", "num_programs"), ("store", "atomic_add"), ("exp", "exp2"), ("log", "log2"),
    ("max", "min", "sum"), ("maximum", "minimum"), ("sum", "cumsum"), ("zeros", "zeros_like"),
)  # fmt: skip
_MOST_MASKS = 8  # conditions of the kernel that are tried in one place
#: The factor between exponents to the bases e and 2.
_LOG2_OF_E = "1.4426950408889634"
#: The reason that is recorded for rules which wrong kernels suggested.
_LOOKED_AT = "taken before others after wrong kernels had been looked at"
#: Kinds of addresses: of one number, and of a block.
_POINTERS = ("pointer", "pointers")


def _word(node: ast.expr) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


# -- tier 1: one token or operand --------------------------------------------------------------------------------------
def change_function_of_kernel(p: Place) -> Changes:
    if not p.is_called:
        return
    for group in _GROUPS_OF_TWINS:
        if p.node.attr in group:
            for other in group:
                if other != p.node.attr:
                    yield f"{ast.unparse(p.node.value)}.{other}"


def change_pointer(p: Place) -> Changes:
    """Another pointer of the same kind."""
    if p.kind.name in _POINTERS:
        for name, kind in p.names(p.kind.name).items():
            if kind.shape == p.kind.shape:
                yield name


def take_name_of_same_role(p: Place) -> Changes:
    """A name that has the same other operand elsewhere: ``page * stride_v0`` as in ``page * stride_k0``."""
    if p.kind.name not in ("int", "ints", "float", "floats") or p.is_called:
        return
    # In the order of the scope, since a set has none.
    for name, kind in p.names("int", "ints", "float", "floats").items():
        if name in p.names_of_same_role and kind.shape == p.kind.shape:
            yield name


def take_likely_stride(p: Place) -> Changes:
    """The stride that the code around suggests: of the axis that the index has elsewhere, of the tensor of the sum."""
    yield from p.function.likely_strides.get(p.node.number, ())


def fill_with_infinity(p: Place) -> Changes:
    """Change the number that a call fills in, such as the other values of a load: 0 to infinity, and back."""
    node = p.node
    is_argument = isinstance(p.parent, ast.Call | ast.keyword) and p.field != "func"
    if isinstance(node, ast.Constant):
        # A filled number is an argument, and no factor of the same value.
        if is_argument and isinstance(node.value, float) and node.value == 0:
            yield f"-{p.infinity}"
    elif _is_infinity(node):
        yield "0.0"
        # Under a minus the sign is changed by other rules.
        if not isinstance(p.parent, ast.UnaryOp):
            yield f"-{ast.unparse(node)}"


def _is_infinity(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or _word(node.func) != "float" or len(node.args) != 1:
        return False
    value = getattr(node.args[0], "value", None)
    return isinstance(value, str) and value.strip("+-").lower().startswith("inf")


# -- tier 2: one insertion ---------------------------------------------------------------------------------------------
def forms_of_rows(p: Place) -> Iterator[str]:
    """Yield the names that are factors or terms of an expression, rows with a new axis."""
    for name, kind in p.names("int", "float", "floats").items():
        yield from (form for form in forms_of(name, kind, p.kind) if form != name)


def _is_computed(p: Place) -> bool:
    return p.kind.is_real and not isinstance(p.node, ast.Constant) and not p.is_called


def insert_row(p: Place) -> Changes:
    """A factor, a divisor or a term that is a row of numbers, with a new axis."""
    if not _is_computed(p):
        return
    # Rows get a new axis, so that they broadcast along the block.
    for form in forms_of_rows(p):
        if not p.in_product:
            yield f"{p.text} * {form}"
            yield f"{p.text} / {form}"
        yield f"{p.text} + {form}"
        yield f"{p.text} - {form}"


def _missing_factors(function: FunctionPlaces, name: str) -> list[str]:
    """Return the names by which a loop rescales other sums, of a carried name that none of them multiplies."""
    factors = function.factors_of_sums
    if name not in function.carried or any(name in sums for sums in factors.values()):
        return []
    return [factor for factor in factors if factor != name]


def rescale_as_other_sums(p: Place) -> Changes:
    """A sum that a loop carries on, times what the loop rescales its other sums by: ``acc`` as ``total * a``."""
    if not p.kind.is_real or p.is_called:
        return
    # Behind the loop the sum is whole.
    if p.node.lineno > p.function.carried.get(p.node.id, 0):
        return
    for factor in _missing_factors(p.function, p.node.id):
        if factor in p.scope and p.scope[factor].is_real:
            for form in forms_of(factor, p.scope[factor], p.kind):
                yield f"{p.text} * {form}"


def divide_after_loop(p: Place) -> Changes:
    """What a loop has summed up, divided by another sum of the loop, or by its largest number."""
    carried = p.function.carried
    if p.node.lineno <= carried.get(p.node.id, p.node.lineno) or not p.kind.is_real or p.is_called:
        return
    for name, kind in p.names("float", "floats").items():
        if name in carried:
            yield from (f"{p.text} / {form}" for form in forms_of(name, kind, p.kind))


def take_row(p: Place) -> Changes:
    """A block of one axis of whole numbers, with the new axis of an expression in its place."""
    if p.kind.name != "ints" or len(p.kind.shape) != 2 or not isinstance(p.node, ast.BinOp):
        return
    for name, kind in p.names("ints").items():
        for form in forms_of(name, kind, p.kind):
            # The axis that the expression has itself: positions of rows stay positions of rows.
            if form != name and form.removeprefix(name) in p.plain_text:
                yield form


def shift_compared(p: Place) -> Changes:
    """A position in a comparison, moved by a whole number that bounds something."""
    if isinstance(p.parent, ast.Compare) and p.kind.name in ("int", "ints"):
        for name in p.whole_names:
            yield f"{p.text} + {name}"
            yield f"{p.text} - {name}"


def insert_log2_of_e(p: Place) -> Changes:
    """A factor by which powers of 2 are those of e, or logarithms to the base 2 natural ones."""
    if _is_computed(p):
        yield f"{p.text} * {_LOG2_OF_E}"
        yield f"{p.text} / {_LOG2_OF_E}"


def _conditions(p: Place, of: Kind) -> Iterator[str]:
    """Yield the conditions of the kernel that fit a block: names first, then comparisons as they are written."""
    known, count = p.scope.keys() | p.function.free_names, 0
    for name, kind in p.names("bools").items():
        if kind.broadcasts_to(of):
            yield name
    for text, (kind, names) in p.function.expressions.items():
        # A comparison can be repeated only where all of its names have values.
        fits = kind.name == "bools" and kind.broadcasts_to(of) and names <= known
        if fits and count < _MOST_MASKS:
            yield f"({text})"
            count += 1


def add_condition(p: Place) -> Changes:
    """Another condition of the kernel in a mask."""
    # Inside a conjunction the edit is the same as around it.
    inside = isinstance(p.parent, ast.BinOp) and isinstance(p.parent.op, ast.BitAnd | ast.BitOr)
    if p.kind.name != "bools" or inside or p.is_called:
        return
    own = ast.unparse(p.node)
    for text in _conditions(p, p.kind):
        # The mask may have this condition already.
        if text.strip("()") not in own:
            yield f"{p.text} & {text}"
            yield f"{p.text} | {text}"


def keep_by_condition(p: Place) -> Changes:
    """Numbers where a condition of the kernel holds."""
    if p.kind.name != "floats" or not _is_computed(p) or not p.kind.shape:
        return
    for text in _conditions(p, p.kind):
        for filled in (f"-{p.infinity}", "0.0"):
            yield f"{p.xp}.where({text}, {p.text}, {filled})"


def add_mask_of_access(p: Place) -> Changes:
    """A mask for a load or a store, and what a load gives where it does not hold."""
    node, word = p.node, _word(p.node.func)
    if word not in ("load", "store") or not node.args:
        return
    pointers = p.kind_of(node.args[0])
    keywords = {k.arg for k in node.keywords}
    # A load has its mask in the second place, a store in the third.
    known = len(node.args) > (1 if word == "load" else 2) or "mask" in keywords
    text = ast.unparse(node).removesuffix(")")
    if not known:
        filled = ", other=0.0" if word == "load" else ""
        for condition in _conditions(p, Kind("bools", pointers.shape)):
            yield f"{text}, mask={condition}{filled})"
    # Without it, a load gives whatever is in memory.
    elif word == "load" and "other" not in keywords:
        yield f"{text}, other=0.0)"
        yield f"{text}, other=-{p.infinity})"


def add_to_product(p: Place) -> Changes:
    """The block to which a product is added."""
    node = p.node
    if _word(node.func) == "dot" and len(node.args) == 2 and not node.keywords:
        for name, kind in p.names("floats").items():
            if kind == p.kind:
                yield f"{ast.unparse(node).removesuffix(')')}, {name})"


def rescale_as_other_sums_before(
    s: BlockStatement,
) -> Iterator[tuple[Sequence[Replacement], str, str]]:
    """A line that rescales a sum as the loop rescales others, before ``acc += p``."""
    target = s.node.target if isinstance(s.node, ast.AugAssign) else None
    name = target.id if isinstance(target, ast.Name) else ""
    kind = s.scope.get(name)
    if kind is None or not kind.is_real or s.node.lineno > s.function.carried.get(name, 0):
        return
    for factor in _missing_factors(s.function, name):
        if factor in s.scope and s.scope[factor].is_real:
            for form in forms_of(factor, s.scope[factor], kind):
                new = f"{name} = {name} * {form}"
                yield [s.inserted_before(s.node, [s.indent(s.node) + new])], "", new


def rescale_rows_before(s: BlockStatement) -> Iterator[tuple[Sequence[Replacement], str, str]]:
    """A line that multiplies or divides a block by a row of numbers before it changes."""
    target = getattr(s.node, "target", None) or next(iter(getattr(s.node, "targets", ())), None)
    name = target.id if isinstance(target, ast.Name) else ""
    kind = s.scope.get(name)
    if kind is None or not kind.is_real:
        return
    for row, row_kind in s.scope.items():
        if row == name or not row_kind.is_real:
            continue
        for form in forms_of(row, row_kind, kind):
            for sign in ("*", "/"):
                # As kernels rescale an accumulator when the maximum grows.
                new = f"{name} = {name} {sign} {form}"
                lines = [s.indent(s.node) + new]
                yield [s.inserted_before(s.node, lines)], "", new


#: For rules that look at the kind of an expression, not at its form.
ANY = ast.expr
KERNELS: Where = "kernels"
# Before the rules of all names and rows, which have these edits too, as unlikely ones.
LIKELY_RULES: tuple[EditRule, ...] = (
    EditRule(
        "variable",
        1,
        ast.Name,
        take_name_of_same_role,
        likely=True,
        added=_LOOKED_AT,
        where=KERNELS,
    ),
    EditRule(
        "stride", 1, ast.Name, take_likely_stride, likely=True, added=_LOOKED_AT, where=KERNELS
    ),
    EditRule(
        "sum", 2, ast.Name, rescale_as_other_sums, likely=True, added=_LOOKED_AT, where=KERNELS
    ),
    EditRule("sum", 2, ast.Name, divide_after_loop, likely=True, added=_LOOKED_AT, where=KERNELS),
)
RULES: tuple[EditRule, ...] = (
    EditRule("function", 1, ast.Attribute, change_function_of_kernel, likely=True, where=KERNELS),
    EditRule("variable", 1, ast.Name, change_pointer, where=KERNELS),
    EditRule(
        "infinity", 1, (ast.Constant, ast.Call), fill_with_infinity, likely=True, where=KERNELS
    ),
    EditRule("factor", 2, ANY, insert_log2_of_e, where=KERNELS),
    EditRule("row", 2, ANY, insert_row, likely=True, added=_LOOKED_AT, where=KERNELS),
    EditRule("variable", 2, ast.BinOp, take_row, added=_LOOKED_AT, where=KERNELS),
    EditRule("offset", 2, ANY, shift_compared, likely=True, added=_LOOKED_AT, where=KERNELS),
    EditRule("mask", 2, ANY, add_condition, where=KERNELS),
    EditRule("mask", 2, ANY, keep_by_condition, where=KERNELS),
    EditRule("mask", 2, ast.Call, add_mask_of_access, likely=True, where=KERNELS),
    EditRule("term", 2, ast.Call, add_to_product, likely=True, where=KERNELS),
)
BLOCK_RULES: tuple[BlockRule, ...] = (
    BlockRule(
        "sum",
        2,
        rescale_as_other_sums_before,
        likely=True,
        added=_LOOKED_AT,
        where=KERNELS,
    ),
    BlockRule("factor", 2, rescale_rows_before, where=KERNELS),
)

"""The rules that make numbers and masks from lengths of arrays: offsets of diagonals, ratios, masks of positions.

The lengths are those that one run shows. One expression stands for each number, so equal lengths give one edit only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from symattn.programs.repairing.edits import LOOKED_AT, EditRule, FunctionPlaces, Place
from symattn.programs.repairing.expressions import AXIS_WORDS
from symattn.programs.repairing.observing import Kind

#: New expressions, as text or as trees.
Changes = Iterator[str | ast.expr]
#: Functions that take the number of a diagonal.
_WITH_DIAGONALS = ("tri", "tril", "triu", "diagonal", "eye")
# arguments before the diagonal
_PLACES_BEFORE = {"tri": 2, "eye": 2, "tril": 1, "triu": 1, "diagonal": 1}
# Lengths are taken of this many axes, from the last one on.
_MOST_AXES = 4


def lengths(scope: Mapping[str, Kind], kinds: tuple[str, ...] = ("floats",)) -> dict[int, str]:
    """Return an expression for each length of the arrays in scope that is more than 1, the first arrays first."""
    length_texts: dict[int, str] = {}
    for name, kind in scope.items():
        if kind.name not in kinds:
            continue
        for axis in range(1, min(len(kind.shape), _MOST_AXES) + 1):
            length = kind.shape[-axis]
            # A factor of 1 changes nothing, and as a term 1 is among the constants.
            if length > 1:
                length_texts.setdefault(length, f"{name}.shape[-{axis}]")
    return length_texts


def differences(scope: Mapping[str, Kind]) -> list[str]:
    """Return the differences of two lengths, each number once."""
    length_texts = lengths(scope)
    difference_texts: dict[int, str] = {}
    for one, a in length_texts.items():
        for other, b in length_texts.items():
            if one != other:
                difference_texts.setdefault(one - other, f"{a} - {b}")
    return list(difference_texts.values())


def _is_in_sum(p: Place) -> bool:
    """Return whether the sum around an expression is the place for another term."""
    return isinstance(p.parent, ast.BinOp) and isinstance(p.parent.op, ast.Add | ast.Sub)


# -- whole numbers -----------------------------------------------------------------------------------------------------
def shift_by_lengths(p: Place) -> Changes:
    """A whole number, or an array of them, moved by the difference of two lengths."""
    if (
        p.kind.name not in ("int", "ints")
        # A constant moved by lengths is another rule; in a sum the term is moved.
        or isinstance(p.node, ast.Constant)
        or p.is_called
        or _is_in_sum(p)
    ):
        return
    for difference in differences(p.scope):
        yield f"{p.text} + {difference}"


def _identifier_of_node(node: ast.expr) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def move_diagonal(p: Place) -> Changes:
    """The diagonal of a triangle: given where it is left out, or moved by one or by a difference of lengths."""
    word = _identifier_of_node(p.node.func)
    if word not in _WITH_DIAGONALS:
        return
    is_method = isinstance(p.node.func, ast.Attribute) and p.kind_of(p.node.func.value).is_array
    # The array of a method is none of its arguments.
    before = _PLACES_BEFORE[word] - is_method
    name = "diagonal" if p.is_torch else "k"
    if word == "diagonal":
        name = "offset"
    matches = [k for k in p.node.keywords if k.arg == name]
    if len(p.node.args) > before:
        for offset in _yield_moved_diagonals(p, p.node.args[before]):
            arguments = [*p.node.args[:before], offset, *p.node.args[before + 1 :]]
            yield ast.Call(p.node.func, arguments, p.node.keywords)
        return
    others = [k for k in p.node.keywords if k.arg != name]
    for offset in _yield_moved_diagonals(p, matches[0].value if matches else None):
        yield ast.Call(p.node.func, p.node.args, [*others, ast.keyword(name, offset)])


def _yield_moved_diagonals(p: Place, old: ast.expr | None) -> Iterator[ast.expr]:
    """Yield the diagonals in place of an old one, or of none."""
    if old is None or (isinstance(old, ast.Constant) and old.value == 0):
        texts = ["1", "-1", *p.names("int")]
        # An offset by one beside the difference of lengths: both slips occur together.
        shifted = [f"{d} {by}" for d in differences(p.scope) for by in ("+ 1", "- 1")]
        texts += [*differences(p.scope), *shifted]
    else:
        text = ast.unparse(old)
        texts = [f"{text} + {d}" for d in differences(p.scope)] + differences(p.scope)
    for text in texts:
        yield ast.parse(text, mode="eval").body


def divide_by_ratio(p: Place) -> Changes:
    """A whole number divided by the ratio of two lengths, or the ratio in its place."""
    if p.kind.name not in ("int", "ints") or p.is_called or isinstance(p.parent, ast.UnaryOp):
        return
    length_texts = lengths(p.scope)
    pairs = [
        (a, b)
        for one, a in length_texts.items()
        for other, b in length_texts.items()
        # A ratio of lengths is a whole number, such as query heads for a key head.
        if one > other and one % other == 0
    ]
    for a, b in pairs:
        yield f"{a} // {b}"
        if not isinstance(p.node, ast.Constant):
            yield f"{p.text} // ({a} // {b})"
            yield f"{p.text} % ({a} // {b})"
    if isinstance(p.node, ast.Name):
        for length in length_texts.values():
            yield f"{p.text} % {length}"


def split_index_otherwise(p: Place) -> Changes:
    """The part of an index, such as the group of a head, from the other side: ``i // (n // g)`` for ``i % g``."""
    node = p.node
    is_part = isinstance(node.op, ast.Mod | ast.FloorDiv) and p.kind.name in ("int", "ints")
    if not is_part:
        return
    other = ast.FloorDiv() if isinstance(node.op, ast.Mod) else ast.Mod()
    divisor = ast.unparse(node.right)
    for whole in (*p.names("int"), *lengths(p.scope).values()):
        if whole != divisor:
            ratio = ast.BinOp(ast.parse(whole, mode="eval").body, ast.FloorDiv(), node.right)
            yield ast.BinOp(node.left, other, ratio)


def take_difference(p: Place) -> Changes:
    """The difference of two lengths in place of a zero that a call gets, such as a first position."""
    is_argument = isinstance(p.parent, ast.Call | ast.keyword) and p.field != "func"
    names_axis = isinstance(p.parent, ast.keyword) and p.parent.arg in AXIS_WORDS
    if is_argument and not names_axis and p.node.value == 0 and p.kind.name == "int":
        yield from differences(p.scope)


# -- factors and terms -------------------------------------------------------------------------------------------------
def insert_function_of_length(p: Place) -> Changes:
    """A length, its square root or its logarithm as a factor or a term."""
    if (
        not p.kind.is_real
        or isinstance(p.node, ast.Constant)
        or p.is_called
        or not p.xp
        or p.in_product
    ):
        return
    # a Python number, which leaves the format of an array as it is
    logarithm = f"{p.xp}.tensor({{0}}).log().item()" if p.is_torch else f"float({p.xp}.log({{0}}))"
    for length in lengths(p.scope).values():
        yield f"{p.text} - {logarithm.format(length)}"
        yield f"{p.text} + {logarithm.format(length)}"
        yield f"{p.text} * {length}"
        yield f"{p.text} / {length}"


def guard_divisor(p: Place) -> Changes:
    """A number of the specification, or one that is added to a divisor, within its root."""
    # √(x² + ε) is what a norm divides by.
    is_divisor = (
        isinstance(p.parent, ast.BinOp) and isinstance(p.parent.op, ast.Div) and p.field == "right"
    )
    if p.kind.is_real and is_divisor:
        if isinstance(p.node, ast.BinOp) and isinstance(p.node.op, ast.Add):
            yield f"({ast.unparse(p.node.left)} ** 2 + {ast.unparse(p.node.right)}) ** 0.5"
        for number in p.function.numbers:
            if isinstance(number, float):
                yield f"({p.text} ** 2 + {number!r}) ** 0.5"


# -- masks -------------------------------------------------------------------------------------------------------------
def write_boolean_triangle(function: FunctionPlaces, rows: str, columns: str, offset: str) -> str:
    """Return the text of a boolean triangle: a column is kept if it is at most its row plus the offset."""
    xp = function.xp
    if function.library == "torch":
        return f"{xp}.ones({rows}, {columns}, dtype={xp}.bool).tril({offset})"
    return f"{xp}.tri({rows}, {columns}, {offset}, dtype=bool)"


def _masks_of_positions(p: Place) -> Iterator[str]:
    """Yield masks for an expression: triangles, bands as wide as a whole number, and pairs of equal labels."""
    if len(p.kind.shape) < 2 or p.xp is None:
        return
    length_texts = lengths(p.scope, ("floats", "bools", "ints"))
    rows, columns = (length_texts.get(n) for n in p.kind.shape[-2:])
    if rows is not None and columns is not None:
        # The last key that the last row sees: 0 if there are as many rows as columns.
        last = f"{columns} - {rows}" if rows != columns else "0"
        yield write_boolean_triangle(p.function, rows, columns, last)
        if last != "0":
            yield write_boolean_triangle(p.function, rows, columns, "0")
        widths = [repr(n) for n in p.function.numbers if isinstance(n, int)] + list(p.names("int"))
        for width in widths:
            # A window of so many keys behind the last one.
            far = f"-{width}" if last == "0" else f"{last} - {width}"
            yield f"~{write_boolean_triangle(p.function, rows, columns, far)}"
            visible = write_boolean_triangle(p.function, rows, columns, last)
            behind = write_boolean_triangle(p.function, rows, columns, far)
            yield f"({visible} & ~{behind})"
    for name, kind in p.names("ints").items():
        # Equal labels: one row of them against the other.
        if len(kind.shape) >= 1 and p.kind.shape[-2:] == (kind.shape[-1], kind.shape[-1]):
            yield f"({name}[..., :, None] == {name}[..., None, :])"


def add_mask_of_positions(p: Place) -> Changes:
    """Scores or weights that a mask made of lengths, of a width or of labels keeps."""
    if isinstance(p.parent, ast.Compare) or p.is_called:
        return
    for mask in _masks_of_positions(p):
        if p.kind.name == "bools":
            yield f"{p.text} & {mask}"
        elif p.kind.name == "floats":
            yield f"{p.xp}.where({mask}, {p.text}, -{p.xp}.inf)"


def keep_rows_of_mask(p: Place) -> Changes:
    """Zeros in the rows in which a mask in scope keeps nothing."""
    if p.kind.name != "floats" or not p.xp or isinstance(p.node, ast.Constant):
        return
    word = "keepdim" if p.is_torch else "keepdims"
    for name, kind in p.names("bools").items():
        rows = type(kind)("bools", (*kind.shape[:-1], 1)) if kind.shape else kind
        if len(kind.shape) >= 2 and rows.broadcasts_to(p.kind):
            yield f"{p.xp}.where({name}.any(-1, {word}=True), {p.text}, 0.0)"


#: For rules that look at the kind of an expression, not at its form.
ANY = ast.expr
RULES: tuple[EditRule, ...] = (
    EditRule("diagonal", 2, ast.Call, move_diagonal, likely=True, added=LOOKED_AT, where="arrays"),
    EditRule("offset", 3, ANY, shift_by_lengths, added=LOOKED_AT, where="arrays"),
    EditRule("offset", 3, ast.Constant, take_difference, added=LOOKED_AT, where="arrays"),
    EditRule("ratio", 3, ANY, divide_by_ratio, added=LOOKED_AT, where="arrays"),
    EditRule(
        "ratio",
        2,
        ast.BinOp,
        split_index_otherwise,
        likely=True,
        added=LOOKED_AT,
        where="arrays",
    ),
    EditRule("length", 3, ANY, insert_function_of_length, added=LOOKED_AT, where="arrays"),
    EditRule("guard", 3, ast.expr, guard_divisor, added=LOOKED_AT, where="arrays"),
    EditRule("mask", 3, ANY, add_mask_of_positions, added=LOOKED_AT, where="arrays"),
    EditRule("mask", 3, ANY, keep_rows_of_mask, added=LOOKED_AT, where="arrays"),
)

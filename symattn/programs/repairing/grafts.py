"""The rules that insert a factor or a term which the code has elsewhere, or makes of a name in its own way.

A factor is one that stands in another product, a function of an item, an array with one axis fewer as a column, or the
exponential of a running sum; a term is one of another sum, or a product with a name that is computed and read nowhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from symattn.programs.repairing.edits import LOOKED_AT, EditRule, Place, forms_of
from symattn.programs.repairing.observing import Kind
from symattn.programs.repairing.running_sums import write_last_item, write_rest_of_sum
from symattn.programs.repairing.same_elsewhere import comes_out_as_factor

#: New expressions, as text or as trees.
Changes = Iterator[str | ast.expr]
_LONGEST = 40  # characters of a factor or a term
_MOST = 12  # factors and terms of one function
_PRODUCTS = (ast.Mult, ast.Div)
_SUMS = (ast.Add, ast.Sub)
#: Functions of an item that are factors.
_FUNCTIONS = ("exp", "sqrt")


def balance_sum(p: Place) -> Changes:
    """A factor for a term beside a product, ``a * x + y`` → ``a * x + b * y``, where ``b`` is a factor elsewhere."""
    if not _is_number_beside_product(p):
        return
    roles = p.function.names_beside.items()
    factors = {name for (operator, *_), names in roles if operator == "Mult" for name in names}
    for name, kind in p.names("float", "floats").items():
        if name in factors:
            yield from (f"{p.text} * {form}" for form in forms_of(name, kind, p.kind))


def _is_number_beside_product(p: Place) -> bool:
    """Return whether a place is a term of a sum, no product itself, whose other term is one."""
    if not isinstance(p.parent, ast.BinOp) or not isinstance(p.parent.op, _SUMS):
        return False
    other = p.parent.left if p.field == "right" else p.parent.right
    products = [isinstance(x, ast.BinOp) and isinstance(x.op, _PRODUCTS) for x in (p.node, other)]
    # A product of matrices is one of its neighbour's kind.
    is_matrix = isinstance(other, ast.BinOp) and isinstance(other.op, ast.MatMult)
    return _is_array_to_change(p) and not products[0] and (products[1] or is_matrix)


def insert_factor_of_elsewhere(p: Place) -> Changes:
    """A factor or a divisor that stands in another product of the function."""
    for text, kind in _operands_elsewhere(p, _PRODUCTS):
        if _is_whole_product(p, kind):
            yield f"{p.text} * {text}"
            yield f"{p.text} / {text}"


def insert_term_of_elsewhere(p: Place) -> Changes:
    """A term that stands in another sum of the function."""
    if _is_whole_sum(p):
        for text, _ in _operands_elsewhere(p, _SUMS):
            yield f"{p.text} + {text}"
            yield f"{p.text} - {text}"


def take_factor_of_similar_product(p: Place) -> Changes:
    """The factor of a product with the same operand: ``e * (k @ s)`` beside ``e * (q @ s)``."""
    operands = _operands_of_product(p.node)
    if not operands:
        return
    for factor, others in _factors_of_products(p.function.source.tree):
        kind, names = p.kind_of(factor), {n.id for n in ast.walk(factor) if isinstance(n, ast.Name)}
        is_own = factor in (getattr(p.parent, "left", None), getattr(p.parent, "right", None))
        fits = kind.is_array and kind.broadcasts_to(p.kind) and names <= _known(p)
        if operands & others and fits and not is_own:
            yield ast.BinOp(factor, ast.Mult(), p.node)


def _factors_of_products(tree: ast.AST) -> Iterator[tuple[ast.expr, set[str]]]:
    """Yield what multiplies products of matrices, each with the texts of the operands of the product."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        for factor, product in ((node.left, node.right), (node.right, node.left)):
            operands = _operands_of_product(product)
            if operands and not isinstance(factor, ast.Constant):
                yield factor, operands


def _operands_of_product(node: ast.expr) -> set[str]:
    """Return the texts of both operands of a product of matrices; none for anything else."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.MatMult):
        return set()
    return {ast.unparse(node.left), ast.unparse(node.right)}


def insert_function_of_item(p: Place) -> Changes:
    """The exponential or the root of an item, such as of the last one of an array, as a factor or a divisor."""
    if p.xp is None:
        return
    for text, (kind, names) in p.function.expressions.items():
        is_item = text.endswith("]") and kind.is_real and kind.broadcasts_to(p.kind)
        if is_item and names <= _known(p) and _is_whole_product(p, kind):
            for function in _FUNCTIONS:
                yield f"{p.text} * {p.xp}.{function}({text})"
                yield f"{p.text} / {p.xp}.{function}({text})"


def insert_column(p: Place) -> Changes:
    """An array with one axis fewer, or its exponential, as a column: a factor or a divisor of each row."""
    if p.xp is None or len(p.kind.shape) < 2:
        return
    for name, kind in p.names("floats").items():
        # A column of one row is broadcast as it is.
        is_column = kind.shape == p.kind.shape[:-1] and kind.shape[-1] > 1
        if is_column and _is_whole_product(p, kind):
            for text in (name, f"{p.xp}.exp({name})"):
                yield f"{p.text} * {text}[..., None]"
                yield f"{p.text} / {text}[..., None]"


def insert_exponential_of_running_sum(p: Place) -> Changes:
    """The exponential of a running sum, of its end, or of the rest up to its end, as a factor: a decay over a block."""
    # Transposed or in a product of matrices it is no factor of the whole, which has another shape.
    if not _is_array_to_change(p) or p.in_product or p.xp is None:
        return
    for name, axis in p.function.running_sums.items():
        kind = p.scope.get(name)
        if kind is None or kind.name != "floats" or not -len(kind.shape) <= axis < len(kind.shape):
            continue
        axes = len(kind.shape)
        end = write_last_item(name, axis, axes, keeps_axis=False)
        shape_of_end = tuple(n for k, n in enumerate(kind.shape) if k != axis % axes)
        exponents = (
            (write_rest_of_sum(name, axis, axes), kind.shape),
            (name, kind.shape),
            (end, shape_of_end),
        )
        for text, shape in exponents:
            for columns in _columns_to_fit(shape, p.kind.shape):
                yield f"{p.text} * {p.xp}.exp({text}){columns}"


def _columns_to_fit(shape: tuple[int, ...], whole: tuple[int, ...]) -> Iterator[str]:
    """Yield the new axes by which an array of a shape broadcasts to another one, its first axes to the first there."""
    if Kind("floats", shape).broadcasts_to(Kind("floats", whole)):
        yield ""
    lacking = len(whole) - len(shape)
    if shape and lacking > 0 and shape == whole[: len(shape)]:
        yield f"[..., {', '.join(['None'] * lacking)}]"


def read_rest_of_running_sum(p: Place) -> Changes:
    """Yield what is summed up after each item, in place of a running sum or its negative."""
    operand = p.node
    if isinstance(operand, ast.UnaryOp) and isinstance(operand.op, ast.USub):
        operand = operand.operand
    name = operand.id if isinstance(operand, ast.Name) else ""
    kind, axis = p.scope.get(name), p.function.running_sums.get(name)
    if kind is None or axis is None or not -len(kind.shape) <= axis < len(kind.shape):
        return
    yield write_rest_of_sum(name, axis, len(kind.shape))


def read_idle_name_in_product(p: Place) -> Changes:
    """A product of a name that nothing reads with another one, as a term or in place of an expression."""
    if (
        p.kind.name != "floats"
        or p.is_called
        or not p.function.idle
        or isinstance(p.node, ast.Constant)
    ):
        return
    for idle in sorted(p.function.idle & p.scope.keys()):
        for text in _products_with(p, idle):
            yield text
            if _is_whole_sum(p):
                yield f"{p.text} + {text}"
                yield f"{p.text} - {text}"


def _products_with(p: Place, idle: str) -> Iterator[str]:
    """Yield the products of a name with other ones that have the shape of a place."""
    own = p.scope[idle]
    for name, kind in p.names("floats").items():
        if name == idle or not own.is_real:
            continue
        if _shape_of_product(kind, own) == p.kind.shape:
            yield f"{name} @ {idle}"
        if _shape_of_product(own, kind) == p.kind.shape:
            yield f"{idle} @ {name}"
        if own.broadcasts_to(kind) and kind.shape == p.kind.shape:
            yield f"{name} * {idle}"


def _shape_of_product(one: Kind, other: Kind) -> tuple[int, ...] | None:
    """Return the shape of a product of matrices or vectors without further axes, or None."""
    a, b = one.shape, other.shape
    if not (1 <= len(a) <= 2 and 1 <= len(b) <= 2) or a[-1] != b[0]:
        return None
    return (*a[:-1], *b[1:])


def _known(p: Place) -> set[str]:
    return p.scope.keys() | p.function.free_names


def _is_whole_product(p: Place, factor: Kind) -> bool:
    """Return whether a factor of this kind at a place is not the same as one of what is around it."""
    # An array stays where it is: as a factor of ``v`` it is none of ``p @ v``.
    around = not factor.is_array and comes_out_as_factor(p.node, p.parent, p.field)
    return _is_array_to_change(p) and not p.in_product and not around


def _is_whole_sum(p: Place) -> bool:
    """Return whether a term at a place is not the same as one of the sum around it."""
    is_term = isinstance(p.parent, ast.BinOp) and isinstance(p.parent.op, _SUMS)
    return _is_array_to_change(p) and not is_term


def _is_array_to_change(p: Place) -> bool:
    return p.kind.is_real and not isinstance(p.node, ast.Constant) and not p.is_called


def _operands_elsewhere(
    p: Place, operators: tuple[type[ast.operator], ...]
) -> list[tuple[str, Kind]]:
    """Return the operands of other operations that may be one here, each with its kind.

    Names and constants have rules of their own.
    """
    texts: dict[str, Kind] = {}
    known = _known(p)
    for operator, operand, text, names in p.function.composed_operands:
        if not isinstance(operator, operators) or len(text) > _LONGEST or operand is p.node:
            continue
        kind = p.kind_of(operand)
        fits = kind.name in ("float", "floats") and kind.broadcasts_to(p.kind)
        if fits and names <= known:
            # In brackets, since it becomes an operand of another operation.
            texts.setdefault(f"({text})", kind)
    return list(texts.items())[:_MOST]


#: For rules that look at the kind of an expression, not at its form.
ANY = ast.expr
LIKELY_RULES: tuple[EditRule, ...] = (
    EditRule("factor", 2, ANY, balance_sum, likely=True, added=LOOKED_AT, where="arrays"),
    EditRule(
        "factor",
        2,
        ast.BinOp,
        take_factor_of_similar_product,
        likely=True,
        added=LOOKED_AT,
        where="arrays",
    ),
)
RULES: tuple[EditRule, ...] = (
    EditRule(
        "factor",
        2,
        ANY,
        read_idle_name_in_product,
        likely=True,
        added=LOOKED_AT,
        where="arrays",
    ),
    EditRule(
        "factor",
        2,
        ANY,
        insert_exponential_of_running_sum,
        added=LOOKED_AT,
        where="arrays",
    ),
    EditRule(
        "rest of a running sum",
        2,
        (ast.Name, ast.UnaryOp),
        read_rest_of_running_sum,
        added=LOOKED_AT,
        where="arrays",
    ),
    EditRule("factor", 3, ANY, insert_factor_of_elsewhere, added=LOOKED_AT, where="arrays"),
    EditRule("term", 3, ANY, insert_term_of_elsewhere, added=LOOKED_AT, where="arrays"),
    EditRule("factor", 3, ANY, insert_function_of_item, added=LOOKED_AT, where="arrays"),
    EditRule("factor", 3, ANY, insert_column, added=LOOKED_AT, where="arrays"),
)

"""The rules that change an order: of operations, of calls in calls, of axes; and expressions from elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from symattn.programs.repairing.edits import LOOKED_AT, EditRule, Place, forms_of
from symattn.programs.repairing.observing import NUMBERS

#: New expressions, as text or as trees.
Changes = Iterator[str | ast.expr]
# Only this many axes, from the last one on, are exchanged.
_MOST_AXES = 4
_MOST_GRAFTS = 30  # expressions of the function that are tried in place of one
_SMALL_NUMBERS = (0, 1, 2)  # axes and exponents more often than a substitute for infinity
#: Usual guards against zero.
_TENFOLDS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-3)


def _name_of(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


# -- operations --------------------------------------------------------------------------------------------------------
def distribute(p: Place) -> Changes:
    """A factor on one term of a sum in place of the whole sum, and the other way."""
    node = p.node
    scales = (ast.Mult, ast.Div)
    adds = (ast.Add, ast.Sub)
    for one, other, on_left in ((node.left, node.right, True), (node.right, node.left, False)):
        # A quotient or a difference is distributed over its left operand only.
        if not isinstance(one, ast.BinOp) or (
            isinstance(node.op, ast.Div | ast.Sub) and not on_left
        ):
            continue
        if isinstance(node.op, scales) and isinstance(one.op, adds):
            yield ast.BinOp(ast.BinOp(one.left, node.op, other), one.op, one.right)
            yield ast.BinOp(one.left, one.op, ast.BinOp(one.right, node.op, other))
        elif isinstance(node.op, adds) and isinstance(one.op, scales):
            yield ast.BinOp(ast.BinOp(one.left, node.op, other), one.op, one.right)


def swap_operators(p: Place) -> Changes:
    """Two neighbouring operators exchanged, between operands that stay: ``a + b * c`` and ``a * b + c``."""
    node = p.node
    if isinstance(node.right, ast.BinOp) and type(node.right.op) is not type(node.op):
        inner = node.right
        yield ast.BinOp(ast.BinOp(node.left, inner.op, inner.left), node.op, inner.right)
    if isinstance(node.left, ast.BinOp) and type(node.left.op) is not type(node.op):
        inner = node.left
        yield ast.BinOp(inner.left, node.op, ast.BinOp(inner.right, inner.op, node.right))


def _with_first(call: ast.Call, first: ast.expr) -> ast.Call:
    return ast.Call(call.func, [first, *call.args[1:]], call.keywords)


def move_operation(p: Place) -> Changes:
    """An operation with the first argument of a call in place of one with its result, and the other way.

    So does one with the array of a method: ``(a * b).astype(int)`` and ``a.astype(int) * b``.
    """
    node = p.node
    if isinstance(node, ast.BinOp):
        # f(a) ∘ b and f(a ∘ b) are each other's mistakes.
        for one, other, on_left in ((node.left, node.right, True), (node.right, node.left, False)):
            for first in _arrays_of_call(p, one):
                pair = (first, node.op, other) if on_left else (other, node.op, first)
                yield _with_array(one, first, ast.BinOp(*pair))
        return
    for inner in _arrays_of_call(p, node):
        if isinstance(inner, ast.BinOp):
            yield ast.BinOp(_with_array(node, inner, inner.left), inner.op, inner.right)
            yield ast.BinOp(inner.left, inner.op, _with_array(node, inner, inner.right))


def _arrays_of_call(p: Place, call: ast.expr) -> Iterator[ast.expr]:
    """Yield the array of a method, and the first argument of a call; nothing of other expressions."""
    if not isinstance(call, ast.Call):
        return
    if isinstance(call.func, ast.Attribute) and p.kind_of(call.func.value).is_array:
        yield call.func.value
    if call.args and not isinstance(call.args[0], ast.Starred):
        yield call.args[0]


def _with_array(call: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    """Return a call with another array: that of a method, or the first argument."""
    assert isinstance(call, ast.Call)
    if isinstance(call.func, ast.Attribute) and call.func.value is old:
        return ast.Call(ast.Attribute(new, call.func.attr, ast.Load()), call.args, call.keywords)
    return _with_first(call, new)


def swap_nested_calls(p: Place) -> Changes:
    """Two calls, one within the other, in the other order; also two methods, ``x.mean(-1).pow(2)``."""
    outer = p.node
    if (swapped := _swap_methods(p)) is not None:
        yield swapped
    inner = outer.args[0] if outer.args else None
    if not isinstance(inner, ast.Call) or not inner.args or isinstance(inner.args[0], ast.Starred):
        return
    # Two calls of one function are the same in either order.
    if ast.unparse(outer.func) != ast.unparse(inner.func):
        yield _with_first(inner, _with_first(outer, inner.args[0]))


def _swap_methods(p: Place) -> ast.Call | None:
    """Return the call of a method of what another method returns, with both in the other order; None for others."""
    last = p.node.func
    first = last.value if isinstance(last, ast.Attribute) else None
    if not isinstance(first, ast.Call) or not isinstance(first.func, ast.Attribute):
        return None
    of = first.func.value
    # A function of a module has its array as an argument.
    if not p.kind_of(of).is_array or first.func.attr == last.attr:
        return None
    inner = ast.Call(ast.Attribute(of, last.attr), p.node.args, p.node.keywords)
    return ast.Call(ast.Attribute(inner, first.func.attr), first.args, first.keywords)


# -- axes --------------------------------------------------------------------------------------------------------------
def swap_other_axes(p: Place) -> Changes:
    """Two axes of an array exchanged, the last two excepted."""
    if not p.kind.is_array or p.is_called or isinstance(p.parent, ast.keyword):
        return
    count = min(len(p.kind.shape), _MOST_AXES)
    for one in range(1, count + 1):
        for other in range(one + 1, count + 1):
            if (one, other) != (1, 2):
                yield f"{p.text}.swapaxes(-{one}, -{other})"


def reshape_in_another_order(p: Place) -> Changes:
    """A shape with two neighbouring lengths exchanged, and the axes put back: other entries go together."""
    node = p.node
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("reshape", "view"):
        return
    whole = node.args[-1] if node.args and isinstance(node.args[-1], ast.Tuple) else None
    items = list(whole.elts) if whole is not None else list(node.args)
    # np.reshape(x, shape) has the array as an argument, x.reshape(…) has not.
    is_method = p.kind_of(node.func.value).is_array
    if whole is None and not is_method:
        return
    for k in range(len(items) - 1):
        swapped = [*items[:k], items[k + 1], items[k], *items[k + 2 :]]
        arguments = (
            [*node.args[:-1], ast.Tuple(swapped, ast.Load())] if whole is not None else swapped
        )
        call = ast.Call(node.func, arguments, node.keywords)
        # The axes are put back, so that the shape is as before.
        yield f"{ast.unparse(call)}.swapaxes({k - len(items)}, {k + 1 - len(items)})"


def repeat_or_tile(p: Place) -> Changes:
    """Each item repeated in place of the whole, and the other way: one axis of an array several times as long."""
    node, word = p.node, _name_of(p.node)
    is_method = isinstance(node.func, ast.Attribute) and p.kind_of(node.func.value).is_array
    array = node.func.value if is_method else node.args[0] if node.args else None
    if array is None or not p.xp:
        return
    shape = p.kind_of(array).shape
    rest = node.args if is_method else node.args[1:]
    items = rest[0].elts if len(rest) == 1 and isinstance(rest[0], ast.Tuple) else rest
    # torch's ``repeat`` tiles, and NumPy's repeats each item.
    tiles = word == "tile" or (word == "repeat" and p.is_torch)
    text = f"({ast.unparse(array)})"
    if tiles and len(items) == len(shape):
        for axis, item in enumerate(items):
            if not (isinstance(item, ast.Constant) and item.value == 1):
                count = ast.unparse(item)
                name = "repeat_interleave" if p.is_torch else "repeat"
                yield f"{p.xp}.{name}({text}, {count}, {axis})"
    elif word in ("repeat", "repeat_interleave") and rest:
        count = ast.unparse(rest[0])
        for axis in range(len(shape)):
            times = ", ".join(count if k == axis else "1" for k in range(len(shape)))
            yield f"{p.xp}.tile({text}, ({times},))"


def take_root(p: Place) -> Changes:
    """A whole number in a product or a quotient, by its root or its square."""
    if (
        p.kind.name == "int"
        and p.in_product
        and not isinstance(p.node, ast.Constant)
        and not p.is_called
    ):
        # 1/√d, √d and d² in place of d.
        for exponent in ("0.5", "-0.5", "2"):
            yield f"{p.text} ** {exponent}"


def reduce_operand(p: Place) -> Changes:
    """An operand by its largest item, its sum or its mean in the last axis."""
    if (
        p.kind.name != "floats"
        or not p.kind.shape
        or p.is_called
        or not isinstance(p.parent, ast.BinOp)
    ):
        return
    # The axis is kept, so that the result broadcasts.
    keeps = "keepdim=True" if p.is_torch else "keepdims=True"
    for word in ("amax" if p.is_torch else "max", "sum", "mean"):
        yield f"{p.text}.{word}(-1, {keeps})"


# -- constants ---------------------------------------------------------------------------------------------------------
#: Calls that write a number into an array.
_FILLING = (
    "where",
    "full",
    "full_like",
    "masked_fill",
    "masked_fill_",
    "fill_",
    "fill",
    "maximum",
    "max",
)


def take_infinity(p: Place) -> Changes:
    """Infinity in place of a number, or of the largest one of a format."""
    if not p.xp:
        return
    node = p.node
    if isinstance(node, ast.Name):
        # Minus a name is what hides a score; other names are no fills.
        if isinstance(p.parent, ast.UnaryOp) and p.kind.name == "float":
            yield p.infinity
    elif isinstance(node, ast.Constant):
        value = node.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and value not in _SMALL_NUMBERS:
            yield p.infinity
    elif (
        node.attr in ("min", "max")
        and isinstance(node.value, ast.Call)
        and _name_of(node.value) == "finfo"
    ):
        yield f"-{p.xp}.inf" if node.attr == "min" else f"{p.xp}.inf"


def fill_with_minus_infinity(p: Place) -> Changes:
    """−∞ in place of a number, not below 0, that is written into entries, or that a call fills in."""
    # The number of a module has no target here.
    targets = getattr(p.parent, "targets", ())
    is_written = any(isinstance(target, ast.Subscript) for target in targets)
    is_filled = isinstance(p.parent, ast.Call) and _name_of(p.parent) in _FILLING
    value = p.node.value
    if p.xp and (is_written or is_filled) and type(value) in (int, float) and value >= 0:
        yield f"-{p.infinity}"


def take_small_number(p: Place) -> Changes:
    """A guard against zero of another size."""
    value = p.node.value
    if isinstance(value, float) and 0 < value < 0.1:
        for number in _TENFOLDS:
            yield repr(number)


def take_zero(p: Place) -> Changes:
    """Zero in place of a whole number that a call gets, or another name, such as the start of a range."""
    is_argument = isinstance(p.parent, ast.Call) and p.field == "args"
    is_assigned = isinstance(p.parent, ast.Assign | ast.Tuple)
    if (is_argument or is_assigned) and p.kind.name == "int":
        yield "0"


def take_unread_name(p: Place) -> Changes:
    """A name that is assigned and never read, in place of a number or an expression of the same kind."""
    if p.is_called or p.kind.name not in NUMBERS or isinstance(p.node, ast.Name):
        return
    for name in sorted(p.function.unread & p.scope.keys()):
        if p.scope[name] == p.kind:
            yield name


def rescale_by_difference(p: Place) -> Changes:
    """A term times a function of the difference of two names, one of which the code subtracts in such a call.

    So sums over parts are brought to another largest number: ``total * exp(old - new)``.
    """
    is_term = isinstance(p.parent, ast.BinOp) and isinstance(p.parent.op, ast.Add | ast.Sub)
    if not (is_term or isinstance(p.parent, ast.Assign)) or not p.kind.is_real or p.is_called:
        return
    if isinstance(p.node, ast.Constant):
        return
    for function, subtracted in p.function.rescalers.items():
        # Only names that the code itself subtracts in such a call.
        for name in sorted(subtracted & p.scope.keys()):
            kind = p.scope[name]
            for other, other_kind in p.names("float", "floats").items():
                if other != name and other_kind == kind:
                    factor = f"{function}({other} - {name})"
                    yield from (f"{p.text} * {form}" for form in forms_of(factor, kind, p.kind))


def take_plain_number(p: Place) -> Changes:
    """A name that holds one number in place of an operand that is an array."""
    is_operand = isinstance(p.parent, ast.BinOp) and p.kind_of(p.parent).name == "floats"
    if is_operand and p.kind.name == "floats":
        yield from p.names("float")


def replace_number_by_name(p: Place) -> Changes:
    """A name, or its exponential, in place of a number that is a term or a factor of an array."""
    if not isinstance(p.parent, ast.BinOp) or isinstance(p.node.value, bool) or not p.xp:
        # A number on its own is a flag or a size.
        return
    whole = p.kind_of(p.parent)
    if whole.name != "floats" or not isinstance(p.node.value, int | float):
        return
    for name, kind in p.names("float", "floats").items():
        if kind.broadcasts_to(whole):
            yield name
            yield f"-{name}"
            yield f"{p.xp}.exp({name})"
            yield f"{p.xp}.exp(-{name})"


# -- formats -----------------------------------------------------------------------------------------------------------
def compute_wider(p: Place) -> Changes:
    """A product, a sum or a call computed in a wider format, and rounded back."""
    if p.kind.name != "floats" or not p.xp or p.is_called:
        return
    node = p.node
    # The wider format is left again at once, so that what follows is as before.
    for word in ("float32", "float64"):
        wide = f".to({p.xp}.{word})" if p.is_torch else f".astype({p.xp}.{word})"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            a, b = (f"({ast.unparse(x)})" for x in (node.left, node.right))
            whole = f"({a}{wide} @ {b}{wide})"
            first = a
        elif isinstance(node, ast.Call) and node.args and p.kind_of(node.args[0]).name == "floats":
            first = f"({ast.unparse(node.args[0])})"
            whole = ast.unparse(_with_first(node, ast.parse(f"{first}{wide}", mode="eval").body))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if p.kind_of(node.func.value).name != "floats" or node.func.attr in ("astype", "to"):
                return
            first = f"({ast.unparse(node.func.value)})"
            called = ast.Attribute(
                ast.parse(f"{first}{wide}", mode="eval").body, node.func.attr, ast.Load()
            )
            whole = ast.unparse(ast.Call(called, node.args, node.keywords))
        else:
            return
        yield f"{whole}.to({first}.dtype)" if p.is_torch else f"{whole}.astype({first}.dtype)"


# -- expressions of the function ---------------------------------------------------------------------------------------
def take_expression(p: Place) -> Changes:
    """Another expression of the function, of the same kind and shape."""
    if p.kind.name not in NUMBERS or p.is_called or isinstance(p.node, ast.Constant):
        return
    own, count = ast.unparse(p.node), 0
    for text, (kind, names) in p.function.expressions.items():
        # Every name of the expression must have a value at this place.
        if kind != p.kind or text == own or not names <= p.scope.keys() | p.function.free_names:
            continue
        yield text
        count += 1
        if count == _MOST_GRAFTS:
            return


#: For rules that look at the kind of an expression, not at its form.
ANY = ast.expr
RULES: tuple[EditRule, ...] = (
    EditRule(
        "infinity",
        1,
        (ast.Constant, ast.Attribute, ast.Name),
        take_infinity,
        likely=True,
        added=LOOKED_AT,
    ),
    EditRule(
        "infinity",
        1,
        ast.Constant,
        fill_with_minus_infinity,
        likely=True,
        added=LOOKED_AT,
        where="arrays",
    ),
    EditRule("exponent", 2, ANY, take_root, likely=True, added=LOOKED_AT, where="arrays"),
    EditRule("reduced", 2, ANY, reduce_operand, added=LOOKED_AT, where="arrays"),
    EditRule("guard", 2, ast.Constant, take_small_number, added=LOOKED_AT),
    EditRule("variable", 2, ast.Name, take_plain_number, added=LOOKED_AT),
    EditRule("zero", 2, ast.Name, take_zero, likely=True, added=LOOKED_AT),
    EditRule("expression", 3, ast.Constant, replace_number_by_name, added=LOOKED_AT),
    EditRule("variable", 2, ANY, take_unread_name, likely=True, added=LOOKED_AT),
    EditRule("rescaled", 3, ANY, rescale_by_difference, likely=True, added=LOOKED_AT),
    EditRule("brackets", 2, ast.BinOp, distribute, added=LOOKED_AT),
    EditRule("order of operations", 2, ast.BinOp, swap_operators, added=LOOKED_AT),
    EditRule("order of operations", 2, (ast.BinOp, ast.Call), move_operation, added=LOOKED_AT),
    EditRule("order of calls", 2, ast.Call, swap_nested_calls, added=LOOKED_AT),
    EditRule("repeated", 2, ast.Call, repeat_or_tile, likely=True, added=LOOKED_AT, where="arrays"),
    EditRule("shape", 2, ast.Call, reshape_in_another_order, added=LOOKED_AT, where="arrays"),
    EditRule("transposed", 3, ANY, swap_other_axes, added=LOOKED_AT, where="arrays"),
    EditRule("wider", 3, ANY, compute_wider, added=LOOKED_AT, where="arrays"),
    EditRule("expression", 3, ANY, take_expression, added=LOOKED_AT),
)

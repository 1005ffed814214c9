"""The rules that change one expression: a token or an operand, an insertion, a small expression of the scope."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from symattn.programs.repairing.edits import (
    LOOKED_AT,
    NAME_OF_OTHER_SHAPE,
    SWITCH,
    UNWRAPPED_FROM_OTHERS,
    EditRule,
    Place,
)
from symattn.programs.repairing.observing import NUMBERS
from symattn.programs.repairing.same_elsewhere import comes_out_as_factor

#: New expressions, as text or as trees.
Changes = Iterator[str | ast.expr]
unparse = ast.unparse

#: Functions that are easily confused, in groups; most take the same arguments.
_GROUPS_OF_TWINS = """
exp exp2 expm1; log log2 log1p log10; max min; maximum minimum; amax amin; sum mean max prod; sum cumsum; triu tril
repeat tile; repeat repeat_interleave; zeros ones; zeros_like ones_like; sin cos; var std; sqrt square rsqrt
argmax argmin; len sum; any all; floor ceil round; sinh tanh; float16 float32 float64; cumsum cumprod; sigmoid tanh
relu gelu; logical_and logical_or; less less_equal; greater greater_equal; vstack hstack; argsort sort
roll flip; less greater; fmax maximum; fmin minimum; concatenate stack; bfloat16 float32
maximum logaddexp; max logsumexp; amax logsumexp; softmax log_softmax; silu sigmoid gelu; relu softplus
"""


def _read_twins() -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for group in re.split(r"[;\n]", _GROUPS_OF_TWINS.strip()):
        words = group.split()
        for word in words:
            result.setdefault(word, []).extend(w for w in words if w != word)
    return result


#: The functions that are tried in place of each one.
TWINS = _read_twins()
#: Comparisons that are tried in place of each one.
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.GtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.LtE, ast.Lt),
    ast.Eq: (ast.NotEq, ast.GtE, ast.LtE),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
#: Operators that are tried in place of each one.
OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add, ast.Pow, ast.MatMult),
    ast.Div: (ast.Mult, ast.FloorDiv, ast.Sub),
    ast.FloorDiv: (ast.Mod, ast.Div),
    ast.Mod: (ast.FloorDiv,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.MatMult: (ast.Mult,),
}
#: Operators whose operands are exchanged without effect.
_COMMUTES = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)
#: The factor between exponents to the bases 2 and e.
_LN2 = math.log(2)
_ROUNDING = 2.0**-48  # of a number: what a few roundings of a float change
#: Functions that work along an axis.
_REDUCTIONS = (
    "sum",
    "max",
    "mean",
    "min",
    "var",
    "std",
    "softmax",
    "cumsum",
    "amax",
    "amin",
    "prod",
)
#: Arguments that name an axis, in NumPy and JAX, and in torch.
AXIS_WORDS = ("axis", "dim")


# -- tier 1: one token or operand --------------------------------------------------------------------------------------
def change_comparison(p: Place) -> Changes:
    node = p.node
    for k, op in enumerate(node.ops):
        for other in _COMPARISONS.get(type(op), ()):
            yield ast.Compare(
                node.left, [*node.ops[:k], other(), *node.ops[k + 1 :]], node.comparators
            )


#: The same comparisons with and without equality.
_STRICTNESS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


def move_both_ends(p: Place) -> Changes:
    """A range between two comparisons that includes its other end: ``0 < d <= n`` and ``0 <= d < n``."""
    node = p.node
    if isinstance(node, ast.Compare):
        ops = [_STRICTNESS.get(type(op)) for op in node.ops]
        if len(ops) == 2 and None not in ops:
            yield ast.Compare(node.left, [op() for op in ops if op], node.comparators)
        return
    is_and = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd)
    sides = [node.left, node.right] if is_and else []
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        sides = node.values
    moved = [m for side in sides if (m := _other_strictness(side)) is not None]
    if len(sides) == len(moved) == 2:
        left, right = moved
        yield ast.BinOp(left, node.op, right) if is_and else ast.BoolOp(node.op, [left, right])


def _other_strictness(node: ast.expr) -> ast.Compare | None:
    if not isinstance(node, ast.Compare) or len(node.ops) > 1:
        return None
    other = _STRICTNESS.get(type(node.ops[0]))
    return ast.Compare(node.left, [other()], node.comparators) if other else None


def swap_compared(p: Place) -> Changes:
    if len(p.node.ops) == 1:
        yield ast.Compare(p.node.comparators[0], p.node.ops, [p.node.left])


def change_operator(p: Place) -> Changes:
    for other in OPERATORS.get(type(p.node.op), ()):
        yield ast.BinOp(p.node.left, other(), p.node.right)


def round_up(p: Place) -> Changes:
    if not isinstance(p.node.op, ast.FloorDiv):
        return
    if p.is_kernel:  # there a quotient is rounded towards zero
        yield f"{p.xp}.cdiv({unparse(p.node.left)}, {unparse(p.node.right)})"
    else:
        yield f"-(-({unparse(p.node.left)}) // ({unparse(p.node.right)}))"


def swap_operands(p: Place) -> Changes:
    if not isinstance(p.node.op, _COMMUTES):
        yield ast.BinOp(p.node.right, p.node.op, p.node.left)


def drop_operand(p: Place) -> Changes:
    node = p.node
    if isinstance(node, ast.UnaryOp):
        # Other axes are other numbers: −2 and 2 are the same axis for some ranks alone.
        if not _is_axis(p):
            yield node.operand
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    # One operand of a product of matrices has another shape than the product.
    elif not isinstance(node.op, ast.MatMult):
        yield node.left
        yield node.right


def _is_axis(p: Place) -> bool:
    """Return whether an expression names the axis of a function: ``axis=-2``, or the -2 of ``s.sum(-2)``."""
    if isinstance(p.parent, ast.keyword):
        return p.parent.arg in AXIS_WORDS
    if not isinstance(p.parent, ast.Call) or p.field != "args" or p.kind.is_array:
        return False
    return _called_word(p.parent) in _REDUCTIONS


def change_connective(p: Place) -> Changes:
    yield ast.BoolOp(ast.Or() if isinstance(p.node.op, ast.And) else ast.And(), p.node.values)


def change_branches(p: Place) -> Changes:
    yield p.node.body
    yield p.node.orelse
    yield ast.IfExp(p.node.test, p.node.orelse, p.node.body)


def _called_word(node: ast.Call) -> str:
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def change_function(p: Place) -> Changes:
    node = p.node
    if isinstance(node, ast.Attribute):
        for other in TWINS.get(node.attr, ()):
            # A tree, since ``(x * y).mean()`` needs its brackets.
            yield ast.Attribute(node.value, other, ast.Load())
    elif p.is_called:
        for other in TWINS.get(node.id, ()):
            yield other


#: Functions that keep the axis along which they work, each with the one that leaves it out or keeps one item.
_RUNNING = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logsumexp"}
_REDUCING = {reduction: running for running, reduction in _RUNNING.items()}
_KEEPS_AXIS = ("keepdims", "keepdim")


def change_running(p: Place) -> Changes:
    """A running sum in place of a sum with ``keepdims``, and the other way: the names of arguments change along."""
    node = p.node
    word = _called_word(node)
    if not isinstance(node.func, ast.Attribute):
        return
    others = [k for k in node.keywords if k.arg not in _KEEPS_AXIS]
    if word in _REDUCING and len(others) < len(node.keywords):
        function = ast.Attribute(node.func.value, _REDUCING[word], ast.Load())
        yield ast.Call(function, node.args, others)
    if word in _RUNNING:
        function = ast.Attribute(node.func.value, _RUNNING[word], ast.Load())
        keeps = ast.keyword("keepdim" if p.is_torch else "keepdims", ast.Constant(True))
        yield ast.Call(function, node.args, [*node.keywords, keeps])


def _is_method(p: Place) -> bool:
    """Return whether an array's method is called, and no function of a module."""
    f = p.node.func
    return isinstance(f, ast.Attribute) and p.kind_of(f.value).name in NUMBERS


def unwrap(p: Place) -> Changes:
    """An argument in place of a call, an array in place of its part or its transpose."""
    node = p.node
    if isinstance(node, ast.Call):
        plain = [a for a in node.args[:3] if not isinstance(a, ast.Starred)]
        arguments = [node.func.value] if _is_method(p) else plain  # type: ignore[attr-defined]
        yield from (a for a in arguments if not _has_other_names(p, a))
    elif isinstance(node, ast.Subscript):
        if p.kind.is_array:
            yield node.value
    elif node.attr in ("T", "mT"):
        yield node.value


def unwrap_from_others(p: Place) -> Changes:
    """One argument in place of a call whose other arguments somebody wrote on purpose: ``a`` for ``max(a, b)``."""
    if not _is_method(p):
        plain = [a for a in p.node.args[:3] if not isinstance(a, ast.Starred)]
        yield from (a for a in plain if _has_other_names(p, a))


def _has_other_names(p: Place, argument: ast.expr) -> bool:
    """Return whether another argument of the call names an array or a number."""
    others = [a for a in p.node.args if a is not argument]
    names = [n for a in others for n in ast.walk(a) if isinstance(n, ast.Name)]
    return not _is_method(p) and any(p.kind_of(n).name in NUMBERS for n in names)


def _with_items(items: list[Any], k: int, j: int) -> list[Any]:
    result = list(items)
    result[k], result[j] = result[j], result[k]
    return result


def swap_arguments(p: Place) -> Changes:
    node = p.node
    for k in range(len(node.args)):
        # Only arguments up to two places apart, so that a long call yields few edits.
        for j in range(k + 1, min(len(node.args), k + 3)):
            yield ast.Call(node.func, _with_items(node.args, k, j), node.keywords)
    for k in range(len(node.keywords)):
        for j in range(k + 1, min(len(node.keywords), k + 3)):
            one, other = node.keywords[k], node.keywords[j]
            swapped = list(node.keywords)
            swapped[k], swapped[j] = (
                ast.keyword(one.arg, other.value),
                ast.keyword(other.arg, one.value),
            )
            yield ast.Call(node.func, node.args, swapped)


def drop_argument(p: Place) -> Changes:
    node = p.node
    # A function needs an argument; a method has its object.
    if len(node.args) > 1 or (node.args and _is_method(p)):
        yield ast.Call(node.func, node.args[:-1], node.keywords)
    for one in node.keywords:
        yield ast.Call(node.func, node.args, [k for k in node.keywords if k is not one])


def add_axis_argument(p: Place) -> Changes:
    node = p.node
    # Reductions such as sum and max may lack their axis.
    if _called_word(node) not in _REDUCTIONS:
        return
    word = "dim" if p.is_torch else "axis"
    keywords = {k.arg for k in node.keywords}
    # The last axis first, as rows are what is reduced.
    added = [] if keywords & {*AXIS_WORDS} else [(word, -1), (word, 0), (word, -2)]
    added += [] if keywords & {"keepdims", "keepdim"} else [("keepdims", True)]
    for name, value in added:
        yield ast.Call(
            node.func, node.args, [*node.keywords, ast.keyword(name, ast.Constant(value))]
        )


def swap_items(p: Place) -> Changes:
    items = p.node.elts
    # Long lists have too many pairs.
    for k in range(len(items) if len(items) < 6 else 0):
        for j in range(k + 1, len(items)):
            yield type(p.node)(_with_items(items, k, j), ast.Load())


def _subscript_items(node: ast.Subscript) -> list[ast.expr]:
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _with_subscript(node: ast.Subscript, k: int, item: ast.expr) -> ast.expr:
    items = _subscript_items(node)
    items[k] = item
    return ast.Subscript(
        node.value, ast.Tuple(items, ast.Load()) if len(items) > 1 else items[0], ast.Load()
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def change_slice(p: Place) -> Changes:
    one = ast.Constant(1)
    for k, item in enumerate(_subscript_items(p.node)):
        if not isinstance(item, ast.Slice):
            continue
        a, b, step = item.lower, item.upper, item.step
        less = ast.UnaryOp(ast.USub(), one)
        reverse = ast.UnaryOp(ast.USub(), one) if step is None else None
        for bounds in (
            (None, b, step),
            (a, None, step),
            (b, a, step),
            (a, b, None),
            (a, less, step),
            (one, b, step),
            (None, a, step),
            (b, None, step),
            (a, b, reverse),
        ):
            yield _with_subscript(p.node, k, ast.Slice(*bounds))


def move_slice(p: Place) -> Changes:
    """A slice that begins at a whole number in scope, as that of a block begins at its first row."""
    for k, item in enumerate(_subscript_items(p.node)):
        if not isinstance(item, ast.Slice) or item.upper is None or item.step is not None:
            continue
        # An end that is counted from the last entry stays where it is.
        if isinstance(item.upper, ast.UnaryOp):
            continue
        moved = {n.id for n in ast.walk(item) if isinstance(n, ast.Name)}
        for name in p.names("int"):
            if name in moved:
                continue
            first = ast.Name(name)
            lower = first if item.lower is None else ast.BinOp(first, ast.Add(), item.lower)
            upper = ast.BinOp(first, ast.Add(), item.upper)
            yield _with_subscript(p.node, k, ast.Slice(lower, upper))


def move_new_axis(p: Place) -> Changes:
    items = _subscript_items(p.node)
    rest = [item for item in items if not _is_none(item)]
    # Without a None there is no new axis to move.
    if len(rest) == len(items):
        return
    shape = p.kind_of(p.node.value).shape
    # Every axis is written out, so that the new one can stand anywhere.
    rest += [ast.Slice()] * max(0, len(shape) - len(rest))
    for k in range(len(rest) + 1):
        several = ast.Tuple([*rest[:k], ast.Constant(None), *rest[k:]], ast.Load())
        yield ast.Subscript(p.node.value, several, ast.Load())


def change_name(p: Place) -> Changes:
    names = _exchangeable_names(p)
    same = [n for n in names if p.is_kernel or len(p.scope[n].shape) == len(p.kind.shape)]
    yield from p.most_similar([n for n in same if p.is_kernel or _has_fitting_shape(p, n)])


def change_name_to_other_shape(p: Place) -> Changes:
    """A name of an array with other lengths or axes: it often only hides a mistake elsewhere."""
    same = [*change_name(p)]
    yield from (n for n in _exchangeable_names(p) if n not in same)


def _has_fitting_shape(p: Place, name: str) -> bool:
    """Return whether an array may have the same shape in another call: axes of length 1 fit to any."""
    pairs = zip(p.scope[name].shape, p.kind.shape, strict=True)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _exchangeable_names(p: Place) -> list[str]:
    """Return the names of the same kind, and of about as many axes."""
    if p.kind.name not in NUMBERS or p.is_called:
        return []
    fitting = []
    for name, kind in p.names(*NUMBERS).items():
        alike = kind.name == p.kind.name or {kind.name, p.kind.name} <= {"int", "ints"}
        # A number of axes that differs by more is no slip.
        if alike and abs(len(kind.shape) - len(p.kind.shape)) <= 1:
            fitting.append(name)
    return fitting


def change_constant(p: Place) -> Changes:
    value = p.node.value
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        named = isinstance(p.parent, ast.keyword) and p.parent.arg in AXIS_WORDS
        is_axis = named or (isinstance(p.parent, ast.Call) and p.field == "args")
        others = {value + 1, value - 1, -value, 2 * value, value // 2, 0, 1}
        others |= {-1, -2, 2, 3} if is_axis or isinstance(p.parent, ast.UnaryOp) else set()
        for other in sorted(others - {value}, key=lambda x: (abs(x - value), x)):
            yield str(other)
        if is_axis:
            yield "None"
    elif isinstance(value, float) and value and math.isfinite(value):
        for number in _numbers_beside(value):
            yield repr(_take_own_number(number, p.function.numbers))


def change_negative_axis(p: Place) -> Changes:
    """Another axis in place of one that is counted from the end: ``-2`` as a whole, not the 2 in it."""
    operand = p.node.operand
    if not isinstance(operand, ast.Constant) or type(operand.value) is not int or not _is_axis(p):
        return
    value = -operand.value
    for other in sorted({-1, -2, -3, 0, 1} - {value}, key=lambda x: (abs(x - value), x)):
        yield str(other)


def _numbers_beside(value: float) -> Iterator[float]:
    """Yield numbers that a float may be confused with."""
    # In decimals, as numbers are written: 1e-5 / 10 is 1e-6, not the float beside it.
    written = Decimal(repr(value))
    yield -value
    yield 1 / value
    yield from (0.0, 1.0)
    in_decimals = (
        written * written,
        written / 2,
        written * 2,
        written * 10,
        written / 10,
        written - 1,
        written + 1,
    )
    yield from map(float, in_decimals)
    yield from (_LN2, 1 / _LN2)
    yield abs(value) ** 0.5
    yield from (value * _LN2, value / _LN2)
    yield from (2.0, 0.5)


def _take_own_number(number: float, own: Iterable[float]) -> float:
    """Return the number of the specification that ``number`` misses by rounding alone, else ``number``."""
    near = (x for x in own if math.isclose(x, number, rel_tol=_ROUNDING))
    return float(next(near, number))


def change_switch(p: Place) -> Changes:
    """The default value of a parameter that turns a branch on or off: a truth value, or None."""
    value = p.node.value
    if not p.is_default:
        return
    if isinstance(value, bool):
        yield str(not value)
    elif value is None:
        yield from ("True", "False", "0", "1", "1.0", *map(repr, p.function.numbers))
    elif isinstance(value, int | float):
        yield "None"


def change_einsum(p: Place) -> Changes:
    text = p.node.value
    if (
        not isinstance(text, str)
        or not re.fullmatch(r"[A-Za-z.,\s]+(->[A-Za-z.\s]*)?", text)
        or "," not in text
    ):
        return
    for k in range(len(text)):
        for j in range(k + 1, len(text)):
            # Two letters of one operand, or of the output, are exchanged.
            if (
                text[k].isalpha()
                and text[j].isalpha()
                and text[k] != text[j]
                and text[k:j].isalpha()
            ):
                yield repr(text[:k] + text[j] + text[k + 1 : j] + text[k] + text[j + 1 :])


def change_infinity(p: Place) -> Changes:
    if p.node.attr == "inf":
        yield from ("0.0", "1e9", "1e30")


def shift_by_one(p: Place) -> Changes:
    """One more or less, for whole numbers that are not written out."""
    is_stride = isinstance(p.node, ast.Name) and p.is_kernel and p.node.id in p.function.strides
    if isinstance(p.node, ast.Constant) or p.is_called or is_stride:
        return
    if p.kind.name in ("int", "ints"):
        yield f"{p.text} + 1"
        yield f"{p.text} - 1"


def negate(p: Place) -> Changes:
    if p.kind.name == "bool":
        yield f"not {p.text}"
    elif p.kind.name == "bools":
        yield f"~{p.text}"


# -- tier 2: one insertion ---------------------------------------------------------------------------------------------
def rebracket(p: Place) -> Changes:
    a = p.node.left
    b = p.node.right
    op = p.node.op
    if isinstance(a, ast.BinOp) and type(a.op) is not type(op):
        yield ast.BinOp(a.left, a.op, ast.BinOp(a.right, op, b))
    if isinstance(b, ast.BinOp) and type(b.op) is not type(op):
        yield ast.BinOp(ast.BinOp(a, op, b.left), b.op, b.right)


def replace_by_name(p: Place) -> Changes:
    """A name in place of an expression of the same kind and number of axes."""
    if isinstance(p.node, ast.Name | ast.Constant) or p.kind.name not in NUMBERS or p.is_called:
        return
    for name, kind in p.names(p.kind.name).items():
        if len(kind.shape) == len(p.kind.shape):
            yield name


def add_whole_term(p: Place) -> Changes:
    if p.kind.name not in ("int", "ints") or not isinstance(p.node, ast.Name):
        return
    for name in p.whole_names:
        for op in ("+", "-", "*", "//", "%"):
            yield f"{p.text} {op} {name}"


def shift_positions(p: Place) -> Changes:
    """A whole number added to positions, where a call gives them: ``np.arange(n) + past``."""
    if p.kind.name == "ints" and p.kind.shape:
        yield from (f"{p.text} + {name}" for name in p.whole_names)


def take_from_positions(p: Place) -> Changes:
    """A whole number less in positions that a call gives, which is forgotten more rarely than one added."""
    if p.kind.name == "ints" and p.kind.shape:
        yield from (f"{p.text} - {name}" for name in p.whole_names)


def add_difference_of_lengths(p: Place) -> Changes:
    """A difference of two lengths added to positions: ``np.arange(n_q)[:, None] + n_k - n_q``.

    Where queries stand among more keys, code forgets it about as often as a single number. Names that are computed
    from lengths, such as a number of tiles, are left to the differences of any whole numbers.
    """
    if p.kind.name != "ints" or not p.kind.shape or isinstance(p.parent, ast.Subscript):
        return
    lengths = [name for name in p.whole_names if name in p.function.lengths]
    # In a sum, what is added already.
    around = p.parent if isinstance(p.parent, ast.BinOp) else p.node
    own = {node.id for node in ast.walk(around) if isinstance(node, ast.Name)}
    for a in lengths:
        for b in lengths:
            # Positions are as many as the length that is taken away.
            if b in own and a not in own:
                yield f"{p.text} + {a} - {b}"


def clip_whole(p: Place) -> Changes:
    if p.kind.name != "int" or isinstance(p.node, ast.Constant):
        return
    for name in p.whole_names:
        if p.is_kernel:
            yield f"{p.xp}.minimum({p.text}, {name})"
            yield f"{p.xp}.maximum({p.text}, {name})"
        else:
            yield f"min({p.text}, {name})"
            yield f"max({p.text}, {name})"
    if p.is_kernel:
        return
    yield f"max({p.text}, 0)"
    yield f"max({p.text}, 1)"


def take_length(p: Place) -> Changes:
    if p.kind.name != "int" or (
        isinstance(p.node, ast.Constant) and p.node.value in (-2, -1, 0, 1, 2)
    ):
        return
    for name, kind in p.names("floats").items():
        for axis in range(1, min(len(kind.shape), 4) + 1):
            yield f"{name}.shape[-{axis}]"


def take_number(p: Place) -> Changes:
    """A number of the specification in place of a plain number."""
    if p.kind.name not in ("int", "float") or p.is_called:
        return
    for number in p.function.numbers:
        if p.kind.name == "float" or isinstance(number, int):
            yield repr(number)


def add_mask(p: Place) -> Changes:
    if p.kind.name == "bools":
        for name in p.names("bools"):
            yield f"{p.text} & {name}"
            yield f"{p.text} | {name}"
    elif p.kind.name == "floats" and p.xp:
        for name, kind in p.names("bools").items():
            if kind.broadcasts_to(p.kind):
                for filled in (f"-{p.infinity}", "0.0"):
                    yield f"{p.xp}.where({name}, {p.text}, {filled})"


def transpose(p: Place) -> Changes:
    if p.kind.is_array and len(p.kind.shape) >= 2:
        yield f"{p.xp}.trans({p.text})" if p.is_kernel else f"{p.text}.swapaxes(-1, -2)"


def _is_number_to_change(p: Place) -> bool:
    return p.kind.is_real and not isinstance(p.node, ast.Constant) and not p.is_called


def wrap(p: Place) -> Changes:
    if _is_number_to_change(p):
        for words in ("-{0}", "1 - {0}", "1 + {0}", "1 / {0}"):
            yield words.format(p.text)


def raise_to_power(p: Place) -> Changes:
    if _is_number_to_change(p):
        for exponent in () if p.is_kernel else ("2", "0.5", "-1", "-0.5", "3"):
            yield f"{p.text} ** {exponent}"
        if p.kind.is_array and p.xp:
            for name in ("exp", "log", "abs", "sqrt", "tanh"):
                yield f"{p.xp}.{name}({p.text})"


def take_distance(p: Place) -> Changes:
    """The size of a whole number, such as a distance, or of an array of them."""
    if isinstance(p.node, ast.BinOp) and p.kind.name in ("int", "ints"):
        is_array = p.kind.is_array and p.xp and not p.is_kernel
        yield f"{p.xp}.abs({p.text})" if is_array else f"abs({p.text})"


def _numbers_that_fit(p: Place) -> list[str]:
    names = p.names("int", "float", "floats")
    fit = p.kind_to_fit
    return [n for n, kind in names.items() if not kind.is_array or kind.broadcasts_to(fit)]


def insert_factor(p: Place) -> Changes:
    """A factor or a divisor; inside a product it would be the same as around it."""
    if not _is_number_to_change(p) or p.in_product:
        return
    roots = [
        f"{n}.shape[-1] ** 0.5"
        for n, kind in p.scope.items()
        if kind.name == "floats" and len(kind.shape) > 1 and not p.is_kernel
    ]
    numbers = [f"({x!r})" for x in p.function.numbers if x not in (0, 1)]
    single = [n for n in _numbers_that_fit(p) if not p.scope[n].is_array]
    arrays = [n for n in _numbers_that_fit(p) if p.scope[n].is_array]
    single += [*roots, *numbers, "2", repr(_LN2)]
    # A single number is the same factor of what is around, which has its own turn.
    around = not p.is_kernel and comes_out_as_factor(p.node, p.parent, p.field)
    for factor in (*arrays, *(() if around else single)):
        yield f"{p.text} * {factor}"
        yield f"{p.text} / {factor}"


def insert_term(p: Place) -> Changes:
    if not _is_number_to_change(p):
        return
    numbers = [f"({x!r})" for x in p.function.numbers if isinstance(x, float)]
    # Whole numbers as terms are another rule's.
    fitting = [n for n in _numbers_that_fit(p) if p.scope[n].name != "int"]
    for term in (*fitting, *numbers):
        yield f"{p.text} + {term}"
        yield f"{p.text} - {term}"


def normalise(p: Place) -> Changes:
    if _is_number_to_change(p) and p.kind.name == "floats" and p.kind.shape:
        yield f"{p.text} / {p.text}.sum(-1, keepdims=True)"
        # torch's ``max`` along an axis returns indices, too.
        if not p.is_torch:
            yield f"{p.text} - {p.text}.max(-1, keepdims=True)"
            yield f"{p.text} - {p.text}.mean(-1, keepdims=True)"
        else:
            yield f"{p.text} - {p.text}.amax(-1, keepdims=True)"


def guard(p: Place) -> Changes:
    if _is_number_to_change(p) and p.kind.name == "floats" and p.xp:
        if not p.is_kernel:
            yield f"{p.xp}.where({p.xp}.isfinite({p.text}), {p.text}, 0)"
        yield f"{p.xp}.where({p.text} == 0, 1, {p.text})"


def clip_to_name(p: Place) -> Changes:
    if _is_number_to_change(p) and p.kind.name == "floats" and p.xp:
        for name, kind in p.names("floats").items():
            if kind.broadcasts_to(p.kind):
                yield f"{p.xp}.maximum({p.text}, {name})"
                yield f"{p.xp}.minimum({p.text}, {name})"


def cast(p: Place) -> Changes:
    if p.kind.name != "floats" or not p.xp or p.is_called:
        return
    for word in ("float32",) if p.is_kernel else ("float32", "float64"):
        converts = "to" if p.is_torch or p.is_kernel else "astype"
        yield f"{p.text}.{converts}({p.xp}.{word})"


def copy_array(p: Place) -> Changes:
    if isinstance(p.node, ast.Name) and p.kind.is_array:
        yield f"{p.text}.clone()" if p.is_torch else f"{p.text}.copy()"


# -- tier 3: small expressions of the scope ----------------------------------------------------------------------------
def take_index(p: Place) -> Changes:
    """The item of another subscript in place of an item."""
    for k, item in enumerate(_subscript_items(p.node)):
        if _is_none(item):
            continue
        for text, other in p.function.subscripts.items():
            if text not in (unparse(item), "..."):
                yield _with_subscript(p.node, k, other)


def _is_whole_to_shift(p: Place) -> bool:
    """Return whether a difference may be added: to positions, to a name, or to a number that is no axis."""
    if p.kind.name != "int" or p.is_called:
        return p.kind.name == "ints"
    names_axis = isinstance(p.parent, ast.keyword) and p.parent.arg in AXIS_WORDS
    return isinstance(p.node, ast.Name) or (isinstance(p.node, ast.Constant) and not names_axis)


def add_difference(p: Place) -> Changes:
    whole = p.whole_names
    if _is_whole_to_shift(p):
        for a in whole:
            for b in whole:
                if a != b:
                    yield f"{p.text} + {a} - {b}"


def combine_whole(p: Place) -> Changes:
    if p.kind.name == "int" and isinstance(p.node, ast.Name | ast.Constant) and not p.is_called:
        whole = p.whole_names
        for a in whole:
            for b in whole:
                if a != b:
                    for op in ("-", "//", "%"):
                        yield f"{a} {op} {b}"
                # Products and sums commute, so each pair is tried once.
                if a < b:
                    yield f"{a} * {b}"
                    yield f"{a} + {b}"


def insert_function_of_name(p: Place) -> Changes:
    """A factor or a term that is a function of a name."""
    if not _is_number_to_change(p) or not p.xp or isinstance(p.node, ast.Name):
        return
    for name, kind in p.names("floats").items():
        if kind.broadcasts_to(p.kind):
            for function in ("exp", "log", "sqrt"):
                yield f"{p.text} + {p.xp}.{function}({name})"
                yield f"{p.text} - {p.xp}.{function}({name})"
                if not p.in_product:
                    yield f"{p.text} * {p.xp}.{function}({name})"
                    yield f"{p.text} / {p.xp}.{function}({name})"


def subtract_from_item(p: Place) -> Changes:
    """An item of the same array, or of another, less an expression, plus it, or taken from it: ``c[-1] - c``."""
    if not _is_number_to_change(p) or not isinstance(p.node, ast.Name):
        return
    for text, (kind, names) in p.function.expressions.items():
        is_item = text.endswith("]") and not kind.is_array and kind.is_real
        if is_item and names <= p.scope.keys():
            yield f"{text} - {p.text}"
            yield f"{p.text} - {text}"
            yield f"{p.text} + {text}"


#: For rules that look at the kind of an expression, not at its form.
ANY = ast.expr
RULES: tuple[EditRule, ...] = (
    EditRule("comparison", 1, ast.Compare, change_comparison, likely=True),
    EditRule(
        "range",
        1,
        (ast.Compare, ast.BinOp, ast.BoolOp),
        move_both_ends,
        likely=True,
        added=LOOKED_AT,
    ),
    EditRule("operands", 1, ast.Compare, swap_compared),
    EditRule("operator", 1, ast.BinOp, change_operator, likely=True),
    EditRule("rounding", 1, ast.BinOp, round_up, likely=True),
    EditRule("operands", 1, ast.BinOp, swap_operands, likely=True),
    EditRule("dropped", 1, (ast.BinOp, ast.UnaryOp, ast.BoolOp), drop_operand, likely=True),
    EditRule("and/or", 1, ast.BoolOp, change_connective, likely=True),
    EditRule("branches", 1, ast.IfExp, change_branches, likely=True),
    EditRule("function", 1, (ast.Attribute, ast.Name), change_function, likely=True),
    EditRule("function", 1, ast.Call, change_running, likely=True, added=LOOKED_AT, where="arrays"),
    EditRule("unwrapped", 1, (ast.Call, ast.Subscript, ast.Attribute), unwrap, likely=True),
    EditRule("arguments", 1, ast.Call, swap_arguments, likely=True),
    EditRule("argument dropped", 1, ast.Call, drop_argument, likely=True),
    EditRule("axis", 1, ast.Call, add_axis_argument, likely=True),
    EditRule("order", 1, (ast.Tuple, ast.List), swap_items, likely=True),
    EditRule("slice", 1, ast.Subscript, change_slice, likely=True),
    EditRule("axis", 1, ast.Subscript, move_new_axis, likely=True),
    EditRule(SWITCH, 1, ast.Constant, change_switch, likely=True, added=LOOKED_AT, where="arrays"),
    EditRule("constant", 1, ast.UnaryOp, change_negative_axis, likely=True),
    EditRule("constant", 1, ast.Constant, change_constant, likely=True),
    EditRule("einsum", 1, ast.Constant, change_einsum, likely=True, where="arrays"),
    EditRule("constant", 1, ast.Attribute, change_infinity, likely=True, where="arrays"),
    EditRule("±1", 1, ANY, shift_by_one, likely=True),
    EditRule("negated", 1, ANY, negate, likely=True),
    EditRule("variable", 1, ast.Name, change_name),
    EditRule(NAME_OF_OTHER_SHAPE, 2, ast.Name, change_name_to_other_shape, where="arrays"),
    EditRule(UNWRAPPED_FROM_OTHERS, 2, ast.Call, unwrap_from_others),
    EditRule("brackets", 2, ast.BinOp, rebracket),
    EditRule("variable", 2, ANY, replace_by_name),
    EditRule("term", 2, ANY, add_whole_term),
    EditRule("term", 2, ast.Call, shift_positions, likely=True, added=LOOKED_AT, where="arrays"),
    EditRule(
        "term",
        2,
        (ast.Call, ast.Subscript),
        add_difference_of_lengths,
        likely=True,
        added=LOOKED_AT,
        where="arrays",
    ),
    EditRule("term", 2, ast.Call, take_from_positions, added=LOOKED_AT, where="arrays"),
    EditRule("bound", 2, ANY, clip_whole),
    EditRule("length", 2, ANY, take_length, where="arrays"),
    EditRule("number of the specification", 2, ANY, take_number),
    EditRule("mask", 2, ANY, add_mask),
    EditRule("transposed", 2, ANY, transpose),
    EditRule("wrapped", 2, ANY, wrap),
    EditRule("exponent", 2, ANY, raise_to_power),
    EditRule("exponent", 2, ast.BinOp, take_distance, added=LOOKED_AT, where="arrays"),
    EditRule("factor", 2, ANY, insert_factor),
    EditRule("term", 2, ANY, insert_term),
    EditRule("normalised", 2, ANY, normalise, where="arrays"),
    EditRule("guard", 2, ANY, guard),
    EditRule("bound", 2, ANY, clip_to_name),
    EditRule("cast", 2, ANY, cast),
    EditRule("copy", 2, ANY, copy_array, where="arrays"),
    EditRule("slice moved", 2, ast.Subscript, move_slice, added=LOOKED_AT, where="arrays"),
    EditRule("index", 3, ast.Subscript, take_index),
    EditRule("term", 3, ANY, add_difference),
    EditRule("term", 3, ANY, combine_whole),
    EditRule("factor", 3, ANY, insert_function_of_name),
    EditRule("term", 3, ast.Name, subtract_from_item, likely=True, added=LOOKED_AT),
)

"""Small changes to functions, each as a person might make it by mistake: the operators of the campaign of mutations."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.Lambda
OPPOSITE: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mult,
}
NEAR: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
OTHER_NAME = {
    "max": "min",
    "min": "max",
    "maximum": "minimum",
    "minimum": "maximum",
    "sum": "mean",
    "mean": "sum",
    "rotate_half": "rotate_interleaved",
}
OTHER_WORD = {"bottom-right": "top-left", "top-left": "bottom-right", "zeros": "nan", "nan": "zeros"}
ELEMENTWISE = ("exp", "sqrt", "log", "tanh", "abs")
WRITTEN = ("formula", "reason", "reasons", "words", "condition", "more", "typed", "of_keys")  # printed, not computed


@dataclass(frozen=True)
class Mutant:
    """A function with one change: ``tree`` is the whole function, ``change`` what was done and ``line`` where."""

    tree: Function
    change: str
    line: int


def mutants(function: Function) -> Iterator[Mutant]:
    """Every mutant of a function, each text once; the function itself is not among them."""
    names = [a.arg for a in function.args.args if a.arg not in ("self", "xp")]
    whole = copy.deepcopy(function)
    if isinstance(whole, ast.FunctionDef):
        whole.decorator_list = []
    seen = {ast.unparse(whole)}
    places = list(_places(whole))
    for n, (place, _) in enumerate(places):
        for change, new in _changed(place, names):
            tree = copy.deepcopy(whole)
            target, parent = list(_places(tree))[n]
            _replace(parent, target, ast.copy_location(ast.fix_missing_locations(copy.deepcopy(new)), target))
            ast.fix_missing_locations(tree)
            if (text := ast.unparse(tree)) not in seen:
                seen.add(text)
                yield Mutant(tree, change, place.lineno)


def _places(function: Function) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """Every expression and statement that computes something, with its parent."""
    body = function.body if isinstance(function.body, list) else [function.body]
    for default in function.args.defaults:
        yield default, function.args
    for child in body:
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # the docstring
        yield from _within(child, function)


def _within(node: ast.AST, parent: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    if isinstance(node, (ast.expr, ast.stmt)):
        yield node, parent
    if isinstance(node, (ast.Raise, ast.JoinedStr)) or _only_printed(node):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "ctx", "decorator_list"):
            continue
        step = isinstance(node, ast.Call) and ast.unparse(node.func) == "Step"
        for child in value[:3] if step and isinstance(value, list) else value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not (isinstance(child, ast.keyword) and child.arg == "dtype"):
                yield from _within(child, node)


def _only_printed(node: ast.AST) -> bool:
    sets = isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
    targets = getattr(node, "targets", [getattr(node, "target", None)]) if sets else []
    return any(isinstance(t, ast.Name) and t.id in WRITTEN for t in targets)


def _replace(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for name, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, name, new)
        elif isinstance(value, list):
            value[:] = [new if x is old else x for x in value]


def _changed(x: ast.AST, names: list[str]) -> Iterator[tuple[str, ast.AST]]:
    """The changes at one place: what was done, and the new node."""
    if isinstance(x, ast.BinOp):
        yield from _operation(x)
    elif isinstance(x, ast.UnaryOp) and isinstance(x.op, (ast.USub, ast.Not)):
        yield "sign dropped", x.operand
    elif isinstance(x, ast.Compare) and len(x.ops) == 1:
        yield from _comparison(x)
    elif isinstance(x, ast.Constant):
        yield from _constant(x)
    elif isinstance(x, ast.Attribute) and x.attr == "mT":
        yield "not transposed", x.value
    elif isinstance(x, ast.Call):
        yield from _call(x)
    elif isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load) and x.id in names and len(names) > 1:
        yield "another argument", ast.Name(names[(names.index(x.id) + 1) % len(names)], ast.Load())
    elif isinstance(x, ast.Slice) and (x.lower is None) != (x.upper is None):
        yield "the other side of the cut", ast.Slice(x.upper, x.lower)
    elif isinstance(x, ast.IfExp):
        yield "always", x.body
        yield "never", x.orelse
    elif isinstance(x, ast.BoolOp):
        yield "and ↔ or", ast.BoolOp(ast.Or() if isinstance(x.op, ast.And) else ast.And(), x.values)
    elif isinstance(x, ast.stmt):
        yield from _statement(x, names)


def _operation(x: ast.BinOp) -> Iterator[tuple[str, ast.AST]]:
    other = OPPOSITE.get(type(x.op))
    if other:
        yield "operator replaced", ast.BinOp(x.left, other(), x.right)
    yield "right operand dropped", x.left
    if not isinstance(x.op, (ast.Div, ast.Sub, ast.FloorDiv)):
        yield "left operand dropped", x.right
    if isinstance(x.op, (ast.Div, ast.Sub, ast.MatMult)):
        yield "operands swapped", ast.BinOp(x.right, x.op, x.left)
    if isinstance(x.op, (ast.Mult, ast.Div)):
        yield "factor squared", ast.BinOp(x.left, x.op, ast.BinOp(x.right, ast.Mult(), x.right))
    if isinstance(x.op, ast.MatMult):
        yield "left transposed", ast.BinOp(ast.Attribute(x.left, "mT", ast.Load()), x.op, x.right)
        yield "right transposed", ast.BinOp(x.left, x.op, ast.Attribute(x.right, "mT", ast.Load()))


def _comparison(x: ast.Compare) -> Iterator[tuple[str, ast.AST]]:
    for op in NEAR.get(type(x.ops[0]), ()):
        yield "comparison replaced", ast.Compare(x.left, [op()], x.comparators)
    if isinstance(x.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
        for word, op_ in (("one more", ast.Add()), ("one less", ast.Sub())):
            yield word, ast.Compare(x.left, x.ops, [ast.BinOp(x.comparators[0], op_, ast.Constant(1))])


def _constant(x: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(x.value, bool):
        yield "flag flipped", ast.Constant(not x.value)
    elif isinstance(x.value, int):
        yield "one more", ast.Constant(x.value + 1)
        yield "one less", ast.Constant(x.value - 1)
    elif isinstance(x.value, str) and x.value in OTHER_WORD:
        yield "another choice", ast.Constant(OTHER_WORD[x.value])


def _call(x: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = x.func.attr if isinstance(x.func, ast.Attribute) else x.func.id if isinstance(x.func, ast.Name) else ""
    if name in OTHER_NAME:
        func = copy.deepcopy(x.func)
        if isinstance(func, ast.Attribute):
            func.attr = OTHER_NAME[name]
            yield f"{name} → {OTHER_NAME[name]}", ast.Call(func, x.args, x.keywords)
    if len(x.args) == 1 and name in ELEMENTWISE:
        [argument] = x.args
        yield f"{name} dropped", argument
        yield "sign flipped", ast.Call(x.func, [ast.UnaryOp(ast.USub(), argument)], x.keywords)
        if isinstance(argument, ast.BinOp) and isinstance(argument.op, (ast.Add, ast.Sub)):
            inner = ast.Call(x.func, [argument.left], x.keywords)
            yield "term moved out", ast.BinOp(inner, argument.op, argument.right)
    plain = not any(isinstance(a, ast.Starred) for a in x.args)
    if plain and len(x.args) > 1 and ast.dump(x.args[0]) != ast.dump(x.args[1]):
        yield "arguments swapped", ast.Call(x.func, [x.args[1], x.args[0], *x.args[2:]], x.keywords)
    if name in ("concat", "stack") and isinstance(x.args[0], ast.List) and len(x.args[0].elts) > 1:
        flipped = ast.List(x.args[0].elts[::-1], ast.Load())
        yield "blocks reversed", ast.Call(x.func, [flipped, *x.args[1:]], x.keywords)


def _statement(x: ast.stmt, names: list[str]) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(x, ast.If):
        yield "condition negated", ast.If(ast.UnaryOp(ast.Not(), x.test), x.body, x.orelse)
    if isinstance(x, ast.Assign) and len(x.targets) == 1:
        target = x.targets[0]
        if isinstance(target, ast.Name) and target.id in names:
            yield "step dropped", ast.Pass()
    if isinstance(x, ast.Return) and isinstance(x.value, (ast.BinOp, ast.Call)):
        yield "sign flipped", ast.Return(ast.UnaryOp(ast.USub(), x.value))

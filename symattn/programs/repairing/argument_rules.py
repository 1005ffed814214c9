"""The rules that change arguments: what a helper of the same file gets, and those of another call of a function."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType

from symattn.programs.repairing.edits import LOOKED_AT, EditRule, Place
from symattn.programs.repairing.lengths import differences, lengths

#: Keywords that set the divisor of a variance.
_DIVISORS = frozenset({"unbiased", "correction", "ddof"})


def give_argument(p: Place) -> Iterator[ast.expr]:
    """A parameter with a default value, such as ``offset=0``, given by name: a length, a difference, a name."""
    node = p.node
    helper = _helper_called(p)
    if helper is None or any(isinstance(a, ast.Starred) for a in node.args):
        return
    given = {keyword.arg for keyword in node.keywords}
    # ``f(**options)`` may give any of them.
    if None in given:
        return
    parameters = list(inspect.signature(helper).parameters.values())
    for number, parameter in enumerate(parameters):
        by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        is_given = parameter.name in given or number < len(node.args)
        if not by_name or is_given or parameter.default is parameter.empty:
            continue
        for text in _values_like(p, parameter.default):
            value = ast.parse(text, mode="eval").body
            keywords = [*node.keywords, ast.keyword(parameter.name, value)]
            yield ast.Call(node.func, node.args, keywords)


def name_number_of_call(p: Place) -> Iterator[ast.expr]:
    """A name or a length in place of a number that a helper of the same file gets: ``rotate(q, 0)``."""
    node = p.node
    if _helper_called(p) is None:
        return
    for k, argument in enumerate(node.args):
        for new in _names_for_number(p, argument):
            yield ast.Call(node.func, [*node.args[:k], new, *node.args[k + 1 :]], node.keywords)
    for k, keyword in enumerate(node.keywords):
        for new in _names_for_number(p, keyword.value):
            other = ast.keyword(keyword.arg, new)
            keywords = [*node.keywords[:k], other, *node.keywords[k + 1 :]]
            yield ast.Call(node.func, node.args, keywords)


def _names_for_number(p: Place, argument: ast.expr) -> list[ast.expr]:
    value = argument.value if isinstance(argument, ast.Constant) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return []
    return [ast.parse(text, mode="eval").body for text in _values_like(p, value)]


def take_arguments_of_other_call(p: Place) -> Iterator[ast.expr]:
    """The keywords of another call of the function or method: ``s.max()`` beside ``s.max(axis=-1, keepdims=True)``."""
    node, word = p.node, _word_of(p.node)
    if node.keywords or not word:
        return
    calls = [n for n in ast.walk(p.function.source.tree) if isinstance(n, ast.Call)]
    for other in calls:
        is_alike = _word_of(other) == word and len(other.args) == len(node.args)
        if is_alike and other.keywords:
            yield ast.Call(node.func, node.args, other.keywords)


def change_variance(p: Place) -> Iterator[ast.expr]:
    """The mean of squares in place of a variance, or its divisor d in place of d − 1: ``x.var(-1, unbiased=False)``."""
    node = p.node
    if _word_of(node) != "var" or not isinstance(node.func, ast.Attribute):
        return
    names = {keyword.arg for keyword in node.keywords}
    if not names & _DIVISORS and None not in names:
        biased = ast.keyword("unbiased", ast.Constant(False))
        yield ast.Call(node.func, node.args, [*node.keywords, biased])
    keywords = [keyword for keyword in node.keywords if keyword.arg not in _DIVISORS]
    owner = node.func.value
    if not _is_module_of_functions(p, node.func):
        mean = ast.Attribute(_square(owner), "mean", ast.Load())
        yield ast.Call(mean, node.args, keywords)
    elif node.args:
        array, *rest = node.args
        mean = ast.Attribute(owner, "mean", ast.Load())
        yield ast.Call(mean, [_square(array), *rest], keywords)


def _square(array: ast.expr) -> ast.expr:
    return ast.BinOp(array, ast.Mult(), array)


def _is_module_of_functions(p: Place, function: ast.Attribute) -> bool:
    """Return whether a name before a point is a module of the file, such as ``np``."""
    owner = function.value
    name = owner.id if isinstance(owner, ast.Name) else ""
    return isinstance(p.function.source.function.__globals__.get(name), ModuleType)


def _word_of(node: ast.Call) -> str:
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def _helper_called(p: Place) -> FunctionType | None:
    """Return the function of the user's file that a call names, or None."""
    function = p.function.source.function
    name = p.node.func.id if isinstance(p.node.func, ast.Name) else ""
    helper = function.__globals__.get(name)
    # A local name may hide the function of the module.
    if not isinstance(helper, FunctionType) or name in function.__code__.co_varnames:
        return None
    is_own = helper.__code__.co_filename == function.__code__.co_filename
    return helper if is_own else None


def _values_like(p: Place, default: object) -> Iterator[str]:
    """Yield expressions of the scope that may stand in place of a default value."""
    if isinstance(default, bool):
        yield str(not default)
    elif isinstance(default, int):
        yield from p.names("int")
        yield from lengths(p.scope).values()
        yield from differences(p.scope)
    elif isinstance(default, float):
        yield from p.names("float")
    elif default is None:
        yield from p.names("int", "float", "floats", "bools")


RULES: tuple[EditRule, ...] = (
    EditRule("argument", 2, ast.Call, give_argument, likely=True, added=LOOKED_AT, where="arrays"),
    EditRule(
        "argument", 2, ast.Call, name_number_of_call, likely=True, added=LOOKED_AT, where="arrays"
    ),
    EditRule("axis", 1, ast.Call, take_arguments_of_other_call, likely=True, added=LOOKED_AT),
    EditRule("variance", 2, ast.Call, change_variance, likely=True, added=LOOKED_AT),
)

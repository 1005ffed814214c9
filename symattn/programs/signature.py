"""The parameters of a function, from its signature, or for a builtin from the first line of its documentation."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable
from inspect import Parameter
from typing import Any

#: Kinds of parameters: those that take any number of arguments, and those that may be filled by position.
STARS = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def parameters(function: Callable[..., Any]) -> tuple[Parameter, ...] | None:
    """The parameters in order; None where neither a signature nor a documented one can be read.

    Those of a module of torch, whose own call takes anything, are those of its ``forward``.
    """
    function = getattr(function, "forward", function) if is_module(function) else function
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return _documented(function)


def is_module(function: object) -> bool:
    """Return whether it is an instance of ``torch.nn.Module``, told without importing torch."""
    return any((c.__module__, c.__name__) == ("torch.nn.modules.module", "Module") for c in type(function).__mro__)


def printed(parameter: Parameter) -> str:
    """The parameter's name, with the stars of ``*args`` and ``**kwargs``."""
    if parameter.kind is Parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    return f"*{parameter.name}" if parameter.kind is Parameter.VAR_POSITIONAL else parameter.name


def without_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that ``functools.partial`` has been given."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def bound_keywords(function: Callable[..., Any]) -> frozenset[str]:
    """The keywords that ``functools.partial`` has already given: what its author has told."""
    bound: frozenset[str] = frozenset()
    while isinstance(function, functools.partial):
        bound |= frozenset(function.keywords)
        function = function.func
    return bound


def _documented(function: Callable[..., Any]) -> tuple[Parameter, ...] | None:
    """torch's builtins begin their documentation with ``name(query, key, …, is_causal=False) -> Tensor``."""
    name = re.escape(getattr(function, "__name__", ""))
    start = re.match(rf"\s*{name}(\([^()]*(?:\([^()]*\)[^()]*)*\))", function.__doc__ or "") if name else None
    if start is None:
        return None
    try:
        tree = ast.parse(f"def f{start[1]}: pass").body[0]
    except SyntaxError:
        return None
    return _of_tree(tree.args) if isinstance(tree, ast.FunctionDef) else None


def _of_tree(arguments: ast.arguments) -> tuple[Parameter, ...]:
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    result = [
        Parameter(a.arg, Parameter.POSITIONAL_OR_KEYWORD, default=Parameter.empty if i < first_default else None)
        for i, a in enumerate(positional)
    ]
    for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        result.append(Parameter(a.arg, Parameter.KEYWORD_ONLY, default=Parameter.empty if default is None else None))
    return tuple(result)

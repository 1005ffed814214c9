"""Operators that a file defines by ``torch.library.define`` and ``impl``, with the rules of their gradients.

Torch's dispatcher keeps their functions out of Python's sight: the text of the file says which function is registered
for which name. The operator is called through ``torch.ops``, so that rebuilt code has other objects in place of these.
"""

from __future__ import annotations

import ast
import gc
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from symattn.programs.repairing.torch_operators import Rules, rebuild_rules

#: Words for the devices of a registration that holds on the CPU, the first ones before the others.
_DEVICES = ("cpu", "default")


class _Registered(NamedTuple):
    """A registration in a text: the name of the operator, the word for the device, the function and its line."""

    operator: str
    device: str
    function: str
    line: int | None


class DefinedOperators:
    """The operators that a file registers, and what leads to them: ``torch``, ``torch.ops`` and their namespaces."""

    def __init__(self, lines: Sequence[str], file: str, space: Mapping[str, Any]) -> None:
        self._rules: dict[int, tuple[Any, Rules]] = {}
        self._parts: dict[int, tuple[Any, dict[str, Any]]] = {}
        torch = sys.modules.get("torch")
        text = "".join(lines)
        if torch is None or (".impl" not in text and "impl(" not in text):
            return
        found = sorted(_list_registered(text), key=lambda r: _DEVICES.index(r.device))
        for name in dict.fromkeys(r.operator for r in found):
            registered = next(r for r in found if r.operator == name)
            function = _find_function(registered, file, space)
            rules = function and _find_rules(torch, name, function)
            if rules is None:
                continue
            space_name, _, short = name.partition("::")
            owner = getattr(torch.ops, space_name)
            packet = getattr(owner, short)
            for x in (packet, packet.default):
                self._rules[id(x)] = x, rules
            self._parts.setdefault(id(owner), (owner, {}))[1][short] = packet
            self._parts.setdefault(id(torch.ops), (torch.ops, {}))[1][space_name] = owner
            self._parts[id(torch)] = torch, {"ops": torch.ops}

    def holds(self, x: Any) -> bool:
        """Return whether an object is such an operator, or leads to one."""
        return id(x) in self._rules or id(x) in self._parts

    def leads_on(self, x: Any) -> bool:
        """Return whether an object leads to operators and is none."""
        return id(x) in self._parts

    def parts_of(self, x: Any) -> Iterator[Any]:
        """Yield the functions of an operator, or what leads on to the operators."""
        if id(x) in self._parts:
            yield from self._parts[id(x)][1].values()
        else:
            yield from self._rules[id(x)][1].functions

    def rebuild(self, x: Any, rebuilt: Callable[[Any], Any], like: Any) -> Any:
        """Return what stands for an object in rebuilt code.

        What leads to operators has the attributes of ``like`` besides.
        """
        if id(x) in self._parts:
            return _Redirected(
                like, {n: rebuilt(part) for n, part in self._parts[id(x)][1].items()}
            )
        call = rebuild_rules(self._rules[id(x)][1], rebuilt)
        # Both ``torch.ops.ns.name`` and its overload ``default`` are called.
        call.default = call  # type: ignore[attr-defined]
        return call


class _Redirected:
    """An object some of whose attributes are others."""

    def __init__(self, like: Any, others: Mapping[str, Any]) -> None:
        self.__dict__.update(others)
        self.__dict__["_like"] = like

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_like"], name)


def _list_registered(text: str) -> Iterator[_Registered]:
    """Yield the registrations by ``impl(name, device)``, as a decorator or with the function as an argument."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            # A function has the line of its first decorator.
            line = min(d.lineno for d in node.decorator_list) if node.decorator_list else None
            for call in node.decorator_list:
                yield from _read_registration(call, node.name, line)
        elif isinstance(node, ast.Call):
            named = [k.value for k in node.keywords if k.arg == "func"]
            for function in (*node.args[2:3], *named):
                if isinstance(function, ast.Name):
                    yield from _read_registration(node, function.id, None)


def _read_registration(call: ast.expr, function: str, line: int | None) -> Iterator[_Registered]:
    if not isinstance(call, ast.Call) or len(call.args) < 2:
        return
    of = call.func
    called = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
    try:
        name, devices = (ast.literal_eval(x) for x in call.args[:2])
    # A key of a dictionary, say, may be of a type that cannot be one.
    except (ValueError, TypeError):
        return
    devices = (devices,) if isinstance(devices, str) else devices
    # Functions of other libraries are called ``impl``, too, with arguments of other types.
    is_of_torch = isinstance(name, str) and "::" in name and isinstance(devices, (tuple, list))
    if called != "impl" or not is_of_torch:
        return
    for device in devices:
        if str(device).lower() in _DEVICES:
            yield _Registered(name, str(device).lower(), function, line)


def _find_function(
    registered: _Registered, file: str, space: Mapping[str, Any]
) -> types.FunctionType | None:
    """Return the function that is registered; a decorator of ``impl`` leaves None in place of its name."""
    if registered.line is None:
        named = space.get(registered.function)
        return named if isinstance(named, types.FunctionType) else None
    for x in gc.get_objects():
        if type(x) is types.FunctionType and x.__globals__ is space:
            code = x.__code__
            place = code.co_filename, code.co_name, code.co_firstlineno
            if place == (file, registered.function, registered.line):
                return x
    return None


def _find_rules(torch: Any, name: str, kernel: types.FunctionType) -> Rules | None:
    """Return the functions of an operator; None for one that is not on plain tensors, or not defined."""
    space_name, _, short = name.partition("::")
    try:
        operator = getattr(getattr(torch.ops, space_name), short).default
    except AttributeError:
        return None
    schema = operator._schema
    keywords = any(a.kwarg_only for a in schema.arguments)
    if schema.is_mutable or keywords or "Tensor[]" in str(schema):
        return None
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    names = tuple(a.name for a in schema.arguments)
    # Torch leaves out an argument that is the schema's default, so that the function's own holds.
    own = [p.default for p in inspect.signature(kernel).parameters.values()]
    if own != [defaults.get(n, inspect.Parameter.empty) for n in names]:
        return None
    for x in gc.get_objects():
        if type(x) is types.FunctionType and x.__module__ == "torch._library.autograd":
            contents = dict(zip(x.__code__.co_freevars, x.__closure__ or (), strict=True))
            if {"op", "info"} <= contents.keys() and contents["op"].cell_contents is operator:
                info = contents["info"].cell_contents
                return Rules(kernel, info._setup_context_fn, info._backward_fn, names, defaults)
    return Rules(kernel, None, None, names, defaults)

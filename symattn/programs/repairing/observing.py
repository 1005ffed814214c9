"""The values of a function's expressions and statements in one run: kinds, shapes, and the names in scope.

Edits are pruned by what was observed: a factor must broadcast, a name is replaced by one of the same kind.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from symattn.programs.names import Function
from symattn.programs.repairing.edited_kernels import HELION, LANGUAGE
from symattn.programs.repairing.source import SourceFunction, Sources

#: Kinds of values; a plural is an array.
KindName = Literal[
    "bool", "int", "float", "function", "other", "unseen", "bools", "ints", "floats", "pointer", "pointers"
]  # fmt: skip
#: Names of the recording functions in rebuilt code.
_SEEN, _SCOPE = "__symattn_seen__", "__symattn_scope__"
#: Numbers, alone or in arrays.
NUMBERS = ("int", "float", "bool", "ints", "floats", "bools")


@dataclass(frozen=True)
class Kind:
    """The kind of a value: a plain number, an array (``bools``, ``ints``, ``floats``) with its shape, or another.

    ``whole`` is the value that a whole number had when it was first seen; kinds that differ in it alone are equal.
    """

    name: KindName
    shape: tuple[int, ...] = ()
    whole: int | None = field(default=None, compare=False)

    @property
    def is_array(self) -> bool:
        """Return whether it is an array of numbers."""
        return self.name in ("bools", "ints", "floats")

    @property
    def is_real(self) -> bool:
        """Return whether it holds real numbers."""
        return self.name in ("float", "floats")

    def broadcasts_to(self, other: Kind) -> bool:
        """Return whether it may be a factor or a term of a value of the other kind without changing its shape."""
        if not self.is_array or not other.is_array:
            return not self.is_array
        if len(self.shape) > len(other.shape):
            return False
        pairs = zip(reversed(self.shape), reversed(other.shape), strict=False)
        return all(a in (1, b) for a, b in pairs)


#: Expressions that name the items of something.
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

#: The kind of an expression that did not run.
UNSEEN = Kind("unseen")


#: The kind of one number, for each kind of array.
_OF_SCALARS: dict[KindName, KindName] = {
    "bools": "bool", "ints": "int", "floats": "float", "pointers": "pointer",
}  # fmt: skip


def _kind_in_kernel(x: Any) -> Kind:
    """Return the kind of a value in a kernel of Triton: a block or one number, pointers among them."""
    # A constexpr is a constant of Python in a wrapper.
    if type(x).__name__ == "constexpr":
        return kind_of(x.value)
    if type(x).__name__ != "tensor":
        return Kind("other")
    words = str(x.dtype)
    shape = tuple(int(n) for n in x.type.shape) if x.type.is_block() else ()
    name: KindName = "floats"
    # The type of a pointer names what it points to, so that pointers come first.
    if "pointer" in words:
        name = "pointers"
    elif words == "int1":
        name = "bools"
    elif words.startswith(("int", "uint")):
        name = "ints"
    if shape:
        return Kind(name, shape)
    # A single number is known in interpretation, and may be a length.
    whole = int(x.handle.data.reshape(-1)[0]) if name == "ints" else None
    return Kind(_OF_SCALARS[name], whole=whole)


def kind_of(x: object) -> Kind:
    """Return the kind of a value."""
    if type(x).__module__.startswith(LANGUAGE):
        return _kind_in_kernel(x)
    # Tiles of Helion are indices alone, and raise where anything else is asked of them.
    if type(x).__module__.startswith(HELION):
        return Kind("other")
    # Before whole numbers, since True is one of them in Python.
    if isinstance(x, bool | np.bool_):
        return Kind("bool")
    if isinstance(x, int | np.integer):
        return Kind("int", whole=int(x))
    if isinstance(x, float | np.floating):
        return Kind("float")
    shape = getattr(x, "shape", None)
    if not isinstance(x, type) and isinstance(shape, tuple) and hasattr(x, "dtype"):
        words = str(x.dtype)
        names: dict[bool, KindName] = (
            {True: "bools"} if "bool" in words else {True: "ints"} if "int" in words else {}
        )
        return Kind(names.get(True, "floats"), tuple(shape))
    return Kind("function" if callable(x) else "other")


def has_no_entries(x: object) -> bool:
    """Return whether a value is an array without entries."""
    # These types first: each line that runs asks it of each name in its scope.
    if type(x) is np.ndarray:
        return not x.size
    return type(x) not in (int, float, bool, str) and 0 in kind_of(x).shape


def _package_of(array: object) -> str:
    """Return the package of an array's type."""
    name = type(array).__module__.split(".")[0]
    return "jax" if name == "jaxlib" else name


@dataclass
class Observed:
    """The kinds of expressions, by the number of their node, and of the names in scope at each statement.

    A comprehension has a scope of its own: the names of its items.

    ``arrays`` counts the arrays of numbers that were seen, by the package of their type. ``of_wrong`` says that the
    output of the observed call was wrong: an edit of a statement that did not run in it cannot repair it.
    """

    kinds: dict[int, Kind] = field(default_factory=dict)
    scopes: dict[int, dict[str, Kind]] = field(default_factory=dict)
    arrays: Counter[str] = field(default_factory=Counter)
    of_wrong: bool = False

    @property
    def library(self) -> str:
        """The package of most arrays: ``numpy``, ``torch``, ``jax`` or another; empty if none was seen."""
        outside = (name for name, _ in self.arrays.most_common() if name != "triton")
        return next(outside, "")

    def see(self, number: int, value: Any) -> Any:
        """Record the kind of an expression, and return its value."""
        # The first value decides; later passes of a loop record nothing.
        if number not in self.kinds:
            self.kinds[number] = kind_of(value)
            if self.kinds[number].is_array:
                self.arrays[_package_of(value)] += 1
        return value

    def see_scope(self, number: int, names: dict[str, Any]) -> None:
        """Record the kinds of the names in scope."""
        scope = self.scopes.setdefault(number, {})
        for name, value in names.items():
            if name not in scope:
                scope[name] = kind_of(value)


def number_nodes(found: SourceFunction, start: int) -> int:
    """Number the nodes of a definition, and return the next number."""
    for node in ast.walk(found.tree):
        node.number = start  # type: ignore[attr-defined]
        start += 1
    return start


def observe(sources: Sources, run: Callable[[Function], object]) -> Observed:
    """Let ``run`` call the function rebuilt with recording expressions, and return what was recorded."""
    result, number, codes = Observed(), 0, {}
    for key in sources.functions:
        source = sources.functions[key]
        number = number_nodes(source, number)
        # Defaults were computed when the function was defined, so no call shows them.
        for node, value in source.defaults:
            result.kinds[node.number] = kind_of(value)  # type: ignore[attr-defined]
        # A copy, since edits need the numbered tree as the user wrote it.
        tree = deepcopy(source.tree)
        tree.body = _with_scopes(
            [_RecordingOfExpressions().visit(s) for s in tree.body], source.tree.body
        )
        codes[key] = source.compile_tree(ast.fix_missing_locations(tree))
    run(sources.rebuild(codes, {_SEEN: result.see, _SCOPE: result.see_scope}))
    return result


def _with_scopes(body: list[Any], originals: list[ast.stmt]) -> list[Any]:
    result = []
    for statement, original in zip(body, originals, strict=True):
        number = ast.Constant(original.number)  # type: ignore[attr-defined]
        names = ast.Call(ast.Name("locals", ast.Load()), [], [])
        result += [ast.Expr(ast.Call(ast.Name(_SCOPE, ast.Load()), [number, names], [])), statement]
    return result


class _RecordingOfExpressions(ast.NodeTransformer):
    """Put each expression into a call that records it, and a record of names before each statement."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        # Calls cannot stand in an f-string's parts or in parameters.
        if isinstance(node, ast.JoinedStr | ast.arguments):
            return node
        # Noted before the visit, which replaces the statements that have the numbers.
        bodies = {
            name: list(body)
            for name in ("body", "orelse", "finalbody")
            if isinstance(body := getattr(node, name, None), list)
            and body
            and isinstance(body[0], ast.stmt)
        }
        function, annotation = getattr(node, "func", None), getattr(node, "annotation", None)
        super().generic_visit(node)
        if isinstance(node, ast.Call) and function is not None:
            node.func = _unwrap_recorded_callee(node.func, function)
        if annotation is not None:
            node.annotation = annotation  # type: ignore[attr-defined]
        if isinstance(node, COMPREHENSIONS) and hasattr(node, "number"):
            # A condition that always holds, so that the names of each item are seen once.
            node.generators[-1].ifs.insert(0, _record_names_of_items(node))
        for name, originals in bodies.items():
            setattr(node, name, _with_scopes(getattr(node, name), originals))
        return self._wrap_in_recording_call(node) if self._is_recorded(node) else node

    def _is_recorded(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.expr) or not hasattr(node, "number"):
            return False
        if isinstance(node, ast.Constant | ast.Starred | ast.Slice | ast.Lambda):
            return False
        # A slice is no value that a call could take.
        if isinstance(node, ast.Tuple) and any(
            isinstance(x, ast.Slice | ast.Starred) for x in node.elts
        ):
            return False
        return isinstance(getattr(node, "ctx", ast.Load()), ast.Load)

    def _wrap_in_recording_call(self, node: Any) -> ast.AST:
        call = ast.Call(ast.Name(_SEEN, ast.Load()), [ast.Constant(node.number), node], [])
        return ast.copy_location(call, node)


def names_of_items(node: Any) -> list[str]:
    """Return the names that a comprehension gives its items, but for those that stand for nothing, such as ``_``."""
    targets = [n for generator in node.generators for n in ast.walk(generator.target)]
    return [n.id for n in targets if isinstance(n, ast.Name) and not n.id.startswith("_")]


def _record_names_of_items(node: Any) -> ast.expr:
    names = names_of_items(node)
    keys: list[ast.expr | None] = [ast.Constant(name) for name in names]
    values = ast.Dict(keys, [ast.Name(name, ast.Load()) for name in names])
    record = ast.Call(ast.Name(_SCOPE, ast.Load()), [ast.Constant(node.number), values], [])
    return ast.BoolOp(ast.Or(), [record, ast.Constant(True)])


def _unwrap_recorded_callee(recorded: ast.expr, original: ast.expr) -> ast.expr:
    """Return what is called as it is, not recorded, except the object of a method."""
    if (
        isinstance(recorded, ast.Call)
        and isinstance(recorded.func, ast.Name)
        and recorded.func.id == _SEEN
    ):
        return recorded.args[1]
    return original


def _default_places(arguments: ast.arguments) -> list[tuple[ast.AST, ast.AST, str, int | None]]:
    return [
        (node, arguments, name, k)
        for name in ("defaults", "kw_defaults")
        for k, node in enumerate(getattr(arguments, name))
        if node is not None  # of a keyword without a default
    ]


def places_of(tree: ast.FunctionDef) -> Iterator[tuple[ast.AST, ast.AST, str, int | None]]:
    """Yield the nodes of default values and of a body in order: node, parent, field and index there."""
    stack: list[tuple[ast.AST, ast.AST, str, int | None]]
    # In reverse on a stack, so that nodes come in the order of the text.
    stack = [(s, tree, "body", k) for k, s in reversed(list(enumerate(tree.body)))]
    stack += reversed(_default_places(tree.args))
    while stack:
        node, parent, name, index = stack.pop()
        yield node, parent, name, index
        below: list[tuple[ast.AST, ast.AST, str, int | None]] = []
        for field_name, value in ast.iter_fields(node):
            if field_name in ("annotation", "returns", "decorator_list") or isinstance(
                node, ast.JoinedStr
            ):
                continue
            # Of parameters only the default values are edited; arguments of a call are.
            if isinstance(value, ast.arguments):
                below += _default_places(value)
                continue
            if isinstance(value, list):
                below += [
                    (x, node, field_name, k) for k, x in enumerate(value) if isinstance(x, ast.AST)
                ]
            elif isinstance(value, ast.AST):
                below.append((value, node, field_name, None))
        stack.extend(reversed(below))

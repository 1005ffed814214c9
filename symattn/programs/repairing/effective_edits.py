"""The values that edits give: which of them change what a call computes, and which change it alike.

A call of an interpreted kernel takes some hundredths of a second, and one kernel has thousands of edits, many of which
exchange strides or masks that are equal. So one recorded call evaluates each edited expression where it stands. An
edit whose values are those of the code as it is in a whole wrong call leaves the call wrong: it is dropped, as is one
that raises. Where the code itself raises, its edits stay unjudged. Of edits that change an expression alike one is
tried before the others.
"""

from __future__ import annotations

import ast
import builtins
import math
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from symattn.programs.names import Function
from symattn.programs.repairing.edited_kernels import LANGUAGE
from symattn.programs.repairing.edits import Edit
from symattn.programs.repairing.source import SourceFunction, Sources

#: The names in rebuilt code of the recording function, and of the one that is called before the expression is.
_WATCH, _BEGIN = "__symattn_watch__", "__symattn_begin__"
_TELLING = 3  # passes in which the values of an edit are compared with those of other edits
# evaluations of edited expressions in one call; what is left over stays unjudged
MAX_EVALUATIONS = 60_000
#: Modules whose functions change nothing that they are given, and their functions that do.
_PURE_MODULES = ("math", "triton")
_IMPURE_WORDS = ("store", "atomic", "print", "assert", "barrier", "assume", "inline_asm")
_PURE_BUILTINS = (abs, bool, float, int, len, max, min, range, round)
#: Methods of blocks and of tensors that change nothing.
_PURE_METHODS = (
    "to",
    "load",
    "trans",
    "reshape",
    "stride",
    "size",
    "dim",
    "numel",
    "data_ptr",
    "element_size",
)
#: Expressions with names of their own, which the scope of their statement does not hold.
_OWN_SCOPES = (
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.NamedExpr,
    ast.JoinedStr,
    ast.Await,
    ast.Yield,
    ast.YieldFrom,
    ast.Starred,
)


#: Calls a rebuilt function on one sample.
Run = Callable[[Function], object]


def effective_edits(sources: Sources, edits: Sequence[Edit], wrong: Sequence[Run]) -> list[Edit]:
    """Return the edits that may change each of the ``wrong`` calls, with their ``group`` and ``alike``."""
    left = _evaluable(sources, edits)
    keys: dict[int, list[object]] = {id(e): [] for _, e in left if e is not None}
    for run in wrong:
        called = _ValuesInCall(sources, [e for _, e in left if e is not None])
        run(called.rebuild())
        left = [(edit, e) for edit, e in left if e is None or called.values_of(e).is_changed]
        for _, e in left:
            if e is not None:
                keys[id(e)].append(called.values_of(e).key)
    return _grouped([(edit, tuple(keys[id(e)]) if e is not None else ()) for edit, e in left])


def _grouped(left: Sequence[tuple[Edit, tuple[object, ...]]]) -> list[Edit]:
    """Return edits with the groups of those that change an expression alike in all calls; 0 for an edit by itself."""
    groups: dict[tuple[object, ...], int] = {}
    counts: dict[int, int] = {}
    result = []
    for edit, key in left:
        if key and None not in key:
            group = groups.setdefault(key, len(groups) + 1)
            edit = replace(edit, group=group, alike=counts.get(group, 0))
            counts[group] = edit.alike + 1
        result.append(edit)
    return result


@dataclass(frozen=True, eq=False)
class _Evaluable:
    """The outermost expression around an edit, by its number, and the code of that expression with the edit."""

    place: int
    code: types.CodeType


def _evaluable(sources: Sources, edits: Sequence[Edit]) -> list[tuple[Edit, _Evaluable | None]]:
    """Return each edit with what is evaluated; None for edits that no expression shows."""
    around: dict[int, ast.expr] = {}
    for key in sources.editable:
        around |= outermost_pure(sources.functions[key])
    return [(edit, _evaluable_edit(edit, around.get(edit.node))) for edit in edits]


def _evaluable_edit(edit: Edit, around: ast.expr | None) -> _Evaluable | None:
    if around is None:
        return None
    try:
        new = ast.parse(edit.expression, mode="eval").body
        tree = ast.Expression(_exchanged(around, edit.node, new))
        code = compile(tree, "<edit>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError, TypeError):
        return None
    return _Evaluable(around.number, code)  # type: ignore[attr-defined]


@dataclass
class _Values:
    """What one edit gives in one call: ``passes`` before its first other value, then the values of a few passes."""

    of: _Evaluable
    passes: int = 0
    seen: list[object] = field(default_factory=list)
    raised: bool = False
    unjudged: bool = False

    @property
    def is_changed(self) -> bool:
        """Return whether the edit may change the call without raising."""
        return not self.raised and (bool(self.seen) or self.unjudged)

    @property
    def key(self) -> object:
        """What edits that change an expression alike have in common; None without a change."""
        return (self.of.place, self.passes, *self.seen) if self.seen else None

    def take(self, own: object, new: object) -> bool:
        """Record the value of one pass beside the code's own one; return whether to go on."""
        if self.seen or new != own:
            self.seen.append(new)
        else:
            self.passes += 1
        return len(self.seen) < _TELLING


class _ValuesInCall:
    """The values of edits in one call."""

    def __init__(self, sources: Sources, edits: Sequence[_Evaluable]) -> None:
        self._sources, self._left = sources, MAX_EVALUATIONS
        self._values = {id(e): _Values(e) for e in edits}
        # Passes in which an expression raised, by its number: it is begun and gives no value.
        self._unfinished: Counter[int] = Counter()
        # The edits that are still judged, by the number of the expression.
        self._pending: dict[int, list[_Values]] = {}
        for values in self._values.values():
            self._pending.setdefault(values.of.place, []).append(values)

    def values_of(self, edit: _Evaluable) -> _Values:
        """Return the values of an edit; it stays unjudged where the code itself raised, which the edit may mend."""
        values = self._values[id(edit)]
        values.unjudged |= self._unfinished[edit.place] > 0
        return values

    def rebuild(self) -> Function:
        """Return the function with code that evaluates the edits."""
        codes = {}
        for key in self._sources.editable:
            source = self._sources.functions[key]
            tree = _Watched(self._pending.keys()).visit(deepcopy(source.tree))
            codes[key] = source.compile_tree(ast.fix_missing_locations(tree))
        return self._sources.rebuild(codes, {_WATCH: self._watch, _BEGIN: self._begin})

    def _begin(self, number: int) -> int:
        """Note that an expression is to be evaluated, and return its number."""
        self._unfinished[number] += 1
        return number

    def _watch(self, number: int, value: object) -> object:
        """Evaluate the edits of an expression in its scope, and return its own value."""
        self._unfinished[number] -= 1
        if self._pending[number]:
            frame = sys._getframe(1)
            space, names, own = frame.f_globals, frame.f_locals, _identified(value)
            pending = self._pending[number]
            self._pending[number] = [v for v in pending if self._goes_on(v, own, space, names)]
        return value

    def _goes_on(
        self, values: _Values, own: object, space: dict[str, Any], names: Mapping[str, Any]
    ) -> bool:
        """Evaluate an edit once; return whether later passes are to be compared."""
        if self._left <= 0:
            values.unjudged = True
            return False
        self._left -= 1
        try:
            return values.take(own, _identified(eval(values.of.code, space, names)))
        # An edit may raise anything, and would raise here.
        except Exception:
            values.raised = not values.seen
            return False


def _exchanged(node: Any, number: int, new: ast.expr) -> Any:
    """Return a tree with another expression in place of the node of one number, or the same tree without it."""
    if getattr(node, "number", -1) == number:
        return new
    for name, part in ast.iter_fields(node):
        if isinstance(part, list):
            parts: Any = [_exchanged(x, number, new) if isinstance(x, ast.AST) else x for x in part]
            is_changed = any(x is not y for x, y in zip(parts, part, strict=True))
        elif isinstance(part, ast.AST):
            parts = _exchanged(part, number, new)
            is_changed = parts is not part
        else:
            continue
        if is_changed:
            # A copy of the nodes above alone: a whole one takes longer than the evaluation.
            result = copy(node)
            setattr(result, name, parts)
            return result
    return node


class _Watched(ast.NodeTransformer):
    """Put each expression of these numbers into a call that records it."""

    def __init__(self, numbers: Any) -> None:
        self._numbers = numbers

    def visit(self, node: Any) -> Any:
        """Return the recorded expression, or the node with what is recorded within it."""
        number = getattr(node, "number", -1)
        if number not in self._numbers:
            return self.generic_visit(node)
        begun = ast.Call(ast.Name(_BEGIN, ast.Load()), [ast.Constant(number)], [])
        call = ast.Call(ast.Name(_WATCH, ast.Load()), [begun, node], [])
        return ast.copy_location(call, node)


# -- expressions that can be evaluated apart ---------------------------------------------------------------------------
def outermost_pure(source: SourceFunction) -> dict[int, ast.expr]:
    """Return for each node in an expression without effects the outermost such expression around it."""
    result: dict[int, ast.expr] = {}
    space = source.function.__globals__
    stack: list[ast.AST] = list(source.tree.body)
    while stack:
        node = stack.pop()
        # What a handler catches is not known to fail.
        if isinstance(node, (*_OWN_SCOPES, ast.Try, ast.FunctionDef, ast.ClassDef)):
            continue
        if _is_value(node) and all(_is_pure(x, space) for x in ast.walk(node)):
            result |= {x.number: node for x in ast.walk(node) if hasattr(x, "number")}
        else:
            stack += _within(node)
    return result


def _is_value(node: ast.AST) -> bool:
    """Return whether a node is an expression that a call could take."""
    if not isinstance(node, ast.expr) or isinstance(node, ast.Slice | ast.Starred):
        return False
    is_index = isinstance(node, ast.Tuple) and any(isinstance(x, ast.Slice) for x in node.elts)
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and not is_index


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node, of a called function only what it is called on."""
    for name, part in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        if isinstance(node, ast.Call) and name == "func":
            # Of ``kernel[grid]`` the grid.
            part = part.slice if isinstance(part, ast.Subscript) else getattr(part, "value", None)
            if isinstance(part, ast.Name) and isinstance(node.func, ast.Attribute):
                continue
        yield from (
            x for x in (part if isinstance(part, list) else [part]) if isinstance(x, ast.AST)
        )


def _is_pure(node: ast.AST, space: dict[str, Any]) -> bool:
    """Return whether a node by itself changes nothing, and has no names of its own."""
    if not isinstance(node, ast.Call):
        return not isinstance(node, _OWN_SCOPES)
    function = node.func
    word = str(getattr(function, "attr", getattr(function, "id", "")))
    if any(impure in word for impure in _IMPURE_WORDS):
        return False
    if isinstance(function, ast.Name):
        value = space.get(word, getattr(builtins, word, None))
        is_builtin = any(value is x for x in _PURE_BUILTINS)
        return is_builtin or _is_pure_module(_module_of(value))
    while isinstance(function, ast.Attribute):
        function = function.value
    root = space.get(function.id) if isinstance(function, ast.Name) else None
    if isinstance(root, types.ModuleType):
        return _is_pure_module(root.__name__)
    return word in _PURE_METHODS


def _module_of(value: object) -> str:
    """Return the module of a function; "" of any other object, such as a kernel."""
    is_function = isinstance(value, types.FunctionType | types.BuiltinFunctionType)
    return str(getattr(value, "__module__", "")) if is_function else ""


def _is_pure_module(name: str) -> bool:
    return name.split(".")[0] in _PURE_MODULES


# -- what tells values apart -------------------------------------------------------------------------------------------
def _identified(x: Any) -> object:
    """Return what is equal for equal values; of an unknown object something that equals nothing else."""
    if x is None or isinstance(x, bool | int | str):
        return type(x).__name__, x
    if isinstance(x, float):
        return ("float", "nan") if math.isnan(x) else ("float", x, math.copysign(1, x))
    if isinstance(x, tuple | list):
        return type(x).__name__, *map(_identified, x)
    if isinstance(x, range):
        return "range", x.start, x.stop, x.step
    if isinstance(x, np.ndarray | np.generic):
        return str(x.dtype), x.shape, np.asarray(x).tobytes()
    if type(x).__module__.startswith(LANGUAGE):
        return _identified_in_kernel(x)
    # Two tensors of torch with the same numbers may lie in one memory or in two.
    if hasattr(x, "untyped_storage"):
        return "tensor", x.data_ptr(), tuple(x.shape), tuple(x.stride()), str(x.dtype)
    if isinstance(x, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
        return "object", id(x)
    return object()


def _identified_in_kernel(x: Any) -> object:
    word = type(x).__name__
    if word == "constexpr":
        return word, _identified(x.value)
    if word == "tensor":
        numbers = getattr(x.handle, "data", None)
        # Pointers to blocks hold no numbers.
        if numbers is None:
            return object()
        return str(x.dtype), str(x.type), _identified(np.asarray(numbers))
    if word == "range":
        return word, *(_identified(getattr(x, name, None)) for name in ("start", "end", "step"))
    if word == "tuple":
        return word, *map(_identified, x)
    return (word, str(x)) if word == "dtype" else object()

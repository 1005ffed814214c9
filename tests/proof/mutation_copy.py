"""Definitions and theorems imported a second time under another name, each function known with its source.

A mutant is then a matter of giving a function other code for a while, and nothing of symattn's is touched.
"""

from __future__ import annotations

import ast
import copy
import importlib
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import symattn
from symattn.proof.inequality import Certificate
from symattn.proof.theorem import Method, Theorem
from symattn.proof.together import Together
from symattn.theorems.as_printed import Following
from tests.proof.mutation_operators import Function

COPY = "mutated"
# What is printed, and what input is refused, are no mathematics.
CHECKS = (
    *("letters_of_attention", "document", "inputs", "sizes", "choices", "fields", "spec_fields"),
    "positions.checks",
)
WORDED = ("_formula", "_reason", "_reasons", "_entries")  # what a stage says of its step
PRINTED = (*(f"attention.{file}." for file in CHECKS), "attention.spec.__post_init__", "attention.spec.<lambda>")
# Of these, theorems are about the slopes of the usual branch; tests hold every branch against the derivative of the
# definition: tests/attention/test_gradients_*.py, and test_weights.py.
SLOPES = (
    "attention.gradients.scores.",
    "attention.gradients.backward",
    "attention.gradients.attention.softcap_gradient",
    *("attention.softmax.relu_weights", "attention.softmax.sigmoid_weights"),
    *(f"attention.layers.steps.{name}" for name in ("relu", "sigmoid", "silu", "tanh", "identity", "gelu", "erf")),
)
ROOMS = ("attention", "theorems", "proof.relations")
STATED = "test_gradients_for_all_sizes"  # in tests/attention
# What reads or checks statements, and is none.
UNMARKED = ("theorems.reading", "theorems.as_printed", "theorems.texts", "proof", "test_")
UNMEANT = ("false", "chosen")  # what is given under these names is no part of a statement


@dataclass(eq=False)
class Unit:
    """A function of the copy: where it is from, its source as a tree, and the function itself."""

    module: str
    name: str
    tree: Function
    function: FunctionType | None = None
    parts: list[Part] = field(default_factory=list)
    theorems: dict[str, Theorem] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """attention.softmax.row_max, or theorems.scores.<lambda>:76."""
        return f"{self.module}.{self.name}"

    @property
    def definition(self) -> bool:
        """Whether it defines a step of attention, and not a statement."""
        return self.module.startswith("attention.")


@dataclass(eq=False)
class Part:
    """A theorem, or one of those that it is put together of, with its grade and the time that it takes."""

    theorem: Theorem
    method: Method
    grade: str = ""
    seconds: float = 0.0


# -- the copy ----------------------------------------------------------------------------------------------------------
class _Finder(MetaPathFinder, Loader):
    """Imports symattn's definitions and theorems under another name, each function marked with its number."""

    def __init__(self) -> None:
        self.units: dict[int, Unit] = {}
        self.ran: set[int] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in (COPY, f"{COPY}.proof") and not name.startswith(tuple(f"{COPY}.{room}" for room in ROOMS)):
            return None
        spec = ModuleSpec(name, self, is_package=name == COPY or _source(name).name == "__init__.py")
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations = [str(_source(name).parent)]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == COPY:
            return
        tree = _Renamed().visit(ast.parse(_source(module.__name__).read_text(encoding="utf-8")))
        name = module.__name__.removeprefix(f"{COPY}.")
        if not name.startswith(UNMARKED):
            _Marked(self.units, name).visit(tree)
        vars(module).update(__unit__=self._noted, __ran__=self.ran.add)
        exec(compile(ast.fix_missing_locations(tree), f"<{module.__name__}>", "exec"), vars(module))

    def _noted(self, number: int, function: FunctionType) -> FunctionType:
        self.units[number].function = function
        return function


def _source(name: str) -> Path:
    if name.endswith(STATED):
        return Path(__file__).parents[1] / "attention" / f"{STATED}.py"
    path = Path(symattn.__file__).parent.joinpath(*name.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


class _Renamed(ast.NodeTransformer):
    """Imports from the rooms that are copied come from the copy."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        node.module = self._there(node.module or "")
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.copy_location(ast.Constant(self._there(node.value)), node) if isinstance(node.value, str) else node

    def _there(self, name: str) -> str:
        copied = name.startswith(tuple(f"symattn.{room}" for room in ROOMS))
        return name.replace("symattn", COPY, 1) if copied else name


class _Marked(ast.NodeTransformer):
    """Every outermost function is handed to ``__unit__`` when it is made."""

    def __init__(self, units: dict[int, Unit], module: str) -> None:
        self.units, self.module = units, module

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        return node if node.arg in UNMEANT else self.generic_visit(node)  # type: ignore[return-value]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        number = self._number(node, node.name)
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        given = ast.arguments([], [ast.arg("f")], None, [], [], None, [])
        node.decorator_list.append(ast.Lambda(given, _called("__unit__", number, ast.Name("f", ast.Load()))))
        node.body.insert(0, ast.Expr(_called("__ran__", number)))
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        number = self._number(node, f"<lambda>:{node.lineno}:{node.col_offset}")
        both = ast.Tuple([_called("__ran__", number), node.body], ast.Load())
        noted = ast.Lambda(node.args, ast.Subscript(both, ast.Constant(1), ast.Load()))
        return ast.copy_location(_called("__unit__", number, noted), node)

    def _number(self, tree: Function, name: str) -> int:
        self.units[len(self.units)] = Unit(self.module, name, copy.deepcopy(tree))
        return len(self.units) - 1


def _called(name: str, number: int, *more: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), *more], [])


_FINDER = _Finder()


def campaign(topics: Iterable[str], definitions: bool = False) -> list[Unit]:
    """The functions of the copy; for each, the theorems of ``topics`` that run it, and of tests if ``definitions``."""
    sys.meta_path.insert(0, _FINDER)
    try:
        copied = importlib.import_module(f"{COPY}.theorems")
        theorems = {t.name: t for topic in topics for t in copied.of_topic(topic)}
        _import_definitions()
        if definitions:
            theorems |= {t.name: t for t in _stated()}
        specified = importlib.import_module(f"{COPY}.attention.spec")
        # The steps that one mutant made are not the next one's.
        specified.Attention.pipeline = lambda spec, given: specified.pipeline(spec, frozenset(given))
    finally:
        sys.meta_path.remove(_FINDER)
    units = [u for u in _FINDER.units.values() if u.function]
    for unit in units:
        unit.parts, unit.theorems = [], {}
    for theorem in theorems.values():
        _note(theorem)
    for unit in units:
        unit.parts.sort(key=lambda p: p.seconds)
    meant = [u for u in units if u.theorems and not u.path.startswith((*PRINTED, *SLOPES))]
    return [u for u in meant if not (u.definition and u.name.endswith(WORDED))]


def _stated() -> Iterator[Theorem]:
    """The statements of a test module, of the copy's definitions."""
    module = module_from_spec(ModuleSpec(f"{COPY}.{STATED}", _FINDER))
    _FINDER.exec_module(module)
    for key, method in module.STATEMENTS.items():
        yield Theorem(f"{STATED}.{key}", "", (key,), method, "", ())


def definition(path: str) -> Unit:
    """A function of the copy by its path, after ``campaign``."""
    return next(unit for unit in _FINDER.units.values() if unit.path == path)


def _note(theorem: Theorem) -> None:
    """Notes the theorem with all functions that it runs, but for those of statements in its false variant alone."""
    for method in _flat(theorem.method):
        part = Part(theorem, method)
        for unit in _reached(part):
            unit.parts.append(part)
            unit.theorems[theorem.name] = theorem
    with _running() as found:
        fresh(theorem.method).refute()
        fresh(theorem.method).witness()
    for unit in found:
        if unit.definition:
            unit.theorems[theorem.name] = theorem


def _import_definitions() -> None:
    for path in sorted(_source(f"{COPY}.attention.x").parent.glob("*.py")):
        importlib.import_module(f"{COPY}.attention.{path.stem}")


def _flat(method: Any) -> Iterator[Method]:
    if isinstance(method, Following):
        yield from _flat(method.steps)
    elif isinstance(method, Together):
        for part in method.parts:
            yield from _flat(part)
    elif getattr(method, "_plain", ()):  # of a print
        yield method.identity  # the equations that it is compiled to
        if method._read:  # other claims, which are read one by one
            yield method
    else:
        yield method


def fresh(method: Any) -> Any:
    """The method without what it keeps of a run, in which its functions may have been others."""
    if isinstance(method, Following):
        return replace(method, printed=fresh(method.printed), steps=fresh(method.steps))
    return replace(method, **({"parts": (*map(fresh, method.parts),)} if isinstance(method, Together) else {}))


def _reached(part: Part) -> set[Unit]:
    """The functions that the part runs. Sets its grade and the time that it takes.

    Of statements, what only chooses numbers to try, and what is in the false variant alone, is left out.
    """
    start = time.process_time()
    with _running() as found:
        part.grade = fresh(part.method).decide().evidence.grade.value
    part.seconds = time.process_time() - start
    if not isinstance(part.method, Certificate) or not part.method.chosen:
        return found
    with _running() as stated:
        replace(part.method, chosen={}).decide()
    return stated | {unit for unit in found if unit.definition}


@contextmanager
def _running() -> Iterator[set[Unit]]:
    """The functions that are run meanwhile."""
    found: set[Unit] = set()
    _FINDER.ran.clear()
    yield found
    found |= {_FINDER.units[number] for number in _FINDER.ran}

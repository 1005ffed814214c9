"""Mistakes drawn by rule on the syntax trees of plain programs: are they found, what is said, and is it mended?

    python -m tests.verification.drawn_programs --out drawn.jsonl [--count 101] [--seed 7] [--shard 0/2] [NAME …]

The rules know Python and NumPy alone: neither the edits nor the mistakes of ``symattn`` decide what is tried. A mistake
depends on the seed and its number: a program in turn, a rule, and a place that the rule changes. One that raises, gives
other shapes, changes no output in float64, or was drawn before is drawn anew. Each line of the file has the program,
the change, how much it changes outputs in float64, what ``verify`` answers with ``repair``, as on the command line, and
seconds of processor time.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import importlib.util
import inspect
import json
import resource
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symattn import SymattnError, verify
from tests.verification.plain_definitions import PROGRAMS, PlainProgram

Array = Any
#: Relative to the largest entry of an output: less is rounding of float64 in another order.
_EQUAL = 1e-9
_TRIES = 400  # changes that are drawn for one mistake
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Gt: (ast.GtE, ast.Lt),
}
_FUNCTIONS = (
    ("max", "min"), ("maximum", "minimum"), ("sum", "mean"), ("exp", "exp2"), ("exp", "expm1"), ("cos", "sin"),
    ("log", "log2"), ("log", "log1p"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("tanh", "sin"),
    ("repeat", "tile"), ("sqrt", "cbrt"),
)  # fmt: skip
_OTHER = {one: [b if one == a else a for a, b in _FUNCTIONS if one in (a, b)] for pair in _FUNCTIONS for one in pair}
Nodes = Iterator[ast.AST | None]


# -- rules: each yields what may stand in place of a node; None leaves a statement out ---------------------------------
def _other_operator(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        changed = copy.deepcopy(node)
        changed.op = _OPERATORS[type(node.op)]()
        yield changed


def _exchanged_operands(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div | ast.MatMult):
        yield ast.BinOp(left=node.right, op=node.op, right=node.left)


def _operand_left_out(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.BinOp):
        yield node.left
        yield node.right


def _other_comparison(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.Compare):
        for other in _COMPARISONS.get(type(node.ops[0]), ()):
            yield ast.Compare(left=node.left, ops=[other()], comparators=node.comparators)


def _other_number(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        for number in (node.value + 1, node.value - 1, 2 * node.value):
            yield ast.Constant(number)


def _other_name(node: ast.AST, names: list[str]) -> Nodes:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
        for name in names:
            if name != node.id:
                yield ast.Name(id=name, ctx=ast.Load())


def _call_left_out(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.Call):
        is_method = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") != "np"
        if is_method:
            yield node.func.value
        yield from node.args


def _other_function(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.Attribute):
        for name in _OTHER.get(node.attr, ()):
            yield ast.Attribute(value=node.value, attr=name, ctx=node.ctx)


def _negated(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand
    elif isinstance(node, ast.BinOp):
        yield ast.UnaryOp(op=ast.USub(), operand=node)


def _statement_left_out(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr):
        yield None


def _arguments_exchanged(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        for first in range(len(node.args) - 1):
            changed = copy.deepcopy(node)
            arguments = changed.args
            arguments[first], arguments[first + 1] = arguments[first + 1], arguments[first]
            yield changed


def _assigned_not_added(node: ast.AST, _names: list[str]) -> Nodes:
    if isinstance(node, ast.AugAssign):
        yield ast.Assign(targets=[node.target], value=node.value)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        # A part of an array: that of the row before, or that after.
        index = node.slice
        if isinstance(index, ast.Name | ast.BinOp):
            for op in (ast.Add(), ast.Sub()):
                moved = ast.BinOp(left=index, op=op, right=ast.Constant(1))
                yield ast.Subscript(value=node.value, slice=moved, ctx=node.ctx)


RULES: dict[str, Callable[[ast.AST, list[str]], Nodes]] = {
    "other operator": _other_operator,
    "operands exchanged": _exchanged_operands,
    "operand left out": _operand_left_out,
    "other comparison": _other_comparison,
    "other number": _other_number,
    "other name": _other_name,
    "call left out": _call_left_out,
    "other function": _other_function,
    "negated": _negated,
    "statement left out": _statement_left_out,
    "arguments exchanged": _arguments_exchanged,
    "assigned or moved": _assigned_not_added,
}


# -- the draw ----------------------------------------------------------------------------------------------------------
class _Changed(ast.NodeTransformer):
    """Put a node in place of the one with this number, in the order of a walk."""

    def __init__(self, at: ast.AST, other: ast.AST | None) -> None:
        self.at, self.other = at, other

    def visit(self, node: ast.AST) -> Any:
        return self.other if node is self.at else self.generic_visit(node)


@dataclass(frozen=True)
class DrawnProgram:
    """A program with one drawn change: its rule, the text before and after, and how much outputs change."""

    program: PlainProgram
    rule: str
    text: str
    distance: float

    @property
    def diff(self) -> str:
        """The changed lines."""
        before = text_of(self.program).splitlines()
        lines = difflib.unified_diff(before, self.text.splitlines(), lineterm="", n=0)
        return " | ".join(line.strip() for line in lines if line[:2] not in ("--", "++", "@@"))


def _tree_of(program: PlainProgram) -> ast.Module:
    source = textwrap.dedent(inspect.getsource(program.function))
    return ast.parse(source)


def _text_of(tree: ast.Module) -> str:
    """Return the text of a module of one function, without hints of types, which name nothing here."""
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    function.returns = None
    for argument in function.args.args:
        argument.annotation = None
    return "import numpy as np\n\n\n" + ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def text_of(program: PlainProgram) -> str:
    """Return the text of a module with this program alone."""
    return _text_of(_tree_of(program))


def load_function(text: str, name: str, folder: Path) -> Callable[..., Any]:
    """Return the function of a module with this text, which is written to a file as a user's is."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def every_change(program: PlainProgram) -> dict[str, list[Callable[[], str]]]:
    """Return for each rule the texts of all changes that it makes, each computed when it is asked."""
    tree = _tree_of(program)
    names = sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - {"np", "Array", "Any"} - _builtins())
    names += sorted({a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)} - set(names))
    found: dict[str, list[Callable[[], str]]] = {rule: [] for rule in RULES}
    for place, node in enumerate(ast.walk(tree)):
        for rule, change in RULES.items():
            count = sum(1 for _ in change(node, names))
            found[rule] += [_text_with(program, place, rule, names, index) for index in range(count)]
    return {rule: texts for rule, texts in found.items() if texts}


def _builtins() -> set[str]:
    return {"range", "min", "max", "int", "reversed", "len"}


def _text_with(program: PlainProgram, place: int, rule: str, names: list[str], index: int) -> Callable[[], str]:
    def text() -> str:
        tree = _tree_of(program)
        node = list(ast.walk(tree))[place]
        other = list(RULES[rule](node, names))[index]
        return _text_of(_Changed(node, other).visit(tree))

    return text


def draw_mistakes(program: PlainProgram, rng: np.random.Generator, folder: Path) -> Iterator[DrawnProgram]:
    """Yield programs with one change each that gives other outputs in float64."""
    by_rule = every_change(program)
    rules = sorted(by_rule)
    calls = program.calls()
    right = [_outputs_of(program.function, call) for call in calls]
    for _ in range(_TRIES):
        rule = rules[int(rng.integers(len(rules)))]
        texts = by_rule[rule]
        text = texts[int(rng.integers(len(texts)))]()
        distance = _distance_of(text, program.name, calls, right, folder)
        if distance is not None and distance > _EQUAL:
            yield DrawnProgram(program, rule, text, distance)


def draw_in_turn(programs: Sequence[PlainProgram], count: int, seed: int, folder: Path) -> Iterator[DrawnProgram]:
    """Yield ``count`` mistakes of these programs in turn, none twice."""
    draws = [
        draw_mistakes(program, np.random.default_rng([seed, PROGRAMS.index(program)]), folder) for program in programs
    ]
    known: set[str] = set()
    for number in range(count):
        drawn = next(d for d in draws[number % len(draws)] if d.text not in known)
        known.add(drawn.text)
        yield drawn


def _distance_of(text: str, name: str, calls: list[Any], right: list[list[Array]], folder: Path) -> float | None:
    """Return the largest change of an output beside its size; None if the program raises or gives other shapes.

    Infinite for outputs that are not finite where the right ones are, unless none is finite in any call.
    """
    furthest, is_ever_finite = 0.0, False
    try:
        function = load_function(text, name, folder)
        for call, expected in zip(calls, right, strict=True):
            outputs = _outputs_of(function, call)
            if [y.shape for y in outputs] != [x.shape for x in expected]:
                return None
            for y, x in zip(outputs, expected, strict=True):
                fits = np.isfinite(x)
                is_finite = bool(np.isfinite(y[fits]).all())
                is_ever_finite |= is_finite and bool(fits.any())
                size = 1e-6 + np.abs(x[fits]).max(initial=0)
                change = float((np.abs(y - x)[fits] / size).max(initial=0)) if is_finite else float("inf")
                furthest = max(furthest, change)
    except Exception:
        return None
    return furthest if is_ever_finite else None


def _outputs_of(function: Callable[..., Any], call: tuple[Any, ...]) -> list[Array]:
    copied = [np.array(a, copy=True) if isinstance(a, np.ndarray) else a for a in call]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = function(*copied)
    return [np.asarray(y, dtype=np.float64) for y in (result if isinstance(result, tuple) else (result,))]


def seconds_used() -> float:
    """Return the seconds of processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)


def answer_of(function: Callable[..., Any], spec: Any) -> dict[str, Any]:
    """Return verdict, step, cause, message, edits and seconds of a verification with the options of users."""
    began = seconds_used()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            report = verify(function, spec, repair=True)
    except SymattnError as error:
        message = f"{type(error).__name__}: {error}"
        return {"verdict": "refused", "message": message, "seconds": round(seconds_used() - began, 1)}
    return {
        "verdict": report.verdict.value,
        "step": [fault.step for fault in report.faults],
        "cause": [fault.cause for fault in report.faults],
        "message": [fault.message for fault in report.faults],
        "edits": [str(repair) for repair in report.repairs or ()],
        "seconds": round(seconds_used() - began, 1),
    }


# -- the command -------------------------------------------------------------------------------------------------------
def main() -> None:
    """Draw mistakes of the programs in turn, and write what is said of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs; all without any")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=101, help="mistakes of all programs")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--shard", default="0/1", help="which part of the mistakes, of how many")
    options = parser.parse_args()
    programs = [p for p in PROGRAMS if not options.names or p.name in options.names]
    part, parts = map(int, options.shard.split("/"))
    with tempfile.TemporaryDirectory() as name:
        every = draw_in_turn(programs, options.count, options.seed, Path(name))
        for number, drawn in list(enumerate(every))[part::parts]:
            program = drawn.program
            folder = Path(name) / str(number)
            folder.mkdir()
            function = load_function(drawn.text, program.name, folder)
            words = {"number": number, "family": program.family, "program": program.name, "rule": drawn.rule}
            words |= {"diff": drawn.diff, "distance": float(f"{drawn.distance:.3g}")}
            record = words | answer_of(function, program.spec)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
            print(json.dumps(record, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()

"""Edits: what one local change of a function is, the table of rules that make them, and their enumeration.

A rule knows Python and names of array functions, and nothing of attention or of any mistake. Rules have tiers: first
one token or operand, then one insertion, then small expressions of the scope; pairs of edits come last
(``choosing``). ``EditRule.added`` tells rules that were written before any wrong program was looked at from later ones.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from types import ModuleType
from typing import Any, Literal

from symattn.programs.repairing.observing import (
    COMPREHENSIONS,
    NUMBERS,
    UNSEEN,
    Kind,
    Observed,
    places_of,
)
from symattn.programs.repairing.running_sums import axes_of_running_sums
from symattn.programs.repairing.source import SourceFunction, Sources
from symattn.programs.repairing.strides import (
    Strides,
    are_exchangeable,
    likely_strides,
    strides_of_functions,
)
from symattn.verification.repair import Replacement, replaced

#: Tiers of edits, in the order in which they are tried.
TIERS = (1, 2, 3)
#: The functions in which a rule makes edits: those on arrays, kernels of Triton, or both.
Where = Literal["arrays", "kernels", "everywhere"]
_SHOWN = 48  # characters up to which a change is shown whole
_AROUND = 3  # tokens that are shown around a change
_LONGEST_GRAFT = 40  # characters of an expression that may stand in place of another one
MOST_NAMES_IN_KERNEL = 6  # names that are tried in place of one
#: Calls whose arguments bound something, such as a loop or an index.
_BOUNDING = ("range", "static_range", "minimum", "maximum", "min", "max", "cdiv")
_LONGEST = 120  # characters of a text that is shown


@dataclass(frozen=True)
class Edit:
    """One local change: parts of the text of one function replaced, and the old and new text for a reader.

    ``place`` is the number of the function among those that the sources reach, the same in every process. ``node`` is
    the number of the expression that changes, -1 for any other change, and ``expression`` what stands in its place.
    An edit without ``old`` text inserts a line. A change of the same text at several places is made so many ``times``.
    Edits of one ``group`` gave the same values where they were evaluated, ``alike`` counts those before; 0 for none.
    One that ``reads_idle_name`` uses a value that the code computes or takes, and reads nowhere; one that
    ``repeats_call`` makes a call that stands elsewhere in the function.
    """

    rule: str
    tier: int
    place: int
    replacements: tuple[Replacement, ...]
    old: str
    new: str
    likely: bool = False
    node: int = field(default=-1, compare=False)
    expression: str = field(default="", compare=False)
    group: int = field(default=0, compare=False)
    alike: int = field(default=0, compare=False)
    times: int = 1
    reads_idle_name: bool = field(default=False, compare=False)
    repeats_call: bool = field(default=False, compare=False)

    @property
    def line(self) -> int:
        """The first line that is changed."""
        return min(r.line for r in self.replacements)


@dataclass(frozen=True)
class EditRule:
    """A rule: its name, tier, the kinds of node that it changes, and what it puts in their place.

    ``likely`` rules come first among edits of the same size. ``added`` is the reason for a rule that was added after
    wrong programs had been looked at; empty for the first ones.
    """

    name: str
    tier: int
    nodes: type[ast.AST] | tuple[type[ast.AST], ...]
    change: Callable[[Place], Iterator[str | ast.expr]]
    likely: bool = False
    added: str = ""
    where: Where = "everywhere"


@dataclass(frozen=True)
class BlockRule:
    """A rule that changes a statement, or its place; ``change`` yields replacements, and the old and new text.

    A rule that comes ``last`` adds the edits that no other rule makes.
    """

    name: str
    tier: int
    change: Callable[[BlockStatement], Iterator[tuple[Sequence[Replacement], str, str]]]
    likely: bool = False
    added: str = ""
    where: Where = "everywhere"
    last: bool = False


@dataclass
class FunctionPlaces:
    """A function to edit: its definition, what was observed, and what all its places share."""

    place: int
    source: SourceFunction
    observed: Observed
    numbers: tuple[float, ...] = ()  # of the specification
    strides: Strides = field(default_factory=dict)  # the names that are strides, with their tensor
    # the numbers of the module that nothing reads, by name
    idle_numbers: dict[str, Kind] = field(default_factory=dict)
    # items of all subscripts, by their text
    subscripts: dict[str, ast.expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node, *_ in places_of(self.source.tree):
            if isinstance(node, ast.Subscript):
                items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                self.subscripts |= {ast.unparse(item): item for item in items}
        function = self.source.function
        names = function.__globals__
        self.library = "triton" if self.source.is_kernel else self.observed.library
        self.xp = _name_of_library(self.source, self.library)
        self.free_names = {
            # Names of the closure, and those of the module that the code uses.
            *function.__code__.co_freevars,
            *(n for n in function.__code__.co_names if n in names),
        }
        self.free_names |= vars(builtins).keys()
        self.expressions = self._short_expressions()
        self.bounds = self._names_that_bound()
        self.lengths = self._names_of_lengths()
        self.unread = self._names_assigned_and_never_read()
        self.unread |= self.idle_numbers.keys()
        self.idle = self._values_never_read() | self.idle_numbers.keys()
        self.rescalers = self._names_subtracted_in_calls()
        self.counters = self._names_of_loops()
        self.carried = self._names_carried_through_loops()
        self.factors_of_sums = self._factors_of_carried_sums()
        self.likely_strides = likely_strides(self.source.tree, self.strides)
        self.running_sums = axes_of_running_sums(self.source.tree)
        # what stands beside each name, by the number of its node, and the names beside it anywhere
        self.beside: dict[int, tuple[str, bool, str]] = {}
        self.names_beside: dict[tuple[str, bool, str], set[str]] = {}
        # the arrays of which single numbers are operands, by the numbers of their nodes
        self.array_around: dict[int, Kind] = {}
        self._collect_arrays_around_numbers()
        self._collect_operands()

    @cached_property
    def composed_operands(self) -> list[tuple[ast.operator, ast.expr, str, set[str]]]:
        """The operands that are no names and no constants: each with its operator, its text and its names."""
        operations = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.BinOp)]
        return [
            (one.op, operand, ast.unparse(operand), _names_read_in(operand))
            for one in operations
            for operand in (one.left, one.right)
            if not isinstance(operand, ast.Name | ast.Constant)
        ]

    def _collect_arrays_around_numbers(self) -> None:
        """Collect for each single number the array that it is added to or multiplied with, also through a function.

        In ``total + np.exp(sink)`` an array may be subtracted from ``sink`` without another shape of the sum.
        """
        for node in ast.walk(self.source.tree):
            operands: list[ast.expr] = []
            if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
                operands = [node.left, node.right]
            elif isinstance(node, ast.UnaryOp):
                operands = [node.operand]
            elif isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
                # An array that a function makes of a number, such as a range, has no number within.
                operands = [] if self.kind(node).is_array else node.args
            # Parents come before their operands, so that an array passes on to all numbers within.
            own = self.kind(node)
            around = own if own.is_array else self.array_around.get(getattr(node, "number", -1))
            for operand in operands:
                if around is not None and not self.kind(operand).is_array:
                    self.array_around[getattr(operand, "number", -1)] = around

    def _collect_operands(self) -> None:
        """Collect the other operands of names: as texts, or of strides as their axis, which several tensors share.

        In ``page * stride_k0 + j`` and ``page * stride_v0 + j`` both strides tell that a page is meant.
        """
        for node in ast.walk(self.source.tree):
            if not isinstance(node, ast.BinOp):
                continue
            for own, other in ((node.left, node.right), (node.right, node.left)):
                # ``m[:, None]`` is ``m`` as a column.
                name = own.value if isinstance(own, ast.Subscript) else own
                if isinstance(name, ast.Name) and not isinstance(other, ast.Constant):
                    stride = self.strides.get(getattr(other, "id", ""))
                    text = stride.axis if stride and stride.axis else ast.unparse(other)
                    role = type(node.op).__name__, stride is not None, text
                    self.beside[getattr(name, "number", -1)] = role
                    self.names_beside.setdefault(role, set()).add(name.id)

    def _names_of_loops(self) -> set[str]:
        """Return the names that loops assign: the numbers of items, blocks and their first places."""
        loops = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.For)]
        targets = [n for loop in loops for n in ast.walk(loop.target)]
        return {n.id for n in targets if isinstance(n, ast.Name)}

    def _names_carried_through_loops(self) -> dict[str, int]:
        """Return the names that a loop changes from what they were before it, each with the last line of the loop."""
        result: dict[str, int] = {}
        arguments = self.source.tree.args
        parameters = {a.arg for a in (*arguments.posonlyargs, *arguments.args)}
        loops = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.For | ast.While)]
        stores = [
            n
            for n in ast.walk(self.source.tree)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        ]
        for loop in loops:
            before = parameters | {n.id for n in stores if n.lineno < loop.lineno}
            within = {n.id for n in stores if loop.lineno < n.lineno <= (loop.end_lineno or 0)}
            result |= {name: loop.end_lineno or 0 for name in before & within}
        return result

    def _factors_of_carried_sums(self) -> dict[str, set[str]]:
        """Return the names by which a loop rescales what it carries, each with the carried names that it multiplies.

        These are ``a`` in ``total * a``, and names of functions of a carried name less another one, such as
        ``a = exp(m - new)``, which may multiply nothing.
        """
        result: dict[str, set[str]] = {}
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Mult):
                ends = node.target if isinstance(node, ast.AugAssign) else node.left
                others = node.value if isinstance(node, ast.AugAssign) else node.right
                for one, other in ((ends, others), (others, ends)):
                    name, factor = _name_behind(one), _name_behind(other)
                    if name in self.carried and factor and node.lineno <= self.carried[name]:
                        result.setdefault(factor, set()).add(name)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                argument = next(iter(node.value.args), None)
                is_difference = isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Sub)
                if is_difference and _name_behind(argument.left) in self.carried:  # type: ignore[union-attr]
                    names = [t.id for t in node.targets if isinstance(t, ast.Name)]
                    result |= {name: result.get(name, set()) for name in names}
        return result

    def _names_that_bound(self) -> set[str]:
        """Return the names in comparisons, ranges, minima and maxima."""
        result: set[str] = set()
        for node in ast.walk(self.source.tree):
            word = getattr(node, "func", None)
            called = str(getattr(word, "attr", getattr(word, "id", "")))
            if isinstance(node, ast.Compare) or called in _BOUNDING:
                result |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return result

    def _names_of_lengths(self) -> set[str]:
        """Return the names that are assigned lengths of arrays as they are: ``n, d = q.shape``, ``n = len(q)``."""
        result: set[str] = set()
        assignments = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.Assign)]
        for node in assignments:
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple):
                    values = getattr(node.value, "elts", [node.value] * len(target.elts))
                    pairs = [*zip(target.elts, values, strict=False)]
                result |= {t.id for t, x in pairs if isinstance(t, ast.Name) and _is_length(x)}
        return result

    def _names_assigned_and_never_read(self) -> set[str]:
        """Return the names that a statement or a loop assigns and nothing reads, but for ``_``.

        The code computes them for nothing: a mistake may have taken the place where one was read.
        """
        names = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.Name)]
        read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        written = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        return {name for name in written - read if not name.startswith("_")}

    def _values_never_read(self) -> set[str]:
        """Return the parameters, and the names of statements of their own, that nothing reads.

        Of the lengths in ``n, d = q.shape`` and the counter of a loop some are often of no use.
        """
        tree = self.source.tree
        alone: set[str] = set()
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            alone |= {target.id for target in targets if isinstance(target, ast.Name)}
        arguments = (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)
        alone |= {argument.arg for argument in arguments}
        # A sum that is only added to is of no use either: ``x += 1`` and ``x = x + 1`` read it for themselves.
        by_itself = {id(n) for statement in ast.walk(tree) for n in _reads_by_itself(statement)}
        names = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
        read = {n.id for n in names if isinstance(n.ctx, ast.Load) and id(n) not in by_itself}
        return {name for name in alone - read if not name.startswith("_")}

    def _names_subtracted_in_calls(self) -> dict[str, set[str]]:
        """Return the names that calls of one argument subtract, by the function: ``exp`` of ``x - m``."""
        result: dict[str, set[str]] = {}
        for node in ast.walk(self.source.tree):
            is_call = isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords
            argument = node.args[0] if is_call else None  # type: ignore[attr-defined]
            if not isinstance(argument, ast.BinOp) or not isinstance(argument.op, ast.Sub):
                continue
            # ``m[:, None]`` is ``m`` as a column.
            subtracted = argument.right
            if isinstance(subtracted, ast.Subscript):
                subtracted = subtracted.value
            if isinstance(subtracted, ast.Name):
                function = ast.unparse(node.func)  # type: ignore[attr-defined]
                result.setdefault(function, set()).add(subtracted.id)
        return result

    def _short_expressions(self) -> dict[str, tuple[Kind, set[str]]]:
        """Return the short expressions that hold numbers, each with its kind and the names in it."""
        result: dict[str, tuple[Kind, set[str]]] = {}
        for node, parent, *_ in places_of(self.source.tree):
            if not _is_read(node, parent) or isinstance(node, ast.Name | ast.Constant):
                # Names and constants have rules of their own.
                continue
            kind, text = self.kind(node), ast.unparse(node)
            # Longer expressions are unlikely to be meant elsewhere.
            if kind.name in NUMBERS and len(text) <= _LONGEST_GRAFT:
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                result.setdefault(text, (kind, names))
        return result

    def kind(self, node: ast.AST) -> Kind:
        """Return the observed kind of an expression; of constants the kind of their value."""
        if isinstance(node, ast.Constant):
            name = type(node.value).__name__
            return Kind(name if name in ("bool", "int", "float") else "other")  # type: ignore[arg-type]
        return self.observed.kinds.get(getattr(node, "number", -1), UNSEEN)


@dataclass(frozen=True)
class Place:
    """An expression in its place: the node, its parent, the field there, its kind, and the names in scope."""

    node: Any
    parent: ast.AST
    field: str
    kind: Kind
    scope: dict[str, Kind]
    function: FunctionPlaces

    @cached_property
    def plain_text(self) -> str:
        """The expression as text."""
        return ast.unparse(self.node)

    @property
    def text(self) -> str:
        """The expression as text, in brackets."""
        return f"({self.plain_text})"

    @property
    def kind_to_fit(self) -> Kind:
        """The kind that a factor or a term must broadcast to: of a single number that of the array around it."""
        return self.function.array_around.get(getattr(self.node, "number", -1), self.kind)

    @property
    def xp(self) -> str | None:
        """The name of the array library in the function's module."""
        return self.function.xp

    @property
    def is_torch(self) -> bool:
        """Return whether the function computes with tensors of torch."""
        return self.function.library == "torch"

    @property
    def is_kernel(self) -> bool:
        """Return whether the function is a kernel of Triton."""
        return self.function.source.is_kernel

    @property
    def infinity(self) -> str:
        """The text of infinity."""
        return "float('inf')" if self.is_kernel else f"{self.xp}.inf"

    @property
    def is_default(self) -> bool:
        """Return whether it is the default value of a parameter."""
        return isinstance(self.parent, ast.arguments)

    @property
    def in_product(self) -> bool:
        """Return whether it is an operand of a product or a quotient."""
        return isinstance(self.parent, ast.BinOp) and isinstance(self.parent.op, ast.Mult | ast.Div)

    @property
    def is_called(self) -> bool:
        """Return whether it is the function of a call."""
        return isinstance(self.parent, ast.Call) and self.field == "func"

    @property
    def whole_names(self) -> list[str]:
        """The names of whole numbers that a term or a bound may be made of.

        An array of no axes, such as a length that is a tensor, is one. A kernel has dozens of strides; there only
        numbers that bound something elsewhere are taken, and those that are assigned and never read.
        """
        names = [name for name, kind in self.names("int", "ints").items() if not kind.shape]
        known = self.function.bounds | self.function.unread
        return [n for n in names if n in known] if self.is_kernel else names

    def most_similar(self, names: Iterable[str]) -> list[str]:
        """Return the names that look most like this one; all of them where there is no kernel.

        Names that are assigned and never read come before all others.
        """
        if not self.is_kernel:
            return list(names)

        def order(name: str) -> tuple[bool, float]:
            likeness = difflib.SequenceMatcher(None, self.node.id, name).ratio()
            # False sorts first: a name that nobody reads was meant somewhere.
            return name not in self.function.unread, -likeness

        return sorted(names, key=order)[:MOST_NAMES_IN_KERNEL]

    @property
    def names_of_same_role(self) -> set[str]:
        """The names that have the same other operand elsewhere, such as a stride of the same axis."""
        role = self.function.beside.get(getattr(self.node, "number", -1))
        return self.function.names_beside.get(role, set()) if role is not None else set()

    def kind_of(self, node: ast.AST) -> Kind:
        """Return the kind of another expression of the function."""
        return self.function.kind(node)

    def names(self, *kinds: str) -> dict[str, Kind]:
        """Return the names in scope whose values are of these kinds, except the expression itself.

        In place of a kernel's stride they are strides of its tensor or of its axis, and elsewhere there none is one.
        """
        own = self.node.id if isinstance(self.node, ast.Name) else ""
        strides = self.function.strides if self.is_kernel else {}
        return {
            name: kind
            for name, kind in self.scope.items()
            if kind.name in kinds
            and name != own
            and are_exchangeable(strides.get(name), strides.get(own))
        }


@dataclass(frozen=True)
class BlockStatement:
    """A statement in its block: the list that holds it, its index there, and the statement that holds the block."""

    node: Any
    body: list[ast.stmt]
    index: int
    owner: ast.AST
    scope: dict[str, Kind]
    function: FunctionPlaces

    @property
    def next(self) -> ast.stmt | None:
        """The next statement of the block."""
        return self.body[self.index + 1] if self.index + 1 < len(self.body) else None

    def text(self, node: ast.AST) -> str:
        """Return the text of a statement or an expression."""
        return self.function.source.text(node)

    def put(self, node: ast.AST, new: str) -> Replacement:
        """Return the replacement of a node by a text."""
        return self.function.source.span(node, new)

    def indent(self, node: ast.stmt) -> str:
        """Return the white space before a statement; raises ``ValueError`` if it does not begin its line."""
        source = self.function.source
        before = source.lines[node.lineno - source.first][
            : source.position(node.lineno, node.col_offset)
        ]
        if before.strip():
            raise ValueError("the statement does not begin its line")
        return before

    def whole_lines(self, node: ast.stmt) -> tuple[list[str], Replacement]:
        """Return the lines of a statement and their removal; raises ``ValueError`` if others share them."""
        lines, end = self.own_lines(node), node.end_lineno or node.lineno
        # The removal ends where the next line begins, so that there has to be one.
        if self._has_line_after(node):
            return lines, Replacement(node.lineno, 0, end + 1, 0, "")
        raise ValueError("it is the last statement of the file's block")

    def rewritten_lines(self, node: ast.stmt, new: Sequence[str]) -> Replacement:
        """Return the replacement of the lines of a statement; raises ``ValueError`` if others share them."""
        lines, end = self.own_lines(node), node.end_lineno or node.lineno
        if self._has_line_after(node):
            return Replacement(node.lineno, 0, end + 1, 0, "".join(f"{line}\n" for line in new))
        return Replacement(node.lineno, 0, end, len(lines[-1]), "\n".join(new))

    def own_lines(self, node: ast.stmt) -> list[str]:
        """Return the lines of a statement; raises ``ValueError`` if others share them."""
        self.indent(node)
        source, end = self.function.source, node.end_lineno or node.lineno
        last = source.lines[end - source.first]
        after = last[source.position(end, node.end_col_offset or 0) :].strip()
        # A removal would take the other statement along.
        if after and not after.startswith("#"):
            raise ValueError("another statement shares the line")
        return source.lines[node.lineno - source.first : end - source.first + 1]

    def _has_line_after(self, node: ast.stmt) -> bool:
        source, end = self.function.source, node.end_lineno or node.lineno
        return end - source.first + 1 < len(source.lines)

    def inserted_before(self, node: ast.stmt, lines: Sequence[str]) -> Replacement:
        """Return the insertion of whole lines before a statement."""
        self.indent(node)
        return Replacement(node.lineno, 0, node.lineno, 0, "".join(f"{line}\n" for line in lines))

    def inserted_after(self, node: ast.stmt, lines: Sequence[str]) -> Replacement:
        """Return the insertion of whole lines after a statement."""
        source, end = self.function.source, node.end_lineno or node.lineno
        last = source.lines[end - source.first]
        return Replacement(end, len(last), end, len(last), "".join(f"\n{line}" for line in lines))


#: The reason that is recorded for rules which wrong programs suggested.
LOOKED_AT = "added after wrong programs had been looked at"
#: The rule that changes a default value which turns a branch on or off.
SWITCH = "switch"
#: The rules that put an argument in place of a call with other arguments, and a name of another shape for one.
UNWRAPPED_FROM_OTHERS, NAME_OF_OTHER_SHAPE = "unwrapped from others", "variable of another shape"
PARALLEL = "in parallel"  # the rule that makes one change of parallel statements, such as of keys and values
PARALLEL_TIER = 3
_MOST_PARALLEL = 400  # such edits of one function
NAME = "variable"  # the rule that puts a name in place of another one
EVERYWHERE = "everywhere"  # the rule that makes one change of tier 1 wherever the same text stands
EVERYWHERE_TIER = 2


def expression_rules() -> tuple[EditRule, ...]:
    """Return the rules that change an expression."""
    # Imported late, since the rules need this module.
    from symattn.programs.repairing import (
        argument_rules,
        expressions,
        grafts,
        index_rules,
        kernel_rules,
        lengths,
        orders,
    )

    modules = (expressions, orders, lengths, argument_rules, index_rules, grafts)
    of_arrays = [rule for module in modules for rule in module.RULES]
    # The first of several rules that make an edit counts.
    likely = (*kernel_rules.LIKELY_RULES, *grafts.LIKELY_RULES)
    return (*likely, *of_arrays, *kernel_rules.RULES)


def block_rules() -> tuple[BlockRule, ...]:
    """Return the rules that change a statement, or its place."""
    # Imported late, since the rules need this module.
    from symattn.programs.repairing import (
        block_rules,
        bracket_rules,
        exchanges,
        index_rules,
        kernel_rules,
        statement_moves,
        twins,
    )

    modules = (
        block_rules,
        bracket_rules,
        index_rules,
        exchanges,
        statement_moves,
        twins,
        kernel_rules,
    )
    return tuple(rule for module in modules for rule in module.BLOCK_RULES)


def enumerate_edits(
    sources: Sources,
    observed: Observed,
    numbers: tuple[float, ...] = (),
    tiers: Sequence[int] = TIERS,
) -> list[Edit]:
    """Return all edits of the functions, in the order of their text, each text once."""
    result: list[Edit] = []
    everywhere = EVERYWHERE_TIER in tiers  # it is made of the edits of tier 1
    parallel = PARALLEL_TIER in tiers  # of those of likely rules
    rules = [
        r
        for r in expression_rules()
        if r.tier in tiers or (everywhere and r.tier == 1) or (parallel and r.likely)
    ]
    of_statements = [r for r in block_rules() if r.tier in tiers]
    known_numbers: set[str] = set()  # of the module, which several functions may read
    strides = strides_of_functions(sources) if sources.has_kernels else {}
    for key in sources.editable:
        source = sources.functions[key]
        names = strides.get(key, {})
        idle = {
            name: Kind(type(node.value).__name__)  # type: ignore[arg-type]
            for name, node in sources.idle_numbers_of(key).items()
        }
        function = FunctionPlaces(sources.place(key), source, observed, numbers, names, idle)
        where = ("everywhere", "kernels" if source.is_kernel else "arrays")
        result += _EditsOfFunction(function).enumerate(
            [r for r in rules if r.where in where],
            [r for r in of_statements if r.where in where],
            tiers,
        )
        if not source.is_kernel:
            result += _edit_module_numbers(sources, function, rules, known_numbers)
    return [e for e in result if e.tier in tiers]


def _edit_module_numbers(
    sources: Sources, function: FunctionPlaces, rules: Sequence[EditRule], known: set[str]
) -> list[Edit]:
    """Return edits of the numbers that a function reads from its module, where they are written; each number once."""
    source = function.source
    numbers = {
        name: node
        for name, node in sources.numbers_of(id(source.function)).items()
        if name not in known
    }
    known.update(numbers)
    lines = [line.rstrip("\n") for line in sources.text.lines]
    module = replace(function, source=replace(source, lines=lines, first=1))
    edits = _EditsOfFunction(module)
    for node in numbers.values():
        kind = module.kind(node)
        # The number stands alone there, as the value of an assignment.
        edits.add_at(Place(node, ast.Assign([], node), "value", kind, {}, module), rules)
    return edits.result


class _EditsOfFunction:
    """The enumeration of the edits of one function."""

    def __init__(self, function: FunctionPlaces) -> None:
        self._function = function
        self._known: set[tuple[Any, ...]] = set()
        self._result: list[Edit] = []
        self._places: list[Place] = []  # of expressions, in the order of their text
        # of tier 1: rule, old and new text; the replacements, each with the new text as its place needs it
        self._same: dict[tuple[str, str, str], list[tuple[Replacement, str]]] = {}
        # of likely rules: rule, old and new text without names; for each old text the same of its first place
        self._alike: dict[tuple[str, str, str], dict[str, tuple[Replacement, str]]] = {}

    def enumerate(
        self, rules: Sequence[EditRule], block_rules: Sequence[BlockRule], tiers: Sequence[int]
    ) -> list[Edit]:
        scope: dict[str, Kind] = {}
        runs = True
        last_rules = [rule for rule in block_rules if rule.last]
        block_rules = [rule for rule in block_rules if not rule.last]
        statements: list[tuple[ast.stmt, ast.AST, str, int | None, dict[str, Kind]]] = []
        items: dict[
            int, dict[str, Kind]
        ] = {}  # the names of items, by the id of a node within a comprehension
        for node, parent, name, index in places_of(self._function.source.tree):
            if isinstance(node, ast.stmt):
                # A statement that did not run in a wrong call cannot have spoiled it.
                runs = not self._function.observed.of_wrong or self._has_run(node)
                scope = self._scope_at(node)
                if runs:
                    self._edit_statement(node, parent, name, index, scope, block_rules)
                    statements.append((node, parent, name, index, scope))
            elif runs and _is_read(node, parent):
                items |= self._names_of_items(node, items.get(id(node), {}))
                known = scope | items.get(id(node), {})
                place = Place(node, parent, name, self._function.kind(node), known, self._function)
                self._places.append(place)
                self.add_at(place, rules)
        for statement in statements:
            self._edit_statement(*statement, last_rules)
        if EVERYWHERE_TIER in tiers:
            self._change_everywhere()
        if PARALLEL_TIER in tiers:
            self._change_in_parallel()
        self._change_slices_in_parallel(tiers)
        self._move_operations(tiers)
        return self._result

    @property
    def result(self) -> list[Edit]:
        """The edits so far."""
        return self._result

    def _names_of_items(self, node: ast.AST, known: dict[str, Kind]) -> dict[int, dict[str, Kind]]:
        """Return the names that are in scope within a comprehension, by the id of each node there; {} for others."""
        if not isinstance(node, COMPREHENSIONS):
            return {}
        names = known | self._function.observed.scopes.get(getattr(node, "number", -1), {})
        first = {id(n) for n in ast.walk(node.generators[0].iter)}
        # What is iterated over first has no name of an item yet.
        return {id(n): names for n in ast.walk(node) if n is not node and id(n) not in first}

    def add_at(self, place: Place, rules: Sequence[EditRule]) -> None:
        """Add the edits that rules make at one place."""
        for rule in rules:
            if isinstance(place.node, rule.nodes):
                for new in rule.change(place):
                    self._add_edit_of_expression(rule, place, new)

    def _move_operations(self, tiers: Sequence[int]) -> None:
        from symattn.programs.repairing import moves

        if moves.TIER not in tiers:
            return
        for (taken, left), (site, put) in moves.moves(self._places):
            changes = [
                self._make_expression_replacement(p, x) for p, x in ((taken, left), (site, put))
            ]
            replacements = tuple(replacement for replacement, *_ in changes)
            # Edits that overlap cannot both be made.
            if not overlapping(replacements):
                old = "; ".join(shorten(text) for _, text, _ in changes)
                new = "; ".join(shorten(text) for *_, text in changes)
                self._result.append(
                    Edit(moves.NAME, moves.TIER, self._function.place, replacements, old, new)
                )

    def _change_slices_in_parallel(self, tiers: Sequence[int]) -> None:
        """Add each change of one slice, or one index, of several arrays at once."""
        from symattn.programs.repairing import parallel_slices

        if parallel_slices.TIER not in tiers:
            return
        source = self._function.source
        for group in parallel_slices.slices_in_parallel(source.tree, self._places):
            replacements = []
            # Of one array at several places the text is shown once.
            olds: dict[str, str] = {}
            for place, around, text in group:
                old = source.text(place.node)
                replacements.append(narrowed(source.span(place.node, text), old))
                before = source.text(around)
                olds[before] = before.replace(old, text)
            change = parallel_slices.NAME, parallel_slices.TIER, self._function.place
            texts = shorten("; ".join(olds)), shorten("; ".join(olds.values()))
            words = set(re.findall(r"[A-Za-z_]\w*", group[0][-1]))
            edit = Edit(*change, tuple(replacements), *texts)
            self._result.append(replace(edit, reads_idle_name=bool(words & self._function.idle)))

    def _make_expression_replacement(
        self, place: Place, new: str | ast.expr
    ) -> tuple[Replacement, str, str]:
        """Return the replacement of an expression, with the old and new text for a reader."""
        tree = ast.parse(new, mode="eval").body if isinstance(new, str) else new
        source = self._function.source
        old = source.text(place.node)
        text = _bracket_if_needed(tree, _text_at_place(tree, place), place.node, place)
        replacement = narrowed(source.span(place.node, text), old)
        return replacement, *shown_change(old, text)

    def _change_everywhere(self) -> None:
        """Add each change of tier 1 at all places where the same text stands, if there are several."""
        for (_, old, _), places in self._same.items():
            replacements = [replacement for replacement, _ in places]
            if len(replacements) > 1 and not overlapping(replacements):
                change = EVERYWHERE, EVERYWHERE_TIER, self._function.place, tuple(replacements)
                times = len(replacements)
                # Brackets that one of the places needs are right at all of them.
                new = max((text for _, text in places), key=len)
                self._result.append(Edit(*change, shorten(old), shorten(new), times=times))
        self._change_names_in_lines()

    def _change_names_in_lines(self) -> None:
        """Add each name in place of another one that a line reads several times, such as a square, and others too."""
        for (rule, old, new), places in self._same.items():
            of_line: dict[int, list[Replacement]] = {}
            for replacement, _ in places if rule == NAME else ():
                of_line.setdefault(replacement.line, []).append(replacement)
            for replacements in of_line.values():
                # All places of the function are an edit of their own.
                if 1 < len(replacements) < len(places):
                    change = EVERYWHERE, EVERYWHERE_TIER, self._function.place, tuple(replacements)
                    self._result.append(Edit(*change, old, new, times=len(replacements)))

    def _change_in_parallel(self) -> None:
        """Add each change of a likely rule at all places where the code is the same but for its names."""
        for (rule, *_), places in list(self._alike.items())[:_MOST_PARALLEL]:
            replacements = [replacement for replacement, _ in places.values()]
            # One place alone is the plain change.
            if len(replacements) < 2 or overlapping(replacements):
                continue
            old = "; ".join(places)
            new = "; ".join(text for _, text in places.values())
            words = f"{PARALLEL}: {rule}"
            change = words, PARALLEL_TIER, self._function.place
            self._result.append(Edit(*change, tuple(replacements), shorten(old), shorten(new)))

    def _has_run(self, node: ast.stmt) -> bool:
        return getattr(node, "number", -1) in self._function.observed.scopes

    def _scope_at(self, node: ast.stmt) -> dict[str, Kind]:
        observed = self._function.observed.scopes.get(getattr(node, "number", -1), {})
        used = self._function.source.function
        # Global numbers are in scope too, unless a local name hides them.
        names = {n: used.__globals__[n] for n in used.__code__.co_names if n in used.__globals__}
        plain = {n: Kind(type(x).__name__) for n, x in names.items() if type(x) in (int, float)}  # type: ignore[arg-type]
        return self._function.idle_numbers | plain | observed

    def _add_edit_of_expression(self, rule: EditRule, place: Place, new: str | ast.expr) -> None:
        try:
            tree = ast.parse(new, mode="eval").body if isinstance(new, str) else new
            text = _text_at_place(tree, place)
        except (SyntaxError, ValueError, AttributeError):
            # A rule may compose a text that is no expression.
            return
        node = place.node
        if text == _text_at_place(node, place):
            return
        old = self._function.source.text(node)
        new = _bracket_if_needed(tree, text, node, place)
        replacement = narrowed(self._function.source.span(node, new), old)
        if rule.tier == 1:
            self._same.setdefault((rule.name, old, text), []).append((replacement, new))
        # A bare name or constant is like every other one, so parallel places say nothing.
        if rule.likely and not isinstance(node, ast.Name | ast.Constant):
            key = (rule.name, *_without_names(old, text))
            self._alike.setdefault(key, {}).setdefault(old, (replacement, new))
        at = getattr(node, "number", -1)
        idle = self._function.idle
        reads = bool(idle) and any(isinstance(n, ast.Name) and n.id in idle for n in ast.walk(tree))
        # In brackets where its place needs them, so that the shown text may be put there as it is.
        shown = shown_change(old, new)
        repeats = isinstance(tree, ast.Call) and text in self._function.expressions
        self._record_new_edit(rule, (replacement,), *shown, at, text, reads, repeats)

    def _edit_statement(
        self,
        node: Any,
        owner: ast.AST,
        name: str,
        index: int | None,
        scope: dict[str, Kind],
        rules: Sequence[BlockRule],
    ) -> None:
        body = getattr(owner, name)
        # A docstring computes nothing, so that no edit of it repairs anything.
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if (
            not isinstance(body, list)
            or index is None
            or is_text
            or isinstance(node, ast.FunctionDef)
        ):
            return
        statement = BlockStatement(node, body, index, owner, scope, self._function)
        for rule in rules:
            try:
                for replacements, old, new in rule.change(statement):
                    self._record_new_edit(rule, tuple(replacements), old, new)
            except ValueError:  # its lines hold more than the statement
                continue

    def _record_new_edit(
        self,
        rule: EditRule | BlockRule,
        replacements: tuple[Replacement, ...],
        old: str,
        new: str,
        node: int = -1,
        expression: str = "",
        reads_idle_name: bool = False,
        repeats_call: bool = False,
    ) -> None:
        # Two rules may yield the same edit; the first one counts.
        if replacements not in self._known:
            self._known.add(replacements)
            likely = rule.likely
            old, new = shorten(old), shorten(new)
            change = rule.name, rule.tier, self._function.place, replacements, old, new, likely
            edit = Edit(*change, node, expression)
            if reads_idle_name or repeats_call:
                edit = replace(edit, reads_idle_name=reads_idle_name, repeats_call=repeats_call)
            self._result.append(edit)


#: A block of one axis as a column and as a row of two axes.
_NEW_AXES = ("[:, None]", "[None, :]")


def forms_of(text: str, kind: Kind, of: Kind) -> Iterator[str]:
    """Yield the ways in which an array of one axis, or a number, meets an array of two axes."""
    if len(kind.shape) == 1 and len(of.shape) == 2:
        for axis, words in enumerate(_NEW_AXES):
            if kind.shape[0] in (1, of.shape[axis]):
                yield text + words
    elif kind.broadcasts_to(of):
        yield text


def overlapping(replacements: Sequence[Replacement]) -> bool:
    """Return whether two of the replacements change the same part of the text."""
    spans = sorted(replacements)
    return any((a.end_line, a.end_column) > (b.line, b.column) for a, b in pairwise(spans))


def _name_behind(node: ast.expr) -> str:
    """Return the name of an array, also of one with a new axis; "" for other expressions."""
    array = node.value if isinstance(node, ast.Subscript) else node
    return array.id if isinstance(array, ast.Name) else ""


def _is_length(node: ast.expr) -> bool:
    """Return whether an expression is a length of an array, or all of them."""
    if isinstance(node, ast.Subscript):
        return _is_length(node.value)
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", getattr(node.func, "attr", "")) in ("len", "size")
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _names_read_in(node: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


#: A name by itself: no attribute, nothing with attributes, no function, no keyword.
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\s*[\w.(=])")


def _without_names(old: str, new: str) -> tuple[str, str]:
    """Return an old and a new text with their names numbered: equal for the same code of other names."""
    numbers: dict[str, str] = {}

    def numbered(name: re.Match[str]) -> str:
        return numbers.setdefault(name[0], f"@{len(numbers)}")

    return _NAME.sub(numbered, old), _NAME.sub(numbered, new)


#: A text in quotes, a word, or a sign: operators of two or three characters are one, since a space may follow them.
_TOKEN = re.compile(
    r"""'[^'\n]*'|"[^"\n]*"|\w+|(?:\*\*|//|<<|>>|[-+*/%@&|^<>=!:])=|\*\*|//|<<|>>|\S"""
)


def _ends_in_common(old: list[re.Match[str]], new: list[re.Match[str]]) -> tuple[int, int]:
    """Return how many tokens are the same at the start, and at the end."""
    shortest, start, end = min(len(old), len(new)), 0, 0
    while start < shortest and old[start][0] == new[start][0]:
        start += 1
    while end < shortest - start and old[-1 - end][0] == new[-1 - end][0]:
        end += 1
    return start, end


def narrowed(span: Replacement, old: str) -> Replacement:
    """Return a replacement of the tokens that change alone, so that the user's spacing and comments stay."""
    olds = list(_TOKEN.finditer(old))
    news = list(_TOKEN.finditer(span.new))
    start, end = _ends_in_common(olds, news)
    if "\n" in old or start + end in (0, len(olds), len(news)):
        return span  # tokens that are only inserted or removed keep their neighbours, for their spacing
    left = olds[start].start()
    right = olds[-1 - end].end()
    new = span.new[news[start].start() : news[-1 - end].end()]
    return Replacement(span.line, span.column + left, span.line, span.column + right, new)


def shown_change(old: str, new: str) -> tuple[str, str]:
    """Return the old and new text for a reader: of long ones the tokens that change, with some around them."""
    if max(len(old), len(new)) <= _SHOWN:
        return old, new
    olds = list(_TOKEN.finditer(old))
    news = list(_TOKEN.finditer(new))
    start, end = (max(0, n - _AROUND) for n in _ends_in_common(olds, news))
    return _part_of(old, olds, start, end), _part_of(new, news, start, end)


def _part_of(text: str, tokens: list[re.Match[str]], start: int, end: int) -> str:
    part = text[tokens[start].start() : tokens[-1 - end].end()]
    return "…" * (start > 0) + part + "…" * (end > 0)


def shorten(text: str) -> str:
    """Return a text in one line, cut if it is long."""
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"


#: The module of array functions of each library.
_MODULES = {
    "torch": "torch", "jax": "jax.numpy", "numpy": "numpy", "triton": "triton.language",
}  # fmt: skip


def _name_of_library(source: SourceFunction, library: str) -> str | None:
    """Return the name by which a function reaches the module of its arrays: a global one, or of its own imports."""
    module = _MODULES.get(library, "numpy")
    space = source.function.__globals__
    # Names that the code uses come before other names of the same module.
    used_first = {**{n: space[n] for n in source.function.__code__.co_names if n in space}, **space}
    for name, value in used_first.items():
        if isinstance(value, ModuleType) and value.__name__ == module:
            return name
    for node in ast.walk(source.tree):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            if before + alias.name == module:
                return alias.asname or alias.name
    return None


def _reads_by_itself(statement: ast.AST) -> list[ast.Name]:
    """Return the places where the value of an assignment reads the name that is assigned."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    value = getattr(statement, "value", None)
    nodes = ast.walk(value) if names and value is not None else ()
    return [n for n in nodes if isinstance(n, ast.Name) and n.id in names]


def _is_read(node: ast.AST, parent: ast.AST) -> bool:
    """Return whether a node is an expression whose value is used."""
    if not isinstance(node, ast.expr) or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return False
    if isinstance(parent, ast.JoinedStr | ast.FormattedValue):
        return False
    return not (isinstance(parent, ast.Expr) and isinstance(node, ast.Constant))  # a docstring


#: How tightly expressions bind in Python's grammar, from 0 for the loosest.
_PRECEDENCE: tuple[tuple[type[ast.AST] | tuple[type[ast.AST], ...], int], ...] = (
    (ast.NamedExpr, 0),
    (ast.Lambda, 1),
    (ast.IfExp, 2),
    (ast.BoolOp, 3),
    (ast.Compare, 5),
    (ast.UnaryOp, 12),
    (ast.Await, 14),
    (ast.Tuple, 0),
    (ast.Starred, 0),
)
#: The same for binary operators; products and quotients, left out here, have 11.
_OF_OPERATORS: tuple[tuple[tuple[type[ast.operator], ...], int], ...] = (
    ((ast.BitOr,), 6),
    ((ast.BitXor,), 7),
    ((ast.BitAnd,), 8),
    ((ast.LShift, ast.RShift), 9),
    ((ast.Add, ast.Sub), 10),
    ((ast.Pow,), 13),
)


def precedence(node: ast.AST) -> int:
    """Return how tightly an expression binds: 20 for atoms."""
    if isinstance(node, ast.BinOp):
        return next((k for kinds, k in _OF_OPERATORS if isinstance(node.op, kinds)), 11)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return 4
    return next((k for kinds, k in _PRECEDENCE if isinstance(node, kinds)), 20)


def _text_at_place(tree: ast.expr, place: Place) -> str:
    """Return the text of an expression at a place: several indices of a subscript have no brackets.

    Python reads ``x[:, None]``, and refuses ``x[(:, None)]``.
    """
    if isinstance(tree, ast.Tuple) and place.field == "slice":
        return ast.unparse(ast.Subscript(ast.Name("x"), tree, ast.Load()))[2:-1]
    return ast.unparse(tree)


def _bracket_if_needed(tree: ast.expr, text: str, node: ast.expr, place: Place) -> str:
    """Return the new text, in brackets if the old one bound more tightly and its place needs that."""
    # Python refuses ``0.real``: the point would belong to the number.
    if _is_whole_number(tree) and isinstance(place.parent, ast.Attribute):
        return f"({text})"
    # As tight as the old expression, so the place needs no brackets.
    if isinstance(tree, ast.Tuple) or precedence(tree) >= precedence(node):
        return text
    parent, binds = place.parent, precedence(tree)
    free = (
        ast.Assign,
        ast.AugAssign,
        ast.Return,
        ast.keyword,
        ast.Slice,
        ast.AnnAssign,
        ast.Expr,
        ast.Tuple,
        ast.List,
    )
    if isinstance(parent, free) or (isinstance(parent, ast.Call) and not place.is_called):
        return text
    if isinstance(parent, ast.Subscript) and place.field == "slice":
        return text
    if isinstance(parent, ast.BinOp):
        # Operators group from the left, and powers from the right.
        on_left = place.field == "left" and not isinstance(parent.op, ast.Pow)
        loose = binds < precedence(parent) + (not on_left)
        return f"({text})" if loose else text
    if isinstance(parent, ast.UnaryOp | ast.BoolOp | ast.Compare) and binds > precedence(parent):
        return text
    return f"({text})"


def _is_whole_number(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and type(tree.value) is int


def origin_of_lines(edit: Edit, lines: Sequence[str], first: int) -> dict[int, int]:
    """Return for each untouched line of a function its number after the edit."""
    shift, result, at = 0, {}, first
    for r in sorted(edit.replacements):
        for line in range(at, r.line):
            result[line] = line + shift
        whole = r.column == 0 and r.end_column == 0  # lines removed or inserted before the last one
        grown = r.new.count("\n") - (r.end_line - r.line)
        at = r.end_line if whole else r.end_line + 1
        if not whole and r.line == r.end_line and "\n" not in r.new:
            result[r.line] = r.line + shift  # an expression: its line must run as often as before
        if not whole and r.new.startswith("\n"):
            result[r.line] = r.line + shift  # lines inserted after it
        shift += grown
    for line in range(at, first + len(lines)):
        result[line] = line + shift
    return result


def edited_lines(source: SourceFunction, edit: Edit) -> list[str]:
    """Return the lines of a definition after an edit."""
    return replaced(source.lines, source.within(edit.replacements), source.first)

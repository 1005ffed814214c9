"""Record the operations of a definition, and run them with another operation at one site.

The definition runs once on arrays that record how they are computed. Of that record, ``Replay`` computes only what
depends on the other operation; a ``Recording`` with a replacement runs the definition's own code, on any kind of array.
Formulas in words use the titles of arrays in documents.
"""

from __future__ import annotations

import operator
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Real
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays import base
from symattn.arrays.base import ArrayBase
from symattn.arrays.namespace import namespace_of
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.stated_flow import StatedFlow

Function = Callable[..., Any]
Outputs = list[np.ndarray]
#: Counts operations that were computed, and returns whether more may be.
CountOperations = Callable[[int], bool]
_LONGEST = 60  # characters of an operand that is written out


class Site(NamedTuple):
    """Where an operation is called: by all calls that lead to it, the same in all rounds of a loop; by its line."""

    calls: int
    line: int


class RecordedOperation(NamedTuple):
    """An operation as it was called, in a step of the definition."""

    name: str
    operands: Sequence[Any]
    options: Mapping[str, Any]
    step: str


class RecordedArray(ArrayBase):
    """An array of another kind, with the expression and the operation that give it."""

    name, holds = "recorded", "values with the operations that give them"

    def __init__(self, value: Any, words: str, named: bool = False) -> None:
        self.value, self.words, self.named = value, words, named
        self.shape, self.dtype = value.shape, value.dtype
        self.operation: RecordedOperation | None = None
        self.site, self.number, self.round = Site(0, 0), -1, 0

    def __getitem__(self, key: object) -> Any:
        return self.xp.getitem(self, key)

    def __and__(self, other: object) -> Any:
        return self.xp.logical_and(self, other)

    def __or__(self, other: object) -> Any:
        return self.xp.logical_or(self, other)

    def __invert__(self) -> Any:
        return self.xp.logical_not(self)

    def __bool__(self) -> bool:
        return bool(self.value)


class OperationCall(NamedTuple):
    """An operation in a run: the namespace, the values of recorded arrays, and what else was computed before it."""

    xp: Any
    value: Function
    operation: RecordedOperation
    latest: Callable[[Any], RecordedArray]  # by an input's name, or the calls of a site
    stale: Function  # the value of an operand one round earlier

    def result(
        self, operands: Sequence[Any] | None = None, of: RecordedOperation | None = None
    ) -> Any:
        """Return what an operation gives, by default this one, by default for its own operands."""
        name, own, options, _ = of or self.operation
        return _look_up_array_function(self.xp, name)(
            *map(self.value, own if operands is None else operands), **options
        )


class OtherOperation(NamedTuple):
    """Another operation at a site, in words; in one ``round`` of its calls, or wherever its ``line`` runs.

    ``alike`` are the calls of further sites at which it is made, too.
    """

    site: Site
    step: str
    run: Callable[[OperationCall], Any]
    words: Callable[[], str]
    round: int | None = None
    line: bool = False
    alike: frozenset[int] = frozenset()

    def hits(self, site: Site, count: int) -> bool:
        """Return whether it replaces an operation that was called ``count`` times before."""
        same = self.site.line == site.line if self.line else self.site.calls == site.calls
        return (same or site.calls in self.alike) and self.round in (None, count)


class Recording:
    """One run of a definition, as the namespace of its arrays: record each operation, or replace one of them."""

    def __init__(
        self, inputs: Mapping[str, Any], replacement: OtherOperation | None = None
    ) -> None:
        # Frames from this one up belong to the caller, not to the definition.
        self.replacement, self.top = replacement, sys._getframe(1)
        self.under = namespace_of(*inputs.values())
        self.kind: Any = type("Recorded", (RecordedArray,), {"xp": self})
        # Integers and booleans are labels, positions and masks, on which nothing is replaced.
        inexact = {n: a for n, a in inputs.items() if getattr(a.dtype, "kind", "f") not in "biu"}
        self.arrays: dict[Any, list[RecordedArray]] = {
            n: [self.kind(a, n, True)] for n, a in inexact.items()
        }
        self.inputs: dict[str, Any] = {**inputs, **{n: a for n, (a,) in self.arrays.items()}}
        self.nodes: list[RecordedArray] = []
        self.names: dict[str, object] = dict.fromkeys(inputs)
        # by id: names of other arrays, and the arrays
        self.plain: dict[int, tuple[str, object]] = {}

    def __getattr__(self, name: str) -> Any:
        function = _look_up_array_function(self.under, name)
        return (
            partial(self._record_or_replace_operation, name)
            if callable(function) and not isinstance(function, type)
            else function
        )

    def _record_or_replace_operation(self, name: str, *operands: Any, **options: Any) -> Any:
        frame, new = sys._getframe(1), self.replacement
        site, step = _locate_operation_site(name, operands, frame, self.top)
        operation = RecordedOperation(name, operands, options, step)
        if new is None:
            self._name_operands_by_variables(operands, frame)
        before = self.arrays.setdefault(site.calls, [])
        if new is not None and new.hits(site, len(before)):
            result = new.run(
                OperationCall(
                    self.under,
                    _unwrap_recorded_value,
                    operation,
                    lambda key: self.arrays[key][-1],
                    self._value_of_previous_round,
                )
            )
        else:
            result = _look_up_array_function(self.under, name)(
                *map(_unwrap_recorded_value, operands), **options
            )
        # Integers need no record, and neither do masks while an operation is replaced.
        if not hasattr(result, "shape") or getattr(result.dtype, "kind", "f") in (
            "iu" if new is None else "biu"
        ):
            return result
        recorded = self.kind(result, "" if new else self.write(name, operands, options))
        recorded.operation, recorded.site = operation, site
        recorded.number, recorded.round = len(self.nodes), len(before)
        before.append(recorded)
        self.nodes.append(recorded)
        return recorded

    def _value_of_previous_round(self, a: RecordedArray) -> Any:
        return self.arrays[a.site.calls][a.round - 1].value if a.round else 0 * a.value

    # -- words ---------------------------------------------------------------------------------------------------------
    def _name_operands_by_variables(self, operands: Iterable[Any], frame: FrameType | None) -> None:
        """Name operands after the variables that hold them, if documents have such arrays and no other is called so."""
        unnamed = [a for a in _yield_operand_arrays(operands) if not getattr(a, "named", False)]
        while unnamed and frame is not None and frame is not self.top:
            local, steps = frame.f_locals, frame.f_locals.get("values")
            named = (
                (step_title(n), x) for n, x in (steps.items() if isinstance(steps, dict) else ())
            )
            for title, x in (*named, *((_TITLES.get(n, ""), x) for n, x in local.items())):
                if title and any(x is a for a in unnamed):
                    key = x.site.calls if isinstance(x, RecordedArray) else id(x)
                    # One title must not stand for two arrays, apart from the state of a loop.
                    if title == "state" or self.names.setdefault(title, key) == key:
                        self._set_recorded_name(x, title)
            frame = frame.f_back

    def _set_recorded_name(self, x: Any, title: str) -> None:
        if isinstance(x, RecordedArray) and not x.named:
            x.words, x.named = title, True
        elif not isinstance(x, RecordedArray):
            self.plain[id(x)] = title, x

    def word(self, operand: Any, alone: bool = False) -> str:
        """Write an operand, in brackets if it is a formula and does not stand ``alone``."""
        if isinstance(operand, list | tuple):
            return ", ".join(self.word(x, True) for x in operand)
        if not isinstance(operand, RecordedArray):
            number = np.shape(operand) == () and isinstance(operand, Real | np.generic | np.ndarray)
            return (
                f"{float(operand):g}"
                if number
                else self.plain.get(id(operand), ("constants", operand))[0]
            )
        words = operand.words
        if operand.named:
            return words
        # A long formula would hide the operation that is replaced.
        if len(words) > _LONGEST and operand.operation is not None:
            return f"the {_CALLED.get(operand.operation.name, 'array')} before it"
        # A space or a slash outside brackets is an operator of lower precedence.
        return (
            words
            if alone or not re.search("[ /]", re.sub(r"\([^()]*\)", "", words))
            else f"({words})"
        )

    def write(self, name: str, operands: Sequence[Any], options: Mapping[str, Any]) -> str:
        """Write an operation as a formula."""
        arrays = [a for a in operands if isinstance(a, RecordedArray)]
        # Reshapes and sums of one number change no numbers, and are not written.
        if name in MOVING or (
            name == "sum" and options.get("axis") == -1 and tuple(operands[0].shape[-1:]) == (1,)
        ):
            return self.word(arrays[-1] if arrays else operands[0], True)
        # Multiplied by 1: written as the array alone.
        if name == "multiply" and any(type(a) is int and a == 1 for a in operands):
            return self.word(arrays[0])
        alone = [
            name == "add" or (name == "subtract" and (not i or _is_written_without_brackets(a)))
            for i, a in enumerate(operands)
        ]
        axis = f"; axis {options['axis']}" if options.get("axis", -1) != -1 else ""
        called = f"{_FUNCTIONS.get(name, name.replace('_', ' '))}({self.word([*operands])}{axis})"
        return _WRITTEN.get(name, called).format(*map(self.word, operands, alone))


#: How operations are written that are not written as calls, and what functions are called.
_WRITTEN = {"add": "{} + {}", "subtract": "{} − {}", "multiply": "{} ⊙ {}", "divide": "{}/{}", "matmul": "{} · {}",
            "negative": "−{}", "matrix_transpose": "{}ᵀ", "zeros_like": "0", "abs": "|{}|",
            "sqrt": "√{}"}  # fmt: skip
_FUNCTIONS = {
    "maximum": "max",
    "minimum": "min",
    "cumulative_sum": "running sum",
    "concat": "joined",
}
#: What results of operations are called whose formulas are long.
_CALLED = {"add": "sum", "subtract": "difference", "multiply": "product", "divide": "quotient", "matmul": "product",
           "sqrt": "root", "exp": "exponential", "log": "logarithm", "sum": "sum", "mean": "mean", "max": "maximum",
           "maximum": "maximum", "tanh": "hyperbolic tangent", "cumulative_sum": "running sum"}  # fmt: skip
#: Operations that only move numbers, or guard against −∞ and 0: they are not written, and not replaced.
MOVING = ("getitem", "reshape", "broadcast_to", "expand_dims", "squeeze", "asarray", "moveaxis", "swapaxes", "stack",
           "where", "astype", "permute_dims")  # fmt: skip
#: What documents call the arrays of definitions besides those of attention.
_TITLES = {
    "attention_norm.output": "normed tokens", "mlp_norm.output": "normed stream",
    "attention_stream": "stream after attention", "attention_sum": "sum of tokens and attention",
    "mlp_sum": "sum of stream and feed-forward output", "mlp.gate": "gate", "mlp.up": "hidden sums",
    "mlp.hidden": "hidden", "mlp.output": "feed-forward output",
    "normed": "normed rows", "centred": "centred rows", "variance": "variance", "mean": "mean", "state": "state",
    "features": "features", "between": "sums of gates between tokens", "sums": "sums of gates",
    "angles": "angles", "cos": "cos", "sin": "sin", "x_1": "x₁", "x_2": "x₂",
    "frequencies": "frequencies", "total": "total", "top": "maximum", "totals": "totals",
    "w_1": "first weight", "w_2": "second weight",
    "p": "P", "dp": "dP", "ds": "dS", "dq": "dQ", "dk": "dK", "dv": "dV",
}  # fmt: skip


def step_title(name: str) -> str:
    """Return what documents call the array of a step; empty if they do not have it."""
    last = name.rpartition(".")[2]
    return _TITLES.get(name) or (
        ARRAYS[last].title.lower() if last in ARRAYS and len(last) > 1 else ""
    )


def _look_up_array_function(xp: Any, name: str) -> Any:
    return operator.getitem if name == "getitem" else getattr(xp, name)


def _locate_operation_site(
    name: str, operands: Sequence[Any], frame: FrameType | None, top: FrameType
) -> tuple[Site, str]:
    """Return the site of an operation, and the step of the specification that it is in.

    A step may be run by the same line as others; and slices of several arrays by one line are different operations.
    """
    places, step = [], ""
    while frame is not None and frame is not top:
        code = frame.f_code
        # Frames of the base class of arrays are the same for all operations.
        if code.co_filename != base.__file__:
            places.append((id(code), frame.f_lasti))
        # Definitions run each step from a variable of this name.
        if "step" in code.co_varnames:
            step = step or getattr(frame.f_locals.get("step"), "name", "")
        frame = frame.f_back
    x = operands[0] if name == "getitem" else None
    of = "" if x is None else x.words if x.number < 0 else x.site.calls
    return Site(hash((name, of, step, *places)), hash((name, *places[:1]))), step


def _yield_operand_arrays(operands: Iterable[Any]) -> Iterator[Any]:
    for a in operands:
        yield from (
            _yield_operand_arrays(a)
            if isinstance(a, list | tuple)
            else (a,)
            if hasattr(a, "shape")
            else ()
        )


def _is_written_without_brackets(a: Any) -> bool:
    """Return whether an operand of a difference is written without brackets."""
    return (
        is_result(a)
        and a.operation is not None
        and a.operation.name in ("multiply", "divide", "matmul")
    )


def _unwrap_recorded_value(a: Any) -> Any:
    if type(a) in (list, tuple):
        return type(a)(map(_unwrap_recorded_value, a))
    return a.value if isinstance(a, RecordedArray) else a


# -- the record, computed again ----------------------------------------------------------------------------------------
class Replay:
    """The outputs of a recorded run with a replacement: only what depends on it is computed."""

    def __init__(self, recording: Recording, outputs: Any) -> None:
        self.recording, self.outputs = (
            recording,
            outputs if isinstance(outputs, tuple) else (outputs,),
        )
        self.computed = 0  # operations of all replays
        self._counted = 0  # those that were counted
        self.reads = [
            [a.number for a in _yield_operand_arrays(operation_of(x).operands) if is_result(a)]
            for x in recording.nodes
        ]

    def at(self, node: RecordedArray, values: Mapping[int, Any]) -> OperationCall:
        """Return the operation that gives a node, if arrays by number have these other ``values``."""

        def value(a: Any) -> Any:
            if type(a) in (list, tuple):
                return type(a)(map(value, a))
            return values.get(a.number, a.value) if isinstance(a, RecordedArray) else a

        def latest(key: Any) -> RecordedArray:
            arrays = self.recording.arrays[key]
            # Arrays of one site stand in the order of computing, hence the bisection.
            return arrays[max(bisect_left(arrays, node.number, key=lambda a: a.number) - 1, 0)]

        def stale(a: RecordedArray) -> Any:
            # The value of the round before; the first round has none, and gets zeros.
            return (
                value(self.recording.arrays[a.site.calls][a.round - 1]) if a.round else 0 * value(a)
            )

        return OperationCall(self.recording.under, value, operation_of(node), latest, stale)

    def count_since(self, count: CountOperations) -> bool:
        """Count the operations since the last time, and return whether more may be computed."""
        operations, self._counted = self.computed - self._counted, self.computed
        return count(operations)

    def run(self, new: OtherOperation, first: int) -> Outputs:
        """Return the outputs; ``first`` is the number of the first node that is replaced."""
        values: dict[int, Any] = {}
        # Nodes are in the order of computation, so that operands come first.
        for node, reads in zip(self.recording.nodes[first:], self.reads[first:], strict=True):
            if new.hits(node.site, node.round):
                values[node.number] = new.run(self.at(node, values))
            elif any(n in values for n in reads):
                values[node.number] = self.at(node, values).result()
            else:
                continue
            self.computed += 1
        return [
            np.asarray(values.get(y.number, y.value) if is_result(y) else _unwrap_recorded_value(y))
            for y in self.outputs
        ]


def is_result(a: Any) -> bool:
    """Return whether it is the result of a recorded operation."""
    return isinstance(a, RecordedArray) and a.number >= 0


def operation_of(node: RecordedArray) -> RecordedOperation:
    assert node.operation is not None
    return node.operation


def outputs_of(way: Function, recording: Recording) -> Any:
    """Compute the outputs of a definition on recorded arrays; of a specification step by step."""
    values = dict(recording.inputs)
    # Steps that a definition states are run by its call.
    if not hasattr(way, "pipeline") or isinstance(way, StatedFlow):
        return way(**values)
    for step in way.pipeline(frozenset(values)):
        values[step.name] = step.run(*(values[n] for n in step.of))
    return (values["output"], values["lse"]) if getattr(way, "lse", False) else values["output"]


def run_replaced(way: Function, replacement: OtherOperation, /, **inputs: Any) -> Any:
    """Compute the outputs of a definition with one operation replaced."""
    return _unwrap_recorded_value(outputs_of(way, Recording(inputs, replacement)))

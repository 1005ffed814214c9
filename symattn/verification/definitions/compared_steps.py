"""The steps of a run that lead to a wrong entry: the row of each array, correct and with a mistake in some step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from symattn.attention.flow import Step
from symattn.attention.stated_flow import TOKENS, run_with_changes, select_returned
from symattn.bounds.case_result import UNFIT, CaseResult
from symattn.bounds.changed_steps import ChangedSteps
from symattn.bounds.reference import float64_inputs

#: The name of a step, its correct row, and its row with the mistake.
ComparedStep: TypeAlias = "tuple[str, str, str]"
#: Roles of arrays whose rows are those of the keys in a cache, not of its output.
_IN_SLOTS = frozenset({"written", "returned cache"})
#: Letters of axes with one entry for each row of an output.
_ROWS = ("n", "n_q")
_MOST_ENTRIES = 64  # of the inputs of a case whose rows are short enough to be shown


def compare(
    way: ChangedSteps, judged: CaseResult, axes: Mapping[str, str]
) -> tuple[ComparedStep, ...]:
    """Return the rows of the arrays that steps compute in float64, on the way to the worst entry of a case.

    ``axes`` are those of all arrays, by letters: only a row that belongs to the row of the wrong entry is shown.
    () for large cases, for arrays with several items or heads, and if the mistake has no result.
    """
    if judged.case.size > _MOST_ENTRIES or judged.ratios is None:
        return ()
    inputs = float64_inputs(judged.case.inputs)
    right = ChangedSteps(way.spec, {}, laid=way.laid)
    try:
        runs = [_trace(run, inputs) for run in (right, way)]
    except UNFIT:
        return ()
    number, index = judged.where
    output = way.spec.returned[number]
    pipeline = way.spec.pipeline(runs[0])
    towards = _steps_towards(output, pipeline)
    in_slots = output in {step.name for step in pipeline if step.role in _IN_SLOTS}
    # Some steps compute several arrays, which later steps return.
    steps = [s for s in pipeline if s.name in towards and (axes[s.name] or s.role == "length")]
    names = [step.name for step in steps if _has_rows_of_output(step, in_slots)]
    pairs = {name: [np.asarray(run[name]) for run in runs] for name in names}
    if any(_has_items_or_heads(a) for pair in pairs.values() for a in pair):
        return ()
    # Of axes before the columns only that of rows has more than one entry.
    place = max(index[:-1], default=index[-1])
    result = list[ComparedStep]()
    for name, pair in pairs.items():
        one, other = (_take_row(a, place, axes[name], axes[output]) for a in pair)
        # A state, or all rows of which a token takes a sum, has no room in a table of rows.
        if one is not None and other is not None and max(map(_count_axes, (one, other))) < 2:
            result.append((name, _format_row(one), _format_row(other)))
    return tuple(result)


def _steps_towards(output: str, steps: Sequence[Step]) -> list[str]:
    """Return the names of the arrays that an array is computed from, and its own."""
    needed, result = {output}, list[str]()
    for step in reversed(steps):
        if step.name in needed:
            needed |= {*step.of}
            result.insert(0, step.name)
    return result


def _take_row(a: np.ndarray, place: int, axes: str, of_output: str) -> np.ndarray | None:
    """Return the entries of an array that belong to the token of a wrong entry; None if none do.

    An array with one number for each other token, and one without tokens, is taken whole.
    """
    letters, of_rows = axes.split(), of_output.split()
    # One number for each row is an array without columns.
    row = of_rows[-1] if of_rows[-1] in _ROWS else "".join(of_rows[-2:-1])
    if row in letters:
        axis = letters.index(row) - len(letters)
        # A call without an axis of rows has one row.
        return np.asarray(np.take(a, place, axis=axis) if -axis <= a.ndim else a)
    has_other_tokens = any(letter in TOKENS for letter in letters)
    return a if letters[-1:] == ["1"] or not has_other_tokens else None


def _count_axes(a: np.ndarray) -> int:
    """Return the number of axes with several entries."""
    return sum(n > 1 for n in a.shape)


def _has_items_or_heads(a: np.ndarray) -> bool:
    """Return whether an array has several rows at each place, of which a table has no room."""
    return prod(a.shape[:-2]) > 1


def _has_rows_of_output(step: Step, in_slots: bool) -> bool:
    """Return whether a row of a step's array belongs to the same row of the wrong output."""
    if step.role in ("returned", "read", "length"):
        return step.role == "length"
    return (step.role in _IN_SLOTS) == in_slots


def _trace(way: ChangedSteps, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return all arrays of a run, in the axes of the steps."""
    values: dict[str, Any] = {}

    def run(**arrays: Any) -> Any:
        read = {name: other(arrays[name]) for name, other in way.reads.items()}
        values.update(run_with_changes(way.spec, way.steps, arrays | read))
        return select_returned(way.spec, values)

    with np.errstate(all="ignore"):
        way.laid(run)(**inputs)
    return values


def _format_row(row: np.ndarray) -> str:
    return "  ".join(f"{float(x):.6g}".replace("-inf", "−∞") for x in np.ravel(row))

"""The steps of a run that lead to a wrong entry: the row of each array, correct and with a mistake in some step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from symattn.attention.flow import Step
from symattn.attention.stated_flow import run_with_changes, select_returned
from symattn.bounds.case_result import UNFIT, CaseResult
from symattn.bounds.changed_steps import ChangedSteps
from symattn.bounds.reference import float64_inputs

#: The name of a step, its correct row, and its row with the mistake.
ComparedStep: TypeAlias = "tuple[str, str, str]"
#: Roles of arrays whose rows are those of the keys in a cache, not of its output.
_IN_SLOTS = frozenset({"written", "returned cache"})
#: Axes of arrays with one entry for each row.
_ROWS_ALONE = ("n", "n_q")
_MOST_ENTRIES = 64  # of the inputs of a case whose rows are short enough to be shown


def compare(way: ChangedSteps, judged: CaseResult) -> tuple[ComparedStep, ...]:
    """Return the rows of the arrays that steps compute in float64, on the way to the worst entry of a case.

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
    output, axes = way.spec.returned[number], way.spec.axes
    pipeline = way.spec.pipeline(runs[0])
    # Some steps compute several arrays, which later steps return.
    steps = [s for s in pipeline if axes.get(s.name) != ""]
    in_slots = output in {s.name for s in steps if s.role in _IN_SLOTS}
    names = [step.name for step in steps if _has_rows_of_output(step, in_slots)]
    if _has_token(axes.get(output, "")):
        names = _steps_towards(output, pipeline)
    pairs = {name: [_drop_single_axes(run[name]) for run in runs] for name in names}
    if any(a.ndim > 2 for pair in pairs.values() for a in pair):
        return ()
    # Of axes before the columns only that of rows has more than one entry.
    place = max(index[:-1], default=index[-1])
    result = list[ComparedStep]()
    for name, pair in pairs.items():
        one, other = (_take_row(a, place, axes.get(name, ""), axes.get(output, "")) for a in pair)
        if one is not None and other is not None:
            result.append((name, _format_row(one), _format_row(other)))
    return tuple(result)


def _has_token(axes: str) -> bool:
    """Return whether the letters of an array's axes name that of its tokens."""
    return len(axes.split()) > 1


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

    Axes with letters say which one is that of the output's tokens. An array with one number for each other token is
    taken whole.
    """
    if not _has_token(axes) or not _has_token(of_output):
        if a.ndim < 2:
            return np.asarray(a[place]) if axes in _ROWS_ALONE else a
        # A state has rows of its own, for features.
        return a[place] if place < len(a) else None
    token, letters = of_output.split()[-2], axes.split()
    if token in letters:
        return np.asarray(np.take(a, place, axis=letters.index(token) - len(letters)))
    return a if letters[-1] == "1" else None


def _drop_single_axes(array: Any) -> np.ndarray:
    """Return an array without axes of batches and heads that have one entry."""
    a = np.asarray(array)
    return a.reshape(a.shape[-2:]) if prod(a.shape[:-2]) == 1 and a.ndim > 2 else a


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

"""The steps of a run that lead to a wrong entry: the row of each array, correct and with a mistake in some step."""

from __future__ import annotations

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
    output, index = judged.where
    # Some steps compute several arrays, which later steps return.
    steps = [s for s in way.spec.pipeline(runs[0]) if way.spec.axes.get(s.name) != ""]
    in_slots = way.spec.returned[output] in {s.name for s in steps if s.role in _IN_SLOTS}
    names = [step.name for step in steps if _has_rows_of_output(step, in_slots)]
    pairs = {name: [_drop_single_axes(run[name]) for run in runs] for name in names}
    if any(a.ndim > 2 for pair in pairs.values() for a in pair):
        return ()
    # Of axes before the columns only that of rows has more than one entry.
    place = max(index[:-1], default=index[-1])
    # A state has rows of its own, for features.
    shown = {name: pair for name, pair in pairs.items() if _has_row(pair[0], place)}
    rows = (
        [_format_row(a, place, way.spec.axes.get(name) in _ROWS_ALONE) for a in pair]
        for name, pair in shown.items()
    )
    return tuple((name, one, other) for name, (one, other) in zip(shown, rows, strict=True))


def _drop_single_axes(array: Any) -> np.ndarray:
    """Return an array without axes of batches and heads that have one entry."""
    a = np.asarray(array)
    return a.reshape(a.shape[-2:]) if prod(a.shape[:-2]) == 1 and a.ndim > 2 else a


def _has_row(a: np.ndarray, place: int) -> bool:
    return a.ndim < 2 or place < len(a)


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


def _format_row(a: np.ndarray, place: int, is_of_rows: bool) -> str:
    """Return one row; of an array with one axis all entries, unless it has one entry for each row."""
    row = a[place] if a.ndim > 1 or is_of_rows else a
    return "  ".join(f"{float(x):.6g}".replace("-inf", "−∞") for x in np.ravel(row))

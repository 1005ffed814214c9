"""The steps of a run that lead to a wrong entry: the row of each array, correct and with a mistake in some step."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from symattn.attention.stated_flow import run_with_changes, select_returned
from symattn.bounds.case_result import UNFIT, CaseResult
from symattn.bounds.changed_steps import ChangedSteps
from symattn.bounds.reference import float64_inputs

#: The name of a step, its correct row, and its row with the mistake.
ComparedStep: TypeAlias = "tuple[str, str, str]"
_MOST_ENTRIES = 64  # of the inputs of a case whose rows are short enough to be shown


def compare(way: ChangedSteps, judged: CaseResult) -> tuple[ComparedStep, ...]:
    """Return the rows of the arrays that steps compute in float64, on the way to the worst entry of a case.

    () for large cases, for arrays with batches or heads, and if the mistake has no result.
    """
    if judged.case.size > _MOST_ENTRIES or judged.ratios is None:
        return ()
    inputs = float64_inputs(judged.case.inputs)
    right = ChangedSteps(way.spec, {}, laid=way.laid)
    try:
        runs = [_trace(run, inputs) for run in (right, way)]
    except UNFIT:
        return ()
    _, index = judged.where
    names = [step.name for step in way.spec.pipeline(runs[0]) if step.role != "returned"]
    pairs = [[np.asarray(run[name]) for run in runs] for name in names]
    if any(a.ndim > 2 for pair in pairs for a in pair):
        return ()
    rows = ([_format_row(a, index) for a in pair] for pair in pairs)
    return tuple((name, one, other) for name, (one, other) in zip(names, rows, strict=True))


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


def _format_row(a: np.ndarray, index: tuple[int, ...]) -> str:
    row = a[index[0]] if a.ndim > 1 else a
    return "  ".join(f"{float(x):.6g}".replace("-inf", "−∞") for x in np.ravel(row))

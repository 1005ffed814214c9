"""Rows without any key, put aside: what they give is a symptom of its own, and must not hide another mistake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from symattn.verification.judge import centres, traced
from symattn.verification.judged import Judged


def without_empty_rows(judged: Judged) -> Judged:
    """The case as if rows without any key had given what they must."""
    got, empty = judged.outcome.output, _empty(judged)
    if got is None or judged.ratios is None or empty is None or not (empty & (judged.ratios > 1)).any():
        return judged
    output = np.where(empty, traced(judged).near, got)
    ratios = np.where(empty, 0.0, judged.ratios)
    finding = judged.finding if (ratios > 1).any() else None
    part = replace(judged.parts[0], got=output, ratios=ratios)
    outcome = replace(judged.outcome, output=output)
    return replace(judged, outcome=outcome, finding=finding, parts=(part,))


def _empty(judged: Judged) -> np.ndarray | None:
    """Where the output belongs to a row without any key; None where it has another shape, where rows are mixed, or
    where it is to be no number."""
    run, got = traced(judged).run, judged.outcome.output
    if got is None or judged.ratios is None or run.output_step is not None or run.spec.fully_masked != "zeros":
        return None
    rows = ~np.asarray(run.allowed.any(axis=-1))[..., None]
    return np.asarray(np.broadcast_to(rows, got.shape)) if rows.ndim == got.ndim else None


def what_empty_rows_give(records: Sequence[Judged]) -> str:
    """In words, where that is wrong."""
    for judged in records:
        got, empty = judged.outcome.output, _empty(judged)
        if got is None or judged.ratios is None or empty is None or not (empty & (judged.ratios > 1)).any():
            continue
        given = got[empty & (judged.ratios > 1)]
        v = centres(traced(judged).run.values[traced(judged).run.values_name])
        mean = np.broadcast_to(v.mean(axis=-2, keepdims=True), got.shape)[empty & (judged.ratios > 1)]
        near = 1e-2 * max(float(np.abs(v).max(initial=0.0)), 1.0)
        what = "NaN or infinity" if not np.isfinite(given).all() else "other numbers than zeros"
        if np.isfinite(given).all() and (np.abs(given - mean) <= near).all():
            what = "the mean of all values"
        return f"a row without any key gives {what}"
    return ""

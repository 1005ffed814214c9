"""Which rows, heads and columns of an output are wrong, not finite, or without a key, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from symattn.bounds.case_result import CaseResult
from symattn.bounds.judge import centres, traced
from symattn.verification.diagnosis.outofrange import all_keys_maxima, row_maxima, row_minima

_NAMES = ("columns", "queries", "heads", "batch items")


def affected(judged: CaseResult, heads: bool) -> str:
    """Describe what is wrong: “head 2 only; queries from 5 on”. Empty if all is, or if no simple words fit."""
    if judged.ratios is None:
        return ""
    off = np.asarray(judged.ratios > 1)
    names = list(_NAMES) if heads else [_NAMES[0], _NAMES[1], _NAMES[3], "outer batch items"]
    parts = []
    for place, name in list(enumerate(names))[::-1]:
        axis = off.ndim - 1 - place
        if axis >= 0 and off.shape[axis] > 1:
            values = np.asarray(off.any(axis=tuple(a for a in range(off.ndim) if a != axis)))
            words = _which(values, name)
            parts += [words] if words else []
    return "; ".join(parts)


def _which(wrong: np.ndarray, name: str) -> str:
    """Describe which are wrong, counted from 1; empty if all are."""
    at, n = np.flatnonzero(wrong), len(wrong)
    if len(at) in (0, n):
        return ""
    singular = name.removesuffix("s") if name != "queries" else "query"
    if len(at) == 1:
        return f"{singular} {at[0] + 1} of {n} only"
    if at[-1] - at[0] + 1 == len(at):
        if at[-1] == n - 1:
            return f"{name} from {at[0] + 1} on, of {n}"
        return f"{name} up to {at[-1] + 1} of {n}" if at[0] == 0 else f"{name} {at[0] + 1} to {at[-1] + 1} of {n}"
    steps = set(np.diff(at).tolist())
    if len(steps) == 1:
        return f"every {steps.pop()}. of the {name} from {at[0] + 1} on"
    return f"{len(at)} of {n} {name}"


Measure = Callable[[CaseResult], np.ndarray]
_LEAST = 2  # rows on either side


def nonfinite_rows(records: Sequence[CaseResult]) -> tuple[str, str]:
    """Return the step and a description of the rows that are not finite; ("", "") if no simple rule separates them."""
    seen = [r for r in records if r.ratios is not None and traced(r).run.output_step is None]
    if not seen:
        return "", ""
    bad = [_lost(r) for r in seen]
    empty = [np.broadcast_to(~traced(r).run.allowed.any(axis=-1), b.shape) for r, b in zip(seen, bad, strict=True)]
    lost = np.concatenate([b[~e] for b, e in zip(bad, empty, strict=True)])
    if any((b & e).any() for b, e in zip(bad, empty, strict=True)) and not lost.any():
        return "mask", "a row without any key gives NaN or infinity"
    for words, measure in _MEASURES:
        measured = [np.broadcast_to(measure(r), b.shape)[~e] for r, b, e in zip(seen, bad, empty, strict=True)]
        result = _separated(np.concatenate(measured), lost)
        if result:
            return "max", f"the rows {words} {result} come out as NaN or infinity, and no others"
    return "", ""


def _lost(judged: CaseResult) -> np.ndarray:
    got, ratios = judged.outcome.output, judged.ratios
    assert got is not None
    assert ratios is not None
    return np.asarray(((ratios > 1) & ~np.isfinite(got)).any(axis=-1))


def _separated(x: np.ndarray, lost: np.ndarray) -> str:
    """Return words like “above some number between …” if a number separates the lost rows from the others; else ""."""
    inside, outside = x[lost], x[~lost]
    if min(len(inside), len(outside)) < _LEAST:
        return ""
    if inside.min() > outside.max():
        return f"above some number between {outside.max():.4g} and {inside.min():.4g}"
    if inside.max() < outside.min():
        return f"below some number between {inside.max():.4g} and {outside.min():.4g}"
    return ""


_MEASURES: tuple[tuple[str, Measure], ...] = (
    ("whose largest score is", row_maxima),
    ("whose smallest score is", row_minima),
    ("whose scores lie apart by a distance", lambda r: row_maxima(r) - row_minima(r)),
    (
        "whose largest score with forbidden keys exceeds that of the others by",
        lambda r: all_keys_maxima(r) - row_maxima(r),
    ),
)


def without_empty_rows(judged: CaseResult) -> CaseResult:
    """Return the case as if rows without any key were right."""
    got, empty = judged.outcome.output, _empty(judged)
    if got is None or judged.ratios is None or empty is None or not (empty & (judged.ratios > 1)).any():
        return judged
    output = np.where(empty, traced(judged).near, got)
    ratios = np.where(empty, 0.0, judged.ratios)
    finding = judged.finding if (ratios > 1).any() else None
    part = replace(judged.parts[0], got=output, ratios=ratios)
    outcome = replace(judged.outcome, output=output)
    return replace(judged, outcome=outcome, finding=finding, parts=(part,))


def _empty(judged: CaseResult) -> np.ndarray | None:
    """Return where the output belongs to a row without any key; None if it has another shape, if rows are mixed, or if
    such rows need not be zeros."""
    run, got = traced(judged).run, judged.outcome.output
    if got is None or judged.ratios is None or run.output_step is not None or run.spec.fully_masked != "zeros":
        return None
    rows = ~np.asarray(run.allowed.any(axis=-1))[..., None]
    return np.asarray(np.broadcast_to(rows, got.shape)) if rows.ndim == got.ndim else None


def what_empty_rows_give(records: Sequence[CaseResult]) -> str:
    """Describe what rows without any key give if that is wrong; else ""."""
    for judged in records:
        got, empty = judged.outcome.output, _empty(judged)
        if got is None or judged.ratios is None or empty is None or not (empty & (judged.ratios > 1)).any():
            continue
        array = got[empty & (judged.ratios > 1)]
        v = centres(traced(judged).run.values[traced(judged).run.values_name])
        mean = np.broadcast_to(v.mean(axis=-2, keepdims=True), got.shape)[empty & (judged.ratios > 1)]
        near = 1e-2 * max(float(np.abs(v).max(initial=0.0)), 1.0)
        what = "NaN or infinity" if not np.isfinite(array).all() else "other numbers than zeros"
        if np.isfinite(array).all() and (np.abs(array - mean) <= near).all():
            what = "the mean of all values"
        return f"a row without any key gives {what}"
    return ""

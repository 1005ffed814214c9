"""Where outputs are not finite: in rows without any key, or where the scores of a row are large, low or far apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from symattn.verification.diagnosis.outofrange import all_keys_maxima, row_maxima, row_minima
from symattn.verification.judge import traced
from symattn.verification.judged import Judged

Measure = Callable[[Judged], np.ndarray]
_LEAST = 2  # rows on either side


def lost_rows(records: Sequence[Judged]) -> tuple[str, str]:
    """The step, and in words the rows that are lost, if nothing else is wrong; ("", "") where no plain rule tells."""
    seen = [r for r in records if r.ratios is not None and traced(r).run.output_step is None]
    if not seen:
        return "", ""
    bad = [_lost(r) for r in seen]
    empty = [np.broadcast_to(~traced(r).run.allowed.any(axis=-1), b.shape) for r, b in zip(seen, bad, strict=True)]
    lost = np.concatenate([b[~e] for b, e in zip(bad, empty, strict=True)])
    if any((b & e).any() for b, e in zip(bad, empty, strict=True)) and not lost.any():
        return "mask", "a row without any key gives NaN or infinity"
    for words, measure in _MEASURES:
        said = [np.broadcast_to(measure(r), b.shape)[~e] for r, b, e in zip(seen, bad, empty, strict=True)]
        told = _separated(np.concatenate(said), lost)
        if told:
            return "max", f"lost are the rows {words} {told}, and no others"
    return "", ""


def _lost(judged: Judged) -> np.ndarray:
    got, ratios = judged.outcome.output, judged.ratios
    assert got is not None
    assert ratios is not None
    return np.asarray(((ratios > 1) & ~np.isfinite(got)).any(axis=-1))


def _separated(x: np.ndarray, lost: np.ndarray) -> str:
    """“above 88” where a number separates those that are lost from the others."""
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

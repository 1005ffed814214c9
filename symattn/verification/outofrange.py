"""Mistakes that no change of the exact definition shows: exponentials that leave the range of a format.

A row loses its numbers exactly where they do, and keeps them elsewhere. Of rows on the verge nothing is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.verification.judge import Judged
from symattn.verification.mistakes import Mistake
from symattn.verification.reference import Variant


@dataclass(frozen=True)
class _Row:
    """What a mistake says of rows: (…, n_q) booleans."""

    lost: np.ndarray
    kept: np.ndarray


def out_of_range(precision: Precision, lost: Sequence[Judged], seen: Sequence[Judged]) -> Mistake | None:
    """The missing maximum, or that of the whole array, where it explains what was ``lost`` and all that was ``seen``.

    Of several formats the first that does so is taken.
    """
    for name in dict.fromkeys((precision.score.name, precision.input.name, "float16", "float32", "float64")):
        f = Format(name)
        for rows, cause in ((_no_maximum, _without(f)), (_common_maximum, _common(f))):
            if any(rows(r, f).lost.any() for r in lost) and all(_agrees(r, rows(r, f)) for r in seen):
                return Mistake("max", cause, Variant())
    return None


def _without(f: Format) -> str:
    return (
        f"the largest score is not subtracted: e^s overflows in {f.name} for s above {log(f.largest):.4g}, "
        f"and every e^s vanishes below {log(f.smallest_normal):.4g}"
    )


def _common(f: Format) -> str:
    return (
        "the maximum of the whole array is subtracted, not that of each row: every exponential of a row "
        f"more than {-log(f.smallest_normal * 2 * f.u):.4g} below it vanishes in {f.name}"
    )


def _agrees(judged: Judged, row: _Row) -> bool:
    """Rows that must be lost are wrong, rows that must be kept are right; of the others nothing is asked."""
    ratios = judged.ratios
    assert ratios is not None
    if judged.expected.run.output_step is not None:  # heads are mixed: the whole case is looked at
        lost, kept = row.lost.any(), row.kept.all()
        return bool(((ratios > 1).any() or not lost) and ((ratios <= 1).all() or not kept))
    wrong = np.asarray((ratios > 1).any(axis=-1))
    return bool(wrong[row.lost].all() and not wrong[row.kept].any())


def _no_maximum(judged: Judged, f: Format) -> _Row:
    m = _row_maxima(judged)
    lost = (m > log(f.largest) + 1) | (np.isfinite(m) & (m < log(f.smallest_normal) + log(2 * f.u) - 2))
    kept = (m < log(f.largest) - log(_terms(judged)) - 1) & (m > log(f.smallest_normal) + 1)
    return _Row(lost, kept)


def _common_maximum(judged: Judged, f: Format) -> _Row:
    m = _row_maxima(judged)
    below = m - m.max()
    lost = np.isfinite(below) & (below < log(f.smallest_normal) + log(2 * f.u) - 2)
    return _Row(lost, below > log(f.smallest_normal) - log(f.u) + log(_terms(judged)) + 1)


def _terms(judged: Judged) -> float:
    """A bound of Σ|v_j|, at least n."""
    size = float(np.abs(judged.expected.run.values["v"].midpoints()).max(initial=1.0))
    return int(judged.expected.run.allowed.shape[-1]) * max(size, 1.0)


def _row_maxima(judged: Judged) -> np.ndarray:
    run = judged.expected.run
    t = Ball.xp.where(run.allowed, run.final_scores, 0).midpoints()
    return np.asarray(np.where(run.allowed, t, -np.inf).max(axis=-1))

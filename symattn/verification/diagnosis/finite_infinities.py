"""Finite numbers in the place of −∞: the start of a running maximum, or masked scores, where scores lie below them.

Residues read such a literal as −∞ and note it. Only scores below it show the difference, in a group of inputs of their
own. There the function either loses a row, or sees what the mask hides: each literal is tried as both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.judge import Traced
from symattn.bounds.mistake import At, Mistake, in_steps
from symattn.verification.diagnosis import outofrange
from symattn.verification.probing import hints, numbers
from symattn.verification.rules import forbidding

if TYPE_CHECKING:
    from symattn.verification.engine import Session

GROUP = "far below 0"
_USUAL = (-1e4, -2e4, -5e4)  # tried if the code does not run on residues


def mistakes(session: Session, wrong: Sequence[CaseResult]) -> Iterator[Mistake]:
    """Yield the mistakes of each literal that residues read as −∞, or of usual ones if inputs for them are wrong; first
    the one of a sum that is kept from a number, which the outputs show."""
    made_for_them = any(r.case.group == GROUP for r in wrong)
    # Rows far below the start are lost, whichever group they belong to.
    has_rows = session.subject.flow.has_rows
    if has_rows and any(outofrange.loses_rows(r) for r in wrong):
        yield from _yield_kept_sums(session)
    literals = hints.literals(session.identity)
    # Literals of the code itself; usual ones only if inputs for them are wrong.
    for x in literals or (_USUAL if made_for_them else ()):
        written = f"{x:.6g}".replace("-", "−").replace("e+0", "e").replace("e+", "e")
        # Scores below all usual numbers show that there is one, not which of them it is.
        written = written if literals else f"a finite number ({written} or another)"
        # Code may compare the number with scores before or after they are scaled.
        for raw, of in ((False, ""), (True, " (of scores before they are scaled)")):
            words = f"the running maximum starts at {written}{of}, not at −∞: rows whose scores lie below it are lost"
            yield in_steps(
                "max", words, False, weights=partial(_weights_from_started_maximum, x, raw)
            )
            if session.attention.masks_anything:
                words = f"masked scores are filled with {written}{of}, not −∞: they count where others lie below it"
                yield in_steps("mask", words, masked=partial(_fill_forbidden_with_number, x, raw))


# -- a maximum that starts at m₀, and a sum that is kept from g --------------------------------------------------------
_KEPT_SEED = 61  # the second number of the seed of rows at many levels; those that confirm a mistake have others
#: Shares of the right output at which a row shows the least sum: it lies little below it.
_LEAST_SHARE, _LARGEST_SHARE = 1e-3, 0.9
_SAME = 0.01  # difference of logarithms of sums that are one
#: Difference from a whole number in which a start is written. The outputs show c alone; for any c one of the powers of
#: ten below gives a start within 1/100 or so of a whole number, which is not that of the code.
_ROUND = 1e-4
_EXPONENTS = range(4, 41)  # of the powers of ten from which sums are kept


def _yield_kept_sums(session: Session) -> Iterator[Mistake]:
    """Yield the mistake that Σ e^s is at least e^c, for the c that the outputs of rows at many levels show.

    A maximum that starts at m₀, with a sum kept from g, gives e^s / max(Σ e^s, g e^m₀). So a row with the share r < 1
    of its output shows c = m₀ + ln g = ln Σ e^s − ln r. The pair is written with a power of ten g and a whole number m₀
    if there is one.
    """
    rng = np.random.default_rng((session.seed, _KEPT_SEED))
    rows = (inputs for _, inputs in numbers.low_rows(session.maker, rng) if inputs is not None)
    found = [c for inputs in rows for c in _read_logarithms(session, inputs)]
    if not found or max(found) - min(found) > _SAME:
        return
    c = float(np.median(found))
    pairs = [(c + k * log(10), k) for k in _EXPONENTS]
    start, exponent = min(pairs, key=lambda pair: abs(pair[0] - round(pair[0])))
    words = f"a finite number, not at −∞: the sum of e^s is at least e^({c:.4g})"
    if abs(start - round(start)) <= _ROUND:
        words = f"{round(start)}, not at −∞, and the sum is kept from 0 (by 1e-{exponent})"
    words = f"the largest score so far starts at {words}".replace("-", "−")
    yield in_steps("max", words, False, weights=partial(_weights_of_kept_sum, c))


def _read_logarithms(session: Session, inputs: dict[str, Any]) -> Iterator[float]:
    """Yield the logarithm of the least sum by each row whose output is a share of the right one."""
    judged = session.run_case(Case(GROUP, "rows at many levels", inputs))
    part = judged.parts[0]
    # Behind a projection, and in a call that failed, no output is that of one row.
    if not isinstance(part.expected, Traced) or part.got is None or part.ratios is None:
        return
    right, s = part.expected.near, np.asarray(part.expected.run.final_scores.midpoints())
    if part.expected.run.output_step is not None or s.shape[:-1] != right.shape[:-1]:
        return
    with np.errstate(all="ignore"):
        top = s.max(axis=-1)
        sums = top + np.log(np.exp(s - top[..., None]).sum(axis=-1))
        shares = (part.got * right).sum(axis=-1) / (right * right).sum(axis=-1)
        logarithms = sums - np.log(shares)
    shown = (shares > _LEAST_SHARE) & (shares < _LARGEST_SHARE)
    yield from logarithms[shown].tolist()


def _weights_of_kept_sum(c: float, at: At) -> Any:
    """Return e^{s − m} over their sum, which is e^{c − m} at least."""
    least = at.power(at.number(c) - at.m)
    return at.e / at.xp.maximum(at.total, least)


# -- literals ----------------------------------------------------------------------------------------------------------
def _convert_to_scaled_score(x: float, raw: bool, at: At) -> Any:
    """Return the number as a scaled score."""
    if not raw:
        return at.number(x)
    # The step ``scaled`` on ones returns the scale in any form.
    one = at.values["scores"] * 0 + 1
    scale = at.of("scaled", one) if "scaled" in at.values else one
    return scale * at.number(x)


def _weights_from_started_maximum(x: float, raw: bool, at: At) -> Any:
    """Return e^{s − m} over their sum, m at least x; 0 in rows in which all exponentials vanish."""
    m = (
        at.xp.max(_convert_to_scaled_score(x, raw, at), axis=-1, keepdims=True)
        if raw
        else _convert_to_scaled_score(x, raw, at)
    )
    e = at.power(at.first - at.xp.maximum(at.top, m))
    # A row that vanishes becomes 0, not 0/0.
    total = at.sum(e)
    return e / at.xp.where(total == 0, at.number(1), total)


def _fill_forbidden_with_number(x: float, raw: bool, at: At) -> Any:
    s = forbidding.added(at)
    return at.xp.where(forbidding.allowed(at), s, _convert_to_scaled_score(x, raw, at))

"""Finite numbers in the place of −∞: the start of a running maximum, or masked scores, where scores lie below them.

Residues read such a literal as −∞ and note it. Only scores below it show the difference, in a group of inputs of their
own. There the function either loses a row, or sees what the mask hides: each literal is tried as both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.bounds.case_result import CaseResult
from symattn.bounds.mistake import At, Mistake, in_steps
from symattn.verification.probing import hints
from symattn.verification.rules import forbidding

if TYPE_CHECKING:
    from symattn.verification.engine import Session

GROUP = "far below 0"
_USUAL = (-1e4, -2e4, -5e4)  # tried if the code does not run on residues


def mistakes(session: Session, wrong: Sequence[CaseResult]) -> Iterator[Mistake]:
    """Yield the mistakes of each literal that residues read as −∞, or of usual ones if inputs for them are wrong."""
    made_for_them = any(r.case.group == GROUP for r in wrong)
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

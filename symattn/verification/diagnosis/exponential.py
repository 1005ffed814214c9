"""Another function in the place of the exponential, seen in weights of two and three keys.

With weights g(s − m) / Σ g, m the row's largest score, the weight of a key over that of the first, whose score is m, is
g(s − m)/g(0): the same for every m, and whatever other keys there are. So g is read off, and nothing is supposed of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.judge import traced
from symattn.bounds.reference import usual

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_BELOW = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)  # how far a score lies below the largest one
_TOPS = (0.0, -3.0, 4.0)
_NEAR = 1e-3  # of what is compared: more than the arithmetic of float16 is off by
_LEAST = 1e-4  # ratios below this are not read, as few digits are left of them
_STRAIGHT = 0.004  # how far slopes of one exponential may be apart


def other_function(session: Session, wrong: list[CaseResult]) -> tuple[str, str]:
    """("exp", what is seen) where weights are those of another function of s − m; else ("", "")."""
    if not usual(session.spec) or session.spec.scale is not None:
        return "", ""
    seen: dict[float, float] = {}
    for below, ratio in _ratios(session):
        if abs(ratio - seen.setdefault(below, ratio)) > _NEAR:
            return "", ""
    off = [x for x, ratio in seen.items() if abs(ratio - exp(-x)) > 4 * _NEAR * max(exp(-x), _NEAR)]
    if len(seen) < len(_BELOW) or not off or _is_power(seen):
        return "", ""
    x = max(off, key=lambda x: abs(seen[x] - exp(-x)))
    words = f"weights are those of another function than the exponential of s − max s: at −{x:g} it is {seen[x]:.4g}"
    return "exp", f"{words} times what it is at 0, where e^(−{x:g}) = {exp(-x):.4g}"


def _is_power(seen: dict[float, float]) -> bool:
    """Return whether it is e^{c x}: then a scale or a base is to blame."""
    slopes = [log(ratio) / -x for x, ratio in seen.items() if ratio > _LEAST]
    return len(slopes) < 2 or max(slopes) - min(slopes) < _STRAIGHT * abs(slopes[0])


def _ratios(session: Session) -> Iterator[tuple[float, float]]:
    """How far below a score lies, and its key's weight over that of the key with the largest one."""
    for top in _TOPS:
        for x, y in zip(_BELOW, _BELOW[1:] + _BELOW[:1], strict=True):
            for below in ((0.0, x), (0.0, x, y)):
                weights = _weights(session, top - np.array(below))
                if weights is None:
                    return
                yield from zip(below[1:], weights[1:] / weights[0], strict=True)


def _weights(session: Session, scores: np.ndarray) -> np.ndarray | None:
    """The weights of a query with these scores, of as many keys; None where there is no such input, or no number."""
    n = len(scores)
    q = np.ones((n if session.maker.square else 1, 1))
    inputs = session.maker.from_heads(q, scores[:, None], np.eye(n))
    if inputs is None or [inputs[a].shape for a in "kv" if a in inputs] != [(n, 1), (n, n)]:
        return None
    judged = session.run_case(Case("exponential", "", inputs))
    got = judged.outcome.output
    if got is None or judged.ratios is None or not np.isfinite(got).all() or not traced(judged).run.allowed[-1].all():
        return None
    row = got.reshape(-1, n)[-1]
    return np.asarray(row, dtype=np.float64) if row[0] > 0 else None

"""Whether errors are no larger than a narrower format would make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from symattn.arrays.ball import precision as bits
from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.verification.bounds import allowed
from symattn.verification.judge import Expected, Judged

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_CASES = 6
_LEAST = 2.0**-8  # of the bound, that some error must reach


def rougher(session: Session, wrong: list[Judged]) -> str:
    """In words, the first narrower format whose bound holds for every number seen; empty where none does.

    That is no proof: small errors of any kind are within it.
    """
    finite = [r for r in wrong if r.ratios is not None and r.finding == "values"][:_CASES]
    for name in ("float16", "bfloat16"):
        if finite and Format(name).u > session.precision.roughest.u:
            worst = [_worst(r, Precision.of(name)) for r in finite]
            if max(worst) <= 1 and max(worst) > _LEAST:
                return f"consistent with numbers rounded to {name} on the way: no error is larger than that makes it"
    return ""


def _worst(judged: Judged, precision: Precision) -> float:
    got = judged.outcome.output
    assert got is not None
    with bits(128):
        bound = allowed(judged.expected.in_balls, precision)
    ratios = Expected(judged.expected.in_balls, bound).ratios(got)
    said = np.isfinite(bound)
    return float(ratios[said].max(initial=0.0)) if said.any() else np.inf

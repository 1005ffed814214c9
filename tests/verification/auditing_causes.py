"""Printed causes against the function: each with its mistake, on fresh inputs of sizes that ``verify`` does not use.

    python -m tests.verification.auditing_causes 'masking.*' 20

prints the causes of wrong programs of the collection that an input contradicts.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from symattn import verify
from symattn.bounds.case_result import Case
from symattn.verification.diagnosis import faults

SEED = 97
SIZES = ((19, 22, 6, 4), (45, 77, 5, 3), (1, 33, 4, 2), (23, 141, 70, 2), (66, 66, 3, 3))
PART = 0.1  # of the squared error that a true cause may leave: roundings are far less


def audited(program: Callable[..., Any], spec: Any, **told: Any) -> tuple[list[str], list[str]]:
    """Return the causes that ``verify`` names, and a line for each input that contradicts one."""
    seen: list[tuple[Any, tuple[Any, ...]]] = []
    inner = faults.causes

    def kept(session: Any) -> tuple[Any, ...]:
        found = inner(session)
        seen.append((session, found))
        return found

    faults.causes = kept
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            report = verify(program, spec, **told)
            against = [line for session, found in seen for cause in found for line in _against(session, cause)]
    finally:
        faults.causes = inner
    return [fault.cause for fault in report.faults if fault.cause], against


def _against(session: Any, cause: Any) -> Iterator[str]:
    """Yield the inputs at which the function is not what the first mistakes of a sure cause give."""
    if not cause.sure:
        return
    rng = np.random.default_rng(SEED)
    for sizes in SIZES:
        wanted = dict(zip(("n_q", "n_k", "d_k", "d_v"), sizes, strict=True))
        for inputs in session.subject.source.sized(session, wanted, rng):
            if inputs is None or not session.subject.source.fits(session, inputs):
                continue
            judged = cause.search.seen(session.run_case(Case("audit", "", inputs)))
            for mistake in cause.mistakes[:3]:
                if cause.search.gives(mistake) and mistake.exact and _differs(cause, judged, mistake):
                    yield f"“{mistake.cause}”: not at {session.subject.source.sizes(judged)}"


def _differs(cause: Any, judged: Any, mistake: Any) -> bool:
    """Return whether y is far from the mistake's output o_m: Σ (y − o_m)² > ``PART`` of Σ (y − o)² or Σ (o_m − o)², of
    entries in which the function or the mistake is further than the bound from the right output o."""
    if getattr(mistake, "around", ()):
        return False
    made = mistake.where is None or mistake.where.holds(judged)
    outputs = cause.search.outputs(judged, mistake) if made else [part.expected.near for part in judged.parts]
    if outputs is None:
        return False
    left = of_function = of_mistake = 0.0
    for part, wrong in cause.search.meant(judged, outputs):
        if part.got is None or part.got.shape != wrong.shape or part.expected.allowed.shape != wrong.shape:
            return part.got is not None and part.got.shape != wrong.shape
        right, allowed = part.expected.near, part.expected.allowed
        finite = np.isfinite(part.got) & np.isfinite(wrong) & np.isfinite(right) & np.isfinite(allowed)
        e, d = (np.where(finite, y - right, 0.0) for y in (part.got, wrong))
        far = finite & ((np.abs(e) > allowed) | (np.abs(d) > allowed))
        left += float(((e - d)[far] ** 2).sum())
        of_function += float((e[far] ** 2).sum())
        of_mistake += float((d[far] ** 2).sum())
    return left > PART * max(of_function, of_mistake)


def main(pattern: str = "*", most: str = "10") -> int:
    """Audit wrong programs of the collection; 1 if an input contradicts a cause."""
    from tests.faults.collection.entries import Wrong
    from tests.faults.collection.every import chosen

    every = [e for e in chosen(pattern) if isinstance(e, Wrong) and not e.torch]
    contradicted = 0
    for entry in every[: int(most)]:
        told = {"precision": entry.arithmetic, "domain": entry.domain}
        causes, against = audited(entry.program, entry.spec, **told)
        contradicted += bool(against)
        print(f"{entry.name}: {'; '.join(causes) or 'no cause'}", *against, sep="\n    ", flush=True)
    return int(contradicted > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

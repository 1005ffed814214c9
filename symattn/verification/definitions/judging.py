"""The exact outputs of a definition, what is allowed about them, and whether a call or a mistake gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import flint
import numpy as np

from symattn.arrays.precision import Precision
from symattn.arrays.rounded import Rounded, rounded
from symattn.arrays.special import Undefined
from symattn.bounds.case_result import Case, CaseResult, Expected, compared, matches
from symattn.bounds.reference import lifted
from symattn.bounds.target import Inputs, Outcome
from symattn.document.errors import SymattnError, Undecided

if TYPE_CHECKING:
    from symattn.verification.definitions.subject import Compute, Definition, Mistake


@dataclass(frozen=True)
class Entries(Expected):
    """An output by its exact entries, in balls, and how far a legal implementation may be from each."""

    exact: np.ndarray
    allowed: np.ndarray

    @property
    def entries(self) -> np.ndarray:
        """The exact entries: balls, and undefined ones."""
        return self.exact

    def widened(self, allowed: np.ndarray) -> Entries:
        """The same output, where so much is allowed."""
        return replace(self, allowed=allowed)


def expected(subject: Definition, inputs: Inputs, precision: Precision, ways: Sequence[Compute]) -> tuple[Entries, ...]:
    """The outputs by these ways, and the largest of their bounds; +∞ where one of them says nothing."""
    runs = [outputs(subject, inputs, precision, way) for way in ways]
    found = []
    for alike in zip(*runs, strict=True):
        allowed = np.maximum.reduce([y.bound for y in alike])
        found.append(Entries(alike[0].value.entries, allowed))
    return tuple(found)


def outputs(subject: Definition, inputs: Inputs, precision: Precision, way: Compute) -> tuple[Rounded, ...]:
    """One way on the kind ``rounded``."""
    kind = rounded(precision)
    return subject.run(way, {name: lifted(np.asarray(a), kind) for name, a in inputs.items()})


def judge(subject: Definition, precision: Precision, case: Case, outcome: Outcome, whole: bool = False) -> CaseResult:
    """Compare what the function gave with what is legal.

    What is within the bound of the first way is legal; the other ways are run where it is not, or for the ``whole``.
    """
    loose = [k for k, name in enumerate(subject.outputs) if name in subject.loose]

    def beside(right: Sequence[Expected]) -> CaseResult:
        return compared(case, outcome, right, precision, loose, subject.changes)

    try:
        first = expected(subject, case.inputs, precision, subject.ways[:1])
        found = beside(first)
        if len(subject.ways) == 1 or (not whole and found.finding not in ("values", "not finite")):
            return replace(found, whole=len(subject.ways) == 1)
        rest = expected(subject, case.inputs, precision, subject.ways[1:])
    except Undecided:
        return replace(beside(_unsaid(subject, case.inputs)), undecided=True)
    return beside([a.widened(np.maximum(a.allowed, b.allowed)) for a, b in zip(first, rest, strict=True)])


def _unsaid(subject: Definition, inputs: Inputs) -> list[Entries]:
    """Where a comparison depends on rounding: any numbers are legal; shapes are those in float64."""
    arrays = {n: a if a.dtype.kind in "biu" else a.astype(np.float64) for n, a in inputs.items()}
    with np.errstate(all="ignore"):
        found = [np.asarray(y, dtype=np.float64) for y in subject.run(subject.ways[0], arrays)]
    ball = np.frompyfunc(lambda x: flint.arb(float(x)) if np.isfinite(x) else Undefined("it is open"), 1, 1)
    return [Entries(np.asarray(ball(y), dtype=object), np.full(y.shape, np.inf)) for y in found]


def explains(
    subject: Definition, precision: Precision, judged: CaseResult, mistake: Mistake, among: frozenset[int] | None = None
) -> bool | None:
    """Whether a mistake gives what the function gave, in all outputs or those ``among``; None where one cannot tell.

    That is where the right definition may give it too, or where the mistake cannot be computed or bounded.
    """
    try:
        wrong = expected(subject, judged.case.inputs, precision, [mistake.run])
    except (Undecided, KeyError):
        return None
    except (SymattnError, ValueError, IndexError, TypeError, ZeroDivisionError):
        return judged.finding == "raises" or None if judged.outcome.error else False
    if judged.outcome.output is None:
        return None if judged.outcome.error else False
    answers = [_given(judged, mistake, wrong, k) for k in range(len(wrong)) if among is None or k in among]
    return False if False in answers else True if True in answers else None


def _given(judged: CaseResult, mistake: Mistake, wrong: Sequence[Entries], k: int) -> bool | None:
    """For one output. A mistake is computed in one way alone; what the other ways may err is that of the definition."""
    part, allowed = judged.parts[k], wrong[k].allowed
    if part.expected.allowed.shape == allowed.shape:
        allowed = np.maximum(allowed, np.where(np.isfinite(part.expected.allowed), part.expected.allowed, 0))
    told = np.isfinite(allowed)
    if part.got is not None and part.got.shape == allowed.shape:  # of x/0, which is undefined, code makes infinity
        told &= ~(np.isinf(part.got) & np.isnan(wrong[k].near))
    return matches(part, wrong[k].widened(allowed), told, mistake.exact)


def coarser(subject: Definition, precision: Precision, wrong: Sequence[CaseResult]) -> str:
    """The widest format narrower than the inputs' whose arithmetic could make these errors; empty where none could.

    Before these comes the inputs' own format, where it holds every array in between, if that is not allowed: there
    numbers may overflow, so that at such inputs the bound does not tell.
    """
    eager = Precision.of(precision.input.name)
    narrower = precision.contract == "fused" and eager.contract == "eager"
    if narrower and all(_could(subject, eager, judged, False) for judged in wrong):
        return f"all-{eager.name}"
    for name in ("float32", "float16", "bfloat16"):
        narrow = Precision.of(name)
        if narrow.input.u > precision.input.u and all(_could(subject, narrow, judged) for judged in wrong):
            return name
    return ""


def _could(subject: Definition, narrow: Precision, judged: CaseResult, telling: bool = True) -> bool:
    if judged.ratios is None:
        return False
    try:
        bounds = expected(subject, judged.case.inputs, narrow, subject.ways)
    except Undecided:  # rounding that rough could change which numbers are compared at all
        return False
    sharp = not telling or all(bool(b.decisive().any()) for b in bounds)
    got = [part.got for part in judged.parts]
    return sharp and all(a is not None and bool((b.ratios(a) <= 1).all()) for a, b in zip(got, bounds, strict=True))

"""One call of a definition, judged: is every array that came back within what is legal?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.precision import Precision
from symattn.arrays.rounded import Rounded, rounded
from symattn.errors import SymattnError, Undecided
from symattn.verification.definitions.subject import Compute, Inputs, Mistake, Subject
from symattn.verification.judge import Case, Finding, distance, holds, middles, ratio
from symattn.verification.reference import lifted
from symattn.verification.target import Outcome


@dataclass(frozen=True)
class Expected:
    """One output: its exact entries, in balls, and how far a legal implementation may be from each."""

    entries: np.ndarray
    allowed: np.ndarray

    def ratios(self, got: np.ndarray) -> np.ndarray:
        """|got − exact| / allowed: above 1 exactly where no legal implementation gives ``got``."""
        return np.asarray(np.frompyfunc(ratio, 3, 1)(got, self.entries, self.allowed), dtype=np.float64)

    @cached_property
    def near(self) -> np.ndarray:
        """The exact entries as float64; NaN where they are no numbers."""
        return middles(self.entries)

    @property
    def decisive(self) -> bool:
        """Whether some entry could have shown a fault: less is allowed than the largest entry."""
        sizes = np.abs(self.near[np.isfinite(self.near)])
        return bool((self.allowed < max(float(sizes.max(initial=0.0)), 1e-300)).any())


def expected(subject: Subject, inputs: Inputs, precision: Precision, ways: Sequence[Compute]) -> tuple[Expected, ...]:
    """The outputs by these ways, and the largest of their bounds; +∞ where one of them says nothing."""
    runs = [outputs(subject, inputs, precision, way) for way in ways]
    found = []
    for alike in zip(*runs, strict=True):
        allowed = np.maximum.reduce([y.bound for y in alike])
        found.append(Expected(alike[0].value.entries, allowed))
    return tuple(found)


def outputs(subject: Subject, inputs: Inputs, precision: Precision, way: Compute) -> tuple[Rounded, ...]:
    """One way on the kind ``rounded``."""
    kind = rounded(precision)
    return subject.run(way, {name: lifted(np.asarray(a), kind) for name, a in inputs.items()})


@dataclass(frozen=True, eq=False)
class Judged:
    """A case, what the function gave, and what is wrong with it (None: nothing); ``ratios``, one array an output."""

    case: Case
    outcome: Outcome
    expected: tuple[Expected, ...]
    finding: Finding | None
    ratios: tuple[np.ndarray, ...] = ()
    whole: bool = True  # whether what is allowed is the largest bound of all ways, and not that of the first alone

    @property
    def got(self) -> tuple[np.ndarray | None, ...]:
        """The arrays that were returned."""
        return (self.outcome.output, *self.outcome.others)

    @property
    def worst(self) -> float:
        """The largest ratio; 0 where no values could be compared."""
        return max((float(r.max(initial=0.0)) for r in self.ratios), default=0.0)

    @property
    def where(self) -> tuple[int, tuple[int, ...]]:
        """The output, and the index of its worst entry."""
        of = max(range(len(self.ratios)), key=lambda k: float(self.ratios[k].max(initial=0.0)))
        return of, tuple(int(i) for i in np.unravel_index(int(self.ratios[of].argmax()), self.ratios[of].shape))

    @property
    def wrong(self) -> frozenset[int]:
        """The outputs with entries that no legal implementation gives."""
        return frozenset(k for k, r in enumerate(self.ratios) if (r > 1).any())


def judge(subject: Subject, precision: Precision, case: Case, outcome: Outcome, whole: bool = False) -> Judged:
    """Compare what the function gave with what is legal.

    What is within the bound of the first way is legal; the other ways are run where it is not, or for the ``whole``.
    """
    first = expected(subject, case.inputs, precision, subject.ways[:1])
    found = _judged(subject, precision, case, outcome, first)
    if len(subject.ways) == 1 or (not whole and found.finding not in ("values", "not finite")):
        return replace(found, whole=len(subject.ways) == 1)
    rest = expected(subject, case.inputs, precision, subject.ways[1:])
    widest = [Expected(a.entries, np.maximum(a.allowed, b.allowed)) for a, b in zip(first, rest, strict=True)]
    return _judged(subject, precision, case, outcome, tuple(widest))


def _judged(
    subject: Subject, precision: Precision, case: Case, outcome: Outcome, right: tuple[Expected, ...]
) -> Judged:
    if outcome.error is not None or outcome.output is None:
        return Judged(case, outcome, right, "raises")
    outcome = _fitted(subject, outcome, right)
    got = (outcome.output, *outcome.others)[: len(right)]
    if len(got) < len(right) or any(a is None or a.shape != e.entries.shape for a, e in zip(got, right, strict=True)):
        return Judged(case, outcome, right, "shape")
    right = tuple(_stored_as(e, outcome.dtype, precision) for e in right)
    ratios = tuple(e.ratios(a) for a, e in zip(got, right, strict=True) if a is not None)
    return Judged(case, outcome, right, _finding(subject, ratios, got, outcome, precision), ratios)


def _fitted(subject: Subject, outcome: Outcome, right: Sequence[Expected]) -> Outcome:
    """Loose outputs with the axes of length 1 that are expected."""
    got = [outcome.output, *outcome.others]
    for k, (name, e) in enumerate(zip(subject.outputs, right, strict=True)):
        a = got[k] if k < len(got) else None
        if a is not None and name in subject.loose and _squeezed(a.shape) == _squeezed(e.entries.shape):
            got[k] = a.reshape(e.entries.shape)
    return replace(outcome, output=got[0], others=tuple(got[1:]))


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _stored_as(right: Expected, dtype: str, precision: Precision) -> Expected:
    """What is allowed where a narrower type was returned: that is a fault of its own, and is not blamed on values."""
    if dtype not in FORMATS or holds(dtype, precision.input):
        return right
    f = Format(dtype)
    more = 2 * float(f.u) * (np.abs(np.nan_to_num(right.near)) + right.allowed) + float(f.eta)
    return Expected(right.entries, (right.allowed + more) * (1 + 2.0**-40))


def _finding(
    subject: Subject, ratios: Sequence[np.ndarray], got: Sequence[Any], outcome: Outcome, precision: Precision
) -> Finding | None:
    beyond = [r > 1 for r in ratios]
    if any(b.any() for b in beyond):
        lost = all(
            np.isinf(r[b]).all() and not np.isfinite(a[b]).any() for r, b, a in zip(ratios, beyond, got, strict=True)
        )
        return "not finite" if lost else "values"
    if not holds(outcome.dtype, precision.input):
        return "dtype"
    if set(outcome.mutated) - subject.changes:
        return "mutates"
    return "overwrites" if outcome.overwrote else None


def explains(
    subject: Subject, precision: Precision, judged: Judged, mistake: Mistake, among: frozenset[int] | None = None
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
        return None if judged.finding == "raises" else False
    answers = [_compared(judged, mistake, wrong, k) for k in range(len(wrong)) if among is None or k in among]
    return False if False in answers else True if True in answers else None


def _compared(judged: Judged, mistake: Mistake, wrong: Sequence[Expected], k: int) -> bool | None:
    """For one output. A mistake is computed in one way alone; what the other ways may err is that of the definition."""
    got, right = judged.got[k] if k < len(judged.got) else None, judged.expected[k]
    if got is None or got.shape != wrong[k].entries.shape:
        return False
    allowed = wrong[k].allowed
    if right.allowed.shape == allowed.shape:
        allowed = np.maximum(allowed, np.where(np.isfinite(right.allowed), right.allowed, 0))
    found = Expected(wrong[k].entries, allowed)
    told = np.isfinite(allowed)
    if (np.where(told, found.ratios(got), 0.0) > 1).any():
        return False
    if not judged.ratios:  # a wrong shape, and the mistake has the same
        return True if told.any() else None
    off = (judged.ratios[k] > 1) & told
    if not mistake.exact:
        return True if off.any() else None
    apart = np.frompyfunc(distance, 2, 1)(right.entries, found.entries).astype(np.float64)
    return True if (off & (apart > allowed)).any() else None

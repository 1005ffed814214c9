"""Two functions on the same inputs: both are judged by the one bound, and held against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import SymattnError
from symattn.verification.engine import Session
from symattn.verification.report import Fault

CASES = 200  # that both get
_LEAST = float(np.finfo(np.float64).smallest_subnormal)  # of what differs, where anything is allowed
_KEPT = 4096  # entries of the inputs of a place, beyond which they are not written into a report


@dataclass(frozen=True)
class SideEntry:
    """The entry of one side at a place, and its distance from the exact one in parts of the bound."""

    got: float
    ratio: float

    RECORD = "got, error / allowed = ratio"


@dataclass(frozen=True)
class DifferingEntry:
    """One entry of one output, for inputs that both got: the exact entry, what is allowed, and what each side gives."""

    case: str
    output: str
    index: tuple[int, ...]
    exact: float
    allowed: float
    first: SideEntry
    second: SideEntry
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def at(self) -> tuple[object, ...]:
        """Which entry it is."""
        return self.case, self.output, self.index

    @property
    def apart(self) -> float:
        """|first − second| in parts of what one of them is allowed: of two legal ones it is at most 2."""
        return float(difference(np.array(self.first.got), np.array(self.second.got), np.array(self.allowed)))

    RECORD = "case, output, index, exact, allowed, first, second, difference / allowed = apart, inputs"


@dataclass(frozen=True)
class JointRun:
    """Both sides on the same inputs.

    cases    how many both gave numbers for
    equal    how many of these are equal; 0 and −0 are, and so are two NaNs
    wrong    of each side, how many calls are none that an implementation may give
    apart    the largest |first − second| in parts of what is allowed, of all entries
    first    the first place at which they differ (None: nowhere)
    worst    the place at which they differ most, in these parts
    faulty   the first place at which a side is beyond its bound (None: nowhere)
    unlike   of two traces, the first input that they do not have in common; empty where there is none
    """

    cases: int = 0
    equal: int = 0
    wrong: tuple[int, int] = (0, 0)
    first: DifferingEntry | None = None
    worst: DifferingEntry | None = None
    faulty: DifferingEntry | None = None
    unlike: str = ""

    @property
    def apart(self) -> float:
        """The largest difference in parts of what is allowed."""
        return self.worst.apart if self.worst else 0.0

    RECORD = "cases, equal, wrong, first, worst, faulty"


@one_blas_thread
def together(sides: tuple[Session, Session], faults: Sequence[Fault] = (), most: int = CASES) -> JointRun:
    """Call both with the smallest inputs of ``faults``, with probes and with inputs at random, and judge both.

    At most so many inputs are tried. Those that one of the two cannot be given, or raises on, are left out: of these
    the sides' own reports tell.
    """
    result = JointRun()
    for case in islice(_cases(sides, faults), most):
        if any(side.over or not side.admits(case) for side in sides):
            continue
        judged = _judged(sides, case)
        if judged is not None:
            result = _joined(result, sides[0].subject.outputs, *judged)
    return result


def _cases(sides: tuple[Session, Session], faults: Sequence[Fault]) -> Iterator[Case]:
    """The counterexamples, then some of each group of the first, then what is drawn at random.

    They are made for the side that asks for fewer axes: those that the other wants besides have length 1.
    """
    for fault in faults:
        example = fault.counterexample
        if example is not None and example.index:
            yield Case("counterexample", "the smallest input that shows a fault", _arrays(example.inputs))
    heads = {id(side): int(getattr(getattr(side.subject, "spec", None), "heads", 1)) for side in sides}
    fewer = min(sides, key=lambda side: side.runner.convention.batch_axes(heads[id(side)]))
    rng = np.random.default_rng(fewer.seed)
    for group in fewer.subject.first().values():
        yield from islice(group(fewer, rng), 12)
    yield from fewer.subject.drawn(fewer, fewer.examples)


def _arrays(inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    result = {name: np.asarray(values) for name, values in inputs.items()}
    return {n: a if a.dtype.kind == "b" or n.startswith(("doc", "positions")) else a.astype(float)
            for n, a in result.items()}  # fmt: skip


def _judged(sides: tuple[Session, Session], case: Case) -> tuple[CaseResult, CaseResult] | None:
    """Both judged; None where one of them gives no numbers of the right shape."""
    try:
        first, second = (side.run_case(case) for side in sides)
    except (SymattnError, IndexError, ValueError):  # the side cannot be given what the other takes
        return None
    numbers = all(part.ratios is not None for judged in (first, second) for part in judged.parts)
    return (first, second) if numbers else None


def _joined(found: JointRun, outputs: Sequence[str], first: CaseResult, second: CaseResult) -> JointRun:
    """Add one more case."""
    one, other = found.wrong
    wrong = (one + (first.finding is not None), other + (second.finding is not None))
    most = _place(outputs, first, second, "apart")
    differ = most is not None
    faulty = _place(outputs, first, second, "ratio") if not found.faulty and (first.wrong or second.wrong) else None
    return JointRun(
        found.cases + 1,
        found.equal + (not differ),
        wrong,
        found.first or (_place(outputs, first, second, "first") if differ else None),
        most if most and (found.worst is None or most.apart > found.worst.apart) else found.worst,
        found.faulty or faulty,
    )


def _place(outputs: Sequence[str], first: CaseResult, second: CaseResult, by: str) -> DifferingEntry | None:
    """The place with the largest difference (``apart``) or error (``ratio``), or the ``first`` that differs."""
    best: tuple[float, int, tuple[int, ...]] | None = None
    for k, (a, b) in enumerate(zip(first.parts, second.parts, strict=True)):
        assert a.got is not None
        assert b.got is not None
        assert a.ratios is not None
        assert b.ratios is not None
        limits = a.expected.allowed
        apart = difference(a.got, b.got, limits)
        size = (
            np.maximum(a.ratios, b.ratios) if by == "ratio" else (apart > 0).astype(float) if by == "first" else apart
        )
        if size.size and size.max() > (best[0] if best else 0.0):
            at = np.unravel_index(int(size.argmax()), size.shape)
            best = float(size.max()), k, tuple(map(int, at))
    if best is None:
        return None
    return _at(outputs, first, second, *best[1:])


def _at(outputs: Sequence[str], first: CaseResult, second: CaseResult, of: int, at: tuple[int, ...]) -> DifferingEntry:
    a, b = first.parts[of], second.parts[of]
    assert a.got is not None
    assert b.got is not None
    assert a.ratios is not None
    assert b.ratios is not None
    inputs = {n: np.asarray(x).tolist() for n, x in first.case.inputs.items()} if first.case.size <= _KEPT else {}
    name = f"{first.case.group}: {first.case.name}"
    return DifferingEntry(
        name, outputs[of], at, float(a.expected.near[at]), float(a.expected.allowed[at]),
        SideEntry(float(a.got[at]), float(a.ratios[at])), SideEntry(float(b.got[at]), float(b.ratios[at])), inputs,
    )  # fmt: skip


def difference(a: np.ndarray, b: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """|a − b| / limits; 0 where both are the same, NaN among them, and +∞ where one alone is no number."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        off = np.abs(a - b) / limits
    return np.where(same, 0.0, np.where(np.isnan(off), np.inf, np.maximum(off, _LEAST)))

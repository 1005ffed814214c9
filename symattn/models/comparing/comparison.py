"""Run two functions on the same inputs, judge both by the bound, and compare them with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from typing import Any

import numpy as np

from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.threads import one_blas_thread
from symattn.document.codec import record
from symattn.document.errors import SymattnError
from symattn.document.evidence import Grade, Verdict
from symattn.document.model import (
    Block,
    Code,
    Document,
    Heading,
    Listing,
    Note,
    Paragraph,
    Table,
    headers,
)
from symattn.document.printable import WithVerdict
from symattn.document.text import assignment
from symattn.verification.engine import Session
from symattn.verification.report import Fault, Report
from symattn.verification.report_document import sentence, typeset

CASES = 200  # most inputs on which both run
# least difference, even if the bound is infinite
_LEAST = float(np.finfo(np.float64).smallest_subnormal)
_KEPT = 4096  # most entries of inputs that are written into a report


@dataclass(frozen=True)
class SideEntry:
    """The entry of one side at a place, and its error relative to the bound."""

    got: float
    ratio: float

    RECORD = "got, error / allowed = ratio"


@dataclass(frozen=True)
class DifferingEntry:
    """An entry of an output for the same inputs: the exact entry, the allowed error, and the entry of each side."""

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
        """The case, the output and the index of the entry."""
        return self.case, self.output, self.index

    @property
    def apart(self) -> float:
        """|first − second| / allowed error; at most 2 for two legal outputs."""
        first = np.array(self.first.got)
        second = np.array(self.second.got)
        return float(difference(first, second, np.array(self.allowed)))

    RECORD = (
        "case, output, index, exact, allowed, first, second, difference / allowed = apart, inputs"
    )


@dataclass(frozen=True)
class JointRun:
    """Both sides on the same inputs.

    cases    number of inputs for which both returned numbers
    equal    number of these with equal outputs; 0 equals −0, and NaN equals NaN
    wrong    for each side, the number of calls that no implementation may return
    apart    the largest |first − second| / allowed error of all entries
    first    the first place at which they differ, or None
    worst    the place at which they differ most, relative to the allowed error
    faulty   the first place at which a side exceeds its bound, or None
    unlike   for two traces, the first input in which they differ, or ""
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
        """The largest difference relative to the allowed error."""
        return self.worst.apart if self.worst else 0.0

    def joined(
        self,
        first: DifferingEntry | None,
        most: DifferingEntry | None,
        equal: bool,
        wrong: tuple[bool, bool] = (False, False),
        faulty: DifferingEntry | None = None,
    ) -> JointRun:
        """Return the run with one more case: where both differ first and most in it, and whether they are equal."""
        further = most is not None and (self.worst is None or most.apart > self.worst.apart)
        return replace(
            self,
            cases=self.cases + 1,
            equal=self.equal + equal,
            first=self.first or first,
            wrong=(self.wrong[0] + wrong[0], self.wrong[1] + wrong[1]),
            worst=most if further else self.worst,
            faulty=self.faulty or faulty,
        )

    RECORD = "cases, equal, wrong, first, worst, faulty"


@one_blas_thread
def together(
    sides: tuple[Session, Session], faults: Sequence[Fault] = (), most: int = CASES
) -> JointRun:
    """Call both with the smallest inputs of ``faults``, with probes and with random inputs, and judge both.

    At most ``most`` inputs are tried. Inputs that one of the two does not take, or raises on, are left out: the sides'
    own reports cover them.
    """
    result = JointRun()
    for case in islice(_yield_comparison_cases(sides, faults), most):
        # Both sides must take the case, or the outputs would belong to different inputs.
        if any(side.over or not side.admits(case) for side in sides):
            continue
        judged = _judge_case_of_sides(sides, case)
        if judged is None:
            continue
        entry = partial(_select_differing_entry, sides[0].subject.outputs, *judged)
        furthest, wrong = entry("apart"), any(one.wrong for one in judged)
        findings = (judged[0].finding is not None, judged[1].finding is not None)
        # The first place beyond a bound is enough.
        faulty = entry("ratio") if wrong and not result.faulty else None
        result = result.joined(
            result.first or (entry("first") if furthest else None),
            furthest,
            furthest is None,
            findings,
            faulty,
        )
    return result


def _yield_comparison_cases(
    sides: tuple[Session, Session], faults: Sequence[Fault]
) -> Iterator[Case]:
    """Yield the counterexamples, then some of each group of first cases, then random inputs.

    They are made for the side that takes fewer axes: the other side's further axes have length 1.
    """
    for fault in faults:
        example = fault.counterexample
        # A counterexample without an index shows an error, which the report of its side covers.
        if example is not None and example.index:
            yield Case(
                "counterexample",
                "the smallest input that shows a fault",
                _convert_example_to_arrays(example.inputs),
            )

    def count_axes(side: Session) -> int:
        axes: int = side.runner.convention.batch_axes(side.subject.flow.counted_heads)
        return axes

    fewer = min(sides, key=count_axes)
    rng = np.random.default_rng(fewer.seed)
    for group in fewer.subject.source.first().values():
        # Some cases of each group, so that all groups fit into the limit.
        yield from islice(group(fewer, rng), 12)
    yield from fewer.subject.source.drawn(fewer, fewer.examples)


def _convert_example_to_arrays(inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    result = {name: np.asarray(values) for name, values in inputs.items()}
    return {
        n: a if a.dtype.kind == "b" or n.startswith(("doc", "positions")) else a.astype(float)
        for n, a in result.items()
    }


def _judge_case_of_sides(
    sides: tuple[Session, Session], case: Case
) -> tuple[CaseResult, CaseResult] | None:
    """Return both results, or None if one side returns no numbers of the right shape."""
    try:
        first, second = (side.run_case(case) for side in sides)
    except (SymattnError, IndexError, ValueError):  # a side does not take inputs of the other
        return None
    numbers = all(part.ratios is not None for judged in (first, second) for part in judged.parts)
    return (first, second) if numbers else None


def _select_differing_entry(
    outputs: Sequence[str], first: CaseResult, second: CaseResult, by: str
) -> DifferingEntry | None:
    """Return the entry with the largest difference (``apart``) or error (``ratio``), or the ``first`` that differs."""
    inputs = (
        {n: np.asarray(x).tolist() for n, x in first.case.inputs.items()}
        if first.case.size <= _KEPT
        else {}
    )
    result, largest = None, 0.0
    # Outputs are compared one by one; the entry is the largest over all.
    for output, a, b in zip(outputs, first.parts, second.parts, strict=False):
        pairs = [
            (part.got, part.ratios)
            for part in (a, b)
            if part.got is not None and part.ratios is not None
        ]
        (mine, my_ratios), (theirs, their_ratios) = pairs
        apart = difference(mine, theirs, a.expected.allowed)
        size = {
            "ratio": np.maximum(my_ratios, their_ratios),
            "first": (apart > 0).astype(float),
        }.get(by, apart)
        # Only a larger one replaces the entry so far.
        if not size.size or size.max() <= largest:
            continue
        largest = float(size.max())
        at = tuple(map(int, np.unravel_index(int(size.argmax()), size.shape)))
        one, other = (SideEntry(float(got[at]), float(ratios[at])) for got, ratios in pairs)
        near = float(a.expected.near[at])
        allowed = float(a.expected.allowed[at])
        case = f"{first.case.group}: {first.case.name}"
        result = DifferingEntry(case, output, at, near, allowed, one, other, inputs)
    return result


def difference(a: np.ndarray, b: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return |a − b| / limits; 0 where both are equal or both NaN, and +∞ where only one is NaN."""
    with np.errstate(all="ignore"):
        off = np.abs(a - b) / limits
    distance = np.where(np.isnan(off), np.inf, np.maximum(off, _LEAST))
    return np.where(differing(a, b), distance, 0.0)


def differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return where two outputs differ; two NaNs are equal."""
    both_nan = np.isnan(a) & np.isnan(b)
    return np.asarray(~((a == b) | both_nan))


# -- ``Comparison``: which of two is wrong, as a document --------------------------------------------------------------
NAMES = ("first", "second")
_SHOWN = 400  # most characters of an array


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side: its name, and its report."""

    name: str
    report: Report

    @property
    def worst(self) -> float:
        """The largest error of all cases, relative to the allowed error."""
        return max((check.worst_ratio for check in self.report.checks), default=0.0)

    RECORD = (
        "target = report.target, verdict = report.verdict, worst_ratio = worst, grade = report.grade.grade, "
        "faults = report.faults, missing = report.missing, notes = report.notes"
    )


@dataclass(frozen=True, repr=False)
class Comparison(WithVerdict):
    """The result of ``compare``: the report on each side, and both on the same inputs.

    ``exit_code`` is 1 if a side is wrong, 3 if none is wrong and a side is undecided, else 0: then the two differ by
    rounding alone on the inputs tried, or not at all. It prints as text, and has the formats of a document.
    """

    first: ComparedSide
    second: ComparedSide
    together: JointRun
    command: str = ""
    notes: tuple[str, ...] = ()

    @property
    def sides(self) -> tuple[ComparedSide, ComparedSide]:
        """Both sides."""
        return self.first, self.second

    @property
    def wrong(self) -> tuple[str, ...]:
        """The wrong sides: ``first``, ``second``, both or none."""
        result = zip(NAMES, self.sides, self.together.wrong, strict=True)
        return tuple(
            name for name, side, cases in result if side.report.verdict is Verdict.FAULT or cases
        )

    @property
    def verdict(self) -> Verdict:
        """A fault if a side has one; no fault if both have none, and returned numbers for the same inputs."""
        if self.wrong:
            return Verdict.FAULT
        no_fault = all(side.report.verdict is Verdict.NO_FAULT for side in self.sides)
        return Verdict.NO_FAULT if no_fault and self.together.cases else Verdict.UNDECIDED

    @property
    def words(self) -> str:
        """The result in a sentence."""
        if self.wrong:
            right = [name for name in NAMES if name not in self.wrong]
            if not right:
                return "Both are wrong"
            # A side may be undecided where no fault was shown.
            other = self.sides[NAMES.index(right[0])].report.verdict
            rest = "has no fault" if other is Verdict.NO_FAULT else "is undecided"
            return f"The {self.wrong[0]} is wrong, the {right[0]} {rest}"
        if self.verdict is Verdict.UNDECIDED:
            why = "see what a verdict needs" if self.together.cases else "no inputs go to both"
            return f"Undecided: {'the files do not hold the same inputs' if self.together.unlike else why}"
        same = self.together.equal == self.together.cases
        return "Both have no fault, and " + (
            "they are equal" if same else "they differ by rounding alone"
        )

    def __repr__(self) -> str:
        return self._make_brief_repr(f"comparison: {self.words}")

    def document(self) -> Document:
        """Return the comparison as a document."""
        blocks: list[Block] = [
            self._tabulate_compared_sides(),
            *self._describe_faults_of_sides(),
            *self._describe_output_differences(),
        ]
        blocks += [
            Note((f"Undecided. {words}.",))
            for s in self.sides
            for words in s.report.missing
            if not self.wrong
        ]
        details: list[Block] = [
            Note((f"The {name} is called as ", Code(side.report.target)))
            for name, side in self._sides_with_names
            if side.report.target not in side.name
        ]
        wrong = (side.report.notes for name, side in self._sides_with_names if name in self.wrong)
        details += [
            Note((note,))
            for note in dict.fromkeys(note for notes in (self.notes, *wrong) for note in notes)
        ]
        return Document(
            "verification",
            "compare",
            ("Comparison of ", Code(self.first.name), " and ", Code(self.second.name)),
            (*blocks, *details),
            brief=tuple(blocks) if details else (),
            option="-v",
            subtitle=(self.first.report.precision.partition(",")[0],),
            command=self.command,
            parameters={name: side.name for name, side in self._sides_with_names},
            record=record(
                {
                    "wrong": self.wrong,
                    "words": self.words,
                    "grade": self._grade_of_comparison,
                    "together": self.together,
                    "sides": dict(self._sides_with_names),
                }
            ),
            verdict=self.verdict,
            reason=(self.words[:1].lower() + self.words[1:],),
            hints=("-v prints how both were called, and notes",) if details else (),
        )

    @property
    def _sides_with_names(self) -> tuple[tuple[str, ComparedSide], ...]:
        return tuple(zip(NAMES, self.sides, strict=True))

    @property
    def _grade_of_comparison(self) -> Grade:
        refuted = any(self.together.wrong) or any(
            s.report.grade.grade is Grade.REFUTED for s in self.sides
        )
        grades = {
            Verdict.FAULT: Grade.REFUTED if refuted else Grade.SAMPLED,
            Verdict.NO_FAULT: Grade.SAMPLED,
        }
        return grades.get(self.verdict, Grade.UNDECIDED)

    def _tabulate_compared_sides(self) -> Table:
        columns = headers(
            "side", "verdict", "first wrong step", ">cases", ">error / allowed", "grade"
        )
        rows = []
        for name, side in self._sides_with_names:
            report = side.report
            step = report.faults[0].step if report.faults else ""
            rows.append(
                (
                    (name,),
                    (report.verdict.value,),
                    (step,),
                    (str(report.cases),),
                    (ratio(side.worst),),
                    (str(replace(report.grade, where="")),),
                )
            )
        return Table(columns, tuple(rows))

    def _describe_faults_of_sides(self) -> Iterator[Block]:
        for name, side in self._sides_with_names:
            for fault in side.report.faults:
                yield Heading((f"Fault of the {name}: {fault.step}",))
                yield Paragraph(typeset(sentence(fault.coded_message)))
                if fault.counterexample is not None and fault.counterexample.error is not None:
                    yield Paragraph((f"It gives: {fault.counterexample.error}.",))

    def _describe_output_differences(self) -> Iterator[Block]:
        joint_run = self.together
        if joint_run.unlike:  # as a note says
            return
        if not joint_run.cases:
            yield Note(
                (
                    "On no input did both return numbers of the right shape, so their outputs were not compared.",
                )
            )
            return
        yield Heading(("Both on the same inputs",))
        yield Paragraph((
            f"Equal outputs: {joint_run.equal} of {joint_run.cases}. The largest difference is "
            f"{ratio(joint_run.apart)} times the bound on the error of one implementation; two correct implementations "
            f"may differ by up to 2 times that bound. Grade: {self._grade_of_comparison.value}.",
        ))  # fmt: skip
        if joint_run.faulty is not None:
            yield from _describe_differing_entry(
                "The first place beyond the bound", joint_run.faulty
            )
        elif joint_run.worst is not None and joint_run.first is not None:
            yield from _describe_differing_entry(
                "The first place at which they differ", joint_run.first
            )
            if joint_run.worst.at != joint_run.first.at:
                yield from _describe_differing_entry(
                    "The place at which they differ most", joint_run.worst
                )


def _describe_differing_entry(title: str, place: DifferingEntry) -> Iterator[Block]:
    # Readers count from 1.
    index = ", ".join(str(i + 1) for i in place.index)
    yield Paragraph(
        (
            f"{title}: {place.output} {index}, exactly {place.exact:.9g}; {place.allowed:.2g} is allowed.",
        )
    )
    columns = headers("side", ">output", ">error / allowed")
    side_entries: tuple[SideEntry, SideEntry] = (place.first, place.second)
    rows = tuple(
        ((name,), (f"{g.got:.9g}",), (ratio(g.ratio),))
        for name, g in zip(NAMES, side_entries, strict=True)
    )
    yield Table(columns, rows)
    if place.inputs:
        yield Listing(
            "\n".join(
                assignment(name, _format_shortened_array(values))
                for name, values in place.inputs.items()
            )
        )


def _format_shortened_array(values: object) -> str:
    text = str(values).replace(".0,", ",").replace(".0]", "]")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def ratio(x: float) -> str:
    """Format a ratio with two digits."""
    return "not finite" if x == inf else f"{x:.2g}"

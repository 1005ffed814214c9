"""``Comparison``: which of two is wrong, as a document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from symattn.document.codec import record
from symattn.document.evidence import Grade, Verdict
from symattn.document.model import Block, Code, Column, Document, Heading, Listing, Note, Paragraph, Printable, Table
from symattn.models.comparing.joint_run import DifferingEntry, JointRun, SideEntry
from symattn.verification.report import Report
from symattn.verification.report_document import sentence, typeset

NAMES = ("first", "second")
_SHOWN = 400  # signs of an array


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One of the two: its name, and what verifying it found."""

    name: str
    report: Report

    @property
    def worst(self) -> float:
        """The largest error of all cases, in parts of what is allowed."""
        return max((check.worst_ratio for check in self.report.checks), default=0.0)

    RECORD = (
        "target = report.target, verdict = report.verdict, worst_ratio = worst, grade = report.grade.grade, "
        "faults = report.faults, missing = report.missing, notes = report.notes"
    )


@dataclass(frozen=True, repr=False)
class Comparison(Printable):
    """The answer of ``compare``: the report on each side, and what both give for the same inputs.

    ``exit_code`` is 1 where a side is wrong, 3 where nothing is wrong and a side is undecided, else 0: then the two
    differ by rounding alone on what was tried, or not at all. It prints as text, and has the forms of a document.
    """

    first: ComparedSide
    second: ComparedSide
    together: JointRun
    command: str = ""
    notes: tuple[str, ...] = ()

    @property
    def sides(self) -> tuple[ComparedSide, ComparedSide]:
        """Both."""
        return self.first, self.second

    @property
    def wrong(self) -> tuple[str, ...]:
        """Which of them is wrong: ``first``, ``second``, both or none."""
        result = zip(NAMES, self.sides, self.together.wrong, strict=True)
        return tuple(name for name, side, cases in result if side.report.verdict is Verdict.FAULT or cases)

    @property
    def verdict(self) -> Verdict:
        """A fault where a side has one; no fault where both have none, and gave numbers for the same inputs."""
        if self.wrong:
            return Verdict.FAULT
        no_fault = all(side.report.verdict is Verdict.NO_FAULT for side in self.sides)
        return Verdict.NO_FAULT if no_fault and self.together.cases else Verdict.UNDECIDED

    @property
    def exit_code(self) -> int:
        """0 no fault, 1 a fault, 3 undecided."""
        return self.verdict.exit_code

    @property
    def words(self) -> str:
        """The answer in a sentence."""
        if self.wrong:
            right = [name for name in NAMES if name not in self.wrong]
            if not right:
                return "Both are wrong"
            other = self.sides[NAMES.index(right[0])].report.verdict
            rest = "has no fault" if other is Verdict.NO_FAULT else "is undecided"
            return f"The {self.wrong[0]} is wrong, the {right[0]} {rest}"
        if self.verdict is Verdict.UNDECIDED:
            why = "see what a verdict needs" if self.together.cases else "no inputs go to both"
            return f"Undecided: {'the files do not hold the same inputs' if self.together.unlike else why}"
        same = self.together.equal == self.together.cases
        return "Both have no fault, and " + ("they are equal" if same else "they differ by rounding alone")

    def __repr__(self) -> str:
        return self._brief(f"comparison: {self.words}")

    def document(self) -> Document:
        """The comparison for a reader."""
        blocks: list[Block] = [Paragraph((f"{self.words}.",)), self._table(), *self._faults(), *self._differences()]
        blocks += [Note((f"Undecided. {words}.",)) for s in self.sides for words in s.report.missing if not self.wrong]
        blocks += [
            Note((f"The {name} is called as ", Code(side.report.target)))
            for name, side in self._named
            if side.report.target not in side.name
        ]
        wrong = (side.report.notes for name, side in self._named if name in self.wrong)
        blocks += [Note((note,)) for note in dict.fromkeys(note for notes in (self.notes, *wrong) for note in notes)]
        return Document(
            "verification", "compare", ("Comparison of ", Code(self.first.name), " and ", Code(self.second.name)),
            tuple(blocks), subtitle=(self.first.report.precision.partition(",")[0],), command=self.command,
            parameters={name: side.name for name, side in self._named},
            record=record({
                "wrong": self.wrong,
                "words": self.words,
                "grade": self._grade,
                "together": self.together,
                "sides": dict(self._named),
            }),
            verdict=self.verdict,
        )  # fmt: skip

    @property
    def _named(self) -> tuple[tuple[str, ComparedSide], ...]:
        return tuple(zip(NAMES, self.sides, strict=True))

    @property
    def _grade(self) -> Grade:
        refuted = any(self.together.wrong) or any(s.report.grade.grade is Grade.REFUTED for s in self.sides)
        grades = {Verdict.FAULT: Grade.REFUTED if refuted else Grade.SAMPLED, Verdict.NO_FAULT: Grade.SAMPLED}
        return grades.get(self.verdict, Grade.UNDECIDED)

    def _table(self) -> Table:
        columns = (
            Column(("side",), "left"), Column(("verdict",), "left"), Column(("first wrong step",), "left"),
            Column(("cases",)), Column(("error / allowed",)), Column(("grade",), "left"),
        )  # fmt: skip
        rows = []
        for name, side in self._named:
            report = side.report
            step = report.faults[0].step if report.faults else ""
            rows.append(((name,), (report.verdict.value,), (step,), (str(report.cases),), (ratio(side.worst),),
                         (str(replace(report.grade, where="")),)))  # fmt: skip
        return Table(columns, tuple(rows))

    def _faults(self) -> Iterator[Block]:
        for name, side in self._named:
            for fault in side.report.faults:
                yield Heading((f"Fault of the {name}: {fault.step}",))
                yield Paragraph(typeset(sentence(fault.message)))
                if fault.counterexample is not None and fault.counterexample.error is not None:
                    yield Paragraph((f"It gives: {fault.counterexample.error}.",))

    def _differences(self) -> Iterator[Block]:
        joint_run = self.together
        if joint_run.unlike:  # as a note says
            return
        if not joint_run.cases:
            yield Note(("On no input did both return numbers of the right shape, so their outputs were not compared.",))
            return
        yield Heading(("Both on the same inputs",))
        yield Paragraph((
            f"Equal outputs: {joint_run.equal} of {joint_run.cases}. The largest difference is "
            f"{ratio(joint_run.apart)} times the bound on the error of one implementation; two correct implementations "
            f"may differ by up to 2 times that bound. Grade: {self._grade.value}.",
        ))  # fmt: skip
        if joint_run.faulty is not None:
            yield from _place("The first place beyond the bound", joint_run.faulty)
        elif joint_run.worst is not None and joint_run.first is not None:
            yield from _place("The first place at which they differ", joint_run.first)
            if joint_run.worst.at != joint_run.first.at:
                yield from _place("The place at which they differ most", joint_run.worst)


def _place(title: str, place: DifferingEntry) -> Iterator[Block]:
    index = ", ".join(str(i + 1) for i in place.index)
    yield Paragraph((f"{title}: {place.output} {index}, exactly {place.exact:.9g}; {place.allowed:.2g} is allowed.",))
    columns = (Column(("side",), "left"), Column(("output",)), Column(("error / allowed",)))
    side_entries: tuple[SideEntry, SideEntry] = (place.first, place.second)
    rows = tuple(((name,), (f"{g.got:.9g}",), (ratio(g.ratio),)) for name, g in zip(NAMES, side_entries, strict=True))
    yield Table(columns, rows)
    if place.inputs:
        yield Listing("\n".join(f"{name} = {_array(values)}" for name, values in place.inputs.items()))


def _array(values: object) -> str:
    text = str(values).replace(".0,", ",").replace(".0]", "]")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def ratio(x: float) -> str:
    """A number of two digits, as a reader sees it."""
    return "not finite" if x == inf else f"{x:.2g}"

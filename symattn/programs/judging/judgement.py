"""``Judgement``: the status of a candidate, with the evidence, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from symattn.document import model as md
from symattn.document.codec import record
from symattn.document.printable import Printable
from symattn.document.text import equal_sizes
from symattn.verification.codes import bracketed, code_of
from symattn.verification.repair import Repair
from symattn.verification.report import LargestSizes
from symattn.verification.report_document import describe_repairs

# Version of the form of the record, for its readers.
SCHEMA = 1


class Status(Enum):
    """The status of a candidate: what a gate does with it.

    >>> [(status.value, status.exit_code) for status in Status][:3]
    [('PASS', 0), ('PASS_WITH_LIMITS', 0), ('FAIL', 1)]
    """

    PASS = "PASS"
    PASS_WITH_LIMITS = "PASS_WITH_LIMITS"
    FAIL = "FAIL"
    UNDECIDED = "UNDECIDED"
    INVALID_REFERENCE = "INVALID_REFERENCE"
    TAMPERED = "TAMPERED"

    @property
    def means(self) -> str:
        """The meaning of the status, as docs/judge.md prints it."""
        return _MEANS[self]

    @property
    def exit_code(self) -> int:
        """The exit code: 0 it passes, 1 it does not, 2 there is nothing to judge by, 3 undecided."""
        return {"FAIL": 1, "TAMPERED": 1, "INVALID_REFERENCE": 2, "UNDECIDED": 3}.get(self.value, 0)


#: What docs/judge.md prints for each status.
_MEANS = {
    Status.PASS: "no fault was found, and a 1 % error in the numbers of any step would have been noticed",
    Status.PASS_WITH_LIMITS: "no fault was found; the limits name what could not have been noticed or was not tried",
    Status.FAIL: "an output is one that no correct implementation in this arithmetic gives, or the call breaks a rule",
    Status.UNDECIDED: "too little could be tried or decided; this never counts as a pass",
    Status.INVALID_REFERENCE: "the reference computes no known definition, so that nothing was judged",
    Status.TAMPERED: "the candidate acted against the judge; its outputs were not judged further",
}


@dataclass(frozen=True)
class Location:
    """Where an output is wrong: its index, counted from 0, in the call that shows it, and the sizes of this call."""

    index: tuple[int, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WrongEntry:
    """The wrong entry: what is expected, what was returned, and the largest error of any correct implementation.

    ``error`` says what happened if nothing was returned. ``inputs`` are those of the call if they are few.
    """

    expected: float | None = None
    got: float | None = None
    allowed: float | None = None
    error: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)

    RECORD = "expected, got, allowed, error?, inputs?"


@dataclass(frozen=True)
class PowerOfStep:
    """The smallest part of a mistake in a step that the calls would have shown; None if not even the whole mistake.

    Of numbers that are "twice as large", the part 0.01 is an error of 1 %.
    """

    step: str
    mistake: str
    smallest: float | None


@dataclass(frozen=True)
class OwnInputs:
    """The call with a benchmark's own inputs: their shapes, those that were judged, and what they alone would show."""

    shapes: tuple[tuple[int, ...], ...]
    judged: tuple[tuple[int, ...], ...]
    power: tuple[PowerOfStep, ...]


@dataclass(frozen=True)
class TextHashes:
    """Which texts were used: the SHA-256 of the candidate's file ("" if it has none), and of symattn's own code."""

    candidate: str
    symattn: str
    version: str


@dataclass(frozen=True)
class Seconds:
    """How long a judgement took: on the clock, and of processors, of which those of the candidate's own process."""

    wall: float
    processor: float
    candidate: float = 0.0


@dataclass(frozen=True, repr=False)
class Judgement(Printable):
    """The result of ``judge``: the status, and why.

    ``limits`` name what could not have been seen or was not tried. ``step``, ``cause`` and ``repairs``, edits of the
    source, are known if a cause was asked for and found. ``power`` gives for each step of the definition the smallest
    relative error of its numbers that the calls would have shown, and ``worst_ratio`` is the largest error relative to
    what is allowed. ``tampering`` says what the candidate did against the judge.

    >>> from symattn import judge
    >>> judge(lambda q, k, v: v * 0, examples=0).status.value
    'FAIL'
    """

    status: Status
    reason: str
    candidate: str
    definition: str
    precision: str
    seeds: Mapping[str, int]
    identity: TextHashes
    seconds: Seconds
    definition_from: str = "given"
    domain: str = ""
    step: str | None = None
    cause: str | None = None
    location: Location | None = None
    counterexample: WrongEntry | None = None
    power: tuple[PowerOfStep, ...] = ()
    limits: tuple[str, ...] = ()
    tampering: tuple[str, ...] = ()
    sizes: LargestSizes = field(default_factory=LargestSizes)
    calls: int = 0
    worst_ratio: float = 0.0
    grade: str = ""
    notes: tuple[str, ...] = ()
    command: str = ""
    own_inputs: OwnInputs | None = None
    repairs: tuple[Repair, ...] = ()

    RECORD = (
        "status, reason, exit_code, candidate, definition, definition_from, precision, domain, step, cause, code, "
        "location, counterexample, power, limits, tampering, sizes, calls, worst_ratio, grade, seeds, identity, "
        "seconds, notes, command, own_inputs, repairs"
    )

    @property
    def code(self) -> str | None:
        """The code of the cause, which ``symattn faults show CODE`` explains."""
        return code_of(self.cause or "", self.step or "") or None

    @property
    def passed(self) -> bool:
        """Whether the candidate passes, with limits or without."""
        return self.status in (Status.PASS, Status.PASS_WITH_LIMITS)

    @property
    def holds(self) -> bool | None:
        """Whether the candidate passes; None if that is undecided."""
        return None if self.exit_code in (2, 3) else self.passed

    @property
    def exit_code(self) -> int:
        """The exit code of the status."""
        return self.status.exit_code

    def limited(self, words: str) -> Judgement:
        """Return the same judgement with another limit; a ``PASS`` is then one with limits."""
        status = Status.PASS_WITH_LIMITS if self.status is Status.PASS else self.status
        return replace(self, status=status, limits=(*self.limits, words))

    def as_dict(self) -> dict[str, Any]:
        """Return the judgement as JSON holds it; ``symattn schema judgement`` is its schema."""
        return {"schema": SCHEMA, "kind": "judgement", **record(self)}

    def json(self) -> str:
        """Return the text of ``as_dict``."""
        import json

        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False) + "\n"

    def __repr__(self) -> str:
        return f"<judgement {self.status.value}: {self.candidate}: {self.reason}>"

    def document(self) -> md.Document:
        """Return the judgement as a document."""
        blocks: list[md.Block] = [md.Paragraph((f"{self.status.value}: {self.reason}.",))]
        blocks += [md.Note((f"{words.rstrip('.')}.",)) for words in (*self.tampering, *self.limits)]
        if self.cause is not None:
            code = bracketed(self.cause, self.step or "")
            blocks.append(md.Paragraph((f"Cause ({self.step}): {self.cause}{code}.",)))
        blocks += describe_repairs(self.repairs)
        # Power is shown where the status rests on it.
        if self.power:
            blocks.append(_power_table(self.power))
        if self.own_inputs is not None:
            shapes = " ".join(f"({', '.join(map(str, shape))})" for shape in self.own_inputs.judged)
            blocks.append(
                md.Paragraph((f"The benchmark's own inputs, {shapes}, alone would show:",))
            )
            # What the benchmark's own inputs would show, for comparison.
            blocks.append(_power_table(self.own_inputs.power))
        return md.Document(
            "verification",
            "judgement",
            ("Judgement of ", md.Code(self.candidate)),
            (*blocks, md.Paragraph((self._describe_basis_of_status(),))),
            subtitle=(f"{self.precision.partition(',')[0]} · {self.definition}",),
            command=self.command,
            record=record(self),
        )

    def _describe_basis_of_status(self) -> str:
        """Return what the status rests on, as sentences."""
        seeds = ", ".join(map(str, self.seeds.values())) or "none was drawn"
        largest = (
            f", the largest {equal_sizes(self.sizes.floats)} at once" if self.sizes.floats else ""
        )
        graded = f" Grade: {self.grade}." if self.grade else ""
        spent = f"{self.seconds.processor:.1f} s of processor time"
        calls = f"{self.calls} call{'s' * (self.calls != 1)}"
        return f"Tried: {calls}{largest}.{graded} Seed of the inputs: {seeds}. {spent}."


def _power_table(power: tuple[PowerOfStep, ...]) -> md.Table:
    rows = tuple(((p.step,), (p.mistake,), (_format_share_in_percent(p.smallest),)) for p in power)
    return md.Table(md.headers("step", "mistake in it", ">smallest that would show"), rows)


def _format_share_in_percent(share: float | None) -> str:
    return "not seen" if share is None else f"{100 * share:.2g} %"

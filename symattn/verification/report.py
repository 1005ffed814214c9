"""``Report``: what a verification found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from symattn.document.evidence import Evidence, Grade, Verdict
from symattn.document.model import Document
from symattn.document.printable import WithVerdict
from symattn.verification.codes import CauseCode, code_of, read_codes
from symattn.verification.diagnosis.observe import ObservedScale
from symattn.verification.repair import Repair

if TYPE_CHECKING:
    from symattn.arrays.field.quotient import Quotient

#: What the ε of an identity test on residues does not cover.
NOT_COVERED = "in exact arithmetic; rounding, overflow, underflow and maxima are not covered"


@dataclass(frozen=True)
class Counterexample:
    """The smallest input found that shows a fault.

    ``exact`` is the expected entry at ``index`` in exact form if it has one, ``expected`` its decimal, ``allowed`` the
    largest legal error. ``steps`` shows the row of ``index`` step by step: name, correct, with the mistake.
    """

    inputs: Mapping[str, Any]
    index: tuple[int, ...] = ()
    exact: Quotient | None = None
    expected: float | None = None
    got: float | None = None
    allowed: float | None = None
    error: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[tuple[str, str, str], ...] = ()

    RECORD = "inputs, sizes, error?, index?, exact?index, expected?index, got?index, allowed?index"

    @property
    def words(self) -> str:
        """The wrong entry, or the error, in words; an index counts from 1."""
        if self.error is not None:
            return f"the call gives: {self.error}"
        at = ", ".join(str(i + 1) for i in self.index)
        bound = f"the bound on rounding is {self.allowed:.2g}"
        return f"output {at} is {self.got:.9g}, expected {self.expected:.9g}; {bound}"


@dataclass(frozen=True)
class Fault:
    """A fault: the first wrong step, the known mistake that explains all of it (or None), and a message.

    ``step`` is one of ``STEPS_TO_BLAME``. ``code`` is the stable name of the cause, and ``codes`` are its parts with
    their parameters.

    ``case`` is the word of ``case_codes`` for its inputs, if the report has a command line. ``certified`` means that no
    rounding of any implementation explains it, though no smallest input was sought; ``ground`` is the evidence if there
    is no counterexample.
    """

    step: str
    cause: str | None
    message: str
    counterexample: Counterexample | None = None
    scales: tuple[ObservedScale, ...] = ()
    case: str = ""
    certified: bool = False
    ground: str = ""

    @property
    def code(self) -> str | None:
        """The code of the cause, which ``symattn faults show`` explains: ``window-long``, or ``a + b`` for two."""
        return code_of(self.cause or "", self.step) or None

    @property
    def coded_message(self) -> str:
        """The message, with the code in brackets at its end."""
        return f"{self.message} [{self.code}]" if self.code else self.message

    @property
    def codes(self) -> tuple[CauseCode, ...]:
        """The codes of the cause with their parameters: one for each mistake."""
        return read_codes(self.cause or "", self.step)

    @property
    def grade(self) -> Grade:
        """``refuted`` with a counterexample, or certified; else ``sampled``: shown by the bits of random numbers."""
        return Grade.REFUTED if self.counterexample or self.certified else Grade.SAMPLED

    RECORD = "step, cause, code, codes, message, grade, counterexample, case?, scales?"


@dataclass(frozen=True)
class Check:
    """A group of cases: how many, and the worst error relative to what is allowed.

    ``epsilon`` bounds the probability of a wrong yes, for the grade ``tested``; its cases are pairs of primes.
    ``unit`` says what the cases are, unless ``epsilon`` does: only calls are counted as calls.
    """

    name: str
    grade: Grade
    cases: int
    faults: int
    worst_ratio: float
    epsilon: float | None = None
    unit: Literal["call", "pair of primes", "proof"] = "call"

    @property
    def counts_calls(self) -> bool:
        """Return whether the cases are judged calls."""
        return self.epsilon is None and self.unit == "call"

    @property
    def counts_primes(self) -> bool:
        """Return whether the cases are pairs of primes."""
        return self.epsilon is not None or self.unit == "pair of primes"

    @property
    def words(self) -> str:
        """The grade, with its ε."""
        return str(Evidence(self.grade, "", self.epsilon))

    RECORD = "name, grade, cases, worst_ratio, epsilon?"


@dataclass(frozen=True)
class StepPower:
    """The power of the cases that were tried: the smallest share of a mistake in a step that they show, from 0 to 1.

    Exact outputs that are off by more than that share of the mistake's own change exceed what is allowed; with twice
    the share, so do all outputs of legal arithmetic. +∞ if no case shows the whole mistake.
    """

    # The words of the mistakes that short reports speak of.
    ONE_PERCENT = "1 % too large"
    TWICE = "twice as large"

    step: str
    mistake: str
    share: float

    @property
    def seen(self) -> bool:
        """Return whether the mistake would have been detected."""
        return self.share < 1


@dataclass(frozen=True)
class SmallestSeen:
    """The smallest relative error of the numbers of a step that the calls would have shown in any legal arithmetic.

    ``size`` is 0.01 for entries that are 1 % too large, one of ``verification.power.SIZES``; None if not even twice as
    large entries would have been noticed.
    """

    step: str
    size: float | None


@dataclass(frozen=True)
class Sought:
    """The result for a mistake of a requested size: whether it would be detected, and how; or why not.

    ``share`` is the size, relative to the number that would be wrong; ``words`` describe the mistake.
    """

    step: str
    share: float
    words: str
    seen: bool
    how: str


@dataclass(frozen=True)
class LargestSizes:
    """The sizes of the largest call that was judged, and of the largest on residues: one shape each, of one call.

    ``bounded`` says that ε holds for the shape on residues; of the ``planned`` stages of sizes on residues ``stages``
    agree, and ``stopped`` says why the next one did not run. Floats are tried in full unless all stages agree.
    """

    floats: Mapping[str, int] = field(default_factory=dict)
    residues: Mapping[str, int] = field(default_factory=dict)
    bounded: bool = False
    stages: int = 0
    planned: int = 0
    stopped: str = ""

    RECORD = "floats, residues, bounded, stages, planned, stopped?"


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of the function, identified by its bits: in words, and the share of the outputs that it explains.

    ``next`` is the share of the second-best arithmetic; ``known`` means that the words explain nearly all bits.
    """

    words: str
    share: float
    next: float
    outputs: int
    known: bool


@dataclass(frozen=True, repr=False)
class Report(WithVerdict):
    """The result of ``verify``: a verdict, the faults, the checks, and important notes.

    ``fields`` are the fields of the specification that differ from the defaults, in words. ``power`` gives for each
    step the mistake that would have been noticed, and ``missing`` what a verdict still needs; both are empty if a
    fault was found. ``reservations`` are the notes that limit the verdict, and stand below it. ``otherwise`` says with
    which option a wrong function is right.
    ``arithmetic`` is what a function in half precision stores, and ``sought`` the outcome for
    mistakes of the requested sizes. ``repairs`` are edits of the function's source after which it computes the
    definition, the smallest first. ``largest`` are the largest sizes that were tried together, and ``smallest`` the
    smallest errors that would have been noticed, if a verdict alone was wanted. The report prints as text, and has the
    formats of a document.

    >>> from symattn import verify
    >>> report = verify(lambda q, k, v: 0 * (q @ k.T) @ v, examples=0)
    >>> report.verdict.value, report.exit_code
    ('fault', 1)
    """

    verdict: Verdict
    target: str
    precision: str
    domain: str
    seed: int
    faults: tuple[Fault, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    stdout: str = ""
    command: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    power: tuple[StepPower, ...] = ()
    missing: tuple[str, ...] = ()
    arithmetic: Arithmetic | None = None
    sought: tuple[Sought, ...] = ()
    reservations: tuple[str, ...] = ()
    otherwise: str = ""
    repairs: tuple[Repair, ...] = ()
    largest: LargestSizes = LargestSizes()
    smallest: tuple[SmallestSeen, ...] = ()

    RECORD = (
        "faults, repairs?, checks, notes, power, missing, arithmetic, sought, largest, domain, fields, reservations, "
        "otherwise?"
    )

    def with_reservations(self, *words: str) -> Report:
        """Return the same report with further reservations, in front."""
        return replace(self, notes=(*words, *self.notes), reservations=(*words, *self.reservations))

    @property
    def cases(self) -> int:
        """The number of calls that were judged."""
        return sum(check.cases for check in self.checks if check.counts_calls)

    @property
    def grade(self) -> Evidence:
        """The grade of the verdict: ``refuted``, ``tested`` for the semantics, ``sampled`` (also for faults without a
        counterexample), or ``undecided``."""
        tested = [check for check in self.checks if check.grade is Grade.TESTED]
        if self.verdict is Verdict.NO_FAULT and tested:
            return Evidence(Grade.TESTED, NOT_COVERED, tested[0].epsilon)
        if self.verdict is Verdict.UNDECIDED:
            return Evidence(Grade.UNDECIDED)
        refuted = any(fault.grade is Grade.REFUTED for fault in self.faults)
        return Evidence(Grade.REFUTED if refuted else Grade.SAMPLED)

    def __repr__(self) -> str:
        first = f": {self.faults[0].message}" if self.faults else ""
        return self._make_brief_repr(f"report: {self.verdict.value}{first} ({self.cases} cases)")

    def document(self, show_output: bool = False) -> Document:
        """Return the report as a document."""
        from symattn.verification.report_document import document

        return document(self, show_output)

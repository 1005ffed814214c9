"""Theorems: a statement, its hypotheses, its source, a false variant, and the method that decides it.

Most use the method ``Identity``: a function returns pairs of arrays; the prover runs it on ``indexed`` arrays, and the
search for counterexamples on exact numbers. Other methods are in modules of their own. A method has ``decide`` (the
evidence and the argument), ``refute`` (the result for the false variant) and ``witness`` (numbers that meet the
hypotheses).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from symattn.arrays.notes import listening
from symattn.document.errors import InputError, Meaningless, Refused, Undecided
from symattn.document.evidence import Evidence, Grade
from symattn.document.formulas import ARRAY_ROLES, running_text
from symattn.document.model import Document, Text
from symattn.document.printable import Shown
from symattn.document.text import equal_sizes, plain_text
from symattn.proof import refuting
from symattn.proof.certificate import Premise, accepted
from symattn.proof.hypotheses import declared_hypotheses
from symattn.proof.prover import Proof, prove
from symattn.proof.statement import Declared, Letters, Sides, pairs


@dataclass(frozen=True)
class Decision:
    """The evidence for a statement; ``argument`` says in words how it was reached, ``hypotheses`` what it assumes.

    ``declared`` holds the declarations of the statement or, with ``in_parts``, of its parts. Certificates are made of
    ``proofs`` and ``premises``.
    """

    evidence: Evidence
    argument: tuple[Text, ...] = ()
    hypotheses: tuple[Text, ...] = ()
    proofs: tuple[Proof, ...] = ()
    declared: tuple[Text, ...] = ()
    premises: tuple[Premise, ...] = ()
    in_parts: bool = False


@dataclass(frozen=True)
class Refutation:
    """The result for a false variant: refuted by ``counterexample`` or, which must never happen, accepted."""

    refuted: bool
    counterexample: str = ""
    accepted: bool = False


class Method(Protocol):
    """A way to decide a statement."""

    def decide(self) -> Decision:
        """Decide the statement."""

    def refute(self) -> Refutation:
        """Refute the false variant."""

    def witness(self) -> str:
        """Say where the hypotheses are met and the statement holds in numbers; empty if nowhere."""


@dataclass(frozen=True, repr=False)
class Theorem(Shown):
    """A statement about attention. ``says`` is its text, ``why`` the idea of the proof in one sentence.

    With ``letters`` (a ``Glossary``), the meanings of the letters, the printed text is read and decided as well.
    ``title`` is its name on pages that show no identifiers.
    """

    name: str
    topic: str
    says: Text
    method: Method
    source: str
    false_says: Text
    why: Text = ()
    hypotheses: tuple[Text, ...] = ()
    letters: object = None
    title: str = ""

    def document(self) -> Document:
        """Return the statement for a reader, without its proof; ``symattn.prove`` adds the result."""
        from symattn.proof import typeset_words

        return typeset_words.stated(self)

    def __repr__(self) -> str:
        return f"<theorem {self.name!r}: {plain_text(self.says)}; symattn.prove decides it>"


@dataclass(frozen=True)
class TheoremOutcome:
    """The result for a theorem and its false variant."""

    theorem: Theorem
    decision: Decision
    refutation: Refutation
    witness: str
    seconds: float = field(default=0.0, compare=False)

    @property
    def grade(self) -> Grade:
        """The grade of the statement; undecided unless the result is ``sound``."""
        return self.decision.evidence.grade if self.sound else Grade.UNDECIDED

    @property
    def sound(self) -> bool:
        """Whether the false variant was refuted and not accepted, and the hypotheses can be met."""
        return self.refutation.refuted and not self.refutation.accepted and bool(self.witness)


def decide(theorem: Theorem) -> TheoremOutcome:
    """Decide the theorem, refute its false variant, and find a witness."""
    start = time.perf_counter()
    # The method proves the statement, and refutes its false variant.
    decision, refutation = (
        certified(theorem.method, theorem.method.decide()),
        theorem.method.refute(),
    )
    return TheoremOutcome(
        theorem, decision, refutation, theorem.method.witness(), time.perf_counter() - start
    )


def certified(method: Method, decision: Decision) -> Decision:
    """Return the decision of a method, that of one which is not symattn's with the grade of its certificates.

    Only Coq's answer makes a grade ``coq``, so no method gives it.
    """
    own = _is_of_symattn(method)
    evidence = decision.evidence
    # symattn's own methods have their certificates checked when they decide.
    if own or evidence.grade in (Grade.REFUTED, Grade.UNDECIDED):
        return decision
    if evidence.grade in (Grade.COQ, Grade.PROVED, Grade.ARGUED):
        grade = Grade.ARGUED if evidence.grade is Grade.ARGUED else Grade.PROVED
        # The grade must come from certificates: a foreign method may claim anything.
        evidence = accepted(Evidence(grade, "all sizes"), decision.proofs, decision.premises)
    else:
        evidence = Evidence(
            Grade.UNDECIDED, "a method that is not symattn's decided it, without a certificate"
        )
    return replace(decision, evidence=evidence)


def _is_of_symattn(method: Method) -> bool:
    """Return whether the class of a method is one of symattn's, and the method object decides as the class does."""
    kind = type(method)
    module = sys.modules.get(kind.__module__)
    named = kind.__module__.startswith("symattn.") and getattr(module, kind.__name__, None) is kind
    # A subclass, or a method replaced on the object, could decide in another way.
    return named and "decide" not in getattr(method, "__dict__", {})


@dataclass(frozen=True)
class Identity:
    """The statement that pairs of arrays are equal. ``rule`` says what follows, such as for any number of tiles.

    ``false`` is the false variant, or several, each of which must be refuted; ``top`` is the largest size at which
    counterexamples are searched for.
    """

    declared: Declared
    sides: Sides
    false: Sides | tuple[Sides, ...]
    rule: Text = ()
    top: int = 3

    @cached_property
    def proofs(self) -> tuple[tuple[Proof, ...], tuple[str, ...]]:
        """The prover's result for each pair, and its notes."""
        with listening() as notes:
            return tuple(proofs_of(self.sides, self.declared)), tuple(notes)

    def decide(self) -> Decision:
        proofs, notes = self.proofs
        hypotheses = tuple(
            # Other notes are no hypotheses.
            (n.removeprefix("hypothesis: "),)
            for n in notes
            if n.startswith("hypothesis: ")
        )
        laws = getattr(self.sides, "laws", {})
        declared = declared_hypotheses(self.declared, laws=laws)
        evidence, why = self._grade_collected_proofs(proofs)
        sentences = (self.rule, why)
        argument: tuple[Text, ...] = tuple(words for words in sentences if words)
        return Decision(evidence, argument, hypotheses, proofs, declared)

    def _grade_collected_proofs(self, proofs: tuple[Proof, ...]) -> tuple[Evidence, Text]:
        """Return the evidence and, if it is no proof, the reason.

        A proof that assumes a nonzero divisor says nothing about the values of the code where the divisor is zero.
        """
        if not proofs:
            return Evidence(Grade.UNDECIDED, "nothing is stated"), ()
        proved = all(p.proved for p in proofs)
        # A spot check after a proof costs little, and would show a defect of the prover.
        result = (
            self._spot_check_result
            if proved
            else refuting.search(self.sides, self.declared, self.top)
        )
        if result.doubt:
            return Evidence(Grade.UNDECIDED, result.doubt), ()
        # Code that tests whether a divisor is zero may differ where the proof says nothing.
        if proved and any(p.asks for p in proofs) and not result.counterexample:
            result = replace(
                result, counterexample=refuting.counterexample(self.sides, self.declared, self.top)
            )
        if proved and not result.counterexample:
            if self.rule:
                return accepted(
                    Evidence(Grade.ARGUED, "all sizes, by the printed rule"), proofs
                ), ()
            return accepted(Evidence(Grade.PROVED, "all sizes"), proofs), ()
        gap = next((p for p in proofs if not p.proved), None)
        # A gap names sizes at which the identity fails: numbers there are tried first.
        if not result.counterexample and gap and not gap.meaningless:
            result = refuting.thorough(self.sides, self.declared, self.top, gap.open_at)
        if result.counterexample:
            return Evidence(Grade.REFUTED, str(result.counterexample)), ()
        # Numbers cannot support a statement that is false in letters, or that is never defined.
        if gap is None or gap.meaningless or gap.decisive or not result.agreed:
            return Evidence(Grade.UNDECIDED, gap.why if gap else ""), ()
        if not result.doubt:
            result = refuting.by_cells(self.sides, self.declared, result)
        if result.counterexample:
            return Evidence(Grade.REFUTED, str(result.counterexample)), ()
        if result.doubt:
            return Evidence(Grade.UNDECIDED, result.doubt), ()
        why: Text = (f"not proved for all sizes: {gap.why}",)
        grade, where = (
            (Grade.CHECKED, result.decided) if result.decided else (Grade.SEARCHED, result.tried)
        )
        return Evidence(
            grade, where + ", where both sides are defined" * bool(result.undefined)
        ), why

    def refute(self) -> Refutation:
        variants = self.false if isinstance(self.false, tuple) else (self.false,)
        counterexamples = [
            refuting.counterexample(false, self.declared, self.top) for false in variants
        ]
        # One accepted false variant is enough to distrust the prover.
        accepted = any(all_proved(proofs_of(false, self.declared)) for false in variants)
        return Refutation(
            all(counterexamples), "; ".join(str(c) for c in counterexamples if c), accepted
        )

    def witness(self) -> str:
        return (
            f"exact numbers at {equal_sizes(self._spot_check_result.first)}"
            if self._spot_check_result.agreed
            else ""
        )

    @cached_property
    def _spot_check_result(self) -> refuting.CounterexampleSearch:
        return refuting.spot_check(self.sides, self.declared, self.top)


def theorem(
    name: str,
    topic: str,
    says: Text | str,
    *,
    arrays: Mapping[str, str],
    false: Sides | tuple[Sides, ...],
    false_says: Text | str,
    source: str = "folklore",
    why: Text | str = (),
    hypotheses: tuple[Text | str, ...] = (),
    permutations: Mapping[str, str] | None = None,
    positive: tuple[str, ...] = (),
    units: tuple[tuple[str, str], ...] = (),
    rule: Text | str = (),
    top: int = 3,
    letters: object = None,
) -> Callable[[Sides], Theorem]:
    """State a theorem: the decorated function returns the two sides, or a list of pairs of sides.

    Write formulas in text between dollar signs, as ``formulas`` reads them: "$softmax(s + t 𝟏) = softmax(s)$".

    >>> from symattn.attention.softmax import softmax
    >>> @theorem("shift", "softmax", "softmax(s + t) = softmax(s)", arrays={"s": "n m", "t": "n 1"},
    ...          false=lambda s, t: (softmax(t * s), softmax(s)), false_says="softmax(t s) = softmax(s)")
    ... def shift(s, t):
    ...     return softmax(s + t), softmax(s)
    >>> decide(shift).grade
    <Grade.PROVED: 'proved'>
    """
    declared = Declared(arrays, permutations or {}, positive, units)
    if letters is not None and not hasattr(letters, "roles"):
        raise InputError(
            f"theorem {name}: letters are a Glossary; hint: symattn.theorems.texts.letters_of(…, {{}})"
        )
    roles = getattr(letters, "roles", ARRAY_ROLES)
    said, false_said, idea, *assumed = (
        running_text(words, roles) for words in (says, false_says, why, *hypotheses)
    )

    def make(sides: Sides) -> Theorem:
        method = Identity(declared, sides, false, running_text(rule), top)
        return Theorem(name, topic, said, method, source, false_said, idea, tuple(assumed), letters)

    return make


def proofs_of(sides: Sides, declared: Declared) -> Iterator[Proof]:
    """Yield the prover's result for each pair."""
    try:
        yield from (
            prove(left, right, declared.units) for left, right in pairs(sides, declared, Letters())
        )
    # A refusal by letters is a failed proof with its reason, and no error.
    except (Refused, Undecided, InputError) as reason:
        yield Proof(False, why=str(reason), meaningless=isinstance(reason, Meaningless))


def all_proved(proofs: Iterator[Proof]) -> bool:
    """Return whether there are proofs and all succeeded; stop at the first failure."""
    first_proved = next((p.proved for p in proofs), False)
    return first_proved and all(p.proved for p in proofs)

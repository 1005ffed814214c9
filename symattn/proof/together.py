"""Statements of several parts, and small methods: what is positive, by its form or as a number, and what fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from symattn.arrays.ball import Ball
from symattn.arrays.index.building import known_positive
from symattn.arrays.indexed import Indexed
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade, weakest
from symattn.document.formulas import running_text
from symattn.document.model import Inline, Text
from symattn.document.text import equal_sizes
from symattn.proof.certified import accepted
from symattn.proof.hypotheses import declared_hypotheses
from symattn.proof.inequality import Certificate
from symattn.proof.listed import all_true
from symattn.proof.premises import Differing, Sign
from symattn.proof.prover import equations, unsimplified
from symattn.proof.refuting import search
from symattn.proof.statement import Declared, Letters, Numbers, Sides, growing_sizes, pairs, run
from symattn.proof.theorem import Decision, Identity, Method, Refutation, Theorem

ARRAYS = Mapping[str, str]
DIFFER = "they differ at "


@dataclass(frozen=True)
class Together:
    """All ``parts`` hold; ``rule`` says what follows from them. Each false variant that a part has must be refuted.

    The grade is the weakest of the parts'; with a ``rule`` it is no more than argued, as words are read, not checked.
    It may only be an inference that is plain, such as that a function with a derivative ≥ 0 grows.
    """

    parts: tuple[Method, ...]
    rule: Text = ()

    def decide(self) -> Decision:
        result = [part.decide() for part in self.parts]
        weakest_part = weakest(d.evidence for d in result)
        grade = Grade.ARGUED if self.rule and weakest_part is Grade.PROVED else weakest_part
        where = dict.fromkeys(d.evidence.where for d in result if d.evidence.grade is weakest_part)
        return Decision(
            Evidence(grade, "; ".join(where) + (", by the printed rule" if self.rule else "")),
            tuple(dict.fromkeys([*[a for d in result for a in d.argument], *([self.rule] if self.rule else [])])),
            tuple(dict.fromkeys(h for d in result for h in d.hypotheses)),
            tuple(p for d in result for p in d.proofs),
            result[0].declared if len(result) == 1 else _joined(dict.fromkeys(h for d in result for h in d.declared)),
            tuple(p for d in result for p in d.premises),
        )

    def refute(self) -> Refutation:
        result = [p.refute() for p in self.parts if getattr(p, "false", _equal_sides) is not _equal_sides]
        words = "; ".join(r.counterexample for r in result)
        refuted = bool(result) and all(r.refuted for r in result)
        return Refutation(refuted, words, any(r.accepted for r in result))

    def witness(self) -> str:
        result = [part.witness() for part in self.parts]
        return result[0] if all(result) else ""


def also(*methods: Method) -> Callable[[Theorem], Theorem]:
    """Add parts to a theorem: what ``methods`` decide belongs to its statement."""
    return lambda theorem: replace(theorem, method=Together((theorem.method, *methods)))


def _joined(declared: Iterable[Text]) -> tuple[Text, ...]:
    """Join the parts' declarations into one hypothesis: their letters need not be those of the statement."""
    words: list[Inline] = []
    for one in declared:
        words += [", " if words else "the parts are shown where ", *one]
    return (tuple(words),) if words else ()


def identity(
    arrays: ARRAYS,
    sides: Sides,
    false: Sides | tuple[Sides, ...] | None = None,
    *,
    positive: tuple[str, ...] = (),
    units: tuple[tuple[str, str], ...] = (),
    top: int = 3,
) -> Identity:
    """A part that is an identity; ``false`` where it has the theorem's false variant."""
    return Identity(Declared(arrays, positive=positive, units=units), sides, false or _equal_sides, top=top)


def equations_by(
    arrays: ARRAYS,
    false: Sides | tuple[Sides, ...],
    *,
    permutations: Mapping[str, str] | None = None,
    positive: tuple[str, ...] = (),
    units: tuple[tuple[str, str], ...] = (),
    rule: Text | str = (),
    top: int = 3,
) -> Callable[[Sides], Identity]:
    """Decorate a function that returns the two sides, or pairs of sides, of what a theorem says."""
    declared = Declared(arrays, permutations or {}, positive, units)
    return lambda sides: Identity(declared, sides, false, running_text(rule), top)


def bound(
    arrays: ARRAYS,
    sides: Sides,
    gap: Sides,
    false: Sides | tuple[Sides, ...] | None = None,
    *,
    positive: tuple[str, ...] = (),
    assumed: Mapping[str, tuple[str, Sides]] | None = None,
    named: Mapping[str, tuple[str, Sides]] | None = None,
    chosen: Mapping[str, Sides] | None = None,
    units: tuple[tuple[str, str], ...] = (),
    top: int = 3,
    nonnegative: tuple[str, ...] = (),
    laws: Mapping[str, tuple[str, Sides, str]] | None = None,
    only: tuple[str, ...] = (),
    strict: bool = False,
) -> Certificate:
    """A part that is an inequality with a certificate; ``false`` where it has the theorem's false variant."""
    declared = Declared(arrays, positive=positive, units=units, nonnegative=nonnegative)
    chosen, laws, named = chosen or {}, laws or {}, named or {}
    return Certificate(
        declared, sides, gap, false or _equal_sides, assumed or {}, top, named, chosen, laws, only, strict
    )


def _equal_sides() -> list[tuple[int, int]]:
    return []


@dataclass(frozen=True)
class Positive:
    """The claim that ``of`` is positive: numbers, sizes, exponentials, roots, positive letters, and +, ×, / of them."""

    declared: Declared
    of: Sides
    false: Sides = _equal_sides

    def decide(self) -> Decision:
        try:
            x = run(self.of, self.declared, Letters())
            every = [x.at(places) for places in x.places()]
            shown = bool(every) and all(map(known_positive, every))
        except (Refused, Undecided, InputError) as reason:
            return Decision(Evidence(Grade.UNDECIDED, str(reason)))
        if not shown:
            return Decision(Evidence(Grade.UNDECIDED, "the form does not show that it is positive"))
        said = declared_hypotheses(self.declared)
        signs = tuple(Sign(">", e) for e in every)
        evidence = accepted(Evidence(Grade.PROVED, "all sizes"), (), signs)
        return Decision(evidence, (("it is made of what is positive",),), declared=said, premises=signs)

    def refute(self) -> Refutation:
        wrong = self._first(self.false, False)
        return Refutation(bool(wrong), wrong)

    def witness(self) -> str:
        return self._first(self.of, True)

    def _first(self, of: Sides, truth: bool) -> str:
        """The first sizes and seed at which ``of`` is, or is not, positive throughout."""
        for sizes in growing_sizes(self.declared.sorts(), 3):
            for seed in range(4):
                try:
                    if all_true(run(of, self.declared, Numbers(sizes, seed)) > 0) is truth:
                        return equal_sizes(sizes) + f" (seed {seed})"
                except (Refused, Undecided, InputError, ZeroDivisionError):
                    continue
        return ""


@dataclass(frozen=True)
class PositiveNumber:
    """The claim that the number ``of`` is positive, and ``false`` is not; both are functions of a namespace.

    Arb's balls say so; the checker encloses the number by itself.
    """

    of: Callable[..., object]
    false: Callable[..., object]

    def decide(self) -> Decision:
        value = _ball(self.of)
        if value is None or not (value > 0 or value <= 0):
            return Decision(Evidence(Grade.UNDECIDED, f"not decided {_IN_NUMBERS}"))
        if not value > 0:
            return Decision(Evidence(Grade.REFUTED, _IN_NUMBERS))
        x, _ = unsimplified(lambda: 2 * (Indexed.lift(self.of(Indexed.xp)).at(()),))
        sign = Sign(">", x)
        evidence = accepted(Evidence(Grade.PROVED, _IN_NUMBERS), (), (sign,))
        return Decision(evidence, (("Arb balls show it, and the checker computes them anew",),), premises=(sign,))

    def refute(self) -> Refutation:
        value = _ball(self.false)
        refuted = value is not None and bool(value <= 0)
        return Refutation(refuted, f"{_IN_NUMBERS}, by Arb balls" if refuted else "")

    def witness(self) -> str:
        value = _ball(self.of)
        return _IN_NUMBERS if value is not None and value > 0 else ""


_IN_NUMBERS = "in numbers"


def _ball(of: Callable[..., object]) -> Any:
    """The Arb ball of a number; None where it has none."""
    try:
        return Ball.lift(of(Ball.xp)).entries[()]
    except (Refused, Undecided, ZeroDivisionError):
        return None


@dataclass(frozen=True)
class Fails:
    """The pairs that ``sides`` gives are not always equal: one counterexample shows it."""

    declared: Declared
    sides: Sides
    top: int = 3

    def decide(self) -> Decision:
        counterexample = search(self.sides, self.declared, self.top).counterexample
        if not counterexample:
            return Decision(Evidence(Grade.UNDECIDED, "no counterexample found"))
        evidence, premises = Evidence(Grade.PROVED, "by a counterexample"), self._differing(counterexample.sizes)
        if any(accepted(evidence, (), (p,)) is evidence for p in premises):
            kept = tuple(p for p in premises if accepted(evidence, (), (p,)) is evidence)[:1]
            return Decision(evidence, ((f"{DIFFER}{counterexample}",),), premises=kept)
        return Decision(
            Evidence(Grade.CHECKED, f"by a counterexample at {counterexample}"), ((f"{DIFFER}{counterexample}",),)
        )

    def _differing(self, sizes: Mapping[str, int]) -> tuple[Differing, ...]:
        """The equations in letters, of which one may fail at these sizes; none where they cannot be written so."""
        try:
            every = [e for left, right in pairs(self.sides, self.declared, Letters()) for e in equations(left, right)]
        except (Refused, Undecided, InputError):
            return ()
        tried = [dict(sizes), *({**sizes, s: 2} for s in sizes)]  # with √4 at some of them where √2 is no number
        return tuple(Differing(*e, tuple(there.items()), self.declared.units) for there in tried for e in every)

    def refute(self) -> Refutation:
        return Refutation(False)

    def witness(self) -> str:
        return str(search(self.sides, self.declared, self.top).counterexample or "")

"""Statements of several parts, constructors of parts, and statements that something fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import wraps

from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade, weakest
from symattn.document.model import Text
from symattn.proof import refuting
from symattn.proof.certificate import Differing, accepted
from symattn.proof.inequality import Certificate
from symattn.proof.prover import equations
from symattn.proof.statement import Declared, Letters, Sides, pairs
from symattn.proof.theorem import Decision, Identity, Method, Refutation

ARRAYS = Mapping[str, str]
DIFFER = "they differ at "


@dataclass(frozen=True)
class Together:
    """The statement that all ``parts`` hold; ``rule`` says what follows. Every part's false variant must be refuted.

    The grade is the weakest of the parts'; with a ``rule`` it is at most argued, as words are not checked. A rule may
    only state a plain inference, such as that a function with a derivative ≥ 0 grows.
    """

    parts: tuple[Method, ...]
    rule: Text = ()

    def decide(self) -> Decision:
        result = [part.decide() for part in self.parts]
        weakest_part = weakest(d.evidence for d in result)
        # By a rule that is only printed, proofs of the parts are no proof of the whole.
        grade = Grade.ARGUED if self.rule and weakest_part is Grade.PROVED else weakest_part
        # Only the parts that decide the grade are named.
        where = dict.fromkeys(d.evidence.where for d in result if d.evidence.grade is weakest_part)
        by_rule = ", by the printed rule" if self.rule else ""
        arguments = [a for d in result for a in d.argument]
        rule = [self.rule] if self.rule else []
        return Decision(
            Evidence(grade, "; ".join(where) + by_rule),
            tuple(dict.fromkeys([*arguments, *rule])),
            tuple(dict.fromkeys(h for d in result for h in d.hypotheses)),
            tuple(p for d in result for p in d.proofs),
            tuple(dict.fromkeys(h for d in result for h in d.declared)),
            tuple(p for d in result for p in d.premises),
            len(result) != 1 or result[0].in_parts,
        )

    def refute(self) -> Refutation:
        result = [
            p.refute() for p in self.parts if getattr(p, "false", _equal_sides) is not _equal_sides
        ]
        words = "; ".join(dict.fromkeys(r.counterexample for r in result))
        refuted = bool(result) and all(r.refuted for r in result)
        return Refutation(refuted, words, any(r.accepted for r in result))

    def witness(self) -> str:
        result = [part.witness() for part in self.parts]
        return result[0] if all(result) else ""


def identity(
    arrays: ARRAYS,
    sides: Sides,
    false: Sides | tuple[Sides, ...] | None = None,
    *,
    positive: tuple[str, ...] = (),
) -> Identity:
    """Return a part that is an identity; ``false`` is the theorem's false variant, if this part has it."""
    return Identity(Declared(arrays, positive=positive), sides, false or _equal_sides)


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
    top: int = 3,
    laws: Mapping[str, tuple[str, Sides, str]] | None = None,
    only: tuple[str, ...] = (),
    strict: bool = False,
) -> Certificate:
    """Return a part that is an inequality; ``false`` is the theorem's false variant, if this part has it."""
    return Certificate(
        Declared(arrays, positive=positive),
        sides,
        gap,
        false or _equal_sides,
        assumed or {},
        top,
        named or {},
        chosen or {},
        laws or {},
        only,
        strict,
    )


def _equal_sides() -> list[tuple[int, int]]:
    return []


def above_zero(
    arrays: ARRAYS, of: Sides, false: Sides | None = None, *, positive: tuple[str, ...] = ()
) -> Certificate:
    """Return a part that says that ``of`` is positive, by its form or, if it is a number, by balls."""

    def sides(of: Sides) -> Sides:
        return wraps(of)(lambda **given: (0, of(**given)))

    return bound(arrays, sides(of), of, false and sides(false), positive=positive, strict=True)


@dataclass(frozen=True)
class Fails:
    """The statement that the pairs of ``sides`` are not always equal, shown by a counterexample."""

    declared: Declared
    sides: Sides
    top: int = 3

    def decide(self) -> Decision:
        counterexample = refuting.search(self.sides, self.declared, self.top).counterexample
        if not counterexample:
            return Decision(Evidence(Grade.UNDECIDED, "no counterexample found"))
        evidence, premises = (
            Evidence(Grade.PROVED, "by a counterexample"),
            self._write_differing_equations(counterexample.sizes),
        )
        # The certificate that the checker accepts makes the counterexample a proof.
        if any(accepted(evidence, (), (p,)) is evidence for p in premises):
            certified = tuple(p for p in premises if accepted(evidence, (), (p,)) is evidence)[:1]
            return Decision(evidence, ((f"{DIFFER}{counterexample}",),), premises=certified)
        return Decision(
            Evidence(Grade.CHECKED, f"by a counterexample at {counterexample}"),
            ((f"{DIFFER}{counterexample}",),),
        )

    def _write_differing_equations(self, sizes: Mapping[str, int]) -> tuple[Differing, ...]:
        """Return the equations in letters, one of which may fail at these sizes; () if they cannot be written so."""
        try:
            every = [
                e
                for left, right in pairs(self.sides, self.declared, Letters())
                for e in equations(left, right)
            ]
        except (Refused, Undecided, InputError):
            return ()
        # a size may need to be 2, so that √4 is rational
        tried = [dict(sizes), *({**sizes, s: 2} for s in sizes)]
        return tuple(
            Differing(*e, tuple(there.items()), self.declared.units)
            for there in tried
            for e in every
        )

    def refute(self) -> Refutation:
        return Refutation(False)

    def witness(self) -> str:
        return str(refuting.search(self.sides, self.declared, self.top).counterexample or "")

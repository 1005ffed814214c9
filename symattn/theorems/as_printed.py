"""The method that decides a theorem by its printed statement, and the reading of any theorem's print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from symattn.document import notation as nt
from symattn.document.errors import InputError
from symattn.document.evidence import Evidence, Grade, weakest
from symattn.document.model import Text
from symattn.document.text import plain_text
from symattn.proof.hypotheses import declared_hypotheses
from symattn.proof.joint_statements import Together
from symattn.proof.prover import Proof
from symattn.proof.relations import comparing, judging
from symattn.proof.relations.compiling import Compiled, links
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.sentences import PrintedClaim, claims
from symattn.proof.statement import Sides
from symattn.proof.theorem import Decision, Identity, Method, Refutation, Theorem
from symattn.theorems.reading import Reading, ReadRelation, Statement

_UNDECLARED = "what its letters stand for is not declared"


@dataclass(frozen=True)
class AsPrinted:
    """The method of a theorem whose statement, like its false variant, is exactly what is printed.

    Equations without conditions are compiled and decided as one ``Identity``; other claims are read one by one.
    """

    says: Text
    false_says: Text
    hypotheses: tuple[Text, ...]
    letters: Glossary
    top: int = 3

    @cached_property
    def identity(self) -> Identity:
        """The plain equations of the statement, and those of the false variant, as one identity."""
        compiled = self._compiled_readable_claims

        def function(every: Sequence[PrintedClaim]) -> Sides:
            result = compiled.sides(
                [(x.left, x.right) for claim in every for x in links(claim.relation)]
            )
            result.laws = {  # type: ignore[attr-defined]
                compiled.argument(key): law for key, law in compiled.glossary.laws.items()
            }
            return result

        stated, false = (
            [c for c in every if self._is_plain(c)] for every in (claims(self.says), self.false)
        )
        sides = function(stated)
        refutable = tuple(function([c]) for c in false)
        return Identity(compiled.declared, sides, refutable, top=self.top)

    @cached_property
    def false(self) -> list[PrintedClaim]:
        """The claims of the false variant, or () if another part of the theorem has it."""
        result = claims(self.false_says)
        if not claims(self.says) or (self.false_says and not result):
            raise InputError(
                f"{plain_text(self.says)}: its print and that of its false variant are to be relations"
            )
        return result

    @cached_property
    def statement(self) -> Statement:
        return Statement(self.letters, self.hypotheses, self.says, self.false_says)

    def _is_plain(self, claim: PrintedClaim) -> bool:
        """Return whether a claim is an equation without conditions other than definitions."""
        # A claim that is denied is no equation.
        equal = (
            all(sign == "=" for sign, _ in claim.relation.rest)
            and not claim.denied
            and not claim.only
        )
        equal &= not self.letters.formats
        return (
            equal
            and {*claim.conditions} <= {*self.statement.definitions}
            and self.statement.reads(claim.relation)
        )

    @cached_property
    def _plain_equation_claims(self) -> list[PrintedClaim]:
        """The claims that are decided together: plain equations, if the prover proves them all."""
        # Where the prover leaves one open, each is read alone, as numbers may still refute it.
        result = [c for c in claims(self.says) if self._is_plain(c)]
        others = (
            self.letters.laws
            or not result
            or all(proof.proved for proof in self.identity.proofs[0])
        )
        return result if others else []

    @cached_property
    def _compiled_readable_claims(self) -> Compiled:
        """All readable claims, compiled as functions of the letters that they are about."""
        statement = self.statement
        # The false variant is compiled with the claims, so that both are about the same letters.
        statements = (*claims(self.says), *self.false)
        read = (c.relation for c in statements if statement.reads(c.relation))
        every = [x for relation in read for x in links(relation)]
        both_sides = (side for x in every for side in (x.left, x.right))
        sides = nt.equals(0, *both_sides)
        return statement.compiled(sides)

    @cached_property
    def _decisions_of_other_claims(self) -> list[tuple[Evidence, judging.ShownRelations]]:
        """The other claims, read one by one."""
        result = []
        for claim in claims(self.says):
            if claim not in self._plain_equation_claims:
                with judging.showing() as shown:
                    try:
                        read = self.statement.decided(claim)
                        evidence = read.evidence or Evidence(Grade.UNDECIDED, read.reason)
                    except comparing.FalseStep as wrong:
                        refuted = not isinstance(wrong, comparing.NotDecided)
                        evidence = Evidence(
                            Grade.REFUTED if refuted else Grade.UNDECIDED, str(wrong)
                        )
                if evidence.grade is Grade.PROVED:  # hypotheses behind the sizes are listed apart
                    evidence = replace(evidence, where=evidence.where.partition("; ")[0])
                result.append((evidence, shown))
        return result

    def decide(self) -> Decision:
        identity = self.identity.decide() if self._plain_equation_claims else None
        evidence = [
            *([identity.evidence] if identity else []),
            *(e for e, _ in self._decisions_of_other_claims),
        ]
        # The weakest part decides the grade.
        grade = weakest(evidence)
        places = (e.where for e in evidence if e.grade is grade)
        where = "; ".join(dict.fromkeys(places))
        by = [p for _, shown in self._decisions_of_other_claims for p in shown.by]
        of_identity = identity.proofs if identity else ()
        proofs = (*of_identity, *(p for p in by if isinstance(p, Proof)))
        return Decision(
            Evidence(grade, where),
            identity.argument if identity else (),
            identity.hypotheses if identity else (),
            proofs,
            identity.declared
            if identity
            else declared_hypotheses(self._compiled_readable_claims.declared),
            tuple(p for p in by if not isinstance(p, Proof)),
        )

    def refute(self) -> Refutation:
        result = [self.identity.refute()] if self.identity.false else []
        for claim in (c for c in self.false if not self._is_plain(c)):
            try:
                read = self.statement.refuted(claim)
            # A false variant that holds is accepted, which is a fault.
            except comparing.FalseStep as holds:
                result.append(Refutation(False, str(holds), accepted=True))
            else:
                result.append(
                    Refutation(
                        bool(read.evidence), read.evidence.where if read.evidence else read.reason
                    )
                )
        words = "; ".join(dict.fromkeys(r.counterexample for r in result))
        refuted = all(r.refuted for r in result)
        return Refutation(refuted, words, any(r.accepted for r in result))

    def witness(self) -> str:
        result = [self.identity.witness()] if self._plain_equation_claims else []
        result += [
            f"exact numbers at {shown.at}" if shown.at else ""
            for _, shown in self._decisions_of_other_claims
        ]
        return result[0] if all(result) else ""


@dataclass(frozen=True)
class Following:
    """The method of a theorem that follows by a rule in words from relations, which are decided in its place."""

    printed: Method
    steps: Together

    @property
    def rule(self) -> Text:
        """The inference from the relations, in words."""
        return self.steps.rule

    def decide(self) -> Decision:
        return self.steps.decide()

    def refute(self) -> Refutation:
        return self.printed.refute()

    def witness(self) -> str:
        return self.steps.witness()


def read(theorem: Theorem) -> Reading | None:
    """Read and decide the printed theorem and its false variant; return None if there is no formula.

    Without letters all formulas are words. A method that decides the print itself provides its own reading.
    """
    letters = theorem.letters
    method = theorem.method
    both = (theorem.says, theorem.false_says)
    if not isinstance(letters, Glossary):
        results, false = (
            tuple(ReadRelation(c.relation, None, _UNDECLARED) for c in claims(x)) for x in both
        )
        return Reading(results, false) if results else None
    first = method.parts[0] if isinstance(method, Together) else method
    printed = first.printed if isinstance(first, Following) else first
    try:
        own = printed.statement if isinstance(printed, AsPrinted) else None
        return (own or Statement(letters, theorem.hypotheses, *both)).reading(*both)
    except comparing.FalseStep as wrong:
        return Reading(wrong=f"{wrong.verdict}: {wrong}")

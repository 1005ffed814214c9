"""Read the printed statement of a theorem with its letters: each claim is decided under the hypotheses, and printed in
a box or as words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from symattn.document import notation as nt
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade, weakest
from symattn.document.model import Block, Paragraph, Result, Text
from symattn.document.notation import Node, Relation
from symattn.document.text import text
from symattn.proof import typeset_words
from symattn.proof.hypotheses import signs
from symattn.proof.joint_statements import Fails
from symattn.proof.relations import comparing, judging
from symattn.proof.relations.compiling import Compiled, links, pruned
from symattn.proof.relations.glossary import Glossary, LetterDefinition
from symattn.proof.relations.part_values import Unread
from symattn.proof.relations.section import limit
from symattn.proof.relations.sentences import (
    PrintedClaim,
    assumed,
    claims,
    conditions,
    defined,
    is_mask,
)
from symattn.proof.statement import Letters, run


@dataclass(frozen=True)
class ReadRelation:
    """A printed relation: its ``evidence`` as printed, or the reason why it is only words.

    ``shown`` is the relation with its conditions, and with "not" if it is denied.
    """

    formula: Relation
    evidence: Evidence | None
    reason: str = ""
    shown: nt.Node | None = None


@dataclass(frozen=True)
class Reading:
    """The reading of a statement and of its false variant.

    ``hypotheses`` are the signs that were assumed of letters, ``letters`` the meanings of those defined elsewhere.
    ``wrong`` names an error in print: a false relation in the statement, or a true one in the variant.
    """

    claims: tuple[ReadRelation, ...] = ()
    false: tuple[ReadRelation, ...] = ()
    hypotheses: tuple[Text, ...] = ()
    letters: tuple[Relation, ...] = ()
    wrong: str = ""


# Words between formulas that add nothing to a statement.
_CONNECTING = (
    "and",
    "or",
    "for",
    "if",
    "with",
    "where",
    "as",
    "iff",
    "so",
    "hence",
    "is",
    "but",
    "then",
)
_CODE = "The statement of the code, which is not printed as a formula."


def of_print(evidence: Evidence, reading: Reading | None) -> tuple[Evidence, ...]:
    """Return the evidence of a box: that of its printed relations and, if it is stronger, that of the proof."""
    printed = [r.evidence for r in reading.claims if r.evidence] if reading else []
    grade = weakest([evidence, *printed])
    if grade is evidence.grade:
        return (evidence,)
    places = (e.where for e in printed if e.grade is grade)
    where = "; ".join(dict.fromkeys(places))
    return Evidence(grade, f"as printed, {where}"), replace(
        evidence, where=f"by its proof, {evidence.where}"
    )


def boxed(
    title: str,
    formulas: tuple[nt.Node, ...],
    evidence: Evidence,
    words: Text,
    reading: Reading | None = None,
) -> tuple[Block, ...]:
    """Return formulas in a box with their grade, and undecided words below it."""
    marked = bool(words) and isinstance(words[0], str) and words[0] == typeset_words.INFORMAL
    below = (Paragraph(words),) if marked else typeset_words.labelled("In words", words)
    return (
        Result(title, formulas, of_print(evidence, reading), () if formulas else (_CODE,)),
        *below,
    )


def read_apart(says: Text, reading: Reading | None) -> tuple[tuple[nt.Node, ...], Text]:
    """Return a statement as formulas alone, or the relations that were read and the whole statement in words."""
    results = reading.claims if reading else ()
    formulas, words = typeset_words.statement(with_unread_as_text(says, results))
    parts = [part for formula in formulas for part in getattr(formula, "parts", ())]
    # Connecting words alone leave a statement of formulas.
    if not words and all(part.text in _CONNECTING for part in parts if isinstance(part, nt.Words)):
        return formulas, ()
    return tuple(r.shown or r.formula for r in results if r.evidence), says


def with_unread_as_text(words: Text, read: Sequence[ReadRelation]) -> Text:
    """Return words in which formulas that could not be read are plain text."""
    unread = {r.formula for r in read if not r.evidence}
    return tuple(
        text(part) if isinstance(part, nt.Node) and part in unread else part for part in words
    )


@dataclass
class _Answer:
    """The answer to a claim, with the proofs, decided relations, signs and letters on which it rests."""

    result: Evidence | comparing.FalseStep | None = None
    shown: judging.ShownRelations = field(default_factory=judging.ShownRelations)
    asked: list[judging.DecidedRelation] = field(default_factory=list)
    signs: list[Text] = field(default_factory=list)
    letters: list[Relation] = field(default_factory=list)


class Statement:
    """A reader of a theorem's claims, with its letters and hypotheses."""

    def __init__(
        self, letters: Glossary, hypotheses: Iterable[Text], says: Text, false_says: Text
    ) -> None:
        self.glossary = self.declared = letters
        self.sized: dict[str, int] = {}
        self.definitions: list[Relation] = []
        self.where: list[Relation] = []
        # that of the hypotheses, and the one that is being made
        self._assumed = self._answer = _Answer()
        self._known: dict[PrintedClaim, _Answer] = {}
        every = [r for words in hypotheses for r in judging.relations(words)]
        self._absorb_hypotheses(every, assuming=True)
        self._absorb_hypotheses([*conditions(says), *conditions(false_says)], assuming=False)
        # Relations that name sizes take effect at once, and are decided nowhere.
        others = [r for r in every if not self.glossary.sized(r)]
        with (
            judging.showing(),
            judging.recorded() as self._assumed.asked,
        ):  # proofs of a hypothesis are not part of a claim's proof
            self.where = [
                r
                for r in others
                if _is_inequality_condition(r)
                and self._is_restrictive_relation(r, self.glossary, self.sized)
            ]
            for relation in (
                others
            ):  # raises FalseStep unless a readable equation holds for the letters as declared
                if not _is_inequality_condition(relation):
                    with suppress(comparing.NotRead):
                        self._judge_relation(
                            relation,
                            self.glossary,
                            self.sized,
                            self._select_relevant_conditions(relation),
                        )

    def reading(self, says: Text, false_says: Text) -> Reading:
        """Read each claim of the statement and of the false variant. Raises FalseStep."""
        stated, denied = claims(says), claims(false_says)
        self._replay_answer(self._assumed)
        results = tuple(map(self.decided, stated))
        false = tuple(map(self.refuted, denied))
        known = (self._known[claim] for claim in (*stated, *denied))
        every = [self._assumed, *known]
        needed, letters = (
            dict.fromkeys(chain(*x))
            for x in zip(*((a.signs, a.letters) for a in every), strict=True)
        )
        return Reading(results, false, tuple(needed), tuple(letters))

    def _absorb_hypotheses(self, every: Iterable[Relation], assuming: bool) -> None:
        for relation in every:
            glossary = defined(self.glossary, relation)
            if glossary:
                self.definitions.append(relation)
            elif assuming:
                glossary = assumed(self.glossary, relation)
                self.sized |= self.glossary.sized(relation) if glossary is None else {}
            self.glossary = glossary or self.glossary

    def compiled(self, relation: Relation) -> Compiled:
        """Return a relation as a function of the letters that it is about."""
        return Compiled(pruned(self.glossary, relation, self.sized), self.sized)

    def reads(self, relation: Relation) -> bool:
        """Return whether the letters give a relation a meaning."""
        compiled = self.compiled(relation)
        sides = compiled.sides([(x.left, x.right) for x in links(relation)])
        try:
            run(sides, compiled.declared, Letters())
        except Unread:
            return False
        except (Refused, Undecided, InputError, ZeroDivisionError, IndexError, ValueError):
            return True  # only not for letters, which lack some functions of numbers
        return True

    def _is_restrictive_relation(
        self, relation: Relation, glossary: Glossary, sized: Mapping[str, int]
    ) -> bool:
        """Return whether a readable relation is not met by all numbers."""
        try:
            with judging.showing():
                self._judge_relation(relation, glossary, sized)
        except comparing.NotRead:
            # A condition "≠" excludes numbers even if it cannot be read.
            return "≠" in (sign for sign, _ in relation.rest)
        except comparing.FalseStep:
            return True
        return False

    def _judge_relation(
        self,
        relation: Relation,
        glossary: Glossary,
        sized: Mapping[str, int],
        where: tuple[Relation, ...] = (),
        sharp: str = "",
        only: bool = False,
    ) -> Evidence:
        more = (("=", side) for x in where for side in (x.first, *(s for _, s in x.rest)))
        whole = Relation(relation.first, (*relation.rest, *more))
        used = pruned(glossary, whole, sized)
        self._answer.signs += signs(used.given, self.declared.positive, self.declared.nonnegative)
        for letter, meaning in used.defined.items():
            if (
                isinstance(meaning, LetterDefinition)
                and self.declared.defined.get(letter) is meaning
            ):
                self._answer.letters.append(
                    nt.equals(nt.name(*letter.split("_"), *meaning.letters), meaning.body)
                )
        sides = {relation.first, *(side for _, side in relation.rest)}
        # Gaps may show a bound only if they are about one of its sides.
        gaps = glossary.gaps if sides & {*glossary.gaps} else {}
        if gaps:  # which may contain letters that the relation does not
            used = replace(used, defined=glossary.defined)
        question = judging.RelationQuestion(
            relation, used, sized, gaps, sharp=sharp, where=where, only=only
        )
        if only:
            of = replace(question, relation=where[-1], where=())

            def decide(other: Relation) -> Evidence:
                return replace(question, where=(*where[:-1], other)).of(relation)

            judging.record(
                judging.DecidedRelation(
                    where[-1],
                    decide,
                    tuple(used.index),
                    tuple(used.sizes),
                    equal=of.equal,
                    number=of.number,
                )
            )
        return judging.judged(question)

    def decided(self, claim: PrintedClaim) -> ReadRelation:
        """Return a claim with its evidence. Raises FalseStep for one that is false."""
        try:
            evidence = self._decide_claim_once(claim)
        except comparing.NotRead as reason:
            return ReadRelation(claim.relation, None, str(reason))
        except comparing.FalseStep as wrong:
            # A denied claim must be refuted, which a mere failure to decide is not.
            if claim.denied and not isinstance(wrong, comparing.NotDecided):
                return ReadRelation(
                    claim.relation,
                    self._refute_printed_claim(claim, str(wrong)),
                    shown=_format_claim_node(claim),
                )
            raise
        if claim.denied:
            raise comparing.FalseStep(f"{text(claim.relation)} holds, and is denied")
        return ReadRelation(claim.relation, evidence, shown=_format_claim_node(claim))

    def _refute_printed_claim(self, claim: PrintedClaim, wrong: str) -> Evidence:
        """Return the evidence that a claim does not always hold: for equations, a certified counterexample."""
        compiled, every = self.compiled(claim.relation), links(claim.relation)
        if (
            not compiled.glossary.formats
            and not claim.conditions
            and all(link.sign == "=" for link in every)
        ):
            decision = Fails(
                compiled.declared, compiled.sides([(x.left, x.right) for x in every])
            ).decide()
            if decision.premises:
                judging.note(decision.premises, wrong.rpartition("false at ")[2])
                return decision.evidence
        return Evidence(Grade.CHECKED, wrong)

    def refuted(self, claim: PrintedClaim) -> ReadRelation:
        """Return a claim of the false variant with where it fails. Raises FalseStep for one that holds."""
        try:
            self._decide_claim_once(claim)
        except (comparing.NotRead, comparing.NotDecided) as reason:
            return ReadRelation(claim.relation, None, str(reason))
        except comparing.FalseStep as wrong:
            return ReadRelation(claim.relation, Evidence(Grade.REFUTED, str(wrong)))
        raise comparing.FalseStep(
            f"the false variant {text(claim.relation)} holds as it is printed"
        )

    def _decide_claim_once(self, claim: PrintedClaim) -> Evidence:
        """Return the evidence for the relation under its conditions, decided once.

        Decided relations and proofs are reported to the caller each time, so that it does not matter who asks first.
        """
        # A claim may occur in the statement and in its variant.
        if claim not in self._known:
            answer = self._answer = _Answer()
            try:
                with judging.showing() as answer.shown, judging.recorded() as answer.asked:
                    answer.result = self._decide_printed_claim(claim)
            except comparing.FalseStep as wrong:
                # Without its traceback the error does not hold on to frames and their arrays.
                answer.result = wrong.with_traceback(None)
            self._known[claim] = answer
        result = self._replay_answer(self._known[claim])
        if isinstance(result, comparing.FalseStep):
            raise result
        assert result
        return result

    def _replay_answer(self, answer: _Answer) -> Evidence | comparing.FalseStep | None:
        judging.note(answer.shown.by, answer.shown.at)
        for relation in answer.asked:
            judging.record(relation)
        return answer.result

    def _decide_printed_claim(self, claim: PrintedClaim) -> Evidence:
        glossary, sized, relation = self.glossary, dict(self.sized), claim.relation
        if claim.format:
            if claim.format not in glossary.formats:
                raise comparing.NotRead(f"{text(relation)}: {claim.format} is none of its formats")
            glossary = replace(glossary, formats=(claim.format,))
        if _is_limit_relation(relation):
            return self._decide_limit_claim(claim)
        where = [*self._select_relevant_conditions(relation)]
        for condition in claim.conditions:
            if condition in self.definitions:
                continue
            if assumption := assumed(glossary, condition):
                glossary = assumption
            elif number := self.glossary.sized(condition):
                sized |= number
            elif is_mask(glossary, condition):
                # Conditions on indices restrict the relation instead of the numbers.
                relation = _restrict_relation_to_indices(relation, condition)
            elif _is_inequality_condition(condition):
                where += (
                    [condition] if self._is_restrictive_relation(condition, glossary, sized) else []
                )
            else:
                self._check_condition_holds(condition, glossary, sized)
        if claim.only and (relation != claim.relation or not where):
            raise comparing.NotRead(f"{text(relation)}: when it holds is not read")
        return self._judge_relation(
            relation, glossary, sized, tuple(where), glossary.sharp, claim.only
        )

    def _decide_limit_claim(self, claim: PrintedClaim) -> Evidence:
        """Return the evidence for x → c, as β → ∞ or β → 0."""
        conditions_ = [c for c in claim.conditions if _is_limit_relation(c)]
        # The value at two limits depends on which is taken first.
        if len(conditions_) != 1:
            raise comparing.NotRead(f"{text(claim.relation)}: what tends to what is not said")
        glossary = pruned(
            self.glossary, Relation(claim.relation.first, claim.relation.rest), self.sized
        )

        def decide(relation: Relation) -> Evidence:
            return limit(
                relation,
                conditions_[0],
                relation.first,
                glossary,
                judging.RelationQuestion(relation, glossary).of,
            )

        judging.record(
            judging.DecidedRelation(
                claim.relation, decide, tuple(glossary.index), tuple(glossary.sizes)
            )
        )
        return decide(claim.relation)

    def _select_relevant_conditions(self, relation: Relation) -> tuple[Relation, ...]:
        """Return the conditions on sizes alone, and those on given letters that concern the relation."""
        relation_letters = {*pruned(self.glossary, relation, self.sized).given}
        letters = ({*pruned(self.glossary, x, self.sized).given} for x in self.where)
        return tuple(
            x
            for x, own in zip(self.where, letters, strict=True)
            if not own or relation_letters & own
        )

    def _check_condition_holds(
        self, condition: Relation, glossary: Glossary, sized: Mapping[str, int]
    ) -> None:
        """Raise NotRead unless a condition holds for the letters as declared."""
        try:
            with judging.showing():  # what shows a condition is no part of what shows the claim
                self._judge_relation(condition, glossary, sized)
        except comparing.FalseStep as reason:
            raise comparing.NotRead(
                f"the condition {text(condition)} is not met by the letters"
            ) from reason


def _format_claim_node(claim: PrintedClaim) -> nt.Node:
    """Return a claim with its conditions, as read, and marked if it is denied or exclusive."""
    parts: list[nt.Node] = (
        [nt.Words("not always"), claim.relation] if claim.denied else [claim.relation]
    )
    for condition in claim.conditions:
        parts += [
            nt.Words(("iff" if claim.only else "for") if len(parts) < 2 + claim.denied else "and"),
            condition,
        ]
    parts += [nt.Words(f"in {claim.format}")] if claim.format else []
    return nt.Row(tuple(parts)) if len(parts) > 1 else claim.relation


def _restrict_relation_to_indices(relation: Relation, condition: Relation) -> Relation:
    """Return a relation with all sides set to 0 where the condition on its indices does not hold, or to whole numbers
    that rise and fall by the strict signs of the relation."""
    level, sides = 0, list[Node]()
    for sign, side in (("", relation.first), *relation.rest):
        level += {"<": 1, ">": -1}.get(sign, 0)
        inside = side if side == nt.node(0) else nt.At(side, condition)
        if level:
            inside = inside + level * (1 - nt.At(nt.node(1), condition))
        sides.append(inside)
    return Relation(
        sides[0],
        tuple((sign, side) for (sign, _), side in zip(relation.rest, sides[1:], strict=True)),
    )


def _is_limit_relation(relation: Relation) -> bool:
    return any(sign == "→" for sign, _ in relation.rest)


def _is_inequality_condition(condition: Relation) -> bool:
    """Return whether it is met by some numbers, not by all that satisfy equations."""
    return all(sign in "≤≥<>≠" for sign, _ in condition.rest)

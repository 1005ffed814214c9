"""A section of a document: the meanings of its letters, its definitions and its claims.

A claim is read from the printed formula; a formula that is false, or cannot be read, never gets a grade: ``claim``
raises FalseStep.

A claim may be a limit by rule: sums, products, quotients and softmax are continuous where they are defined.
β → 0: the value at 0. β → ∞: the value with 0 for every e^{−βu} with u > 0, if β occurs nowhere else; for a growing
size n, the value with 0 for every x/n. Each needs two premises, proved for all sizes: the quantity equals the form, and
the value is the printed limit. The checker takes the limit again (``checker_steps``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Result, Step, Text
from symattn.document.notation import Name, Node, Relation
from symattn.document.text import text
from symattn.proof.certificate import About, Concluded, accepted
from symattn.proof.relations import comparing, judging
from symattn.proof.relations.compiling import Compiled, Link, links
from symattn.proof.relations.concluding import shown
from symattn.proof.relations.glossary import Glossary, LetterDefinition
from symattn.proof.relations.part_values import Unread
from symattn.proof.relations.random_arrays import averages

# Forms that are continuous wherever they are defined.
_CONTINUOUS = (nt.Name, nt.Number, nt.Sum, nt.Neg, nt.Product, nt.Over, nt.Big)


def limit(
    relation: Relation,
    condition: Relation,
    form: Node,
    glossary: Glossary,
    decide: Callable[[Relation], Evidence],
) -> Evidence:
    """Return the evidence for x → c as β → ∞ or 0, where x = ``form``. Raises NotDecided."""
    try:
        letter, value = _read_limit_condition(condition)
        (sign, printed), *others = relation.rest
        if sign != "→" or others:
            raise Unread("a limit is x → c")
        # A limit must not depend on the letter that tends.
        if _is_letter_in_formula(printed, letter):
            raise Unread(f"a limit with the letter {text(letter)}")
        there = _limit_of_formula(form, letter, value, glossary)
    except Unread as reason:
        raise comparing.NotDecided(f"{text(relation)}: {reason}") from reason
    pairs = ((there, printed), (relation.first, form))
    premises = [decide(nt.equals(a, b)) for a, b in pairs if a != b]
    unproved = next((p for p in premises if p.grade is not Grade.PROVED), None)
    if unproved:
        raise comparing.NotDecided(f"{text(relation)}: a premise is {unproved}")
    _expect_accepted(relation, (letter, value), form, there, glossary)
    return judging.all_of(reversed(premises))


def _expect_accepted(
    relation: Relation, tends: tuple[Name, Node], form: Node, there: Node, glossary: Glossary
) -> None:
    """Raise NotDecided unless the checker derives the limit from proofs of the premises."""
    compiled, printed, (letter, value) = Compiled(glossary, {}), relation.rest[0][1], tends
    # Equal sides need no premise.
    pairs = ((there, printed), (relation.first, form))
    equations = {nt.equals(a, b) for a, b in pairs if a != b}
    result = [x for equation in equations for x in shown(compiled, links(equation), {}, {})]
    by = tuple(p for x in result if x for p in x.by)
    conclusions = compiled.entries((relation.first, form, printed))
    sort = glossary.sizes.get(text(letter))
    about: dict[str, About] = {
        "letter": sort or compiled.argument(text(letter)),
        "to": text(value),
        "size": sort is not None,
    }
    step = Concluded("limit", by, conclusions, about)
    proved = Evidence(Grade.PROVED)
    if None in result or accepted(proved, (), (step,)) is not proved:
        raise comparing.NotDecided(f"{text(relation)}: the checker does not reach the limit")
    judging.note((step,))


def _read_limit_condition(condition: Relation) -> tuple[Name, Node]:
    match condition:
        case Relation(Name() as letter, (("→", value),)) if value in (nt.node(0), Name("∞")):
            return letter, value
    raise Unread(f"the condition {text(condition)}")


def _limit_of_formula(x: Node, letter: Name, value: Node, g: Glossary) -> Node:
    """Return the limit of ``x``. Raises Unread unless it is continuous by its form."""
    if not _is_letter_in_formula(x, letter):
        _refuse_dependence_on_letter(x, letter, g)
        return x
    match x:
        # e^u is continuous; at infinity it needs an exponent that falls.
        case nt.Power(base, exponent) if base == Name("e"):
            return (
                base ** _limit_of_formula(exponent, letter, value, g)
                if value == nt.node(0)
                else _limit_of_vanishing_power(exponent, letter, g)
            )
        case nt.Power(base, nt.Number() as exponent):
            return _limit_of_formula(base, letter, value, g) ** exponent
        case nt.Fence("round", body, None):
            return nt.Fence("round", _limit_of_formula(body, letter, value, g))
        case nt.Call(Name("softmax"), arguments) if value == nt.node(0):
            return nt.Call(
                x.function, tuple(_limit_of_formula(a, letter, value, g) for a in arguments)
            )
        case Name() if value == nt.node(0):
            return value
        # c/n → 0.
        case nt.Over(above, below) if (
            below == letter and text(letter) in g.sizes and not _is_letter_in_formula(above, letter)
        ):
            return nt.node(0)
    # Of other forms nothing is known at the limit.
    if not isinstance(x, _CONTINUOUS) or isinstance(x, Name):
        raise Unread(f"the limit of {text(x)}")
    whole: Any = x
    parts = {
        f.name: _limit_of_formula_parts(getattr(x, f.name), letter, value, g)
        for f in fields(whole)
        if f.name in _OPERANDS
    }
    result: Node = replace(whole, **parts)
    return result


_OPERANDS = ("terms", "factors", "body", "numerator", "denominator")


def _limit_of_formula_parts(x: Any, letter: Name, value: Node, g: Glossary) -> Any:
    return (
        tuple(_limit_of_formula(y, letter, value, g) for y in x)
        if isinstance(x, tuple)
        else _limit_of_formula(x, letter, value, g)
    )


def _limit_of_vanishing_power(exponent: Node, letter: Name, g: Glossary) -> Node:
    """Return 0 · u for e^{−βu}, with the indices of u."""
    match exponent:
        case nt.Neg(nt.Product((beta, Name() as u))) if (
            beta == letter and g.stem(u)[0] in g.positive
        ):
            # With its factor 0, the limit has the indices that the form has.
            return nt.node(0) * u
    raise Unread(f"e to the power {text(exponent)} is not seen to tend to 0")


def _is_letter_in_formula(x: Node, letter: Name) -> bool:
    return letter in nt.within(x)


def _refuse_dependence_on_letter(x: Node, letter: Name, g: Glossary) -> None:
    """Raise Unread if ``x`` depends on ``letter`` through a definition, or on a definition in code."""
    if isinstance(x, Name):
        # A definition may hide the letter.
        meaning = g.defined.get(g.stem(x)[0])
        if meaning and not isinstance(meaning, LetterDefinition):
            raise Unread(f"whether {text(x)} depends on {text(letter)}")
        if isinstance(meaning, LetterDefinition):
            if _is_letter_in_formula(meaning.body, letter):
                raise Unread(f"{text(x)} depends on {text(letter)}")
            _refuse_dependence_on_letter(meaning.body, letter, g)
    else:
        for part in nt.parts(x):
            _refuse_dependence_on_letter(part, letter, g)


class Section:
    """Letters, definitions and claims that belong together."""

    def __init__(self, glossary: Glossary) -> None:
        self.glossary = glossary
        self.known: dict[Link, Evidence] = {}

    def let(self, words: Text | Node) -> Any:
        """Return text to print, and define letters by relations in it, as "with Z = Σ e^{s_ℓ}"; others must hold."""
        for relation in judging.relations(words):
            # Z = a = b defines Z, and claims a = b.
            (_, side), *more = relation.rest
            letter = self._letter_defined_by_relation(relation)
            if letter:
                self.glossary = self.glossary.with_definition(relation)
            if not letter or (more and letter not in self.glossary.given):
                claim = Relation(side, tuple(more)) if letter else relation
                judging.judged(judging.RelationQuestion(claim, self.glossary), self.known)
        return words

    def define(self, formula: Node, reason: Text | str = "definition") -> Step:
        """Return a definition as a step, and add it and those in its reason to the letters."""
        self.let(_reason_as_text(reason))
        self.let(formula)
        return Step(formula, _reason_as_text(reason))

    def claim(
        self,
        formula: Node,
        reason: Text | str,
        *,
        gaps: Mapping[Node, Node] | None = None,
        signs: Mapping[Node, Node] | None = None,
        free: Mapping[str, str] | None = None,
        keep: bool = False,
    ) -> Step:
        """Return a step with the grade of its formula. Raises FalseStep.

        A relation in the reason is a definition, or must hold too; "n = 3" there names the size for which the formula
        is written out. ``gaps``, ``signs``: see ``RelationQuestion``. ``free``: letters with their shapes for which
        the formula holds whatever their values. ``keep``: the formula defines its left side from here on.
        """
        said = _reason_as_text(reason)
        sized = self._sizes_set_by_reason(said)
        self._decide_relations_of_reason(said, sized)
        glossary = self.glossary.freed(free) if free else self.glossary
        if not isinstance(formula, Relation):
            raise comparing.FalseStep(f"{text(formula)}: no relation to decide")
        question = judging.RelationQuestion(formula, glossary, sized, gaps or {}, signs or {})
        if averages(formula):
            judging.assumptions(formula, glossary)  # else the grade could not name them
        evidence = judging.judged(question, {} if free else self.known)
        # Proofs at sizes or under other letters are not reused.
        if evidence.grade is Grade.PROVED and not sized and not free:
            self.known |= dict.fromkeys(links(formula), evidence)
        if keep:
            self.glossary = self.glossary.with_definition(formula)
        return Step(formula, said, evidence)

    def tends(self, formula: Relation, condition: Relation, form: Node | None = None) -> Step:
        """Return a limit under its condition, as β → ∞; see ``limit``. ``form``: a form to prove it by."""

        def decide(relation: Relation, under: Relation = condition) -> Evidence:
            return limit(
                relation,
                under,
                form or formula.first,
                self.glossary,
                judging.RelationQuestion(relation, self.glossary).of,
            )

        letters = tuple(self.glossary.index), tuple(self.glossary.sizes)
        judging.record(judging.DecidedRelation(formula, decide, *letters))
        # The condition is recorded as well, since the limit must depend on it.
        judging.record(
            judging.DecidedRelation(condition, lambda other: decide(formula, other), *letters)
        )
        return Step(formula, (condition,), decide(formula))

    def result(
        self,
        title: str,
        *lines: Relation | tuple[Relation, ...],
        said: Text = (),
        gaps: Mapping[Node, Node] | None = None,
        signs: Mapping[Node, Node] | None = None,
    ) -> Result:
        """Return formulas in a box, each decided again; those of a tuple share a line."""
        rows = [line if isinstance(line, tuple) else (line,) for line in lines]
        steps = [self.claim(formula, (), gaps=gaps, signs=signs) for row in rows for formula in row]
        # Each kind of evidence is printed once.
        evidence = dict.fromkeys(step.evidence for step in steps if step.evidence)
        joined = tuple(nt.Row(row) if len(row) > 1 else row[0] for row in rows)
        return Result(
            title,
            joined,
            tuple(evidence),
            said,
        )

    def _decide_relations_of_reason(self, said: Text, sized: Mapping[str, int]) -> None:
        """Add a reason's definitions of new letters, then decide its other relations, except the sizes that it sets."""
        new = [
            r
            for r in judging.relations(said)
            if (letter := self._letter_defined_by_relation(r)) and not self.glossary.knows(letter)
        ]
        # Definitions come first, since the other relations use them.
        self.let(tuple(new))
        for relation in judging.relations(said):
            if relation not in new and not self.glossary.sized(relation):
                judging.judged(judging.RelationQuestion(relation, self.glossary, sized), self.known)

    def _letter_defined_by_relation(self, relation: Relation) -> str:
        """Return the letter that a relation says the meaning of; "" if none, as p_1 = … where p is an array."""
        of = relation.first
        if not isinstance(of, nt.Name) or relation.rest[0][0] != "=":
            return ""
        letters = tuple(s for s in of.sub if not isinstance(s, nt.Number))
        array = nt.Name(of.base, letters)
        letter, whole = (self.glossary.stem(x)[0] for x in (of, array))
        return "" if letter != whole and self.glossary.knows(whole) else letter

    def _sizes_set_by_reason(self, reason: Text) -> dict[str, int]:
        return {
            size: n for r in judging.relations(reason) for size, n in self.glossary.sized(r).items()
        }


def _reason_as_text(reason: Text | str) -> Text:
    return ((reason,) if reason else ()) if isinstance(reason, str) else reason

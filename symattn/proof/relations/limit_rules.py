"""Limits by rule: sums, products, quotients and softmax are continuous where they are defined.

β → 0: the value at 0. β → ∞: the value with 0 for every e^{−βu} with u > 0, if β occurs nowhere else; for a growing
size n, the value with 0 for every x/n. Each needs two premises, proved for all sizes: the quantity equals the form, and
the value is the printed limit. The checker takes the limit again (``checker_steps``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade
from symattn.document.notation import Name, Node, Relation
from symattn.document.text import text
from symattn.proof.certified import accepted
from symattn.proof.premises import About, Concluded
from symattn.proof.relations.comparing import NotDecided
from symattn.proof.relations.compiling import Compiled, links
from symattn.proof.relations.concluding import shown
from symattn.proof.relations.glossary import Glossary, LetterDefinition
from symattn.proof.relations.judging import all_of, note
from symattn.proof.relations.part_values import Unread

_CONTINUOUS = (nt.Name, nt.Number, nt.Sum, nt.Neg, nt.Product, nt.Over, nt.Big)


def limit(
    relation: Relation, condition: Relation, form: Node, glossary: Glossary, decide: Callable[[Relation], Evidence]
) -> Evidence:
    """Return the evidence for x → c as β → ∞ or 0, where x = ``form``. Raises NotDecided."""
    try:
        letter, value = _condition(condition)
        (sign, printed), *others = relation.rest
        if sign != "→" or others:
            raise Unread("a limit is x → c")
        if _has(printed, letter):
            raise Unread(f"a limit with the letter {text(letter)}")
        there = _at(form, letter, value, glossary)
    except Unread as reason:
        raise NotDecided(f"{text(relation)}: {reason}") from reason
    premises = [decide(nt.equals(a, b)) for a, b in ((there, printed), (relation.first, form)) if a != b]
    unproved = next((p for p in premises if p.grade is not Grade.PROVED), None)
    if unproved:
        raise NotDecided(f"{text(relation)}: a premise is {unproved}")
    _expect_accepted(relation, (letter, value), form, there, glossary)
    return all_of(reversed(premises))


def _expect_accepted(relation: Relation, tends: tuple[Name, Node], form: Node, there: Node, glossary: Glossary) -> None:
    """Raise NotDecided unless the checker derives the limit from proofs of the premises."""
    compiled, printed, (letter, value) = Compiled(glossary, {}), relation.rest[0][1], tends
    equations = {nt.equals(a, b) for a, b in ((there, printed), (relation.first, form)) if a != b}
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
        raise NotDecided(f"{text(relation)}: the checker does not reach the limit")
    note((step,))


def _condition(condition: Relation) -> tuple[Name, Node]:
    match condition:
        case Relation(Name() as letter, (("→", value),)) if value in (nt.node(0), Name("∞")):
            return letter, value
    raise Unread(f"the condition {text(condition)}")


def _at(x: Node, letter: Name, value: Node, g: Glossary) -> Node:
    """Return the limit of ``x``. Raises Unread unless it is continuous by its form."""
    if not _has(x, letter):
        _without(x, letter, g)
        return x
    match x:
        case nt.Power(base, exponent) if base == Name("e"):
            return base ** _at(exponent, letter, value, g) if value == nt.node(0) else _vanishes(exponent, letter, g)
        case nt.Power(base, nt.Number() as exponent):
            return _at(base, letter, value, g) ** exponent
        case nt.Fence("round", body, None):
            return nt.Fence("round", _at(body, letter, value, g))
        case nt.Call(Name("softmax"), arguments) if value == nt.node(0):
            return nt.Call(x.function, tuple(_at(a, letter, value, g) for a in arguments))
        case Name() if value == nt.node(0):
            return value
        case nt.Over(above, below) if below == letter and text(letter) in g.sizes and not _has(above, letter):
            return nt.node(0)
    if not isinstance(x, _CONTINUOUS) or isinstance(x, Name):
        raise Unread(f"the limit of {text(x)}")
    whole: Any = x
    parts = {f.name: _part(getattr(x, f.name), letter, value, g) for f in fields(whole) if f.name in _OPERANDS}
    result: Node = replace(whole, **parts)
    return result


_OPERANDS = ("terms", "factors", "body", "numerator", "denominator")


def _part(x: Any, letter: Name, value: Node, g: Glossary) -> Any:
    return tuple(_at(y, letter, value, g) for y in x) if isinstance(x, tuple) else _at(x, letter, value, g)


def _vanishes(exponent: Node, letter: Name, g: Glossary) -> Node:
    """Return 0 · u for e^{−βu}, with the indices of u."""
    match exponent:
        case nt.Neg(nt.Product((beta, Name() as u))) if beta == letter and g.stem(u)[0] in g.positive:
            return nt.node(0) * u
    raise Unread(f"e to the power {text(exponent)} is not seen to tend to 0")


def _has(x: Node, letter: Name) -> bool:
    return letter in nt.within(x)


def _without(x: Node, letter: Name, g: Glossary) -> None:
    """Raise Unread if ``x`` depends on ``letter`` through a definition, or on a definition in code."""
    if isinstance(x, Name):
        meaning = g.defined.get(g.stem(x)[0])
        if meaning and not isinstance(meaning, LetterDefinition):
            raise Unread(f"whether {text(x)} depends on {text(letter)}")
        if isinstance(meaning, LetterDefinition):
            if _has(meaning.body, letter):
                raise Unread(f"{text(x)} depends on {text(letter)}")
            _without(meaning.body, letter, g)
    else:
        for part in nt.parts(x):
            _without(part, letter, g)

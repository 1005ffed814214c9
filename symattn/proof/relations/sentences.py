"""Sort the relations of a text into claims, definitions of letters, and conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from symattn.document import notation as nt
from symattn.document.model import Text
from symattn.document.notation import Name, Node, Relation
from symattn.document.text import text
from symattn.proof.relations import judging
from symattn.proof.relations.functions import FUNCTIONS
from symattn.proof.relations.glossary import Glossary, Spoken
from symattn.proof.relations.recurring import recurrence

_OPENING = frozenset(("with", "where", "for", "if", "at", "when", "as", "under", "from"))
_GIVEN = ("condition", "iff")
_BETWEEN = frozenset(("some", "any", "all", "every", "a", "an", "the", "real"))
_CONTINUING = frozenset(("", "and"))
_SIGNS = {">": "positive", "≥": "nonnegative"}
_IN_FORMAT = re.compile(r" in (b?float\w+)")


@dataclass(frozen=True)
class PrintedClaim:
    """A relation that a text claims under conditions; ``denied``: the text says that it does not hold; ``only``: it
    holds under these conditions and no others; ``format``: the number format in which it is claimed, "" for every."""

    relation: Relation
    conditions: tuple[Relation, ...] = ()
    denied: bool = False
    only: bool = False
    format: str = ""


def claims(words: Text) -> list[PrintedClaim]:
    """Return the claims of a text, in order, each with the conditions of its clause. Clauses are separated by a
    semicolon, a full stop, or a colon after a claim. A relation after "with", "where", "for", "if", "at", "as" is a
    condition, and so are those that follow it after "and" or a comma."""
    result: list[PrintedClaim] = []
    for clause in _yield_relation_clauses(words):
        conditions = tuple(r for kind, r, _ in clause if kind in _GIVEN)
        # "if and only if" makes a condition part of what is claimed.
        only = any(kind == "iff" for kind, _, _ in clause)
        result += [
            PrintedClaim(r, conditions, kind == "denied", only, name)
            for kind, r, name in clause
            if kind not in _GIVEN
        ]
    return result


def conditions(words: Text) -> list[Relation]:
    """Return the conditions and definitions of a text."""
    return [
        r for clause in _yield_relation_clauses(words) for kind, r, _ in clause if kind in _GIVEN
    ]


def _yield_relation_clauses(words: Text) -> Iterator[list[tuple[str, Relation, str]]]:
    """Yield the relations of each clause, with their kind and, for "in float16" after one, the name of the format."""
    clause: list[tuple[str, Relation, str]] = []
    kind = "claim"
    for part, after in zip_longest(words, words[1:], fillvalue=""):
        if isinstance(part, str):
            if re.search("[;.:]", part):
                # A colon after conditions alone leads to their claim.
                if ":" not in part or any(k not in _GIVEN for k, *_ in clause):
                    yield clause
                    clause = []
                kind = "claim"
            kind = _kind_after_words(part, kind)
        in_format = _IN_FORMAT.match(after) if isinstance(after, str) else None
        for relation in judging.relations(part):
            clause.append((kind, relation, in_format[1] if in_format else ""))
    yield clause


def _kind_after_words(words: str, before: str) -> str:
    """Return the kind of a relation after these words."""
    last_words = re.findall(r"[^\W\d_]+", words)
    # Articles and quantifiers between a word and its relation do not count.
    while last_words and last_words[-1] in _BETWEEN:
        last_words.pop()
    last = last_words[-1] if last_words else ""
    if last in _OPENING:
        return "condition"
    if last == "iff":
        return last
    # "and" alone continues what came before, with other words in front it does not.
    if last in _CONTINUING and len(last_words) < 2:
        return before
    return "denied" if "not" in last_words[-3:] else "claim"


# -- letters that a text explains ------------------------------------------------------------------------------------
def defined(glossary: Glossary, relation: Relation) -> Glossary | None:
    """Return the glossary with the letter or function that the relation defines: ``x = …``, ``f(x) = …``, or
    ``x² = …`` for a nonnegative number. None if it defines nothing, such as a letter that has a meaning already."""
    (sign, right), *more = relation.rest
    left = relation.first
    if sign != "=" or more:
        return None
    # A recurrence defines a family of letters.
    steps = recurrence(relation)
    if steps and steps[0] not in glossary.families:
        return replace(glossary, families={**glossary.families, steps[0]: steps[1]})
    if isinstance(left, nt.Call):
        known = {*FUNCTIONS, *glossary.functions, *glossary.spoken}
        if not isinstance(left.function, Name) or left.function.base in known:
            return None
        if not all(isinstance(x, Name) for x in left.arguments):
            return None
        spoken = {**glossary.spoken, left.function.base: Spoken(left.arguments, right)}
        return replace(glossary, spoken=spoken)
    # x² = … defines x ≥ 0 as the root.
    if (
        isinstance(left, nt.Power)
        and left.exponent == nt.Number(Fraction(2))
        and _is_unknown_letter(glossary, left.base)
    ):
        return glossary.with_definition(nt.equals(left.base, nt.Root(right)))
    return glossary.with_definition(relation) if _is_unknown_letter(glossary, left) else None


def assumed(glossary: Glossary, relation: Relation) -> Glossary | None:
    """Return the glossary with what the relation assumes about given letters: a sign for ``x > 0`` and ``x ≥ 0``, a
    value for ``x = 2``, equal sizes for ``n = m``. None if it assumes nothing of this kind."""
    (sign, right), *more = relation.rest
    left = relation.first
    # A chain assumes several things at once.
    if more:
        return None
    if sign in _SIGNS and right == nt.Number(Fraction(0)) and _is_array_name(glossary, left):
        kind = _SIGNS[sign]
        signs: Any = {kind: (*getattr(glossary, kind), text(left))}
        return replace(glossary, **signs)
    if sign != "=":
        return None
    if (
        _is_array_name(glossary, left)
        # A number is put in for the letter.
        and glossary.given[text(left)] == ""
        and isinstance(right, nt.Number | nt.Neg)
    ):
        return glossary.valued(text(left), right)
    if text(left) in glossary.sizes and text(right) in glossary.sizes:
        return glossary.merged(text(left), text(right))
    return None


def _is_array_name(glossary: Glossary, x: Node) -> bool:
    return isinstance(x, Name) and text(x) in glossary.given


def _is_unknown_letter(glossary: Glossary, x: Node) -> bool:
    return (
        isinstance(x, Name)
        and text(x) not in glossary.index
        and not glossary.knows(glossary.stem(x)[0])
    )


def is_mask(glossary: Glossary, relation: Relation) -> bool:
    """Return whether a relation is between index letters: j ≤ i + n_k − n_q. One of sizes alone, n ≥ 2, is none."""
    sides = (relation.first, *(side for _, side in relation.rest))
    letters = any(
        isinstance(x, Name) and x.base in glossary.index and not x.sub for x in nt.within(*sides)
    )
    return letters and all(_is_place(glossary, x) for x in sides)


def _is_place(glossary: Glossary, x: Node) -> bool:
    if isinstance(x, nt.Sum):
        return all(_is_place(glossary, term) for term in x.terms)
    if isinstance(x, nt.Neg):
        return _is_place(glossary, x.body)
    if isinstance(x, Name):
        is_index = not x.sub and x.base in glossary.index
        return is_index or text(x) in glossary.sizes
    return isinstance(x, nt.Number)

"""The meanings of a section's letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from symattn.document import notation as nt
from symattn.document.formulas import ARRAY_ROLES, formula
from symattn.document.notation import Name, Node, Relation
from symattn.document.text import text

if TYPE_CHECKING:
    from symattn.proof.expectation import EntryLaw
    from symattn.proof.relations.part_values import Several
    from symattn.proof.relations.reader import Reader

_PRINTED = ("n", "n_q", "n_k", "d_k", "d_v", "d_model", "h")


@dataclass(frozen=True)
class LetterDefinition:
    """The definition of a letter: the index letters on its left side, and its body."""

    letters: tuple[str, ...]
    body: Node


@dataclass(frozen=True)
class Spoken:
    """A function that a text defines: its parameters and its body."""

    letters: tuple[Node, ...]
    body: Node


@dataclass(frozen=True)
class Gap:
    """The difference larger − smaller, in a form that shows its sign.

    ``letters`` are those of the form alone, each with its meaning; ``laws``: letters → the law by which their meaning
    is not negative (see ``checker_signs``). Both sides are equal only if the letters in ``only`` are 0.
    """

    body: Node
    letters: Mapping[str, LetterDefinition] = field(default_factory=dict)
    laws: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()


Meaning = LetterDefinition | Callable[["Reader"], Any]
"""A printed definition, or code that returns an array without index letters."""


@dataclass(frozen=True)
class Glossary:
    """The meanings of the letters of one section, in which each letter has one meaning.

    ``given``: the arrays that a statement is about, each with its shape in sorts: {"Q": "n_q d_k"}. A letter in lower
    case with indices is a row or an entry of the array in upper case. ``sizes``: printed sizes → sorts; ``index``:
    index letters → sorts. ``defined``: letters that are computed; ``functions``, ``spoken``: words for functions.
    ``families``: letters and functions whose printed index or arguments are read by code, such as R in R_{n − m}.
    ``laws``: the laws of random given arrays, by which E, Var and Cov are read. ``loss``: a defined number; dX is its
    gradient by X. ``gaps``, ``sharp``: see ``RelationQuestion``. ``sets``: sets of indices → the sort of their size; a
    set holds the first indices of an axis. ``exact``: test numbers are exact instead of balls. ``formats``: the number
    formats that a statement is about; it is checked in each. ``first``: the number of the first row, 0 or 1.
    ``alike``: reduces several values to those that must be equal. ``rows``: vectors before a matrix are rows.
    ``fixed``: the numbers of an ``example``; ``places``: index letters with a fixed place. ``labels``: the assumptions
    of a document → what they are about: arrays, or a property that a law assumes, such as "A3" → "centred"; claims
    of means and variances name them, and others those about defined arrays. ``roles``: the colours of letters.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=lambda: {n: n for n in _PRINTED})
    index: Mapping[str, str] = field(default_factory=dict)
    defined: Mapping[str, Meaning] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    spoken: Mapping[str, Spoken] = field(default_factory=dict)
    families: Mapping[str, Callable[[Reader, tuple[Node, ...]], Any]] = field(default_factory=dict)
    laws: Mapping[str, EntryLaw] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, nt.Role | None] = field(default_factory=lambda: ARRAY_ROLES)
    permutations: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    positive: tuple[str, ...] = ()
    nonnegative: tuple[str, ...] = ()
    units: tuple[tuple[str, str], ...] = ()
    places: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[Node, Gap | Node] = field(default_factory=dict)
    sharp: str = ""
    sets: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False
    formats: tuple[str, ...] = ()
    loss: str = ""
    alike: Callable[[Several], Several] | None = None
    first: int = 1
    rows: bool = False
    example: bool = False

    def knows(self, key: str) -> bool:
        """Return whether the letter stands for an array or a number."""
        every = (self.given, self.defined, self.sizes, self.permutations, self.families)
        return any(key in letters for letters in every)

    def sized(self, relation: Relation) -> dict[str, int]:
        """Return the size that a relation n = 2 sets, or {}; n ≥ 2 sets none."""
        size, ((sign, number), *others) = self.sizes.get(text(relation.first)), relation.rest
        if not size or sign != "=" or others or not isinstance(number, nt.Number):
            return {}
        return {size: int(number.value)} if Fraction(number.value).denominator == 1 else {}

    def but(self, *letters: str) -> Glossary:
        """Return this without the meanings of some letters."""

        def rest(mapping: Mapping[str, object]) -> dict[str, Any]:
            return {key: meaning for key, meaning in mapping.items() if key not in letters}

        return replace(
            self, given=rest(self.given), defined=rest(self.defined), sizes=rest(self.sizes)
        )

    def also(self, given: Mapping[str, str] | None = None, **more: Any) -> Glossary:
        """Return this with more: letters in ``given`` lose their old meaning, mappings are joined, other fields are
        set; a ``Node`` in ``defined`` is a definition without indices."""
        # A new letter hides an old meaning of the same name.
        glossary = self.freed(given or {})
        if "defined" in more:
            result = {
                k: LetterDefinition((), d) if isinstance(d, Node) else d
                for k, d in more["defined"].items()
            }
            glossary = replace(
                glossary, given={k: s for k, s in glossary.given.items() if k not in result}
            )
            more["defined"] = result
        # Mappings are joined, all other fields replaced.
        joined: Any = {
            k: {**getattr(glossary, k), **v} if isinstance(v, Mapping) else v
            for k, v in more.items()
        }
        return replace(glossary, **joined)

    def where(self, *definitions: str) -> Glossary:
        """Return this with printed definitions of letters: "dP = G Vᵀ", "p_i = e^{s_i}/Z"."""
        return self.also(defined=dict(map(self.explained, definitions)))

    def explained(self, definition: str) -> tuple[str, LetterDefinition]:
        """Return the letter that a printed definition defines, and the definition."""
        relation = formula(definition, self.roles)
        assert isinstance(relation, Relation)
        assert isinstance(relation.first, Name)
        letter, letters = self.stem(relation.first)
        return letter, LetterDefinition(letters, relation.rest[0][1])

    def valued(self, letter: str, number: Node) -> Glossary:
        """Return this with a number as the value of a given letter."""
        remaining = {key: shape for key, shape in self.given.items() if key != letter}
        return replace(
            self, given=remaining, defined={**self.defined, letter: LetterDefinition((), number)}
        )

    def merged(self, one: str, other: str) -> Glossary:
        """Return this with two printed sizes identified."""
        # The first in alphabetical order, so that the result does not depend on the sides.
        kept, lost = sorted((self.sizes[one], self.sizes[other]))

        def sort(shape: str) -> str:
            return re.sub(rf"(?<!\w){lost}(?!\w)", kept, shape)

        def every(mapping: Mapping[str, str]) -> dict[str, str]:
            return {key: sort(shape) for key, shape in mapping.items()}

        return replace(
            self, given=every(self.given), sizes=every(self.sizes), index=every(self.index)
        )

    def with_definition(self, relation: Relation) -> Glossary:
        """Return this with the definition ``letter = body``, or with numbers for given arrays. Raises ValueError for a
        letter that has a meaning."""
        (sign, body), *_ = relation.rest
        if sign != "=" or not isinstance(relation.first, Name):
            return self
        letter, indices = self.stem(relation.first)
        if letter in self.given and not indices:  # X = Y = numbers
            sides = [relation.first, *(side for _, side in relation.rest)]
            glossary = self
            for side in sides[:-1]:
                glossary = glossary.with_numbers(text(side), sides[-1])
            return glossary
        if self.knows(letter):
            raise ValueError(f"{text(relation)}: {letter} has a meaning already")
        return replace(self, defined={**self.defined, letter: LetterDefinition(indices, body)})

    def with_numbers(self, letter: str, body: Node) -> Glossary:
        """Return this with printed numbers for the given array ``letter``."""
        if letter not in self.given or not isinstance(body, nt.Matrix | nt.Number | nt.Neg):
            raise ValueError(f"{letter} = {text(body)}: these are no numbers of a given array")
        rows = body.rows if isinstance(body, nt.Matrix) else ((body,),)
        return replace(self, fixed={**self.fixed, letter: tuple(rows)})

    def stem(self, name: Name) -> tuple[str, tuple[str, ...]]:
        """Return the letter as text, and its index letters: s and (i, j) for s_ij."""
        ends = [
            s.base for s in name.sub if isinstance(s, Name) and not s.sub and s.base in self.index
        ]
        remaining = tuple(
            s for s in name.sub if not (isinstance(s, Name) and not s.sub and s.base in self.index)
        )
        return text(Name(name.base, remaining)), tuple(ends)

    def freed(self, letters: Mapping[str, str]) -> Glossary:
        """Return this with ``letters`` as given arrays of any entries instead of their definitions."""
        remaining = {key: meaning for key, meaning in self.defined.items() if key not in letters}
        return replace(self, given={**self.given, **letters}, defined=remaining)


@lru_cache(maxsize=1000)
def spelt(key: str) -> str:
    """Return a letter as the name of an argument: dS_prime for dS′."""
    plain = key.replace("′", "_prime").translate(str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789"))
    word = re.sub(r"\W", "_", plain)
    return word if word.isidentifier() else f"x{word}"

"""The meanings of a section's letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
    """A letter with the index letters that it was defined with, and what it is."""

    letters: tuple[str, ...]
    body: Node


@dataclass(frozen=True)
class Spoken:
    """A function that a text defines: its letters, and what it is of them."""

    letters: tuple[Node, ...]
    body: Node


@dataclass(frozen=True)
class Gap:
    """Larger − smaller, in a form that shows its sign.

    ``letters`` are those of the form alone, each with what it stands for; ``laws``: letters → the law by which what
    they stand for is not negative (see ``checker_signs``). Both sides are equal only where those in ``only`` are 0.
    """

    body: Node
    letters: Mapping[str, LetterDefinition] = field(default_factory=dict)
    laws: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()


Meaning = LetterDefinition | Callable[["Reader"], Any]
"""A printed definition, or code that gives an array without index letters."""


@dataclass(frozen=True)
class Glossary:
    """One for each section, so that each letter has one meaning where it is printed.

    ``given``: the arrays that a statement is about, each with its shape in sorts: {"Q": "n_q d_k"}. A letter in lower
    case with indices is a row or an entry of the array in upper case. ``sizes``: printed sizes → sorts; ``index``:
    index letters → sorts. ``defined``: letters that are computed; ``functions``, ``spoken``: words for functions.
    ``families``: letters and functions of which code reads the index or the arguments as they are printed, such as R in
    R_{n − m}. ``laws``: given arrays that are random, by which E, Var and Cov are read. ``loss``: a defined number; dX
    is its gradient by X. ``gaps``, ``sharp``: see ``Question``. ``sets``: sets of indices
    → the sort of how many they hold, the first ones of an axis. ``exact``: numbers are tried that are no balls.
    ``formats``: the number formats that a statement is about, in each of which it is checked. ``first`` is the number
    of the first row, 0 where rows are counted from 0. ``alike``: what must be equal for several things to be so.
    ``rows``: vectors before a matrix are rows. ``fixed`` are the numbers of an ``example``, ``places`` the places of
    index letters that stand for one index. ``labels``: the assumptions of a document, by what they are about: arrays,
    or what a law assumes, such as "A3" → "centred"; claims of means and variances name them. ``roles`` are the colours
    of letters.
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

    def but(self, *letters: str) -> Glossary:
        """This without the meaning of some letters."""

        def rest(found: Mapping[str, object]) -> dict[str, Any]:
            return {key: meaning for key, meaning in found.items() if key not in letters}

        return replace(self, given=rest(self.given), defined=rest(self.defined), sizes=rest(self.sizes))

    def also(self, given: Mapping[str, str] | None = None, **more: Any) -> Glossary:
        """This and more: letters in ``given`` lose the meaning that they had, mappings are joined, other fields are
        set; a ``Node`` in ``defined`` is a definition without indices."""
        glossary = self.freed(given or {})
        if "defined" in more:
            result = {k: LetterDefinition((), d) if isinstance(d, Node) else d for k, d in more["defined"].items()}
            glossary = replace(glossary, given={k: s for k, s in glossary.given.items() if k not in result})
            more["defined"] = result
        joined: Any = {k: {**getattr(glossary, k), **v} if isinstance(v, Mapping) else v for k, v in more.items()}
        return replace(glossary, **joined)

    def where(self, *definitions: str) -> Glossary:
        """This with letters that are defined as they are printed: "dP = G Vᵀ", "p_i = e^{s_i}/Z"."""
        return self.also(defined=dict(map(self.explained, definitions)))

    def explained(self, definition: str) -> tuple[str, LetterDefinition]:
        """The letter that a printed definition is of, and what it is."""
        relation = formula(definition, self.roles)
        assert isinstance(relation, Relation)
        assert isinstance(relation.first, Name)
        letter, letters = self.stem(relation.first)
        return letter, LetterDefinition(letters, relation.rest[0][1])

    def valued(self, letter: str, number: Node) -> Glossary:
        """This, where a given letter is a number."""
        given = {key: shape for key, shape in self.given.items() if key != letter}
        return replace(self, given=given, defined={**self.defined, letter: LetterDefinition((), number)})

    def merged(self, one: str, other: str) -> Glossary:
        """This, where two printed sizes are one."""
        kept, lost = sorted((self.sizes[one], self.sizes[other]))

        def sort(shape: str) -> str:
            return re.sub(rf"(?<!\w){lost}(?!\w)", kept, shape)

        def every(found: Mapping[str, str]) -> dict[str, str]:
            return {key: sort(shape) for key, shape in found.items()}

        return replace(self, given=every(self.given), sizes=every(self.sizes), index=every(self.index))

    def with_definition(self, relation: Relation) -> Glossary:
        """This and ``letter = body``; or the numbers of given arrays. Raises ValueError for a letter that has a
        meaning."""
        (sign, body), *_ = relation.rest
        if sign != "=" or not isinstance(relation.first, Name):
            return self
        letter, indices = self.stem(relation.first)
        if letter in self.given and not indices:
            return self._numbered(relation)
        if self.knows(letter):
            raise ValueError(f"{text(relation)}: {letter} has a meaning already")
        return replace(self, defined={**self.defined, letter: LetterDefinition(indices, body)})

    def _numbered(self, relation: Relation) -> Glossary:
        """X = Y = numbers."""
        sides = [relation.first, *(side for _, side in relation.rest)]
        glossary = self
        for side in sides[:-1]:
            glossary = glossary.with_numbers(text(side), sides[-1])
        return glossary

    def with_numbers(self, letter: str, body: Node) -> Glossary:
        """This, where the given array ``letter`` has the numbers that are printed."""
        if letter not in self.given or not isinstance(body, nt.Matrix | nt.Number | nt.Neg):
            raise ValueError(f"{letter} = {text(body)}: these are no numbers of a given array")
        rows = body.rows if isinstance(body, nt.Matrix) else ((body,),)
        return replace(self, fixed={**self.fixed, letter: tuple(rows)})

    def stem(self, name: Name) -> tuple[str, tuple[str, ...]]:
        """The letter as text, and the index letters after it: s_ij is s and (i, j)."""
        ends = [s.base for s in name.sub if isinstance(s, Name) and not s.sub and s.base in self.index]
        remaining = tuple(s for s in name.sub if not (isinstance(s, Name) and not s.sub and s.base in self.index))
        return text(Name(name.base, remaining)), tuple(ends)

    def freed(self, letters: Mapping[str, str]) -> Glossary:
        """This with ``letters`` as arrays of any entries in the place of what they were defined as."""
        remaining = {key: meaning for key, meaning in self.defined.items() if key not in letters}
        return replace(self, given={**self.given, **letters}, defined=remaining)


def spelt(key: str) -> str:
    """A letter as the name of an argument: dS′ as dS_prime."""
    plain = key.replace("′", "_prime").translate(str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789"))
    word = re.sub(r"\W", "_", plain)
    return word if word.isidentifier() else f"x{word}"

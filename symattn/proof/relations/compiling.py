"""Compile a printed relation into a function of its arrays, which the prover and the search run as they run the
functions of theorems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from inspect import Parameter, Signature
from itertools import pairwise
from typing import Any

import flint

from symattn.arrays.index import expressions
from symattn.arrays.index.positions import as_number
from symattn.document import notation as nt
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.notation import Name, Node, Relation
from symattn.proof.prover import unsimplified
from symattn.proof.relations.glossary import Glossary, spelt
from symattn.proof.relations.named import COMPARED
from symattn.proof.relations.part_values import Several, Unread, Value, filled, spread
from symattn.proof.relations.reader import Reader
from symattn.proof.statement import Declared, Letters, Numbers, Pair, fitting, run, sorts_in

_HIDDEN = "_unit"  # a letter that no formula has: some array must reveal its kind


@dataclass(frozen=True)
class Link:
    """Two neighbouring sides in a chain, and the sign between them."""

    left: Node
    sign: str
    right: Node


def links(relation: Relation) -> list[Link]:
    """Return the links of a chain: a = b and b ≤ c for a = b ≤ c."""
    sides = [("", relation.first), *relation.rest]
    return [Link(a, sign, b) for (_, a), (sign, b) in pairwise(sides)]


def has_waves(every: Sequence[Link]) -> bool:
    """Return whether a sine or cosine is taken: sides may then come near to each other at any number of places."""
    sides = (side for link in every for side in (link.left, link.right))
    nodes = nt.within(*sides)
    return any(isinstance(x, Name) and x.base in ("cos", "sin") for x in nodes)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiler of the formulas of a section; ``sized`` holds the sizes for which a formula is written out."""

    glossary: Glossary
    sized: Mapping[str, int]

    @cached_property
    def declared(self) -> Declared:
        """The arrays, under names that a function can take them by."""
        # Formulas use letters that are no names of Python.
        g = self.glossary
        units = tuple((self.argument(c), self.argument(s)) for c, s in g.units)
        return Declared(
            {
                self.argument(key): self._replace_sized_axes(shape)
                for key, shape in self._shapes_of_given_arrays.items()
            },
            {
                self.argument(key): self._replace_sized_axes(sort)
                for key, sort in g.permutations.items()
            },
            tuple(map(self.argument, g.positive)),
            units,
            tuple(map(self.argument, g.nonnegative)),
        )

    def sides(self, pairs: Sequence[tuple[Node, Node]], bounds: bool = False) -> Callable[..., Any]:
        """Return the function that gives the two arrays of each pair."""
        return self.function(
            lambda reader: [both for a, b in pairs for both in sides_of(reader, a, b, bounds)]
        )

    def as_equations(self, every: Sequence[Link]) -> Callable[..., Any]:
        """Return the function that gives two arrays for each link, which are equal where the link holds."""

        def work(reader: Reader) -> Iterator[Pair]:
            one = reader.xp.asarray(1)
            for x in every:
                for a, b in sides_of(reader, x.left, x.right, x.sign != "="):
                    yield (
                        (a, b)
                        if x.sign == "="
                        # A comparison becomes an equation of truth values: 1 where it holds.
                        else (reader.xp.where(COMPARED[x.sign](a, b), one, 0 * one), one)
                    )

        return self.function(lambda reader: list(work(reader)))

    def gap(self, smaller: Node, larger: Node, gap: Node) -> Callable[..., Any]:
        """Return the function that gives ``gap``, with the axes of both sides."""

        def work(reader: Reader) -> Any:
            # All free letters, so that the three arrays have the same axes.
            reader.free = frozenset(free_names(smaller, larger, gap))
            x, y, z = map(reader.one, (smaller, larger, gap))
            every = (*x.letters, *y.letters, *z.letters)
            letters = tuple(dict.fromkeys(every))
            return spread(z, letters, max(x.rank, y.rank))

        return self.function(work)

    def entries(self, formulas: Sequence[Node]) -> tuple[tuple[expressions.Expression, ...], ...]:
        """Return formulas in letters, place by place, before any simplification."""

        def work(reader: Reader) -> list[Any]:
            reader.free = frozenset(free_names(*formulas))
            result = [reader.one(x) for x in formulas]
            letters = tuple(dict.fromkeys(i for x in result for i in x.letters))
            return [spread(x, letters, max(y.rank for y in result)) for x in result]

        # Unsimplified, as the reader sees the formula.
        first, *others = run(self.function(work), self.declared, Letters())
        arrays = [filled(x, first) for x in (first, *others)]

        def at(places: object) -> tuple[expressions.Expression, ...]:
            return tuple(as_number(x.at(places)) for x in arrays)

        return tuple(unsimplified(partial(at, places)) for places in arrays[0].places())

    def argument(self, key: str) -> str:
        """Return the name of the argument for a letter."""
        word = spelt(key)
        # A letter of the name of a size would hide the size.
        return f"{word}_" if word in self._sorts_of_given_shapes else word

    @cached_property
    def _shapes_of_given_arrays(self) -> Mapping[str, str]:
        return self.glossary.given or {_HIDDEN: ""}

    @cached_property
    def _sorts_of_given_shapes(self) -> set[str]:
        return sorts_in(self._shapes_of_given_arrays.values())

    def _replace_sized_axes(self, shape: str) -> str:
        def sized(axis: str) -> str:
            return "+".join(
                "*".join(str(self.sized.get(w, w)) for w in b.split("*")) for b in axis.split("+")
            )

        return " ".join(map(sized, shape.split()))

    def function(self, work: Callable[[Reader], object]) -> Callable[..., Any]:
        """Return a function of the declared arrays that runs ``work`` on a reader of them."""
        declared = self.declared

        def function(**keywords: object) -> Any:
            arrays: dict[str, Any] = {
                key: keywords[self.argument(key)] for key in self._shapes_of_given_arrays
            }
            own = {sort: keywords[sort] for sort in declared.sorts()}
            lengths = own | dict(self.sized)
            for key, sort in self.glossary.permutations.items():
                # the matrix P with P x = x[order]
                xp = next(iter(arrays.values())).__array_namespace__()
                places = xp.arange(lengths[sort])
                same = places[:, None] == places[None, :]
                unit = xp.where(same, xp.asarray(1), xp.asarray(0))
                arrays[key] = unit[keywords[self.argument(key)]]
            return work(Reader(self.glossary, arrays, lengths))

        function.__signature__ = self._make_relation_signature  # type: ignore[attr-defined]
        return function

    @cached_property
    def _make_relation_signature(self) -> Signature:
        declared = self.declared
        names_of_arguments = (*declared.arrays, *declared.permutations, *declared.sorts())
        names = dict.fromkeys(names_of_arguments)
        return Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in names])

    def stated(self, link: Link, world: Numbers) -> list[Pair]:
        """Return the two arrays of a link for these numbers; the reader, with its cache, is shared by all links."""
        # The precision is part of the key: the reader has its numbers cached.
        key = self, world.kind, flint.ctx.prec
        reader = world.readers.get(key)
        if reader is None:
            reader = world.readers[key] = run(
                self.function(lambda fresh: fresh), self.declared, world
            )
        return list(
            fitting(world, lambda: list(sides_of(reader, link.left, link.right, link.sign != "=")))
        )


def sides_of(
    reader: Reader, left: Node, right: Node, bounds: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield the two sides of a relation as arrays of one shape. Raises Unread if their shapes or letters differ; with
    ``bounds``, one side may have fewer indices than the other."""
    free = frozenset(free_names(left, right))
    x = reader.side(left, free)
    y = reader.side(right, free)
    # Things that may stand beside each other are brought to one form.
    alike = reader.glossary.alike
    if alike and isinstance(x, Several) and isinstance(y, Several):
        x, y = alike(x), alike(y)
    if isinstance(x, Value) or isinstance(y, Value):
        x, y = reader.vector(x), reader.vector(y)
    if isinstance(x, Several) or isinstance(y, Several):
        if not (isinstance(x, Several) and isinstance(y, Several) and len(x.parts) == len(y.parts)):
            raise Unread("the sides are not as many things")
        for a, b in zip(x.parts, y.parts, strict=True):
            yield _align_relation_sides(a, b, left, right, bounds)
    else:
        yield _align_relation_sides(x, y, left, right, bounds, bool(reader.glossary.formats))


def free_names(*formulas: Node) -> Iterator[str]:
    """Yield the names, indices among them, that stand outside sums over them; Σ_{i<j} and Σ_{i≠j} may be over both."""
    for x in formulas:
        if isinstance(x, nt.Big):
            # Σ_{i<j} may sum over both, Σ_{i<3} over i alone.
            index = x.index
            over = (
                index.first
                if isinstance(index, Relation) and not isinstance(index.rest[0][1], Name)
                else index
            )
            yield from {*free_names(*nt.parts(x))} - {
                y.base for y in nt.within(over) if isinstance(y, Name)
            }
        else:
            yield from ([x.base] if isinstance(x, Name) else [])
            yield from free_names(*nt.parts(x))


def _align_relation_sides(
    x: Value, y: Value, left: Node, right: Node, bounds: bool, infinite: bool = False
) -> tuple[Any, Any]:
    """Return both arrays in one shape; arrays that may be ``infinite`` are left to broadcasting, as 0 · ∞ is NaN."""
    # Only one side may have further indices in a bound.
    left_letters, right_letters = set(x.letters), set(y.letters)
    within = bounds and (left_letters < right_letters or right_letters < left_letters)
    if left_letters != right_letters and left_letters and right_letters and not within:
        raise Unread(f"the sides have the free indices {x.letters} and {y.letters}")
    x, y = _flatten_printed_row(x, y, left), _flatten_printed_row(y, x, right)
    for value, other, side in ((x, y, left), (y, x, right)):
        if (
            other.rank != value.rank
            and value.rank == 0
            and not (value.even or isinstance(side, nt.Number))
        ):
            raise Unread("one side is a number, the other is none")
    if x.rank != y.rank and x.rank and y.rank:
        raise Unread("one side is a vector, the other a matrix")
    # A row and a column of one length are no equal shapes on paper.
    if x.rank == y.rank == 1 and x.row != y.row:
        raise Unread("one side is a row, the other a column")
    letters = tuple(dict.fromkeys((*x.letters, *y.letters)))
    rank = max(x.rank, y.rank)
    a = spread(x, letters, rank)
    b = spread(y, letters, rank)
    other_letters = set(x.letters) != set(y.letters)
    if x.rank != y.rank or other_letters:
        return (a, b) if infinite else (filled(a, b), filled(b, a))
    if tuple(a.shape) != tuple(b.shape):
        raise Unread("the sides have different shapes")
    return a, b


def _flatten_printed_row(x: Value, other: Value, side: Node) -> Value:
    """Return a printed row of entries as a vector if the other side is a vector."""
    if x.rank == 2 and other.rank == 1 and isinstance(side, nt.Matrix) and len(side.rows) == 1:
        return Value(x.array[..., 0, :], x.letters, 1, other.row)
    return x


def _readable_in(compiled: Compiled, work: Callable[[Reader], None]) -> Letters | Numbers | None:
    """Return the first world in which ``work`` can be done: letters, which lack some functions of numbers, small sizes,
    which lack some entries, or larger ones; None if there is none."""
    # Size 2 first; 50 for formulas that name entries further on.
    numbers = [Numbers(dict.fromkeys(compiled.declared.sorts(), n), balls=True) for n in (2, 50)]
    worlds: list[Letters | Numbers] = [Letters(), *numbers]
    for world in worlds:
        try:
            run(compiled.function(work), compiled.declared, world)
            return world
        except IndexError:
            continue
        except (Unread, Refused, Undecided, InputError, ZeroDivisionError, ValueError):
            if isinstance(world, Numbers):
                return None
    return None


def pruned(glossary: Glossary, relation: Relation, sized: Mapping[str, int]) -> Glossary:
    """Return the glossary with only the given arrays that the relation is about, so that no other size is searched."""
    compiled = Compiled(glossary, sized)
    letters: set[str] = set()
    sorts: set[str] = set()

    def work(reader: Reader) -> None:
        reader.touched, reader.measured = letters, sorts
        for side in (relation.first, *(side for sign, side in relation.rest if sign != "≈")):
            reader.read(side)

    world = _readable_in(compiled, work)
    by_code = any(callable(glossary.defined.get(key)) for key in letters)  # code may read any array
    if world is None or (isinstance(world, Numbers) and by_code):
        return glossary
    pairs_ = tuple(pair for pair in glossary.units if letters & {*pair})
    letters |= {name for pair in pairs_ for name in pair}
    shapes = {key: shape for key, shape in glossary.given.items() if key in letters}
    # Sizes that only definitions mention still need an array that has them.
    missing = sorts_in(sorts) - sorts_in(shapes.values())
    for key, shape in glossary.given.items():
        if missing & sorts_in([shape]):
            shapes[key] = shape
            missing -= sorts_in([shape])
    return replace(
        glossary,
        given=shapes,
        defined={
            key: meaning
            for key, meaning in glossary.defined.items()
            if key in letters or key == glossary.loss
        },
        permutations={key: sort for key, sort in glossary.permutations.items() if key in letters},
        laws={key: law for key, law in glossary.laws.items() if key in letters},
        positive=tuple(key for key in glossary.positive if key in shapes),
        nonnegative=tuple(key for key in glossary.nonnegative if key in shapes),
        units=pairs_,
    )

"""Look for numbers and sizes at which a relation that held in draws is false, and for sizes that conditions ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from symattn.arrays.ball import precision
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.notation import Node, Relation
from symattn.proof import refuting
from symattn.proof.relations import attacking, beyond, comparing, far
from symattn.proof.relations.compiling import Compiled, Link, pruned
from symattn.proof.relations.part_values import Unread
from symattn.proof.relations.random_arrays import mentions
from symattn.proof.statement import Numbers

_DIGITS = 6  # larger sizes are rounded down to a power of ten
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
# the length of an axis whose places are taken one by one, in statements without entries
_LONG = 20_000


def lengths_asked(compiled: Compiled, where: Sequence[Link]) -> list[dict[str, int]]:
    """Return sizes that the conditions on sizes alone ask for, if the usual ones do not meet them."""
    g = compiled.glossary
    alone = [
        x
        for x in where
        if not any(mentions(side, key, g) for side in (x.left, x.right) for key in g.given)
    ]
    sides = [side for link in alone for side in (link.left, link.right)]
    # Formats and laws have draws of their own, so no sizes are needed.
    if not sides or g.formats or g.laws or not compiled.declared.sorts():
        return []
    about = restrict(compiled, sides)
    choices = far.lengths(
        lambda world: comparing.meets(about, alone, world),
        about.declared,
        beyond.printed_numbers(sides, g),
    )
    # Sizes without a condition are 2.
    return [{**dict.fromkeys(compiled.declared.sorts(), 2), **one} for one in choices]


@dataclass
class Tried:
    """The attempts against a relation: numbers beyond those printed, the largest size, and starts of an ascent."""

    numbers: int = 0
    largest: int = 0
    places: int = 0

    def begin_ascent(self, places: int) -> None:
        """Count an ascent from so many places."""
        self.places += places

    def compare(self, world: Numbers) -> None:
        """Count numbers at which every link was seen to hold."""
        self.numbers += 1
        self.largest = max([self.largest, *world.sizes.values()])

    def words(self) -> Iterator[str]:
        """Yield what was tried, in words: "61 draws beyond, sizes to 10¹⁸", "ascent from 24 places"."""
        if self.numbers:
            size = f", sizes to {_rounded_down(self.largest)}" if self.largest else ""
            yield f"{self.numbers} draws beyond{size}"
        if self.places:
            yield f"ascent from {self.places} places"


def _rounded_down(size: int) -> str:
    """Return a size, a large one as the power of ten below it: 10¹⁸."""
    power = len(str(size)) - 1
    if power > _DIGITS:
        return f"10{str(power).translate(_RAISED)}"
    return str(size)


def look_beyond(
    compiled: Compiled,
    every: Sequence[Link],
    where: Sequence[Link],
    lengths: Sequence[Mapping[str, int]],
) -> Tried:
    """Compare numbers and sizes beyond those that are printed, and numbers at which bounds are likely to fail; skip any
    at which balls are too wide or a side is undefined. ``lengths``: sizes to begin with. Raises FalseStep."""
    tried = Tried()
    links = (*every, *where)
    sides = [side for link in links for side in (link.left, link.right)]
    # Fewer letters leave fewer draws to make.
    compiled = restrict(compiled, sides)
    used = compiled.glossary
    numbers = beyond.printed_numbers(sides, used)
    flat = beyond.is_flat(sides, used) and beyond.is_printed(sides, used)
    begins = [{sort: one[sort] for sort in compiled.declared.sorts()} for one in lengths]
    drawn = beyond.worlds(compiled.declared, numbers, flat, begins)
    differing = refuting.suspected(compiled.as_equations(every), compiled.declared)
    attack = attacking.worlds(compiled, every, where, begins, tried.begin_ascent)
    # The quick attempts come first, the ascent last.
    for world in chain(
        differing, drawn, _yield_draws_far_out(compiled, every, sides, begins), attack
    ):
        with (
            precision(beyond.bits(world)),
            suppress(Unread, Refused, Undecided, InputError, ZeroDivisionError, OverflowError),
        ):
            # Only numbers at which balls decide every link count as tried.
            if comparing.meets(compiled, where, world) and comparing.compared_if_finite(
                compiled, every, world
            ):
                tried.compare(world)
    return tried


def _yield_draws_far_out(
    compiled: Compiled,
    every: Sequence[Link],
    sides: Sequence[Node],
    begins: Sequence[Mapping[str, int]],
) -> Iterator[Numbers]:
    """Yield draws at sizes far out, if all that is printed can be computed there."""
    g, declared = compiled.glossary, compiled.declared
    # Laws, permutations and code have no values for whole groups of entries.
    if g.laws or declared.permutations or not declared.sorts() or not beyond.is_printed(sides, g):
        return
    flat, base = (
        beyond.is_flat(sides, g),
        begins[0] if begins else dict.fromkeys(declared.sorts(), 2),
    )
    entries = any(mentions(side, key, g) for side in sides for key in g.given)
    numbers = beyond.printed_numbers(sides, g)
    yield from far.worlds(declared, numbers, flat, entries, base)
    if not entries:  # one by one, as groups of a sum over an index are too wide to show a small gap
        yield from (comparing.Drawn({**base, sort: _LONG}, 0) for sort in declared.sorts())
        yield from far.turning(compiled, [x for x in every if x.sign != "="], base)


def restrict(compiled: Compiled, sides: Sequence[Node]) -> Compiled:
    """Keep only the letters that the sides are about."""
    relation = Relation(sides[0], tuple(("=", side) for side in sides[1:]))
    return Compiled(pruned(compiled.glossary, relation, compiled.sized), compiled.sized)

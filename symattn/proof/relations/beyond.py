"""Numbers and sizes beyond those that a relation names, which refute a bound that holds only for small ones.

``sⱼ ≤ 35`` holds for small entries, ``Σⱼ pⱼ² ≥ 1/6`` for up to six keys, ``n² ≤ 64`` up to n = 8. So entries are drawn
that are all 0, 0 except in one row, large, or at or around the printed numbers; and sizes are taken at and past these
numbers, past their reciprocals, and past their squares and exponentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil, exp, prod
from random import Random

from symattn.document import notation as nt
from symattn.document.notation import Node
from symattn.proof.drawing import Sign
from symattn.proof.relations.draws import Drawn
from symattn.proof.relations.glossary import Glossary, LetterDefinition
from symattn.proof.relations.random_arrays import mentions
from symattn.proof.statement import Declared, Numbers

_BITS = 4096  # of balls around such numbers: enough to see e^(−2000) next to 1
_FEW = 256  # of balls around moderate numbers, if there are many
_LARGEST = 1150  # the largest size if no array has more than one axis
_ENTRIES = 2 * _LARGEST  # of one array
_SMALL = 12  # the largest size otherwise
_ALWAYS = 9  # a size beyond those of the other draws
_NAMED = 4  # printed numbers that are tried as sizes
_ENDS = 2  # sizes tried for each sort, from each end of those that the numbers suggest
_LARGE = 1000
_AROUND = 24  # draws of numbers, and around them
_POWER = 7  # of e, among sizes
_POWERS = 50  # of e, among entries


class Zero(Drawn):
    """Draws of entries that are 0, or 1 if they must be positive."""

    def _entry(self, random: Random, low: int) -> Fraction:
        return Fraction(max(low, 0))


class OneRow(Drawn):
    """Draws with 1, or 1000, in the first row (of a vector, entry) and 0, or 1 if entries are positive, elsewhere."""

    def _entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        if not lengths:
            return super()._entries(name, lengths, sign)
        first = lengths[-1] if len(lengths) > 1 else 1
        return [Fraction(_LARGE**self.seed)] * first + [Fraction(int(sign == "positive"))] * (prod(lengths) - first)


class Large(Drawn):
    """Draws of entries up to a thousand, of both signs, or of a few such entries among small ones."""

    def _entry(self, random: Random, low: int) -> Fraction:
        size = random.choice((1, 10, 100, _LARGE) if self.seed % 2 else (_LARGE,))
        return Fraction(random.randint(size * min(low, 0) // 40 if low < 0 else low, size))


class Neighbourhood(Drawn):
    """Draws of entries around one of the printed numbers, its multiples and parts: of both signs, or positive."""

    numbers: tuple[Fraction, ...] = ()
    each = 2  # draws for a number

    def _entry(self, random: Random, low: int) -> Fraction:
        near = self.numbers[self.seed // 2 % len(self.numbers)] * Fraction(
            random.randint(2, 8), random.choice((1, 2, 3))
        )
        signs = (1, -1) if low < 0 and self.seed % 2 else (1,)
        return random.choice(signs) * (near + random.choice((0, Fraction(1, 3))))


class Exactly(Neighbourhood):
    """Draws of entries that are a printed number, 1 or 0, if positive the number or 1; or all the number."""

    each = 6

    def _entry(self, random: Random, low: int) -> Fraction:
        every = (self.numbers[self.seed // self.each], Fraction(1), Fraction(0))
        return random.choice(every[:2] if low > 0 else every) if self.seed % self.each else every[0]


def printed_numbers(every: Iterable[Node], glossary: Glossary) -> tuple[Fraction, ...]:
    """Return the numbers and fractions in formulas and in the definitions of their letters, and exponentials of these,
    rounded; neither 0 nor 1."""
    bodies = [d.body for d in glossary.defined.values() if isinstance(d, LetterDefinition)]
    spoken = [meaning.body for meaning in glossary.spoken.values()]
    numbers = (x for x in nt.within(*every, *bodies, *spoken) if isinstance(x, (nt.Number, nt.Decimal)))
    result = {abs(Fraction(x.value if isinstance(x, nt.Number) else x.digits)) for x in numbers}
    parts = ((x.numerator, x.denominator) for x in nt.within(*every, *bodies, *spoken) if isinstance(x, nt.Over))
    result |= {abs(Fraction(a.value) / Fraction(b.value)) for a, b in parts
               if isinstance(a, nt.Number) and isinstance(b, nt.Number) and b.value}  # fmt: skip
    powers = {Fraction(round(exp(x))) for x in result if 1 < x <= _POWERS}
    return tuple(sorted((result | powers) - {0, 1}))


def worlds(
    declared: Declared, numbers: tuple[Fraction, ...], flat: bool, begins: Sequence[dict[str, int]] = ()
) -> Iterator[Drawn]:
    """Yield draws of zeros, large entries and entries near the numbers, at two sizes; then each sort past the numbers,
    the others at 2: far past them if everything is ``flat``, with one axis at most."""
    sorts = declared.sorts()
    turns = [{sort: turn[n % 2] for n, sort in enumerate(sorts)} for turn in ((3, 2), (2, 3))]
    for lengths in [x for x in begins if fits(declared, x)][:2] or turns:
        yield from (Zero(lengths, 0), OneRow(lengths, 0))
        yield from (Large(lengths, seed) for seed in range(4))
        for kind, near in ((Exactly, (Fraction(1), *numbers)), (Neighbourhood, numbers)):
            for seed in range(min(kind.each * len(near), _AROUND)):
                world = kind(lengths, seed)
                world.numbers = near
                yield world
    past, largest = _sizes(numbers, _LARGEST if flat else _SMALL), _LARGEST if flat else 4 * _SMALL
    named = [int(x) for x in numbers if x.denominator == 1 and 5 < x <= largest][:_NAMED]
    for sort in sorts:
        for n in (*past[:_ENDS], *past[_ENDS:][-_ENDS:], *named):
            lengths = {s: n if s == sort else 2 for s in sorts}
            if fits(declared, lengths):
                yield from (Drawn(lengths, 1), Drawn(lengths, 4), OneRow(lengths, 0), OneRow(lengths, 1))


def fits(declared: Declared, lengths: Mapping[str, int]) -> bool:
    """Return whether each array has few enough entries to draw them all."""
    return all(prod(map(Numbers(lengths).axis, shape.split())) <= _ENTRIES for shape in declared.arrays.values())


def bits(world: Numbers) -> int:
    """Return the precision of balls for these draws, in bits."""
    return _FEW if max(world.sizes.values(), default=0) >= _ALWAYS else _BITS


def is_flat(every: Sequence[Node], glossary: Glossary) -> bool:
    """Return whether no array has more than one axis."""
    wide = [key for key, shape in glossary.given.items() if len(shape.split()) > 1]
    return not any(mentions(x, key, glossary) for x in every for key in wide)


def is_printed(every: Sequence[Node], glossary: Glossary) -> bool:
    """Return whether nothing is differentiated or defined by code."""
    result = [*glossary.defined.values(), *glossary.families.values(), *glossary.functions.values()]
    bodies = [d.body for d in result if isinstance(d, LetterDefinition)]
    slopes = (
        isinstance(x, nt.Partial) or (isinstance(x, nt.Name) and x.base == "∇") for x in nt.within(*every, *bodies)
    )
    return len(bodies) == len(result) and not glossary.loss and not any(slopes)


def _sizes(numbers: Iterable[Fraction], largest: int) -> list[int]:
    """Return sizes past 8 and past each number, its reciprocal, its square and its exponential."""
    past = {Fraction(_ALWAYS - 1)}
    for x in numbers:
        past |= {x, 1 / x, x * x, Fraction(exp(min(float(x), _POWER)))}
    return sorted({n for n in (ceil(x) + 1 for x in past) if _ALWAYS <= n <= largest})

"""Numbers and sizes beyond those that a relation names, which refute a bound that holds only for small ones.

``sⱼ ≤ 35`` holds for small entries, ``Σⱼ pⱼ² ≥ 1/6`` for up to six keys, ``n² ≤ 64`` up to n = 8. So entries are drawn
that are all 0, 0 except in one row, large, or at or around the printed numbers; and sizes are taken at and past these
numbers, past their reciprocals, and past their squares and exponentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil, exp, isqrt, prod
from random import Random

from symattn.document import notation as nt
from symattn.document.notation import Node
from symattn.proof.drawing import Sign
from symattn.proof.relations import comparing
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
# The size of entries that are called large.
_LARGE = 1000
_AROUND = 24  # draws of numbers, and around them
_TOPS = (3, 8, 15, 40, 1000)  # exponents of ten
_LITTLE = (0, 4, 9, 17, 40)  # exponents of a tenth
_ROOTS = 10**20  # the denominator of rounded roots
_POWER = 7  # of e, among sizes
_POWERS = 50  # of e, among entries


class Zero(comparing.Drawn):
    """Draws of entries that are 0, or 1 if they must be positive."""

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        return Fraction(max(low, 0))


class OneRow(comparing.Drawn):
    """Draws with 1, or 1000, in the first row (of a vector, entry) and 0, or 1 if entries are positive, elsewhere."""

    def _list_drawn_entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        if not lengths:
            return super()._list_drawn_entries(name, lengths, sign)
        first = lengths[-1] if len(lengths) > 1 else 1
        # Seed 0 gives ones, seed 1 the large size.
        large = [Fraction(_LARGE**self.seed)] * first
        least = [Fraction(int(sign == "positive"))]
        return large + least * (prod(lengths) - first)


class Large(comparing.Drawn):
    """Draws of entries up to a thousand, of both signs, or of a few such entries among small ones."""

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        size = random.choice((1, 10, 100, _LARGE) if self.seed % 2 else (_LARGE,))
        least = size * min(low, 0) // 40 if low < 0 else low
        return Fraction(random.randint(least, size))


class Neighbourhood(comparing.Drawn):
    """Draws of entries around one of the printed numbers, its multiples and parts: of both signs, or positive."""

    numbers: tuple[Fraction, ...] = ()

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        number = self.numbers[self.seed // 2 % len(self.numbers)]
        near = number * Fraction(random.randint(2, 8), random.choice((1, 2, 3)))
        signs = (1, -1) if low < 0 and self.seed % 2 else (1,)
        return random.choice(signs) * (near + random.choice((0, Fraction(1, 3))))


class Exactly(Neighbourhood):
    """Draws of entries that are a printed number; or one of them, 1 or 0, of both signs, if positive not 0."""

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        turn, which = divmod(self.seed, len(self.numbers))
        count = 2 if low > 0 else 3
        few = (self.numbers[which], Fraction(1), Fraction(0))[:count]
        candidates = (few[:1], few, few, (*self.numbers, *few))
        every = candidates[min(turn, 3)]
        return random.choice(every) * (-1 if turn == 2 and low < 0 and random.random() < 0.5 else 1)


class _Wild(comparing.Drawn):
    """Draws of numbers with which exact ones would take long."""

    def __init__(self, sizes: dict[str, int], seed: int) -> None:
        super().__init__(sizes, seed)
        # Wild draws are compared in balls alone.
        self.wild = True


class Magnitude(_Wild):
    """Draws of numbers of all magnitudes, 10^±1000 among them: one for all, for each array, or for each entry."""

    def _list_drawn_entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        way, which = divmod(self.seed, len(_TOPS))
        top = _TOPS[which]
        own = Random(f"{self.seed} {name}")
        # Tiny, ordinary, huge, or any of these.
        several = [-top, 0, top, own.randint(-top, top)]
        ways = ([top], [-top], [own.choice(several)], several)
        self.exponents = ways[way % 4]
        self.signs = ((1,), (-1,) if way < 6 else (1, -1))[way // 4 if sign == "real" else 0]
        return super()._list_drawn_entries(name, lengths, sign)

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        return (
            random.randint(1, 9)
            * random.choice(self.signs)
            * Fraction(10) ** random.choice(self.exponents)
        )


class Related(_Wild):
    """Draws in which arrays of one shape are equal, opposite or multiples, or nearly so; or all entries of one."""

    def _list_drawn_entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        own, shared, low = (
            Random(f"{self.seed} {name}"),
            Random(f"{self.seed}"),
            {"positive": 1, "real": -9}.get(sign, 0),
        )
        # A constant array makes ties; a small difference between arrays makes near ties.
        constant, little = (
            shared.random() < 0.3,
            Fraction(1, 10 ** _LITTLE[self.seed % len(_LITTLE)]),
        )
        negative = (-1, -2) if low < 0 else ()
        # Arrays that are multiples of each other meet bounds such as Cauchy–Schwarz.
        times = own.choice((1, 1, 1, 2, Fraction(1, 3), *negative))
        one = Fraction(shared.randint(max(low, 1), 9), 7)
        every = [
            one if constant else Fraction(shared.randint(low, 9), 7) for _ in range(prod(lengths))
        ]
        return [times * x + little * own.choice((0, 1, own.randint(0, 9))) for x in every]


class Diagonal(comparing.Drawn):
    """Draws of matrices that are 0 but on a diagonal, the entries there being equal, or with orthogonal rows of ±1."""

    def _list_drawn_entries(self, name: str, lengths: list[int], sign: Sign) -> list[Fraction]:
        rows, columns = lengths[-2:] if len(lengths) > 1 else (0, 0)
        if not rows:
            return super()._list_drawn_entries(name, lengths, sign)
        # Rows of ±1 by parity of common bits are orthogonal at sizes that are powers of 2.
        least = int(sign == "positive")
        shift = Random(f"{self.seed} {name}").randrange(2)

        def entry(i: int, j: int) -> int:
            if self.seed % 2 and sign == "real":
                return -1 if (i & j).bit_count() % 2 else 1
            if j == (i + shift) % columns:
                return (1, _LARGE)[self.seed // 2]
            return least

        one = [Fraction(entry(i, j)) for i in range(rows) for j in range(columns)]
        # Further axes repeat the matrix.
        return one * (prod(lengths) // len(one))


def printed_numbers(every: Iterable[Node], glossary: Glossary) -> tuple[Fraction, ...]:
    """Return what the parts without letters of formulas and of the definitions of their letters come to, and
    exponentials of these, rounded; neither 0 nor 1."""
    bodies = [d.body for d in glossary.defined.values() if isinstance(d, LetterDefinition)]
    spoken = [meaning.body for meaning in glossary.spoken.values()]
    result = {
        abs(x)
        for x in map(_evaluate_letterless_formula, nt.within(*every, *bodies, *spoken))
        if x is not None
    }
    # Larger exponentials would be out of reach as sizes or entries.
    powers = {Fraction(round(exp(x))) for x in result if 1 < x <= _POWERS}
    return tuple(sorted((result | powers) - {0, 1}))


def _evaluate_letterless_formula(x: Node) -> Fraction | None:
    """Return the value of a formula without letters, of a root rounded; None for others, and beyond 10^±1000."""
    match x:
        case nt.Number(value):
            return value
        case nt.Decimal(digits):
            return Fraction(digits) if digits not in ("nan", "inf") else None
        case nt.Sum(parts) | nt.Product(parts):
            values = [*map(_evaluate_letterless_formula, parts)]
            known = [y for y in values if y is not None]
            work = sum if isinstance(x, nt.Sum) else prod
            return Fraction(work(known)) if len(known) == len(values) else None
        case nt.Neg(body) | nt.Fence("round", body, None):
            inner = _evaluate_letterless_formula(body)
            return -inner if inner and isinstance(x, nt.Neg) else inner
        case nt.Over(a, b):
            above, below = _evaluate_letterless_formula(a), _evaluate_letterless_formula(b)
            return above / below if above is not None and below else None
        case nt.Power(a, b):
            base, power = _evaluate_letterless_formula(a), _evaluate_letterless_formula(b)
            whole = (
                base
                and power
                and power.denominator == 1
                # The digits of a power are limited, since formulas may nest powers.
                and abs(power) * (len(str(base)) - 1) <= _TOPS[-1]
            )
            return base ** int(power) if base and power and whole else None
        case nt.Root(body):
            square = _evaluate_letterless_formula(body)
            if not square or square <= 0:
                return None
            return Fraction(isqrt(int(square * _ROOTS**2)), _ROOTS)
    return None


def worlds(
    declared: Declared,
    numbers: tuple[Fraction, ...],
    flat: bool,
    begins: Sequence[dict[str, int]] = (),
) -> Iterator[comparing.Drawn]:
    """Yield draws of zeros, large entries and entries near the numbers, at two sizes; then each sort past the numbers,
    the others at 2: far past them if everything is ``flat``, with one axis at most."""
    sorts = declared.sorts()
    turns = [
        {sort: turn[n % 2] for n, sort in enumerate(sorts)}
        for turn in ((3, 2), (2, 3))[: 1 + bool(sorts)]
    ]
    # Sizes that conditions ask for come before the usual ones.
    turns = [x for x in begins if fits(declared, x)][:2] or turns
    for turn, lengths in enumerate(turns):
        yield from (Zero(lengths, 0), OneRow(lengths, 0))
        yield from (Large(lengths, seed) for seed in range(4))
        # Kinds take turns at both sizes, which halves the number of draws.
        yield from (
            kind(lengths, seed) for kind, count in _KINDS for seed in range(turn, count, len(turns))
        )
        for kind, near, each in (
            (Exactly, (Fraction(1), *numbers), 5),
            (Neighbourhood, numbers, 2),
        ):
            most = max(_AROUND, 2 * len(near))
            for seed in range(min(each * len(near), most)):
                world = kind(lengths, seed)
                world.numbers = near
                yield world
    past, largest = (
        _sizes_past_numbers(numbers, _LARGEST if flat else _SMALL),
        _LARGEST if flat else 4 * _SMALL,
    )
    integers = [int(x) for x in numbers if x.denominator == 1 and 5 < x <= largest]
    named = integers[:_NAMED]
    for sort in sorts:
        # The smallest sizes past a number, the largest ones, and the numbers themselves.
        last = past[_ENDS:][-_ENDS:]
        for n in (*past[:_ENDS], *last, *named):
            lengths = {s: n if s == sort else 2 for s in sorts}
            if fits(declared, lengths):
                yield from (
                    comparing.Drawn(lengths, 1),
                    comparing.Drawn(lengths, 4),
                    OneRow(lengths, 0),
                    OneRow(lengths, 1),
                )


# Each kind of world with the number of seeds that give different worlds.
_KINDS = ((Magnitude, 8 * len(_TOPS)), (Related, 2 * len(_LITTLE)), (Diagonal, 4))


def fits(declared: Declared, lengths: Mapping[str, int]) -> bool:
    """Return whether each array has few enough entries to draw them all."""
    return max(Numbers(lengths).entry_counts(declared), default=0) <= _ENTRIES


def bits(world: Numbers) -> int:
    """Return the precision of balls for these draws, in bits."""
    # Long sums of balls are slow, so they have fewer bits.
    return _FEW if max(world.sizes.values(), default=0) >= _ALWAYS else _BITS


def is_flat(every: Sequence[Node], glossary: Glossary) -> bool:
    """Return whether no array has more than one axis."""
    shapes = glossary.given.items()
    wide = [key for key, shape in shapes if len(shape.split()) > 1]
    return not any(mentions(x, key, glossary) for x in every for key in wide)


def is_printed(every: Sequence[Node], glossary: Glossary) -> bool:
    """Return whether nothing is differentiated or defined by code."""
    functions = glossary.functions.values()
    result = [*glossary.defined.values(), *glossary.families.values(), *functions]
    # What code defines is not printed, so that a reader cannot compute it.
    bodies = [d.body for d in result if isinstance(d, LetterDefinition)]
    slopes = (
        isinstance(x, nt.Partial) or (isinstance(x, nt.Name) and x.base == "∇")
        for x in nt.within(*every, *bodies)
    )
    all_plain = len(bodies) == len(result)
    return all_plain and not glossary.loss and not any(slopes)


def _sizes_past_numbers(numbers: Iterable[Fraction], largest: int) -> list[int]:
    """Return sizes past 8 and past each number, its reciprocal, its square and its exponential."""
    past = {Fraction(_ALWAYS - 1)}
    for x in numbers:
        # Capped, since exp of a large number would overflow.
        power = Fraction(exp(min(float(x), _POWER)))
        past |= {x, 1 / x, x * x, power}
    next_numbers = (ceil(x) + 1 for x in past)
    return sorted({n for n in next_numbers if _ALWAYS <= n <= largest})

"""Draw entries of arrays to test a statement: first small and plain ones, then ones that are hard to fool.

A false statement often holds for simple numbers: multiples of 1/2, numbers of one sign or below a bound, permutations
that are their own inverse. So ``wild`` numbers have many magnitudes and both signs; some are equal to each other or
zero, and some lie around and beyond the numbers that the statement names (``refuting``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache, partial
from random import Random

from symattn.document.errors import InputError

Sign = str  # "real", "positive" or "nonnegative"
_MODERATE = 5  # exponentials of larger numbers overflow, or drown all others


def plain(random: Random, count: int, sign: Sign) -> list[Fraction]:
    """Draw multiples of 1/2 between −2 and 2."""
    low = {"positive": 1, "nonnegative": 0, "real": -4}[sign]
    return [Fraction(random.randint(low, 4), 2) for _ in range(count)]


def wild(
    random: Random, count: int, sign: Sign, literals: Collection[Fraction] = ()
) -> list[Fraction]:
    """Draw rational numbers, of a magnitude and of signs that are drawn first, sometimes with ties and zeros."""
    draw = random.choice(
        (
            _THIRDS,
            _THIRDS,
            _THIRDS,
            _SMALL,
            _LARGE,
            _draw_integer,
            _make_drawer_beyond(literals),
        )
    )
    signs = random.choice(((1, -1), (1, -1), (1,), (-1,)))
    entries = [draw(random.choice(signs), random) for _ in range(count)]
    if random.random() < 0.4:  # ties and zeros
        several = [*entries[:2], Fraction(0)]
        entries = [random.choice(several) if random.random() < 0.4 else x for x in entries]
    if sign != "real":
        entries = [abs(x) for x in entries]
    return [x or Fraction(1, 3) for x in entries] if sign == "positive" else entries


# Searches draw a few hundred fractions again and again, and to look one up is faster than to cancel it.
_fraction = lru_cache(1 << 15)(Fraction)


def _draw_ratio(
    low: int, high: int, denominators: tuple[int, ...], sign: int, random: Random
) -> Fraction:
    return _fraction(sign * random.randint(low, high), random.choice(denominators))


# Numbers of usual size with small denominators.
_THIRDS = partial(_draw_ratio, 1, 35, (1, 2, 3, 7))
# Near 0, where exp and tanh are nearly linear.
_SMALL = partial(_draw_ratio, 1, 9, (100, 1000, 10**6))
# Far from 0, where one exponential outweighs all others.
_LARGE = partial(_draw_ratio, 10, 10**4, (1, 3))


def _draw_integer(sign: int, random: Random) -> Fraction:
    return _fraction(sign * random.randint(1, _MODERATE))


def _make_drawer_beyond(literals: Collection[Fraction]) -> Callable[[int, Random], Fraction]:
    """Return a function that draws numbers around and beyond one of ``literals``."""
    in_order = sorted(literals)

    def draw(sign: int, random: Random) -> Fraction:
        near = abs(random.choice(in_order)) if in_order else Fraction(_MODERATE)
        ratio = _fraction(random.randint(1, 8), random.choice((2, 3, 5)))
        shift = random.choice((0, 1, Fraction(1, 3)))
        return sign * (near * ratio + shift)

    return draw


def circle(random: Random, count: int, wide: bool = False) -> list[tuple[Fraction, Fraction]]:
    """Draw rational points of the unit circle: ((1 − t²) / (1 + t²), 2t / (1 + t²))."""
    ts = [Fraction(random.randint(-4, 4), random.randint(1, 4)) for _ in range(count)]
    if wide:
        ts = [t * random.choice((1, 1, 9, Fraction(1, 9))) for t in ts]
    squares = [(t, t * t) for t in ts]
    return [((1 - s) / (1 + s), 2 * t / (1 + s)) for t, s in squares]


def order(random: Random, count: int, wide: bool = False) -> list[int]:
    """Draw a permutation; a ``wide`` one of three or more places is not its own inverse."""
    places = list(range(count))
    random.shuffle(places)
    while wide and count > 2 and all(places[places[i]] == i for i in places):
        random.shuffle(places)
    return places


def on_circles(
    units: Iterable[tuple[str, str]], shapes: Mapping[str, str]
) -> dict[str, tuple[str, bool, bool]]:
    """Return for each name in ``units`` the name of its circle, whether it is a cosine, and whether several names are
    on its side, so that only its square is determined.

    With pairs (c, s) and (c, t), both s² and t² are 1 − c². Raises InputError if three pairs form a ring, in which all
    squares would be 1/2, or if the two names of a pair differ in shape.
    """
    pairs = list(units)
    # A pair is an angle at each place, so that both have one shape.
    for pair in pairs:
        result = {shapes[name] for name in pair if name in shapes}
        if len(result) > 1:
            raise InputError(
                f"units: {pair[0]} and {pair[1]} have the shapes {' and '.join(sorted(result))}; hint: one"
            )
    sides: dict[str, tuple[str, bool]] = {}
    for first in pairs:
        waiting = [] if first[0] in sides else [first[0]]
        sides.setdefault(first[0], (str(first), True))
        # Along a chain of pairs names alternate: cosine, sine, cosine, and so on.
        while waiting:
            here = waiting.pop()
            circle_of, cosine = sides[here]
            for other in (p[1 - p.index(here)] for p in pairs if here in p):
                if other not in sides:
                    sides[other] = (circle_of, not cosine)
                    waiting.append(other)
                # A ring of odd length: a name would be both cosine and sine.
                elif sides[other] == (circle_of, cosine):
                    raise InputError(
                        f"units: the pairs of {here} and {other} make a ring; hint: leave one out"
                    )
    together = [*sides.values()]
    seats = sides.items()
    # Several sines of one cosine: only the square is determined.
    return {name: (*seat, together.count(seat) > 1) for name, seat in seats}

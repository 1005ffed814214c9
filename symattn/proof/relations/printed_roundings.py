"""Printed results of rounding: fl(x), in the number formats that a statement is about, or in a model.

``fl(x)`` is x computed with every operation rounded: to nearest if the section names ``formats``, else by any factor
(1 + δ) with \\|δ\\| ≤ u. A letter in it has its exact value; fl(p) of a letter alone is its value, rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import flint
import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.arrays.computed import in_format, in_model
from symattn.arrays.formats import Format
from symattn.document.errors import Undecided
from symattn.document.notation import Name, Node
from symattn.proof.relations import comparing
from symattn.proof.relations.part_values import Found, Several, Unread, Value
from symattn.proof.relations.reader import Reader

# Draws at each size, besides one for each number near the ends.
_SEEDS = 24
# The number itself, and neighbours at 2⁻⁶⁰ and 2⁻⁸ of it, on both sides.
_AROUND = ((0, 0), (1, 60), (-1, 60), (1, 8), (-1, 8))
_BITS = 128  # of logarithms of the ends of a format
_WIDER = 4096  # bits, if a ball does not decide what it is rounded to


def fl(reader: Reader, parts: tuple[Node, ...]) -> Found:
    """Return fl(x), the computed value of x. Raises Unread unless all arrays are balls."""
    if len(parts) != 1 or not all(isinstance(x, Ball) for x in reader.arrays.values()):
        raise Unread("fl of what are no numbers")
    try:
        return _compute_printed_rounding(reader, parts[0])
    # More bits decide nearly every rounding that a ball leaves open.
    except Undecided:
        with precision(_WIDER):
            return _compute_printed_rounding(reader, parts[0])


def _compute_printed_rounding(reader: Reader, x: Node) -> Found:
    if reader.glossary.formats:
        kind = in_format(_format_of_reader(reader))
    else:
        u, powers = (_read_model_parameter(reader, letter) for letter in "uκ")
        if u is None:
            raise Unread("fl in no format, and without u")
        # The model's errors are drawn by a seed from the numbers: the same x has the same fl(x).
        digits = [
            str(float(x.mid()))
            for key in sorted(reader.arrays)
            for x in reader.arrays[key].entries.flat
        ]
        kind = in_model(u, powers or 1, Random(" ".join(digits)))

    def lifted(value: Found | None) -> Found | None:
        return value and _apply_to_each_value(value, lambda x: kind(x.entries))

    entries = {key: kind(x.entries) for key, x in reader.arrays.items()}
    inner = reader.within(entries)
    inner.elsewhere = lambda key: lifted(reader.letter(key))
    result = inner.read(x)
    # A letter alone has no operation, so the rounding of its value must be applied.
    if isinstance(x, Name):
        result = _apply_to_each_value(result, lambda x: kind.after("", x))
    return _apply_to_each_value(result, lambda x: Ball(x.entries))


def _apply_to_each_value(value: Found, work: Callable[[Any], object]) -> Found:
    if isinstance(value, Several):
        return Several(tuple(x.on(work) for x in value.parts))
    return value.on(work)


def _read_model_parameter(reader: Reader, letter: str) -> Any:
    result = reader.letter(letter)
    return result.array.entries[()] if isinstance(result, Value) and not result.rank else None


def _format_of_reader(reader: Reader) -> Format:
    if not reader.glossary.formats:
        raise Unread("a number of no format")
    return Format(reader.glossary.formats[0])


def of_format(of: Callable[[Format], int | Fraction]) -> Callable[[Reader], Value]:
    """Read a letter that stands for a number of the format, such as its largest one."""
    return lambda reader: reader.number(of(_format_of_reader(reader)))


def beyond(word: str) -> Callable[[Reader], Value]:
    """Return a reader of ∞ or NaN, as a ball."""
    entries = np.empty((), dtype=object)
    entries[()] = flint.arb(word)
    return lambda _: Value(Ball(entries))


def overflow(f: Format) -> Fraction:
    """Return (2 − u) 2^e_max, midway between the largest number and the power of two beyond it."""
    return (2 - f.u) * f.power_beyond / 2


class OfFormat(comparing.Drawn):
    """Draws of numbers of a format, of any magnitude or around 1, and of numbers near which results change
    (``_numbers_near_format_ends``);
    in a statement without sizes, each of these occurs as the first letter in some draw."""

    def __init__(self, lengths: dict[str, int], seed: int, f: Format) -> None:
        super().__init__(lengths, seed)
        self.format, self.near = f, _numbers_near_format_ends(f)

    def _draw_one_entry(self, random: Random, low: int) -> Fraction:
        f = self.format
        digits = Fraction(random.randrange(2**f.digits)) * 2 * f.u
        plain = [
            digits,
            digits * Fraction(2) ** random.randint(-3, 3),
            digits * f.largest,
            digits * f.smallest,
        ]
        # Without sizes each number near an end comes first in some draw, with either sign.
        if not self.sizes and self.seed < 2 * len(self.near):
            result = self.near[self.seed // 2] * (-1 if self.seed % 2 else 1)
        else:
            result = random.choice(
                [random.choice(plain), random.choice(self.near)]
            ) * random.choice((1, -1))
        return result if low < 0 else abs(result) + (low == 1 and not result)


@cache
def _numbers_near_format_ends(f: Format) -> tuple[Fraction, ...]:
    """Return the ends of a format, numbers half a step from them, and the logarithms of all these, each with very near
    and somewhat near neighbours."""
    last = f.power_beyond - f.largest
    plain = [
        overflow(f),
        f.largest,
        f.power_beyond,
        f.smallest,
        f.smallest / 2,
        f.u,
        f.u / 2,
        last / 2,
    ]
    with precision(
        _BITS
    ):  # the result is cached, so it may not depend on the first caller's precision
        logs = [abs(Fraction(float(Ball.function("log", Ball.scalar(x)).mid()))) for x in plain]
    numbers = (*plain, *logs)
    return tuple(x * (1 + Fraction(n, 2**bits)) for x in numbers for n, bits in _AROUND)


def worlds(name: str, sorts: Sequence[str]) -> Iterator[OfFormat]:
    """Yield draws of the numbers of a format, at every size."""
    f = Format(name)
    for lengths in comparing.sizes(sorts):
        for seed in range(_SEEDS if sorts else _SEEDS + 2 * len(_numbers_near_format_ends(f))):
            yield OfFormat(lengths, seed, f)

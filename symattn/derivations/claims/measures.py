"""Similarity of two vectors: dot product, cosine, angle and distance, exact and ordered exactly; rounded digits.

Numbers, vectors and matrices are read from the words of a command. Nothing is ever evaluated.

Cosine, angle and distance are compared by a monotone function of them without roots: sign(a·b) (a·b)²/(|a|²|b|²) and
|a − b|². So the order is decided even if a root would leave the exact field.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint

from symattn.arrays.field import approximation
from symattn.arrays.field.quotient import Quotient
from symattn.attention.codec.json_text import short
from symattn.document.errors import InputError, Refused, near
from symattn.document.notation import Decimal, Node, Product, Words

MOST = 4096  # entries
_DEPTH = 4  # lists within lists
_LENGTH = 200_000  # characters
# Brackets, commas, and what stands between them.
_PARTS = re.compile(r"[\[\],]|[^\[\],]+")


@dataclass(frozen=True)
class Vector:
    """Exact entries and, for a named token, its name."""

    entries: tuple[Quotient, ...]
    label: str = ""


def number(text: str) -> Quotient:
    """Read an exact number: .3 is 3/10."""
    return Quotient.of(text.strip())


def written(words: list[str]) -> list[str]:
    """Return the texts of numbers given one by one, or as one list ``[.3, .7]`` or ``.3,.7``."""
    # One word may be a whole list.
    if len(words) == 1 and ("," in words[0] or words[0].lstrip().startswith("[")):
        listed = words[0] if "[" in words[0] else f"[{words[0]}]"
        vector(listed)
        return [str(entry).strip() for entry in brackets(listed)]
    if len(words) > MOST:
        raise InputError(f"{len(words)} numbers: at most {MOST} are taken")
    return words


def half_unit(text: str) -> Fraction:
    """Return half a unit of the last digit of a decimal; 0 for exact numbers, such as 12 and 0.5.

    Decimals are those with a point, and two or more digits behind it or from the first that is not 0.
    """
    digits = text.strip().lower().lstrip("+-").partition("e")[0]
    whole, point, places = digits.partition(".")
    # One digit is taken as exact: 0.5 is 1/2.
    if (
        not point
        or not (whole + places).isdigit()
        or max(len(places), len((whole + places).lstrip("0"))) < 2
    ):
        return Fraction(0)
    return Fraction(10) ** -last_place(text) / 2


def last_place(text: str) -> int:
    """Return the place of the last digit behind the point: 2 of 0.25, 4 of 2.5e-3."""
    digits, _, power = text.strip().lower().partition("e")
    return len(digits.partition(".")[2]) - int(power or 0)


def vector(text: str) -> Vector:
    """Read ``[1, 1/2]``, ``1,1/2``, ``1 1/2``, or ``SHEET:TOKEN``, a token of an example or of a file."""
    # A colon after the last slash: a path of Windows has one before it.
    if re.search(r":[^\\/\]]+$", text) and "[" not in text:
        return _read_token_vector(text)
    if "[" not in text:
        text = "[" + ",".join(re.split(r"[\s,]+", text.strip())) + "]"
    entries = brackets(text)
    if not entries or any(isinstance(entry, list) for entry in entries):
        raise InputError(f"{short(text)!r} is not a vector; hint: [1, 1/2, .25], or EXAMPLE:TOKEN")
    return Vector(tuple(number(entry) for entry in entries))


def brackets(text: str) -> list[Any]:
    """Return nested lists of the texts between brackets and commas. Raises InputError."""
    if len(text) > _LENGTH:
        raise InputError(f"a list of {len(text)} characters: at most {_LENGTH} are read")
    stack: list[list[Any]] = [[]]
    after = count = 0  # after: whether an entry has just ended
    for part in _PARTS.findall(text):
        word = part.strip()
        if not word:
            continue
        if word == "[" and not after and len(stack) <= _DEPTH:
            stack.append([])
        elif word == "]" and len(stack) > 1 and (after or not stack[-1]):
            closed = stack.pop()
            stack[-1].append(closed)
            after = 1
        elif word == "," and after and len(stack) > 1:
            after = 0
        elif word not in "[]," and not after and len(stack) > 1:
            stack[-1].append(word)
            after, count = 1, count + 1
        else:
            wrong = f"{short(text)!r} is not a list: {short(word)!r} is not expected there"
            raise InputError(f"{wrong}; hint: [1, 2] or [[1], [2]]")
    if len(stack) != 1 or len(stack[0]) != 1 or count > MOST:
        raise InputError(
            f"{short(text)!r} is not a list of at most {MOST} entries; hint: [1, 2] or [[1], [2]]"
        )
    result: list[Any] = stack[0][0]
    return result


def _read_token_vector(text: str) -> Vector:
    from symattn.derivations.walks import sheet_of

    # The last colon separates the token from the example.
    source, _, token = text.rpartition(":")
    sheet = sheet_of(source)
    if "x" not in sheet.inputs or not sheet.tokens:
        raise InputError(f"{short(source)} names no tokens; hint: give the vector, [1, 1/2]")
    if token not in sheet.tokens:
        known = ", ".join(sheet.tokens)
        nearest = near(token, sheet.tokens)
        raise InputError(f"{short(source)} has no token {short(token)!r}.{nearest} Known: {known}")
    return Vector(tuple(sheet.inputs["x"][sheet.tokens.index(token)]), token)


def sums_of_rounded(texts: list[str], row: list[Quotient]) -> tuple[Quotient, Quotient]:
    """Return the smallest and the largest sum of nonnegative numbers that round to these digits."""
    units = list(map(half_unit, texts))
    low = sum(
        # Weights are not negative, so the range of a small digit ends at 0.
        (y for x, u in zip(row, units, strict=True) if (y := x - Quotient.of(u)).sign() > 0),
        Quotient.of(0),
    )
    upper_ends = (x + Quotient.of(u) for x, u in zip(row, units, strict=True))
    high = sum(upper_ends, Quotient.of(0))
    return low, high


def rounded_example(texts: list[str], row: list[Quotient]) -> list[Quotient]:
    """Return weights of sum 1 that round to the digits, each at one share of its range, or []; 0 stays 0, if exact."""
    low, high = sums_of_rounded(texts, row)
    # Exact digits leave no range to choose from.
    if low == high or any(x.sign() < 0 for x in row):
        return []
    # All entries are moved by one share of their ranges, which makes the sum exactly 1.
    share = (1 - low) / (high - low)
    result = list[Quotient]()
    for x, u in zip(row, map(half_unit, texts), strict=True):
        least = max(x - Quotient.of(u), Quotient.of(0))
        largest = x + Quotient.of(u)
        result.append(least + share * (largest - least))
    # A weight is 0 only if its text is an exact 0.
    pairs = zip(result, texts, strict=True)
    possible = all(x.sign() > 0 or not half_unit(text) for x, text in pairs)
    return result if possible and 0 <= share <= 1 else []


def rounds_to(x: Quotient, digits: str) -> bool:
    """Return whether x rounds to the digits."""
    gap = abs(x - Quotient.of(digits))
    unit = Quotient.of(half_unit(digits))
    return not (gap - unit).sign() > 0


# -- digits that were rounded ------------------------------------------------------------------------------------------
MEASURES = ("dot", "cosine", "angle", "distance")
# cos² of the angles whose cosine is a root of a fraction, and the angle for either sign.
_DEGREES = {
    Fraction(1): (0, 180),
    Fraction(3, 4): (30, 150),
    Fraction(1, 2): (45, 135),
    Fraction(1, 4): (60, 120),
}
_DIGITS = 6  # of a measure that is printed as a decimal


@dataclass(frozen=True)
class Likeness:
    """A measured similarity: ``order`` increases with it; ``exact`` is None if only digits are known."""

    order: Quotient
    exact: Quotient | None
    digits: str
    unit: str = ""

    def node(self) -> Node:
        """Return the exact number, else its digits."""
        shown: Node = Decimal(self.digits) if self.exact is None else self.exact.notation()
        return Product((shown, Words(self.unit))) if self.unit else shown

    def rounded(self) -> Node:
        """Return the digits."""
        if self.unit:
            return Product((Decimal(self.digits), Words(self.unit)))
        return Decimal(self.digits)

    @property
    def decimal(self) -> float:
        """The digits as a float."""
        return float(self.digits)

    RECORD = "exact, decimal"


def measured(
    measure: str, a: tuple[Quotient, ...], b: tuple[Quotient, ...], digits: int = _DIGITS
) -> Likeness:
    """Return the similarity of two vectors, rounded to ``digits`` digits. Raises InputError if it is undefined."""
    if len(a) != len(b):
        raise InputError(
            f"vectors of {len(a)} and {len(b)} entries have no {measure}; hint: give as many to both"
        )
    return _MEASURES[measure](a, b, digits)


def dot(a: tuple[Quotient, ...], b: tuple[Quotient, ...]) -> Quotient:
    """a·b."""
    products = (x * y for x, y in zip(a, b, strict=True))
    return sum(products, Quotient.of(0))


def _measure_dot_product(a: tuple[Quotient, ...], b: tuple[Quotient, ...], digits: int) -> Likeness:
    s = dot(a, b)
    return Likeness(s, s, s.decimal(digits))


def _square_of_cosine(a: tuple[Quotient, ...], b: tuple[Quotient, ...]) -> Quotient:
    lengths = dot(a, a) * dot(b, b)
    if lengths.is_zero():
        raise InputError("a vector of zeros has no direction, and so no cosine or angle")
    s = dot(a, b)
    # The sign is preserved, so that order by this number is order by cosine.
    return s * abs(s) / lengths


def _measure_cosine(a: tuple[Quotient, ...], b: tuple[Quotient, ...], digits: int) -> Likeness:
    signed = _square_of_cosine(a, b)
    return Likeness(signed, *_signed_root(signed, digits))


def _measure_distance(a: tuple[Quotient, ...], b: tuple[Quotient, ...], digits: int) -> Likeness:
    gap = tuple(x - y for x, y in zip(a, b, strict=True))
    square = dot(gap, gap)
    # A smaller distance is a closer pair.
    return Likeness(-square, *_signed_root(square, digits))


def _measure_angle(a: tuple[Quotient, ...], b: tuple[Quotient, ...], digits: int) -> Likeness:
    """Return the angle in degrees; with a root of a fraction as cosine, only multiples of 30 and 45 are rational."""
    signed = _square_of_cosine(a, b)
    square = signed.rational()
    # These angles are exact; others are irrational in degrees.
    if square == 0 or (square is not None and abs(square) in _DEGREES):
        degrees = 90 if not square else _DEGREES[abs(square)][square < 0]
        return Likeness(signed, Quotient.of(degrees), str(degrees), "°")

    def enclose(precision: int) -> Any:
        return _enclose_with_extra_bits(
            precision, lambda: _root_ball(signed).acos() * 180 / flint.arb.pi()
        )

    return Likeness(signed, None, approximation.decimal(enclose, digits), "°")


def _signed_root(signed: Quotient, digits: int) -> tuple[Quotient | None, str]:
    """Return sign(x) √|x|, or None if it leaves the exact field, and its digits."""
    try:
        exact = abs(signed).sqrt() * signed.sign()
    # A square root may leave the field; its digits are known all the same.
    except Refused:
        return None, approximation.decimal(
            lambda precision: _enclose_with_extra_bits(precision, lambda: _root_ball(signed)),
            digits,
        )
    return exact, exact.decimal(digits)


def _root_ball(signed: Quotient) -> Any:
    """Return a ball around sign(x) √|x|, sharp enough for the working precision."""
    # More bits inside, as cancellation may cost some.
    squared = abs(signed).arb(2 * flint.ctx.prec)
    return squared.sqrt() * signed.sign()


def _enclose_with_extra_bits(precision: int, work: Callable[[], object]) -> Any:
    with flint.ctx.workprec(2 * precision):
        return work()


_Vector = tuple[Quotient, ...]
_Measure = Callable[[_Vector, _Vector, int], Likeness]
_MEASURES: dict[str, _Measure] = {
    "dot": _measure_dot_product,
    "cosine": _measure_cosine,
    "angle": _measure_angle,
    "distance": _measure_distance,
}
SYMBOLS = {"dot": "dot", "cosine": "cos", "angle": "angle", "distance": "distance"}

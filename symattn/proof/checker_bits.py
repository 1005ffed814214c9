"""Computations that give the same bits, for ``checker``, and two that do not.

A certificate has a list of terms: each is an input, a number, or an operation on earlier terms. ``same`` has two
lists of terms: the checker accepts them if, place by place, they are one computation except for the order of the
operands of +, × and max. These commute in IEEE 754-2019 if there is one NaN and max is its ``maximum``, for which
−0 < +0. ``different`` has two more lists, which differ on the numbers in ``inputs``: every operation is repeated in
exact rationals and rounded to nearest, ties to even, in the named format. Of exponentials only e⁰ = 1 is used, so they
may be computed in any way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from symattn.proof.checker_reading import Record, expect, expect_few, read

_COMMUTING = frozenset({"+", "×", "max"})
_OPERANDS = {"+": 2, "−": 2, "×": 2, "/": 2, "max": 2, "exp": 1, "isfinite": 1, "where": 3}


class Rounding(NamedTuple):
    """A format of ``digits`` binary digits, for numbers 1.… · 2ᵉ with e from ``least`` to ``most``."""

    digits: int
    least: int
    most: int

    def __call__(self, x: Fraction) -> Fraction:
        """Return ``x`` rounded to nearest, ties to even. Rejects numbers beyond the format."""
        if not x:
            return x
        exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
        exponent -= abs(x) < Fraction(2) ** exponent  # now 2^exponent ≤ |x| < 2^(exponent + 1)
        unit = Fraction(2) ** (max(exponent, self.least) - self.digits + 1)
        result = round(x / unit) * unit  # Python rounds a tie to the even one
        expect(abs(result) < Fraction(2) ** (self.most + 1), "a number beyond the format")
        return result


FORMATS = {"float32": Rounding(24, -126, 127), "float16": Rounding(11, -14, 15), "bfloat16": Rounding(8, -126, 127)}


def bits(record: Record) -> None:
    """Reject unless ``same`` are the same computations, and ``different`` give different numbers."""
    terms = [(str(operation), tuple(operands)) for operation, *operands in record["terms"]]
    expect_few(1000 * len(terms))
    _expect_in_order(terms)
    left, right = _both(record["same"], terms)
    classes = _classes(terms)
    expect([classes[n] for n in left] == [classes[n] for n in right], "both do not do the same operations")
    expect(record["format"] in FORMATS, "a format that the checker does not know")
    rounded = FORMATS[record["format"]]
    inputs: list[Fraction] = [read(["number", x], {}).label for x in record["inputs"]]
    expect(all(rounded(x) == x for x in inputs), "an input that is no number of the format")
    left, right = _both(record["different"], terms)
    values = _values(terms, sorted({*left, *right}), inputs, rounded)
    expect(any(values[a] != values[b] for a, b in zip(left, right, strict=True)), "the others do not differ there")


def _both(pair: Any, terms: Sequence[object]) -> tuple[list[int], list[int]]:
    left, right = ([int(n) for n in side] for side in pair)
    expect(bool(left) and len(left) == len(right), "two computations of different length, or of nothing")
    expect(all(0 <= n < len(terms) for n in (*left, *right)), "a result that is no term")
    return left, right


def _expect_in_order(terms: Sequence[tuple[str, tuple[object, ...]]]) -> None:
    for n, (operation, operands) in enumerate(terms):
        if operation in ("input", "number"):
            expect(len(operands) == 1, "a term of another form")
            continue
        expect(_OPERANDS.get(operation) == len(operands), f"{operation!r} is not an operation on so many numbers")
        expect(all(type(k) is int and 0 <= k < n for k in operands), "an operand that does not come before")


def _classes(terms: Sequence[tuple[str, tuple[Any, ...]]]) -> list[int]:
    """Return a number for each term, equal for computations that differ only in the order of commuting operands."""
    result: list[int] = []
    numbers: dict[Any, int] = {}
    for operation, operands in terms:
        if operation in ("input", "number"):
            key: tuple[Any, ...] = (operation, str(operands[0]))
        else:
            below = [result[k] for k in operands]
            key = (operation, *(sorted(below) if operation in _COMMUTING else below))
        result.append(numbers.setdefault(key, len(numbers)))
    return result


def _values(
    terms: Sequence[tuple[str, tuple[Any, ...]]], wanted: Sequence[int], inputs: Sequence[Fraction], rounded: Rounding
) -> dict[int, Fraction | bool]:
    """Return the values of the terms that ``wanted`` need."""
    needed, pending = set[int](), list(wanted)
    while pending:
        n = pending.pop()
        if n not in needed:
            needed.add(n)
            pending += [] if terms[n][0] in ("input", "number") else terms[n][1]
    result: dict[int, Fraction | bool] = {}
    for n in sorted(needed):
        operation, operands = terms[n]
        if operation == "input":
            expect(0 <= int(operands[0]) < len(inputs), "an input without a number")
            result[n] = inputs[int(operands[0])]
        elif operation == "number":
            result[n] = rounded(read(["number", operands[0]], {}).label)
        else:
            operands_ = [result[k] for k in operands]
            truths = [isinstance(x, bool) for x in operands_]
            expect(truths == [operation == "where" and k == 0 for k in range(len(operands_))], "a number for a truth")
            value = _DONE[operation](*operands_)
            result[n] = value if isinstance(value, bool) else rounded(value)
    return result


def _over(a: Fraction, b: Fraction) -> Fraction:
    expect(bool(b), "a division by zero")
    return a / b


def _exp(x: Fraction) -> Fraction:
    expect(not x, "an exponential of another number than 0")
    return Fraction(1)


_DONE: Mapping[str, Callable[..., Fraction | bool]] = {
    "+": lambda a, b: a + b,
    "−": lambda a, b: a - b,
    "×": lambda a, b: a * b,
    "/": _over,
    "max": max,
    "exp": _exp,
    "isfinite": lambda a: True,
    "where": lambda condition, a, b: a if condition else b,
}

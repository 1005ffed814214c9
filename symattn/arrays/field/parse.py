"""Exact numbers from text, by a separate parser: nothing in the text is ever executed.

    "1/3"  "-2.5"  "1e-3"  "sqrt(2)"  "2*sqrt(3)/5"  "(1+4*exp(2))/(1+2*exp(2))"  "exp(-1/sqrt(3))"  "2**10"

    sum      product (("+" | "-") product)*
    product  signed (("*" | "/") signed)*
    signed   ("+" | "-")* power
    power    atom ("**" signed)?            the exponent is an integer
    atom     number | "E" | ("exp" | "sqrt")? "(" sum ")"

``E`` is Euler's number in SymPy's notation. Decimals are exact. Length, depth and the size of all values are bounded.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from fractions import Fraction
from numbers import Rational
from typing import Any

from symattn.arrays.field import sums, surds
from symattn.arrays.field.quotient import ONE_ELEMENT, Quotient
from symattn.document.errors import InputError, Refused

_LENGTH = 1000  # characters
_DEPTH = 50  # nested brackets and exponents
# Of a power: a larger one would take too many multiplications.
_EXPONENT = 10_000
_PAIRS = 4000  # products of terms in one operation
_BITS = 14_000  # of an integer: the most that Python prints
# Digits and names in ASCII only, so that no other script's digits pass as numbers.
_TOKEN = re.compile(
    r"(?P<number>(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>\*\*|[-+*/()])",
    re.A,
)
_Operation = Callable[[Quotient, Quotient], Quotient]
# Operators by precedence: sums bind less than products.
_SUMS: dict[str, _Operation] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: dict[str, _Operation] = {"*": operator.mul, "/": operator.truediv}
# All functions whose results are in the field.
_FUNCTIONS: dict[str, Callable[[Quotient], Quotient]] = {"exp": Quotient.exp, "sqrt": Quotient.sqrt}


def parse(text: str) -> Quotient:
    """Return the number that the text denotes. Raises InputError, with the position, for anything else."""
    # Checked first, so that no work depends on the length of text from outside.
    if len(text) > _LENGTH:
        raise InputError(f"a number of {len(text)} characters: at most {_LENGTH} are read")
    parser = _Parser(text)
    try:
        return parser.whole()
    except InputError:
        if words := _written_otherwise(text):
            raise parser.wrong(words, 0) from None
        raise


class _Parser:
    """A parser by recursive descent; ``token`` is the next token and ``kind`` its kind, "" at the end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.end = self.depth = 0
        self.take()

    def take(self) -> str:
        """Return the current token, and advance to the next one."""
        taken = self.text[self.start : self.end]
        remaining = self.text[self.end :].lstrip()
        self.start = len(self.text) - len(remaining)
        match = _TOKEN.match(self.text, self.start)
        # A character that starts no token is one of its own.
        self.end = match.end() if match else self.start + 1
        self.token = self.text[self.start : self.end]
        self.kind = str(match.lastgroup) if match else "other" if self.token else ""
        return taken

    def whole(self) -> Quotient:
        value = self.sum()
        # A percentage is a common slip, for which the error shows the fraction.
        at_end = self.end == len(self.text)
        percent = value.rational() if self.token == "%" and at_end else None
        if percent is not None:
            raise self.wrong(f"write {Quotient.of(percent / 100)} in place of {self.text}")
        if self.kind:
            raise self.wrong(
                "expected an operator" + (", a power is written **" if self.token == "^" else "")
            )
        return value

    def sum(self) -> Quotient:
        return self.chain(self.product, _SUMS)

    def product(self) -> Quotient:
        return self.chain(self.signed, _PRODUCTS)

    def chain(self, part: Callable[[], Quotient], operations: dict[str, _Operation]) -> Quotient:
        value = part()
        while self.token in operations:
            at, operation = self.start, operations[self.take()]
            value = self.apply(operation, value, part(), at)
        return value

    def signed(self) -> Quotient:
        negative = False
        while self.token in ("+", "-"):
            negative ^= self.take() == "-"
        value = self.power()
        return -value if negative else value

    def power(self) -> Quotient:
        base = self.atom()
        if self.token != "**":
            return base
        at = self.start
        self.take()
        n = self.deeper(self.signed).rational()
        if n is None or n.denominator != 1 or abs(n) > _EXPONENT:
            raise self.wrong(f"an exponent is an integer of at most {_EXPONENT}", at)
        # The base is inverted once, before it is multiplied.
        if n < 0:
            inverse = self.apply(operator.truediv, ONE_ELEMENT, base, at)
            return self.repeated(inverse, -int(n), at)
        return self.repeated(base, int(n), at)

    def repeated(self, x: Quotient, n: int, at: int) -> Quotient:
        out = ONE_ELEMENT
        # Square and multiply; every product is checked for its size.
        for bit in bin(n)[2:]:
            out = self.apply(operator.mul, out, out, at)
            out = self.apply(operator.mul, out, x, at) if bit == "1" else out
        return out

    def atom(self) -> Quotient:
        at = self.start
        if self.kind == "number":
            return self.number()
        # E is the number e.
        if self.token == "E":
            self.take()
            return ONE_ELEMENT.exp()
        function = None
        if self.kind == "name":
            function = _FUNCTIONS.get(self.token)
            if function is None:
                raise self.wrong("known are the names exp and sqrt")
            self.take()
        # A name without a bracket is no number.
        if self.token != "(":
            raise self.wrong(
                "expected a number, exp(…), sqrt(…) or a bracket"
                if function is None
                else "expected ("
            )
        self.take()
        # Nested brackets are counted, so that deep ones cannot exhaust the stack.
        value = self.deeper(self.sum)
        if self.token != ")":
            raise self.wrong("expected )")
        self.take()
        return value if function is None else self.checked(lambda: function(value), at)

    def number(self) -> Quotient:
        digits, _, exponent = self.token.lower().partition("e")
        # Bounded before 10 is raised to it.
        if len(exponent) > 5 or abs(int(exponent or 0)) > _BITS // 4:
            raise self.wrong(f"a decimal exponent is at most {_BITS // 4}")
        self.take()
        return Quotient.of(Fraction(digits) * Fraction(10) ** int(exponent or 0))

    def deeper(self, part: Callable[[], Quotient]) -> Quotient:
        self.depth += 1
        if self.depth > _DEPTH:
            raise self.wrong(f"brackets and exponents are nested at most {_DEPTH} deep")
        value = part()
        self.depth -= 1
        return value

    def apply(self, operation: _Operation, x: Quotient, y: Quotient, at: int) -> Quotient:
        (terms, bits), (more, longer) = _measure_quotient_size(x), _measure_quotient_size(y)
        # Estimated before the operation, which might not end.
        if terms * more > _PAIRS or bits + longer > _BITS:
            raise self.wrong("the number becomes too large", at)
        return self.checked(lambda: operation(x, y), at)

    def checked(self, compute: Callable[[], Quotient], at: int) -> Quotient:
        try:
            return compute()
        except ZeroDivisionError:
            raise self.wrong("division by zero", at) from None
        except Refused as refused:
            raise self.wrong(str(refused), at) from None

    def wrong(self, what: str, at: int | None = None) -> InputError:
        at = self.start if at is None else at
        shown = self.text if len(self.text) <= 60 else f"{self.text[:57]}…"
        result = f"at position {at + 1}" if at < len(self.text) else "at its end"
        return InputError(f"{shown!r} is not an exact number: {what}, {result}")


# Common ways to write numbers that are not read, for which errors say what to write.
_COMMA = re.compile(r"\s*([+-]?\d+),(\d+)\s*")
_RATIO = re.compile(r"\s*\d+(?:\s*:\s*\d+)+\s*")
_NUMBERS = re.compile(r"\s*[+-]?[\d./]+(?:\s+[+-]?[\d./]+)+\s*")


def _written_otherwise(text: str) -> str:
    """Return how to write a number that is meant, in words: a decimal comma, a ratio, several numbers; else ""."""
    # A comma may be a decimal point elsewhere.
    if decimal_match := _COMMA.fullmatch(text):
        return f"write {decimal_match[1]}.{decimal_match[2]}, with a point"
    if text.strip() == "%":
        return "write a fraction in place of a percentage, such as 1/2"
    # 3:1 has the shares 3/4 and 1/4.
    if _RATIO.fullmatch(text):
        terms = [int(term) for term in text.split(":")]
        whole = sum(terms)
        shares = [str(Fraction(term, whole)) for term in terms] if whole else []
        return f"the shares of a ratio are {' '.join(shares)}" if shares else ""
    if _NUMBERS.fullmatch(text):
        return "it is several numbers; write each by itself, without quotes around all"
    return ""


def _measure_quotient_size(x: Quotient) -> tuple[int, int]:
    """Return the number of terms, and the bit length of the longest integer in x."""
    _, n, d = x.parts
    pieces = [surds.integer_terms(c) for f in (n, d) for term in f.items() for c in term]
    integers = [i for terms, den in pieces for i in (den, *terms, *terms.values())]
    term_count = sum(len(terms) for terms, _ in pieces)
    return term_count, max(i.bit_length() for i in integers)


# -- numbers of other kinds --------------------------------------------------------------------------------------------
def read(x: Any) -> Quotient:
    """Return x as an exact number. Raises InputError for NaN, infinities and anything but numbers."""
    if isinstance(x, str):
        return parse(x)
    if hasattr(x, "item") and not getattr(x, "shape", ()):
        x = x.item()  # NumPy's and ml_dtypes' scalars
    if isinstance(x, Rational):
        return _make_integer_ratio(int(x.numerator), int(x.denominator))
    package = type(x).__module__.partition(".")[0]
    if package == "flint" and hasattr(x, "p") and hasattr(x, "q"):
        return _make_integer_ratio(int(x.p), int(x.q))
    # A ball has a midpoint: its integer part would not be the number.
    if package == "flint" and hasattr(x, "__int__") and not hasattr(x, "mid"):
        return _make_integer_ratio(int(x), 1)
    if hasattr(x, "as_integer_ratio"):
        return _from_ratio(x)
    if package == "sympy":
        import sympy

        # SymPy's floats become the rational numbers that they stand for.
        rationals = {f: sympy.Rational(f) for f in x.atoms(sympy.Float)}
        return parse(str(x.xreplace(rationals)))
    raise InputError(
        f"exact: no exact number in a {type(x).__name__}; give an integer, fraction, float or text"
    )


def _make_integer_ratio(n: int, d: int) -> Quotient:
    return Quotient(None, {0: n} if n else {}, {0: d} if d != 1 else sums.ONE)


def _from_ratio(x: Any) -> Quotient:
    try:
        value = Fraction(*(int(part) for part in x.as_integer_ratio()))
    except (ValueError, OverflowError):
        raise InputError(
            f"exact: {x} is not a number that can be held; only masks may forbid an entry"
        ) from None
    return _make_integer_ratio(value.numerator, value.denominator)

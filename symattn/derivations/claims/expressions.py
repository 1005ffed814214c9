"""Parse expressions with letters into a syntax tree of allowed nodes, which is never executed.

    numbers, letters, + − * / **, exp sqrt log tanh sin cos erf abs

A tree is then computed in exact numbers, in balls, or as a SymPy expression. Letters stand for real numbers.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.functions import FUNCTIONS as OF_ONE_NUMBER
from symattn.attention.codec.json_text import short
from symattn.derivations.claims.measures import brackets
from symattn.document.errors import InputError, Refused, Undecided, near
from symattn.document.evidence import Evidence, Grade

FUNCTIONS = (*OF_ONE_NUMBER, "abs")
# Limits of characters, nesting, exponents and length written out: larger ones take long.
_LENGTH, _DEPTH, _EXPONENT, _SIZE = 1000, 150, 64, 4000
# Names that SymPy or readers take for numbers, with what to write instead.
_NO_LETTERS = {"e": "exp(1)", "E": "exp(1)", "pi": "a letter of another name", "I": "another letter",
               "oo": "another letter", "inf": "another letter", "nan": "another letter"}  # fmt: skip
_BinaryOperation = Callable[[Any, Any], Any]
_BINARY: dict[type[ast.operator], _BinaryOperation] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.Div: lambda x, y: x / y,
}


class NoValue(InputError):
    """Raised when an expression certainly has no real value at a point."""


class ClaimExpression:
    """A parsed text. ``letters`` are the letters in it, in alphabetical order."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LENGTH:
            raise InputError(f"an expression of {len(text)} characters: at most {_LENGTH} are read")
        try:
            with warnings.catch_warnings():
                # Python warns of odd literals, which the check below reports.
                warnings.simplefilter("ignore")
                self.tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            what = getattr(error, "msg", None) or "it cannot be read"
            raise InputError(f"{short(text)!r} is not an expression: {what}") from None
        _check_claim_syntax(self.tree, text, 0)
        names_in_tree = {x.id for x in ast.walk(self.tree) if isinstance(x, ast.Name)}
        self.letters = sorted(names_in_tree - set(FUNCTIONS))
        # Powers of powers grow fast, so a bound on the length is computed before any value.
        if _bound_written_length(self.tree, self.wrong) > _SIZE:
            raise self.wrong("it is too large")

    def compute(
        self,
        number: Callable[[Fraction], object],
        letter: Callable[[str], object],
        call: Callable[..., Any],
    ) -> Any:
        """Return the value, with ``number`` and ``letter`` at the leaves and ``call(name, x)`` for functions."""

        def value(x: ast.expr) -> Any:
            match x:
                case ast.Constant():
                    return number(self.constant(x))
                case ast.Name():
                    return letter(x.id)
                case ast.UnaryOp():
                    if isinstance(x.op, ast.USub):
                        return -value(x.operand)
                    return value(x.operand)
                case ast.BinOp(op=ast.Pow()):
                    # Half exponents are roots, so that √x stays in the exact field.
                    n = exponent(x.right, self.wrong)
                    return (
                        value(x.left) ** int(n)
                        if n.denominator == 1
                        else call("sqrt", value(x.left)) ** n.numerator
                    )
                case ast.BinOp():
                    operation = _BINARY[type(x.op)]
                    return operation(value(x.left), value(x.right))
                case ast.Call(func=ast.Name(id=name)):
                    return call(name, value(x.args[0]))
            raise AssertionError(x)

        return value(self.tree)

    def constant(self, x: ast.Constant) -> Fraction:
        """Return a number exactly as typed."""
        # As typed: 0.1 is 1/10, where Python's float is another number.
        typed = (ast.get_source_segment(self.text, x) or str(x.value)).replace("_", "")
        exponent = typed.lower().partition("e")[2].lstrip("+-").lstrip("0")
        # A fraction has as many digits as the exponent says; a long exponent is not even read.
        digits = len(str(_SIZE))
        if len(exponent) > digits or int(exponent or 0) > _SIZE:
            raise self.wrong(f"{short(typed)} has more than {_SIZE} digits")
        try:
            return Fraction(typed)
        except ValueError:
            raise self.wrong(f"{short(typed)} is not a decimal number") from None

    def exact(self, point: dict[str, Fraction]) -> Quotient:
        """Return the value at a point. Raises NoValue if undefined, Refused if it leaves the exact field."""
        try:
            return Quotient.of(
                self.compute(Quotient.of, lambda name: Quotient.of(point[name]), _exact_call)
            )
        except ZeroDivisionError:
            raise NoValue(f"{short(self.text)!r} has no value: it divides by zero") from None

    def ball(self, point: dict[str, Fraction]) -> Any:
        """Return a ball around the value at the working precision, not finite if none is known. Raises NoValue."""
        import flint

        def number(x: Fraction) -> Any:
            return flint.arb(flint.fmpq(x.numerator, x.denominator))

        def call(name: str, x: Any) -> Any:
            if (name == "sqrt" and x < 0) or (name == "log" and x <= 0):
                raise NoValue(
                    f"{short(self.text)!r} has no real value: {name} of {x.str(3, radius=False)}"
                )
            return abs(x) if name == "abs" else getattr(x, name)()

        # Times a ball of 1, as the value of plain numbers may be an integer.
        return flint.arb(1) * self.compute(number, lambda name: number(point[name]), call)

    def sympy(self) -> Any:
        """Return the SymPy expression, over real letters."""
        import sympy

        functions = {name: getattr(sympy, name) for name in FUNCTIONS if name != "abs"} | {
            "abs": sympy.Abs
        }
        return self.compute(
            lambda x: sympy.Rational(x.numerator, x.denominator),
            lambda name: sympy.Symbol(name, real=True),
            lambda name, x: functions[name](x),
        )

    def wrong(self, what: str) -> InputError:
        """Return the error for the text, in one line."""
        return InputError(f"{short(self.text)!r} is not an expression: {what}")


def exponent(x: ast.expr, wrong: Callable[[str], InputError]) -> Fraction:
    """Return the exponent of a power: an integer, or half of one."""
    sign = 1
    while isinstance(x, ast.UnaryOp):
        # The sign stands before the number in the tree.
        sign = -sign if isinstance(x.op, ast.USub) else sign
        x = x.operand
    value: Fraction | None = None
    match x:
        case ast.Constant(value=int(n)):
            value = Fraction(n)
        case ast.BinOp(left=ast.Constant(value=int(n)), op=ast.Div(), right=ast.Constant(value=2)):
            value = Fraction(n, 2)
    if value is None or value > _EXPONENT:
        raise wrong(
            f"an exponent is a whole number of at most {_EXPONENT}, or half of one; powers of e are exp(…)"
        )
    return sign * value


def _exact_call(name: str, x: Quotient) -> Any:
    if name == "abs":
        return abs(x)
    method = getattr(x, name, None)
    if method is None:
        raise Refused(f"exact lacks {name}")
    return method()


def _check_claim_syntax(x: ast.expr, text: str, depth: int) -> None:
    """Raise InputError for any node that is not allowed."""

    def wrong(what: str) -> InputError:
        return InputError(f"{short(text)!r} is not an expression: {what}")

    # Deep expressions would exhaust the stack.
    if depth > _DEPTH:
        raise wrong(f"it is nested more than {_DEPTH} deep")
    match x:
        case ast.Constant(value=bool()):
            raise wrong("True and False are no numbers")
        case ast.Constant(value=int() | float()):
            return
        case ast.Name():
            if x.id in _NO_LETTERS or x.id in FUNCTIONS:
                hint = _NO_LETTERS.get(x.id, x.id + "(…)")
                raise wrong(f"{x.id} is not a letter; hint: {hint}")
            return
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            parts = [x.operand]
        case ast.BinOp(op=ast.Pow()):
            # A power may make a number too large to be computed.
            exponent(x.right, wrong)
            parts = [x.left]
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
            parts = [x.left, x.right]
        case ast.Call(func=ast.Name(id=name)):
            parts = _check_claim_call_argument(name, x, wrong)
        # x ^ y is a power on paper, and a bit operation in Python.
        case ast.BinOp(op=ast.BitXor()):
            raise wrong("a power is written **")
        case _:
            raise wrong(f"{short(ast.unparse(x))} is not allowed in it")
    for part in parts:
        _check_claim_syntax(part, text, depth + 1)


def _check_claim_call_argument(
    name: str, x: ast.Call, wrong: Callable[[str], InputError]
) -> list[ast.expr]:
    if name not in FUNCTIONS:
        raise wrong(
            f"there is no function {short(name)!r}.{near(name, FUNCTIONS)} Known: {', '.join(FUNCTIONS)}"
        )
    if len(x.args) != 1 or x.keywords or isinstance(x.args[0], ast.Starred):
        raise wrong(f"{name} takes one argument")
    return list(x.args)


def _bound_written_length(x: ast.expr, wrong: Callable[[str], InputError]) -> int:
    """Return a bound on the length of the value when written out."""
    match x:
        case ast.Constant():
            return 1 + len(str(x.value)) // 8
        case ast.BinOp(op=ast.Pow()):
            length_of_base = _bound_written_length(x.left, wrong)
            return length_of_base * max(1, abs(int(exponent(x.right, wrong))))
        case ast.BinOp():
            # Sums of two values are about as long as both.
            return _bound_written_length(x.left, wrong) + _bound_written_length(x.right, wrong)
        case ast.UnaryOp():
            return _bound_written_length(x.operand, wrong)
        case ast.Call():
            return 1 + _bound_written_length(x.args[0], wrong)
    return 1


# -- vectors -----------------------------------------------------------------------------------------------------------
_SOFTMAX = re.compile(r"softmax\(\s*(\[[^\[\]]*\])\s*\)")
_MADE = re.compile(r"softmax\(|[*·]\s*\[|\]\s*[-+]")
_TERM = re.compile(
    r"\s*([+-]?)\s*(?:([^\[\]]*?)\s*[*·]\s*)?(softmax\(\s*\[[^\[\]]*\]\s*\)|\[[^\[\]]*\])"
)


def is_vector(text: str) -> bool:
    """Return whether the text is an expression in vectors, not just a list."""
    return bool(_MADE.search(text))


def vector_entries(text: str) -> list[str]:
    """Return the entries of a sum of vectors as expressions. Raises InputError."""
    total: list[str] = []
    place = 0
    while place < len(text.rstrip()):
        match = _TERM.match(text, place)
        # After the first term a sign must separate the vectors.
        if not match or (place and not match[1]):
            wrong = f"{text!r} is not a sum of vectors"
            raise InputError(f"{wrong}; hint: 9/10*[1, 0] + 1/10*[0, 1], or softmax([2, 4, 4])")
        term = _split_claimed_vector(match[3])
        signed = [f"{match[1]}({f'({match[2]})*' if match[2] else ''}({x}))" for x in term]
        if total and len(total) != len(signed):
            raise InputError(
                f"vectors of {len(total)} and {len(signed)} entries have no sum; hint: give as many to both"
            )
        total = [a + b for a, b in zip(total, signed, strict=True)] if total else signed
        place = match.end()
    return total


def _split_claimed_vector(text: str) -> list[str]:
    soft = _SOFTMAX.fullmatch(text)
    result = brackets(soft[1] if soft else text)
    if not result or any(isinstance(x, list) for x in result):
        raise InputError(f"{text!r} is not a vector; hint: [1, 1/2]")
    if not soft:
        return list(result)
    # Softmax is written out, so that expressions of its entries are compared.
    total = "+".join(f"exp({x})" for x in result)
    return [f"exp({x})/({total})" for x in result]


# -- equality ----------------------------------------------------------------------------------------------------------
# Bits of balls: more are tried only if fewer do not separate the sides.
_PRECISIONS = (64, 256, 1024)
# Small values of both signs, since many false identities hold for positive numbers.
_VALUES = tuple(
    Fraction(*x) for x in ((1, 2), (2, 1), (-1, 3), (3, 1), (5, 7), (-2, 1), (7, 5), (-3, 4))
)
# Points at which both sides are compared.
_POINTS = 6


@dataclass(frozen=True)
class Equality:
    """The answer: equal, not equal, or None for undecided; with values (at ``point``) if they differ."""

    holds: bool | None
    evidence: Evidence
    a: Quotient | None = None
    b: Quotient | None = None
    point: dict[str, Fraction] = field(default_factory=dict)
    near: tuple[str, str] | None = None  # digits of values that are known by balls only

    @property
    def difference(self) -> Quotient | None:
        """The difference a − b if both are exact, else None."""
        return None if self.a is None or self.b is None else self.a - self.b


def compare(left: str, right: str) -> Equality:
    """Return whether two expressions are equal. Raises InputError for what is no expression, or has no value."""
    # Numbers need no expression, and are compared exactly.
    x, y = _exact_number(left), _exact_number(right)
    if x is not None and y is not None:
        return _compare_exact_numbers(x, y, {})
    a, b = ClaimExpression(left), ClaimExpression(right)
    letters = sorted({*a.letters, *b.letters})
    exactly, why = 0, "a side has no value at any point that was tried"
    for point in _choose_points_of_letters(letters):
        try:
            equality = _compare_sides_at_point(a, b, point)
        except NoValue:
            if not letters:
                raise
            # At other points both sides may have a value.
            continue
        why = "no point that was tried refutes it, and SymPy does not reduce the difference to 0"
        if equality is None:
            continue
        if equality.holds is False:
            return equality
        exactly += equality.holds is True
    if not letters and exactly:
        # Numbers without letters are decided by one comparison.
        return _compare_exact_numbers(a.exact({}), b.exact({}), {})
    # SymPy may err, so points in exact numbers come first.
    if _sympy_says_zero(a, b):
        where = (
            f"; equal in exact numbers at {exactly} point{'s' if exactly != 1 else ''}"
            if exactly
            else ""
        )
        return Equality(True, Evidence(Grade.CHECKED, f"SymPy reduces the difference to 0{where}"))
    if exactly:
        points = f"equal in exact numbers at {exactly} point{'s' if exactly != 1 else ''}"
        return Equality(
            None,
            Evidence(Grade.SEARCHED, f"{points}, and SymPy does not reduce the difference to 0"),
        )
    return Equality(None, Evidence(Grade.UNDECIDED, why))


def _exact_number(text: str) -> Quotient | None:
    try:
        return Quotient.of(text.strip())
    except InputError:
        return None  # perhaps an expression with letters; if not, that is said there


def _compare_exact_numbers(a: Quotient, b: Quotient, point: dict[str, Fraction]) -> Equality:
    if a == b:
        return Equality(True, Evidence(Grade.CHECKED, "exact numbers"), a, b, point)
    return Equality(False, Evidence(Grade.REFUTED, "exact numbers"), a, b, point)


def _choose_points_of_letters(letters: list[str]) -> list[dict[str, Fraction]]:
    if not letters:
        return [{}]
    count = len(_VALUES)
    return [
        # The stride changes from point to point, so that letters take other values together.
        {x: _VALUES[(i + j * (1 + i)) % count] for j, x in enumerate(letters)}
        for i in range(_POINTS)
    ]


def _compare_sides_at_point(
    a: ClaimExpression, b: ClaimExpression, point: dict[str, Fraction]
) -> Equality | None:
    """Compare both sides at a point; return None if balls cannot decide. Raises NoValue."""
    try:
        return _compare_exact_numbers(a.exact(point), b.exact(point), point)
    except NoValue:
        raise
    except (Refused, Undecided, InputError):
        import flint

        for precision in _PRECISIONS:
            with flint.ctx.workprec(precision):
                x, y = a.ball(point), b.ball(point)
                # A ball that is not finite may become so with more bits.
                if not (x.is_finite() and y.is_finite()):
                    continue
                if not x.overlaps(y):
                    where = f"disjoint balls at {precision} bits"
                    shown = tuple(z.str(9, radius=False) for z in (x, y))
                    return Equality(
                        False,
                        Evidence(Grade.REFUTED, where),
                        None,
                        None,
                        point,
                        (shown[0], shown[1]),
                    )
        return None


def _sympy_says_zero(a: ClaimExpression, b: ClaimExpression) -> bool:
    import sympy

    try:
        gap: Any = a.sympy() - b.sympy()
        # In exponentials, identities of hyperbolic functions reduce.
        exponential_gap = gap.rewrite(sympy.exp)
        return any(sympy.simplify(x) == 0 for x in (gap, exponential_gap))
    except (RecursionError, ArithmeticError, TypeError, ValueError, NotImplementedError):
        return False

"""A second, independent arithmetic for the exact numbers: real numbers as trees, which Arb evaluates at any precision.

Nothing of ``symattn.arrays`` takes part. Arrays of such numbers are NumPy's, and every operation is a loop over them.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from symattn import printing as pr

BITS = (192, 2048, 12288)  # what a ball that holds zero is asked for in turn, before the number is taken for zero


class Real:
    """A real number: a function of the balls of its parts."""

    __slots__ = ("compute", "known", "parts")

    def __init__(self, compute: Callable[..., flint.arb], *parts: Real) -> None:
        self.compute = compute
        self.parts = parts
        self.known: dict[int, flint.arb] = {}

    def ball(self, bits: int = BITS[0]) -> flint.arb:
        found = self.known.get(bits)
        if found is None:
            balls = [p.ball(bits) for p in self.parts]
            with flint.ctx.workprec(bits):
                found = self.known[bits] = self.compute(*balls)
        return found

    def sign(self) -> int:
        for bits in BITS:
            x = self.ball(bits)
            if x > 0 or x < 0:
                return 1 if x > 0 else -1
        return 0

    def __add__(self, other: Real) -> Real:
        return Real(lambda x, y: x + y, self, other)

    def __sub__(self, other: Real) -> Real:
        return Real(lambda x, y: x - y, self, other)

    def __mul__(self, other: Real) -> Real:
        return Real(lambda x, y: x * y, self, other)

    def __truediv__(self, other: Real) -> Real:
        return Real(lambda x, y: x / y, self, other)

    def __neg__(self) -> Real:
        return Real(lambda x: -x, self)

    def exp(self) -> Real:
        return Real(lambda x: x.exp(), self)

    def log(self) -> Real:
        return Real(lambda x: x.log(), self)

    def sqrt(self) -> Real:
        return Real(lambda x: x.sqrt(), self)

    def tanh(self) -> Real:
        return Real(lambda x: x.tanh(), self)


def real(x: Any) -> Real:
    """An int, a Fraction, a float at its value, or text."""
    if isinstance(x, str):
        return of_text(x)
    p, q = Fraction(x).as_integer_ratio()
    return Real(lambda: flint.arb(p) / q)


class Nothing:
    """What no number is: −∞ or undefined."""

    def __init__(self, name: str) -> None:
        self.name = name


FORBIDDEN, UNDEFINED = Nothing("-inf"), Nothing("undefined")


def added(x: Any, y: Any) -> Any:
    if x is UNDEFINED or y is UNDEFINED:
        return UNDEFINED
    return FORBIDDEN if x is FORBIDDEN or y is FORBIDDEN else x + y


def times(x: Any, y: Any) -> Any:
    if x is UNDEFINED or y is UNDEFINED:
        return UNDEFINED
    return FORBIDDEN if x is FORBIDDEN or y is FORBIDDEN else x * y


def divided(x: Any, y: Any) -> Any:
    if x is UNDEFINED or y is UNDEFINED or (y is not FORBIDDEN and y.sign() == 0):
        return UNDEFINED
    return FORBIDDEN if x is FORBIDDEN or y is FORBIDDEN else x / y


def negated(x: Any) -> Any:
    return x if isinstance(x, Nothing) else -x


def larger(x: Any, y: Any) -> Any:
    if x is UNDEFINED or y is FORBIDDEN:
        return x
    if x is FORBIDDEN or y is UNDEFINED:
        return y
    return y if (y - x).sign() > 0 else x


def applied(name: str) -> Callable[[Any], Any]:
    """A function by its name; e^−∞ = 0."""

    def run(x: Any) -> Any:
        return x if x is UNDEFINED else real(0) if x is FORBIDDEN else getattr(x, name)()

    return run


def each(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    """``function`` of the elements of arrays, which are broadcast."""
    spread = np.broadcast_arrays(*arrays)
    return filled(spread[0].shape, (function(*elements) for elements in zip(*(a.flat for a in spread), strict=True)))


def filled(shape: tuple[int, ...], elements: Iterable[Any]) -> np.ndarray:
    out = np.empty(shape, dtype=object)
    for index, x in zip(np.ndindex(shape), elements, strict=True):
        out[index] = x
    return out


def lifted(rows: Any) -> np.ndarray:
    return each(real, np.array(rows, dtype=object))


def folded(step: Callable[[Any, Any], Any], a: np.ndarray, axis: int, keepdims: bool) -> np.ndarray:
    """The elements along an axis, from the left."""
    lines = np.moveaxis(a, axis, 0)
    out = lines[0, ...]
    for i in range(1, len(lines)):
        out = each(step, out, lines[i, ...])
    return np.expand_dims(out, axis) if keepdims else out


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Σ_j a_ij b_jk of stacks of matrices."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = np.broadcast_to(a, (*batch, *a.shape[-2:])), np.broadcast_to(b, (*batch, *b.shape[-2:]))
    out = np.empty((*batch, a.shape[-2], b.shape[-1]), dtype=object)
    for *at, i, k in itertools.product(*map(range, out.shape)):
        out[(*at, i, k)] = total(times(a[(*at, i, j)], b[(*at, j, k)]) for j in range(a.shape[-1]))
    return out


def total(xs: Iterable[Any]) -> Any:
    out = None
    for x in xs:
        out = x if out is None else added(out, x)
    return out


# --- what is written, read again -------------------------------------------------------------------------------------

_SIGNS = {ast.Add: "__add__", ast.Sub: "__sub__", ast.Mult: "__mul__", ast.Div: "__truediv__"}


def of_text(line: str) -> Real:
    """A number from text, which Python's own grammar takes apart."""
    return _of_tree(ast.parse(line, mode="eval").body)


def _of_tree(x: ast.expr) -> Real:
    match x:
        case ast.Constant(int() as n):
            return real(n)
        case ast.UnaryOp(ast.USub(), body):
            return -_of_tree(body)
        case ast.BinOp(left, sign, right):
            return getattr(_of_tree(left), _SIGNS[type(sign)])(_of_tree(right))  # type: ignore[no-any-return]
        case ast.Call(ast.Name(("exp" | "sqrt" | "log") as name), [argument]):
            return getattr(_of_tree(argument), name)()  # type: ignore[no-any-return]
    raise ValueError(ast.unparse(x))


def of_notation(x: pr.Node) -> Real:
    """A number from its formula."""
    match x:
        case pr.Number(value):
            return real(value)
        case pr.Name("e"):
            return real(1).exp()
        case pr.Neg(body):
            return -of_notation(body)
        case pr.Sum(terms):
            return sum(map(of_notation, terms[1:]), of_notation(terms[0]))
        case pr.Product(factors):
            out = of_notation(factors[0])
            for factor in factors[1:]:
                out = out * of_notation(factor)
            return out
        case pr.Over(above, below):
            return of_notation(above) / of_notation(below)
        case pr.Power(pr.Name("e"), exponent):
            return of_notation(exponent).exp()
        case pr.Root(body):
            return of_notation(body).sqrt()
        case pr.Call(pr.Name("log"), (argument,)):
            return of_notation(argument).log()
    raise ValueError(repr(x))


def of_sympy(x: Any) -> Real:
    """A number from a SymPy expression."""
    import sympy

    if x.is_Rational:
        return real(Fraction(int(x.p), int(x.q)))
    if x is sympy.E:
        return real(1).exp()
    parts = [of_sympy(p) for p in x.args]
    if x.is_Add:
        return sum(parts[1:], parts[0])
    if isinstance(x, (sympy.exp, sympy.log)):
        return getattr(parts[0], x.func.__name__)()  # type: ignore[no-any-return]
    if x.is_Mul:
        out = parts[0]
        for part in parts[1:]:
            out = out * part
        return out
    if x.is_Pow and x.base is sympy.E:
        return parts[1].exp()
    if x.is_Pow:
        p, q = int(x.exp.p), int(x.exp.q)
        return Real(lambda b: b ** (flint.arb(p) / q) if q == 2 else b**p, parts[0])
    raise ValueError(str(x))

"""How the errors of computed numbers grow: the rules of ``rounded``, one operation each, with their proofs.

An element is an exact number x, enclosed in a ball, and a bound e: whatever a legal implementation computed in its
place, x̂, has |x̂ − x| ≤ e. The arithmetic of an implementation is that of a ``Precision``:

  A1  an operation gives (its exact result)(1 + δ) + η', |δ| ≤ u, and η' = 0 unless the result is below the normal
      numbers, then |η'| ≤ η; u and η are those of ``score``, in sums of ``accumulate``. What is a number of the format
      is not changed.
  A2  a function has a relative error of at most ε = 2·exp_ulps·u, besides η'; at 0 it has none, and so has √ where the
      root is a number of the format.
  A3  nothing overflows. Where it might, the bound is +∞: nothing is said.

g(n) = (1 + u)^n − 1: a product of n factors 1 + δ is within g(n) of 1.
Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §2.2, §3.1 and §3.3 (running errors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import flint

from symattn.arrays.ball import Ball
from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision

ZERO, ONE, INFINITE = flint.arb(0), flint.arb(1), flint.arb("inf")
SCALE_ROUNDINGS = 6  # by which a scale may reach the products of a sum: see Rules.times_scale


@dataclass(frozen=True, slots=True)
class Element:
    """A number x (``value``), the bound e (``error``), and Σ|x_l y_l| if x is a sum of products (``terms``).

    ``scale``: whether it is about to multiply or divide a whole matrix.
    """

    value: flint.arb
    error: flint.arb = ZERO
    terms: flint.arb | None = None
    scale: bool = False

    @property
    def size(self) -> flint.arb:
        """|x| + e, which |x̂| does not exceed."""
        return abs(self.value) + self.error

    @property
    def is_zero(self) -> bool:
        """Whether x̂ = x = 0."""
        return bool(self.value == 0 and self.error == 0)

    @property
    def is_one(self) -> bool:
        """Whether x̂ = x = ±1."""
        return bool(self.error == 0 and abs(self.value) == 1)

    @property
    def is_exact(self) -> bool:
        """Whether x̂ = x, which is known exactly."""
        return bool(self.error == 0 and self.value.is_exact())

    def __gt__(self, other: int) -> bool:
        """Whether x and x̂ both certainly exceed a number."""
        return bool(self.value - self.error > other)

    def __str__(self) -> str:
        return f"{self.value.str(15, radius=False)} ± {self.error.str(3, radius=False)}"


class Rules:
    """The arithmetic of a precision."""

    def __init__(self, precision: Precision) -> None:
        self.precision = precision
        self.score, self.accumulate = precision.score, precision.accumulate

    @cached_property
    def epsilon(self) -> flint.arb:
        """ε of A2."""
        return 2 * flint.arb(self.precision.exp_ulps) * constant(self.score.u)

    def stored(self, value: flint.arb, error: flint.arb, roundings: int = 1) -> flint.arb:
        """The error after so many roundings in ``score`` of a result with |x̂ − x| ≤ ``error``."""
        return rounding(value, error, roundings, self.score)

    def constant(self, value: flint.arb, exactly: bool) -> Element:
        """A number of the program, which ``score`` holds exactly or nearest."""
        return Element(value, ZERO if exactly else self.stored(value, ZERO))

    def plus(self, x: Element, y: Element) -> Element:
        """x + y: e_x + e_y, and one rounding. To add 0 changes nothing."""
        if x.is_zero or y.is_zero:
            return y if x.is_zero else x
        value, error = x.value + y.value, x.error + y.error
        terms = None
        if x.terms is not None or y.terms is not None:
            terms = (x.size if x.terms is None else x.terms) + (y.size if y.terms is None else y.terms)
        return Element(value, self.stored(value, error), terms)

    def times(self, x: Element, y: Element) -> Element:
        """x y: |x̂ŷ − xy| ≤ |x| e_y + |y| e_x + e_x e_y, and one rounding; none where one of them is ±2^k."""
        if x.is_one or y.is_one:
            other = x if y.is_one else y
            return Element(x.value * y.value, other.error, other.terms)
        value = x.value * y.value
        error = abs(x.value) * y.error + abs(y.value) * x.error + x.error * y.error
        error = self.stored(value, error, 0 if _power_of_two(x) or _power_of_two(y) else 1)
        return self._scaled(value, error, *((x, y.size) if y.scale else (y, x.size) if x.scale else (None, ONE)))

    def _scaled(self, value: flint.arb, error: flint.arb, x: Element | None, c: flint.arb) -> Element:
        """c x, where the scale c is common to a matrix: or with c, or √|c| twice, in the factors of what x sums.

        Then each product passes at most six roundings more: of c = 1/√d two, of √c half of these and one, twice, and
        two products. Together they move the sum by at most g(6) |c| Σ|x_l y_l|.
        """
        if x is None or x.terms is None:
            return Element(value, error)
        terms = x.terms * c
        return Element(value, error + terms * growth(self.score, SCALE_ROUNDINGS), terms)

    def over(self, x: Element, y: Element) -> Element:
        """x / y, or x (1/y): |x̂/ŷ − x/y| ≤ (e_x + |x/y| e_y)/(|y| − e_y), and two roundings; none where y = ±2^k.

        The reciprocal underflows, by η, only where |y| + e_y exceeds the reciprocal of the smallest normal number.
        """
        value = Ball.divide(x.value, y.value)
        if x.is_zero or y.is_one:
            return Element(value, x.error, x.terms)
        room = abs(y.value) - y.error
        if not room > 0:
            return Element(value, INFINITE)
        error = (x.error + abs(value) * y.error) / room
        error = self.stored(value, error, 0 if _power_of_two(y) else 2)
        if not y.size * constant(self.score.smallest_normal) <= 1:
            error += x.size * constant(self.score.eta) * (1 + growth(self.score, 1))
        return self._scaled(value, error, x if y.scale else None, 1 / room)

    def total(self, xs: Sequence[Element]) -> Element:
        """Σ x_l in any order: n terms that are not 0 pass n − 1 roundings each at most, then the sum is stored."""
        terms = [x for x in xs if not x.is_zero]
        if len(terms) < 2:
            return terms[0] if terms else Element(ZERO)
        n = len(terms)
        value, size, error = sum(x.value for x in terms), sum(x.size for x in terms), sum(x.error for x in terms)
        sizes = [x.size if x.terms is None else x.terms for x in terms]
        inherited = sum(sizes) if any(x.terms is not None for x in terms) else None
        return Element(value, self.summed(value, error, size, n - 1, 0), inherited)

    def summed(self, value: flint.arb, error: flint.arb, size: flint.arb, roundings: int, products: int) -> flint.arb:
        """The error of a sum of terms that together are at most ``size``, each of which passed so many roundings.

        Σ x̂_l Π(1 + δ) is off by e + g(n) Σ|x̂_l|. Each product may underflow by η (1 + g(n)), the sum, too, and each
        part of it where subnormal numbers are flushed, while without that a part is exact if it is no normal number.
        It is stored by one more rounding, if ``accumulate`` is not ``score``.
        """
        f = self.accumulate
        grown = growth(f, roundings)
        lost = products + (roundings if f.flushes else 1)
        error = error + grown * size + lost * constant(f.eta) * (1 + grown)
        if not size * (1 + grown) <= constant(f.largest):
            return INFINITE
        return error if f == self.score else self.stored(value, error)

    def operand(self, x: Element) -> Element:
        """x as a product of matrices reads it: ``fused``, what was computed may first be rounded to ``stored``."""
        if self.precision.contract == "eager" or x.error == 0:
            return x
        return Element(x.value, rounding(x.value, x.error, 1, self.precision.stored))

    def larger(self, x: Element, y: Element) -> Element:
        """max(x, y): |max(x̂, ŷ) − max(x, y)| ≤ max(e_x, e_y); the larger one itself where that is decided."""
        if x.value - x.error >= y.value + y.error:
            return x
        if y.value - y.error >= x.value + x.error:
            return y
        return Element(x.value.max(y.value), x.error.max(y.error))

    def function(self, name: str, x: Element) -> Element:
        """f(x): how far f moves if x moves by e, then ε of the result."""
        value = Ball.function(name, x.value)
        if x.is_zero or (x.is_exact and name == "sqrt" and value.is_exact()):
            return Element(value)
        moved = _finite(_MOVED[name](x.value, x.error, value))
        error = moved + self.epsilon * (abs(value) + moved)
        return Element(value, self.stored(value, error, 0))


def constant(x: object) -> flint.arb:
    """A number as a ball."""
    return Ball.scalar(x)


@lru_cache(maxsize=4096)
def _growth(f: Format, n: int, bits: int) -> flint.arb:
    return (1 + constant(f.u)) ** n - 1


def growth(f: Format, n: int) -> flint.arb:
    """g(n)."""
    return _growth(f, n, flint.ctx.prec)


def rounding(value: flint.arb, error: flint.arb, n: int, f: Format) -> flint.arb:
    """The error after n roundings in a format of what is off by ``error``; n = 0: of what only underflow changes.

    The result is x̂ Π(1 + δ_i), plus at most η (1 + g(n)) for each rounding that underflows, and none does if
    |x̂| ≥ |x| − e is a normal number; and |x̂| ≤ |x| + e.
    """
    if value == 0 and error == 0:
        return error
    size, grown = abs(value) + error, growth(f, n)
    after = error + grown * size
    if not abs(value) - error >= constant(f.smallest_normal):
        after += max(n, 1) * constant(f.eta) * (1 + grown)
    return after if size + after <= constant(f.largest) else INFINITE


def _finite(x: flint.arb) -> flint.arb:
    return x if x.is_finite() else INFINITE


def _power_of_two(x: Element) -> bool:
    """Whether x̂ = x = ±2^k."""
    return x.is_exact and x.value != 0 and abs(int(x.value.mid().man_exp()[0])) == 1


# -- how far f(x̂) is from f(x) = y, if |x̂ − x| ≤ e -------------------------------------------------------------------
def _exp(x: flint.arb, e: flint.arb, y: flint.arb) -> flint.arb:
    """e^x (e^e − 1)."""
    return y * e.expm1()


def _log(x: flint.arb, e: flint.arb, y: flint.arb) -> flint.arb:
    """−log(1 − e/x), for e < x."""
    return -(-e / x).log1p() if e < x else INFINITE


def _sqrt(x: flint.arb, e: flint.arb, y: flint.arb) -> flint.arb:
    """√x − √(x − e) = e/(√x + √(x − e)), for e ≤ x."""
    return e / (y + (x - e).sqrt()) if e < x else INFINITE


def _nearest_zero(x: flint.arb, e: flint.arb) -> flint.arb:
    """max(|x| − e, 0): no number within e of x is nearer to 0."""
    return (abs(x) - e).max(ZERO)


def _tanh(x: flint.arb, e: flint.arb, y: flint.arb) -> flint.arb:
    """The slope 1 − tanh² is largest next to 0."""
    return e * (1 - _nearest_zero(x, e).tanh() ** 2)


def _erf(x: flint.arb, e: flint.arb, y: flint.arb) -> flint.arb:
    """The slope 2 e^{−x²}/√π is largest next to 0."""
    return e * 2 * (-(_nearest_zero(x, e) ** 2)).exp() / flint.arb.pi().sqrt()


def _cos(x: flint.arb, e: flint.arb, y: flint.arb) -> flint.arb:
    """|cos(x + h) − cos x| ≤ |h sin x| + h²/2, and at most |h|."""
    return (e * abs(x.sin()) + e * e / 2).min(e)


def _sin(x: flint.arb, e: flint.arb, y: flint.arb) -> flint.arb:
    """|sin(x + h) − sin x| ≤ |h cos x| + h²/2, and at most |h|."""
    return (e * abs(x.cos()) + e * e / 2).min(e)


_MOVED = {"exp": _exp, "log": _log, "sqrt": _sqrt, "tanh": _tanh, "erf": _erf, "cos": _cos, "sin": _sin}

"""``rounded``: an exact number, and a bound on how far any legal implementation may be from it.

Run a definition on this kind, and ``bound`` is the largest error of results computed in a ``Precision``. An
implementation is legal if its arithmetic is that of ``rounding.bounds`` (A1 to A3) and it performs the operations of
the definition as written, with these freedoms:

  R1  An operation is rounded once, a quotient twice, or not at all: any part may be computed in a finer format. Each
      operation that reads a number may read it rounded or not (exponentials are summed in float32, and meet the values
      in float16); before that last rounding a number is the same for all readers.
  R2  Sums, means, products of matrices and cumulative sums are taken in any order and in tiles, over several axes at
      once, with products fused in; an addend of a product of matrices may be one more term of its sums.
  R3  A quotient is one operation or a product with the reciprocal; x/√y may be x·(1/√y), 1/√y one function.
  R4  A scale, a factor common to matrices, multiplies a sum of products, or one factor of these, or its root both,
      if none of them underflows.
  R5  e/Σe is divided by its sum before or after the product with the values.
  R6  For e/Σe, the maximum that is subtracted is any number as near to the true one as it may be computed, or none is
      subtracted, if no maximum is negative or nothing underflows, and nothing overflows.
  R7  ``fused`` only: what a product of matrices reads may be rounded to ``stored``, and the result is to ``input``; all
      else stays in the arithmetic of the sums. ``eager`` allows that every array is stored in the input's format.

Not covered are other formulas for the same value: a variance as E x² − (E x)², Strassen's products, a product of three
matrices associated the other way, a maximum that grows tile by tile, exponentials of base 2 of scores without a scale.
Such code may still be within the bound; to find out, run its own formula as a definition.

Proof. By induction: let x be a number of the definition, x̃ its computed value and x̂ the value that one reader reads.
Then
  x̃ = x + Σ c_s ε_s + r, |r| ≤ own,   x̂ = x̃ + l, |l| ≤ last,
where the ε_s in [−1, 1] are the same for all numbers, and r and l are any numbers in their ranges, r for each number,
l for each of its readers. Each operation shows that this holds of its result; own errors of what is read more than
once may be named, r = own·ε_s with a new s. A rounding that is left out, or is finer, has a smaller δ, so R1 holds.
R2, R3 and R4 change errors within r alone (see there). R5: let p̃_j be ê_j/Σ̂. The product reads p̃_j + l_j, for each of
its columns another l_j, two roundings; so it may read p̃_j (1 + δ) there, which is the product divided afterwards.
R6: a factor common to all e_j of a row, such as e^m, changes no p_j, and e^{s_j} without m has the errors of
e^{s_j − m} but for those of m and of the difference. R7 is in the product of matrices and in ``bound``.

In large arrays, common errors are forgotten (``rounding.bounds``): the bound becomes wider, not wrong. Comparisons are
decided if rounding cannot change them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, Self

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.base import offer_all
from symattn.arrays.namespace import Namespace
from symattn.arrays.precision import Contract, Precision
from symattn.arrays.reductions import _normalise_axis_numbers
from symattn.arrays.rounding.array import SPECIAL, ComputedNumber, LinearErrors, sharply
from symattn.arrays.rounding.bounds import SLACK, common_ids, growth, holds, rounding, table, up
from symattn.arrays.rounding.elementwise import RoundedElementwise
from symattn.arrays.rounding.in_enclosures import InEnclosures
from symattn.arrays.special import Forbidden
from symattn.document.errors import InputError
from symattn.document.model import Text


class RoundedSums(ComputedNumber):
    """Sums over an axis, products of matrices."""

    @classmethod
    @sharply
    def _sum(cls, a: Self, axis: int) -> Self:
        """Sum along ``axis``; each of n nonzero numbers passes at most n − 1 roundings."""
        # Named first, so that errors cancel against other readers of the same numbers.
        value, a, n = cls.values._sum(a.value, axis), a.name_errors(), a.plain_shape[axis]
        ids, reach = common_ids([a.rows], a.size), a.reach
        # Zeros are added exactly, so only nonzero numbers count.
        (part, left), count = table(a.rows, ids), (reach > 0).sum(axis=axis)
        rest = a.rows.own + SLACK * n * a.rows.radius + left
        terms = np.where(a.terms > 0, a.terms, reach).sum(axis=axis)
        shared = part.sum(axis=axis)
        additions = np.maximum(count - 1, 0)
        any_terms = (a.terms > 0).any(axis=axis)
        return cls.made(
            value,
            LinearErrors(shared, ids, rest.sum(axis=axis), a.last.sum(axis=axis)),
            more=cls._bound_error_of_sums(reach.sum(axis=axis), additions, np.zeros(count.shape)),
            relative=np.where(count > 1, cls.rounded_once(), 0),
            terms=np.where(any_terms, terms, 0),
        )

    @classmethod
    def _bound_error_of_sums(
        cls, size: np.ndarray, roundings: np.ndarray, products: np.ndarray
    ) -> np.ndarray:
        """Return the error of sums of numbers with Σ|x̂_l| ≤ ``size``, each of which passes ``roundings`` roundings.

        Σ x̂_l Π(1 + δ) is off by g(n) Σ|x̂_l|. The last rounding is common to all terms; if it is that of storing the
        sum, it is counted there. Each product may underflow by η (1 + g(n)), and so may the sum, and each partial sum
        if subnormal numbers are flushed; else a subnormal partial sum is exact.
        """
        f = cls.precision.accumulate
        # The last rounding is counted where the sum is stored.
        grown = growth(f, np.maximum(roundings - (f == cls.precision.score), 0))
        # Flushing loses subnormal partial sums, which are exact otherwise.
        small = (products + (roundings if f.flushes else roundings > 0)) * float(f.eta)
        # Beyond the largest number nothing is bounded.
        return np.where(
            up(size * (1 + grown)) <= float(f.largest),
            up(grown * size + small * (1 + grown)),
            np.inf,
        )

    @classmethod
    @sharply
    def _matmul(cls, a: Self, b: Self) -> Self:
        """Multiply matrices; each of n nonzero products passes at most n roundings, its own and those of the sum."""
        a, b = a.name_errors(), b.name_errors()
        shape = (
            *np.broadcast_shapes(a.plain_shape[:-2], b.plain_shape[:-2]),
            a.plain_shape[-2],
            b.plain_shape[-1],
        )
        # The size of the largest table that has these columns, for the limit on coefficients.
        with_radius = (z.size for z in (a, b) if z.rows.radius.any())
        largest = max(prod(shape), *with_radius, 0)
        ids = common_ids([a.rows, b.rows], largest)
        value = cls.multiply_matrices(a, b, shape)
        shape_of_errors = (*shape, ids.size)
        shared, rest, size, count = cls._bound_matrix_product_errors(a, b, ids, shape_of_errors)
        return cls.made(
            value,
            LinearErrors(shared, ids, rest, np.zeros(shape)),
            more=cls._bound_error_of_sums(size, count, count),
            relative=cls.rounded_once(),
            terms=up(size * (1 + growth(cls.precision.accumulate, count))),
            count=count,
        )

    @classmethod
    def _bound_matrix_product_errors(
        cls, a: Self, b: Self, ids: np.ndarray, shape: tuple[int, ...]
    ) -> tuple[np.ndarray, ...]:
        """Return a product's coefficients in this shape, other errors, Σ|x̂_l ŷ_l|, and the counts of nonzero products.

        x̂ŷ − xy = y (x̂ − x) + x (ŷ − y) + (x̂ − x)(ŷ − y).
        """
        (s, p, e), (t, q, f), x, y = (
            cls._error_parts_of_operand(a, ids),
            cls._error_parts_of_operand(b, ids),
            a.near,
            b.near,
        )
        *_, columns, n = shape
        products = []
        # Coefficients that are all 0 would cost a large product.
        if t is not None:
            columns_of_table = t.reshape(*t.shape[:-2], columns * n)
            products.append((x.near @ columns_of_table).reshape(shape))
        if s is not None:
            products.append(y.near.swapaxes(-1, -2)[..., None, :, :] @ s)
        shared = products[0] if products and products[0].shape == shape else np.zeros(shape)
        for one in products:
            if one is not shared:
                shared += one
        slack, (c, d) = SLACK * a.plain_shape[-1], (x.size, y.size)
        left_errors = (x.off + slack * c) @ f
        right_errors = e @ (y.off + slack * d)
        own_errors = c @ q + p @ d + e @ f
        rest = own_errors + left_errors + right_errors
        u = up(c + e)
        v = up(d + f)
        counts = (u > 0).astype(float) @ (v > 0).astype(float)
        return shared, rest, u @ v, counts

    @classmethod
    def _error_parts_of_operand(cls, x: Self, ids: np.ndarray) -> tuple[Any, ...]:
        """Return the parts of an operand: coefficients, None if all are zero; other errors, all errors.

        With ``fused``, numbers outside the format ``stored`` may first be rounded to it.
        """
        f, near, e = cls.precision.stored, x.near, x.error
        shared, left = table(x.rows, ids) if x.rows.radius.any() else (None, 0.0)
        rest = x.rows.own + x.last + left
        # A fused kernel may read numbers in the narrower format first.
        if cls.precision.contract == "fused":
            largest = up(near.size + e)
            read = rounding(largest, near.low - e, growth(f, 1), f)
            # Exact numbers of the format are read without an error.
            rest = rest + np.where((e == 0) & holds(f, near), 0, read)
        return shared, up(rest), up(x.rows.radius + rest)


class _WholeSum:
    """Sums over several axes at once, and partial sums, which other kinds compute step by step."""

    kind: type[Any]

    def sum(self, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Sum over all the axes at once."""
        axes, whole = _normalise_axis_numbers(a, axis), a.name_errors()
        # One sum over all axes: its terms may be added in any order, see R2.
        remaining = [k for k in range(a.ndim) if k not in axes]
        lines = whole.map(
            lambda p: p.transpose(*remaining, *axes).reshape(
                [a.plain_shape[k] for k in remaining] + [-1]
            )
        )
        total = self.kind._sum(lines, len(remaining)) if axes else a.copy()
        if keepdims and axes:
            return self.kind.xp.expand_dims(total, tuple(sorted(axes)))
        return total

    def cumulative_sum(self, a: Any, axis: int | None = None) -> Any:
        """Return partial sums, each bounded as a sum of its own."""
        x, k = (a.reshape(-1), 0) if axis is None else (a, axis)
        rows = self.kind.xp.moveaxis(x.name_errors(), k, 0)
        row_counts = range(len(rows))
        sums = [self.kind._sum(rows[: i + 1], 0) for i in row_counts]
        if sums:
            return self.kind.xp.moveaxis(self.kind.xp.stack(sums), 0, k)
        return x.copy()

    cumsum = cumulative_sum


offer_all(_WholeSum)


class RoundedNamespace(_WholeSum, Namespace):
    """The namespace of a rounded kind."""


# -- sums and products of matrices, in any order -----------------------------------------------------------------------
class Rounded(RoundedElementwise, RoundedSums):
    """Arrays of numbers and bounds, for one precision: ``rounded("float32")``."""

    @property
    def balls(self) -> np.ndarray:
        """The exact values as balls, and what is no number."""
        value = self.value
        entries: np.ndarray = value.entries if isinstance(value, Ball) else value.balls().entries
        return entries

    @property
    def bound(self) -> np.ndarray:
        """The largest legal |x̂ − x|, with x̂ in the input's format, as float64 rounded up; +∞ if there is no bound."""
        with np.errstate(over="ignore", invalid="ignore"):
            f, e, x = self.precision.input, self.error, self.near
            # Without a narrower output format the last rounding is counted already.
            if f == self.precision.score:
                return e
            largest = up(x.size + e)
            array = rounding(largest, x.low - e, growth(f, 1), f)
            unchanged = (e == 0) & holds(f, x)
            return np.where(unchanged, 0.0, up(e + array))

    def printer(self) -> Callable[[tuple[int, ...]], Text]:
        from symattn.arrays.shown import element

        value, bound = self.balls, self.bound

        def printed(at: tuple[int, ...]) -> Text:
            x = value[at]
            return (
                (element(x),)
                if isinstance(x, SPECIAL)
                else (f"{x.str(8, radius=False)} ± {bound[at]:.2g}",)
            )

        return printed

    def within(self, got: object) -> np.ndarray:
        """Return which computed floats are no further from the exact values than the bound allows.

        NaN is allowed if the exact value is undefined, −∞ if that is −∞, and any float if there is no bound.
        """
        legal = np.frompyfunc(_is_legal_rounded_value, 3, 1)(
            self.balls, self.bound, np.asarray(got, dtype=np.float64)
        )
        return np.asarray(legal, dtype=bool)

    def __repr__(self) -> str:
        return f"{self.name}({self.value!r}, within {self.bound})"


def _is_legal_rounded_value(x: object, bound: float, got: float) -> bool:
    if isinstance(x, SPECIAL):
        return bool(np.isneginf(got) if isinstance(x, Forbidden) else np.isnan(got))
    # Without a bound every float is legal; otherwise infinities are not.
    if np.isinf(bound) or not np.isfinite(got):
        return bool(np.isinf(bound))
    return not abs(flint.arb(float(got)) - x) > bound


class EnclosedRounded(InEnclosures, Rounded):
    """Rounded numbers whose exact numbers are enclosures: ``rounded("float32", enclosed=True)``."""


def rounded(
    precision: str | Precision,
    contract: Contract | None = None,
    accumulate: str | None = None,
    enclosed: bool = False,
) -> type[Rounded]:
    """Return the kind for a precision: ``rounded("float32")``, ``rounded("bfloat16", "fused")``, or any ``Precision``.

    With ``enclosed``, exact numbers are enclosures in float64 in place of balls: wider, and fast for large arrays.
    Raises ``InputError`` for a precision whose scores are narrower than its inputs.

    >>> kind = rounded("float16")
    >>> mean = kind.xp.mean(kind.lift([1.0, 2.0, 4.0]))
    >>> mean.within(2.334).item(), mean.within(2.35).item()
    (True, False)
    """
    return _make_rounded_kind(
        Precision.of(precision, contract, accumulate), EnclosedRounded if enclosed else Rounded
    )


@cache
def _make_rounded_kind(p: Precision, base: type[Rounded]) -> type[Rounded]:
    if p.score.digits < p.input.digits:
        raise InputError(
            f"rounded {p.name}: scores in {p.score.name} cannot hold the inputs; hint: choose a wider score"
        )
    # Twice the digits of the finest format, so that balls are far sharper than its roundings.
    formats = (p.input, p.score, p.accumulate, p.stored)
    bits = 2 * max(f.digits for f in formats) + 32
    result: type[Rounded] = type(
        "Rounded", (base,), {"name": f"rounded {p.name}", "precision": p, "bits": bits}
    )
    result.xp = RoundedNamespace(result)
    return result

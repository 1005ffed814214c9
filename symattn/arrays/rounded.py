"""``rounded``: an exact number, and a bound on how far any legal implementation may be from it.

Run a definition on this kind, and ``bound`` says how far what is computed in a ``Precision`` may be from the exact
values. An implementation is legal if its arithmetic is that of ``rounding.bounds`` (A1 to A3) and it computes the
numbers of the definition one from the other as they are written, with these freedoms:

  R1  An operation is rounded once, a quotient twice, or not at all: any part may be worked out in a finer format. Each
      operation that reads a number may read it rounded or not (exponentials are summed in float32, and meet the values
      in float16); before that last rounding a number is the same for all that read it.
  R2  Sums, means, products of matrices and cumulative sums are taken in any order and in tiles, over several axes at
      once, with products fused in; what is added to a product of matrices may be one more term of its sums.
  R3  A quotient is one operation or a product with the reciprocal; x/√y may be x·(1/√y), 1/√y one function.
  R4  A scale, a factor common to matrices, multiplies a sum of products, or one factor of these, or its root both,
      where none of them underflows.
  R5  e/Σe is divided by its sum before or after the product with the values.
  R6  For e/Σe, the maximum that is subtracted is any number as near to the true one as it may be computed, or none is
      subtracted, where no maximum is negative or nothing underflows, and nothing overflows.
  R7  ``fused`` only: what a product of matrices reads may be rounded to ``stored``, and the result is to ``input``; all
      else stays in the arithmetic of the sums. ``eager`` allows that every array is stored in the input's format.

Not covered are other formulas for the same value: a variance as E x² − (E x)², Strassen's products, a product of three
matrices from the other side, a maximum that grows tile by tile, exponentials of base 2 of scores that no scale has
multiplied. Such code may be within the bound; to know, run its own formula as a definition.

Proof. By induction: let x be a number of the definition, x̃ what is computed and x̂ what one reader reads. Then
  x̃ = x + Σ c_s ε_s + r, |r| ≤ own,   x̂ = x̃ + l, |l| ≤ last,
where the ε_s in [−1, 1] are the same for all numbers, and r and l are any numbers in their ranges, r for each number,
l for each of its readers. Each operation shows that this holds of its result; own errors of what is read more than
once may be named, r = own·ε_s with a new s. A rounding that is left out, or is finer, has a smaller δ, so R1 holds.
R2, R3 and R4 change errors within r alone (see there). R5: let p̃_j be ê_j/Σ̂. The product reads p̃_j + l_j, for each of
its columns another l_j, two roundings; so it may read p̃_j (1 + δ) there, which is the product divided afterwards.
R6: a factor common to all e_j of a row, such as e^m, changes no p_j, and e^{s_j} without m has the errors of
e^{s_j − m} but for those of m and of the difference. R7 is in the product of matrices and in ``bound``.

Where arrays are large, errors in common are forgotten (``rounding.bounds``): the bound gets wider, not wrong.
Comparisons are decided where rounding cannot change them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import flint
import numpy as np

from symattn.arrays.precision import Contract, Precision
from symattn.arrays.rounding.array import SPECIAL
from symattn.arrays.rounding.bounds import growth, holds, rounding, up
from symattn.arrays.rounding.elementwise import RoundedElementwise
from symattn.arrays.rounding.sums import RoundedNamespace, RoundedSums
from symattn.arrays.special import Forbidden
from symattn.document.errors import InputError
from symattn.document.model import Text


class Rounded(RoundedElementwise, RoundedSums):
    """Arrays of numbers and bounds, for one precision: ``rounded("float32")``."""

    @property
    def bound(self) -> np.ndarray:
        """The largest legal |x̂ − x|, x̂ given out in the input's format, as float64 rounded up; +∞ says nothing."""
        f, e, x = self.precision.input, self.error, self.near
        if f == self.precision.score:
            return e
        with np.errstate(over="ignore", invalid="ignore"):
            array = rounding(up(x.size + e), x.low - e, growth(f, 1), f)
            return np.where((e == 0) & holds(f, x), 0.0, up(e + array))

    def told(self) -> Callable[[tuple[int, ...]], Text]:
        from symattn.arrays.shown import element

        value, bound = self.planes[0], self.bound

        def told(at: tuple[int, ...]) -> Text:
            x = value[at]
            return (element(x),) if isinstance(x, SPECIAL) else (f"{x.str(8, radius=False)} ± {bound[at]:.2g}",)

        return told

    def within(self, got: object) -> np.ndarray:
        """Where floats that were computed are no further from the exact values than the bound allows.

        NaN is within where the exact value is undefined, −∞ where it is that, and anything where nothing is said.
        """
        legal = np.frompyfunc(_legal, 3, 1)(self.planes[0], self.bound, np.asarray(got, dtype=np.float64))
        return np.asarray(legal, dtype=bool)

    def __repr__(self) -> str:
        return f"{self.name}({self.value!r}, within {self.bound})"


def _legal(x: object, bound: float, got: float) -> bool:
    if isinstance(x, SPECIAL):
        return bool(np.isneginf(got) if isinstance(x, Forbidden) else np.isnan(got))
    if np.isinf(bound) or not np.isfinite(got):
        return bool(np.isinf(bound))
    return not abs(flint.arb(float(got)) - x) > bound


def rounded(
    precision: str | Precision, contract: Contract | None = None, accumulate: str | None = None
) -> type[Rounded]:
    """Return the kind for a precision: ``rounded("float32")``, ``rounded("bfloat16", "fused")``, or any ``Precision``.

    >>> kind = rounded("float16")
    >>> mean = kind.xp.mean(kind.lift([1.0, 2.0, 4.0]))
    >>> mean.within(2.334).item(), mean.within(2.35).item()
    (True, False)
    """
    return _kind(Precision.of(precision, contract, accumulate))


@cache
def _kind(p: Precision) -> type[Rounded]:
    if p.score.digits < p.input.digits:
        raise InputError(
            f"rounded {p.name}: scores in {p.score.name} cannot hold the inputs; hint: choose a wider score"
        )
    bits = 2 * max(f.digits for f in (p.input, p.score, p.accumulate, p.stored)) + 32
    result: type[Rounded] = type("Rounded", (Rounded,), {"name": f"rounded {p.name}", "precision": p, "bits": bits})
    result.xp = RoundedNamespace(result)
    return result

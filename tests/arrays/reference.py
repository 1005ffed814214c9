"""A second, independent computation: NumPy on arrays of fractions, and mpmath at 60 digits for what leaves them."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

DIGITS = 60


def exact(data: Any) -> np.ndarray:
    """Numbers, exactly, as an array of fractions; infinities stay floats."""
    plain = np.asarray(data, dtype=object)
    out = np.empty(plain.shape, dtype=object)
    for index, x in np.ndenumerate(plain):
        out[index] = x if isinstance(x, float) and not np.isfinite(x) else Fraction(x)
    return out


def wide(x: Any) -> Any:
    """A number for mpmath."""
    return mpmath.mpf(x.numerator) / x.denominator if isinstance(x, (Fraction, int)) else mpmath.mpf(x)


def wide_all(a: Any) -> Any:
    return np.frompyfunc(wide, 1, 1)(a)


def _each(function: Callable[[Any], Any]) -> Any:
    return staticmethod(lambda a: np.frompyfunc(lambda x: function(wide(x)), 1, 1)(a))


def _test(function: Callable[[Any], Any]) -> Any:
    return staticmethod(lambda a: function(np.asarray(np.frompyfunc(float, 1, 1)(a), dtype=float)))


class Reference:
    """NumPy for arrays of fractions: what NumPy lacks for objects stands here, all else is NumPy's."""

    float64 = float32 = object
    exp, log, sqrt, tanh, erf = map(_each, (mpmath.exp, mpmath.log, mpmath.sqrt, mpmath.tanh, mpmath.erf))
    cos, sin, expm1, log1p = map(_each, (mpmath.cos, mpmath.sin, mpmath.expm1, mpmath.log1p))
    exp2, log2 = _each(lambda x: mpmath.mpf(2) ** x), _each(lambda x: mpmath.log(x, 2))
    isfinite, isnan, isinf, isneginf = map(_test, (np.isfinite, np.isnan, np.isinf, np.isneginf))

    def mean(self, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        total = np.asarray(np.sum(a, axis=axis, keepdims=keepdims))
        return total / Fraction(a.size, total.size)

    def var(self, a: Any, axis: Any = None, keepdims: bool = False, correction: int = 0, ddof: int = 0) -> Any:
        return self.deviations(a - self.mean(a, axis, True), axis, keepdims, correction or ddof)

    def deviations(self, d: Any, axis: Any, keepdims: bool, correction: int) -> Any:
        total = np.asarray(np.sum(d * d, axis=axis, keepdims=keepdims))
        return total / (Fraction(d.size, total.size) - correction)

    def std(self, a: Any, **how: Any) -> Any:
        return self.sqrt(self.var(a, **how))

    def pow(self, a: Any, b: Any) -> Any:
        whole = b == int(b)
        return np.frompyfunc(lambda x: x ** int(b) if whole else wide(x) ** wide(Fraction(b)), 1, 1)(a)

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        return exact(x) if dtype is None else np.asarray(x, dtype)

    array = asarray

    def reciprocal(self, a: Any) -> Any:
        return Fraction(1) / a

    def astype(self, a: Any, dtype: Any) -> Any:
        return a.astype(dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


class Magnitude(Reference):
    """Run on absolute values it gives Σ|x| where the reference gives Σx: what rounding errors are relative to."""

    def var(self, a: Any, axis: Any = None, keepdims: bool = False, correction: int = 0, ddof: int = 0) -> Any:
        return self.deviations(a + self.mean(a, axis, True), axis, keepdims, correction or ddof)

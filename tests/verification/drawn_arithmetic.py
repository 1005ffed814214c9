"""A legal arithmetic, drawn at random, that any array code runs in: NumPy's, with roundings and orders of its own.

An operation is rounded to the nearest number of a precision's format, a sum is taken in an order of its own with a
rounding after each addition, a quotient may be a product with the reciprocal, and a function is off by as much as it
may. Nothing of ``symattn.arrays.rounding`` takes part.
"""

from typing import Any

import numpy as np

from symattn import Precision
from symattn.arrays.formats import Format

#: What NumPy computes without rounding, or as a truth value.
EXACT = {
    *(np.negative, np.absolute, np.maximum, np.minimum, np.sign, np.copysign, np.floor, np.ceil, np.isfinite, np.isnan),
    *(np.isinf, np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal, np.logical_and),
    *(np.logical_or, np.logical_not, np.positive, np.bitwise_and, np.bitwise_or, np.invert, np.conjugate, np.signbit),
}
ROUNDED = {np.add, np.subtract, np.multiply}
FUNCTIONS = {np.exp, np.exp2, np.expm1, np.log, np.log2, np.log1p, np.sqrt, np.tanh, np.sin, np.cos, np.power}


class Drawn(np.ndarray):
    """Numbers of a format; ``arithmetic`` draws what an operation gives."""

    arithmetic: "Arithmetic"

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        plain = [_plain(x) for x in inputs]
        more = {name: _plain(x) for name, x in more.items() if name != "out"}
        arithmetic = next(x.arithmetic for x in inputs if isinstance(x, Drawn))
        return arithmetic.wrap(arithmetic.run(ufunc, method, plain, more))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in (np.cumsum, np.cumulative_sum):
            axis = kwargs.get("axis", args[1] if len(args) > 1 else -1)
            return self.arithmetic.wrap(self.arithmetic.accumulate(_plain(args[0]), axis))
        result = super().__array_function__(function, types, args, kwargs)
        return self.arithmetic.wrap(result) if isinstance(result, np.ndarray) else result

    def __array_finalize__(self, other: Any) -> None:
        if other is not None and hasattr(other, "arithmetic"):
            self.arithmetic = other.arithmetic


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, Drawn) else x


class Arithmetic:
    """The operations of a ``Precision``; which of its legal results they give is drawn from ``seed``."""

    def __init__(self, precision: Precision, seed: int) -> None:
        self.precision, self.rng = precision, np.random.default_rng(seed)

    def lift(self, x: Any) -> Any:
        """Numbers of the input's format; others as they are."""
        x = np.asarray(x)
        return self.wrap(self.precision.input.rounded(x)) if x.dtype.kind == "f" else x

    def wrap(self, x: Any) -> Any:
        if not isinstance(x, np.ndarray | np.floating) or x.dtype.kind != "f":
            return x
        result = np.asarray(x, dtype=np.float64).view(Drawn)
        result.arithmetic = self
        return result

    def run(self, ufunc: Any, method: str, inputs: list[Any], more: dict[str, Any]) -> Any:
        floats = any(np.asarray(x).dtype.kind == "f" for x in inputs)
        if method == "reduce" and ufunc is np.add and floats:
            return self.sum(inputs[0], **more)
        if (method == "reduce" and ufunc in EXACT) or not floats:
            return getattr(ufunc, method)(*inputs, **more)
        if method != "__call__":
            raise NotImplementedError(f"{ufunc}.{method}")
        if ufunc in EXACT:
            return ufunc(*inputs, **more)
        if ufunc is np.matmul:
            return self.product(*inputs)
        if ufunc is np.square:
            return self.round(inputs[0] * inputs[0])
        if ufunc is np.divide:
            return self.quotient(*inputs)
        if ufunc in ROUNDED:
            return self.round(ufunc(*inputs, **more))
        if ufunc in FUNCTIONS:
            return self.function(ufunc(*inputs, **more), inputs)
        raise NotImplementedError(ufunc.__name__)

    def round(self, x: Any, storage: Format | None = None) -> Any:
        finite = np.isfinite(x)
        return np.where(finite, (storage or self.precision.score).rounded(np.where(finite, x, 0.0)), x)

    def quotient(self, x: Any, y: Any) -> Any:
        inverse = self.rng.random() < 0.5
        return self.round(x * self.round(1 / np.asarray(y))) if inverse else self.round(x / y)

    def function(self, y: Any, inputs: list[Any]) -> Any:
        """Off by as much as a function may be, but for a rounding; at 0 exact, and so are roots in the format."""
        most = (2 * self.precision.exp_ulps - 1) * float(self.precision.score.u)
        exact = (np.asarray(inputs[0]) == 0) | (self.round(y) == y)
        return self.round(np.where(exact, y, y * (1 + most * self.rng.uniform(-1, 1, np.shape(y)))))

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False, **more: Any) -> Any:
        x = np.asarray(x)
        axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = tuple(a % x.ndim for a in axes)
        rest = [a for a in range(x.ndim) if a not in axes]
        lines = x.transpose(*rest, *axes).reshape([x.shape[a] for a in rest] + [-1])
        total = self.add_up(lines)
        return np.expand_dims(total, tuple(sorted(axes))) if keepdims else total

    def add_up(self, lines: Any) -> Any:
        """Sums over the last axis, one number after another or pair by pair, in any order."""
        terms = [lines[..., j] for j in self.rng.permutation(lines.shape[-1])]
        if not terms:
            return np.zeros(lines.shape[:-1])
        in_pairs = self.rng.random() < 0.5
        while len(terms) > 1:
            total = self.round(terms.pop(0) + terms.pop(0), self.precision.accumulate)
            terms.insert(len(terms) if in_pairs else 0, total)
        return self.round(terms[0])

    def accumulate(self, x: Any, axis: int) -> Any:
        rows = np.moveaxis(x, axis, -1)
        sums = [self.add_up(rows[..., : j + 1]) for j in range(rows.shape[-1])]
        return np.moveaxis(np.stack(sums, axis=-1), -1, axis)

    def product(self, x: Any, y: Any) -> Any:
        products = x[..., :, None, :] * np.swapaxes(y, -1, -2)[..., None, :, :]
        return self.add_up(self.round(products, self.precision.accumulate))

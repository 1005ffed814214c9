"""Products of matrices of elements, for ``rounded``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import flint
import numpy as np

from symattn.arrays.rounding import ZERO, Element, Rules
from symattn.arrays.special import Forbidden, Undefined
from symattn.errors import Refused


def product(rules: Rules, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A B: |ÂB̂ − AB| ≤ |A| E_B + E_A (|B| + E_B); of n products that are not 0 each passes n roundings at most.

    A row of A, or a column of B, with an undefined element gives undefined ones.
    """
    out = np.empty((a.shape[0], b.shape[1]), dtype=object)
    out[...] = Element(ZERO)
    if out.size and a.shape[1]:
        _fill(out, rules, *(_operands(rules, m) for m in (a, b)))
    for i, row in enumerate(a):
        _lose(out[i, :], row)
    for k, column in enumerate(b.T):
        _lose(out[:, k], column)
    return out


def _fill(out: np.ndarray, rules: Rules, a: np.ndarray, b: np.ndarray) -> None:
    x, e, zero = _matrix(a, lambda t: t.value), _matrix(a, lambda t: t.error), _plain(a)
    y, f, none = _matrix(b, lambda t: t.value), _matrix(b, lambda t: t.error), _plain(b)
    larger = _matrix(b, lambda t: t.size)
    moved = _matrix(a, lambda t: abs(t.value)) * f + e * larger
    value, size = x * y, _matrix(a, lambda t: t.size) * larger
    count = (~zero).astype(int) @ (~none).astype(int)
    for i, k in np.ndindex(out.shape):
        if n := int(count[i, k]):
            error = rules.summed(value[i, k], moved[i, k], size[i, k], n, n)
            out[i, k] = Element(value[i, k], error, size[i, k])


def _operands(rules: Rules, m: np.ndarray) -> np.ndarray:
    def read(x: Any) -> Element:
        if isinstance(x, Forbidden):
            raise Refused("a product of matrices over -inf (masked scores are only exponentiated)")
        return Element(ZERO) if isinstance(x, Undefined) else rules.operand(x)

    return np.frompyfunc(read, 1, 1)(m)  # type: ignore[no-any-return]


def _matrix(m: np.ndarray, part: Callable[[Element], flint.arb]) -> Any:
    return flint.arb_mat([[part(x) for x in row] for row in m])


def _plain(m: np.ndarray) -> np.ndarray:
    """Where the elements are zero."""
    return np.asarray([[x.is_zero for x in row] for row in m])


def _lose(out: np.ndarray, read: Iterable[Any]) -> None:
    """If one of the elements read is undefined, so is all that was made of them."""
    for x in read:
        if isinstance(x, Undefined):
            out[...] = x
            return

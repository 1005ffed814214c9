"""Arithmetic mod m on float64 arrays, exact, at the speed of BLAS.

A residue x is stored as any integer float with |x| ≤ m/2 + 4, for a prime m < 2²³. Every operation is exact, because

* ``reduced`` maps an integer |x| < 2⁵² to x − k·m, where k is x·(1/m) rounded. Two roundings, each of relative error
  2⁻⁵³, put the computed quotient within 2⁵²/m · 2⁻⁵² · 1.01 < 2/m of x/m, so |x/m − k| ≤ 1/2 + 2/m. k·m is an integer
  below 2⁵³, hence exact, and so is the difference: |x − k·m| ≤ m/2 + 2.
* A product of two residues is an integer of size at most (2²² + 4)² < 2⁴⁴(1 + 2⁻¹⁸). A sum of 255 of them, in any order
  or tiling, with or without fused multiply-add, has only partial sums of size below 2⁵²: integers that float64 holds.
  So BLAS rounds nothing in blocks of 255 inner indices, and ``reduced`` may follow.
* x ≡ y mod m iff ``reduced(x − y)`` is 0: no other multiple of m is that small.

NaN stands for an undefined element (0/0), and stays NaN throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from symattn.document.errors import Refused

Floats = np.ndarray[Any, np.dtype[np.float64]]
Index = tuple[slice | int, ...]
BLOCK = 255  # inner indices of a product of matrices that are summed before they are reduced
_CACHED = 1 << 15  # elements processed at a time, so that they stay in the processor's cache
_LOW = 11  # bits of an exponent that index the first of two tables


def blocks(shape: tuple[int, ...]) -> Iterator[Index]:
    """Yield indices that cut an array of this shape into parts of about ``_CACHED`` elements, along its first axes."""
    row = prod(shape[1:])
    # An array that fits into the cache is one block; () selects all of it.
    if prod(shape) <= _CACHED or not shape:
        yield ()
    # Rows that do not fit are cut along their own axes.
    elif row > _CACHED:
        yield from ((i, *rest) for i in range(shape[0]) for rest in blocks(shape[1:]))
    else:
        step = _CACHED // row
        starts = range(0, shape[0], step)
        yield from ((slice(i, i + step),) for i in starts)


class Modulus:
    """Arithmetic mod the prime m < 2²³."""

    def __init__(self, m: int) -> None:
        self.m = m
        self._inverse = 1.0 / m
        self._scratch = np.empty(_CACHED)

    def _reduce_block_modulo(self, x: Floats) -> None:
        """Reduce one block mod m in place."""
        # One scratch array serves all blocks, so that it stays in the cache, too.
        k = self._scratch[: x.size].reshape(x.shape) if x.size <= _CACHED else np.empty_like(x)
        np.multiply(x, self._inverse, out=k)
        np.rint(k, out=k)
        k *= self.m
        x -= k

    def reduced(self, x: Floats) -> Floats:
        """Reduce integers |x| < 2⁵² mod m in place, and return them."""
        x = np.asarray(x)  # NumPy returns scalars for arrays without axes
        for at in blocks(x.shape):
            self._reduce_block_modulo(x[at] if at else x)
        return x

    def _apply_ufunc_modulo(self, ufunc: np.ufunc, x: Floats, y: Floats) -> Floats:
        # Most operands have one shape, for which NumPy's general rule takes longer than a small sum.
        is_alike = x.shape == y.shape
        shape = x.shape if is_alike else np.broadcast_shapes(x.shape, y.shape)
        # Small arrays fit the cache as a whole.
        if prod(shape) <= _CACHED:
            small = np.asarray(ufunc(x, y))
            self._reduce_block_modulo(small)
            return small
        out = np.empty(shape)
        if not is_alike:
            x = np.broadcast_to(x, shape)
            y = np.broadcast_to(y, shape)
        # Block by block, so that each is reduced while it is in the cache.
        for at in blocks(shape):
            target = out[at] if at else out
            part = ufunc(x[at], y[at], out=target)
            self._reduce_block_modulo(part)
        return out

    def add(self, x: Floats, y: Floats) -> Floats:
        return self._apply_ufunc_modulo(np.add, x, y)

    def multiply(self, x: Floats, y: Floats) -> Floats:
        return self._apply_ufunc_modulo(np.multiply, x, y)

    def total(self, x: Floats, axis: int) -> Floats:
        """Return the sum of at most 2²⁹ residues along an axis, so that it stays below 2⁵²."""
        return self.reduced(np.asarray(np.sum(x, axis=axis)))

    def matmul(self, x: Floats, y: Floats) -> Floats:
        """Return x @ y for arrays with two axes or more."""
        out: Floats | None = None
        # Sums of 255 products stay below 2⁵², where BLAS rounds nothing.
        for i in range(0, x.shape[-1], BLOCK):
            rows = y[..., i : i + BLOCK, :]
            product = np.matmul(x[..., i : i + BLOCK], rows)
            part = self.reduced(product)
            out = part if out is None else self.reduced(np.add(out, part, out=out))
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        # Without inner indices every sum is empty.
        if out is None:
            return np.zeros((*batch, x.shape[-2], y.shape[-1]))
        return out

    def inverse(self, x: Floats) -> Floats:
        """Return 1/x, NaN where x ≡ 0: by Python's integers for 64 elements, by three products for each other one."""
        # Zeros are replaced by 1 before products are formed, as one zero would spoil all inverses.
        none = (x == 0) | np.isnan(x)
        invertible = np.where(none, 1.0, x)
        out = self._invert_residues_in_halves(invertible.reshape(-1)).reshape(x.shape)
        out[none] = np.nan
        return out

    def _invert_residues_in_halves(self, x: Floats) -> Floats:
        """Return inverses of x from those of the products of its halves: 1/a = b · 1/(ab)."""
        # The recursion ends here: Python's integers invert a few elements one by one.
        if x.size <= 64:
            return self.constants([pow(int(a), -1, self.m) for a in x])
        half, odd = divmod(x.size, 2)
        a = x[:half]
        b = x[half : 2 * half]
        product = self._invert_residues_in_halves(self.multiply(a, b))
        parts = [self.multiply(product, b), self.multiply(product, a)]
        # An odd last element has no partner and is inverted alone.
        return np.concatenate([*parts, self._invert_residues_in_halves(x[-1:])] if odd else parts)

    def rational(self, x: Fraction) -> int:
        """Return a rational number mod m. Raises Refused if m divides its denominator."""
        # The extended Euclidean algorithm has no inverse of a multiple of m.
        if x.denominator % self.m == 0:
            raise Refused(f"modular: {x} has no residue mod {self.m}")
        return x.numerator * pow(x.denominator, -1, self.m) % self.m

    def constants(self, x: list[int]) -> Floats:
        """Return integers as residues."""
        residues = [a % self.m for a in x]
        return self.reduced(np.array(residues, dtype=np.float64))

    def canonical(self, x: Floats) -> np.ndarray:
        """Return the representatives in [0, m) of stored residues as integers, 0 for undefined elements."""
        # A sum is NaN iff a term is: most arrays have no such element, and need no copy.
        defined = np.nan_to_num(x) if np.isnan(np.sum(x)) else x
        integers = np.array(defined, dtype=np.int64)
        # All bits of a negative integer's sign are 1, so that m is added where it is negative, and 0 elsewhere.
        sign_bits = integers >> 63
        # A stored residue is larger than −m, so that one step suffices, without a division.
        integers += sign_bits & self.m
        return integers


class ResidueExponential:
    """s ↦ g^s, from residues mod q to residues mod p, by a table of g^i for i < 2¹¹ and one of g^(2¹¹ j)."""

    def __init__(self, values: Modulus, q: int, g: int) -> None:
        p = values.m
        self._values = values
        # The shift keeps table indices from being negative.
        self._least = q // 2 + 8  # s + _least ≥ 0 for every stored residue s
        step = pow(g, 1 << _LOW, p)
        self._low = values.reduced(_powers_modulo_prime(1, g, 1 << _LOW, p))
        start = pow(g, -self._least, p)
        self._high = values.reduced(
            _powers_modulo_prime(start, step, ((2 * self._least) >> _LOW) + 1, p)
        )

    def __call__(self, s: Floats) -> Floats:
        """Return g^s, NaN where s is."""
        out = np.empty(s.shape)
        for at in blocks(s.shape):
            if at:
                part, x = (out[at], s[at])
            else:
                part, x = (out, s)
            # A sum is NaN iff a term is: a cheaper test than one of all elements.
            holes = np.isnan(x) if np.isnan(x.sum()) else None
            # NaN has no integer, so a valid index takes its place until the end.
            i = (x + self._least if holes is None else np.where(holes, 0, x + self._least)).astype(
                np.int64
            )
            # The low and the high bits of s index two small tables: g^s = g^low · g^high.
            low_bits = i & ((1 << _LOW) - 1)
            np.multiply(self._low.take(low_bits), self._high.take(i >> _LOW), out=part)
            self._values._reduce_block_modulo(part)
            if holes is not None:
                part[holes] = np.nan
        return out


def _powers_modulo_prime(start: int, step: int, count: int, p: int) -> Floats:
    """start · step^i mod p for i < count, where p² < 2⁶³."""
    values = np.array([start % p], dtype=np.int64)
    # Each round doubles the number of powers; products of two residues fit into int64.
    while len(values) < count:
        power = pow(step, len(values), p)
        values = np.concatenate([values, values * power % p])
    return values[:count].astype(np.float64)

"""Products of arrays: matmul in all its forms, and einsum from multiply and sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.base import Array
from symattn.arrays.planes import Planes
from symattn.errors import InputError


class Linear:
    """``matmul``, ``einsum`` and their relatives."""

    kind: type[Planes]

    def matmul(self, a: Any, b: Any) -> Any:
        """a @ b, also of vectors and stacks of matrices."""
        if not (isinstance(a, Array) or isinstance(b, Array)):
            return np.matmul(a, b)
        x, y = self.kind.of(a), self.kind.of(b)
        left, right = x.ndim == 1, y.ndim == 1
        x, y = x[None, :] if left else x, y[:, None] if right else y
        if x.plain_shape[-1] != y.plain_shape[-2]:
            raise InputError(f"matmul of shapes {np.shape(a)} and {np.shape(b)}: the inner sizes differ")
        product = self.kind._matmul(x, y)
        return (
            product[..., 0, 0]
            if left and right
            else product[..., 0, :]
            if left
            else product[..., 0]
            if right
            else product
        )

    dot = matmul

    def vecdot(self, a: Any, b: Any, axis: int = -1) -> Any:
        return self.kind.offer("sum")(a * b, axis=axis)

    def outer(self, a: Any, b: Any) -> Any:
        return a[:, None] * b[None, :]

    def einsum(self, spec: str, *operands: Any, **_: Any) -> Any:
        """The sum of products that ``spec`` names; every operand is spread over all indices, multiplied and summed."""
        if not any(isinstance(x, Array) for x in operands):
            return np.einsum(spec, *operands)
        arrays = [self.kind.of(x) for x in operands]
        terms, out = _einsum_terms(spec, [x.ndim for x in arrays])
        letters = out + "".join(sorted(set("".join(terms)) - set(out)))
        product = None
        for term, x in zip(terms, arrays, strict=True):
            spread = self._spread(x, term, letters)
            product = spread if product is None else product * spread
        return self.kind.offer("sum")(product, axis=tuple(range(len(out), len(letters))))

    def _spread(self, x: Any, term: str, letters: str) -> Any:
        """``x`` with axes in the order of ``letters``, length one for those it lacks; a letter twice is a diagonal."""
        xp = self.kind.xp
        for letter in sorted({c for c in term if term.count(c) > 1}):
            i = term.index(letter)
            j = term.index(letter, i + 1)
            x, term = xp.diagonal(x, 0, i, j), term[:i] + term[i + 1 : j] + term[j + 1 :] + letter
        x = xp.permute_dims(x, tuple(sorted(range(len(term)), key=lambda k: letters.index(term[k]))))
        return x[tuple(slice(None) if c in term else None for c in letters)]


def _einsum_terms(spec: str, ranks: list[int]) -> tuple[list[str], str]:
    """The index letters of the operands and of the result, ellipses filled in with capital letters from Z down."""
    inputs, arrow, out = spec.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise InputError(f"einsum {spec!r} names {len(terms)} operands, {len(ranks)} were given")
    dots = max((n - len(t.replace("...", "")) for t, n in zip(terms, ranks, strict=True) if "..." in t), default=0)
    names = "ZYXWVUTS"[:dots]
    terms = [
        t.replace("...", names[dots - (n - len(t.replace("...", ""))) :]) for t, n in zip(terms, ranks, strict=True)
    ]
    joined = "".join(terms)
    if not arrow:
        out = names + "".join(sorted(c for c in set(joined) - set(names) if joined.count(c) == 1))
    if any(len(t) != n for t, n in zip(terms, ranks, strict=True)):
        raise InputError(f"einsum {spec!r} does not fit operands with {ranks} axes")
    return terms, out.replace("...", names)

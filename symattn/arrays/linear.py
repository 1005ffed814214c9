"""Products of arrays: matmul in all its forms, and einsum from multiply and sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.calls import offer_all
from symattn.arrays.planes import Planes
from symattn.document.errors import InputError, Refused


class Linear:
    """``matmul``, ``einsum`` and their relatives."""

    kind: type[Planes]

    def matmul(self, a: Any, b: Any) -> Planes:
        """a @ b, also of vectors and stacks of matrices."""
        x, y = self.kind.of(a), self.kind.of(b)
        if not (x.ndim and y.ndim):
            raise InputError("matmul of a number; hint: multiply with *")
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

    def dot(self, a: Any, b: Any) -> Any:
        """a b for numbers, else the sum over the last axis of a and the first of b, which has one axis or two."""
        if not (np.ndim(a) and np.ndim(b)):
            return self.kind.offer("multiply")(a, b)
        if np.ndim(b) > 2:
            raise Refused(f"{self.kind.name}: dot with {np.ndim(b)} axes on the right; use matmul or einsum")
        return self.matmul(a, b)

    def vecdot(self, a: Any, b: Any, axis: int = -1) -> Any:
        return self.kind.offer("sum")(self.kind.offer("multiply")(a, b), axis=axis)

    def outer(self, a: Any, b: Any) -> Any:
        """a_i b_j of all elements of a and all of b."""
        return self.kind.of(a).reshape(-1, 1) * self.kind.of(b).reshape(1, -1)

    def einsum(self, spec: str, *operands: Any) -> Any:
        """The sum of products that ``spec`` names; every operand is spread over all indices, multiplied and summed."""
        arrays = [self.kind.of(x) for x in operands]
        terms, out = _einsum_terms(spec, [x.ndim for x in arrays])
        letters = out + "".join(sorted(set("".join(terms)) - set(out)))
        product = None
        for term, x in zip(terms, arrays, strict=True):
            spread = self._spread(x, term, letters)
            product = spread if product is None else product * spread
        summed = tuple(range(len(out), len(letters)))
        return self.kind.offer("sum")(product, axis=summed) if summed else product

    def _spread(self, x: Any, term: str, letters: str) -> Any:
        """``x`` with axes in the order of ``letters``, length one for those it lacks; a letter twice is a diagonal."""
        xp = self.kind.xp
        for letter in sorted({c for c in term if term.count(c) > 1}):
            i = term.index(letter)
            j = term.index(letter, i + 1)
            x, term = xp.diagonal(x, 0, i, j), term[:i] + term[i + 1 : j] + term[j + 1 :] + letter
        x = xp.permute_dims(x, tuple(sorted(range(len(term)), key=lambda k: letters.index(term[k]))))
        return x[tuple(slice(None) if c in term else None for c in letters)]


offer_all(Linear)


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

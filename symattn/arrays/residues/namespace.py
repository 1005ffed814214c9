"""The namespace of ``modular``: elements are moved on planes that may not be there yet, and einsum goes by matrices."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.base import ArrayBase, offered
from symattn.arrays.namespace import Namespace
from symattn.arrays.planes import Typed
from symattn.arrays.reductions import _einsum_terms
from symattn.arrays.residues.state import chosen, moved
from symattn.document.errors import Refused

if TYPE_CHECKING:
    from symattn.arrays.modular import Modular


class ModularNamespace(Namespace):
    """The namespace, with the functions that move elements done on planes that may not be there, or not yet."""

    kind: type[Modular]

    def _where(self, condition: object, a: object, b: object) -> Array:
        if isinstance(condition, ArrayBase):
            raise Refused("modular: where needs a boolean condition")
        x, y = self.kind.written(a).state, self.kind.written(b).state
        return self.kind.holding(chosen(np.array(condition, dtype=bool), x, y))

    where = offered("where", _where)

    def _einsum(self, spec: str, *operands: object) -> Any:
        """Contract two operands by a product of matrices where the spec names one."""
        if len(operands) == 2:
            x, y = map(self.kind.of, operands)
            (a, b), out = _einsum_terms(spec, [x.ndim, y.ndim])
            names = [set(a), set(b), set(out)]
            plain = len(names[0]) == len(a) and len(names[1]) == len(b) and (names[0] ^ names[1]) <= names[2]
            if plain and names[0] & names[1] - names[2]:
                return self._contracted(x, a, y, b, out)
        return Namespace.einsum(self, spec, *operands)

    einsum = offered("einsum", _einsum)

    def _contracted(self, x: Modular, a: str, y: Modular, b: str, out: str) -> Any:
        """Σ over the letters that only x and y have, as a stack of products of matrices."""
        batch = [c for c in a if c in b and c in out]
        inner = [c for c in a if c in b and c not in out]
        left, right = [c for c in a if c not in b], [c for c in b if c not in a]
        p = self._grouped(x, a, batch, left, inner)
        product = self.matmul(p, self._grouped(y, b, batch, inner, right))
        sizes = dict(zip(a + b, (*x.plain_shape, *y.plain_shape), strict=True))
        shape = (*product.plain_shape[:-2], *(sizes[c] for c in (*left, *right)))
        letters = [*batch, *left, *right]
        return product.reshape(shape).transpose([letters.index(c) for c in out])

    def _grouped(self, x: Modular, names: str, batch: list[str], rows: list[str], columns: list[str]) -> Any:
        """``x`` as a stack of matrices with these axes, each kind of axes in one."""
        sorted_ = x.transpose([names.index(c) for c in (*batch, *rows, *columns)])
        shape, k, n = sorted_.plain_shape, len(batch), len(rows)
        return sorted_.reshape((*shape[:k], prod(shape[k : k + n]), prod(shape[k + n :])))

    def _moved(self, move: Callable[[Callable[[Any], Any]], object], values: list[Any]) -> Any:
        def run(*planes: object) -> Any:
            rest = iter(planes)
            return move(lambda _: next(rest))

        return self._on_planes(run, values)

    def _on_planes(self, move: Callable[..., Any], given: list[Modular]) -> Any:
        dummy = move(*[a._dummy for a in given])
        if isinstance(dummy, (list, tuple)):
            parts = [self._on_planes(lambda *planes, i=i: move(*planes)[i], given) for i in range(len(dummy))]
            return type(dummy)(parts)
        if len(given) == 1:
            return given[0].map(move)
        result = self.kind.holding(moved(move, dummy.shape, [a.state for a in given]))
        if all(a.origin is not None for a in given):
            result.typed = Typed(move(*[a.origin for a in given]))
        return result

"""A call of attention as the one definition says it: a specification and inputs, for some queries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.attention.spec import Attention

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CallSetting:
    """Queries q (b, h, r, d_k), keys k (b, g, n, d_k), values v (b, g, n, d_v), and how they meet.

    ``allowed`` (b or 1, h or 1, r, n) says which keys a query may see (None: all), ``bias`` of a shape like it is added
    to the scores, the sum of so many ``biases``, ``sink`` (h,) are logits that take weight and give nothing. The scale
    is a number.
    """

    q: Floats
    k: Floats
    v: Floats
    scale: float
    softcap: float | None = None
    sink: Floats | None = None
    allowed: Mask | None = None
    bias: Floats | None = None
    biases: int = 1

    @property
    def heads(self) -> int:
        """h, of queries."""
        return int(self.q.shape[1])

    @property
    def key_heads(self) -> int:
        """g, of keys and values."""
        return int(self.k.shape[1])

    def spec(self) -> Attention:
        """The specification of these inputs."""
        return Attention(
            heads=self.heads,
            kv_heads=self.key_heads if self.key_heads != self.heads else None,
            scale=self.scale,
            softcap=self.softcap,
            sink=None if self.sink is None else "given",
            mask=None if self.allowed is None else "boolean",
            bias=self.bias is not None,
        )

    def inputs(self) -> dict[str, Any]:
        """The inputs of ``spec``, by name."""
        arrays: dict[str, Any] = {"q": self.q, "k": self.k, "v": self.v}
        if self.allowed is not None:
            arrays["mask"] = self.whole(self.allowed)
        if self.bias is not None:
            arrays["bias"] = self.whole(self.bias)
        if self.sink is not None:
            arrays["sink"] = self.sink
        return arrays

    def whole(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array for each score, (b, h, r, n)."""
        return np.ascontiguousarray(np.broadcast_to(array, (*self.q.shape[:3], self.k.shape[2])))

    def empty(self) -> Mask:
        """Which queries may see no key at all, and have no sink, so that nothing says what they give, (b, h, r)."""
        if self.allowed is None or self.sink is not None:
            return np.zeros(self.q.shape[:3], dtype=bool)
        return ~np.broadcast_to(self.allowed.any(axis=-1), self.q.shape[:3])

    def alike(self, other: CallSetting) -> bool:
        """Return whether both say the same of the same queries; rows without any key here are of no account."""
        numbers = _close(self.scale, other.scale) and _close(self.softcap, other.softcap)
        return (
            numbers
            and self.key_heads == other.key_heads
            and _same(self.sink, other.sink)
            and _same(self.bias, other.bias)
            and not self.differing(other).any()
            and np.array_equal(self.k, other.k)
            and np.array_equal(self.v, other.v)
        )

    def differing(self, other: CallSetting) -> Mask:
        """Scores that one of both masks forbids and the other does not, (b, h, r, n), in rows that have a key here."""
        mine, theirs = (self.whole(np.ones((), bool) if s.allowed is None else s.allowed) for s in (self, other))
        return np.asarray((mine != theirs) & ~self.empty()[..., None])

    def with_mask(self, allowed: Mask | None) -> CallSetting:
        """Return this setting under another mask."""
        return replace(self, allowed=allowed)


def _close(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def _same(a: Floats | None, b: Floats | None) -> bool:
    if a is None or b is None:
        return a is b
    return bool((np.asarray(a) == np.asarray(b)).all())

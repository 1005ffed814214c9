"""A call of attention as the one definition says it: a specification and inputs, for some queries."""

from __future__ import annotations

from collections.abc import Sequence
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


# -- from tensors to numbers -------------------------------------------------------------------------------------------
# From tensors to numbers: queries, keys, values, and masks in the forms in which code has them.

#: What is added to a score and is no more than this forbids it: e^(−10⁴) is 0 in every format.
FORBIDS = -1e4


def numbers(tensor: Any) -> Floats:
    """A copy as float64, of the same values."""
    import torch

    values: Floats = tensor.detach().to("cpu", torch.float64, copy=True).numpy()
    return values


def dtype_of(tensor: Any) -> str:
    """``float32``, …"""
    return str(tensor.dtype).removeprefix("torch.")


def heads_apart(tensor: Any) -> Any:
    """With axes (b, h, n, d): axes that are missing in front have length 1, more than four are joined."""
    if tensor.ndim > 4:
        return tensor.reshape(-1, *tensor.shape[-3:])
    return tensor[(None,) * (4 - tensor.ndim)]


def rows_of(tensor: Any, rows: Sequence[int], keys: int) -> Any:
    """The rows of a mask or bias for these queries, and its first ``keys`` columns, (b or 1, h or 1, r, n)."""
    whole = heads_apart(tensor)
    if whole.shape[-2] > 1:
        whole = whole[..., list(rows), :]
    return whole[..., :keys]


def mask_of(tensor: Any, rows: Sequence[int], keys: int) -> tuple[Mask | None, Floats | None]:
    """A mask as what is allowed, and the finite rest of one that is added, either None where it says nothing.

    It is an array, or a function that gives its rows.

    ``True`` may attend. Of numbers, those that are at most −10⁴ forbid (``finfo.min`` among them); others are a bias.
    """
    array = tensor(rows) if callable(tensor) else rows_of(tensor, rows, keys)
    allowed = _open(array)
    bias = None if dtype_of(array) == "bool" else np.where(allowed, numbers(array), 0.0)
    return (None if allowed.all() else allowed), (bias if bias is not None and bias.any() else None)


def allowed_of(tensor: Any, rows: Sequence[int], keys: int) -> Mask:
    """Return the first half of ``mask_of``, without the bias."""
    return _open(tensor(rows) if callable(tensor) else rows_of(tensor, rows, keys))


def _open(array: Any) -> Mask:
    allowed: Mask = (array if dtype_of(array) == "bool" else ~(array <= FORBIDS)).detach().cpu().numpy().copy()
    return allowed


def joined(*masks: Mask | None) -> Mask | None:
    """Return the intersection of all masks."""
    given = [m for m in masks if m is not None]
    if not given:
        return None
    return np.logical_and.reduce(np.broadcast_arrays(*given)) if len(given) > 1 else given[0]


def summed(*biases: Floats | None) -> Floats | None:
    """The sum of those that there are."""
    given = [b for b in biases if b is not None]
    return sum(given[1:], given[0]) if given else None

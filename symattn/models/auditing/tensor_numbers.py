"""From tensors to numbers: queries, keys, values, and masks in the forms in which code has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from symattn.models.auditing.setting import Floats, Mask

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

"""Grouped-query attention: several query heads read one head of keys and values."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of


def repeat_heads(x: Any, times: Any) -> Any:
    """Each head ``times`` times in a row, so that query head h reads the head ⌊h / times⌋.

    Shapes: (…, g, n, d) → (…, g·times, n, d). Source: Ainslie et al., GQA (2023), §2.2.
    """
    xp = namespace_of(x)
    *batch, g, n, d = x.shape
    spread = xp.broadcast_to(x[..., :, None, :, :], (*batch, g, times, n, d))
    return xp.reshape(spread, (*batch, g * times, n, d))

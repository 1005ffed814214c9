"""Masks: which keys a query may attend to. A boolean mask says True where it may."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of


def causal(s: Any, alignment: str = "bottom-right") -> Any:
    """The causal mask of scores S: key j for query i iff j ≤ i + o.

    ``bottom-right``: o = n_k − n_q, the last query sees every key (a cache of n_k − n_q keys);
    ``top-left``: o = 0, the first query sees the first key alone (torch's ``is_causal``).
    Shapes: s (…, n_q, n_k) → booleans (n_q, n_k).
    """
    xp = namespace_of(s)
    n_q, n_k = s.shape[-2], s.shape[-1]
    i, j = xp.arange(n_q)[:, None], xp.arange(n_k)[None, :]
    return j <= (i if alignment == "top-left" else i + (n_k - n_q))


def window(s: Any, width: Any) -> Any:
    """The sliding window of w keys: key j for query i iff i + o − w < j ≤ i + o, o = n_k − n_q; it counts i itself.

    Shapes: s (…, n_q, n_k) → booleans (n_q, n_k). Source: Jiang et al., Mistral 7B (2023).
    """
    xp = namespace_of(s)
    n_q, n_k = s.shape[-2], s.shape[-1]
    i, j = xp.arange(n_q)[:, None], xp.arange(n_k)[None, :]
    return (j <= i + (n_k - n_q)) & (i + (n_k - n_q - width) < j)


def padding(keep: Any) -> Any:
    """Keys that are padding are seen by no query: booleans (…, n_k), True for real keys → (…, 1, n_k)."""
    return keep[..., None, :]


def for_heads(mask: Any, s: Any) -> Any:
    """A mask (…, n_q, n_k) for scores (…, h, n_q, n_k): the same for every head, unless it has an axis of heads."""
    return mask[..., None, :, :] if 2 < mask.ndim < s.ndim else mask


def forbid(s: Any, allowed: Any) -> Any:
    """s_ij where ``allowed``, else −∞, which softmax turns into weight 0."""
    xp = namespace_of(s)
    return xp.where(allowed, s, -xp.inf)


def add_mask(s: Any, mask: Any) -> Any:
    """S + M for an additive mask M, whose −∞ forbid."""
    xp = namespace_of(s)
    return s + xp.astype(mask, s.dtype)

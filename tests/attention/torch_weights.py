"""Masks and weights of attention in plain torch."""

from __future__ import annotations

import math
from typing import Any

from symattn.attention.spec import Attention

INF = float("inf")


def of_heads(m: Any, s: Any) -> Any:
    """A mask for each batch, for all heads."""
    return m[..., None, :, :] if 2 < m.ndim < s.ndim else m


def mask(spec: Attention, s: Any, given: dict[str, Any]) -> Any:
    import torch

    n_q, n_k = s.shape[-2:]
    late = 0 if spec.alignment == "top-left" else n_k - n_q
    i, j = torch.arange(n_q)[:, None] + late, torch.arange(n_k)[None, :]
    allowed = torch.ones(n_q, n_k, dtype=torch.bool)
    if spec.documents:
        a, b = given["doc_q"], given["doc_k"]
        allowed = a[:, None] == b[None, :]
        own_q = torch.stack([(a[:t] == a[t]).sum() for t in range(n_q)])
        own_k = torch.stack([(b[:t] == b[t]).sum() for t in range(n_k)])
        more = allowed.sum(1) - (a[:, None] == a[None, :]).sum(1) if spec.alignment == "bottom-right" else 0
        i, j = (own_q + more)[:, None], own_k[None, :]
    if spec.causal:
        allowed = allowed & ((j <= i) | (j < (spec.prefix or 0)))
    left, right = spec.sides
    allowed = allowed if left is None else allowed & (j >= i - left)
    allowed = allowed if right is None else allowed & (j <= i + right)
    if spec.block:
        allowed = allowed & (i // spec.block == j // spec.block)
    if spec.padding:
        allowed = allowed & of_heads(given["keep"][..., None, :], s)
    return allowed & of_heads(given["mask"], s) if spec.mask == "boolean" else allowed


def weights(spec: Attention, s: Any, allowed: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """The weights, 0 in rows without a key, and the logarithm of what rows are divided by."""
    import torch

    if spec.normaliser == "sigmoid":
        return (s if spec.bias else s - math.log(s.shape[-1])).sigmoid(), None
    if spec.normaliser == "relu":
        return s.relu() / s.shape[-1], None
    if spec.normaliser in ("sparsemax", "entmax"):
        return sparse(s, spec.normaliser), None
    log2 = math.log(2) if spec.base else 1.0
    keys = s * log2
    if spec.sink:
        sink = given["sink"].reshape(-1, *(1, 1) * (spec.heads > 1)) if spec.sink == "given" else torch.zeros(1)
        keys = torch.cat([keys, (sink.to(s) * log2).expand(*s.shape[:-1], 1)], -1)
    some = allowed.any(-1, keepdim=True) if not spec.sink else torch.ones(1, dtype=torch.bool)
    inside = keys.masked_fill(~some, 0)
    p = inside.softmax(-1)[..., : s.shape[-1]].masked_fill(~(allowed & some), 0)
    lse = inside.logsumexp(-1).masked_fill(~some.expand(*s.shape[:-1], 1)[..., 0], -INF) / log2
    return p, lse


def sparse(s: Any, how: str) -> Any:
    """The weights by the number of keys that have one, found by sorting."""
    import torch

    if how == "entmax":
        s = s / 2
    s = s - s.max(-1, keepdim=True).values.detach()
    z = s.sort(-1, descending=True).values
    place = torch.arange(1, s.shape[-1] + 1, dtype=s.dtype)
    if how == "sparsemax":
        number = (1 + place * z > z.cumsum(-1)).sum(-1, keepdim=True)
        tau = (z.cumsum(-1).gather(-1, number - 1) - 1) / number
        return (s - tau).relu()
    mean = z.cumsum(-1) / place
    spread = (z * z).cumsum(-1) / place - mean * mean
    tau = mean - ((1 - place * spread) / place).clamp(min=0).sqrt()
    number = (tau <= z).sum(-1, keepdim=True)
    return (s - tau.gather(-1, number - 1)).relu() ** 2

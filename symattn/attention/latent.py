"""Multi-head latent attention: keys and values are read from a latent, so the cache holds the latent alone.

C = X W_DKV; the keys are [C W_UK, R(X W_KR)], a part for each head and a part with positions that all heads share;
the values are C W_UV; the queries are split alike. Source: DeepSeek-AI, DeepSeek-V2 (2024), §2.1 and
equations 9 to 19.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.fields import Described, check
from symattn.attention.projections import split_heads
from symattn.attention.sizes import broadcast, fits
from symattn.document.errors import InputError


@dataclass(frozen=True, kw_only=True, repr=False)
class Latent(Described):
    """Keys and values from a latent: the field ``latent`` of ``Attention``.

    absorbed      whether W_UK goes into the queries and W_UV into the outputs, so that keys and values are never made
    queries       whether the queries come from a latent of their own, C_Q = X W_DQ, as Q = C_Q W_UQ
    norm          ``rms``: the latents are normalised, with gains g_ckv and g_cq where they are given
    eps           the ε of the normalisation

    >>> from symattn import Attention
    >>> Attention(heads=2, latent=Latent(absorbed=True))
    Attention(heads=2, latent=Latent(absorbed=True))
    """

    absorbed: bool = False
    queries: bool = False
    norm: Literal["rms"] | None = None
    eps: int | float | Fraction = 0

    def __post_init__(self) -> None:
        check(self)
        if self.eps and not self.norm:
            raise InputError("Latent: eps belongs to a norm; hint: norm='rms'")


def join(own: Any, shared: Any) -> Array:
    """Concatenate [own, shared], broadcast to the batches and heads of both.

    Shapes: own (…, h, n, d_n), shared (…, 1, n, d_r) → (…, h, n, d_n + d_r); or both without heads.
    """
    xp = namespace_of(own)
    front = broadcast(own.shape[:-1], shared.shape[:-1])
    assert front is not None
    # Broadcast only where needed: the usual shapes fit already.
    wide = [
        x if fits(front, x.shape[:-1]) else xp.broadcast_to(x, (*front, x.shape[-1]))
        for x in (own, shared)
    ]
    return xp.concat(wide, axis=-1)


def absorb(q: Array, w_uk: Array, heads: int) -> Array:
    """Q W_UKᵀ, head by head: q·(C W_UK) = (q W_UKᵀ)·C. Shapes: q (…, h, n, d_n), w_uk (l, h·d_n) → (…, h, n, l).

    Source: DeepSeek-AI, DeepSeek-V2 (2024), §2.1.2.
    """
    return q @ (split_heads(w_uk, heads) if heads > 1 else w_uk).mT


def expand(o: Array, w_uv: Array, heads: int) -> Array:
    """O W_UV, head by head, for weighted latents O. Shapes: o (…, h, n, l), w_uv (l, h·d_v) → (…, h, n, d_v)."""
    return o @ (split_heads(w_uv, heads) if heads > 1 else w_uv)

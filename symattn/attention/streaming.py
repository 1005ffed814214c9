"""Attention over keys that come in tiles: states that merge, in any bracketing, to the whole.

Tile bounds are an argument, so that the definitions run where sizes are letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

from symattn.arrays.namespace import namespace_of
from symattn.attention.softmax import row_max


class State(NamedTuple):
    """(m, ℓ, a) of a set of keys: a maximum m_i, ℓ_i = Σ_j e^{s_ij − m_i}, a_i = Σ_j e^{s_ij − m_i} v_j.

    Any finite m gives the same output; the maximum keeps the exponentials from overflowing.
    """

    maximum: Any
    normaliser: Any
    accumulated: Any


def tile_state(s: Any, v: Any, maximum: Any = None) -> State:
    """The state of one tile. Shapes: s (…, n_q, t), v (…, t, d_v); ``maximum`` (…, n_q, 1) replaces the row maximum.

    Source: Milakov, Gimelshein, Online normalizer calculation for softmax (2018), algorithm 3.
    """
    xp = namespace_of(s)
    m = row_max(s) if maximum is None else maximum
    e = xp.exp(s - m)
    return State(m, xp.sum(e, axis=-1, keepdims=True), e @ v)


def merge(a: State, b: State, maximum: Any = None) -> State:
    """The state of both sets of keys: m = max(m_a, m_b), ℓ = ℓ_a e^{m_a − m} + ℓ_b e^{m_b − m}, likewise a.

    ``maximum`` (…, n_q, 1) replaces m. Source: Dao et al., FlashAttention (2022), algorithm 1; Rabe, Staats (2021).
    """
    xp = namespace_of(a.normaliser)
    m = xp.maximum(a.maximum, b.maximum) if maximum is None else maximum
    x, y = xp.exp(a.maximum - m), xp.exp(b.maximum - m)
    return State(m, a.normaliser * x + b.normaliser * y, a.accumulated * x + b.accumulated * y)


def finish(state: State) -> Any:
    """o_i = a_i / ℓ_i."""
    return state.accumulated / state.normaliser


def online(s: Any, v: Any, bounds: Iterable[Any]) -> Any:
    """softmax(S) V by tiles of keys between consecutive ``bounds`` (0, …, n_k)."""
    tiles = [tile_state(s[..., lo:hi], v[..., lo:hi, :]) for lo, hi in pairwise(bounds)]
    return finish(reduce(merge, tiles))


class Partial(NamedTuple):
    """An output over some keys with the log-sum-exp of their scores, as split-K kernels keep it."""

    output: Any
    lse: Any


def partial_output(s: Any, v: Any) -> Partial:
    """(softmax(S) V, log Σ_j e^{s_ij}). Shapes: s (…, n_q, t), v (…, t, d_v)."""
    xp = namespace_of(s)
    state = tile_state(s, v)
    return Partial(finish(state), state.maximum + xp.log(state.normaliser))


def merge_partial(a: Partial, b: Partial) -> Partial:
    """o = o_a e^{L_a − L} + o_b e^{L_b − L} with L = log(e^{L_a} + e^{L_b}).

    Source: Liu et al., Ring Attention (2023); Dao, Flash-Decoding (2023).
    """
    xp = namespace_of(a.lse)
    m = xp.maximum(a.lse, b.lse)
    whole = m + xp.log(xp.exp(a.lse - m) + xp.exp(b.lse - m))
    return Partial(a.output * xp.exp(a.lse - whole) + b.output * xp.exp(b.lse - whole), whole)

"""Attention over keys in tiles: states that can be merged in any order to the state of all keys.

Tile bounds are an argument, so that the definitions run where sizes are letters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.softmax import logarithms, nonempty, powers
from symattn.document.errors import InputError


class SoftmaxState(NamedTuple):
    """(m, ℓ, a) of a set of keys: a maximum m_i, ℓ_i = Σ_j e^{s_ij − m_i}, a_i = Σ_j e^{s_ij − m_i} v_j.

    Any finite m gives the same output; the maximum keeps the exponentials from overflowing. A row in which every key is
    forbidden has (−∞, 0, 0): with a finite m, a later tile of scores far below it would underflow.
    """

    maximum: Any
    normaliser: Any
    accumulated: Any


def reference(m: Array) -> Array:
    """Return the shift subtracted before exponentiating: m, or 0 where m = −∞."""
    xp = namespace_of(m)
    # Where m = −∞, subtracting it would give −∞ + ∞, which is undefined.
    return xp.where(xp.isfinite(m), m, 0)


def tile_state(s: Array, v: Array, maximum: Array | None = None) -> SoftmaxState:
    """The state of one tile. Shapes: s (…, n_q, t), v (…, t, d_v); ``maximum`` (…, n_q, 1) replaces the row maximum.

    Source: Milakov, Gimelshein, Online normalizer calculation for softmax (2018), algorithm 3.
    """
    xp = namespace_of(s)
    m = xp.max(s, axis=-1, keepdims=True) if maximum is None else maximum
    e = xp.exp(s - reference(m))
    return SoftmaxState(m, xp.sum(e, axis=-1, keepdims=True), e @ v)


def merge(
    a: SoftmaxState, b: SoftmaxState, maximum: Array | None = None, base: int | None = None
) -> SoftmaxState:
    """Return the state of both sets of keys: m = max(m_a, m_b), ℓ = ℓ_a e^{m_a − m} + ℓ_b e^{m_b − m}, likewise a.

    ``maximum`` (…, n_q, 1) replaces m; with the ``base`` 2, powers of 2 replace those of e.
    Source: Dao et al., FlashAttention (2022), algorithm 1; Rabe, Staats (2021).
    """
    xp = namespace_of(a.maximum)
    m = xp.maximum(a.maximum, b.maximum) if maximum is None else maximum
    r = reference(m)
    w_1, w_2 = powers(a.maximum - r, base), powers(b.maximum - r, base)
    return SoftmaxState(
        m, a.normaliser * w_1 + b.normaliser * w_2, a.accumulated * w_1 + b.accumulated * w_2
    )


def finish(state: SoftmaxState, fully_masked: str = "nan") -> Any:
    """o_i = a_i / ℓ_i. A row in which every key is forbidden gives 0/0 (``nan``), zeros, or raises (``error``)."""
    return state.accumulated / nonempty(state.normaliser, fully_masked)


def lse(state: SoftmaxState, base: int | None = None) -> Any:
    """L_i = log Σ_j e^{s_ij} = m_i + log ℓ_i, m the maximum; −∞ for a row in which every key is forbidden."""
    # Where ℓ = 0 the maximum is −∞, and log 1 = 0 leaves it.
    return state.maximum + logarithms(nonempty(state.normaliser, "zeros"), base)


def online(s: Array, v: Array, bounds: Iterable[object], fully_masked: str = "nan") -> Any:
    """softmax(S) V by tiles of keys between consecutive ``bounds`` (0, …, n_k)."""
    # One state at a time, since each is as large as the output.
    tiles = (tile_state(s[..., lo:hi], v[..., lo:hi, :]) for lo, hi in pairwise(bounds))
    return finish(reduce(merge, tiles), fully_masked)


class PartialOutput(NamedTuple):
    """An output over some keys with the log-sum-exp of their scores, as split-K kernels store it.

    A row in which every key is forbidden has the output 0 and L = −∞.
    """

    output: Array
    lse: Array


def partial(state: SoftmaxState, base: int | None = None) -> PartialOutput:
    """(a/ℓ, m + log ℓ) of a state."""
    return PartialOutput(finish(state, "zeros"), lse(state, base))


def partial_output(s: Array, v: Array) -> PartialOutput:
    """(softmax(S) V, log Σ_j e^{s_ij}). Shapes: s (…, n_q, t), v (…, t, d_v)."""
    return partial(tile_state(s, v))


def merge_partial(a: PartialOutput, b: PartialOutput, base: int | None = None) -> PartialOutput:
    """o = o_a e^{L_a − L} + o_b e^{L_b − L} with L = log(e^{L_a} + e^{L_b}), as (L, 1, o) is a state of the same keys.

    With the ``base`` 2, L is in powers and logarithms of 2.
    Source: Liu et al., Ring Attention (2023); Dao, Flash-Decoding (2023).
    """
    return partial(
        merge(SoftmaxState(a.lse, 1, a.output), SoftmaxState(b.lse, 1, b.output), base=base), base
    )


# -- orders in which partial results over keys are merged: split keys, trees -------------------------------------------
# States are merged by ``merge``, partial outputs by ``merge_partial``.


Part = TypeVar("Part", SoftmaxState, PartialOutput)


def tree(parts: Sequence[Part], join: Callable[[Part, Part], Part]) -> Part:
    """Merge neighbours, then the results, until one is left: ((1 2)(3 4))((5 6) 7).

    Raises InputError if there are no parts. Source: the reduction of Flash-Decoding (Dao et al., 2023), as a binary
    tree.
    """
    if not parts:
        raise InputError("nothing to merge: there are no tiles of keys")
    level = list(parts)
    while len(level) > 1:
        # A part without a neighbour moves up as it is.
        odd = level[len(level) // 2 * 2 :]
        level = [join(a, b) for a, b in zip(level[::2], level[1::2], strict=False)] + odd
    return level[0]


def split_keys(s: Array, v: Array, bounds: Iterable[object]) -> PartialOutput:
    """softmax(S) V and its log-sum-exp by splits of the keys between consecutive ``bounds`` (0, …, n_k).

    Each split gives its own output and log-sum-exp, independent of the others; ``join_splits`` combines them.
    Shapes: s (…, n_q, n_k), v (…, n_k, d_v). Source: Dao et al., Flash-Decoding for long-context inference (2023).
    """
    return join_splits(
        [partial_output(s[..., lo:hi], v[..., lo:hi, :]) for lo, hi in pairwise(bounds)]
    )


def join_splits(parts: Sequence[PartialOutput]) -> PartialOutput:
    """o = Σ_b e^{L_b − L} o_b with L = log Σ_b e^{L_b}: attention over the splits, with scores L_b and values o_b.

    Shapes: of each part, output (…, n_q, d_v) and lse (…, n_q, 1). Source: Dao et al., Flash-Decoding (2023).
    """
    xp = namespace_of(parts[0].lse)
    scores = xp.stack([p.lse for p in parts], axis=-1)
    values = xp.stack([p.output for p in parts], axis=-2)
    # Splits are keys whose scores are their log-sums: one more attention joins them.
    whole = partial_output(scores, values)
    return PartialOutput(whole.output[..., 0, :], whole.lse[..., 0])

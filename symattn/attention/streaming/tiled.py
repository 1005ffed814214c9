"""Attention by tiles of queries and keys, forward and backward, as FlashAttention computes it.

A tile of scores comes from a function ``at(rows, keys)`` of two slices, so that any scores can be used: ``Scores`` has
scaled dot products with a cap, a bias and masks; ``sliced`` takes scores that are there already. Tile bounds are an
argument, ``(0, 128, 256)``, so that the definitions run where sizes are letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.gradients.attention import Gradients
from symattn.attention.gradients.scores import softcap_gradient
from symattn.attention.masks import Places, add_mask, forbid
from symattn.attention.scores import dot_scores, scale_by, scale_by_root, softcap
from symattn.attention.softmax import nonempty
from symattn.attention.streaming.states import SoftmaxState, finish, lse, merge, reference, tile_state

Tile = Callable[[slice, slice], Any]
Skip = Callable[[slice, slice], bool]


class Forward(NamedTuple):
    """The results of the forward pass: O (…, n_q, d_v), and for each row the maximum m and ℓ = Σ_j e^{s_ij − m_i}."""

    output: Array
    maximum: Array
    normaliser: Array


def sliced(s: Array) -> Tile:
    """Tiles of scores that are there already. Shapes: s (…, n_q, n_k)."""
    return lambda rows, keys: s[..., rows, keys]


@dataclass(frozen=True)
class Scores:
    """Scores of a tile of queries and keys: q kᵀ c → cap → + bias → masks, and the way back.

    scale    c; None is 1/√d_k
    cap      tanh cap, or None
    bias     numbers to add, (…, n_q, n_k), such as an additive mask
    mask     booleans (…, n_q, n_k), True where a query may attend
    allowed  a mask by place, such as ``masks.causal``: a function of the places of queries and keys
    """

    scale: Any = None
    cap: Any = None
    bias: Array | None = None
    mask: Any = None
    allowed: Callable[[Places], Any] | None = None

    def tiles(self, q: Array, k: Array) -> Tile:
        """The function that gives the scores of a tile. Shapes: q (…, n_q, d_k), k (…, n_k, d_k)."""
        return lambda rows, keys: self._masked(self._capped(self._scaled(q, k, rows, keys)), q, k, rows, keys)

    def pull(self, q: Array, k: Array, rows: slice, keys: slice, ds: Array) -> tuple[Array, Array]:
        """Return a tile's share of dQ of its rows and dK of its keys: dS' K c and dS'ᵀ Q c, dS' before the cap."""
        if self.cap is not None:
            ds = softcap_gradient(self._capped(self._scaled(q, k, rows, keys)), self.cap, ds)
        ds = self._scale(ds, q)
        return ds @ k[..., keys, :], ds.mT @ q[..., rows, :]

    def _scaled(self, q: Array, k: Array, rows: slice, keys: slice) -> Array:
        return self._scale(dot_scores(q[..., rows, :], k[..., keys, :]), q)

    def _scale(self, s: Array, q: Array) -> Array:
        return scale_by_root(s, q) if self.scale is None else scale_by(s, self.scale)

    def _capped(self, s: Array) -> Array:
        return s if self.cap is None else softcap(s, self.cap)

    def _masked(self, s: Array, q: Array, k: Array, rows: slice, keys: slice) -> Array:
        if self.bias is not None:
            s = add_mask(s, self.bias[..., rows, keys])
        if self.mask is not None:
            s = forbid(s, self.mask[..., rows, keys])
        if self.allowed is not None:
            i, j = places_of(q, k)
            s = forbid(s, self.allowed(Places(i[rows, :], j[:, keys])))
        return s


def places_of(q: Array, k: Array) -> Places:
    """The places of queries (n_q, 1) and keys (1, n_k) in one row of tokens, of which the queries are the last."""
    xp = namespace_of(q)
    n_q, n_k = q.shape[-2], k.shape[-2]
    return Places(xp.arange(n_q)[:, None] + (n_k - n_q), xp.arange(n_k)[None, :])


def above_diagonal(q: Array, k: Array) -> Skip:
    """Return whether every key of a tile comes after every query of it, so that a causal pass may leave it out.

    Source: Dao, FlashAttention-2 (2023), §3.1.
    """
    offset = k.shape[-2] - q.shape[-2]
    return lambda rows, keys: bool(rows.stop + offset <= keys.start)


def forward(
    at: Tile,
    v: Array,
    rows: Sequence[object],
    keys: Sequence[object],
    *,
    skip: Skip | None = None,
    sink: Array | None = None,
    fully_masked: str = "zeros",
) -> Forward:
    """softmax(S) V by tiles between consecutive bounds of ``rows`` (0, …, n_q) and ``keys`` (0, …, n_k).

    For each tile of queries the states of the tiles of keys are merged, one after the other. ``skip`` says which tiles
    need no look; a ``sink`` b (…, n_q, 1) is one more key without a value, of which the state is (b, 1, 0).
    Shapes: v (…, n_k, d_v) → (…, n_q, d_v).
    Source: Dao et al., FlashAttention (2022), algorithm 1; Dao, FlashAttention-2 (2023), algorithm 1.
    """
    states = [_row_state(at, v, r, cut(keys), skip, sink) for r in cut(rows)]
    outputs = [finish(state, fully_masked) for state in states]
    parts = (outputs, [s.maximum for s in states], [s.normaliser for s in states])
    return Forward(*[namespace_of(v).concat(part, axis=-2) for part in parts])


def cut(bounds: Sequence[object]) -> list[slice]:
    """The slices between consecutive bounds."""
    return [slice(lo, hi) for lo, hi in pairwise(bounds)]


def _row_state(
    at: Tile, v: Array, rows: slice, keys: list[slice], skip: Skip | None, sink: Array | None
) -> SoftmaxState:
    # Of a row that sees no key the first tile is looked at, in which all are forbidden.
    seen = [c for c in keys if skip is None or not skip(rows, c)] or keys[:1]
    states = [tile_state(at(rows, c), v[..., c, :]) for c in seen]
    if sink is not None:
        states.insert(0, SoftmaxState(sink[..., rows, :], 1, 0))
    return reduce(merge, states)


def with_lse(saved: Forward) -> Forward:
    """Replace m and ℓ by L = m + log ℓ: (L, 1). Shapes: as given.

    Source: Dao, FlashAttention-2 (2023), §3.1.1.
    """
    whole = lse(SoftmaxState(saved.maximum, saved.normaliser, saved.output))
    return Forward(saved.output, whole, namespace_of(whole).ones_like(saved.normaliser))


def tile_weights(s: Array, m: Array, normaliser: Array) -> Array:
    """P = e^{s − m} / ℓ of a tile, from what the forward pass kept of its rows; with (L, 1) it is e^{s − L}."""
    return namespace_of(s).exp(s - reference(m)) / nonempty(normaliser, "zeros")


def row_products(g: Array, output: Array) -> Array:
    """D_i = Σ_c dO_ic O_ic, which is Σ_j P_ij dP_ij without the keys. Shapes: (…, n_q, d_v) → (…, n_q, 1).

    Source: Dao et al., FlashAttention (2022), appendix B.2.
    """
    return namespace_of(g).sum(g * output, axis=-1, keepdims=True)


def tile_gradients(s: Array, v: Array, saved: Forward, g: Array) -> tuple[Array, Array]:
    """(dS, dV) of a tile: P ⊙ (dO Vᵀ − D) and Pᵀ dO, of the tile's rows in ``saved`` and ``g``."""
    p = tile_weights(s, saved.maximum, saved.normaliser)
    return p * (g @ v.mT - row_products(g, saved.output)), p.mT @ g


def backward(
    scores: Scores,
    q: Array,
    k: Array,
    v: Array,
    saved: Forward,
    g: Array,
    rows: Sequence[object],
    keys: Sequence[object],
    *,
    skip: Skip | None = None,
) -> Gradients:
    """dQ, dK, dV for dO = ``g`` by tiles: the weights are computed again from what the forward pass kept.

    dV[keys] = Σ_rows Pᵀ dO, dS = P ⊙ (dO Vᵀ − D), dQ[rows] = Σ_keys dS K c, dK[keys] = Σ_rows dSᵀ Q c.
    Shapes: those of q, k, v; g (…, n_q, d_v). Source: Dao et al., FlashAttention (2022), algorithm 4; Dao,
    FlashAttention-2 (2023), algorithm 2.
    """
    at, zero = scores.tiles(q, k), Gradients(*map(namespace_of(q).zeros_like, (q, k, v)))
    queries: list[Any] = [zero.q[..., r, :] for r in cut(rows)]
    others = [(zero.k[..., c, :], zero.v[..., c, :]) for c in cut(keys)]
    for n, r in enumerate(cut(rows)):
        there, dr = _rows(saved, r), g[..., r, :]
        for m, c in enumerate(cut(keys)):
            if skip is not None and skip(r, c):
                continue
            ds, dv = tile_gradients(at(r, c), v[..., c, :], there, dr)
            dq, dk = scores.pull(q, k, r, c, ds)
            queries[n] = queries[n] + dq
            others[m] = (others[m][0] + dk, others[m][1] + dv)
    parts = (queries, [dk for dk, _ in others], [dv for _, dv in others])
    return Gradients(*[namespace_of(q).concat(part, axis=-2) for part in parts])


def score_and_value_gradients(
    at: Tile, v: Array, saved: Forward, g: Array, rows: Sequence[object], keys: Sequence[object]
) -> tuple[Array, Array]:
    """(dS, dV), each tile once: dS is the gradient by the scores, and by what is added to them last, a bias of every
    query and key; dV = Σ Pᵀ dO over the tiles of queries.

    Shapes: v (…, n_k, d_v), g (…, n_q, d_v) → (…, n_q, n_k), (…, n_k, d_v).
    """
    xp = namespace_of(v)
    result = [
        [tile_gradients(at(r, c), v[..., c, :], _rows(saved, r), g[..., r, :]) for c in cut(keys)] for r in cut(rows)
    ]
    ds = xp.concat([xp.concat([by_scores for by_scores, _ in row], axis=-1) for row in result], axis=-2)
    dv = xp.concat(
        [reduce(add, [by_values for _, by_values in column]) for column in zip(*result, strict=True)], axis=-2
    )
    return ds, dv


def sink_gradient(sink: Array, saved: Forward, g: Array) -> Array:
    """−p_i D_i with the sink's weight p_i = e^{b_i − m_i} / ℓ_i: the gradient by the sink of each row.

    Shapes: sink (…, n_q, 1), g (…, n_q, d_v) → (…, n_q, 1); for one sink a head, sum over the queries.
    """
    return -tile_weights(sink, saved.maximum, saved.normaliser) * row_products(g, saved.output)


def _rows(saved: Forward, rows: slice) -> Forward:
    return Forward(*[x[..., rows, :] for x in saved])

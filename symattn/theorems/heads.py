"""Heads: side by side or as a sum, permuted, shared, merged, and read from a latent."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.positions.angles import rotate_half
from symattn.attention.projections import grouped_attention, merge_heads, repeat_heads, tile_heads
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.formulas import ARRAY_ROLES
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.values import Value
from symattn.proof.statement import Pair
from symattn.proof.theorem import theorem
from symattn.theorems.letters import ATTENTION, textbook
from symattn.theorems.reading import printed

TOPIC = "heads"
HEADS = "g heads of keys and values, $h = g r$ of queries; heads are counted from 0"
TWO = Attention(heads=2)
GROUPS = {"q": "g*r n_q d_k", "k": "g n_k d_k", "v": "g n_k d_v"}
WEIGHTS = {"x": "n d", "w_q": "h d d_k", "w_k": "h d d_k", "w_v": "h d d_v", "w_o": "h d_v d"}
AINSLIE = "Ainslie et al., GQA: Training Generalized Multi-Query Transformer Models (2023)"
ELHAGE = "Elhage et al., A Mathematical Framework for Transformer Circuits (2021)"


def _blocks_of(matrix: str) -> Any:
    """Block t of the rows of a matrix, for each head."""
    return lambda reader: Value(_blocks(reader.array("H"), reader.array(matrix)), ("t",), 2)


def _of_each_head(matrices: str) -> Any:
    """A matrix for each head."""
    return lambda reader: Value(reader.array(matrices), ("t",), 2)


def _sum(x: Any) -> Any:
    """The sum over the heads."""
    return x.sum(axis=0)


@theorem(
    "heads-concat-is-sum",
    TOPIC,
    "$[H_1, …, H_h] W_O = Σ_{t=1}^h H_t W_{O, t}$",
    arrays={
        **{"x": "h n d_v", "w": "h*d_v d"},
        **{"y": "n d", "w_q": "d 2*d_k", "w_k": "d 2*d_k", "w_v": "d 2*d_v", "w_o": "2*d_v d", "b_q": "2*d_k"},
    },
    hypotheses=("$W_{O, t}$ is block t of the rows of $W_O$",),
    source=ELHAGE,
    letters=Glossary(
        {"H": "h n d_v", "W_O": "h*d_v d"},
        index={"t": "h"},
        roles={**ARRAY_ROLES, "H": "output"},
        defined={"W_{O,t}": _blocks_of("W_O"), "W_{O,1}": lambda reader: _blocks_of("W_O")(reader).array[0]},
    ),
    why="A product of a row of blocks and a column of blocks is the sum of the products. The first equation is for any"
    " outputs of any number of heads, the second for the whole layer with two heads.",
    false=lambda x, w: (merge_heads(x) @ w, _sum(x) @ _blocks(x, w)[0]),
    false_says="the sum of the heads times the first block: $[H_1, …, H_h] W_O = (Σ_{t=1}^h H_t) W_{O, 1}$",
)
def heads_concat_is_sum(
    x: Array, w: Array, y: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, b_q: Array
) -> list[Pair]:
    two = x.__array_namespace__().reshape(w_o, (2, w_o.shape[0] // 2, w_o.shape[1]))
    q, k, v = _columns(y @ w_q + b_q), _columns(y @ w_k), _columns(y @ w_v)
    layer = {"x": y, "w_q": w_q, "w_k": w_k, "w_v": w_v, "b_q": b_q}
    return [
        (merge_heads(x) @ w, _sum(x @ _blocks(x, w))),
        (TWO(**layer, w_o=w_o), _sum(textbook(q, k, v) @ two)),
        (TWO(**layer) @ w_o, _sum(textbook(q, k, v) @ two)),
    ]


def _columns(x: Array) -> Array:
    """The columns of two heads, as a stack."""
    xp, n = x.__array_namespace__(), x.shape[0]
    each = xp.reshape(x, (n, 2, x.shape[1] // 2))
    return xp.stack([each[:, 0], each[:, 1]], axis=0)


def _blocks(x: Array, w: Array) -> Array:
    """W_O as one block of rows for each head."""
    return x.__array_namespace__().reshape(w, (x.shape[0], x.shape[-1], w.shape[-1]))


@theorem(
    "head-permutation",
    TOPIC,
    "the output does not change when the heads are permuted, each with its $W_Q$, $W_K$, $W_V$ and its block of $W_O$",
    arrays=WEIGHTS,
    permutations={"pi": "h"},
    why="The output is a sum over heads.",
    false=lambda x, w_q, w_k, w_v, w_o, pi: (
        _multi_head(x, w_q[pi], w_k[pi], w_v[pi], w_o),
        _multi_head(x, w_q, w_k, w_v, w_o),
    ),
    false_says="the same with $W_O$ as it was",
)
def head_permutation(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, pi: Any) -> Pair:
    return _multi_head(x, w_q[pi], w_k[pi], w_v[pi], w_o[pi]), _multi_head(x, w_q, w_k, w_v, w_o)


def _multi_head(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Any:
    """Σ_t Attention(X W_Q, X W_K, X W_V) W_O, each with block t."""
    return _sum(ATTENTION(x @ w_q, x @ w_k, x @ w_v) @ w_o)


GROUPED = Glossary(
    {"Q": "g*r n_q d_k", "K": "g n_k d_k", "V": "g n_k d_v"},
    {"g": "g", "r": "r"},
    {"t": "g*r"},
    {"O": lambda reader: grouped_attention(ATTENTION, *map(reader.array, "QKV"))},
    first=0,
)
"""Grouped-query attention, whose output is O."""


@theorem(
    "gqa-is-mha",
    TOPIC,
    "$O_t = Attention(Q_t, K_{⌊t/r⌋}, V_{⌊t/r⌋})$: query head t reads head $⌊t/r⌋$ of keys and values, so"
    " it is multi-head attention with each of those heads repeated r times in a row",
    arrays=GROUPS,
    hypotheses=(HEADS,),
    source=AINSLIE,
    letters=GROUPED,
    why="Both take the same key head for each query head.",
    false=lambda q, k, v, r: (ATTENTION(q, tile_heads(k, r), tile_heads(v, r)), grouped_attention(ATTENTION, q, k, v)),
    false_says="query head t reads head t mod g (the heads of keys and values tiled)",
)
def gqa_is_mha(q: Array, k: Array, v: Array, r: Array) -> Pair:
    return grouped_attention(ATTENTION, q, k, v), textbook(q, repeat_heads(k, r), repeat_heads(v, r))


@theorem(
    "gqa-tile-is-a-relabelling",
    TOPIC,
    "reading head t mod g gives the output that reading head ⌊t / r⌋ gives, once the query heads and"
    " their blocks of $W_O$ are permuted by a r + b ↦ b g + a",
    arrays={**GROUPS, "w": "g*r d_v d"},
    hypotheses=("0 ≤ a < g and 0 ≤ b < r; heads are counted from 0",),
    why="Head b g + a is a mod g, and head a r + b is a when divided by r.",
    false=lambda q, k, v, r: (
        ATTENTION(q, tile_heads(k, r), tile_heads(v, r)),
        ATTENTION(q, repeat_heads(k, r), repeat_heads(v, r)),
    ),
    false_says="they agree without the permutation",
)
def gqa_tile_is_a_relabelling(q: Array, k: Array, v: Array, w: Array, g: Array, r: Array) -> list[Pair]:
    tiled = ATTENTION(_relabelled(q, g, r), tile_heads(k, r), tile_heads(v, r))
    repeated, stated = (f(q, repeat_heads(k, r), repeat_heads(v, r)) for f in (ATTENTION, textbook))
    return [(tiled, _relabelled(stated, g, r)), (_sum(tiled @ _relabelled(w, g, r)), _sum(repeated @ w))]


def _relabelled(x: Array, g: Array, r: Array) -> Array:
    """Head a r + b becomes head b g + a."""
    xp = x.__array_namespace__()
    apart = xp.reshape(x, (g, r, *x.shape[1:]))
    return xp.reshape(xp.permute_dims(apart, (1, 0, 2, 3)), (r * g, *x.shape[1:]))


@theorem(
    "mqa-is-gqa-one",
    TOPIC,
    "for $g = 1$: $O_t = Attention(Q_t, K_0, V_0)$, which is multi-query attention; for $r = 1$:"
    " $O_t = Attention(Q_t, K_t, V_t)$, which is multi-head attention",
    letters=GROUPED,
    hypotheses=(HEADS,),
    arrays={"q": "h n_q d_k", "k": "1 n_k d_k", "v": "1 n_k d_v", "keys": "h n_k d_k", "values": "h n_k d_v"},
    source=AINSLIE,
    why="With one group the quotient is 0 for every head; with one query head a group it is the head itself.",
    false=lambda q, k, v, h: (
        merge_heads(grouped_attention(ATTENTION, q, k, v)),
        ATTENTION(merge_heads(q), merge_heads(repeat_heads(k, h)), merge_heads(repeat_heads(v, h))),
    ),
    false_says="multi-query attention is attention in one head of width $d_k h$",
)
def mqa_is_gqa_one(q: Array, k: Array, v: Array, keys: Array, values: Array) -> list[Pair]:
    return [
        (grouped_attention(ATTENTION, q, k, v), textbook(q, k[0], v[0])),
        (grouped_attention(ATTENTION, q, keys, values), textbook(q, keys, values)),
    ]


equal_patterns_merge = printed(
    "equal-patterns-merge",
    TOPIC,
    "$Σ_{t=1}^h P X W_{V, t} W_{O, t} = P X Σ_{t=1}^h W_{V, t} W_{O, t}$",
    hypotheses=("all heads have the same weights P",),
    letters=Glossary(
        {"P": "n m", "X": "m d", "values": "h d d_v", "outputs": "h d_v e"},
        index={"t": "h"},
        roles={**ARRAY_ROLES, "H": "output"},
        defined={"W_{V,t}": _of_each_head("values"), "W_{O,t}": _of_each_head("outputs")},
    ),
    why="For given weights the layer is linear in the product of the two matrices.",
    false_says="each of the two matrices summed over heads, and the sums multiplied:"
    " $Σ_{t=1}^h P X W_{V, t} W_{O, t} = P X (Σ_{t=1}^h W_{V, t}) (Σ_{t=1}^h W_{O, t})$",
)


@theorem(
    "mla-absorb",
    TOPIC,
    "$Attention(Q, C U_K, C U_V) = softmax(Q U_Kᵀ Cᵀ/√d_k) C U_V$",
    arrays={
        **{"q": "n_q d_k", "c": "n_k l", "u_k": "l d_k", "u_v": "l d_v"},
        **{"even": "n_q f*2", "u": "l f*2", "cos": "n_k f", "sin": "n_k f"},
    },
    units=(("cos", "sin"),),
    hypotheses=("the factor of the scores is that of the queries, not that of the latent width",),
    letters=Glossary({"Q": "n_q d_k", "C": "n_k l", "U_K": "l d_k", "U_V": "l d_v"}),
    source="DeepSeek-AI, DeepSeek-V2 (2024)",
    why="The product of three matrices may be taken in either order, so that only the latent need be kept.",
    false=(
        lambda q, c, u_k, u_v: (ATTENTION(q, c @ u_k, c @ u_v), ATTENTION(q @ u_k.mT, c, c) @ u_v),
        lambda even, c, u, u_v, cos, sin: (
            ATTENTION(even, rotate_half(c @ u, cos, sin), c @ u_v),
            soft(scale_by_root(dot_scores(even @ u.mT, c), even)) @ c @ u_v,
        ),
    ),
    false_says="$Attention(Q, C U_K, C U_V) = Attention(Q U_Kᵀ, C, C) U_V$, with the factor of the latent width; or"
    " with rotary positions applied to the keys in between",
)
def mla_absorb(q: Array, c: Array, u_k: Array, u_v: Array) -> Pair:
    return ATTENTION(q, c @ u_k, c @ u_v), soft(scale_by_root(dot_scores(q @ u_k.mT, c), q)) @ c @ u_v

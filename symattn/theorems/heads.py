"""Heads: side by side or as a sum, permuted, shared, merged, and read from a latent."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.positions.angles import rotate_half
from symattn.attention.projections import grouped_attention, merge_heads, repeat_heads, tile_heads
from symattn.document.formulas import ARRAY_ROLES
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.proof.statement import Pair
from symattn.proof.together import equations_by
from symattn.theorems.letters import ATTENTION, textbook
from symattn.theorems.texts import theorems

GROUPS = {"q": "g*r n_q d_k", "k": "g n_k d_k", "v": "g n_k d_v"}
WEIGHTS = {"x": "n d", "w_q": "h d d_k", "w_k": "h d d_k", "w_v": "h d d_v", "w_o": "h d_v d"}


def _blocks_of(matrix: str) -> Any:
    """Block t of the rows of a matrix, for each head."""
    return lambda reader: Value(_blocks(reader.array("H"), reader.array(matrix)), ("t",), 2)


def _of_each_head(matrices: str) -> Any:
    """A matrix for each head."""
    return lambda reader: Value(reader.array(matrices), ("t",), 2)


def _sum(x: Any) -> Any:
    """The sum over the heads."""
    return x.sum(axis=0)


def _blocks(x: Array, w: Array) -> Array:
    """W_O as one block of rows for each head."""
    return x.__array_namespace__().reshape(w, (x.shape[0], x.shape[-1], w.shape[-1]))


@equations_by(
    arrays=WEIGHTS,
    false=lambda x, w_q, w_k, w_v, w_o, pi: (
        _multi_head(x, w_q[pi], w_k[pi], w_v[pi], w_o),
        _multi_head(x, w_q, w_k, w_v, w_o),
    ),
    permutations={"pi": "h"},
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


def _repeated_beside(letter: str) -> Any:
    """The heads of keys or values that the query heads read, side by side."""
    return lambda reader: merge_heads(repeat_heads(reader.array(letter), reader.length("r")))


@equations_by(
    arrays={**GROUPS, "w": "g*r d_v d"},
    false=lambda q, k, v, r: (
        ATTENTION(q, tile_heads(k, r), tile_heads(v, r)),
        ATTENTION(q, repeat_heads(k, r), repeat_heads(v, r)),
    ),
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


def _rotated(reader: Reader, x: Value) -> Value:
    """Each row turned by the angles of its place."""
    return Value(rotate_half(x.array, reader.array("cos"), reader.array("sin")), (), 2)


_TEXT = """
heads-concat-is-sum: Heads side by side are a sum of heads
$[H_1, …, H_h] W_O = Σ_{t=1}^h H_t W_{O, t}$
for: $W_{O, t}$ is block t of the rows of $W_O$
source: Elhage et al., A Mathematical Framework for Transformer Circuits (2021)
why: A product of a row of blocks and a column of blocks is the sum of the products. The first equation is for any
  outputs of any number of heads, the second for the whole layer with two heads.
false: the sum of the heads times the first block: $[H_1, …, H_h] W_O = (Σ_{t=1}^h H_t) W_{O, 1}$

head-permutation: Heads are permuted with their parts of the output projection
the output does not change when the heads are permuted, each with its $W_Q$, $W_K$, $W_V$ and its block of $W_O$
why: The output is a sum over heads.
false: the same with $W_O$ as it was
by head_permutation

gqa-is-mha: Grouped heads are repeated heads
$O_t = Attention(Q_t, K_{⌊t/r⌋}, V_{⌊t/r⌋})$: query head t reads head $⌊t/r⌋$ of keys and values, so it is multi-head
  attention with each of those heads repeated r times in a row
for: g heads of keys and values, $h = g r$ of queries; heads are counted from 0
source: Ainslie et al., GQA: Training Generalized Multi-Query Transformer Models (2023)
why: Both take the same key head for each query head.
false: query head t reads head t mod g, as the heads of keys and values are tiled in $K′$ and $V′$: $O_t =
  Attention(Q_t, K′_t, V′_t)$

gqa-tile-is-a-relabelling: Tiled heads of GQA are relabelled
reading head t mod g gives the output that reading head ⌊t / r⌋ gives, once the query heads and their blocks of $W_O$
  are permuted by a r + b ↦ b g + a
for: 0 ≤ a < g and 0 ≤ b < r; heads are counted from 0
why: Head b g + a is a mod g, and head a r + b is a when divided by r.
false: they agree without the permutation
by gqa_tile_is_a_relabelling

mqa-is-gqa-one: MQA is GQA with one group
for $g = 1$: $O_t = Attention(Q_t, K_0, V_0)$, which is multi-query attention; for $r = 1$: $O_t = Attention(Q_t, K_t,
  V_t)$, which is multi-head attention
for: g heads of keys and values, $h = g r$ of queries; heads are counted from 0
source: Ainslie et al., GQA: Training Generalized Multi-Query Transformer Models (2023)
why: With one group the quotient is 0 for every head; with one query head a group it is the head itself.
false: for $g = 1$ it is attention in one head of width $d_k h$, all heads side by side: $O′ = Attention(Q′, K′, V′)$

equal-patterns-merge: Heads of equal patterns merge
$Σ_{t=1}^h P X W_{V, t} W_{O, t} = P X Σ_{t=1}^h W_{V, t} W_{O, t}$
for: all heads have the same weights P
why: For given weights the layer is linear in the product of the two matrices.
false: each of the two matrices summed over heads, and the sums multiplied: $Σ_{t=1}^h P X W_{V, t} W_{O, t} = P X
  (Σ_{t=1}^h W_{V, t}) (Σ_{t=1}^h W_{O, t})$

mla-absorb: Latent keys are absorbed into the queries
$Attention(Q, C U_K, C U_V) = softmax(Q U_Kᵀ Cᵀ/√d_k) C U_V$
for: the factor of the scores is that of the queries, not that of the latent width
source: DeepSeek-AI, DeepSeek-V2 (2024)
why: The product of three matrices may be taken in either order, so that only the latent need be kept.
false: $Attention(Q, C U_K, C U_V) = Attention(Q U_Kᵀ, C, C) U_V$, with the factor of the latent width; or with rotary
  positions applied to keys of an even width d in between: $Attention(Y, R(C W), C U_V) = softmax(Y Wᵀ Cᵀ/√d) C U_V$
"""

THEOREMS = theorems(
    "heads",
    _TEXT,
    {
        "": GROUPED,
        "heads-concat-is-sum": Glossary(
            {"H": "h n d_v", "W_O": "h*d_v d"},
            index={"t": "h"},
            roles={**ARRAY_ROLES, "H": "output"},
            defined={"W_{O,t}": _blocks_of("W_O"), "W_{O,1}": lambda reader: _blocks_of("W_O")(reader).array[0]},
        ),
        "head-permutation": None,
        "gqa-is-mha": GROUPED.also(
            defined={
                "K′": lambda reader: tile_heads(reader.array("K"), reader.length("r")),
                "V′": lambda reader: tile_heads(reader.array("V"), reader.length("r")),
            }
        ),
        "gqa-tile-is-a-relabelling": None,
        "mqa-is-gqa-one": GROUPED.also(
            defined={
                "O′": lambda reader: merge_heads(grouped_attention(ATTENTION, *map(reader.array, "QKV"))),
                "Q′": lambda reader: merge_heads(reader.array("Q")),
                "K′": _repeated_beside("K"),
                "V′": _repeated_beside("V"),
            }
        ),
        "equal-patterns-merge": Glossary(
            {"P": "n m", "X": "m d", "values": "h d d_v", "outputs": "h d_v e"},
            index={"t": "h"},
            roles={**ARRAY_ROLES, "H": "output"},
            defined={"W_{V,t}": _of_each_head("values"), "W_{O,t}": _of_each_head("outputs")},
        ),
        "mla-absorb": Glossary(
            {
                **{"Q": "n_q d_k", "C": "n_k l", "U_K": "l d_k", "U_V": "l d_v"},
                **{"Y": "n_q f*2", "W": "l f*2", "cos": "n_k f", "sin": "n_k f"},
            },
            {"d_k": "d_k", "d": "f*2"},
            functions={"R": _rotated},
            units=(("cos", "sin"),),
        ),
    },
    globals(),
)

"""Heads: side by side or as a sum, permuted, shared, merged, and read from a latent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.positions.angles import rotate_half
from symattn.attention.projections import grouped_attention, merge_heads, repeat_heads, tile_heads
from symattn.document.notation import name
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import ATTENTION
from symattn.theorems.texts import theorems


def _blocks_of(matrix: str) -> Any:
    """Return block t of the rows of a matrix, for each head."""

    def blocks(reader: Reader) -> Value:
        heads, w = reader.array("H"), reader.array(matrix)
        return Value(reader.xp.reshape(w, (heads.shape[0], heads.shape[-1], w.shape[-1])), ("t",), 2)

    return blocks


def _of_each_head(matrices: str) -> Any:
    """Return a matrix for each head."""
    return lambda reader: Value(reader.array(matrices), ("t",), 2)


def _reordered(matrices: str) -> Any:
    """Return a matrix for each head, with the heads in the order of Π."""

    def permuted(reader: Reader) -> Value:
        w = reader.array(matrices)
        rows = reader.xp.reshape(w, (w.shape[0], w.shape[1] * w.shape[2]))
        return Value(reader.xp.reshape(reader.one(name("Π")).array @ rows, w.shape), ("t",), 2)

    return permuted


PROJECTIONS = {"Q": "queries", "K": "keys", "V": "values", "O": "outputs"}


def _grouped(reader: Reader) -> Array:
    """Return the outputs of all query heads."""
    return grouped_attention(ATTENTION, *map(reader.array, "QKV"))


GROUPED = Glossary(
    {"Q": "g*r n_q d_k", "K": "g n_k d_k", "V": "g n_k d_v"},
    {"g": "g", "r": "r"},
    {"t": "g*r"},
    {"O": _grouped},
    first=0,
)
"""Grouped-query attention, whose output is O."""


def _repeated_beside(letter: str) -> Any:
    """Return the heads of keys or values that the query heads read, side by side."""
    return lambda reader: merge_heads(repeat_heads(reader.array(letter), reader.length("r")))


def _relabelled(of: Callable[[Reader], Any]) -> Callable[[Reader], Any]:
    """Permute the heads so that head a r + b is head b g + a."""

    def relabelled(reader: Reader) -> Any:
        x, g, r = of(reader), reader.length("g"), reader.length("r")
        apart = reader.xp.reshape(x, (g, r, *x.shape[1:]))
        return reader.xp.reshape(reader.xp.permute_dims(apart, (1, 0, 2, 3)), (r * g, *x.shape[1:]))

    return relabelled


def _rotated(reader: Reader, x: Value) -> Value:
    """Return each row rotated by the angles of its position."""
    return Value(rotate_half(x.array, reader.array("cos"), reader.array("sin")), (), 2)


_TEXT = """
heads-concat-is-sum: Heads side by side are a sum of heads
$[H_1, …, H_h] W_O = Σ_{t=1}^h H_t W_{O, t}$
letters: blocks | H h n d_v, W_O h*d_v d | index t h | roles H output
for: $W_{O, t}$ is block t of the rows of $W_O$
source: Elhage et al., A Mathematical Framework for Transformer Circuits (2021)
why: A product of a row of blocks and a column of blocks is the sum of the products. The first equation is for any
  outputs of any number of heads, the second for the whole layer with two heads.
false: the sum of the heads times the first block: $[H_1, …, H_h] W_O = (Σ_{t=1}^h H_t) W_{O, 1}$

head-permutation: Heads are permuted with their parts of the output projection
the output does not change when the heads are permuted, each with its $W_Q$, $W_K$, $W_V$ and its block of $W_O$:
  $Σ_{t=1}^h Attention(X W′_{Q, t}, X W′_{K, t}, X W′_{V, t}) W′_{O, t} = Σ_{t=1}^h Attention(X W_{Q, t}, X W_{K, t}, X
  W_{V, t}) W_{O, t}$
for: the matrices W′ are the matrices W in any other order of the heads
why: The output is a sum over heads.
false: the same with $W_O$ as it was: $Σ_{t=1}^h Attention(X W′_{Q, t}, X W′_{K, t}, X W′_{V, t}) W_{O, t} = Σ_{t=1}^h
  Attention(X W_{Q, t}, X W_{K, t}, X W_{V, t}) W_{O, t}$

gqa-is-mha: Grouped heads are repeated heads
$O_t = Attention(Q_t, K_{⌊t/r⌋}, V_{⌊t/r⌋})$: query head t reads head $⌊t/r⌋$ of keys and values, so it is multi-head
  attention with each of those heads repeated r times in a row
letters: tiled
for: g heads of keys and values, $h = g r$ of queries; heads are counted from 0
source: Ainslie et al., GQA: Training Generalized Multi-Query Transformer Models (2023)
why: Both take the same key head for each query head.
false: query head t reads head t mod g, as the heads of keys and values are tiled in $K′$ and $V′$: $O_t =
  Attention(Q_t, K′_t, V′_t)$

gqa-tile-is-a-relabelling: Tiled heads of GQA are relabelled
reading head t mod g gives the output that reading head ⌊t / r⌋ gives, once the query heads and their blocks of $W_O$
  are permuted by a r + b ↦ b g + a: $Attention(Q′_t, K′_t, V′_t) = O′_t$ and $Σ_t Attention(Q′_t, K′_t, V′_t) W′_t =
  Σ_t O_t W_t$
letters: tiled
for: 0 ≤ a < g and 0 ≤ b < r; heads are counted from 0
for: K′ and V′ are K and V, tiled; Q′, O′ and W′ are the queries, the outputs and the blocks of $W_O$, permuted
why: Head b g + a is a mod g, and head a r + b is a when divided by r.
false: they agree without the permutation: $Attention(Q_t, K′_t, V′_t) = O_t$

mqa-is-gqa-one: MQA is GQA with one group
for $g = 1$: $O_t = Attention(Q_t, K_0, V_0)$, which is multi-query attention; for $r = 1$: $O_t = Attention(Q_t, K_t,
  V_t)$, which is multi-head attention
for: g heads of keys and values, $h = g r$ of queries; heads are counted from 0
source: Ainslie et al., GQA: Training Generalized Multi-Query Transformer Models (2023)
why: With one group the quotient is 0 for every head; with one query head a group it is the head itself.
false: for $g = 1$ it is attention in one head of width $d_k h$, all heads side by side: $O′ = Attention(Q′, K′, V′)$

equal-patterns-merge: Heads of equal patterns merge
$Σ_{t=1}^h P X W_{V, t} W_{O, t} = P X Σ_{t=1}^h W_{V, t} W_{O, t}$
letters: each | P n m, X m d, values h d d_v, outputs h d_v e | index t h | roles H output
for: all heads have the same weights P
why: For given weights the layer is linear in the product of the two matrices.
false: each of the two matrices summed over heads, and the sums multiplied: $Σ_{t=1}^h P X W_{V, t} W_{O, t} = P X
  (Σ_{t=1}^h W_{V, t}) (Σ_{t=1}^h W_{O, t})$

mla-absorb: Latent keys are absorbed into the queries
$Attention(Q, C U_K, C U_V) = softmax(Q U_Kᵀ Cᵀ/√d_k) C U_V$
letters: rotated | Q n_q d_k, C n_k l, U_K l d_k, U_V l d_v, Y n_q f*2, W l f*2, cos n_k f, sin n_k f | sizes d_k, d f*2
  | units cos sin
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
        "blocks": Glossary(
            defined={"W_{O,t}": _blocks_of("W_O"), "W_{O,1}": lambda reader: _blocks_of("W_O")(reader).array[0]},
        ),
        "head-permutation": Glossary(
            {"X": "n d", "queries": "h d d_k", "keys": "h d d_k", "values": "h d d_v", "outputs": "h d_v d"},
            index={"t": "h"},
            defined={f"W_{{{letter},t}}": _of_each_head(of) for letter, of in PROJECTIONS.items()}
            | {f"W′_{{{letter},t}}": _reordered(of) for letter, of in PROJECTIONS.items()},
            permutations={"Π": "h"},
        ),
        "tiled": GROUPED.also(
            {"W": "g*r d_v d"},
            defined={
                "K′": lambda reader: tile_heads(reader.array("K"), reader.length("r")),
                "V′": lambda reader: tile_heads(reader.array("V"), reader.length("r")),
                "Q′": _relabelled(lambda reader: reader.array("Q")),
                "W′": _relabelled(lambda reader: reader.array("W")),
                "O′": _relabelled(_grouped),
            },
        ),
        "mqa-is-gqa-one": GROUPED.also(
            defined={
                "O′": lambda reader: merge_heads(_grouped(reader)),
                "Q′": lambda reader: merge_heads(reader.array("Q")),
                "K′": _repeated_beside("K"),
                "V′": _repeated_beside("V"),
            }
        ),
        "each": Glossary(
            defined={"W_{V,t}": _of_each_head("values"), "W_{O,t}": _of_each_head("outputs")},
        ),
        "rotated": Glossary(sizes={}, functions={"R": _rotated}),
    },
    globals(),
)

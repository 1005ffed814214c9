"""``online-softmax``: attention over keys that come in tiles, in one pass."""

from __future__ import annotations

from functools import reduce
from itertools import accumulate

from symattn.arrays.array import Array
from symattn.attention.softmax import softmax
from symattn.attention.streaming.states import SoftmaxState, finish, merge, tile_state
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.exactly import entries, exact, same
from symattn.derivations.steps import FalseStep
from symattn.document import notation as nt
from symattn.document.formulas import formula
from symattn.document.model import Column, Document, Table
from symattn.document.notation import Node
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.theorems.streaming import BLOCK_LETTERS, STATE_LETTERS

_TEXT = """
Softmax in one pass
hint: symattn derive shift             why any maximum will do
hint: symattn prove streaming
letters seen: states | s n, V n d_v, m | index j n, l n | where ℓ = sum(s, V, m); a = mix(s, V, m)
letters more: states | t n, W n d_v, s, v d_v, m, m′ | where ℓ = sum(t, W, m); a = mix(t, W, m); ℓ' = sum((t, s), [W;
    v], m'); a' = mix((t, s), [W; v], m')
letters tiles: states | s n, V n d_v, t r, W r d_v, m₁, m₂, m | where ℓ_1 = sum(s, V, m_1); a_1 = mix(s, V, m_1); ℓ_2 =
    sum(t, W, m_2); a_2 = mix(t, W, m_2); ℓ = sum((s, t), [V; W], m); a = mix((s, t), [V; W], m)
letters example: new | s n, V n | index j n, l n | example
roles: a none
A1: One query, with scores $s_j$ and values $v_j$. The keys come in tiles of any sizes, one after the other
A2: $m$ is any finite number for each tile: its largest score, or the largest so far
# The state of some keys
seen- ℓ = Σ_j e^{s_j - m} :: over the keys seen
seen- a = Σ_j e^{s_j - m} v_j :: likewise
seen- a/ℓ = Σ_j e^{s_j}/(Σ_l e^{s_l}) v_j :: $e^{-m}$ cancels
# One more key
A new key has the score $s$ and the value $v$; let $m'$ be any number, such as $max(m, s)$:
more- ℓ' = ℓ e^{m - m'} + e^{s - m'} :: the old terms are rescaled
more- a' = a e^{m - m'} + e^{s - m'} v :: by the same factor
# Two tiles
Tiles 1 and 2 with the states $m_1, ℓ_1, a_1$ and $m_2, ℓ_2, a_2$, and any $m$, merge to:
tiles- ℓ = ℓ_1 e^{m_1 - m} + ℓ_2 e^{m_2 - m} :: another maximum is a common factor
tiles- a = a_1 e^{m_1 - m} + a_2 e^{m_2 - m} :: likewise
States that agree in $ℓ e^m$ and $a e^m$ are equal up to the choice of $m$, and give the same output. In this sense:
merged- merge(merge(x, y), z) = merge(x, merge(y, z)) :: merging adds these numbers
merged- merge(x, y) = merge(y, x) :: likewise
merged- merge(x, (m, 0, 0)) = x :: a state of no keys
not streaming.two-block-merge
The state of a tile of keys and values is its $m, ℓ, a$; to finish is to divide $a$ by $ℓ$:
theorem streaming.online-softmax
# Outputs instead of states
Kernels that split the keys into $B$ blocks of one size keep the output $o_b$ of each block and the logarithm $L_b$ of
    its sum of exponentials.
blocks- L = log(Σ_{b=1}^B e^{L_b}) :: the sums of the blocks add up
blocks- o = Σ_{b=1}^B e^{L_b - L} o_b :: a block's numerator is its output times its sum
# In numbers
insert table
with example: $s = @scores$, $V = @values$
with example: $o = Σ_j e^{s_j}/(Σ_l e^{s_l}) v_j$
example- o = @output ≈ @digits :: as softmax over all three at once, and as from the last key to the first
caveat: The state is exact in exact numbers. In floating point each rescaling rounds, and the order of tiles
    matters in the last digits. A2 excludes tiles in which every key is forbidden.
"""
_COLUMNS = [formula(x) for x in ("j", "s_j", "v_j", "m", "ℓ", "a", "a/ℓ")]
SCORES, VALUES = [[1, 3, 2]], [[4], [1], [2]]
"""Of the example: three keys of one query."""


def derivation() -> Document:
    """Derive that states (m, ℓ, a) of tiles merge into that of all keys, and a/ℓ is the output whatever m was."""
    scores, values = exact(SCORES), exact(VALUES)
    tiles = [tile_state(scores[:, j : j + 1], values[j : j + 1, :]) for j in range(scores.shape[-1])]
    states, direct = list(accumulate(tiles, merge)), softmax(scores) @ values
    if not same(finish(reduce(merge, reversed(tiles))), direct):
        raise FalseStep("merged from the end, the output is another")
    letters = {"states": _states(), "merged": STATE_LETTERS, "blocks": BLOCK_LETTERS}
    # a table of three keys, one by one, in exact numbers
    columns = [Column((x,)) for x in _COLUMNS]
    given = [(nt.node(j + 1), nt.node(SCORES[0][j]), nt.node(VALUES[j][0])) for j in range(len(states))]
    rows = [(*cells, *map(_entry, (*state, finish(state)))) for cells, state in zip(given, states, strict=True)]
    caption = ("Keys one by one; the last entry of the last row is the output.",)
    table = Table(tuple(columns), tuple(tuple((x,) for x in row) for row in rows), caption=caption)
    return DerivationText(
        letters, table=[table], scores=nt.matrix(SCORES), values=nt.matrix(VALUES),
        output=_entry(finish(states[-1])), digits=nt.Decimal(direct.tolist()[0][0].decimal(6)),
    ).document("online-softmax", _TEXT)  # fmt: skip


def _states() -> Glossary:
    """Return the sum ℓ and the weighted sum a of keys for any maximum, by the implementation."""

    def state(s: Value, v: Value, m: Value) -> SoftmaxState:
        return tile_state(s.array[None, :], v.array, m.array[None, None])

    functions = {
        "sum": lambda _, *of: Value(state(*of).normaliser[0, 0]),
        "mix": lambda _, *of: Value(state(*of).accumulated[0, :], (), 1, True),
    }
    return Glossary(functions=functions, rows=True)


def _entry(x: Array) -> Node:
    return entries(x[0, 0])

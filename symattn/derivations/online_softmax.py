"""``online-softmax``: attention over keys that come in tiles, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.softmax import softmax
from symattn.attention.streaming.states import SoftmaxState, finish, merge, tile_state
from symattn.derivations.derivation_texts import Telling
from symattn.derivations.exactly import entries, exact, same
from symattn.derivations.steps import FalseStep
from symattn.document import notation as nt
from symattn.document.formulas import formula
from symattn.document.model import Column, Document, Table
from symattn.document.notation import Node
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.theorems.streaming import BLOCK_LETTERS, STATE_LETTERS

_TEXT = """
Softmax in one pass
hint: symattn derive shift             why any maximum will do
hint: symattn prove streaming
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
states- merge(merge(x, y), z) = merge(x, merge(y, z)) :: merging adds these numbers
states- merge(x, y) = merge(y, x) :: likewise
states- merge(x, (m, 0, 0)) = x :: a state of no keys
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
    """(m, ℓ, a) of tiles merge to that of all keys, and a/ℓ is the output whatever m was."""
    scores, values = exact(SCORES), exact(VALUES)
    tiles = [tile_state(scores[:, j : j + 1], values[j : j + 1, :]) for j in range(scores.shape[-1])]
    states, direct = list(accumulate(tiles, merge)), softmax(scores) @ values
    if not same(finish(reduce(merge, reversed(tiles))), direct):
        raise FalseStep("merged from the end, the output is another")
    return Telling(
        _letters(), table=[_table(states)], scores=nt.matrix(SCORES), values=nt.matrix(VALUES),
        output=_entry(finish(states[-1])), digits=nt.Decimal(direct.tolist()[0][0].decimal(6)),
    ).document("online-softmax", _TEXT)  # fmt: skip


def _letters() -> dict[str, Glossary]:
    """Some keys and any m; these and one more; two tiles, each with an m of its own, and one for both."""
    seen = {"ℓ": _state("s", "V", "m", 1), "a": _state("s", "V", "m", 2)}
    more = {"seen": "n", "held": "n d_v", "s": "", "v": "d_v", "m": "", "m′": ""}
    new = ("seen", "s", "held", "v")
    grown = {"ℓ": _state("seen", "held", "m", 1), "a": _state("seen", "held", "m", 2)}
    grown |= {"ℓ′": _joined(new, "m′", 1), "a′": _joined(new, "m′", 2)}
    two = {"s1": "n", "v1": "n d_v", "s2": "r", "v2": "r d_v", "m₁": "", "m₂": "", "m": ""}
    both = ("s1", "s2", "v1", "v2")
    each = {f"{letter}{i}": _state(s, v, f"m{i}", part) for i, s, v in (("₁", "s1", "v1"), ("₂", "s2", "v2"))
            for letter, part in (("ℓ", 1), ("a", 2))}  # fmt: skip
    each |= {"ℓ": _joined(both, "m", 1), "a": _joined(both, "m", 2)}
    return {
        "seen": Glossary({"s": "n", "V": "n d_v", "m": ""}, index={"j": "n", "l": "n"}, defined=seen, rows=True),
        "more": Glossary(more, defined=grown, rows=True),
        "tiles": Glossary(two, defined=each, rows=True),
        "states": STATE_LETTERS,
        "blocks": BLOCK_LETTERS,
    }


def _state(scores: str, values: str, maximum: str, part: int) -> Callable[[Reader], Any]:
    """ℓ (``part`` 1) or a (2) of some keys, as the implementation computes them with any m."""

    def computed(reader: Reader) -> Any:
        s, v, m = (reader.arrays[x] for x in (scores, values, maximum))
        return _part(tile_state(s[None, :], v, m[None, None]), part)

    return computed


def _joined(names: tuple[str, str, str, str], maximum: str, part: int) -> Callable[[Reader], Any]:
    """Join a part of the state over two sets of keys."""

    def computed(reader: Reader) -> Any:
        s, t, v, w = (reader.arrays[x] for x in names)
        t, w = (t, w) if t.shape else (t[None], w[None, :])
        every, m = reader.xp.concat([s, t], axis=0), reader.arrays[maximum][None, None]
        return _part(tile_state(every[None, :], reader.xp.concat([v, w], axis=0), m), part)

    return computed


def _part(state: SoftmaxState, part: int) -> Any:
    return state.normaliser[0, 0] if part == 1 else state.accumulated[0, :]


def _table(states: list[SoftmaxState]) -> Table:
    """Three keys one by one, in exact numbers."""
    columns = [Column((x,)) for x in _COLUMNS]
    given = [(nt.node(j + 1), nt.node(SCORES[0][j]), nt.node(VALUES[j][0])) for j in range(len(states))]
    rows = [(*cells, *map(_entry, (*state, finish(state)))) for cells, state in zip(given, states, strict=True)]
    caption = ("Keys one by one; the last entry of the last row is the output.",)
    return Table(tuple(columns), tuple(tuple((x,) for x in row) for row in rows), caption=caption)


def _entry(x: Array) -> Node:
    return entries(x[0, 0])

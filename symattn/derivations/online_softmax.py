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
    ).document("online-softmax")  # fmt: skip


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

"""``gqa``: several query heads read one head of keys and values."""

from __future__ import annotations

from typing import Any

from symattn.attention.projections import grouped_attention, tile_heads
from symattn.attention.spec import Attention
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.exactly import value
from symattn.document.formulas import formula
from symattn.document.model import Column, Document, Table
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader

_ATTENTION = Attention()
_COUNTED = tuple(map(formula, ("g", "h/g", "g (d_k + d_v)", "g/h")))


def derivation(heads: int = 8, dk: int = 64, dv: int = 64) -> Document:
    """Derive that query head t reads head ⌊t/r⌋: multi-head attention with each key-value head repeated r times."""
    sizes = {"heads": heads, "dk": dk, "dv": dv}
    numbers = Glossary(defined={"O": _one_number(False), "O_tiled": _one_number(True)})
    outputs = lambda reader: grouped_attention(_ATTENTION, *(reader.arrays[letter] for letter in "QKV"))  # noqa: E731
    letters = {"heads": Glossary(sizes={}, defined={"O": outputs}), "numbers": numbers}
    return DerivationText(letters, table=[_table(heads, dk, dv)], **sizes).document("gqa", parameters=sizes)


def _one_number(tiled: bool) -> Any:
    """Return the output of each query head if every head has a single query and key of width 1."""

    def computed(reader: Reader) -> Any:
        q, k, v = (reader.arrays[letter][:, None, None] for letter in "QKV")
        if not tiled:
            return grouped_attention(_ATTENTION, q, k, v)[:, 0, 0]
        times = q.shape[0] // k.shape[0]
        return _ATTENTION(q, tile_heads(k, times), tile_heads(v, times))[:, 0, 0]

    return computed


def _table(heads: int, dk: int, dv: int) -> Table:
    """Return a table of how many numbers are cached per token, for each number of groups."""
    groups, _, numbers, share = _COUNTED
    columns = tuple(map(Column, ((groups,), (formula("r"),), ("kept: ", numbers), ("share: ", share))))
    sizes = {"h": heads, "d_k": dk, "d_v": dv}
    counts = [g for g in range(heads, 0, -1) if heads % g == 0]
    rows = tuple(tuple((value(x, {**sizes, "g": g}).notation(),) for x in _COUNTED) for g in counts)
    return Table(columns, rows, caption=("Numbers kept of each token and layer.",))

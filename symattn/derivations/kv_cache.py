"""``kv-cache``: with cached keys and values of earlier tokens, a new token needs one row of attention."""

from __future__ import annotations

from typing import Any

from symattn.attention.spec import Attention
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.steps import FalseStep
from symattn.document import notation as nt
from symattn.document.formulas import running_text
from symattn.document.model import Column, Document, Table
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader

_CAUSAL = Attention(causal=True)
_COUNTED = (1, 10, 100, 1000)
_CAPTION = running_text("Scores computed for $n$ tokens; the ratio is $((n + 2))/3$, rounded down.")


def derivation() -> Document:
    """Derive that row n + 1 of causal attention is one query against the cache and its own key and value."""
    every_row = lambda reader: _CAUSAL(*(reader.arrays[letter][:, None] for letter in "QKV"))[:, 0]  # noqa: E731
    rows = {"new row": Glossary(defined={"o_{n+1}": _new_row}), "every row": Glossary(defined={"O": every_row})}
    return DerivationText(rows, table=[_table()]).document("kv-cache")


def _new_row(reader: Reader) -> Any:
    """Return the last row of causal attention over the cache and one more token."""
    arrays, xp = reader.arrays, reader.xp
    q, k, v = (xp.concat([arrays[x], arrays[f"{x.lower()}_{{n+1}}"][None, :]], axis=0) for x in "QKV")
    return _CAUSAL(q, k, v)[reader.length("n") :][0, :]


def _table() -> Table:
    """Return a table of how many scores n tokens need with the cache and without, by counting."""
    rows = []
    for n in _COUNTED:
        cached, again = sum(range(1, n + 1)), sum(t * (t + 1) // 2 for t in range(1, n + 1))
        if (cached, again) != (n * (n + 1) // 2, n * (n + 1) * (n + 2) // 6):
            raise FalseStep("the sums of the table are not those of the formulas")
        if again // cached != (n + 2) // 3:
            raise FalseStep("the ratio of the table is not (n + 2)/3")
        rows.append(tuple((nt.node(x),) for x in (n, cached, again, again // cached)))
    columns = tuple(Column((head,)) for head in (nt.Name("n"), "with the cache", "without", "ratio"))
    return Table(columns, tuple(rows), caption=_CAPTION)

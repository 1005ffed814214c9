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

_TEXT = """
Why keys and values can be kept
hint: symattn derive online-softmax    the cache in tiles
hint: symattn derive gqa               a smaller cache
letters: new row | Q n d_k, K n d_k, V n d_v, q_{n+1} d_k, k_{n+1} d_k, v_{n+1} d_v | rows
letters counted: new | x n
letters example: every row | Q n, K n, V n | example
A1: attention is causal: token $i$ sees the tokens $1, …, i$
A2: $K$ and $V$, the cache, are the keys and values of $n$ tokens
# A new token changes nothing before it
One more token, or any number of them, leaves the outputs of the tokens before as they are:
theorem streaming.causal-prefix-unchanged
# The new row
- o_{n + 1} = Attention(q_{n + 1}, [K; k_{n + 1}], [V; v_{n + 1}])
    :: the last token sees all keys, and its row needs no other query
result: o_{n + 1} = Attention(q_{n + 1}, [K; k_{n + 1}], [V; v_{n + 1}])
not streaming.kv-cache-step
No query is kept: query $i$ is used in row $i$ alone.
# Several new tokens at once
theorem streaming.chunked-prefill-bottom-right
# What it saves
counted- Σ_{t=1}^n t = n (n + 1)/2 :: with the cache row $t$ has $t$ scores; by induction
counted- Σ_{t=1}^n t (t + 1)/2 = n (n + 1) (n + 2)/6 :: without, all rows again for each token
insert table
# In numbers
let example: With $Q = [1; 0; 2]$, $K = [0; 1; 1]$ and $V = [2; 4; 6]$,
    the rows one by one, each of one query and of the keys up to its own, are those of causal attention:
example- o_1 = 2
example- o_2 = 3
example- o_3 = 2 {1 + 5 e²}/(1 + 2 e²)
caveat: The rows are equal in exact numbers; a kernel for one query may add in another order, and round
    otherwise. The cache grows with every token, and is not counted here.
"""
_CAUSAL = Attention(causal=True)
_COUNTED = (1, 10, 100, 1000)
_CAPTION = running_text("Scores computed for $n$ tokens; the ratio is $((n + 2))/3$, rounded down.")


def derivation() -> Document:
    """Derive that row n + 1 of causal attention is one query against the cache and its own key and value."""
    every_row = lambda reader: _CAUSAL(*(reader.arrays[letter][:, None] for letter in "QKV"))[:, 0]  # noqa: E731
    rows = {"new row": Glossary(defined={"o_{n+1}": _new_row}), "every row": Glossary(defined={"O": every_row})}
    return DerivationText(rows, table=[_table()]).document("kv-cache", _TEXT)


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

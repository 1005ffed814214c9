"""``kv-cache``: with the keys and values of earlier tokens kept, a new token needs one row of attention."""

from __future__ import annotations

from typing import Any

from symattn.attention.spec import Attention
from symattn.derivations.exactly import THIS, entries, exact, same
from symattn.derivations.proving import hypotheses, known, shown
from symattn.derivations.steps import FalseStep, hold, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Column, Document, Heading, Paragraph, Result, Table
from symattn.document.notation import Name, Node, equals, name, total
from symattn.proof.theorem import Method
from symattn.proof.together import identity
from symattn.theorems import streaming as theorems

_N, _M, _T = Name("n"), Name("m"), Name("t")
_NEW = _N + 1
_K, _V = name("K", role="key"), name("V", role="value")
_EXAMPLE = {"q": [[1], [0], [2]], "k": [[0], [1], [1]], "v": [[2], [4], [6]]}
_CAUSAL = Attention(causal=True)
_COUNTED = (1, 10, 100, 1000)


def derivation() -> Document:
    """Row n + 1 of causal attention is one query against the cache and its own key and value."""
    return Document(
        "derivation",
        "kv-cache",
        ("Why keys and values can be kept",),
        _blocks(),
        command="symattn derive kv-cache",
        hints=(
            "symattn derive online-softmax    the cache in tiles",
            "symattn derive gqa               a smaller cache",
        ),
    )


def row_scores() -> Method:
    """The number of scores of all rows up to t, t(t + 1)/2, grows by t, and is 0 at t = 0."""

    def scores(t: Any) -> Any:
        return t * (t + 1) / 2

    return identity({"t": ""}, lambda t: [(scores(t) - scores(t - 1), t), (scores(0 * t), 0)])


def all_again() -> Method:
    """The number of scores when every row is computed again for each token, t(t + 1)(t + 2)/6, grows by t(t + 1)/2."""

    def scores(t: Any) -> Any:
        return t * (t + 1) * (t + 2) / 6

    return identity({"t": ""}, lambda t: [(scores(t) - scores(t - 1), t * (t + 1) / 2), (scores(0 * t), 0)])


def _attention(q: Node, k: Node, v: Node) -> Node:
    return nt.call("Attention", q, k, v)


def _blocks() -> tuple[Block, ...]:
    step, prefix = known(theorems.kv_cache_step), known(theorems.causal_prefix_unchanged)
    chunk = known(theorems.chunked_prefill_bottom_right)
    cache = (
        name("K", role="key"),
        " and ",
        name("V", role="value"),
        ", the cache, are the keys and values of ",
        _N,
        " tokens",
    )
    new_row = equals(
        name("o", _NEW, role="output"),
        _attention(
            name("q", _NEW, role="query"), _stack(name("K", role="key"), "k"), _stack(name("V", role="value"), "v")
        ),
    )
    cached = equals(total("t", 1, _N, _T), _N * nt.Fence("round", _N + 1) / 2)
    again = equals(
        total("t", 1, _N, _T * nt.Fence("round", _T + 1) / 2),
        _N * nt.Fence("round", _N + 1) * nt.Fence("round", _N + 2) / 6,
    )
    return (
        hypotheses((), ("attention is causal: token ", Name("i"), " sees the tokens ", nt.commas(1, "…", "i")), cache),
        Heading(("A new token changes nothing before it",)),
        Paragraph(("One more token, or any number of them, leaves the outputs of the tokens before as they are:",)),
        prefix.result("Result 1"),
        prefix.wrong(),
        Heading(("The new row",)),
        together(step.step(new_row, "the last token sees all keys, and its row needs no other query")),
        Result("Result 2", (new_row,), (step.evidence,)),
        step.wrong(),
        Paragraph(("No query is kept: query ", Name("i"), " is used in row ", Name("i"), " alone.")),
        Heading(("Several new tokens at once",)),
        chunk.result("Result 3"),
        chunk.wrong(),
        Heading(("What it saves",)),
        together(
            shown(cached, ("with the cache row ", _T, " has ", _T, " scores; by induction"), row_scores()),
            shown(again, "without, all rows again for each token", all_again()),
        ),
        _table(),
        *_example(),
        Caveat(
            (
                "The rows are equal in exact numbers; a kernel for one query may add in another order, and round",
                " otherwise. The cache grows with every token, and is not counted here.",
            )
        ),
    )  # fmt: skip


def _stack(block: Node, letter: str) -> Node:
    role: Any = {"k": "key", "v": "value"}[letter]
    return nt.matrix([[block], [name(letter, _NEW, role=role)]])


def _table() -> Table:
    """Scores that are computed for n tokens, with the cache and without, added up one by one."""
    columns = (Column((_N,)), Column(("with the cache",)), Column(("without",)), Column(("ratio",)))
    rows = []
    for n in _COUNTED:
        cached, again = sum(range(1, n + 1)), sum(t * (t + 1) // 2 for t in range(1, n + 1))
        if (cached, again) != (n * (n + 1) // 2, n * (n + 1) * (n + 2) // 6):
            raise FalseStep("the sums of the table are not those of the formulas")
        if again // cached != (n + 2) // 3:
            raise FalseStep("the ratio of the table is not (n + 2)/3")
        rows.append(tuple((nt.node(x),) for x in (n, cached, again, again // cached)))
    caption = ("Scores computed for ", _N, " tokens; the ratio is ", nt.Fence("round", _N + 2) / 3, ", rounded down.")
    return Table(columns, tuple(rows), caption=caption)


def _example() -> tuple[Block, ...]:
    """Three tokens, the rows one by one and all at once."""
    q, k, v = (exact(_EXAMPLE[x]) for x in "qkv")
    whole = _CAUSAL(q, k, v)
    steps = []
    for n in range(q.shape[0]):
        row = Attention()(q[n : n + 1], k[: n + 1], v[: n + 1])
        formula = equals(name("o", n + 1, role="output"), entries(row[0, 0]))
        steps.append(hold(same(row[0], whole[n]), formula, f"one query, {n + 1} key{'s' * (n > 0)}", THIS))
    given = [equals(name(x.upper(), role=r), nt.matrix(_EXAMPLE[x])) for x, r in _roles()]
    words = (
        "With ",
        given[0],
        ", ",
        given[1],
        " and ",
        given[2],
        ", the rows one by one are those of causal attention:",
    )
    return Heading(("In numbers",)), Paragraph(words), together(steps)


def _roles() -> tuple[tuple[str, Any], ...]:
    return (("q", "query"), ("k", "key"), ("v", "value"))

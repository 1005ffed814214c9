"""``kv-cache``: with the keys and values of earlier tokens kept, a new token needs one row of attention."""

from __future__ import annotations

from typing import Any

from symattn.attention.spec import Attention
from symattn.derivations.exactly import entries, exact
from symattn.derivations.proving import hypotheses, known
from symattn.derivations.steps import FalseStep, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Column, Document, Heading, Paragraph, Table
from symattn.document.notation import Name, Node, equals, name, total
from symattn.document.text import text
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section
from symattn.theorems import streaming as theorems

_N, _T = Name("n"), Name("t")
_NEW = _N + 1
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
        hints=(
            "symattn derive online-softmax    the cache in tiles",
            "symattn derive gqa               a smaller cache",
        ),
    )


def _new_row(reader: Reader) -> Any:
    """The last row of causal attention over the cache and one more token."""
    q, k, v = (_with_new(reader, letter) for letter in ("Q", "K", "V"))
    return _CAUSAL(q, k, v)[reader.length("n") :][0, :]


def _with_new(reader: Reader, letter: str) -> Any:
    arrays, new = reader.arrays, text(name(letter.lower(), _NEW))
    return reader.xp.concat([arrays[letter], arrays[new][None, :]], axis=0)


def _section() -> Section:
    new = {text(name(x, _NEW)): size for x, size in (("q", "d_k"), ("k", "d_k"), ("v", "d_v"))}
    given = {"Q": "n d_k", "K": "n d_k", "V": "n d_v", **new}
    return Section(Glossary(given, defined={text(name("o", _NEW)): _new_row}, rows=True))


def _attention(q: Node, k: Node, v: Node) -> Node:
    return nt.call("Attention", q, k, v)


def _blocks() -> tuple[Block, ...]:
    step, prefix = known(theorems.kv_cache_step), known(theorems.causal_prefix_unchanged)
    chunk, section = known(theorems.chunked_prefill_bottom_right), _section()
    counted = Section(Glossary({"x": "n"}))
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
        *prefix.result(),
        prefix.wrong(),
        Heading(("The new row",)),
        together(section.claim(new_row, "the last token sees all keys, and its row needs no other query")),
        section.result("Result", new_row),
        step.wrong(),
        Paragraph(("No query is kept: query ", Name("i"), " is used in row ", Name("i"), " alone.")),
        Heading(("Several new tokens at once",)),
        *chunk.result(),
        chunk.wrong(),
        Heading(("What it saves",)),
        together(
            counted.claim(cached, ("with the cache row ", _T, " has ", _T, " scores; by induction")),
            counted.claim(again, "without, all rows again for each token"),
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

    def rows(reader: Reader) -> Any:
        q, k, v = (reader.arrays[letter][:, None] for letter in "QKV")
        return _CAUSAL(q, k, v)[:, 0]

    section = Section(Glossary(dict.fromkeys("QKV", "n"), defined={"O": rows}, example=True))
    q, k, v = (exact(_EXAMPLE[x]) for x in "qkv")
    given = [section.let(equals(name(x.upper(), role=r), nt.matrix(_EXAMPLE[x]))) for x, r in _roles()]
    words = (
        "With ",
        given[0],
        ", ",
        given[1],
        " and ",
        given[2],
        ", the rows one by one are those of causal attention:",
    )
    steps = []
    for n in range(q.shape[0]):
        row = Attention()(q[n : n + 1], k[: n + 1], v[: n + 1])
        formula = equals(name("o", n + 1, role="output"), entries(row[0, 0]))
        steps.append(section.claim(formula, f"one query, {n + 1} key{'s' * (n > 0)}"))
    return Heading(("In numbers",)), Paragraph(words), together(steps)


def _roles() -> tuple[tuple[str, Any], ...]:
    return (("q", "query"), ("k", "key"), ("v", "value"))

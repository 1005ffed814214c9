"""``explore``: a page on which readers edit the inputs of a walk, and every step is recomputed in exact numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from symattn.arrays.field.quotient import Quotient
from symattn.attention.letters_of_attention import D_K, SYMBOLS
from symattn.attention.spec import Attention
from symattn.derivations.sheets.sheet import Sheet
from symattn.derivations.walks import sheet_of, with_fields
from symattn.document.codec import command as command_of
from symattn.document.errors import InputError
from symattn.document.model import Block, Document, Heading, Note, Paragraph, Text
from symattn.document.notation import Node, Root, Transposed, call, equals

MOST = 6
"""The most rows and columns of a page to explore."""

_ARRAYS = ("x", "w_q", "w_k", "w_v")


@dataclass(frozen=True, repr=False)
class Exploration:
    """A page to explore: its initial state, by the names that its links use.

    ``command`` makes the same page; it is empty if none does, as for arrays and for fields given in Python.
    """

    command: str
    state: Mapping[str, str]
    document: Document

    def __repr__(self) -> str:
        return f"<page to explore {self.document.name!r}; .html(), .save(path)>"

    def html(self) -> str:
        """Return the page."""
        from symattn.document.render.html import render

        return render(
            self.document,
            state=self.state,
            script="scaling" if self.document.name == "scaling" else "explore",
        )

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page. Raises ``InputError`` for a file that symattn did not write unless ``force`` is true."""
        from symattn.document import files

        files.write(named(path), self.html(), force)


def named(path: str | Path) -> Path:
    """Return the path of a page. Raises ``InputError`` for a name that does not end as a page does."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{path} must end with .html")
    return Path(path)


def explore(
    source: str | PathLike[str] | Mapping[str, object] = "eight-step", **fields: object
) -> Exploration:
    """Return a page on which tokens and weights are edited in place, and every step is recomputed exactly.

    ``source`` and ``fields`` are those of ``walk``: tokens x with w_q, w_k and w_v of at most 6 rows and columns,
    one or two heads, scaled by 1/√d_k or not, causal or not. The source ``scaling`` shows instead how scores grow
    with d_k. Raises ``InputError`` for an example of another form.

    >>> explore("eight-step").state["w_k"]
    '0,0,1;1,1,0;0,1,0;1,1,0'
    """
    command = "" if fields or isinstance(source, Mapping) else command_of("explore", source)
    if source == "scaling":
        blocks = (
            Heading(("Scores",), lede=("The sum of more products spreads wider.",)),
            Heading(
                ("Weights of one row",),
                lede=("The larger the scores of a row, the more one key takes.",),
            ),
        )
        title: Text = ("Why attention divides by ", Root(D_K))
        document = Document("derivation", "scaling", title, blocks, ("explore",), command)
        return Exploration(command, {"d_k": "64"}, document)
    sheet = sheet_of(source)
    sheet = with_fields(sheet, fields) if fields else sheet
    return Exploration(
        command, _make_initial_page_state(sheet), _make_explore_document(sheet, command)
    )


def _make_initial_page_state(sheet: Sheet) -> dict[str, str]:
    """Return the page's initial state. Raises InputError if the sheet is too large for it, or of another form."""
    spec, inputs = sheet.attention, dict(sheet.inputs)
    if set(inputs) == {"x"}:  # without parameters: each token is its own query, key and value
        width = len(inputs["x"][0])
        one = [[Quotient.of(int(i == j)) for j in range(width)] for i in range(width)]
        inputs |= {"w_q": one, "w_k": one, "w_v": one}
    plain = Attention(
        heads=spec.heads, scale=spec.scale, causal=spec.causal, stabilised=spec.stabilised
    )
    rows = {
        name: inputs[name]
        for name in _ARRAYS
        if name in inputs and isinstance(inputs[name][0], list)
    }
    small = all(
        len(m) <= MOST and len(m[0]) <= MOST and not isinstance(m[0][0], list)
        for m in rows.values()
    )
    unscaled = spec.scale is None or spec.scale == 1
    fits = spec == plain and spec.heads <= 2 and unscaled
    if set(inputs) != set(_ARRAYS) or len(rows) < len(_ARRAYS) or not small or not fits:
        raise InputError(
            f"{sheet.name} cannot be explored; a page takes x, w_q, w_k and w_v of at most {MOST} rows and columns, "
            "one head or two, scale 1 or 1/√d_k, and a causal mask"
        )
    result = {
        name: ";".join(",".join(str(x.rational()) for x in row) for row in m)
        for name, m in rows.items()
    }
    if "None" in "".join(result.values()):
        raise InputError(f"{sheet.name} cannot be explored: its numbers are not all fractions")
    scale = "root" if spec.scale is None else "none"
    chosen = {"heads": str(spec.heads), "scale": scale, "causal": str(int(spec.causal))}
    return (
        result
        | chosen
        | {"words": ",".join(sheet.tokens or ()), "temperature": "1", "format": "float32"}
    )


def _make_explore_document(sheet: Sheet, command: str) -> Document:
    """Return the document whose sections the page fills."""
    names = ("x", "q", "k", "v", "scores", "scaled", "weights", "output")
    symbols = (SYMBOLS[n] for n in names)
    x, q, k, v, s, masked, a, o = symbols
    sections: list[tuple[str, str, tuple[Node, ...]]] = [
        ("Inputs", "Change any number: every step below follows, exactly.", ()),
        (
            "Keys, queries, values",
            "Each token's row is multiplied by each matrix.",
            tuple(equals(one, x * SYMBOLS[w]) for one, w in ((k, "w_k"), (q, "w_q"), (v, "w_v"))),
        ),
        (
            "Scores",
            "The score of a key is its dot product with the query; scale, temperature and mask follow.",
            (equals(s, q * Transposed(k)),),
        ),
        (
            "Weights",
            "Softmax makes a row of scores positive with sum 1.",
            (equals(a, call("softmax", masked)),),
        ),
        (
            "Output",
            "Each query's output is the mean of the values, by its weights.",
            (equals(o, a * v),),
        ),
    ]
    blocks: list[Block] = []
    for title, lede, formulas in sections:
        paragraphs = (Paragraph((f,)) for f in formulas)
        blocks += [Heading((title,), lede=(lede,)), *paragraphs]
    blocks[1:1] = [Note(text) for text in _NOTES]
    return Document("derivation", sheet.name, (sheet.title,), tuple(blocks), ("explore",), command)


_NOTES: tuple[Text, ...] = (
    (
        "Exact numbers are fractions of whole numbers and quotients of sums of powers of e; ",
        Root(D_K),
        " stays a root. Decimals are those numbers, correctly rounded.",
    ),
    (
        "In a floating format every operation is rounded to nearest, ties to even, and sums run from the first term to "
        "the last. A library's exponential and order may differ in the last place.",
    ),
    ("The address of the page holds what you have chosen; a link to it opens the same page.",),
)

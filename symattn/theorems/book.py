"""The book: all theorems as one volume."""

from __future__ import annotations

from collections.abc import Sequence

from symattn.document import model as md
from symattn.document.evidence import Grade
from symattn.document.model import Block, Code, Document, Emph
from symattn.proof.theorem import Theorem
from symattn.theorems.documents import Decided, blocks, closing, counts, record, titled

_SPELT = {
    "alibi": "ALiBi", "fp16": "float16", "gqa": "GQA", "kv": "key–value",
    "layernorm": "LayerNorm", "lse": "log-sum-exp", "mha": "multi-head attention", "mla": "MLA", "mqa": "MQA",
    "nan": "NaN", "nope": "NoPE", "qk": "query–key", "rmsnorm": "RMSNorm", "rope": "RoPE", "vjp": "backward pass",
    "bregman": "Bregman", "dobrushin": "Dobrushin", "gibbs": "Gibbs", "hopfield": "Hopfield", "jacobian": "Jacobian",
    "lipschitz": "Lipschitz", "hessian": "Hessian", "euclidean": "Euclidean",
}  # fmt: skip
"""Words of names that are written otherwise in a sentence."""


def book(decisions: Sequence[Decided], command: str) -> Document:
    """A chapter for each topic, a section for each theorem, and how to read them."""
    parts: list[Block] = [md.Contents(), *_reading(decisions)]
    for topic in dict.fromkeys(d.theorem.topic for d in decisions):
        chapter = [d for d in decisions if d.theorem.topic == topic]
        parts += [md.Heading((titled(topic),)), md.Paragraph((*counts(chapter), "."))]
        for d in chapter:
            parts += [
                md.Heading((title(d.theorem),), 2),
                *blocks(d),
                md.Paragraph((Emph("Name."), " ", Code(d.theorem.name), ".")),
            ]
    return Document(
        "proof",
        "book",
        ("Theorems about attention",),
        tuple(parts),
        counts(decisions),
        command,
        record=record(decisions),
    )


def title(theorem: Theorem) -> str:
    """The title of a theorem, or the words of its name: "My log-sum-exp lemma"."""
    words = theorem.title or " ".join(_SPELT.get(word, word) for word in theorem.name.split("-"))
    return words[:1].upper() + words[1:]


def _reading(results: Sequence[Decided]) -> tuple[Block, ...]:
    """Return the text of every section, the meaning of the grades, and how many theorems have each."""
    grades = [d.grade for d in results]
    words = (
        "Each section states a theorem, its hypotheses and why it holds, and says how that is known. The false variant"
        " is a statement much like it, which the same method must refute: a method that accepts everything shows"
        " nothing. Any section can be made again with "
    )
    rows = tuple(((Emph(g.value),), (g.means,), (str(grades.count(g)),)) for g in Grade if g in grades)
    columns = md.headers("grade", "how it is known", ">theorems")
    return (
        md.Heading(("How to read this book",)),
        md.Paragraph((words, Code("symattn prove NAME --explain"), ".")),
        md.Table(columns, rows),
        closing(results),
    )

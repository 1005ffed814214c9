"""Typeset the words of a statement for a document: displayed formulas, and typed letters as formulas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from symattn.document import model as md
from symattn.document.model import Block, Code, Document, Emph, Text
from symattn.document.notation import Neg, Node, Power, Product, Row, Words, name
from symattn.document.text import text

if TYPE_CHECKING:
    from symattn.proof.theorem import Theorem

_WORD = re.compile(r"(?:a|[a-z]{2,})(?=[ ,;.]|$)")
_FORMULA = re.compile(
    r"(?<![\w^])(?:(?P<base>[A-Za-zα-ωΔ])_(?P<sub>[A-Za-z]+)(?!\w)|e\^(?P<power>[A-Za-zα-ω](?!\w)|\{[-−]?[A-Za-zα-ωΔ]+\}))"
)
#: What stands before a statement that was not read.
INFORMAL = "Informal (not checked): "
_CONNECTING = 28  # characters between formulas that are displayed side by side


def stated(theorem: Theorem) -> Document:
    """Return the document of a theorem before it is decided, without a grade."""
    formulas, words = statement(theorem.says)
    blocks = (
        md.Result("Statement", formulas, (), words),
        *several("Hypotheses", "Hypothesis", theorem.hypotheses),
        *labelled("Why", theorem.why),
        *labelled("False variant", theorem.false_says),
        *labelled("Source", (theorem.source,)),
        md.Note(
            (
                "nothing is decided here; ",
                Code("symattn.prove"),
                " decides a theorem and its false variant.",
            )
        ),
    )
    return Document("listing", theorem.name, (Code(theorem.name),), blocks, (theorem.topic,))


def statement(words: Text) -> tuple[tuple[Node, ...], Text]:
    """Return a statement as displayed formulas and a remainder in words, or as running text."""
    if not words or not isinstance(words[0], Node):
        return (), opened(with_formulas(words))
    # A short text between formulas connects them, a long one makes it running text.
    parts: list[Node] = []
    for part in words:
        if isinstance(part, Node):
            parts.append(part)
        elif isinstance(part, str) and len(part) < _CONNECTING:
            parts += [Words(part.strip(" ,;:"))] if part.strip(" ,;:") else []
        else:
            return (), opened(with_formulas(words))
    content = parts[0] if len(parts) == 1 else Row(tuple(parts))
    return (content,), ()


def unread(words: Text) -> Text:
    """Return a statement that is not read at all, with its formulas as plain text."""
    shown = (text(part) if isinstance(part, Node) else part for part in words)
    return (INFORMAL, *shown)


def several(many: str, one: str, texts: Sequence[Text]) -> tuple[Block, ...]:
    """Return texts as a list under the label ``many``, or a single one under ``one``; () for none."""
    if len(texts) < 2:
        return labelled(one, texts[0]) if texts else ()
    heading = md.Paragraph((Emph(f"{many}."),))
    return heading, md.Items(tuple(map(with_formulas, texts)))


def labelled(label: str, words: Text) -> tuple[Block, ...]:
    """Return a paragraph that begins with its label; () for no words."""
    if not any(part != "" for part in words):
        return ()
    ends = isinstance(words[-1], str) and words[-1].endswith((".", "?"))
    end = "" if ends else "."
    content = opened(with_formulas(words))
    return (md.Paragraph((Emph(f"{label}."), " ", *content, end)),)


def opened(words: Text) -> Text:
    """Return words with a capital letter, unless they begin with a function or a formula."""
    opening = words[0] if words else ""
    if not isinstance(opening, str) or not _WORD.match(opening):
        return words
    return (opening[0].upper() + opening[1:], *words[1:])


def listed(formulas: Iterable[Node]) -> Text:
    """Return formulas separated by commas, as running text."""
    parts: list[Node | str] = []
    for formula in formulas:
        parts += [", ", formula]
    return tuple(parts[1:])


def with_formulas(words: Text) -> Text:
    """Return words with n_k, p_j and e^{-w} in them as formulas."""
    out: list[md.Inline] = []
    for part in words:
        if not isinstance(part, str):
            out.append(part)
            continue
        # Formulas within words are typed as n_k or p_j.
        end = 0
        for match in _FORMULA.finditer(part):
            out += [part[end : match.start()], _typeset_typed_letter(match)]
            end = match.end()
        out.append(part[end:])
    return tuple(p for p in out if p != "")


def _typeset_typed_letter(match: re.Match[str]) -> Node:
    if match["base"]:
        return name(match["base"], match["sub"])
    letters = [name(c) for c in match["power"].strip("{}").lstrip("-−")]
    power: Node = letters[0] if len(letters) == 1 else Product(tuple(letters))
    negative = match["power"].strip("{}")[0] in "-−"
    return Power(name("e"), Neg(power) if negative else power)

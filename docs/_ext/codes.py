"""Every code of a cause on one page, made from the registry, the rules and the corpus: ``{symattn-codes}``."""

from __future__ import annotations

from collections.abc import Iterator

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from symattn.document.render.common import plain_text
from symattn.faults.catalogue import (
    CodePage,
    explain_missing_input,
    heading,
    mended,
    page_of,
    shown_input,
)
from symattn.verification.codes import codes, lines_of


class Codes(SphinxDirective):
    """``{symattn-codes}``: a section for each step, and in it each code with an anchor of its name."""

    def run(self) -> list[nodes.Node]:
        steps = dict.fromkeys(lines_of(code)[0].step for code in codes())
        return [
            section(step, [c for c in codes() if lines_of(c)[0].step == step]) for step in steps
        ]


def section(step: str, of_step: list[str]) -> nodes.section:
    """The section of a step: each of its codes with an anchor, and an entry of the index."""
    result = nodes.section(ids=[f"codes-{step}"])
    result += nodes.title(text=heading(step))
    entries = nodes.definition_list()
    for page in map(page_of, of_step):
        index = addnodes.index(
            entries=[("single", page.code, page.code, "main", None)]
        )  # found first by the search
        term = nodes.term("", "", nodes.literal(text=page.code), ids=[page.code])
        entries += nodes.definition_list_item("", term, nodes.definition("", index, *_entry(page)))
    result += entries
    return result


def _entry(page: CodePage) -> Iterator[nodes.Node]:
    """What the code stands for, its smallest input, how to mend it, and where it was seen."""
    for sentence in page.sentences:
        yield _paragraph(sentence)
    if page.parameters:
        yield nodes.paragraph(text=f"Parameters: {', '.join(page.parameters)}.")
    if page.example is not None:
        spec = nodes.literal(text=page.example.specification)
        yield nodes.paragraph(
            "", "", nodes.Text("Smallest input found, for "), spec, nodes.Text(":")
        )
        yield nodes.literal_block(text=shown_input(page.example), language="text")
    else:
        yield nodes.paragraph(text=explain_missing_input(page.code))
    for words in mended(page):
        yield nodes.paragraph(text=f"It should be: {plain_text(words)}.")
    for report in page.reports:
        link = nodes.reference(
            "", f"{report.repository}#{report.number}", refuri=report.link, internal=False
        )
        yield nodes.paragraph("", "Seen: ", link, nodes.Text(f": {report.words}."))


def _paragraph(sentence: object) -> nodes.paragraph:
    result = nodes.paragraph()
    for is_name, words in sentence.parts:  # type: ignore[attr-defined]
        result += nodes.emphasis(text=f"⟨{words}⟩") if is_name else nodes.Text(words)
    return result


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("symattn-codes", Codes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

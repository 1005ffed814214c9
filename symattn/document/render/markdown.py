"""A document as GitHub-flavoured Markdown."""

from __future__ import annotations

import re

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.render import common
from symattn.document.render.tex_lines import Setter, centred, first_sides, sheet, step_rows
from symattn.document.tex import tex, words

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$])")
_STARTS_A_BLOCK = re.compile(r"^(\s*)([-+=]|\d+[.)])(?=\s|$)")
_LETTERED = {
    r"\, ": r"\thinspace ", r"\,": r"\thinspace ", r"\{": r"\lbrace ", r"\}": r"\rbrace ", "< ": r"\lt ", "> ": r"\gt ",
}  # fmt: skip
# Text that Markdown may still interpret between plain dollars: escaped punctuation, emphasis, HTML, table cells.
_NEEDS_TICKS = re.compile(r"\\[^A-Za-z]|[*<>|~`]|[^A-Za-z0-9]_|_[^A-Za-z0-9{]")

# GitHub scrolls wide formulas, so nothing is shrunk.
_SETTER = Setter(tex, lambda shown, room: shown, 46.0)


def render(document: md.Document) -> str:
    """Render the document as Markdown: formulas in ``math`` fences and dollars, without macros of our own."""
    parts = [common.comment(common.made(document.command))] + (
        ["# " + prose(document.title)] if document.title else []
    )
    if document.subtitle:
        parts.append(prose(document.subtitle))
    if document.verdict is not None:
        word = f"**{document.verdict.value.upper()}**"
        parts.append(f"{word}: {prose(document.reason)}." if document.reason else word)
    for block, number in common.numbered(document):
        headings = (heading for _, heading in common.headings(document))
        contents = ("  " * (h.level - 1) + f"- {prose(h.title)}" for h in headings)
        parts.append(
            "\n".join(contents)
            if isinstance(block, md.Contents)
            else _write_markdown_block(block, number)
        )
    ledger = common.ledger(document)
    grades = (f"{common.steps_are(n)} {escape(str(e))}." for e, n in ledger)
    parts.append(" ".join(grades))
    return "\n\n".join(p for p in parts if p) + "\n"


def prose(text: md.Text) -> str:
    """Return running text with every special character escaped."""
    joined = "".join(_write_markdown_inline(part) for part in text).strip()
    return _STARTS_A_BLOCK.sub(lambda m: m[1] + m[2][:-1] + "\\" + m[2][-1], joined)


def _write_markdown_inline(part: md.Inline) -> str:
    if isinstance(part, nt.Node):
        shown = tex(part, inline=True)
        for sign, command in _LETTERED.items():  # Markdown would take the signs for escapes or HTML
            shown = shown.replace(sign, command)
        shown = shown.rstrip()  # no space may stand before the closing dollar
        return f"$`{shown}`$" if _NEEDS_TICKS.search(shown) else f"${shown}$"
    if isinstance(part, md.Emph):
        return f"*{escape(part.text)}*"
    if not isinstance(part, md.Code):
        return escape(part)
    runs = re.findall("`+", part.text)
    fence = "`" * (max((len(run) for run in runs), default=0) + 1)
    space = " " if part.text[:1] == "`" or part.text[-1:] == "`" else ""
    return f"{fence}{space}{part.text}{space}{fence}"


def escape(text: str) -> str:
    """Escape words so that Markdown prints them verbatim."""
    return re.sub(r"&(?=#?\w+;)", r"\\&", _SPECIAL.sub(r"\\\1", text))


def _write_markdown_fence(body: str, language: str) -> str:
    runs = re.findall("`+", body)
    ticks = "`" * max(3, max((len(run) for run in runs), default=0) + 1)
    return f"{ticks}{language}\n{body}\n{ticks}"


def _quote_markdown_lines(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _write_markdown_block(block: md.Block, number: int) -> str:
    match block:
        case md.Heading():
            return "#" * (block.level + 1) + " " + prose(block.title)
        case md.Contents():
            return ""
        case md.Paragraph():
            return prose(block.text)
        case md.Assumptions():
            return "**Assumptions**\n\n" + "\n".join(
                _write_markdown_assumption(a) for a in block.items
            )
        case md.Steps():
            return _write_markdown_steps(block, number)
        case md.Result():
            return _write_markdown_result(block)
        case md.Table():
            return _write_markdown_table(block)
        case md.Values():
            return _write_markdown_values(block)
        case md.Caveat():
            return _quote_markdown_lines(f"**{escape(block.title)}.** {prose(block.text)}")
        case md.Note():
            return _quote_markdown_lines(f"**Note.** {prose(block.text)}")
        case md.Items():
            return "\n".join(f"- {prose(item)}" for item in block.items)
        case md.Listing():
            return _write_markdown_fence(block.text.rstrip("\n"), block.language)


def _write_markdown_assumption(item: md.Assumption) -> str:
    remark = f" ({prose(item.remark)})" if item.remark else ""
    return f"- **{escape(item.label)}** {prose(item.text)}{remark}"


def _write_markdown_steps(block: md.Steps, number: int) -> str:
    room = _SETTER.line - first_sides(block)
    rows = []
    before: md.Step | None = None
    for step, own in zip(block.items, common.numbers_of(block, number), strict=True):
        # The number stands beside the first row, the reason beside the last.
        first, *upper = step_rows(_SETTER, step, before, room)
        lines = [rf"\text{{({own})}}\quad && {first}", *(f"&& {row}" for row in upper)]
        grade = rf"\textit{{{step.evidence.grade.value}}}" if step.evidence else ""
        why = r" \enspace ".join(part for part in (reason_tex(step.reason), grade) if part)
        lines[-1] += rf" && \quad {why}" if why else ""
        rows += lines
        before = step
    body = " \\\\\n".join(rows)
    return _write_markdown_fence(f"\\begin{{aligned}}\n{body}\n\\end{{aligned}}", "math")


def reason_tex(reason: md.Text) -> str:
    """Return a reason within a formula: words as text, and formulas."""
    parts = (
        tex(p, inline=True)
        if isinstance(p, nt.Node)
        else words(p if isinstance(p, str) else p.text)
        for p in reason
    )
    return " ".join(part for part in parts if part)


def _write_markdown_result(block: md.Result) -> str:
    evidence = "; ".join(str(e) for e in block.evidence)
    grade = f" ({escape(evidence)})" if evidence else ""
    title = f"**{escape(block.title)}**" + grade
    fences = [_write_markdown_fence(centred(_SETTER, f), "math") for f in block.formulas]
    explanation = [prose(block.text)] if block.text else []
    return _quote_markdown_lines("\n\n".join([title, *explanation, *fences]))


def _write_markdown_table(block: md.Table) -> str:
    titles = [common.heading(c, prose) for c in block.columns]
    align = [{"left": ":--", "right": "--:", "centre": ":-:"}[c.align] for c in block.columns]
    rows = [
        [_write_markdown_cell(cell, i in block.shaded, j) for j, cell in enumerate(row)]
        for i, row in enumerate(block.rows)
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in (titles, align, *rows)]
    return "\n".join(lines) + (f"\n\n{prose(block.caption)}" if block.caption else "")


def _write_markdown_cell(cell: md.Text, shaded: bool, place: int) -> str:
    # a bar in code would end the cell
    shown = re.sub(r"(?<!\\)\|", r"\|", prose(cell).replace("\n", " "))
    return f"▸ {shown}" if shaded and place == 0 else shown


def _write_markdown_values(block: md.Values) -> str:
    grade = f" *{escape(str(block.evidence))}*" if block.evidence else ""
    reason = f" — {prose(block.reason)}" if block.reason else ""
    parts = [f"**{escape(block.name)}**{reason}{grade}"]
    for index, values in common.sheets(block):
        parts.append(
            _write_markdown_fence(
                sheet(_SETTER, values, common.indexed(block.symbol, index)), "math"
            )
        )
    return "\n\n".join(parts)

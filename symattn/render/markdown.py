"""A document as GitHub-flavoured Markdown."""

from __future__ import annotations

import re

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.tex import relation_sign, tex, words
from symattn.render.common import all_integers, as_rows, chain, indexed, ledger, made, numbered, sheets, steps_named

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$])")
_STARTS_A_BLOCK = re.compile(r"^(\s*)([-+=]|\d+[.)])(?=\s|$)")
# What Markdown may eat between plain dollars: escaped punctuation, emphasis, HTML, table cells.
_NEEDS_TICKS = re.compile(r"\\[^A-Za-z]|[*<>|~`]|[^A-Za-z0-9]_|_[^A-Za-z0-9{]")


def render(document: md.Document) -> str:
    """The document as Markdown: formulas in ``math`` fences and dollars, no macro of our own, no numbering."""
    parts = [f"<!-- {made(document).replace('-->', '--&gt;')} -->", "# " + prose(document.title)]
    if document.subtitle:
        parts.append(prose(document.subtitle))
    for block, number in numbered(document):
        parts.append(_block(block, number))
    parts += _evidence(document)
    if document.verdict is not None:
        parts.append(f"**Verdict: {document.verdict.value}.**")
    return "\n\n".join(p for p in parts if p) + "\n"


def prose(text: md.Text) -> str:
    """Running text, every special character escaped."""
    joined = "".join(_inline(part) for part in text).strip()
    return _STARTS_A_BLOCK.sub(lambda m: m[1] + m[2][:-1] + "\\" + m[2][-1], joined)


def _inline(part: md.Inline) -> str:
    if isinstance(part, nt.Node):
        shown = tex(part, inline=True)
        return f"$`{shown}`$" if _NEEDS_TICKS.search(shown) else f"${shown}$"
    if isinstance(part, md.Emph):
        return f"*{escape(part.text)}*"
    return _code(part.text) if isinstance(part, md.Code) else escape(part)


def escape(text: str) -> str:
    """Words that Markdown prints as they are."""
    return re.sub(r"&(?=#?\w+;)", r"\\&", _SPECIAL.sub(r"\\\1", text))


def _code(text: str) -> str:
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{space}{text}{space}{fence}"


def _fence(body: str, language: str) -> str:
    ticks = "`" * max(3, max((len(run) for run in re.findall("`+", body)), default=0) + 1)
    return f"{ticks}{language}\n{body}\n{ticks}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _block(block: md.Block, number: int) -> str:
    match block:
        case md.Heading():
            return "## " + prose(block.title)
        case md.Paragraph():
            return prose(block.text)
        case md.Assumptions():
            return "**Assumptions**\n\n" + "\n".join(_assumption(a) for a in block.items)
        case md.Steps():
            return _steps(block, number)
        case md.Result():
            return _result(block)
        case md.Table():
            return _table(block)
        case md.Values():
            return _values(block)
        case md.Caveat():
            return _quoted(f"**{escape(block.title)}.** {prose(block.text)}")
        case md.Note():
            return _quoted(f"**Note.** {prose(block.text)}")
        case md.Items():
            return "\n".join(f"- {prose(item)}" for item in block.items)
        case md.Listing():
            return _fence(block.text.rstrip("\n"), block.language)


def _assumption(item: md.Assumption) -> str:
    remark = f" ({prose(item.remark)})" if item.remark else ""
    return f"- **{escape(item.label)}** {prose(item.text)}{remark}"


def _steps(block: md.Steps, number: int) -> str:
    lines = []
    before: md.Step | None = None
    for i, step in enumerate(block.items):
        lines.append(_step(step, before, number + i))
        before = step
    body = " \\\\\n".join(lines)
    return _fence(f"\\begin{{aligned}}\n{body}\n\\end{{aligned}}", "math")


def _step(step: md.Step, before: md.Step | None, number: int) -> str:
    first, links, whole = chain(step, before)
    left = "" if first is None else tex(first)
    right = tex(whole) if whole is not None else " ".join(f"{relation_sign(s)} {_side(x)}" for s, x in links)
    reason = reason_tex(step.reason)
    grade = rf"\textit{{{step.evidence.grade.value}}}" if step.evidence else ""
    why = r" \quad ".join(part for part in (reason, grade) if part)
    return rf"\text{{({number})}}\quad & {left} & {right}" + (rf" && {why}" if why else "")


def _side(side: nt.Node) -> str:
    return rf"\left({tex(side)}\right)" if isinstance(side, (nt.Relation, nt.Row)) else tex(side)


def reason_tex(reason: md.Text) -> str:
    """A reason within a formula: words as text, formulas as they are."""
    parts = [tex(p, inline=True) if isinstance(p, nt.Node) else words(p if isinstance(p, str) else p.text) for p in reason]
    return " ".join(part for part in parts if part)


def _result(block: md.Result) -> str:
    evidence = "; ".join(str(e) for e in block.evidence)
    title = f"**{escape(block.title)}**" + (f" ({escape(evidence)})" if evidence else "")
    fences = [_fence(tex(f), "math") for f in block.formulas]
    return _quoted("\n\n".join([title, *fences]))


def _table(block: md.Table) -> str:
    titles = [_column(c) for c in block.columns]
    align = [{"left": ":--", "right": "--:", "centre": ":-:"}[c.align] for c in block.columns]
    rows = [[_cell(cell, i in block.shaded, j) for j, cell in enumerate(row)] for i, row in enumerate(block.rows)]
    lines = ["| " + " | ".join(cells) + " |" for cells in (titles, align, *rows)]
    return "\n".join(lines) + (f"\n\n{prose(block.caption)}" if block.caption else "")


def _column(column: md.Column) -> str:
    group = prose(column.group)
    return f"{group}: {prose(column.title)}" if group else prose(column.title)


def _cell(cell: md.Text, shaded: bool, place: int) -> str:
    shown = prose(cell).replace("\n", " ")
    return f"▸ {shown}" if shaded and place == 0 else shown


def _values(block: md.Values) -> str:
    grade = f" *{escape(str(block.evidence))}*" if block.evidence else ""
    reason = f" — {prose(block.reason)}" if block.reason else ""
    parts = [f"**{escape(block.name)}**{reason}{grade}"]
    for index, sheet in sheets(block):
        parts.append(_fence(_sheet(sheet, indexed(block.symbol, index)), "math"))
    return "\n\n".join(parts)


def _sheet(sheet: md.Values, symbol: nt.Node) -> str:
    lines = [f"{tex(symbol)} &= {entries_tex(sheet.exact)}"]
    if not all_integers(sheet.exact):
        lines.append(rf"&\approx {entries_tex(sheet.decimal)}")
    lines += [rf"{words(label)} &: {entries_tex(other)}" for label, other in sheet.others.items()]
    body = " \\\\\n".join(lines)
    return f"\\begin{{aligned}}\n{body}\n\\end{{aligned}}"


def entries_tex(entries: object) -> str:
    """A number, vector or matrix of nodes or digits."""
    rows = [[x if isinstance(x, nt.Node) else nt.Decimal(str(x)) for x in row] for row in as_rows(entries)]
    return tex(rows[0][0]) if not isinstance(entries, (tuple, list)) else tex(nt.matrix(rows))


def _evidence(document: md.Document) -> list[str]:
    found = [f"- {steps_named(numbers)}: {escape(str(e))}" for e, numbers in ledger(document)]
    return ["**How the steps are known**\n\n" + "\n".join(found)] if found else []

"""A document as a page of HTML: nothing is loaded, formulas are MathML, and without its script nothing is missing."""

from __future__ import annotations

import hashlib
from html import escape
from itertools import count
from typing import Any

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.measure import width
from symattn.document.tex import tex
from symattn.evidence import Evidence, Grade
from symattn.render.common import (
    all_integers,
    chain,
    comment,
    headings,
    indexed,
    ledger,
    made,
    numbered,
    packed,
    plain_text,
    runs,
    sheets,
    steps_are,
)
from symattn.render.html_style import SCRIPT, STYLE
from symattn.render.mathml import link, mathml, show
from symattn.render.tex_lines import entries

_LINE = 44.0  # em of a formula, beyond which its sides stand under each other
_MARKS = {
    Grade.COQ: "∎", Grade.PROVED: "∎", Grade.ARGUED: "∴", Grade.CHECKED: "✓", Grade.TESTED: "✓", Grade.ENCLOSED: "✓",
    Grade.SAMPLED: "≈", Grade.REFUTED: "✗", Grade.UNDECIDED: "?",
}  # fmt: skip


def render(document: md.Document, *, fragment: bool = False, shown: int = 0) -> str:
    """The document as a whole page, or as a ``fragment``: one element that brings its own style.

    ``shown`` tells the same document apart from others of it in one page, by the names within it.
    """
    mark = comment(made(document.command))
    tag, kind = ("article", "symattn") if document.title else ("div", "symattn bare")
    inner = f'<style>{STYLE}</style>\n<{tag} class="{kind}">\n{body(document, shown)}\n</{tag}>\n'
    if fragment:
        return f"{mark}\n{inner}"
    return page(document.command, document.title or (document.name,), inner)


def page(command: str, title: md.Text, inside: str, *, head: str = "", script: str = SCRIPT) -> str:
    """A whole page around what is ``inside``; ``head`` is added to its head, and ``script`` runs at its end."""
    view = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    top = f'<html lang="en"><head>{view}<title>{escape(plain_text(title))}</title>{head}</head>'
    made_by = f"{comment(made(command))}\n<!doctype html>"
    return f'{made_by}\n{top}\n<body class="symattn-page">\n{inside}<script>{script}</script>\n</body></html>\n'


def body(document: md.Document, shown: int = 0, *, titled: bool = True) -> str:
    """What is within the article: blocks and foot, under the title unless the page has its own."""
    return _Writer(document, shown).body(titled)


class _Writer:
    """The blocks of one document; what has a name within the page has that of the document in it."""

    def __init__(self, document: md.Document, shown: int) -> None:
        self.document = document
        told = f"{document.kind} {document.name} {document.command}{f' {shown}' if shown else ''}".encode()
        self.prefix = "s" + hashlib.sha256(told).hexdigest()[:8]
        self.counter = count(1)
        self.sections = iter(headings(document))

    def body(self, titled: bool) -> str:
        found = [self.head(titled)]
        opened: list[int] = []  # the levels of the headings whose parts are not closed
        for block, number in numbered(self.document):
            if isinstance(block, md.Heading):
                while opened and opened[-1] >= block.level:
                    found.append("</details>")
                    opened.pop()
                found.append(self.heading(block))
                opened.append(block.level)
            else:
                found.append(self.block(block, number))
        found += ["</details>"] * len(opened) + [self.foot()]
        return "\n".join(part for part in found if part)

    def head(self, titled: bool) -> str:
        title = f"<h1>{prose(self.document.title)}</h1>" if titled and self.document.title else ""
        below = f"<p>{prose(self.document.subtitle)}</p>" if self.document.subtitle else ""
        return f"<header>{title}{below}</header>" if title or below else ""

    def heading(self, block: md.Heading) -> str:
        number, _ = next(self.sections)
        tag = f"h{block.level + 1}"
        place = f'<{tag} id="{self.prefix}-{number}">{prose(block.title)}</{tag}>'
        return f"<details open><summary>{place}</summary>"

    def foot(self) -> str:
        found = [f"<p>{steps_are(numbers)} {escape(str(e))}.</p>" for e, numbers in ledger(self.document)]
        if self.document.verdict is not None:
            found.append(f'<p class="verdict">{escape(self.document.verdict.value)}</p>')
        if self.document.command:
            found.append(f"<p>Made with symattn: <code>{escape(self.document.command)}</code></p>")
        return f"<footer>{''.join(found)}</footer>" if found else ""

    def block(self, block: md.Block, number: int) -> str:
        match block:
            case md.Contents():
                return self.contents()
            case md.Paragraph():
                return f"<p>{prose(block.text)}</p>"
            case md.Assumptions():
                return f"<dl>{''.join(map(_assumption, block.items))}</dl>"
            case md.Steps():
                return _steps(block, number)
            case md.Result():
                return _result(block)
            case md.Table():
                return _table(block)
            case md.Values():
                return self.values(block)
            case md.Caveat():
                return f"<aside><b>{escape(block.title)}.</b> {prose(block.text)}</aside>"
            case md.Note():
                return f"<aside><b>Note.</b> {prose(block.text)}</aside>"
            case md.Items():
                return f"<ul>{''.join(f'<li>{prose(item)}</li>' for item in block.items)}</ul>"
            case md.Listing():
                return f"<pre><code>{escape(block.text.rstrip())}</code></pre>"
        return ""

    def contents(self) -> str:
        items = (f'<li><a href="#{self.prefix}-{n}">{n} {prose(h.title)}</a></li>' for n, h in headings(self.document))
        return f"<nav><ol>{''.join(items)}</ol></nav>"

    def values(self, block: md.Values) -> str:
        """The array in its forms; which is seen is chosen by buttons that need no script."""
        head = f"<b>{escape(block.name)}</b> {prose(block.reason)}{_grade(block.evidence)}"
        shown = "".join(self.sheet(sheet, indexed(block.symbol, index)) for index, sheet in sheets(block))
        return f"<figure><figcaption>{head}</figcaption>{shown}</figure>"

    def sheet(self, values: md.Values, symbol: nt.Node) -> str:
        forms = {"exact": values.exact}
        if not all_integers(values.exact):
            forms["decimal"] = values.decimal
        forms |= values.others
        group = f"{self.prefix}-{next(self.counter)}"
        buttons, shown = "", ""
        for i, (name, array) in enumerate(forms.items()):
            sign = "=" if i == 0 else "≈" if name == "decimal" else ""
            tick = " checked" if i == 0 else ""
            if len(forms) > 1:
                buttons += f'<input type="radio" name="{group}" id="{group}-{i}"{tick}>'
                buttons += f'<label for="{group}-{i}">{escape(name)}</label>'
            shown += f'<div class="form wide">{_array(symbol, sign, array)}</div>'
        return f'<div class="forms">{buttons}{shown}</div>'


def _array(symbol: nt.Node, sign: str, array: Any) -> str:
    """symbol = entries; the numbers of a matrix stand under each other."""
    tail = link(sign, entries(array)) if sign else f'<mspace width=".6em"/>{show(entries(array), False)}'
    return f'<math display="block"><mrow>{show(symbol, False)}{tail}</mrow></math>'


# -- text --------------------------------------------------------------------------------------------------------------
def prose(text: md.Text) -> str:
    """Running text."""
    return "".join(map(_inline, text)).strip()


def _inline(part: md.Inline) -> str:
    if isinstance(part, nt.Node):
        return mathml(part, inline=True)
    if isinstance(part, md.Emph):
        return f"<em>{escape(part.text)}</em>"
    return f"<code>{escape(part.text)}</code>" if isinstance(part, md.Code) else escape(part)


def _assumption(item: md.Assumption) -> str:
    remark = f" ({prose(item.remark)})" if item.remark else ""
    return f"<dt>{escape(item.label)}</dt><dd>{prose(item.text)}{remark}</dd>"


def _grade(evidence: Evidence | None) -> str:
    """The grade, which opens to what it means and where it holds."""
    if evidence is None:
        return ""
    grade = evidence.grade
    inside = f"{grade.means}{'; ' + escape(evidence.where) if evidence.where else ''}"
    word = escape(str(Evidence(grade, "", evidence.epsilon)))
    return f' <details class="grade"><summary>{_MARKS[grade]} {word}</summary><span>{inside}</span></details>'


# -- formulas ----------------------------------------------------------------------------------------------------------
def _steps(block: md.Steps, number: int) -> str:
    rows, before = "", None
    span = 2 if any(isinstance(step.formula, nt.Relation) for step in block.items) else 1
    for i, step in enumerate(block.items):
        why = prose(step.reason) + _grade(step.evidence)
        source = escape(tex(step.formula), quote=True)
        rows += f'<tr data-tex="{source}"><td>({number + i})</td>{_cells(step, before, span)}<td>{why}</td></tr>'
        before = step
    return f'<div class="wide"><table class="steps">{rows}</table></div>'


def _cells(step: md.Step, before: md.Step | None, span: int = 2) -> str:
    """The first side, and what follows it; sides that are too long for one line stand under each other.

    A formula without sides takes the columns of both, ``span``: one where no step beside it has sides.
    """
    first, links, whole = chain(step, before)
    if whole is not None:
        parts = packed(whole, lambda r: width(r) <= _LINE) if isinstance(whole, nt.Row) else [whole]
        return f'<td colspan="{span}">{"".join(map(mathml, parts))}</td>'
    head = "" if first is None else mathml(first)
    sides = [f"<mrow>{link(sign, side)}</mrow>" for sign, side in links]
    if sum(width(side) + 1.4 for _, side in links) <= _LINE:
        sides = ["".join(sides)]
    return f"<td>{head}</td><td>{''.join(map(_display, sides))}</td>"


def _display(inner: str) -> str:
    return f'<math display="block">{inner}</math>'


def _result(block: md.Result) -> str:
    grades = "".join(map(_grade, block.evidence))
    text = f"<p>{prose(block.text)}</p>" if block.text else ""
    shown = "".join(
        f'<div class="wide" data-tex="{escape(tex(f), quote=True)}">{_lines(f)}</div>' for f in block.formulas
    )
    return f'<div class="result"><div><b>{escape(block.title)}</b>{grades}</div>{text}{shown}</div>'


def _lines(formula: nt.Node) -> str:
    """A formula of its own, broken where it is too long."""
    if width(formula) <= _LINE:
        return mathml(formula)
    if isinstance(formula, nt.Row):
        return "".join(map(mathml, packed(formula, lambda r: width(r) <= _LINE)))
    return f'<table class="steps"><tr>{_cells(md.Step(formula), None)}</tr></table>'


# -- tables ------------------------------------------------------------------------------------------------------------
def _table(block: md.Table) -> str:
    above = ""
    if any(column.group for column in block.columns):
        groups = (f'<th colspan="{end - start}" class="centre">{prose(g)}</th>' for g, start, end in runs(block))
        above = f"<tr>{''.join(groups)}</tr>"
    titles = "".join(f'<th class="{c.align}">{prose(c.title)}</th>' for c in block.columns)
    rows = "".join(_tr(block, i, row) for i, row in enumerate(block.rows))
    caption = f"<caption>{prose(block.caption)}</caption>" if block.caption else ""
    head = f"{caption}<thead>{above}<tr>{titles}</tr></thead>"
    return f'<div class="wide"><table class="data">{head}<tbody>{rows}</tbody></table></div>'


def _tr(block: md.Table, number: int, row: tuple[md.Text, ...]) -> str:
    cells = "".join(f'<td class="{c.align}">{prose(x)}</td>' for c, x in zip(block.columns, row, strict=True))
    return f"<tr{' class=shaded' if number in block.shaded else ''}>{cells}</tr>"

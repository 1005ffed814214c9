"""A document as a page of HTML: nothing is loaded, formulas are MathML, and the page is complete without its script.

All documents have the same layout: a bar with the numbers and titles of sections, formulas and arrays in the main
column, and reasons, remarks and grades in the margin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from html import escape
from itertools import count

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade
from symattn.document.measure import width
from symattn.document.render import common
from symattn.document.render.html_arrays import array_of, attributes_of, cells_of, heat
from symattn.document.render.html_style import MATHEMATICS, STYLE, WHOLE, read
from symattn.document.render.mathml import link, mathml
from symattn.document.tex import tex
from symattn.document.text import text as plain

_LINE = 44.0  # em of a formula; the sides of a longer one are printed one below the other
_BAR = 12  # the most sections whose titles are shown in a bar
_MARKS = {
    Grade.COQ: "∎",
    Grade.PROVED: "∎",
    Grade.ARGUED: "∴",
    Grade.CHECKED: "✓",
    Grade.TESTED: "✓",
    Grade.SEARCHED: "≈",
    Grade.ENCLOSED: "✓",
    Grade.SAMPLED: "≈",
    Grade.REFUTED: "✗",
    Grade.UNDECIDED: "?",
}
_FORMS = {"printed": "as printed"}
_SCRIPTS = {"explore": ("exact", "steps", "explore"), "scaling": ("exact", "scaling")}
_WITH_MARGIN = ("walk", "derivation", "proof")


def render(
    document: md.Document,
    *,
    fragment: bool = False,
    shown: int = 0,
    state: Mapping[str, str] | None = None,
    script: str = "",
) -> str:
    """Render the document as a whole page, or as a ``fragment``: one element with its own style.

    ``shown`` distinguishes the names of several copies of a document within one page. A page that computes runs the
    ``script`` of that name, from its ``state``.
    """
    mark = common.comment(common.made(document.command))
    # A page that computes has blocks of its own.
    document = (
        document if document.page is None else replace(document, blocks=document.page(), page=None)
    )
    written = _Writer(document, shown, fragment)
    tag = "article" if document.title else "div"
    result = "" if state is None else f' data-state="{escape(json.dumps(state), quote=True)}"'
    classes = " ".join(written.classes())
    inner = f'<{tag} class="{classes}"{result}>\n{written.body()}\n</{tag}>\n'
    if fragment:
        return f"{mark}\n<style>{STYLE}</style>\n{inner}"
    scripts = (*_SCRIPTS[script], "page") if script else ("page",)
    return _write_html_page(document.command, document.title or (document.name,), inner, scripts)


def _write_html_page(command: str, title: md.Text, inside: str, scripts: Collection[str]) -> str:
    """Return a whole page around ``inside``; the scripts run at its end."""
    view = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    )
    # scripts that compute write formulas
    formulas = MATHEMATICS if "<math" in inside or len(scripts) > 1 else ""
    style = f"<style>{STYLE}\n{WHOLE}{formulas}</style>"
    top = f'<html lang="en"><head>{view}<title>{escape(common.plain_text(title))}</title>{style}</head>'
    sources = ((name, read(f"{name}.js")) for name in scripts)
    run = "".join(f'<script data-part="{name}">{source}</script>' for name, source in sources)
    made_by = f"{common.comment(common.made(command))}\n<!doctype html>"
    return f'{made_by}\n{top}\n<body class="symattn-page">\n{inside}{run}\n</body></html>\n'


class _Writer:
    """A writer of one document; names within the page start with a prefix of the document."""

    def __init__(self, document: md.Document, shown: int, fragment: bool) -> None:
        self.document = document
        options = f" {shown}" if shown else ""
        outcome_words = f"{document.kind} {document.name} {document.command}{options}"
        outcome = outcome_words.encode()
        # Documents within one page must not share names.
        self.prefix = "s" + hashlib.sha256(outcome).hexdigest()[:8]
        self.counter = count(1)
        self.margin = document.kind in _WITH_MARGIN and bool(document.title)
        result = common.headings(document)
        self.titles = [(n, h) for n, h in result if h.level == 1]
        self.bar = not fragment and 2 <= len(self.titles) <= _BAR
        self.numbers = iter(result)

    def classes(self) -> list[str]:
        """Return the classes of the whole; ``one``: walks show one step at a time."""
        if not self.document.title:
            return ["symattn", "bare"]
        stepwise = self.bar and self.document.kind == "walk"
        return ["symattn", *([] if self.bar else ["alone"]), *(["one"] if stepwise else [])]

    def body(self) -> str:
        result = [self.head(), self.verdict()]
        for blocks in self.sections():
            inside = self.section(blocks)
            first = blocks[0][0]
            titled = isinstance(first, md.Heading) and first.level == 1
            tag, name = ("section", f' id="{self.place(first)}"') if titled else ("div", "")
            result.append(f'<{tag} class="step"{name}>{inside}</{tag}>')
        return "\n".join(part for part in (*result, self.foot()) if part)

    def verdict(self) -> str:
        """Return the line of the verdict and its reason; "" if the document has no verdict."""
        words = common.verdict(self.document)
        return f'<p class="verdict">{prose(words)}</p>' if words else ""

    def sections(self) -> list[list[tuple[md.Block, int]]]:
        """Return the blocks with their numbers, split before each heading of level 1; on pages that show one step at a
        time, paragraphs before the first become remarks on it."""
        result: list[list[tuple[md.Block, int]]] = [[]]
        for block, number in common.numbered(self.document):
            if isinstance(block, md.Heading) and block.level == 1:
                result.append([])
            result[-1].append((block, number))
        if "one" in self.classes() and len(result) > 1:
            # What stands before the first step is a remark on it.
            opening = result[0]
            first = [(md.Note(b.text) if isinstance(b, md.Paragraph) else b, n) for b, n in opening]
            second = result[1]
            result[:2] = [[second[0], *first, *second[1:]]]
        return [section for section in result if section]

    def place(self, heading: md.Block) -> str:
        """Return the name of a section within the page: ``step-5`` in a whole page."""
        number = next(n for n, h in self.titles if h is heading)
        return f"step-{number}" if self.bar else f"{self.prefix}-{number}"

    def head(self) -> str:
        title = f"<h1>{prose(self.document.title)}</h1>" if self.document.title else ""
        below = f"<span>{prose(self.document.subtitle)}</span>" if self.document.subtitle else ""
        items = (
            f'<li><a href="#{self.place(h)}">{n}<span class="nm"> {prose(h.title)}</span></a></li>'
            for n, h in self.titles
        )
        bar = (
            f'<nav class="steps" aria-label="sections"><ol>{"".join(items)}</ol></nav>'
            if self.bar
            else ""
        )
        return f"<header><div>{title}{below}</div>{bar}</header>" if title or below else ""

    def section(self, blocks: list[tuple[md.Block, int]]) -> str:
        """Return runs of blocks with their margins; each line of a derivation has its own."""
        result: list[str] = []
        main: list[str] = []
        side: list[str] = []
        grades: dict[Evidence, list[str]] = {}

        # A margin ends where the next block has one of its own.
        def flush() -> None:
            side.extend(
                _write_html_grade(evidence, ": " + ", ".join(dict.fromkeys(of)))
                for evidence, of in grades.items()
            )
            result.extend([f'<div class="sa-main">{_in_rows(main)}</div>'] if main or side else [])
            result.extend([f'<div class="sa-side">{"".join(side)}</div>'] if side else [])
            for part in (main, side, grades):
                part.clear()

        for block, number in blocks:
            if isinstance(block, md.Steps):
                flush()
                result.append(_lines_of(block, number))
            elif isinstance(block, md.Note) and self.margin:
                side.append(f"<aside>{prose(block.text)}</aside>")
            else:
                main.append(self.block(block))
                self.graded(block, grades)
        flush()
        return "".join(result)

    def graded(self, block: md.Block, grades: dict[Evidence, list[str]]) -> None:
        """Add the grade of an array, with its name, to ``grades`` if they are printed in the margin."""
        if self.margin and isinstance(block, md.Values) and block.evidence:
            heading = block.title or block.name
            grades.setdefault(block.evidence, []).append(heading.lower())

    def heading(self, block: md.Heading) -> str:
        number, _ = next(self.numbers)
        shown = f'<span class="no">{number}</span>{prose(block.title)}'
        if block.level == 2:
            return f'<h3 id="{self.prefix}-{number}">{shown}</h3>'
        return f"<h2>{shown}</h2>" + (
            f'<p class="lede">{prose(block.lede)}</p>' if block.lede else ""
        )

    def foot(self) -> str:
        result = [
            f"<p>{common.steps_are(numbers)} {escape(str(e))}.</p>"
            for e, numbers in common.ledger(self.document)
        ]
        if self.document.command:
            result.append(f"<p>Made with symattn: <code>{escape(self.document.command)}</code></p>")
        return f"<footer>{''.join(result)}</footer>" if result else ""

    def block(self, block: md.Block) -> str:
        match block:
            case md.Heading():
                return self.heading(block)
            case md.Contents():
                return "" if self.bar else self.contents()
            case md.Paragraph(text=(nt.Node() as formula,)):
                return f'<div class="formula" data-tex="{escape(tex(formula), quote=True)}">{mathml(formula)}</div>'
            case md.Paragraph():
                return f"<p>{prose(block.text)}</p>"
            case md.Assumptions():
                return f"<dl>{''.join(map(_write_html_assumption, block.items))}</dl>"
            case md.Result():
                return _write_html_result(block)
            case md.Table():
                return _write_html_table(block)
            case md.Heat():
                return heat(block)
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
        items = (
            f'<li><a href="#{self.prefix}-{n}">{n} {prose(h.title)}</a></li>'
            for n, h in common.headings(self.document)
        )
        return f"<nav><ol>{''.join(items)}</ol></nav>"

    # -- arrays --------------------------------------------------------------------------------------------------------
    def values(self, block: md.Values) -> str:
        """Return the array in its forms, with buttons that choose one without a script."""
        title = escape(block.title or block.name)
        reason = f" · {prose(block.reason)}" if block.reason else ""
        grade = "" if self.margin or not block.evidence else _write_html_grade(block.evidence)
        caption = f"{title}{reason}{grade}"
        shown = "".join(
            self.sheet(sheet, common.indexed(block.symbol, index), self.origin(block, index))
            for index, sheet in common.sheets(block)
        )
        of, attributes = block.origin, attributes_of(block)
        large = ' class="large"' if of and not of.rule and common.all_integers(block.exact) else ""
        return f"<figure{large}{attributes}><figcaption>{caption}</figcaption>{shown}</figure>"

    @staticmethod
    def origin(block: md.Values, index: tuple[int, ...]) -> md.Origin | None:
        """Return the origin of the entries of one sheet."""
        if block.origin is None:
            return None
        places, letters = block.origin.places, block.origin.letters
        for i in index:
            places, letters = places[i - 1], letters[i - 1]
        return replace(block.origin, places=places, letters=letters)

    def sheet(self, values: md.Values, symbol: nt.Node, origin: md.Origin | None) -> str:
        forms = {"exact": values.exact}
        if not common.all_integers(values.exact):
            forms["decimal"] = values.decimal
        forms |= {_FORMS.get(label, label): array for label, array in values.others.items()}
        group = f"{self.prefix}-{next(self.counter)}"
        buttons, shown = "", ""
        cells = cells_of(origin, values) if origin else None
        # Numbers by which a script finds entries belong to the first form alone.
        named = [[x.partition(" data-n=")[0] for x in row] for row in cells] if cells else None
        for i, (name, array) in enumerate(forms.items()):
            sign = "=" if i == 0 else "≈" if name == "decimal" else ""
            caption = ""
            if len(forms) > 1:
                tick = " checked" if i == 0 else ""
                which = f'name="{group}" id="{group}-{i}" data-form="{escape(name, quote=True)}"'
                buttons += f'<input type="radio" {which}{tick}>'
                buttons += f'<label for="{group}-{i}">{escape(name)}</label>'
                caption = f'<span class="said">{escape(name)}</span>'
            roomy = " roomy" if i == 0 and len(forms) > 1 else ""
            inner = array_of(
                symbol, sign, array, values.factors if i == 0 else (), cells if i == 0 else named
            )
            shown += f'<div class="form wide{roomy}">{caption}{inner}</div>'
        return f'<div class="forms">{buttons}{shown}</div>'


def _in_rows(parts: list[str]) -> str:
    """Join parts; consecutive arrays are placed side by side if there is room."""
    result, row = "", ""
    for part in [*parts, ""]:
        if part.startswith("<figure"):
            row += part
            continue
        # One array alone needs no row.
        result += f'<div class="row">{row}</div>' if row.count("<figure") > 1 else row
        result, row = result + part, ""
    return result


# -- text --------------------------------------------------------------------------------------------------------------
def prose(text: md.Text) -> str:
    """Return running text as HTML."""
    return "".join(map(_write_html_inline, text)).strip()


def _write_html_inline(part: md.Inline) -> str:
    if isinstance(part, nt.Node):
        return mathml(part, inline=True)
    if isinstance(part, md.Emph):
        return f"<em>{escape(part.text)}</em>"
    if isinstance(part, md.Code):
        return f"<code>{escape(part.text)}</code>"
    return escape(part)


def _write_html_assumption(item: md.Assumption) -> str:
    remark = f" ({prose(item.remark)})" if item.remark else ""
    return f"<dt>{escape(item.label)}</dt><dd>{prose(item.text)}{remark}</dd>"


def _write_html_grade(evidence: Evidence | None, of: str = "") -> str:
    """Return the grade and what it is ``of``; it opens to show its meaning and where it holds."""
    if evidence is None:
        return ""
    grade = evidence.grade
    inside = f"{grade.means}{'; ' + escape(evidence.where) if evidence.where else ''}"
    word = escape(str(Evidence(grade, "", evidence.epsilon)))
    summary = f"<summary>{_MARKS[grade]} {word}{escape(of)}</summary>"
    return f' <details class="grade">{summary}<span>{inside}</span></details>'


# -- formulas ----------------------------------------------------------------------------------------------------------
def _lines_of(block: md.Steps, number: int) -> str:
    """Return the lines of a derivation, aligned at their signs, each with its reason and grade in the margin."""
    lines, before = "", None
    for step, own in zip(block.items, common.numbers_of(block, number), strict=True):
        why = (
            f'<div class="sa-side why">{prose(step.reason)}{_write_html_grade(step.evidence)}</div>'
        )
        source = escape(tex(step.formula), quote=True)
        head = f'<span class="n">({own})</span>'
        lines += f'<div class="line" data-tex="{source}">{head}{_write_html_sides(step, before)}{why}</div>'
        before = step
    return f'<div class="lines">{lines}</div>'


def _write_html_sides(step: md.Step, before: md.Step | None) -> str:
    """Return the first side and the others, one below the other if they are too long for one line."""
    first, links, whole = common.chain(step, before)
    if whole is not None:
        parts = (
            common.packed(whole, lambda r: width(r) <= _LINE)
            if isinstance(whole, nt.Row)
            else [whole]
        )
        return f'<div class="whole">{"".join(map(mathml, parts))}</div>'
    head = "" if first is None else mathml(first)
    sides = [(f"<mrow>{link(sign, side)}</mrow>", f"{sign} {plain(side)}") for sign, side in links]
    # If all sides fit, they stand on one line.
    if sum(width(side) + 1.4 for _, side in links) <= _LINE:
        sides = [
            (
                f"<mrow>{''.join(shown for shown, _ in sides)}</mrow>",
                " ".join(alt for _, alt in sides),
            )
        ]
    rest = "".join(
        f'<math display="block" alttext="{escape(alt, quote=True)}">{inner}</math>'
        for inner, alt in sides
    )
    return f'<div class="first">{head}</div><div class="rest">{rest}</div>'


def _write_html_result(block: md.Result) -> str:
    grades = "".join(map(_write_html_grade, block.evidence))
    text = f"<p>{prose(block.text)}</p>" if block.text else ""
    shown = "".join(
        f'<div class="wide" data-tex="{escape(tex(f), quote=True)}">{_write_html_formula_lines(f)}</div>'
        for f in block.formulas
    )
    title = block.title[:1].upper() + block.title[1:]
    return f'<div class="result"><div><b>{escape(title)}</b>{grades}</div>{text}{shown}</div>'


def _write_html_formula_lines(formula: nt.Node) -> str:
    """Return a displayed formula, broken if it is too long."""
    if width(formula) <= _LINE:
        return mathml(formula)
    if isinstance(formula, nt.Row):
        return "".join(map(mathml, common.packed(formula, lambda r: width(r) <= _LINE)))
    return f'<div class="lines"><div class="line">{_write_html_sides(md.Step(formula), None)}</div></div>'


# -- tables ------------------------------------------------------------------------------------------------------------
def _write_html_table(block: md.Table) -> str:
    above = ""
    # A row of groups, if there are groups.
    if any(column.group for column in block.columns):
        groups = (
            f'<th colspan="{end - start}" class="centre">{prose(g)}</th>'
            for g, start, end in common.runs(block)
        )
        above = f"<tr>{''.join(groups)}</tr>"
    cells = (f'<th class="{c.align}">{prose(c.title)}</th>' for c in block.columns)
    titles = "".join(cells)
    numbered = enumerate(block.rows)
    rows = "".join(_write_html_table_row(block, i, row) for i, row in numbered)
    caption = f"<caption>{prose(block.caption)}</caption>" if block.caption else ""
    head = f"{caption}<thead>{above}<tr>{titles}</tr></thead>"
    kind = "wide differences" if block.framed else "wide"
    return f'<div class="{kind}"><table class="data">{head}<tbody>{rows}</tbody></table></div>'


def _write_html_table_row(block: md.Table, number: int, row: tuple[md.Text, ...]) -> str:
    cells = "".join(
        f'<td class="{c.align}">{_write_html_table_cell(x)}</td>'
        for c, x in zip(block.columns, row, strict=True)
    )
    return f"<tr{' class=shaded' if number in block.shaded else ''}>{cells}</tr>"


def _write_html_table_cell(text: md.Text) -> str:
    """Return a cell; a formula that fills it has fractions with bars."""
    first = text[0] if len(text) == 1 else ""
    return mathml(first, tall=True) if isinstance(first, nt.Node) else prose(text)

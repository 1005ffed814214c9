r"""A document as LaTeX: a whole file, or a fragment to ``\input``.

A fragment needs ``amsmath`` and ``amssymb`` (its first lines say so, and add ``graphicx`` if something had to be
shrunk); it defines no macro, numbers nothing by itself, and does not use the author's equation counter.
"""

from __future__ import annotations

import re
from importlib.resources import files

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade, at_least_checked
from symattn.document.render import common
from symattn.document.render.tex_lines import Setter, centred, first_sides, sheet, step_rows
from symattn.document.tex import COLOURS, escape_text, tex
from symattn.document.text import plain_text

# Letters of alignments in a ``tabular``.
_LETTERS = {"left": "l", "right": "r", "centre": "c"}


def table(writer: LatexWriter, block: md.Table) -> str:
    """Return a centred table, no wider than the line, with headings over groups; shaded rows are tinted or marked."""
    letters = "".join(_LETTERS[c.align] for c in block.columns)
    # A fragment uses no packages that the document may lack.
    rules = (
        ("\\hline", "\\hline", "\\hline")
        if writer.fragment
        else ("\\toprule", "\\midrule", "\\bottomrule")
    )
    lines = [
        f"\\begin{{tabular}}{{@{{}}{letters}@{{}}}}",
        rules[0],
        *_write_latex_column_groups(writer, block),
    ]
    heads = [writer.prose(c.title) for c in block.columns]
    lines += [_write_latex_row(heads), rules[1]]
    mark = "$\\triangleright$ " if writer.fragment else "\\rowcolor{SAs!8} "
    for i, row in enumerate(block.rows):
        lines.append(
            (mark if i in block.shaded else "")
            + _write_latex_row([writer.prose(cell) for cell in row])
        )
    lines += [rules[2], "\\end{tabular}"]
    joined = "\n".join(lines)
    body = joined if writer.fragment else writer.fit("%\n" + joined)
    caption = f"\n\n{writer.small(writer.prose(block.caption))}" if block.caption else ""
    return f"\\begin{{center}}\\small\n{body}{caption}\n\\end{{center}}"


def _write_latex_row(cells: list[str]) -> str:
    return " & ".join(cells) + " \\\\"


def _write_latex_column_groups(writer: LatexWriter, block: md.Table) -> list[str]:
    if not any(c.group for c in block.columns):
        return []
    cells, rules = [], ""
    for title, start, end in common.runs(block):
        cells.append(
            f"\\multicolumn{{{end - start}}}{{c}}{{{writer.prose(title)}}}" if title else ""
        )
        # A group without a title has no rule.
        if title:
            rules += (
                f"\\cline{{{start + 1}-{end}}}"
                if writer.fragment
                else f"\\cmidrule(lr){{{start + 1}-{end}}}"
            )
    return [_write_latex_row(cells), rules]


# -- preamble ----------------------------------------------------------------------------------------------------------
# The colour of reasons, captions and remarks.
_GREY = ("SAg", "5F6368")


def preamble() -> str:
    """Return packages, colours and macros of a whole document: those of the folder ``tex``, and our colours."""
    packages, macros = (
        files("symattn.document.render").joinpath("tex", name).read_text("utf-8").rstrip()
        for name in ("packages.tex", "macros.tex")
    )
    colours = [
        f"\\definecolor{{{name}}}{{HTML}}{{{value}}}" for name, value in (*COLOURS.values(), _GREY)
    ]
    return "\n".join([packages, *colours, macros])


# -- documents ---------------------------------------------------------------------------------------------------------
# Colours of grades that leave doubt; all others are green.
_DOUBTFUL = {
    Grade.SEARCHED: "SAk",
    Grade.SAMPLED: "SAk",
    Grade.REFUTED: "SAq",
    Grade.UNDECIDED: "SAq",
}
_LISTED = 76  # characters of monospaced type in a line


def render(document: md.Document, *, fragment: bool = False) -> str:
    """Render the document for pdflatex; ``fragment`` leaves out preamble, title page and colours."""
    writer = LatexWriter(fragment)
    body = writer.body(document)
    comment = "% " + common.made(document.command).replace("\n", " ")
    if fragment:
        # The fragment says which packages it needs.
        packages = "amsmath,amssymb,graphicx" if r"\resizebox" in body else "amsmath,amssymb"
        return f"{comment}\n% Needs \\usepackage{{{packages}}}\n{body}\n"
    title = writer.title(document) if document.title else ""
    return f"{comment}\n{preamble()}\n\\begin{{document}}\n{title}\n\n{body}\n\\end{{document}}\n"


class LatexWriter:
    """A writer of words, formulas and reasons: with our colours and macros, or plain in a fragment."""

    def __init__(self, fragment: bool) -> None:
        self.fragment = fragment
        self.nested = False  # whether there are headings of the second level

    def tex(self, x: nt.Node, inline: bool = False) -> str:
        return tex(x, colours=not self.fragment, inline=inline)

    def prose(self, words: md.Text) -> str:
        return "".join(self.inline(part) for part in words).strip()

    def inline(self, part: md.Inline) -> str:
        if isinstance(part, nt.Node):
            return f"${self.tex(part, inline=True)}$"
        if isinstance(part, md.Emph):
            return f"\\emph{{{escape_text(part.text)}}}"
        return code(part.text) if isinstance(part, md.Code) else sentence(part)

    def small(self, shown: str) -> str:
        return f"{{\\small {shown}}}" if self.fragment else f"{{\\small\\color{{SAg}}{shown}}}"

    def graded(self, shown: str, grade: Grade) -> str:
        """Return words about evidence, in green only if it was proved or checked."""
        if self.fragment:
            return f"\\emph{{{shown}}}"
        colour = f"[{_DOUBTFUL[grade]}]" if grade in _DOUBTFUL else ""
        return f"\\SAgrade{colour}{{{shown}}}"

    def tag(self, step: md.Step, number: int) -> str:
        reason = self.prose(step.reason)
        grade = self.graded(step.evidence.grade.value, step.evidence.grade) if step.evidence else ""
        if not self.fragment:
            return f"\\SAwhy{{{reason}}}{{{grade}}}{{{number}}}"
        why = r"\enspace ".join(part for part in (reason, grade) if part)
        return f"\\tag*{{{self.small(why)}\\quad({number})}}"

    def fit(self, shown: str, room: float | None = None) -> str:
        """Return ``shown``, shrunk to ``room`` em, or to the line, if it is wider."""
        limit = "\\linewidth" if room is None else f"{room:.1f}em"
        if not self.fragment:
            return f"\\SAfit[{limit}]{{{shown}}}"
        return f"\\resizebox{{\\ifdim\\width>{limit} {limit}\\else\\width\\fi}}{{!}}{{{shown}}}"

    def title(self, document: md.Document) -> str:
        lines = [f"{{\\LARGE\\bfseries\\boldmath {self.prose(document.title)}\\par}}"]
        if document.subtitle:
            lines.append(f"\\vspace{{3pt}}{{\\large {self.prose(document.subtitle)}\\par}}")
        if document.command:
            lines.append(f"\\vspace{{9pt}}{{\\small\\color{{SAg}}{code(document.command)}\\par}}")
        return "\\begin{center}\n" + "\n".join(lines) + "\n\\end{center}"

    def verdict(self, document: md.Document) -> str:
        """Return the paragraph of the verdict and its reason; "" if the document has no verdict."""
        if document.verdict is None:
            return ""
        word = f"\\noindent\\textbf{{{document.verdict.value.upper()}}}"
        return (f"{word}: {self.prose(document.reason)}." if document.reason else word) + "\n\n"

    def body(self, document: md.Document) -> str:
        out = self.verdict(document)
        last: md.Block | None = None
        self.nested = any(
            isinstance(block, md.Heading) and block.level > 1 for block in document.blocks
        )
        for block, number in common.numbered(document):
            # a display that continues a paragraph must not begin another, which would add an empty line
            joint = (
                "\n" if isinstance(last, md.Paragraph) and isinstance(block, md.Steps) else "\n\n"
            )
            if isinstance(last, md.Heading) and isinstance(block, md.Steps) and not self.fragment:
                joint = "\n\\SAafterheading\n"
            out += (joint if last else "") + self.block(block, number)
            last = block
        graded = common.ledger(document)
        result = [f"{escape_text(common.steps_are(n))} {evidence_text(e)}." for e, n in graded]
        if result:
            out += "\n\n" + self.small(" ".join(result))
        return out

    def block(self, block: md.Block, number: int) -> str:
        match block:
            case md.Heading():
                level = "sub" * (block.level - 1 + self.fragment)
                star = "*" * self.fragment
                # no heading alone at a page's foot, nor two
                lines = 19 if self.nested and block.level == 1 else 12
                room = "" if self.fragment else f"\\Needspace{{{lines}\\baselineskip}}\n"
                return f"{room}\\{level}section{star}{{{self.prose(block.title)}}}"
            case md.Contents():
                return "" if self.fragment else r"{\setlength{\parskip}{0pt}\tableofcontents}"
            case md.Paragraph():
                return self.prose(block.text)
            case md.Assumptions():
                return self.assumptions(block)
            case md.Steps():
                return steps(self, block, number)
            case md.Result():
                return result(self, block)
            case md.Table():
                return table(self, block)
            case md.Values():
                return values(self, block)
            case md.Caveat():
                return self.aside("SAcaveat", escape_text(block.title), block.text)
            case md.Note():
                return self.aside("SAnote", "Note", block.text)
            case md.Items():
                items = "\n".join(f"\\item {self.prose(item)}" for item in block.items)
                return f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}"
            case md.Listing():
                return self.listing(block.text)

    def aside(self, box: str, title: str, text: md.Text) -> str:
        environment = "quote" if self.fragment else box
        return f"\\begin{{{environment}}}\n\\textbf{{{title}.}} {self.prose(text)}\n\\end{{{environment}}}"

    def assumptions(self, block: md.Assumptions) -> str:
        items = []
        for item in block.items:
            remark = (
                f"\\hfill{self.small('(' + self.prose(item.remark) + ')')}" if item.remark else ""
            )
            items.append(
                f"\\item[\\textbf{{{escape_text(item.label)}}}] {self.prose(item.text)}{remark}"
            )
        heading = "\\subsection*{Assumptions}" if self.fragment else "\\section*{Assumptions}"
        return "\n".join([heading, "\\begin{itemize}", *items, "\\end{itemize}"])

    def listing(self, text: str) -> str:
        """Return lines verbatim in monospaced type (``verbatim`` cannot print Unicode); long ones are shrunk."""
        lines = [self.listed(line) for line in text.splitlines()]
        return "\\begin{flushleft}\\small\n" + "\\\\\n".join(lines) + "\n\\end{flushleft}"

    def listed(self, line: str) -> str:
        shown = code(line).replace(" ", "~") if line.strip() else "\\mbox{}"
        return self.fit(shown) if len(line) > _LISTED else shown


def code(text: str) -> str:
    """Return a command or a name in monospaced type, without joining hyphens to dashes."""
    return f"\\texttt{{{escape_text(text)}}}"


# -- steps, results and values, fitted to the page ---------------------------------------------------------------------
_LINE = 39.0  # em in a line of our documents
_FRAGMENT_LINE = 33.0  # em in a line of LaTeX's own classes at 10 pt
_INDENT = 3.0  # em, of values, and of a result within its box
_HEADING = 84  # the most characters of name, reason and evidence on one line
# A letter with an index, or before a relation sign, within words of evidence.
_LETTER = re.compile(
    r"\b([A-Za-z])(?:_([A-Za-z0-9]+))?(?= ?[=≤<≥>∈])|\b([A-Za-z])_([A-Za-z0-9]+)\b"
)

# A size such as d_k in running text, outside of paths and longer names.
_INDEXED = re.compile(r"(?<![\w./-])([dnh])_(k|v|q|kv|model|s|r|n)(?![\w./-]*[_(])")


def setter(writer: LatexWriter, indent: float = 0.0) -> Setter:
    """Return the setter that breaks formulas into lines, and shrinks those that cannot be broken."""
    line = (_FRAGMENT_LINE if writer.fragment else _LINE) - indent
    return Setter(
        writer.tex, lambda shown, room: writer.fit(f"$\\displaystyle {shown}$", room), line
    )


def steps(writer: LatexWriter, block: md.Steps, number: int) -> str:
    """Return an ``align*`` with reasons and numbers as tags of its rows."""
    lines = setter(writer)
    rows = []
    before: md.Step | None = None
    for step, own in zip(block.items, common.numbers_of(block, number), strict=True):
        room = lines.line - first_sides(block)
        # Only the last row has the number.
        *upper, last = step_rows(lines, step, before, room)
        rows += [*upper, f"{last} {writer.tag(step, own)}"]
        before = step
    body = " \\\\\n".join(rows)
    return f"\\begin{{align*}}\n{body}\n\\end{{align*}}"


def result(writer: LatexWriter, block: md.Result) -> str:
    """Return the formulas in a tinted box with the evidence in its title bar; in fragments under a bold title."""
    formulas = (centred(setter(writer, _INDENT), f) for f in block.formulas)
    body = "\n".join(f"\\[ {formula} \\]" for formula in formulas)
    text = writer.prose(block.text)
    if text and not writer.fragment:
        # words would touch the title bar; a display keeps its distance
        text = f"\\smallskip {text}"
    body = "\n".join(part for part in (text, body) if part)
    evidence = ("; " if writer.fragment else r"\quad ").join(
        _write_latex_evidence(writer, e) for e in block.evidence
    )
    title = escape_text(block.title)
    if writer.fragment:
        where = f" ({evidence})" if evidence else ""
        return f"\\medskip\\noindent\\textbf{{{title}}}{where}\n{body}"
    return f"\\begin{{SAresult}}{{{title}\\quad\\hfill\\mdseries {evidence}}}\n{body}\n\\end{{SAresult}}"


def _write_latex_evidence(writer: LatexWriter, evidence: Evidence) -> str:
    ok = r"~\SAok" if at_least_checked(evidence.grade) and not writer.fragment else ""
    return evidence_text(evidence) + ok


def evidence_text(evidence: Evidence) -> str:
    """Return the words of evidence, with sizes such as n and d_k as formulas."""
    out, end, words = "", 0, str(evidence)
    for match in _LETTER.finditer(words):
        letter = match[1] or match[3]
        sub = match[2] or match[4]
        upright = sub if not sub or len(sub) == 1 else rf"\mathrm{{{sub}}}"
        out += escape_text(words[end : match.start()]) + (
            f"${letter}_{{{upright}}}$" if sub else f"${letter}$"
        )
        end = match.end()
    return out + escape_text(words[end:])


def sentence(words: str) -> str:
    """Return running text, with letters with an index, such as d_k, as formulas."""
    out, end = "", 0
    for match in _INDEXED.finditer(words):
        sub = match[2] if len(match[2]) == 1 else rf"\mathrm{{{match[2]}}}"
        before = words[end : match.start()]
        out += escape_text(before) + f"${match[1]}_{{{sub}}}$"
        end = match.end()
    return out + escape_text(words[end:])


def values(writer: LatexWriter, block: md.Values) -> str:
    """Return a heading with reason and grade, and the array: exact, decimal and the others."""
    reason = writer.prose(block.reason)
    grade = (
        writer.graded(evidence_text(block.evidence), block.evidence.grade) if block.evidence else ""
    )
    called = block.title or block.name
    heading_parts = (called, plain_text(block.reason), str(block.evidence or ""))
    # A heading that is too long leaves its grade to a line of its own.
    crowded = sum(map(len, heading_parts)) > _HEADING
    side = [
        part for part in (writer.small(reason) if reason else "", "" if crowded else grade) if part
    ]
    head = f"\\medskip\\noindent\\textbf{{{escape_text(called)}}}"
    right = r"\quad ".join(side)
    lines = [head + (f"\\quad\\hfill {right}" if side else "") + "\\par\\nopagebreak"]
    for index, values in common.sheets(block):
        shown = sheet(setter(writer, _INDENT), values, common.indexed(block.symbol, index))
        lines.append(f"\\noindent\\qquad$\\displaystyle {shown}$\\par")
    return "\n".join([*lines, f"\\noindent\\qquad {grade}\\par"] if crowded and grade else lines)

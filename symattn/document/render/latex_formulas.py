"""Steps, results and values as LaTeX displays that fit the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from symattn.document import model as md
from symattn.document.characters import escape_text
from symattn.document.evidence import Evidence, at_least_checked
from symattn.document.render.common import indexed, plain_text, sheets
from symattn.document.render.tex_lines import Setter, centred, first_sides, sheet, step_rows

if TYPE_CHECKING:
    from symattn.document.render.latex import LatexWriter

_LINE = 39.0  # em in a line of our documents
_FRAGMENT_LINE = 33.0  # em in a line of LaTeX's own classes at 10 pt
_INDENT = 3.0  # of values, and of a result within its box
_HEAD = 84  # characters of name, reason and evidence on one line
_LETTER = re.compile(r"\b([A-Za-z])(?:_([A-Za-z0-9]+))?(?= ?[=≤<≥>∈])|\b([A-Za-z])_([A-Za-z0-9]+)\b")

_INDEXED = re.compile(r"(?<![\w./-])([dnh])_(k|v|q|kv|model|s|r|n)(?![\w./-]*[_(])")


def setter(writer: LatexWriter, indent: float = 0.0) -> Setter:
    """Breaks lines where they are full, and shrinks what cannot be broken."""
    line = (_FRAGMENT_LINE if writer.fragment else _LINE) - indent
    return Setter(writer.tex, lambda shown, room: writer.fit(f"$\\displaystyle {shown}$", room), line)


def steps(writer: LatexWriter, block: md.Steps, number: int) -> str:
    """An ``align*`` whose rows carry their reasons and numbers as tags."""
    lines = setter(writer)
    rows = []
    before: md.Step | None = None
    for i, step in enumerate(block.items):
        *upper, last = step_rows(lines, step, before, lines.line - first_sides(block))
        rows += [*upper, f"{last} {writer.tag(step, number + i)}"]
        before = step
    body = " \\\\\n".join(rows)
    return f"\\begin{{align*}}\n{body}\n\\end{{align*}}"


def result(writer: LatexWriter, block: md.Result) -> str:
    """The formulas in a tinted box, the evidence in its title bar; in fragments under a bold title."""
    body = "\n".join(f"\\[ {centred(setter(writer, _INDENT), f)} \\]" for f in block.formulas)
    text = writer.prose(block.text)
    if text and not writer.fragment:
        text = f"\\smallskip {text}"  # words would touch the title bar; a display keeps its distance
    body = "\n".join(part for part in (text, body) if part)
    evidence = ("; " if writer.fragment else r"\quad ").join(_evidence(writer, e) for e in block.evidence)
    title = escape_text(block.title)
    if writer.fragment:
        where = f" ({evidence})" if evidence else ""
        return f"\\medskip\\noindent\\textbf{{{title}}}{where}\n{body}"
    return f"\\begin{{SAresult}}{{{title}\\quad\\hfill\\mdseries {evidence}}}\n{body}\n\\end{{SAresult}}"


def _evidence(writer: LatexWriter, evidence: Evidence) -> str:
    ok = r"~\SAok" if at_least_checked(evidence.grade) and not writer.fragment else ""
    return evidence_text(evidence) + ok


def evidence_text(evidence: Evidence) -> str:
    """The words of evidence, sizes such as n and d_k set as formulas."""
    out, end, words = "", 0, str(evidence)
    for match in _LETTER.finditer(words):
        letter, sub = match[1] or match[3], match[2] or match[4]
        upright = sub if not sub or len(sub) == 1 else rf"\mathrm{{{sub}}}"
        out += escape_text(words[end : match.start()]) + (f"${letter}_{{{upright}}}$" if sub else f"${letter}$")
        end = match.end()
    return out + escape_text(words[end:])


def sentence(words: str) -> str:
    """Running text, letters with an index such as d_k set as formulas."""
    out, end = "", 0
    for match in _INDEXED.finditer(words):
        sub = match[2] if len(match[2]) == 1 else rf"\mathrm{{{match[2]}}}"
        out, end = out + escape_text(words[end : match.start()]) + f"${match[1]}_{{{sub}}}$", match.end()
    return out + escape_text(words[end:])


def values(writer: LatexWriter, block: md.Values) -> str:
    """A heading with reason and grade, and the array: exact, decimal and the others."""
    reason = writer.prose(block.reason)
    grade = writer.graded(evidence_text(block.evidence), block.evidence.grade) if block.evidence else ""
    called = block.title or block.name
    crowded = len(called) + len(plain_text(block.reason)) + len(str(block.evidence or "")) > _HEAD
    side = [part for part in (writer.small(reason) if reason else "", "" if crowded else grade) if part]
    head = f"\\medskip\\noindent\\textbf{{{escape_text(called)}}}"
    right = r"\quad ".join(side)
    lines = [head + (f"\\quad\\hfill {right}" if side else "") + "\\par\\nopagebreak"]
    for index, values in sheets(block):
        shown = sheet(setter(writer, _INDENT), values, indexed(block.symbol, index))
        lines.append(f"\\noindent\\qquad$\\displaystyle {shown}$\\par")
    return "\n".join([*lines, f"\\noindent\\qquad {grade}\\par"] if crowded and grade else lines)

"""Steps, results and values as LaTeX displays that fit the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.characters import escape_text
from symattn.document.measure import width
from symattn.document.precedence import minus
from symattn.document.tex import relation_sign, words
from symattn.evidence import Evidence, at_least_checked
from symattn.render.common import all_integers, as_rows, chain, indexed, sheets

if TYPE_CHECKING:
    from symattn.render.latex import Writer

LINE = 38.0  # em in a line of text


def steps(writer: Writer, block: md.Steps, number: int) -> str:
    """An ``align*`` whose rows carry their reasons and numbers as tags."""
    indent = max((width(s.formula.first) for s in block.items if isinstance(s.formula, nt.Relation)), default=0.0)
    rows = []
    before: md.Step | None = None
    for i, step in enumerate(block.items):
        *upper, last = _rows(writer, step, before, LINE - indent)
        rows += [*upper, f"{last} {writer.tag(step, number + i)}"]
        before = step
    body = " \\\\\n".join(rows)
    return f"\\begin{{align*}}\n{body}\n\\end{{align*}}"


def _rows(writer: Writer, step: md.Step, before: md.Step | None, room: float) -> list[str]:
    """One row where it fits, else one for each side, long sums broken before + and −."""
    first, links, whole = chain(step, before)
    if whole is not None:
        return ["& " + _fitted(writer, whole, LINE)]
    head = "" if first is None else writer.tex(first) + " "
    if sum(width(side) + 1.5 for _, side in links) <= room:
        return [head + "&" + " ".join(f"{relation_sign(sign)} {_side(writer, side)}" for sign, side in links)]
    rows = []
    for i, (sign, side) in enumerate(links):
        first_part, *others = _broken(writer, side, room - 1.5)
        rows.append(f"{'' if i else head}&{relation_sign(sign)} {first_part}")
        rows += [f"&\\qquad {part}" for part in others]
    return rows


def _side(writer: Writer, side: nt.Node) -> str:
    return f"({writer.tex(side)})" if isinstance(side, (nt.Relation, nt.Row)) else writer.tex(side)


def _broken(writer: Writer, side: nt.Node, room: float) -> list[str]:
    if width(side) <= room:
        return [_side(writer, side)]
    if not isinstance(side, nt.Sum):
        return [_fitted(writer, side, room)]
    groups: list[list[nt.Node]] = [[]]
    for term in side.terms:
        if groups[-1] and width(nt.Sum((*groups[-1], term))) > room - 2:
            groups.append([])
        groups[-1].append(term)
    parts = [_fitted(writer, nt.Sum(tuple(g)), room) for g in groups]
    # a part that begins with a minus has its sign already; {} makes it and the plus signs between two things
    return [parts[0], *("{}" + ("" if minus(g[0]) else "+ ") + p for g, p in zip(groups[1:], parts[1:], strict=True))]


def _fitted(writer: Writer, x: nt.Node, room: float) -> str:
    shown = writer.tex(x)
    return shown if width(x) <= room else writer.fit(f"$\\displaystyle {shown}$", room)


def result(writer: Writer, block: md.Result) -> str:
    """The formulas in a tinted box, the evidence in its title bar; in fragments under a bold title."""
    body = "\n".join(f"\\[ {_centred(writer, f)} \\]" for f in block.formulas)
    evidence = r"\quad ".join(_evidence(writer, e) for e in block.evidence)
    title = escape_text(block.title)
    if writer.fragment:
        where = f" ({evidence})" if evidence else ""
        return f"\\medskip\\noindent\\textbf{{{title}}}{where}\n{body}"
    return f"\\begin{{SAresult}}{{{title}\\hfill {evidence}}}\n{body}\n\\end{{SAresult}}"


def _centred(writer: Writer, formula: nt.Node) -> str:
    """A result on one line, its statements under each other where they do not fit beside each other."""
    if width(formula) <= LINE - 3:
        return writer.tex(formula)
    if isinstance(formula, nt.Row):
        lines = [_fitted(writer, part, LINE - 3) for part in formula.parts]
    elif isinstance(formula, nt.Relation):
        indent = width(formula.first)
        lines = _rows(writer, md.Step(formula), None, LINE - 4 - indent)
        return "\\begin{aligned} " + r" \\ ".join(lines) + " \\end{aligned}"
    else:
        return _fitted(writer, formula, LINE - 3)
    return "\\begin{gathered} " + r" \\ ".join(lines) + " \\end{gathered}"


def _evidence(writer: Writer, evidence: Evidence) -> str:
    ok = r"~\SAok" if at_least_checked(evidence.grade) and not writer.fragment else ""
    return escape_text(str(evidence)) + ok


def values(writer: Writer, block: md.Values) -> str:
    """Exact entries beside their decimals where they fit, with what another arithmetic gave beneath."""
    reason = writer.prose(block.reason)
    grade = writer.grade_words(str(block.evidence)) if block.evidence else ""
    side = r"\quad ".join(part for part in (writer.small(reason) if reason else "", grade) if part)
    head = f"\\noindent\\textbf{{{escape_text(block.name)}}}" + (f"\\hfill {side}" if side else "")
    displays = [_sheet(writer, sheet, indexed(block.symbol, index)) for index, sheet in sheets(block)]
    return "\n".join([head, *displays])


def _sheet(writer: Writer, sheet: md.Values, symbol: nt.Node) -> str:
    room = LINE - 1.5 - width(symbol)
    exact = _entries(sheet.exact)
    links = [("=", exact)]
    if not all_integers(sheet.exact):
        links.append((r"\approx", _entries(sheet.decimal)))
    if sum(width(x) + 1.5 for _, x in links) <= room:
        rows = ["&" + " ".join(f"{sign} {writer.tex(x)}" for sign, x in links)]
    else:
        rows = [f"&{sign} {_fitted(writer, x, room)}" for sign, x in links]
    rows[0] = f"{writer.tex(symbol)} {rows[0]}"
    for label, entries in sheet.others.items():
        rows.append(f"{words(label)} &: {_fitted(writer, _entries(entries), room - 3)}")
    body = " \\\\\n".join(rows)
    return f"\\[ \\begin{{aligned}}\n{body}\n\\end{{aligned}} \\]"


def _entries(entries: Any) -> nt.Node:
    rows = [[x if isinstance(x, nt.Node) else nt.Decimal(str(x)) for x in row] for row in as_rows(entries)]
    return nt.matrix(rows) if isinstance(entries, (tuple, list)) else rows[0][0]

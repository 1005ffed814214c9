"""Displayed formulas broken into lines that fit, for both LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.measure import width
from symattn.document.precedence import minus
from symattn.document.render import common
from symattn.document.tex import relation_sign

ERRORS = "error in ulp"
_NEARLY = 0.85  # of a line


@dataclass(frozen=True, slots=True)
class Setter:
    """Functions that print a formula, and shrink one that cannot be broken to a width, and the width of a line (em)."""

    show: Callable[[nt.Node], str]
    shrink: Callable[[str, float], str]
    line: float

    def fitted(self, x: nt.Node, room: float) -> str:
        shown = self.show(x)
        return shown if width(x) <= room else self.shrink(shown, room)

    def side(self, x: nt.Node) -> str:
        if isinstance(x, (nt.Relation, nt.Row)):
            return f"({self.show(x)})"
        return self.show(x)


def first_sides(block: md.Steps) -> float:
    """Return the width of the widest first side of a group."""
    return max(
        (width(s.formula.first) for s in block.items if isinstance(s.formula, nt.Relation)),
        default=0.0,
    )


def step_rows(setter: Setter, step: md.Step, before: md.Step | None, room: float) -> list[str]:
    """Return a step as rows ``first & = side …``: one if it fits, else one per side; long sums break before + and −."""
    first, links, whole = common.chain(step, before)
    if isinstance(whole, nt.Row):
        return [
            "& " + setter.fitted(row, setter.line)
            for row in common.packed(whole, lambda r: width(r) <= setter.line)
        ]
    if whole is not None:
        shown = setter.fitted(whole, setter.line)
        # after & a bare minus would be binary
        return ["& " + (f"{{{shown}}}" if shown.startswith("-") else shown)]
    head = "" if first is None else setter.show(first) + " "
    if first is not None and width(first) > setter.line / 2:  # widths are estimates
        head = setter.shrink(head.strip(), width(first)) + " "
    needed = sum(width(side) + 1.4 for _, side in links)
    if len(links) == 1 and _NEARLY * room < needed <= room:  # widths are estimates
        sign, side = links[0]
        right = setter.shrink(setter.side(side), room - 1.4)
        return [f"{head}& {relation_sign(sign)} {right}"]
    if needed <= room:
        return [
            head
            + "& "
            + " ".join(f"{relation_sign(sign)} {setter.side(side)}" for sign, side in links)
        ]
    rows = []
    for i, (sign, side) in enumerate(links):
        upper, *lower = _break_tex_sum(setter, side, room - 1.4)
        rows.append(f"{'' if i else head}& {relation_sign(sign)} {upper}")
        rows += [rf"& \qquad {part}" for part in lower]
    return rows


def _break_tex_sum(setter: Setter, side: nt.Node, room: float) -> list[str]:
    if width(side) <= room or not isinstance(side, nt.Sum):
        return [setter.side(side) if width(side) <= room else setter.fitted(side, room)]
    groups: list[list[nt.Node]] = [[]]
    for term in side.terms:
        longer = nt.Sum((*groups[-1], term))
        if groups[-1] and width(longer) > room - 2:
            groups.append([])
        groups[-1].append(term)
    parts = [setter.fitted(nt.Sum(tuple(g)), room - 2) for g in groups]
    # {} makes the sign that a part begins with one between two terms
    signs = ["", *("{}" if minus(g[0]) is not None else "{} + " for g in groups[1:])]
    return [sign + part for sign, part in zip(signs, parts, strict=True)]


def centred(setter: Setter, formula: nt.Node) -> str:
    """Return a displayed formula; if it is too long, with one statement per line, or broken before relation signs."""
    # A formula that fits is not broken.
    if width(formula) <= setter.line:
        return setter.show(formula)
    if isinstance(formula, nt.Row):
        rows = common.packed(formula, lambda r: width(r) <= setter.line)
        return _write_tex_environment("gathered", [setter.fitted(row, setter.line) for row in rows])
    if isinstance(formula, nt.Relation):
        return _write_tex_environment(
            "aligned", step_rows(setter, md.Step(formula), None, setter.line - width(formula.first))
        )
    return setter.fitted(formula, setter.line)


def sheet(setter: Setter, values: md.Values, symbol: nt.Node) -> str:
    """Return symbol = exact ≈ decimal, on two lines if needed, and below it entries in other arithmetic, labelled."""
    links = [("=", entries(values.exact))]
    if not common.all_integers(values.exact):
        links.append((r"\approx", entries(values.decimal)))
    room = setter.line - 1.5 - width(symbol)
    rows = [f"& {sign} {setter.fitted(x, room)}" for sign, x in links]
    used = width(links[-1][1]) + 1.5
    # Both forms on one line, if there is room.
    if sum(width(x) + 1.5 for _, x in links) <= room:
        rows = ["& " + " ".join(f"{sign} {setter.show(x)}" for sign, x in links)]
        used = sum(width(x) + 1.5 for _, x in links)
    rows[0] = f"{setter.show(symbol)} {rows[0]}"
    for label, other in values.others.items():
        matrix = common.depth(other) == 2
        # Errors of a matrix are summed up; those of a vector are shown.
        alone = label == ERRORS and matrix
        name = nt.Words(_summarise_matrix_errors(other) if alone else label)
        shown = entries(other)
        more = width(name) + 2 + (0 if alone else width(shown))
        words = (
            setter.show(name)
            if alone
            else rf"{setter.fitted(shown, room - width(name) - 1)} \quad {setter.show(name)}"
        )
        if matrix and used + more <= room:
            rows[-1] += rf" \qquad {words}"
            used += more
        else:
            rows.append(rf"& \phantom{{{{}}={{}}}} {words}")
            used = more
    return _write_tex_environment("aligned", rows, spaced=common.depth(values.exact) == 2)


def _summarise_matrix_errors(errors: Any) -> str:
    """Return the errors of a matrix in one line: the largest, and how many entries are not finite."""
    every = [x for row in errors for x in row]
    digits = [x.text if isinstance(x, nt.Words) else str(x) for x in every]
    finite = [
        x
        for x in digits
        # NaN and infinities are no digits.
        if x.lstrip("<").replace(".", "").replace("e-", "").replace("e+", "").isdigit()
    ]
    missing = len(digits) - len(finite)
    result = (
        f"largest error {max(finite, key=lambda x: float(x.lstrip('<')))} ulp"
        if finite
        else "no finite error"
    )
    return result + (
        f", {missing} of {len(digits)} entries not finite" if missing and finite else ""
    )


def entries(values: object) -> nt.Node:
    """Return a number, a vector or a matrix, of nodes or digits, as a node."""
    rows = [[common.entry(x) for x in row] for row in common.as_rows(values)]
    return nt.matrix(rows) if isinstance(values, (tuple, list)) else rows[0][0]


def _write_tex_environment(name: str, rows: list[str], spaced: bool = False) -> str:
    """Return an environment of rows; matrices are ``spaced``, so that their brackets do not touch."""
    body = (" \\\\[4pt]\n" if spaced else " \\\\\n").join(rows)
    return f"\\begin{{{name}}}\n{body}\n\\end{{{name}}}"

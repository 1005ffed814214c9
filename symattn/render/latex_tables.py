"""Tables as LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symattn.document import model as md
from symattn.render.common import runs

if TYPE_CHECKING:
    from symattn.render.latex import Writer

_LETTERS = {"left": "l", "right": "r", "centre": "c"}


def table(writer: Writer, block: md.Table) -> str:
    """A centred table, no wider than the line: headings over groups, the shaded rows tinted (marked in fragments)."""
    letters = "".join(_LETTERS[c.align] for c in block.columns)
    rules = ("\\hline", "\\hline", "\\hline") if writer.fragment else ("\\toprule", "\\midrule", "\\bottomrule")
    lines = [f"\\begin{{tabular}}{{@{{}}{letters}@{{}}}}", rules[0], *_groups(writer, block)]
    lines += [_row([writer.prose(c.title) for c in block.columns]), rules[1]]
    lines += [_body_row(writer, row, i in block.shaded) for i, row in enumerate(block.rows)]
    lines += [rules[2], "\\end{tabular}"]
    body = writer.fit("%\n" + "\n".join(lines)) if not writer.fragment else "\n".join(lines)
    caption = f"\n\n{writer.small(writer.prose(block.caption))}" if block.caption else ""
    return f"\\begin{{center}}\\small\n{body}{caption}\n\\end{{center}}"


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + " \\\\"


def _body_row(writer: Writer, row: tuple[md.Text, ...], shaded: bool) -> str:
    cells = _row([writer.prose(cell) for cell in row])
    if not shaded:
        return cells
    return f"$\\triangleright$ {cells}" if writer.fragment else f"\\rowcolor{{SAs!8}} {cells}"


def _groups(writer: Writer, block: md.Table) -> list[str]:
    if not any(c.group for c in block.columns):
        return []
    cells, rules = [], ""
    for title, start, end in runs(block):
        cells.append(f"\\multicolumn{{{end - start}}}{{c}}{{{writer.prose(title)}}}" if title else "")
        if title:
            rules += f"\\cline{{{start + 1}-{end}}}" if writer.fragment else f"\\cmidrule(lr){{{start + 1}-{end}}}"
    return [_row(cells), rules]

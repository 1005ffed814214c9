"""Functions that all renderers use: numbers of steps, evidence by step, shapes of values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.evidence import Evidence
from symattn.document.files import MARK
from symattn.document.text import plain_text as plain_text
from symattn.document.text import text as plain


def made(command: str) -> str:
    """Return the mark on one line, with the command that re-creates the file if there is one."""
    return " ".join((f"{MARK}: {command}" if command else MARK).split())


def comment(text: str) -> str:
    """Return a comment of HTML, XML or Markdown that ``text`` cannot end, without double hyphens and ">".

    These are written as entities, so that ``html.unescape`` restores the text.
    """
    return f"<!-- {re.sub('-(?=-)', '&#45;', escape(text, quote=False))} -->"


def numbered(document: md.Document) -> Iterator[tuple[md.Block, int]]:
    """Yield each block with the number of its first step; steps are numbered through the whole document."""
    number = 1
    for block in document.blocks:
        if isinstance(block, md.Steps) and block.numbers:
            number = block.numbers[0]
        yield block, number
        if isinstance(block, md.Steps):
            number = numbers_of(block, number)[-1] + 1


def numbers_of(block: md.Steps, first: int) -> Sequence[int]:
    """Return the numbers of the steps of a group: its own, or those that follow ``first``."""
    return block.numbers or range(first, first + len(block.items))


def verdict(document: md.Document) -> md.Text:
    """Return the verdict in capitals with its reason; nothing if the document has no verdict."""
    if document.verdict is None:
        return ()
    word = document.verdict.value.upper()
    return (f"{word}: ", *document.reason, ".") if document.reason else (word,)


_MIN_SHARED = 3  # arrays with one evidence, from which on it is stated once


def with_evidence_once(document: md.Document) -> md.Document:
    """Return a walk in which evidence that several arrays share is stated once, at the end; each keeps its grade."""
    if document.kind != "walk":
        return document
    named: dict[Evidence, list[md.Inline]] = {}
    for block in document.blocks:
        for evidence in _evidence_of(block):
            named.setdefault(evidence, []).append(_symbol_of_block(block))
    with_place = ((e, names) for e, names in named.items() if e.where)
    # Evidence of few arrays is stated beside each of them.
    shared = {e: names for e, names in with_place if len(names) >= _MIN_SHARED}
    blocks = [_with_short_evidence(block, shared) for block in document.blocks]
    closing = (
        md.Paragraph((*_list_names_with_and(names), f" are {evidence}."))
        for evidence, names in shared.items()
    )
    return replace(document, blocks=(*blocks, *closing))


def _evidence_of(block: md.Block) -> tuple[Evidence, ...]:
    if isinstance(block, md.Values) and block.evidence:
        return (block.evidence,)
    return block.evidence if isinstance(block, md.Result) else ()


def _symbol_of_block(block: md.Block) -> md.Inline:
    """Return the symbol of an array, or the title of a result."""
    if isinstance(block, md.Values):
        return block.symbol.first if isinstance(block.symbol, nt.Relation) else block.symbol
    return block.title if isinstance(block, md.Result) else ""


def _with_short_evidence(block: md.Block, shared: Collection[Evidence]) -> md.Block:
    short = {e: Evidence(e.grade, "", e.epsilon) for e in shared}
    if isinstance(block, md.Values) and block.evidence:
        return replace(block, evidence=short.get(block.evidence, block.evidence))
    if isinstance(block, md.Result):
        return replace(block, evidence=tuple(short.get(e, e) for e in block.evidence))
    return block


def _list_names_with_and(names: Sequence[md.Inline]) -> md.Text:
    parts: list[md.Inline] = []
    for i, name in enumerate(names):
        parts += [" and " if i == len(names) - 1 else ", "] if i else []
        parts.append(name)
    return tuple(parts)


def names_itself(values: md.Values) -> bool:
    """Return whether the symbol of an array spells its name: ``W_K`` is w_k, ``K = X W_K`` is k."""
    symbol = values.symbol.first if isinstance(values.symbol, nt.Relation) else values.symbol
    return plain(symbol).lower() == values.name.lower()


def headings(document: md.Document) -> list[tuple[str, md.Heading]]:
    """Return the headings with their numbers: 1, 1.1, 1.2, 2."""
    result, upper, lower = [], 0, 0
    for block in document.blocks:
        if isinstance(block, md.Heading):
            upper, lower = (upper + 1, 0) if block.level == 1 else (upper, lower + 1)
            counted = str(upper) if block.level == 1 else f"{upper}.{lower}"
            result.append((block.number or counted, block))
    return result


def ledger(document: md.Document) -> list[tuple[Evidence, list[int]]]:
    """Return the evidence of steps that states where it holds, each with the numbers of its steps.

    A step shows only its grade; the sizes or inputs behind it are printed once, at the end.
    """
    result: dict[Evidence, list[int]] = {}
    for block, number in numbered(document):
        if isinstance(block, md.Steps):
            for step, own in zip(block.items, numbers_of(block, number), strict=True):
                if step.evidence and (step.evidence.where or step.evidence.epsilon is not None):
                    result.setdefault(step.evidence, []).append(own)
    return list(result.items())


def ranges(numbers: list[int]) -> str:
    """Return ``[1, 2, 3, 7]`` as ``1–3, 7``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    words = (str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
    return ", ".join(words)


def statements(row: nt.Row) -> list[nt.Row]:
    """Return the parts of a row, each with the words that belong to it."""
    groups: list[list[nt.Node]] = []
    for part in row.parts:
        # Words belong to what stands before and behind them.
        after_words = groups and isinstance(groups[-1][-1], nt.Words)
        clings = isinstance(part, nt.Words) or after_words
        if groups and clings:
            groups[-1].append(part)
        else:
            groups.append([part])
    return [nt.Row(tuple(g)) for g in groups]


def packed(row: nt.Row, fits: Callable[[nt.Row], bool]) -> list[nt.Row]:
    """Return the statements of a row on as few lines as ``fits`` permits."""
    lines: list[nt.Row] = []
    for statement in statements(row):
        longer = nt.Row((*lines[-1].parts, *statement.parts)) if lines else statement
        if lines and fits(longer):
            lines[-1] = longer
        else:
            lines.append(statement)
    return lines


def steps_are(numbers: list[int]) -> str:
    """Return ``Steps 1–3, 7 are`` or ``Step 4 is``."""
    return f"Steps {ranges(numbers)} are" if len(numbers) > 1 else f"Step {numbers[0]} is"


def chain(
    step: md.Step, before: md.Step | None
) -> tuple[nt.Node | None, list[tuple[str, nt.Node]], nt.Node | None]:
    """Return the first side (None if the step before has the same) and the links of a relation, or another formula."""
    formula = step.formula
    if not isinstance(formula, nt.Relation):
        return None, [], formula
    last = before.formula if before else None
    repeated = isinstance(last, nt.Relation) and last.first == formula.first
    return (None if repeated else formula.first), list(formula.rest), None


def depth(values: object) -> int:
    """Return the number of levels of nesting: a number has none, a vector one, a matrix two."""
    levels = 0
    while isinstance(values, (tuple, list)):
        levels += 1
        values = values[0] if values else None
    return levels


def as_rows(values: Any) -> list[list[Any]]:
    """Return a number, vector or matrix as rows."""
    rows = {
        0: lambda: [[values]],
        1: lambda: [list(values)],
        2: lambda: [list(row) for row in values],
    }
    return rows[depth(values)]()


def entry(x: object) -> nt.Node:
    """Return an entry of an array, a node or digits, as a node."""
    return x if isinstance(x, nt.Node) else nt.Decimal(str(x))


def sheets(values: md.Values) -> Iterator[tuple[tuple[int, ...], md.Values]]:
    """Yield the matrices of a deeper array with their leading indices (counted from 1), or another array itself."""
    if depth(values.exact) <= 2:
        yield (), values
        return
    for i in range(len(values.exact)):
        # Each form of the array is split alike.
        others = {label: v[i] for label, v in values.others.items()}
        exact = values.exact[i]
        inner = md.Values(values.name, values.symbol, exact, values.decimal[i], others)
        for index, sheet in sheets(inner):
            yield (i + 1, *index), sheet


def all_integers(values: object) -> bool:
    """Return whether every exact entry is an integer, so that decimals would only repeat it."""
    if isinstance(values, (tuple, list)):
        return all(all_integers(v) for v in values)
    body = values.body if isinstance(values, nt.Neg) else values
    return isinstance(body, nt.Number) and body.value.denominator == 1


def indexed(symbol: nt.Node, index: tuple[int, ...]) -> nt.Node:
    """Return ``symbol`` with the leading indices of a sheet."""
    if not index or not isinstance(symbol, nt.Name):
        return symbol
    indices = map(nt.node, index)
    subscripts = (*symbol.sub, *indices)
    return nt.Name(symbol.base, subscripts, symbol.role, symbol.bold)


def runs(block: md.Table) -> list[tuple[md.Text, int, int]]:
    """Return groups of neighbouring columns: heading, first column, one past the last."""
    runs: list[tuple[md.Text, int, int]] = []
    for i, column in enumerate(block.columns):
        if runs and column.group and runs[-1][0] == column.group:
            runs[-1] = (column.group, runs[-1][1], i + 1)
        else:
            runs.append((column.group, i, i + 1))
    return runs


def heading(column: md.Column, shown: Callable[[md.Text], str] = plain_text) -> str:
    """Return the title of a column, after that of its group."""
    group = shown(column.group)
    return f"{group}: {shown(column.title)}" if group else shown(column.title)

"""A document as JSON: ``schema`` 1, with a stable order of keys."""

from __future__ import annotations

import json
from typing import Any

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.codec import Record, record
from symattn.document.render import common
from symattn.document.tex import tex
from symattn.document.text import plain_text, text

SCHEMA = 1  # rises when a reader of older documents would misread a field


def render(document: md.Document) -> str:
    """Render the document as JSON. ``document.record`` adds keys and overrides those made from the blocks."""
    result: dict[str, list[Any]] = {key: [] for key in _PROMISED.get(document.kind, ())}
    for block in document.blocks:
        key, entries = _record_block_entries(block)
        if key and entries:
            result.setdefault(key, []).extend(entries)
    # What the record adds stands at the end, and overrides blocks.
    whole = {
        "schema": SCHEMA,
        "kind": document.kind,
        "name": document.name,
        "title": plain_text(document.title),
        "command": document.command,
        "verdict": document.verdict_word,
        **({"reason": plain_text(document.reason)} if document.reason else {}),
        "parameters": document.parameters,
        **result,
        **document.record,
    }
    return (
        json.dumps(
            record(whole), indent=2, ensure_ascii=False, allow_nan=False, default=_record_formula
        )
        + "\n"
    )


def _record_formula(x: nt.Node) -> Record:
    return {"text": text(x), "tex": tex(x)}


_PROMISED: dict[str, tuple[str, ...]] = {
    "derivation": ("assumptions", "steps", "results"),
    "walk": ("steps",),
    "proof": ("theorems",),
    "verification": ("notes",),
}


def _record_block_entries(block: md.Block) -> tuple[str, list[Any]]:
    match block:
        case md.Assumptions():
            return "assumptions", [
                {"label": a.label, "text": plain_text(a.text)} for a in block.items
            ]
        case md.Steps():
            return "steps", [_record_document_step(s) for s in block.items]
        case md.Values():
            return "steps", [_record_values_block(block)]
        case md.Result():
            words = {"text": plain_text(block.text)} if block.text else {}
            return "results", [
                {
                    "title": block.title,
                    **words,
                    "formulas": block.formulas,
                    "evidence": block.evidence,
                }
            ]
        case md.Table():
            columns = [common.heading(c) for c in block.columns]
            rows = [[plain_text(cell) for cell in row] for row in block.rows]
            return "tables", [{"columns": columns, "rows": rows, "shaded": block.shaded}]
        case md.Note():
            return "notes", [plain_text(block.text)]
        case md.Caveat():
            return "caveats", [{"title": block.title, "text": plain_text(block.text)}]
        case _:
            return "", []


def _record_document_step(step: md.Step) -> Record:
    grade = step.evidence.grade if step.evidence else None
    entry = {**_record_formula(step.formula), "reason": plain_text(step.reason), "grade": grade}
    return (
        {**entry, "where": step.evidence.where} if step.evidence and step.evidence.where else entry
    )


def _record_values_block(block: md.Values) -> Record:
    entry = {
        "name": block.name,
        "exact": _write_entries_for_sympy(block.exact),
        "decimal": block.decimal,
        "reason": plain_text(block.reason),
    }
    others = {"others": block.others} if block.others else {}
    grade = block.evidence.grade if block.evidence else None
    return {**entry, **others, "grade": grade}


def _write_entries_for_sympy(entries: object) -> Any:
    """Return exact entries as strings that ``sympy.sympify`` reads."""
    if isinstance(entries, (tuple, list)):
        return [_write_entries_for_sympy(e) for e in entries]
    return text(entries, ascii=True) if isinstance(entries, nt.Node) else entries

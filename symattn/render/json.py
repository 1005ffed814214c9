"""A document as JSON: ``schema`` 1, stable order of keys."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from typing import Any

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.tex import tex
from symattn.document.text import text
from symattn.evidence import Evidence
from symattn.render.common import heading, plain_text

SCHEMA = 1


def render(document: md.Document) -> str:
    """The document as JSON text. ``document.record`` adds keys and overrides those made from the blocks."""
    record = {**_common(document), **_from_blocks(document), **document.record}
    return json.dumps(_value(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _common(document: md.Document) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": document.kind,
        "name": document.name,
        "title": plain_text(document.title),
        "command": document.command,
        "verdict": document.verdict_word,
        "parameters": document.parameters,
    }


def _from_blocks(document: md.Document) -> dict[str, Any]:
    """What the kind of document promises, empty lists included, and what else there is."""
    found: dict[str, list[Any]] = {key: [] for key in _PROMISED.get(document.kind, ())}
    for block in document.blocks:
        key, entries = _entries(block)
        if key and entries:
            found.setdefault(key, []).extend(entries)
    return found


_PROMISED: dict[str, tuple[str, ...]] = {
    "derivation": ("assumptions", "steps", "results"),
    "walk": ("steps",),
    "proof": ("theorems",),
    "verification": ("notes",),
}


def _entries(block: md.Block) -> tuple[str, list[Any]]:
    match block:
        case md.Assumptions():
            return "assumptions", [{"label": a.label, "text": plain_text(a.text)} for a in block.items]
        case md.Steps():
            return "steps", [_step(s) for s in block.items]
        case md.Values():
            return "steps", [_values(block)]
        case md.Result():
            formulas = [_formula(f) for f in block.formulas]
            words = {"text": plain_text(block.text)} if block.text else {}
            return "results", [{"title": block.title, **words, "formulas": formulas, "evidence": block.evidence}]
        case md.Table():
            columns = [heading(c) for c in block.columns]
            rows = [[plain_text(cell) for cell in row] for row in block.rows]
            return "tables", [{"columns": columns, "rows": rows, "shaded": block.shaded}]
        case md.Note():
            return "notes", [plain_text(block.text)]
        case md.Caveat():
            return "caveats", [{"title": block.title, "text": plain_text(block.text)}]
        case _:
            return "", []


def _step(step: md.Step) -> dict[str, Any]:
    grade = step.evidence.grade if step.evidence else None
    entry = {**_formula(step.formula), "reason": plain_text(step.reason), "grade": grade}
    return {**entry, "where": step.evidence.where} if step.evidence and step.evidence.where else entry


def _values(block: md.Values) -> dict[str, Any]:
    entry = {
        "name": block.name,
        "exact": _code(block.exact),
        "decimal": block.decimal,
        "reason": plain_text(block.reason),
    }
    others = {"others": block.others} if block.others else {}
    grade = block.evidence.grade if block.evidence else None
    return {**entry, **others, "reason": plain_text(block.reason), "grade": grade}


def _code(entries: Any) -> Any:
    """Exact entries as strings that ``sympy.sympify`` reads."""
    if isinstance(entries, (tuple, list)):
        return [_code(e) for e in entries]
    return text(entries, ascii=True) if isinstance(entries, nt.Node) else entries


def _formula(x: nt.Node) -> dict[str, str]:
    return {"text": text(x), "tex": tex(x)}


def _value(x: Any) -> Any:
    """What JSON can hold: no bare NaN or infinity, fractions as strings, formulas in both forms."""
    match x:
        case Enum():
            return x.value
        case None | bool() | int() | str():
            return x
        case float():
            return x if math.isfinite(x) else str(x)
        case Fraction():
            return str(x)
        case nt.Node():
            return _formula(x)
        case Evidence():
            entry = {"grade": x.grade.value, "where": x.where}
            return entry if x.epsilon is None else {**entry, "epsilon": x.epsilon}
        case Mapping():
            return {str(key): _value(v) for key, v in x.items()}
        case list() | tuple():
            return [_value(v) for v in x]
    raise TypeError(f"no JSON for {type(x).__name__}")

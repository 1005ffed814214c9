"""Findings as JSON and back. Formulas are kept by the names of their classes; nothing else can be read."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

from symattn.document import notation as nt
from symattn.document.model import Code, Emph
from symattn.evidence import Evidence, Grade
from symattn.theorems.findings import Finding

_CLASSES: dict[str, type[Any]] = {
    c.__name__: c
    for c in (Finding, Evidence, Code, Emph, *vars(nt).values())
    if isinstance(c, type) and is_dataclass(c)
}


def written(finding: Finding) -> str:
    """A finding as JSON."""
    return json.dumps(_plain(finding), ensure_ascii=False)


def read(text: str) -> Finding:
    """A finding that ``written`` wrote. Raises ValueError for any other text."""
    try:
        found = _meant(json.loads(text))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no finding: {error}") from error
    if not isinstance(found, Finding) or not isinstance(found.evidence, Evidence):
        raise ValueError("no finding")
    return found


def _plain(x: Any) -> Any:
    if isinstance(x, Grade):
        return {"is": "Grade", "value": x.value}
    if isinstance(x, Fraction):
        return {"is": "Fraction", "value": str(x)}
    if isinstance(x, (tuple, list)):
        return [_plain(y) for y in x]
    if is_dataclass(x) and type(x).__name__ in _CLASSES:
        return {"is": type(x).__name__, **{f.name: _plain(getattr(x, f.name)) for f in fields(x)}}
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    raise TypeError(f"{type(x).__name__} is not kept")


def _meant(x: Any) -> Any:
    if isinstance(x, list):
        return tuple(_meant(y) for y in x)
    if not isinstance(x, dict):
        return x
    kind, values = x["is"], {name: _meant(y) for name, y in x.items() if name != "is"}
    if kind == "Grade":
        return Grade(values["value"])
    return Fraction(values["value"]) if kind == "Fraction" else _CLASSES[kind](**values)

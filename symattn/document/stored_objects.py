"""Documents, and what is made of their parts, as text for the cache, and back.

Only the classes named here, and those that the reader names, can be read back; nothing is executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, TypeVar

from symattn.document import model
from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade, Verdict

_Stored = TypeVar("_Stored")
_ENUMS: dict[str, type[Enum]] = {"Grade": Grade, "Verdict": Verdict}
_CLASSES: dict[str, type[Any]] = {
    c.__name__: c
    for c in (Evidence, *vars(model).values(), *vars(nt).values())
    if isinstance(c, type) and is_dataclass(c)
}


def written(x: object) -> str:
    """Return ``x`` as JSON. Raises TypeError for types that do not occur in documents."""
    return json.dumps(_plain(x), ensure_ascii=False)


def read(source: str, kind: type[_Stored], *parts: type[Any]) -> _Stored:
    """Return the object of class ``kind`` that ``written`` wrote; it may contain ``parts`` besides those of documents.

    Raises ValueError for any other text.
    """
    try:
        result = _restored(json.loads(source), {**_CLASSES, **{c.__name__: c for c in (kind, *parts)}})
    except (KeyError, TypeError, AttributeError, RecursionError, ZeroDivisionError) as error:
        raise ValueError(f"no {kind.__name__}: {error}") from error
    if not isinstance(result, kind):
        raise ValueError(f"no {kind.__name__}")
    return result


def _plain(x: object) -> Any:
    if isinstance(x, Grade | Verdict):
        return {"is": type(x).__name__, "value": x.value}
    if isinstance(x, Fraction):
        return {"is": "Fraction", "value": str(x)}
    if isinstance(x, tuple | list):
        return [_plain(y) for y in x]
    if isinstance(x, Mapping):
        return {"is": "Mapping", "value": [[_plain(key), _plain(y)] for key, y in x.items()]}
    if is_dataclass(x):
        return {"is": type(x).__name__, **{f.name: _plain(getattr(x, f.name)) for f in fields(x)}}
    if x is None or isinstance(x, bool | int | float | str):
        return x
    raise TypeError(f"{type(x).__name__} is not kept")


def _restored(x: object, classes: Mapping[str, type[Any]]) -> Any:
    if isinstance(x, list):
        return tuple(_restored(y, classes) for y in x)
    if not isinstance(x, dict):
        return x
    kind, values = x["is"], {name: _restored(y, classes) for name, y in x.items() if name != "is"}
    if kind in _ENUMS:
        return _ENUMS[kind](values["value"])
    if kind == "Fraction":
        return Fraction(values["value"])
    return dict(values["value"]) if kind == "Mapping" else classes[kind](**values)

"""Documents, and parts of them, as JSON and back. Only the classes named here can be read; nothing is run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, TypeVar

from symattn.document import model
from symattn.document import notation as nt
from symattn.evidence import Evidence, Grade, Verdict

_Kept = TypeVar("_Kept")
_ENUMS: dict[str, type[Enum]] = {"Grade": Grade, "Verdict": Verdict}
_CLASSES: dict[str, type[Any]] = {
    c.__name__: c
    for c in (Evidence, *vars(model).values(), *vars(nt).values())
    if isinstance(c, type) and is_dataclass(c)
}


def written(x: object) -> str:
    """``x`` as JSON. Raises TypeError for what holds more than documents do."""
    return json.dumps(_plain(x), ensure_ascii=False)


def read(text: str, kind: type[_Kept], *parts: type[Any]) -> _Kept:
    """What ``written`` wrote of an object of this class, which may hold ``parts`` that documents have not. Raises
    ValueError for any other text."""
    try:
        found = _meant(json.loads(text), {**_CLASSES, **{c.__name__: c for c in (kind, *parts)}})
    except (KeyError, TypeError, AttributeError, RecursionError, ZeroDivisionError) as error:
        raise ValueError(f"no {kind.__name__}: {error}") from error
    if not isinstance(found, kind):
        raise ValueError(f"no {kind.__name__}")
    return found


def _plain(x: Any) -> Any:
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


def _meant(x: object, classes: Mapping[str, type[Any]]) -> Any:
    if isinstance(x, list):
        return tuple(_meant(y, classes) for y in x)
    if not isinstance(x, dict):
        return x
    kind, values = x["is"], {name: _meant(y, classes) for name, y in x.items() if name != "is"}
    if kind in _ENUMS:
        return _ENUMS[kind](values["value"])
    if kind == "Fraction":
        return Fraction(values["value"])
    return _mapping(values["value"]) if kind == "Mapping" else classes[kind](**values)


def _mapping(items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    return dict(items)

"""The JSON Schema of a sheet: what ``walk`` takes, with the fields of ``Attention`` as their annotations say."""

from __future__ import annotations

import json
from fractions import Fraction
from types import NoneType
from typing import Any

from symattn.attention.fields import field_types, members, words
from symattn.attention.inputs import NEEDED
from symattn.attention.spec import Attention
from symattn.document import schemas

Schema = dict[str, Any]
_NUMBER: list[Schema] = [
    {"type": "number"},
    {"type": "string", "pattern": "^[-+]?[0-9.]+([eE][-+]?[0-9]+)?(/[0-9]+)?$"},
]
_INTEGER: list[Schema] = [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+$"}]
_NONE: list[Schema] = [{"type": "null"}, {"const": "none"}]
#: Fields that a sheet may write in more ways than their annotations say.
_WRITTEN: dict[str, list[Schema]] = {
    "scale": [*_NUMBER, {"enum": ["1/d_k", "given", "none", "1/sqrt(d_k)"]}],
    "window": [*_INTEGER, {"type": "array"}, {"type": "string"}, *_NONE],
    "latent": [{"type": "object"}, {"type": "string"}, {"const": True}, *_NONE],
    "position": [{"type": "object"}, {"type": "string"}, *_NONE],
    "base": [{"enum": ["2", 2]}, *_NONE],
}


def sheet_schema() -> str:
    """Return the schema of sheets, as JSON text.

    >>> json.loads(sheet_schema())["properties"]["causal"]
    {'type': 'boolean'}
    """
    schema = json.loads(schemas.text("sheet"))
    fields = {name: _schema_of_field(name, hint) for name, hint in field_types(Attention).items()}
    # An array of a sheet may have the name of the field that needs it.
    schema["properties"] |= {
        name: _either([field, {"$ref": "#/$defs/array"}]) if name in NEEDED else field
        for name, field in fields.items()
    }
    schema["$defs"]["fields"]["properties"] = fields
    return json.dumps(schema, indent=2) + "\n"


def _schema_of_field(name: str, hint: object) -> Schema:
    kinds, texts = members(hint), words(hint)
    if name in _WRITTEN:
        return _either(_WRITTEN[name])
    if bool in kinds:
        return {"type": "boolean"}
    numbers = _NUMBER if Fraction in kinds else _INTEGER if int in kinds else []
    enum: list[Schema] = [{"enum": [*texts]}] if texts else []
    return _either([*numbers, *enum, *(_NONE if NoneType in kinds else [])])


def _either(schemas_: list[Schema]) -> Schema:
    return schemas_[0] if len(schemas_) == 1 else {"anyOf": schemas_}

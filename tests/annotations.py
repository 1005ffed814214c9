"""What the fields of descriptions are annotated with, as ``typing`` reads it."""

from dataclasses import fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from symattn import Alibi, Buckets, Disentangled, Latent, LinearAttention, Rotary, Shaw, TransformerXL

#: Annotations name these without importing them.
_NAMES = {
    "Latent": Latent,
    "LinearAttention": LinearAttention,
    "Position": Rotary | Alibi | Buckets | Shaw | TransformerXL | Disentangled,
}


def annotated(description: type) -> dict[str, tuple[Any, ...]]:
    """The types of each field: those of its union, or its only one."""
    hints = get_type_hints(description, localns=_NAMES)
    return {field.name: _flattened(hints[field.name]) for field in fields(description)}


def words_of(types: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of ``Literal`` among the types of a field."""
    return tuple(word for one in types if get_origin(one) is Literal for word in get_args(one))


def _flattened(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) not in (Union, UnionType):
        return (hint,)
    return tuple(member for part in get_args(hint) for member in _flattened(part))

"""Which specifications there are beside a plain ``Attention``, and what is verified of each."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from symattn.attention.spec import Attention
from symattn.errors import InputError
from symattn.verification.definitions.subject import Subject
from symattn.verification.target import Layout

if TYPE_CHECKING:
    from symattn.attention.layers.block import Block
    from symattn.attention.positions.fields import Rotary
    from symattn.verification.definitions.caches import Cached
    from symattn.verification.definitions.gradients import Gradient
    from symattn.verification.definitions.linear import LinearAttention
    from symattn.verification.definitions.norms import LayerNorm, RMSNorm

Specification: TypeAlias = "Attention | Block | Cached | Gradient | LayerNorm | LinearAttention | RMSNorm | Rotary"

_ROOM = "symattn.verification.definitions."
#: The class of a specification, and the module whose ``subject`` makes it ready.
_SUBJECTS = {
    "Attention": "lse",
    "Block": "blocks",
    "Cached": "caches",
    "Gradient": "gradients",
    "LayerNorm": "norms",
    "LinearAttention": "linear",
    "RMSNorm": "norms",
    "Rotary": "rotary",
}


def is_definition(spec: object) -> bool:
    """Whether a specification is one of these, and no plain ``Attention``."""
    return type(spec).__name__ in _SUBJECTS and not (isinstance(spec, Attention) and not spec.lse)


def subjects_of(spec: Any, layout: Layout = "nd") -> Iterator[Subject]:
    """The specification, ready to be verified, in the forms that functions have; the usual one first.

    Raises InputError for what is none.
    """
    if not is_definition(spec):
        raise InputError(f"{spec!r} is no specification; known: {', '.join(sorted(_SUBJECTS))}")
    room: Any = import_module(_ROOM + _SUBJECTS[type(spec).__name__])
    if hasattr(room, "subjects"):
        yield from room.subjects(spec, layout)
    else:
        yield room.subject(spec, layout) if ordered(spec) else room.subject(spec)


def ordered(spec: object) -> bool:
    """Whether there are arrays with an axis of heads, which functions have in one order or another."""
    return type(spec).__name__ in ("Attention", "Cached", "Gradient", "LinearAttention", "Rotary")

"""Which specifications there are beside a plain ``Attention``, and what is verified of each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from symattn.attention.spec import Attention
from symattn.errors import InputError
from symattn.verification.definitions.subject import Subject
from symattn.verification.target import Layout

if TYPE_CHECKING:
    from symattn.verification.definitions.norms import LayerNorm, RMSNorm

Specification: TypeAlias = "Attention | LayerNorm | RMSNorm"

_ROOM = "symattn.verification.definitions."
#: The class of a specification, and the module whose ``subject`` makes it ready.
_SUBJECTS = {"LayerNorm": "norms", "RMSNorm": "norms"}


def is_definition(spec: object) -> bool:
    """Whether a specification is one of these, and no plain ``Attention``."""
    return type(spec).__name__ in _SUBJECTS and not (isinstance(spec, Attention) and not spec.lse)


def subject_of(spec: Any, layout: Layout = "nd") -> Subject:
    """The specification, ready to be verified. Raises InputError for what is none."""
    if not is_definition(spec):
        raise InputError(f"{spec!r} is no specification; known: Attention, {', '.join(sorted(_SUBJECTS))}")
    make: Callable[..., Subject] = import_module(_ROOM + _SUBJECTS[type(spec).__name__]).subject
    return make(spec) if layout == "nd" else make(spec, layout)

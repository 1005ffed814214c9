"""symattn: why attention is what it is, whether it is always so, and whether code computes it.

The public names are those of ``__all__``; they are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symattn.arrays import kind
    from symattn.attention.spec import Attention
    from symattn.errors import InputError, MissingExtra, Refused, SymattnError, Undecided
    from symattn.evidence import Evidence, Grade, Verdict

__version__ = "0.1.0"

_WHERE = {
    "Attention": "symattn.attention.spec",
    "Evidence": "symattn.evidence",
    "Grade": "symattn.evidence",
    "InputError": "symattn.errors",
    "MissingExtra": "symattn.errors",
    "Refused": "symattn.errors",
    "SymattnError": "symattn.errors",
    "Undecided": "symattn.errors",
    "Verdict": "symattn.evidence",
    "kind": "symattn.arrays",
}

__all__ = [
    "Attention",
    "Evidence",
    "Grade",
    "InputError",
    "MissingExtra",
    "Refused",
    "SymattnError",
    "Undecided",
    "Verdict",
    "kind",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'symattn' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

"""symattn: why attention is what it is, whether it is always so, and whether code computes it.

The public names are those of ``__all__``; they are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symattn.arrays import kind
    from symattn.arrays.precision import Precision
    from symattn.attention.spec import Attention
    from symattn.derivations import derive
    from symattn.derivations.walks import walk
    from symattn.document.model import Document
    from symattn.errors import InputError, MissingExtra, Refused, SymattnError, Undecided
    from symattn.evidence import Evidence, Grade, Verdict
    from symattn.proof.theorem import theorem
    from symattn.sources.loading import CannotRun
    from symattn.sources.verify import verify
    from symattn.verification.domain import Domain
    from symattn.verification.report import Report

__version__ = "0.1.0"

_WHERE = {
    "Attention": "symattn.attention.spec",
    "CannotRun": "symattn.sources.loading",
    "Document": "symattn.document.model",
    "Domain": "symattn.verification.domain",
    "Evidence": "symattn.evidence",
    "Grade": "symattn.evidence",
    "InputError": "symattn.errors",
    "MissingExtra": "symattn.errors",
    "Precision": "symattn.arrays.precision",
    "Refused": "symattn.errors",
    "Report": "symattn.verification.report",
    "SymattnError": "symattn.errors",
    "Undecided": "symattn.errors",
    "Verdict": "symattn.evidence",
    "derive": "symattn.derivations",
    "kind": "symattn.arrays",
    "theorem": "symattn.proof.theorem",
    "verify": "symattn.sources.verify",
    "walk": "symattn.derivations.walks",
}

__all__ = [
    "Attention",
    "CannotRun",
    "Document",
    "Domain",
    "Evidence",
    "Grade",
    "InputError",
    "MissingExtra",
    "Precision",
    "Refused",
    "Report",
    "SymattnError",
    "Undecided",
    "Verdict",
    "derive",
    "kind",
    "theorem",
    "verify",
    "walk",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'symattn' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

"""symattn: why attention is what it is, whether it is always so, and whether code computes it.

The public names are those that ``__init__.pyi`` imports; they are imported on first use.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from symattn.first_use import import_name, read_stub

__version__ = "0.1.0"

_WHERE = read_stub(__file__)
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    value = import_name(__name__, _WHERE, name)
    if isinstance(value, FunctionType):
        from symattn.document.keywords import answering  # not imported by ``import symattn`` alone

        value = answering(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""symattn: why attention is what it is, whether it is always so, and whether code computes it.

The public names are those that ``__init__.pyi`` imports; they are imported on first use.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import FunctionType
from typing import Any

__version__ = "0.1.0"

#: The module of each public name, by the lines ``from MODULE import NAME as NAME`` of the stub for type checkers.
with open(os.path.join(os.path.dirname(__file__), "__init__.pyi"), encoding="utf-8") as _stub:
    _WHERE = {
        line.split()[3]: line.split()[1] for line in _stub if line.startswith("from symattn.")
    }
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(
            f"module 'symattn' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    value = getattr(import_module(_WHERE[name]), name)
    if isinstance(value, FunctionType):
        from symattn.document.keywords import answering  # not imported by ``import symattn`` alone

        value = answering(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""The namespace of a kind with numbered sizes: one part of the Python array API standard, derived from primitives.

The primitives of a kind are listed in ``planes``; kinds of object elements need only those in ``entries``. Everything
else is derived here, once. The chapters are those of the standard: elementwise, structure, reductions, creation,
linear. Names that are not here are not offered: nothing is inherited or approximated.
Source: Python array API standard, 2024.12.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays import structure
from symattn.arrays.array import Functions
from symattn.arrays.elementwise import Elementwise
from symattn.arrays.planes import Planes
from symattn.arrays.reductions import LinearReductions, Reductions
from symattn.arrays.tensors import namespace as of_tensor
from symattn.document.errors import Refused


class Lacking(Refused, AttributeError):
    """The error for a function that a kind lacks; also an AttributeError, so that ``hasattr`` is False."""


class Namespace(Elementwise, structure.Structure, Reductions, structure.Creation, LinearReductions):
    """The functions that arrays of ``kind`` offer."""

    def __init__(self, kind: type[Planes]) -> None:
        self.kind = kind

    def __getattr__(self, name: str) -> Any:
        # Python looks up private names itself, such as those for copying.
        if name.startswith("_"):
            raise AttributeError(name)
        raise Lacking(f"{self.kind.name} lacks {name}")

    def __repr__(self) -> str:
        return f"<namespace of {self.kind.name}>"


def namespace_of(*arrays: object) -> Functions:
    """Return the namespace of the first array that is not None, which all arrays share."""
    first = arrays[0] if arrays[0] is not None else next(x for x in arrays if x is not None)
    if type(first) is np.ndarray:  # most often
        return np
    namespace = getattr(first, "__array_namespace__", None)
    functions: Functions = of_tensor(first) if namespace is None else namespace()
    return functions

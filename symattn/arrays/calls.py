"""How a function of the namespace is called: of plain operands alone it is NumPy's, and no keyword is passed over."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from symattn.arrays.base import ArrayBase
from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.notes import note
from symattn.document.errors import Refused

# They say how NumPy is to work, not what comes out. ``dtype`` is noted, the others change nothing here.
_MANNERS = frozenset(["dtype", "casting", "copy", "device", "kind", "like", "optimize", "order", "stable", "subok"])

# What NumPy would round: of plain operands, too, these are computed by the kind. The logarithms of positions, say.
_INEXACT = frozenset([*FUNCTIONS, "exp2", "reciprocal", "divide", "pow", "mean"])


def offered(name: str, function: Callable[..., Any], like: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """``function`` as the namespace offers it. A keyword that it (or ``like``) lacks, such as ``where``, is refused."""
    code = (like or function).__code__
    known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    @wraps(function)
    def run(self: Any, *operands: Any, **how: Any) -> Any:
        if not any(isinstance(x, ArrayBase) for x in operands):
            if name not in _INEXACT:
                return getattr(np, name)(*operands, **how)
            operands = (self.kind.of(operands[0]), *operands[1:])
        for key in how.keys() - known:
            _set_aside(self.kind, name, key, how.pop(key))
        return function(self, *operands, **how)

    return run


def offer_all(chapter: type) -> None:
    """Every public function of a chapter of the namespace, as it is offered."""
    for name, function in list(vars(chapter).items()):
        if callable(function) and not name.startswith("_"):
            setattr(chapter, name, offered(name, function))


def _set_aside(kind: type[ArrayBase], name: str, key: str, value: object) -> None:
    if value is not None and key not in _MANNERS:
        raise Refused(f"{kind.name}: {name}({key}=…) is not offered")
    if value is not None and key == "dtype":
        note(f"{name}(dtype={getattr(value, '__name__', value)}) kept {kind.name}")

"""The two elements that are not numbers: −∞, which only masks make, and "undefined", which knows where it arose.

Neither has ``__float__``, since nothing may round them, and SymPy would try.
"""

from __future__ import annotations

import numbers
from typing import Any, NoReturn

from symattn.document.errors import Refused, Undecided


class Forbidden:
    """−∞: the score of a forbidden key. −∞ + x = −∞ and −∞ · x = −∞ for x known to be positive; the rest is refused."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "-inf"

    def __reduce__(self) -> str:
        return "FORBIDDEN"  # a singleton, also after copying and pickling

    def __add__(self, other: object) -> Any:
        return other if isinstance(other, Undefined) else self

    __radd__ = __add__

    def __sub__(self, other: object) -> Any:
        return self._refuse_forbidden_operation() if isinstance(other, Forbidden) else self + other

    def __mul__(self, other: object) -> Any:
        if isinstance(other, Undefined):
            return other
        return self if known_positive(other) else self._refuse_forbidden_operation()

    __rmul__ = __mul__
    __truediv__ = __mul__

    def _refuse_forbidden_operation(self, *_: object) -> NoReturn:
        raise Refused(
            "-inf (a masked score) may only be added to, or multiplied by what is known to be positive"
        )

    __rsub__ = __rtruediv__ = __pow__ = _refuse_forbidden_operation
    __neg__ = __abs__ = _refuse_forbidden_operation


# The only instance, so that ``is`` recognises it.
FORBIDDEN = Forbidden()


class Undefined:
    """The value of 0/0 and the like: absorbs every operation, equals nothing, and is never printed as a number."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"undefined ({self.why})"

    def _return_undefined_unchanged(self, *_: object) -> Undefined:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        __pow__
    ) = _return_undefined_unchanged
    __neg__ = __abs__ = _return_undefined_unchanged

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self)


def known_positive(x: Any) -> bool:
    """Return whether ``x`` is known to be greater than zero."""
    if isinstance(x, (Forbidden, Undefined)):
        return False
    if not isinstance(x, numbers.Real) and hasattr(x, "is_positive"):  # a SymPy expression
        return x.is_positive is True
    # An order that is undecided, or does not exist, leaves the sign unknown.
    try:
        return bool(x > 0)
    except (TypeError, Undecided):
        return False

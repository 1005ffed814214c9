"""The notation of one exact element: as a formula, in digits, and in the JSON form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.shown import formula
from symattn.arrays.special import Forbidden, Undefined
from symattn.derivations.enclosed import Enclosed
from symattn.document.errors import Undecided
from symattn.document.notation import Decimal, Node, Words

_DOUBLE = 15  # digits that a double holds
_FAR = 9999  # beyond this power of ten, digits are of no use


def nested(function: Callable[[Any], object], entries: object) -> Any:
    """Apply ``function`` to every entry of nested lists, and return nested tuples."""
    if isinstance(entries, (list, tuple)):
        return tuple(nested(function, entry) for entry in entries)
    return function(entries)


def is_number(x: object) -> bool:
    """Return whether the element is an exact number: neither −∞, undefined, a truth value nor a table's integer."""
    return not isinstance(x, (int, Forbidden, Undefined))


def digits(x: Any, count: int) -> Any:
    """Return the element rounded to ``count`` significant digits, for a column of decimals."""
    if not is_number(x):
        return formula(x)
    if isinstance(x, Enclosed):
        return Words(x.shown(count)) if x.ball.contains(0) else x.shown(count)
    try:
        shown = str(x.decimal(count))
    except Undecided:  # e.g. 1 − e^(−10¹²): so near to a round number that no ball decides on which side it is
        shown = f"{x.to_float():.{min(count, _DOUBLE)}g}"
    power = shown.partition("e")[2]
    if power and abs(int(power)) > _FAR:
        return Words(f"<1e-{_FAR}" if power[0] == "-" else f"beyond 1e{_FAR}")
    return shown


def decimal(x: object, count: int) -> Node:
    """Return the digits as a part of a formula."""
    shown = digits(x, count)
    return shown if isinstance(shown, Node) else Decimal(shown)


def exact_json(x: object) -> Any:
    """Return a string that ``sympy.sympify`` reads, ``-oo`` for −∞, None for undefined and enclosed numbers."""
    if isinstance(x, int):
        return x
    if isinstance(x, Forbidden):
        return "-oo"
    return None if isinstance(x, (Undefined, Enclosed)) else str(x)


def ball_json(x: object) -> Any:
    """Return the ball of an enclosed number, ``[0.3127 +/- 4.2e-70]``; None for an exact number."""
    return str(x) if isinstance(x, Enclosed) else None


def decimal_json(x: Any) -> Any:
    """Return the nearest double, or digits as a string beyond the range of doubles."""
    if isinstance(x, int):
        return x
    if not is_number(x):
        return "-inf" if isinstance(x, Forbidden) else None
    double = x.to_float()
    if isinstance(x, Enclosed):
        return double
    beyond = double in (float("inf"), float("-inf")) or (double == 0.0 and not x.is_zero())
    return x.decimal(17) if beyond else double

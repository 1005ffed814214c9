"""How one exact element is shown: as a formula, in digits, and in the JSON form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.special import Forbidden, Undefined
from symattn.document.notation import Decimal, Name, Neg, Node, Words
from symattn.errors import Undecided

_DOUBLE = 15  # digits that a double holds
_FAR = 9999  # beyond this power of ten digits tell nobody anything


def nested(function: Callable[[Any], Any], entries: Any) -> Any:
    """``function`` of every entry of nested lists, as nested tuples."""
    if isinstance(entries, (list, tuple)):
        return tuple(nested(function, entry) for entry in entries)
    return function(entries)


def flat(entries: Any) -> list[Any]:
    """The entries of nested lists in order."""
    if isinstance(entries, (list, tuple)):
        return [x for entry in entries for x in flat(entry)]
    return [entries]


def is_number(x: Any) -> bool:
    """Whether the element is a number: not −∞, not undefined, no truth value."""
    return not isinstance(x, (bool, Forbidden, Undefined))


def formula(x: Any) -> Node:
    """The element as it is written: (1 + 4e²)/(1 + 2e²), −∞ for a forbidden score."""
    if isinstance(x, bool):
        return Words("true" if x else "false")
    if isinstance(x, Forbidden):
        return Neg(Name("∞"))
    if isinstance(x, Undefined):
        return Words("undefined")
    node: Node = x.notation()
    return node


def digits(x: Any, count: int) -> Any:
    """The element rounded to ``count`` significant digits, for a column of decimals."""
    if not is_number(x):
        return formula(x)
    try:
        shown = str(x.decimal(count))
    except Undecided:  # e.g. 1 − e^(−10¹²): so near to a round number that no ball tells which side it is on
        shown = f"{x.to_float():.{min(count, _DOUBLE)}g}"
    power = shown.partition("e")[2]
    if power and abs(int(power)) > _FAR:
        return Words(f"<1e-{_FAR}" if power[0] == "-" else f"beyond 1e{_FAR}")
    return shown


def decimal(x: Any, count: int) -> Node:
    """The digits as a part of a formula."""
    shown = digits(x, count)
    return shown if isinstance(shown, Node) else Decimal(shown)


def exact_json(x: Any) -> Any:
    """A string that ``sympy.sympify`` reads; −∞ is ``-oo``, truth values stay, undefined is null."""
    if isinstance(x, bool):
        return x
    if isinstance(x, Forbidden):
        return "-oo"
    return None if isinstance(x, Undefined) else str(x)


def decimal_json(x: Any) -> Any:
    """The nearest double; beyond what doubles hold, digits as a string."""
    if isinstance(x, bool):
        return x
    if not is_number(x):
        return "-inf" if isinstance(x, Forbidden) else None
    double = x.to_float()
    beyond = double in (float("inf"), float("-inf")) or (double == 0.0 and not x.is_zero())
    return x.decimal(17) if beyond else double

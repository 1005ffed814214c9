"""Exact numbers as words of labels."""

from __future__ import annotations

import re
from typing import Any

from symattn.arrays.shown import formula
from symattn.derivations.elements import decimal
from symattn.document.notation import Node, Over
from symattn.document.text import text
from symattn.drawing.scene import BRACES

_PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789−")
_POWER = re.compile(r"e([+-]?)0*(\d+)$")
_RAISED = re.compile(r"\^\(([^()]*)\)|([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)")


def words(node: Node) -> str:
    """A formula on one line, with raised exponents."""
    return _RAISED.sub(lambda m: "{^" + (m[1] or m[2].translate(_PLAIN)) + "}", text(node))


def fraction(x: Any) -> tuple[str, str] | str:
    """What stands above and below the bar, or the number alone."""
    node = formula(x)
    return (words(node.numerator), words(node.denominator)) if isinstance(node, Over) else words(node)


def digits(x: Any, count: int = 3) -> str:
    """The number correctly rounded, powers of ten as 6.03·10⁻⁶."""
    return powered(words(decimal(x, count)))


def powered(digits: str) -> str:
    """2.35e-07 as 2.35·10⁻⁷.

    >>> powered("2.35e-07")
    '2.35·10{^−7}'
    """
    return _POWER.sub(lambda m: "·10{^" + ("−" if m[1] == "-" else "") + m[2] + "}", digits)


def plain(words: str) -> str:
    """The words of a label without its braces, for descriptions."""
    return BRACES.sub(lambda m: ("^" if m[1] else "") + m[2] + (f" {m[3]}" if m[3] else ""), words)

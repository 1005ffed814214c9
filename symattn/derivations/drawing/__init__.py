"""The pictures, one to a module, and exact numbers as words of their labels."""

from __future__ import annotations

import re

from symattn.derivations.enclosed import decimal
from symattn.document.drawing.scene import powered
from symattn.document.notation import Node
from symattn.document.text import text

_PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789−")
_RAISED = re.compile(r"\^\(([^()]*)\)|([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)")


def words(node: Node) -> str:
    """Return a formula on one line, with raised exponents."""
    return _RAISED.sub(lambda m: "{^" + (m[1] or m[2].translate(_PLAIN)) + "}", text(node))


def digits(x: object, count: int = 3) -> str:
    """Return the number correctly rounded, with powers of ten as 6.03·10⁻⁶."""
    return powered(words(decimal(x, count)))

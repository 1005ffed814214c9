"""Vectors written with numbers before them, sums and softmax: 9/10*[1, 0] + 1/10*[0, 1], softmax([2, 4, 4])."""

from __future__ import annotations

import re

from symattn.derivations.claims.reading import brackets
from symattn.errors import InputError

_SOFTMAX = re.compile(r"softmax\(\s*(\[[^\[\]]*\])\s*\)")
_MADE = re.compile(r"softmax\(|[*·]\s*\[|\]\s*[-+]")
_TERM = re.compile(r"\s*([+-]?)\s*(?:([^\[\]]*?)\s*[*·]\s*)?(softmax\(\s*\[[^\[\]]*\]\s*\)|\[[^\[\]]*\])")


def is_vector(text: str) -> bool:
    """Whether the text is made of vectors, and is more than a list."""
    return bool(_MADE.search(text))


def entries(text: str) -> list[str]:
    """The entries as expressions. Raises InputError."""
    total: list[str] = []
    place = 0
    while place < len(text.rstrip()):
        found = _TERM.match(text, place)
        if not found or (place and not found[1]):
            wrong = f"{text!r} is no sum of vectors"
            raise InputError(f"{wrong}; mend: 9/10*[1, 0] + 1/10*[0, 1], or softmax([2, 4, 4])")
        term = _entries(found[3])
        signed = [f"{found[1]}({f'({found[2]})*' if found[2] else ''}({x}))" for x in term]
        if total and len(total) != len(signed):
            raise InputError(
                f"vectors of {len(total)} and {len(signed)} entries have no sum; mend: give as many to both"
            )
        total = [a + b for a, b in zip(total, signed, strict=True)] if total else signed
        place = found.end()
    return total


def _entries(text: str) -> list[str]:
    soft = _SOFTMAX.fullmatch(text)
    found = brackets(soft[1] if soft else text)
    if not found or any(isinstance(x, list) for x in found):
        raise InputError(f"{text!r} is no vector; mend: [1, 1/2]")
    if not soft:
        return list(found)
    total = "+".join(f"exp({x})" for x in found)
    return [f"exp({x})/({total})" for x in found]

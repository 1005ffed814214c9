"""The names of arrays as people write them: ``X``, ``Wq``, ``W_Q`` and ``WQ`` are x and w_q."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from symattn.attention.inputs import NEEDED, OPTIONAL, TOKENS
from symattn.derivations.sheets.text import short
from symattn.errors import InputError

INPUTS = tuple(dict.fromkeys((*TOKENS, *(f"{a}_{b}" for b in "qkvo" for a in "wb"), *NEEDED, *OPTIONAL)))


def bare(name: str) -> str:
    """A name without what spellings differ in: case, underscores and hyphens."""
    return name.lower().replace("_", "").replace("-", "")


_MEANT = {bare(name): name for name in INPUTS}


def meant(name: str) -> str | None:
    """The array that a name stands for, or None."""
    return _MEANT.get(bare(name))


def suggested(word: str, names: Iterable[str]) -> str:
    """`` Did you mean 'w_q'?``, or nothing; spellings are compared bare."""
    bares = {bare(name): name for name in names}
    found = get_close_matches(bare(word), bares, n=1)
    return f" Did you mean {bares[found[0]]!r}?" if found else ""


def called(arrays: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The arrays by the names that symattn has for them. Raises InputError for an unknown one, or one given twice."""
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        known = meant(name)
        if known is None:
            raise InputError(
                f"{where}: unknown name {short(name)!r}.{suggested(name, INPUTS)} Known: {', '.join(INPUTS)}"
            )
        if known in found:
            raise InputError(f"{where}: {known} is given twice, once as {short(name)!r}")
        found[known] = array
    return found

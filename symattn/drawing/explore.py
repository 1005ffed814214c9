"""``explore``: one page on which the scale, the mask and the floating format of a walk are chosen."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

from symattn.derivations.walks import walk
from symattn.document.model import Document, Text
from symattn.document.notation import Root, name
from symattn.errors import InputError, SymattnError

_DK = name("d", "k")
_SCALES: tuple[tuple[Text, Any], ...] = ((("none",), 1), ((1 / Root(_DK),), None), ((1 / _DK,), "1/d_k"))
_MASKS = {"none": False, "causal": True}
_FORMATS = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True, repr=False)
class Exploration:
    """The walks of all choices, each a document whose every number was made when the page was.

    ``command`` makes the same page; it is empty where none does, as for arrays and for fields given in Python.
    """

    command: str
    choices: Mapping[str, tuple[Text, ...]]
    documents: Mapping[tuple[int, ...], Document]

    def __repr__(self) -> str:
        return f"<exploration of {len(self.documents)} walks; .html(), .save(path)>"

    def html(self) -> str:
        """The page."""
        from symattn.render.exploring import page

        return page(self.command, self.choices, self.documents)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page. Raises ``InputError`` for a file that symattn did not write unless ``force`` is true."""
        from symattn.render import files

        files.write(named(path), self.html(), force)


def named(path: str | Path) -> Path:
    """The path of a page. Raises ``InputError`` for a name that is not one of a page."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{path} is no page; mend: a name that ends with .html")
    return Path(path)


def explore(source: str | PathLike[str] | Mapping[str, Any] = "eight-step", **fields: Any) -> Exploration:
    """All walks through an example with each scale, mask and floating format, as one page that switches between them.

    Combinations that the example's sizes or specification do not allow are left out, and the page says so where one is
    chosen; ``source`` and ``fields`` are those of ``walk``. Raises ``InputError`` where no combination is left.

    >>> found = explore("eight-step")
    >>> len(found.documents), found.choices["mask"]
    (24, (('none',), ('causal',)))
    """
    first = walk(source, **fields)  # what is wrong with the example is told before anything is left out
    documents: dict[tuple[int, ...], Document] = {}
    for (i, scale), (j, causal), (k, dtype) in product(
        enumerate(scale for _, scale in _SCALES), enumerate(_MASKS.values()), enumerate(_FORMATS)
    ):
        try:
            documents[i, j, k] = walk(source, **{**fields, "scale": scale, "causal": causal, "dtype": dtype})
        except SymattnError:
            continue
    if len({(i, j) for i, j, _ in documents}) < len(_SCALES) * len(_MASKS):
        raise InputError(f"{first.name} has no walk for each scale and mask; mend: an example of softmax attention")
    choices = {"scale": tuple(words for words, _ in _SCALES), "mask": _said(_MASKS), "format": _said(_FORMATS)}
    command = "" if fields or isinstance(source, Mapping) else shlex.join(("symattn", "explore", str(source)))
    return Exploration(command, choices, documents)


def _said(words: Iterable[str]) -> tuple[Text, ...]:
    return tuple((word,) for word in words)

"""The formulas that a reader of Markdown or of a page meets, as TeX."""

import re
from collections.abc import Iterable, Iterator
from html import unescape

from symattn.document.model import Document

Formula = tuple[str, bool]
"""TeX, and whether it is displayed."""

_QUOTE = re.compile(r"^> ?", re.MULTILINE)
_FENCED = re.compile(r"^(`{3,})(\w*)\n(.*?)\n\1$", re.MULTILINE | re.DOTALL)
_TICKED = re.compile(r"\$`(.+?)`\$")
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_PLAIN = re.compile(r"(?<!\\)\$(.+?)(?<!\\)\$")
_COPIED = re.compile(r' data-tex="([^"]*)"')


def printed(markdown: str) -> Iterator[Formula]:
    """What stands in ``math`` fences and between dollars. Raises ``ValueError`` where a dollar is left over."""
    text = _QUOTE.sub("", markdown)
    for fence in _FENCED.finditer(text):
        if fence[2] == "math":
            yield fence[3], True
    text = _FENCED.sub("", text)
    for pattern in (_TICKED, _CODE, _PLAIN):
        if pattern is not _CODE:
            yield from ((found[1], False) for found in pattern.finditer(text))
        text = pattern.sub("", text)
    if left := re.search(r".*(?<!\\)\$.*", text):
        raise ValueError(f"a dollar is left over: {left[0]}")


def copied(page: str) -> Iterator[Formula]:
    """What the buttons of a page copy."""
    return ((unescape(found), True) for found in _COPIED.findall(page))


def of(documents: Iterable[tuple[str, Document]]) -> dict[Formula, str]:
    """Every formula of the documents once, with the first document that has it."""
    found: dict[Formula, str] = {}
    for name, document in documents:
        for formula in (*printed(document.markdown()), *copied(document.html())):
            found.setdefault(formula, name)
    return found

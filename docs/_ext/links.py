"""Every link from one page of the built site to another leads to a page, and to an anchor that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from os.path import normpath
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


def broken(site: Path) -> Iterator[str]:
    """Yield each link within the site that leads nowhere, with the page that has it."""

    @cache
    def read(page: Path) -> tuple[set[str], list[str]]:
        text = page.read_text(encoding="utf-8")
        return set(re.findall(r'\bid="([^"]+)"', text)), re.findall(r'<a [^>]*href="([^"]+)"', text)

    for page in sorted(site.rglob("*.html")):
        for link in map(unescape, read(page)[1]):
            path, _, anchor = link.partition("#")
            target = Path(normpath(page.parent / unquote(path))) if path else page
            if re.match(r"[a-z]+:", link):
                continue
            if not target.is_file() or (
                anchor and target.suffix == ".html" and unquote(anchor) not in read(target)[0]
            ):
                yield f"{page.relative_to(site)}: {link}"


def _check(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.name == "html" and (found := list(broken(Path(app.outdir)))):
        raise ExtensionError(f"{len(found)} links lead nowhere: {'; '.join(found[:5])}")


_BACK = re.compile(r'(class="viewcode-back" href="[^"#]*?)([^"/#]+)\.html#([^"]+)"')


def _mend_links_to_documentation(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Let pages of source code link to names where they are documented.

    Sphinx takes all names of a source file to be documented in one module: that of the first of them.
    """
    if not page.startswith("_modules/"):
        return
    every = app.env.domains["py"].objects  # type: ignore[attr-defined]
    names_of: dict[str, list[str]] = {}
    for name, entry in every.items():
        names_of.setdefault(entry.docname.rpartition("/")[2], []).append(name)

    def mend(link: re.Match[str]) -> str:
        start, document, anchor = link.groups()
        names = names_of.get(document, [])
        ends = [anchor.split(".", n)[-1] for n in range(1, anchor.count(".") + 1)]
        found = [name for end in ends for name in names if name.endswith(f".{end}")]
        right = anchor if anchor in names or not found else found[0]
        return f'{start}{document}.html#{right}"'

    context["body"] = _BACK.sub(mend, context.get("body", ""))


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.connect("html-page-context", _mend_links_to_documentation)
    app.connect("build-finished", _check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

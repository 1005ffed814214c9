"""The style, the fonts and the script of pages, which are files in the folder ``web``."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from symattn.document.render.mathml import ROLES

WEB = Path(__file__).parent / "web"


def read(name: str) -> str:
    """Return a file of the folder ``web``."""
    return (WEB / name).read_text(encoding="utf-8").strip()


def _embed_font_face(family: str, weight: int, name: str) -> str:
    data = b64encode((WEB / name).read_bytes()).decode()
    return (
        f"@font-face{{font-family:'{family}';font-weight:{weight};font-display:block;"
        f"src:url(data:font/woff2;base64,{data}) format('woff2')}}"
    )


_ROLES = "".join(
    f"--sa-{role}:light-dark({white},{black});" for role, (white, black) in ROLES.items()
)
_FORMS = "".join(
    f".symattn .forms input:nth-of-type({i}):checked~.form:nth-of-type({i}){{display:block}}"
    for i in range(1, 13)
)  # of one array, at most
_LETTERS = "".join(f".symattn .r-{role}{{color:var(--sa-{role})}}" for role in ROLES)

STYLE = f"{read('page.css')}\n.symattn{{{_ROLES}}}{_LETTERS}{_FORMS}"
"""The rules of every page; all apply only within ``.symattn``, so that a fragment does not change the page around it.

A fragment is light, or dark in a page that is: by ``data-theme``, ``dark`` or ``auto``, like themes of Sphinx, or like
dark notebooks. One without a title, such as an array, takes no more room than it needs.
Print has no ligatures, since Firefox does not map them to letters in a PDF, where "float32" could not be searched.
"""

WHOLE = (
    read("whole.css")
    + _embed_font_face("SA Serif", 400, "serif.woff2")
    + _embed_font_face("SA Serif", 600, "serif-bold.woff2")
)
"""The additional rules of a whole page: its paper, and a subset of Source Serif 4 with the signs of pages
(``web/OFL.txt`` is the licence of the fonts)."""

MATHEMATICS = _embed_font_face("SA Math", 400, "math.woff2")
"""The additional rules of a page with formulas: a subset of STIX Two Math."""

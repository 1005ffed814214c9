"""The style, the fonts and the script of pages, which stand beside this module as files."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from symattn.document.render.mathml import ROLES

WEB = Path(__file__).parent / "web"


def read(name: str) -> str:
    """A file of the page."""
    return (WEB / name).read_text(encoding="utf-8").strip()


def _font(family: str, weight: int, name: str) -> str:
    data = b64encode((WEB / name).read_bytes()).decode()
    return (
        f"@font-face{{font-family:'{family}';font-weight:{weight};font-display:block;"
        f"src:url(data:font/woff2;base64,{data}) format('woff2')}}"
    )


_ROLES = "".join(f"--sa-{role}:light-dark({white},{black});" for role, (white, black) in ROLES.items())
_FORMS = "".join(
    f".symattn .forms input:nth-of-type({i}):checked~.form:nth-of-type({i}){{display:block}}" for i in range(1, 13)
)  # of one array, at most
_LETTERS = "".join(f".symattn .r-{role}{{color:var(--sa-{role})}}" for role in ROLES)

STYLE = f"{read('page.css')}\n.symattn{{{_ROLES}}}{_LETTERS}{_FORMS}"
"""The rules of every page; each speaks of what is within ``.symattn`` alone, so that a fragment changes no other.

A fragment is light, and dark in a page that says so: by ``data-theme``, ``dark`` or ``auto``, as themes of Sphinx do,
or as dark notebooks do. One without a title, such as an array, takes no more room than it needs.
Print has no ligatures, since Firefox gives them no letters in a PDF, so that "float32" could not be searched there.
"""

WHOLE = read("whole.css") + _font("SA Serif", 400, "serif.woff2") + _font("SA Serif", 600, "serif-bold.woff2")
"""What a whole page adds: its paper, and Source Serif 4, cut down to the signs that pages have (``web/OFL.txt`` is the
licence of the fonts)."""

MATHEMATICS = _font("SA Math", 400, "math.woff2")
"""What a page with formulas adds: STIX Two Math, cut down likewise."""

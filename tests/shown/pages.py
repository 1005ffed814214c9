"""One page of each kind that symattn writes, and the front page of its site."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import symattn
from symattn.drawing import names as pictures
from tests.docs.pages import ROOT
from tests.shown.documents import audited, right, wrong

AROUND = "<!doctype html>\n<html lang='en'><head><title>around</title></head><body>{}</body></html>\n"


def of_each_kind(folder: Path) -> dict[str, str]:
    """The pages by name; the site is built in the folder."""
    drawn = "".join(symattn.draw(name).svg(fragment=True) for name in pictures())
    site = (ROOT / "docs" / "_static" / "site.css").read_text(encoding="utf-8")
    return {
        "walk": symattn.walk("eight-step").html(),
        "prove": symattn.prove("softmax-shift").html(),
        "derive": symattn.derive("scaling", dk=4).html(),
        "verify": symattn.verify(wrong, examples=5).document().html(),
        "compare": symattn.compare(right, wrong, examples=5).document().html(),
        "audit": audited().document().html(),
        "explore": symattn.explore("eight-step").html(),
        "scaling": symattn.explore("scaling").html(),
        "pictures": AROUND.format(drawn).replace("</head>", f"<style>{site}</style></head>"),
        "landing": landing(folder),
    }


def landing(folder: Path) -> str:
    """The front page of the site with its style in it."""
    source, out = ROOT / "docs", folder / "html"
    for name in ("conf.py", "index.md"):
        shutil.copy(source / name, folder)
    for name in ("_ext", "_static", "_templates"):
        shutil.copytree(source / name, folder / name)
    extensions = "extensions=myst_parser,symattn.plugins.sphinx"
    command = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", "-D", extensions, str(folder), str(out)]
    subprocess.run(command, check=True, timeout=120)
    page = (out / "index.html").read_text(encoding="utf-8")
    style = re.compile(r'<link rel="stylesheet" type="text/css" href="(_static/[^"?]+)[^>]*>')
    page = style.sub(lambda link: f"<style>{(out / link[1]).read_text(encoding='utf-8')}</style>", page)
    return re.sub(r"<link [^>]*>|<script src=[^>]*></script>", "", page)

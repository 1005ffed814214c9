"""Every document that symattn makes without somebody's own numbers or code, and one of each kind that needs some."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np

import symattn
from symattn import Document, derivations, drawing, kinds, theorems
from symattn.attention.variants import VARIANTS
from symattn.derivations import examples
from symattn.theorems.documents import book
from symattn.theorems.runner import run
from tests.docs.pages import ROOT

_CLAIMS: tuple[tuple[str, ...], ...] = (
    ("weights", "0.3", "0.7", "0.1"), ("similarity", "[1, 2]", "[2, 1]"),
    ("equal", "exp(2)/(1+exp(2))", "1/(1+exp(-2))"), ("equal", "softmax([2, 4, 4])", "[0.0634, 0.468, 0.468]"),
)  # fmt: skip


@cache
def decided() -> list[Any]:
    """Every theorem with its finding and the equations of its proof."""
    return run(list(theorems.catalogue().values()), theorems.catalogue, jobs=2, explain=True)


@cache
def volume() -> Document:
    """The book, with the equations of every proof."""
    return book(decided(), "symattn report --book --explain")


def every() -> Iterator[tuple[str, Document]]:
    """Each document with its name, the longest last."""
    for name in derivations.names():
        yield f"derive {name}", symattn.derive(name)
    for name in examples.names():
        yield f"walk {name}", symattn.walk(name)
    for name, variant in VARIANTS.items():
        yield f"specification {name}", variant.spec.document(variant.names)
    for number, claim in enumerate(_CLAIMS):
        yield f"claim {number}", symattn.claim(*claim)
    yield from judged()
    yield "book", volume()


def judged() -> Iterator[tuple[str, Document]]:
    """One document of each kind that needs numbers or code."""
    x = symattn.kind("exact").lift([[1, 0], ["1/2", 1]])
    found: dict[str, Any] = {
        "array": symattn.kind("exact").lift(np.arange(400).reshape(4, 10, 10)),
        "array of balls": symattn.kind("ball").lift([["1/3"] * 3] * 3),
        "array for all sizes": symattn.Attention()(*[kinds.Indexed.letters(name, "n", "d") for name in "qkv"]),
        "trace": symattn.Attention(causal=True).trace(x=x),
        "theorem": theorems.catalogue()["softmax-shift"],
        "right code": symattn.verify(right, examples=5),
        "wrong code": symattn.verify(wrong, examples=5),
        "two functions": symattn.compare(right, wrong, examples=5),
        "bound": symattn.bound(n=64, d_k=8),
        "exercises": symattn.exercises(1, answers=True),
        "blank walk": symattn.walk("eight-step", blank=(5, 6)),
        "proof": symattn.prove("softmax-shift"),
        "audit": audited(),
    }
    for name, shown in found.items():
        yield name, shown.document()


def right(q: Any, k: Any, v: Any) -> Any:
    """Attention in NumPy."""
    return _attend(q, k, v, 1 / np.sqrt(q.shape[-1]))


def wrong(q: Any, k: Any, v: Any) -> Any:
    """The same without its scale."""
    return _attend(q, k, v, 1)


def _attend(q: Any, k: Any, v: Any, scale: float) -> Any:
    s = scale * (q @ np.swapaxes(k, -1, -2))
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v


def audited() -> Any:
    """The audit of a layer of PyTorch."""
    import torch

    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.arange(32.0).reshape(1, 4, 8) / 32
    with symattn.audit(layer) as report, torch.no_grad():
        layer(x, x, x, need_weights=False)
    return report


# -- The formulas that a reader of Markdown or of a page meets, as TeX -------------------------------------------------
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


# -- One page of each kind that symattn writes, and the front page of its site -----------------------------------------
AROUND = (
    "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>around</title></head><body>{}</body></html>\n"
)


def of_each_kind(folder: Path) -> dict[str, str]:
    """The pages by name; the site is built in the folder."""
    drawn = "".join(symattn.draw(name).svg(fragment=True) for name in drawing.names())
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

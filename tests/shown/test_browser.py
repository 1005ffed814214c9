"""Pages in a browser: formulas are drawn, arrays have forms, and the page to explore is used by keys alone."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import symattn
from symattn.document import model as md
from symattn.document.notation import Node
from symattn.document.text import text
from tests.shown import node

pytestmark = pytest.mark.browser

BROWSERS = {"chrome": ("chromium", "google-chrome"), "firefox": ("firefox-esr", "firefox")}
MOST = 1_500_000  # bytes of a page to explore
SCALES = {"0": 1, "1": None, "2": "1/d_k"}
FORMATS = {"0": "float32", "1": "float64", "2": "float16", "3": "bfloat16"}
Box = tuple[float, float, float, float]


def told(wish: str, pages: Iterable[str], folder: Path, browser: str = "chrome") -> list[dict[str, Any]]:
    """What a browser says of the pages, each on a desktop and on a phone."""
    program = next(filter(None, map(shutil.which, BROWSERS[browser])), None)
    assert program, f"{browser} is missing"
    paths = []
    for number, page in enumerate(pages):
        paths.append(str(folder / f"{number}.html"))
        Path(paths[-1]).write_text(page, encoding="utf-8")
    found = node.run("browser.mjs", browser, program, wish, *paths)
    assert len(found) == 2 * len(paths)
    return found


def faults(seen: Mapping[str, Any]) -> list[str]:
    """What is wrong with any page: errors, what it loads, how wide it is."""
    found = list(seen["wrong"])
    asked = [other for other in seen["asked"] if not other.startswith("data:")]
    found += [f"it loads {other}" for other in asked if not other.partition("#")[0].endswith(Path(seen["path"]).name)]
    return found + (["it is wider than the screen"] if seen["wide"] > 0 else [])


def undrawn(seen: Mapping[str, Any]) -> list[str]:
    """Formulas that the browser did not draw as such."""
    found = [f"no {kind}" for kind in ("formulas", "fractions", "matrices") if not seen[kind]]
    found += ["a formula of no size" for box in seen["formulas"] if box[2] < 3 or box[3] < 5]
    found += ["a fraction in one line" for whole, top, low in seen["fractions"] if not over(whole, top, low)]
    found += ["rows beside each other" for _, *rows in seen["matrices"] if not stacked(rows)]
    return found + ["a root without its sign" for whole, body in seen["roots"] if body[0] - whole[0] < 4]


def over(whole: Box, top: Box, low: Box) -> bool:
    """Whether one part stands above the other with room for the bar, and both are in the middle."""
    between = top[1] + top[3] <= low[1] <= whole[1] + whole[3]
    return between and all(abs(x[0] + x[2] / 2 - whole[0] - whole[2] / 2) < 1 for x in (top, low))


def stacked(rows: list[Box]) -> bool:
    """Whether rows stand under each other, from one left edge on."""
    return all(abs(a[0] - b[0]) < 1 and a[1] + a[3] <= b[1] + 1 for a, b in pairwise(rows))


@pytest.fixture(scope="module")
def pages() -> list[str]:
    return [symattn.walk("eight-step").html(), symattn.walk("cross", why=True).html(), symattn.derive("shift").html()]


@pytest.mark.parametrize("browser", BROWSERS)
def test_formulas_are_drawn(pages: list[str], tmp_path: Path, browser: str) -> None:
    whole = [page.replace("symattn one", "symattn") for page in pages[:2]]
    read = told("read", [*whole, symattn.derive("scaling", dk=4).html()], tmp_path, browser)
    assert [fault for seen in read for fault in faults(seen)] == []
    assert [fault for seen in read[:4] for fault in undrawn(seen)] == []
    assert read[4]["roots"]
    assert set(undrawn(read[4])) <= {"no matrices"}


STEPS = [f"step-{n}" for n in range(1, 9)]


@pytest.mark.parametrize("browser", BROWSERS)
def test_a_walk_is_handled_by_keys(pages: list[str], tmp_path: Path, browser: str) -> None:
    for seen in told("handle", pages[:1], tmp_path, browser):
        assert faults(seen) == []
        assert [seen[x]["sections"] for x in ("opened", "next", "fifth", "linked")] == [
            [STEPS[n]] for n in (0, 1, 4, 7)
        ]  # fmt: skip
        assert seen["fifth"]["hash"] == "#step-5"
        assert seen["fifth"]["current"] == 1
        shown = [seen[x]["forms"] for x in ("fifth", "decimal", "printed", "exact")]
        assert shown == [["exact"], ["decimal"], ["as printed"], ["exact"]]
        assert set(seen["cell"]["framed"]) == {"weights-1-1"}
        assert seen["cell"]["from"] == ["scores-1-1", "scores-1-2", "scores-1-3"]
        assert seen["beside"]["where"] == "a12 = e4 / (e2 + e4 + e4) = e2/(1 + 2e2) ≈ 0.468310531"
        assert seen["left"]["sections"] == [STEPS[3]]
        assert seen["left"]["where"] == ""
        assert seen["dark"]["theme"] == "dark"


def test_labels_and_grades_have_room(pages: list[str], tmp_path: Path) -> None:
    assert [wrong for seen in told("place", pages, tmp_path) for wrong in seen["misplaced"]] == []


def test_in_print_each_form_has_its_name(pages: list[str], tmp_path: Path) -> None:
    told("print", pages[:1], tmp_path)
    reader = shutil.which("pdftotext")
    assert reader, "pdftotext is missing"
    (pdf, *_) = sorted(tmp_path.glob("*.desktop.pdf"))
    words = subprocess.run([reader, "-layout", pdf, "-"], capture_output=True, timeout=60, check=True).stdout.decode()
    sections = re.split(r"\n\s*(?=\d [A-Z])", words)
    titles = [line.split("  ")[0].strip() for line in sections[1:]]
    assert [title[0] for title in titles] == list("12345678")
    softmax = next(section for section in sections if section.lstrip("\x0c").startswith("5 Softmax"))
    for form in ("exact", "decimal", "float32", "error in ulp", "as printed", "rounded"):
        assert form in softmax
    assert "hard to" in words  # grades are open


def test_what_is_not_drawn_is_found(pages: list[str], tmp_path: Path) -> None:
    page = pages[0].replace("symattn one", "symattn")
    spoiled = {
        "no fractions": ("mfrac>", "mrow>"),
        "a fraction in one line": ("</style>", "mfrac{display:inline-flex}</style>"),
        "rows beside each other": ("</style>", "mtr{display:inline}</style>"),
        "a formula of no size": ("</style>", ".symattn.symattn math{font-size:0!important}</style>"),
    }
    assert all(right in page for right, _ in spoiled.values())
    read = told("read", [page.replace(*change) for change in spoiled.values()], tmp_path)
    for fault, seen in zip(spoiled, read[::2], strict=True):
        assert fault in undrawn(seen)


def test_what_is_misplaced_is_found(pages: list[str], tmp_path: Path) -> None:
    over = ".symattn :is(.side,.main){grid-area:1/1}.symattn .main :is(h2,p,aside){display:none}"
    spoiled = pages[0].replace("</style>", f"{over}.symattn .forms label{{line-height:9px!important}}</style>")
    wrong = " ".join(x for seen in told("place", [spoiled], tmp_path) for x in seen["misplaced"])
    assert " touches " in wrong
    assert " high" in wrong


@pytest.mark.parametrize("browser", BROWSERS)
def test_the_page_to_explore_by_keys(tmp_path: Path, browser: str) -> None:
    page = symattn.explore("eight-step").html()
    assert len(page.encode()) <= MOST
    for seen in told("explore", [page], tmp_path, browser):
        assert faults(seen) == []
        assert misled(seen["states"]) == []


def test_a_page_that_misleads_is_found(tmp_path: Path) -> None:
    page = symattn.explore("eight-step").html()
    deaf = page.replace("addEventListener('change', choose)", "addEventListener('nothing', choose)")
    swapped = page.replace('data-choice="1 0 0"', 'data-choice="x"').replace('"2 0 0"', '"1 0 0"')
    swapped = swapped.replace('data-choice="x"', 'data-choice="2 0 0"')
    for seen in told("explore", [deaf, swapped], tmp_path):
        assert misled(seen["states"])


def misled(states: list[dict[str, Any]]) -> list[str]:
    """Choices after which another walk is seen, or other numbers than symattn's own."""
    found = [] if [s["chosen"] for s in states] == BY_KEYS else ["keys do not reach every choice"]
    for at in states:
        if at["seen"] != [at["chosen"]] or not at["live"]:
            found.append(f"at {at['chosen']}: seen is {at['seen']}")
        lacking = [n for n in numbers(at["chosen"]) if n not in at["text"].replace("−", "-")]
        found += [f"at {at['chosen']}: no {n}" for n in lacking]
    return found


BY_KEYS = ["0 0 0", "1 0 0", "2 0 0", "2 1 0", "2 1 1", "2 1 2", "2 1 3"]


def numbers(chosen: str) -> list[str]:
    """The digits of every array in the floating format, row after row, from a walk of their own."""
    scale, causal, dtype = chosen.split()
    walk = symattn.walk("eight-step", scale=SCALES[scale], causal=causal == "1", dtype=FORMATS[dtype])
    arrays = [b for b in walk.blocks if isinstance(b, md.Values)]
    kept = [a.others[FORMATS[dtype]] for a in arrays if FORMATS[dtype] in a.others]
    assert kept
    return ["".join(digits(array)) for array in kept]


def digits(array: Any) -> Iterator[str]:
    """The entries of an array as they are read."""
    if isinstance(array, tuple):
        for part in array:
            yield from digits(part)
    else:
        yield text(array).replace("−", "-") if isinstance(array, Node) else array

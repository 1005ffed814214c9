"""Pages in a browser: formulas are drawn, arrays have forms, and the page to explore has a walk's numbers."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symattn
from symattn import Attention, Grade, kinds, printing
from symattn.derivations import examples
from symattn.derivations.walks.walk_data import Walk
from tests.shown import node

pytestmark = pytest.mark.browser

BROWSERS = {"chrome": ("chromium", "google-chrome"), "firefox": ("firefox-esr", "firefox")}
MOST = 300_000  # bytes of a page to explore
Box = tuple[float, float, float, float]


def told(
    wish: str, pages: Iterable[str], folder: Path, browser: str = "chrome", link: str = "", device: str = ""
) -> list[dict[str, Any]]:
    """What a browser says of the pages, opened by a ``link``, each on one ``device``, or on a desktop and a phone."""
    program = next(filter(None, map(shutil.which, BROWSERS[browser])), None)
    assert program, f"{browser} is missing"
    paths = []
    for number, page in enumerate(pages):
        paths.append(str(folder / f"{number}.html"))
        Path(paths[-1]).write_text(page, encoding="utf-8")
    found = node.run("browser.mjs", browser, program, f"{wish}@{device}", *(path + link for path in paths))
    assert len(found) == (1 if device else 2) * len(paths)
    return found


def faults(seen: Mapping[str, Any]) -> list[str]:
    """What is wrong with any page: errors, what it loads, how wide it is."""
    found = list(seen["wrong"])
    path = Path(seen["path"].partition("#")[0])
    asked = [other for other in seen["asked"] if not other.startswith(("data:", "blob:"))]  # the page itself
    found += [f"it loads {other}" for other in asked if not other.partition("#")[0].endswith(path.name)]
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


_FIRST, _OTHER = (rf"\frac{{{top}}}{{1+2\mathrm{{e}}^{{2}}}}" for top in ("1", r"\mathrm{e}^{2}"))
WEIGHTS = rf"a_{{1}}=\left[\begin{{matrix}} {_FIRST} & {_OTHER} & {_OTHER} \end{{matrix}}\right]"
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
        assert seen["copied"] == WEIGHTS
        assert seen["beside"]["where"] == "a12 = e4 / (e2 + e4 + e4) = e2/(1 + 2e2) ≈ 0.468310531"
        assert seen["left"]["sections"] == [STEPS[3]]
        assert seen["left"]["where"] == ""
        assert seen["dark"]["theme"] == "dark"


@pytest.mark.parametrize("browser", BROWSERS)
def test_in_print_each_form_has_its_name(pages: list[str], tmp_path: Path, browser: str) -> None:
    told("print", pages[:1], tmp_path, browser, device="desktop")
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
    assert Grade.CHECKED.means.split(":")[0] in " ".join(words.split())  # grades are open


def test_what_is_not_drawn_is_found(pages: list[str], tmp_path: Path) -> None:
    page = pages[0].replace("symattn one", "symattn")
    spoiled = {
        "no fractions": ("mfrac>", "mrow>"),
        "a fraction in one line": ("</style>", "mfrac{display:inline-flex}</style>"),
        "rows beside each other": ("</style>", "mtr{display:inline}</style>"),
        "a formula of no size": ("</style>", ".symattn.symattn math{font-size:0!important}</style>"),
        "msub with 1 parts": ("<msub><mi>d</mi><mi>model</mi>", "<msub><mi>d</mi>"),
    }
    assert all(right in page for right, _ in spoiled.values())
    read = told("read", [page.replace(*change) for change in spoiled.values()], tmp_path)
    for fault, seen in zip(spoiled, read[::2], strict=True):
        assert fault in [*undrawn(seen), *faults(seen)]


@pytest.mark.parametrize("browser", BROWSERS)
def test_the_page_to_explore(tmp_path: Path, browser: str) -> None:
    page = symattn.explore("eight-step").html()
    assert len(page.encode()) <= MOST
    for seen in told("explore", [page], tmp_path, browser, "#scale=root&causal=1&heads=1"):
        assert faults(seen) == []
        assert misled(seen["opened"], "1") == []
        for after in ("typed", "kept", "linked"):
            assert misled(seen[after], "3/2") == []
        for entry, after in seen["large"].items():
            assert misled(after, entry) == []
        beside = seen["beside"]
        assert beside["seen"]
        assert beside["changed"]
        assert beside["apart"] < 600
        assert seen["message"].startswith("3/2/ is not a number")


def test_a_page_that_misleads_is_found(tmp_path: Path) -> None:
    page = symattn.explore("eight-step").html()
    spoiled = page.replace("squarefree(BigInt(qs[0].length))", "squarefree(BigInt(qs.length + 2))")
    assert spoiled != page
    for seen in told("explore", [spoiled], tmp_path, "chrome", "#scale=root&causal=1"):
        assert misled(seen["opened"], "1")


def misled(shown: dict[str, list[str]], first: str) -> list[str]:
    """The places at which the page has another number, or other digits, than a walk."""
    x = [[first, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]
    sheet = examples.load("eight-step")
    given = sheet.inputs | {"x": [[kinds.Quotient.of(str(e)) for e in row] for row in x]}
    found = Walk(replace(sheet, attention=Attention(causal=True), inputs=given), "float64").arrays
    wrong = []
    for array in ("q", "k", "v", "scores", "weights", "output"):
        for (i, j), entry in np.ndenumerate(found[array]):
            wanted = printing.text(entry.notation())
            there, digits = shown[f"{array}-{i + 1}-{j + 1}"]
            wrong += [] if there == wanted else [f"{array} {i} {j}: {there}, not {wanted}"]
            wrong += (
                [] if not digits or digits.replace("−", "-") == entry.decimal(9) else [f"{array} {i} {j}: {digits}"]
            )
    return wrong


def test_the_page_on_scaling(tmp_path: Path) -> None:
    (seen, _) = told("read", [symattn.explore("scaling").html()], tmp_path)
    assert faults(seen) == []

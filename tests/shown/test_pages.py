"""Every page that symattn writes is valid HTML, by the checker that the W3C runs (vnu)."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

import symattn
from symattn.document.model import Document
from symattn.drawing import names as pictures
from tests.shown.node import FOLDER
from tests.shown.pages import AROUND

pytestmark = pytest.mark.node

VNU = FOLDER / "node_modules" / "vnu-jar" / "build" / "dist" / "vnu.jar"
KINDS = {"derivation", "walk", "proof", "verification", "bound", "claim", "audit"}


def complaints(pages: Iterable[Path]) -> list[str]:
    """What vnu says of pages: errors and warnings."""
    assert shutil.which("java"), "Java is missing"
    assert VNU.is_file(), "vnu is missing: npm install --no-package-lock in tests/shown/node"
    command = ["java", "-jar", str(VNU), "--format", "json", "--exit-zero-always", *map(str, pages)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=True)
    told = json.loads(done.stderr)["messages"]
    return [f"{Path(x['url']).name}: {x['message']}: {x.get('extract', '')}" for x in told]


def written(pages: dict[str, str], folder: Path) -> list[Path]:
    """The pages as files."""
    found = []
    for number, (name, page) in enumerate(pages.items()):
        found.append(folder / f"{number}-{re.sub(r'[^A-Za-z]+', '-', name)}.html")
        found[-1].write_text(page, encoding="utf-8")
    return found


def test_every_page_is_valid(documents: list[tuple[str, Document]], tmp_path: Path) -> None:
    pages = {name: document.html() for name, document in documents}
    assert {document.kind for _, document in documents} >= KINDS
    pages |= {name: symattn.explore(name).html() for name in ("eight-step", "scaling")}
    pages["fragments"] = AROUND.format("".join(d.html(fragment=True) for n, d in documents if n.startswith("derive r")))
    drawn = "".join(symattn.draw(name).svg(fragment=True) for name in pictures())
    pages["pictures"] = AROUND.format(drawn)
    assert complaints(written(pages, tmp_path)) == []


def test_a_fault_is_found(tmp_path: Path) -> None:
    faults = {
        "half a fraction": "<math><mfrac><mn>1</mn></mfrac></math>",
        "one name twice": "<p id='a'></p><p id='a'></p>",
        "not closed": "<table><tr><td></tr></p></table>",
        "no such element": "<svg><circles/></svg>",
    }
    told = complaints(written({name: AROUND.format(fault) for name, fault in faults.items()}, tmp_path))
    assert {one.partition(".html")[0] for one in told} == {path.stem for path in tmp_path.glob("*.html")}


def test_faint_text_of_a_site_is_found(tmp_path: Path) -> None:
    page = "<p style='color:#767676'>clear</p><div style='background:#ddd'><p style='color:#717171'>faint</p></div>"
    (tmp_path / "a.html").write_text(AROUND.format(page), encoding="utf-8")
    command = ["node", "contrast.mjs", shutil.which("chromium") or "", str(tmp_path)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.count("faint\n"), "clear" in done.stdout) == (1, 3, False)

"""What the pages name is there: files, links, and how many there are of something."""

import json
import re
from pathlib import Path

import pytest

from symattn.attention.presets import PRESETS
from symattn.derivations import examples
from symattn_cli.main import main
from tests.docs.pages import PAGES, ROOT

ALL = (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", ROOT / "benchmarks" / "README.md")
_PATH = re.compile(r"`((?:symattn|tests|docs|cli|benchmarks)/[\w./-]*)`")
_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)  # in which brackets are no links
_LINK = re.compile(r"\]\(([^):#]*)(?:#([^)]*))?\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_OUTSIDE = re.compile(r"\b[a-z]+://[^\s<>()\"'`]*|(?<=\]\()[a-z]+:[^)]*", re.IGNORECASE)
_GOOD = re.compile(r"https://[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}(?:/[\w.~%/@+=&?-]*(?:#[\w.-]+)?)?")
WORDS = {10: "ten", 15: "fifteen", 16: "sixteen", 17: "seventeen", 18: "eighteen", 19: "nineteen", 20: "twenty"}


def missing(text: str, folder: Path) -> list[str]:
    """The files that a page in ``folder`` names, from the root or as a link, and that are not there."""
    named = [(path, ROOT / path) for path in _PATH.findall(text)]
    linked = [(link, folder / link) for link, _ in _LINK.findall(_CODE.sub("", text)) if link]
    generated = ROOT / "docs" / "reference"  # made by the build, which fails where a page of it is not there
    return [name for name, path in named + linked if not path.exists() and generated not in path.parents]


def anchors(text: str) -> set[str]:
    """The names that GitHub and MyST give the headings of a page."""
    headings = _HEADING.findall(_CODE.sub("", text))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_anchor(text: str, folder: Path) -> list[str]:
    """The links of a page to a heading that is not there, in itself or in another page."""
    linked = [(link, anchor) for link, anchor in _LINK.findall(_CODE.sub("", text)) if anchor]
    pages = {link: (folder / link).read_text(encoding="utf-8") if link else text for link, _ in linked}
    return [f"{link}#{anchor}" for link, anchor in linked if anchor not in anchors(pages[link])]


def malformed(text: str) -> list[str]:
    """The addresses of other hosts in a page that no browser would open as they are meant, or not safely."""
    prose = re.sub("`[^`]+`", "", _CODE.sub("", text))
    found = (address.rstrip(".,;:") for address in _OUTSIDE.findall(prose))
    return [address for address in found if not _GOOD.fullmatch(address)]


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    assert not missing(page.read_text(encoding="utf-8"), page.parent)


def test_a_file_that_is_not_there_is_seen() -> None:
    text = (
        "`symattn/document/errors.py`, `symattn/none.py`, [a](first.md), [b](none.md#x), [c](https://example.org/none)"
    )
    assert missing(text, ROOT / "docs") == ["symattn/none.py", "none.md"]
    assert missing("```python\nkernel[(2,)](q, k)\n```\n[b](none.md)", ROOT / "docs") == ["none.md"]


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_links_lead_to_headings_and_are_well_formed(page: Path) -> None:
    """Whether other hosts still have the page is asked by Sphinx's linkcheck (CONTRIBUTING), and not here."""
    text = page.read_text(encoding="utf-8")
    assert not without_anchor(text, page.parent)
    assert not malformed(text)


def test_a_heading_that_is_not_there_is_seen() -> None:
    text = "# A page: `x`\n[a](#a-page-x) [b](#page) [c](first.md#in-python) [d](first.md#in-java) [e](first.md)\n"
    assert without_anchor(text, ROOT / "docs") == ["#page", "first.md#in-java"]


def test_an_address_that_is_malformed_is_seen() -> None:
    good = "[a](https://github.com/a/b/pull/1), https://semver.org/spec/v2.0.0.html. <https://numpy.org>"
    assert malformed(f"{good} `tcp://host:8786`") == []
    for wrong in ("http://numpy.org", "https://localhost/x", "https://numpy", "https:///x", "[a](https:/numpy.org)"):
        assert len(malformed(wrong)) == 1, wrong


def test_the_changelog_counts_right(capsys: pytest.CaptureFixture[str]) -> None:
    main(["derive", "--list", "-f", "json"])
    derivations = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    text = " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    for count, what in (
        (len(derivations), "derivations, from scaling"),
        (len(examples.NAMES), "worked examples"),
        (len(PRESETS), "models by name"),
    ):
        assert f"{WORDS[count]} {what}" in text, (count, what)

"""What the pages name is there: files, links, and how many there are of something."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from symattn.attention.presets import PRESETS
from symattn.derivations import examples
from symattn_cli.main import main
from tests.docs.pages import PAGES, ROOT

ALL = (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md")
_PATH = re.compile(r"`((?:symattn|tests|docs|cli|benchmarks)/[\w./-]*)`")
_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)  # in which brackets are no links
_LINK = re.compile(r"\]\(([^):#]+)(?:#[^)]*)?\)")
WORDS = {10: "ten", 15: "fifteen", 16: "sixteen", 17: "seventeen", 18: "eighteen", 19: "nineteen", 20: "twenty"}


def missing(text: str, folder: Path) -> list[str]:
    """The files that a page in ``folder`` names, from the root or as a link, and that are not there."""
    named = [(path, ROOT / path) for path in _PATH.findall(text)]
    linked = [(link, folder / link) for link in _LINK.findall(_CODE.sub("", text))]
    return [name for name, path in named + linked if not path.exists()]


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    assert not missing(page.read_text(encoding="utf-8"), page.parent)


def test_a_file_that_is_not_there_is_seen() -> None:
    text = "`symattn/errors.py`, `symattn/none.py`, [a](first.md), [b](none.md#x), [c](https://example.org/none)"
    assert missing(text, ROOT / "docs") == ["symattn/none.py", "none.md"]
    assert missing("```python\nkernel[(2,)](q, k)\n```\n[b](none.md)", ROOT / "docs") == ["none.md"]


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

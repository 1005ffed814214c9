"""What the search of the site shows first."""

import importlib
import sys

import pytest

nodes = pytest.importorskip("docutils.nodes")
addnodes = pytest.importorskip("sphinx.addnodes")

from tests.docs.pages import ROOT  # noqa: E402

_ENTRY = "```{index} ! install\n```\n\n## Install\n"


def test_a_search_for_install_leads_to_the_first_five_minutes() -> None:
    """Sphinx gives a main entry of the index, as ``!`` makes it, the highest score of all."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    assert [name for name, text in pages.items() if "{index} ! install" in text] == ["first.md"]
    assert _ENTRY in pages["first.md"]


@pytest.mark.docs
def test_the_page_of_codes_has_an_anchor_and_an_index_entry_for_each() -> None:
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    section = importlib.import_module("codes").section("mask", ["mask-top-left", "window-long"])
    terms = [term["ids"] for term in section.findall(nodes.term)]
    entries = [index["entries"][0][1] for index in section.findall(addnodes.index)]
    assert (terms, entries) == ([["mask-top-left"], ["window-long"]], ["mask-top-left", "window-long"])
    (link,) = section.findall(nodes.reference)
    assert link["refuri"] == "https://github.com/ml-explore/mlx-lm/issues/390"

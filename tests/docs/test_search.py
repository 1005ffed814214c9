"""What the search of the site shows first."""

from tests.docs.pages import ROOT

_ENTRY = "```{index} ! install\n```\n\n## Install\n"


def test_a_search_for_install_leads_to_the_first_five_minutes() -> None:
    """Sphinx gives a main entry of the index, as ``!`` makes it, the highest score of all."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    assert [name for name, text in pages.items() if "{index} ! install" in text] == ["first.md"]
    assert _ENTRY in pages["first.md"]

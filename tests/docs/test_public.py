"""What the documentation calls public is what the package exports."""

from __future__ import annotations

import re

import symattn
from symattn_cli.main import TABLE
from tests.docs.pages import ROOT


def listed(text: str) -> list[str]:
    """The names in the lists of a page that have a page each."""
    return re.findall(r"^   (\w+)$", text, re.M)


def test_the_reference_has_every_public_name() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert sorted(listed(page)) == sorted([*symattn.__all__, "testing", "strategies"])


def test_the_reference_has_every_command() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`symattn (\w+)`\]\(reference/command-(\w+)\.rst\) \| (.*) \|$", page, re.M)
    assert sorted(rows) == sorted((name, name, short) for name, short in TABLE.items())


def test_every_public_name_is_there_and_is_told() -> None:
    for name in symattn.__all__:
        value = getattr(symattn, name)
        assert value.__name__ == name
        assert value.__doc__, name


def test_a_page_with_other_names_has_other_names() -> None:
    assert listed(".. autosummary::\n   :toctree: reference\n\n   one\n   two\n\nthree\n") == ["one", "two"]

"""What the documentation calls public is what the package exports."""

from __future__ import annotations

import re
from pathlib import Path

import symattn
from symattn_cli.main import TABLE
from tests.docs.pages import ROOT


def named(page: Path) -> list[str]:
    """The names in the first column of the table under "Names"."""
    rows = re.findall(r"^\| (`.*?) \|", page.read_text(encoding="utf-8").partition("## Names")[2], re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_public_names_are_those_of_the_page() -> None:
    assert sorted(named(ROOT / "docs" / "api.md")) == sorted(symattn.__all__)


def test_the_reference_has_every_public_name() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   (\w+)$", page, re.M)
    assert sorted(listed) == sorted([*symattn.__all__, "testing", "strategies"])


def test_the_reference_has_every_command() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`symattn (\w+)`\]\(reference/command-(\w+)\.rst\) \| (.*) \|$", page, re.M)
    assert sorted(rows) == sorted((name, name, short) for name, (_, short) in TABLE.items())


def test_every_public_name_is_there_and_is_told() -> None:
    for name in symattn.__all__:
        value = getattr(symattn, name)
        assert value.__name__ == name
        assert value.__doc__, name


def test_a_page_with_other_names_has_other_names(tmp_path: Path) -> None:
    page = tmp_path / "api.md"
    page.write_text("| `no` | |\n## Names\n| name | is |\n| `one`, `two` | `not` this |\n")
    assert named(page) == ["one", "two"]

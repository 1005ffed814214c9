"""What a reader meets: public names, commands, the table of variants, and no phrase that only symattn would use."""

import ast
import re
from pathlib import Path

import pytest

import symattn
from symattn_cli.main import TABLE, main
from tests.docs.pages import PAGES, ROOT

BANNED = re.compile(
    r"\b([Tt]old|[Bb]ears?|[Mm]anners|but for (?!one)|held to|(is|are) taken for(?! granted)|and \S+ is none|asked for"
    r"|cannot be told|handed in|astride|the other one|has not the|(is|are) not known(?! to be)|is legal|may be off"
    r"|a right (call|output|function|one)|word of praise|hard to fool|go by(?! name)|was spent before)\b"
    r"|[Mm]end: |thirty seconds each|whole or not at all|what stands behind it|(?<![\w*])\*[A-Z][a-z]+[.:]\*"
)
STATED = ("symattn/proof/", "symattn/theorems/")  # statements, and what the checker says of a certificate


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
        assert ">>> " in value.__doc__, f"{name} has no example"


def test_a_page_with_other_names_has_other_names() -> None:
    assert listed(".. autosummary::\n   :toctree: reference\n\n   one\n   two\n\nthree\n") == ["one", "two"]


@pytest.mark.deep
def test_the_table_of_variants_is_not_stale() -> None:
    table = str(ROOT / "docs" / "variants-table.md")
    assert main(["derive", "variants", "--check", table]) == 0, "hint: derive variants -o docs/variants-table.md"


def prose(file: Path) -> str:
    """Return what a reader meets of a file: a page without its code; the texts in a program that are no docstrings."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    nodes = [*ast.walk(ast.parse(text))] if BANNED.search(text) else []
    docstrings = {n.value for n in nodes if isinstance(n, ast.Expr)}
    return "\n".join(str(n.value) for n in nodes if isinstance(n, ast.Constant) and n not in docstrings)


@pytest.mark.parametrize("room", ["docs", "cli", pytest.param("symattn", marks=pytest.mark.deep)])
def test_pages_help_and_messages_have_no_private_words(room: str) -> None:
    files = PAGES if room == "docs" else [*(ROOT / room).rglob("*.py")]
    files = [f for f in files if not f.relative_to(ROOT).as_posix().startswith(STATED)]
    assert {f"{f.relative_to(ROOT)}: {m[0]}" for f in files for m in BANNED.finditer(prose(f))} == set()
    wrong = "d_k is 0; mend: 4. A derivation is told by its name. *Print.* Read as it is"
    assert [m[0] for m in BANNED.finditer(wrong)] == ["mend: ", "told", "*Print.*"]

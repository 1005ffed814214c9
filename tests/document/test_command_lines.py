"""Command lines in documents: a shell reads from them the words that were typed, and a reader does, too."""

import shlex
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symattn import walk


def walked(name: str) -> str:
    """The command line of a walk through a sheet with this name."""
    with TemporaryDirectory() as folder, chdir(folder):
        Path(name).write_text('{"x": [[1, 0], [0, 1]]}', encoding="utf-8")
        return walk(name).command


@pytest.mark.deep
@settings(max_examples=40)
@given(st.text(alphabet="ab '\"$`\\!\n=(,é", min_size=1, max_size=16))
def test_a_shell_reads_the_words_that_were_typed(name: str) -> None:
    assert shlex.split(walked(f"{name}.json")) == ["symattn", "walk", f"{name}.json"]


def test_what_shells_replace_between_double_quotes_never_stands_there() -> None:
    for read in "$`!\\":
        assert '"' not in walked(f"it's {read}HOME.json").replace("'\"'\"'", "")


def test_a_walk_hints_at_commands_with_the_path_as_it_is_typed(tmp_path: Path) -> None:
    sheet = tmp_path / "ann's.json"
    sheet.write_text('{"x": [[1, 0], [0, 1]]}', encoding="utf-8")
    hints = walk(str(sheet)).hints
    assert hints
    assert all(hint.startswith(f'symattn walk "{sheet}" --') for hint in hints)

"""Theorems of users, as the page about ``prove`` shows them, checked by Coq from the command line."""

from pathlib import Path

import pytest

from symattn_cli.main import main
from tests.docs.pages import ROOT, files

PAGE = (ROOT / "docs/prove.md").read_text(encoding="utf-8")


@pytest.mark.coq
def test_the_theorem_of_the_page_has_the_grade_and_the_false_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in files(PAGE).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert "`symattn prove mine.py --coq`" in PAGE
    assert main(["prove", "mine.py", "--coq", "--no-cache"]) == 0
    told = capsys.readouterr().out
    assert "[coq: all sizes, by Coq" in told
    assert "Theorem key_offset : forall" in told
    assert main(["prove", "wrong.py", "--coq", "--no-cache"]) == 1
    told = capsys.readouterr().out
    assert "[refuted: " in told
    assert "[coq: " not in told

"""Every Python session of the README and the documentation gives what the page shows."""

import doctest
import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, files

_FENCE = re.compile(r"^```(\w*)$", re.MULTILINE)
_TOOLS = re.compile(r"\b(?:import|from) .*\b(torch|onnx|jax)\b")


def sessions(text: str) -> str:
    """What stands in the fences ``pycon`` of a page; all other lines are empty, so that line numbers stay."""
    kept, inside = [], False
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        kept.append("" if fence or not inside else line)
        inside = fence[1] == "pycon" if fence else inside
    return "\n".join(kept)


def play(text: str, name: str) -> doctest.TestResults:
    """Run the sessions of a page, one after another, with what was defined before."""
    test = doctest.DocTestParser().get_doctest(sessions(text), {}, name, name, 0)
    return doctest.DocTestRunner().run(test)


def without_tools(page: Path) -> bool:
    """Tell whether the sessions of a page need symattn and NumPy alone; tests of the readers play the others."""
    return not _TOOLS.search(sessions(page.read_text(encoding="utf-8")))


@pytest.mark.docs
@pytest.mark.parametrize("page", [*filter(without_tools, PAGES)], ids=lambda page: page.name)
def test_sessions_of_a_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    for name, content in files(text).items():
        tmp_path.joinpath(name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert play(text, page.name).failed == 0


@pytest.mark.torch
def test_sessions_in_torch() -> None:
    page = ROOT / "docs" / "multihead.md"
    assert play(page.read_text(encoding="utf-8"), page.name).failed == 0


def snippets(text: str) -> list[str]:
    """The fences ``python`` of a page that are no sessions."""
    return [code for code in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) if ">>> " not in code]


@pytest.mark.transformers
@pytest.mark.parametrize("name", ["README.md", "docs/audit.md", "docs/maintainers.md"])
def test_snippets_run_one_after_another(name: str) -> None:
    names: dict[str, object] = {}
    for code in snippets((ROOT / name).read_text(encoding="utf-8")):
        exec(compile(code, name, "exec"), names)
    assert str(names["report"]).splitlines()


def test_a_session_that_is_wrong_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    text = ">>> 1 / 0\n```pycon\n>>> x = 1\n```\n```sh\n>>> 1 / 0\n```\n```pycon\n>>> x + 1\n{}\n```\ntext\n"
    assert play(text.format(2), "right") == (0, 2)
    assert play(text.format(3), "wrong").failed == 1
    assert "Expected:\n    3\nGot:\n    2" in capsys.readouterr().out

"""What a reader meets: public names, commands, the table of variants, words, Python on pages, and extensions."""

import ast
import doctest
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

import symattn
from symattn.programs.specifications import KINDS
from symattn_cli.main import TABLE, main
from tests.docs.pages import PAGES, ROOT, files

BANNED = re.compile(
    r"\b([Tt]old|[Bb]ears?|[Mm]anners|but for (?!one)|held to|(is|are) taken for(?! granted)|and \S+ is none|asked for"
    r"|cannot be told|handed in|astride|the other one|has not the|(is|are) not known(?! to be)|is legal|may be off"
    r"|a right (call|output|function|one)|word of praise|hard to fool|go by(?! name)|was spent before)\b"
    r"|[Mm]end: |thirty seconds each|whole or not at all|what stands behind it|(?<![\w*])\*[A-Z][a-z]+[.:]\*"
)
MODULES = (
    "testing",
    "strategies",
    "functional",
    "streaming",
    "kinds",
    "printing",
    "proving",
    "reports",
    "configurations",
    "graphs",
)
OPENED = ("functional", "streaming", "kinds", "printing", "proving", "reports", "configurations", "graphs")
STATED = ("symattn/proof/", "symattn/theorems/")  # statements, and what the checker says of a certificate


def listed(text: str) -> list[str]:
    """The names in the lists of a page that have a page each."""
    return re.findall(r"^   (\w+)$", text, re.M)


def test_the_reference_has_every_public_name() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert sorted(listed(page)) == sorted([*symattn.__all__, *MODULES])


def test_the_reference_has_every_command() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`symattn (\w+)`\]\(reference/command-(\w+)\.rst\) \| (.*) \|$", page, re.M)
    assert sorted(rows) == sorted((name, name, short) for name, short in TABLE.items())


def test_every_public_name_is_there_and_is_told() -> None:
    for name in symattn.__all__:
        value = getattr(symattn, name)
        assert value.__name__ == name
        assert ">>> " in value.__doc__, f"{name} has no example"


def test_public_modules_explain_what_they_offer() -> None:
    for name in OPENED:
        module = import_module(f"symattn.{name}")
        assert (module.__doc__ or "").count(">>> ") > 0, f"{name} has no example"
        every = {x: getattr(module, x) for x in module.__all__}
        objects = {x: value for x, value in every.items() if inspect.isclass(value) or inspect.isroutine(value)}
        assert [f"{name}.{x}" for x, value in objects.items() if not inspect.getdoc(value)] == []
        # Types for annotations and other values have no docstring of their own.
        assert [f"{name}.{x}" for x in every.keys() - objects if f"``{x}``" not in (module.__doc__ or "")] == []


def test_stubs_list_what_modules_offer() -> None:
    stubs = [*(ROOT / "symattn").glob("*.pyi")]
    assert len(stubs) == 7
    for stub in stubs:
        module = import_module("symattn" if stub.stem == "__init__" else f"symattn.{stub.stem}")
        imports = [n for n in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(n, ast.ImportFrom)]
        assert module.__all__ == sorted(alias.asname or "" for n in imports for alias in n.names), stub.name


def _unlisted(text: str, public: Mapping[str, Collection[str]]) -> set[str]:
    """The attributes of public modules, imported as in ``from symattn import kinds``, that these do not list."""
    nodes = [*ast.walk(ast.parse(text))]
    doors = [n for n in nodes if isinstance(n, ast.ImportFrom) and n.module == "symattn"]
    modules = {a.asname or a.name: a.name for n in doors for a in n.names if a.name in public}
    used = [n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    read = {(modules[n.value.id], n.attr) for n in used if n.value.id in modules}
    return {f"{module}.{name}" for module, name in read if name not in public[module]}


@pytest.mark.deep
def test_tests_take_only_listed_names_of_public_modules() -> None:
    public = {name: import_module(f"symattn.{name}").__all__ for name in OPENED}
    files = [*(ROOT / "tests").rglob("*.py")]
    assert {x for file in files for x in _unlisted(file.read_text(encoding="utf-8"), public)} == set()
    wrong = "from symattn import kinds as k, streaming\nk._exp(1)\nstreaming.merge(k.modular())"
    assert _unlisted(wrong, public) == {"kinds._exp"}


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_becomes_a_list(page: Path) -> None:
    """A line that was wrapped before “12.” is the item of a list; an item begins a block or follows the one before."""
    lines = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S).splitlines()
    for before, line in pairwise(lines):
        number = re.match(r"(\d+)[.)] ", line)
        follows = re.match(r" {2,}\S", before) or re.match(rf"{int(number[1]) - 1}[.)] ", before) if number else None
        assert not number or not before or follows, line


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


def test_every_kind_of_specification_has_a_public_name() -> None:
    lacking = sorted({kind.name for kind in KINDS.values()} - {*symattn.__all__})
    assert lacking == [], f"symattn/__init__.pyi has no line for {', '.join(lacking)}"


ADDED = [(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("extend-attention", "extend")]
PATCHES = "".join(page.partition("\n## One of each\n")[2] for page in ADDED)
ADDITIONS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", PATCHES, re.MULTILINE | re.DOTALL))
#: Files that an addition may touch, and a package that its session needs.
MOST = {"A step": 4, "A step behind the weights": 4, "A norm behind the weights": 4, "A definition": 4}
NEEDS = {"A family of models": "transformers"}


def fence(kind: str, text: str) -> str:
    """The one fence of a kind."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


def touched(patch: str) -> set[str]:
    """The files that a patch makes or changes."""
    return set(re.findall(r"^\+\+\+ b/(\S+)$", patch, re.MULTILINE))


def apply(patch: str, folder: Path) -> None:
    """Apply a patch whose hunks need no numbers of lines: what they replace stands in its file once."""
    for part in re.split(r"^--- .*\n", patch, flags=re.MULTILINE)[1:]:
        head, *hunks = re.split(r"^@@\n", part, flags=re.MULTILINE)
        file = folder / head.removeprefix("+++ b/").strip()
        content = file.read_text(encoding="utf-8") if file.exists() else ""
        for hunk in hunks:
            lines = [(line[:1], line[1:] + "\n") for line in hunk.splitlines()]
            old, new = ("".join(line for sign, line in lines if sign != other) for other in "+-")
            assert content.count(old) == 1 or not content, f"{file.name}: {old}"
            content = content.replace(old, new) if old else new
        file.write_text(content, encoding="utf-8")


def played(session: str, package: Path) -> subprocess.CompletedProcess[str]:
    """Run a session with the package that lies in a folder."""
    assert doctest.DocTestParser().get_examples(session)
    package.joinpath("session.txt").write_text(session, encoding="utf-8")
    names = {**os.environ, "PYTHONPATH": str(package), "XDG_CACHE_HOME": str(package / "cache")}
    command = [sys.executable, "-W", "ignore", "-m", "doctest", "-f", "session.txt"]  # the first failure tells
    return subprocess.run(command, cwd=package, env=names, capture_output=True, text=True, check=False)


def test_few_files_are_touched() -> None:
    counts = {name: len(touched(fence("diff", text))) for name, text in ADDITIONS.items()}
    assert len(counts) == 10
    assert {name: n for name, n in counts.items() if not 0 < n <= MOST.get(name, 2)} == {}


@pytest.mark.deep
@pytest.mark.parametrize("name", ADDITIONS)
def test_an_addition_works(name: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS.get(name, "symattn"))
    patch, session = (fence(kind, ADDITIONS[name]) for kind in ("diff", "{code-block} pycon"))
    shutil.copytree(ROOT / "symattn", tmp_path / "symattn")  # with what Python compiled, which the times of files allow
    assert played(session, tmp_path).returncode != 0, "it works without the addition"
    apply(patch, tmp_path)
    after = played(session, tmp_path)
    assert after.returncode == 0, after.stdout

"""What is kept: by content and never by name, whole or not at all, and useless where it is broken."""

import os
import stat
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from symattn import Document, prove, proving
from symattn.document import stored_results
from symattn.theorems import kept as findings
from symattn.theorems import runner
from tests.cli.conftest import Run
from tests.theorems.conftest import stated


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the theorems that are decided from now on."""
    decided: list[str] = []
    honest = runner.decide
    monkeypatch.setattr(runner, "decide", lambda theorem: (decided.append(theorem.name), honest(theorem))[1])
    return decided


def digest(text: str, file: str = "mine.py") -> str | None:
    Path(file).write_text(text)
    return findings.digest(next(iter(proving.statements(file).values())))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMATTN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "theorems"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"is": "Grade"}', '{"is": "system"}', '{"is": "TheoremFinding"}', "[" * 99999]
)
def test_what_is_no_finding_is_refused(text: str):
    with pytest.raises(ValueError, match=r"."):
        stored_results.read(text, Document)


@pytest.mark.deep
def test_what_has_not_changed_is_not_decided_again(run, monkeypatch):
    decided = counted(monkeypatch)
    first, second = run("prove", "heads"), run("prove", "heads")
    assert first.stdout == second.stdout
    assert len(decided) == 7
    run("prove", "heads", "--no-cache")
    assert len(decided) == 14


def test_a_file_of_the_same_name_in_another_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for folder, text in (("a", stated()), ("b", stated(body="return exp(2 * s), exp(s)")), ("c", stated())):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        Path("mine.py").write_text(text)
        found.append(prove("mine.py", cached=False).holds)
    assert found == [True, False, True]


def test_a_changed_statement_of_the_same_name_is_decided_again(run, monkeypatch):
    decided = counted(monkeypatch)
    Path("mine.py").write_text(stated())
    assert run("prove", "mine.py").status == 0
    Path("mine.py").write_text(stated(body="return exp(2 * s), exp(s)"))
    assert run("prove", "mine.py").status == 1
    assert len(decided) == 2


def test_a_changed_module_that_a_statement_calls(run, monkeypatch):
    Path("helper_of_mine.py").write_text("def right(s):\n    return s + s\n")
    text = stated(body="return helper_of_mine.right(s), 2 * s", false="(s, 2 * s)")
    Path("mine.py").write_text("import helper_of_mine\n" + text)
    assert run("prove", "mine.py").status == 0
    Path("helper_of_mine.py").write_text("def right(s):\n    return s * s\n")
    monkeypatch.delitem(sys.modules, "helper_of_mine")
    assert run("prove", "mine.py").status == 1


USES: dict[str, tuple[str, str]] = {
    "inside a function": ("", "import helper_of_mine; return helper_of_mine.right(s), 2 * s"),
    "a number of a module": ("from helper_of_mine import Box\n", "return Box().right(s), 2 * s"),
}


@pytest.mark.parametrize("how", USES)
def test_a_module_that_runs_is_part_of_the_digest(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    top, body = USES[how]
    monkeypatch.syspath_prepend(".")
    Path("helper_of_mine.py").write_text(
        "from further_of_mine import K\n\ndef right(s):\n    return K * s\n\nclass Box:\n    def right(self, s):\n"
        "        return K * s\n"
    )
    found = []
    for k in (2, 3, 2):
        Path("further_of_mine.py").write_text(f"K = {k}\n")
        for module in ("helper_of_mine", "further_of_mine"):
            sys.modules.pop(module, None)
        found.append(digest(top + stated(body=body)))
    assert found[0] == found[2] != found[1]
    assert None not in found


@pytest.mark.parametrize(
    "body",
    [
        "import importlib; return importlib.import_module('helper_of_mine').right(s), 2 * s",
        "return eval('s + s'), 2 * s",
        "return float(open('number.txt').read()) * s, 2 * s",
        "import not_there_at_all; return s + s, 2 * s",
        "import os; return int(os.environ.get('FACTOR', '2')) * s, 2 * s",
        "import time; return (2 + (time.time() > 2e9)) * s, 2 * s",
        "from pathlib import Path; return (2 + Path('flag').exists()) * s, 2 * s",
        "import numpy; return (2 + (numpy.random.rand() > 0.5)) * s, 2 * s",
        "from numpy.random import default_rng; return default_rng().integers(2, 4) * s, 2 * s",
        "import numpy.random as r; return r.geometric(0.5) * s, 2 * s",
        "import numpy; return int(numpy.fromregex('k.txt', 'x', [('x', int)])[0][0]) * s, 2 * s",
        "import click; return int(click.open_file('number.txt').readline()) * s, 2 * s",
        "return (2 + hash('seed') % 2) * s, 2 * s",
    ],
)
def test_what_runs_something_unknown_has_no_digest(body: str) -> None:
    assert digest(stated(body=body)) is None


def test_a_module_of_the_user_that_is_called_as_one_of_python_is_part_of_the_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(".")
    found = []
    for k in (2, 3):
        Path("textwrap.py").write_text(f"K = {k}\n")
        monkeypatch.delitem(sys.modules, "textwrap", raising=False)
        found.append(digest(stated(body="from textwrap import K; return K * s, 2 * s")))
    assert None not in found
    assert found[0] != found[1]


def test_a_compiled_module_of_a_package_is_part_of_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    Path("package_of_mine").mkdir()
    Path("package_of_mine/__init__.py").write_text("")
    found = []
    for content in (b"one", b"another"):
        Path("package_of_mine", f"fast{EXTENSION_SUFFIXES[0]}").write_bytes(content)
        found.append(digest(stated(body="from package_of_mine import fast; return fast.twice(s), 2 * s")))
    assert None not in found
    assert found[0] != found[1]


def test_the_file_of_a_class_in_a_set_is_part_of_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    top = "from settings_of_mine import Settings\nUSED = {Settings}\n"
    found = []
    for size in (2, 3, 2):
        Path("settings_of_mine.py").write_text(f"class Settings:\n    size = {size}\n")
        sys.modules.pop("settings_of_mine", None)
        found.append(digest(top + stated(body="(one,) = USED; return one.size * s, 2 * s")))
    assert found[0] == found[2] != found[1]
    assert None not in found


def test_a_function_that_looks_up_a_name_without_a_value_has_a_digest() -> None:
    top = (
        "def make():\n    def inner():\n        return later\n    if not inner:\n        later = 1\n    return inner\n"
    )
    assert digest(top + "EMPTY = make()\n" + stated(body="EMPTY; return s + s, 2 * s")) is not None


def test_an_installed_package_counts_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    text = stated(body="import hypothesis; return s + s, 2 * s")
    one = digest(text)
    assert one is not None
    monkeypatch.setattr(findings, "version", lambda _: "0.0")
    assert one != digest(text) != digest(stated(body="return s + s, 2 * s"))


def test_a_copied_file_of_another_theorem_is_as_good_as_none(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.py").write_text(stated())
    assert run("prove", "mine.py").status == 0
    (right,) = folder.iterdir()
    Path("mine.py").write_text(stated(body="return exp(2 * s), exp(s)"))
    assert run("prove", "mine.py").status == 1
    (wrong,) = set(folder.iterdir()) - {right}
    wrong.write_bytes(right.read_bytes())
    assert run("prove", "mine.py").status == 1


def test_the_ground_has_the_versions_of_all_dependencies(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(stored_results, "version", lambda name: asked.append(name) or "1")
    stored_results.ground.__wrapped__()
    assert {"sympy", "numpy", "python-flint", "ml_dtypes", "hypothesis", "click", "threadpoolctl"} <= set(asked)


def test_the_ground_changes_with_a_text_of_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_results, "ROOT", tmp_path)
    digests = set()
    for typed in ("$a = a$", "$a = b$"):
        (tmp_path / "softmax.txt").write_text(typed)
        digests.add(stored_results.ground.__wrapped__())
    assert len(digests) == 2


def test_the_digest_is_of_the_content():
    one = digest(stated())
    assert one == digest(stated())
    assert one == digest(stated(), "other.py"), "the name of the file is no part of it"
    different = [
        stated(body="return exp(s) * exp(s), exp(2 * s)"),
        stated(false="(exp(3 * s), exp(s))"),
        stated().replace("n m", "n"),
        stated().replace(".exp(x)", ".log(x)"),
        "k = 2\n" + stated(body="return k * s, s + s"),
        "k = 3\n" + stated(body="return k * s, s + s"),
    ]
    digests = [digest(text) for text in different]
    assert None not in digests
    assert len({one, *digests}) == len(different) + 1


def test_theorems_of_the_catalogue_have_different_digests():
    from symattn import theorems

    every = [t for topic in ("softmax", "masks", "heads", "streaming") for t in theorems.of_topic(topic)]
    digests = [findings.digest(t) for t in every]
    assert None not in digests
    assert len(set(digests)) == len(every)


def test_what_is_not_understood_has_no_digest_and_is_not_kept(run, folder):
    Path("mine.py").write_text(
        "class Odd:\n    k = 2\n\nodd = Odd()\n" + stated(body="return odd.k * s, s + s", false="(s, 2 * s)")
    )
    assert run("prove", "mine.py").status == 0
    assert not folder.exists()


def test_the_digest_changes_with_symattn(monkeypatch):
    one = digest(stated())
    monkeypatch.setattr(findings, "ground", lambda: "another version")
    assert digest(stated()) != one


def test_broken_files_are_as_good_as_none(run, folder, monkeypatch):
    wanted = run("prove", "softmax-shift").stdout
    decided = counted(monkeypatch)
    (file,) = folder.iterdir()
    for number, broken in enumerate(
        (b"", b"{", b"\xff\xfe", b"[1, 2]", b'{"is": "TheoremFinding"}', b" " * 2_000_000), 1
    ):
        file.write_bytes(broken)
        assert run("prove", "softmax-shift").stdout == wanted
        assert len(decided) == number
    file.unlink()
    file.mkdir()
    assert run("prove", "softmax-shift").stdout == wanted


def test_a_folder_that_cannot_be_made_is_not_made(run, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SYMATTN_CACHE", str(tmp_path / "file"))
    assert run("prove", "softmax-shift").status == 0


@pytest.mark.deep
def test_nothing_is_left_half_written(run, folder):
    run("prove", "heads")
    assert len(list(folder.iterdir())) == 7
    assert {file.suffix for file in folder.iterdir()} == {".json"}
    if os.name == "posix":
        assert all(stat.S_ISREG(file.stat().st_mode) for file in folder.iterdir())


def test_where_the_cache_is(monkeypatch):
    monkeypatch.delenv("SYMATTN_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert stored_results.folder() == Path("/somewhere/cache/symattn")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert stored_results.folder() == Path.home() / ".cache" / "symattn"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert stored_results.folder() == Path.home() / "Library" / "Caches" / "symattn"


def test_a_compiled_theory_is_counted_and_cleared_and_nothing_beside_it(folder: Path) -> None:
    theory, other = (folder.parent / "coq" / name for name in ("0" * 64, "mine"))
    for place in (theory, other):
        place.mkdir(parents=True)
        (place / "Meaning.vo").write_bytes(b"1234")
    assert stored_results.sizes() == {"coq": (1, 4)}
    assert stored_results.clear() == 1
    assert [p.name for p in (folder.parent / "coq").iterdir()] == ["mine"]
    assert stored_results.sizes() == {}

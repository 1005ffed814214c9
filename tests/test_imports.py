"""Every module can be the first one that is imported: no circle of imports waits for a lucky order."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).parents[1]

# Each module in a process of its own, which is forked when what takes time is already there.
PROGRAM = """
import os, sys
import click, flint, hypothesis, ml_dtypes, numpy, sympy
wrong = []
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            __import__(name)
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        wrong.append(name)
sys.exit(len(wrong) > 0)
"""


def modules(folder: Path, root: Path = ROOT) -> dict[str, Path]:
    """The modules below a folder, by their names."""
    paths = [p for p in sorted(folder.rglob("*.py")) if p.stem != "__main__"]
    return {".".join(p.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): p for p in paths}


def run_at_once(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run while a module is imported, those of branches and classes among them."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for part in ("body", "handlers", "orelse", "finalbody")[2 * typing :]:
                yield from run_at_once(getattr(node, part, []))


def imports(found: dict[str, Path]) -> dict[str, set[str]]:
    """Which of these modules each one imports while it is imported itself, packages around modules among them."""
    graph = {}
    for name, path in found.items():
        wanted = {name.rpartition(".")[0]}
        for node in run_at_once(ast.parse(path.read_text(encoding="utf-8")).body):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                wanted |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        around = {".".join(w.split(".")[: i + 1]) for w in wanted for i in range(w.count(".") + 1)}
        graph[name] = {w for w in around & found.keys() if w != name}
    return graph


def in_circles(graph: dict[str, set[str]]) -> list[str]:
    """The modules that import themselves by way of others."""

    def reached(start: str) -> set[str]:
        seen, waiting = set(), [*graph[start]]
        while waiting:
            if (name := waiting.pop()) not in seen:
                seen.add(name)
                waiting += graph[name]
        return seen

    return [name for name in graph if name in reached(name)]


def imported(names: list[str], path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, "-c", PROGRAM, *names]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_every_module_can_be_imported_first() -> None:
    """A module in no circle never meets one that is imported in part, so any order will do for those."""
    found = modules(ROOT / "symattn")
    # What a name of symattn itself imports is decided when it is asked for, which no graph shows.
    lazy = [name for name, path in found.items() if re.search("^from symattn import", path.read_text("utf-8"), re.M)]
    first = dict.fromkeys([*in_circles(imports(found)), *lazy])
    assert "symattn.arrays" in first
    assert "symattn.attention.spec" in found.keys() - first.keys()
    ran = imported([*first], ROOT)
    assert not ran.returncode, ran.stdout + ran.stderr
    everything = "\n".join(f"import {name}" for name in found)
    subprocess.run([sys.executable, "-c", everything], cwd=ROOT, check=True)


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_circle_is_found(tmp_path: Path) -> None:
    tmp_path.joinpath("one.py").write_text("from two import b\na = 1\n")
    tmp_path.joinpath("two.py").write_text("if True:\n    import one\nb = one.a\n")
    tmp_path.joinpath("three.py").write_text("import one\ndef f(): import four\n")
    tmp_path.joinpath("four.py").write_text("import three\n")
    assert in_circles(imports(modules(tmp_path, tmp_path))) == ["one", "two"]
    ran = imported(["one", "two"], tmp_path)
    assert ran.returncode
    assert ran.stdout.startswith("two: AttributeError") or ran.stdout.startswith("one: AttributeError")


def is_there(path: str) -> bool:
    """Whether a path names a module, or a name in one."""
    try:
        resolve_name(path)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.docs  # one of the modules that tests name imports Sphinx
def test_names_that_tests_replace_by_a_path_are_there() -> None:
    """A checker of types does not read these strings, and most of the tests that have them are deep."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    paths = {path for text in texts for path in re.findall(r'"(symattn(?:\.\w+){2,})"', text)}
    assert "symattn.programs.closeness.COPIED" in paths
    assert [path for path in sorted(paths) if not is_there(path)] == []
    assert not is_there("symattn.programs.closeness" + ".MOVED")

"""What all tests share: reproducible Hypothesis runs, their own cache, and no skipping where every tool is promised."""

import gc
import os
import re
import signal
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

# Products here are small, and threads for them cost more than they save. Children inherit this; NumPy reads it once.
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

settings.register_profile(
    "symattn", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", settings.get_profile("symattn"), derandomize=False, max_examples=1000)
settings.load_profile("symattn")

# A shell's background jobs ignore interrupts, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

skipped: list[str] = []
#: Of a table of more cases than these the first one runs by default; ``-m deep`` runs the others,
SHORT = 2
#: of a longer one only so many, drawn with a fixed seed; ``-m exhaustive`` runs all that remain.
DEEP = 16
#: so many in rooms where a row verifies a program, which takes a second or more;
ROWS_OF_PROGRAMS = 3
PROGRAMS = {"verification", "programs", "models", "testing", "faults", "corpus", "campaigns"}
#: so many of those that a plain run leaves out, which are slow or need a tool;
SLOW = 2
#: and of a table whose rows, of one kind each, take ten seconds: what is marked ``long``.
LONG = 1
#: More are drawn than are run, so that another number of them takes the first ones of the same draw.
DRAWN = {LONG: 3, SLOW: 6, ROWS_OF_PROGRAMS: 16, DEEP: 16}
_MARKER = re.compile(r"\bmark\.(\w+)")
#: Cases that are in no such table: they would become deep ones, and be run where they must not.
BY_HAND = ("exhaustive", "guests", "cuda")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is read from the cache folder of who runs the tests, and nothing is left there.

    Processes that run tests beside each other share one, as two commands of a user do.
    """
    folder = tmp_path_factory.getbasetemp()
    beside = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYMATTN_CACHE", str(beside / "cache"))
        with threadpool_limits(1):
            yield


@pytest.fixture
def no_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cause of a fault is searched for, which takes long if there is none: for tests of what is wrong."""
    monkeypatch.setattr("symattn.verification.diagnosis.causes.Search.found", lambda self: ((), False))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test, such as one whose tool is missing, fails")


def pytest_configure(config: pytest.Config) -> None:
    skipped.clear()
    gc.set_threshold(20_000, 20, 20)  # a tenth of the time went into looking for cycles


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()  # what is there to the end


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file of which ``-m`` can select nothing: to import it may import PyTorch, JAX or Sphinx."""
    if (
        collection_path.suffix == ".py"
        and (expression := config.option.markexpr)
        and _idle(collection_path, expression)
    ):
        return True
    return None


def _idle(path: Path, expression: str) -> bool:
    """Return whether ``expression`` selects no test of the file, whichever of the markers it names they carry."""
    text = path.read_text(encoding="utf-8")
    certain = {name for line in re.findall("^pytestmark = .*", text, re.MULTILINE) for name in _MARKER.findall(line)}
    # A long table gives its cases these two, without a word of it in the file.
    possible = {"deep", "exhaustive", *_MARKER.findall(text)} - certain
    names = set(re.findall(r"\w+", expression)) - {"and", "or", "not"}
    unsure = sorted(names & possible)
    code = compile(expression, "-m", "eval")
    return not any(
        eval(code, {name: name in certain for name in names} | dict(zip(unsure, values, strict=True)))
        for values in product((False, True), repeat=len(unsure))
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    options = config.getini("addopts")
    left_out = {*re.findall(r"\w+", options[options.index("-m") + 1])}
    tables: dict[tuple[str, bool], list[pytest.Item]] = {}
    for item in items:
        if not any(item.get_closest_marker(name) for name in BY_HAND):
            tables.setdefault((item.nodeid.partition("[")[0], bool(item.get_closest_marker("deep"))), []).append(item)
    for (table, deep), cases in tables.items():
        marks = {mark.name for mark in cases[0].iter_markers()}
        most = LONG if "long" in marks else _rows(table) if left_out.isdisjoint(marks) else SLOW
        drawn = {*range(len(cases))}
        if len(cases) > most and not _of_pages(cases[0]):
            drawn = {*Random(table).sample(range(len(cases)), min(DRAWN[most], len(cases)))[:most]}
        for i, item in enumerate(cases):
            if len(cases) > SHORT and (deep or i > 0):
                item.add_marker(pytest.mark.deep if i in drawn else pytest.mark.exhaustive)


def _rows(table: str) -> int:
    """Return how many cases run of a table that a plain run does not leave out."""
    return DEEP if PROGRAMS.isdisjoint(table.split("/")[1:2]) else ROWS_OF_PROGRAMS


def _of_pages(item: pytest.Item) -> bool:
    """Return whether a table is of pages, each of which is to be true, or of points that all of them are to reach."""
    return not {"page", "point"}.isdisjoint(getattr(getattr(item, "callspec", None), "params", ()))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        skipped.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--no-skips") and skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--no-skips"):
        for name in skipped:
            terminalreporter.write_line(f"FAILED {name}: skipped, where every tool must be there")

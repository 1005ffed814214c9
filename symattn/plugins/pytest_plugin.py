"""The plugin for pytest: the fixture ``assert_attention``, failures that read like reports, options, annotations, and
a section at the end with the arithmetic of verified functions, and the mistakes that would have been detected.

pytest imports this at every start, so it imports only ``symattn.testing``, which is light until an assertion runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from symattn import testing

if TYPE_CHECKING:
    from symattn.models.auditing.audit_report import AuditReport
    from symattn.verification.report import Report, Sought

# The prefix by which properties of tests are recognised.
_PREFIX = "symattn."
# The plugin that annotates failures itself.
_OTHER_ANNOTATOR = "pytest_github_actions_annotate_failures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and the setting for the file of accepted faults."""
    group = parser.getgroup("symattn", "verification of attention (symattn)")
    group.addoption(
        "--symattn-budget",
        type=_parse_positive_seconds,
        metavar="SECONDS",
        help="most processor time for each assert_attention",
    )
    group.addoption(
        "--symattn-effort", choices=tuple(testing.EFFORTS), default="usual",
        help="how many inputs each assert_attention draws at random: 10, 100, 1000",
    )  # fmt: skip
    group.addoption(
        "--symattn-seed", type=int, metavar="N", help="seed of the inputs that are tried"
    )
    group.addoption(
        "--symattn-annotate", choices=("auto", "always", "never"), default="auto",
        help="annotate faults for GitHub; auto: in its workflows, unless another plugin does it",
    )  # fmt: skip
    parser.addini("symattn_baseline", "file of known, accepted faults", type="string", default="")


def _parse_positive_seconds(text: str) -> float:
    result = float(text)
    if not 0 < result < float("inf"):
        raise ValueError(text)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Apply the options to assertions while a test runs, and make their reports properties of the test."""
    before = testing.settings
    testing.settings = _make_test_settings(item)
    try:
        return (yield)
    finally:
        testing.settings = before


def _make_test_settings(item: pytest.Item) -> testing.Settings:
    config = item.config
    result = {
        "budget": config.getoption("--symattn-budget"),
        "seed": config.getoption("--symattn-seed"),
    }
    listed = config.getini("symattn_baseline")
    # Paths of the settings are relative to their file.
    root = config.inipath.parent if config.inipath else config.rootpath
    effort = testing.EFFORTS[config.getoption("--symattn-effort")]
    return testing.Settings(
        {**effort, **{name: value for name, value in result.items() if value is not None}},
        root / listed if listed else None,
        lambda report: item.user_properties.extend(_yield_junit_properties(report)),
        lambda sought: item.user_properties.extend(
            (f"{_PREFIX}power", _would_be_seen(mistake)) for mistake in sought if mistake.seen
        ),
        lambda words: item.user_properties.append(
            (f"{_PREFIX}contract", words.replace("\n", "; "))
        ),
    )


def _yield_junit_properties(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the properties of a verification for JUnit files."""
    yield f"{_PREFIX}target", report.target
    yield f"{_PREFIX}verdict", report.verdict.value
    for fault in report.faults:
        yield f"{_PREFIX}step", fault.step
        yield f"{_PREFIX}cause", fault.cause or "unknown"
        yield f"{_PREFIX}code", fault.code or "unknown"
        if fault.case:
            yield f"{_PREFIX}case", fault.case
    yield f"{_PREFIX}cases", str(report.cases)
    yield f"{_PREFIX}seed", str(report.seed)
    if report.arithmetic is not None:
        yield (
            f"{_PREFIX}arithmetic",
            f"{report.arithmetic.words} ({100 * report.arithmetic.share:.2f} % of the bits)",
        )
    for mistake in report.power:
        # A mistake that would not be seen is none of the evidence.
        if mistake.seen:
            share = f"{100 * mistake.share:.2g} %" if mistake.share > 1e-6 else "less than 0.0001 %"
            yield f"{_PREFIX}power", f"{mistake.step} {mistake.mistake}, from {share} of it on"
    for result in report.sought:
        if result.seen:
            yield f"{_PREFIX}power", _would_be_seen(result)


def _would_be_seen(sought: Sought) -> str:
    return f"{sought.words}, {sought.how}"


@pytest.fixture
def assert_attention() -> Callable[..., Report]:
    """Return ``symattn.testing.assert_attention``, which fails unless a function computes the specified attention."""
    return testing.assert_attention


@pytest.fixture
def audit_attention() -> Callable[..., AbstractContextManager[AuditReport]]:
    """Return ``symattn.audit`` that fails at its end if a call is wrong, or something is undecided.

    ``with audit_attention(model) as report: model(**inputs)``; it has the parameters of ``symattn.audit``.
    """
    return _audit_model_strictly


@contextmanager
def _audit_model_strictly(model: object = None, **options: Any) -> Iterator[AuditReport]:
    from symattn.models.auditing.audit import audit

    with audit(model, **options) as report:
        yield report
    report.raise_if_wrong(strict=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a fault by its message and the place of the assertion, without a traceback."""
    from symattn.document.errors import SymattnError

    report = yield
    if call.excinfo is None or not isinstance(
        call.excinfo.value, testing.AttentionFault | SymattnError
    ):
        return report
    words = str(call.excinfo.value)
    path, line = _locate_failed_assertion(item, call.excinfo)
    # Any other style was chosen on the command line.
    if item.config.getoption("tbstyle") == "auto":
        shown = call.excinfo.getrepr(style="value")
        if shown.reprcrash is not None:  # shown in the summary and by other plugins
            shown.reprcrash.message, shown.reprcrash.lineno = words, line
            shown.reprcrash.path = str(item.config.rootpath / path)
        report.longrepr = shown
        report.sections.insert(0, ("asserted at", f"{path}:{line}"))
    report.user_properties += [(f"{_PREFIX}at", f"{path}:{line}"), (f"{_PREFIX}message", words)]
    return report


def _locate_failed_assertion(
    item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException]
) -> tuple[str, int]:
    """Return the file and line of the assertion, in the test or in a helper of its own."""
    own = [entry for entry in excinfo.traceback if not str(entry.path).startswith(_PASSED_OVER)]
    entry = own[-1] if own else excinfo.traceback[-1]
    path = Path(str(entry.path))
    inside = path.is_relative_to(item.config.rootpath)
    shown_path = path.relative_to(item.config.rootpath) if inside else path
    return str(shown_path), entry.lineno + 1


# symattn itself, and contextlib, which runs the part of a fixture after its ``yield``.
_PASSED_OVER = (
    str(Path(__file__).resolve().parents[1]) + os.sep,
    os.path.dirname(os.__file__) + os.sep + "contextlib",
)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the section on verified functions, then annotations on separate lines, not broken by other output."""
    if config.get_verbosity() >= 0:
        _write_detectability_section(terminalreporter)
    for report in terminalreporter.getreports("failed") if _is_annotation_enabled(config) else ():
        result = dict(report.user_properties)
        if f"{_PREFIX}message" in result:
            path, _, line = result[f"{_PREFIX}at"].rpartition(":")
            terminalreporter.write_line(
                _format_github_annotation(path, line, report.nodeid, result[f"{_PREFIX}message"])
            )


def _write_detectability_section(terminalreporter: Any) -> None:
    """Write for each passed test the arithmetic, and the smallest detectable part of a mistake in each step."""
    result = [(r.nodeid, list(_of_test(r))) for r in terminalreporter.getreports("passed")]
    result = [(name, lines) for name, lines in result if lines]
    if result:
        terminalreporter.section("symattn: arithmetic, and what would have been detected")
    for name, lines in result:
        terminalreporter.write_line("\n  ".join((name, *lines)))


def _of_test(report: Any) -> Iterator[str]:
    result = [(name.removeprefix(_PREFIX), value) for name, value in report.user_properties]
    for kind in ("arithmetic", "power", "contract"):
        of_kind = (str(value) for name, value in result if name == kind)
        words = "; ".join(dict.fromkeys(of_kind))
        if words:
            yield f"{kind}: {words}"


def _is_annotation_enabled(config: pytest.Config) -> bool:
    wish = config.getoption("--symattn-annotate")
    if wish != "auto":
        return bool(wish == "always")
    names = {getattr(plugin, "__name__", "") for plugin in config.pluginmanager.get_plugins()}
    return os.environ.get("GITHUB_ACTIONS") == "true" and not any(
        n.startswith(_OTHER_ANNOTATOR) for n in names
    )


def _format_github_annotation(path: str, line: str, name: str, message: str) -> str:
    """Return a workflow command: https://docs.github.com/actions/reference/workflow-commands-for-github-actions."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    # Annotations have paths from the root of the workspace.
    if workspace and Path(path).resolve().is_relative_to(Path(workspace).resolve()):
        path = str(Path(path).resolve().relative_to(Path(workspace).resolve()))
    where = {"file": path.replace(os.sep, "/"), "line": line, "title": name}
    properties = ",".join(
        f"{key}={_escape_workflow_text(value, ':,')}" for key, value in where.items()
    )
    return f"::error {properties}::{_escape_workflow_text(message)}"


def _escape_workflow_text(text: str, also: str = "") -> str:
    """Escape percent signs, line ends, and in properties colons and commas, for a workflow command."""
    for character in "%\r\n" + also:
        text = text.replace(character, f"%{ord(character):02X}")
    return text

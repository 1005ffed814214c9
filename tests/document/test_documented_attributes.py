"""What the documentation promises of documents, reports and bounds exists on each of them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from pathlib import Path

import numpy as np
import pytest

from symattn import Grade, Report, Verdict, arithmetic, bound, compare, derive, generation, reports

PAGE = Path("docs/python.md").read_text(encoding="utf-8")
(PROMISE,) = re.findall(r"^- (`text\(\)`.*) of documents, reports and bounds;$", PAGE, re.MULTILINE)
PROMISED = re.findall(r"`(\w+)", PROMISE)


def _returned_by(function: typing.Callable[..., object]) -> type:
    """The class of what a public function returns, as its annotation names it."""
    name = typing.cast("str", inspect.signature(function).return_annotation)
    return typing.cast("type", vars(inspect.getmodule(function))[name])


Comparison, Generation, Answer = map(_returned_by, (compare, generation, arithmetic))
PRINTED = (type(derive("shift")), Report, Comparison, Generation, reports.AuditReport, type(bound(n=4, d_k=2)), Answer)
REPORTS = (Report, Comparison, Generation, reports.AuditReport)
OF_REPORTS = ["verdict", "exit_code", "faults", "checks", "notes", "power", "grade", "arithmetic", "document"]


@pytest.mark.parametrize("kind", PRINTED, ids=lambda kind: kind.__name__)
def test_each_printed_object_has_what_the_documentation_promises(kind: type) -> None:
    assert PROMISED == ["text", "latex", "markdown", "html", "json", "save", "holds"]
    assert [name for name in PROMISED if not hasattr(kind, name)] == []


def test_a_report_has_every_attribute_that_a_page_uses() -> None:
    used = {name for page in Path("docs").glob("*.md") for name in re.findall(r"\breport\.(\w+)", page.read_text())}
    fields = {field.name for kind in REPORTS for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    known = fields | {name for kind in REPORTS for name in dir(kind)}
    assert sorted({*used, *OF_REPORTS} - known - {"md", "py", "rst"}) == []


@pytest.mark.parametrize(
    ("verdict", "holds"), [(Verdict.NO_FAULT, True), (Verdict.FAULT, False), (Verdict.UNDECIDED, None)]
)
def test_a_verdict_says_whether_it_holds(verdict: Verdict, holds: bool | None) -> None:
    report = Report(verdict, "f(q, k, v)", "float32", "all inputs", seed=1)
    assert (report.holds, report.document().holds) == (holds, holds)


def test_a_bound_holds_and_one_without_a_number_is_open() -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 4, 2)).astype(np.float32)
    tolerance = bound(inputs={"q": q, "k": k, "v": v}, dtype="float32")
    assert tolerance.holds is True
    assert Grade.UNDECIDED not in {evidence.grade for evidence in tolerance.document().evidence()}

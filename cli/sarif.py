"""``-f sarif``: the faults of a report, a judgement or an audit as results of SARIF."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symattn import __version__
from symattn.document.sarif import Fix, Level, LogPlace, LogResult, TextChange, sarif
from symattn.document.text import plain_text

if TYPE_CHECKING:
    from symattn.document.model import Document
    from symattn.models.auditing.audit_report import AuditReport
    from symattn.programs.judging.judgement import Judgement
    from symattn.verification.repair import Repair
    from symattn.verification.report import Fault, Report

#: What rules without a code of a cause mean.
_MEANINGS = {
    "fault": "No correct implementation in this arithmetic gives such an output.",
    "undecided": "Too little could be tried or decided, which is no pass.",
    "tampered": "The candidate acts against its judge.",
    "no-reference": "The reference computes no known definition, so that nothing was judged.",
    "token-leak": "An output depends on a token that it must not see: a later one, padding, or another item's.",
}


def of_report(report: Report, target: str) -> str:
    """Return the faults of a verification; the fixes of the function belong to the first one."""
    place = place_of_target(target)
    fixes = tuple(_fixes_of(report.repairs))
    results = [
        _result_of_fault(fault, place, fixes if number == 0 else ())
        for number, fault in enumerate(report.faults)
    ]
    if not results and not report.holds:
        results = [_result_of_document(report.document(), place)]
    return sarif(results, __version__, report.command)


def of_judgement(judgement: Judgement) -> str:
    """Return the result of a judgement: none if the candidate passes."""
    place = place_of_target(judgement.candidate)
    rules: dict[str, tuple[str, Level]] = {
        "FAIL": (_first_code(judgement.code), "error"),
        "TAMPERED": ("tampered", "error"),
        "INVALID_REFERENCE": ("no-reference", "warning"),
        "UNDECIDED": ("undecided", "warning"),
    }
    results = []
    if judgement.status.value in rules:
        rule, level = rules[judgement.status.value]
        cause = f" Cause ({judgement.step}): {judgement.cause}." if judgement.cause else ""
        words = f"{judgement.status.value}: {judgement.reason}.{cause}"
        result = _log_result(rule, level, words, place)
        results = [_with_fixes(result, tuple(_fixes_of(judgement.repairs)))]
    return sarif(results, __version__, judgement.command)


def of_audit(report: AuditReport, document: Document, script: str) -> str:
    """Return the wrong and undecided calls of an audit, at the script that made them, by the name of the layer."""
    results = []
    for one in report.findings:
        level: Level = "error" if one.state == "wrong" else "warning"
        if one.state == "wrong" or one.undecided:
            rule = _first_code(one.code) if one.state == "wrong" else "undecided"
            words = f"{one.layer}, {one.via}: {one.verdict}."
            place = LogPlace(script, name=one.layer)
            results.append(_log_result(rule, level, words, place))
    for layer in report.layers:
        if layer.state != "pass":
            is_wrong = layer.state == "wrong"
            rule = _first_code(layer.code) if is_wrong else "undecided"
            words, place = f"{layer.layer}: {layer.verdict}.", LogPlace(script, name=layer.layer)
            results.append(_log_result(rule, "error" if is_wrong else "warning", words, place))
    rule = "token-leak"
    for words in (words for probe in report.dependence for words in probe.faults):
        results.append(_log_result(rule, "error", f"{words}.", LogPlace(script)))
    if not results and not document.holds:
        results = [_result_of_document(document, LogPlace(script))]
    return sarif(results, __version__, document.command)


def place_of_target(target: str) -> LogPlace:
    """Return the file and the line at which a target is defined, read without importing it."""
    from symattn.programs.judging.hashes import file_of_target
    from symattn.programs.loading import place_of

    # A trace or a graph is a file without functions; the name of a folder may have brackets as a call has.
    place = place_of(target)
    name = target.removeprefix(f"{place}:").partition("(")[0] if place else ""
    file = file_of_target(target) if name else Path(target)
    if file is None:
        return LogPlace(place, name=name)
    return LogPlace(str(file), _line_of(file, name.split(".")), name)


def _line_of(file: Path, names: Sequence[str]) -> int:
    """Return the line of a function or class by its dotted name; 1 if it is not in the file."""
    try:
        body: list[Any] = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return 1
    line = 1
    for name in names:
        found = [node for node in body if getattr(node, "name", None) == name]
        if not found:
            break
        # The last definition of a name is the one that counts.
        line, body = found[-1].lineno, getattr(found[-1], "body", [])
    return line


def _result_of_fault(fault: Fault, place: LogPlace, fixes: tuple[Fix, ...]) -> LogResult:
    from symattn.verification.report_document import sentence

    rule = _first_code(fault.code)
    example = fault.counterexample
    # As the report says it, with the wrong entry.
    words = " ".join(map(sentence, (fault.message, *([example.words] if example else []))))
    result = _log_result(rule, "error", words, place, step=fault.step, grade=fault.grade.value)
    return _with_fixes(result, fixes)


def _with_fixes(result: LogResult, fixes: tuple[Fix, ...]) -> LogResult:
    """Return a result with fixes, which stands at the line that the first of them changes."""
    if not fixes:
        return result
    first = fixes[0]
    place = replace(result.place, file=first.file, line=min(c.line for c in first.changes))
    words = f"{result.words} {first.words}"
    return replace(result, fixes=fixes, place=place, words=words)


def _fixes_of(repairs: Sequence[Repair]) -> Iterator[Fix]:
    """Yield the fixes that edits are; one that repairs a part of the calls is none."""
    for repair in repairs:
        if repair.is_whole:
            end = _line_end_of(repair.file)
            changes = (
                TextChange(
                    r.line, r.column + 1, r.end_line, r.end_column + 1, r.new.replace("\n", end)
                )
                for r in sorted(repair.replacements)
            )
            yield Fix(f"Fix: {repair.words}.", repair.file, tuple(changes))


def _line_end_of(file: str) -> str:
    """Return how lines of a file end, which new ones are to do as well."""
    try:
        return "\r\n" if b"\r\n" in Path(file).read_bytes() else "\n"
    except OSError:  # a cell of a notebook is no file
        return "\n"


def _result_of_document(document: Document, place: LogPlace) -> LogResult:
    """Return the one result of a document whose claim does not hold: a fault, or undecided."""
    is_fault = document.holds is False
    rule = "fault" if is_fault else "undecided"
    reason = plain_text(document.reason) if document.reason else ""
    words = ": ".join(filter(None, (plain_text(document.title), reason))) + "."
    return _log_result(rule, "error" if is_fault else "warning", words, place)


def _log_result(
    rule: str, level: Level, words: str, place: LogPlace, **properties: object
) -> LogResult:
    """Return a result with what its rule means, and with the command that explains it if it is a code."""
    more = "" if rule in _MEANINGS else f"symattn faults show {rule}"
    return LogResult(rule, _meaning_of(rule), level, words, place, (), properties, more)


def _first_code(codes: str | None) -> str:
    """Return the first of the codes of mistakes, or the name of the rule for a fault without one."""
    return re.split(r" \+ | or |, ", codes)[0] if codes else "fault"


def _meaning_of(rule: str) -> str:
    """Return what a rule means: the sentence of a code, with the names of its parameters."""
    from symattn.verification.codes import lines_of

    if rule in _MEANINGS:
        return _MEANINGS[rule]
    words = lines_of(rule)[0].words
    return f"{words[:1].upper()}{words[1:]}.".replace("{", "").replace("}", "")

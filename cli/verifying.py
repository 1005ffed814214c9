"""What ``verify`` does beside verifying: one case again, tests, accepted faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symattn.document.render import files

from .errors import say

if TYPE_CHECKING:
    from symattn.verification.definitions.registry import Specification
    from symattn.verification.report import Report


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options, checked before any work is done."""

    word: str | None
    test: Path | None
    baseline: Path | None
    write: Path | None
    reason: str
    force: bool

    @classmethod
    def of(
        cls,
        word: str | None,
        test: str | None,
        baseline: str | None,
        write: str | None,
        reason: str | None,
        force: bool,
    ) -> Wishes:
        """From what was typed."""
        if (write is None) != (reason is None):
            raise click.UsageError("--write-baseline FILE and --reason TEXT go together.")
        if write is not None and baseline is not None:
            raise click.UsageError("--write-baseline takes every fault, so it goes without --baseline.")
        paths = [None if p is None else Path(p) for p in (test, baseline, write)]
        found = cls(word, paths[0], paths[1], paths[2], reason or "", force)
        if found.test is not None:
            files.check(found.test, force)
        if found.write is not None and not found.write.exists():
            files.check(found.write, force)
        return found

    def report(self, target: str, spec: Specification, **told: Any) -> Report:
        """The report, after everything that was asked for has been written."""
        from symattn.programs.reproduce import named, verify_case
        from symattn.programs.verify import verify_target
        from symattn.verification import baseline

        accepted = baseline.read(self.baseline) if self.baseline else None
        if self.word is not None:
            report = verify_case(target, spec, self.word, **told)
        else:
            report = named(verify_target(target, spec, **told), spec, told.get("dtype", "float32"))
        if self.test is not None:
            self._write_test(target, spec, report, told)
        if self.write is not None:
            self._write_baseline(target, report)
        return report if accepted is None else baseline.compared(report, target, accepted)

    def _write_test(self, target: str, spec: Specification, report: Report, told: dict[str, Any]) -> None:
        from symattn.programs.reproduce import tests_of

        assert self.test is not None
        if not report.faults:
            say(f"symattn: no fault was found, and {self.test} is not written")
            return
        text, without = tests_of(target, spec, report, self.test, **told)
        files.write(self.test, text, self.force)
        if without:
            say(f"symattn: {without} of {len(report.faults)} faults do not show in one call, and have no test")

    def _write_baseline(self, target: str, report: Report) -> None:
        """Entries that are new are added; with --force, the file is replaced."""
        from symattn.verification import baseline

        assert self.write is not None
        keep = self.write.exists() and not self.force
        there = self.write.read_text(encoding="utf-8") if keep and baseline.read(self.write) else ""
        known = baseline.read(self.write) if keep else ()
        new = baseline.unlisted(report, target, known)
        files.write(self.write, baseline.added(new, target, self.reason, there), force=True)

"""Further tasks of ``verify``: repeating one case, writing tests, accepting faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symattn.document import files

from . import stream
from .errors import Status, say
from .output import PATCHES, Output, status

if TYPE_CHECKING:
    from symattn.programs.specifications import Specification
    from symattn.verification.report import Report


def check_fix(fix: str | None, output: Output, word: str | None) -> None:
    """Raise UsageError for options that go without ``--fix``, and for a patch without it."""
    if fix in (None, "no"):
        if output.path is not None and output.path.suffix in PATCHES:
            raise click.UsageError(f"{output.path} is a patch; hint: --fix writes one.")
        return
    if word is not None:
        raise click.UsageError("--fix rests on all cases, so it goes without --case.")
    if fix == "write" and output.path is not None:
        raise click.UsageError("--fix=write edits the file of TARGET, so it goes without -o.")


def give_fix(fix: str, report: Report, output: Output) -> Status:
    """Print the first repair as a diff, or edit the file; return the exit code of the report."""
    from symattn.verification.repair import NOT_MEANT

    whole = next((r for r in report.repairs if r.is_whole), None)
    result = status(report.document())
    if whole is None:
        partly = next((f"; {r.words}" for r in report.repairs), "")
        say(f"symattn: {report.verdict.value}, and no edit to give{partly}")
    elif fix == "write":
        whole.write()
        say(f"symattn: {whole.words}. {NOT_MEANT}")
    else:
        say(f"symattn: {whole.words}. {NOT_MEANT}")
        if output.path is None:
            stream.write(whole.diff())
        else:
            files.write(output.path, whole.diff(), output.force)
    return result


@dataclass(frozen=True, slots=True)
class ExtraTasks:
    """The options of these tasks, checked before any work is done."""

    word: str | None
    write_test: str | None
    baseline: str | None
    write_baseline: str | None
    reason: str | None
    force: bool

    def __post_init__(self) -> None:
        if (self.write_baseline is None) != (self.reason is None):
            raise click.UsageError("--write-baseline FILE and --reason TEXT go together.")
        if self.write_baseline is not None and self.baseline is not None:
            raise click.UsageError(
                "--write-baseline takes every fault, so it goes without --baseline."
            )
        if self.write_test is not None:
            files.check(Path(self.write_test), self.force)
        if self.write_baseline is not None and not Path(self.write_baseline).exists():
            files.check(Path(self.write_baseline), self.force)

    def report(self, target: str, spec: Specification, **options: Any) -> Report:
        """Return the report, after writing the files that the options name."""
        from symattn.programs.case_codes import named
        from symattn.programs.child import verify_target
        from symattn.programs.repeat import verify_case
        from symattn.verification import baseline

        accepted = None if self.baseline is None else baseline.read(Path(self.baseline))
        if self.word is not None:
            report = verify_case(target, spec, self.word, **options)
        else:
            report = named(
                verify_target(target, spec, **options), spec, options.get("dtype", "float32")
            )
        if self.write_test is not None:
            self._write_test(Path(self.write_test), target, spec, report, options)
        if self.write_baseline is not None:
            self._write_baseline(Path(self.write_baseline), target, report)
        return report if accepted is None else baseline.compared(report, target, accepted)

    def _write_test(
        self, path: Path, target: str, spec: Specification, report: Report, options: dict[str, Any]
    ) -> None:
        from symattn.programs.repeat import tests_of

        if not report.faults:
            say(f"symattn: no fault was found, and {path} is not written")
            return
        text, untested = tests_of(target, spec, report, path, **options)
        files.write(path, text, self.force)
        if untested:
            say(
                f"symattn: {untested} of {len(report.faults)} faults do not show in one call, and have no test"
            )

    def _write_baseline(self, path: Path, target: str, report: Report) -> None:
        """Add the entries that are new; with --force, replace the file."""
        from symattn.verification import baseline

        known = baseline.read(path) if path.exists() and not self.force else ()
        existing = path.read_text(encoding="utf-8") if known else ""
        new = baseline.unlisted(report, target, known)
        files.write(path, baseline.added(new, target, self.reason or "", existing), force=True)

"""A file of accepted faults, each with a reason; verification fails when one of them is gone.

The file is TOML (or JSON of the same form):

    [[accepted]]
    target = "attn.py:attention"
    step = "scale"
    code = "scale-off: factor = 1.02"   # without parameters: every fault of the family
    cause = "scores are scaled by 1.02/√d_k"
    reason = "the kernel is replaced in the next release"
    spec = "causal=True"     # optional; any specification by default
    dtype = "float32"        # optional; any dtype by default

An entry without ``code``, as earlier versions wrote it, accepts the fault with its ``cause``, which is "" for a fault
that no known mistake explains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from symattn.attention.codec import json_text
from symattn.document.errors import InputError, perhaps
from symattn.document.evidence import Verdict
from symattn.verification.codes import codes
from symattn.verification.report import Fault, Report

_LARGEST = 2**20  # bytes of a file


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted fault: by its code, also with parameters, or without a code by its cause."""

    target: str
    step: str
    reason: str
    code: str = ""
    cause: str | None = None
    spec: str | None = None
    dtype: str | None = None

    def applies_to(self, report: Report, target: str) -> bool:
        """Return whether the entry is about this target, specification and dtype."""
        spec = self.spec is None or self.spec == _format_report_fields(report)
        return self.target == target and spec and self.dtype in (None, _read_report_dtype(report))

    def covers(self, fault: Fault) -> bool:
        """Return whether this is the fault."""
        if self.step != fault.step:
            return False
        return (
            self.code in (fault.code, _join_fault_codes(fault))
            if self.code
            else self.cause == (fault.cause or "")
        )


def read(path: Path) -> tuple[Accepted, ...]:
    """Read the faults that a file accepts. Raises ``InputError`` with the entry and what is wrong with it."""
    result = json_text.loaded(path, _LARGEST, toml=path.suffix != ".json")
    entries = result.get("accepted", []) if isinstance(result, dict) else None
    if not isinstance(entries, list) or set(result) - {"accepted"}:
        raise InputError(f"{path} holds entries other than [[accepted]]")
    accepted = []
    for number, entry in enumerate(entries, 1):
        where = f"{path}, entry {number}"
        if not isinstance(entry, dict):
            raise InputError(f"{where} is not a table")
        # Unknown keys would be ignored silently, and a misspelt one would accept nothing.
        json_text.check_fields(Accepted, entry, where)
        accepted.append(
            Accepted(
                **{name: _check_baseline_text(name, value, where) for name, value in entry.items()}
            )
        )
        _check_accepted_entry(accepted[-1], where)
    return tuple(accepted)


def _check_accepted_entry(entry: Accepted, where: str) -> None:
    """Raise ``InputError`` for an entry without a reason, without code and cause, or with a code that is unknown."""
    if not entry.reason.strip():
        raise InputError(f"{where}: an accepted fault needs a reason")
    if not entry.code and entry.cause is None:
        raise InputError(
            # cause = "" is allowed: it accepts a fault whose cause no known mistake explains.
            f'{where}: code is missing; hint: cause = "" accepts a fault that no known mistake explains'
        )
    # A fault with several causes has one code for each.
    for code in _PARTS.split(entry.code) if entry.code else ():
        # What follows the colon are parameters of the code, not its name.
        name = code.partition(":")[0]
        if name not in codes():
            hint = perhaps(name, codes()) or "; `symattn faults` lists the codes"
            raise InputError(f"{where}: there is no code {name!r}{hint}")


#: What joins the codes of several mistakes.
_PARTS = re.compile(r" \+ | or ")


def _join_fault_codes(fault: Fault) -> str:
    """Return the codes of a fault with their parameters; "" without one."""
    between = next((sign for sign in (" + ", " or ") if sign in (fault.code or "")), "")
    return between.join(code.text for code in fault.codes)


def _check_baseline_text(name: str, value: object, where: str) -> Any:
    optional = name in ("spec", "dtype")
    if optional and value in (None, "none"):
        return None
    if not isinstance(value, str):
        raise InputError(
            f"{where}: {name} is a text{' or none' * optional}, not {json_text.shown(value)}"
        )
    return value


def compared(report: Report, target: str, accepted: Iterable[Accepted]) -> Report:
    """Return the report without the accepted faults; its verdict is a fault if one of these is gone.

    An undecided report, such as one whose time was spent, cannot show that a fault is gone, and does not say so.
    """
    mine = [entry for entry in accepted if entry.applies_to(report, target)]
    left = unlisted(report, target, mine).faults
    met = [entry for entry in mine if any(entry.covers(fault) for fault in report.faults)]
    # Only a decided report can show that a fault has gone.
    gone = (
        [entry for entry in mine if entry not in met]
        if report.verdict is not Verdict.UNDECIDED
        else []
    )
    said = [f"Accepted: {_describe_accepted_entry(entry)} ({entry.reason})." for entry in met]
    said += [
        f"Accepted fault, {_describe_accepted_entry(entry)}, is gone: remove the line."
        for entry in gone
    ]
    # An accepted fault that is gone fails as well, so that the list never covers a later fault.
    verdict = Verdict.FAULT if left or gone else Verdict.NO_FAULT if met else report.verdict
    return replace(report, faults=left, verdict=verdict).with_reservations(*said)


def unlisted(report: Report, target: str, accepted: Iterable[Accepted]) -> Report:
    """Return the report with only those faults that no entry accepts yet."""
    mine = [entry for entry in accepted if entry.applies_to(report, target)]
    left = tuple(fault for fault in report.faults if not any(entry.covers(fault) for entry in mine))
    return replace(report, faults=left)


def added(report: Report, target: str, reason: str, there: str = "") -> str:
    """Return the text ``there`` of a TOML file, extended by entries that accept the faults of a report."""
    if not reason.strip():
        raise InputError("an accepted fault needs a reason; hint: --reason TEXT")
    lines = [there.rstrip() + "\n" if there.strip() else ""]
    for fault in report.faults:
        spec, dtype = _format_report_fields(report), _read_report_dtype(report)
        entry = Accepted(
            target, fault.step, reason, _join_fault_codes(fault), fault.cause or "", spec, dtype
        )
        fields = {name: value for name, value in asdict(entry).items() if name != "code" or value}
        # strings are written as JSON, which TOML reads
        written = (
            f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()
        )
        lines += ["[[accepted]]", *(line.replace("\x7f", "\\u007f") for line in written), ""]
    return "\n".join(lines).lstrip("\n")


def _describe_accepted_entry(entry: Accepted) -> str:
    if entry.code:
        return (
            f"{entry.step}: {entry.cause} [{entry.code}]"
            if entry.cause
            else f"{entry.step}: {entry.code}"
        )
    return f"{entry.step}: {entry.cause}" if entry.cause else f"{entry.step} (no known cause)"


def _format_report_fields(report: Report) -> str:
    return ", ".join(f"{name}={value}" for name, value in report.fields.items())


def _read_report_dtype(report: Report) -> str:
    return report.precision.partition(",")[0].split()[0]

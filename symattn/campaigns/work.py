"""One job: a verification, told as a result whatever happens in it."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import Any

from symattn.campaigns.plan import Job
from symattn.errors import SymattnError


def work(job: Job, folder: str | None = None) -> dict[str, Any]:
    """Verify, and give what is kept of it: verdict, faults, checks, notes, or the error by which there is none.

    ``folder`` is the current one of who asks; where it exists here, it is that of the targets too.
    """
    if folder is not None and Path(folder).is_dir():
        os.chdir(folder)
    started = monotonic()
    record = {"key": job.key, "target": job.target, "spec": job.spec, "dtype": job.dtype, "domain": job.domain}
    try:
        found = _verified(job)
    except SymattnError as error:
        found = {"verdict": "error", "error": str(error), "kind": type(error).__name__}
    except Exception as error:  # a defect of ours must not end the campaign
        found = {"verdict": "error", "error": f"{type(error).__name__}: {error}", "kind": "defect"}
    return record | found | {"seconds": round(monotonic() - started, 3)}


def _verified(job: Job) -> dict[str, Any]:
    from symattn.sources.reproduce import named
    from symattn.sources.verify import verify_target
    from symattn.verification.domain import Domain

    spec, cut = job.attention
    options = {**job.options, "like": job.fields.get("like"), "notes": (cut,) if cut else ()}
    report = named(
        verify_target(job.target, spec, dtype=job.dtype, domain=Domain(**job.promised), **options), spec, job.dtype
    )
    return {
        "verdict": report.verdict.value,
        "faults": [_short(fault.record()) for fault in report.faults],
        "checks": [check.record() for check in report.checks],
        "power": [power.record() for power in report.power],
        "notes": [*report.missing, *report.notes],
        "cases": report.cases,
        "command": report.command,
    }


def _short(fault: dict[str, Any]) -> dict[str, Any]:
    """A fault without its arrays: ``--case`` shows them again."""
    return {name: fault[name] for name in ("step", "cause", "message", "case") if name in fault}

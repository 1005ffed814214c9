"""A campaign from beginning to end: what is done stays done, what is left is made, and each result is kept at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from symattn.campaigns import backends
from symattn.campaigns.plan import Job
from symattn.campaigns.store import Store

Backend = Literal["joblib", "dask"]
Progress = Callable[[int, int, dict[str, Any] | None], None]


def run(
    jobs: Sequence[Job],
    folder: Path,
    *,
    backend: Backend = "joblib",
    cores: int = -1,
    scheduler: str | None = None,
    progress: Progress = lambda done, planned, record: None,
) -> int:
    """Make the jobs whose results are not in ``folder`` yet, and keep them there; how many were made is returned.

    With ``cores=1`` and joblib the jobs are made in this process, and joblib is not needed. ``progress`` is told how
    many are done of how many, and the last result.
    """
    store = Store(folder)
    store.open(jobs)
    there = store.results()
    left = [job for job in jobs if job.key not in there]
    done = len(jobs) - len(left)
    progress(done, len(jobs), None)
    if not left:
        return 0
    if backend == "dask":
        results = backends.by_dask(left, scheduler, cores)
    else:
        results = backends.here(left) if cores == 1 else backends.by_joblib(left, cores)
    for number, record in enumerate(results, 1):
        store.append(record)
        progress(done + number, len(jobs), record)
    return len(left)

"""Run jobs in this process, on all cores by joblib, or on a cluster by dask. Results come as they are ready.

Each process computes on one thread: parallel jobs use the cores better than threads within them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from symattn.campaigns.plan import Job, Store
from symattn.document.codec import Record, record
from symattn.document.errors import InputError, MissingExtra, SymattnError


def work(job: Job, folder: str | None = None) -> Record:
    """Verify, and return the record to store: verdict, faults, checks and notes, or the error instead of a verdict.

    ``folder`` is the caller's working directory; if it exists here, targets are found in it.
    """
    if folder is not None and Path(folder).is_dir():
        os.chdir(folder)
    started = monotonic()
    entries = {
        "key": job.key,
        "target": job.target,
        "spec": job.spec,
        "dtype": job.dtype,
        "domain": job.domain,
    }
    try:
        result = _verify_campaign_job(job)
    except SymattnError as error:
        result = {"verdict": "error", "error": str(error), "kind": type(error).__name__}
    except Exception as error:  # a defect of ours must not end the campaign
        result = {"verdict": "error", "error": f"{type(error).__name__}: {error}", "kind": "defect"}
    return entries | result | {"seconds": round(monotonic() - started, 3)}


def _verify_campaign_job(job: Job) -> Record:
    from symattn.attention import presets
    from symattn.bounds.domain import Domain
    from symattn.programs.case_codes import named
    from symattn.programs.child import verify_target
    from symattn.programs.request import RequestOrigin

    spec, cut = job.attention
    like = job.fields.get("like")
    domain, origin, notes = (
        Domain(**job.promised),
        RequestOrigin({"like": like}, presets.like(like)) if like else None,
        (cut,) if cut else (),
    )
    report = verify_target(
        job.target, spec, dtype=job.dtype, domain=domain, origin=origin, notes=notes, **job.options
    )
    report = named(report, spec, job.dtype)
    # and no arrays, which ``--case`` shows again
    said = ("step", "cause", "code", "codes", "message", "case")
    faults = map(record, report.faults)
    return {
        "verdict": report.verdict.value,
        "grade": report.grade.grade.value,
        "faults": [{name: fault[name] for name in said if name in fault} for fault in faults],
        "checks": record(report.checks),
        "power": record(report.power),
        "notes": [*report.missing, *report.notes],
        "cases": report.cases,
        "command": report.command,
    }


# -- work --------------------------------------------------------------------------------------------------------------
Results = Iterator[Record]


def here(jobs: Sequence[Job]) -> Results:
    """Run the jobs in this process, one after another."""
    return (work(job) for job in jobs)


def by_joblib(jobs: Sequence[Job], cores: int) -> Results:
    """Run the jobs in ``cores`` processes (−1: one per core), which end with the iterator. Raises ``MissingExtra``."""
    try:
        import joblib
    except ImportError as error:
        raise MissingExtra("joblib", "scale") from error
    from joblib.externals.loky import get_reusable_executor

    done = False
    try:
        # Jobs take long, so that each is sent alone, and its result comes when it is ready.
        with joblib.parallel_config("loky", inner_max_num_threads=1):
            parallel = joblib.Parallel(n_jobs=cores, return_as="generator_unordered", batch_size=1)
            results = parallel(joblib.delayed(work)(job) for job in jobs)
        yield from results
        done = True
    finally:
        # If the consumer stopped early, workers still run.
        get_reusable_executor().shutdown(wait=True, kill_workers=not done)


def by_dask(jobs: Sequence[Job], scheduler: str | None, cores: int = -1) -> Results:
    """Run the jobs on a cluster that is running at the address ``scheduler``, or at the one in dask's configuration.

    Without either, a cluster of ``cores`` processes on this machine is started, and ends with the iterator. Raises
    ``MissingExtra``, and ``InputError`` if no scheduler answers.
    """
    try:
        import dask
        from distributed import as_completed
    except ImportError as error:
        raise MissingExtra("dask", "scale") from error
    address = scheduler or dask.config.get("scheduler-address", None)
    with _here_by_dask(cores) if address is None else _connect_to_scheduler(address) as client:
        # A job may give another result when it is repeated, and a worker may die.
        futures = client.map(work, jobs, folder=os.getcwd(), pure=False, retries=2)
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            client.cancel(futures)


def _connect_to_scheduler(address: str) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(
            f"no scheduler answers at {address}: {str(error).splitlines()[0]}"
        ) from error


@contextmanager
def _here_by_dask(cores: int) -> Iterator[Any]:
    """Start a cluster on this machine's cores, and close it at the end of the block."""
    from distributed import Client, LocalCluster

    workers = cores if cores > 0 else os.cpu_count()
    with (
        LocalCluster(
            # One thread a worker, as each runs one job at a time.
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


# -- campaigns ---------------------------------------------------------------------------------------------------------
Backend = Literal["joblib", "dask"]
Progress = Callable[[int, int, Record | None], None]


def run(
    jobs: Sequence[Job],
    folder: Path,
    *,
    backend: Backend = "joblib",
    cores: int = -1,
    scheduler: str | None = None,
    progress: Progress = lambda done, planned, record: None,
) -> int:
    """Run the jobs whose results are not in ``folder`` yet, store the results there, and return how many were run.

    With ``cores=1`` and joblib, jobs run in this process, and joblib is not needed. ``progress`` is called with how
    many are done, of how many, and the last result.
    """
    store = Store(folder)
    store.open(jobs)
    stored = store.results()
    # Results of an earlier run are kept, so that a campaign can be continued.
    left = [job for job in jobs if job.key not in stored]
    done = len(jobs) - len(left)
    progress(done, len(jobs), None)
    if not left:
        return 0
    if backend == "dask":
        results = by_dask(left, scheduler, cores)
    else:
        # One core needs no other process.
        results = here(left) if cores == 1 else by_joblib(left, cores)
    for number, result in enumerate(results, 1):
        store.append(result)
        progress(done + number, len(jobs), result)
    return len(left)

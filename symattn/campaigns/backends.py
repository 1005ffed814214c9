"""Who does the jobs: this process, all cores by joblib, or a cluster by dask. Results come as they are ready."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from symattn.campaigns.plan import Job
from symattn.campaigns.work import work
from symattn.errors import InputError, MissingExtra

Results = Iterator[dict[str, Any]]


def here(jobs: Sequence[Job]) -> Results:
    """One after another."""
    return (work(job) for job in jobs)


def by_joblib(jobs: Sequence[Job], cores: int) -> Results:
    """In ``cores`` processes (−1: one for each core), which end with the iterator. Raises ``MissingExtra``."""
    try:
        import joblib
    except ImportError as error:
        raise MissingExtra("joblib", "scale") from error
    from joblib.externals.loky import get_reusable_executor

    parallel = joblib.Parallel(n_jobs=cores, backend="loky", return_as="generator_unordered", batch_size=1)
    done = False
    try:
        yield from parallel(joblib.delayed(work)(job) for job in jobs)
        done = True
    finally:
        get_reusable_executor().shutdown(wait=True, kill_workers=not done)


def by_dask(jobs: Sequence[Job], scheduler: str | None) -> Results:
    """On a cluster that is running at the address ``scheduler``, or where dask's configuration says one is.

    Raises ``MissingExtra``, and ``InputError`` where no scheduler answers.
    """
    try:
        import dask
        from distributed import Client, as_completed
    except ImportError as error:
        raise MissingExtra("dask", "scale") from error
    address = scheduler or dask.config.get("scheduler-address", None)
    if address is None:
        raise InputError("no scheduler is known; mend: --scheduler tcp://HOST:8786, or DASK_SCHEDULER_ADDRESS")
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no scheduler answers at {address}: {str(error).splitlines()[0]}") from error
    with client:
        futures = client.map(work, jobs, folder=os.getcwd(), pure=False, retries=2)
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            client.cancel(futures)

"""Who does the jobs: this process, all cores by joblib, or a cluster by dask. Results come as they are ready.

Each process computes on one thread: jobs side by side use the cores better than threads within them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

    done = False
    try:
        with joblib.parallel_config("loky", inner_max_num_threads=1):
            parallel = joblib.Parallel(n_jobs=cores, return_as="generator_unordered", batch_size=1)
            results = parallel(joblib.delayed(work)(job) for job in jobs)
        yield from results
        done = True
    finally:
        get_reusable_executor().shutdown(wait=True, kill_workers=not done)


def by_dask(jobs: Sequence[Job], scheduler: str | None, cores: int = -1) -> Results:
    """On a cluster that is running at the address ``scheduler``, or where dask's configuration says one is.

    Where neither tells of one, a cluster of ``cores`` processes on this machine is started, and ends with the
    iterator. Raises ``MissingExtra``, and ``InputError`` where no scheduler answers.
    """
    try:
        import dask
        from distributed import as_completed
    except ImportError as error:
        raise MissingExtra("dask", "scale") from error
    address = scheduler or dask.config.get("scheduler-address", None)
    with _here_by_dask(cores) if address is None else _client(address) as client:
        futures = client.map(work, jobs, folder=os.getcwd(), pure=False, retries=2)
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            client.cancel(futures)


def _client(address: str) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no scheduler answers at {address}: {str(error).splitlines()[0]}") from error


@contextmanager
def _here_by_dask(cores: int) -> Iterator[Any]:
    """A cluster of this machine's cores, for as long as it is needed."""
    from distributed import Client, LocalCluster

    workers = cores if cores > 0 else os.cpu_count()
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client

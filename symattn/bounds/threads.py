"""How many threads BLAS may use while symattn judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

P = ParamSpec("P")
T = TypeVar("T")


def one_blas_thread(judge: Callable[P, T]) -> Callable[P, T]:
    """Let BLAS use a single thread while ``judge`` runs.

    Judging takes many products of small arrays. With more threads, BLAS spends several times as much processor time on
    them, mostly waiting, and they end no sooner.
    """
    limited: Callable[P, T] = threadpool_limits.wrap(limits=1, user_api="blas")(judge)
    return limited

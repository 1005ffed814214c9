"""Judging takes one BLAS thread, and leaves as many behind as there were."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from symattn import Attention, audit, bound, verify
from symattn.models.auditing.examining import examine
from symattn.programs import asserted
from symattn.testing import assert_close_to_exact
from symattn.verification.tolerances import asked, tolerance

ONES = np.ones((4, 2), np.float32)


def threads() -> set[int]:
    """The numbers of threads of the BLAS libraries that are loaded."""
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two() -> Iterator[None]:
    with threadpool_limits(2, "blas"):
        if threads() != {2}:
            pytest.skip("this BLAS cannot have two threads")
        yield
        assert 2 in threads()  # a library that a test loads has as many as it likes


@pytest.mark.parametrize(
    ("module", "name", "judge"),
    [
        (asserted, "close_to_exact", lambda: assert_close_to_exact(ONES, ONES, ONES, ONES)),
        (asked, "beforehand", lambda: bound(n=8, d_k=2)),
        (tolerance, "weigh", lambda: bound(n=8, d_k=2).document(compare=True)),
    ],
)
def test_judging_takes_one_thread(
    module: object, name: str, judge: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, within = set(), getattr(module, name)

    def looking(*args: object, **told: object) -> object:
        seen.update(threads())
        return within(*args, **told)

    monkeypatch.setattr(module, name, looking)
    judge()
    assert seen == {1}


@pytest.mark.deep
def test_a_verified_function_runs_on_one_thread() -> None:
    seen = set()

    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> object:
        if len(k) > 16:  # the calls that settle how to call it are small
            seen.update(threads())
        return Attention()(q, k, v)

    verify(attention, Attention(), examples=0)
    assert seen == {1}


@pytest.mark.torch
def test_a_call_is_audited_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    seen: set[int] = set()

    def looking(*call: Any, **told: Any) -> object:
        seen.update(threads())
        return examine(*call, **told)

    monkeypatch.setattr("symattn.models.auditing.begun.examine", looking)
    with audit() as report:
        torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 4, 2))
    assert (seen, report.verdict.value) == ({1}, "pass as given")

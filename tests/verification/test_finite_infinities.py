"""Finite numbers in place of −∞ are wrong where scores may lie below them, and right where none does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, Verdict, verify
from tests.faults.programs import softmax
from tests.verification.naming import scores

Array = Any
CAUSAL = Attention(causal=True)
SMALL = Domain(max_tokens=24, max_width=8)


def filled(x: float) -> Callable[..., Array]:
    def program(q: Array, k: Array, v: Array) -> Array:
        seen = np.tri(len(q), len(k), len(k) - len(q), dtype=bool)
        return softmax(np.where(seen, scores(q, k), q.dtype.type(x))) @ v

    return program


def added(x: float) -> Callable[..., Array]:
    def program(q: Array, k: Array, v: Array) -> Array:
        seen = np.tri(len(q), len(k), len(k) - len(q), dtype=bool)
        return softmax(scores(q, k) + np.where(seen, 0, x).astype(q.dtype)) @ v

    return program


def started(x: float, raw: bool = False) -> Callable[..., Array]:
    """A maximum that starts at x, of scores or of products before they are scaled."""

    def program(q: Array, k: Array, v: Array) -> Array:
        scale = q.dtype.type(1 / np.sqrt(q.shape[-1]))
        s = q @ k.T * (1 if raw else scale)
        e = np.exp((s - np.maximum(s.max(-1, keepdims=True), q.dtype.type(x))) * (scale if raw else 1))
        total = e.sum(-1, keepdims=True)
        return e @ v / np.where(total == 0, 1, total).astype(q.dtype)

    return program


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "spec", "cause"),
    [
        (filled(-20000), CAUSAL, "masked scores are filled with −20000, not −∞: they count where others lie below it"),
        (started(-50000), None, "the running maximum starts at −50000"),
        (started(-50000, raw=True), None, "the running maximum starts at −50000"),
        (filled(-12345), CAUSAL, "masked scores are filled with −12345"),
    ],
    ids=["fill", "start", "start of products", "an unusual number"],
)
def test_a_finite_number_above_possible_scores_is_a_fault(program: Any, spec: Any, cause: str) -> None:
    (fault,) = verify(program, spec, examples=0, domain=SMALL).faults
    assert fault.cause is not None
    assert fault.cause.startswith(cause)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "spec", "said"),
    [
        (filled(-1e9), CAUSAL, "−1e9 stands for −∞"),
        (started(float(np.finfo(np.float32).min) / 2), None, ""),
        (filled(-65504), CAUSAL, "−65504 stands for −∞"),
        (added(-1e4), CAUSAL, ""),
        (filled(-np.inf), CAUSAL, ""),
        (started(-1e30), None, "−1e30 stands for −∞"),
    ],
    ids=["1e9", "half the lowest", "float16", "added", "infinity", "start"],
)
def test_a_finite_number_below_all_scores_is_right_and_said(program: Any, spec: Any, said: str) -> None:
    report = verify(program, spec, examples=0, domain=SMALL)
    assert report.verdict is not Verdict.FAULT
    lines = [line for line in report.reservations if "stands for −∞" in line]
    assert [said in line for line in lines] == ([True] if said else [])


@pytest.mark.deep
def test_promises_decide_whether_scores_lie_below_a_number() -> None:
    def verdict(x: float, most: float) -> Verdict:
        return verify(
            filled(x), CAUSAL, examples=0, domain=Domain(max_tokens=24, max_width=8, max_abs_score=most)
        ).verdict

    assert verdict(-1e6, 1e7) is Verdict.FAULT
    assert verdict(-20000, 1000) is not Verdict.FAULT


@pytest.mark.deep
def test_nan_where_no_bound_holds_is_said() -> None:
    def program(q: Array, k: Array, v: Array) -> Array:
        s = scores(q, k)
        return softmax(np.where(np.abs(s) > 9000, q.dtype.type(np.nan), s)) @ v

    report = verify(program, precision="float16", examples=0, domain=SMALL)
    assert report.verdict is not Verdict.FAULT
    assert any("returns NaN or infinities where no bound holds" in line for line in report.reservations)


@pytest.mark.deep
def test_numbers_that_print_alike_are_said_once() -> None:
    def program(q: Array, k: Array, v: Array) -> Array:
        s = scores(q, k)
        narrow, wide = (np.full((len(q), 1), x).astype(q.dtype) for x in (np.float32(-1e20), np.float64(-1e20)))
        e = np.exp(s - np.maximum(np.maximum(s.max(-1, keepdims=True), narrow), wide))
        return e / e.sum(-1, keepdims=True) @ v

    said = [words for words in verify(program, examples=0, domain=SMALL).reservations if "−∞" in words]
    assert len(said) == 1
    assert said[0].startswith("−1e20 stands for −∞")

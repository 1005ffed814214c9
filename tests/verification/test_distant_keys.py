"""Keys that weigh little one by one: code that skips them is wrong, code that skips what vanishes is right."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Cached, Domain, Gradient, Merge, Softmax, Verdict, verify
from symattn.programs.verifying import Options, verified
from tests.faults.programs import softmax
from tests.verification.naming import convicts, scores

Array = Any
SMALL: dict[str, Any] = {"examples": 0, "domain": Domain(max_tokens=140, max_width=8)}


def tiled(width: int, below: float, rows: bool = False, ends: bool = False) -> Callable[..., Array]:
    """An online softmax that skips tiles whose scores are so far below the largest one before."""

    def program(q: Array, k: Array, v: Array) -> Array:
        m = np.full((len(q), 1), -np.inf, q.dtype)
        total, out = np.zeros_like(m), np.zeros((len(q), v.shape[-1]), q.dtype)
        for first in range(0, len(k), width):
            s = scores(q, k[first : first + width])
            top = s.max(-1, keepdims=True)
            far = top < m - below
            if ends and far.all():
                break
            if far.all() and not rows:
                continue
            s = np.where(far & rows, q.dtype.type(-np.inf), s)
            new = np.maximum(m, s.max(-1, keepdims=True))
            a, p = np.exp(m - new), np.exp(s - new)
            total, out, m = total * a + p.sum(-1, keepdims=True), out * a + p @ v[first : first + width], new
        return out / total

    return program


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "where"),
    [
        (tiled(64, 3), "tiles of 64, if that holds for all queries; at 4 below it, not at 3"),
        (tiled(32, 8, rows=True), "tiles of 32, for each query; at 9 below it, not at 7"),
    ],
    ids=["tiles", "rows"],
)
def test_keys_that_are_skipped_far_below_the_largest_score_are_missed(program: Any, where: str) -> None:
    (fault,) = verify(program, **SMALL).faults
    assert fault.cause == f"keys are skipped where their scores are far below the largest one ({where})"


@pytest.mark.deep
def test_an_early_exit_is_a_fault() -> None:
    assert convicts(tiled(16, 10, ends=True), **SMALL)


@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_tiles_whose_exponentials_vanish_may_be_skipped(precision: str) -> None:
    program = tiled(64, 110 if precision == "float32" else 800)
    assert verify(program, precision=precision, **SMALL).verdict is Verdict.NO_FAULT


def _without_far(s: Array, below: float) -> Array:
    return np.where(s < s.max(-1, keepdims=True) - below, s.dtype.type(-np.inf), s)


def _weights(scores: Array, below: float) -> Array:
    return softmax(_without_far(scores, below))


def _log_sums(q: Array, k: Array, v: Array, below: float) -> tuple[Array, Array]:
    s = _without_far(scores(q, k), below)
    m = s.max(-1, keepdims=True)
    return softmax(s) @ v, (m + np.log(np.exp(s - m).sum(-1, keepdims=True)))[..., 0]


def _merged(o1: Array, l1: Array, o2: Array, l2: Array, below: float) -> tuple[Array, Array]:
    m = np.maximum(l1, l2)
    w1, w2 = np.exp(l1 - m), np.where(l2 < l1 - below, 0, np.exp(l2 - m)).astype(o1.dtype)
    return (o1 * w1[..., None] + o2 * w2[..., None]) / (w1 + w2)[..., None], m + np.log(w1 + w2)


def _gradients(q: Array, k: Array, v: Array, do: Array, below: float) -> tuple[Array, Array, Array]:
    p = _weights(scores(q, k), below)
    dp = do @ v.T
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / q.dtype.type(np.sqrt(q.shape[-1]))
    return ds @ k, ds.T @ q, p.T @ do


def _of_cache(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array, below: float) -> Array:
    keys, values = np.concatenate([k_cache, k]), np.concatenate([v_cache, v])
    seen = np.arange(len(keys)) <= np.arange(len(q))[:, None] + len(k_cache)
    return _weights(np.where(seen, scores(q, keys), q.dtype.type(-np.inf)), below) @ values


DEFINED: dict[str, tuple[Any, Callable[[float], Callable[..., Any]]]] = {
    "merge": (Merge(), lambda x: lambda o1, l1, o2, l2: _merged(o1, l1, o2, l2, x)),
    "weights": (Softmax(), lambda x: lambda scores: _weights(scores, x)),
    "lse": (Attention(lse=True), lambda x: lambda q, k, v: _log_sums(q, k, v, x)),
    "gradients": (Gradient(Attention()), lambda x: lambda q, k, v, do: _gradients(q, k, v, do, x)),
    "caches": (
        Cached(Attention(causal=True)),
        lambda x: lambda q, k, v, k_cache, v_cache: _of_cache(q, k, v, k_cache, v_cache, x),
    ),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", DEFINED)
def test_definitions_with_exponentials_are_tried_with_distant_ones(name: str) -> None:
    definition, make = DEFINED[name]
    with np.errstate(all="ignore"):
        told: dict[str, Any] = {"framework": "numpy", "examples": 0}
        assert convicts(make(10.0), definition, **told)
        assert verify(make(200.0), definition, **told).verdict is Verdict.NO_FAULT


# -- parts without keys ------------------------------------------------------------------------------------------------
def _guarded(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    top = np.maximum(l1, l2)
    m = np.where(np.isfinite(top), top, 0).astype(o1.dtype)
    w1, w2 = np.exp(l1 - m), np.exp(l2 - m)
    total = w1 + w2
    out = (o1 * w1[..., None] + o2 * w2[..., None]) / np.where(total == 0, 1, total).astype(o1.dtype)[..., None]
    return out, m + np.log(total)


def _unguarded(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    return _merged(o1, l1, o2, l2, 1e9)


def _empty_as_zero(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    return _guarded(o1, np.where(np.isneginf(l1), 0, l1).astype(l1.dtype), o2, l2)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "promised", "verdict", "noted"),
    [
        (_guarded, True, Verdict.NO_FAULT, False),
        (_unguarded, False, Verdict.NO_FAULT, True),
        (_unguarded, True, Verdict.FAULT, False),
        (_empty_as_zero, False, Verdict.FAULT, False),
    ],
    ids=["guarded", "NaN noted", "NaN promised away", "counted as zero"],
)
def test_merges_are_tried_with_parts_that_have_no_keys(
    program: Any, promised: bool, verdict: Verdict, noted: bool
) -> None:
    with np.errstate(all="ignore"):
        domain, alone = Domain(fully_masked_rows=promised), verdict is Verdict.FAULT  # then no cause is asked for
        told = Options(framework="numpy", examples=0, domain=domain, verdict_alone=alone)
        report = verified(program, Merge(), told)
    assert report.verdict is verdict
    assert any("l1 = l2 = −∞ (a part without keys)" in note for note in report.notes) is noted


def _static(wrong: Callable[[int, int, int], bool]) -> Callable[..., Array]:
    """A static cache whose output is lost where ``wrong`` says so, from its length, the new tokens and the slots."""

    def program(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array, length: Array) -> Array:
        first, end = int(length), int(length) + len(q)
        keys, values = k_cache.copy(), v_cache.copy()
        keys[first:end], values[first:end] = k, v
        seen = np.arange(end) <= np.arange(first, end)[:, None]
        s = np.where(seen, scores(q, keys[:end]), q.dtype.type(-np.inf))
        out = softmax(s) @ values[:end]
        return out * q.dtype.type(not wrong(first, len(q), len(keys)))

    return program


@pytest.mark.deep
@pytest.mark.parametrize(
    ("wrong", "verdict"),
    [
        (lambda length, new, slots: False, Verdict.NO_FAULT),
        (lambda length, new, slots: length == 0, Verdict.FAULT),
        (lambda length, new, slots: length + new == slots, Verdict.FAULT),
    ],
    ids=["right", "empty", "just filled"],
)
def test_caches_are_tried_empty_and_just_filled(wrong: Any, verdict: Verdict) -> None:
    alone = verdict is Verdict.FAULT  # then no cause is asked for
    told = Options(framework="numpy", examples=0, verdict_alone=alone)
    assert verified(_static(wrong), Cached(Attention(causal=True)), told).verdict is verdict

"""Which keys a function counts is read from its weights, and said by the plainest condition that tells them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from symattn import Attention, LayerNorm, LinearAttention, RMSNorm, verify
from symattn.verification.rules.predicates import Pairs, plainest
from tests.faults.programs import softmax

Array = Any
SIZES = [(n, n) for n in range(1, 26)] + [(2, 17), (3, 11), (7, 20)]

#: Masks of places i and j, and the condition that is plainest.
MASKS: dict[str, Any] = {
    "where 0 ≤ i − j ≤ 5": lambda i, j, n: (j <= i) & (i - j < 6),
    "where |i − j| ≤ 3": lambda i, j, n: abs(i - j) <= 3,
    "where i − j ≥ 0 and (i − j) % 3 = 0": lambda i, j, n: (j <= i) & ((i - j) % 3 == 0),
    "where j % 8 ≤ 6": lambda i, j, n: j % 8 != 7,
    "where i // 4 − j // 4 ≥ 0": lambda i, j, n: j // 4 <= i // 4,
    "where −3 ≤ the query's row less j ≤ 0": lambda i, j, n: (i - i[0] <= j) & (j <= i - i[0] + 3),
    "where ⌊n_k/n_q · the query's row⌋ less j ≥ 0": lambda i, j, n: j <= (i - i[0]) * n // len(i),
    "where ⌊n_k/n_q · the next query's row⌋ less j ≥ 1": lambda i, j, n: j < (i - i[0] + 1) * n // len(i),
    "where the first query of its block of 4 less the first key of its block of 2 ≥ 0": lambda i, j, n: (
        (i - i[0]) // 4 * 4 + i[0] >= j // 2 * 2
    ),
    "where j ≥ 4": lambda i, j, n: (j >= 4) & (i >= 0),
    "unless i − j ≥ 8 and j ≥ 4": lambda i, j, n: (i - j < 8) | (j < 4),
}


def _calls(mask: Any) -> list[tuple[Pairs, Array, Array]]:
    calls = []
    for n_q, n_k in SIZES:
        pairs = Pairs(n_q, n_k, n_k - n_q)
        shape = (n_q, n_k)
        calls.append((pairs, np.ones(shape, bool), np.broadcast_to(mask(pairs.i, pairs.j, n_k), shape)))
    return calls


@pytest.mark.parametrize("words", MASKS)
def test_the_plainest_condition_of_a_mask(words: str) -> None:
    calls = _calls(MASKS[words])
    condition = plainest(calls)
    assert condition is not None
    assert condition.words == words
    assert all((condition(pairs) == meant).all() for pairs, _, meant in calls)


@pytest.mark.parametrize("words", MASKS)
def test_one_pair_more_is_another_condition(words: str) -> None:
    calls = _calls(MASKS[words])
    pairs, among, meant = calls[-1]
    other = meant.copy()
    other[3, 7] ^= True
    condition = plainest([*calls[:-1], (pairs, among, other)])
    assert condition is None or condition.words != words


def test_pairs_at_random_have_no_condition() -> None:
    rng = np.random.default_rng(1)
    assert plainest(_calls(lambda i, j, n: rng.random((len(i), n)) < 0.5)) is None


# -- programs ----------------------------------------------------------------------------------------------------------
def _scores(q: Array, k: Array) -> Array:
    return q @ np.swapaxes(k, -1, -2) / np.sqrt(np.asarray(q.shape[-1], q.dtype))


def _masked(mask: Any) -> Any:
    """Return attention to the keys of a mask."""

    def run(q: Array, k: Array, v: Array) -> Array:
        s = _scores(q, k)
        n_q, n_k = s.shape[-2:]
        i, j = np.arange(n_q)[:, None] + n_k - n_q, np.arange(n_k)[None, :]
        return softmax(np.where(mask(i, j, n_k), s, -np.inf)) @ v

    return run


def _twice(q: Array, k: Array, v: Array) -> Array:
    """Count the first keys of tiles twice, as edges of two tiles."""
    at = [j for t in range(0, k.shape[-2], 4) for j in range(t, min(k.shape[-2], t + 5))]
    return softmax(_scores(q, k[..., at, :])) @ v[..., at, :]


def _linear(q: Array, k: Array, v: Array) -> Array:
    """Let tokens see all of their own chunk."""
    a, b = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])[None, :]
    weights = np.where(j // 4 <= i // 4, a @ np.swapaxes(b, -1, -2), 0)
    return weights @ v / weights.sum(-1, keepdims=True)


def _rms(x: Array, gain: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5) / x.shape[-1]) * gain


def _layer(x: Array, gain: Array, bias: Array) -> Array:
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + np.float32(1e-10)) * gain + bias


PROGRAMS: list[tuple[Any, Any, str, str]] = [
    (_masked(lambda i, j, n: (j <= i) & (i - j < 6)), Attention(causal=True, window=4), "mask", "0 ≤ i − j ≤ 5"),
    (_masked(lambda i, j, n: (j <= i) & ((i - j) % 3 == 0)), Attention(causal=True), "mask", "(i − j) % 3 = 0"),
    (_masked(lambda i, j, n: (j <= i) & ((i - j < 8) | (j < 4))), Attention(causal=True), "mask",
     "i − j ≥ 8 and j ≥ 4"),
    (_masked(lambda i, j, n: (i - i[0] <= j) & (j <= i - i[0] + 3)), Attention(causal=True, window=4), "mask",
     "−3 ≤ the query's row less j ≤ 0"),
    (_masked(lambda i, j, n: (j != 256) | (n < 258) | (n % 128 == 0)), Attention(), "mask",
     "hidden where j = 256 and n_k − j ≥ 2 and n_k % 128 ≥ 1"),
    (_masked(lambda i, j, n: j % 8 != 7), Attention(), "mask", "j % 8 ≤ 6"),
    (_twice, Attention(), "normalize", "counts twice (tiles of 4)"),
    (_linear, LinearAttention(), "mask", "a token also sees later tokens of its own chunk of 4"),
    (_rms, RMSNorm(eps=1e-5), "norm", "ε is divided by the width"),
    (_layer, LayerNorm(eps=1e-5), "norm", "ε is squared"),
]  # fmt: skip


def _marked() -> Iterator[Any]:
    """The conditions of masks are told apart above, on weights alone: one of them here, and all that is no mask."""
    masks = [row for row in PROGRAMS if row[2] == "mask" and isinstance(row[1], Attention)]
    for row in PROGRAMS:
        yield pytest.param(*row, marks=pytest.mark.exhaustive if row in masks[1:] else ())


@pytest.mark.deep
@pytest.mark.parametrize(("program", "spec", "step", "words"), [*_marked()])
def test_what_weights_and_numbers_show_is_named(program: Any, spec: Any, step: str, words: str) -> None:
    fault = verify(program, spec).faults[0]
    assert fault.step == step
    assert fault.cause is not None
    assert words in fault.cause


@pytest.mark.deep
def test_keys_that_no_condition_tells_are_not_named() -> None:
    """Which keys are hidden is drawn: a condition would be a coincidence."""

    def mask(i: Array, j: Array, n: int) -> Array:
        return (np.random.default_rng(n).random((len(i), n)) < 0.7) | (j == i)

    fault = verify(_masked(mask), Attention()).faults[0]
    assert fault.cause is None

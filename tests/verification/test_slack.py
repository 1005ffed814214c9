"""How much wider the bound is than errors that occur: small enough to find what is wrong, and never too small."""

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.precision import Precision
from symattn.bounds.plain_bound import allowed

GOALS = {"float32": 250.0, "float16": 16.0, "bfloat16": 6.0}
TILE = 32


def _exact(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = q @ k.T / np.sqrt(q.shape[1])
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True) @ v)


def _in_tiles(q: np.ndarray, k: np.ndarray, v: np.ndarray, p: Precision, scale: float) -> np.ndarray:
    m, total = np.full((len(q), 1), -np.inf, np.float32), np.zeros((len(q), 1), np.float32)
    out = np.zeros((len(q), v.shape[1]), np.float32)
    for j in range(0, len(k), TILE):
        s = q @ k[j : j + TILE].T * np.float32(scale)
        grown = np.maximum(m, s.max(axis=1, keepdims=True))
        e, shrink = np.exp(s - grown), np.exp(m - grown)
        total = total * shrink + e.sum(axis=1, keepdims=True)
        out = out * shrink + p.stored.rounded(e).astype(np.float32) @ v[j : j + TILE]
        m = grown
    return np.asarray(p.returned.rounded(out / total))


@pytest.mark.parametrize("name", GOALS)
def test_the_slack_is_small_and_a_wrong_scale_is_found(name: str) -> None:
    p, rng, d = Precision.of(name, "fused"), np.random.default_rng(61), 64
    given = {c: p.input.rounded(rng.standard_normal((128, d))) for c in "qkv"}
    q, k, v = (given[c].astype(np.float32) for c in "qkv")
    bound, exact = allowed(Attention(), given, p.in_tiles(128, TILE)), _exact(**given)
    error = np.abs(_in_tiles(q, k, v, p, 1 / np.sqrt(d)) - exact)
    assert (error <= bound).all()
    assert bound.max() / error.max() <= GOALS[name]
    wrong = np.abs(_in_tiles(q, k, v, p, 1 / np.sqrt(d + 1)) - exact)
    assert (wrong > bound).any()


def test_an_accumulator_of_half_precision_is_found_in_float32() -> None:
    p, rng = Precision.of("fp32"), np.random.default_rng(62)
    given = {c: p.input.rounded(rng.standard_normal((64, 32))) for c in "qkv"}
    s = given["q"] @ given["k"].T / np.sqrt(32)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    total = np.zeros((64, 32), np.float16)
    for j in range(64):
        total = (total + e[:, j : j + 1] * given["v"][j]).astype(np.float16)
    error = np.abs(total / e.sum(axis=1, keepdims=True) - _exact(**given))
    assert (error > allowed(Attention(), given, p)).any()

"""The theorems on depth."""

from __future__ import annotations

import numpy as np
import pytest


def _stochastic(rng: np.random.Generator, n: int, mask: np.ndarray | None = None) -> np.ndarray:
    p = rng.uniform(0.01, 1, (n, n)) ** 3 * (1 if mask is None else mask)
    return p / p.sum(axis=1, keepdims=True)


def _osc(x: np.ndarray) -> float:
    return float(x.max() - x.min())


@pytest.mark.parametrize("seed", range(20))
def test_spreads_of_many_layers_in_numbers(seed: int):
    """The inductions over layers, which the theorems state as a rule."""
    rng = np.random.default_rng(seed)
    n, depth = int(rng.integers(2, 7)), 5
    x = start = rng.normal(size=n)
    bound = 1.0
    for _ in range(depth):
        p = _stochastic(rng, n)
        delta = max(abs(a - b).sum() / 2 for a in p for b in p)
        assert delta <= 1 - n * p.min() + 1e-12
        assert _osc(p @ x) <= delta * _osc(x) + 1e-12
        x, bound = p @ x, bound * (1 - n * p.min())
    assert _osc(x) <= bound * _osc(start) + 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_causal_layers_draw_all_tokens_to_the_first_in_numbers(seed: int):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    x = start = rng.normal(size=n)
    bound = 1.0
    for _ in range(5):
        p = _stochastic(rng, n, np.tril(np.ones((n, n))))
        x, bound = p @ x, bound * (1 - p[:, 0].min())
    assert x[0] == start[0]
    assert abs(x - x[0]).max() <= bound * abs(start - start[0]).max() + 1e-12

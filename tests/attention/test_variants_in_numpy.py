"""Score variants, sparse weights, sinusoids and linear recurrences on NumPy, against loops written out."""

from __future__ import annotations

import numpy as np
import pytest

from symattn.attention.linear import causal_linear_attention, linear_state, linear_step
from symattn.attention.positions.angles import add_angles, sinusoidal
from symattn.attention.scores import additive_scores, distance_scores
from symattn.attention.softmax import sparsemax

RNG = np.random.default_rng(5)
Q, K, V = RNG.normal(size=(3, 4)), RNG.normal(size=(5, 4)), RNG.normal(size=(5, 2))


def test_additive_scores():
    w, u, v = RNG.normal(size=(4, 6)), RNG.normal(size=(4, 6)), RNG.normal(size=6)
    s = additive_scores(Q, K, w, u, v)
    expected = [[v @ np.tanh(q @ w + k @ u) for k in K] for q in Q]
    np.testing.assert_allclose(s, expected)
    assert (abs(s) < abs(v).sum()).all()


def test_distance_scores():
    np.testing.assert_allclose(distance_scores(Q, K), [[-((q - k) ** 2).sum() / 2 for k in K] for q in Q])


@pytest.mark.parametrize("s", [[0.3, -1.0, 0.1, 0.25], [5.0, 0.0, 0.0], [1.0, 1.0], [2.0]])
def test_sparsemax_is_nearer_than_any_other_weights(s: list[float]):
    scores = np.array(s)
    p = sparsemax(scores)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1)
    for other in RNG.dirichlet(np.ones(len(s)), size=200):
        assert ((p - scores) ** 2).sum() <= ((other - scores) ** 2).sum() + 1e-12


def test_sparsemax_takes_rows():
    rows = RNG.normal(size=(2, 3, 4))
    np.testing.assert_allclose(sparsemax(rows)[1, 2], sparsemax(rows[1, 2]))


def test_sinusoidal_columns_alternate():
    angles = RNG.normal(size=(3, 4))
    x = sinusoidal(np.cos(angles), np.sin(angles))
    np.testing.assert_allclose(x[:, 0::2], np.sin(angles))
    np.testing.assert_allclose(x[:, 1::2], np.cos(angles))


def test_angles_add():
    a, b = RNG.normal(size=5), RNG.normal(size=5)
    cos, sin = add_angles(np.cos(a), np.sin(a), np.cos(b), np.sin(b))
    np.testing.assert_allclose(cos, np.cos(a + b))
    np.testing.assert_allclose(sin, np.sin(a + b))


def test_linear_attention_step_by_step():
    q, k = np.exp(RNG.normal(size=(5, 4))), np.exp(K)
    whole = causal_linear_attention(q, k, V)
    state = linear_state(k[:1], V[:1])
    for n in range(1, 5):
        state, output = linear_step(state, q[n : n + 1], k[n : n + 1], V[n : n + 1])
        weights = q[n] @ k[: n + 1].T
        np.testing.assert_allclose(output[0], weights @ V[: n + 1] / weights.sum())
        np.testing.assert_allclose(output[0], whole[n])

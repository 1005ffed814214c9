"""Scores and their scales: against loops over plain numbers, and on every kind of array."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from symattn.arrays import kind
from symattn.attention.norms import unit
from symattn.attention.scores import (
    cosine_scores,
    dot_scores,
    general_scores,
    per_head,
    scale_by_heads,
    scale_by_root,
    scale_by_width,
    truncate,
)
from symattn.document.errors import InputError, Refused
from tests.arrays.evaluating import compare
from tests.attention.pieces import Piece, agrees, lift_of

ANY_ROOT = {"modular": "a root of data stands for any function there"}


def dot(a: Any, b: Any) -> Any:
    return mpmath.fdot(zip(a, b, strict=True))


def general(q: Any, k: Any, w: Any) -> Any:
    return [[sum(q_a * w[a][b] * k_b for a, q_a in enumerate(x) for b, k_b in enumerate(y)) for y in k] for x in q]


def cosine(temperature: Any, q: Any, k: Any) -> Any:
    return [[dot(x, y) / (mpmath.sqrt(dot(x, x)) * mpmath.sqrt(dot(y, y)) * temperature) for y in k] for x in q]


def over_width(q: Any, k: Any) -> Any:
    return [[dot(x, y) / len(x) for y in k] for x in q]


def by_head(s: Any, t: Any) -> Any:
    return [[[t[h] * x for x in row] for row in head] for h, head in enumerate(s)]


def first_columns(q: Any, k: Any) -> Any:
    return [[sum(x[c] * y[c] for c in range(3)) for y in k] for x in q]


SCORES: dict[str, Piece] = {
    "general": Piece(general_scores, general, lambda q, k, w: general_scores(q, k, w[::-1]), ((3, 2), (4, 5), (2, 5))),
    "cosine": Piece(
        cosine_scores, lambda q, k: cosine(1, q, k), lambda q, k: unit(q) @ k.mT, ((3, 2), (4, 2)), skipped=ANY_ROOT
    ),
    "cosine, temperature 1/4": Piece(
        lambda q, k: cosine_scores(q, k, 0.25),
        lambda q, k: cosine(0.25, q, k),
        lambda q, k: cosine_scores(q, k) / 2,
        ((3, 2), (4, 2)),
        skipped=ANY_ROOT,
    ),
    "over the width": Piece(
        lambda q, k: scale_by_width(dot_scores(q, k), q),
        over_width,
        lambda q, k: scale_by_root(dot_scores(q, k), q),
        ((3, 5), (4, 5)),
    ),
    "a factor for each head": Piece(
        scale_by_heads, by_head, lambda s, t: s * t[:, None, None][::-1], ((2, 3, 4), (2,)), scale=0.25
    ),
    "truncated": Piece(
        lambda q, k: dot_scores(truncate(q, 3), truncate(k, 3)),
        first_columns,
        lambda q, k: dot_scores(q[..., 1:], k[..., 1:]),
        ((3, 4), (2, 4)),
    ),
}


def test_general_scores_of_the_transpose_are_seen() -> None:
    square = Piece(general_scores, general, lambda q, k, w: general_scores(q, k, w.mT), ((3, 2), (4, 2), (2, 2)))
    assert agrees(square.run, square)
    assert not agrees(square.wrong, square)


def test_a_matrix_for_each_head() -> None:
    q, k, w = (np.random.default_rng(1).normal(size=s) for s in ((2, 3, 4), (2, 5, 6), (2, 4, 6)))
    found = general_scores(q, k, w)
    for h in range(2):
        np.testing.assert_allclose(found[h], q[h] @ w[h] @ k[h].T, rtol=1e-13)
    assert not np.allclose(found[1], q[1] @ w[0] @ k[1].T)


FORMS: dict[str, tuple[Any, dict[str, str]]] = {
    "general": (general_scores, {"q": "n d", "k": "m e", "w": "d e"}),
    "cosine": (lambda q, k: cosine_scores(q * q + 1, k * k + 1), {"q": "n d", "k": "m d"}),
    "over the width": (lambda q, k: scale_by_width(dot_scores(q, k), q), {"q": "n d", "k": "m d"}),
    "a factor for each head": (scale_by_heads, {"s": "h n m", "t": "h"}),
    "truncated": (lambda q: truncate(q, q.shape[-1] - 1), {"q": "n d+1"}),
}


@pytest.mark.parametrize("name", FORMS)
def test_scores_for_all_sizes(name: str) -> None:
    run, arrays = FORMS[name]
    for sizes in ({"n": 1, "m": 2, "d": 2, "e": 1, "h": 2}, {"n": 2, "m": 1, "d": 1, "e": 3, "h": 1}):
        compare(run, arrays, sizes)


def test_cosines_do_not_see_lengths() -> None:
    exact = kind("exact")
    q, k = exact.lift([[1, 2], [0, -1]]), exact.lift([[3, 1], [1, 1]])
    long = q * exact.lift([[2], [5]])
    assert (cosine_scores(long, k) == cosine_scores(q, k)).all()
    assert not (dot_scores(long, k) == dot_scores(q, k)).all()
    assert (cosine_scores(q, q)[0, 0] == 1).all()


def test_cosines_run_on_residues_and_repeat() -> None:
    q, k = (lift_of("modular")([[1, 2], [3, -1]]) for _ in range(2))
    assert cosine_scores(q, q).tolist() == cosine_scores(q, q).tolist()
    with pytest.raises(Refused, match="mixed kinds"):
        cosine_scores(q, k)  # each kind of residues has a generator of its own


def test_a_zero_vector_has_no_cosine() -> None:
    s = cosine_scores(kind("exact").lift([[0, 0]]), kind("exact").lift([[1, 2]]))
    assert "0/0" in str(s.entries[0, 0])


def test_a_temperature_per_head() -> None:
    q, k = (np.random.default_rng(2).normal(size=(2, 3, 4)) for _ in range(2))
    tau = np.array([0.5, 2.0])
    found = cosine_scores(q, k, per_head(tau))
    np.testing.assert_allclose(found[1], cosine_scores(q[1], k[1]) / 2, rtol=1e-13)


def test_truncation_to_more_columns_than_there_are() -> None:
    with pytest.raises(InputError, match="truncate: 4 columns of vectors that have 3"):
        truncate(np.zeros((2, 3)), 4)

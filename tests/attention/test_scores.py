"""Scores and their scales: against loops over plain numbers, and on every kind of array."""

import pytest

from symattn.arrays import kind
from symattn.attention.scores import cosine_scores, dot_scores
from symattn.document.errors import Refused
from tests.attention.pieces import lift_of


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

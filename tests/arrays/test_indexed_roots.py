"""Roots where sizes are letters: joined in pairs, and taken of positive factors, and of nothing else."""

import pytest

from symattn.arrays.indexed import Indexed
from symattn.proof.prover import prove

A, X = Indexed.letters("a", "n", positive=True), Indexed.letters("x", "n")
XP = X.xp
U = XP.sum(X * X)
N = XP.asarray(X.shape[0])


def _is(left: Indexed, right: Indexed) -> bool:
    return prove(left + 0 * X, right + 0 * X).proved


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (XP.sqrt(A * A), A),
        (XP.sqrt(A * A * U), A * XP.sqrt(U)),
        (XP.sqrt(U) * XP.sqrt(U), U),
        (1 / XP.sqrt(U) / XP.sqrt(U), 1 / U),
        (XP.sqrt(U) / XP.sqrt(U), XP.asarray(1)),
        (XP.sqrt(U / A), XP.sqrt(U) / XP.sqrt(A)),
        (XP.sqrt(4 * U), 2 * XP.sqrt(U)),
        (XP.sum(X / XP.sqrt(U) * X / XP.sqrt(U)), XP.asarray(1)),
        (XP.sqrt(N) * XP.sqrt(N), N),
    ],
)
def test_equal(left: Indexed, right: Indexed):
    assert _is(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (XP.sqrt(X * X), X),
        (XP.sqrt(A * U + 1), XP.sqrt(A) * XP.sqrt(U + 1)),
        (XP.sqrt(U) * XP.sqrt(U + 1), U),
        (XP.sqrt(U) * XP.sqrt(U), U * U),
        (XP.sqrt(X * U), XP.sqrt(X) * XP.sqrt(U)),
        (XP.sqrt(2 * U), 2 * XP.sqrt(U)),
        (XP.sqrt(-U), -XP.sqrt(U)),
    ],
)
def test_not_taken_as_equal(left: Indexed, right: Indexed):
    assert not _is(left, right)


def test_a_divisor_under_joined_roots_is_reported():
    proof = prove(X / XP.sqrt(U) / XP.sqrt(U), X / U)
    assert proof.proved
    assert [d.relation for d in proof.demands] == [">"]

"""Signs: e^u above its tangent, complements of predicates, and squares of sums with bound names of their own."""

from __future__ import annotations

import pytest

from symattn.arrays.indexed import Indexed
from symattn.proof.signs import never_negative

X, Y = Indexed.letters("x", "n"), Indexed.letters("y", "n")
XP = X.xp


def _shown(x: Indexed) -> bool:
    return all(never_negative(x.at(places), {"y"}) for places in x.places())


@pytest.mark.parametrize(
    "x",
    [
        XP.exp(X) - 1 - X,
        XP.exp(-X) - 1 + X,
        XP.exp(2 * X) - 1 - 2 * X,
        XP.exp(Y) - 1,
        XP.exp(Y) - 1 + Y,
        XP.exp(X * X) - 1,
        XP.sum(Y * (XP.exp(X) - 1 - X)),
        (X - XP.sum(X)) * (X - XP.sum(X)),
    ],
)
def test_shown(x: Indexed):
    assert _shown(x)


@pytest.mark.parametrize(
    "x",
    [
        XP.exp(X) - 1,
        XP.exp(X) - 2 - X,
        XP.exp(Y) - 2,
        XP.exp(X) - 1 - 2 * X,
        XP.exp(X) - 1 + X,
        XP.exp(Y) - 1 - Y - Y,
        2 - XP.exp(Y),
        (X - XP.sum(X)) * (X + XP.sum(X)),
        X * X * X,
    ],
)
def test_not_shown(x: Indexed):
    assert not _shown(x)


def test_complements_of_predicates():
    i = XP.arange(X.shape[0])
    same = XP.astype(i[:, None] == i[None, :], None)
    assert _shown(1 - same)
    assert not _shown(same - 1)
    assert not _shown(1 - 2 * same)
    assert not _shown(1 - same * X)

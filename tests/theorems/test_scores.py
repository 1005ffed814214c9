"""The theorems on score variants. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.arrays.exact import Exact
from symattn.attention.sparse import sparsemax
from symattn.proof.statement import Declared, Numbers
from symattn.proof.theorem import Theorem
from symattn.theorems.scores import THEOREMS, by_exponentials
from tests.lanes import one_in
from tests.theorems.deciding import holds

GRADES = {
    "additive-score-floor": "proved",
    "equal-norm-keys-euclidean": "proved",
    "qk-norm-scale-free": "proved",
    "softcap": "argued",
    "sink-is-extra-key": "proved",
    "sink-is-a-gate": "proved",
    "sink-shift": "proved",
    "sparsemax": "argued",
    "hopfield-energy": "proved",
}


def test_every_theorem_is_listed():
    assert [t.name for t in THEOREMS] == list(GRADES)


@pytest.mark.parametrize("theorem", one_in(6, THEOREMS), ids=lambda t: t.name)
def test_theorem(theorem: Theorem):
    holds(theorem, "scores", GRADES[theorem.name])


@pytest.mark.parametrize("seed", range(20))
def test_sparsemax_is_what_the_theorem_speaks_of(seed: int):
    """p = max(s − τ, 0) sums to 1, so s = p + τ − λ with λ ≥ 0 and λ p = 0."""
    s = Numbers({"m": 4}, seed).array("s", "m", Declared({"s": "m"}))
    p = sparsemax(s)
    threshold = next(x - y for x, y in zip(s.tolist(), p.tolist(), strict=True) if y > 0)
    slack = p + threshold - s
    assert p.__array_namespace__().sum(p).item() == 1
    assert (p >= 0).all()
    assert (slack >= 0).all()
    assert (slack * p == 0).all()


@pytest.mark.parametrize("value", [-2, 0, 3])
def test_tanh_is_written_with_exponentials(value: int):
    x = Exact.lift([value])
    assert (by_exponentials(x) == Exact.xp.tanh(x)).all()

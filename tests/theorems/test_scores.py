"""The theorems on score variants."""

from __future__ import annotations

import pytest

from symattn.arrays.exact import Exact
from symattn.attention.softmax import sparsemax
from symattn.proof.statement import Declared, Numbers
from symattn.theorems.scores import by_exponentials


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

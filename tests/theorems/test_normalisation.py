"""The theorems on normalisation and residual. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.arrays.exact import Exact
from symattn.attention.norms import layer_norm
from symattn.proof.theorem import Theorem
from symattn.theorems.normalisation import THEOREMS
from tests.lanes import one_in
from tests.theorems.deciding import holds

GRADES = {
    "layernorm-projection": "proved",
    "layernorm-invariance": "argued",
    "rmsnorm-scale": "proved",
    "layernorm-is-centred-rmsnorm": "proved",
    "rmsnorm-jacobian": "proved",
    "layernorm-jacobian": "argued",
    "norm-gain-folds": "proved",
    "scale-before-norm-cancels": "proved",
}


def test_every_theorem_is_listed():
    assert [t.name for t in THEOREMS] == list(GRADES)


@pytest.mark.parametrize("theorem", one_in(6, THEOREMS), ids=lambda t: t.name)
def test_theorem(theorem: Theorem):
    holds(theorem, "normalisation", GRADES[theorem.name])


@pytest.mark.parametrize("x", [[1, 2, 4], [0, -1, 3], [5, 5, 4]])
def test_layer_norm_of_an_affine_image_as_a_whole(x: list[int]):
    """The proof is by parts; here is what they give together."""
    row = Exact.lift([x])
    assert (layer_norm(3 * row - 7) == layer_norm(row)).all()
    assert (layer_norm(-3 * row + 7) == -layer_norm(row)).all()

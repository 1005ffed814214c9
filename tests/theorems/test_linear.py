"""The theorems on linear attention and kernels. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.attention.linear.plain import delta_step
from symattn.attention.norms import unit
from symattn.proof.statement import Declared, Numbers
from symattn.proof.theorem import Theorem
from symattn.theorems.linear import MEMORY, THEOREMS
from tests.lanes import one_in
from tests.theorems.deciding import holds

GRADES = {
    "linear-reassociation": "proved",
    "linear-recurrence": "proved",
    "delta-rule": "proved",
    "performer-positive-features": "proved",
    "power-kernel-features": "argued",
    "exp-kernel-full-rank": "checked",
}


def test_every_theorem_is_listed():
    assert [t.name for t in THEOREMS] == list(GRADES)


@pytest.mark.parametrize("theorem", one_in(6, THEOREMS), ids=lambda t: t.name)
def test_theorem(theorem: Theorem):
    holds(theorem, "linear", GRADES[theorem.name])


@pytest.mark.parametrize("seed", range(4))
def test_a_unit_key_recalls_its_value(seed: int):
    """The proof is by parts; here is what they give together."""
    world, declared = Numbers({"f": 3, "d_v": 2}, seed), Declared(MEMORY)
    s, k, v = (world.array(name, MEMORY[name], declared) for name in ("s", "k", "v"))
    assert (unit(k) @ delta_step(s, unit(k), v, 1) == v).all()

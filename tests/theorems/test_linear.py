"""The theorems on linear attention and kernels."""

from __future__ import annotations

import pytest

from symattn.attention.linear import delta_step
from symattn.attention.norms import unit
from symattn.proof.statement import Declared, Numbers


@pytest.mark.parametrize("seed", range(4))
def test_a_unit_key_recalls_its_value(seed: int):
    """The proof is by parts; here is what they give together."""
    shapes = {"s": "f d_v", "k": "1 f", "v": "1 d_v"}
    world, declared = Numbers({"f": 3, "d_v": 2}, seed), Declared(shapes)
    s, k, v = (world.array(name, shape, declared) for name, shape in shapes.items())
    assert (unit(k) @ delta_step(s, unit(k), v, 1) == v).all()

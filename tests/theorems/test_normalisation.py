"""The theorems on normalisation and residual."""

from __future__ import annotations

import pytest

from symattn.arrays.exact import Exact
from symattn.attention.norms import layer_norm


@pytest.mark.parametrize("x", [[1, 2, 4], [0, -1, 3], [5, 5, 4]])
def test_layer_norm_of_an_affine_image_as_a_whole(x: list[int]):
    """The proof is by parts; here is what they give together."""
    row = Exact.lift([x])
    assert (layer_norm(3 * row - 7) == layer_norm(row)).all()
    assert (layer_norm(-3 * row + 7) == -layer_norm(row)).all()

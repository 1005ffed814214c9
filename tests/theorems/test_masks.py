"""The theorems on masks."""

from __future__ import annotations

import numpy as np
import pytest

from symattn.arrays.exact import Exact
from symattn.attention.masks import forbid, window
from symattn.attention.softmax import softmax


@pytest.mark.parametrize(("n", "width", "depth"), [(4, 1, 2), (4, 2, 1), (5, 2, 2), (5, 2, 3), (6, 3, 2)])
def test_the_receptive_field_of_several_layers(n: int, width: int, depth: int):
    """The induction over layers, in numbers: where the product of the weights of all layers is not 0."""
    scores = Exact.lift([[i * j % 3 for j in range(n)] for i in range(n)])
    weights = softmax(forbid(scores, window(scores, width)))
    product = weights
    for _ in range(depth - 1):
        product = weights @ product
    i, j = np.indices((n, n))
    assert np.array_equal(product != 0, (i - depth * (width - 1) <= j) & (j <= i))

"""Arrays for derivations: letters of given sizes, and small whole numbers; and whether two results are equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from symattn.arrays.exact import Exact
from symattn.arrays.symbolic import Symbolic
from symattn.proof.rational import all_equal

Shapes = Mapping[str, tuple[int, ...]]


def letters(shapes: Shapes) -> dict[str, Symbolic]:
    """Arrays of letters: w_q of shape (2, 3) has the entries wq_11 … wq_23."""
    return {name: Symbolic.letters(name.replace("_", ""), *shape) for name, shape in shapes.items()}


def whole_numbers(shapes: Shapes, seed: int = 0) -> dict[str, Any]:
    """Exact arrays with entries from −2 to 2, always the same ones."""
    random = np.random.default_rng(seed)
    return {name: Exact.lift(random.integers(-2, 3, shape).tolist()) for name, shape in shapes.items()}


def same(x: Any, y: Any) -> bool:
    """Whether two arrays of one exact kind are equal entry by entry. ``Undecided`` where that cannot be said."""
    if tuple(x.shape) != tuple(y.shape):
        return False
    if isinstance(x, Symbolic):
        return all_equal(zip(x.entries.flat, y.entries.flat, strict=True))
    return bool((x == y).all())


def self_attention(n: int, d_model: int, d_k: int, d_v: int) -> dict[str, tuple[int, ...]]:
    """The shapes of tokens and projections."""
    return {"x": (n, d_model), "w_q": (d_model, d_k), "w_k": (d_model, d_k), "w_v": (d_model, d_v)}

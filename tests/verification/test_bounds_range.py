"""The bound says nothing where a projection may leave the range of a format, in balls as on enclosures."""

from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.ball import precision as bits
from symattn.arrays.enclosure import Enclosure
from symattn.arrays.precision import Precision
from symattn.attention.positions.position_fields import Rotary
from symattn.bounds import enclosed
from symattn.bounds.balls import allowed
from symattn.bounds.reference import run

FP16, FP32 = Precision.of("fp16"), Precision.of("fp32")
ROTARY = Attention(position=Rotary())
SMALL = np.eye(2) / 64


def tokens(**changed: Any) -> dict[str, np.ndarray]:
    """Two tokens, where projections are 2 at most, with some arrays in the place of others."""
    given = {"x": np.full((2, 2), 128.0), "w_q": SMALL, "w_k": SMALL, "w_v": SMALL, "w_o": SMALL}
    return given | {name: np.asarray(a, dtype=float) for name, a in changed.items()}


BEYOND = {
    "queries": (Attention(), tokens(w_q=np.eye(2) * 1024, w_k=np.eye(2) / 2**20)),
    "queries that cancel": (Attention(), tokens(w_q=[[512, 0], [-512, 0]], w_k=np.eye(2) / 2**20)),
    "keys": (Attention(heads=2), tokens(w_k=np.eye(2) * 1024, w_q=np.eye(2) / 2**20)),
    "rotated keys": (ROTARY, tokens(w_k=np.eye(2) * 1024, w_q=np.zeros((2, 2)))),
    "outputs": (Attention(), tokens(w_o=np.eye(2) * 65504)),
    "outputs that cancel": (Attention(heads=2), tokens(w_o=[[20000, 0], [-20000, 0]])),
}


def bounds(spec: Attention, p: Precision, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """In balls, and on enclosures."""
    with bits(256):
        return [allowed(run(spec, given), p), enclosed.of_run(run(spec, given, kind=Enclosure), p)]


@pytest.mark.parametrize("case", BEYOND)
def test_nothing_is_said_where_a_projection_may_leave_the_range(case: str) -> None:
    spec, given = BEYOND[case]
    column = 0 if "cancel" in case and "outputs" in case else slice(None)
    for narrow, wide in zip(bounds(spec, FP16, given), bounds(spec, FP32, given), strict=True):
        assert np.isinf(narrow[..., column]).all()
        assert np.isfinite(wide).all()


@pytest.mark.parametrize("spec", [Attention(), Attention(heads=2), ROTARY])
def test_something_is_said_within_the_range(spec: Attention) -> None:
    assert all(np.isfinite(found).all() for found in bounds(spec, FP16, tokens()))


def test_a_query_that_leaves_the_range_is_one_row() -> None:
    given = tokens(x=[[128, 0], [1, 0]], w_q=np.eye(2) * 1024, w_k=np.eye(2) / 2**20)
    for found in bounds(Attention(), FP16, given):
        np.testing.assert_array_equal(np.isinf(found).all(axis=-1), [True, False])

"""Outputs in other axes than the layout has are wrong, even if they have the axes of the definition."""

from typing import Any

import numpy as np
import pytest

from symattn import Attention, verify


def _attend_by_heads(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.reshape(len(x), 2, -1).swapaxes(0, 1) for x in (q, k, v))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def _join(heads: Any) -> Any:
    return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)


@pytest.mark.deep
@pytest.mark.parametrize(("end", "verdict"), [(_join, "no fault"), (lambda heads: heads, "fault")])
def test_heads_that_stay_apart_are_not_side_by_side(end: Any, verdict: str) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return end(_attend_by_heads(q, k, v))

    report = verify(attention, Attention(heads=2), layout="nc")
    assert report.verdict.value == verdict
    if report.faults:
        assert "heads first, expected the axes of the given layout" in str(report)

"""Weights that are the softplus of scores."""

import numpy as np
import pytest

from symattn import Attention, verify


@pytest.mark.deep
def test_softplus_is_named() -> None:
    def of_softplus(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        weights = np.logaddexp(0, q @ k.T / np.sqrt(q.shape[-1]))
        return weights / weights.sum(axis=-1, keepdims=True) @ v

    (fault,) = verify(of_softplus, Attention(), examples=0).faults
    assert (fault.step, fault.code) == ("exp", "exp-softplus")

"""What is said of inputs on which no output depends: all outputs are compared, at several magnitudes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Rotary
from symattn.programs.verifying import Options
from symattn.verification.diagnosis.ignoring import ignored

Array = np.ndarray[Any, Any]


def _with_rippled_keys(q: Array, k: Array) -> tuple[Array, Array]:
    return q + 1, k + np.sin(7 * k)


def _of_queries_alone(q: Array, k: Array) -> tuple[Array, Array]:
    return q + 1, k * 0 + q[..., :1, :]


def _saturated(q: Array, k: Array, v: Array) -> Array:
    """Return 40 for inputs of usual size, whatever these are."""
    scores = q @ k.swapaxes(-1, -2)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.clip(weights / weights.sum(axis=-1, keepdims=True) @ v, 40, 60)


def _of_values_alone(q: Array, k: Array, v: Array) -> Array:
    return np.broadcast_to(v[..., :1, :], (*q.shape[:-1], v.shape[-1])).copy()


@pytest.mark.parametrize(
    ("code", "spec", "words"),
    [
        (_with_rippled_keys, Rotary(), ""),
        (_of_queries_alone, Rotary(), "the output does not depend on the keys"),
        (_saturated, Attention(), ""),
        (_of_values_alone, Attention(), "the output does not depend on the queries or the keys"),
    ],
)
def test_an_input_is_ignored_if_it_changes_no_output(code: Callable[..., Any], spec: Any, words: str) -> None:
    how = Options(layout="nd", framework="numpy", seed=7)
    with how.opened(code, spec) as runner:
        assert ignored(how.session(runner, spec))[1] == words

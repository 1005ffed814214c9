"""Linear attention by the name of a model: its fields."""

from typing import Any

import numpy as np
import pytest

from symattn import InputError, LinearAttention

Array = Any


def gla(q: Array, k: Array, v: Array, g: Array) -> Array:
    """A loop, with a decay for each feature."""
    state, rows = np.zeros((k.shape[1], v.shape[1])), []
    for t in range(len(q)):
        state = np.exp(g[t])[:, None] * state + np.outer(k[t], v[t])
        rows.append(q[t] / k.shape[1] ** 0.5 @ state)
    return np.array(rows)


def linear(q: Array, k: Array, v: Array) -> Array:
    """Loops over pairs of tokens, with weights that sum to one."""
    result = np.empty(v.shape)
    for i in range(len(q)):
        a, b = (np.where(x > 0, x + 1, np.exp(x)) for x in (q[i], k[: i + 1]))
        weights = b @ a
        result[i] = weights @ v[: i + 1] / weights.sum()
    return result


def drawn(gates: bool) -> list[Array]:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((7, d)) for d in (4, 4, 3))
    return [q, k, v, -rng.random((7, 4))] if gates else [q, k, v]


@pytest.mark.parametrize(("name", "loop", "gates"), [("gla", gla, True), ("linear", linear, False)])
def test_a_named_recurrence_is_that_of_a_loop(name: str, loop: Any, gates: bool) -> None:
    given = drawn(gates)
    assert np.abs(LinearAttention.named(name)(*given) - loop(*given)).max() < 1e-14


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean kda"):
        LinearAttention.named("kdaa")

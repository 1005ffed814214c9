"""Recurrences with fewer heads of keys than of values: repeated in place, and wrong heads found and named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import InputError, LinearAttention, Verdict, verify
from symattn.programs.verifying import Options, verified
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.verification import recurrent_layers as layers

Array = Any
SHARED = LinearAttention.named("qwen3-next")
TIMES = SHARED.values_per_key


def repeated(x: Array) -> Array:
    return np.repeat(x, TIMES, axis=-3)


def tiled(x: Array) -> Array:
    return np.concatenate([x] * TIMES, axis=-3)


def of_first_key(x: Array) -> Array:
    return repeated(0 * x + x[..., :1, :, :])


def of_first_value(x: Array) -> Array:
    return np.repeat(x[..., ::TIMES, :], TIMES, axis=-2)


def same(x: Array) -> Array:
    return x


def layer(
    run: Callable[..., Array],
    q_heads: Callable[[Array], Array] = repeated,
    k_heads: Callable[[Array], Array] = repeated,
    g_heads: Callable[[Array], Array] = same,
    beta_heads: Callable[[Array], Array] = same,
) -> Callable[..., Array]:
    """A layer with tokens before heads, as models have them."""

    def function(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
        q, k, v, g, beta = (np.moveaxis(x, 1, 2) for x in (q, k, v, g, beta))
        result = run(q_heads(q), k_heads(k), v, g_heads(g), beta_heads(beta))
        return np.moveaxis(result, 2, 1)

    return function


def drawn(h: int, n: int, d: int) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"q": (h, n, d), "k": (h, n, d), "v": (TIMES * h, n, d)}
    result = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    result["g"] = -0.1 * rng.gamma(1.0, size=(TIMES * h, n))
    return result | {"beta": rng.random((TIMES * h, n))}


def test_heads_of_values_read_heads_of_keys_in_place() -> None:
    given = drawn(3, 7, 4)
    right = layers.by_tokens(**{**given, "q": repeated(given["q"]), "k": repeated(given["k"])})
    assert np.abs(SHARED(**given) - right).max() < 1e-14


def test_a_layout_without_heads_is_refused() -> None:
    with pytest.raises(InputError, match="has no axis for the heads"):
        verify(layer(layers.by_tokens), SHARED, layout="bnd")
    with pytest.raises(InputError, match="at least 1"):
        LinearAttention(values_per_key=0)


@pytest.mark.deep
@pytest.mark.parametrize("run", [layers.by_tokens, layers.by_chunks])
def test_a_layer_that_repeats_keys_in_place_is_no_fault(run: Callable[..., Array]) -> None:
    how = Options(verdict_alone=True, dtype="float32", layout="bnhd", contract=None, examples=10)
    assert verified(layer(run), SHARED, how).verdict is Verdict.NO_FAULT


WRONG: dict[str, dict[str, Callable[[Array], Array]]] = {
    "heads of queries and keys are tiled (repeat)": {"q_heads": tiled, "k_heads": tiled},
    "heads of queries are tiled (repeat)": {"q_heads": tiled},
    "every head of values reads the first head of queries and keys": {"q_heads": of_first_key, "k_heads": of_first_key},
    "all heads of values that share a key have the gate of the first of them": {"g_heads": of_first_value},
    "all heads of values that share a key have the β of the first of them": {"beta_heads": of_first_value},
}


@pytest.mark.deep
@pytest.mark.parametrize("cause", WRONG)
def test_wrong_heads_are_named(cause: str) -> None:
    function = layer(layers.by_tokens, **WRONG[cause])
    result = verify(function, SHARED, layout="bnhd", examples=10)
    assert cause in " ".join(str(result).split())


def test_closeness_reads_shared_keys_and_states_of_values() -> None:
    given = {name: np.float32(a) for name, a in drawn(2, 70, 8).items()}
    rest = {name: given[name] for name in ("g", "beta")}
    rows = [given[name] for name in "qkv"]
    state = np.ones((2 * TIMES, 8, 8), np.float32)

    def judge(heads: Callable[[Array], Array], spec: LinearAttention = SHARED) -> None:
        output = layers.by_tokens(heads(rows[0]), heads(rows[1]), rows[2], **rest)
        assert_close_to_exact(output, *rows, spec, **rest, initial_state=0 * state)

    judge(repeated)
    judge(repeated, replace(SHARED, eps=2e-6))
    with pytest.raises(AttentionFault, match="beyond what any implementation"):
        judge(tiled)
    with pytest.raises(InputError, match=r"expected \(2, 70, 8\)"):
        judge(repeated, replace(SHARED, values_per_key=1))

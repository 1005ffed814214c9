"""Sizes are called as the definition calls them."""

from typing import Any

import numpy as np
import pytest

from symattn import Attention, Block, LinearAttention, RMSNorm, verify

SUMMED = LinearAttention(feature="identity", normalised=False, causal=True)


def sums_values(q: Any, k: Any, v: Any) -> Any:
    return np.tril(q @ np.swapaxes(k, -1, -2)) @ v


def sums_long_values_twice(q: Any, k: Any, v: Any) -> Any:
    return sums_values(q, k, v) * (1 + (q.shape[-2] > 64))


def weighs_values(q: Any, k: Any, v: Any) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


@pytest.mark.deep
@pytest.mark.parametrize("function", [sums_values, sums_long_values_twice])
def test_a_definition_with_one_length_calls_it_n(function: Any) -> None:
    words = str(verify(function, SUMMED, budget=3))
    assert "n = " in words
    assert "n_q" not in words
    assert "n_k" not in words


@pytest.mark.deep
def test_an_attention_has_two_lengths() -> None:
    words = " ".join(str(verify(weighs_values, Attention(), examples=5)).split())
    assert "the largest n_q = " in words
    assert ", n_k = " in words


def normalises(x: Any, gain: Any = 1) -> Any:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True)) * gain


@pytest.mark.deep
def test_a_norm_has_n_rows_of_d_columns() -> None:
    report = verify(normalises, RMSNorm(eps=0), examples=5)
    assert {*report.largest.floats, *report.largest.residues} <= {"b", "n", "d"}
    words = " ".join(str(report).split())
    assert ", d = " in words
    assert "d_k" not in words


def applies_layer(
    x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, w_up: Any, b_up: Any, w_down: Any, b_down: Any
) -> Any:
    x = x + np.einsum("bnd,dm->bnm", weighs_values(x @ w_q, x @ w_k, x @ w_v), w_o)
    hidden = np.maximum(np.einsum("bnd,dm->bnm", x, w_up) + b_up, 0)
    return x + np.einsum("bnm,md->bnd", hidden, w_down) + b_down


def reverses_bias(
    x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, w_up: Any, b_up: Any, w_down: Any, b_down: Any
) -> Any:
    return applies_layer(x, w_q, w_k, w_v, w_o, w_up, b_up, w_down, b_down[::-1])


def reverses_output(
    x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, w_up: Any, b_up: Any, w_down: Any, b_down: Any
) -> Any:
    return applies_layer(x, w_q, w_k, w_v, w_o, w_up, b_up, w_down, b_down)[..., ::-1]


LAYER = Block(attention=Attention(), norm=None)


@pytest.mark.deep
def test_a_layer_may_call_its_hidden_width_m() -> None:
    assert verify(applies_layer, LAYER, examples=3).holds


@pytest.mark.deep
@pytest.mark.parametrize(("function", "array"), [(reverses_bias, "mlp.b_down"), (reverses_output, "the output")])
def test_the_m_components_of_a_layer_are_no_tokens(function: Any, array: str) -> None:
    (fault,) = verify(function, LAYER, examples=3).faults
    assert f"entries of {array} are taken from the last column to the first" in str(fault.message)

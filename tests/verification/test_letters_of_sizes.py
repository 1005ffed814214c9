"""Sizes are called as the definition calls them."""

from typing import Any

import numpy as np
import pytest

from symattn import Attention, LinearAttention, RMSNorm, verify

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

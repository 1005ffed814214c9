"""A number that differs from head to head is read off each head's output, and powers of sizes off the scores."""

from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention
from tests.faults.programs import softmax
from tests.verification.naming import Named, faults, scores

Array = Any
HEADS = 3
BIASED = Attention(heads=HEADS, position=Alibi(), causal=True)


def _ahead(q: Array, k: Array) -> Array:
    n_q, n_k = q.shape[-2], k.shape[-2]
    return np.arange(n_k) - (np.arange(n_q)[:, None] + n_k - n_q)


def _biased(slopes: Any) -> Any:
    """Return causal attention with these slopes of the heads."""

    def run(q: Array, k: Array, v: Array) -> Array:
        ahead = _ahead(q, k)
        s = scores(q, k) + (np.asarray(slopes)[:, None, None] * ahead).astype(q.dtype)
        return softmax(np.where(ahead <= 0, s, -np.inf)) @ v

    return run


def _shifted(q: Array, k: Array, v: Array) -> Array:
    """Add to the second head's biases what is no factor: the rest of the key's place divided by 3."""
    ahead = _ahead(q, k)
    rest = (np.arange(HEADS) == 1)[:, None, None] * (np.arange(k.shape[-2]) % 3)
    s = scores(q, k) + (RIGHT[:, None, None] * ahead + rest).astype(q.dtype)
    return softmax(np.where(ahead <= 0, s, -np.inf)) @ v


#: Slopes of three heads: those of two, and the second one of four.
RIGHT = np.asarray([2.0**-4, 2.0**-8, 2.0**-2])


@pytest.mark.deep
def test_slopes_by_another_formula_are_numbers_of_the_heads() -> None:
    wrong = Named(
        _biased(RIGHT * [3, 1, 0.3]), BIASED, "bias",
        "the linear biases of the heads are 3, 1, 0.3 times what they should be",
    )  # fmt: skip
    wrong.check()


@pytest.mark.deep
def test_what_is_no_factor_of_a_head_is_no_number_of_it() -> None:
    assert not any("of the heads are" in str(fault.cause) for fault in faults(_shifted, BIASED))


@pytest.mark.deep
def test_right_slopes_are_not_accused() -> None:
    assert faults(_biased(RIGHT), BIASED) == ()


# -- powers ------------------------------------------------------------------------------------------------------------
def _powered(power: float) -> Any:
    return lambda q, k, v: softmax(q @ k.T * np.asarray(q.shape[-1] ** power, q.dtype)) @ v


def _also_by_keys(q: Array, k: Array, v: Array) -> Array:
    return softmax(scores(q, k) * np.asarray(len(k) ** -0.2, q.dtype)) @ v


def _by_another_function(q: Array, k: Array, v: Array) -> Array:
    """Scale by what is a power of no size, 1/(1 + √d_k / 2)."""
    return softmax(q @ k.T / np.asarray(1 + np.sqrt(q.shape[-1]) / 2, q.dtype)) @ v


POWERS = (
    Named(_powered(-1 / 3), Attention(), "scale", "scores are multiplied by d_k to the power −1/3, not by 1/√d_k"),
    Named(_also_by_keys, Attention(), "scale", "scores are also multiplied by n_k to the power −1/5"),
)


@pytest.mark.deep
@pytest.mark.parametrize("wrong", POWERS)
def test_another_power_of_a_size_is_named(wrong: Named) -> None:
    wrong.check()


@pytest.mark.deep
def test_no_power_is_named_for_another_function_of_a_size() -> None:
    assert not any("to the power" in str(fault.cause) for fault in faults(_by_another_function, Attention()))


@pytest.mark.deep
def test_the_usual_power_is_not_accused() -> None:
    assert faults(_powered(-0.5), Attention()) == ()

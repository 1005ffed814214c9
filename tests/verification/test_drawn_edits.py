"""Edits drawn by rule from right programs, and mistakes that such draws showed to be without a name."""

from itertools import islice
from typing import Any

import numpy as np
import pytest

from symattn import LayerNorm, Merge, Verdict, verify
from tests.verification.drawn_edits import drawn_edits
from tests.verification.right_programs import RIGHT, merged

Array = Any


def test_drawn_edits_change_an_output_and_depend_on_the_seed_alone() -> None:
    program = next(p for p in RIGHT if p.name == "softmax")
    scores = np.random.default_rng(0).normal(size=(3, 5)).astype("f")
    first, again = (list(islice(drawn_edits(program, [(scores,)], seed=2), 3)) for _ in range(2))
    assert [edit for edit, _ in first] == [edit for edit, _ in again]
    for _, function in first:
        assert function(scores).shape == scores.shape
        assert np.abs(function(scores) - program.function(scores)).max() > 1e-3


def merged_with_difference(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    top = np.maximum(l1, l2)
    safe = np.where(np.isfinite(top), top, 0).astype(top.dtype)
    w1, w2 = np.exp(l1 - safe), np.exp(l2 - safe)
    total = w1 + w2
    first = np.where((w1 > 0)[..., None], o1, 0) * (w1 / total)[..., None]
    second = np.where((w2 > 0)[..., None], o2, 0) * (w2 - total)[..., None]
    return (first + second).astype(o1.dtype), safe + np.log(total)


@pytest.mark.deep
def test_an_operation_on_shares_of_a_merge_is_named() -> None:
    assert verify(merged, Merge()).verdict is Verdict.NO_FAULT
    (fault,) = verify(merged_with_difference, Merge()).faults
    operation = "uses second weight − total instead of second weight/total"
    # The first form weighs by a sigmoid, and has no shares to divide.
    assert fault.cause == f"{operation}, in another form of the definition"


def normalised_transposed(x: Array) -> Array:
    read = np.swapaxes(x, -1, -2).reshape(x.shape) if x.ndim > 1 else x
    centred = read - read.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(1e-5))


def test_rows_read_as_transposed_are_named_beside_single_rows_that_are_right() -> None:
    (fault,) = verify(normalised_transposed, LayerNorm()).faults
    assert fault.cause == "entries of x are read as if they were transposed"


def normalised_by_columns(x: Array) -> Array:
    read = np.swapaxes(x.reshape(*x.shape[:-2], *x.shape[:-3:-1]), -1, -2) if x.ndim > 1 else x
    centred = read - read.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(1e-5))


def test_rows_read_column_by_column_are_named_beside_single_rows_that_are_right() -> None:
    (fault,) = verify(normalised_by_columns, LayerNorm()).faults
    assert fault.cause == "entries of x are read column by column, but stored row by row"

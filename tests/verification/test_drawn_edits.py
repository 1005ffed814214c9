"""Edits drawn by rule from right programs, and mistakes that such draws showed to be without a name."""

from functools import wraps
from itertools import islice
from typing import Any

import numpy as np
import pytest

from symattn import LayerNorm, Merge, Verdict, verify
from symattn.programs.repairing.choosing import numbers_of
from symattn.programs.repairing.edits import Edit, edited_lines, enumerate_edits
from symattn.programs.repairing.observing import observe
from symattn.programs.repairing.source import Sources
from tests.faults.programs import Program
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


def edits_of(function: Any, call: tuple[Any, ...], numbers: tuple[float, ...] = ()) -> tuple[Sources, list[Edit]]:
    """Return the sources of a program, and its edits of all tiers."""
    sources = Sources(function)
    observed = observe(sources, lambda rebuilt: rebuilt(*call))
    return sources, enumerate_edits(sources, observed, numbers, tiers=range(1, 6))


def is_code(sources: Sources, edit: Edit) -> bool:
    source = sources.functions[sources.at(edit.place)]
    try:
        source.parse(edited_lines(source, edit))
    except SyntaxError:
        return False
    return True


def summed_from_rows(x: Array) -> Array:
    kept = np.where(x > 0, x, 0).astype(x.dtype)
    columns = kept[..., None, :][0:, 0]
    columns[:, 1:] += kept[:, :-1]
    return columns.sum(-1)[:, None]


def test_each_edit_of_indices_and_of_what_has_attributes_is_code() -> None:
    sources, edits = edits_of(summed_from_rows, (np.eye(3),))
    changes = {(edit.old, edit.new) for edit in edits}
    # Indices in another order, and a number in place of an array whose attribute is read.
    assert {("0:, 0", "0, 0:"), ("np.where(x > 0, x, 0)", "(0)")} <= changes
    assert [edit for edit in edits if not is_code(sources, edit)] == []


def usual_call(program: Program) -> tuple[Any, ...]:
    """Return the first arguments of a short verification that are finite, with several entries in an array."""
    calls: list[tuple[Any, ...]] = []

    @wraps(program.function)
    def recorded(*arguments: Any) -> Any:
        calls.append(arguments)
        return program.function(*arguments)

    verify(recorded, program.spec, precision=program.precision, examples=1, budget=1)
    finite = (call for call in calls if all(np.isfinite(a).all() for a in call))
    return next(call for call in finite if max(np.size(a) for a in call) > 3)


@pytest.mark.deep
@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.name)
def test_each_edit_of_a_right_program_is_code(program: Program) -> None:
    numbers = numbers_of(program.spec)
    sources, edits = edits_of(program.function, usual_call(program), numbers)
    assert edits
    assert [edit for edit in edits if not is_code(sources, edit)] == []


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


@pytest.mark.deep
def test_rows_read_as_transposed_are_named_beside_single_rows_that_are_right() -> None:
    (fault,) = verify(normalised_transposed, LayerNorm()).faults
    assert fault.cause == "entries of x are read as if they were transposed"


def normalised_by_columns(x: Array) -> Array:
    read = np.swapaxes(x.reshape(*x.shape[:-2], *x.shape[:-3:-1]), -1, -2) if x.ndim > 1 else x
    centred = read - read.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(1e-5))


@pytest.mark.deep
def test_rows_read_column_by_column_are_named_beside_single_rows_that_are_right() -> None:
    (fault,) = verify(normalised_by_columns, LayerNorm()).faults
    assert fault.cause == "entries of x are read column by column, but stored row by row"

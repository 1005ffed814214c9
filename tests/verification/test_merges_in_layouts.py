"""Merges of outputs in each order of the axes, with log-sum-exps in that order or with heads and tokens exchanged."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Merge, Verdict, verify


def merged(rows: Any, factor: float, o1: Any, l1: Any, o2: Any, l2: Any) -> tuple[Any, Any]:
    top = np.maximum(l1, l2)
    base = np.where(np.isfinite(top), top, 0)
    w1, w2 = np.exp(l1 - base), np.exp(l2 - base)
    total = w1 + w2
    some = np.where(total > 0, total, 1)
    lse = np.where(total > 0, base + np.log(some), -np.inf)
    kept1, kept2 = (np.where(np.isfinite(o), o, 0) for o in (o1, o2))
    return factor * (kept1 * rows(w1) + kept2 * rows(w2)) / rows(some), lse


def as_rows(x: Any) -> Any:
    return x[..., None]


def as_exchanged_rows(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)[..., None]


ORDERS = [("nd", as_rows), *((layout, rows) for layout in ("bhnd", "bnhd") for rows in (as_rows, as_exchanged_rows))]


@pytest.mark.deep
@pytest.mark.parametrize(("layout", "rows"), ORDERS)
def test_a_right_merge_is_right_and_a_wrong_one_is_named_in_its_order(layout: Any, rows: Any) -> None:
    def merge(factor: float, o1: Any, l1: Any, o2: Any, l2: Any) -> tuple[Any, Any]:
        return merged(rows, factor, o1, l1, o2, l2)

    right = verify(partial(merge, 1), Merge(), layout=layout, examples=3)
    assert right.verdict is Verdict.NO_FAULT
    assert not any("exchanged" in note for note in right.notes)
    (fault,) = verify(partial(merge, 2), Merge(), layout=layout, examples=3).faults
    assert str(fault.message).startswith("the output is multiplied by 2")

"""Matrices whose results overflow: an infinity that rounding gives is right, and every other one is wrong."""

import numpy as np
import pytest

from symattn.arrays.formats import Format
from symattn.models.auditing.layers import part_judge
from symattn.models.auditing.setting import Floats


def told(entries: list[float], got: float, bias: float | None = None, dtype: str = "float16") -> str:
    """The state of a column of ones, for the row ``entries``."""
    x, b = np.array([entries]), None if bias is None else np.array([bias])
    return part_judge.judged_linear("q", np.array([[got]]), x, np.ones((len(entries), 1)), b, dtype).state


@pytest.mark.parametrize("sign", [1, -1])
def test_an_infinity_of_the_sign_of_what_overflows_is_right(sign: int) -> None:
    large = [sign * 60000.0, sign * 20000.0]
    assert told(large, sign * np.inf) == "pass"
    assert told([large[0]], sign * np.inf, sign * 20000.0) == "pass"
    assert told(large, sign * np.inf, sign * -30000.0) == "pass"  # where the product is stored before the bias is added


@pytest.mark.parametrize(
    ("entries", "got"),
    [([60000.0, 20000.0], -np.inf), ([60000.0, 20000.0], np.nan), ([60000.0, 20000.0], 65504.0),
     ([60000.0, 5000.0], np.inf), ([60000.0, -20000.0], np.inf), ([1.0, 2.0], np.nan)],
)  # fmt: skip
def test_every_other_infinity_and_nan_is_wrong(entries: list[float], got: float) -> None:
    assert told(entries, got) == "wrong"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_where_sums_overflow_on_the_way_nothing_is_said(dtype: str) -> None:
    large = float(Format(dtype).largest)
    for got in (np.inf, -np.inf, np.nan):
        assert told([large, large, -large, -large], got, dtype=dtype) == "cannot tell"
    assert told([large, large, -large, -large], 0.0, dtype=dtype) == "pass"
    assert told([large / 8, -large / 8], np.inf, dtype=dtype) == "wrong"


def test_a_fault_beside_an_overflow_is_found() -> None:
    x, w = np.array([[60000.0, 20000.0]]), np.ones((2, 2))
    w[:, 1] = 0.125, 0.25
    exact: Floats = np.array([[np.inf, 12500.0]])
    assert part_judge.judged_linear("q", exact, x, w, None, "float16").state == "pass"
    assert part_judge.judged_linear("q", exact + np.array([[0.0, 100.0]]), x, w, None, "float16").state == "wrong"


def test_a_layer_in_float64_is_judged() -> None:
    assert [told([1.0, 2.0], got, dtype="float64") for got in (3.0, 3.1, np.inf)] == ["pass", "wrong", "wrong"]

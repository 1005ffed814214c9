"""Whole numbers of graphs: what 64 bits do not hold is refused, and not computed first."""

import numpy as np
import pytest

from symattn import InputError
from symattn.programs.graphs.values import check_wide

BEYOND = {
    "a power that no memory holds": ("power", 10, 10**15),
    "the least power beyond": ("power", 2, 63),
    "a product": ("multiply", 2**32, 2**31),
    "a sum": ("add", 2**62, 2**62),
}


@pytest.mark.parametrize("case", BEYOND)
def test_what_64_bits_do_not_hold_is_refused(case: str) -> None:
    name, a, b = BEYOND[case]
    with pytest.raises(InputError, match="beyond 64 bits"):
        check_wide(name, np.array([1, a]), np.array([b]))


@pytest.mark.parametrize(("name", "a", "b"), [("power", 2, 62), ("power", 1, 10**15), ("power", 0, 0), ("add", -1, 5)])
def test_what_they_hold_passes(name: str, a: int, b: int) -> None:
    check_wide(name, np.array([a]), np.array([b]))

"""Which cases of a long table run by default, and which in deep runs alone."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(number: int, cases: Iterable[Any]) -> list[Any]:
    """Every ``number``-th case as it is, from the first on; the others marked ``deep``."""
    return [case if i % number == 0 else pytest.param(case, marks=pytest.mark.deep) for i, case in enumerate(cases)]


def one_row_in(number: int, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The same for rows that fill several arguments."""
    return [row if i % number == 0 else pytest.param(*row, marks=pytest.mark.deep) for i, row in enumerate(rows)]


def groups(cases: Iterable[Any], number: int = 12) -> list[list[Any]]:
    """So few groups of all cases that a table of them is run whole."""
    every = list(cases)
    return [every[i::number] for i in range(min(number, len(every)))]

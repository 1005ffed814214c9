"""Which cases of a long table run by default, and which in deep runs alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(number: int, cases: Iterable[Any]) -> list[Any]:
    """Every ``number``-th case as it is, from the first on; the others marked ``deep``."""
    return [pytest.param(case, marks=pytest.mark.deep) if i % number else case for i, case in enumerate(cases)]

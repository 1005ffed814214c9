"""What must hold for an expression to have a value: divisors that are not zero, arguments of roots and logarithms.

They are noted when a division is written, since simplifying may lose it: 0 / x is 0 only where x ≠ 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from symattn.arrays.index.expressions import Expression

TESTED = "= 0?"  # the relation of what the code asks of whether it is zero, in order not to divide by it


class Demand(NamedTuple):
    """``expression`` ``relation`` 0 at all places, all indices being free; the relation is ≠, > or ≥, or ``TESTED``."""

    relation: str
    expression: Expression


_noted: ContextVar[dict[Demand, None] | None] = ContextVar("symattn_demands", default=None)


def demand(relation: str, x: Expression) -> None:
    """Note that ``x`` ``relation`` 0 is needed."""
    noted = _noted.get()
    if noted is not None:
        noted[Demand(relation, x)] = None


@contextmanager
def recorded() -> Iterator[dict[Demand, None]]:
    """Collect the demands of the block."""
    noted: dict[Demand, None] = {}
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)

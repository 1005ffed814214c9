"""Solve linear inequalities with rational coefficients by Fourier–Motzkin elimination.

A row is (relation, coefficients, constant) and says Σ coefficient · variable + constant "=", "≥" or ">" 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any

Variable = Any
Row = tuple[str, Mapping[Variable, Fraction], Fraction]
# Elimination may square the number of rows for each variable; more than these are refused.
_ROWS = 600


class TooMany(Exception):
    """Raised for more rows than elimination handles."""


def point(rows: Sequence[Row], random: Random) -> dict[Variable, Fraction] | None:
    """Draw a point at which all rows hold; None if there is none."""
    # Rows without variables are true or false as they stand.
    if any(
        not c and not {"=": k == 0, "≥": k >= 0, ">": k > 0}[relation] for relation, c, k in rows
    ):
        return None
    # Duplicates would multiply with each elimination.
    distinct = {
        (relation, frozenset(terms.items()), constant): (relation, terms, constant)
        for relation, terms, constant in rows
        if terms
    }
    rows = list(distinct.values())
    if len(rows) > _ROWS:
        raise TooMany
    if not rows:
        return {}
    x, mine, combined = _eliminate_one_variable(rows)
    others = (r for r in rows if x not in r[1])
    result = point([*combined, *others], random)
    if result is None:
        return None
    # These variables occur in no remaining row, so any value will do.
    # In the order of the rows: a set's order differs from run to run.
    occurring = dict.fromkeys(variable for _, terms, _ in mine for variable in terms)
    for variable in occurring:
        if variable != x and variable not in result:
            result[variable] = Fraction(random.randint(-20, 20), 3)
    return {**result, x: _choose_value_between_rows(x, mine, result, random)}


def _eliminate_one_variable(rows: Sequence[Row]) -> tuple[Variable, list[Row], list[Row]]:
    """Return a variable, the rows that contain it, and the rows that follow from these without it."""
    # An equation removes its variable without adding rows.
    equal = next((r for r in rows if r[0] == "="), None)
    if equal:
        x = next(iter(equal[1]))
        mine = [r for r in rows if x in r[1]]
        return (
            x,
            mine,
            [
                _add_multiple_of_row(r, equal, -r[1][x] / equal[1][x])
                for r in mine
                if r is not equal
            ],
        )
    every = {v: None for _, c, _ in rows for v in c}
    # The variable with the fewest pairs of bounds adds the fewest rows.
    x = min(every, key=lambda v: _count_pairs_of_rows(rows, v))
    mine = [r for r in rows if x in r[1]]
    up = [r for r in mine if r[1][x] > 0]
    down = [r for r in mine if r[1][x] < 0]
    # Each lower bound is combined with each upper bound.
    eliminated = [_add_multiple_of_row(a, b, -a[1][x] / b[1][x]) for a in up for b in down]
    return x, mine, eliminated


def _count_pairs_of_rows(rows: Sequence[Row], x: Variable) -> int:
    up = sum(c.get(x, 0) > 0 for _, c, _ in rows)
    occurrences = sum(x in c for _, c, _ in rows)
    return up * (occurrences - up)


def _add_multiple_of_row(a: Row, b: Row, times: Fraction) -> Row:
    """Return the row a + times · b."""
    zero = Fraction(0)
    variables = {**a[1], **b[1]}
    both = {v: a[1].get(v, zero) + times * b[1].get(v, zero) for v in variables}
    # A sum with a strict inequality is strict.
    relation = ">" if ">" in (a[0], b[0]) else a[0]
    terms = {v: c for v, c in both.items() if c}
    return relation, terms, a[2] + times * b[2]


def _choose_value_between_rows(
    x: Variable, mine: Sequence[Row], results: Mapping[Variable, Fraction], random: Random
) -> Fraction:
    """Return a value of ``x`` at which the rows hold, given the values ``results`` of the other variables."""
    low: list[Fraction] = []
    high: list[Fraction] = []
    for relation, c, constant in mine:
        others = sum(k * results[v] for v, k in c.items() if v != x)
        bound = -(constant + others) / c[x]
        if relation == "=":
            return bound
        (low if c[x] > 0 else high).append(bound)
    step = Fraction(random.randint(1, 40), random.choice((1, 2, 3, 7)))
    # Without an upper bound any larger value will do.
    if not high:
        return max(low) + step
    if not low:
        return min(high) - step
    # Strictly between the ends, so that strict rows hold; equal ends leave one value.
    width = min(high) - max(low)
    return max(low) + width * Fraction(random.randint(1, 6), 7)

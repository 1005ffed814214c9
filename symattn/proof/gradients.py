"""Differentiate functions of arrays on any kind: formally on letters, by dual numbers on elements."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.entries import Entries
from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.index import building
from symattn.arrays.index import expressions as ex
from symattn.arrays.index.building import (
    add,
    constant,
    divide,
    multiply,
    negate,
    predicate,
    substitute,
    total,
)
from symattn.arrays.indexed import Indexed
from symattn.document.errors import Refused


def gradient(function: Callable[..., Any], by: str, **arrays: Any) -> Array:
    """Return ∂ f_a… / ∂ x_ij…: the axes of the value of ``function``, then those of the array x named ``by``.

    ``function`` takes all its ``arrays`` by name. On ``indexed``, x must be an array of letters; on kinds of elements
    the function runs on dual numbers with a direction for each element of x.
    """
    if isinstance(arrays[by], Entries):
        result: Array = _along_elements(function, by, arrays)
        return result
    value, x = function(**arrays), arrays[by]

    def at(places: Any) -> Any:
        letter = x.at(places[value.ndim :])
        if not isinstance(letter, ex.Letter):
            raise Refused(f"indexed: the gradient is by an array of letters, and {by} is none")
        with building.as_written(False):  # √x √x as written would ask for x > 0
            element = value.at(places[: value.ndim])
        return derivative(element, letter)

    return Indexed((*value.shape, *x.shape), at)


def _along_elements(function: Callable[..., Any], by: str, arrays: dict[str, Any]) -> Any:
    from symattn.arrays.dual import Slopes, dual, slope

    x = arrays[by]
    base: Any = type(x)
    kind: Any = dual(base, several=True)
    zero, one = base.scalar(0), base.scalar(1)
    unit_slopes = (Slopes({k: one}) for k in range(x.size))
    directions = np.fromiter(unit_slopes, object, x.size)
    moved = {name: kind.lift(y) for name, y in arrays.items()}
    # Other arrays are lifted without slopes: they do not depend on x.
    moved[by] = kind(x.entries, directions.reshape(x.plain_shape))
    slopes = function(**moved).derivative.entries
    every = np.fromiter(
        (slope(y, k, zero) for y in slopes.flat for k in range(x.size)),
        object,
        slopes.size * x.size,
    )
    return base(every.reshape((*slopes.shape, *x.plain_shape)))


# -- formal derivatives of index expressions by a letter at a place ----------------------------------------------------
# ∂T[i,j]/∂T[a,b] = [i = a][j = b]; the predicates are pulled out of sums and quotients as they are built. The
# derivative of an opaque maximum is Σ_j ω_j ∂f_j with unknown weights ω_j; of rsqrt it is −r³u′/2, of tanh (1 − t²)u′,
# of log u′/u.


def derivative(x: ex.Expression, letter: ex.Letter) -> ex.Expression:
    """Return ∂x/∂letter. The letter's indices are the place; they must not be bound in ``x``."""
    # Most parts do not depend on the letter, and need no rule.
    if not _has_named_letter(x, letter.name):
        return ex.ZERO
    if isinstance(x, ex.Letter):
        return multiply(
            *[predicate("=", i, a) for i, a in zip(x.indices, letter.indices, strict=True)]
        )
    if isinstance(x, ex.Sum):
        return add(
            *[derivative(y, letter) for y in x.children if _has_named_letter(y, letter.name)]
        )
    if isinstance(x, ex.Product):
        parts = x.children
        moving = [k for k, y in enumerate(parts) if _has_named_letter(y, letter.name)]
        # The product rule: one term for each factor that has the letter.
        terms = [
            multiply(*parts[:k], derivative(parts[k], letter), *parts[k + 1 :]) for k in moving
        ]
        return add(*terms)
    if isinstance(x, ex.Total):
        return total(x.index, derivative(x.body, letter))
    if isinstance(x, ex.Exponential):
        return multiply(x, derivative(x.children[0], letter))
    if isinstance(x, ex.Ratio):
        a, b = x.children
        below = derivative(b, letter)
        slope = divide(derivative(a, letter), b)
        return (
            slope
            if below is ex.ZERO
            else add(slope, negate(divide(multiply(a, below), multiply(b, b))))
        )
    if isinstance(x, ex.Opaque):
        return _of_opaque(x, letter)
    raise Refused(f"indexed: no derivative of {type(x).__name__.lower()}")


def _has_named_letter(x: ex.Expression, name: str) -> bool:
    return (
        x.name == name
        if isinstance(x, ex.Letter)
        else any(_has_named_letter(y, name) for y in x.children)
    )


def _of_opaque(x: ex.Opaque, letter: ex.Letter) -> ex.Expression:
    inside = x.children[0]
    if x.name == "rsqrt":
        return multiply(constant(Fraction(-1, 2)), x, x, x, derivative(inside, letter))
    if x.name == "sqrt":
        # √u has no derivative at u = 0.
        ex.demand(">", inside)
        return multiply(
            constant(Fraction(1, 2)), ex.Opaque("rsqrt", inside), derivative(inside, letter)
        )
    if x.name == "max":
        return add(*[_of_candidate(x, candidate, letter) for candidate in x.children])
    if x.name in FUNCTIONS:
        rule = FUNCTIONS[x.name]
        slope = rule.slope(Indexed.xp, Indexed.lift(inside), Indexed.lift(x))
        return multiply(slope.at(()), derivative(inside, letter))
    raise Refused(f"indexed: no derivative of {x.name}")


def _of_candidate(largest: ex.Opaque, candidate: ex.Expression, letter: ex.Letter) -> ex.Expression:
    """Return the terms of ∂ max f = Σ_j ω_j ∂f_j for ``candidate``, summed over the indices that it binds."""
    if isinstance(candidate, ex.BoundIndex):
        new = ex.fresh(candidate.index.sort)
        return total(
            new, _of_candidate(largest, substitute(candidate.body, {candidate.index: new}), letter)
        )
    value = candidate.value if isinstance(candidate, ex.Masked) else candidate
    # The weight of a candidate is unknown: nothing but its name is used.
    weight = ex.Opaque("argmax", largest, candidate)
    slope = multiply(weight, derivative(value, letter))
    return multiply(candidate.allowed, slope) if isinstance(candidate, ex.Masked) else slope

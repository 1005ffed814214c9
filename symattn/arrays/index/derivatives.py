"""Formal derivatives of index expressions by a letter at a place.

∂T[i,j]/∂T[a,b] = [i = a][j = b]; the predicates are pulled out of sums and quotients as they are built. The
derivative of an opaque maximum is Σ_j ω_j ∂f_j with unknown weights ω_j; of rsqrt it is −r³u′/2, of tanh (1 − t²)u′,
of log u′/u.
"""

from __future__ import annotations

from fractions import Fraction

from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.index.array import Indexed
from symattn.arrays.index.building import add, constant, divide, multiply, negate, predicate, substitute, total
from symattn.arrays.index.expressions import (
    ZERO,
    Bound,
    Exponential,
    Expression,
    Letter,
    Masked,
    Opaque,
    Product,
    Ratio,
    Sum,
    Total,
    fresh,
)
from symattn.arrays.index.side_conditions import demand
from symattn.document.errors import Refused


def derivative(x: Expression, letter: Letter) -> Expression:
    """∂x/∂letter. The letter's indices are the place; they must not be bound in ``x``."""
    if isinstance(x, Letter):
        return _of_letter(x, letter)
    if not _holds(x, letter.name):
        return ZERO
    if isinstance(x, Sum):
        return add(*[derivative(y, letter) for y in x.children if _holds(y, letter.name)])
    if isinstance(x, Product):
        parts = x.children
        moving = [k for k, y in enumerate(parts) if _holds(y, letter.name)]
        return add(*[multiply(*parts[:k], derivative(parts[k], letter), *parts[k + 1 :]) for k in moving])
    if isinstance(x, Total):
        return total(x.index, derivative(x.body, letter))
    if isinstance(x, Exponential):
        return multiply(x, derivative(x.children[0], letter))
    if isinstance(x, Ratio):
        a, b = x.children
        below = derivative(b, letter)
        slope = divide(derivative(a, letter), b)
        return slope if below is ZERO else add(slope, negate(divide(multiply(a, below), multiply(b, b))))
    if isinstance(x, Opaque):
        return _of_opaque(x, letter)
    raise Refused(f"indexed: no derivative of {type(x).__name__.lower()}")


def _holds(x: Expression, name: str) -> bool:
    return x.name == name if isinstance(x, Letter) else any(_holds(y, name) for y in x.children)


def _of_letter(x: Letter, letter: Letter) -> Expression:
    if x.name != letter.name:
        return ZERO
    return multiply(*[predicate("=", i, a) for i, a in zip(x.indices, letter.indices, strict=True)])


def _of_opaque(x: Opaque, letter: Letter) -> Expression:
    inside = x.children[0]
    if x.name == "rsqrt":
        return multiply(constant(Fraction(-1, 2)), x, x, x, derivative(inside, letter))
    if x.name == "sqrt":
        demand(">", inside)
        return multiply(constant(Fraction(1, 2)), Opaque("rsqrt", inside), derivative(inside, letter))
    if x.name == "max":
        return add(*[_of_candidate(x, candidate, letter) for candidate in x.children])
    if x.name in FUNCTIONS:
        slope = FUNCTIONS[x.name].slope(Indexed.xp, Indexed.lift(inside), Indexed.lift(x))
        return multiply(slope.at(()), derivative(inside, letter))
    raise Refused(f"indexed: no derivative of {x.name}")


def _of_candidate(largest: Opaque, candidate: Expression, letter: Letter) -> Expression:
    """The part of ∂ max f = Σ_j ω_j ∂f_j that ``candidate`` has, Σ over the indices that it binds."""
    if isinstance(candidate, Bound):
        new = fresh(candidate.index.sort)
        return total(new, _of_candidate(largest, substitute(candidate.body, {candidate.index: new}), letter))
    value = candidate.value if isinstance(candidate, Masked) else candidate
    weight = Opaque("argmax", largest, candidate)
    slope = multiply(weight, derivative(value, letter))
    return multiply(candidate.allowed, slope) if isinstance(candidate, Masked) else slope

"""The workflow token by token, on plain elements: q_i = x_i W_Q, s_ij = q_i·k_j, softmax over j, o_i = Σ_j a_ij v_j.

The entries are those of ``attention.place``, which use no array code, so that the agreement of the matrix form with
them says something. Each step is compared from the arrays that it is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.flow import Step
from symattn.attention.spec import Attention
from symattn.derivations.attention.place import expected, part
from symattn.derivations.enclosed import Enclosed, ball_of, least_proven
from symattn.derivations.walks import run
from symattn.derivations.walks.run import mixing
from symattn.document.errors import Refused

Arrays = Mapping[str, Any]
_MOST = 100_000  # products of elements; more would make a reader wait
_BITS = 256  # of what leaves the decided field here
_TWO = Quotient.of(2)


class ExactComputation:
    """Computing with exact numbers, and in balls where a function leaves the decided field."""

    def number(self, value: int | Fraction) -> Quotient:
        """The exact number."""
        return Quotient.of(value)

    def apply(self, name: str, x: Any) -> Any:
        """The function, in balls where ``exact`` refuses it."""
        if isinstance(x, Undefined):
            return x
        if name == "exp2":
            r = x.rational()
            return self.apply("exp", _ball(x) * _ball(_TWO).apply("log")) if r is None else self.power(Fraction(2), r)
        if name == "log2":
            return _ball(x).apply("log") / _ball(_TWO).apply("log")
        if not isinstance(x, Enclosed):
            try:
                return getattr(x, name)()
            except Refused:
                x = _ball(x)
        return x.apply(name)

    def power(self, base: Fraction, exponent: Fraction) -> Any:
        """A fraction or the root of one where it is one, else e^(exponent · log base)."""
        for root in (1, 2):
            result = _root(base, (exponent * root).denominator)
            if result is not None:
                value = Quotient.of(result ** (exponent * root).numerator)
                return value if root == 1 else value.sqrt()
        return self.apply("exp", _ball(Quotient.of(base)).apply("log") * Quotient.of(exponent))

    def larger(self, x: Any, y: Any) -> Any:
        """The larger one."""
        return y if self.less(x, y) else x

    def less(self, x: Any, y: Any) -> bool:
        """Return whether x < y. Raises Undecided."""
        return bool(x < y) if isinstance(x, Enclosed) or not isinstance(y, Enclosed) else bool(y > x)


def _ball(x: object) -> Enclosed:
    ball = ball_of(x, _BITS)
    assert ball is not None
    return Enclosed(ball, _BITS)


def _root(x: Fraction, n: int) -> Fraction | None:
    """The n-th root of x, if it is rational."""
    parts = [round(part ** (1 / n)) for part in (x.numerator, x.denominator)]
    result = Fraction(*parts)
    return result if result**n == x else None


def agrees(arrays: Arrays, spec: Attention, inputs: Iterable[str]) -> bool | None:
    """Return whether every step of a walk is what the tokens give one by one; None where that is too much work."""
    steps = spec.pipeline(inputs)
    result = [step_agrees(arrays, spec, step) for step in steps]
    if False in result or not _products_agree(arrays, mixing(steps)):
        return False
    return None if None in result else True


def step_agrees(arrays: Arrays, spec: Attention, step: Step) -> bool | None:
    """Return whether the entries of one step are the textbook's; None where there are none, or too many."""
    if step.name not in arrays or any(name not in arrays for name in step.of):
        return False
    result, first = arrays[step.name], arrays[step.of[0]]
    if result.size * max(first.shape[-1:], default=1) > _MOST:
        return None
    given = {name: arrays[name] for name in step.of}
    if any(isinstance(x, Enclosed) for x in result.flat):
        # Numbers as balls; what masks forbid, truth values and whole numbers as they are.
        plain = (int, Forbidden, Undefined, Enclosed)
        balls = np.frompyfunc(lambda x: x if isinstance(x, plain) else _ball(x), 1, 1)
        given = {name: balls(x) for name, x in given.items()}
    wanted = expected(spec, step, given, result.shape, ExactComputation())
    return None if wanted is None else all(map(same, result.flat, wanted.flat))


def _products_agree(arrays: Arrays, last: Step) -> bool:
    """a_ij v_j for every query, key and column."""
    weights, values, result = arrays[last.of[0]], arrays[last.of[1]], arrays["weighted"]
    for *front, i, j, c in np.ndindex(*result.shape):
        product = part(weights, tuple(front), 2)[i, j] * part(values, tuple(front), 2)[j, c]
        if not same(result[(*front, i, j, c)], product):
            return False
    return True


def products_agree(arrays: Arrays, last: Step) -> bool | None:
    """Compare the products; None where it is too much work."""
    return _products_agree(arrays, last) if arrays["weighted"].size <= _MOST else None


def same(x: Any, y: Any) -> bool:
    """Return whether two elements are equal, or can be by what is known of their balls."""
    if isinstance(x, (Forbidden, Undefined)) or isinstance(y, (Forbidden, Undefined)):
        return type(x) is type(y)
    if isinstance(x, Enclosed) or isinstance(y, Enclosed):
        return x.overlaps(y) if isinstance(x, Enclosed) else bool(y.overlaps(x))
    return bool(x == y)


def digits_proven(arrays: Arrays, step: Step) -> int | None:
    """The least number of digits that balls prove of a step or of what it is made of; None where all is exact."""
    return least_proven(x for name in (step.name, *step.of) for x in np.asarray(arrays[name]).flat)


# -- latents -----------------------------------------------------------------------------------------------------------
def other_way(spec: Attention, inputs: Mapping[str, Any], output: Any) -> tuple[Attention, bool, bool]:
    """The specification the other way, whether it gives the same output, and whether that is known exactly."""
    assert spec.latent is not None
    other = replace(spec, latent=replace(spec.latent, absorbed=not spec.latent.absorbed))
    result = run.exact(other, inputs)["output"]
    exact = not any(isinstance(x, Enclosed) for x in (*result.flat, *output.flat))
    return other, result.shape == output.shape and all(map(same, result.flat, output.flat)), exact

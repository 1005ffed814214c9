"""Statements in code that ask for means: ``E`` beside the arrays that are declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from operator import mul
from typing import Any

from symattn.arrays.indexed import Indexed
from symattn.proof.expectation import EntryLaw, Expectation


class Averages(Expectation):
    """E with variances and covariances."""

    def __call__(self, *factors: Callable[..., Any]) -> Any:
        """Return the mean of a product of functions of the same random arrays, which they take by name."""
        names = inspect.signature(factors[0]).parameters
        return self.means(lambda x: [reduce(mul, [f(*map(x.get, names)) for f in factors])], [[*names]])[0]

    def variance(self, f: Callable[..., Any]) -> Any:
        """E[f²] − E[f]²."""
        return self.covariance(f, f)

    def covariance(self, f: Callable[..., Any], g: Callable[..., Any]) -> Any:
        """E[f g] − E[f] E[g]; f and g take the same arrays."""
        return self(f, g) - self(f) * self(g)


def averaged(sides: Callable[..., Any], laws: Mapping[str, EntryLaw]) -> Callable[..., Any]:
    """``sides``, which asks for ``E`` beside declared arrays, as a function of declared arrays alone.

    In numbers it is asked of two concrete laws of each array of which two cumulants are assumed alone.
    """
    requests = [name for name in inspect.signature(sides).parameters if name != "E"]
    needed = {parameter for law in laws.values() for parameter in law.parameters}
    names = [*requests, *sorted({*laws, *needed} - set(requests))]
    leaning = {name: _leaning(law) for name, law in laws.items()}

    def function(**given: Any) -> Any:
        said = {name: given[name] for name in requests}
        if any(isinstance(given[name], Indexed) for name in laws):
            return sides(**said, E=Averages(laws, given))
        every = [laws, leaning] if leaning != laws else [laws]
        results = [sides(**said, E=Averages(each, given)) for each in every]
        return [pair for result in results for pair in ([result] if isinstance(result, tuple) else result)]

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.laws = laws  # type: ignore[attr-defined]
    return function


def _leaning(law: EntryLaw) -> EntryLaw:
    """For μ ± σ the law of μ − σ/2, four times of five, and μ + 2σ, which leans to one side; any other law as it is."""

    def outcomes(*parameters: Any) -> Any:
        values = [value for value, _ in law.outcomes(*parameters)]
        middle, half = (values[0] + values[1]) * Fraction(1, 2), (values[1] - values[0]) * Fraction(1, 4)
        return [(middle - half, Fraction(4, 5)), (middle + 4 * half, Fraction(1, 5))]

    return replace(law, outcomes=outcomes) if len(law.parameters) and law.finer is None and _is_even(law) else law


def _is_even(law: EntryLaw) -> bool:
    return len(law.cumulants(*[Fraction(1)] * len(law.parameters))) == 2

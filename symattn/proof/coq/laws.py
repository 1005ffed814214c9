"""The laws that statements suppose: max is the largest of its arguments, log a logarithm, and their like.

A law shows by itself that certain expressions are not negative, so these are no hypotheses of a statement: in their
place stands what the law says of the function, and ``by_law`` in ``Reading.v`` does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LAWS = frozenset({"largest", "bounded", "magnitude", "triangle"})
"""The laws of ``checker_laws`` that Coq is asked for."""
BOUNDED = ("tanh", "sign", "cos", "sin", "erf")


@dataclass(frozen=True)
class Supposed:
    """The supposed laws: ``logarithms``, certain ``laws``, and that maxima are ``attained``."""

    logarithms: bool = False
    laws: frozenset[str] = frozenset()
    attained: bool = False

    def of(self, function: str, name: str) -> Iterator[tuple[str, str]]:
        """Yield the laws of a function in Coq, under its name there, and in words."""
        if function == "log" and self.logarithms:
            yield f"(forall x, 0 < x -> exp ({name} x) = x)", f"{name} is the inverse of exp"
        if function == "max" and ("largest" in self.laws or self.attained):
            yield f"(forall l x, In x l -> x <= {name} l)", f"{name} is no less than what it is taken of"
        if function == "max" and self.attained:
            yield f"(forall l, l <> [] -> In ({name} l) l)", f"{name} is one of the things that it is taken of"
        if function == "sign" and self.laws & {"magnitude", "largest"}:
            yield f"(forall x, {name} x * x = Rabs x)", f"{name}(x) x is |x|"
        if function == "norm" and "triangle" in self.laws:
            f, g, both, scaled = (_entries(x) for x in ("f i", "g i", "f i + g i", "t * f i"))
            yield f"(forall d f g, {name} {both} <= {name} {f} + {name} {g})", f"{name} has the triangle inequality"
            yield f"(forall d t f, {name} {scaled} = Rabs t * {name} {f})", f"{name} of t x is |t| that of x"
        if function in BOUNDED and "bounded" in self.laws:
            yield f"(forall x, -1 <= {name} x <= 1)", f"{name} lies between -1 and 1"


def _entries(x: str) -> str:
    """The list of x at every i."""
    return f"(map (fun i => {x}) (seq 0 d))"

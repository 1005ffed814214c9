"""SymPy expressions as notation, in conventional order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from symattn.document import characters
from symattn.document import notation as nt

ROLES: dict[str, nt.Role] = {
    "q": "query",
    "k": "key",
    "v": "value",
    "Q": "query",
    "K": "key",
    "V": "value",
}
"""The default roles of letters."""

_ROLE_ORDER: tuple[nt.Role | None, ...] = ("query", "key", "value")
# Two indices without a separator, such as ij.
_INDEX_PAIR = re.compile(r"[ijklmn0-9]{2}")
# A letter, a number behind it, and indices.
_NAME = re.compile(r"(?P<letter>[^\W\d_]+)(?P<number>\d*)(?P<subs>(?:_.+)?)")


def from_sympy(expression: object, roles: dict[str, nt.Role] | None = None) -> nt.Node:
    """Return a SymPy expression as a node.

    Negative powers make one fraction, surds and exponentials move to where their coefficient is smallest
    (4/√3, 1/(1 + 2e²)), and factors are sorted by role (q, k, v). Raises ``TypeError`` for expressions without
    notation, such as ``zoo``.
    """
    import sympy

    return _Converter(ROLES if roles is None else roles).node(sympy.sympify(expression))


def symbol_name(text: str, roles: dict[str, nt.Role] | None = None) -> nt.Name:
    """Return ``q_1``, ``d_model``, ``sigma_Q``, ``x2`` or ``s_ij`` as a name with indices."""
    match = _NAME.fullmatch(text.replace("{", "").replace("}", ""))
    if match is None:
        return nt.Name(text)
    base = characters.GREEK.get(match["letter"], match["letter"])
    parts = ([match["number"]] if match["number"] else []) + [
        p for p in re.split(r"[_,]", match["subs"]) if p
    ]
    subs = tuple(s for part in parts for s in indices(part))
    return nt.Name(base, subs, (ROLES if roles is None else roles).get(base))


def indices(part: str) -> Iterable[nt.Node]:
    if part.isdigit():
        return (nt.node(int(part)),)
    if _INDEX_PAIR.fullmatch(part):
        return tuple(nt.node(int(c)) if c.isdigit() else nt.Name(c) for c in part)
    return (nt.Name(characters.GREEK.get(part, part)),)


class _Converter:
    def __init__(self, roles: dict[str, nt.Role]) -> None:
        self.roles = roles

    def node(self, x: Any) -> nt.Node:
        if x.is_Rational and x.is_finite:
            return nt.node(Fraction(int(x.p), int(x.q)))
        if x.is_Float:
            return nt.Decimal(f"{float(x):.6g}")
        # A class without a writer is written as its nearest base with one.
        for kind in type(x).__mro__:
            if kind.__name__ in _WRITERS:
                return _WRITERS[kind.__name__](self, x)
        raise TypeError(f"no notation for the SymPy expression {x}")

    def all(self, parts: Iterable[object]) -> tuple[nt.Node, ...]:
        return tuple(self.node(part) for part in parts)

    def sum(self, x: Any) -> nt.Node:
        """Return positive terms before negative ones, and numbers before exponentials, these by their exponents."""
        import sympy

        terms = x.as_ordered_terms()
        exponents = {t: _real_exponent_of_term(sympy, t) for t in terms}
        exponential = any(e != 0 for e in exponents.values())

        def key(term: object) -> tuple[bool, bool, float]:
            exponent = exponents[term]
            # An exponent with letters has no known growth, and its term comes last of its sign.
            growth = float(exponent) if exponent is not None else float("inf")
            return (
                bool(_leading_coefficient(term) < 0),
                exponential and growth != 0,
                growth if exponential else 0.0,
            )

        in_order = sorted(terms, key=key)
        return nt.Sum(tuple(self.node(term) for term in in_order))

    def product(self, x: Any) -> nt.Node:
        """Return one fraction without negative powers: coefficients and surds first, then in SymPy's order."""
        import sympy

        if _leading_coefficient(x) < 0:
            return nt.Neg(self.node(-x))
        coefficient, rest = x.as_coeff_Mul()
        above: list[Any] = []
        below: list[Any] = []
        for factor in rest.as_ordered_factors() if rest != 1 else ():
            base, exponent = factor.as_base_exp()
            # Negative powers of e stay above the line, as e^{−x}.
            if base != sympy.E and exponent.is_number and exponent.is_negative:
                below.append(base**-exponent)
            else:
                above.append(factor)
        q = _surds_below(sympy, above, below, sympy.Integer(coefficient.q))
        _exponentials_cancelled(sympy, above, below)
        numerator = [sympy.Integer(coefficient.p), *above] if coefficient.p != 1 else above
        top = self.factors(numerator)
        bottom = self.factors([q, *below] if q != 1 else below)
        return top if bottom == nt.node(1) else nt.Over(top, bottom)

    def factors(self, factors: list[Any]) -> nt.Node:
        nodes = self.by_role([self.node(f) for f in factors])
        if len(nodes) == 1:
            return nodes[0]
        return nt.Product(tuple(nodes)) if nodes else nt.node(1)

    def by_role(self, nodes: list[nt.Node]) -> list[nt.Node]:
        """Sort queries, keys and values among their own places, so that q is before k before v."""
        places = [i for i, n in enumerate(nodes) if _base_letter_of_factor(n).role in _ROLE_ORDER]
        ordered = sorted(
            (nodes[i] for i in places),
            key=lambda n: (
                # Factors with equal indices stand together: q₁ k₁ q₂ k₂.
                repr(_base_letter_of_factor(n).sub),
                _ROLE_ORDER.index(_base_letter_of_factor(n).role),
            ),
        )
        for i, n in zip(places, ordered, strict=True):
            nodes[i] = n
        return nodes

    def power(self, x: Any) -> nt.Node:
        import sympy

        base, exponent = x.as_base_exp()
        if base == sympy.E:
            if exponent != 1:
                return nt.Power(nt.Name("e"), self.node(exponent))
            return nt.Name("e")
        if exponent.is_number and exponent.is_negative:
            return nt.Over(nt.node(1), self.node(base**-exponent))
        if exponent == sympy.Rational(1, 2):
            return nt.Root(self.node(base))
        return nt.Power(self.node(base), self.node(exponent))

    def call(self, x: Any) -> nt.Node:
        function = type(x).__name__ if not hasattr(x.func, "name") else x.func.name
        arguments = tuple(map(self.node, x.args))
        # Without roles, since a function named q is no query.
        return nt.Call(symbol_name(str(function), {}), arguments)

    def derivative(self, x: Any) -> nt.Node:
        if len(x.variables) != 1:
            raise TypeError(f"no notation for the SymPy expression {x}: derivatives are taken once")
        return nt.Partial(self.node(x.expr), self.node(x.variables[0]))

    def big(self, x: Any) -> nt.Node:
        body = self.node(x.function)
        operator: Any = "sum" if type(x).__name__ == "Sum" else "prod"
        # SymPy lists the innermost sum first.
        for index, low, high in x.limits:
            body = nt.Big(
                operator, symbol_name(index.name, {}), self.node(low), self.node(high), body
            )
        return body

    def indexed(self, x: Any) -> nt.Node:
        base = symbol_name(str(x.base), self.roles)
        # Without roles, since an index k is no key.
        index_nodes = map(_Converter({}).node, x.indices)
        return nt.Name(base.base, (*base.sub, *index_nodes), base.role)


def _surds_below(sympy: Any, above: list[Any], below: list[Any], bottom: Any) -> Any:
    """Write 4√3/3 as 4/√3: move a surd to the denominator if its square divides that, in place; return the rest."""
    # A copy, since factors are removed.
    for factor in list(above):
        base, exponent = factor.as_base_exp()
        if exponent == sympy.Rational(1, 2) and base.is_Integer and bottom % base == 0:
            above.remove(factor)
            below.insert(0, factor)
            bottom //= base
    return bottom


def _exponentials_cancelled(sympy: Any, above: list[Any], below: list[Any]) -> None:
    """Write e²/(e² + 2e⁴) as 1/(1 + 2e²): reduce the denominator's least numeric exponent to 0, in place."""
    for place, factor in enumerate(below):
        least = _least_exponent(sympy, factor)
        if not least:
            continue
        for i, other in enumerate(above):
            # One factor above takes the whole power, so that the quotient keeps its value.
            if other.has(sympy.exp) or other == sympy.E:
                above[i] = sympy.expand(other * sympy.exp(-least))
                below[place] = sympy.expand(factor * sympy.exp(-least))
                break
    # A power of e that has cancelled leaves a factor of 1.
    above[:] = [a for a in above if a != 1]


def _least_exponent(sympy: Any, x: Any) -> Any:
    if not x.is_Add:
        return sympy.Integer(0)
    exponents = [_real_exponent_of_term(sympy, term) for term in x.args]
    if any(e is None for e in exponents):
        return sympy.Integer(0)
    # With 50 digits, since exponents may differ by little.
    return min(exponents, key=lambda e: e.evalf(50))


def _real_exponent_of_term(sympy: Any, term: Any) -> Any:
    """Return the real number e in c·exp(e), 0 without an exponential, None if it is not a number."""
    total = sympy.Integer(0)
    for factor in sympy.Mul.make_args(term):
        base, exponent = factor.as_base_exp()
        if base == sympy.E:
            total += exponent
    return total if total.is_number and total.is_real else None


def _leading_coefficient(x: Any) -> Any:
    return x.as_coeff_Mul()[0]


def _sort_sympy_arguments(args: Iterable[object]) -> list[Any]:
    import sympy

    return sorted(args, key=sympy.default_sort_key)


def _base_letter_of_factor(x: nt.Node) -> nt.Name:
    """Return the name that a factor is, or is a power of, or an empty one."""
    name = x.base if isinstance(x, nt.Power) else x
    return name if isinstance(name, nt.Name) else nt.Name("")


# By the name of a class or of one of its bases, so that this table needs no import of SymPy.
_WRITERS: dict[str, Callable[[_Converter, Any], nt.Node]] = {
    "Symbol": lambda c, x: symbol_name(x.name, c.roles),
    "Pi": lambda c, x: nt.Name("π"),
    "Exp1": lambda c, x: nt.Name("e"),
    "Infinity": lambda c, x: nt.Name("∞"),
    "NegativeInfinity": lambda c, x: nt.Neg(nt.Name("∞")),
    "exp": _Converter.power,
    "Pow": _Converter.power,
    "Mul": _Converter.product,
    "Add": _Converter.sum,
    "Abs": lambda c, x: nt.Fence("abs", c.node(x.args[0])),
    "KroneckerDelta": lambda c, x: nt.Name("δ", c.all(x.args)),
    "Derivative": _Converter.derivative,
    "Sum": _Converter.big,
    "Product": _Converter.big,
    "Max": lambda c, x: nt.call("max", *c.all(_sort_sympy_arguments(x.args))),
    "Min": lambda c, x: nt.call("min", *c.all(_sort_sympy_arguments(x.args))),
    "Indexed": _Converter.indexed,
    "Function": _Converter.call,
}

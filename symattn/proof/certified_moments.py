"""Certificates of what the algebra of moments finds: both sides in letters, which the prover and the checker decide.

A random letter with a number as an index is an array of its own, of the same law: q₁ is no entry of q that a sum runs
over, which is refused where one mean holds both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from inspect import Parameter, Signature
from itertools import pairwise
from operator import mul
from typing import Any

from symattn.arrays.index.building import total
from symattn.arrays.index.expressions import Count, Expression, Index, Letter, PositiveLetter, fresh
from symattn.arrays.indexed import Indexed
from symattn.document import notation as nt
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade
from symattn.document.notation import Node
from symattn.proof import expectation
from symattn.proof.certified import accepted
from symattn.proof.counting import nodes
from symattn.proof.expansion import is_moment, replaced
from symattn.proof.moments import Law, LawFamily, letter_name
from symattn.proof.polynomial import Polynomial
from symattn.proof.premises import Concluded, Instance, Tending
from symattn.proof.prover import Proof, prove, unsimplified

_PROVED = Evidence(Grade.PROVED)
Bound = Mapping[str, Index]


def chained(law: Law, sides: Sequence[Node]) -> bool:
    """Return whether the checker accepts that each side is equal to the next one under the law."""
    try:
        return all(_equal(law, a, b) for a, b in pairwise(sides))
    except (Refused, Undecided, InputError):
        return False


def vanishing(law: Law, formula: Node, size: str) -> bool:
    """Return whether the checker accepts that a formula tends to 0 as a size grows."""
    try:
        form = written(law.value(formula))
        proof = _proof(law, formula, form)
        parts = [_in_letters(law, x) for x in (formula, form, nt.node(0))]
        step = Tending((proof,), size, "∞", (unsimplified(lambda: tuple(x.at(()) for x in parts)),), True)
    except (Refused, Undecided, InputError):
        return False
    return proof.proved and accepted(_PROVED, (), (step,)) is _PROVED


def _equal(law: Law, left: Node, right: Node) -> bool:
    """Prove the equation, or that of the squares of what is not negative; at a size by its instance."""
    match left:
        case nt.At(body, nt.Relation(nt.Name() as size, (("=", nt.Number() as length),))) if size in _axes(law):
            return _instance(law, body, letter_name(size), int(length.value), right)
    proof = _proof(law, left, right)
    if proof.proved:
        return accepted(_PROVED, (proof,)) is _PROVED
    squares, (a, b) = _proof(law, left**2, right**2), (_in_letters(law, x) for x in (left, right))
    if not squares.proved:
        return False
    step = Concluded("squares", (squares,), (unsimplified(lambda: (a.at(()), b.at(()))),))
    return accepted(_PROVED, (), (step,)) is _PROVED


def _instance(law: Law, body: Node, size: str, length: int, right: Node) -> bool:
    """A formula at a size: it is another one in the size alone, and that is ``right`` at it."""
    form, there = written(law.value(body)), law.at({size: length})
    premises = (_proof(law, body, form), _proof(there, form, right))
    parts = [_in_letters(law, body), _in_letters(law, form), _in_letters(there, right)]
    if not all(p.proved for p in premises):
        return False
    left, through, value = unsimplified(lambda: tuple(x.at(()) for x in parts))
    return accepted(_PROVED, (), (Instance(premises, size, length, left, through, value),)) is _PROVED


def _axes(law: Law) -> set[Node]:
    return {axis for family in law.families for axis in family.axes}


def _proof(law: Law, left: Node, right: Node) -> Proof:
    return prove(_in_letters(law, left), _in_letters(law, right))


def _in_letters(law: Law, formula: Node) -> Any:
    return _Writing(law).of(replaced(formula, law.definitions), {})


@dataclass(frozen=True)
class _Writing:
    """Formulas as arrays without axes, whose one entry is written when it is asked for."""

    law: Law

    @property
    def families(self) -> dict[str, LawFamily]:
        return {f.base: f for f in self.law.families}

    def of(self, x: Node, bound: Bound) -> Any:
        """Return a formula's value, with the indices that sums run over."""
        match x:
            case nt.Number():
                return Indexed.lift(x.value)
            case nt.Name():
                return self._letter(x, bound) if x.base in self.families else self._parameter(x)
            case nt.Sum():
                return sum((self.of(t, bound) for t in x.terms), start=Indexed.lift(0))
            case nt.Neg():
                return -self.of(x.body, bound)
            case nt.Product():
                return _product(self.of(f, bound) for f in x.factors)
            case nt.Over():
                return self.of(x.numerator, bound) / self.of(x.denominator, bound)
            case nt.Power(exponent=nt.Number(value=n)) if n.denominator == 1 and n > 0:
                return _product([self.of(x.base, bound)] * int(n))
            case nt.Root():
                return Indexed.lift(1).__array_namespace__().sqrt(self.of(x.body, bound))
            case nt.Fence(style="round"):
                return self.of(x.body, bound)
            case nt.Big(operator="sum", index=nt.Name(base=index), high=Node() as high) if x.low == nt.node(1):
                return self._sum(index, high, x.body, bound)
            case nt.At(body, nt.Relation(nt.Name() as letter, (("=", value),))):
                fixed = self.law.value(value).constant()
                if fixed is None:
                    raise Refused("moments: a letter that is not a number")
                return _Writing(self.law.at({letter_name(letter): Fraction(str(fixed))})).of(body, bound)
            case nt.Call() if is_moment(x):
                return self._moment(x, bound)
        raise Refused(f"moments: a {type(x).__name__} has no certificate")

    def _sum(self, index: str, high: Node, body: Node, bound: Bound) -> Indexed:
        if not isinstance(high, nt.Name) or letter_name(high) in self.law.values:
            raise Refused("moments: a sum to what is not a size")
        i = fresh(letter_name(high))
        inner = self.of(body, {**bound, index: i})
        return _number(lambda: total(i, inner.at(())))

    def _letter(self, x: nt.Name, bound: Bound) -> Indexed:
        indices = [self._index(i, bound) for i in x.sub]
        free = tuple(i for i in indices if isinstance(i, Index))
        numbers = ",".join("·" if isinstance(i, Index) else str(i) for i in indices)
        name = x.base if len(free) == len(indices) else f"{x.base}[{numbers}]"
        return _number(lambda: Letter(name, free))

    def _index(self, x: Node, bound: Bound) -> Index | int:
        if isinstance(x, nt.Number):
            return int(x.value)
        if isinstance(x, nt.Name) and x.base in bound:
            return bound[x.base]
        raise Refused("moments: an index that no sum runs over")

    def _parameter(self, x: nt.Name) -> Indexed:
        letter = letter_name(x)
        value = self._number(letter)
        if value is not None:
            return Indexed.lift(value)
        if x in _axes(self.law):
            return _number(lambda: Count(letter))
        kind = PositiveLetter if letter in self.law.positive else Letter
        return _number(lambda: kind(letter, ()))

    def _number(self, letter: str) -> Fraction | None:
        known = self.law.values.get(letter)
        constant = None if known is None else known.constant()
        return None if constant is None else Fraction(str(constant))

    def _moment(self, x: nt.Call, bound: Bound) -> Any:
        first, last = x.arguments[0], x.arguments[-1]
        if x.function == nt.Name("E"):
            return self._mean((first,), bound)
        return self._mean((first, last), bound) - self._mean((first,), bound) * self._mean((last,), bound)

    def _mean(self, factors: tuple[Node, ...], bound: Bound) -> Any:
        """E of a product, its sums with indices of their own."""
        body = _product(self.of(f, bound) for f in factors)
        used = dict(_patterns(body.at(()), self.families))
        if len(used) != len(set(_patterns(body.at(()), self.families))) or not set(used) <= self.law.independent:
            raise Refused("moments: entries that may be one, or of which independence is not assumed")
        laws = {base: self._law(self.families[base]) for base in sorted(used)}

        def of(**_: object) -> Indexed:
            return body

        of.__signature__ = Signature(  # type: ignore[attr-defined]
            [Parameter(base, Parameter.KEYWORD_ONLY) for base in laws]
        )
        if not laws:
            return body
        return expectation.Expectation(laws, dict.fromkeys(laws, body))(of)

    def _law(self, family: LawFamily) -> expectation.EntryLaw:
        moments = (self.of(family.mean, {}), self.of(family.variance, {}))
        return expectation.EntryLaw((), lambda: moments, lambda: [])


def _patterns(x: Expression, families: Mapping[str, LawFamily]) -> Iterator[tuple[str, tuple[bool, ...]]]:
    """The random letters in an expression, and at which places their indices are numbers."""
    for y in nodes(x, arguments=True):
        base, _, numbers = y.name.partition("[") if isinstance(y, Letter) else ("", "", "")
        if base in families:
            yield base, tuple(n != "·" for n in numbers.rstrip("]").split(",")) if numbers else ()


def _product(factors: Iterable[Indexed]) -> Indexed:
    first, *others = factors
    return reduce(mul, others, first)


def _number(at: Callable[[], Any]) -> Indexed:
    return Indexed((), lambda _: at())


def written(value: Polynomial) -> Node:
    """A value of the algebra as a formula. Raises Refused for broken exponents."""
    terms = []
    for monomial, coefficient in value.terms.items():
        above, below = [nt.node(Fraction(str(coefficient)))], [nt.node(1)]
        for letter, exponent in monomial:
            if exponent.q != 1:
                raise Refused("moments: a root")
            (above if exponent > 0 else below).extend([nt.name(*letter.split("_"))] * abs(int(exponent.p)))
        terms.append(nt.Over(nt.Product(tuple(above)), nt.Product(tuple(below))))
    return nt.Sum(tuple(terms)) if len(terms) > 1 else terms[0] if terms else nt.node(0)

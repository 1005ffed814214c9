"""Moments: E[·], Var(·) and Cov(·, ·) of formulas, for every d_k, under declared hypotheses and no others.

A formula inside E is expanded into products of random letters under sums over their indices. A sum over i = 1, …, n is
split by whether i coincides with an index already fixed or is a new one, of which there are n − m when m are fixed:

    Σ_{i=1}^{n} f(i) = Σ_{c fixed} f(c) + (n − m) f(new)

Doing so for one sum after the other runs through all set partitions of the indices, weighted with falling factorials
(n)_r. At each leaf equal letters are gathered into powers, and independence makes the expectation a product of moments.
The value is a polynomial in the parameters and in n, and holds for every n that is at least the number of indices
written out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from itertools import count
from operator import mul

from symattn.document import notation as nt
from symattn.document.errors import Refused
from symattn.document.evidence import both
from symattn.document.notation import Node
from symattn.proof.expansion import ExpandedTerm, expand, free_indices, is_moment, replaced
from symattn.proof.polynomial import Polynomial

Value = Polynomial


@dataclass(frozen=True)
class LawFamily:
    """Random letters base_{i…} that share a mean and a variance; ``axes`` are the sizes that their indices run to.

    ``higher`` are the raw moments E[x³], E[x⁴], … where they are assumed.
    """

    base: str
    axes: tuple[Node, ...]
    mean: Node
    variance: Node
    higher: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Law:
    """The assumed moments. ``value`` of a formula follows from them, and whatever would need more is refused by name.

    families     the random letters
    independent  bases of families whose letters are all independent of each other, within a family and across
    positive     parameters that are positive, so that roots and quotients may be taken of them
    real         parameters that may have any sign
    definitions  formula → formula that it stands for: s → Σ q_i k_i
    at_least     how many indices a size has at least, where more than one is written out
    labels       what is printed of an assumption that is used: MOMENTS, INDEPENDENCE, or a letter that has a value
    """

    families: tuple[LawFamily, ...]
    independent: frozenset[str]
    positive: tuple[str, ...] = ()
    real: tuple[str, ...] = ()
    definitions: Mapping[Node, Node] = field(default_factory=dict)
    at_least: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def under(self, *formulas: Node) -> str:
        """For which sizes, and under which assumptions, the values of the formulas are what they are: those used."""
        used: set[str] = set()
        for written in (replaced(formula, self.definitions) for formula in formulas):
            _Evaluation(self, written, used=used).value(written)
        axes = [_shown(axis) for family in self.families for axis in family.axes]
        least = {n: f"{n} ≥ {self.at_least[n]}" if self.at_least.get(n, 1) > 1 else n for n in axes}
        sizes = dict.fromkeys(least[n] for n in axes if n in used)
        values = sorted(x for x in used if " = " in x)
        assumed = sorted({self.labels[x] for x in used if x in self.labels})
        parts = [f"all {both(list(sizes))}" if sizes else "", *values, f"under {both(assumed)}" if assumed else ""]
        return ", ".join(part for part in parts if part)

    def at(self, values: Mapping[str, int | Fraction]) -> Law:
        """Return the same law where parameters have values."""
        fixed = {letter: Polynomial.number(value) for letter, value in values.items()}
        return replace(self, values={**self.values, **fixed})

    def value(self, formula: Node) -> Value:
        """The value of a formula without random letters outside of E, Var and Cov. Raises ``Refused``."""
        written = replaced(formula, self.definitions)
        return _Evaluation(self, written).value(written)

    def written_out(self, formula: Node) -> Value:
        """A formula in random letters with every sum written out; sizes must have values. No letter is averaged."""
        written = replaced(formula, self.definitions)
        return _Evaluation(self, written, averaged=False).value(written)


MOMENTS, INDEPENDENCE = "moments", "independence"


def letter_name(x: nt.Name) -> str:
    """A parameter's name with its indices: d_k."""
    return "_".join([x.base, *(str(getattr(s, "base", getattr(s, "value", s))) for s in x.sub)])


Classes = Mapping[str, tuple[Value, int]]
"""Index → the size that it runs to, and which of the different indices it is; a number is its own class."""


class _Evaluation:
    """The evaluation of one formula: which indices are written out is decided once for all of it."""

    def __init__(self, law: Law, formula: Node, averaged: bool = True, used: set[str] | None = None) -> None:
        self.law = law
        self.used: set[str] = set() if used is None else used  # sizes, values and assumptions that were asked for
        self.families = {f.base: f for f in law.families}
        self.averaged = averaged
        self.fresh = count(1)
        self.moments: dict[tuple[str, int], Value] = {}
        self.sizes: dict[Node, Value] = {}
        self.written: dict[Value, set[int]] = {}
        self.start = self.written_indices(formula) if averaged else {}

    def written_indices(self, formula: Node) -> dict[str, tuple[Value, int]]:
        """The free letters among the indices as classes, after the numbers among them are noted in ``written``."""
        result: dict[Node, set[str]] = defaultdict(set)
        for base, place, index in free_indices(formula, self.families):
            result[self.axis(base, place)].add(index)
        classes: dict[str, tuple[Value, int]] = {}
        for axis, indices in result.items():
            size = self.size(axis)
            numbers = self.written.setdefault(size, set())
            numbers |= {int(i) for i in indices if i.isdigit()}
            self.check_room(axis, size, max(numbers, default=1))
            classes |= {i: (size, 0) for i in indices if not i.isdigit()}
        for size, numbers in self.written.items():
            letters = [i for i, (s, _) in classes.items() if s == size]
            if len(letters) + len(numbers) > 1 and letters:
                raise Refused(f"moments: the index {letters[0]} may coincide with another")
        return classes

    def size(self, axis: Node) -> Value:
        """Return the length of an axis."""
        if axis not in self.sizes:
            self.sizes[axis] = self.value(axis, {})
        return self.sizes[axis]

    def axis(self, base: str, place: int) -> Node:
        axes = self.families[base].axes
        if place >= len(axes):
            raise Refused(f"moments: {base} is declared with {len(axes)} indices")
        return axes[place]

    def check_room(self, axis: Node, size: Value, highest: int) -> None:
        fixed = size.constant()
        least = self.law.at_least.get(_shown(axis), 1) if fixed is None else fixed
        if highest > least:
            raise Refused(f"moments: the index {highest} needs {_shown(axis)} ≥ {highest}, which is not assumed")

    def value(self, x: Node, classes: Classes | None = None) -> Value:
        """The value of a formula whose bound indices have the given classes."""
        known = self.start if classes is None else classes
        match x:
            case nt.Number():
                return Polynomial.number(x.value)
            case nt.Name():
                return self.name(x, known)
            case nt.Sum():
                return reduce(lambda a, b: a + b, (self.value(t, known) for t in x.terms), Polynomial())
            case nt.Neg():
                return -self.value(x.body, known)
            case nt.Product():
                return reduce(mul, (self.value(f, known) for f in x.factors), Polynomial.number(1))
            case nt.Over():
                return self.value(x.numerator, known) * self.invertible(x.denominator, known).inverse()
            case nt.Power():
                return self.power(x, known)
            case nt.Root():
                return self.invertible(x.body, known).root()
            case nt.Fence(style="round"):
                return self.value(x.body, known)
            case nt.Big(operator="sum"):
                return self.sum(x, known)
            case nt.At():
                return self.at(x)
            case nt.Call():
                return self.call(x, known)
        raise Refused(f"moments: no value for a {type(x).__name__}")

    def name(self, x: nt.Name, classes: Classes) -> Value:
        if x.base in self.families:
            if self.averaged:
                raise Refused(f"moments: {_shown(x)} is random and stands outside of E, Var and Cov")
            return Polynomial.letter(f"{x.base}[{','.join(self.written_index(i, classes) for i in x.sub)}]")
        return self.parameter(x)

    def written_index(self, index: Node, classes: Classes) -> str:
        return str(self.class_of(index, Polynomial(), classes)[1])

    def class_of(self, index: Node, size: Value, classes: Classes) -> tuple[Value, int]:
        """Return the range of an index, and its class; a number has the range that it must."""
        if isinstance(index, nt.Number):
            return size, int(index.value)
        if _shown(index) not in classes:
            raise Refused(f"moments: the index {_shown(index)} is not bound")
        return classes[_shown(index)]

    def parameter(self, x: Node) -> Value:
        if isinstance(x, nt.Number):
            return Polynomial.number(x.value)
        letter = letter_name(x) if isinstance(x, nt.Name) else _shown(x)
        if letter in self.law.values:
            self.used.add(letter if letter in self.law.labels else f"{letter} = {self.law.values[letter]}")
            return self.law.values[letter]
        if letter not in (*self.law.positive, *self.law.real):
            raise Refused(f"moments: {letter} is neither random nor declared as a parameter")
        self.used |= {letter} - self.law.labels.keys()  # what a letter is worth is assumed only where it has a value
        return Polynomial.letter(letter)

    def invertible(self, x: Node, classes: Classes) -> Value:
        """The value of a divisor or radicand: one monomial in parameters that are declared positive."""
        value = self.value(x, classes)
        signed = [letter for m in value.terms for letter, _ in m if letter in self.law.real]
        if signed:
            raise Refused(f"moments: {signed[0]} under a root or a fraction's bar is not declared positive")
        return value

    def power(self, x: nt.Power, classes: Classes) -> Value:
        exponent = self.value(x.exponent, classes).constant()
        if exponent is None or exponent.denominator != 1:
            raise Refused(f"moments: the exponent {_shown(x.exponent)} is not an integer")
        base = self.value(x.base, classes) if exponent >= 0 else self.invertible(x.base, classes)
        return base ** int(exponent)

    def sum(self, x: nt.Big, classes: Classes) -> Value:
        if x.low != nt.node(1) or x.high is None or not isinstance(x.index, nt.Name):
            raise Refused("moments: sums run from 1 over a letter")
        index, size = x.index.base, self.value(x.high, classes)
        if not self.averaged:
            return self.written_sum(x, size, classes)
        return self.over_classes(index, size, classes, lambda inner: self.value(x.body, inner))

    def written_sum(self, x: nt.Big, size: Value, classes: Classes) -> Value:
        terms = size.constant()
        if terms is None:
            raise Refused(f"moments: {size} terms cannot be written out")
        assert isinstance(x.index, nt.Name)
        inner = ({**classes, x.index.base: (size, i)} for i in range(1, int(terms) + 1))
        return reduce(lambda a, b: a + b, (self.value(x.body, c) for c in inner), Polynomial())

    def over_classes(self, index: str, size: Value, classes: Classes, body: Callable[[Classes], Value]) -> Value:
        """Σ over an index: it is one of those fixed so far, or one of the n − m others."""
        fixed = {c for s, c in classes.values() if s == size} | self.written.get(size, set())
        total = Polynomial()
        for c in sorted(fixed):
            total = total + body({**classes, index: (size, c)})
        others = size - Polynomial.number(len(fixed))
        return total + others * body({**classes, index: (size, max(fixed, default=0) + 1)}) if others.terms else total

    def at(self, x: nt.At) -> Value:
        conditions = x.condition.parts if isinstance(x.condition, nt.Commas) else (x.condition,)
        values = dict(_assignment(c) for c in conditions)
        return _Evaluation(self.law.at(values), x.body, used=self.used).value(x.body)

    def call(self, x: nt.Call, classes: Classes) -> Value:
        if not is_moment(x):
            raise Refused(f"moments: {_shown(x.function)} is not a moment")
        first, last = x.arguments[0], x.arguments[-1]
        if x.function == nt.Name("E"):
            return self.expectation(first, classes)
        mixed = self.expectation(nt.Product((first, last)), classes)
        return mixed - self.expectation(first, classes) * self.expectation(last, classes)

    def expectation(self, x: Node, classes: Classes) -> Value:
        return reduce(
            lambda a, b: a + b, (self.of_term(t, classes) for t in expand(x, self.families, self.fresh)), Polynomial()
        )

    def of_term(self, term: ExpandedTerm, classes: Classes) -> Value:
        """E of a product of letters and numbers, summed over the term's indices."""
        if not term.bound:
            return self.of_product(term.factors, classes)
        (index, high), rest = term.bound[0], ExpandedTerm(term.bound[1:], term.factors)
        return self.over_classes(index, self.value(high, classes), classes, lambda inner: self.of_term(rest, inner))

    def of_product(self, factors: tuple[Node, ...], classes: Classes) -> Value:
        powers: Counter[tuple[str, tuple[int, ...]]] = Counter()
        value = Polynomial.number(1)
        for factor in factors:
            if isinstance(factor, nt.Name) and factor.base in self.families:
                powers[self.letter(factor, classes)] += 1
            else:
                value = value * self.value(factor, classes)
        self.check_independence([base for base, _ in powers])
        for (base, _), power in powers.items():
            value = value * self.moment(self.families[base], power)
        return value

    def letter(self, x: nt.Name, classes: Classes) -> tuple[str, tuple[int, ...]]:
        """A random letter by the classes of its indices, which must run to the sizes declared."""
        family = self.families[x.base]
        if len(x.sub) != len(family.axes):
            raise Refused(f"moments: {_shown(x)} should have {len(family.axes)} indices")
        result = []
        for index, axis in zip(x.sub, family.axes, strict=True):
            wanted = self.size(axis)
            size, c = self.class_of(index, wanted, classes)
            if size != wanted:
                raise Refused(f"moments: an index of {x.base} runs to {size}, and is declared to run to {_shown(axis)}")
            result.append(c)
        return x.base, tuple(result)

    def check_independence(self, bases: list[str]) -> None:
        for base in bases if len(bases) > 1 else ():
            self.used.add(INDEPENDENCE)
            if base not in self.law.independent:
                others = ", ".join(sorted(set(bases) - {base})) or f"another {base}"
                raise Refused(f"moments: that {base} is independent of {others} is not assumed")

    def moment(self, family: LawFamily, power: int) -> Value:
        """E[x^power]: the mean, σ² + μ², and beyond that what is declared."""
        self.used.add(MOMENTS)
        if (family.base, power) not in self.moments:
            self.moments[family.base, power] = self.new_moment(family, power)
        return self.moments[family.base, power]

    def new_moment(self, family: LawFamily, power: int) -> Value:
        mean, variance = self.value(family.mean), self.value(family.variance)
        if power <= 2:
            return mean if power == 1 else variance + mean * mean
        if power - 3 >= len(family.higher):
            raise Refused(f"moments: E[{family.base}^{power}] is not assumed")
        return self.value(family.higher[power - 3])


def _assignment(condition: Node) -> tuple[str, Fraction]:
    match condition:
        case nt.Relation(first=nt.Name() as letter, rest=(("=", nt.Number(value=number)),)):
            return letter_name(letter), number
        case nt.Relation(first=nt.Name() as letter, rest=(("=", nt.Neg(body=nt.Number(value=number))),)):
            return letter_name(letter), -number
    raise Refused("moments: a condition reads letter = number")


def _shown(x: Node) -> str:
    return letter_name(x) if isinstance(x, nt.Name) else str(x.value) if isinstance(x, nt.Number) else type(x).__name__

"""Show that terms are positive, or nonnegative, by their form, by hypothesis or by a law, for ``checker``.

Laws say which expressions are never negative by the properties of max, |x|, tanh and norms. Only two facts are used
about sign: ``sign(x) · x`` is |x|, and it lies between −1 and 1. A law is applied only to expressions of a
certificate; whether such an expression has the form of the law is decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from symattn.proof import checker_clearing, checker_testing
from symattn.proof.checker_reading import (
    CheckedNode,
    array_of,
    expect,
    form,
    number,
    read,
    renamed,
    scope_of,
)
from symattn.proof.checker_simplifying import Simplifying
from symattn.proof.checker_values import Dice

Same = Callable[[CheckedNode, CheckedNode], bool]
Sign = Callable[[CheckedNode], bool]
Scope = Mapping[str, str]
# Functions with values between −1 and 1, the only fact about them that a law uses.
BOUNDED = frozenset({"tanh", "sign", "cos", "sin", "erf"})


@dataclass(frozen=True)
class Signs:
    """Relations to 0 by the form of the expression, and the names of positive letters.

    Arrays in ``known`` have no negative entry; the array ``nonzero`` has no zero.
    """

    relations: Mapping[Any, str]
    positive: frozenset[str]
    known: frozenset[str] = frozenset()
    nonzero: str = ""

    def expect_defined(self, every: Iterable[CheckedNode], simplify: Simplifying) -> None:
        """Reject unless the expressions, as written, are defined: divisors, and arguments of roots and logarithms, have
        the required relation to 0 by their form or by hypothesis."""
        for x, enough in (demand for written in every for demand in simplify.demands(written)):
            # Positive by its form is enough for any demand.
            if not (self.shows_positive(x) or ("≥" in enough and self.shows_not_negative(x))):
                # By order of occurrence, so that a hypothesis covers all names of its indices.
                relation = self.relations.get(form(x, _in_order(x)))
                expect(relation in enough, "what is divided by, or rooted, is no hypothesis")

    def shows_positive(self, x: CheckedNode) -> bool:
        """Return whether ``x`` > 0 by its form, at sizes from 1 on."""
        if x.kind == "number":
            return bool(x.label > 0)
        if self.nonzero and self._apart_from_zero(x):
            return True
        # One positive term is enough if no other term is negative.
        if x.kind == "sum":
            signs = [(self.shows_positive(y), self.shows_not_negative(y)) for y in x.below]
            return any(above for above, _ in signs) and all(
                above or least for above, least in signs
            )
        # The sum over j includes j = i, so one term is positive though relations may be 0.
        if x.kind == "total" and self._meets_itself(x):
            return True
        if x.kind in ("product", "ratio", "total"):
            return all(map(self.shows_positive, x.below))
        if x.kind == "function":
            # The argument of rsqrt must be positive, or the expression has no value.
            return x.label == "rsqrt" or (x.label == "sqrt" and self.shows_positive(x.below[0]))
        if x.kind == "exp":
            return x.below[0].kind != "masked"
        return x.kind == "size" or (x.kind == "letter" and x.label in self.positive)

    def _apart_from_zero(self, x: CheckedNode) -> bool:
        """Return whether ``x`` > 0 because a letter is not 0: u², e^u − 1 − u or, for u ≥ 0, u and e^u − 1."""
        if x.kind == "product" and len(x.below) > 1:
            counted = Counter(y.own_form for y in x.below)
            # Factors other than the letter must be positive by themselves.
            rest = [y for y in x.below if not self._is_nonzero(y)]
            even = all(counted[y.own_form] % 2 == 0 for y in x.below if y not in rest)
            fewer = len(rest) < len(x.below)
            return fewer and even and all(map(self.shows_positive, rest))
        if x.kind == "sum" and self.above_tangent(x):
            # e^u lies strictly above its tangent unless u = 0.
            return any(y.kind == "exp" and self._is_nonzero(y.below[0]) for y in x.below)
        return self._is_nonzero(x) and self._is_known(x)

    def _is_nonzero(self, x: CheckedNode) -> bool:
        return x.kind == "letter" and array_of(x.label) == self.nonzero

    def shows_equal_only_at_zero(self, x: CheckedNode) -> bool:
        """Return whether a nonnegative sum is 0 only if all entries of ``nonzero`` are 0.

        Each entry is in a term of its own, summed over all of its indices, that is 0 only if the entry is.
        """
        if x.kind != "sum":
            return self._has_every_entry(x)
        return any(
            self._has_every_entry(y)
            and self.shows_not_negative(checker_clearing.plus(others(x.below, y)))
            for y in x.below
        )

    def _has_every_entry(self, x: CheckedNode, bound: tuple[str, ...] = ()) -> bool:
        if x.kind == "ratio":
            return self.shows_positive(x.below[1]) and self._has_every_entry(x.below[0], bound)
        if x.kind == "product":
            inner = [
                y
                for y in x.below
                if y.kind in ("total", "ratio") and not self.shows_positive_apart(y)
            ]
            # The entries are in one inner sum; no other factor may vanish.
            rest = [y for y in x.below if y not in inner]
            if len(inner) == 1 and all(map(self.shows_positive_apart, rest)):
                return self._has_every_entry(inner[0], bound)
        if x.kind == "total":
            return self._has_every_entry(x.below[0], (*bound, x.label))
        letters = [y for y in x.all() if self._is_nonzero(y)]
        # Letters at two different places could be 0 in turn.
        places = {y.indices for y in letters}
        other_letters = any(y.label != self.nonzero for y in letters)
        if len(places) != 1 or other_letters:
            return False
        (indices,) = places
        names = [i[0] for i in indices]
        # The letter has every bound index, unpermuted and once, so all entries of the array occur.
        every = (
            set(bound) <= set(names)
            and len(set(names)) == len(names)
            and all(len(i) == 1 for i in indices)
        )
        return every and self.shows_positive(x)

    def shows_positive_apart(self, x: CheckedNode) -> bool:
        """Return whether ``x`` > 0 by its form, whatever ``nonzero`` is."""
        return replace(self, nonzero="").shows_positive(x)

    def _meets_itself(self, x: CheckedNode) -> bool:
        """Return whether ``x`` is Σ_j [j ≤ i] … of positive terms, with a single i, so that the term j = i occurs."""
        factors = x.below[0].below if x.below[0].kind == "product" else x.below
        relations = [f for f in factors if f.kind == "is"]
        others = {i for f in relations for i in f.indices} - {(x.label,)}
        apart = all(i[0] != x.label for i in others)  # π(j) = j may hold for no j
        all_reflexive = all(f.label in ("≤", "=") for f in relations)
        reflexive = len(others) == 1 and apart and all_reflexive
        return reflexive and all(self.shows_positive(f) for f in factors if f.kind != "is")

    def above_tangent(self, x: CheckedNode) -> tuple[CheckedNode, list[CheckedNode]] | None:
        """Return u and the rest of ``x`` beyond e^u − 1 − u, all ≥ 0 by its form; None if ``x`` is no such sum."""
        # Exactly the constant −1, as e^0 = 1.
        if [y.label for y in x.below if y.kind == "number"] != [-1]:
            return None
        for power in (y for y in x.below if y.kind == "exp"):
            u = power.below[0]
            rest = [y for y in others(x.below, power) if y.kind != "number"]
            # e^u − 1 + r is (e^u − 1 − u) + (u + r); else the terms of u must cancel with the rest.
            summands = u.below if u.kind == "sum" else (u,)
            for beyond in ([u, *rest], without(rest, summands)):
                if beyond is not None and all(map(self.shows_not_negative, beyond)):
                    return u, beyond
        return None

    def _is_one_minus_relations(self, x: CheckedNode) -> bool:
        """Return whether ``x`` is 1 − a product of relations."""
        terms = [checker_clearing.factors(y) for y in x.below]
        one = [
            t
            for t in terms
            # The term 1 has no factor besides the number.
            if [f.label for f in t if f.kind == "number"] == [1] == [f.label for f in t]
        ]
        less = [t for t in terms if [f.label for f in t if f.kind == "number"] == [-1]]
        return (
            len(terms) == 2
            and len(one) == len(less) == 1
            and all(f.kind in ("number", "is") for f in less[0])
        )

    def _is_known(self, x: CheckedNode) -> bool:
        return x.label in self.positive or array_of(x.label) in self.known

    def shows_not_negative(self, x: CheckedNode) -> bool:
        """Return whether ``x`` ≥ 0 by its form: as above, with squares, relations, roots and e^u above its tangent."""
        if x.kind == "number":
            return bool(x.label >= 0)
        if x.kind == "product":
            # An even power is not negative, so only odd powers need a sign.
            counted = Counter(y.own_form for y in x.below)
            return all(self.shows_not_negative(y) for y in x.below if counted[y.own_form] % 2)
        # Before the rule for sums, whose terms include −1 here.
        if x.kind == "sum" and (self.above_tangent(x) or self._is_one_minus_relations(x)):
            return True
        if x.kind in ("sum", "ratio", "total"):
            return all(map(self.shows_not_negative, x.below))
        if x.kind == "function":
            return x.label in ("sqrt", "rsqrt")
        return x.kind in ("size", "exp", "is") or (x.kind == "letter" and self._is_known(x))


def others(parts: Iterable[CheckedNode], excluded: CheckedNode) -> list[CheckedNode]:
    """Return the parts without one of them."""
    result = list(parts)
    result.remove(excluded)
    return result


def without(
    terms: Iterable[CheckedNode], minus_these: Iterable[CheckedNode]
) -> list[CheckedNode] | None:
    """Return the terms that do not cancel with ``minus_these``; None if one of these cancels with no term."""
    left = list(terms)
    # Terms cancel as a whole, so that the rest stays in terms with signs.
    for t in minus_these:
        result = next(
            (y for y in left if checker_clearing.vanishing(checker_clearing.plus([y, t]))), None
        )
        if result is None:
            return None
        left.remove(result)
    return left


def hypotheses(
    data: Any, simplify: Simplifying, dice: Dice, known: frozenset[str] = frozenset()
) -> Signs:
    """Return the relations that a certificate assumes, simplified; reject one that can never hold."""
    result: dict[Any, str] = {}
    for h in data:
        scope = scope_of(h)
        x = simplify(read(h["expression"], scope))
        expect(h["relation"] in ("≠", ">", "≥"), f"{h['relation']!r} is not a relation")
        # "≥" needs no test: an expression that is always 0 meets it.
        if h["relation"] != "≥":
            checker_testing.expect_possible(x, scope, dice)
        result[form(x, _in_order(x))] = h["relation"]
    return Signs(result, simplify.positive, known)


def _in_order(x: CheckedNode) -> dict[str, Any]:
    """Return names for the free indices by order of occurrence, so that their own names do not matter."""
    names: dict[str, Any] = {}
    for i in _yield_indices_of_node(x):
        if i in x.free:
            names.setdefault(i, ("at", len(names)))
    return names


def _yield_indices_of_node(x: CheckedNode) -> Iterator[str]:
    yield from (i[0] for i in x.indices)
    for y in x.below:
        yield from _yield_indices_of_node(y)


# -- laws of functions -------------------------------------------------------------------------------------------------
def expect_law(law: str, x: CheckedNode, scope: Scope, same: Same, sign: Sign) -> None:
    """Reject unless ``x`` ≥ 0 by the named law; ``sign`` says whether a form is not negative."""
    holds = law in _LAWS and any(same(x, y) for y in _LAWS[law](x, scope, same, sign))
    expect(holds, f"the law {law!r} does not show that it is not negative")


def _differences_from_maximum(
    x: CheckedNode, scope: Scope, same: Same, _: Sign
) -> Iterator[CheckedNode]:
    """Yield max f − f for each index, and max f minus any term that is at most f."""
    for top in _find_unbound_functions(x, scope, "max"):
        for y in _yield_terms_below_maximum(top, scope, same):
            yield checker_clearing.minus(top, y)


def _margins_of_bounded_function(x: CheckedNode, scope: Scope, *_: object) -> Iterator[CheckedNode]:
    """Yield 1 − f and 1 + f."""
    for f in _find_unbound_functions(x, scope, *BOUNDED):
        yield checker_clearing.minus(number(1), f)
        yield checker_clearing.minus(f, number(-1))


def _magnitude_minus_argument(x: CheckedNode, scope: Scope, *_: object) -> Iterator[CheckedNode]:
    """Yield |z|, |z| − z and |z| + z."""
    for f in _find_unbound_functions(x, scope, "sign"):
        (z,) = f.below
        yield checker_clearing.times(f, z)
        yield checker_clearing.minus(checker_clearing.times(f, z), z)
        yield checker_clearing.minus(
            checker_clearing.times(f, z), checker_clearing.times(number(-1), z)
        )


def _triangle_inequality_gaps(
    x: CheckedNode, scope: Scope, _: Same, sign: Sign
) -> Iterator[CheckedNode]:
    """Yield Σ_j a_j ‖y_j‖ − ‖Σ_j a_j y_j‖ with a_j ≥ 0, for any norm; y_j are the factors that run along the row."""
    for whole in _find_unbound_functions(x, scope, "norm"):
        # The norm of a row: one index bound around a sum over another.
        row = whole.below[0]
        if len(whole.below) != 1 or row.kind != "bound" or row.below[0].kind != "total":
            continue
        mean = row.below[0]
        parts = mean.below[0].below if mean.below[0].kind == "product" else mean.below
        # Factors along the row are the vectors, all others the weights.
        along = [f for f in parts if row.label in f.free]
        weights = [f for f in parts if row.label not in f.free]
        # The triangle inequality needs weights of one sign.
        if along and all(map(sign, weights)):
            y = checker_clearing.product(along)
            norm = whole.of([row.of([y])])
            yield checker_clearing.minus(
                mean.of([checker_clearing.product([*weights, norm])]), whole
            )


_Law = Callable[[CheckedNode, Scope, Same, Sign], Iterator[CheckedNode]]
# Each yields expressions that are never negative.
_LAWS: Mapping[str, _Law] = {
    "largest": _differences_from_maximum,
    "bounded": _margins_of_bounded_function,
    "magnitude": _magnitude_minus_argument,
    "triangle": _triangle_inequality_gaps,
}


def _find_unbound_functions(x: CheckedNode, scope: Scope, *labels: str) -> list[CheckedNode]:
    """Return the functions with these names whose indices are not bound outside of them."""
    every = (f for f in x.all(into_functions=True) if f.kind == "function" and f.label in labels)
    return [f for f in every if f.free <= scope.keys()]


def _yield_terms_below_maximum(top: CheckedNode, scope: Scope, same: Same) -> Iterator[CheckedNode]:
    """Yield terms no larger than a maximum: its terms, for any index; for |z| also z and −z."""
    # A maximum is at least any of its terms, for any choice of their indices.
    for term in top.below:
        for y in instances(term, scope):
            yield y
            if y.kind == "function" and y.label == "max":
                yield from _yield_terms_below_maximum(y, scope, same)
            # |z| is written sign(z) z, which is at least z and −z.
            for f in _find_unbound_functions(y, scope, "sign"):
                if same(y, checker_clearing.times(f, f.below[0])):
                    yield from (f.below[0], checker_clearing.times(number(-1), f.below[0]))


def instances(x: CheckedNode, scope: Scope) -> Iterator[CheckedNode]:
    """Yield the terms of a maximum, with each index of ``scope`` for the bound one."""
    if x.kind != "bound":
        if x.kind != "masked":
            yield x
        return
    for name, sort in scope.items():
        if sort == x.sorts[0]:
            yield from instances(renamed(x.below[0], x.label, name), scope)

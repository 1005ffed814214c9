"""Simplify expressions, for ``checker``: a certificate stores its sides as written, and each step is a rule here.

Here i, j are indices, [·] is 1 if the relation in it holds and 0 otherwise, and a letter is a real number:

    sums, products   in any order; numbers are joined; 0 · x = 0; −(x + y) = −x − y;
                     a factor [·] that all terms have is taken out
    relations        [i = i] = [i ≤ i] = 1, [i < i] = 0, [π(i) = π(j)] = [i = j] for a permutation π
    totals           Σ (x + y) = Σ x + Σ y; factors without the index come out; Σ_j 1 is the size;
                     Σ_j [j = i] f(j) = f(i); Σ_j f(π(j)) = Σ_j f(j), and so for max
    roots            √(c² x) = c √x for numbers and x/y, x y likewise where a factor is positive by its form;
                     √u √u = u, 1/√u · 1/√u = 1/u, √u / √u = 1; x / √u = x · (1/√u)
    exponentials     e^0 = 1; e^(−∞) = 0: of an argument that is x where a holds and −∞ elsewhere, it is [a] e^x;
                     e^(x ± log y) = e^x y^(±1)
    others           sign(−x) = −sign(x); max(x, y) = max(y, x); max(x, −∞) = max(x) = x

They hold if the expression as written is defined; what that requires of divisors, roots and logarithms is listed by
``demands``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from math import isqrt, prod

from symattn.proof import checker_clearing
from symattn.proof.checker_reading import MANY, CheckedNode, expect, moved, node, number

# A root below a fraction is the other root above.
_ROOTS = {"sqrt": "rsqrt", "rsqrt": "sqrt"}
# What a function requires of its argument: log and 1/√ need > 0, a root ≥ 0.
_NEEDED = {"rsqrt": (">",), "log": (">",), "sqrt": (">", "≥"), "1/": ("≠", ">")}
Demand = tuple[CheckedNode, tuple[str, ...]]


class Simplifying:
    """A simplifier of expressions in which the letters named in ``positive`` are positive numbers."""

    def __init__(self, positive: frozenset[str]) -> None:
        self.positive, self._known = positive, _cache_for_positive_letters(positive)

    def __call__(self, x: CheckedNode) -> CheckedNode:
        """Return ``x`` simplified. Raises ``Rejected`` if −∞ occurs outside the arguments of e and max."""
        result = self._simplify_cached_node(x)
        expect(result.kind not in ("masked", "bound"), "−∞ outside of an exponential")
        return result

    def _simplify_cached_node(self, x: CheckedNode) -> CheckedNode:
        # Leaves are simple; relations may have equal sides.
        if not x.below and x.kind != "is":
            return x
        result = self._known.get(x)
        if result is None:
            result = self._rules[x.kind](self, x)
            # Emptied at the limit: entries are quick to compute again.
            if len(self._known) > MANY:
                self._known.clear()
            self._known[x] = result
        return result

    def demands(self, x: CheckedNode) -> Iterator[Demand]:
        """Yield the expressions that must be > 0, ≥ 0 or ≠ 0 for ``x``, as written, to have a value."""
        for y in x.all(into_functions=True):
            if y.kind == "ratio":
                below = self(y.below[1])
                # Roots are required to be positive inside, which is stronger than not 0 outside.
                roots = [f for f in checker_clearing.factors(below) if _is_root(f)]
                yield from ((_settle_index_names(f.below[0]), (">",)) for f in roots)
                rest = checker_clearing.product(
                    f for f in checker_clearing.factors(below) if f not in roots
                )
                # Numbers are divided by at once, where 0 is refused.
                if rest.kind != "number":
                    yield _settle_index_names(rest), ("≠", ">")
            elif y.kind == "function" and y.label in _NEEDED:
                yield _settle_index_names(self(y.below[0])), _NEEDED[y.label]

    def _divide_simplified(self, a: CheckedNode, b: CheckedNode) -> CheckedNode:
        # x / √u = x · (1/√u): roots then meet other roots in the numerator.
        roots = [f for f in checker_clearing.factors(b) if _is_root(f)]
        above = _multiply_simplified_nodes(
            [a, *[node("function", f.below, _ROOTS[f.label]) for f in roots]]
        )
        below = _multiply_simplified_nodes(
            [f for f in checker_clearing.factors(b) if f not in roots]
        )
        if below.kind == "number":
            expect(below.label, "a division by zero")
            return _multiply_simplified_nodes([above, number(1 / below.label)])
        # 0 divided by an admissible divisor is 0.
        if above.kind == "number" and not above.label:
            return above
        # Relations stay outside of quotients, where sums over their indices can use them.
        outside = [f for f in checker_clearing.factors(above) if f.kind == "is"]
        inside = checker_clearing.product(
            f for f in checker_clearing.factors(above) if f.kind != "is"
        )
        return checker_clearing.product([*outside, node("ratio", [inside, below])])

    def _simplify_exponential(self, x: CheckedNode) -> CheckedNode:
        power = self._simplify_cached_node(x.below[0])
        # e^(−∞) = 0 where the mask forbids, so the mask becomes a factor.
        if power.kind == "masked":
            allowed, value = power.below
            return _multiply_simplified_nodes([allowed, self._exponential_of_simplified(value)])
        return self._exponential_of_simplified(power)

    def _exponential_of_simplified(self, power: CheckedNode) -> CheckedNode:
        up: list[CheckedNode] = []
        down: list[CheckedNode] = []
        rest: list[CheckedNode] = []
        # e^(x ± log y) = e^x y^(±1) for each term that is a single logarithm.
        for term in _terms_of_checked_sum(power):
            logs = [
                f
                for f in checker_clearing.factors(term)
                if f.kind == "function" and f.label == "log"
            ]
            others = [f for f in checker_clearing.factors(term) if f not in logs]
            # The coefficient of the logarithm: 1 without other factors, 0 if they are no number.
            sign = (
                others[0].label
                if len(others) == 1 and others[0].kind == "number"
                else 0
                if others
                else 1
            )
            if len(logs) == 1 and abs(sign) == 1:
                (up if sign > 0 else down).append(logs[0].below[0])
            else:
                rest.append(term)
        left = checker_clearing.plus(rest) if rest else number(0)
        # e^0 = 1.
        one = left.kind == "number" and not left.label
        above = _multiply_simplified_nodes([number(1) if one else node("exp", [left]), *up])
        return self._divide_simplified(above, _multiply_simplified_nodes(down)) if down else above

    def _simplify_masked_node(self, x: CheckedNode) -> CheckedNode:
        allowed, value = map(self, x.below)
        expect(
            allowed.kind != "number" or allowed.label in (0, 1), "a mask that is neither 0 nor 1"
        )
        return x.of([allowed, value])

    def _simplify_index_relation(self, x: CheckedNode) -> CheckedNode:
        left, right = x.indices
        # [π(i) = π(j)] = [i = j]: outer permutations in common fall away.
        while x.label == "=" and left[1:] and right[1:] and left[-1] == right[-1]:
            left, right = left[:-1], right[:-1]
        if left == right:
            return number(int(x.label != "<"))
        return x.of((), (left, right))

    def _sum_simplified_over_index(self, x: CheckedNode, body: CheckedNode) -> CheckedNode:
        # A sum over all j equals the sum over all π(j).
        body = _undo_index_permutation(body, x.label)
        if body.kind == "sum":
            return _add_simplified_nodes(
                [self._sum_simplified_over_index(x, y) for y in body.below]
            )
        if body.kind == "number" and not body.label:
            return body
        parts = checker_clearing.factors(body)
        for f in parts:
            if f.kind == "is" and f.label == "=" and (x.label,) in f.indices:
                left = f.indices[0]
                other = f.indices[1] if left == (x.label,) else left
                # No substitution: the index is on both sides.
                if other[0] == x.label:  # j = π(j)
                    continue
                rest = checker_clearing.product(g for g in parts if g is not f)
                # The sum has the one term in which both indices are equal.
                return self(moved(rest, x.label, (x.label,), other))
        return _multiply_simplified_nodes(
            list(checker_clearing.factors(checker_clearing.total(x, body)))
        )

    def _simplify_function_node(self, x: CheckedNode) -> CheckedNode:
        below = [self._simplify_cached_node(y) for y in x.below]
        expect(
            # Only max and argmax have a value where an argument is −∞.
            not any(y.kind == "masked" and x.label not in ("max", "argmax") for y in below),
            f"{x.label} of −∞",
        )
        if x.label == "max":
            below = [_in_any_order(y) for y in below]
            # max(x, −∞) = max(x), unless every argument is forbidden.
            below = [y for y in below if not _is_forbidden_everywhere(y)] or below
            # max is symmetric.
            below.sort(key=lambda y: y.own_form)
            # Over an index or a mask the maximum is not its single argument.
            if len(below) == 1 and below[0].kind not in ("bound", "masked"):
                return below[0]
        if x.label == "sqrt" and len(below) == 1:
            return self._simplify_square_root(below[0])
        result = x.of(below)
        if x.label != "sign" or len(below) != 1:
            return result
        # sign(x) or −sign(−x), whichever argument sorts first
        other = _add_simplified_nodes(
            [_multiply_simplified_nodes([number(-1), t]) for t in _terms_of_checked_sum(below[0])]
        )
        return (
            result
            if below[0].own_form <= other.own_form
            else _multiply_simplified_nodes([number(-1), x.of([other])])
        )

    def _simplify_square_root(self, x: CheckedNode) -> CheckedNode:
        if x.kind == "number" and x.label >= 0:
            n = isqrt(x.label.numerator)
            d = isqrt(x.label.denominator)
            if Fraction(n * n, d * d) == x.label:
                return number(Fraction(n, d))
        # √(x/y) = √x / √y only where the divisor is positive.
        if x.kind == "ratio" and self._is_positive(x.below[1]):
            return self._divide_simplified(*map(self._simplify_square_root, x.below))
        if x.kind == "product":
            # Of a product, factors that are positive by their form may leave the root.
            above = [f for f in x.below if self._is_positive(f)]
            rest = [f for f in x.below if f not in above]
            if above and (rest or len(above) > 1):
                return _multiply_simplified_nodes(
                    [
                        *map(self._simplify_square_root, above),
                        self._simplify_square_root(_multiply_simplified_nodes(rest)),
                    ]
                )
        return node("function", [x], "sqrt")

    def _is_positive(self, x: CheckedNode) -> bool:
        """Return whether ``x`` > 0 wherever it is defined, by its form alone."""
        if x.kind == "number":
            return bool(x.label > 0)
        if x.kind in ("sum", "product", "ratio", "total"):
            return all(map(self._is_positive, x.below))
        # Arguments of rsqrt are positive where the expression is defined.
        if x.kind == "function":
            return x.label == "rsqrt" or (x.label == "sqrt" and self._is_positive(x.below[0]))
        return x.kind in ("size", "exp") or (x.kind == "letter" and x.label in self.positive)

    _rules: Mapping[str, Callable[[Simplifying, CheckedNode], CheckedNode]] = {
        "sum": lambda self, x: _add_simplified_nodes(map(self, x.below)),
        "product": lambda self, x: _multiply_simplified_nodes(map(self, x.below)),
        "ratio": lambda self, x: self._divide_simplified(*map(self, x.below)),
        "total": lambda self, x: self._sum_simplified_over_index(x, self(x.below[0])),
        "bound": lambda self, x: x.of([self._simplify_cached_node(x.below[0])]),
        **{
            "exp": _simplify_exponential,
            "masked": _simplify_masked_node,
            "is": _simplify_index_relation,
            "function": _simplify_function_node,
        },
    }


@lru_cache(maxsize=16)
# Results depend on positive letters alone, so certificates share them.
def _cache_for_positive_letters(positive: frozenset[str]) -> dict[CheckedNode, CheckedNode]:
    """Return the cache of simplified expressions for these positive letters, shared by all certificates."""
    return {}


def sides(
    left: CheckedNode, right: CheckedNode, scope: Iterable[str]
) -> tuple[CheckedNode, CheckedNode]:
    """Return both sides; an index that occurs only as π(i) is renamed to i: π(i) runs over all places as i does."""
    for i in scope:
        # Only if the index occurs under one permutation alone: it then runs over all places too.
        if len(images := _collect_index_images(left, i) | _collect_index_images(right, i)) == 1:
            (image,) = images
            left, right = (moved(x, i, image, (i,)) for x in (left, right))
    return left, right


def _settle_index_names(x: CheckedNode) -> CheckedNode:
    return sides(x, x, x.free)[0]


def _collect_index_images(x: CheckedNode, name: str) -> set[tuple[str, ...]]:
    """Return the forms in which an index occurs: bare, or under permutations."""
    if name not in x.free:
        return set()
    return {i for i in x.indices if i[0] == name}.union(
        *[_collect_index_images(y, name) for y in x.below]
    )


def _undo_index_permutation(x: CheckedNode, name: str) -> CheckedNode:
    """Return ``x``, in which j runs over all places, with j for π(j) if j occurs in no other form."""
    images = list(_collect_index_images(x, name))
    return moved(x, name, images[0], (name,)) if len(images) == 1 else x


def _in_any_order(x: CheckedNode) -> CheckedNode:
    if x.kind != "bound":
        return x
    return x.of([_undo_index_permutation(_in_any_order(x.below[0]), x.label)])


def _is_forbidden_everywhere(x: CheckedNode) -> bool:
    """Return whether ``x`` is −∞ everywhere."""
    if x.kind == "bound":
        # An allowed entry anywhere makes the maximum finite.
        return _is_forbidden_everywhere(x.below[0])
    return x.kind == "masked" and x.below[0].kind == "number" and not x.below[0].label


def _terms_of_checked_sum(x: CheckedNode) -> tuple[CheckedNode, ...]:
    return x.below if x.kind == "sum" else (x,)


def _is_root(x: CheckedNode) -> bool:
    return x.kind == "function" and x.label in _ROOTS and len(x.below) == 1


def _add_simplified_nodes(xs: Iterable[CheckedNode]) -> CheckedNode:
    """Return the sum of simplified expressions, with the relations that are factors of all terms taken out."""
    terms = [t for x in xs for t in _terms_of_checked_sum(x)]
    rest = [t for t in terms if t.kind != "number"]
    value = sum((t.label for t in terms if t.kind == "number"), start=Fraction(0))
    if value or not rest:
        rest.append(number(value))
    if len(rest) == 1:
        return rest[0]
    # A relation that all terms share is taken out, so that sums over its index collapse.
    relations = [
        {f.own_form: f for f in checker_clearing.factors(x) if f.kind == "is"} for x in rest
    ]
    common = set(relations[0]).intersection(*relations[1:])
    if not common:
        return checker_clearing.plus(rest)
    others = [
        _multiply_simplified_nodes(
            [f for f in checker_clearing.factors(x) if f.kind != "is" or f.own_form not in common]
        )
        for x in rest
    ]
    return _multiply_simplified_nodes(
        [*[relations[0][key] for key in common], _add_simplified_nodes(others)]
    )


def _multiply_simplified_nodes(xs: Iterable[CheckedNode]) -> CheckedNode:
    """Return the product of simplified expressions."""
    every = [f for x in xs for f in checker_clearing.factors(x)]
    rest = [f for f in every if f.kind != "number"]
    value = prod(f.label for f in every if f.kind == "number")
    if not value:
        return number(0)
    # −(x + y) = −x − y, so that terms can cancel.
    if value == -1 and len(rest) == 1 and rest[0].kind == "sum":
        return _add_simplified_nodes(
            [_multiply_simplified_nodes([number(-1), t]) for t in rest[0].below]
        )
    paired = _combine_paired_roots(rest)
    numbers = [number(value)] if value != 1 else []
    return (
        checker_clearing.product([*rest, *numbers])
        # Combined roots may meet further factors, so the product is formed again.
        if paired is None
        else _multiply_simplified_nodes([*numbers, *paired])
    )


def _combine_paired_roots(xs: list[CheckedNode]) -> list[CheckedNode] | None:
    """Return the factors with two roots of the same u combined; None if there are no two."""
    result: dict[str, int] = {}
    for n, x in enumerate(xs):
        if not _is_root(x):
            continue
        first = result.setdefault(x.below[0].own_form, n)
        # The second root of the same expression: √u √u = u, 1/√u · 1/√u = 1/u, √u · 1/√u = 1.
        if first != n:
            inside = x.below[0]
            inverse = node("ratio", [number(1), inside])
            same_function = x.label == xs[first].label
            square = [inside if x.label == "sqrt" else inverse] if same_function else []
            between = xs[first + 1 : n]
            before = xs[:first]
            return [*before, *between, *xs[n + 1 :], *square]
    return None

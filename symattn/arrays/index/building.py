"""Building index expressions: sums and products are flat, constants are collected, −∞ is allowed only where defined.

Two rules go beyond arithmetic and keep quotients out of sums, so that the prover can clear them: a predicate common
to all terms of a sum is pulled out, and Σ_i [i = a] f(i) = f(a). Roots are joined in pairs, √u √u = u, and taken of
positive factors one by one; all this holds for u > 0, or u ≥ 0 if no inverse root occurs. Within ``as_written`` nothing
is simplified: a certificate stores the sides in this form, and its checker performs the steps itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any

from symattn.arrays.index import expressions as ex
from symattn.arrays.notes import assigned
from symattn.document.errors import Refused

# One object, so that products without numbers are recognised by identity.
_UNIT = Fraction(1)
# Functions of which two with one argument join, see ``_paired_root``.
_ROOTS = frozenset({"rsqrt", "sqrt"})
# A context variable, so that one thread's certificate does not affect another's proof.
_KEEP: ContextVar[bool] = ContextVar("symattn_as_written", default=False)


def as_written(keep: bool = True) -> AbstractContextManager[bool]:
    """Build without simplifying, or with it if not ``keep``; −∞ propagates through sums and products anyway."""
    return assigned(_KEEP, keep)


def kept() -> bool:
    """Return whether expressions are built as written, without simplifying."""
    return _KEEP.get()


class DivisionByZero(Refused, ZeroDivisionError):
    """Raised if a divisor is zero for all sizes and letters."""


# The same few numbers are built over and over; the limit bounds the memory of odd cases.
@lru_cache(maxsize=10_000)
def constant(x: int | Fraction) -> ex.Expression:
    """Return a number."""
    return ex.Constant(x if x.__class__ is Fraction else Fraction(x))


def factors(x: ex.Expression) -> tuple[ex.Expression, ...]:
    """Return the factors of a product; anything else is its own factor."""
    return x.children if isinstance(x, ex.Product) else (x,)


def terms(x: ex.Expression) -> tuple[ex.Expression, ...]:
    """Return the terms of a sum; anything else is its own term."""
    return x.children if isinstance(x, ex.Sum) else (x,)


def add(*xs: ex.Expression) -> ex.Expression:
    """Σ xs. A masked term makes the sum masked."""
    # A sum is allowed where all masked terms are.
    if any(isinstance(x, ex.Masked) for x in xs):
        if ex.FORBIDDEN in xs:
            return ex.FORBIDDEN
        allowed = multiply(*[x.allowed for x in xs if isinstance(x, ex.Masked)])
        values = [x.value if isinstance(x, ex.Masked) else x for x in xs]
        return ex.Masked(allowed, add(*values))
    if kept():
        if len(xs) > 1:
            return ex.Sum(xs)
        return xs[0] if xs else ex.ZERO
    number, rest = Fraction(0), []
    for x in xs:
        for term in terms(x):
            if isinstance(term, ex.Constant):
                number += term.value
            else:
                rest.append(term)
    if number:
        rest.append(constant(number))
    if len(rest) < 2:
        return rest[0] if rest else ex.ZERO
    # Predicates outside of sums keep quotients out of sums.
    return _hoist_common_predicates(rest) or ex.Sum(tuple(rest))


def _hoist_common_predicates(xs: list[ex.Expression]) -> ex.Expression | None:
    """Return the predicates common to all terms times the sum of the rest; None if there are none."""
    # Terms with equal predicates vanish at the same places.
    predicates = [frozenset(f for f in factors(x) if isinstance(f, ex.Predicate)) for x in xs]
    common = frozenset.intersection(*predicates)
    if not common:
        return None
    rest = [multiply(*[f for f in factors(x) if f not in common]) for x in xs]
    # Sorted, since the order of a set differs between runs.
    return multiply(*sorted(common, key=repr), add(*rest))


def is_truth(x: ex.Expression) -> bool:
    """Return whether the form of ``x`` shows that it is 0 or 1: relations of indices, their products, 1 minus these."""
    if isinstance(x, ex.Sum):
        rest = [y for y in x.children if y is not ex.ONE]
        # Exactly 1 − x: one term is 1, and the other is the negative of a truth value.
        one_left = len(rest) == len(x.children) - 1 == 1
        return one_left and is_truth(negate(rest[0]))
    if isinstance(x, ex.Product):
        return all(map(is_truth, x.children))
    return x in (ex.ZERO, ex.ONE) or isinstance(x, ex.Predicate)


def is_whole(x: ex.Expression) -> bool:
    """Return whether the form of ``x`` shows that it is an integer."""
    if isinstance(x, ex.Constant):
        return x.value.denominator == 1
    if isinstance(x, (ex.Sum, ex.Product, ex.Total)):
        return all(map(is_whole, x.children))
    return isinstance(x, (ex.Count, ex.Predicate))


def multiply(*xs: ex.Expression) -> ex.Expression:
    """Π xs. Raises Refused if −∞ is multiplied by a factor not known to be positive."""
    masked = [x for x in xs if isinstance(x, ex.Masked)]
    if masked:
        others = [x for x in xs if not isinstance(x, ex.Masked)]
        # Of two factors −∞, or beside a factor of either sign, the product is not −∞.
        if len(masked) > 1 or not all(known_positive(x) for x in others):
            raise Refused("indexed: -inf times something not known to be positive")
        if ex.FORBIDDEN in masked:
            return ex.FORBIDDEN
        return ex.Masked(masked[0].allowed, multiply(masked[0].value, *others))
    if kept():
        if len(xs) > 1:
            return ex.Product(xs)
        return xs[0] if xs else ex.ONE
    number, rest = _UNIT, []
    for x in xs:
        for factor in factors(x):
            if isinstance(factor, ex.Constant):
                number *= factor.value
            else:
                rest.append(factor)
    if not number:
        return ex.ZERO
    # Two roots joined may give numbers and products, which are collected again.
    paired = _paired_root(rest)
    if paired is not None:
        return multiply(constant(number), *paired)
    if number is not _UNIT and number != 1:
        rest.append(constant(number))
    if not rest:
        return ex.ONE
    return rest[0] if len(rest) == 1 else ex.Product(tuple(rest))


def _paired_root(xs: list[ex.Expression]) -> list[ex.Expression] | None:
    """Return the factors with two roots of u joined: √u √u = u, u^{−1/2} u^{−1/2} = 1/u, √u u^{−1/2} = 1, else None."""
    result: dict[Any, ex.Opaque] = {}
    for x in xs:
        if not (isinstance(x, ex.Opaque) and x.name in _ROOTS):
            continue
        other = result.setdefault(ex.canonical(x.children[0]), x)
        # Interned expressions that occur twice are one object, so they are counted.
        if other is not x or xs.count(x) > 1:
            rest = list(xs)
            rest.remove(x)
            rest.remove(other)
            inside = x.children[0]
            square = [inside if x.name == "sqrt" else divide(ex.ONE, inside)]
            return rest if x.name != other.name else rest + square
    return None


def root(x: ex.Expression) -> ex.Expression:
    """√x. The roots of factors and divisors known to be positive are separated: √(a²u / n) = a √u / √n."""
    if kept():
        return ex.Opaque("sqrt", x)
    # Roots of squares are rational; others stay opaque.
    if isinstance(x, ex.Constant) and x.value >= 0:
        n = isqrt(x.value.numerator)
        d = isqrt(x.value.denominator)
        if Fraction(n * n, d * d) == x.value:
            return constant(Fraction(n, d))
    # √(a/b) = √a/√b needs b > 0; then a is negative only where √(a/b) has no value either.
    if isinstance(x, ex.Ratio) and known_positive(x.children[1]):
        return divide(root(x.children[0]), root(x.children[1]))
    if isinstance(x, ex.Product):
        positive = [f for f in x.children if known_positive(f)]
        rest = [f for f in x.children if f not in positive]
        # A single positive factor has nothing to be separated from.
        if positive and (rest or len(positive) > 1):
            return multiply(*map(root, positive), root(multiply(*rest)))
    # Without this demand a proof would hold where the root does not exist.
    ex.demand("≥", x)
    return ex.Opaque("sqrt", x)


def known_positive(x: ex.Expression) -> bool:
    """Return whether the form of ``x`` shows that x > 0 for sizes from 1 on, wherever it is defined.

    An inverse root is never zero; a root is zero where its argument is.
    """
    if isinstance(x, ex.Constant):
        return x.value > 0
    if isinstance(x, (ex.Sum, ex.Product, ex.Ratio)):
        return all(map(known_positive, x.children))
    if isinstance(x, ex.Total):
        return known_positive(x.body)
    if isinstance(x, ex.Opaque):
        return x.name == "rsqrt" or (x.name == "sqrt" and known_positive(x.children[0]))
    if isinstance(x, ex.Exponential):
        # Where masked, e^−∞ = 0 is not positive.
        return not isinstance(x.children[0], ex.Masked)
    return isinstance(x, (ex.Count, ex.PositiveLetter))


def negate(x: ex.Expression) -> ex.Expression:
    """−x."""
    if isinstance(x, ex.Masked):
        raise Refused("indexed: -(-inf)")
    # The sign enters the terms, so that sums stay flat.
    inside = isinstance(x, ex.Sum) and not kept()
    if inside:
        return add(*map(negate, x.children))
    return multiply(constant(-1), x)


def divide(a: ex.Expression, b: ex.Expression) -> ex.Expression:
    """a / b. Predicates stay outside, and a root in the denominator becomes an inverse root."""
    if b is ex.ZERO:
        raise DivisionByZero("indexed: division by zero at every size")
    # A masked numerator must stay outermost for exp to take it.
    if kept():
        if isinstance(a, ex.Masked):
            return multiply(a, divide(ex.ONE, b))
        return ex.Ratio(a, b)
    if isinstance(b, ex.Constant):
        return multiply(a, constant(1 / b.value))
    # Inverse roots are factors, so that a root in the denominator makes no quotient.
    roots = [f for f in factors(b) if isinstance(f, ex.Opaque) and f.name in _ROOTS]
    if roots:
        for f in roots:
            # A root in a denominator must not be 0, which ≥ 0 leaves open.
            ex.demand(">", f.children[0])
        upside_down = [
            ex.Opaque("rsqrt" if f.name == "sqrt" else "sqrt", *f.children) for f in roots
        ]
        above = multiply(a, *upside_down)
        below = multiply(*[f for f in factors(b) if f not in roots])
        return divide(above, below)
    # Noted before simplifying, which may lose the quotient: 0/b is 0.
    ex.demand("≠", b)
    if isinstance(a, ex.Masked):
        return multiply(a, divide(ex.ONE, b))
    if a is ex.ZERO:
        return ex.ZERO
    # Predicates stay outside the quotient, where a sum over their index can use them.
    outside = [f for f in factors(a) if isinstance(f, ex.Predicate)]
    inside = multiply(*[f for f in factors(a) if f not in outside])
    return multiply(*outside, ex.Ratio(inside, b))


def exponential(x: ex.Expression) -> ex.Expression:
    """e^x. It takes −∞ to 0, and logarithms in a sum to factors: e^{p + log Z} = e^p Z, as Z > 0 was demanded."""
    if kept():
        return ex.Exponential(x)
    if isinstance(x, ex.Masked):
        return multiply(x.allowed, exponential(x.value))
    up: list[ex.Expression] = []
    down: list[ex.Expression] = []
    rest: list[ex.Expression] = []
    # Logarithms with coefficient ±1 turn into factors and divisors.
    for term in terms(x):
        logs = [f for f in factors(term) if isinstance(f, ex.Opaque) and f.name == "log"]
        sign = multiply(*[f for f in factors(term) if f not in logs])
        if len(logs) == 1 and sign in (ex.ONE, constant(-1)):
            (up if sign is ex.ONE else down).extend(logs[0].children)
        else:
            rest.append(term)
    power = add(*rest)
    base = ex.ONE if power is ex.ZERO else ex.Exponential(power)
    result = multiply(base, *up)
    return divide(result, multiply(*down)) if down else result


def predicate(relation: str, i: ex.Index, j: ex.Index) -> ex.Expression:
    """[i relation j]."""
    if kept():
        return ex.Predicate(relation, i, j)
    # Permutations are one to one: π(i) = π(j) iff i = j.
    same_image = i.image[-1:] == j.image[-1:] != ()
    if relation == "=" and same_image:
        inner = i._replace(image=i.image[:-1])
        return predicate(relation, inner, j._replace(image=j.image[:-1]))
    if i == j:
        return ex.ZERO if relation == "<" else ex.ONE
    return ex.Predicate(relation, i, j)


def total(index: ex.Index, x: ex.Expression) -> ex.Expression:
    """Σ_index x. Factors that do not depend on the index are pulled out; Σ 1 becomes the size of the sort."""
    if isinstance(x, ex.Masked):
        raise Refused("indexed: a sum over -inf")
    if kept():
        return ex.Total(index, x)
    # As π runs over the whole sort, the sum over π(i) is the sum over i.
    image = _image_in(index, x)
    if image is not None:
        return total(index, substitute(x, {image: index}))
    if isinstance(x, ex.Sum):
        return add(*[total(index, term) for term in x.children])
    parts = factors(x)
    # The only term that is not 0 has the index equal to the other side.
    for f in parts:
        if isinstance(f, ex.Predicate) and f.relation == "=" and index in f.sides:
            other = f.sides[1] if f.sides[0] == index else f.sides[0]
            others = multiply(*[g for g in parts if g is not f])
            return substitute(others, {index: other})
    outside = [f for f in parts if index not in f.free]
    inside = [f for f in parts if index in f.free]
    if x is ex.ZERO:
        return ex.ZERO
    summed = ex.Total(index, multiply(*inside)) if inside else ex.Count(index.sort)
    return multiply(*outside, summed)


def bound(index: ex.Index, x: ex.Expression) -> ex.Expression:
    """Bind ``index`` in ``x``, for the argument of an opaque function; a permuted index runs over the same set."""
    image = None if kept() else _image_in(index, x)
    if image is not None:
        x = substitute(x, {image: index})
    return ex.BoundIndex(index, x)


def bound_in_order(index: ex.Index, x: ex.Expression) -> ex.Expression:
    """Bind an index in a function that depends on the order of its arguments. Raises Refused for a permuted index."""
    # A norm may weigh entries differently, so their order matters.
    if _image_in(index, x) is not None:
        raise Refused(
            "indexed: any norm of a permuted row; a norm need not be that of the row itself"
        )
    return bound(index, x)


def _image_in(index: ex.Index, x: ex.Expression) -> ex.Index | None:
    """Return the permuted form in which ``index`` occurs in ``x``, or None. Raises Refused if there are several."""
    # The sort and the number identify the variable; the image says how it occurs.
    images = [i for i in x.free if i[:2] == index[:2]]
    if len(images) > 1:
        bare = index in images
        raise Refused(
            f"indexed: an index occurs both {'bare and permuted' if bare else 'under two permutations'}"
        )
    return next((i for i in images if i.image), None)


def substitute(x: ex.Expression, to: Mapping[ex.Index, ex.Index]) -> ex.Expression:
    """Replace index variables in ``x``; bound ones are renamed so that nothing is captured."""
    # Shared parts without these indices stay the same objects.
    if not x.free & to.keys():
        return x
    if isinstance(x, ex.Letter):
        return type(x)(x.name, tuple(to.get(i, i) for i in x.indices))
    if isinstance(x, ex.Predicate):
        return predicate(x.relation, *[to.get(i, i) for i in x.sides])
    if isinstance(x, ex.Position):
        indices = tuple((sign, to.get(i, i)) for sign, i in x.indices)
        return ex.Position(x.offset, indices)
    if isinstance(x, ex.Binder):
        # A new bound index cannot coincide with one that is put in.
        new = ex.fresh(x.index.sort)
        outside = {i: j for i, j in to.items() if i != x.index}
        body = substitute(x.body, {**outside, x.index: new})
        return total(new, body) if isinstance(x, ex.Total) else bound(new, body)
    return rebuild(x, [substitute(y, to) for y in x.children])


def rebuild(x: ex.Expression, children: Iterable[ex.Expression]) -> ex.Expression:
    """Return the node ``x`` with other children, simplified. Letters, predicates and binders are not supported."""
    ys = tuple(children)
    if isinstance(x, ex.Sum):
        return add(*ys)
    if isinstance(x, ex.Product):
        return multiply(*ys)
    if isinstance(x, ex.Ratio):
        return divide(*ys)
    if isinstance(x, ex.Exponential):
        return exponential(*ys)
    if isinstance(x, ex.Masked):
        return ex.Masked(*ys)
    if isinstance(x, ex.Opaque):
        return ex.Opaque(x.name, *ys)
    return x


def at_size(x: ex.Expression, sort: str, length: int) -> ex.Expression:
    """Replace a size in ``x`` by a number; sums over its indices stay."""
    if isinstance(x, ex.Count):
        return constant(length) if x.sort == sort else x
    if x.children:
        return rebuild(x, [at_size(y, sort, length) for y in x.children])
    return x


def simplified(x: ex.Expression) -> ex.Expression:
    """Simplify an expression that was built as written."""
    with as_written(False):
        return _simplify_index_expression(x)


def _simplify_index_expression(x: ex.Expression) -> ex.Expression:
    if isinstance(x, ex.Predicate):
        return predicate(x.relation, *x.sides)
    if isinstance(x, ex.Binder):
        body = _simplify_index_expression(x.body)
        if isinstance(x, ex.Total):
            return total(x.index, body)
        return bound(x.index, body)
    # A root is rebuilt by ``root``, which separates positive factors.
    if isinstance(x, ex.Opaque) and x.name == "sqrt":
        return root(*map(_simplify_index_expression, x.children))
    return rebuild(x, map(_simplify_index_expression, x.children))

"""Hints for Coq: exponents and arguments of functions, written as sums of terms in one order.

Coq takes two spellings of an exponent for two letters. So each gets a step to the form of this module, which Coq
decides as it decides equations; nothing here is trusted. Exponents are integer multiples of terms over one common
denominator, so that e^(x/2) e^(x/2) = e^x is recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain, permutations, product
from math import lcm

from symattn.document.errors import Refused
from symattn.proof.coq.terms import Term, joined, number

_MANY = 300  # terms of a sum
_ROUNDS = 3  # of regrouping sums
_DEEP = 5  # the most nested sums of which every order is tried
_KEPT = 4096  # expressions whose sums of terms are cached


@dataclass(frozen=True)
class CoqStep:
    """A hint that ``old`` = ``new`` in a scope of sorts, the innermost first."""

    scope: tuple[int, ...]
    old: Term
    new: Term

    def __str__(self) -> str:
        scope = "; ".join(map(str, self.scope))
        return f"Step [{scope}] {self.old} {self.new}"


@dataclass(frozen=True)
class _CoqMonomial:
    """A number times Σ over ``sorts``, the outermost first, of a product."""

    sorts: tuple[int, ...]
    factors: tuple[Term, ...]


_Sum = Mapping[_CoqMonomial, Fraction]


def _sorting_key_of_monomial(m: _CoqMonomial) -> tuple[tuple[int, ...], list[str]]:
    return m.sorts, list(map(str, m.factors))


def steps(
    free: tuple[int, ...], sides: Sequence[Term], positive: frozenset[int], regroup: bool = False
) -> list[CoqStep]:
    """Return the steps for these sides in the scope ``free``; ``positive`` numbers the positive arrays.

    With ``regroup``, sums are reordered if a divisor then cancels (see ``regrouped``). Equal sides need no steps.
    """
    if len(set(sides)) == 1:
        return []
    more = (
        (merged(free, *sides) or [step for side in sides for step in regrouped(free, side)])
        if regroup
        else []
    )
    # Coq accepts a step only if its divisors are positive by their form.
    more = more if all(_are_divisors_sure(step.new, positive) for step in more) else []
    every = [(free, side) for side in sides] + [
        (step.scope, x) for step in more for x in (step.old, step.new)
    ]
    split = (
        [
            step
            for scope, x in every
            for step in _yield_division_splits(scope, x)
            if _are_divisors_sure(step.new, positive)
        ]
        if regroup
        else []
    )
    result = list(map(_function_numbers_in_term, sides))
    # where a divisor is to cancel with a sum, both stay as they are written
    alone: frozenset[int] = frozenset()
    if not regroup:
        alone = frozenset().union(*result) - frozenset.intersection(*result)
    return [
        *dict.fromkeys([*split, *_canonical_form_steps(every, positive, regroup, alone)]),
        *more,
    ]


def _yield_division_splits(scope: tuple[int, ...], x: Term) -> Iterator[CoqStep]:
    """Yield steps from a / (b c) to (a / b) / c, throughout."""
    for y in x.below:
        inside = (x.numbers[0], *scope) if x.binds() else scope
        yield from _yield_division_splits(inside, y)
    # The divisor b c splits, so that each factor may cancel by itself.
    if x.head == "Div" and x.below[1].head == "Mul":
        new = x.below[0]
        for y in _flatten_mul_factors(x.below[1]):
            new = Term("Div", (), (new, y))
        yield CoqStep(scope, x, new)


def _flatten_mul_factors(x: Term) -> list[Term]:
    if x.head == "Mul":
        return [z for y in x.below for z in _flatten_mul_factors(y)]
    return [x]


def _canonical_form_steps(
    sides: Sequence[tuple[tuple[int, ...], Term]],
    positive: frozenset[int],
    divisors: bool,
    alone: frozenset[int],
) -> list[CoqStep]:
    result = [
        place for scope, side in sides for place in _yield_exponent_places(scope, side, divisors)
    ]
    sums = []
    for scope, x, exponent in result:
        try:
            sums.append((scope, x, _expand_coq_term(x), exponent))
        # Terms that are too long stay as they are written.
        except Refused:
            continue
    # One denominator for all exponents, so that equal exponents have equal terms.
    common = lcm(
        *[c.denominator for _, _, terms, exponent in sums if exponent for c in terms.values()]
    )
    outcome: dict[tuple[tuple[int, ...], Term], CoqStep] = {}
    for scope, x, terms, exponent in sums:
        new = _write_sum_as_term(terms, common if exponent else 1)
        # A step without a change would only lengthen the proof.
        if new != x and _are_divisors_sure(new, positive):
            outcome.setdefault((scope, x), CoqStep(scope, x, new))
    shifted = [
        step
        for scope, side in sides
        for step in _yield_unshifting_steps(scope, side, common, alone)
    ]
    return [
        *outcome.values(),
        *dict.fromkeys(step for step in shifted if _are_divisors_sure(step.new, positive)),
    ]


def _function_numbers_in_term(x: Term) -> frozenset[int]:
    """Return the numbers of the functions in a term."""
    return frozenset(x.numbers[:1] if x.head == "Fun" else ()).union(
        *map(_function_numbers_in_term, x.below)
    )


def _yield_unshifting_steps(
    scope: tuple[int, ...], x: Term, common: int, alone: frozenset[int]
) -> Iterator[CoqStep]:
    """Yield steps from e^{a + c} / Σ_j e^{b_j + c} to e^a / Σ_j e^{b_j}, if c has a function of ``alone`` in it."""
    for y in x.below:
        yield from _yield_unshifting_steps(
            (x.numbers[0], *scope) if x.binds() else scope, y, common, alone
        )
    if (
        x.head != "Div"
        or x.below[0].head != "Exp"
        or x.below[1].head != "Sum"
        or x.below[1].below[0].head != "Exp"
    ):
        return
    try:
        above, below = (
            _expand_coq_term(x.below[0].below[0]),
            _expand_coq_term(x.below[1].below[0].below[0]),
        )
    except Refused:
        return
    # Terms above the line are moved under the sum, to compare them with terms in it.
    raised = {
        _CoqMonomial(m.sorts, tuple(moved(f, 1, len(m.sorts)) for f in m.factors)): m for m in above
    }
    # A common factor e^c of numerator and denominator may be removed.
    both = {
        n: m
        for n, m in raised.items()
        if below.get(n) == above[m]
        and alone & _function_numbers_in_term(Term("Mul", (), m.factors))
    }
    if both:
        top = _write_sum_as_term({m: c for m, c in above.items() if m not in both.values()}, common)
        remaining = {m: c for m, c in below.items() if m not in both}
        rest = _write_sum_as_term(remaining, common)
        total = Term("Sum", x.below[1].numbers, (Term("Exp", (), (rest,)),))
        exponential = Term("Exp", (), (top,))
        yield CoqStep(scope, x, Term("Div", (), (exponential, total)))


def _yield_exponent_places(
    scope: tuple[int, ...], x: Term, divisors: bool
) -> Iterator[tuple[tuple[int, ...], Term, bool]]:
    """Yield exponents and arguments, the innermost first, and whether each is an exponent; ``divisors`` too if set."""
    for n, y in enumerate(x.below):
        inside = (x.numbers[0], *scope) if x.binds() else scope
        yield from _yield_exponent_places(inside, y, divisors)
        # Arguments of functions must be in one order too.
        if x.head in ("Exp", "One", "Over") or (
            divisors and x.head == "Div" and n and y.head != "Num"
        ):
            yield inside, y, x.head == "Exp"


def merged(free: tuple[int, ...], left: Term, right: Term) -> list[CoqStep]:
    """Return steps that make both sides sums over the one index of their divisors, equal term by term."""
    try:
        sums = [_expand_coq_term(left), _expand_coq_term(right)]
    except Refused:
        return []
    entries = [_bound_indices_in_divisors(m) for terms in sums for m in terms]
    sorts = {m_sort for each in entries for _, m_sort in each}
    # Divisors over several sorts share no single outer sum.
    if len(sorts) != 1:
        return []
    (sort,) = sorts
    bodies = []
    for terms in sums:
        parts = [_find_summand_over_sort(c, m, sort) for m, c in _in_turn(terms)]
        # A summand without an index of the sort cannot be moved under the sum.
        if any(part is None for part in parts):
            return []
        bodies.append(joined("Add", [part for part in parts if part is not None]))
    over = [
        CoqStep(free, side, Term("Sum", (sort,), (body,)))
        for side, body in zip((left, right), bodies, strict=True)
    ]
    return [*over, CoqStep((sort, *free), *bodies)]


def _in_turn(x: _Sum) -> list[tuple[_CoqMonomial, Fraction]]:
    return sorted(x.items(), key=lambda term: _sorting_key_of_monomial(term[0]))


def _bound_indices_in_divisors(m: _CoqMonomial) -> set[tuple[int, int]]:
    """Return the bound indices in divisors, with their sorts."""
    many = len(m.sorts)
    result = {i for f in m.factors if f.head == "Div" for i in free_indices(f) if i < many}
    return {(i, m.sorts[many - 1 - i]) for i in result}


def _find_summand_over_sort(c: Fraction, m: _CoqMonomial, sort: int) -> Term | None:
    """Return the summand over an index of this sort, that of the divisors if there are some; None if there is none."""
    many = len(m.sorts)
    choices = sorted(i for i, _ in _bound_indices_in_divisors(m)) or [
        i for i in range(many) if m.sorts[many - 1 - i] == sort
    ]
    if not choices:
        return None
    p = choices[0]
    # The chosen index becomes the outermost one.
    shifted = {i: i - 1 for i in range(p + 1, many)}
    to = {p: many - 1, **shifted}
    sorts = tuple(s for n, s in enumerate(m.sorts) if n != many - 1 - p)
    factors = tuple(renamed(f, to) for f in m.factors)
    return _summed_up(c, _CoqMonomial(sorts, factors), None)


def regrouped(free: tuple[int, ...], side: Term) -> Iterator[CoqStep]:
    """Yield steps from Σ_j Σ_i g_i E_ij / Z_i to Σ_i g_i (Σ_j E_ij) / Z_i, and to Σ_i g_i if Z_i is Σ_j E_ij."""
    # Each round may uncover another divisor that cancels.
    for _ in range(_ROUNDS):
        try:
            expanded = _expand_coq_term(side).items()
            parts = [(c, m, _cancel_divisor_with_sum(m)) for m, c in expanded]
        except Refused:
            return
        # Nothing is left to cancel.
        if not any(node for _, _, (_, node) in parts):
            return
        there, after = (
            joined(
                "Add",
                [
                    _summed_up(c, rest, one and (one if with_node else number(1)))
                    for c, _, (rest, one) in parts
                ],
            )
            # First with Z / Z in place, then with 1, so that Coq follows each step.
            for with_node in (True, False)
        )
        yield CoqStep(free, side, there)
        for _, _, (rest, node) in parts:
            if node:
                yield CoqStep((*reversed(rest.sorts), *free), node, number(1))
        side = after


def _summed_up(c: Fraction, m: _CoqMonomial, more: Term | None) -> Term:
    coefficient = [number(c)] if c != 1 else []
    inner = joined("Mul", [*coefficient, *m.factors])
    inner = Term("Mul", (), (inner, more)) if more else inner
    for sort in reversed(m.sorts):
        inner = Term("Sum", (sort,), (inner,))
    return inner


def _cancel_divisor_with_sum(m: _CoqMonomial) -> tuple[_CoqMonomial, Term | None]:
    """Return a monomial with a divisor Z and the sum over j equal to Z cancelled, and both as one factor."""
    many = len(m.sorts)
    for divisor in (f for f in m.factors if f.head == "Div"):
        ((body, c), *others) = _expand_coq_term(divisor.below[1]).items()
        # Only a divisor that is a single sum can cancel with one.
        if others or c != 1 or len(body.sorts) != 1:
            continue
        same_sort = (p for p in range(many) if m.sorts[many - 1 - p] == body.sorts[0])
        for p in same_sort:
            inside = [f for f in m.factors if _has_free_index(f, p)]
            wanted = [moved(renamed(f, {0: p + 1}), -1) for f in body.factors]
            # The divisor must not depend on the index that is summed.
            if divisor in inside or _canonical_term_texts(inside) != _canonical_term_texts(wanted):
                continue
            rest = [f for f in m.factors if f not in inside]
            rest.remove(divisor)
            total = joined(
                "Mul", [renamed(f, {p: 0, **{i: i + 1 for i in range(p)}}) for f in inside]
            )
            total_term = Term("Sum", body.sorts, (total,))
            node = Term("Mul", (), (total_term, moved(divisor, -1, p + 1)))
            sorts = tuple(s for n, s in enumerate(m.sorts) if n != many - 1 - p)
            moved_rest = tuple(moved(f, -1, p + 1) for f in rest)
            return _CoqMonomial(sorts, moved_rest), node
    return m, None


def _canonical_term_texts(terms: Sequence[Term]) -> list[str]:
    return sorted(str(canonical(x)) for x in terms)


def canonical(x: Term) -> Term:
    """Return a term with sums of terms in one order, or unchanged if they have too many terms."""
    try:
        return _write_sum_as_term(_expand_coq_term(x), 1)
    except Refused:
        return x


@lru_cache(_KEPT)
def _expand_coq_term(x: Term) -> _Sum:
    if x.head == "Num":
        if x.numbers[0]:
            return {_CoqMonomial((), ()): Fraction(x.numbers[0])}
        return {}
    if x.head == "Add":
        terms = _collect_like_monomials(
            term for y in x.below for term in _expand_coq_term(y).items()
        )
        if len(terms) > _MANY:
            raise Refused("too many terms")
        return terms
    if x.head == "Mul":
        return _multiply_monomial_sums(*map(_expand_coq_term, x.below))
    if x.head == "Div":
        return _multiply_monomial_sums(_expand_coq_term(x.below[0]), _invert_coq_term(x.below[1]))
    if x.head == "Sum":
        # A factor without the index leaves the sum.
        return _sum_monomials_over_sort(x.numbers[0], _expand_coq_term(x.below[0]))
    # Anything else is an atom, with its arguments in one order.
    below = tuple(
        Term(y.head, y.numbers, tuple(map(canonical, y.below)))
        if y.head in ("One", "Over")
        else canonical(y)
        for y in x.below
    )
    return {_CoqMonomial((), (Term(x.head, x.numbers, below),)): Fraction(1)}


def _invert_coq_term(x: Term) -> _Sum:
    """Return 1/x, where x may be a number times a product."""
    if x.head == "Mul":
        return _multiply_monomial_sums(*map(_invert_coq_term, x.below))
    terms = _expand_coq_term(x)
    # A product has the reciprocals of its factors; a sum has one reciprocal as a whole.
    if len(terms) == 1:
        ((m, c),) = terms.items()
        if not m.sorts:
            factors = tuple(Term("Div", (), (number(1), f)) for f in m.factors)
            return {_CoqMonomial((), factors): 1 / c}
    return {
        _CoqMonomial((), (Term("Div", (), (number(1), _write_sum_as_term(terms, 1))),)): Fraction(1)
    }


def _collect_like_monomials(terms: Iterable[tuple[_CoqMonomial, Fraction]]) -> _Sum:
    """Return the sum of terms, some of which may be multiples of one monomial."""
    out: dict[_CoqMonomial, Fraction] = {}
    for m, c in terms:
        out[m] = out.get(m, Fraction(0)) + c
    return {m: c for m, c in out.items() if c}


def _multiply_monomial_sums(a: _Sum, b: _Sum) -> _Sum:
    if len(a) * len(b) > _MANY:
        raise Refused("too many terms")
    terms = []
    for (m, c), (n, d) in product(a.items(), b.items()):
        # the sums of n are nested within those of m
        left = [moved(f, len(n.sorts)) for f in m.factors]
        right = [moved(f, len(m.sorts), len(n.sorts)) for f in n.factors]
        factors = (*left, *right)
        sorts = (*m.sorts, *n.sorts)
        terms.append((_order_coq_monomial(sorts, factors), c * d))
    return _collect_like_monomials(terms)


def moved(x: Term, by: int, above: int = 0) -> Term:
    """Return a term with its free indices from ``above`` on shifted."""
    return _replace_term_seats(x, lambda i: i + by if i >= above else i, False)


def _sum_monomials_over_sort(sort: int, x: _Sum) -> _Sum:
    def over(m: _CoqMonomial) -> _CoqMonomial:
        bound = len(m.sorts)
        # Σ of a term without the index is the size times the term.
        if any(_has_free_index(f, bound) for f in m.factors):
            return _order_coq_monomial((sort, *m.sorts), m.factors)
        factors = [moved(f, -1, bound) for f in m.factors]
        return _order_coq_monomial(m.sorts, (*factors, Term("Size", (sort,))))

    return _collect_like_monomials((over(m), c) for m, c in x.items())


def free_indices(x: Term) -> frozenset[int]:
    """Return the indices of a term that are not bound in it."""
    return frozenset(_indices_from_outside(x))


@lru_cache(_KEPT)
def in_order(x: Term, scope: tuple[int, ...], turns: bool = True) -> tuple[tuple[int, ...], Term]:
    """Return a term with its free indices numbered as ``compact`` does in ``Clearing.v``, and their sorts.

    Without ``turns`` i = j stays as written, which readers of terms do not take for j = i.
    """
    order = order_of(x)
    return tuple(scope[i] for i in order), renamed(
        x, {old: new for new, old in enumerate(order)}, turns=turns
    )


def order_of(x: Term) -> list[int]:
    """Return the free indices of a term in that order."""
    every = _indices_from_outside(x)
    return [i for n, i in enumerate(every) if i not in every[n + 1 :]]


def _indices_from_outside(x: Term, depth: int = 0) -> list[int]:
    own = [i - depth for i in x.seats if i >= depth]
    inner = [i for y in x.below for i in _indices_from_outside(y, depth + x.binds())]
    return own + inner


def _has_free_index(x: Term, index: int) -> bool:
    return index in free_indices(x)


def _order_coq_monomial(sorts: tuple[int, ...], factors: Sequence[Term]) -> _CoqMonomial:
    """Return a monomial with the sums and the factors in one order."""
    sorts, factors = _contract_equal_indices(sorts, factors)
    # All orders of the sums of one sort are tried, which grows like a factorial.
    if len(sorts) > _DEEP:
        raise Refused("too many sums within each other")
    many = len(sorts)
    choices = []
    alike = [
        list(permutations(n for n in range(many) if sorts[n] == sort))
        for sort in sorted(set(sorts))
    ]
    for groups in product(*alike):  # the new place of each sum, counted outside in
        in_groups = enumerate(chain(*groups))
        to = {many - 1 - old: many - 1 - new for new, old in in_groups}
        renamed_factors = (renamed(f, to) for f in factors)
        sorted_factors = tuple(sorted(renamed_factors, key=str))
        choices.append(_CoqMonomial(tuple(sorted(sorts)), sorted_factors))
    # The least of all orders is the same for all ways to write the monomial.
    return min(choices, key=_sorting_key_of_monomial)


def _contract_equal_indices(
    sorts: tuple[int, ...], factors: Sequence[Term]
) -> tuple[tuple[int, ...], Sequence[Term]]:
    """Rewrite Σ_j [j = i] f(j) as f(i)."""
    for f in factors:
        if f.head != "Is Equal" or f.numbers[0] == f.numbers[1]:
            continue
        p, q = sorted(f.numbers)
        # Only a bound index may be replaced.
        if p < len(sorts):
            rest = [moved(renamed(g, {p: q}), -1, p + 1) for g in factors if g is not f]
            remaining = tuple(s for n, s in enumerate(sorts) if n != len(sorts) - 1 - p)
            return _contract_equal_indices(remaining, rest)
    return sorts, factors


def renamed(x: Term, to: Mapping[int, int], turns: bool = True) -> Term:
    """Return a term with other numbers for its free indices."""
    return _replace_term_seats(x, lambda i: to.get(i, i), turns)


def _replace_term_seats(x: Term, to: Callable[[int], int], turns: bool, depth: int = 0) -> Term:
    if not x.seats:
        parts = tuple(_replace_term_seats(y, to, turns, depth + x.binds()) for y in x.below)
        return Term(
            x.head,
            x.numbers,
            parts,
        )
    seats = [to(i - depth) + depth if i >= depth else i for i in x.seats]
    # Equality is symmetric, so its indices are sorted.
    own = x.numbers[: -len(seats)]
    symmetric = turns and x.head == "Is Equal"
    return Term(x.head, (*own, *(sorted(seats) if symmetric else seats)))


def _write_sum_as_term(x: _Sum, common: int) -> Term:
    """Return the sum, with every coefficient an integer over ``common``."""
    parts = []
    for m, c in _in_turn(x):
        inner = joined("Mul", m.factors)
        for sort in reversed(m.sorts):
            inner = Term("Sum", (sort,), (inner,))
        unit = number(Fraction(1, common))
        # Coefficients in one unit: equal exponents are then equal terms.
        inner = (Term("Mul", (), (unit, inner)) if common > 1 else inner) if m.factors else unit
        whole = c * common
        parts.append(inner if whole == 1 else Term("Mul", (), (number(whole), inner)))
    return joined("Add", parts)


def is_positive(x: Term, positive: frozenset[int]) -> bool:
    """Return whether a term is positive by its form, as ``positive`` in ``Meaning.v``."""
    if x.head == "Num":
        return x.numbers[0] > 0
    if x.head == "Letter":
        return x.numbers[0] in positive
    return x.head in ("Size", "Exp") or (
        x.head in ("Add", "Mul", "Div", "Sum") and all(is_positive(y, positive) for y in x.below)
    )


def _are_divisors_sure(x: Term, positive: frozenset[int]) -> bool:
    """Return whether all divisors are positive by their form, as ``sure`` in ``Accepting.v``."""
    return (x.head != "Div" or is_positive(x.below[1], positive)) and all(
        _are_divisors_sure(y, positive) for y in x.below
    )

"""Counting how far one must look, for ``checker``: the theorems of ``counting`` and ``rows``, read off them anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from symattn.proof.checker_reading import CheckedNode, Rejected, expect_few, form

_NUMERATOR = frozenset({"number", "size", "letter", "is", "sum", "product", "exp", "total", "function"})
_EXPONENT = frozenset({"number", "letter", "is", "sum", "product", "total", "function"})
Monomial = tuple[tuple[str, ...], bool, frozenset[str]]  # letters, whether the sign is −, indices in letters


@dataclass(frozen=True)
class CountingLimits:
    """D and T of each sort."""

    counted: dict[str, int]
    stable: dict[str, int]


def cut_off(
    numerator: CheckedNode,
    scope: Mapping[str, str],
    more: Mapping[str, int] | None = None,
    beside: Iterable[CheckedNode] = (),
) -> CountingLimits:
    """D and T; rejected where an exponent or the numerator is not as the theorem needs it."""
    counted = bound_in_a_term(numerator) + Counter(scope.values()) + Counter(more or {})
    exponents = [y.below[0] for x in (numerator, *beside) for y in x.all() if y.kind == "exp"]
    for exponent in exponents:
        monomials(exponent)
    bound: Counter[str] = Counter()
    outside: set[str] = set()
    for exponent in exponents:
        bound |= bound_in_a_term(exponent)
        outside |= _sorts_of_free(exponent)
    sorts = counted.keys() | bound.keys()
    stable = {s: bound[s] + (2 * counted[s] if s in outside else 0) if bound[s] else 0 for s in sorts}
    return CountingLimits({s: counted[s] for s in sorts}, stable)


def box(limits: CountingLimits) -> list[dict[str, int]]:
    """All sizes 0 ≤ n ≤ T + D."""
    sorts = sorted(limits.counted)
    ranges = [range(limits.stable[s] + limits.counted[s] + 1) for s in sorts]
    expect_few(prod(map(len, ranges)))
    return [dict(zip(sorts, ns, strict=True)) for ns in product(*ranges)]


def one_size(numerator: CheckedNode, limits: CountingLimits) -> dict[str, int]:
    """n = max(T, D, 1); rejected unless every bound index shows in every term and nothing cancels in exponents."""
    for x in numerator.all():
        if x.kind in ("is", "size") or (x.kind == "total" and not _shows(x.label, x.below[0])):
            raise Rejected("one size is not enough: a bound index may not show")
    signs: dict[tuple[str, ...], bool] = {}
    for exponent in (x.below[0] for x in numerator.all() if x.kind == "exp"):
        for letters, negative, indices in monomials(exponent):
            if indices and signs.setdefault(letters, negative) != negative:
                raise Rejected("one size is not enough: exponents may cancel")
    return {s: max(limits.stable[s], d, 1) for s, d in limits.counted.items()}


def _shows(name: str, x: CheckedNode) -> bool:
    if x.kind == "sum":
        return all(_shows(name, y) for y in x.below)
    if x.kind == "product":
        return any(_shows(name, y) for y in x.below)
    return _shows(name, x.below[0]) if x.kind == "total" else name in x.free


def row_grid(numerator: CheckedNode, scope: Mapping[str, str]) -> tuple[CountingLimits, list[dict[str, int]]]:
    """The limits at the most rows, and all sizes needed for all numbers of rows; see ``rows``."""
    forms = _forms(numerator)
    rows = sorted({s for z, _ in forms for s in _sorts_of_free(z)})
    _expect_rows(numerator, [z for z, _ in forms], rows)
    counted = cut_off(numerator, scope).counted
    grid: list[dict[str, int]] = []
    limits = CountingLimits({}, {})
    for ns in product(*[range(counted.get(r, 0) + 1) for r in rows]):
        there = dict(zip(rows, ns, strict=True))
        more: Counter[str] = Counter()
        for z, times in forms:
            places = 1
            for s in _sorts_of_free(z):
                places *= there[s]
            for s, bound in bound_in_a_term(z).items():
                more[s] += times * places * bound
        limits = cut_off(numerator, scope, more, [z for z, _ in forms])
        others = sorted(limits.counted.keys() - set(rows))
        ranges = [range(1, max(limits.stable[s], 1) + limits.counted[s] + 1) for s in others]
        expect_few(len(grid) + prod(map(len, ranges)))
        grid += [{**there, **dict(zip(others, ms, strict=True))} for ms in product(*ranges)]
    return limits, grid


def _forms(numerator: CheckedNode) -> list[tuple[CheckedNode, int]]:
    """The arguments of reciprocals up to the names of their rows, each with the most of that form in a term."""
    result = {_row_form(x): x.below[0] for x in numerator.all() if x.kind == "function" and x.label == "1/"}
    return [(z, _most(numerator, key)) for key, z in result.items()]


def _row_form(x: CheckedNode) -> str:
    return form(x.below[0], dict.fromkeys(x.free, "row"))


def _most(x: CheckedNode, key: object) -> int:
    if x.kind == "function":
        return int(x.label == "1/" and _row_form(x) == key)
    if x.kind == "product":
        return sum(_most(y, key) for y in x.below)
    return max((_most(y, key) for y in x.below), default=0)


def _expect_rows(numerator: CheckedNode, arguments: list[CheckedNode], rows: list[str]) -> None:
    for z in arguments:
        if len(_sorts_of_free(z)) < len(z.free):
            raise Rejected("a divisor under a sum has two indices of one sort")
        if any(bound_in_a_term(z)[r] for r in rows) or any(y.kind == "function" and y.label == "1/" for y in z.all()):
            raise Rejected("the rows are not independent")
    for x in (numerator, *arguments):
        for y in x.all():
            if y.kind == "exp" and any(bound_in_a_term(y.below[0])[r] for r in rows):
                raise Rejected("an exponent sums over rows")


def bound_in_a_term(x: CheckedNode) -> Counter[str]:
    """The most bound indices of each sort in any term, outside exponents; a size counts as one."""
    if x.kind not in _NUMERATOR:
        raise Rejected(f"{x.kind} in a numerator")
    results: Counter[str] = Counter()
    if x.kind == "size":
        results[x.label] = 1
    elif x.kind == "total":
        results = bound_in_a_term(x.below[0]) + Counter(x.sorts)
    elif x.kind in ("sum", "product"):
        for y in x.below:
            there = bound_in_a_term(y)
            results = results | there if x.kind == "sum" else results + there
    return results


def monomials(x: CheckedNode) -> list[Monomial]:
    """The monomials of an exponent; rejected where it is no polynomial in letters as the theorem needs it."""
    if x.kind not in _EXPONENT or (x.kind == "is" and x.label != "="):
        raise Rejected(f"{x.kind} in an exponent")
    if x.kind == "number":
        return [((), x.label < 0, frozenset())]
    if x.kind == "is":
        return [(("=",), False, frozenset())]
    if x.kind == "letter":
        return [((x.label,), False, x.free)]
    if x.kind == "function":
        return [((form(x, dict.fromkeys(x.free, "any")),), False, x.free)]
    if x.kind == "sum":
        return [m for y in x.below for m in monomials(y)]
    if x.kind == "total":
        inside = monomials(x.below[0])
        if any(x.label not in indices for _, _, indices in inside):
            raise Rejected("a size in an exponent")
        return inside
    out: list[Monomial] = [((), False, frozenset())]
    for y in x.below:
        expect_few(len(out))
        out = [(tuple(sorted(a + b)), minus != other, i | j) for a, minus, i in out for b, other, j in monomials(y)]
    return out


def _sorts_of_free(x: CheckedNode) -> set[str]:
    """The sorts of the free indices of ``x``."""
    return {s for y in x.all(into_functions=True) for i, s in zip(y.indices, y.sorts, strict=False) if i[0] in x.free}

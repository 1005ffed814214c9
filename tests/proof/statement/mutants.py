"""Every way to falsify a formula at one place, of ten kinds."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from symattn import printing as pr

OTHER_SIGN = {"≤": "≥", "≥": "≤", "<": ">", ">": "<", "=": "<", "→": "=", "≠": "=", "≈": "≠"}
Mutant = tuple[str, Any]


@dataclass(frozen=True)
class Letters:
    """The index letters, sizes and matrices that a formula of this section could have had instead."""

    indices: tuple[str, ...] = ()
    sizes: tuple[pr.Node, ...] = ()
    matrices: frozenset[str] = frozenset()


def mutants(x: pr.Node, letters: Letters) -> dict[str, Mutant]:
    """All that print otherwise than ``x``, each once: text → (kind, formula)."""
    found = {pr.text(changed): (kind, changed) for kind, changed in _within(x, letters, "")}
    same = {pr.text(x), pr.text(_in_order(x, letters))}
    return {printed: m for printed, m in found.items() if not same & {printed, pr.text(_in_order(m[1], letters))}}


def _in_order(x: Any, letters: Letters) -> Any:
    """The formula with its index letters renamed in the order of their occurrence."""
    used = dict.fromkeys(n for n in _names(x) if not n.sub and n.base in letters.indices)
    return pr.replaced(x, {n: pr.Name(f"ι{number}") for number, n in enumerate(used)})


def letters_of(x: pr.Node, indices: tuple[str, ...], sizes: tuple[str, ...], matrices: frozenset[str]) -> Letters:
    """The letters that occur, and one index letter that does not."""
    names = [n for n in _names(x)]
    used = tuple(i for i in indices if any(n.base == i and not n.sub for n in names))
    more = tuple(i for i in indices if i not in used)[:1]
    printed = {pr.text(n): n for n in names if pr.text(n) in sizes}
    return Letters((*used, *more), tuple(printed.values()), matrices)


def _names(x: Any) -> Iterator[pr.Name]:
    if isinstance(x, tuple):
        for part in x:
            yield from _names(part)
    elif isinstance(x, pr.Node):
        if isinstance(x, pr.Name):
            yield x
        node: Any = x
        for f in fields(node):
            yield from _names(getattr(x, f.name))


def _within(x: Any, letters: Letters, where: str) -> Iterator[Mutant]:
    """Changes of the node, then of each of its parts."""
    if isinstance(x, tuple):
        for i, part in enumerate(x):
            for kind, changed in _within(part, letters, where):
                yield kind, (*x[:i], changed, *x[i + 1 :])
        return
    if not isinstance(x, pr.Node):
        return
    yield from _here(x, letters, where)
    node: Any = x
    for f in fields(node):
        if f.name in ("function", "index", "condition") and not isinstance(x, pr.At):
            continue
        inner = "index" if f.name == "sub" else where
        for kind, changed in _within(getattr(x, f.name), letters, inner):
            yield kind, replace(node, **{f.name: changed})


def _here(x: pr.Node, letters: Letters, where: str) -> Iterator[Mutant]:
    work = _CHANGES.get(type(x))
    if work:
        yield from work(x)
    if isinstance(x, pr.Name):
        yield from _of_name(x, letters, where)


def _relation(x: pr.Relation) -> Iterator[Mutant]:
    for i, (sign, side) in enumerate(x.rest):
        if sign in OTHER_SIGN:
            yield "relation", replace(x, rest=(*x.rest[:i], (OTHER_SIGN[sign], side), *x.rest[i + 1 :]))


def _sum(x: pr.Sum) -> Iterator[Mutant]:
    for i, term in enumerate(x.terms):
        other = term.body if isinstance(term, pr.Neg) else pr.Neg(term)
        yield "sign", pr.Sum((*x.terms[:i], other, *x.terms[i + 1 :]))
        rest = (*x.terms[:i], *x.terms[i + 1 :])
        yield "dropped term", pr.Sum(rest) if len(rest) > 1 else rest[0]


def _product(x: pr.Product) -> Iterator[Mutant]:
    for i in range(len(x.factors)):
        rest = (*x.factors[:i], *x.factors[i + 1 :])
        yield "dropped factor", pr.Product(rest, x.sign) if len(rest) > 1 else rest[0]
    if len(x.factors) > 1 and all(map(_names_a_letter, x.factors[:2])):  # numbers commute
        yield "order", pr.Product((x.factors[1], x.factors[0], *x.factors[2:]), x.sign)


def _names_a_letter(x: pr.Node) -> bool:
    return any(True for _ in _names(x))


def _over(x: pr.Over) -> Iterator[Mutant]:
    yield "fraction", pr.Over(x.denominator, x.numerator)
    yield "dropped factor", x.numerator


def _power(x: pr.Power) -> Iterator[Mutant]:
    if isinstance(x.exponent, pr.Number):
        yield "exponent", pr.Power(x.base, pr.Number(x.exponent.value + 1))
    else:
        yield "sign", pr.Power(x.base, x.exponent.body if isinstance(x.exponent, pr.Neg) else pr.Neg(x.exponent))


def _number(x: pr.Number) -> Iterator[Mutant]:
    yield "constant", pr.Number(x.value + 1)
    yield "constant", pr.Number(x.value + Fraction(1, 7))


def _of_name(x: pr.Name, letters: Letters, where: str) -> Iterator[Mutant]:
    if where == "index" and not x.sub and x.base in letters.indices:
        yield from (("index", pr.Name(other)) for other in letters.indices if other != x.base)
    elif pr.text(x) in map(pr.text, letters.sizes):
        yield from (("size", other) for other in letters.sizes if pr.text(other) != pr.text(x))
    elif where != "index" and pr.text(x) in letters.matrices:
        yield "transposition", pr.Transposed(x)


_CHANGES: dict[type, Any] = {
    pr.Relation: _relation,
    pr.Sum: _sum,
    pr.Product: _product,
    pr.Over: _over,
    pr.Power: _power,
    pr.Number: _number,
    pr.Root: lambda x: iter([("exponent", x.body)]),
    pr.Neg: lambda x: iter([("sign", x.body)]),
    pr.Transposed: lambda x: iter([("transposition", x.body)]),
    pr.Fence: lambda x: iter([("dropped bars", x.body)] if x.style in ("abs", "norm") else []),
    pr.Decimal: lambda x: iter([("constant", pr.Decimal(_next_digit(x.digits)))]),
}


def _next_digit(digits: str) -> str:
    return digits[:-1] + str((int(digits[-1]) + 1) % 10)

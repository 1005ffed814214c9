"""Formulas in random letters as sums of products under sums over indices."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product

from symattn.document import notation as nt
from symattn.document.errors import Refused
from symattn.document.notation import Node

_MOMENTS = {"E": 1, "Var": 1, "Cov": 2}


@dataclass(frozen=True)
class ExpandedTerm:
    """Σ over the bound indices (each with what it runs to) of a product of factors."""

    bound: tuple[tuple[str, Node], ...]
    factors: tuple[Node, ...]


def is_moment(x: Node) -> bool:
    """Return whether ``x`` is E[·], Var(·) or Cov(·, ·)."""
    if not isinstance(x, nt.Call) or not isinstance(x.function, nt.Name) or x.function.sub:
        return False
    return _MOMENTS.get(x.function.base) == len(x.arguments)


def is_random(x: Node, families: Container[str]) -> bool:
    """Return whether a random letter stands in ``x`` outside of E, Var and Cov."""
    if isinstance(x, nt.Name):
        return x.base in families
    return not is_moment(x) and any(is_random(part, families) for part in nt.parts(x))


def expand(x: Node, families: Container[str], fresh: Iterator[int]) -> list[ExpandedTerm]:
    """``x`` as a sum of terms; every sum gets an index of its own, named by the next of ``fresh``."""
    if not is_random(x, families):
        return [ExpandedTerm((), (x,))]
    match x:
        case nt.Name():
            return [ExpandedTerm((), (x,))]
        case nt.Fence(style="round"):
            return expand(x.body, families, fresh)
        case nt.Sum():
            return [term for part in x.terms for term in expand(part, families, fresh)]
        case nt.Neg():
            return _multiplied([[ExpandedTerm((), (nt.node(-1),))], expand(x.body, families, fresh)])
        case nt.Product():
            return _multiplied([expand(factor, families, fresh) for factor in x.factors])
        case nt.Over() if not is_random(x.denominator, families):
            factor = nt.Over(nt.node(1), x.denominator)
            return _multiplied([expand(x.numerator, families, fresh), [ExpandedTerm((), (factor,))]])
        case nt.Power(exponent=nt.Number(value=n)) if n.denominator == 1 and n >= 0:
            return _multiplied([expand(x.base, families, fresh) for _ in range(int(n))])
        case nt.Big(operator="sum", index=nt.Name(base=index), high=Node() as high) if x.low == nt.node(1):
            new = f"{index}#{next(fresh)}"
            terms = expand(renamed(x.body, index, new), families, fresh)
            return [ExpandedTerm(((new, high), *term.bound), term.factors) for term in terms]
    raise Refused(f"moments: no expectation of a {type(x).__name__} of random letters")


def _multiplied(factors: list[list[ExpandedTerm]]) -> list[ExpandedTerm]:
    return [
        ExpandedTerm(
            tuple(chain.from_iterable(t.bound for t in terms)), tuple(chain.from_iterable(t.factors for t in terms))
        )
        for terms in product(*factors)
    ]


Index = tuple[str, int, str]


def free_indices(x: Node, families: Container[str], bound: frozenset[str] = frozenset()) -> Iterator[Index]:
    """The numbers and free letters that occur as indices of random letters: base, place, index."""
    if isinstance(x, nt.Name):
        for place, index in enumerate(x.sub if x.base in families else ()):
            if isinstance(index, nt.Number) and index.value.denominator == 1 and index.value >= 1:
                yield x.base, place, str(index.value)
            elif not isinstance(index, nt.Name) or index.sub:
                raise Refused(f"moments: an index of {x.base} is neither a letter nor a number from 1 on")
            elif index.base not in bound:
                yield x.base, place, index.base
        return
    inner = bound | {x.index.base} if isinstance(x, nt.Big) and isinstance(x.index, nt.Name) else bound
    for part in nt.parts(x):
        yield from free_indices(part, families, inner)


def replaced(x: Node, meanings: Mapping[Node, Node]) -> Node:
    """``x`` where every formula that is a key stands for its meaning, and so on within that."""
    if x in meanings:
        return replaced(meanings[x], {k: v for k, v in meanings.items() if k != x})
    return nt.mapped(x, lambda part: replaced(part, meanings))


def renamed(x: Node, old: str, new: str) -> Node:
    """``x`` with another letter for a free index; an inner sum over the same letter keeps its own."""
    if x == nt.Name(old):
        return nt.Name(new)
    if isinstance(x, nt.Big) and x.index == nt.Name(old):
        return x
    return nt.mapped(x, lambda part: renamed(part, old, new))

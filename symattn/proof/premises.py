"""What a proof rests on besides equations: signs that are read off a form, and places where two sides differ."""

from __future__ import annotations

from dataclasses import dataclass

from symattn.arrays.index.expressions import Expression, Index, Letter


@dataclass(frozen=True)
class Sign:
    """``expression`` > 0, or ≥ 0, by its form, with the arrays in ``known`` never negative.

    The letters in ``meant`` stand for expressions, each with its own indices; with these in their place it is
    ``equal``, if that is given.
    """

    relation: str
    expression: Expression
    known: frozenset[str] = frozenset()
    meant: tuple[tuple[Letter, Expression], ...] = ()
    equal: Expression | None = None


@dataclass(frozen=True)
class Differing:
    """``left`` and ``right`` are not equal for all letters, at some place of ``sizes``; for ``rules`` see ``Proof``."""

    indices: tuple[Index, ...]
    left: Expression
    right: Expression
    sizes: tuple[tuple[str, int], ...]
    rules: tuple[tuple[str, str], ...] = ()


Premise = Sign | Differing

"""What a proof rests on besides equations: signs that are read off a form, and places where two sides differ."""

from __future__ import annotations

from dataclasses import dataclass

from symattn.arrays.index.expressions import Expression, Index, Letter


@dataclass(frozen=True)
class Sign:
    """``expression`` > 0, or ≥ 0, by its form, with the arrays in ``known`` never negative.

    The letters in ``meant`` stand for expressions, each with its own indices; with these in their place it is
    ``equal``, if that is given. ``laws`` names the law by which what an array in ``known`` stands for is not negative;
    without one that is a hypothesis. ``sides`` are the smaller and the larger side of which it is the gap;
    they are equal only where every array in ``only`` is 0 throughout. For ``rules`` see ``Proof``.
    """

    relation: str
    expression: Expression
    known: frozenset[str] = frozenset()
    meant: tuple[tuple[Letter, Expression], ...] = ()
    equal: Expression | None = None
    laws: tuple[tuple[str, str], ...] = ()
    sides: tuple[Expression, Expression] | None = None
    only: tuple[str, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Differing:
    """``left`` and ``right`` are not equal for all letters, at some place of ``sizes``; for ``rules`` see ``Proof``."""

    indices: tuple[Index, ...]
    left: Expression
    right: Expression
    sizes: tuple[tuple[str, int], ...]
    rules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Applied:
    """A rule gives ``conclusions``, pairs (smaller, larger), from ``premises``."""

    rule: str
    premises: tuple[Sign | Applied, ...]
    conclusions: tuple[tuple[Expression, Expression], ...]


Premise = Sign | Differing | Applied

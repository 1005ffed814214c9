"""Premises of a proof other than equations: signs by form, places where two sides differ, equal bits, conclusions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from symattn.arrays.index.expressions import Expression, Index, Letter
from symattn.proof.prover import Proof


@dataclass(frozen=True)
class Sign:
    """The premise ``expression`` > 0 or ≥ 0, by its form with the arrays in ``known`` never negative, or as a number.

    ``meant`` holds the meanings of letters, expressions with their own indices; with these in their place the
    expression is ``equal``. ``laws`` names the law by which the meaning of an array in ``known`` is not negative;
    without a law, that is a hypothesis. ``sides`` are the smaller and the larger side, whose gap it is; they are equal
    only if all entries of the arrays in ``only`` are 0. For ``rules`` see ``Proof``.
    """

    relation: str
    expression: Expression
    equal: Expression
    sides: tuple[Expression, Expression]
    known: frozenset[str] = frozenset()
    meant: tuple[tuple[Letter, Expression], ...] = ()
    laws: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Differing:
    """The premise that ``left`` and ``right`` are not always equal, at some place of ``sizes``; see ``Proof.rules``."""

    indices: tuple[Index, ...]
    left: Expression
    right: Expression
    sizes: tuple[tuple[str, int], ...]
    rules: tuple[tuple[str, str], ...] = ()


Part = tuple[str, Expression, tuple[Index, ...]]


@dataclass(frozen=True)
class Alike:
    """The premise that both of ``same`` do the same operations, and both of ``different`` differ for ``inputs``.

    The inputs are in the format ``of``. ``terms`` are (operation, operand, …), whose operands are places of earlier
    terms, or ("input", place), or ("number", number). ``same`` and ``different`` are places of terms.
    """

    terms: tuple[tuple[Any, ...], ...]
    same: tuple[tuple[int, ...], tuple[int, ...]]
    different: tuple[tuple[int, ...], tuple[int, ...]]
    of: str
    inputs: tuple[Fraction, ...]


@dataclass(frozen=True)
class Concluded:
    """A step by a rule of ``checker_steps`` from ``premises`` to ``conclusions``, whose parts ``PARTS`` names.

    ``about`` holds the rule's other data by name: for an *induction* the ``letter`` for a number, the ``sort`` of the
    size, and the expressions ``term`` and ``closed`` of its conclusion; for a *limit* the ``letter``, the value 0 or ∞
    that it tends ``to``, and whether it is a growing ``size``; for an *instance* a ``sort`` and its ``length``. The
    conclusions of other rules consist of parts, each a letter, its meaning and its indices:
    *fold*          a ``state`` along a ``sort``, its ``merge``, the output ``made`` from a state at the end, and the
                    ``result`` that it equals; for ``arrays`` and ``numbers`` see ``rules.Fold``
    *substitution*  ``left`` is ``through`` with ``equal`` for its letters, and ``right`` is it with ``to`` for them;
                    that ``equal`` and ``to`` are equal is a hypothesis
    *repeated*      a ``measure`` of a ``letter`` shrinks by ``factor`` when ``step`` replaces ``now``, an ``array``;
                    it ``tends`` to 0 or not
    """

    rule: str
    premises: tuple[Proof | Premise, ...] = ()
    conclusions: tuple[tuple[Expression, ...], ...] = ()
    about: Mapping[str, About] = field(default_factory=dict, hash=False)


About = str | bool | Expression | Part | tuple[str, ...] | tuple[Part, ...]
Premise = Sign | Differing | Alike | Concluded

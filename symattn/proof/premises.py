"""Premises of a proof besides equations: signs that are read off a form, and places where two sides differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from symattn.arrays.index.expressions import Expression, Index, Letter
from symattn.proof.prover import Proof


@dataclass(frozen=True)
class Sign:
    """``expression`` > 0, or ≥ 0, by its form, with the arrays in ``known`` never negative; > 0 also as a number.

    The letters in ``meant`` stand for expressions, each with its own indices; with these in their place it is
    ``equal``. ``laws`` names the law by which what an array in ``known`` stands for is not negative;
    without one that is a hypothesis. ``sides`` are the smaller and the larger side of which it is the gap;
    they are equal only where every array in ``only`` is 0 throughout. For ``rules`` see ``Proof``.
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
    """``left`` and ``right`` are not equal for all letters, at some place of ``sizes``; for ``rules`` see ``Proof``."""

    indices: tuple[Index, ...]
    left: Expression
    right: Expression
    sizes: tuple[tuple[str, int], ...]
    rules: tuple[tuple[str, str], ...] = ()


Part = tuple[str, Expression, tuple[Index, ...]]


@dataclass(frozen=True)
class Alike:
    """``same`` do the same operations, and with ``inputs`` in the format ``of`` both of ``different`` do not agree.

    ``terms`` are (operation, operand, …), with the places of terms before as operands; or ("input", place), or
    ("number", number). ``same`` and ``different`` are places of terms.
    """

    terms: tuple[tuple[Any, ...], ...]
    same: tuple[tuple[int, ...], tuple[int, ...]]
    different: tuple[tuple[int, ...], tuple[int, ...]]
    of: str
    inputs: tuple[Fraction, ...]


@dataclass(frozen=True)
class Concluded:
    """A rule of ``checker_steps`` gives ``conclusions`` from ``premises``; ``certificate.PARTS`` names their parts.

    ``about`` is what else the rule needs, by name: of an *induction* the ``letter`` for a number, the ``sort`` of the
    size, and the expressions ``term`` and ``closed`` that its conclusion is made of; of a *limit* the ``letter``, where
    it tends ``to``, 0 or ∞, and whether it is that of a ``size``, which grows; of an *instance* a ``sort`` and its
    ``length``. The conclusion of other rules is made of parts, each a letter, what it stands for, and its indices:

    *fold*          a ``state`` along a ``sort``, its ``merge``, what is ``made`` of a state at the end, and the
                    ``result``, which that is; for ``arrays`` and ``numbers`` see ``rules.Fold``
    *substitution*  ``left`` is ``through`` with ``equal`` for its letters, and ``right`` is that with ``to`` for them;
                    that ``equal`` and ``to`` are equal is a hypothesis
    *repeated*      a ``measure`` of a ``letter`` shrinks by ``factor`` as ``step`` takes the place of ``now``, an
                    ``array``; it ``tends`` to 0 or not
    """

    rule: str
    premises: tuple[Proof | Premise, ...] = ()
    conclusions: tuple[tuple[Expression, ...], ...] = ()
    about: Mapping[str, About] = field(default_factory=dict, hash=False)


About = str | bool | Expression | Part | tuple[str, ...] | tuple[Part, ...]
Premise = Sign | Differing | Alike | Concluded

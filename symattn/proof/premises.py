"""Premises of a proof besides equations: signs that are read off a form, and places where two sides differ."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from symattn.arrays.index.expressions import Expression, Index, Letter
from symattn.proof.prover import Proof


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


Part = tuple[str, Expression, tuple[Index, ...]]


@dataclass(frozen=True)
class Folding:
    """The parts of a state and of a merge: a letter, what it stands for, its indices.

    ``made`` is what is made of a state at the end, and ``result`` what that is. For the rest see ``rules.Fold``.
    """

    sort: str
    arrays: tuple[str, ...]
    numbers: tuple[str, ...]
    state: tuple[Part, ...]
    merge: tuple[Part, ...]
    made: tuple[Part, ...]
    result: tuple[Part, ...]


@dataclass(frozen=True)
class Substituted:
    """``left`` is ``through`` with ``equal`` for its letters, and ``right`` is that with ``to`` for them.

    That ``equal`` and ``to`` are equal is a hypothesis, or is shown where ``shown``.
    """

    left: Part
    right: Part
    through: Part
    equal: tuple[Part, ...]
    to: tuple[Part, ...]
    shown: bool


@dataclass(frozen=True)
class ShrinkingMeasure:
    """``measure`` of a letter shrinks by ``factor`` as ``step`` takes the place of ``now``, which ``premises`` say.

    It tends to 0 with the number of steps if ``tends``.
    """

    measure: Part
    step: Part
    now: Part
    factor: Part
    letter: str
    array: str
    tends: bool
    premises: tuple[Sign | Concluded, ...]


@dataclass(frozen=True)
class Averaged:
    """``of`` is linear in an array, whose letter and mean ``mean`` has, and at that mean it is ``result``."""

    of: Part
    mean: Part
    result: Part


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
    ``length``.
    """

    rule: str
    premises: tuple[Proof | Premise, ...]
    conclusions: tuple[tuple[Expression, ...], ...] = ()
    about: tuple[tuple[str, str | bool | Expression], ...] = ()


Premise = (
    Sign | Differing | Folding | Substituted | ShrinkingMeasure | Averaged | Alike | Concluded
)  # fmt: skip

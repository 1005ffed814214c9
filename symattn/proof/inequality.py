"""Inequalities for all sizes by a certificate: larger − smaller = a gap that is written so that nothing in it can be
negative.

The equation is an identity, which the prover decides; that the gap is not negative is read off its form (``signs``).
Hypotheses are inequalities too: each is a name for an expression that is assumed not to be negative, and the gap may
use the name as a letter that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import le, lt
from typing import Any

from symattn.arrays.index.expressions import Binder, Count, Expression, Letter
from symattn.arrays.index.namespace import spread
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade
from symattn.document.text import equal_sizes
from symattn.proof.certified import accepted
from symattn.proof.counting import nodes
from symattn.proof.hypotheses import declared_hypotheses
from symattn.proof.premises import Sign
from symattn.proof.prover import Proof, prove, sides_at, unsimplified
from symattn.proof.refuting import spread_sizes
from symattn.proof.signs import never_negative
from symattn.proof.statement import Declared, Letters, Numbers, Pair, Sides, all_true, growing_sizes, pairs, run
from symattn.proof.theorem import Decision, Refutation, all_proved

SEEDS = 8
SOME, MANY = 6, 400  # cases tried against the statement, and against its false variant


@dataclass(frozen=True)
class Certificate:
    """``sides`` gives pairs (smaller, larger), ``gap`` the difference of each, in a form that shows its sign.

    ``assumed`` is the hypotheses: name → (shape in sorts, function that gives the array that has no negative entry).
    ``named`` is letters of any sign that the gap may use, each with the function that gives what it stands for.
    ``false`` gives pairs of which some must fail where the hypotheses hold, or is several such variants.
    ``laws`` is letters like ``assumed``, each with the law by which what it stands for is not negative: "largest",
    "bounded", "magnitude" and "triangle" (see ``checker_signs``).
    With ``strict`` the smaller is less than the larger; a gap that is a number is then enclosed. Both are equal only
    where the letters in ``only``, named, assumed or lawful, are 0 throughout. The checker sees either by the gap.
    ``chosen`` gives arrays that meet the hypotheses where numbers are tried: the bound b as the largest value, say.
    """

    declared: Declared
    sides: Sides
    gap: Sides
    false: Sides | tuple[Sides, ...]
    assumed: Mapping[str, tuple[str, Sides]] = field(default_factory=dict)
    top: int = 3
    named: Mapping[str, tuple[str, Sides]] = field(default_factory=dict)
    chosen: Mapping[str, Sides] = field(default_factory=dict)
    laws: Mapping[str, tuple[str, Sides, str]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    strict: bool = False

    def decide(self) -> Decision:
        """``proved`` if the gap is the difference and is never negative by its form."""
        wrong = self.wrong()
        if wrong:
            return Decision(Evidence(Grade.REFUTED, wrong))
        try:
            proofs, signs = tuple(self._proofs(self.sides)), self._signs()
        except (Refused, Undecided, InputError) as reason:
            return Decision(Evidence(Grade.UNDECIDED, str(reason)))
        if not proofs:
            return Decision(Evidence(Grade.UNDECIDED, "nothing is stated"))
        if all(p.proved for p in proofs) and signs is not None:
            where, words = _IN_LETTERS if self.declared.arrays else _IN_NUMBERS
            said = declared_hypotheses(self.declared, self.assumed)
            evidence = accepted(Evidence(Grade.PROVED, where), proofs, signs)
            return Decision(evidence, ((words,),), (), proofs, said, signs)
        unsaid = "the form of the gap does not show its sign"
        return Decision(
            Evidence(Grade.UNDECIDED, unsaid if signs is None else next(p.why for p in proofs if not p.proved))
        )

    def wrong(self) -> str:
        """Sizes and a seed at which the statement fails in numbers; empty if nowhere."""
        return next((case for case, holds in islice(self._spread(), SOME) if not holds), "")

    def refute(self) -> Refutation:
        """Numbers that meet the hypotheses and at which the false variant fails."""
        variants = self.false if isinstance(self.false, tuple) else (self.false,)
        result = [self._failure(false) for false in variants]
        return Refutation(all(result), "; ".join(filter(None, result)), any(map(self._shown, variants)))

    def witness(self) -> str:
        """The first numbers that meet the hypotheses and at which the statement holds."""
        return next((case for case, holds in self._spread() if holds), "")

    def _proofs(self, sides: Sides) -> Iterator[Proof]:
        """larger − smaller = gap for every pair, of which a false variant may have less."""
        claimed = pairs(sides, self.declared, Letters())
        for (a, b), gap in zip(claimed, self._gaps(self._meant), strict=sides is self.sides):
            yield prove(spread(b - a, gap), spread(gap, b - a), self.declared.units)

    def _shown(self, false: Sides) -> bool:
        """Return whether the gaps would show the false variant as well."""
        try:
            return self._signs() is not None and all_proved(self._proofs(false))
        except (Refused, Undecided, InputError):
            return False

    def _gaps(self, given: Mapping[str, object]) -> list[Any]:
        """The gaps, with every name in ``assumed`` and ``named`` standing for what is given."""
        gaps = run(self.gap, self.declared, Letters(), given)
        return list(gaps) if isinstance(gaps, (list, tuple)) else [gaps]

    @property
    def _names(self) -> dict[str, tuple[str, Sides]]:
        lawful = {name: (shape, given) for name, (shape, given, _) in self.laws.items()}
        return {**self.assumed, **self.named, **lawful}

    @property
    def _meant(self) -> dict[str, Any]:
        """The expressions that the names stand for."""
        return {name: run(given, self.declared, Letters()) for name, (_, given) in self._names.items()}

    def _signs(self) -> tuple[Sign, ...] | None:
        """The gap is never negative by its form, every name in ``assumed`` being a letter that is not; None if not.

        Each sign says what the names stand for, and what the gap then is.
        """
        world, meant = Letters(), self._meant
        letters = {name: world.array(name, shape, self.declared) for name, (shape, _) in self._names.items()}
        meanings = tuple(pair for name in letters for pair in _meanings(letters[name], meant[name]))
        laws = tuple((name, law) for name, (_, _, law) in self.laws.items())
        known = frozenset((*self.assumed, *self.laws, *self.declared.positive, *self.declared.nonnegative))
        result = []
        claimed = pairs(self.sides, self.declared, world)
        for gap, whole, pair in zip(self._gaps(letters), self._gaps(meant), claimed, strict=True):
            smaller, larger = (spread(side, gap) for side in pair)
            for places in spread(gap, smaller).places():
                x = gap.at(places)
                if not never_negative(x, known) and not (self.strict and _is_number(x)):
                    return None
                sides = unsimplified(partial(sides_at, smaller, larger, places))
                relation, equal = ">" if self.strict else "≥", whole.at(places)
                result.append(Sign(relation, x, equal, sides, known, meanings, laws, self.only, self.declared.units))
        return tuple(result)

    def _failure(self, false: Sides) -> str:
        """Numbers at which a smaller side of the false variant is larger."""
        every = growing_sizes(self.declared.sorts(), self.top)
        return next((case for case, holds in islice(self._cases(false, every, SEEDS), MANY) if not holds), "")

    def _spread(self) -> Iterator[tuple[str, bool]]:
        """Cases of the statement at sizes that differ from each other."""
        return self._cases(self.sides, spread_sizes(self.declared.sorts(), self.top), SEEDS // 4)

    def _cases(self, sides: Sides, every: Iterable[dict[str, int]], seeds: int) -> Iterator[tuple[str, bool]]:
        """Sizes and seeds that meet the hypotheses, and whether all holds there; what is undecided is left out."""
        for sizes in every:
            for seed in range(seeds):
                result = self._case(sides, Numbers(sizes, seed)) or self._case(sides, Numbers(sizes, seed, balls=True))
                if result:
                    case = (equal_sizes(sizes) or _IN_NUMBERS[0]) + f" (seed {seed})"
                    yield case, all_true([self._related(a, b) for a, b in result])

    def _case(self, sides: Sides, world: Numbers) -> list[Pair]:
        """The pairs in these numbers; none if they do not meet the hypotheses or cannot be compared."""
        try:
            given = {name: run(f, self.declared, world) for name, f in self.chosen.items()}
            if not all(all_true(run(f, self.declared, world, given) >= 0) for _, f in self.assumed.values()):
                return []
            result = pairs(sides, self.declared, world, given)
            all_true([self._related(a, b) for a, b in result])
        except (Refused, Undecided, InputError, ZeroDivisionError):
            return []
        return result

    @property
    def _related(self) -> Callable[[Any, Any], Any]:
        return lt if self.strict else le


_IN_LETTERS = "all sizes", "larger − smaller is an expression in which nothing can be negative"
_IN_NUMBERS = "in numbers", "Arb balls show it, and the checker computes them anew"


def _is_number(x: Expression) -> bool:
    """Return whether ``x`` is made of numbers alone."""
    return not any(isinstance(y, (Letter, Count, Binder)) for y in nodes(x, arguments=True))


def _meanings(letters: Any, meant: object) -> Iterator[tuple[Letter, Expression]]:
    """Each letter of an array with what stands for it."""
    whole = spread(meant, letters)
    for places in letters.places():
        yield letters.at(places), whole.at(places)

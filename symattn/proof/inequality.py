"""Inequalities for all sizes by a certificate: larger − smaller = a gap that is written so that nothing in it can be
negative.

The equation is an identity, which the prover decides; that the gap is not negative is read off its form (``signs``).
Hypotheses are inequalities too: each is a name for an expression that is assumed not to be negative, and the gap may
use the name as a letter that is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from symattn.arrays.index.expressions import Expression, Letter
from symattn.arrays.index.namespace import spread
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade
from symattn.document.text import equal_sizes
from symattn.proof.certified import accepted
from symattn.proof.hypotheses import declared_hypotheses
from symattn.proof.listed import all_true
from symattn.proof.premises import Sign
from symattn.proof.prover import Proof, prove, sides_at, unsimplified
from symattn.proof.refuting import spread_sizes
from symattn.proof.signs import never_negative
from symattn.proof.statement import Declared, Letters, Numbers, Pair, Sides, growing_sizes, pairs, run
from symattn.proof.theorem import Decision, Refutation

SEEDS = 8
SOME, MANY = 6, 400  # cases tried against the statement, and against its false variant


@dataclass(frozen=True)
class Certificate:
    """``sides`` gives pairs (smaller, larger), ``gap`` the difference of each, in a form that shows its sign.

    ``assumed`` is the hypotheses: name → (shape in sorts, function that gives the array that has no negative entry).
    ``named`` is letters of any sign that the gap may use, each with the function that gives what it stands for.
    ``false`` gives pairs of which some must fail where the hypotheses hold, or is several such variants.
    ``laws`` is letters like ``assumed``, each with the law by which what it stands for is not negative: "largest",
    "bounded", "magnitude" and "grows NAME" (see ``checker_signs``).
    With ``strict`` the smaller is less than the larger. Both are equal only where the letters in ``only``, named,
    assumed or lawful, are 0 throughout. The checker sees either by the form of the gap.
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
            proofs, signs = self._proofs(), self._signs()
        except (Refused, Undecided, InputError) as reason:
            return Decision(Evidence(Grade.UNDECIDED, str(reason)))
        if not proofs:
            return Decision(Evidence(Grade.UNDECIDED, "nothing is stated"))
        if all(p.proved for p in proofs) and signs is not None:
            words = "larger − smaller is an expression in which nothing can be negative"
            said = declared_hypotheses(self.declared, self.assumed)
            evidence = accepted(Evidence(Grade.PROVED, "all sizes"), proofs, signs)
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

    def _proofs(self) -> tuple[Proof, ...]:
        """larger − smaller = gap for every pair."""
        claimed = pairs(self.sides, self.declared, Letters())
        return tuple(self._difference(pair, gap) for pair, gap in zip(claimed, self._gaps(), strict=True))

    def _shown(self, false: Sides) -> bool:
        """Return whether the gaps would show the false variant as well."""
        try:
            claimed = pairs(false, self.declared, Letters())
            gaps = self._gaps()[: len(claimed)]
            return self._signs() is not None and all(map(lambda p, g: self._difference(p, g).proved, claimed, gaps))
        except (Refused, Undecided, InputError):
            return False

    def _gaps(self) -> list[Any]:
        """The gaps, with every name in ``assumed`` and ``named`` standing for its expression."""
        names = self._names()
        meant = {name: run(given, self.declared, Letters()) for name, (_, given) in names.items()}
        return _several(run(self.gap, self.declared, Letters(), meant))

    def _names(self) -> dict[str, tuple[str, Sides]]:
        lawful = {name: (shape, given) for name, (shape, given, _) in self.laws.items()}
        return {**self.assumed, **self.named, **lawful}

    def _difference(self, pair: Pair, gap: object) -> Proof:
        a, b = pair
        return prove(spread(b - a, gap), spread(gap, b - a), self.declared.units)

    def _signs(self) -> tuple[Sign, ...] | None:
        """The gap is never negative by its form, every name in ``assumed`` being a letter that is not; None if not.

        Each sign says what the names stand for, and what the gap then is.
        """
        world = Letters()
        names = self._names()
        letters = {name: world.array(name, shape, self.declared) for name, (shape, _) in names.items()}
        meant = {name: run(given, self.declared, world) for name, (_, given) in names.items()}
        meanings = tuple(pair for name in names for pair in _meanings(letters[name], meant[name]))
        laws = tuple((name, law) for name, (_, _, law) in self.laws.items())
        known = frozenset((*self.assumed, *self.laws, *self.declared.positive, *self.declared.nonnegative))
        result = []
        claimed = pairs(self.sides, self.declared, world)
        for gap, whole, pair in zip(
            _several(run(self.gap, self.declared, world, letters)), self._gaps(), claimed, strict=True
        ):
            smaller, larger = (spread(side, gap) for side in pair)
            for places in spread(gap, smaller).places():
                x = gap.at(places)
                if not never_negative(x, known):
                    return None
                sides = unsimplified(partial(sides_at, smaller, larger, places))
                relation = ">" if self.strict else "≥"
                result.append(
                    Sign(relation, x, known, meanings, whole.at(places), laws, sides, self.only, self.declared.units)
                )
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
                    case = equal_sizes(sizes) + f" (seed {seed})"
                    yield case, all_true([a <= b for a, b in result])

    def _case(self, sides: Sides, world: Numbers) -> list[Pair]:
        """The pairs in these numbers; none if they do not meet the hypotheses or cannot be compared."""
        try:
            given = {name: run(f, self.declared, world) for name, f in self.chosen.items()}
            if not all(all_true(run(f, self.declared, world, given) >= 0) for _, f in self.assumed.values()):
                return []
            result = pairs(sides, self.declared, world, given)
            all_true([a <= b for a, b in result])
        except (Refused, Undecided, InputError, ZeroDivisionError):
            return []
        return result


def _meanings(letters: Any, meant: object) -> Iterator[tuple[Letter, Expression]]:
    """Each letter of an array with what stands for it."""
    whole = spread(meant, letters)
    for places in letters.places():
        yield letters.at(places), whole.at(places)


def _several(x: object) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]

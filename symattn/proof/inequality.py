"""Inequalities for all sizes by a certificate: larger − smaller = a gap that is not negative by its form.

The equation is an identity, which the prover decides; ``signs`` derives from the form of the gap that it is not
negative. Hypotheses are inequalities too: each names an expression that is assumed not to be negative, and the gap may
use the name as a nonnegative letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from operator import le, lt
from typing import Any

from symattn.arrays.index import expressions
from symattn.arrays.index.array import once
from symattn.arrays.index.namespace import spread
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade
from symattn.document.text import equal_sizes
from symattn.proof import refuting
from symattn.proof.certificate import Sign, accepted
from symattn.proof.counting import nodes
from symattn.proof.hypotheses import declared_hypotheses
from symattn.proof.prover import Proof, prove, sides_at, unsimplified
from symattn.proof.signs import never_negative
from symattn.proof.statement import (
    Declared,
    Letters,
    Numbers,
    Pair,
    Sides,
    growing_sizes,
    pairs,
    run,
)
from symattn.proof.theorem import Decision, Refutation, all_proved

# Draws at each sizes against a false variant; the statement has a quarter of them.
SEEDS = 8
SOME, MANY = 6, 400  # cases tried against the statement, and against its false variant


def _are_all_true(x: object) -> bool:
    """Return whether a truth value, or each in an array or a sequence, is true. Raises Undecided if there is none."""
    if isinstance(x, (list, tuple)):
        every = list(map(_are_all_true, x))
        # An empty conjunction would be true of nothing.
        if not every:
            raise Undecided("nothing is stated")
        return all(every)
    if getattr(x, "size", 1) == 0:
        raise Undecided("nothing is stated: an array has no elements")
    return bool(x.all()) if hasattr(x, "all") else bool(x)


@dataclass(frozen=True)
class Certificate:
    """An inequality: ``sides`` returns pairs (smaller, larger), ``gap`` their differences in a form that shows a sign.

    ``assumed`` holds the hypotheses: name → (shape in sorts, function that returns an array without negative entries).
    ``named`` holds letters of any sign for the gap, each with a function that returns its meaning. ``laws`` holds
    letters as in ``assumed``, each with the law by which its meaning is not negative: "largest", "bounded",
    "magnitude" or "triangle" (see ``checker_signs``). ``false`` returns pairs, some of which must fail under the
    hypotheses, or is several such variants.
    With ``strict`` the smaller is less than the larger; a gap that is a number is then enclosed. Both are equal only if
    all entries of the letters in ``only`` (named, assumed or with a law) are 0. The gap shows both to the checker.
    ``chosen`` returns arrays that meet the hypotheses in numeric tests, such as the largest value for a bound b.
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
        """Decide ``proved`` if the gap is the difference and is never negative by its form."""
        # Numbers first, since a refutation needs no proof.
        wrong = self.wrong()
        if wrong:
            return Decision(Evidence(Grade.REFUTED, wrong))
        try:
            proofs = tuple(self._yield_gap_proofs(self.sides))
            signs = self._find_signs_of_gaps()
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
            Evidence(
                Grade.UNDECIDED,
                unsaid if signs is None else next(p.why for p in proofs if not p.proved),
            )
        )

    def wrong(self) -> str:
        """Return sizes and a seed at which the statement fails in numbers, or ""."""
        return next(
            (case for case, holds in islice(self._yield_spread_cases(), SOME) if not holds), ""
        )

    def refute(self) -> Refutation:
        """Find numbers that meet the hypotheses and at which a pair of the false variant fails."""
        variants = self.false if isinstance(self.false, tuple) else (self.false,)
        result = []
        for false in variants:
            cases = self._yield_cases_of_bound(
                false, growing_sizes(self.declared.sorts(), self.top), SEEDS
            )
            first_cases = islice(cases, MANY)
            # Each variant needs a refutation of its own.
            result.append(next((case for case, holds in first_cases if not holds), ""))
        return Refutation(
            all(result),
            "; ".join(filter(None, result)),
            any(map(self._is_false_variant_shown, variants)),
        )

    def witness(self) -> str:
        """Return the first numbers that meet the hypotheses and at which the statement holds, or ""."""
        return next((case for case, holds in self._yield_spread_cases() if holds), "")

    def _yield_gap_proofs(self, sides: Sides) -> Iterator[Proof]:
        """Yield the proof of larger − smaller = gap for every pair; a false variant may have fewer pairs."""
        stated, gaps = self._stated_pairs_and_gaps
        claimed = stated if sides is self.sides else pairs(sides, self.declared, Letters())
        # Only the statement itself must have as many pairs as gaps.
        for (a, b), gap in zip(claimed, gaps, strict=sides is self.sides):
            difference = spread(b - a, gap)
            yield prove(difference, spread(gap, b - a), self.declared.units)

    def _is_false_variant_shown(self, false: Sides) -> bool:
        """Return whether the gaps would show the false variant as well."""
        try:
            return self._find_signs_of_gaps() is not None and all_proved(
                self._yield_gap_proofs(false)
            )
        except (Refused, Undecided, InputError):
            return False

    def _compute_gaps(self, given: Mapping[str, object]) -> list[Any]:
        """Return the gaps, with the ``given`` arrays for all names."""
        gaps = run(self.gap, self.declared, Letters(), given)
        return list(gaps) if isinstance(gaps, (list, tuple)) else [gaps]

    @property
    def _shapes_and_named_meanings(self) -> dict[str, tuple[str, Sides]]:
        own_laws = self.laws.items()
        lawful = {name: (shape, meaning) for name, (shape, meaning, _) in own_laws}
        return {**self.assumed, **self.named, **lawful}

    @cached_property
    def _meanings_as_letters(self) -> dict[str, Any]:
        """The meanings of the names, as arrays of letters."""
        return {
            name: run(meaning, self.declared, Letters())
            for name, (_, meaning) in self._shapes_and_named_meanings.items()
        }

    @cached_property
    def _stated_pairs_and_gaps(self) -> tuple[list[Pair], list[Any]]:
        """The pairs, and the gaps with the meanings of the names in their place."""
        return pairs(self.sides, self.declared, Letters()), self._compute_gaps(
            self._meanings_as_letters
        )

    def _find_signs_of_gaps(self) -> tuple[Sign, ...] | None:
        """Return the signs of the gaps, with nonnegative letters for hypotheses and laws; None if a form shows none.

        Each sign holds the meanings of the names, and the gap with these in their place.
        """
        letters = {
            name: Letters().array(name, shape, self.declared)
            for name, (shape, _) in self._shapes_and_named_meanings.items()
        }
        meanings = tuple(
            pair
            for name in letters
            for pair in _yield_letter_meanings(letters[name], self._meanings_as_letters[name])
        )
        laws = tuple((name, law) for name, (_, _, law) in self.laws.items())
        known = frozenset(
            (*self.assumed, *self.laws, *self.declared.positive, *self.declared.nonnegative)
        )
        result = []
        claimed, gaps = self._stated_pairs_and_gaps
        for gap, whole, pair in zip(self._compute_gaps(letters), gaps, claimed, strict=True):
            smaller, larger = (spread(side, gap) for side in pair)
            for places in spread(gap, smaller).places():
                with once():
                    x, equal = gap.at(places), whole.at(places)
                # A strict bound between numbers is shown by balls instead of by its form.
                if not never_negative(x, known) and not (self.strict and _is_number(x)):
                    return None
                # The certificate has the sides as written, before any simplification.
                sides = unsimplified(partial(sides_at, smaller, larger, places))
                relation = ">" if self.strict else "≥"
                result.append(
                    Sign(
                        relation,
                        x,
                        equal,
                        sides,
                        known,
                        meanings,
                        laws,
                        self.only,
                        self.declared.units,
                    )
                )
        return tuple(result)

    def _yield_spread_cases(self) -> Iterator[tuple[str, bool]]:
        """Return cases of the statement at sizes that differ from each other."""
        return self._yield_cases_of_bound(
            self.sides, refuting.spread_sizes(self.declared.sorts(), self.top), SEEDS // 4
        )

    def _yield_cases_of_bound(
        self, sides: Sides, every: Iterable[dict[str, int]], seeds: int
    ) -> Iterator[tuple[str, bool]]:
        """Yield sizes and seeds that meet the hypotheses, and whether all pairs hold there; skip undecided cases."""
        for sizes in every:
            for seed in range(seeds):
                exact = self._compare_pairs_in_world(sides, Numbers(sizes, seed))
                # Balls are the fallback where exact numbers cannot compare.
                holds = (
                    self._compare_pairs_in_world(sides, Numbers(sizes, seed, balls=True))
                    if exact is None
                    else exact
                )
                if holds is not None:
                    yield (equal_sizes(sizes) or _IN_NUMBERS[0]) + f" (seed {seed})", holds

    def _compare_pairs_in_world(self, sides: Sides, world: Numbers) -> bool | None:
        """Return whether all pairs hold; None if the numbers do not meet the hypotheses or cannot be compared."""
        try:
            chosen = {name: run(f, self.declared, world) for name, f in self.chosen.items()}
            # Numbers that break a hypothesis say nothing about the statement.
            if not all(
                _are_all_true(run(f, self.declared, world, chosen) >= 0)
                for _, f in self.assumed.values()
            ):
                return None
            related = lt if self.strict else le
            compared = pairs(sides, self.declared, world, chosen)
            return _are_all_true([related(a, b) for a, b in compared])
        except (Refused, Undecided, InputError, ZeroDivisionError):
            return None


_IN_LETTERS = "all sizes", "larger − smaller is an expression in which nothing can be negative"
_IN_NUMBERS = "in numbers", "Arb balls show it, and the checker computes them anew"


def _is_number(x: expressions.Expression) -> bool:
    """Return whether ``x`` contains only numbers."""
    return not any(
        isinstance(y, (expressions.Letter, expressions.Count, expressions.Binder))
        for y in nodes(x, arguments=True)
    )


def _yield_letter_meanings(
    letters: Any, meant: object
) -> Iterator[tuple[expressions.Letter, expressions.Expression]]:
    """Yield each letter of an array with its meaning."""
    whole = spread(meant, letters)
    for places in letters.places():
        yield letters.at(places), whole.at(places)

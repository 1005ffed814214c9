"""Rules as code: each leads from decided premises to the printed statement, and the checker applies it again.

A rule is a method whose premises are methods: it decides them, and its grade is at most the weakest of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from symattn.arrays.index import expressions
from symattn.arrays.index.array import index_variables
from symattn.arrays.index.namespace import spread
from symattn.arrays.index.positions import as_number
from symattn.arrays.indexed import Indexed
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Text
from symattn.proof import refuting
from symattn.proof.certificate import About, Concluded, Sign, accepted
from symattn.proof.hypotheses import declared_hypotheses
from symattn.proof.inequality import Certificate
from symattn.proof.prover import prove, sides_at, unsimplified
from symattn.proof.statement import Declared, Letters, Sides, pairs, run
from symattn.proof.theorem import Decision, Refutation

Known = tuple[Sign | Concluded, ...]
LARGEST: Text = ("what is shown of every entry holds of the largest, which is one of them",)

FOLDED: Text = (
    "since the state of two blocks is the merged state of each, every bracketing of blocks, of any number and sizes,"
    " gives the state of all, by induction over the tree of merges",
)
EQUALS: Text = ("equals are put for equals",)
REPEATED: Text = ("by induction over the steps, of which each shrinks it by the factor",)
BLOCKS = ("first ", "second ")


class Rule:
    """A method whose premises are methods: ``_decide_by_rule`` decides them and applies the rule."""

    def decide(self) -> Decision:
        try:
            return self._decide_by_rule()
        except (Refused, Undecided, InputError) as reason:
            # A premise that cannot be decided leaves the conclusion open, and does not refute it.
            return Decision(Evidence(Grade.UNDECIDED, str(reason)))

    def _decide_by_rule(self) -> Decision:
        raise NotImplementedError


def ruled(
    decision: Decision, premises: tuple[Any, ...], words: Text, *others: Decision, **more: Any
) -> Decision:
    """Return the decision by a rule from its premises, undecided unless the checker accepts it."""
    result = (decision, *others)
    argument = (*dict.fromkeys(a for d in result for a in d.argument), words)
    proofs = tuple(p for d in result for p in d.proofs)
    evidence = accepted(decision.evidence, (), premises)
    return replace(
        decision, evidence=evidence, argument=argument, proofs=proofs, premises=premises, **more
    )


@dataclass(frozen=True)
class OfTheLargest(Rule):
    """The rule that a ``premise`` on every entry holds for the largest; ``sides``: pairs (smaller, larger) of maxima.

    Each entry of one of the maxima, put in its place, gives a pair of the premise. With several maxima, ``between``
    has the intermediate pairs with some of them. The false variant, if any, is the premise's.
    """

    premise: Certificate
    sides: Sides
    between: tuple[Sides, ...] = ()

    @property
    def false(self) -> Sides | tuple[Sides, ...]:
        return self.premise.false

    def _decide_by_rule(self) -> Decision:
        decision = self.premise.decide()
        if decision.evidence.grade is not Grade.PROVED:
            return decision
        # A refutation of the conclusion comes before its certificate.
        wrong = self._certificate_of_largest.wrong()
        if wrong:
            return Decision(Evidence(Grade.REFUTED, wrong))
        known: Known = tuple(p for p in decision.premises if isinstance(p, Sign))
        # Each step replaces one maximum more; its claims are the premises of the next step.
        for sides in (*self.between, self.sides):
            known = (Concluded("largest", known, tuple(written(sides, self.premise.declared))),)
        return ruled(decision, known, LARGEST)

    def refute(self) -> Refutation:
        return self.premise.refute()

    def witness(self) -> str:
        return self._certificate_of_largest.witness() and self.premise.witness()

    @property
    def _certificate_of_largest(self) -> Certificate:
        return replace(self.premise, sides=self.sides)


def written(
    sides: Sides, declared: Declared
) -> Iterator[tuple[expressions.Expression, expressions.Expression]]:
    """Yield the pairs in letters, entry by entry, before any simplification."""
    for a, b in pairs(sides, declared, Letters()):
        smaller, larger = spread(a, b), spread(b, a)
        for places in smaller.places():
            yield unsimplified(partial(sides_at, smaller, larger, places))


Merge = Callable[[Sequence[Any], Sequence[Any], Mapping[str, Any]], Sequence[Any]]


@dataclass(frozen=True)
class Fold(Rule):
    """The rule that merging the states of any number of blocks, of any sizes in any bracketing, gives the state of all.

    ``state`` returns the parts of the state of one block: sums along ``sort``, an axis of the arrays. ``merge`` returns
    the parts of the merged state from those of two states and from ``numbers``, which each state may choose freely.
    ``finish`` returns, from the parts of a state and the arrays, pairs: the output that is computed at the end, and
    what it equals. ``false`` is a wrong merge.
    """

    declared: Declared
    sort: str
    state: Sides
    merge: Merge
    false: Merge
    numbers: tuple[str, ...] = ()
    finish: Callable[..., Sequence[tuple[Any, Any]]] | None = None

    def _decide_by_rule(self) -> Decision:
        folding = self._conclude_fold(self.merge)
        evidence = accepted(Evidence(Grade.PROVED, "all sizes"), (), (folding,))
        return Decision(evidence, (FOLDED,), premises=(folding,))

    def refute(self) -> Refutation:
        """Return the false variant as refuted if the checker refuses the wrong merge."""
        proved = Evidence(Grade.PROVED)
        # ``accepted`` returns the same evidence unless the checker refuses.
        refused = accepted(proved, (), (self._conclude_fold(self.false),)) is not proved
        return Refutation(refused, "two blocks of any numbers" if refused else "", not refused)

    def witness(self) -> str:
        return "two blocks"

    def _conclude_fold(self, merge: Merge) -> Concluded:
        world = Letters()
        arrays = {
            name: world.array(name, shape, self.declared)
            for name, shape in self.declared.arrays.items()
        }
        state = [Indexed.lift(x) for x in run(self.state, self.declared, world)]
        # Letters with the prefixes of blocks stand for the parts of two states.
        first, second = (
            [Indexed.letters(f"{prefix}{n}", *x.shape) for n, x in enumerate(state)]
            for prefix in BLOCKS
        )
        merged = merge(first, second, {name: arrays[name] for name in self.numbers})
        parts = [_describe_state_part(str(n), x) for n, x in enumerate(state)]
        ends = run(self.finish, self.declared, world, {"state": first}) if self.finish else ()
        along = tuple(
            name for name, shape in self.declared.arrays.items() if self.sort in shape.split()
        )
        about: dict[str, About] = {
            **{"sort": self.sort, "arrays": along, "numbers": self.numbers, "state": tuple(parts)},
            "merge": tuple(
                _describe_state_part(str(n), Indexed.lift(x)) for n, x in enumerate(merged)
            ),
            "made": tuple(_describe_state_part("", Indexed.lift(outcome)) for outcome, _ in ends),
            "result": tuple(_describe_state_part("", Indexed.lift(result)) for _, result in ends),
        }
        return Concluded("fold", about=about)


@dataclass(frozen=True)
class Substitution(Rule):
    """The rule that an expression does not change when an array in it is replaced by an equal one.

    ``through`` returns the expression with the array ``name``, of the shape ``shape``; with ``equal`` for it, this is
    the left side, with ``to`` the right side. That both are equal is a hypothesis.
    """

    declared: Declared
    sides: Sides
    through: Sides
    name: str
    shape: str
    equal: Sides
    to: Sides
    false: Sides

    def _decide_by_rule(self) -> Decision:
        premises = self._conclude_substitutions()
        (left, right), (equal, to) = (
            pairs(self.sides, self.declared, Letters())[0],
            self._lift_substituted_ends(),
        )
        # Left equals the array with the first expressions, and with the second ones right.
        before = prove(left, self._with_array(equal))
        proofs = before, prove(self._with_array(to), right)
        if not all(p.proved for p in proofs):
            # The first reason is enough.
            reasons = (p.why for p in proofs if not p.proved)
            return Decision(Evidence(Grade.UNDECIDED, next(reasons)))
        evidence = accepted(Evidence(Grade.PROVED, "all sizes"), proofs, premises)
        notes = tuple((n.removeprefix("hypothesis: "),) for p in proofs for n in p.notes)
        return Decision(
            evidence, (EQUALS,), notes, proofs, declared_hypotheses(self.declared), premises
        )

    def refute(self) -> Refutation:
        counterexample = refuting.search(self.false, self.declared).counterexample
        return Refutation(bool(counterexample), str(counterexample or ""))

    def witness(self) -> str:
        return "wherever both are equal"

    def _with_array(self, array: object) -> Indexed:
        entry = run(self.through, self.declared, Letters(), {self.name: array})
        return Indexed.lift(entry)

    def _lift_substituted_ends(self) -> tuple[Indexed, Indexed]:
        both = (Indexed.lift(run(f, self.declared, Letters())) for f in (self.equal, self.to))
        # Adding zero broadcasts each end to the declared shape.
        zero = 0 * Letters().array(self.name, self.shape, self.declared)
        equal, to = (x + zero for x in both)
        return equal, to

    def _conclude_substitutions(self) -> tuple[Concluded, ...]:
        ((left, right),) = pairs(self.sides, self.declared, Letters())
        letters = Letters().array(self.name, self.shape, self.declared)
        through, (equal, to) = self._with_array(letters), self._lift_substituted_ends()
        put_in, put_out = (
            tuple(_expression_at_places(letters, x, places) for places in letters.places())
            for x in (equal, to)
        )
        result = []
        for places in through.places():
            sides = {"left": left, "right": right, "through": through}
            # 0 · through gives all three sides the same axes.
            parts = {
                key: _expression_at_places(through, x + 0 * through, places)
                for key, x in sides.items()
            }
            result.append(
                Concluded("substitution", about={**parts, "equal": put_in, "to": put_out})
            )
        return tuple(result)


@dataclass(frozen=True)
class Repeat(Rule):
    """The rule that a measure of the array ``name`` is, after L steps, at most ``factor``^L times its first value.

    ``shrinks`` shows that one step multiplies it by at most ``factor``; ``floor`` that the factor is not negative;
    ``below_one`` that it is less than 1, so that the measure tends to 0. ``measure`` takes the array as ``state``.
    Other arrays in ``step`` may change from step to step, but not those in ``factor``.
    """

    shrinks: OfTheLargest
    floor: Certificate
    name: str
    measure: Sides
    step: Sides
    factor: Sides
    below_one: Certificate | None = None

    @property
    def false(self) -> Sides | tuple[Sides, ...]:
        return self.shrinks.false

    def _decide_by_rule(self) -> Decision:
        result = [
            part.decide() for part in (self.shrinks, self.floor, self.below_one) if part is not None
        ]
        if bad := next((d for d in result if d.evidence.grade is not Grade.PROVED), None):
            return bad
        known = tuple(p for d in result for p in d.premises if isinstance(p, (Sign, Concluded)))
        return ruled(result[0], (self._conclude_repetition(known),), REPEATED, *result[1:])

    def refute(self) -> Refutation:
        return self.shrinks.refute()

    def witness(self) -> str:
        return self.shrinks.witness() and self.floor.witness()

    def _conclude_repetition(self, known: Known) -> Concluded:
        declared, world = self.shrinks.premise.declared, Letters()
        now = world.array(self.name, declared.arrays[self.name], declared)
        state = Indexed.letters("state", *now.shape)
        # Adding zero broadcasts the step to the shape of the array.
        step = Indexed.lift(run(self.step, declared, world)) + 0 * now
        measure = Indexed.lift(run(self.measure, declared, world, {"state": state}))
        factor = Indexed.lift(run(self.factor, declared, world)) + 0 * measure
        (seat,), (place,) = now.places(), measure.places()
        about: dict[str, About] = {
            **{
                "measure": _expression_at_places(measure, measure, place),
                "factor": _expression_at_places(measure, factor, place),
            },
            **{
                "step": _expression_at_places(state, step, seat),
                "now": _expression_at_places(state, now, seat),
            },
            **{"letter": "state", "array": self.name, "tends": self.below_one is not None},
        }
        return Concluded("repeated", known, about=about)


def _expression_at_places(
    letters: Indexed, x: Indexed, places: Any
) -> tuple[str, expressions.Expression, tuple[expressions.Index, ...]]:
    """Return x at a place, with the name of its letter."""
    letter = letters.at(places)
    return getattr(letter, "name", ""), as_number(x.at(places)), index_variables(places)


def _describe_state_part(
    letter: str, x: Indexed
) -> tuple[str, expressions.Expression, tuple[expressions.Index, ...]]:
    """Return a part of a state at any place, with its letter."""
    (places,) = x.places()
    return _expression_at_places(Indexed.letters(letter, *x.shape), x, places)

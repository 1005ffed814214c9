"""Read the printed formulas of a step and compare their values with those of the step itself, in balls.

A formula that differs from its step is refused, whether it has a grade or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from random import Random
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.flow import Step
from symattn.attention.letters_of_attention import ARRAYS, SIZES, SYMBOLS
from symattn.attention.projections import merge_heads
from symattn.derivations.attention import words
from symattn.derivations.attention.entry_formulas import entry
from symattn.derivations.attention.inputs import DerivationRequest
from symattn.derivations.attention.step_reader import HEAD, StepReader
from symattn.document import notation as nt
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence
from symattn.document.model import Text
from symattn.document.notation import Name, Node, Relation
from symattn.document.text import text
from symattn.proof.relations import comparing, judging
from symattn.proof.relations.part_values import Unread, Value, spread

_TIMES = Name("⊙")  # entry by entry


# Runs at each sizes: a formula that is wrong rarely agrees twice.
DRAWS = 2
# Bits of the balls in which formulas and steps are compared.
_BITS = 256
# A formula that raises any of these has no meaning for the reader.
_UNREAD = (
    Unread,
    Refused,
    Undecided,
    InputError,
    ZeroDivisionError,
    IndexError,
    KeyError,
    ValueError,
    TypeError,
)


Sides = list[tuple[Any, Any, Any]]


@dataclass(frozen=True)
class ReadingRun:
    """A run of the pipeline on numbers: the request, and every named array."""

    request: DerivationRequest
    arrays: Mapping[str, Any]


def runs(request: DerivationRequest) -> tuple[ReadingRun, ...]:
    """Return runs at the requested sizes, and at sizes that are as different from each other as possible."""
    spec, sizes = request.spec, dict(request.sizes)
    # If there are as many queries as keys, formulas of positions are written for that case.
    together = ("x" in request.names and "y" not in request.names) or (
        spec.position is not None and request.n_q == request.n_k
    )
    # Other differences between sizes, so that no size passes for another.
    sizes["n_q"] += 1
    sizes["n_k"] = sizes["n_q"] if together else sizes["n_q"] + 2
    sizes |= dict.fromkeys(("d_model", "d_y", "d_out"), sizes["d_model"] + 3)
    sizes |= {"d_v": sizes["d_k"] if spec.packed else sizes["d_k"] + 1}
    sizes |= {
        letter: sizes[letter] + more
        for letter, more in (("l_a", 5), ("l", 3), ("l_q", 4), ("d_e", 5))
    }
    # Other sizes must not leave a query without a key if the requested ones do not.
    if request.every_row_has_a_key() and not replace(request, sizes=sizes).every_row_has_a_key():
        sizes |= {"n_q": request.sizes["n_q"], "n_k": request.sizes["n_k"]}
    # One relative position for each distance between a query and a key.
    sizes["n_r"] = sizes["n_k"] if spec.causal else sizes["n_q"] + sizes["n_k"] - 1
    return tuple(
        run(r, seed) for r in (request, replace(request, sizes=sizes)) for seed in range(DRAWS)
    )


def run(request: DerivationRequest, seed: int) -> ReadingRun:
    """Run the pipeline on numbers drawn by the seed."""
    with precision(_BITS):
        numbers = request.inputs(lambda name, shape: _make_pseudorandom_balls(name, shape, seed))
        return ReadingRun(request, request.spec.trace(**numbers))


def _make_pseudorandom_balls(name: str, shape: tuple[int, ...], seed: int) -> Ball:
    """Return pseudorandom fractions of both signs, always the same."""
    random = Random(f"{name} {shape} {seed}")
    entries = [
        Fraction(random.choice((-1, 1)) * random.randint(1, 40), random.choice((29, 31, 37, 41)))
        for _ in range(prod(shape))
    ]
    ball: Ball = Ball.lift(np.array(entries, dtype=object).reshape(shape))
    return ball


@dataclass(frozen=True)
class Read:
    """A reader of a step's formulas in some runs of the pipeline."""

    step: Step
    runs: tuple[ReadingRun, ...]
    definitions: tuple[Relation, ...] = ()

    def with_reason(self, reason: Text | str) -> Read:
        """Take the relations between letters in a reason as their definition: δ = i − j."""
        results = judging.relations(reason if isinstance(reason, tuple) else ())
        return replace(
            self, definitions=(*self.definitions, *(r for r in results if defines(self.step, r)))
        )

    def check(
        self,
        formula: Node,
        evidence: Evidence,
        before: Node | None = None,
        after: Node | None = None,
    ) -> Evidence:
        """Return ``evidence`` if the formula is what the step computes. Raises FalseStep.

        ``before``: the formula to which "all others" refers; ``after``: a formula that refers to this one so.
        """

        def decide(other: Node) -> Evidence:
            try:
                with precision(_BITS):
                    for world in self.runs:
                        # A formula for "all others" is checked with the formula that it refers to.
                        self._check_formula_in_run(world, other, before)
                        if after is not None:
                            self._check_formula_in_run(world, after, other)
            except _UNREAD as reason:
                raise comparing.FalseStep(
                    f"{text(other)}: {type(reason).__name__}: {reason}"
                ) from reason
            return evidence

        request = self.runs[0].request
        sizes = tuple(text(s) for letter, s in SIZES.items() if letter in request.sizes)
        matrices = frozenset({text(self.step.symbol)})
        relation = judging.DecidedRelation(
            formula,  # type: ignore[arg-type]
            decide,
            tuple("ijlm"),
            sizes,
            matrices,
            equal=self._are_products_commuted,
        )
        judging.record(relation)
        return decide(formula)

    def _are_products_commuted(self, a: Node, b: Node) -> bool:
        """Return whether both are products of the same factors, at most one of which is not a number."""
        if not isinstance(a, nt.Product) or not isinstance(b, nt.Product):
            return False
        # Arrays of tokens do not commute, numbers do.
        arrays = {
            text(SYMBOLS[name])
            for name in (*self.step.of, self.step.name)
            if "n_" in ARRAYS[name].shape
        }
        others = [
            f
            for f in a.factors
            if f == _TIMES or any(isinstance(x, Name) and text(x) in arrays for x in nt.within(f))
        ]
        factors_of_a = sorted(map(text, a.factors))
        same_factors = factors_of_a == sorted(map(text, b.factors))
        # With one array among numbers the order makes no difference.
        return len(others) <= 1 and same_factors

    def reads(self, formula: Node, before: Node | None = None) -> bool:
        """Return whether every letter and word of the formula has a meaning here."""
        try:
            with precision(_BITS):
                for world in self.runs:
                    self._evaluate_sides_in_run(world, formula, before)
        except _UNREAD:
            return False
        return True

    def _check_formula_in_run(self, run: ReadingRun, formula: Node, before: Node | None) -> None:
        for left, right, where in self._evaluate_sides_in_run(run, formula, before):
            x, y, mask = np.broadcast_arrays(left, right, where)
            cells = zip(x.flat, y.flat, mask.flat, strict=True)
            pairs = [(a, b) for a, b, here in cells if here]
            if not all(_are_read_entries_equal(a, b) for a, b in pairs):
                raise comparing.FalseStep(f"{text(formula)} is not what {self.step.name} gives")

    def _evaluate_sides_in_run(self, run: ReadingRun, formula: Node, before: Node | None) -> Sides:
        return sides_of(run.request, self.step, run.arrays, self.definitions, formula, before)


def sides_of(
    request: DerivationRequest,
    step: Step,
    arrays: Mapping[str, object],
    definitions: tuple[Relation, ...],
    formula: Node,
    before: Node | None,
    kind: object = Ball,
) -> Sides:
    """Return entries of the left side, of each other side, and where they are claimed to be equal."""
    relation, condition = _split_off_index_condition(formula)
    reader = StepReader(request, step, arrays, relation, definitions, bool(condition), kind)
    if any(sign != "=" for sign, _ in relation.rest):
        # Only equations have sides to compare.
        raise Unread("no equation")
    left = reader.one(relation.first)
    right = [reader.one(side) for _, side in relation.rest]
    where = _evaluate_index_condition(reader, condition, before)
    letters = tuple(
        dict.fromkeys(letter for value in (left, *right, where) for letter in value.letters)
    )
    reader.check_places(where, letters)
    # All sides and the condition get the same axes.
    return [
        (*_align_sides_over_letters(left, side, letters), spread(where, letters, left.rank))
        for side in right
    ]


def _split_off_index_condition(formula: Node) -> tuple[Relation, Node | None]:
    """Return the equation in a formula, and the condition on its indices, if any."""
    if isinstance(formula, Relation):
        return formula, None
    if (
        isinstance(formula, nt.Row)
        and len(formula.parts) in (2, 3)
        and isinstance(formula.parts[0], Relation)
    ):
        return formula.parts[0], formula.parts[-1]
    raise Unread("no equation")


def _evaluate_index_condition(
    reader: StepReader, condition: Node | None, before: Node | None
) -> Value:
    """Return where the condition holds: everywhere without a condition."""
    if condition is None:
        return Value(np.True_)
    if isinstance(condition, Relation):
        truth = reader.place(nt.At(nt.node(1), condition))
        return truth.on(lambda x: x != 0)
    if not isinstance(condition, nt.Words):
        raise Unread(f"the condition {text(condition)}")
    # "for all other" keys needs the condition of the formula before.
    if "other" not in condition.text:
        return words.condition(reader.request, condition.text, reader.here)
    if before is None:
        raise Unread("all others than which")
    return _evaluate_index_condition(reader, _split_off_index_condition(before)[1], None).on(
        np.logical_not
    )


def _align_sides_over_letters(
    left: Value, right: Value, letters: tuple[str, ...]
) -> tuple[Any, Any]:
    """Return both sides as arrays over the same letters, with heads side by side if the formula has them so."""
    # A plain number is compared with every entry.
    if right.rank == 0 and not right.letters:
        return spread(left, letters, left.rank).entries, right.array.entries
    explicit = [set(x.letters) - {HEAD} for x in (left, right)]
    if explicit[0] != explicit[1]:
        raise Unread("the sides have different free indices")
    if left.rank != right.rank and right.rank:
        raise Unread("the sides have different shapes")
    # Heads side by side on the right are compared with merged heads on the left.
    if HEAD in left.letters and HEAD not in right.letters and left.rank == 2 and right.rank == 2:
        wide = left.array.shape[-1] * left.array.shape[0]
        if right.array.shape[-1] == wide and left.array.shape[0] > 1:
            merged: Any = merge_heads(left.array)
            return merged.entries, right.array.entries
    values = (left, right)
    x, y = (spread(value, letters, left.rank).entries for value in values)
    if left.rank and x.shape[-left.rank :] != y.shape[-left.rank :]:
        raise Unread("the sides have different sizes")
    return x, y


def _are_read_entries_equal(x: object, y: object) -> bool:
    special = (Forbidden, Undefined)
    if isinstance(x, special) or isinstance(y, special):
        return type(x) is type(y)
    return comparing.entry_holds(x, "=", y)


def for_others(formula: Node) -> bool:
    """Return whether a formula is about all entries that the formula before it does not cover."""
    condition = _split_off_index_condition(formula)[1]
    return isinstance(condition, nt.Words) and "other" in condition.text


def every(
    step: Step, arrays: tuple[ReadingRun, ...], formulas: list[tuple[Node, Text | str]]
) -> Iterator[Read]:
    """Yield the reader for each formula, with the definitions in the formulas and reasons up to it."""
    result = Read(step, arrays)
    for formula, reason in formulas:
        result = result.with_reason(reason)
        yield result
        if defines(step, formula):
            assert isinstance(formula, Relation)
            result = replace(result, definitions=(*result.definitions, formula))


def defines(step: Step, formula: Node) -> bool:
    """Return whether a formula defines a letter of its own: its left side is not part of the step's array."""
    first, own = _split_off_index_condition(formula)[0].first, entry(step.name)
    if not isinstance(first, Name) or not isinstance(own, Name) or first == step.symbol:
        return False
    own_subscripts = first.sub[: len(own.sub)]
    return (first.base, own_subscripts) != (own.base, own.sub)

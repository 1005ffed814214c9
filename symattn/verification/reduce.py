"""Reduce an input that shows a fault to the smallest one that still does, and present it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.ball import precision as bits
from symattn.attention.letters_of_attention import SCORES
from symattn.bounds import judge, reference
from symattn.bounds.case_result import CaseResult, middles
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Array
from symattn.document.errors import Refused, Undecided
from symattn.verification.effort import Effort
from symattn.verification.report import Counterexample

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_subject import Definition

Inputs = dict[str, Array]
Fails = Callable[[Inputs], bool]
# names of arrays, axes, and how many of their entries form one unit
Pairs = tuple[tuple[str, int, int], ...]
Group = tuple[Pairs, int]  # axes of one length, and how many units are removed at once

# Units of ``effort`` of one reduction, which bound its time on large inputs.
TRIALS = 1200


@dataclass(frozen=True)
class Axes:
    """The roles of the inputs' axes.

    letters  the axes of each input to reduce, the last ones if it has more; each axis is a product of letters and
             numbers, such as h and d_k
    blocks   letters whose sizes are known, as that of h must be in h*d_k
    kept     letters whose sizes are not reduced
    first    letters to reduce first
    means    letters that stand for a letter of the domain, and the factor by which that size is larger
    """

    letters: Mapping[str, tuple[tuple[str, ...], ...]]
    blocks: Mapping[str, int] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    first: tuple[str, ...] = ()
    means: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def flat(self, name: str) -> list[str]:
        """Return the letters and numbers of the axes of an input in one list."""
        return [f for axis in self.letters[name] for f in axis]

    def apart(self, name: str, a: Array) -> Array:
        """Return the array with an axis for each factor: h*d_k as h and d_k."""
        result: list[int] = []
        for axis, length in zip(reversed(self.letters[name]), reversed(a.shape), strict=False):
            known = [int(f) if f.isdecimal() else self.blocks.get(f) for f in axis]
            # The factor without a known size has what the others leave of the axis.
            rest = length // max(prod(n for n in known if n is not None), 1)
            result = [*(rest if n is None else n for n in known), *result]
        leading = a.shape[: max(0, a.ndim - len(self.letters[name]))]
        return a.reshape((*leading, *result))

    def together(self, name: str, a: Array, ndim: int) -> Array:
        """Return the array with its factors joined again into ``ndim`` axes."""
        axes = self.letters[name][max(0, len(self.letters[name]) - ndim) :]
        start = a.ndim - sum(map(len, axes))
        shape = list(a.shape[:start])
        for axis in axes:
            shape.append(prod(a.shape[start : start + len(axis)]))
            start += len(axis)
        return a.reshape(shape)

    def resized(self, inputs: Inputs, letter: str, size: int) -> Inputs:
        """Return inputs in which axes of a letter have another size: their entries are cut, or repeated in turn."""
        results = dict(inputs)
        for name in inputs.keys() & self.letters.keys():
            a = np.asarray(inputs[name])
            apart = self.apart(name, a)
            for place, axis in enumerate(reversed(self.flat(name)), 1):
                if axis == letter and place <= apart.ndim:
                    apart = apart.take(np.arange(size) % apart.shape[-place], axis=-place)
            results[name] = self.together(name, apart, a.ndim)
        return results


def reduce(
    inputs: Inputs, fails: Fails, axes: Axes, domain: Domain | None = None, trials: int = TRIALS
) -> Inputs:
    """Return the smallest inputs found for which ``fails`` still holds; it holds for ``inputs``.

    ``fails`` must be False for inputs that the definition or the domain does not allow. Columns of projections are
    removed from all heads at once; axes of one length by promise together, in multiples of the domain's step. No more
    is tried than ``trials`` allow, as ``effort`` counts them. Inputs without an entry in ``axes`` stay as they are.
    """
    # The effort counts entries, so that the smallest input does not depend on the clock.
    effort = Effort(trials)
    state = {
        name: axes.apart(name, np.asarray(a)) for name, a in inputs.items() if name in axes.letters
    }

    def joined(candidate: Inputs) -> Inputs:
        return {
            n: axes.together(n, candidate[n], np.ndim(a)) if n in candidate else a
            for n, a in inputs.items()
        }

    def holds(candidate: Inputs) -> bool:
        # Once the effort is spent nothing fails any more, which ends the shrinking.
        if effort.over:
            return False
        effort.spend(sum(a.size for a in candidate.values()))
        return fails(joined(candidate))

    return joined(
        shrink(state, lambda now: _group_reducible_axes(now, axes, domain or Domain()), holds)
    )


def shrink(state: Inputs, groups: Callable[[Inputs], list[Group]], holds: Fails) -> Inputs:
    """Remove entries along each group of axes and simplify the rest, while that helps and ``holds``."""
    before = -1
    while before != (before := _measure_input_complexity(state)):
        state = _simplify_input_numbers(_remove_input_slices(state, groups(state), holds), holds)
    return state


def _measure_input_complexity(state: Inputs) -> int:
    """Return the measure that the loop reduces: entries, plus those that are not 0, plus those that are not 0 or 1."""
    result = 0
    for a in state.values():
        is_not_0 = a != 0
        is_neither = is_not_0 & (a != 1)
        result += a.size + int(is_not_0.sum()) + int(is_neither.sum())
    return result


def _group_reducible_axes(state: Inputs, axes: Axes, domain: Domain) -> list[Group]:
    """Return the axes of each letter over all arrays; axes of one length, by promise, form one group."""
    letters: dict[str, list[tuple[str, int]]] = {}
    for name, a in state.items():
        # Axes are counted from the last one, since inputs may have batches in front.
        for place, letter in enumerate(reversed(axes.flat(name)), 1):
            if place <= a.ndim and letter not in axes.kept and not letter.isdecimal():
                letters.setdefault(letter, []).append((name, -place))
    order = [*(x for x in axes.first if x in letters), *(x for x in letters if x not in axes.first)]
    meant = {axes.means.get(x, (x, 1)): letters[x] for x in order}
    return together(
        {x: pairs for (x, _), pairs in meant.items()},
        domain,
        axes.blocks.get("h", 1),
        dict(meant.keys()),
    )


def together(
    letters: Mapping[str, Sequence[tuple[str, int]]],
    domain: Domain,
    heads: int = 1,
    factors: Mapping[str, int] | None = None,
) -> list[Group]:
    """Return the axes of each letter, and the step of its size; letters of one length, by promise, form one group.

    ``factors``: the factor by which the size that a letter stands for is larger than its axis.
    """
    result = {x: [(name, axis, 1) for name, axis in pairs] for x, pairs in letters.items()}
    same = domain.same_width or domain.square_weights
    for one, other, joined in (("n_q", "n_k", domain.square), ("d_k", "d_v", same)):
        if joined and {one, other} <= result.keys():
            result[one] += result.pop(other)
    for of_tokens in ("d_model", "d_y", "d_out"):
        if domain.square_weights and {"d_k", of_tokens} <= result.keys():
            # d_model = h d_k: with a column of every head go h columns of the tokens.
            result["d_k"] += [(name, axis, heads) for name, axis, _ in result.pop(of_tokens)]
    steps = {
        "n_q": domain.tokens.step,
        "n_k": domain.tokens.step,
        "d_k": domain.widths.step,
        "d_v": domain.widths.step,
    }
    # The axis is shorter than the size by this factor, and its step by the part they share.
    apart = {x: step // gcd(step, (factors or {}).get(x, 1)) for x, step in steps.items()}
    return [(tuple(pairs), apart.get(x, 1)) for x, pairs in result.items()]


def _remove_input_slices(state: Inputs, groups: list[Group], holds: Fails) -> Inputs:
    """Remove slices along every axis, large ones first."""
    for pairs, step in groups:
        name, axis, _ = pairs[0]
        # Halves first: where most entries do not matter, few trials remove them.
        piece = state[name].shape[axis] // 2 // step * step
        while piece:
            start = 0
            # At least one piece stays, since an empty axis is another input.
            while start < (size := state[name].shape[axis]) and size > piece:
                candidate = dict(state)
                end = min(start + piece, size)
                for n, along, times in pairs:
                    candidate[n] = np.delete(
                        candidate[n], np.arange(start * times, end * times), axis=along
                    )
                if holds(candidate):
                    state = candidate
                else:
                    # This piece is needed; after a removal the next one stands at the same place.
                    start += piece
            piece = piece // 2 // step * step
    return state


def _simplify_input_numbers(state: Inputs, holds: Fails) -> Inputs:
    """Replace numbers by 0, 1, −1 or small integers: whole arrays first, then entries one by one."""
    for name in state:
        a = state[name]
        # The entries of a boolean mask cannot be simpler.
        if a.dtype == bool:
            continue
        # Infinities of additive masks stay as they are.
        finite = np.where(np.isfinite(a), a, 0)
        for whole in (np.zeros_like(a), np.sign(finite), np.trunc(finite), np.rint(finite)):
            simpler = np.where(np.isfinite(a), whole + 0.0, a)  # no negative zeros
            if not np.array_equal(simpler, a) and holds(state | {name: simpler}):
                state = state | {name: simpler}
                break
        for index in np.ndindex(state[name].shape):
            state = _plainer_entry(state, name, index, holds)
    return state


def _plainer_entry(state: Inputs, name: str, index: tuple[int, ...], holds: Fails) -> Inputs:
    value = state[name][index]
    for plain in (
        0.0,
        1.0,
        -1.0,
        2.0,
        float(np.trunc(value)) if np.isfinite(value) else 0.0,
        value / 2,
    ):
        # Each replacement must be plainer, or the loop might not end.
        if plain == value or _rank_number_plainness(plain) >= _rank_number_plainness(value):
            continue
        changed = state[name].copy()
        changed[index] = plain
        if holds(state | {name: changed}):
            return state | {name: changed}
    return state


def _rank_number_plainness(x: float) -> tuple[bool, bool, float, bool]:
    """Return a key that sorts 0 before 1 before −1 before 2 …, and integers before fractions."""
    return (x != 0, not float(x).is_integer(), abs(x), x < 0)


# -- a case for a reader: inputs, the exact expected value, the actual one, and the step that went wrong ---------------
_FEW = 64  # most entries for which the exact value and the steps are computed
# Steps that a reader is shown, in the order of the computation.
_SHOWN_STEPS = frozenset({*SCORES, "weights", "dropped", "output"})


def counterexample(subject: Definition, judged: CaseResult) -> Counterexample:
    """Return the counterexample that a case shows."""
    # A case without numbers to compare shows an error, or shapes.
    plain = shown(subject, judged)
    if judged.outcome.error is not None:
        return replace(plain, error=str(judged.outcome.error))
    if judged.ratios is None:
        return replace(plain, error=shapes(subject, judged))
    of, at = judged.where
    part = judged.parts[of]
    assert part.got is not None
    # Exact numbers of a large case take long, and nobody reads them.
    exact = subject.exact(judged.case.inputs, of, at) if judged.case.size <= _FEW else None
    wanted, got, allowed = (
        float(middles(part.expected.entries[at])),
        float(part.got[at]),
        float(part.expected.allowed[at]),
    )
    return replace(plain, index=at or (0,), exact=exact, expected=wanted, got=got, allowed=allowed)


def shown(subject: Definition, judged: CaseResult) -> Counterexample:
    """Return a counterexample with the inputs alone."""
    inputs = {name: np.asarray(a).tolist() for name, a in judged.case.inputs.items()}
    return Counterexample(inputs, sizes=subject.source.own_sizes(judged))


def shapes(subject: Definition, judged: CaseResult) -> str:
    """Describe the actual and the expected shapes."""
    if len(subject.outputs) == 1:
        shape = judged.outcome.shape
        expected = judged.parts[0].expected.allowed.shape
        # Equal numbers differ by what they count: heads that stay apart where they belong side by side.
        if tuple(shape) == tuple(expected):
            return f"shape {shape}, heads first, expected the axes of the given layout"
        return f"shape {shape}, expected {expected}"
    got = [part.got.shape if part.got is not None else "no array" for part in judged.parts]
    wanted = [
        f"{n} {p.expected.allowed.shape}"
        for n, p in zip(subject.outputs, judged.parts, strict=True)
    ]
    return f"{', '.join(map(str, got))}, expected {', '.join(wanted)}"


def steps(judged: CaseResult, variant: reference.Variant) -> tuple[tuple[str, str, str], ...]:
    """Return the worst row of every step of attention: correct, and with the mistake; () for large cases, and if balls
    cannot compute the mistake, as for a root of what may be 0, or a square of −∞."""
    if judged.case.size > _FEW or judged.ratios is None:
        return ()
    run = judge.traced(judged).in_balls
    try:
        # 128 bits are more than the printed digits need.
        with bits(128):
            wrong = reference.run(run.spec, run.inputs, variant).values
    except (Refused, Undecided):
        return ()
    right = run.values
    # Rows are shown of one head without a batch.
    if len(right["scores"].plain_shape) != 2:
        return ()
    # A mistake may cut columns into heads that the definition has not: rows of these have no counterpart.
    names = [
        name
        for name in right
        if name in _SHOWN_STEPS
        and name in wrong
        and wrong[name].plain_shape == right[name].plain_shape
    ]
    row = judged.where[1][0]
    return tuple(
        (name, _format_ball_row(right[name], row), _format_ball_row(wrong[name], row))
        for name in names
    )


def _format_ball_row(balls: Any, row: int) -> str:
    return "  ".join(
        f"{float(x.mid()):.6g}"
        if hasattr(x, "mid")
        else str(x).partition(" (")[0].replace("-inf", "−∞")
        for x in balls.entries[row]
    )

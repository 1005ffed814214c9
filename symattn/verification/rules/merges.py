"""Mistakes of a merge: outputs over different keys are weighted by powers of their log-sums, over the sum of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.flow import Step
from symattn.attention.softmax import logarithms, powers
from symattn.attention.streaming.states import reference
from symattn.bounds.changed_steps import ChangedSteps, in_stated_steps
from symattn.bounds.mistake import At, Mistake, MistakeFamily, Wrong, change, number

_BASES = tuple(np.geomspace(1.1, 100, 25))  # starting points of the search for another base


class _Merged(NamedTuple):
    """The arrays of a merge in a run: outputs, weights as shares of their sum, and log-sums."""

    o1: Any
    share_1: Any
    o2: Any
    share_2: Any
    l1: Any
    l2: Any


#: Wrong outputs.
_WRONG: Mapping[str, Callable[[_Merged], Any]] = {
    "the outputs are added without weights": lambda of: of.o1 + of.o2,
    "the outputs are averaged, whatever their log-sums": lambda of: (of.o1 + of.o2) / 2,
    "only the second output is weighted": lambda of: of.o1 + of.o2 * of.share_2,
    "only the first output is weighted": lambda of: of.o1 * of.share_1 + of.o2,
    "the outputs are weighted by their log-sums, not by the powers of these": lambda of: (
        (of.o1 * of.l1 + of.o2 * of.l2) / (of.l1 + of.l2)
    ),
    "each output has the weight of the other": lambda of: of.o1 * of.share_2 + of.o2 * of.share_1,
    "both outputs have the weight of the first": lambda of: (of.o1 + of.o2) * of.share_1,
    "both outputs have the weight of the second": lambda of: (of.o1 + of.o2) * of.share_2,
}
#: Which log-sums are taken for those of the other base: the first, the second, and whether the merged one is, too.
_MISREAD: Mapping[str, tuple[bool, bool, bool]] = {
    "{meant} are taken as {taken}": (True, True, True),
    "{meant} are taken as {taken}; the merged one is returned correctly": (True, True, False),
    "the first of the {meant} is taken as {taken}": (True, False, False),
    "the second of the {meant} is taken as {taken}": (False, True, False),
    "the first of the {meant} is taken as {taken}, and so is that of both": (True, False, True),
    "the second of the {meant} is taken as {taken}, and so is that of both": (False, True, True),
}


def mistakes_of_step(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield the mistakes of a step that takes o₁, w₁, o₂, w₂ and w₁ + w₂, where w₁ is a power of a log-sum."""
    lse, log_sums = _find_log_sums(spec, step)
    meant, taken = _name_bases(spec.base)
    for words, which in _MISREAD.items():
        reads = {
            n: to_other_base(spec.base)
            for n, is_read in zip(log_sums, which, strict=False)
            if is_read
        }
        back: dict[str, Wrong] = {lse.name: _of_other_base} if which[2] else {}
        cause = words.format(meant=meant, taken=taken)
        yield in_stated_steps(spec, step.blames, cause, back, reads=reads)
    cause = f"the weights are computed from {meant} as if they were {taken}"
    yield in_stated_steps(spec, step.blames, cause, {step.name: _weigh_in_other_base(log_sums)})
    for name, stays in zip(log_sums, ("first", "second"), strict=True):
        stale: Wrong = lambda at, name=name: at.values[name] * 1  # type: ignore[misc] # noqa: E731
        words = f"the log-sum is not updated: it is the {stays} one"
        yield in_stated_steps(spec, lse.blames, words, {lse.name: stale})
    yield from _yield_mistakes_of_weights(spec, step)
    for words, wrong in _WRONG.items():
        run: Wrong = lambda at, wrong=wrong: wrong(_read_merged(at, log_sums))  # type: ignore[misc] # noqa: E731
        yield in_stated_steps(spec, step.blames, words, {step.name: run})


def _yield_mistakes_of_weights(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield one weight that is a power of the other base."""
    _, first, _, second, _ = step.of
    power = "e^(l − max l)" if spec.base else "2^(l − max l)"
    for which, name in (("first", first), ("second", second)):
        words = f"the {which} weight is {power}, the other is not"
        yield in_stated_steps(spec, step.blames, words, {name: _raise_in_other_base})


def _raise_in_other_base(at: At) -> Any:
    log_sum, top = at.taken
    return powers(log_sum - reference(top), None if at.spec.base else 2)


def families_of_step(spec: Any, step: Step) -> Iterator[MistakeFamily]:
    """Yield the mistake of log-sums of another base."""
    lse, log_sums = _find_log_sums(spec, step)

    def way(x: float) -> ChangedSteps:
        # The factor turns logarithms of base x into logarithms of the base.
        def factor(like: Any) -> Any:
            return logarithms(number(like, x), spec.base)

        back: Wrong = lambda at: at.right() / factor(at.first)  # noqa: E731
        reads = dict.fromkeys(log_sums, lambda lse: factor(lse) * lse)
        return ChangedSteps(spec, {lse.name: change(lse.name, back)}, reads)

    yield MistakeFamily(step.blames, "log-sums are taken as logarithms of base {}", way, _BASES)


def _find_log_sums(spec: Any, step: Step) -> tuple[Step, tuple[str, str]]:
    """Return the step of the merged log-sum, and the names of the two that the weights are powers of."""
    steps = {s.name: s for s in spec.pipeline_of_all}
    (lse,) = (s for s in steps.values() if s.role == "lse")
    _, first, _, second, _ = step.of
    return lse, (steps[first].of[0], steps[second].of[0])


def _name_bases(base: int | None) -> tuple[str, str]:
    if base:
        return "log-sums of base 2", "natural"
    return "natural log-sums", "logarithms of base 2"


def to_other_base(base: int | None) -> Callable[[Any], Any]:
    """Return what makes of logarithms of the other base, e or 2, the numbers of those of this one."""

    def convert(lse: Any) -> Any:
        two = namespace_of(lse).log(number(lse, 2))
        return lse / two if base else lse * two

    return convert


def _of_other_base(at: At) -> Any:
    return to_other_base(None if at.spec.base else 2)(at.right())


def _weigh_in_other_base(log_sums: tuple[str, str]) -> Wrong:
    def wrong(at: At) -> Any:
        o1, w_1, o2, w_2, _ = at.taken
        other = None if at.spec.base else 2
        l1, l2 = (at.values[name] for name in log_sums)
        xp = at.xp
        top = xp.maximum(l1, l2)
        top = xp.where(xp.isfinite(top), top, 0)
        w_1, w_2 = powers(l1 - top, other), powers(l2 - top, other)
        return at.right(o1, w_1, o2, w_2, w_1 + w_2)

    return wrong


def _read_merged(at: At, log_sums: tuple[str, str]) -> _Merged:
    o1, w_1, o2, w_2, total = at.taken
    l1, l2 = (at.values[name] for name in log_sums)
    return _Merged(o1, w_1 / total, o2, w_2 / total, l1, l2)

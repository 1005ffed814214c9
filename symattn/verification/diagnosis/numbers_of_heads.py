"""Numbers that differ from head to head, such as slopes by another formula: each is read off its head's output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.case_result import CaseResult, largest
from symattn.bounds.mistake import Mistake
from symattn.verification.diagnosis.conditions import (
    BETTER,
    STEPS,
    plain,
    select_small_finite_cases,
)
from symattn.verification.rules.families import HEAD_FACTORS, HeadFamily, families_of_heads
from symattn.verification.rules.golden_section import minimise_by_golden_section

if TYPE_CHECKING:
    from symattn.verification.diagnosis.attention_search import AttentionSearch

MAX_HEADS = 16  # whose numbers a sentence lists
MAX_PLAINER_NUMBERS = 8  # that are tried for each head
# share of the error by which a plainer number may leave more: a table of numbers is rarely plain
NEARLY_NOTHING = 1e-6
MAX_CASES = 20  # of either kind that must allow the numbers
#: Returns the largest error in each head of a mistake, or of the definition.
Misses: TypeAlias = "Callable[[Mistake | None], np.ndarray]"


def mistakes(search: AttentionSearch, spec: Attention) -> Iterator[Mistake]:
    """Yield the mistakes with a number for each head that leave little of each head's error.

    A head's output depends on its own number alone, so that one run tries a number in every head at once.
    """
    axis = search.axes_of_outputs().get("heads")
    if axis is None or spec.heads > MAX_HEADS:
        return
    cases = select_small_finite_cases(search.wrong)
    names = {step.name for step in spec.pipeline(frozenset(search.wrong[0].case.inputs))}
    for family in families_of_heads(spec) if cases else ():
        if family.name in names or family.spec is not None:
            misses = partial(_misses_of_heads, search, cases, axis)
            allowed = partial(_is_allowed, search)
            yield from _fit_numbers_of_heads(family, misses, allowed, spec.heads)


def _is_allowed(search: AttentionSearch, mistake: Mistake) -> bool:
    """Return whether floats allow a mistake in some cases of either kind."""
    few = (*search.wrong[:MAX_CASES], *search.right[:MAX_CASES])
    return all(search.screened(judged, mistake) is not False for judged in few)


def _misses_of_heads(
    search: AttentionSearch, cases: Sequence[CaseResult], axis: int, mistake: Mistake | None
) -> np.ndarray:
    """Return the largest error of a mistake, or of the definition, in each head's output, (h,)."""
    every = [_miss_of_each_head(search, judged, axis, mistake) for judged in cases]
    return np.asarray(np.sum(every, axis=0))


def _miss_of_each_head(
    search: AttentionSearch, judged: CaseResult, axis: int, mistake: Mistake | None
) -> np.ndarray:
    (part,) = judged.parts
    unknown = np.full(search.session.attention.heads, np.inf)
    outputs, got = search.outputs(judged, mistake), part.got
    if outputs is None or got is None or outputs[0].shape != got.shape:
        return unknown
    # Some numbers have no finite output.
    if not np.isfinite(outputs[0]).all():
        return unknown
    errors = np.moveaxis(np.abs(got - outputs[0]), axis, 0)
    greatest = errors.reshape(len(errors), -1).max(axis=1, initial=0.0)
    return np.asarray(greatest / max(largest(part.expected.near), 1e-300))


def _fit_numbers_of_heads(
    family: HeadFamily,
    misses: Misses,
    allowed: Callable[[Mistake], bool],
    heads: int,
) -> Iterator[Mistake]:
    grid = np.asarray(HEAD_FACTORS)

    def of(numbers: np.ndarray) -> np.ndarray:
        return misses(family.mistake(numbers.tolist(), ""))

    distances = np.stack([of(np.full(heads, x)) for x in grid])
    best = distances.argmin(axis=0)
    if not np.isfinite(distances.min(axis=0)).all():
        return
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    numbers, least = minimise_by_golden_section(of, low, high, STEPS)
    wrong = misses(None)
    # A number for all heads alike is for another family to say.
    if (least > BETTER * wrong.max()).any() or np.ptp(numbers) <= BETTER * np.abs(numbers).max():
        return
    plainly = _write_numbers_plainly(family, numbers, misses, 2 * least + NEARLY_NOTHING * wrong)
    exactly = family.mistake(numbers.tolist(), _list_numbers(f"{x:.6g}" for x in numbers))
    # A plainer number may be near in the fitted cases, and clearly another one elsewhere.
    yield from islice(filter(allowed, (plainly, exactly)), 1)


def _list_numbers(written: Iterable[str]) -> str:
    return ", ".join(written).replace("-", "−")


def _write_numbers_plainly(
    family: HeadFamily, numbers: np.ndarray, misses: Misses, most: np.ndarray
) -> Mistake:
    """Return the mistake with the plainest number of each head that leaves at most ``most`` of its error."""
    chosen, written = numbers.copy(), [f"{x:.6g}" for x in numbers]
    is_open = np.ones(len(numbers), dtype=bool)
    plainer = [[*islice(plain(float(x)), MAX_PLAINER_NUMBERS)] for x in numbers]
    for place in range(MAX_PLAINER_NUMBERS):
        # In each head the last number stays if it has no further one.
        pairs = [of_head[min(place, len(of_head) - 1)] for of_head in plainer]
        tried = np.asarray([x for x, _ in pairs])
        fits = is_open & (misses(family.mistake(tried.tolist(), "")) <= most)
        chosen = np.where(fits, tried, chosen)
        written = [w if fit else old for fit, (_, w), old in zip(fits, pairs, written, strict=True)]
        is_open &= ~fits
    return family.mistake(chosen.tolist(), _list_numbers(written))

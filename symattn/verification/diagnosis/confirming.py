"""Held-out inputs: a cause must explain inputs of other sizes, which are drawn after it was chosen.

A mistake that explains all calls so far may do so by chance: the sizes tried are few, and small ones hide tiles, edges
and offsets. So it is asked at sizes that no other input has. One contradiction, and it is not the cause, or it is made
under a condition, which is then confirmed in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.case_result import OF_VALUES, CaseResult
from symattn.bounds.mistake import Mistake
from symattn.verification.diagnosis.screening import LITTLE, errors_of

if TYPE_CHECKING:
    from symattn.verification.diagnosis.causes import Search


HELD_OUT_SEED = 49  # the second number of the seed of held-out inputs; no other inputs have it
_MOST_NUMBERS = 2  # numbers in the words of mistakes from which sizes are made, the largest ones
_LARGEST_NUMBER = 300  # of those numbers: larger ones take long
_MOST_QUERIES = 40  # of an input with a length from such a number
_NUMBERS = re.compile(r"(?<![\d.,/√])\d+(?![\d.,])")


def contradicts(search: Search, judged: CaseResult, mistake: Mistake) -> bool:
    """Return whether a held-out case shows that a mistake is not the cause, or not all of it."""
    # A call that did not return shows nothing.
    if judged.outcome.late:
        return False
    # Where the mistake is not in effect, nothing may be wrong.
    if mistake.where is not None and not mistake.where.holds(judged):
        return _is_wrong(search, judged)
    if search.rules_out(judged, mistake):
        return True
    has_ways_around = bool(mistake.around)
    # What is left of roundings changes with the sizes, and says nothing.
    is_rounding = not mistake.exact or has_ways_around
    return not is_rounding and _leaves_much(search, judged, mistake)


def _is_wrong(search: Search, judged: CaseResult) -> bool:
    """Return whether one of the outputs concerned is wrong."""
    among = search.among
    return judged.finding in OF_VALUES and (among is None or bool(judged.wrong & among))


def _leaves_much(search: Search, judged: CaseResult, mistake: Mistake) -> bool:
    """Return whether the mistake leaves more than ``LITTLE`` of the error, or has an error that the function has not.

    With e = y − o and d = o_m − o in units of the bound, only entries with |e| > 1 or |d| > 1 count: in the others,
    legal roundings may be all of e. The mistake leaves Σ (e − d)², compared with the larger of Σ e² and Σ d².
    """
    pair = errors_of(search, judged, search.comparable_outputs(judged, mistake))
    if pair is None:
        return False
    e, d = pair
    telling = (np.abs(e) > 1) | (np.abs(d) > 1)
    # In units of the largest entry, as squares of extreme errors would overflow.
    size = max(np.abs(e[telling]).max(initial=0.0), np.abs(d[telling]).max(initial=0.0))
    if not size:
        return False
    e = e[telling] / size
    d = d[telling] / size
    squares = max(float((e**2).sum()), float((d**2).sum()))
    return float(((e - d) ** 2).sum()) > LITTLE * squares


def lengths_near_numbers(mistakes: Iterable[Mistake], most: int) -> Iterator[tuple[int, int]]:
    """Yield pairs (n_q, n_k) of at most ``most`` at and around the numbers in the words of mistakes, such as tiles.

    With a number t, a mistake in blocks of t shows beyond t keys. One that rounds the offset n_k − n_q shows if n_q is
    small, and vanishes if the offset is a multiple of t.
    """
    numbers = {int(n) for mistake in mistakes for n in _NUMBERS.findall(mistake.cause)}
    # Numbers above the limit need inputs that take long.
    likely = sorted(n for n in numbers if 1 < n <= _LARGEST_NUMBER)
    for t in likely[-_MOST_NUMBERS:]:
        around = ((5, t + 5), (3, t + 1), (2, 2 * t), (min(t, _MOST_QUERIES), 2 * t + 3))
        yield from (pair for pair in around if max(pair) <= most)

"""Where a mistake is made: at sizes that a plain condition tells apart from those at which all is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.mistake import Where

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_TILES = (2, 4, 8, 16, 32, 64, 128)
_PAIRS = (("n_q", "n_k"), ("d_v", "d_k"), ("n_q", "d_k"), ("n_k", "d_k"))
_LENGTHS = ("n_k", "n_q", "d_k", "d_v")
M = TypeVar("M", bound=Any)
Test = Callable[[dict[str, int]], bool]
Answer = Callable[[CaseResult], bool | None]
_ANY: tuple[str, Test] = ("", lambda sizes: True)


def conditions() -> Iterator[tuple[str, Test]]:
    """Conditions on sizes, the plainest first."""
    for a, b in _PAIRS:
        yield f"{a} ≠ {b}", lambda s, a=a, b=b: s[a] != s[b]  # type: ignore[misc]
        yield f"{a} < {b}", lambda s, a=a, b=b: s[a] < s[b]  # type: ignore[misc]
        yield f"{a} > {b}", lambda s, a=a, b=b: s[a] > s[b]  # type: ignore[misc]
        yield f"{a} = {b}", lambda s, a=a, b=b: s[a] == s[b]  # type: ignore[misc]
    yield "there are several batch items", lambda s: s["batch"] > 1
    for name in _LENGTHS:
        yield f"{name} = 1", lambda s, n=name: s[n] == 1  # type: ignore[misc]
        yield f"{name} > 1", lambda s, n=name: s[n] > 1  # type: ignore[misc]
        for t in reversed(_TILES):
            yield f"{name} > {t}", lambda s, n=name, t=t: s[n] > t  # type: ignore[misc]
            yield f"{name} ≥ {t}", lambda s, n=name, t=t: s[n] >= t  # type: ignore[misc]
            yield f"{name} < {t}", lambda s, n=name, t=t: s[n] < t  # type: ignore[misc]
        for t in (2, 3, 4, 5, 6, 7, *_TILES[2:]):
            yield f"{name} = {t}", lambda s, n=name, t=t: s[n] == t  # type: ignore[misc]
        yield from _multiples(name)


def _multiples(name: str) -> Iterator[tuple[str, Test]]:
    for t in _TILES:
        yield f"{name} is a multiple of {t}", lambda s, n=name, t=t: s[n] % t == 0  # type: ignore[misc]
        yield f"{name} is not a multiple of {t}", lambda s, n=name, t=t: s[n] % t != 0  # type: ignore[misc]


def separating(
    session: Session, wrong: Sequence[CaseResult], right: Sequence[CaseResult]
) -> Iterator[tuple[str, Test]]:
    """The conditions that hold for all of the former, and for none of the latter."""
    yes, no = ([session.subject.measured(r) for r in of] for of in (wrong, right))
    for words, test in conditions():
        try:
            if all(map(test, yes)) and not any(map(test, no)):
                yield words, test
        except KeyError:  # there is no such size
            continue


def thresholds(
    session: Session, wrong: Sequence[CaseResult], right: Sequence[CaseResult], answer: Answer
) -> Iterator[tuple[str, Test]]:
    """“n_k ≥ 200”, or that for multiples of a tile's length, or for others alone: a size from which on all is wrong,
    found by halves between the largest right and the smallest wrong one. ``answer`` says whether a case shows it."""
    yes, no = ([session.subject.measured(r) for r in of] for of in (wrong, right))
    for name in (n for n in _LENGTHS if n in yes[0]):
        for words, test in (_ANY, *_multiples(name)):
            low = max((s[name] for s in no if test(s)), default=0)
            high = min(s[name] for s in yes)
            if 0 < low < high and all(map(test, yes)):
                first = _first(session, name, yes[0], (low, high), test, answer)
                yield (
                    f"{name} ≥ {first}{words and f' and {words}'}",
                    lambda s, n=name, t=first, test=test: s[n] >= t and test(s),  # type: ignore[misc]
                )


def _first(
    session: Session, name: str, usual: dict[str, int], between: tuple[int, int], test: Test, answer: Answer
) -> int:
    low, high = between
    while high - low > 1:
        middle = (low + high) // 2
        middle += not test(usual | {name: middle})
        wanted = {n: min(usual[n], 3) for n in _LENGTHS if n in usual} | {name: middle}
        result = _is_made(session, name, wanted, answer) if middle < high else None
        if result is None:
            return high
        low, high = (low, middle) if result else (middle, high)
    return high


def _is_made(session: Session, name: str, wanted: Mapping[str, int], answer: Answer) -> bool | None:
    """Return whether a mistake is made at these sizes; None where no inputs show it.

    The first inputs that show it or its absence decide; where none do, whether something is wrong.
    """
    wrong: bool | None = None
    for inputs in session.subject.sized(session, wanted, np.random.default_rng((session.seed, 5))):
        judged = session.run_case(Case("sizes", "", inputs)) if inputs is not None else None
        if judged is None or judged.outcome.late or session.subject.measured(judged)[name] != wanted[name]:
            continue
        if (result := answer(judged)) is not None:
            return result
        wrong = wrong or judged.finding is not None
    return wrong


def only_where(session: Session, mistake: M, words: str, test: Test) -> M:
    """Return the same mistake, made where the condition holds."""
    where = Where(words, lambda judged: test(session.subject.measured(judged)))
    return replace(mistake, cause=f"{mistake.cause}, where {words}", where=where)

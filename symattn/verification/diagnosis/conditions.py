"""Where a mistake is made: sizes that a simple condition separates from those at which all is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, count, product
from math import gcd
from operator import eq, ge, gt, lt, ne
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.mistake import Where
from symattn.verification.rules.softmaxes import TILES

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_PAIRS = (("n_q", "n_k"), ("d_v", "d_k"))
_APART = (("n_q", "d_k"), ("n_k", "d_k"))  # unrelated sizes, which code compares only by mistake
_LENGTHS = ("n_k", "n_q", "d_k", "d_v")
_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "≠": ne, "=": eq, "<": lt, ">": gt, "≥": ge,
    "is a multiple of": lambda n, t: n % t == 0, "is not a multiple of": lambda n, t: n % t != 0,
}  # fmt: skip
M = TypeVar("M", bound=Any)
Test = Callable[[dict[str, int]], bool]
Answer = Callable[[CaseResult], bool | None]
Made = Callable[[int], bool | None]  # whether a mistake is made at a size


def _condition(a: str, relation: str, b: str | int) -> tuple[str, Test]:
    """Return a relation of a size to another one, or to a number, and its test."""
    return f"{a} {relation} {b}", lambda s: _RELATIONS[relation](s[a], s[b] if isinstance(b, str) else b)


def _between(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Test]]:
    return (_condition(a, relation, b) for (a, b), relation in product(pairs, "≠<>="))


def conditions() -> Iterator[tuple[str, Test]]:
    """Yield conditions on sizes, the simplest first."""
    yield from _between(_PAIRS)
    yield "there are several batch items", lambda s: s["batch"] > 1
    for name in _LENGTHS:
        yield from (_condition(name, "=", 1), _condition(name, ">", 1))
        yield from (_condition(name, "=", t) for t in (2, 3, 4, 5, 6, 7, *TILES[2:]))
        yield from (_condition(name, f"is {no}a multiple of", t) for t, no in product(TILES, ("", "not ")))


def separating(
    session: Session, wrong: Sequence[CaseResult], right: Sequence[CaseResult], answer: Answer | None = None
) -> Iterator[tuple[str, Test]]:
    """Yield conditions that hold for all wrong cases and for no right one. With ``answer``, which says whether a case
    shows the fault, limits are found by further calls."""
    yes, no = ([session.subject.measured(r) for r in of] for of in (wrong, right))
    asked = _thresholds(session, yes, no, answer) if answer else ()
    limits = (_condition(name, relation, t) for name, t, relation in product(_LENGTHS, TILES[::-1], ">≥<"))
    for words, test in chain(conditions(), asked, limits, _between(_APART)):
        try:
            if all(map(test, yes)) and not any(map(test, no)):
                yield words, test
        except KeyError:  # the subject has no such size
            continue


def _thresholds(
    session: Session, yes: Sequence[dict[str, int]], no: Sequence[dict[str, int]], answer: Answer
) -> Iterator[tuple[str, Test]]:
    """Yield conditions like “n_k ≥ 200”, also for multiples of a number alone, or for all others. The limit is found by
    bisection between the largest right and the smallest wrong size."""
    for name in (n for n in _LENGTHS if n in yes[0]):
        sizes, others = sorted(s[name] for s in yes), [s[name] for s in no]
        if not min(others, default=sizes[0]) < sizes[0]:
            continue
        ask = cache(partial(_is_made, session, name, yes[0], answer))
        words, holds = _period(ask, sizes, [n for n in others if n > sizes[0]])
        if low := max((n for n in others if n < sizes[0] and holds(n)), default=0):
            first = _first(ask, low, sizes[0], holds)
            bound = f"> {first - 1}" if first - 1 in TILES else f"≥ {first}"
            yield (
                f"{name} {bound}{words and f' and {name} {words}'}",
                lambda s, n=name, t=first, holds=holds: s[n] >= t and holds(s[n]),  # type: ignore[misc]
            )


def _period(ask: Made, wrong: Sequence[int], right: Sequence[int]) -> tuple[str, Callable[[int], bool]]:
    """Return which lengths from the least wrong one on are wrong: all, the multiples of a number, or the others. If no
    larger length is known to be right, lengths with large powers of two are tried."""
    least = wrong[0]
    right = right or [n for p in (3, 5, 7) if ask(n := p << (2 * least // p).bit_length()) is False]
    if not right:
        return "", lambda n: True
    if (t := _divisor(ask, True, gcd(*wrong), least)) > 1:
        return f"is a multiple of {t}", lambda n: n % t == 0
    t = _divisor(ask, False, gcd(*right), least)
    return f"is not a multiple of {t}", lambda n: n % t != 0


def _divisor(ask: Made, made: bool, t: int, least: int) -> int:
    """Return the least divisor of t at whose multiples, from ``least`` on, the mistake is ``made``, or is not."""
    for p in (p for p in range(2, t + 1) if t % p == 0 and all(p % d for d in range(2, p))):
        while t % p == 0 and ask(t // p * next(m for m in count(max(1, -(-least * p // t))) if m % p)) is made:
            t //= p
    return t


def _first(ask: Made, low: int, high: int, holds: Callable[[int], bool]) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        middle = next((n for n in range(middle, high) if holds(n)), high)
        result = ask(middle) if middle < high else None
        if result is None:
            return high
        low, high = (low, middle) if result else (middle, high)
    return high


def _is_made(session: Session, name: str, usual: dict[str, int], answer: Answer, size: int) -> bool | None:
    """Return whether a mistake is made at this size; None if no inputs show it.

    The first inputs that show it or its absence decide; if none do, whether something is wrong.
    """
    wanted = {n: min(usual[n], 3) for n in _LENGTHS if n in usual} | {name: size}
    wrong: bool | None = None
    for inputs in session.subject.sized(session, wanted, np.random.default_rng((session.seed, 5))):
        judged = session.run_case(Case("sizes", "", inputs)) if inputs is not None else None
        if judged is None or judged.outcome.late or session.subject.measured(judged)[name] != size:
            continue
        if (result := answer(judged)) is not None:
            return result
        wrong = wrong or judged.finding is not None
    return wrong


def only_where(session: Session, mistake: M, words: str, test: Test) -> M:
    """Return the same mistake, made only where the condition holds."""
    where = Where(words, lambda judged: test(session.subject.measured(judged)))
    return replace(mistake, cause=f"{mistake.cause}, where {words}", where=where)

"""Where a mistake is made, by a simple condition on sizes; and mistakes with a number that is not in any table.

The condition separates the sizes from those at which all is right. The number is fitted to some wrong cases, and the
mistake must then explain all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, count, product
from math import gcd, isfinite, isqrt
from operator import eq, ge, gt, lt, ne
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.mistake import Mistake, MistakeFamily, Where
from symattn.verification.rules.golden_section import minimise_by_golden_section
from symattn.verification.rules.softmaxes import TILES

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_PAIRS = (("n_q", "n_k"), ("d_v", "d_k"))
_APART = (("n_q", "d_k"), ("n_k", "d_k"))  # unrelated sizes, which code compares only by mistake
_LENGTHS = ("n_k", "n_q", "d_k", "d_v")
_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "≠": ne,
    "=": eq,
    "<": lt,
    ">": gt,
    "≥": ge,
    "is a multiple of": lambda n, t: n % t == 0,
    "is not a multiple of": lambda n, t: n % t != 0,
}
Test = Callable[[dict[str, int]], bool]
Answer = Callable[[CaseResult], bool | None]
Made = Callable[[int], bool | None]  # whether a mistake is made at a size


def _make_size_condition(a: str, relation: str, b: str | int) -> tuple[str, Test]:
    """Return a relation of a size to another one, or to a number, and its test."""
    return f"{a} {relation} {b}", lambda s: _RELATIONS[relation](
        s[a], s[b] if isinstance(b, str) else b
    )


def _of_offset(relation: str, t: int) -> tuple[str, Test]:
    """Return a relation of the offset n_k − n_q to a number, and its test."""
    return f"n_k − n_q {relation} {t}", lambda s: _RELATIONS[relation](s["n_k"] - s["n_q"], t)


def _yield_size_relations(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Test]]:
    return (_make_size_condition(a, relation, b) for (a, b), relation in product(pairs, "≠<>="))


def conditions() -> Iterator[tuple[str, Test]]:
    """Yield conditions on sizes, the simplest first."""
    yield from _yield_size_relations(_PAIRS)
    yield "there are several batch items", lambda s: s["batch"] > 1
    yield from (_of_offset("=", t) for t in (1, 2))
    for name in _LENGTHS:
        yield from (_make_size_condition(name, "=", 1), _make_size_condition(name, ">", 1))
        yield from (_make_size_condition(name, "=", t) for t in (2, 3, 4, 5, 6, 7, *TILES[2:]))
        yield from (
            _make_size_condition(name, f"is {no}a multiple of", t)
            for t, no in product(TILES, ("", "not "))
        )
    yield from (_of_offset(f"is {no}a multiple of", t) for t, no in product(TILES, ("", "not ")))


def separating(
    session: Session,
    wrong: Sequence[CaseResult],
    right: Sequence[CaseResult],
    answer: Answer | None = None,
) -> Iterator[tuple[str, Test]]:
    """Yield conditions that hold for all wrong cases and for no right one. With ``answer``, which says whether a case
    shows the fault, limits are found by further calls."""
    yes, no = ([session.subject.source.measured(r) for r in of] for of in (wrong, right))
    thresholds = _yield_length_thresholds(session, yes, no, answer) if answer else ()
    limits = (
        _make_size_condition(name, relation, t)
        for name, t, relation in product(_LENGTHS, TILES[::-1], ">≥<")
    )
    # after limits of one length, which are commoner and are found by calls
    of_offsets = (_of_offset(relation, t) for relation, t in product(("≥", "<"), TILES))
    for words, test in chain(
        conditions(), thresholds, limits, of_offsets, _yield_size_relations(_APART)
    ):
        try:
            if all(map(test, yes)) and not any(map(test, no)):
                yield words, test
        except KeyError:  # the subject has no such size
            continue


def _yield_length_thresholds(
    session: Session, yes: Sequence[dict[str, int]], no: Sequence[dict[str, int]], answer: Answer
) -> Iterator[tuple[str, Test]]:
    """Yield conditions like “n_k ≥ 200”, also for multiples of a number alone, or for all others. The limit is found by
    bisection between the largest right and the smallest wrong size."""
    for name in (n for n in _LENGTHS if n in yes[0]):
        sizes = sorted(s[name] for s in yes)
        others = [s[name] for s in no]
        # A right length below the least wrong one is needed to search between.
        if not min(others, default=sizes[0]) < sizes[0]:
            continue
        # Each length costs calls, and both searches try some lengths twice.
        ask = cache(partial(_is_made, session, name, yes[0], answer))
        words, holds = _find_length_period(ask, sizes, [n for n in others if n > sizes[0]])
        if low := max((n for n in others if n < sizes[0] and holds(n)), default=0):
            first = _bisect_first_wrong_length(ask, low, sizes[0], holds)
            # A limit at a tile reads as that tile, such as “> 64”.
            bound = f"> {first - 1}" if first - 1 in TILES else f"≥ {first}"
            yield (
                f"{name} {bound}{words and f' and {name} {words}'}",
                lambda s, n=name, t=first, holds=holds: s[n] >= t and holds(s[n]),  # type: ignore[misc]
            )


def _find_length_period(
    ask: Made, wrong: Sequence[int], right: Sequence[int]
) -> tuple[str, Callable[[int], bool]]:
    """Return which lengths from the least wrong one on are wrong: all, the multiples of a number, or the others. If no
    larger length is known to be right, lengths with large powers of two are tried."""
    least = wrong[0]
    # Lengths with few odd factors tell a multiple of a tile from a bound.
    right = right or [n for p in (3, 5, 7) if ask(n := p << (2 * least // p).bit_length()) is False]
    if not right:
        return "", lambda n: True
    if (t := _find_least_length_divisor(ask, True, gcd(*wrong), least)) > 1:
        return f"is a multiple of {t}", lambda n: n % t == 0
    t = _find_least_length_divisor(ask, False, gcd(*right), least)
    return f"is not a multiple of {t}", lambda n: n % t != 0


def _find_least_length_divisor(ask: Made, made: bool, t: int, least: int) -> int:
    """Return the least divisor of t at whose multiples, from ``least`` on, the mistake is ``made``, or is not."""
    divisors = (p for p in range(2, t + 1) if t % p == 0)
    primes = (p for p in divisors if all(p % d for d in range(2, p)))
    # Prime factors of t are divided out as long as the answer stays the same.
    for p in primes:
        while t % p == 0:
            smaller = t // p
            # The first multiple of the smaller number, from ``least`` on, that is none of t.
            first = max(1, -(-least // smaller))
            multiple = next(m for m in count(first) if m % p)
            if ask(smaller * multiple) is not made:
                break
            t = smaller
    return t


def _bisect_first_wrong_length(ask: Made, low: int, high: int, holds: Callable[[int], bool]) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        middle = next((n for n in range(middle, high) if holds(n)), high)
        result = ask(middle) if middle < high else None
        # No inputs have this length, so the least known wrong one is the limit.
        if result is None:
            return high
        low, high = (low, middle) if result else (middle, high)
    return high


def _is_made(
    session: Session, name: str, usual: dict[str, int], answer: Answer, size: int
) -> bool | None:
    """Return whether a mistake is made at this size; None if no inputs show it.

    The first inputs that show it or its absence decide; if none do, whether something is wrong.
    """
    # All other lengths are small, so that calls are fast.
    wanted = {n: min(usual[n], 3) for n in _LENGTHS if n in usual} | {name: size}
    wrong: bool | None = None
    for inputs in session.subject.source.sized(
        session, wanted, np.random.default_rng((session.seed, 5))
    ):
        judged = session.run_case(Case("sizes", "", inputs)) if inputs is not None else None
        if (
            judged is None
            or judged.outcome.late
            or session.subject.source.measured(judged)[name] != size
        ):
            continue
        # A case that shows neither decides by its finding alone, if no other case does.
        if (result := answer(judged)) is not None:
            return result
        wrong = wrong or judged.finding is not None
    return wrong


def only_where(session: Session, mistake: Mistake, words: str, test: Test) -> Mistake:
    """Return the same mistake, made only where the condition holds."""
    where = Where(words, lambda judged: test(session.subject.source.measured(judged)))
    if session.records and "n_k" not in session.subject.source.measured(session.records[0]):
        # A definition with one number of tokens calls it n.
        words = words.replace("n_q", "n")
    return replace(mistake, cause=f"{mistake.cause}, where {words}", where=where)


_CASES = 4  # cases that a number is fitted to
_SMALL = 2000  # entries of inputs of such a case
STEPS = 40  # of the search between two points of the grid
_NEAR = 0.01  # how far a simpler number may be from the one that fits
_USUAL = (-1e4, -1e9, -65504.0, -1e5, -1e3, -1e30)  # used instead of −∞ in published code
# the ratio of successive numbers that are tried, and how many are skipped far away
_WIDER = 1.25
_FASTER = 10  # steps that a factor takes at once after half of them
_NOTHING = 1e-4  # a smaller number leaves its step out
_FEW = 100  # the largest m of which 1/m is simpler than a decimal of one digit
BETTER = 0.02  # how much of the error may be left
_AS_LITTLE = 1e-3  # of the error, by which a plainer number may leave more


#: How far the outputs of a case are from a mistake, or from the definition.
Miss = Callable[[CaseResult, Mistake | None], float]
#: Returns the numbers near a fitted one that have names, with their names.
Named = Callable[[float], Iterable[tuple[float, str]]]


def fitted(
    families: Iterable[MistakeFamily],
    miss: Miss,
    wrong: Sequence[CaseResult],
    explains: Callable[[Mistake], bool],
    named: Named = lambda x: (),
) -> Iterator[Mistake]:
    """Yield mistakes whose number fits; of the numbers near it, those that are ``named`` and then the simplest come
    first.

    ``miss`` returns the largest error of a mistake in a case, or of the definition for None. If other numbers also
    explain everything, by ``explains``, and leave as little, the words give their range and no number.
    """
    cases = select_small_finite_cases(wrong)

    def misses(mistake: Mistake | None) -> float:
        return sum(miss(judged, mistake) for judged in cases)

    for family in families if cases else ():
        theta = _fit_mistake_number(family, misses)
        if theta is not None:
            # A plainer number may leave a little more than the best one.
            most = 2 * misses(family.mistake(theta, "")) + _AS_LITTLE * misses(None)
            numbers = [*named(theta), *plain(theta)]
            yield from _written_plainly(
                family,
                numbers,
                lambda m, most=most: explains(m) and misses(m) <= most,  # type: ignore[misc]
            )


def _written_plainly(
    family: MistakeFamily, numbers: Sequence[tuple[float, str]], explains: Callable[[Mistake], bool]
) -> Iterator[Mistake]:
    for place, (x, words) in enumerate(numbers):
        result = family.mistake(x, words)
        if explains(result):
            # Numbers beyond that explain as well: the words then say a range.
            ends = [
                _find_last_explaining_number(family, x, by, explains) for by in (1 / _WIDER, _WIDER)
            ]
            words = _describe_number_range(*sorted(ends)) if ends != [x, x] else words
            yield family.mistake(x, words)
            # Cases with large scores may show that it has more digits.
            numbers = numbers[place + 1 :]
            break
    yield from (family.mistake(x, words) for x, words in numbers)


def _find_last_explaining_number(
    family: MistakeFamily, x: float, by: float, explains: Callable[[Mistake], bool]
) -> float:
    """Return the last of x, x·by, x·by², … that explains everything, ±∞ if all do."""
    if x == 0:
        return x
    for number in range(STEPS):
        # Factors grow after some steps, so that unbounded ranges end.
        step = by if number < STEPS // 2 else by**_FASTER
        if not explains(family.mistake(x * step, "")):
            return x
        x *= step
    return 0.0 if by < 1 else float(np.copysign(np.inf, x))


def _describe_number_range(low: float, high: float) -> str:
    """Describe a range of numbers of one sign."""
    usual = next(
        (f"{_format_fitted_number(x)} or another, " for x in _USUAL if low <= x <= high), ""
    )
    if np.isinf(low):
        return f"a finite number ({usual}no higher than {_format_fitted_number(high)})"
    if np.isinf(high):
        return f"a finite number ({usual}no lower than {_format_fitted_number(low)})"
    return f"a finite number ({usual}between {_format_fitted_number(low)} and {_format_fitted_number(high)})"


def _format_fitted_number(x: float) -> str:
    return (
        f"{x:.0f}".replace("-", "−")
        if 100 <= abs(x) < 1e5
        else f"{x:.3g}".replace("-", "−").replace("e+0", "e")
    )


def select_small_finite_cases(wrong: Sequence[CaseResult]) -> list[CaseResult]:
    """Return small cases of several widths and numbers of keys, with finite outputs."""
    result: dict[tuple[int, ...], CaseResult] = {}
    for judged in wrong:
        if (
            judged.ratios is None
            or judged.case.size > _SMALL
            or not all(
                part.got is not None and np.isfinite(part.got).all() for part in judged.parts
            )
        ):
            continue
        # One case for each combination of widths, the smallest first.
        result.setdefault(
            tuple(a.shape[-1] for a in judged.case.inputs.values() if np.ndim(a)), judged
        )
    spread = list(result.values())
    return spread[:: max(1, len(spread) // _CASES)][:_CASES]


def _fit_mistake_number(
    family: MistakeFamily, misses: Callable[[Mistake | None], float]
) -> float | None:
    """Return the number for which the mistake is nearest to the outputs, if it is near."""
    of: Callable[[float], float] = lambda x: misses(family.mistake(float(x), ""))  # noqa: E731
    grid = np.asarray(family.grid)
    distances = [of(float(x)) for x in grid]
    best = int(np.argmin(distances))
    # No point of the grid has a finite error: the family does not fit.
    if not isfinite(distances[best]):
        return None
    low = grid[max(best - 1, 0)]
    high = grid[min(best + 1, len(grid) - 1)]
    best_number, least = minimise_by_golden_section(of, float(low), float(high), STEPS)
    theta = float(best_number)
    # A minimum at 0 means that the step is left out, which is known by other words.
    if 0.0 in family.grid and abs(theta) < _NOTHING:  # 0 is a known mistake of its own
        return None
    return theta if least <= BETTER * misses(None) else None


def plain(x: float) -> Iterator[tuple[float, str]]:
    """Yield numbers near x and how they are written, the simplest first: 0, 1/m for small m, one decimal digit, 1/m,
    two decimal digits, √m and 1/√m, more decimal digits, x itself."""
    if abs(x) < _NEAR**3:
        yield 0.0, "0"
    m = round(1 / x) if x else 0
    shares = (
        [(1 / m, f"1/{m}" if m > 0 else f"−1/{-m}")]
        if 1 < abs(m) < 10**4 and abs(m * x - 1) < _NEAR
        else []
    )
    rounded = [float(f"{x:.{digits}g}") for digits in (1, 2, 3, 4, 5)]
    # Only numbers near x count as other ways to write x.
    decimals = [
        (near, f"{near:g}".replace("-", "−")) for near in rounded if x and abs(near / x - 1) < _NEAR
    ]
    first = [pair for pair in decimals[:1] if pair[0] == rounded[0] and abs(m) > _FEW]
    yield from (
        *first,
        *shares,
        *decimals[len(first) : 2],
        *_yield_nearby_square_roots(x),
        *decimals[max(len(first), 2) :],
    )
    yield x, f"{x:.6g}".replace("-", "−")


def _yield_nearby_square_roots(x: float) -> Iterator[tuple[float, str]]:
    """Yield √m or 1/√m near x, for a small m that is no square."""
    sign, squared = "−" if x < 0 else "", x * x
    m = round(squared if squared > 1 else 1 / squared) if squared else 0
    if 1 < m <= _FEW and isqrt(m) ** 2 != m:
        near, words = (m**0.5, f"√{m}") if squared > 1 else (m**-0.5, f"1/√{m}")
        if abs(near / abs(x) - 1) < _NEAR:
            yield float(np.copysign(near, x)), f"{sign}{words}"

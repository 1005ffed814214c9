"""Mistakes with a number that is not in any table: it is fitted to some wrong cases, and must then explain all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite, isqrt
from typing import Protocol, TypeVar

import numpy as np

from symattn.bounds.case_result import CaseResult

_CASES = 4  # cases that a number is fitted to
_SMALL = 2000  # entries of inputs of such a case
_STEPS = 40  # of the search between two points of the grid
_NEAR = 0.01  # how far a simpler number may be from the one that fits
_USUAL = (-1e4, -1e9, -65504.0, -1e5, -1e3, -1e30)  # used instead of −∞ in published code
_WIDER, _FASTER = 1.25, 10  # the ratio of successive numbers that are tried, and how many are skipped far away
_NOTHING = 1e-4
_FEW = 100  # the largest m of which 1/m is simpler than a decimal of one digit
_BETTER = 0.02  # how much of the error may be left
_AS_LITTLE = 1e-3  # of the error, by which a plainer number may leave more
M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


class FittedFamily(Protocol[M_co]):
    """A mistake with a number x, and the points from which x is searched for."""

    @property
    def grid(self) -> Sequence[float]: ...

    def mistake(self, x: float, written: str) -> M_co:
        """Return the mistake with the number x, which is ``written`` in words."""


Miss = Callable[[CaseResult, M | None], float]


def fitted(
    families: Iterable[FittedFamily[M]], miss: Miss[M], wrong: Sequence[CaseResult], explains: Callable[[M], bool]
) -> Iterator[M]:
    """Yield mistakes whose number fits; of the numbers near it the simplest come first.

    ``miss`` returns the largest error of a mistake in a case, or of the definition for None. If other numbers also
    explain everything, by ``explains``, and leave as little, the words give their range and no number.
    """
    cases = _chosen(wrong)

    def misses(mistake: M | None) -> float:
        return sum(miss(judged, mistake) for judged in cases)

    for family in families if cases else ():
        theta = _fit(family, misses)
        if theta is not None:
            most = 2 * misses(family.mistake(theta, "")) + _AS_LITTLE * misses(None)
            yield from _named(family, theta, lambda m, most=most: explains(m) and misses(m) <= most)  # type: ignore[misc]


def _named(family: FittedFamily[M], theta: float, explains: Callable[[M], bool]) -> Iterator[M]:
    for x, words in plain(theta):
        result = family.mistake(x, words)
        if explains(result):
            ends = [_end(family, x, by, explains) for by in (1 / _WIDER, _WIDER)]
            words = _range(*sorted(ends)) if ends != [x, x] else words
            yield family.mistake(x, words)
            return
    yield from (family.mistake(x, words) for x, words in plain(theta))


def _end(family: FittedFamily[M], x: float, by: float, explains: Callable[[M], bool]) -> float:
    """Return the last of x, x·by, x·by², … that explains everything, ±∞ if all do."""
    if x == 0:
        return x
    for number in range(_STEPS):
        step = by if number < _STEPS // 2 else by**_FASTER
        if not explains(family.mistake(x * step, "")):
            return x
        x *= step
    return 0.0 if by < 1 else float(np.copysign(np.inf, x))


def _range(low: float, high: float) -> str:
    """Describe a range of numbers of one sign."""
    usual = next((f"{_written(x)} or another, " for x in _USUAL if low <= x <= high), "")
    if np.isinf(low):
        return f"a finite number ({usual}no higher than {_written(high)})"
    if np.isinf(high):
        return f"a finite number ({usual}no lower than {_written(low)})"
    return f"a finite number ({usual}between {_written(low)} and {_written(high)})"


def _written(x: float) -> str:
    return f"{x:.0f}".replace("-", "−") if 100 <= abs(x) < 1e5 else f"{x:.3g}".replace("-", "−").replace("e+0", "e")


def _chosen(wrong: Sequence[CaseResult]) -> list[CaseResult]:
    """Return small cases of several widths and numbers of keys, with finite outputs."""
    result: dict[tuple[int, ...], CaseResult] = {}
    for judged in wrong:
        if (
            judged.ratios is None
            or judged.case.size > _SMALL
            or not all(part.got is not None and np.isfinite(part.got).all() for part in judged.parts)
        ):
            continue
        result.setdefault(tuple(a.shape[-1] for a in judged.case.inputs.values() if np.ndim(a)), judged)
    spread = list(result.values())
    return spread[:: max(1, len(spread) // _CASES)][:_CASES]


def _fit(family: FittedFamily[M], misses: Callable[[M | None], float]) -> float | None:
    """Return the number for which the mistake is nearest to the outputs, if it is near."""
    of: Callable[[float], float] = lambda x: misses(family.mistake(x, ""))  # noqa: E731
    grid = np.asarray(family.grid)
    seen = [of(float(x)) for x in grid]
    best = int(np.argmin(seen))
    if not isfinite(seen[best]):
        return None
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    theta, least = _narrowed(of, float(low), float(high))
    if 0.0 in family.grid and abs(theta) < _NOTHING:  # 0 is a known mistake of its own
        return None
    return theta if least <= _BETTER * misses(None) else None


def _narrowed(misses: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return a minimum between two points, and its value, by golden sections."""
    golden = (5**0.5 - 1) / 2
    a, b = high - golden * (high - low), low + golden * (high - low)
    at_a, at_b = misses(a), misses(b)
    for _ in range(_STEPS):
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - golden * (high - low)
            at_a = misses(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + golden * (high - low)
            at_b = misses(b)
    return (a, at_a) if at_a < at_b else (b, at_b)


def plain(x: float) -> Iterator[tuple[float, str]]:
    """Yield numbers near x and how they are written, the simplest first: 0, 1/m for small m, one decimal digit, 1/m,
    two decimal digits, √m and 1/√m, more decimal digits, x itself."""
    if abs(x) < _NEAR**3:
        yield 0.0, "0"
    m = round(1 / x) if x else 0
    shares = [(1 / m, f"1/{m}" if m > 0 else f"−1/{-m}")] if 1 < abs(m) < 10**4 and abs(m * x - 1) < _NEAR else []
    rounded = [float(f"{x:.{digits}g}") for digits in (1, 2, 3, 4, 5)]
    decimals = [(near, f"{near:g}".replace("-", "−")) for near in rounded if x and abs(near / x - 1) < _NEAR]
    first = [pair for pair in decimals[:1] if pair[0] == rounded[0] and abs(m) > _FEW]
    yield from (*first, *shares, *decimals[len(first) : 2], *_roots(x), *decimals[max(len(first), 2) :])
    yield x, f"{x:.6g}".replace("-", "−")


def _roots(x: float) -> Iterator[tuple[float, str]]:
    """Yield √m or 1/√m near x, for a small m that is no square."""
    sign, squared = "−" if x < 0 else "", x * x
    m = round(squared if squared > 1 else 1 / squared) if squared else 0
    if 1 < m <= _FEW and isqrt(m) ** 2 != m:
        near, words = (m**0.5, f"√{m}") if squared > 1 else (m**-0.5, f"1/√{m}")
        if abs(near / abs(x) - 1) < _NEAR:
            yield float(np.copysign(near, x)), f"{sign}{words}"

"""Wrong scales that no table lists: a factor is read off the weights, and must then explain every case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.verification import wrong
from symattn.verification.judge import Judged
from symattn.verification.mistakes import Mistake
from symattn.verification.observe import scales
from symattn.verification.reference import Values, Variant

_WIDTHS = 3  # that must agree
_NEAR = 0.01  # how far the factors of several d_k may be apart; what explains the cases is decided elsewhere, by bounds


def fitted(spec: Attention, records: Iterable[Judged]) -> Iterator[Mistake]:
    """Mistakes with a factor that fits the weights of two keys: one for all d_k, or one beside the right scale.

    Of the numbers near the observed one the plainest come first.
    """
    seen = scales(spec, records)
    if len(seen) < _WIDTHS:
        return
    constant = _common([s.observed for s in seen])
    factor = _common([s.observed / _right(spec, s.d_k) for s in seen])
    if constant is not None:
        for number, words in _plain(constant):
            yield Mistake("scale", _whatever(number, words), Variant({"scaled": partial(_scaled, number)}))
    elif factor is not None:
        for number, words in _plain(factor):  # the right scale is no constant here, so it is 1/√d_k
            change = partial(_multiplied, number)
            yield Mistake("scale", f"scores are scaled by {words}/√d_k", Variant({"scaled": change}))


def _whatever(number: float, words: str) -> str:
    if number == 0:
        return "the scores have no influence: all weights of a row are equal"
    return f"scores are scaled by {words} whatever d_k is"


def _right(spec: Attention, d_k: int) -> float:
    return 1 / sqrt(d_k) if spec.scale is None else float(spec.scale)


def _common(numbers: list[float]) -> float | None:
    """Their median, where all are near it."""
    middle = float(np.median(numbers))
    return middle if np.ptp(numbers) <= _NEAR * max(abs(middle), _NEAR) else None


def _plain(x: float) -> Iterator[tuple[float, str]]:
    """Numbers near x, and how to write them, the plainest first: 0, 1/m, few decimal digits, x itself."""
    if abs(x) < _NEAR**2:
        yield 0.0, "0"
        return
    m = round(1 / x)
    if abs(m) > 1 and abs(m * x - 1) < _NEAR:
        yield 1 / m, f"1/{m}" if m > 0 else f"−1/{-m}"
    for digits in (1, 2, 3, 4, 5):
        near = float(f"{x:.{digits}g}")
        if abs(near / x - 1) < _NEAR and near != 1:
            yield near, f"{near:g}".replace("-", "−")
    yield x, f"{x:.6g}".replace("-", "−")


def _scaled(number: float, spec: Attention, values: Values) -> Any:
    """S c."""
    return values["scores"] * number


def _multiplied(number: float, spec: Attention, values: Values) -> Any:
    """S c/√d_k."""
    return wrong.by_root_of("q", -1, spec, values) * number

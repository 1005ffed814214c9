"""The mistakes that may be in a function's outputs: those that reduce its distance from the definition most.

Let y be the outputs in half precision, o those of the definition and o_m those with a mistake, both in float64. The
mistake reduces the distance by 1 − ‖y − o_m‖²/‖y − o‖². Roundings are in y − o too; but they follow no mistake, so that
10⁴ entries show a scale that is off by a tenth of a rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from symattn.arrays.formats import Format
from symattn.attention.spec import Attention
from symattn.bounds import called_target, case_result, storing
from symattn.bounds.contracts import Contract, Made, replay
from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import RIGHT, Variant
from symattn.verification.rules import known, of_entries
from symattn.verification.rules.families import MistakeFamily, families

EXACT = Contract(Format("float64"))
_WORTH = 0.01  # least share of the distance that a mistake must take away to be tried
_MOST = 5  # mistakes that are tried
_PLACES = 3  # decimal places of shares; of equal ones mistakes without a number come first

_SQUARES, _STEP = 5, 2.0**-12  # steps of least squares, and the relative step of a number for its tangent


class BitSample(NamedTuple):
    """A specification, inputs, and the function's outputs for them in the format."""

    spec: Attention
    inputs: called_target.Inputs
    got: np.ndarray
    format: Format

    def replayed(self, contract: Contract, variant: Variant = RIGHT, made: Made | None = None) -> np.ndarray | None:
        """Return a contract's output for the definition or a variant, or None if there is none; ``made`` keeps what
        other contracts need of the same variant."""
        try:
            with np.errstate(all="ignore"):
                result = replay(contract, self.spec, self.inputs, variant, made=made)
        except case_result.UNFIT:
            return None
        return result if result.shape == self.got.shape else None


@dataclass(frozen=True, eq=False)
class Suspect:
    """A mistake; if it has a number, with its family and the number."""

    mistake: Mistake
    family: MistakeFamily | None = None
    number: float = 0.0


def suspects(sample: BitSample) -> list[Suspect]:
    """Return the mistakes that reduce the distance most, the best first."""
    with np.errstate(all="ignore"):
        size = np.abs(sample.got[np.isfinite(sample.got)])
        unit = np.maximum(size + np.median(size), float(sample.format.eta)) if size.size else size  # of roundings
        distance = _Distance(sample, unit)
        result = [(distance.taken(suspect.mistake.variant), suspect) for suspect in _all(sample, distance)]
    result = sorted(
        (x for x in result if x[0] >= _WORTH), key=lambda x: (-round(x[0], _PLACES), x[1].family is not None)
    )
    return [suspect for _, suspect in result[:_MOST]]


def _all(sample: BitSample, distance: _Distance) -> Iterator[Suspect]:
    """Yield mistakes with a fitted number, and mistakes by rule except those that only store a number."""
    spec, names = sample.spec, frozenset(sample.inputs)
    for family in families(spec):
        number = _fitted(family, distance)
        yield Suspect(family.mistake(number, f"{number:.6g}"), family, number)
    stored = {m.cause for m in storing.singles(spec, names)}
    yield from (Suspect(m) for m in chain(known(spec, names), of_entries(spec, names)) if m.cause not in stored)


def _fitted(family: MistakeFamily, distance: _Distance) -> float:
    """Return the number with which the family's mistake reduces the distance most: by a grid, then by least squares."""
    x = max((1.0, *family.grid), key=lambda x: distance.taken(family.variant(x)))
    most = distance.taken(family.variant(x))
    for _ in range(_SQUARES):
        step = _STEP * abs(x) or _STEP
        here, there = (distance.left(family.variant(y)) for y in (x, x + step))
        if here is None or there is None or not (way := there - here).any():
            break
        other = x - step * float(way @ here) / float(way @ way)
        if not (result := distance.taken(family.variant(other))) > most:
            break
        x, most = other, result
    return x


def explained(sample: BitSample, left: float) -> tuple[Mistake, float] | None:
    """Return the first suspect that leaves at most the share ``left`` of ‖y − o‖², and the share that it leaves."""
    distance = _Distance(sample, 1.0)
    for suspect in suspects(sample) if distance.whole else ():
        share = distance.share(suspect.mistake.variant)
        if share <= left:
            return suspect.mistake, share
    return None


class _Distance:
    """The distance of a function's outputs from the definition and from variants of it, in a unit."""

    def __init__(self, sample: BitSample, unit: float | np.ndarray) -> None:
        self.sample, self.unit = sample, unit
        self.finite = np.isfinite(sample.got)
        whole = self.left(RIGHT)
        self.whole = 0.0 if whole is None else float((whole**2).sum())

    def left(self, variant: Variant) -> np.ndarray | None:
        """Return the difference from a variant, entry by entry, or None if it is not finite."""
        values = self.sample.replayed(EXACT, variant)
        if values is None:
            return None
        result = (self.sample.got[self.finite] - values[self.finite]) / self.unit
        return result if np.isfinite(result).all() else None

    def share(self, variant: Variant) -> float:
        """Return ‖y − o_m‖²/‖y − o‖²; ∞ if that is undefined."""
        left = self.left(variant)
        return np.inf if left is None or not self.whole else float((left**2).sum()) / self.whole

    def taken(self, variant: Variant) -> float:
        """Return the share of ‖y − o‖² that a mistake takes away; −∞ if that is undefined."""
        return 1 - self.share(variant)

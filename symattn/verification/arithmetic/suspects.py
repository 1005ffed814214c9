"""The mistakes that may be in a function's outputs: those that reduce its distance from the definition most.

Let y be the outputs in half precision, o those of the definition and o_m those with a mistake, both in float64. The
mistake reduces the distance by 1 − ‖y − o_m‖²/‖y − o‖². Roundings are in y − o too; but they follow no mistake, so that
10⁴ entries show a scale that is off by a tenth of a rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from symattn.arrays.formats import Format
from symattn.attention.spec import Attention
from symattn.bounds import called_target, case_result, storing
from symattn.bounds.contracts import Contract, Made, replay
from symattn.bounds.mistake import Mistake, MistakeFamily
from symattn.bounds.reference import RIGHT, Variant
from symattn.verification.diagnosis.screening import SIZED, plainest
from symattn.verification.rules.families import families
from symattn.verification.rules.known_mistakes import (
    yield_known_mistakes,
    yield_mistakes_of_entries,
)

EXACT = Contract(Format("float64"))
_WORTH = 0.01  # least share of the distance that a mistake must take away to be tried
_MOST = 5  # mistakes that are tried
_LIKELY = 0.5  # share of the distance that few mistakes but the function's own take away
_NAMED, _ALIKE = 3, 40  # mistakes that are named, of so many that explain a sample
_LOST = 1e-18  # of ‖y‖² or of the distance, squared: up to there numbers are the same in float64
_TINY = 1e-300  # in place of a squared distance of 0
_PLACES = 3  # decimal places of shares; of equal ones mistakes without a number come first

_SQUARES = 5  # steps of least squares
_STEP = 2.0**-12  # of a number, relative to it, for its tangent


class BitSample(NamedTuple):
    """A specification, inputs, and the function's outputs for them in the format."""

    spec: Attention
    inputs: called_target.Inputs
    got: np.ndarray
    format: Format

    def replayed(
        self,
        contract: Contract,
        variant: Variant = RIGHT,
        made: Made | None = None,
        before: Made | None = None,
    ) -> np.ndarray | None:
        """Return a contract's output for the definition or a variant, or None if there is none; ``made`` keeps what
        other contracts need of the same variant, ``before`` what other variants need of this sample."""
        try:
            with np.errstate(all="ignore"):
                result = replay(contract, self.spec, self.inputs, variant, made=made, before=before)
        except case_result.UNFIT:
            return None
        return result if result.shape == self.got.shape else None


@dataclass(frozen=True, eq=False)
class Suspect:
    """A mistake; if it has a number, with its family and the number."""

    mistake: Mistake
    family: MistakeFamily | None = None
    number: float = 0.0


def suspects(
    sample: BitSample,
    most: int = _MOST,
    numbered_alone: bool = False,
    distance: Distance | None = None,
) -> list[Suspect]:
    """Return the mistakes that reduce the distance most, the best first.

    Those with a number, such as another scale, are few; with ``numbered_alone`` no others are tried. A ``distance`` of
    the sample in roundings keeps the fitted numbers for another call.
    """
    # Families with a number are fitted to the sample; all others are tried as they are.
    kinds = _yield_fitted_suspects if numbered_alone else _yield_all_suspects
    with np.errstate(all="ignore"):
        measured = distance or distance_in_roundings(sample)
        result = [
            (measured.taken(suspect.mistake.variant), suspect)
            for suspect in kinds(sample, measured)
        ]
    result = sorted(
        (x for x in result if x[0] >= _WORTH),
        key=lambda x: (-round(x[0], _PLACES), x[1].family is not None),
    )
    return [suspect for _, suspect in result[:most]]


def yield_likely_suspects(distance: Distance) -> Iterator[Suspect]:
    """Yield the mistakes with a number that explain much of the distance, each before others are fitted."""
    for suspect in distance.yield_fitted():
        with np.errstate(all="ignore"):
            is_likely = distance.taken(suspect.mistake.variant) >= _LIKELY
        if is_likely:
            yield suspect


def distance_in_roundings(sample: BitSample) -> Distance:
    """Return the distance of a sample's outputs from the definition, in units of their roundings."""
    with np.errstate(all="ignore"):
        size = np.abs(sample.got[np.isfinite(sample.got)])
        # of roundings
        unit = np.maximum(size + np.median(size), float(sample.format.eta)) if size.size else size
        return Distance(sample, unit)


def _yield_all_suspects(sample: BitSample, distance: Distance) -> Iterator[Suspect]:
    """Yield mistakes with a fitted number, and mistakes by rule except those that only store a number."""
    spec, names = sample.spec, frozenset(sample.inputs)
    yield from _yield_fitted_suspects(sample, distance)
    # Mistakes that only store a number are contracts, and are tried as such.
    stored = {m.cause for m in storing.singles(spec, names)}
    yield from (
        Suspect(m)
        for m in chain(yield_known_mistakes(spec, names), yield_mistakes_of_entries(spec, names))
        if m.cause not in stored
    )


def _yield_fitted_suspects(sample: BitSample, distance: Distance) -> Iterator[Suspect]:
    """Yield mistakes with a number, fitted."""
    yield from distance.fitted


def _fit_family_number(family: MistakeFamily, distance: Distance) -> float:
    """Return the number with which the family's mistake reduces the distance most: by a grid, then by least squares."""
    x = max((1.0, *family.grid), key=lambda x: distance.taken(family.variant(x)))
    most = distance.taken(family.variant(x))
    for _ in range(_SQUARES):
        # The difference of a small step is the tangent.
        step = _STEP * abs(x) or _STEP
        here, there = (distance.left(family.variant(y)) for y in (x, x + step))
        # Without a slope, or with numbers that are not finite, there is no step.
        if here is None or there is None or not (way := there - here).any():
            break
        other = x - step * float(way @ here) / float(way @ way)
        if not (result := distance.taken(family.variant(other))) > most:
            break
        x, most = other, result
    return x


def explained(
    sample: BitSample, left: float, others: Iterable[BitSample] = ()
) -> tuple[Mistake, float] | None:
    """Return the first suspect that leaves at most the share ``left`` of ‖y − o‖², and the share that it leaves.

    It must not leave more of the ``others``, which are of other sizes. Where several give the same numbers for all of
    them, the cause names the plainest, as ``A; or B``.
    """
    distance, elsewhere = Distance(sample, 1.0), [Distance(other, 1.0) for other in others]
    shares = (
        (s, distance.share(s.mistake.variant))
        for s in (suspects(sample, _ALIKE) if distance.whole else ())
    )
    near = [(suspect, share) for suspect, share in shares if share <= left]
    fits = [
        (s, share) for s, share in near if all(d.allows(s.mistake.variant, left) for d in elsewhere)
    ]
    if not fits:
        return None
    first, share = fits[0]
    alike = tuple(s.mistake for s, _ in fits if s.family is None and distance.are_alike(s, first))
    # an operation on an array repeats a mistake of a step, but is plainer than one with a size of its own
    alike = tuple(m for m in alike if not (m.general or SIZED.search(m.cause))) or alike
    causes: list[str] = []
    for mistake in plainest(alike) or (first.mistake,):
        if not mistake.cause.startswith(tuple(causes)):  # else it says the same, and more
            causes.append(mistake.cause)
    return replace(first.mistake, cause="; or ".join(causes[:_NAMED])), share


def share_left(left: float, whole: float, own: float) -> float:
    """Return ‖y − o_m‖² / min(‖y − o‖², ‖o_m‖²), so that outputs of 0 are explained by outputs of 0 alone."""
    return left / max(min(whole, own), _TINY)


class Distance:
    """The distance of a function's outputs from the definition and from variants of it, in a unit."""

    def __init__(self, sample: BitSample, unit: float | np.ndarray) -> None:
        self.sample, self.unit = sample, unit
        self._before: Made = {}
        self._families = tuple(families(sample.spec))
        self._fits: list[Suspect] = []
        self.finite = np.isfinite(sample.got)
        self.got = np.asarray(sample.got[self.finite] / unit)
        self._whole = self.left(RIGHT)
        self.whole = 0.0 if self._whole is None else float((self._whole**2).sum())

    @cached_property
    def fitted(self) -> tuple[Suspect, ...]:
        """The mistakes with a number, fitted."""
        return tuple(self.yield_fitted())

    def yield_fitted(self) -> Iterator[Suspect]:
        """Yield the mistakes with a number one by one; each is fitted once."""
        for place, family in enumerate(self._families):
            if place == len(self._fits):
                x = _fit_family_number(family, self)
                self._fits.append(Suspect(family.mistake(x, f"{x:.6g}"), family, x))
            yield self._fits[place]

    def _variant_residuals(self, variant: Variant) -> np.ndarray | None:
        """Return the rest beside a variant, entry by entry; NaN where it says nothing, None where it cannot run."""
        values = self.sample.replayed(EXACT, variant, before=self._before)
        return (
            None
            if values is None
            else np.asarray((self.sample.got[self.finite] - values[self.finite]) / self.unit)
        )

    def left(self, variant: Variant) -> np.ndarray | None:
        """Return the rest beside a variant, entry by entry; None where that is no number."""
        result = self._variant_residuals(variant)
        return result if result is not None and np.isfinite(result).all() else None

    def share(self, variant: Variant) -> float:
        """Return the share that a variant leaves, where it says something, as of most entries; else ∞."""
        left, whole, own, most = self._split_squared_distance(variant)
        return share_left(left, whole, own) if most and whole else np.inf

    def allows(self, variant: Variant, left: float) -> bool:
        """Return whether a variant leaves no more than that share, or what float64 loses, where it says something."""
        rest, whole, _, _ = self._split_squared_distance(variant)
        return rest <= max(left * whole, _LOST * float((self.got**2).sum()))

    def are_alike(self, a: Suspect, b: Suspect) -> bool:
        """Return whether two suspects give the same numbers."""
        one, other = (self._variant_residuals(s.mistake.variant) for s in (a, b))
        if one is None or other is None:
            return False
        return np.allclose(one, other, rtol=0, atol=(_LOST * self.whole) ** 0.5, equal_nan=True)

    def _split_squared_distance(self, variant: Variant) -> tuple[float, float, float, bool]:
        """‖y − o_m‖², ‖y − o‖² and ‖o_m‖² where the variant says something, and whether that is of most entries.

        It says nothing of rows that a wrong mask leaves without any key. One that cannot be made changes nothing.
        """
        rest = self._variant_residuals(variant)
        if rest is None or self._whole is None:
            return self.whole, self.whole, self.whole, True
        # NaN marks entries of which the variant says nothing; both distances leave them out.
        said = ~np.isnan(rest)
        left, whole, own = (
            float((x[said] ** 2).sum()) for x in (rest, self._whole, self.got - rest)
        )
        # A variant that speaks of a minority of entries may be close there by chance.
        return left, whole, own, 2 * int(said.sum()) >= said.size

    def taken(self, variant: Variant) -> float:
        """Return the share of ‖y − o‖² that a mistake takes away; −∞ if that is undefined."""
        return 1 - self.share(variant)

"""Find the contract, and the mistake with it, that gives the bits of a function's outputs.

The share of a pair is that of the outputs which its replay gives bit for bit. A kernel's own contract gives nearly all
of them, and at least half of every row that is not close; another contract, or a mistake that matters, far fewer: a
scale that is off by 0.3 % moves a third of the outputs for 256 keys to another number of bfloat16, a lost key most of a
row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import numpy as np

from symattn.bounds.contracts import Contract, Made, family, near
from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import RIGHT
from symattn.verification.arithmetic.suspects import (
    BitSample,
    Distance,
    Suspect,
    distance_in_roundings,
    suspects,
    yield_likely_suspects,
)

FITS = 0.98  # least share of the bits that the function's own contract gives
ROW = 0.5  # least share of the bits of every row that it gives,
_NEAR = 4  # unless the row is within so many unit roundoffs of its largest output: a weight may be next to a tie
APART = 0.02  # least share of the bits by which a mistake must surpass every contract without one
_FIRST = 3  # contracts that are tried with one change more
_STEP = 2.0**-8  # first relative step of a fitted number, to fit the bits better,
_ROUNDS = 24  # number of steps; a step is halved if neither direction gives more bits,
_DIGITS = (2, 3, 4, 5, 6)  # digits to print,
_SAME = 0.001  # share of the bits that fewer digits may lose; or as much as is missed already


@dataclass(frozen=True)
class Pair:
    """A contract with a mistake or none: the share of the bits that its replay gives, in all and in the worst row."""

    contract: Contract
    mistake: Mistake | None
    share: float
    lowest: float

    @property
    def score(self) -> float:
        """The rank of a pair: at least ``FITS`` if both shares are high enough."""
        return min(self.share, self.lowest + FITS - ROW)

    @property
    def fits(self) -> bool:
        """Return whether the function may compute in this way."""
        return self.score >= FITS


@dataclass(frozen=True)
class Ranking:
    """The contracts without a mistake, the best first; and the best with a mistake, if only that explains the bits."""

    right: tuple[Pair, ...]
    wrong: Pair | None = None

    @property
    def best(self) -> Pair:
        """The contract that gives the most bits."""
        return self.right[0]

    @property
    def next(self) -> Pair:
        """The contract with the second-most bits."""
        return self.right[1]


def arithmetic(
    sample: BitSample,
    more: Iterable[Suspect] = (),
    suspecting: bool = True,
    any_mistake: bool = False,
) -> Ranking:
    """Return the contracts by the bits that their replays give, and a mistake if only that explains the bits.

    The mistakes tried are those that reduce the distance from the definition, and ``more``; none unless ``suspecting``.
    If ``any_mistake`` will do, the few with a number come first, and end the search if one explains the bits.
    """
    search = BitSearch(sample)
    if not suspecting:
        return search.without_mistakes
    return search.among_all(more, any_mistake)


@dataclass(eq=False)
class BitSearch:
    """The search for what gives a sample's bits; what is computed for a first answer serves a second one."""

    sample: BitSample
    _without_fit: set[Suspect] = field(default_factory=set)

    @cached_property
    def without_mistakes(self) -> Ranking:
        """The contracts without a mistake."""
        return Ranking(tuple(_rank_contract_pairs(self.sample)))

    @cached_property
    def with_likely_number(self) -> Ranking:
        """The contracts, and a mistake with a number that explains much of the distance, if only that gives the bits.

        To try less likely ones takes several times as long.
        """
        if self.without_mistakes.best.fits:
            return self.without_mistakes
        return self._compared_with(self._likely_fit)

    def among_all(self, more: Iterable[Suspect] = (), any_mistake: bool = False) -> Ranking:
        """Return the contracts, and a mistake if only that explains the bits; see ``arithmetic``."""
        if self.without_mistakes.best.fits:
            return self.without_mistakes
        # Thousands of mistakes are compared only once the few with a number explain nothing.
        with_number = self._fit_with_number() if any_mistake else None
        if with_number is not None:
            return self._compared_with(with_number)
        suspected = suspects(self.sample, distance=self._distance)
        return self._compared_with(self._first_fit(chain(suspected, more)))

    @cached_property
    def _distance(self) -> Distance:
        return distance_in_roundings(self.sample)

    @cached_property
    def _likely_fit(self) -> Pair | None:
        return self._first_fit(yield_likely_suspects(self._distance))

    def _fit_with_number(self) -> Pair | None:
        numbered = suspects(self.sample, numbered_alone=True, distance=self._distance)
        return self._likely_fit or self._first_fit(numbered)

    def _first_fit(self, suspected: Iterable[Suspect]) -> Pair | None:
        """Return the first of the mistakes that explains the bits with some contract; each is tried once."""
        for suspect in suspected:
            if suspect in self._without_fit:
                continue
            pair = _fit_suspect_to_bits(self.sample, suspect)
            if pair.fits:
                return pair
            self._without_fit.add(suspect)
        return None

    def _compared_with(self, wrong: Pair | None) -> Ranking:
        """Return the contracts, and the mistake unless one of them explains the bits as well."""
        result = self.without_mistakes
        if wrong is None:
            return result
        # A contract near that of the mistake may explain the bits without the mistake.
        right = sorted((*result.right, *_with_near(self.sample, wrong.contract)), key=_by_score)
        result = Ranking(tuple(right))
        return replace(result, wrong=wrong) if wrong.score >= result.best.score + APART else result


def confirmed(ranking: Ranking, sample: BitSample) -> bool:
    """Return whether the mistake and its contract, found on other inputs, again are all that explains the bits."""
    if ranking.wrong is None:
        return False
    again = pair(sample, ranking.wrong.contract, ranking.wrong.mistake)
    return again.fits and again.score >= nearest(sample, ranking.wrong.contract).score + APART


def nearest(sample: BitSample, contract: Contract) -> Pair:
    """Return the pair without a mistake that gives the most bits, among all contracts and those near ``contract``."""
    return min((*_rank_contract_pairs(sample), *_with_near(sample, contract)), key=_by_score)


def likeliest(sample: BitSample) -> Contract:
    """Return the contract that gives the most bits."""
    return _rank_contract_pairs(sample)[0].contract


def pair(
    sample: BitSample, contract: Contract, mistake: Mistake | None = None, kept: Made | None = None
) -> Pair:
    """Return the share of the finite rows' bits that a contract and a mistake give; 0 if there is no replay.

    ``kept`` holds what replays of the same inputs with the same mistake share.
    """
    values = sample.replayed(contract, mistake.variant if mistake else RIGHT, kept)
    # Rows with NaN or infinity say nothing of the arithmetic.
    result = np.isfinite(sample.got).all(axis=-1)
    if values is None or not result.any():
        return Pair(contract, mistake, 0.0, 0.0)
    values, got = values[result], sample.got[result]
    same = values == got
    off = np.abs(values - got).max(axis=-1)
    close = off <= _NEAR * float(sample.format.u) * np.abs(got).max(axis=-1)
    return Pair(
        contract, mistake, float(same.mean()), float(np.where(close, 1.0, same.mean(axis=-1)).min())
    )


def _rank_contract_pairs(sample: BitSample, mistake: Mistake | None = None) -> list[Pair]:
    """Return all contracts as pairs, the best first; the order of ties stays."""
    # Replays of one mistake share what does not depend on the contract.
    cache: Made = {}
    keys = next(sample.inputs[n].shape[-2] for n in ("k", "y", "x") if n in sample.inputs)
    contracts = family(sample.spec, frozenset(sample.inputs), sample.format, keys)
    result = sorted((pair(sample, c, mistake, cache) for c in contracts), key=_by_score)
    # Only the best contracts are varied once more, since each variant is a replay.
    more = [
        pair(sample, c, mistake, cache)
        for p in result[:_FIRST]
        for c in near(p.contract, sample.spec)
    ]
    return sorted((*result, *more), key=_by_score)


def _with_near(sample: BitSample, contract: Contract) -> list[Pair]:
    """Return a contract and those near it, without a mistake: a stored scale, for instance, may look like a mistake."""
    return [pair(sample, c) for c in (contract, *near(contract, sample.spec))]


def _by_score(pair: Pair) -> float:
    return -pair.score


def _fit_suspect_to_bits(sample: BitSample, suspect: Suspect) -> Pair:
    """Return a suspect with its best contract; fit its number, if any, to the bits, with no more digits than needed."""
    best = _rank_contract_pairs(sample, suspect.mistake)[0]
    kind = suspect.family
    if kind is None:
        return best

    def at(x: float, digits: int = 6) -> Pair:
        return pair(sample, best.contract, kind.mistake(x, f"{x:.{digits}g}".replace("-", "−")))

    # Climb from the fitted number by steps that shrink.
    x = suspect.number
    most = best
    step = _STEP * abs(suspect.number)
    for _ in range(_ROUNDS):
        result, other = max(
            ((at(y), y) for y in (x - step, x + step)), key=lambda tried: tried[0].share
        )
        if result.share > most.share:
            x, most = other, result
        else:
            step /= 2
    # As few digits as give nearly as many bits.
    short = (at(float(f"{x:.{digits}g}"), digits) for digits in _DIGITS)
    return next(
        (outcome for outcome in short if outcome.share >= most.share - max(_SAME, 1 - most.share)),
        most,
    )

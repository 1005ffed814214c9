"""Which contract, and which mistake with it, gives the bits that a function gave.

The share of a pair is that of the outputs which its replay gives bit for bit. A kernel's own contract has nearly all of
them, and at least half of every row that is not near; another contract, or a mistake that matters, far fewer: a scale
that is off by 0.3 % moves a third of the outputs for 256 keys to another number of bfloat16, a key that is lost most of
a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from symattn.bounds.contracts import Contract, Made, family, near
from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import RIGHT
from symattn.verification.arithmetic.suspects import BitSample, Suspect, suspects

FITS = 0.98  # of the bits: what a contract has at least that is the function's own
ROW = 0.5  # of the bits of every row, likewise,
_NEAR = 4  # unless its outputs are within so many unit roundoffs of its largest: one weight may lie beside a tie
APART = 0.02  # by how much a mistake with its contract must have more of the bits than any contract without one
_FIRST = 3  # contracts that are tried with one thing more
_STEP = 2.0**-8  # of a fitted number, by which it is moved at first to fit the bits better,
_ROUNDS = 24  # how often it is moved by that, or, where neither way gives more bits, by half of it from then on,
_DIGITS = (2, 3, 4, 5, 6)  # the digits it is written with,
_SAME = 0.001  # of the bits: what fewer digits may lose; or as many as are missed already, by roundings of its own


@dataclass(frozen=True)
class Pair:
    """A contract, and a mistake or none: the share of outputs that their replay gives bit for bit, of all and of the
    row that has the fewest."""

    contract: Contract
    mistake: Mistake | None
    share: float
    lowest: float

    @property
    def score(self) -> float:
        """The rank of a pair: ``FITS`` and more where both shares are what they must be."""
        return min(self.share, self.lowest + FITS - ROW)

    @property
    def fits(self) -> bool:
        """Return whether this may be how the function computes."""
        return self.score >= FITS


@dataclass(frozen=True)
class Found:
    """The contracts without a mistake, the best first; and the best with one, if that alone explains the bits."""

    right: tuple[Pair, ...]
    wrong: Pair | None = None

    @property
    def best(self) -> Pair:
        """The contract that gives most bits."""
        return self.right[0]

    @property
    def next(self) -> Pair:
        """The one after it."""
        return self.right[1]


def arithmetic(sample: BitSample, more: Iterable[Suspect] = ()) -> Found:
    """The contract by whose replay most bits come out, and the mistake that alone explains them, if one does.

    Mistakes that take away the distance from the definition are tried, and ``more``.
    """
    result = Found(tuple(_ranked(sample)))
    wrong = None
    if not result.best.fits:
        wrong = _first(_finest(sample, suspect) for suspect in chain(suspects(sample), more))
    if wrong is None or not wrong.fits:
        return result
    right = sorted((*result.right, *_beside(sample, wrong.contract)), key=_by_score)
    result = Found(tuple(right))
    return replace(result, wrong=wrong) if wrong.score >= result.best.score + APART else result


def confirmed(found: Found, sample: BitSample) -> bool:
    """Return whether the mistake and its contract, found on other inputs, are again what alone explains the bits."""
    if found.wrong is None:
        return False
    again = pair(sample, found.wrong.contract, found.wrong.mistake)
    return again.fits and again.score >= nearest(sample, found.wrong.contract).score + APART


def nearest(sample: BitSample, contract: Contract) -> Pair:
    """Return the contract, or its neighbour, that gives most bits without a mistake."""
    return min((*_ranked(sample), *_beside(sample, contract)), key=_by_score)


def likeliest(sample: BitSample) -> Contract:
    """The contract that gives most of the bits."""
    return _ranked(sample)[0].contract


def pair(sample: BitSample, contract: Contract, mistake: Mistake | None = None, kept: Made | None = None) -> Pair:
    """Return the share of the finite rows' bits that a contract and a mistake give; nothing where there is no replay.

    ``kept`` is what replays of the same inputs with the same mistake share.
    """
    values = sample.replayed(contract, mistake.variant if mistake else RIGHT, kept)
    result = np.isfinite(sample.got).all(axis=-1)
    if values is None or not result.any():
        return Pair(contract, mistake, 0.0, 0.0)
    values, got = values[result], sample.got[result]
    same, off = values == got, np.abs(values - got).max(axis=-1)
    close = off <= _NEAR * float(sample.format.u) * np.abs(got).max(axis=-1)
    return Pair(contract, mistake, float(same.mean()), float(np.where(close, 1.0, same.mean(axis=-1)).min()))


def _ranked(sample: BitSample, mistake: Mistake | None = None) -> list[Pair]:
    """The contracts, the best first; of as many bits, the order stays."""
    kept: Made = {}
    keys = next(sample.inputs[n].shape[-2] for n in ("k", "y", "x") if n in sample.inputs)
    contracts = family(sample.spec, frozenset(sample.inputs), sample.format, keys)
    result = sorted((pair(sample, c, mistake, kept) for c in contracts), key=_by_score)
    more = [pair(sample, c, mistake, kept) for p in result[:_FIRST] for c in near(p.contract, sample.spec)]
    return sorted((*result, *more), key=_by_score)


def _beside(sample: BitSample, contract: Contract) -> list[Pair]:
    """A contract without a mistake, and with one thing more: a scale that is stored may look like a mistake."""
    return [pair(sample, c) for c in (contract, *near(contract, sample.spec))]


def _by_score(pair: Pair) -> float:
    return -pair.score


def _first(pairs: Iterable[Pair]) -> Pair | None:
    """Return the first mistake that explains the bits with some contract; else the one that explains most."""
    tried = []
    for result in pairs:
        if result.fits:
            return result
        tried.append(result)
    return min(tried, key=_by_score, default=None)


def _finest(sample: BitSample, suspect: Suspect) -> Pair:
    """With the best contract; a number goes uphill in the bits, and is written with no more digits than it needs."""
    best = _ranked(sample, suspect.mistake)[0]
    kind = suspect.family
    if kind is None:
        return best

    def at(x: float, digits: int = 6) -> Pair:
        return pair(sample, best.contract, kind.mistake(x, f"{x:.{digits}g}".replace("-", "−")))

    x, most, step = suspect.number, best, _STEP * abs(suspect.number)
    for _ in range(_ROUNDS):
        result, other = max(((at(y), y) for y in (x - step, x + step)), key=lambda tried: tried[0].share)
        if result.share > most.share:
            x, most = other, result
        else:
            step /= 2
    short = (at(float(f"{x:.{digits}g}"), digits) for digits in _DIGITS)
    return next((outcome for outcome in short if outcome.share >= most.share - max(_SAME, 1 - most.share)), most)

"""The a-priori bound once more, from the exponents on, written out by hand: what the printed equations must give."""

from __future__ import annotations

from math import log
from typing import Any

from symattn.arrays.precision import Precision
from symattn.bounds.growth import g, growth_of, rate
from symattn.bounds.priori import InputLimits


def by_hand(known: Any, sizes: InputLimits, p: Precision) -> float:
    """The bound; ``known`` has a, s, b (``a``, ``alone``, ``below``), λ (``lam``) and the numbers of roundings."""
    v, lam_p, twice = sizes.v_max, rate(p.stored), _e(2 * known.a)
    moved = min(v * _e(known.a) * growth_of(known.a), 2 * v)
    whole, apart = v * twice, v * twice * growth_of(known.alone)
    spread = whole + (v if p.stored.u <= p.accumulate.u else 0.0)
    kept = growth_of(lam_p) * max((spread + moved) * _e(lam_p), whole + apart)
    lost = twice * growth_of(known.below) * _e(2 * lam_p)
    centre = v + moved + kept
    sums = _sums(known, p, whole + apart, centre + apart)
    total = moved + kept + lost * centre + (1 + lost) * _e(2 * lam_p) * (apart + sums)
    total += _underflow(known, sizes, p, lost)
    last = (v + total) * g(1, p.returned) + float(p.returned.eta)
    return (total + last) * (1 + 2.0**-10 + sizes.n * 2.0**-22)


def share_of(known: Any, p: Precision) -> float:
    """By how much the additions that round may change a sum, as a share of it; 1 where that is not known."""
    events = known.counts.partial_sums
    return 1.0 if events is None else float(events[0, 0]) * float(p.accumulate.u)


def _sums(known: Any, p: Precision, sizes: float, total: float) -> float:
    by_path = growth_of(float(known.counts.path[0, 0]) * known.lam) * sizes
    share = share_of(known, p)
    return by_path if share >= 0.5 else min(by_path, share / (1 - share) * (sizes + total) / 2)


def _underflow(known: Any, sizes: InputLimits, p: Precision, lost: float) -> float:
    n, v, c = sizes.n, sizes.v_max, known.counts
    factor = _e(known.alone + float(c.path[0, 0]) * known.lam + 2 * rate(p.stored)) * (1 + lost)
    lowest = -log(float(min(p.score.smallest_normal, p.accumulate.smallest_normal)))
    rise = _e(min(max(-sizes.lowest_max, 0.0), lowest + 1))
    every, weight = rise * float(max(p.score.eta, p.accumulate.eta)) * c.underflowing, rise * float(p.stored.eta)
    divisor = (1 - 2.0**-30) / _e(known.below) - (every + weight) * n
    return ((every + weight) * n * v * (1 + factor) + every * n) / divisor


def _e(x: float) -> float:
    return (1 + growth_of(x)) * (1 + 2.0**-52)

"""Rotary angles one by one, as complex numbers that pairs of columns are multiplied by."""

from fractions import Fraction
from typing import Any

import mpmath

from symattn.attention.positions import rotary_fields
from symattn.attention.spec import Attention


def _num(x: Any) -> Any:
    f = Fraction(x)
    return mpmath.mpf(f.numerator) / f.denominator


def angles(spec: Attention, given: Any, n_q: int, n_k: int, columns: tuple[int, int]) -> tuple[Any, Any]:
    """For every query and for every key a list of complex numbers, one a pair."""
    asked: Any = spec.position
    if asked.given == "tables":
        keys = _joined(given["cos"], given["sin"])
        if "cos_q" in given:
            return _joined(given["cos_q"], given["sin_q"]), keys
        return _of_queries(spec, keys, n_q), keys
    places = given["positions"] if asked.given else [asked.start + j for j in range(n_k)]
    keys = [_turns(asked, p, columns[1], n_k) for p in places]
    if "positions_q" in given:
        return [_turns(asked, p, columns[1], n_k) for p in given["positions_q"]], keys
    return _of_queries(spec, keys, n_q), keys


def _joined(cos: Any, sin: Any) -> Any:
    return [[mpmath.mpc(c, s) for c, s in zip(a, b, strict=True)] for a, b in zip(cos, sin, strict=True)]


def _of_queries(spec: Attention, keys: Any, n_q: int) -> Any:
    late = 0 if spec.alignment == "top-left" else len(keys) - n_q
    return [keys[late + i] for i in range(n_q)]


def _turns(asked: Any, place: int, columns: int, n_k: int) -> list[Any]:
    if asked.triples:
        return [(mpmath.mpc(a, b) / c) ** place for a, b, c in asked.triples]
    width = asked.width or columns
    magnitude = _magnitude(asked.scaling)
    return [
        magnitude * mpmath.expj(place * _frequency(asked, pair, width, n_k + asked.start)) for pair in range(width // 2)
    ]


def _frequency(asked: Any, pair: int, width: int, n: int) -> Any:
    wave = mpmath.power(_num(asked.base), -mpmath.mpf(2 * pair) / width)
    s = asked.scaling
    if isinstance(s, rotary_fields.LinearScaling):
        return wave / _num(s.factor)
    if isinstance(s, rotary_fields.NTKScaling):
        factor = _num(s.factor)
        if s.length is not None:
            factor = factor * n / s.length - (factor - 1) if n > s.length else mpmath.mpf(1)
        return wave * mpmath.power(factor, -mpmath.mpf(2 * pair) / (width - 2))
    if isinstance(s, rotary_fields.ProportionalScaling):
        return wave if pair < int(Fraction(s.share) * (width // 2)) else mpmath.mpf(0)
    if isinstance(s, rotary_fields.LongRopeScaling):
        return wave / _num((s.long if n > s.length else s.short)[pair])
    if isinstance(s, rotary_fields.YarnScaling):
        share = max(mpmath.mpf(0), min(mpmath.mpf(1), _share(s, wave, pair, width, asked.base)))
        return ((1 - share) / _num(s.factor) + share) * wave
    return wave


def _share(s: rotary_fields.YarnScaling, wave: Any, pair: int, width: int, base: Any) -> Any:
    """γ before it is cut to between 0 and 1."""
    slow, fast = _num(s.slow), _num(s.fast)
    if s.ramp == "turns":
        return (s.length * wave / (2 * mpmath.pi) - slow) / (fast - slow)
    first, last = (
        width * mpmath.log(s.length / (2 * mpmath.pi * t)) / (2 * mpmath.log(_num(base))) for t in (fast, slow)
    )
    if s.whole:
        first, last = mpmath.floor(first), mpmath.ceil(last)
    first, last = max(first, mpmath.mpf(0)), min(last, mpmath.mpf(width - 1))
    if s.whole and first == last:
        last += mpmath.mpf(1) / 1000
    return 1 - (pair - first) / (last - first)


def _magnitude(s: Any) -> Any:
    if isinstance(s, rotary_fields.YarnScaling):
        return _mscale(s, s.weight) / (_mscale(s, s.shared) if s.shared else 1)
    if isinstance(s, rotary_fields.LongRopeScaling) and Fraction(s.factor) > 1:
        return mpmath.sqrt(1 + mpmath.log(_num(s.factor)) / mpmath.log(s.length))
    return mpmath.mpf(1)


def _mscale(s: rotary_fields.YarnScaling, weight: Any) -> Any:
    return 1 + _num(weight) * mpmath.log(_num(s.factor)) / 10 if Fraction(s.factor) > 1 else mpmath.mpf(1)

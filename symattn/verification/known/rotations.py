"""Mistakes in rotary positions: other angles, other pairs, other places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import made_wide
from symattn.attention.positions import angles, rotary
from symattn.attention.positions.fields import Alibi, Buckets, Rotary
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Applies,
    Mistake,
    before,
    both,
    in_all,
    in_fields,
    in_steps,
    position_is,
    shape,
    step,
    with_fields,
    with_position,
)
from symattn.verification.reference import Change, Values, Variant
from symattn.verification.target import Inputs


@dataclass(frozen=True)
class Turn:
    """A rotation made otherwise: from where queries stand, by which frequencies, in which pairs.

    ``exponent`` is that of the base for the pair l of r/2, the head d wide; ``places`` makes other positions of n
    positions; ``pairs`` says which columns are turned by which angles.
    """

    exponent: Callable[[int, int, int], Fraction] = lambda pair, width, d: Fraction(-2 * pair, width)
    base: float | None = None
    sign: int = 1
    more: int = 0
    from_first: bool = False
    places: Callable[[Any], Any] = lambda p: p
    pairs: str = ""
    last_columns: bool = False
    whole: bool = False


def turned(role: str, how: Turn, spec: Attention, values: Values) -> Any:
    """Queries or keys turned so."""
    found = step(spec, values, f"{role}_turned")
    asked = spec.position
    assert isinstance(asked, Rotary)
    return _rotated(values[found.of[0]], role, how, spec, values)


def _rotated(x: Any, role: str, how: Turn, spec: Attention, values: Values) -> Any:
    asked = spec.position
    assert isinstance(asked, Rotary)
    d = int(x.shape[-1])
    width = d if how.whole else asked.width or d
    if asked.given == "tables":
        cos, sin = _given_tables(x, role, how, spec, values)
        width = d if how.whole else 2 * int(cos.shape[-1])
    else:
        cos, sin = made_wide(partial(_computed, x, role, how, spec, values, width, d), x)
    return _around(x, cos, sin * how.sign, how, asked.layout, width)


def _computed(x: Any, role: str, how: Turn, spec: Attention, values: Values, width: int, d: int, like: Any) -> Any:
    asked = spec.position
    assert isinstance(asked, Rotary)
    exponents = [how.exponent(pair, width, d) for pair in range(width // 2)]
    base = asked.base if how.base is None else how.base
    frequencies = rotary.powers_of(base, exponents, like)
    if asked.scaling is not None:
        frequencies = asked.scaling.frequencies(frequencies, asked.base, shape(values)[-1])
    return rotary.tables(how.places(_at(x, role, how, spec, values)), frequencies)


def _at(x: Any, role: str, how: Turn, spec: Attention, values: Values) -> Any:
    """The positions of the rows."""
    asked, n = spec.position, int(x.shape[-2])
    assert isinstance(asked, Rotary)
    given = "positions_q" if role == "q" and "positions_q" in values else "positions"
    if asked.given == "positions":
        p = np.asarray(values[given])
        return (p[..., len(p) - n :] if role == "q" and given == "positions" else p) + how.more
    last = role == "q" and not how.from_first and spec.alignment == "bottom-right"
    start = asked.start + (int(values["k"].shape[-2]) - n if last else 0)
    return np.arange(n) + start + how.more


def _given_tables(x: Any, role: str, how: Turn, spec: Attention, values: Values) -> Any:
    if role == "q" and "cos_q" in values:
        return values["cos_q"], values["sin_q"]
    if role != "q":
        return values["cos"], values["sin"]
    where = "top-left" if how.from_first else spec.alignment
    return tuple(rotary.for_queries(values[n], int(x.shape[-2]), where) for n in ("cos", "sin"))


def _around(x: Any, cos: Any, sin: Any, how: Turn, layout: str, width: int) -> Any:
    xp, d = namespace_of(x), int(x.shape[-1])
    rest = x[..., : d - width] if how.last_columns else x[..., width:]
    y = x[..., d - width :] if how.last_columns else x[..., :width]
    if how.pairs == "mixed":  # partners of one layout, angles in the order of the other
        y = _mixed(y, cos, sin, layout)
    else:
        y = (angles.rotate_half if layout == "half" else angles.rotate_interleaved)(y, cos, sin)
    return y if width == d else xp.concat([rest, y] if how.last_columns else [y, rest], axis=-1)


def _mixed(y: Any, cos: Any, sin: Any, layout: str) -> Any:
    xp, half = namespace_of(y), int(y.shape[-1]) // 2
    if layout == "half":
        partner = xp.concat([-y[..., half:], y[..., :half]], axis=-1)
        order = np.arange(2 * half) // 2
    else:
        pairs = xp.reshape(y, (*y.shape[:-1], half, 2))
        partner = xp.reshape(xp.stack([-pairs[..., 1], pairs[..., 0]], axis=-1), y.shape)
        order = np.arange(2 * half) % half
    return y * xp.take(cos, order, axis=-1) + partner * xp.take(sin, order, axis=-1)


def _exchanged(spec: Attention, inputs: Inputs) -> Inputs:
    """Sines for cosines."""
    names = {"cos": "sin", "sin": "cos", "cos_q": "sin_q", "sin_q": "cos_q"}
    return {n: inputs[names.get(n, n)] for n in inputs}


def _left(role: str, spec: Attention, values: Values) -> Any:
    """Not turned."""
    return before(spec, values, f"{role}_turned") * 1


def values_turned(spec: Attention, values: Values) -> Any:
    """Values turned as keys are."""
    v = values["v_shared" if "v_shared" in values else "v"]
    return v if int(v.shape[-1]) % 2 else _rotated(v, "k", Turn(), spec, values)


def _in(name: str) -> Callable[[Any], Any]:
    """Positions rounded to a format."""

    def places(p: Any) -> Any:
        return Format(name).rounded(np.asarray(p, dtype=np.float64))

    return places


def _ended(n: int, p: Any) -> Any:
    return np.minimum(p, n - 1)


def _modulo(n: int, p: Any) -> Any:
    return p % n


def _other_base(base: float) -> Applies:
    """Where the base is another one."""
    return lambda spec: isinstance(spec.position, Rotary) and float(spec.position.base) != base


def _turns(words: str, how: Turn, applies: Applies, roles: str = "qk") -> Mistake:
    steps: dict[str, Change] = {f"{role}_turned": partial(turned, role, how) for role in roles}
    return in_all("position", words, applies, steps)


def _rotary(spec: Attention) -> bool:
    return isinstance(spec.position, Rotary) and spec.latent is None and spec.position.triples is None


def _computes(spec: Attention) -> bool:
    return _rotary(spec) and getattr(spec.position, "given", None) != "tables"


def _in_order(spec: Attention) -> bool:
    """Whether positions are 0, 1, … and queries the last ones."""
    return _rotary(spec) and getattr(spec.position, "given", None) is None and spec.alignment == "bottom-right"


def _partly(spec: Attention) -> bool:
    return _rotary(spec) and getattr(spec.position, "width", None) is not None


_LATE = "positions of queries are counted from the first key, not to the last: the keys before are not counted"

MISTAKES: tuple[Mistake, ...] = (
    in_fields(
        "position",
        "positions are left out",
        lambda s: s.position is not None and not isinstance(s.position, Alibi | Buckets),
        with_fields(position=None),
    ),
    in_fields(
        "position",
        "columns l and l + r/2 are turned together, in place of 2l and 2l + 1",
        position_is(Rotary, layout="interleaved"),
        with_position(layout="half"),
    ),
    in_fields(
        "position",
        "columns 2l and 2l + 1 are turned together, in place of l and l + r/2",
        position_is(Rotary, layout="half"),
        with_position(layout="interleaved"),
    ),
    _turns("columns are paired in one layout, their angles laid out in the other", Turn(pairs="mixed"), _rotary),
    _turns(
        "the exponent of the frequencies is l/r, not 2l/r",
        Turn(exponent=lambda pair, r, d: Fraction(-pair, r)),
        _computes,
    ),
    _turns(
        "the exponent of the frequencies is 4l/r, not 2l/r",
        Turn(exponent=lambda pair, r, d: Fraction(-4 * pair, r)),
        _computes,
    ),
    _turns(
        "the exponent of the frequencies is 2(l + 1)/r: pairs are counted from 1",
        Turn(exponent=lambda pair, r, d: Fraction(-2 * pair - 2, r)),
        _computes,
    ),
    _turns(
        "the exponent of the frequencies is 2l/(r − 2): as if the last one were the whole base",
        Turn(exponent=lambda pair, r, d: Fraction(-2 * pair, max(r - 2, 1))),
        _computes,
    ),
    _turns(
        "frequencies have the width of the head in their exponents, not that of what is turned",
        Turn(exponent=lambda pair, r, d: Fraction(-2 * pair, d)),
        both(_computes, _partly),
    ),
    _turns(
        "frequencies are inverted: they grow with the pair",
        Turn(exponent=lambda pair, r, d: Fraction(2 * pair, r)),
        _computes,
    ),
    _turns("all pairs have the frequency 1", Turn(exponent=lambda pair, r, d: Fraction(0)), _computes),
    *(
        _turns(
            f"the base of the frequencies is {base:g}",
            Turn(base=base),
            both(_computes, _other_base(base)),
        )
        for base in (100.0, 1000.0, 10000.0, 100000.0, 500000.0, 1000000.0)
    ),
    _turns("angles have the other sign: tokens are turned backwards", Turn(sign=-1), _rotary),
    _turns("queries are turned backwards, keys forwards", Turn(sign=-1), _rotary, "q"),
    _turns("keys are turned backwards, queries forwards", Turn(sign=-1), _rotary, "k"),
    in_steps("position", "keys are not turned, queries alone are", _rotary, k_turned=partial(_left, "k")),
    in_steps("position", "queries are not turned, keys alone are", _rotary, q_turned=partial(_left, "q")),
    in_steps("position", "values are turned too", _rotary, of="changed", changed=values_turned),
    _turns(_LATE, Turn(from_first=True), lambda s: _rotary(s) and s.alignment == "bottom-right", "q"),
    _turns("queries are one position too far from the keys", Turn(more=1), _in_order, "q"),
    _turns("queries are one position too near to the keys", Turn(more=-1), _in_order, "q"),
    _turns(
        "given positions are ignored, 0, 1, 2, … taken",
        Turn(places=lambda p: np.arange(len(p)) + 0 * p),
        position_is(Rotary, given="positions"),
    ),
    *(
        _turns(f"positions are rounded to {name}", Turn(places=_in(name)), _computes)
        for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
    ),
    *(
        _turns(f"positions are counted modulo {n}", Turn(places=partial(_modulo, n)), _computes)
        for n in (8, 16, 32, 64, 128)
    ),
    *(
        _turns(
            f"positions end at {n - 1}: later tokens stand there too",
            Turn(places=partial(_ended, n)),
            _computes,
        )
        for n in (8, 16, 32, 64, 128)
    ),
    _turns("all columns are turned, not the first ones alone", Turn(whole=True), both(_computes, _partly)),
    _turns("the last columns are turned, not the first ones", Turn(last_columns=True), _partly),
    in_fields(
        "position",
        "the scaling of the frequencies is left out",
        lambda s: isinstance(s.position, Rotary) and s.position.scaling is not None,
        with_position(scaling=None),
    ),
    Mistake(
        "position", "cosines and sines are exchanged", Variant(inputs=_exchanged), position_is(Rotary, given="tables")
    ),
)

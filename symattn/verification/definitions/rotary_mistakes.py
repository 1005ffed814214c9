"""Known mistakes in rotary embeddings: in how columns are paired, and in the angles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.positions.fields import Rotary
from symattn.attention.positions.rotary import angles, pairs, powers_of, rotate

Turn = Callable[..., Any]
Change = Callable[[Rotary, Any, Any, Any], tuple[Any, Any]]


def of_pairs(spec: Rotary) -> Iterator[tuple[str, Turn]]:
    """What is done with the right cosines and sines."""
    half = spec.layout == "half"
    other = "interleaved" if half else "half"
    words = "neighbouring columns are turned together, not column l with l + r/2"
    yield (
        words if half else "column l is turned with l + r/2, not with its neighbour",
        (lambda x, c, s, layout: rotate(x, c, s, other)),
    )
    yield "the rotation is the other way round", lambda x, c, s, layout: rotate(x, c, -s, layout)
    yield "cosines and sines are exchanged", lambda x, c, s, layout: rotate(x, s, c, layout)
    yield (
        "the angles are doubled: it is turned twice",
        lambda x, c, s, layout: rotate(rotate(x, c, s, layout), c, s, layout),
    )
    yield "the vectors are not turned", lambda x, c, s, layout: x + 0 * rotate(x, c, s, layout)
    yield (
        "the columns are exchanged without a change of sign",
        lambda x, c, s, layout: _mixed(x, c, s, layout, layout, 1),
    )
    yield "the terms with the sine are left out", lambda x, c, s, layout: _mixed(x, c, 0 * s, layout, layout)
    yield (
        "halves are exchanged with angles that are laid out for neighbours"
        if half else "neighbours are exchanged with angles that are laid out for halves"
    ), lambda x, c, s, layout: _mixed(x, c, s, other, layout)  # fmt: skip
    if spec.width is not None:
        yield "the last columns are turned, not the first", _last


def _mixed(x: Any, cos: Any, sin: Any, laid: str, exchanged: str, sign: int = -1) -> Any:
    """x ⊙ c + x' ⊙ s: c and s laid out for one kind of pairs, the columns of x' exchanged in another."""
    xp, r = namespace_of(x), 2 * int(cos.shape[-1])
    c, s = (_laid(t, laid) for t in (cos, sin))
    y, rest = x[..., :r], x[..., r:]
    turned = y * c + _exchanged(y, exchanged, sign) * s
    return xp.concat([turned, rest], axis=-1) if rest.shape[-1] else turned


def _laid(table: Any, layout: str) -> Any:
    xp = namespace_of(table)
    if layout == "half":
        return xp.concat([table, table], axis=-1)
    return xp.reshape(xp.stack([table, table], axis=-1), (*table.shape[:-1], 2 * int(table.shape[-1])))


def _exchanged(y: Any, layout: str, sign: int) -> Any:
    xp, f = namespace_of(y), int(y.shape[-1]) // 2
    if layout == "half":
        return xp.concat([sign * y[..., f:], y[..., :f]], axis=-1)
    apart = xp.reshape(y, (*y.shape[:-1], f, 2))
    return xp.reshape(xp.stack([sign * apart[..., 1], apart[..., 0]], axis=-1), y.shape)


def _last(x: Any, cos: Any, sin: Any, layout: str) -> Any:
    rest = int(x.shape[-1]) - 2 * int(cos.shape[-1])
    xp = namespace_of(x)
    turned = rotate(x[..., rest:], cos, sin, layout)
    return xp.concat([x[..., :rest], turned], axis=-1) if rest else turned


def of_tables(spec: Rotary) -> Iterator[tuple[str, Change]]:
    """Other angles; ``tables`` gives the right ones for a specification and positions."""
    yield "the exponents of the frequencies are l/r, not 2l/r", _powers(lambda pair, r: Fraction(-pair, r))
    yield (
        "the exponents of the frequencies are 2(l + 1)/r, not 2l/r",
        _powers(lambda pair, r: Fraction(-2 * pair - 2, r)),
    )
    yield (
        "the frequencies grow with the column: the sign of their exponents is changed",
        _powers(lambda pair, r: Fraction(2 * pair, r)),
    )
    yield "the exponents of the frequencies are 2l/(r/2)", _powers(lambda pair, r: Fraction(-4 * pair, r))
    yield "positions are one too large", lambda spec, p, x, tables: tables(spec, p + 1, x)
    yield "positions are one too small", lambda spec, p, x, tables: tables(spec, p - 1, x)
    yield "every position is the same", lambda spec, p, x, tables: tables(spec, 0 * p + p[..., :1], x)
    yield (
        "positions are counted from 0, whatever is given",
        lambda spec, p, x, tables: tables(spec, 0 * p + np.arange(p.shape[-1]), x),
    )
    yield "positions are counted from the first one given", lambda spec, p, x, tables: tables(spec, p - p[..., :1], x)
    for name in ("bfloat16", "float16"):
        yield f"positions are rounded to {name}", _rounded_positions(name)
    if spec.width is not None:
        yield "the frequencies are those of all columns, not of the ones that are turned", _of_all


def _powers(exponent: Callable[[int, int], Fraction]) -> Change:
    def tables(spec: Rotary, positions: Any, x: Any, right: Any) -> tuple[Any, Any]:
        r = spec.width or int(x.shape[-1])
        return _of(powers_of(spec.base, [exponent(pair, r) for pair in range(pairs(r))], x), positions)

    return tables


def _of_all(spec: Rotary, positions: Any, x: Any, right: Any) -> tuple[Any, Any]:
    d, r = int(x.shape[-1]), spec.width or int(x.shape[-1])
    return _of(powers_of(spec.base, [Fraction(-2 * pair, d) for pair in range(pairs(r))], x), positions)


def _of(frequencies: Any, positions: Any) -> tuple[Any, Any]:
    xp, turned = namespace_of(frequencies), angles(positions, frequencies)
    return xp.cos(turned), xp.sin(turned)


def _rounded_positions(name: str) -> Change:
    from symattn.arrays.formats import Format

    def tables(spec: Rotary, positions: Any, x: Any, right: Any) -> tuple[Any, Any]:
        rounded = Format(name).rounded(np.asarray(positions, dtype=np.float64)).astype(np.int64)
        return right(spec, rounded, x)  # type: ignore[no-any-return]

    return tables

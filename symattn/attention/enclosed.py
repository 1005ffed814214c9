"""``enclose``: intervals that contain the exact output of attention, for large sizes, at about the speed of NumPy.

``enclose_rows`` runs the definition on balls, for some queries of large inputs: to any precision, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.arrays.enclosing.exponential import Floats, check_arithmetic
from symattn.arrays.plain import of_tensors
from symattn.attention.enclosing.pattern import Head, checked, front, heads
from symattn.attention.enclosing.radius import Spread, enclosed, hull, spread
from symattn.attention.enclosing.sums import QUERIES, Prepared, prepare, sums
from symattn.attention.softmax import nonempty
from symattn.attention.spec import Attention
from symattn.document.errors import InputError


class EnclosedOutput(NamedTuple):
    """The exact output lies within ``radius`` of ``centre``, element by element; both float64, (…, n_q, d_v)."""

    centre: Floats
    radius: Floats

    def off(self, got: np.ndarray) -> tuple[Floats, Floats]:
        """Return lower and upper bounds of |got − exact|, for floats ``got`` of the same shape.

        Differences and sums are rounded to nearest, so the neighbouring float is a safe bound. Both are ∞ where only
        one of ``got`` and the exact value is a number, and 0 where neither is.

        >>> EnclosedOutput(np.array([1.0]), np.array([0.25])).off(np.array([1.5]))[0] < 0.25
        array([ True])
        """
        values = np.asarray(got, dtype=np.float64)
        with np.errstate(all="ignore"):
            apart = np.abs(values - self.centre)
            least = np.nextafter(np.nextafter(apart, 0.0) - self.radius, -np.inf)
            most = np.nextafter(np.nextafter(apart, np.inf) + self.radius, np.inf)
        strange, undefined = ~np.isfinite(values), np.isnan(self.centre)
        known = np.where(undefined & np.isnan(values), 0.0, np.inf)
        return (
            np.where(strange | undefined, known, np.maximum(least, 0.0)),
            np.where(strange | undefined, known, most),
        )


def enclose(
    spec: Attention, inputs: Mapping[str, object], *, tight: bool = False
) -> EnclosedOutput:
    """Return centre and radius of the exact output on these inputs: |o − centre| ≤ radius, proved in
    ``enclosing.radius``.

    ``spec`` may have dot products, a scale (None is the real number 1/√d_k), causal masks, windows, blocks,
    prefixes, boolean masks, padding, several heads, shared or not, a sink, and the base 2. Inputs are q, k, v, and
    mask, keep, sink as the specification requires, in float64 or narrower types, at their exact values. Where
    the bound on rounding is useless, the result is the hull of the allowed values. A fully masked row is 0 ± 0, or NaN
    ± 0 if the specification says ``nan``. ``tight`` also sums |v|, which gives radii a few times smaller where values
    cancel.

    Memory: inputs, output, and tiles of scores.

    Raises Refused for other variants, which the kind ``enclosure`` supports, and if floats are flushed to zero;
    InputError for inputs that do not fit, and for NaN and infinity.

    >>> import numpy as np
    >>> from symattn import Attention
    >>> q, k, v = np.ones((2, 1)), np.array([[1.0], [0.0]]), np.array([[1.0], [2.0]])
    >>> found = enclose(Attention(causal=True), {"q": q, "k": k, "v": v})
    >>> found.centre.round(6).tolist(), bool((found.radius < 1e-12).all())
    ([[1.0], [1.268941]], True)
    """
    check_arithmetic()
    arrays = checked(spec, of_tensors(inputs))
    shape = (*front(spec, arrays), arrays["q"].shape[-2], arrays["v"].shape[-1])
    out = EnclosedOutput(np.empty(shape), np.empty(shape))
    with np.errstate(all="ignore"):  # rows that overflow get the hull
        ready: Prepared | None = None
        for head in heads(spec, arrays):
            # Shared values have one spread.
            if ready is None or ready.values is not head.v:
                spreads: dict[tuple[int, int], Spread] = {}
            ready = prepare(spec, head, tight, ready)
            for start in range(0, head.seen.n_q, QUERIES):
                rows = slice(start, min(start + QUERIES, head.seen.n_q))
                block = EnclosedOutput(out.centre[head.index][rows], out.radius[head.index][rows])
                _enclose_block(spec, ready, spreads, rows, block)
    return out


def _enclose_block(
    spec: Attention,
    ready: Prepared,
    spreads: dict[tuple[int, int], Spread],
    rows: slice,
    out: EnclosedOutput,
) -> None:
    """Write the enclosure of a block of queries; ``spreads`` are those of ranges of keys of other blocks."""
    result = sums(ready, rows)
    empty = result.empty
    # Called for its error, if the specification refuses empty rows.
    nonempty(np.where(empty, 0.0, 1.0), spec.fully_masked)
    # Most blocks see the same keys.
    if result.keys not in spreads:
        seen_values = ready.values[slice(*result.keys)]
        spreads[result.keys] = spread(seen_values, ready.sink is not None)
    around = spreads[result.keys]
    lost = enclosed(ready, result, around, rows, *out)
    # Written with ~ and <, so that a NaN radius counts as useless.
    wide = ~(out.radius < around.reach)
    if wide.any():  # the hull is narrower, or the bound on rounding is useless
        np.copyto(out.centre, around.middle, where=wide)
        np.copyto(out.radius, around.reach, where=wide)
    for row in np.flatnonzero(lost & ~empty):  # the hull of the values that the query sees
        allowed = ready.seen.tile(
            slice(int(row) + rows.start, int(row) + rows.start + 1), slice(*result.keys)
        )
        visible_values = (
            ready.values[slice(*result.keys)]
            if allowed is None
            else ready.values[slice(*result.keys)][allowed[0]]
        )
        # A sink adds the value 0 to the hull.
        sink: Any = {} if ready.sink is None else {"initial": 0.0}
        out.centre[row], out.radius[row] = hull(
            visible_values.min(axis=0, **sink), visible_values.max(axis=0, **sink)
        )
    if empty.any():
        out.centre[empty], out.radius[empty] = (np.nan if spec.fully_masked == "nan" else 0.0), 0.0


def alone(spec: Attention) -> Attention:
    """Return the specification of a single head with its mask as an input, for any rows and keys of a ``Head``."""
    # Masks by position and shared heads are resolved: one boolean mask stands for all.
    return Attention(
        scale=spec.scale,
        softcap=spec.softcap,
        base=spec.base,
        sink=spec.sink and "given",
        stabilised=spec.stabilised,
        fully_masked=spec.fully_masked,
        mask="boolean" if spec.masks_anything else None,
    )


def enclose_rows(
    spec: Attention, inputs: Mapping[str, object], rows: Sequence[int], bits: int = 200
) -> Ball:
    """Return the exact output for some queries as Arb's balls, at a precision of ``bits``: (…, len(rows), d_v).

    Use it for targets in float64, whose error ``enclose`` cannot resolve. The definition itself runs on these
    queries and all keys; a row of n keys costs n (d_k + d_v) products of balls. ``spec`` and ``inputs`` are those
    of ``enclose``.

    Raises what ``enclose`` raises, and InputError for a row that does not exist.

    >>> import numpy as np
    >>> from symattn import Attention
    >>> x = np.eye(3)
    >>> enclose_rows(Attention(), {"q": x, "k": x, "v": x}, [2]).midpoints().round(3).tolist()
    [[0.264, 0.264, 0.471]]
    """
    arrays = checked(spec, of_tensors(inputs))
    n_q = arrays["q"].shape[-2]
    for row in rows:
        if not 0 <= row < n_q:
            raise InputError(f"row {row}: there are rows 0 to {n_q - 1}")
    shape = (*front(spec, arrays), len(rows), arrays["v"].shape[-1])
    values = np.empty(shape, dtype=object)
    with precision(bits):
        for head in heads(spec, arrays):
            values[head.index] = _run_rows(spec, head, list(rows)).entries
    return Ball(values)


def _run_rows(spec: Attention, head: Head, rows: list[int]) -> Ball:
    keys = slice(0, head.seen.n_k)
    # The rows need not be neighbours, so each has a tile of its own; None is all seen.
    mask_tiles = [head.seen.tile(slice(row, row + 1), keys) for row in rows]
    allowed = np.concatenate(
        [np.ones((1, keys.stop), dtype=bool) if s is None else s for s in mask_tiles]
    )
    inputs: dict[str, Any] = {
        name: Ball.lift(array)
        for name, array in (("q", head.q[rows]), ("k", head.k), ("v", head.v))
    }
    one = alone(spec)
    if one.mask:
        inputs["mask"] = allowed
    if head.sink is not None:
        inputs["sink"] = Ball.lift(np.array([head.sink]))
    out: Ball = one(**inputs)
    return out

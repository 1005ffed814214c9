"""``directions``: the effects of known mistakes on an output, to first order in their size; and squares of means.

Errors that differ from row to row, such as sums stored in a short format, cancel in means over rows.
Their squares do not. T_i, σ_i and r_i are those of row i (``limits``), of G rows with different queries. Then, under N1
and N2, with t = λ²/2,

    √(Σ_i (T_i/σ_i)²) ≤ √(G + 2√(G t) + 2t) + √(Σ_i (r_i/σ_i)²)      but for a probability of e^{−t} ≤ 2 e^{−λ²/2}.

Proof. T_i = X_i + e_i, |e_i| ≤ r_i and E e^{aX_i/σ_i} ≤ e^{a²/2} (``limits``, step 1), and the X_i are independent. So
X/σ is a sub-Gaussian vector, and the square of its length at most G + 2√(G t) + 2t but for e^{−t} (D. Hsu, S. Kakade,
T. Zhang, A tail inequality for quadratic forms of subgaussian random vectors, Electron. Commun. Probab. 17 (2012),
theorem 2.1 for A = 1); lengths obey the triangle inequality. ∎

This is one more limit for each direction. The squares of roundings that are uniform in [−h, h] are h²/3 in the mean, so
that those of right outputs sum to at most G/3 or so: of right replays they have to sum to less than ``MOST`` G.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.bounds.plain_bound import pieces
from symattn.bounds.sharp import rows_in_float64
from symattn.bounds.sharp.limits import Floats

_BLOCKS = 16  # largest number of blocks of keys that are lost together
_LEAST = 64  # keys in such a block
_MOST = 0.98  # largest part of a row's weight that may be lost


class Direction(NamedTuple):
    """x, (r, d_v), and the words for θ and its half interval."""

    words: Callable[[float, float], str]
    x: Floats


def directions(b: rows_in_float64.QueryBlock) -> Iterator[Direction]:
    """Yield the effects of known mistakes on the output, to first order in their size, and those of lost keys."""
    # Keys without weight have no effect, and −∞ must not meet 0.
    arrays = (b.raw, b.free)
    t, free = (b.xp.where(b.p > 0, a, 0.0) for a in arrays)

    def change(w: Floats) -> Floats:
        # A change w of exponentials moves o by Σ w (v − o), to first order.
        return b.times(w) - b.xp.sum(w, axis=1, keepdims=True) * b.o

    if b.cap is not None:
        lifted = change(b.p * (free - t))
        yield Direction(
            lambda x, off: f"as if the cap were ignored, to a part of {x:.3g} ± {off:.2g}", lifted
        )
    # Behind a cap c a change of the scale passes tanh' = 1 − (t/c)².
    scaled = b.p * free if b.cap is None else b.p * free * (1 - (t / b.cap) ** 2)
    yield Direction(
        lambda x, off: f"as if scores were scaled by {1 + x:.5g} ± {off:.2g} of the scale",
        change(scaled),
    )
    # A cap takes a multiple of t³ from each score, to lowest order.
    cubes = b.p * t * t * t
    yield Direction(
        lambda x, off: f"as if t became t {-x:+.2g} t³ (± {off:.2g}) in scores: a cap",
        -change(cubes),
    )
    yield Direction(lambda x, off: f"as if outputs were scaled by {1 + x:.5g} ± {off:.2g}", b.o)
    if b.spec.masks_anything:
        yield Direction(_describe_finite_mask_value, _effect_of_filled_mask(b))
    # Off-by-one mistakes of masks concern the keys at the edges.
    for words, key, lost in _yield_keys_at_edges(b):
        yield Direction(_make_describer_of_part(words), _effect_of_key(b, key, lost))
    n = len(b.values)
    # Blocks of keys are few, since every direction raises all limits.
    width = max(_LEAST, -(-n // _BLOCKS))
    for keys in pieces(n, width):
        p = b.p[:, keys]
        whole = b.xp.sum(p, axis=1, keepdims=True)
        remaining = whole * b.o - p @ rows_in_float64.wide(b.values[keys])
        x = remaining * _growth_of_remaining_weights(b, whole)
        yield Direction(
            _make_describer_of_part(f"keys {keys.start} to {keys.stop - 1} were lost"), x
        )


def _make_describer_of_part(words: str) -> Callable[[float, float], str]:
    return lambda x, off: f"as if {words}, or one of them, to a part of {x:.2g} ± {off:.2g}"


def _describe_finite_mask_value(x: float, off: float) -> str:
    """Return the words for a number c in place of −∞, with e^c = x ± ``off``."""
    least, most = (f"{log(y):.3g}".replace("-", "−") if y > 0 else "−∞" for y in (x - off, x + off))
    return f"as if forbidden scores were a finite number in place of −∞, from {least} to {most}"


def _effect_of_filled_mask(b: rows_in_float64.QueryBlock) -> Floats:
    """Return the effect of forbidden keys with scores c in place of −∞, per e^c (in base 2, 2^c)."""
    xp = b.xp
    base = b.xp.exp2 if b.spec.base == 2 else b.xp.exp
    own = xp.where(xp.isfinite(b.t), b.t, -xp.inf)
    at, top = xp.arange(len(own)), own.argmax(axis=1)
    with np.errstate(all="ignore"):
        # Clipped, since a direction may have any length but must be finite.
        own_power = base(xp.clip(-own[at, top], -50.0, 50.0))
        unit = b.p[at, top] * own_power
    hidden = xp.astype(~xp.isfinite(b.t), b.p.dtype)
    total = xp.sum(hidden, axis=1, keepdims=True)
    return unit[:, None] * (b.times(hidden) - total * b.o)


def _yield_keys_at_edges(b: rows_in_float64.QueryBlock) -> Iterator[tuple[str, Any, bool]]:
    """Yield the last and the first key that each query may see, and the forbidden keys next to them."""
    xp, n = b.xp, b.p.shape[1]
    visible = xp.isfinite(b.t)
    place = xp.arange(n)[None, :]
    # Rows without any visible key have no edge.
    any_seen = xp.any(visible, axis=1)
    first, last = (
        xp.min(xp.where(visible, place, n), axis=1),
        xp.max(xp.where(visible, place, -1), axis=1),
    )
    yield "the last key that is allowed were lost", xp.where(any_seen, last, -1), True
    yield "the first key that is allowed were lost", xp.where(any_seen, first, -1), True
    yield (
        "the key after the last one were allowed",
        # −1 marks rows in which there is no such key.
        xp.where(any_seen & (last + 1 < n), last + 1, -1),
        False,
    )
    yield (
        "the key before the first one were allowed",
        xp.where(any_seen & (first > 0), first - 1, -1),
        False,
    )


def _effect_of_key(b: rows_in_float64.QueryBlock, key: np.ndarray, lost: bool) -> Floats:
    """Return the effect of one key of each row that is ``lost``, or seen though forbidden; −1: no key."""
    # A row without such a key (−1) is computed too, and set to 0 at the end.
    xp = b.xp
    at = xp.arange(len(key))
    own = xp.where(xp.isfinite(b.t), b.t, -xp.inf)
    top = own.argmax(axis=1)
    base = xp.exp2 if b.spec.base == 2 else xp.exp
    with np.errstate(all="ignore"):
        difference = b.raw[at, key] - own[at, top]
        power = base(xp.minimum(difference, 50.0))
        w = (b.p[at, top] * power)[:, None]
        lost_weights = b.p[at, key][:, None]
        of_weight = (
            -lost_weights * _growth_of_remaining_weights(b, lost_weights) if lost else w / (1 + w)
        )
        x = of_weight * (rows_in_float64.wide(b.values[key]) - b.o)
    return xp.where((key >= 0)[:, None], x, 0.0)


def _growth_of_remaining_weights(b: rows_in_float64.QueryBlock, lost: Floats) -> Floats:
    """Return 1/(1 − P), by which other weights grow if some of sum P (r, 1) are lost; 0 if hardly any are left."""
    limited = b.xp.minimum(lost, _MOST)
    return b.xp.where(lost < _MOST, 1 / (1 - limited), 0.0)


#: Right replays must sum to less than this part of G (see above).
MOST = 1 / 2


class Squares(NamedTuple):
    """σ² and r, (m, heads, rows), of m directions; ``firsts`` (heads · rows,) are the first rows of equal queries."""

    squares: Floats
    rest: Floats
    firsts: Any

    def worst(self, t: Floats, length: Floats, lam: float) -> tuple[float, int, float, float]:
        """Return the direction whose squares are farthest beyond their limit for T (m, heads, rows): its share, its
        index, and θ in the root mean square with the half interval, for ⟨D, x⟩ of each row in ``length``."""
        xp: Any = namespace_of(t)
        (result, rest, count), half = self.lengths(t), lam**2 / 2
        # √(G + 2√(G t) + 2t) with t = λ²/2, and the r of all rows.
        tail = 2 * xp.sqrt(count * half)
        limit = xp.sqrt(count + tail + 2 * half) + rest
        shares = xp.where(xp.isfinite(limit), result / limit, 0.0)
        m = int(shares.argmax())
        unit, _, _ = self.lengths(length)
        with np.errstate(all="ignore"):
            return float(shares[m]), m, float(result[m] / unit[m]), float(limit[m] / unit[m])

    def summed(self, t: Floats) -> float:
        """Return the largest Σ (T_i/σ_i)²/G of a direction."""
        xp: Any = namespace_of(t)
        length, _, count = self.lengths(t)
        return float(xp.max(length**2 / xp.where(count > 0, count, 1)))

    def lengths(self, t: Floats) -> tuple[Floats, Floats, Floats]:
        """Return √(Σ (T_i/σ_i)²), √(Σ (r_i/σ_i)²) and G for each direction, (m,)."""
        xp = namespace_of(t)
        # The rows of equal queries are not independent, so only the first counts.
        firsts = xp.reshape(self.firsts, self.squares.shape[1:])
        used = (self.squares > 0) & firsts
        unit = xp.sqrt(xp.where(used, self.squares, 1.0))
        arrays = (t, self.rest)
        t, rest = (xp.reshape(xp.where(used, a / unit, 0.0), (len(t), -1)) for a in arrays)
        flat = xp.reshape(used, (len(t), -1))
        count = xp.sum(xp.astype(flat, xp.float64), axis=1)
        length = xp.sqrt(xp.vecdot(t, t))
        return length, xp.sqrt(xp.vecdot(rest, rest)), count

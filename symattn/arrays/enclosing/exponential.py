"""The exponential on float64 arrays, with a bound on its error that is proved here.

Assumed: binary64 with rounding to nearest and gradual underflow, u = 2⁻⁵³, and that NumPy rounds each of the
operations below by itself (it works array by array, so it cannot fuse two). Let N = 2048 and L = ln 2 / N.

**Statement.** With ε = ``EPSILON`` = 2.4 u and η = 2⁻¹⁰⁷⁴:
(a) ``powers`` gives e with |e − 2^{y/N}| ≤ ε 2^{y/N}, for |y| ≤ 1000 N;
(b) ``exp_moderate`` gives e with |e − e^x| ≤ ε e^x, for |x| ≤ 700;
(c) ``exp`` gives e with |e − e^x| ≤ ε e^x + η for every x, or ∞, which stands for more than (1 − 2ε) 2¹⁰²⁴.
All give 1 at 0.

**Proof.**

1. *Rounding to an integer.* z = fl(y + 1.5·2⁵²), for |y| < 2²², lies in [2⁵², 2⁵³], where floats are the integers: so
   k = z − 1.5·2⁵² is an integer nearest to y, and that subtraction is exact. The low bits of z are those of k, in
   two's complement.

2. *Reduced argument of (a).* f = y − k is exact: for |y| < 1/2 it is y; else |f| ≤ 1/2 ≤ |y|, and f is a multiple of
   the unit in the last place of y. So 2^{y/N} = 2^{k/N} e^r with r = f L and |r| ≤ L/2 < 1.7·10⁻⁴ =: ρ.

3. *Reduced argument of (b) and (c).* Here x is cut to [−746, 710] and y = fl(x fl(N/ln 2)), |k| < 2.21·10⁶ <
   2^{21.08}; y is off by 2.1 u |y| < 2⁻³⁰, so |x − k L| ≤ (1/2 + 2⁻³⁰) L < ρ. L is cut in two, C₁ = ⌊2⁴³ L⌋ 2⁻⁴³ and
   C₂ = fl(L − C₁), so that |L − C₁ − C₂| ≤ u 2⁻⁴³.
   - k C₁ is exact: |k| ⌊2⁴³ L⌋ < 2.21·10⁶ · 2.98·10⁹ < 2⁵³.
   - x − k C₁ is exact. For k = 0 it is x. Else |x| ≥ (1/2 − 2⁻³⁰) L > 2⁻¹³, so both are multiples of 2⁻⁶⁵, and their
     difference is less than ρ + |k| 2⁻⁴³ < 2⁻¹²: 53 bits hold it.
   - fl(k C₂) is off from k C₂ by u |k| 2⁻⁴³ ≤ 2⁻²¹ u, k C₂ from k (L − C₁) by as much, and the last subtraction,
     whose result is below 2⁻¹², rounds by at most 2⁻⁶⁶ = 2⁻¹³ u.
   So r is off by less than 0.0002 u, and e^r by a factor within 1 ± 0.0003 u.

4. *Polynomial.* q = ((c₃ f + c₂) f + c₁) f, with c_i = fl(Lⁱ/i!) in (a), and with f = r and c_i = fl(1/i!) in (b) and
   (c). What it leaves out of e^r − 1 is at most ρ⁴/24 · (1 + ρ) < 3.5·10⁻¹⁷ < 0.32 u. As for rounding: of c₁ + c₂ f +
   c₃ f² the first term is off by the factor 1 ± u, the others are less than 2⁻¹² of it with at most five roundings,
   and their sum and the product with f are rounded: 3.1 u |q| < 3.1 · 1.71·10⁻⁴ u < 0.001 u. (Products that underflow
   add 2⁻¹⁰⁷³.)

5. *Table.* k = N m + j with 0 ≤ j < N. T_j in [1, 2) is a float with |T_j − 2^{j/N}| ≤ u, which is compared with Arb,
   entry by entry, when the table is made. In (a) and (b) m is in [−1011, 1010], and adding it to the exponent of T_j
   is exact.

6. *Together.* With t = 2^m T_j the result is fl(t + fl(t q)). The table gives a relative error of u, the polynomial
   (4.) and its argument (3.) 0.3213 u, the product u |q| < 0.0002 u, and 2⁻¹⁰⁷⁵ ≤ 2⁻⁶⁴ t < 0.0005 u t where it
   underflows, the sum u: less than 2.33 u; products of errors, and quotients by e^r ≥ 1 − ρ, multiply it by less than
   1.001.

7. *(c).* There t = T_j, and the result, in (0.99, 2.01), is multiplied by 2^h, h = ⌊m/2⌋, and by 2^{m − h}. The first
   product is exact; the second is off by at most 2⁻¹⁰⁷⁵ if it underflows. Below −746, where e^x < 2⁻¹⁰⁷⁶, 0 comes
   out; above 710, where e^x > 2¹⁰²⁴, ∞ does.

Source of the reduction: Cody and Waite, Software Manual for the Elementary Functions (1980), chapter 6; of the table:
P. T. P. Tang, Table-driven implementation of the exponential function in IEEE floating-point arithmetic, ACM Trans.
Math. Softw. 15 (1989) 144-157.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.enclosing.bounds import U
from symattn.document.errors import Refused

Floats = NDArray[np.float64]

# The relative error of the statement above.
EPSILON = 2.4 * U
#: N: the unit of the arguments of ``powers`` is 1/N of a binary order.
STEPS = 2048
#: The largest |y| that ``powers`` takes, and the largest |x| that ``exp_moderate`` takes.
MOST_STEPS, MOST_MODERATE = 1000.0 * STEPS, 700.0
# Elements processed at a time, so that all buffers stay in the cache.
CHUNK = 16384

# Adding this number rounds to an integer, see step 1.
_MAGIC = 1.5 * 2.0**52
_SHIFT = np.uint64(52 - 11)  # N = 2¹¹: what stands above the index j is the exponent


class _Constants(NamedTuple):
    """The table as bits, 1/L, L in two parts, and the polynomial's coefficients for both kinds of argument."""

    table: NDArray[np.uint64]
    inverse: float
    high: float
    low: float
    of_steps: tuple[float, float, float]
    of_reals: tuple[float, float, float]


def exp(x: object) -> Floats:
    """e^x, element by element, within ε e^x + η (statement (c) above). NaN stays NaN. Any shape → the same shape."""
    # A copy, which is overwritten.
    y = np.array(x, dtype=np.float64, order="C")
    with np.errstate(over="ignore", invalid="ignore"):
        return _by_chunks(y, _exp_of_chunk)


def exp_moderate(x: Floats) -> Floats:
    """Overwrite x, |x| ≤ 700, with e^x within ε e^x (statement (b)). The caller must exclude |x| > 700.

    Raises ValueError for an array that is not contiguous, or not float64.
    """
    return _by_chunks(x, _moderate_of_chunk)


def powers(y: Floats) -> Floats:
    """Overwrite y, |y| ≤ 1000 N, with 2^{y/N} within ε 2^{y/N} (statement (a)). The caller must exclude larger |y|.

    Raises ValueError for an array that is not contiguous, or not float64.
    """
    return _by_chunks(y, _powers_of_chunk)


def check_arithmetic() -> None:
    """Raise Refused unless floats round to nearest, ties to even, and underflow gradually."""
    one, tiny = np.ones(1), np.array([2.0**-1022])
    # In any other rounding mode one of these sums comes out differently.
    ties_to_even = one + U == 1 and one + 3 * U == 1 + 4 * U
    both_signs = one + 1.5 * U > 1 and -one - U == -1
    if not (ties_to_even and both_signs):
        raise Refused(
            "float64 does not round to nearest here; hint: restore the rounding mode of the processor"
        )
    # Flushed subnormal numbers would make errors larger than η.
    if not (tiny * 0.5 > 0 and tiny * 0.5 + tiny > tiny):
        raise Refused(
            "subnormal numbers are flushed to zero here; hint: torch.set_flush_denormal(False)"
        )


def _by_chunks(x: Floats, work: Callable[[Floats, Floats, Floats, Floats], None]) -> Floats:
    if x.dtype != np.float64 or not x.flags.c_contiguous:
        raise ValueError("give a contiguous array of float64")
    if not _rooms.rooms:
        # An array that is never written to is freed first: from then on glibc keeps freed memory of up to twice its
        # size. Else it would return the pages of each array and have them cleared anew, as slow as the arithmetic.
        np.empty(_FREED)
        _rooms.rooms = np.empty(CHUNK), np.empty(CHUNK), np.empty(CHUNK)
    flat = x.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        work(part, *(room[: part.size] for room in _rooms.rooms))
    return x


class _Rooms(threading.local):
    """Buffers for intermediate results, one set per thread: to allocate them would cost as much as the arithmetic."""

    rooms: tuple[Floats, Floats, Floats] | None = None


_rooms = _Rooms()
# numbers, just below the 32 MiB up to which glibc adapts its threshold to freed blocks
_FREED = 31 << 17


def _powers_of_chunk(y: Floats, z: Floats, t: Floats, w: Floats) -> None:
    np.add(y, _MAGIC, out=z)
    np.subtract(z, _MAGIC, out=t)
    y -= t
    _evaluate_exp_polynomial(y, _compute_exp_constants().of_steps, out=t)
    _put_together(y, z, t, w)


def _moderate_of_chunk(x: Floats, z: Floats, t: Floats, w: Floats) -> None:
    _reduce_exponent_range(x, z, t, w)
    _evaluate_exp_polynomial(x, _compute_exp_constants().of_reals, out=t)
    _put_together(x, z, t, w)


def _exp_of_chunk(x: Floats, z: Floats, t: Floats, w: Floats) -> None:
    # Beyond these ends e^x is 0 or ∞ in floats anyway, see step 7.
    np.clip(x, -746.0, 710.0, out=x)
    _reduce_exponent_range(x, z, t, w)
    _evaluate_exp_polynomial(x, _compute_exp_constants().of_reals, out=t)
    # what stands above j in the low 51 bits of z, with its sign
    m = (z.view(np.int64) << np.int64(13)) >> np.int64(24)
    z.view(np.uint64)[...] &= np.uint64(STEPS - 1)
    _put_together(x, z, t, w)
    # Two factors, as 2^m alone may lie outside the floats.
    half = m >> np.int64(1)
    for h in (half, m - half):
        # 2^h for |h| < 1022, by its bits.
        x *= ((h + 1023) << np.int64(52)).view(np.float64)


def _reduce_exponent_range(x: Floats, z: Floats, t: Floats, k: Floats) -> None:
    """Set z = k + 1.5·2⁵² and x = r, as in step 3."""
    constants = _compute_exp_constants()
    np.multiply(x, constants.inverse, out=z)
    # Adding and subtracting 1.5 · 2⁵² rounds to the nearest whole number.
    z += _MAGIC
    np.subtract(z, _MAGIC, out=k)
    # k · high is exact, as the constant is split; the low part corrects it.
    np.multiply(k, constants.high, out=t)
    x -= t
    k *= constants.low
    x -= k


def _evaluate_exp_polynomial(f: Floats, c: tuple[float, float, float], out: Floats) -> None:
    np.multiply(f, c[2], out=out)
    out += c[1]
    out *= f
    out += c[0]
    out *= f


def _put_together(out: Floats, z: Floats, q: Floats, w: Floats) -> None:
    """Set ``out`` to t + t q for t = 2^m T_j and z = 1.5·2⁵² + N m + j, whose higher bits are shifted out."""
    bits = z.view(np.uint64)
    j = out.view(np.int64)
    entry = w.view(np.uint64)
    # The low bits are j, the place in the table; the higher ones are the exponent.
    np.bitwise_and(z.view(np.int64), STEPS - 1, out=j)
    bits -= out.view(np.uint64)
    bits <<= _SHIFT
    bits += _compute_exp_constants().table.take(j, out=entry, mode="clip")
    q *= z
    np.add(z, q, out=out)


@lru_cache(maxsize=1)
def _compute_exp_constants() -> _Constants:
    """Compute all constants from Arb's balls at 200 bits, and check them."""
    import flint

    from symattn.arrays.ball import precision

    check_arithmetic()
    with precision(200):
        step = flint.arb(2).log() / STEPS
        high = int((step * 2**43).floor().unique_fmpz()) * 2.0**-43
        low = float((step - high).mid())
        # Checked rather than trusted: all of the proof rests on these constants.
        if not abs(step - high - low) <= U * 2.0**-43:
            raise ArithmeticError("the exponential: ln 2 in two parts is off")
        of_steps = (
            _round_ball_to_float(step),
            _round_ball_to_float(step**2 / 2),
            _round_ball_to_float(step**3 / 6),
        )
        of_reals = (1.0, 0.5, _round_ball_to_float(flint.arb(1) / 6))
        table = np.array(
            [float((flint.arb(2) ** (flint.arb(j) / STEPS)).mid()) for j in range(STEPS)]
        )
        check_table(table)
        return _Constants(
            table.view(np.uint64), _round_ball_to_float(1 / step), high, low, of_steps, of_reals
        )


def check_table(table: Floats) -> None:
    """Raise ArithmeticError unless |T_j − 2^{j/N}| ≤ u and 1 ≤ T_j < 2 for every entry."""
    import flint

    from symattn.arrays.ball import precision

    # Far more digits than the bound needs.
    with precision(200):
        for j, entry in enumerate(table.tolist()):
            power = flint.arb(2) ** (flint.arb(j) / STEPS)
            if not (1 <= entry < 2 and abs(flint.arb(entry) - power) <= U):
                raise ArithmeticError(
                    f"the exponential: entry {j} of the table, {entry!r}, is off by more than 2^-53"
                )


def _round_ball_to_float(x: Any) -> float:
    """Return a float within one unit roundoff of a ball. Raises ArithmeticError if that is not certain."""
    value = float(x.mid())
    if not abs(x / value - 1) <= U:
        raise ArithmeticError(f"the exponential: {value!r} is not {x} rounded")
    return value

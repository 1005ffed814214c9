"""How far the quotient of sums can be off: the perturbation of softmax weights, and the rounding of the sums.

One query; J its allowed keys, at least one of them, or a sink. A sink is one more key, with v₀ = 0 and a score of its
own. t_j are the exact scores, in units of L = ln 2 / N powers of e (N = 2048): o = Σ w_j v_j with w_j = e^{L t_j} / Σ
e^{L t_l} is wanted. u = 2⁻⁵³, η = 2⁻¹⁰⁷⁴, γ_k = k u / (1 − k u); ‖·‖ is the Euclidean length; fl(·) is what is
computed. Assumed: binary64 as in ``arrays.enclosing.exponential``, and that matrix products are sums of products, in
any order, with or without fused multiply-add (not Strassen's).

1. *Scores.* y_j = fl(fl(c' q) · k_j), c' = c (1 + δ) with |δ| ≤ 2u. Then |y_j − t_j| ≤ γ_{d+3} |c| ‖q‖ ‖k_j‖ + σ:
   each of the d products meets c' and at most d + 1 roundings, and Σ |q_l k_jl| ≤ ‖q‖ ‖k_j‖. What underflows is off
   by η/2, once in fl(c' q) and once in the product: σ = d η (1 + max ‖k‖) is more. A sink's score y₀ is off by 3u
   |y₀|.

2. *Powers.* x_j = fl(y_j − m), with m = 0 or ("shifted") m near the largest y, and e_j = 2^{x_j/N} (1 + ε_j) with
   |ε_j| ≤ 2.4 u. So e_j = e^{L (t_j − m)} e^{θ_j}, |θ_j| ≤ h_j = L |y_j − t_j| + 2.5 u, and 694 u more if shifted,
   since the subtraction is off by at most u |x_j| and |x_j| L ≤ 1000 ln 2 < 694. Let H ≥ max h_j. Where H ≥ 1, the
   hull is given.

3. *Perturbation.* Let p_j = e_j / Σ e_l, ô = Σ p_j v_j, Φ ≥ Σ p_j h_j, X ≥ Σ p_j |v_j − ô|, D ≥ max v − min v over J.
   Then

       |o − ô| ≤ e^Φ min{(e^H − 1) X, ((e^H − 1)/H) Φ D} ≤ (1 + 2Φ)(1 + H) min{H X, Φ D}.

   Proof. w_j = p_j e^{−θ_j} / Z with Z = Σ p_j e^{−θ_j}; m cancels. By convexity Z ≥ e^{−Σ p_j θ_j} ≥ e^{−Φ}. Since Σ
   p_j (v_j − ô) = 0, o − ô = Σ w_j (v_j − ô) = (1/Z) Σ p_j (e^{−θ_j} − 1)(v_j − ô). Here |e^{−θ_j} − 1| ≤ e^{h_j} −
   1, which is at most e^H − 1, and by convexity at most h_j (e^H − 1)/H; and |v_j − ô| ≤ D. For 0 ≤ H ≤ 1 and 0 ≤ Φ ≤
   1, e^H − 1 ≤ H (1 + H) and e^Φ ≤ 1 + 2Φ.

4. *Spread.* Σ p_j |v_j − ô| is at most each of these.
   - D.
   - 2 (1 − Σ p_j²) D: the largest weight p* is at least Σ p_j², its value is at most (1 − p*) D from ô, and all
     others together weigh 1 − p*.
   - (Σ p_j²)^{1/2} ‖v − a‖ + |a − ô| for any a, by Cauchy and Schwarz, the length over any keys that include J.
   - Σ p_j |v_j| + |ô|.

5. *Sums.* l = Σ e, Σ e v, Σ e ‖k‖, Σ e² and Σ e |v| are summed over n keys in tiles of K: each term meets at most
   κ = min(K, n) + tiles + 2 roundings. Let α = γ_κ and β = α/(1 − α). The computed l is within l (1 ± α); Σ e v is off
   by α Σ e |v| + n η ≤ α l (|ô| + X) + n η; the quotient c of the two rounds by u |c| + η. So r = |c − ô| satisfies
   r ≤ u |c| + η + β (2 |ô| + X) + 2 n η / (l (1 − α)). Now |ô| ≤ |c| + r and X ≤ X_c + r, X_c being what step 4
   gives with c in the place of ô. So with g = 1 − 3β, at least 1/2 (else the hull is given),

       r ≤ [u |c| + η + β (2 |c| + X_c) + 2 n η / (l (1 − α))] / g.

   The computed Σ e² / l² is within a factor (1 ± α)³ (1 ± 3u) of Σ p_j², so 8α is added to 1 − Σ p_j².

6. *Radius.* |o − c| ≤ r + |o − ô| ≤ (1 + ρ) r + M, with ω = (1 + 2Φ)(1 + H), ρ = ω H and M = min{ρ X_c, ω Φ D}. With
   X_c = min{Y, f D}, where f = min{1, 2 (1 − Σ p_j²)} and Y is the less of the last two of step 4, this is
   M = min{ρ Y, F D} with F = min{ρ f, ω Φ}. As F ≤ ρ f, X_c ≤ (f/F) M, so that, with G = (1 + ρ)/g,

       |o − c| ≤ G (u + 2β) |c| + G (η + 2 n η / (l (1 − α))) + (1 + G β f/F) min{ρ Y, F D}.

7. *Keys that are dropped.* If shifted, keys with x_j < −1000 N are left out. The above then holds for the others,
   with their o' in the place of o. m is a computed score, that of some key j*, computed again as y_{j*}: both are
   within 1/L of t_{j*}, as H < 1. So j* stays, e^{L (t_{j*} − m)} ≥ e⁻¹, and for each that is dropped e^{L (t_j − m)}
   ≤ 2⁻¹⁰⁰⁰ e^{1.1}. All n of them weigh less than n 2⁻⁹⁹⁰, and |o − o'| ≤ n 2⁻⁹⁹⁰ D.

8. *Arithmetic of the radius.* H, Φ, norms and factors are sums, products, quotients and roots of numbers from 0 on,
   of fewer than 2⁶ roundings each beside those of sums of at most 2³⁰ terms, so each is off by a factor within 1 ±
   2⁻²⁰. Each is multiplied by ``UP`` = 1 + 2⁻¹⁶, which makes up for eight of them. What underflows on the way is off
   by 2⁻¹⁰⁷⁵; it is multiplied by less than 2²⁰, and there are fewer than 2⁸ of them: 2⁻¹⁰⁴⁰ is added.

Sources: on rounding in sums, N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. (2002), §3.1 and
§4.2; on rounding in softmax, P. Blanchard, D. J. Higham, N. J. Higham, Accurately computing the log-sum-exp and
softmax functions, IMA J. Numer. Anal. 41 (2021) 2311-2330. Steps 3 to 6 are proved here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from symattn.arrays.enclosing.bounds import ETA, TINY, U
from symattn.arrays.enclosing.exponential import Floats
from symattn.attention.enclosing.sums import KEYS, UNIT, Prepared, Sums

# The factor of step 8, which outweighs the roundings of the radius.
UP = 1 + 2.0**-16
# Terms of steps 2 and 7.
_SHIFTED, _POWERS, _DROPPED = 694 * U, 2.5 * U, 2.0**-990


@dataclass(frozen=True)
class Spread:
    """The values of some keys, column by column: middle and radius of their hull, D, a centre a, and ‖v − a‖."""

    middle: Floats
    reach: Floats
    range: Floats
    centre: Floats
    length: Floats


def spread(values: Floats, sink: bool) -> Spread:
    """Return the spread of values (s, d_v), and of zeros if there is a sink or no value."""
    # A single zero stands for no values: rows without keys are replaced later.
    values = values if values.size else np.zeros((1, values.shape[1]))
    least, greatest = values.min(axis=0), values.max(axis=0)
    centre = values.mean(axis=0)
    apart = values - centre
    squares = np.einsum("ij,ij->j", apart, apart)
    # The sink is one more value 0.
    if sink:
        least, greatest, squares = (
            np.minimum(least, 0.0),
            np.maximum(greatest, 0.0),
            squares + centre * centre,
        )
    length = np.sqrt(squares) + np.sqrt(values.shape[0] + 1) * 2.0**-536
    return Spread(*hull(least, greatest), (greatest - least) * UP, centre, length)


def gamma(k: int) -> float:
    """γ_k = k u / (1 − k u), for k < 2⁵⁰."""
    return k * U / (1 - k * U)


@dataclass(frozen=True)
class _Factors:
    """The parts of each row's radius: ``size`` |c| + ``more`` + ``whole`` min{``steps`` Y, ``range`` D}.

    ``steps`` is ρ, and ``norm`` (Σ p²)^{1/2}, for Y.
    """

    size: Floats
    more: Floats
    steps: Floats
    norm: Floats
    range: Floats
    whole: Floats
    lost: np.ndarray


def _compute_radius_factors(head: Prepared, s: Sums, rows: slice) -> _Factors:
    """Return the factors of step 6, from those of each row: H, Φ, (Σ p²)^{1/2}, and what 1 − Σ p² is at most."""
    low, high = s.keys
    d, n = head.queries.shape[1], high - low + 1
    alpha = gamma(min(KEYS, n) + n // KEYS + 3)
    longest = head.lengths[low:high].max(initial=0.0)
    fixed = d * ETA * (1 + longest) + _POWERS + (_SHIFTED if s.shifted else 0.0)
    if head.sink is not None:
        fixed += 4 * U * abs(head.sink) * UNIT
    scale = gamma(d + 3) * head.reach[rows]
    # The sum Σ p² of step 4.
    largest = s.squares / (s.weights * s.weights)
    rest = np.maximum(1 - largest, 0.0) + 8 * alpha
    highest = (scale * longest + fixed) * UP
    mean = (scale * (s.lengths / s.weights) + fixed) * UP
    beta = alpha / (1 - alpha)
    divisor = 1 - 3 * beta
    outer = (1 + 2 * mean) * (1 + highest)
    rho, most = outer * highest, np.minimum(1.0, 2 * rest)
    of_range = np.minimum(rho * most, outer * mean)
    grown = (1 + rho) / divisor
    tiny = n * ETA / s.weights
    return _Factors(
        size=grown * (2 * beta + U) * UP,
        more=(grown * (ETA + 2 * tiny / (1 - alpha)) + TINY) * UP,
        steps=rho * UP,
        norm=np.sqrt(largest) * UP,
        range=of_range * UP,
        whole=(1 + grown * beta * (most / of_range)) * UP,
        # Outside of these ranges the proof does not hold, and the hull takes over.
        lost=~((highest < 1) & (divisor >= 0.5)),
    )


def enclosed(
    head: Prepared, s: Sums, values: Spread, rows: slice, c: Floats, radius: Floats
) -> np.ndarray:
    """Write centre c and radius (r, d_v) of a block of queries, and return the rows for which they are useless."""
    factors = _compute_radius_factors(head, s, rows)
    np.divide(s.values, s.weights[:, None], out=c)
    size = np.abs(c)
    np.subtract(c, values.centre, out=radius)
    np.abs(radius, out=radius)
    radius += factors.norm[:, None] * values.length
    if s.absolute is not None:
        np.minimum(radius, s.absolute / s.weights[:, None] + size, out=radius)
    radius *= (factors.steps * UP)[:, None]
    np.minimum(radius, factors.range[:, None] * values.range, out=radius)
    radius *= factors.whole[:, None]
    size *= factors.size[:, None]
    radius += size
    radius += factors.more[:, None]
    # Dropped keys, by step 7.
    if s.shifted:
        radius += (s.keys[1] - s.keys[0] + 1) * _DROPPED * values.range
    return factors.lost


def hull(least: Floats, greatest: Floats) -> tuple[Floats, Floats]:
    """Return centre and radius of [least, greatest], with radius 0 where they are equal."""
    centre = np.clip(least / 2 + greatest / 2, least, greatest)
    reach = np.maximum(greatest - centre, centre - least)
    # Rounded up by one float; equal ends have the radius 0.
    return centre, np.where(reach > 0, np.nextafter(reach, np.inf), 0.0)

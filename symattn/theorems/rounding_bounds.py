"""Rounding, the bounds: how far computed dot products, weights and outputs can be from the true ones.

The model of rounding is that of every operation x ∘ y being computed as (x ∘ y)(1 + δ) with |δ| ≤ u.
"""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.proof.together import Together, bound
from symattn.theorems.sums import HALF, add_up, exp, weights

# -- dot products ------------------------------------------------------------------------------------------------------
# γ_k = k u / (1 − k u) = (1 − r) / r with r = 1 − k u, which is positive.
STEP = {"theta": "", "delta": "", "r": "", "u": ""}
_AT_MOST_U = {"u_less": ("", lambda delta, u: u - delta), "u_more": ("", lambda delta, u: u + delta)}


def _gamma(r: Array) -> Array:
    return (1 - r) / r


def _one_more(theta: Any, delta: Any) -> Any:
    """(1 + θ)(1 + δ) − 1."""
    return theta + delta + theta * delta


def _one_more_gap(u: Array, r: Array, ku: Any, u_less: Any, u_more: Any, g_less: Any, g_more: Any) -> list[Any]:
    """γ_{k+1} ∓ ((1 + θ)(1 + δ) − 1) with r = 1 − (k+1) u and 1 + δ = (u + δ) + r + k u."""
    g = ku / (r + u)
    factor = u_more + r + ku
    rest = (ku + u) * u / (r * (r + u))
    return [
        g_less * factor + g * u_less + u_less + rest,
        g_more * factor + g * u_less + u_more + rest,
    ]


_ONE_MORE_FACTOR = bound(
    STEP,
    lambda theta, delta, r: [(_one_more(theta, delta), _gamma(r)), (-_one_more(theta, delta), _gamma(r))],
    _one_more_gap,
    positive=("r", "u"),
    assumed={
        **_AT_MOST_U,
        "ku": ("", lambda r, u: 1 - u - r),
        "g_less": ("", lambda theta, r, u: _gamma(r + u) - theta),
        "g_more": ("", lambda theta, r, u: _gamma(r + u) + theta),
    },
    chosen={
        "r": lambda r: r / 4,
        "u": lambda u: u / 8,
        "delta": lambda delta, u: delta * u / 16,
        "theta": lambda theta, r, u: _gamma(r / 4 + u / 8) * theta * HALF,
    },
)

_MORE_FACTORS = bound(
    {"r": "", "ju": ""},
    lambda r, ju: (_gamma(r + ju), _gamma(r)),
    lambda r, ju: ju / ((r + ju) * r),
    positive=("r", "ju"),
)

DOT = {"q": "d", "k": "d", "theta": "d", "size": "d", "g": ""}
_SUMMED = bound(
    DOT,
    lambda q, k, theta, size, g: [
        (add_up(q * k * theta), g * add_up(size)),
        (-add_up(q * k * theta), g * add_up(size)),
    ],
    lambda less, more, g_less, g_more: [
        add_up(less * g_more + more * g_less) * HALF,
        add_up(less * g_less + more * g_more) * HALF,
    ],
    lambda q, k, theta, g: (add_up(q * k * theta) ** 2, (g * add_up(q * k)) ** 2),
    positive=("g",),
    assumed={
        "less": ("d", lambda q, k, size: size - q * k),
        "more": ("d", lambda q, k, size: size + q * k),
        "g_less": ("d", lambda theta, g: g - theta),
        "g_more": ("d", lambda theta, g: g + theta),
    },
    chosen={"size": lambda q, k: abs(q * k), "theta": lambda theta, g: theta * g * HALF},
)


dot_product_error = Together(
    (_ONE_MORE_FACTOR, _MORE_FACTORS, _SUMMED),
    (
        "A computed product is the true one times 1 + δ. To add two computed sums multiplies each of their terms "
        "by one more such factor. By induction over the tree of additions each term of a sum of d_k products is "
        "the true one times 1 + θ with |θ| ≤ γ, the γ of d_k: sums of a and b terms have at most "
        "max(a, b) + 1 ≤ a + b factors on a term.",
    ),
)


# -- weights -----------------------------------------------------------------------------------------------------------
# x = s − m is computed as x (1 + δ). The numerator of the weight has the further factors e^ρ, its terms in the sum e^σ.
WEIGHTS = {**dict.fromkeys(("x", "delta", "rho", "sigma", "size"), "m"), **dict.fromkeys(("most", "u", "r", "c"), "")}


def _wrong(x: Array, delta: Any, rho: Any, sigma: Any) -> Any:
    """The computed weights."""
    y = x + x * delta
    return exp(y + rho) / add_up(exp(y + sigma))


def _limit(size: Any, most: Any, u: Array, r: Array, c: Array) -> Any:
    """e^T with T = (|s_j − m| + max_l |s_l − m|) u + r + c."""
    return exp(u * (size + most) + r + c)


def _pairs(x: Array, y: Array) -> Array:
    """x_j + y_l."""
    return x[:, None] + y[None, :]


def _weight_gap(
    x: Array, delta: Any, rho: Any, sigma: Any, u: Array,
    u_less: Any, u_more: Any, x_less: Any, x_more: Any, rest: Any, r_less: Any, r_more: Any, c_less: Any, c_more: Any,
) -> list[Any]:  # fmt: skip
    """Both gaps as Σ_l e^… (e^{T ∓ (A_j − B_l)} − 1) over the sums, where x + A and x + B are computed exponents."""
    below = (u_less * x_more + u_more * x_less) * HALF  # u size − x δ
    above = (u_more * x_more + u_less * x_less) * HALF  # u size + x δ
    a, b = x * delta + rho, x * delta + sigma
    sums = add_up(exp(x)) * add_up(exp(x + b))
    upper = _pairs(below + r_less, above + u * rest + c_more)
    lower = _pairs(above + r_more, below + u * rest + c_less)
    return [
        add_up(exp((x + a)[:, None] + x[None, :]) * (exp(upper) - 1))[:, 0] / sums,
        add_up(exp(x[:, None] + (x + b)[None, :]) * (exp(lower) - 1))[:, 0] / sums,
    ]


_WEIGHT = bound(
    WEIGHTS,
    lambda x, delta, rho, sigma, size, most, u, r, c: [
        (_wrong(x, delta, rho, sigma), weights(x) * _limit(size, most, u, r, c)),
        (weights(x), _wrong(x, delta, rho, sigma) * _limit(size, most, u, r, c)),
    ],
    _weight_gap,
    # The only rounding is that of the difference s − m; r and c may be as small as one likes.
    lambda x, delta, r, c: (_wrong(x, delta, 0 * x, 0 * x), weights(x) * exp((r + c) / 64)),
    nonnegative=("u", "r", "c"),
    assumed={
        "u_less": ("m", lambda delta, u: u - delta),
        "u_more": ("m", lambda delta, u: u + delta),
        "x_less": ("m", lambda x, size: size - x),
        "x_more": ("m", lambda x, size: size + x),
        "rest": ("m", lambda size, most: most - size),
        "r_less": ("m", lambda rho, r: r - rho),
        "r_more": ("m", lambda rho, r: r + rho),
        "c_less": ("m", lambda sigma, c: c - sigma),
        "c_more": ("m", lambda sigma, c: c + sigma),
    },
    chosen={
        "size": lambda x: abs(x),
        "most": lambda x: abs(x).max(),
        "u": lambda u: u / 8,
        "delta": lambda delta, u: delta * u / 16,
        "rho": lambda rho, r: rho * r * HALF,
        "sigma": lambda sigma, c: sigma * c * HALF,
    },
)

_FACTOR = bound(
    {"delta": "", "u": ""},
    lambda delta, u: [(1 - u, 1 + delta), (1 + delta, 1 / (1 - u))],
    lambda u, u_less, u_more, room: [u_more, u_less + u * u / room],
    positive=("u",),
    assumed={**_AT_MOST_U, "room": ("", lambda u: 1 - u)},
    chosen={"u": lambda u: u / 8, "delta": lambda delta, u: delta * u / 16},
)

shifted_softmax_error = Together(
    (_WEIGHT, _FACTOR),
    (
        "Each factor 1 + δ lies between 1 − u = e^{−û} and e^û. The exponential and the division put κ + 1 of them "
        "on the numerator; the exponential and the sum, of n_k terms in any order, put at most κ + n_k − 1 on each "
        "term of the denominator. The maximum m is exact, and what is subtracted from it is wrong by |s_j − m| u.",
    ),
)

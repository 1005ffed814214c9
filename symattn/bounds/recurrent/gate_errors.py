"""How far programs may be off in gates that they make of raw ones: δ ≥ |ĝ − g| for each gate.

With x = a + b, E = e^A, s = log(1 + e^x), σ = 1 / (1 + e^{−x}), and γ(m) = e^{mu} − 1 for m roundings of any signs.

*Both forms.* x is rounded once, perhaps stored, and an exponential of it may multiply it by log₂ e, which is itself
rounded: x̂ is off by at most γ(4) |x|. An exponential and a logarithm are within 6u, a product and a store within u
each; so Ê is within e^{γ(3)|A|} (1 + γ(7)) of E, for the exponent of 2, the exponential and a store.

*Softplus*, g = −E s. With ŷ = e^x e^t, |t| ≤ τ = γ(4)|x| + γ(7):

    log(1 + y e^t) − log(1 + y) = log(1 + σ (e^t − 1)) ≤ σ (e^τ − 1) for t > 0, and for t < 0, read from the other end,
    log(1 + y) − log(1 + y e^t) = log(1 + σ' (e^{−t} − 1)) ≤ σ (e^τ − 1), since σ' = y e^t / (1 + y e^t) ≤ σ.

The sum 1 + ŷ, rounded and stored, moves its logarithm by at most γ(2): log(1 + e^x) loses what log1p(e^x) has far below
0, and both are legal. For x > 0 the sum x + log(1 + e^{−x}) has the same first part, as 1 − σ ≤ σ, and γ(1) s for its
addition. Above 20 programs may return x itself, off by s − x ≤ e^{−x}; 19 is the border here, as x̂ is off. What
underflows is off by η. With m the sum of these, σ (e^τ − 1) + γ(2) + e^{−x}[x > 19] + 3η,

    |ŝ − s| ≤ m + γ(9) (s + m),   for the logarithm, ln 2, the sum and a store,
    δ = E m + (e^{γ(3)|A|} (1 + γ(18)) − 1) E (s + m) + η (1 + s + E).

*Sigmoid*, g = L σ(z), z = E x. ẑ is off by at most τ = |z| (e^{γ(3)|A|} (1 + γ(13)) − 1) + η (1 + |x|); the logarithm
of σ changes by at most as much, since its derivative is 1 − σ; e^{−ẑ}, off by γ(7) relatively, changes it by no more
than that; and 1 / (1 + e^{−ẑ}), e^ẑ / (1 + e^ẑ) and ½ + ½ tanh(z/2) are then off by γ(8) absolutely at most. Where
e^{−ẑ} overflows σ is below the reciprocal of the largest number. With m = σ (e^{τ + γ(7)} − 1) + γ(8) + 2/largest + η,

    δ = |L| (m + γ(6) (σ + m)) + η.

*Steps* of raw ones, Δ = s between limits, are a softplus with E = 1. A limit enlarges no distance, |min(ŝ, c) −
min(s, c)| ≤ |ŝ − s|, and c is rounded where it may be taken. Gates Δ A are then off by δ_Δ |A|, and values Δ v by
δ_Δ |v|, as they would be if keys were off by the share δ_Δ/Δ: key and value meet in their product alone.

*Raw β* of the delta rule are a sigmoid with E = L = 1. What a token adds to the state, kᵀ β (v − k S), is off by the
part δ_β/β, as it would be with another key in front; the key by which S is read stays as it is.

The law of recurrences reads δ as an error of the exponent: a product of decays between two tokens, e^{Σ g}, is off by a
factor between e^{−Σδ} and e^{Σδ}, whatever the order of the sums, so that nothing of second order is left out
(``sources``, item 10). Errors of gates are no roundings of mean 0: that of e^A is one for all tokens of a head. So the
sharp limit says nothing of such gates, and the worst case alone decides.

Where a number may overflow in the format, δ is ∞.
"""

from __future__ import annotations

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.rounding.bounds import UP
from symattn.bounds.recurrent import sources

Array = np.ndarray
#: Raw gates above which a program may return them as they are, without a softplus; usual is 20.
_LINEAR_FROM = 19.0
#: Roundings: of a + b and of the exponent of 2; of an exponential, with its store; of log₂ e, its product and A.
_OF_ARGUMENT, _OF_EXPONENTIAL, _OF_EXPONENT = 4, 7, 3
#: Of 1 + y; of a logarithm, ln 2 and a store, of e^A, and of the products of gates and their store.
_OF_SUM, _OF_PRODUCTS_OF_SOFTPLUS = 2, 18
#: Of e^A, a + b, their product, and stores; of a sigmoid, absolutely; of L, its product with that, and stores.
_OF_PRODUCT_IN_SIGMOID, _OF_SIGMOID, _OF_PRODUCTS_OF_SIGMOID = 13, 8, 6


def bound_softplus_gates(biased: Array, logarithms: Array, form: Format) -> Array:
    """Return δ of g = −e^A log(1 + e^x) for x (…, n, d) and A that broadcasts with it, in a format or a finer one."""
    eta, x = float(form.eta), biased
    with np.errstate(over="ignore", invalid="ignore"):
        rate = np.exp(logarithms)
        value, slope = np.logaddexp(0.0, x), np.exp(-np.logaddexp(0.0, -x))
        relative = sources.growth(_OF_ARGUMENT, form) * np.abs(x) + sources.growth(
            _OF_EXPONENTIAL, form
        )
        off = slope * np.expm1(relative) + sources.growth(_OF_SUM, form) + 3 * eta
        off = off + np.where(x > _LINEAR_FROM, np.exp(-np.maximum(x, 0)), 0.0)
        of_rate = np.expm1(sources.growth(_OF_EXPONENT, form) * np.abs(logarithms))
        of_products = (1 + of_rate) * (1 + sources.growth(_OF_PRODUCTS_OF_SOFTPLUS, form)) - 1
        result = rate * off + of_products * rate * (value + off) + eta * (1 + value + rate)
        largest = np.maximum.reduce(np.broadcast_arrays(rate, np.abs(x), rate * value))
    return _where_in_range(result, largest, form)


def bound_sigmoid_gates(
    biased: Array, logarithms: Array, lower_bound: float, form: Format
) -> Array:
    """Return δ of g = L σ(e^A x) for x (…, n, d) and A that broadcasts with it, in a format or a finer one."""
    eta, x = float(form.eta), biased
    with np.errstate(over="ignore", invalid="ignore"):
        rate = np.exp(logarithms)
        inside = rate * x
        value = np.exp(-np.logaddexp(0.0, -inside))
        of_rate = np.expm1(sources.growth(_OF_EXPONENT, form) * np.abs(logarithms))
        relative = (1 + of_rate) * (1 + sources.growth(_OF_PRODUCT_IN_SIGMOID, form)) - 1
        moved = (
            np.abs(inside) * relative
            + eta * (1 + np.abs(x))
            + sources.growth(_OF_EXPONENTIAL, form)
        )
        off = (
            value * np.expm1(moved)
            + sources.growth(_OF_SIGMOID, form)
            + 2 / float(form.largest)
            + eta
        )
        of_products = sources.growth(_OF_PRODUCTS_OF_SIGMOID, form)
        result = abs(lower_bound) * (off + of_products * (value + off)) + eta
        largest = np.maximum.reduce(np.broadcast_arrays(rate, np.abs(x), np.abs(inside)))
    return _where_in_range(result, np.maximum(largest, abs(lower_bound)), form)


def _where_in_range(errors: Array, largest: Array, form: Format) -> Array:
    """Return the errors, rounded up, and ∞ where a number is near the largest one of a format."""
    is_known = (largest < sources.MOST_OF_RANGE * float(form.largest)) & ~np.isnan(errors)
    return np.where(is_known, errors * UP, np.inf)

"""A block of queries in the backward pass: weights, dP and dS, and how far all roundings together take each.

Steps 1 to 3 and 5 to 8 of ``backward_bounds``, whose letters these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symattn.attention.gradients.attention import softcap_gradient, softmax_vjp
from symattn.bounds.sharp import rows_in_float64
from symattn.bounds.sharp.limits import EXPONENTIAL, TANH, Floats, Stores, W, half_ulp

DROPS = 2.02  # error of dropout factors, in units of roundoff
_CAPPED = 3  # stores that a cap adds: of its quotient, its tanh and its product
_SECOND = 1.02  # for products of roundings
_MOST = 80.0  # errors of logarithms are cut to this, as the bound is useless beyond


@dataclass(frozen=True)
class WeightedBlock:
    """A block of queries, from ``keys.start`` on: weights, dS, their errors and the rows of dO.

    ``factors`` (r, n) are those of dropout, if there is any.
    """

    b: rows_in_float64.QueryBlock
    keys: slice
    do: Floats
    scale: float
    how: Stores
    factors: Floats | None = None

    # -- step 1 --------------------------------------------------------------------------------------------------------
    @property
    def of_scaled(self) -> float:
        """η ρ: the absolute error of storing an entry of queries or keys times the scale."""
        return (
            float(self.how.format.eta) * max(1.0, abs(self.scale)) ** 0.5
            if self.how.scores
            else 0.0
        )

    @cached_property
    def capped(self) -> Floats:
        """The error of a score y before biases are added, (r, n)."""
        b, how = self.b, self.how
        # With wide scores the arrays of a cap are wide too.
        stores = (how.scores + (_CAPPED if b.cap else 0)) if how.scores else 0
        relative = (1 + how.u) ** stores * (1 + TANH if b.cap else 1.0) - 1
        # Step 1: float32's own errors, and 2 u T of a stored scaled query.
        of_scores = 2 * how.u * b.T if how.scores else 0.0
        least = W * (b.width + 24) * b.T + of_scores
        q, k = (np.linalg.norm(b.given[name], axis=1) for name in "qk")
        of_sizes = self.of_scaled * b.width**0.5
        lengths = q[:, None] + k
        return np.asarray(least + relative * np.abs(b.raw) + of_sizes * lengths)

    @cached_property
    def exponents(self) -> tuple[Floats, Floats]:
        """E of the keys, (r, n), and of the sink, (r, 1)."""
        b, how = self.b, self.how
        off, most = EXPONENTIAL + self.capped, b.summand
        # Step 8: each of M sums is stored or in float32; M − 1 may be stored in any case.
        if b.added:
            in_format = how.u if how.scores else W
            in_additions = (len(b.added) - 1) * how.u
            sums = len(b.added) * in_format + in_additions
            summands = np.abs(b.raw) + self.capped + b.summands
            off = off + 24 * W * most + _SECOND * sums * summands
        # Step 7: a sink's logit is exact, so only the exponential errs.
        sink = EXPONENTIAL + 24 * W * (b.T + most)
        # Without stored scores no difference to the largest is stored either.
        if not (how.scores and "sink" in b.given):
            return off, sink
        visible, own = b.p > 0, float(b.given["sink"][0])
        # The largest of scores and sink is what may be taken away (step 7).
        largest_key = np.where(visible, b.t, -np.inf).max(axis=1, keepdims=True)
        top = np.maximum(largest_key, own)
        largest_off = np.where(visible, off, 0.0).max(axis=1, keepdims=True)
        other = how.u * np.maximum(largest_off, sink)
        below_top = np.where(visible, top - b.t, 0.0)
        off = (1 + how.u) * off + how.u * below_top + other
        from_top = how.u * (top - own)
        return off, (1 + how.u) * sink + from_top + other

    @cached_property
    def grown(self) -> Floats:
        """g of the keys, (r, n), with that of the sink in the last column."""
        b = self.b
        how = self.how
        n = self.b.p.shape[1]
        # Beyond, exp() would overflow and the bound says nothing anyway.
        keys, sink = (np.minimum(e, _MOST) for e in self.exponents)
        sink = sink if "sink" in b.given else np.zeros_like(sink)
        # By Jensen's inequality the logarithm of the sum is off by at most this mean (step 1).
        of_keys = (b.p * np.exp(keys)).sum(axis=1, keepdims=True)
        of_sink = b.sink * np.exp(sink)
        mean = np.log(of_keys + of_sink).clip(0)
        of_float64 = W * (3 * (n + 16) + 2 * (b.T + b.summand) + 64)
        mean = mean + of_float64 + _SECOND * how.u
        exponent = np.minimum(np.hstack([keys, sink]) + mean, _MOST)
        return np.asarray(np.exp(exponent) * (1 + how.u) - 1)

    @property
    def of_keys(self) -> Floats:
        """g, (r, n)."""
        return self.grown[:, :-1]

    # -- step 5 --------------------------------------------------------------------------------------------------------
    @property
    def kept(self) -> Floats:
        """The weights after dropout, c P."""
        return self.b.p if self.factors is None else self.b.p * self.factors

    def _growth_after_dropout(self, grown: Floats) -> Floats:
        """Return g' from g."""
        if self.factors is None:
            return grown
        return (1 + grown) * (1 + DROPS * self.how.u) - 1

    # -- step 2 --------------------------------------------------------------------------------------------------------
    @cached_property
    def of_values(self) -> Floats:
        """The errors of sums with the weights, as weights of absolute values, (r, n)."""
        p = self.kept
        n = self.b.p.shape[1]
        grown = self._growth_after_dropout(self.of_keys)
        # A key without weight cannot underflow: its weight is an exact 0.
        tiny = (
            float(self.how.format.eta)
            * (self.b.p > 0)
            * (1.0 if self.factors is None else 1 + self.factors)
        )
        rounded = (1 + grown) * W * (3 * n + 48)
        return np.asarray(p * (grown + rounded) + tiny)

    def output(self) -> tuple[Floats, Floats]:
        """Return O and x, each (r, d_v)."""
        o = np.nan_to_num(self.b.o) if self.factors is None else self.kept @ self.b.values
        x = self.of_values @ np.abs(self.b.values)
        half = half_ulp(self.how.format, np.abs(o) + x)
        return o, x + half

    def _products_and_their_errors(self) -> tuple[Floats, Floats]:
        """Return c dP and e, each (r, n)."""
        b = self.b
        u = self.how.u
        eta = float(self.how.format.eta)
        # dP = dO Vᵀ.
        dp = self.do @ b.values.T
        e = (
            # Error of a sum of d products in float64, by Cauchy–Schwarz.
            W
            * (b.values.shape[1] + 8)
            * np.linalg.norm(self.do, axis=1)[:, None]
            * np.linalg.norm(b.values, axis=1)
        )
        # If scores are stored, dP is rounded to the format as well.
        stored = u * np.abs(dp) + eta if self.how.scores else 0.0
        e = e + stored
        # Dropout scales what it keeps, and rounds it again.
        if self.factors is not None:
            dp, e = self.factors * dp, self.factors * e
            dropped = DROPS * u * (np.abs(dp) + e)
            e = e + dropped + eta
        return dp, e

    def _bound_row_mean_errors(self, dp: Floats, e: Floats) -> Floats:
        """Return h, (r, 1)."""
        b = self.b
        how = self.how
        n = self.b.p.shape[1]
        o, x = self.output()
        size = np.abs(self.do)
        o = np.abs(o)
        grown = self._growth_after_dropout(self.of_keys)
        # D computed from O as stored, or from P̃ and dP̃: the larger error of both (step 2).
        of_float64 = W * (b.values.shape[1] + 8) * np.vecdot(size, o + x)
        output_bound = np.vecdot(size, x) + of_float64
        sizes = np.abs(dp) + e
        stores = 1 if self.factors is None else 2
        tiny = float(how.format.eta) * sizes.sum(axis=1) * stores
        result = (
            np.vecdot(b.p, grown * sizes + e)
            + tiny
            + W * (3 * n + 48) * np.vecdot(b.p, (1 + grown) * sizes)
        )
        # Where scores are stored, so is D.
        stored = how.u * np.abs(np.vecdot(b.p, dp)) + float(how.format.eta) if how.scores else 0.0
        return np.asarray((np.maximum(output_bound, result) + stored)[:, None])

    # -- steps 3 and 6 -------------------------------------------------------------------------------------------------
    def of_sums(self) -> tuple[Floats, Floats]:
        """Return the gradient of scores with all added terms, and its δ, each (r, n)."""
        ds, off, tiny = self._of_sums
        return ds, off + tiny

    @cached_property
    def _of_sums(self) -> tuple[Floats, Floats, Floats]:
        """dS, its error without underflow, and that of underflow."""
        b = self.b
        how = self.how
        eta = float(self.how.format.eta)
        dp, e = self._products_and_their_errors()
        ds = np.asarray(softmax_vjp(b.p, dp))
        h = self._bound_row_mean_errors(dp, e)
        # f of step 3, with that of the sink in the last column.
        of_stores = (1 + how.u) ** self._count_stores_of_scores
        f = (1 + self.grown) * of_stores * (1 + 16 * W) - 1
        d = np.vecdot(b.p, dp)[:, None]
        apart = np.abs(dp - d)
        of_differences = (1 + f[:, :-1]) * (e + h)
        off = b.p * (apart * f[:, :-1] + of_differences)
        # What is stored before a later factor loses η over that factor.
        least = [1.0, 1 / abs(self.scale or 1.0), 1 / (b.cap or 1.0)]
        times = (
            self._count_stores_of_scores - 1 + max(least)
            if b.cap is None
            else self._count_stores_of_scores * max(least)
        )
        of_errors = 2 * (apart + e + h)
        tiny = eta * (b.p > 0) * (times + of_errors)
        # Step 7: the key with the largest score may get what all other gradients leave of 0.
        if how.scores and "sink" in b.given:
            of_mean = (1 + f[:, -1:]) * h
            of_value = np.abs(d) * f[:, -1:]
            of_sink = b.sink * (of_value + of_mean) + eta * (times + 2 * (np.abs(d) + h))
            off = off + self._may_hold_largest_score * (1 + 2 * how.u) * (
                (off + tiny).sum(axis=1, keepdims=True) + of_sink + eta
            )
        return ds, off, tiny

    @property
    def _count_stores_of_scores(self) -> int:
        """r: the number of times that dS is stored."""
        if not self.how.scores:
            return 1
        return 2 + (_CAPPED if self.b.cap else 0) + ("sink" in self.b.given)

    @property
    def _may_hold_largest_score(self) -> Any:
        """Which keys may have the largest score of their row, (r, n)."""
        b, (off, _) = self.b, self.exponents
        visible = b.p > 0
        # Keys whose largest possible score is at least the surest lower bound of the maximum.
        least = np.where(visible, b.t - off, -np.inf).max(axis=1, keepdims=True)
        least_sink = float(b.given["sink"][0]) - self.exponents[1]
        return visible & (b.t + off >= np.maximum(least, least_sink))

    def scores(self) -> tuple[Floats, Floats]:
        """Return dS as multiplied by queries and keys, and δ, each (r, n)."""
        ds, off, tiny = self._of_sums
        cap = self.b.cap
        # Without a cap scores are scaled products, and dS passes unchanged.
        if cap is None:
            return ds, off + tiny
        u = self.how.u if self.how.scores else 0.0
        z = np.abs(self.b.raw) / cap
        moved = self.capped / cap
        # φ of step 6.
        of_move = (2 * z + moved) * moved
        slope = of_move * (1 + 2 * u) + 4 * W + u
        inside = softcap_gradient(self.b.raw, cap, np.ones_like(ds))
        of_slope = np.abs(ds) * slope
        moved_slope = off * (inside + slope)
        return np.asarray(ds * inside), moved_slope + of_slope + tiny

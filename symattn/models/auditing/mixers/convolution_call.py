"""A call of a short causal convolution of each channel, y_t = f(Σ_j w_j x_{t−w+1+j} + b): its exact result and bound.

Source: Goldberg, What every computer scientist should know about floating-point arithmetic (1991), for γ_m.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from symattn.arrays.formats import Format
from symattn.models.auditing.call_judge import CallJudgement, one_of
from symattn.models.auditing.setting import Floats


def _silu(x: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(x / (1 + np.exp(-x)))


#: Numbers of all judged channels together.
MAX_JUDGED_NUMBERS = 2**24
# The unit roundoff of the float64 reference.
_FLOAT64 = 2.0**-53
#: Activations by the names of Transformers, each with a bound on its slope and its roundings in units of u.
ACTIVATIONS: dict[str | None, tuple[Callable[[Floats], Floats], float, int]] = {
    None: (lambda x: x, 1.0, 1),
    "silu": (_silu, 1.1, 8),
    "swish": (_silu, 1.1, 8),
}


@dataclass(frozen=True, eq=False)
class ConvolutionCall:
    """The arguments of a call in float64: x (channels, n), taps (channels, w), bias (channels, 1), an activation.

    ``chosen`` are the judged channels, batch and channel as one index. ``casts`` counts the factors of each product
    that are rounded to the format first.
    """

    x: Floats
    taps: Floats
    bias: Floats
    activation: str | None
    format: Format
    sizes: str
    channels: int
    chosen: Sequence[int]
    casts: int = 0

    @property
    def kind(self) -> str:
        """The name of the computation."""
        after = f", {self.activation}" if self.activation else ""
        return f"convolution of {self.taps.shape[1]} tokens{after}"

    @property
    def words(self) -> str:
        """The computation and its sizes."""
        return f"{self.kind}, {self.sizes}"

    @cached_property
    def output(self) -> Floats:
        """The exact output, (channels, n)."""
        function, _, _ = ACTIVATIONS[self.activation]
        return function(self._convolve(self.taps) + self.bias)

    def _convolve(self, taps: Floats, late: int = 0) -> Floats:
        """Return Σ_j taps_j x_{t−w+1+j+late}; tokens outside of the sequence are zeros."""
        return _sum_of_products(self.x, taps, late)

    @cached_property
    def _terms(self) -> Floats:
        """How large the terms of each sum are together, (channels, n)."""
        of_taps = _sum_of_products(np.abs(self.x), np.abs(self.taps))
        return of_taps + np.abs(self.bias)

    @cached_property
    def bound(self) -> Floats:
        """How far any order of the sum in the call's format may be off, (channels, n)."""
        _, slope, roundings = ACTIVATIONS[self.activation]
        # The reference errs as a call in float64 may.
        u = float(self.format.u) + _FLOAT64
        width = self.taps.shape[1]
        # A product and at most as many sums as taps for each term, and a stored result.
        lost = np.expm1((width + 3 + self.casts) * u) * self._terms
        least = (2 * width + 3) * float(self.format.eta)
        of_sums = slope * (lost + least)
        of_activation = roundings * u * np.abs(self.output)
        return np.asarray(of_sums + of_activation + least)

    def relative_error(self, got: Floats) -> float:
        """Return the largest error as a fraction of the largest output."""
        largest_error = np.abs(got - self.output).max()
        return float(largest_error / np.abs(self.output).max())

    def judge(self, got: Floats) -> CallJudgement:
        """Judge the whole output."""
        arrays = (self.x, self.taps, self.bias)
        if not all(np.isfinite(a).all() for a in arrays):
            return CallJudgement(
                np.nan, "unknown", "it received NaN or infinity: the cause is before the call"
            )
        # No sum that is smaller than the largest number of the format overflows.
        may_overflow = self._terms + self.bound >= float(self.format.largest)
        beyond = ~np.isfinite(got) & may_overflow
        with np.errstate(invalid="ignore"):
            error = np.abs(got - self.output)
            ratios = np.where(np.isfinite(error), error / self.bound, np.inf)
        ratio = float(ratios[~beyond].max(initial=0.0))
        if ratio <= 1 and beyond.any():
            words = f"numbers of {self.format.name} overflow"
            return CallJudgement(np.nan, "unknown", words)
        return CallJudgement(ratio, "" if ratio <= 1 else "certified")

    def find_cause(self, got: Floats) -> str:
        """Return the one known mistake that explains a wrong result, in words; if several fit, these; or ""."""
        function, _, _ = ACTIVATIONS[self.activation]
        sums = self._convolve(self.taps)
        late = "the convolution is one token late: it sees the next token"
        wrong = [
            (late, function(self._convolve(self.taps, late=1) + self.bias)),
            # The sequence itself is shifted, and its first token lost.
            (late, function(self._shifted()._convolve(self.taps) + self.bias)),
            (
                "the taps of the convolution are reversed",
                function(self._convolve(self.taps[:, ::-1]) + self.bias),
            ),
            ("the bias of the convolution is left out", function(sums)),
            ("the activation of the convolution is left out", sums + self.bias),
        ]
        fitting = [
            words
            for words, y in wrong
            if not np.array_equal(y, self.output) and (np.abs(got - y) <= 2 * self.bound).all()
        ]
        return one_of(list(dict.fromkeys(fitting)))

    def _shifted(self) -> ConvolutionCall:
        """Return the call for the tokens from the second on, and a token of zeros."""
        with_zeros = np.pad(self.x, ((0, 0), (0, 1)))
        return replace(self, x=with_zeros[:, 1:])


def _sum_of_products(x: Floats, taps: Floats, late: int = 0) -> Floats:
    """Return Σ_j taps_j x_{t−w+1+j+late}, tap by tap: windows of all tokens at once would be w times as large."""
    width, length = taps.shape[1], x.shape[1]
    # Zeros before the first token, and after the last one if the taps are late.
    padded = np.pad(x, ((0, 0), (width - 1, late)))
    result = np.zeros_like(x)
    for tap in range(width):
        first = tap + late
        terms = padded[:, first : first + length]
        result += taps[:, tap, None] * terms
    return result

"""A call of a short causal convolution of each channel, y_t = f(Σ_j w_j x_{t−w+1+j} + b): its exact result and bound.

Source: Goldberg, What every computer scientist should know about floating-point arithmetic (1991), for γ_m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from symattn.arrays.formats import Format
from symattn.models.auditing import call_judge
from symattn.models.auditing.setting import Floats, Tensor


def silu(x: Floats) -> Floats:
    """Return x sigmoid(x)."""
    with np.errstate(over="ignore"):
        return np.asarray(x / (1 + np.exp(-x)))


# The unit roundoff of the float64 reference.
_FLOAT64 = 2.0**-53
#: Activations by the names of Transformers, each with a bound on its slope and its roundings in units of u.
ACTIVATIONS: dict[str | None, tuple[Callable[[Floats], Floats], float, int]] = {
    None: (lambda x: x, 1.0, 1),
    "silu": (silu, 1.1, 8),
    "swish": (silu, 1.1, 8),
}


@dataclass(frozen=True, eq=False)
class ConvolutionState:
    """The last inputs of each channel, into which a call in decoding writes its own in place.

    ``earlier`` is a copy of the state (b, channels, w) before the call, ``wanted`` what it should hold afterwards, and
    ``written`` the array itself.
    """

    earlier: Tensor
    wanted: Tensor
    written: Tensor

    @property
    def is_right(self) -> bool:
        """True if the state holds the last inputs, in every bit."""
        return bool((self.written == self.wanted).all())

    def describe_mistake(self) -> str:
        """Return in words what the state holds in place of the last inputs; "" if it holds these."""
        if self.is_right:
            return ""
        if bool((self.written == self.earlier).all()):
            return "the call leaves the state of the convolution as it was"
        return "the state of the convolution does not hold the last inputs"


@dataclass(frozen=True, eq=False)
class ConvolutionCall:
    """The arguments of a call in float64: x (channels, n), taps (channels, w), bias (channels, 1), an activation.

    ``chosen`` are the judged channels, batch and channel as one index. ``casts`` counts the factors of each product
    that are rounded to the format first. ``late`` is by how many tokens the sums are shifted, which is a mistake.
    The first ``before`` tokens of x are those of a state: they have no output. ``state`` is that state, if any.
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
    late: int = 0
    before: int = 0
    state: ConvolutionState | None = None

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
        """The exact output, (channels, n) without the tokens of a state."""
        function, _, _ = ACTIVATIONS[self.activation]
        sums = _sum_of_products(self.x, self.taps, self.late)
        return function(sums[:, self.before :] + self.bias)

    @cached_property
    def _terms(self) -> Floats:
        """How large the terms of each sum are together, (channels, n)."""
        of_taps = _sum_of_products(np.abs(self.x), np.abs(self.taps), self.late)
        return of_taps[:, self.before :] + np.abs(self.bias)

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

    def judge(self, got: Floats) -> call_judge.CallJudgement:
        """Judge the whole output."""
        arrays = (self.x, self.taps, self.bias)
        if not all(np.isfinite(a).all() for a in arrays):
            return call_judge.CallJudgement(
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
            return call_judge.CallJudgement(np.nan, "unknown", words)
        if ratio <= 1 and self.state is not None and not self.state.is_right:
            return call_judge.CallJudgement(np.inf, "certified")
        return call_judge.CallJudgement(ratio, "" if ratio <= 1 else "certified")

    def find_cause(self, got: Floats) -> str:
        """Return the one known mistake that explains a wrong result, in words; if several fit, these; or ""."""
        if (np.abs(got - self.output) <= self.bound).all():
            # Only the state that the next call starts from is wrong.
            return "" if self.state is None else self.state.describe_mistake()
        fitting = [words for words, wrong in self._yield_mistakes() if wrong.explains(got, self)]
        return call_judge.one_of(list(dict.fromkeys(fitting)))

    def explains(self, got: Floats, right: ConvolutionCall) -> bool:
        """Return whether a result is this call's, and not that of the right one."""
        if np.array_equal(self.output, right.output):
            return False
        # Roundings are those of the wrong sums, whose terms may be larger than the right ones.
        return bool((np.abs(got - self.output) <= 2 * self.bound).all())

    def _yield_mistakes(self) -> Iterator[tuple[str, ConvolutionCall]]:
        """Yield known mistakes in words, each as the call that would be right if it were meant."""
        late = "the convolution is one token late: it sees the next token"
        yield late, replace(self, late=1)
        # The sequence itself is shifted, and its first token lost.
        yield late, self._shifted()
        yield "the taps of the convolution are reversed", replace(self, taps=self.taps[:, ::-1])
        without = np.zeros_like(self.bias)
        yield "the bias of the convolution is left out", replace(self, bias=without)
        yield "the activation of the convolution is left out", replace(self, activation=None)

    def _shifted(self) -> ConvolutionCall:
        """Return the call for the tokens from the second on, and a token of zeros."""
        with_zeros = np.pad(self.x, ((0, 0), (0, 1)))
        return replace(self, x=with_zeros[:, 1:])


def _sum_of_products(x: Floats, taps: Floats, late: int) -> Floats:
    """Return Σ_j taps_j x_{t−w+1+j+late}, tokens outside of the sequence being zeros.

    It goes tap by tap, since windows of all tokens at once would be w times as large.
    """
    width, length = taps.shape[1], x.shape[1]
    # Zeros before the first token, and after the last one if the taps are late.
    padded = np.pad(x, ((0, 0), (width - 1, late)))
    result = np.zeros_like(x)
    for tap in range(width):
        first = tap + late
        terms = padded[:, first : first + length]
        result += taps[:, tap, None] * terms
    return result

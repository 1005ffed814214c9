"""Mistakes of L = m + log Σ, the logarithm of a sum of powers from which their largest exponent m is taken out.

The same rules apply to the log-sums of an attention, and to that of two merged parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from symattn.arrays.namespace import namespace_of
from symattn.attention import masks, softmax
from symattn.attention.flow import Step
from symattn.attention.spec import Attention
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.mistake import (
    At,
    Mistake,
    MistakeFamily,
    Wrong,
    change,
    in_steps,
    number,
    root,
)
from symattn.bounds.reference import Variant


class LogSum(NamedTuple):
    """L in a run: its value ``right``, the largest exponent ``top``, and the ``total`` Σ of so many ``powers``."""

    right: Any
    top: Any
    total: Any
    powers: int
    base: int | None

    @property
    def log_two(self) -> Any:
        """Log 2, of the kind of the arrays."""
        return namespace_of(self.top).log(number(self.top, 2))

    @property
    def of_sum(self) -> Any:
        """Log Σ alone."""
        return self.right - self.top

    def convert(self, x: Any) -> Any:
        """Return a logarithm in the other base, e or 2."""
        return x * self.log_two if self.base else x / self.log_two


WrongLogSum = Callable[[LogSum], Any]
_WRONG: Mapping[str, WrongLogSum] = {
    "the maximum is not added to the logarithm of the sum": lambda at: at.of_sum,
    "the maximum is subtracted from the logarithm of the sum, not added": lambda at: (
        at.of_sum - at.top
    ),
    "it is the maximum alone, without the logarithm of the sum": lambda at: at.top * 1,
    "it is the sum, without its logarithm": lambda at: at.total * 1,
    "the maximum is added to the sum, without its logarithm": lambda at: at.top + at.total,
    "it is the logarithm of the mean, not of the sum": lambda at: (
        at.right - softmax.logarithms(number(at.top, at.powers), at.base)
    ),
}
#: Natural logarithms and those of base 2 in one sum, or one instead of the other.
_OF_NATURAL: Mapping[str, WrongLogSum] = {
    "the logarithm has the base 2": lambda at: at.convert(at.right),
    "the maximum is in units of log 2, the logarithm natural": lambda at: (
        at.convert(at.top) + at.of_sum
    ),
    "the logarithm of the sum has the base 2, the maximum is natural": lambda at: (
        at.top + at.convert(at.of_sum)
    ),
}
_OF_BASE_TWO: Mapping[str, WrongLogSum] = {
    "the logarithm is natural, not of the base 2": lambda at: at.convert(at.right),
    "the logarithm of the sum is natural, the maximum has the base 2": lambda at: (
        at.top + at.convert(at.of_sum)
    ),
}


def wrong_log_sums(base: int | None) -> Iterator[tuple[str, WrongLogSum]]:
    """Yield wrong logarithms of sums, in words."""
    yield from _WRONG.items()
    yield from (_OF_BASE_TWO if base else _OF_NATURAL).items()


def mistakes_of_step(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield the mistakes of a step that takes m and Σ, in the base of its definition."""
    _, total = step.of
    (of_total,) = (s for s in spec.pipeline_of_all if s.name == total)
    powers = len(of_total.of)

    def change_sum(wrong: WrongLogSum) -> Wrong:
        def run(at: At) -> Any:
            top, of_powers = at.taken
            return wrong(LogSum(at.right(), top, of_powers, powers, at.spec.base))

        return run

    for words, wrong in wrong_log_sums(spec.base):
        yield in_stated_steps(spec, step.blames, words, {step.name: change_sum(wrong)})


# -- the log-sums of an attention --------------------------------------------------------------------------------------
def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield the mistakes in the log-sums of an attention with these inputs."""
    for words, wrong in _yield_wrong_steps(spec, names):
        yield in_steps("lse", words, lse=wrong)


def _yield_wrong_steps(spec: Attention, names: frozenset[str]) -> Iterator[tuple[str, Wrong]]:
    for words, of_sum in wrong_log_sums(spec.base):
        yield words, lambda at, of_sum=of_sum: of_sum(_read_log_sum(at))  # type: ignore[misc]
    steps = {step.name for step in spec.pipeline(names)}
    words = "it is of the scores before they are scaled"
    yield words, lambda at: _sum_scores(at, _mask_unscaled_scores(at))
    if spec.masks_anything:
        words = "keys that are forbidden are counted"
        yield words, lambda at: _sum_scores(at, at.before("masked"))
    for words, maximum in _yield_wrong_maxima(spec, steps):
        yield from _yield_sums_with_two_maxima(words, maximum)
    if spec.sink is not None:
        yield "the sink is not counted", lambda at: _sum_scores(at, _final_scores(at))


def _read_log_sum(at: At) -> LogSum:
    s = _final_scores(at)
    top = at.xp.max(s, axis=-1)
    total = at.xp.sum(softmax.powers(s - top[..., None], at.spec.base), axis=-1)
    return LogSum(at.right(), top, total, int(s.shape[-1]), at.spec.base)


def _final_scores(at: At) -> Any:
    """Return the scores that the weights are computed from."""
    return at.before("weights")


def _maximum_of_scores(at: At) -> Any:
    return at.xp.max(_final_scores(at), axis=-1)


def _sum_scores(at: At, s: Any) -> Any:
    return softmax.log_sum_exp(s, base=at.spec.base)[..., 0]


def _mask_unscaled_scores(at: At) -> Any:
    """Return the scores before they are scaled, under the masks of the final ones."""
    return masks.forbid(at.values["scores"], at.xp.isfinite(_final_scores(at)))


# -- other maxima ------------------------------------------------------------------------------------------------------
#: Tile sizes of common kernels.
_TILES = (16, 32, 64, 128)
#: The steps that scores pass, in words for what comes before them.
_BEFORE = {
    "positioned": "the positions' biases are added",
    "scaled": "they are scaled",
    "tempered": "they have temperatures",
    "capped": "they are capped",
    "biased": "the bias is added",
    "masked": "they are masked",
}


def _yield_sums_with_two_maxima(words: str, maximum: Wrong) -> Iterator[tuple[str, Wrong]]:
    """Yield L with m' in place of one of the two maxima m, so that they do not cancel.

    L = m' + log Σ e^{s − m} if m' is added back, and L = m + log Σ e^{s − m'} if m' is subtracted.
    """
    yield (
        f"the maximum that is added to the logarithm of the sum is {words}",
        lambda at: at.right() - _maximum_of_scores(at) + maximum(at),
    )
    yield (
        f"the maximum that is subtracted from the scores is {words}, the one that is added to the logarithm is not",
        lambda at: at.right() + _maximum_of_scores(at) - maximum(at),
    )


def _yield_wrong_maxima(spec: Attention, steps: set[str]) -> Iterator[tuple[str, Wrong]]:
    """Yield other maxima, in words: of the scores before a step, with another scale, or of one tile alone."""
    # The first array is the products themselves, before any step.
    for name in _BEFORE:
        if name in steps:
            yield f"that of the scores before {_BEFORE[name]}", partial(_maximum_before_step, name)
    if "scaled" in steps:
        # With the default scale, 1/√d_k is right.
        if spec.scale is not None:
            yield "that of the products, scaled by 1/√d_k and not by the given scale", _by_root
        yield "scaled twice", lambda at: at.of("scaled", _maximum_of_scores(at))
    # A kernel by tiles that drops the running maximum is left with one of a single tile.
    for n in _TILES:
        for end, last in (("last", True), ("first", False)):
            words = f"that of the {end} tile of keys alone (tiles of {n})"
            yield words, partial(_maximum_of_tile, n, last)


def _maximum_before_step(name: str, at: At) -> Any:
    """Return the maximum of the scores before a step; under the masks of the final ones, unless it is the mask."""
    before = at.before(name)
    if name != "masked":
        before = masks.forbid(before, at.xp.isfinite(_final_scores(at)))
    return at.xp.max(before, axis=-1)


def _by_root(at: At) -> Any:
    top = at.xp.max(_mask_unscaled_scores(at), axis=-1)
    return top / root(at.first, at.size("q"))


def _maximum_of_tile(n: int, last: bool, at: At) -> Any:
    """Return the maximum of one tile of n keys. Raises ``KeyError`` if there is one tile."""
    s = _final_scores(at)
    keys = int(s.shape[-1])
    if keys <= n:
        raise KeyError("there is one tile")
    start = (keys - 1) // n * n
    tile = slice(start, keys) if last else slice(0, n)
    return at.xp.max(s[..., tile], axis=-1)


# Points from which a wrong factor is searched for, so 1 is not among them.
_FACTORS = (
    *(-x for x in (100.0, 10.0, 3.0, 1.5, 0.5, 0.1)),
    *(0.01, 0.03, 0.1, 0.25, 0.5, 0.8, 1.3, 2, 4, 10, 40, 100),
)


def families() -> Iterator[MistakeFamily]:
    """Yield families in which one of the two maxima has a factor x: L + (x − 1) m if it is the one that is added."""
    for sign, which in (
        (1, "is added to the logarithm of the sum"),
        (-1, "is subtracted from the scores"),
    ):
        # L = m + log Σ e^(s − m): x m in place of one m changes L by ±(x − 1) m.
        def way(x: float, sign: int = sign) -> Variant:
            return Variant({"lse": change("lse", partial(_add_maxima, sign * (x - 1)))})

        yield MistakeFamily(
            "lse", f"the maximum that {which} is {{}} times what it should be", way, _FACTORS
        )


def _add_maxima(factor: float, at: At) -> Any:
    return at.right() + _maximum_of_scores(at) * at.number(factor)

"""Families of mistakes with a number, or one for each head, which is fitted to the function's output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from symattn.attention.fields import finite
from symattn.attention.inputs import NEEDED
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary
from symattn.attention.scores import softcap
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.mistake import At, Mistake, MistakeFamily, change, not_scaled, scaled_by_one
from symattn.bounds.reference import Variant
from symattn.verification.rules import (
    forbidding,
    head_mistakes,
    norm_records,
    rotating,
    scoring,
    softmaxes,
    tempering,
)
from symattn.verification.rules.steps import times, times_in_heads


def _make_family(
    step: str,
    words: str,
    steps: tuple[str, ...],
    wrong: Callable[[float, At], Any],
    grid: Sequence[float],
    rows: bool = True,
    spec: Callable[[Attention], Attention] | None = None,
    limit: tuple[str, Callable[..., Any]] | None = None,
) -> MistakeFamily:
    """Return the mistakes that ``wrong`` makes with a number x in some steps.

    ``rows``: rows of weights still sum to 1. ``limit`` is an input, and the minimum or maximum of it and x.
    """

    def variant(x: float) -> Variant:
        inputs = None if limit is None else partial(_cut_off_input, *limit, x)
        changes = {name: change(name, partial(wrong, x)) for name in steps}
        return Variant(changes, rows, spec=spec, inputs=inputs)

    return MistakeFamily(step, words, variant, grid)


def _make_logarithmic_grid(low: float, high: float, count: int = 25) -> tuple[float, ...]:
    return tuple(float(x) for x in np.geomspace(low, high, count))


def _make_signed_grid(low: float, high: float, count: int = 16) -> tuple[float, ...]:
    """Return points from −high to high, with 0 in the middle."""
    above = _make_logarithmic_grid(low, high, count)
    return (*(-x for x in reversed(above)), 0.0, *above)


# Shares of the weight from which a fit starts.
_SHARES = (0, 1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.2, 0.5, 1)
_EACH = 8  # heads that are tried one by one
# Factors of both signs from which a fit starts, besides 1.
_HUNDRED = _make_signed_grid(1e-3, 100)


def families(spec: Attention, names: frozenset[str] = frozenset("qkv")) -> Iterator[MistakeFamily]:
    """Yield the families of a specification, the simplest first; ``names`` are the inputs of the call."""
    # With scale 1 the step of scaling is not there, and its mistakes need another spec.
    unit = scaled_by_one if not_scaled(spec) else None
    yield from _yield_scales(spec, unit)
    if spec.temperature not in (None, "log"):
        words, grid = "the slope β of the temperatures is {}", _make_logarithmic_grid(1e-3, 10, 40)
        yield _make_family("score", words, ("tau",), tempering.by_slope, grid)
    if spec.masks_anything:
        yield from fills()
    yield _make_cap_family(spec, unit)
    yield from _yield_factors_of_added_terms(spec, names)
    position = spec.position
    # Tables are inputs: no base or scaling can be wrong there.
    if isinstance(position, Rotary) and position.given != "tables" and spec.latent is None:
        yield from _yield_rotary_families(position)
    yield from _yield_norm_families(spec, names)
    yield from _yield_cut_offs_of_inputs(spec)
    if spec.is_softmax:
        yield from _of_weights(spec)


def _yield_scales(
    spec: Attention, unit: Callable[[Attention], Attention] | None
) -> Iterator[MistakeFamily]:
    """Yield other scales, also of one head alone, and powers of sizes that multiply the scores."""
    scaled = partial(_make_family, "scale", steps=("scaled",), grid=_HUNDRED, spec=unit)
    by_root = spec.scale is None and unit is None
    of = "scores are scaled by {}/√d_k" if by_root else "scores are {} times what they should be"
    yield scaled(of, wrong=lambda x, at: at.right() * at.number(x))
    # Heads share code, so that the first few show whether a scale is one head's.
    for head in range(min(spec.heads, _EACH) if spec.heads > 1 else 0):
        yield scaled(
            f"scores of head {head + 1} are {{}} times what they should be",
            wrong=partial(_of_head, head),
        )
    if unit is None:
        yield scaled(
            "scores are scaled by {} for every d_k", wrong=lambda x, at: at.first * at.number(x)
        )
    powers = partial(scaled, grid=tuple(np.arange(-3, 3.01, 0.25).tolist()))
    yield powers(
        "scores are multiplied by d_k to the power {}" + ", not by 1/√d_k" * by_root,
        wrong=lambda x, at: at.first * at.number(float(at.size("q")) ** x),
    )
    for size, length in _LENGTHS.items():
        yield powers(
            f"scores are also multiplied by {size} to the power {{}}",
            wrong=partial(_by_power_of_length, length),
        )


def _make_cap_family(
    spec: Attention, unit: Callable[[Attention], Attention] | None
) -> MistakeFamily:
    if spec.softcap is not None:
        return _make_family(
            "softcap",
            "the cap is {}",
            ("capped",),
            lambda x, at: softcap(at.first, x),
            _make_logarithmic_grid(1e-1, 1e3),
        )
    # Without a cap, code may still have one from another model.
    return _make_family(
        "softcap",
        "scores are capped at {}, which was not requested",
        ("scaled",),
        lambda x, at: softcap(at.right(), x),
        _make_logarithmic_grid(1, 1e3),
        spec=unit,
    )


def _yield_factors_of_added_terms(
    spec: Attention, names: frozenset[str]
) -> Iterator[MistakeFamily]:
    """Yield factors of what is added to scores or outputs: arrays that have a noun, and biases by distance."""
    for adding in spec.pipeline(names):
        row = ARRAYS[adding.row]
        if adding.errors == "adds" and row.noun:
            words = f"{row.noun} is {{}} times what it should be"
            yield _make_family(row.blames, words, (adding.name,), times, _HUNDRED)
    position = spec.position
    if isinstance(position, Alibi | Buckets):
        one = "the linear bias is {} times what it should be"
        of = (
            one
            if isinstance(position, Alibi)
            else "the biases of buckets are {} times what they should be"
        )
        yield _make_family("bias", of, ("positioned",), times, _HUNDRED)
    if isinstance(position, Alibi):
        words = "linear biases do not grow beyond the distance {}"
        yield _make_family(
            "bias", words, ("positioned",), scoring.up_to, _make_logarithmic_grid(1, 512, 40)
        )


def _yield_rotary_families(position: Rotary) -> Iterator[MistakeFamily]:
    """Yield other bases, angles that are off by a factor, and other numbers in the fields of a scaling."""
    rotated = ("q_rotated", "k_rotated")
    yield _make_family(
        "position",
        "the base of the frequencies is {}",
        rotated,
        rotating.by_base,
        _make_logarithmic_grid(1.5, 1e8, 40),
    )
    words = "the angles of the rotation are {} times what they should be"
    yield _make_family(
        "position", words, rotated, rotating.by_factor, _make_logarithmic_grid(1e-3, 1e3, 40)
    )
    for name, words in rotating.WORDS_OF_SCALINGS.items():
        # A field may be None, or a scaling may lack it.
        if finite(getattr(position.scaling, name, None)):
            grid = _make_logarithmic_grid(1e-1, 1e5, 40)
            yield _make_family("position", words, rotated, partial(rotating.by_field, name), grid)


def _yield_norm_families(spec: Attention, names: frozenset[str]) -> Iterator[MistakeFamily]:
    """Yield other ε of each norm."""
    for group in norm_records.list_norm_groups(spec, names):
        # A vector of length 1 is divided by its norm alone, without ε.
        if group.record.kind != "l2":
            yield _make_family(
                group.blames,
                f"{group.lead}ε is {{}}",
                tuple(step.name for step in group.steps),
                norm_records.normalise_with_eps,
                _make_logarithmic_grid(1e-13, 10, 30),
            )


def _yield_cut_offs_of_inputs(spec: Attention) -> Iterator[MistakeFamily]:
    # Cut-offs of an input are mistakes of that input, whatever the step does with it.
    for name, (step, noun, *_) in head_mistakes.NUMBERS.items():
        if NEEDED[name](spec):
            yield _make_family(
                step, f"{noun} is cut off above {{}}", (), times, _HUNDRED, limit=(name, np.minimum)
            )
            yield _make_family(
                step, f"{noun} is cut off below {{}}", (), times, _HUNDRED, limit=(name, np.maximum)
            )


#: Lengths whose powers may scale scores: of keys, and of queries.
_LENGTHS: dict[str, Callable[[At], int]] = {
    "n_k": lambda at: at.shape[-1],
    "n_q": lambda at: at.size("q", -2),
}


def _by_power_of_length(length: Callable[[At], int], x: float, at: At) -> Any:
    """Return the scores, times a power of a length."""
    return at.right() * at.number(float(length(at)) ** x)


@dataclass(frozen=True)
class HeadFamily:
    """Mistakes with a number for each head: the step, words around {}, and the change of the step ``name``."""

    step: str
    words: str
    name: str
    wrong: Callable[[Sequence[float], At], Any]
    spec: Callable[[Attention], Attention] | None = None

    def mistake(self, numbers: Sequence[float], written: str) -> Mistake:
        """Return the mistake with these numbers of the heads, which are ``written`` in words."""
        changed = {self.name: change(self.name, partial(self.wrong, tuple(numbers)))}
        return Mistake(self.step, self.words.format(written), Variant(changed, spec=self.spec))


#: Factors from which the fit of each head's number starts.
HEAD_FACTORS = _HUNDRED


def families_of_heads(spec: Attention) -> Iterator[HeadFamily]:
    """Yield the families whose number differs from head to head, as a table of slopes or scales does."""
    if spec.heads < 2:
        return
    if isinstance(spec.position, Alibi | Buckets):
        noun = "linear biases" if isinstance(spec.position, Alibi) else "biases of buckets"
        words = f"the {noun} of the heads are {{}} times what they should be"
        yield HeadFamily("bias", words, "positioned", times_in_heads)
    if spec.bias:
        words = "the biases of the heads are {} times what they should be"
        yield HeadFamily("bias", words, "biased", times_in_heads)
    words = "scores of the heads are {} times what they should be"
    unit = scaled_by_one if not_scaled(spec) else None
    yield HeadFamily("scale", words, "scaled", _scaled_in_heads, unit)


def _scaled_in_heads(factors: Sequence[float], at: At) -> Any:
    """Return the scores, times a number of its own in each head."""
    return at.right() * at.xp.asarray(np.asarray(factors)[:, None, None], dtype=at.first.dtype)


def _cut_off_input(
    name: str, of: Callable[..., Any], x: float, _: Attention, inputs: Inputs
) -> Inputs:
    """Return the inputs, one of them cut off at x."""
    # A number of the input's dtype, so that the result has that dtype as well.
    return {**inputs, name: of(inputs[name], inputs[name].dtype.type(x))}


def fills() -> tuple[MistakeFamily, MistakeFamily]:
    """Return the families of a number that replaces forbidden scores, and of one that is added to them."""
    # Up to 3 · 10⁴, which float16 can represent.
    late, grid = "which leaves them a weight", _make_signed_grid(1e-3, 3e4, 24)
    return (
        _make_family(
            "mask",
            f"forbidden scores become {{}}, {late}",
            ("masked",),
            partial(_fill_forbidden_with_fitted, False),
            grid,
        ),
        _make_family(
            "mask",
            f"{{}} is added to forbidden scores, {late}",
            ("masked",),
            partial(_fill_forbidden_with_fitted, True),
            grid,
        ),
    )


def _of_weights(spec: Attention) -> Iterator[MistakeFamily]:
    def made(
        step: str,
        words: str,
        wrong: Callable[[float, At], Any],
        grid: Sequence[float],
        rows: bool = True,
    ) -> MistakeFamily:
        return _make_family(step, words, ("weights",), wrong, grid, rows)

    yield made("score", "scores are cut off at ±{}", _cut_off, _make_logarithmic_grid(1e-1, 200))
    words = "exponents s − max s are cut off below −{}"  # forbidden keys stay forbidden
    below: Any = lambda x, at: at.weights(  # noqa: E731
        at.finite(lambda s: at.xp.maximum(s - at.top, at.number(-x)))
    )
    yield made("exp", words, below, _make_logarithmic_grid(1e-1, 200))
    yield made(
        "bias",
        "scores have {} times the distance added, which was not requested",
        _by_distance,
        _make_signed_grid(1e-3, 10),
    )
    if spec.sink is not None:
        words = "{} is added to the sink's logit"
        yield made(
            "sink",
            words,
            lambda x, at: softmaxes.with_logit(at, at.z + at.number(x)),
            _make_signed_grid(1e-2, 100),
        )
    else:
        words = "{} is added to the sum that weights are divided by"
        grid = _make_logarithmic_grid(1e-12, 1e4, 33)
        yield made("normalize", words, lambda x, at: at.e / (at.total + at.number(x)), grid, False)
    if spec.sink == "given":
        words = "the sink's logit is {} times what it should be"
        yield made(
            "sink",
            words,
            lambda x, at: softmaxes.with_logit(at, at.z * at.number(x)),
            _make_signed_grid(1e-2, 100),
        )
    words = "weights are {} times what they should be, and do not sum to 1"
    yield made("normalize", words, lambda x, at: at.right() * at.number(x), _HUNDRED, False)
    words = "{} of the weight is spread evenly over all keys"
    if spec.masks_anything:
        yield made("mask", f"{words}, forbidden ones too", _shared_out, _SHARES)
    else:
        yield made("normalize", words, _shared_out, _SHARES)


def _of_head(head: int, x: float, at: At) -> Any:
    """Return the scores, times a number in one head."""
    return _scaled_in_heads(np.where(np.arange(at.spec.heads) == head, x, 1.0).tolist(), at)


def _fill_forbidden_with_fitted(besides: bool, x: float, at: At) -> Any:
    """Return the scores with a number instead of forbidden ones, or added to them."""
    s = forbidding.added(at)
    return at.xp.where(forbidding.allowed(at), s, s + at.number(x) if besides else at.number(x))


def _cut_off(x: float, at: At) -> Any:
    c = at.number(x)
    return at.weights(at.finite(lambda s: at.xp.maximum(at.xp.minimum(s, c), -c)))


def _shared_out(x: float, at: At) -> Any:
    return at.right() * at.number(1 - x) + at.number(x) / at.n


def _by_distance(x: float, at: At) -> Any:
    n_q, n_k = at.shape[-2:]
    i = np.arange(n_q)[:, None] + at.spec.offset(n_q, n_k)
    far = at.xp.asarray(np.arange(n_k)[None, :] - i)
    return at.weights(at.first + at.number(x) * at.xp.astype(far, at.first.dtype))

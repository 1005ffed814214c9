"""Families of mistakes: each has a number, which is fitted to what the function gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.softcap import softcap
from symattn.attention.spec import Attention
from symattn.verification.known import biases, masks, norms, rotations, scales, sinks, slopes
from symattn.verification.known.mistake import (
    Applies,
    Mistake,
    always,
    before,
    both,
    final,
    masked,
    number,
    own,
    parts,
    plain_softmax,
    shape,
    sink_of,
    softmaxed,
    weights,
)
from symattn.verification.reference import Change, Values, Variant


@dataclass(frozen=True)
class Family:
    """A mistake with a number x: ``words`` say it with x in place of {}, ``grid`` are the points to start from."""

    step: str
    words: Callable[[str], str]
    steps: Callable[[float], dict[str, Change]]
    grid: Sequence[float]
    applies: Applies = always
    rows: bool = True
    changes: str = "weights"

    def variant(self, x: float) -> Variant:
        """The variant with this number."""
        return Variant(self.steps(x), self.rows)

    def mistake(self, x: float, written: str) -> Mistake:
        """The mistake with this number, and how it is written."""
        return Mistake(self.step, self.words(written), self.variant(x), self.applies)


def _logarithmic(low: float, high: float, count: int = 25) -> tuple[float, ...]:
    return tuple(float(x) for x in np.geomspace(low, high, count))


def _signed(low: float, high: float, count: int = 16) -> tuple[float, ...]:
    """From −high to high, with 0 between."""
    above = _logarithmic(low, high, count)
    return (*(-x for x in reversed(above)), 0.0, *above)


def _constant(written: str) -> str:
    return f"scores are scaled by {written} whatever d_k is"


def cut_off(most: float, spec: Attention, values: Values) -> Any:
    """Scores cut off at −c and c."""
    s = final(spec, values)
    xp = namespace_of(s)
    c = number(s, most)
    return weights(spec, values, xp.where(xp.isfinite(s), xp.maximum(xp.minimum(s, c), -c), s))


def other_cap(cap: float, spec: Attention, values: Values) -> Any:
    """Another cap."""
    return softcap(before(spec, values, "capped"), cap)


def weights_times(factor: float, spec: Attention, values: Values) -> Any:
    """Weights times a number."""
    a = own(spec, values, "weights")
    return a * number(a, factor)


def shared_out(share: float, spec: Attention, values: Values) -> Any:
    """A part of the weights shared out among all keys alike."""
    a = own(spec, values, "weights")
    return a * number(a, 1 - share) + number(a, share) / shape(values)[-1]


def sink_moved(by: float, spec: Attention, values: Values) -> Any:
    """A number added to the sink's logit."""
    z = sink_of(spec, values)
    return sinks.with_sink(spec, values, z + number(z, by))


def sink_times(factor: float, spec: Attention, values: Values) -> Any:
    """The sink's logit times a number."""
    z = sink_of(spec, values)
    return sinks.with_sink(spec, values, z * number(z, factor))


def by_distance(slope: float, spec: Attention, values: Values) -> Any:
    """Scores less a number times the distance, that nobody asked for."""
    s = before(spec, values, "weights")
    j, i = masks.grid(spec, values)
    far = number(s, slope) * namespace_of(s).astype(namespace_of(s).asarray(j - i), s.dtype)
    return weights(spec, values, s + far)


def _both_normed(eps: float) -> dict[str, Change]:
    return {f"{r}_normed": partial(norms.normed, r, norms.Norm(eps=eps)) for r in "qk"}


def _turned(base: float) -> dict[str, Change]:
    return {f"{r}_turned": partial(rotations.turned, r, rotations.Turn(base=base)) for r in "qk"}


def _is(name: str) -> Applies:
    return lambda spec: type(spec.position).__name__ == name


def _added(extra: float, spec: Attention, values: Values) -> Any:
    p = parts(spec, values)
    return p.e / (p.total + number(p.e, extra))


_FILLED = "which leaves them a weight"

FAMILIES: tuple[Family, ...] = (
    Family("scale", _constant, lambda x: {"scaled": partial(scales.constant, x)}, _signed(1e-3, 100), changes="scaled"),
    Family(
        "scale",
        lambda w: f"scores are scaled by {w}/√d_k",
        lambda x: {"scaled": partial(scales.times, x)},
        _signed(1e-3, 100),
        lambda spec: spec.scale is None,
        changes="scaled",
    ),
    Family(
        "scale",
        lambda w: f"scores are {w} times what they should be",
        lambda x: {"scaled": partial(scales.times, x)},
        _signed(1e-3, 100),
        lambda spec: spec.scale is not None,
        changes="scaled",
    ),
    Family(
        "mask",
        lambda w: f"forbidden scores become {w}, {_FILLED}",
        lambda x: {"masked": partial(masks.filled, x)},
        _signed(1e-3, 3e4, 24),
        masked,
        changes="masked",
    ),
    Family(
        "mask",
        lambda w: f"{w} is added to forbidden scores, {_FILLED}",
        lambda x: {"masked": partial(masks.lowered, x)},
        _signed(1e-3, 3e4, 24),
        masked,
        changes="masked",
    ),
    Family(
        "softcap",
        lambda w: f"the cap is {w}",
        lambda x: {"capped": partial(other_cap, x)},
        _logarithmic(1e-1, 1e3),
        lambda spec: spec.softcap is not None,
        changes="capped",
    ),
    Family(
        "score",
        lambda w: f"scores are cut off at ±{w}",
        lambda x: {"weights": partial(cut_off, x)},
        _logarithmic(1e-1, 200),
        softmaxed,
    ),
    Family(
        "bias",
        lambda w: f"the bias is {w} times what it should be",
        lambda x: {"biased": partial(biases.bias_times, x)},
        _signed(1e-3, 100),
        changes="biased",
    ),
    Family(
        "bias",
        lambda w: f"the linear bias is {w} times what it should be",
        lambda x: {"positioned": partial(slopes.alibi_by, x)},
        _signed(1e-3, 100),
        _is("Alibi"),
        changes="positioned",
    ),
    Family(
        "bias",
        lambda w: f"the biases of buckets are {w} times what they should be",
        lambda x: {"positioned": partial(slopes.alibi_by, x)},
        _signed(1e-3, 100),
        _is("Buckets"),
        changes="positioned",
    ),
    Family(
        "bias",
        lambda w: f"scores have {w} times the distance added, which is not asked for",
        lambda x: {"weights": partial(by_distance, x)},
        _signed(1e-3, 10),
        softmaxed,
    ),
    Family(
        "position",
        lambda w: f"the base of the frequencies is {w}",
        _turned,
        _logarithmic(1.5, 1e8, 40),
        both(_is("Rotary"), lambda spec: getattr(spec.position, "given", None) != "tables"),
        changes="q_turned",
    ),
    Family(
        "norm",
        lambda w: f"ε is {w}",
        _both_normed,
        _logarithmic(1e-13, 10, 30),
        lambda spec: spec.qk_norm in ("rms", "layer"),
        changes="q_normed",
    ),
    Family(
        "sink",
        lambda w: f"{w} is added to the sink's logit",
        lambda x: {"weights": partial(sink_moved, x)},
        _signed(1e-2, 100),
        lambda spec: spec.sink is not None,
    ),
    Family(
        "sink",
        lambda w: f"the sink's logit is {w} times what it should be",
        lambda x: {"weights": partial(sink_times, x)},
        _signed(1e-2, 100),
        lambda spec: spec.sink == "given",
    ),
    Family(
        "normalize",
        lambda w: f"{w} is added to the sum that weights are divided by",
        lambda x: {"weights": partial(_added, x)},
        _logarithmic(1e-12, 1e4, 33),
        plain_softmax,
        rows=False,
    ),
    Family(
        "normalize",
        lambda w: f"weights are {w} times what they should be, and do not sum to 1",
        lambda x: {"weights": partial(weights_times, x)},
        _signed(1e-3, 100),
        softmaxed,
        rows=False,
    ),
    Family(
        "mask",
        lambda w: f"{w} of the weight is shared out among all keys alike, forbidden ones too",
        lambda x: {"weights": partial(shared_out, x)},
        (0, 1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.2, 0.5, 1),
        both(softmaxed, masked),
    ),
    Family(
        "normalize",
        lambda w: f"{w} of the weight is shared out among all keys alike",
        lambda x: {"weights": partial(shared_out, x)},
        (0, 1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.2, 0.5, 1),
        both(softmaxed, lambda spec: not spec.masks_anything),
    ),
)

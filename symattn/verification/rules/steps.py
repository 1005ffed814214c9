"""One step of the definition left out, done twice, with the other sign, or in another place among the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil, floor, sqrt
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import masks, softmax
from symattn.attention.positions.fields import Alibi, Buckets, Rotary
from symattn.attention.scores import softcap
from symattn.attention.spec import Attention
from symattn.bounds.at import At, Wrong, several, told
from symattn.bounds.mistake import Mistake, in_fields, not_scaled, root, size
from symattn.verification.rules.forbidding import added, allowed


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in the steps that a specification has."""
    yield from _scale(spec)
    if spec.softcap is not None:
        yield from _cap(spec)
    yield from _added(spec)
    if spec.dropout:
        yield from _dropout()
    if isinstance(spec.position, Rotary) and spec.qk_norm is not None:
        late: dict[str, Wrong] = {f"{r}_normed": _left_out for r in "qk"}
        late |= {f"{r}_rotated": _normed_late for r in "qk"}
        yield several("norm", "queries and keys are normalised after the rotation, not before", late)


def _left_out(at: At) -> Any:
    return at.first * 1


def _twice(at: At) -> Any:
    return at.right(at.right())


def _normed_late(at: At) -> Any:
    """Rotated, then normalised: the array that the step takes is not normalised."""
    return at.of(at.name.replace("rotated", "normed"), at.right())


# -- the scale ---------------------------------------------------------------------------------------------------------
def _scale(spec: Attention) -> Iterator[Mistake]:
    def scaled(words: str, wrong: Wrong) -> Mistake:
        return told("scale", words, scaled=wrong)

    if spec.scale != 1 and not not_scaled(spec):
        yield scaled("scores are not scaled", _left_out)
        words = "weights are scaled, not scores: the scale comes after the softmax"
        yield told("scale", words, False, scaled=_left_out, weights=_scaled_late)
    yield scaled("scores are also scaled by log n_k", lambda at: at.right() * at.xp.log(at.number(at.n)))
    if spec.scale is not None:
        if spec.scale != 1:
            yield scaled("the scale is applied twice", _twice)
        yield scaled("the configured scale is ignored, and 1/√d_k used", lambda at: _over_root(at, at.first, _d(at)))
        if spec.scale != 1:
            words = "the configured scale and 1/√d_k are both applied"
            yield scaled(words, lambda at: _over_root(at, at.right(), _d(at)))
    if spec.scale is not None or not_scaled(spec):
        return
    for n in (32, 64, 128):
        words = f"scores are scaled by 1/√{n} where d_k is above {n}, not by 1/√d_k"
        yield scaled(words, lambda at, n=n: _over_root(at, at.first, min(_d(at), n)))  # type: ignore[misc]
    roundings: dict[str, Callable[[float], int]] = {
        "1/⌊√d_k⌋: the root is rounded down to a whole number": floor,
        "the root of d_k rounded to a whole number": round,
        "the root of d_k rounded up to a whole number": ceil,
    }
    for words, whole in roundings.items():
        yield scaled(f"scores are scaled by {words}", lambda at, whole=whole: at.first / whole(sqrt(_d(at))))  # type: ignore[misc]


def _scaled_late(at: At) -> Any:
    a = at.right()
    return a * at.of("scaled", at.number(1))


def _d(at: At) -> int:
    return size(at.values, "q")


def _over_root(at: At, s: Any, n: int) -> Any:
    return s / root(s, n)


# -- the cap -----------------------------------------------------------------------------------------------------------
def _cap(spec: Attention) -> Iterator[Mistake]:
    def capped(words: str, wrong: Wrong) -> Mistake:
        return told("softcap", words, capped=wrong)

    def cap(s: Any) -> Array:
        return softcap(s, spec.softcap)

    yield capped("the cap is left out", _left_out)
    yield capped("the cap is tanh(s/c), not multiplied by c again", lambda at: at.right() / at.number(spec.softcap))
    words = "the cap is c tanh(s): scores are not divided by c"
    yield capped(words, lambda at: at.xp.tanh(at.first) * at.number(spec.softcap))
    yield capped("the cap is applied twice", _twice)
    yield capped("scores are cut off at the cap ±c, in place of c tanh(s/c)", _clipped)
    if spec.scale != 1:
        early: Wrong = lambda at: at.right(cap(at.first))  # noqa: E731
        yield told("softcap", "the cap comes before the scale", capped=_left_out, scaled=early)
    late: Wrong = lambda at: at.finite(cap, at.right())  # noqa: E731
    if spec.bias:
        yield told("softcap", "the cap comes after the bias", capped=_left_out, biased=late)
    if isinstance(spec.position, Alibi | Buckets):
        yield told("softcap", "the cap comes after the positions' biases", capped=_left_out, positioned=late)
    if spec.mask == "additive":
        yield told("softcap", "the cap comes after the mask that is added", capped=_left_out, masked=late)
    if spec.masks_anything:
        words = "the cap comes after the mask: forbidden scores become −c, which leaves them a weight"
        yield told("softcap", words, capped=_left_out, masked=_all_capped)


def _clipped(at: At) -> Any:
    c = at.number(at.spec.softcap)
    return at.xp.maximum(at.xp.minimum(at.first, c), -c)


def _all_capped(at: At) -> Any:
    """c tanh(−∞/c) = −c."""
    s = at.finite(lambda s: softcap(s, at.spec.softcap), at.right())
    return at.xp.where(at.xp.isfinite(s), s, -at.number(at.spec.softcap))


# -- what is added: biases, positions, masks ---------------------------------------------------------------------------
def _added(spec: Attention) -> Iterator[Mistake]:
    """A step that adds D to scores: n D is added, D is scaled, or it is added to the weights."""
    if spec.bias:
        yield told("bias", "the bias is left out", biased=_left_out)
        yield told("bias", "the bias is added twice", biased=partial(times, 2))
        yield told("bias", "scores are multiplied by the bias", biased=lambda at: at.first * (at.right() - at.first))
        words = "the bias is added to the weights, after the softmax"
        yield told(
            "bias", words, False, biased=_left_out, weights=lambda at: at.right() + at.of("biased", at.right() * 0)
        )
        yield told("bias", "the bias comes before the scale, and is scaled too", biased=_scaled_with)
    if isinstance(spec.position, Alibi | Buckets):
        linear = isinstance(spec.position, Alibi)
        noun, verb = ("the linear bias", "is") if linear else ("the biases of buckets", "are")
        come = "comes" if linear else "come"
        yield told("bias", f"{noun} {verb} left out", positioned=_left_out)
        if linear:
            words = "the sign of the linear bias is flipped: far keys are favoured"
            yield told("bias", words, positioned=partial(times, -1))
            yield told("bias", "the linear bias counts twice", positioned=partial(times, 2))
        words = f"{noun} {come} before the scale, and {verb} scaled too"
        yield told("bias", words, positioned=_scaled_with)
    if spec.mask == "additive":
        words = "the finite numbers of an additive mask are added with the other sign"
        yield told("mask", words, masked=partial(_mask_by, lambda at, d: -d))
        yield told("mask", "an additive mask is added twice", masked=partial(_mask_by, lambda at, d: 2 * d))
        words = "only the −∞ entries of an additive mask are used, its finite numbers are left out"
        yield told("mask", words, masked=partial(_mask_by, lambda at, d: 0 * d))
        words = "an additive mask is added to the weights, after the softmax"
        yield told("mask", words, False, masked=_without_added, weights=_added_late)
        words = "an additive mask comes before the scale, and is scaled too"
        yield told("mask", words, masked=partial(_mask_by, lambda at, d: at.of("scaled", d)))


def times(factor: Any, at: At) -> Any:
    """Return the added term, times a number."""
    return at.first + (at.right() - at.first) * at.number(factor)


def _scaled_with(at: At) -> Any:
    return at.first + at.of("scaled", at.right() - at.first)


def _mask_by(make: Callable[[At, Any], Any], at: At) -> Array:
    """The finite numbers of an additive mask, changed."""
    d = added(at.spec, at.values) - at.first
    return masks.forbid(at.first + make(at, d), allowed(at.spec, at.values))


def _without_added(at: At) -> Array:
    """Scores under the other masks alone."""
    return masks.forbid(at.first, allowed(replace(at.spec, mask=None), at.values))


def _added_late(at: At) -> Any:
    """Weights and mask; undefined where that is −∞, so that nothing is said of such rows."""
    mask = masks.for_heads(at.values["mask"], at.first) if at.spec.heads > 1 else at.values["mask"]
    there = np.asarray(namespace_of(mask).isfinite(mask))
    share = there.astype(float)
    return (at.right() + namespace_of(mask).where(there, mask, 0)) * share / share


# -- dropout -----------------------------------------------------------------------------------------------------------
def _dropout() -> Iterator[Mistake]:
    def dropped(words: str, wrong: Wrong) -> Mistake:
        return told("dropout", words, dropped=wrong)

    yield dropped("a kept weight is not scaled by 1/(1 − r)", partial(_kept, 1))
    yield dropped("a kept weight is multiplied by 1 − r, not divided", partial(_kept, 2))
    yield dropped("a kept weight is divided by 1 − r twice", partial(_kept, -1))
    yield dropped("a kept weight is divided by the rate r", lambda at: _kept(1, at) / at.number(_rate(at.spec)))
    yield dropped("a kept weight is normalised again", lambda at: softmax.normalise(at.right()))
    yield dropped("dropout is left out", _left_out)
    scores: Wrong = lambda at: at.weights(at.finite(lambda s: at.of("dropped", s)))  # noqa: E731
    yield told("dropout", "scores are dropped, not weights", weights=scores, dropped=_left_out)
    yield told("dropout", "columns of the output are dropped, not weights", dropped=_left_out, output=_output_dropped)


def _rate(spec: Attention) -> Fraction:
    return Fraction(str(spec.dropout))


def _kept(power: int, at: At) -> Any:
    """Return the weights that dropout keeps, times (1 − r)^p."""
    return at.right() * at.number((1 - _rate(at.spec)) ** power)


def _output_dropped(at: At) -> Any:
    """The output with as many of its columns dropped."""
    o = at.right()
    keep = np.asarray(at.values["drop"])[..., : int(o.shape[-1])]
    if keep.shape[-1] < int(o.shape[-1]) or int(at.first.shape[-2]) != int(o.shape[-2]):
        raise KeyError("there are too few numbers to drop by")
    return at.xp.where(keep, o, 0) / at.number(1 - _rate(at.spec))


# -- a field of the specification that takes another value: left out, turned on, or another word ----------------------
def in_other_fields(spec: Attention) -> Iterator[Mistake]:
    """Yield the mistakes that are another specification."""
    for step, words, fields in _fields(spec):
        yield in_fields(step, words, **fields)


def _fields(spec: Attention) -> Iterator[tuple[str, str, dict[str, Any]]]:
    plain = spec.normaliser == "softmax" and spec.sink is None
    if spec.score == "dot" and spec.latent is None:
        words = "the cosine of queries and keys is taken, not their dot product"
        yield "score", words, {"score": "cosine", "scale": 1}
    if spec.score == "cosine":
        words = "the dot product is taken, not the cosine of queries and keys"
        yield "score", words, {"score": "dot"}
    if spec.score == "distance":
        words = "the dot product is taken, not a distance"
        yield "score", words, {"score": "dot", "scale": 1 if spec.scale is None else spec.scale}
    if spec.truncate is not None:
        words = "all columns of queries and keys are multiplied, not the first ones"
        yield "score", words, {"truncate": None}
    if spec.normaliser != "softmax":
        words = "a softmax is taken in place of the requested normaliser"
        yield "normalize", words, {"normaliser": "softmax"}
    if spec.sink is not None:
        yield "sink", "the sink is left out", {"sink": None}
    if spec.sink == "given":
        words = "the sink's logits are ignored: 0 is used for all of them"
        yield "sink", words, {"sink": "zero"}
    if plain:
        words = "a sink of the logit 0 takes weight that was not requested: 1 is added to the sum"
        yield "sink", words, {"sink": "zero"}
    yield from _of_positions(spec)


def _of_positions(spec: Attention) -> Iterator[tuple[str, str, dict[str, Any]]]:
    position = spec.position
    if position is not None and not isinstance(position, Alibi | Buckets):
        yield "position", "positions are left out", {"position": None}
    if isinstance(position, Rotary) and position.scaling is not None:
        yield "position", "the frequencies are not scaled", {"position": replace(position, scaling=None)}
    if isinstance(position, Buckets) and (spec.causal or not position.bidirectional):
        which = "one direction" if position.bidirectional else "both directions"
        turned = replace(position, bidirectional=not position.bidirectional)
        yield "bias", f"buckets are of {which}", {"position": turned}

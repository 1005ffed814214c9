"""Mistakes in one step of the definition: left out, done twice, with the other sign, or in the wrong order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import inf
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import masks, softmax
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary
from symattn.attention.scores import softcap
from symattn.attention.spec import Attention
from symattn.bounds.mistake import At, Mistake, Wrong, in_fields, in_steps, not_scaled, root
from symattn.document.errors import Undecided
from symattn.verification.rules.forbidding import added, allowed

#: A mistake in a step: the words, and what replaces the step.
Row = tuple[str, Wrong]


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in the steps of a specification."""
    steps = {
        "scaled": ("scale", _yield_scale_step_mistakes(spec)),
        "capped": ("softcap", _CAP if spec.softcap is not None else ()),
        "dropped": ("dropout", _DROPOUT if spec.dropout else ()),
    }
    for name, (blamed, rows) in steps.items():
        yield from (in_steps(blamed, words, **{name: wrong}) for words, wrong in rows)
    if spec.softcap is not None:
        yield from _moved_cap(spec)
    yield from _yield_score_term_mistakes(spec)
    if spec.dropout:
        of_scores: Wrong = lambda at: at.weights(at.finite(lambda s: at.of("dropped", s)))  # noqa: E731
        yield in_steps(
            "dropout", "scores are dropped, not weights", weights=of_scores, dropped=left_out
        )
        words = "columns of the output are dropped, not weights"
        yield in_steps("dropout", words, dropped=left_out, output=_output_dropped)
    if isinstance(spec.position, Rotary) and spec.qk_norm is not None:
        other = "before" if spec.qk_norm_place == "after" else "after"
        nouns = "queries and keys" if spec.qk_norm_of == "both" else "keys"
        words = f"{nouns} are normalised {other} the rotation, not {spec.qk_norm_place}"
        yield in_fields("norm", words, qk_norm_place=other)


def left_out(at: At) -> Any:
    """Return the input of the step, unchanged."""
    return at.first * 1


def apply_step_twice(at: At) -> Any:
    """Return the step of its own result."""
    return at.right(at.right())


# -- the scale ---------------------------------------------------------------------------------------------------------
def _divide_by_deviation(less: int, eps: int | Fraction, at: At) -> Any:
    """Return scores over the root of the variance of their row plus ε, with ``n - less`` as its divisor.

    Without ε, equal scores give 0/0; so does the one score of a row with the divisor n − 1.
    """
    xp, s, n = at.xp, at.right(), at.n
    if n <= less:
        raise Undecided("the variance of one score, with the divisor n − 1, is 0/0")
    centred = s - xp.mean(s, axis=-1, keepdims=True)
    variance = xp.sum(centred * centred, axis=-1, keepdims=True) / at.number(n - less)
    return centred / xp.sqrt(variance + at.number(eps))


def _yield_scale_step_mistakes(spec: Attention) -> Iterator[Row]:
    if spec.scale != 1 and not not_scaled(spec):
        yield "scores are not scaled", left_out
    yield "scores are also scaled by log n_k", lambda at: at.right() * at.xp.log(at.number(at.n))
    words = "scores are divided by the standard deviation of their row"
    yield words, partial(_divide_by_deviation, 0, 0)
    yield f"{words} (with the divisor n_k − 1)", partial(_divide_by_deviation, 1, 0)
    yield (
        f"{words} (as by layer_norm, with ε)",
        partial(_divide_by_deviation, 0, Fraction(1, 10**5)),
    )
    if spec.scale is not None:
        if spec.scale != 1:
            yield "the scale is applied twice", apply_step_twice
        # Scores that stay as they are have no scale that could be ignored.
        words = "the configured scale is ignored, and 1/√d_k used"
        words = words if spec.scale != 1 else "scores are scaled by 1/√d_k"
        # With an infinite limit every width is below it, so that 1/√d_k is used throughout.
        yield words, partial(_by_root, inf)
        if spec.scale != 1:
            yield (
                "the configured scale and 1/√d_k are both applied",
                lambda at: _by_root(inf, at, at.right()),
            )
    # A table of widths up to n gives all larger heads the same scale.
    elif not not_scaled(spec):
        for n in (32, 64, 128):
            yield (
                f"scores are scaled by 1/√{n} where d_k is above {n}, not by 1/√d_k",
                partial(_by_root, n),
            )


def _by_root(most: float, at: At, s: Any = None) -> Any:
    """Return scores, by default the input of the step, over √d_k or √most, whichever is less."""
    return (at.first if s is None else s) / root(at.first, min(at.size("q"), most))


# -- the cap -----------------------------------------------------------------------------------------------------------
def _softcap_scores(s: Any, at: At) -> Any:
    return softcap(s, at.spec.softcap)


def _clip_scores_at_softcap(at: At) -> Any:
    c = at.number(at.spec.softcap)
    return at.xp.maximum(at.xp.minimum(at.first, c), -c)


def _cap_with_other_function(at: At, divisor: Callable[[Any, Any], Any]) -> Any:
    return at.first / divisor(at.xp, at.first / at.number(at.spec.softcap))


_CAP: tuple[Row, ...] = (
    (
        "the cap is tanh(s/c), not multiplied by c again",
        lambda at: at.right() / at.number(at.spec.softcap),
    ),
    (
        "the cap is c tanh(s): scores are not divided by c",
        lambda at: at.xp.tanh(at.first) * at.number(at.spec.softcap),
    ),
    (
        "the cap is applied to scores in base 2, which are log₂ e times as large",
        lambda at: at.right(at.first / at.xp.log(at.number(2))) * at.xp.log(at.number(2)),
    ),
    ("scores are cut off at the cap ±c, in place of c tanh(s/c)", _clip_scores_at_softcap),
    (
        "uses s/(1 + |s|/c) instead of c tanh(s/c)",
        lambda at: _cap_with_other_function(at, lambda xp, x: 1 + xp.abs(x)),
    ),
    (
        "uses s/√(1 + s²/c²) instead of c tanh(s/c)",
        lambda at: _cap_with_other_function(at, lambda xp, x: xp.sqrt(1 + x * x)),
    ),
)


def _moved_cap(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes with the cap before an earlier step, or after a later one."""
    late: Wrong = lambda at: at.finite(partial(_softcap_scores, at=at), at.right())  # noqa: E731
    places: tuple[tuple[Any, str, str, Wrong], ...] = (
        (
            spec.scale != 1,
            "scaled",
            "before the scale",
            lambda at: at.right(_softcap_scores(at.first, at)),
        ),
        (spec.bias, "biased", "after the bias", late),
        (
            isinstance(spec.position, Alibi | Buckets),
            "positioned",
            "after the positions' biases",
            late,
        ),
        (spec.mask == "additive", "masked", "after the mask that is added", late),
        (
            spec.masks_anything,
            "masked",
            "after the mask: forbidden scores become −c, which leaves them a weight",
            _all_capped,
        ),
    )
    for there, name, where, wrong in places:
        if there:
            yield in_steps("softcap", f"the cap comes {where}", capped=left_out, **{name: wrong})


def _all_capped(at: At) -> Any:
    """Return capped scores, also of forbidden keys: c tanh(−∞/c) = −c."""
    s = at.finite(partial(_softcap_scores, at=at), at.right())
    return at.xp.where(at.xp.isfinite(s), s, -at.number(at.spec.softcap))


# -- what is added: biases, positions, masks ---------------------------------------------------------------------------
#: By the step that adds D to scores: the step to blame, D in words, and words for n D. (The sign of a bias: an
#: input's.)
_TERMS: dict[str, tuple[str, str, dict[int, str]]] = {
    # By its noun it is left out, negated and added twice (``recorded_steps``).
    "biased": ("bias", "the bias", {}),
    "linear": (
        "bias",
        "the linear bias",
        {
            0: "{} is left out",
            -1: "the sign of {} is flipped: far keys are favoured",
            2: "{} is added twice",
        },
    ),
    "buckets": (
        "bias",
        "the biases of buckets",
        {0: "{} are left out", -1: "{} have the other sign", 2: "{} are added twice"},
    ),
    "masked": (
        "mask",
        "an additive mask",
        {
            0: "only the −∞ entries of {} are used, its finite numbers are left out",
            -1: "the finite numbers of {} are added with the other sign",
            2: "{} is added twice",
        },
    ),
}


def _yield_score_term_mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes in a step that adds D to scores: it adds n D, D is scaled, or is added to the weights."""
    linear = isinstance(spec.position, Alibi)
    there = {
        "biased": spec.bias,
        "linear": linear,
        "buckets": isinstance(spec.position, Buckets),
        "masked": spec.mask == "additive",
    }
    for term, (blamed, noun, times_) in _TERMS.items():
        if there[term]:
            name, many = (
                "positioned" if term in ("linear", "buckets") else term,
                noun.startswith("the biases"),
            )
            for n, words in times_.items():
                yield in_steps(blamed, words.format(noun), **{name: partial(times, n)})
            words = (
                "come before the scale, and are scaled too"
                if many
                else "comes before the scale, and is scaled too"
            )
            yield in_steps(
                blamed,
                f"{noun} {words}",
                **{
                    name: lambda at: _add_term_under_masks(
                        at, at.of("scaled", _extract_added_term(at))
                    )
                },
            )
            if spec.scale is not None:
                root: Wrong = lambda at: at.finite(partial(_by_root, inf, at), at.right())  # noqa: E731
                yield in_steps(
                    "scale", f"scores and {noun} are scaled by 1/√d_k together", **{name: root}
                )
            if term in _LATE:
                without, late = _LATE[term]
                words = f"{noun} is added to the weights, after the softmax"
                yield in_steps(blamed, words, False, **{name: without, "weights": late})
    if spec.bias:
        product: Wrong = lambda at: at.first * (at.right() - at.first)  # noqa: E731
        yield in_steps("bias", "scores are multiplied by the bias", biased=product)
    if spec.scale != 1 and not not_scaled(spec):
        words = "weights are scaled, not scores: the scale comes after the softmax"
        scale: Wrong = lambda at: at.right() * at.of("scaled", at.number(1))  # noqa: E731
        yield in_steps("scale", words, False, scaled=left_out, weights=scale)


def _add_term_under_masks(at: At, d: Array) -> Array:
    """Return the scores with another term added, under the masks if the term is part of one."""
    return masks.forbid(at.first + d, allowed(at)) if at.name == "masked" else at.first + d


def _extract_added_term(at: At) -> Any:
    return (added(at) if at.name == "masked" else at.right()) - at.first


def times(factor: Any, at: At) -> Array:
    """Return the added term, times a number."""
    return _add_term_under_masks(at, _extract_added_term(at) * at.number(factor))


def times_in_heads(factors: Sequence[float], at: At) -> Array:
    """Return the added term, times a number of its own in each head."""
    of_heads = at.xp.asarray(np.asarray(factors)[:, None, None], dtype=at.first.dtype)
    return _add_term_under_masks(at, _extract_added_term(at) * of_heads)


def _masked_late(at: At) -> Any:
    """Return the sum of weights and mask; undefined where the mask is −∞, so that such rows are not judged."""
    mask = masks.for_heads(at.values["mask"], at.first) if at.spec.heads > 1 else at.values["mask"]
    there = np.asarray(namespace_of(mask).isfinite(mask))
    share = there.astype(float)
    # 0/0 is NaN, which leaves entries under −∞ undefined.
    return (at.right() + namespace_of(mask).where(there, mask, 0)) * share / share


#: The scores without the term, and the weights with it.
_LATE: dict[str, tuple[Wrong, Wrong]] = {
    "biased": (left_out, lambda at: at.right() + at.of("biased", at.right() * 0)),
    "masked": (lambda at: masks.forbid(at.first, allowed(at, mask=None)), _masked_late),
}


# -- dropout -----------------------------------------------------------------------------------------------------------
def _read_dropout_rate(at: At) -> Fraction:
    return Fraction(str(at.spec.dropout))


def _rescale_dropout_weights(power: int, at: At) -> Any:
    """Return the weights that dropout keeps, times (1 − r)^p."""
    return at.right() * at.number((1 - _read_dropout_rate(at)) ** power)


_DROPOUT: tuple[Row, ...] = (
    ("a kept weight is not scaled by 1/(1 − r)", partial(_rescale_dropout_weights, 1)),
    ("a kept weight is multiplied by 1 − r, not divided", partial(_rescale_dropout_weights, 2)),
    ("a kept weight is divided by 1 − r twice", partial(_rescale_dropout_weights, -1)),
    (
        "a kept weight is divided by the rate r",
        lambda at: _rescale_dropout_weights(1, at) / at.number(_read_dropout_rate(at)),
    ),
    ("a kept weight is normalised again", lambda at: softmax.normalise(at.right())),
    ("dropout is left out", left_out),
)


def _output_dropped(at: At) -> Any:
    """Return the output with columns dropped instead of weights."""
    o = at.right()
    rows, columns = (int(n) for n in o.shape[-2:])
    keep = np.asarray(at.values["drop"])[..., :columns]
    if keep.shape[-1] < columns or int(at.first.shape[-2]) != rows:
        raise KeyError("there are too few numbers to drop by")
    return at.xp.where(keep, o, 0) / at.number(1 - _read_dropout_rate(at))


# -- a field of the specification with another value: left out, turned on, or another choice --------------------------
def in_other_fields(spec: Attention) -> Iterator[Mistake]:
    """Yield the mistakes that are another specification."""
    for there, step, words, fields in _yield_wrong_field_mistakes(spec):
        if there:
            yield in_fields(step, words, **fields)


def _yield_wrong_field_mistakes(spec: Attention) -> Iterator[tuple[Any, str, str, dict[str, Any]]]:
    """Yield a condition on the specification, the step to blame, the words, and the fields that differ."""
    position, scale = spec.position, 1 if spec.scale is None else spec.scale
    plain = spec.plain_softmax
    words, dot = (
        "the cosine of queries and keys is taken, not their dot product",
        spec.score == "dot",
    )
    yield dot and spec.latent is None, "score", words, {"score": "cosine", "scale": 1}
    words = "the dot product is taken, not the cosine of queries and keys"
    yield spec.score == "cosine", "score", words, {"score": "dot"}
    words = "the dot product is taken, not a distance"
    yield spec.score == "distance", "score", words, {"score": "dot", "scale": scale}
    words = "all columns of queries and keys are multiplied, not the first ones"
    yield spec.truncate is not None, "score", words, {"truncate": None}
    titles = {"softmax": "a softmax"} | {
        name: other.title for name, other in softmax.NORMALISERS.items()
    }
    # Another normaliser could not have the other fields of the softmax.
    usual = plain and spec.base is None and spec.stabilised and not spec.lse
    for other, noun in titles.items() if usual or not spec.is_softmax else ():
        words = f"uses {noun} instead of the requested normaliser"
        # Weights that are not divided have a cause of their own.
        is_named = (spec.normaliser, other) == ("relu", "relu_sum")
        is_other = other != spec.normaliser and not is_named
        yield is_other, "normalize", words, {"normaliser": other}
    yield spec.sink is not None, "sink", "the sink is left out", {"sink": None}
    words = "the sink's logits are ignored: 0 is used for all of them"
    yield spec.sink == "given", "sink", words, {"sink": "zero"}
    words = "a sink of the logit 0 takes weight that was not requested: 1 is added to the sum"
    yield plain, "sink", words, {"sink": "zero"}
    if position is not None and not isinstance(position, Alibi | Buckets):
        yield True, "position", "positions are left out", {"position": None}
    if isinstance(position, Rotary) and position.scaling is not None:
        yield (
            True,
            "position",
            "the frequencies are not scaled",
            {"position": replace(position, scaling=None)},
        )
    if isinstance(position, Buckets) and (spec.causal or not position.bidirectional):
        which = "one direction" if position.bidirectional else "both directions"
        turned = replace(position, bidirectional=not position.bidirectional)
        yield True, "bias", f"buckets are of {which}", {"position": turned}

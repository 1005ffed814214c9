"""Mistakes of the difference of two attentions, A₁ V − λ A₂ V: in λ, in the halves of columns, and in its norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import number
from symattn.attention.flow import Step
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.scores import weighted_values
from symattn.bounds import reference
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.mistake import At, Mistake, Wrong, root
from symattn.verification.rules.steps import left_out

#: From an array of the first attention, λ, and that of the second to their difference.
Subtract = Callable[[Any, Any, Any], Any]
#: Differences that outputs and weights have alike.
_LINEAR: Mapping[str, Subtract] = {
    "λ is left out: the whole second softmax is subtracted": lambda one, factor, other: one - other,
    "the second softmax is left out": lambda one, factor, other: one * 1,
    "λ times the second softmax is added, not subtracted": lambda one, factor, other: (
        one + factor * other
    ),
    "the second softmax is added, without λ": lambda one, factor, other: one + other,
    "λ multiplies the first softmax, not the second": lambda one, factor, other: (
        factor * one - other
    ),
    "λ multiplies both softmaxes": lambda one, factor, other: factor * (one - other),
    "the softmaxes are mixed: (1 − λ) times the first, less λ times the second": (
        lambda one, factor, other: one - factor * (one + other)
    ),
    "the second softmax has the factor 1 − λ, not λ": lambda one, factor, other: (
        one - other + factor * other
    ),
    "the second softmax has the factor λ², not λ": lambda one, factor, other: (
        one - factor * factor * other
    ),
    "the difference is negated: λ times the second softmax, less the first": (
        lambda one, factor, other: factor * other - one
    ),
}


def _clip_difference(one: Any, factor: Any, other: Any) -> Any:
    difference = one - factor * other
    return namespace_of(difference).maximum(difference, 0 * difference)


def _divide_by_sum(one: Any, factor: Any, other: Any) -> Any:
    difference = one - factor * other
    return difference / namespace_of(difference).sum(difference, axis=-1, keepdims=True)


#: Differences of weights alone.
_OF_WEIGHTS: Mapping[str, Subtract] = {
    "negative weights of the difference are set to 0": _clip_difference,
    "the weights of the difference are divided by their sum": _divide_by_sum,
}


def mistakes_of_difference(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield mistakes of a step that takes two outputs and λ between them, and of its norm before it."""
    for words, subtract in _LINEAR.items():
        of_outputs: Wrong = lambda at, subtract=subtract: subtract(*at.taken)  # type: ignore[misc] # noqa: E731
        yield in_stated_steps(spec, step.blames, words, {step.name: of_outputs})
    norm = next((s for s in spec.pipeline_of_all if s.of[0] == step.name), None)
    if norm is not None:
        words = "each of the two outputs is normalised, not their difference"
        before: dict[str, Wrong] = {
            step.name: partial(_subtract_normed, norm.name),
            norm.name: left_out,
        }
        yield in_stated_steps(spec, norm.blames, words, before)


def mistakes_of_attentions(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield mistakes of the difference of two attentions, and of the steps of both."""
    yield from mistakes_of_difference(spec, step)
    attention, prefixes = spec.inner, spec.prefixes
    scores = "scaled" if any(s.name == "scaled" for s in _list_steps(spec)) else "scores"

    def mistake(blamed: str, words: str, steps: Mapping[str, Wrong]) -> Mistake:
        return in_stated_steps(spec, blamed, words, steps)

    for words, subtract in _OF_WEIGHTS.items():
        of_weights: Wrong = lambda at, subtract=subtract: multiply_difference(at, subtract)  # type: ignore[misc] # noqa: E731
        yield mistake(step.blames, words, {step.name: of_weights})
    words = "scores are subtracted, and one softmax is taken: softmax(S₁ − λ S₂)"
    of_scores: dict[str, Wrong] = {
        f"{prefixes[1]}{scores}": partial(_subtract_scores, f"{prefixes[0]}{scores}"),
        step.name: _return_second,
    }
    yield mistake(step.blames, words, of_scores)
    if attention.scale is None and attention.score == "dot":
        words = "scores are scaled by 1/√(2 d_k), the width of both halves"
        scale = dict.fromkeys((f"{prefix}scaled" for prefix in prefixes), _scale_by_both_widths)
        yield mistake("scale", words, scale)
    if isinstance(attention.position, Rotary):
        words = "whole heads are rotated, not each of their halves"
        rotate: dict[str, Wrong] = {
            f"{prefix}{name}": partial(_rotate_whole_heads, name, half)
            for half, prefix in enumerate(prefixes)
            for name in ("q_rotated", "k_rotated")
        }
        yield mistake("position", words, rotate)
    if attention.masks_anything:
        for prefix in prefixes:
            words = f"the {prefix[:-1]} softmax has no mask"
            yield mistake("mask", words, {f"{prefix}masked": left_out})


def multiply_difference(at: At, subtract: Subtract) -> Any:
    """Return the values, multiplied by a difference of both weights."""
    spec: Any = at.spec
    one, other = (spec.select_arrays_of_attention(at.values, prefix) for prefix in spec.prefixes)
    difference = subtract(one["weights"], at.values["factor"], other["weights"])
    return weighted_values(difference, one[reference.values_name(_list_steps(spec))])


def _list_steps(spec: Any) -> tuple[Step, ...]:
    steps: tuple[Step, ...] = spec.inner.pipeline(spec.taken)
    return steps


def _subtract_scores(first: str, at: At) -> Any:
    # Forbidden keys are forbidden afterwards, as −∞ takes no part in a difference.
    return at.values[first] - at.values["factor"] * at.right()


def _return_second(at: At) -> Any:
    return at.taken[2] * 1


def _scale_by_both_widths(at: At) -> Any:
    return at.first / root(at.first, at.size("q"))


def _rotate_whole_heads(name: str, half: int, at: At) -> Any:
    """Return one half of the columns of queries or keys that were rotated with all columns of a head."""
    spec: Any = at.spec
    whole = {own: at.values[array] for own, array in spec.taken.items() if own not in "qk"}
    whole |= {own: at.values[own] for own in "qk"}
    columns = reference.variant_values(spec.inner, whole)[name]
    width = int(columns.shape[-1]) // 2
    return columns[..., half * width : (half + 1) * width]


def _subtract_normed(norm: str, at: At) -> Any:
    one, factor, other = at.taken
    return at.of(norm, one) - factor * at.of(norm, other)


# -- the halves --------------------------------------------------------------------------------------------------------
def _exchange(a: Any) -> Any:
    half = int(a.shape[-1]) // 2
    return namespace_of(a).concat((a[..., half:], a[..., :half]), axis=-1)


def _repeat_half(start: int, a: Any) -> Any:
    half = int(a.shape[-1]) // 2
    part = a[..., start * half : (start + 1) * half]
    return namespace_of(a).concat((part, part), axis=-1)


def _take_alternating(a: Any) -> Any:
    return namespace_of(a).concat((a[..., 0::2], a[..., 1::2]), axis=-1)


_first_twice, _second_twice = partial(_repeat_half, 0), partial(_repeat_half, 1)
#: Other columns, before their halves are taken: of which arrays.
_WRONG_HALVES: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "the halves are exchanged: λ times the first softmax is subtracted from the second": (
        "qk",
        _exchange,
    ),
    "queries of one half meet keys of the other": ("q", _exchange),
    "the halves are the columns with even and with odd numbers": ("qk", _take_alternating),
    "both softmaxes are those of the first half": ("qk", _first_twice),
    "both softmaxes are those of the second half": ("qk", _second_twice),
    "both softmaxes have the queries of the first half": ("q", _first_twice),
    "both softmaxes have the queries of the second half": ("q", _second_twice),
    "both softmaxes have the keys of the first half": ("k", _first_twice),
    "both softmaxes have the keys of the second half": ("k", _second_twice),
}


def mistakes_of_half(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other halves of the columns of queries and keys."""
    halves = [s for s in spec.pipeline_of_all if s.role == step.role]
    # All halves are taken alike.
    if step is not halves[0]:
        return
    for words, (names, other) in _WRONG_HALVES.items():
        wrong: Wrong = lambda at, other=other: at.right(other(at.first))  # type: ignore[misc] # noqa: E731
        steps = {s.name: wrong for s in halves if s.of[0] in names}
        yield in_stated_steps(spec, step.blames, words, steps)


# -- λ, and the factor of the norm -------------------------------------------------------------------------------------
#: λ of other heads, from all of them: (h,).
_FACTORS_OF_OTHER_HEADS: Mapping[str, Callable[[Any], Any]] = {
    "each head has the λ of the first head": lambda lam: lam[:1] + 0 * lam,
    "each head has the λ of the next head": lambda lam: namespace_of(lam).roll(lam, -1, axis=0),
    "each head has the λ of the head at its place from the last": lambda lam: namespace_of(
        lam
    ).flip(lam, axis=0),
    "each head has the mean of all λ": lambda lam: (
        namespace_of(lam).mean(lam, axis=0, keepdims=True) + 0 * lam
    ),
}


def mistakes_of_factor(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield the λ of other heads, where it is an input with a number for each head."""
    if step.of != ("lam",) or spec.inner.heads == 1:
        return
    for words, other in _FACTORS_OF_OTHER_HEADS.items():
        wrong: Wrong = lambda at, other=other: at.right(other(at.first))  # type: ignore[misc] # noqa: E731
        yield in_stated_steps(spec, step.blames, words, {step.name: wrong})


#: Other factors after the norm, from λ_init and λ.
_OTHER_FACTORS_OF_NORM: Mapping[str, Callable[[Any, Any], Any]] = {
    "the factor 1 − λ_init of the norm is left out": lambda init, factor: 0 * init + 1,
    "the factor of the norm is λ_init, not 1 − λ_init": lambda init, factor: init,
    "the factor of the norm is 1 − λ, not 1 − λ_init": lambda init, factor: 1 - factor,
    "the norm is divided by 1 − λ_init, not multiplied": lambda init, factor: 1 / (1 - init),
}


def mistakes_of_norm_factor(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other factors than 1 − λ_init after the norm."""
    for words, factor in _OTHER_FACTORS_OF_NORM.items():
        wrong = partial(_multiply_otherwise, spec.init, factor)
        yield in_stated_steps(spec, step.blames, words, {step.name: wrong})


def _multiply_otherwise(init: Any, factor: Callable[[Any, Any], Any], at: At) -> Any:
    return at.first * factor(number(init, at.first), at.values["factor"])

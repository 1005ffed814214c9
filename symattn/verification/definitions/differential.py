"""``Differential``: the difference of two attentions to the same values, with a norm of its rows.

Code computes it in two ways: it subtracts the weights and multiplies the values once, or it calls an attention for
each half and subtracts the outputs. Each is run on the kind ``rounded``, which proves its bound; the second one with
every form of an attention that log-sums have. Weights, their difference, both outputs and λ may be stored in the format
of the inputs, as kernels for one attention return them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import fields, inputs
from symattn.attention.constants import number
from symattn.attention.letters_of_attention import SCORES
from symattn.attention.norms import rms_norm
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.scores import per_head, weighted_values
from symattn.attention.spec import Attention
from symattn.bounds import mistake, reference
from symattn.bounds.called_target import Layout
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily
from symattn.document.codec import called
from symattn.document.errors import InputError
from symattn.document.keywords import Answering
from symattn.verification.definitions import attending, lse
from symattn.verification.definitions.definition_forms import Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import Call, InnerAttention, WrongAttention
from symattn.verification.definitions.norms import affine_folded, folded, mean_square, stored
from symattn.verification.input_source import Array as Floats
from symattn.verification.input_source import Random
from symattn.verification.rules import norms

#: Other names of the parameters of a function.
_WORDS = {
    "lam": "lambda_ lambda_full lamda lamb lambd lmbda lmbd rate l",
    "gain": "weight gamma g subln_weight norm_weight",
}
#: The names of one number in code; a function may have it as a parameter.
_NAMES_OF_FACTOR = ("lam", *_WORDS["lam"].split()[:-1])
_NAMES_OF_INIT = ("lambda_init", "init")
#: λ of each head: neither 0 nor 1, which hide a softmax or its factor.
_FACTORS = (-0.5, 0.25, 0.375, 0.5, 0.75, 1.25)
#: Points from which the search for another λ starts.
_OTHER_FACTORS = (-2.0, -1.0, -0.5, -0.1, 0.1, 0.3, 0.6, 0.9, 1.2, 2.0, 5.0)


@dataclass(frozen=True, kw_only=True)
class Differential(Answering):
    """(softmax(Q₁ K₁ᵀ/√d_k) − λ softmax(Q₂ K₂ᵀ/√d_k)) V, Q₁ and Q₂ the halves of the columns of each head's Q.

    attention  the attention of each half: its scale, masks, positions and heads
    factor     λ; ``given``: an input ``lam``, with a number for each head
    norm       ``rms``: the rows of each head's output are divided by √(mean(o²) + ε), then times an input ``gain``, if
               it is given, and times 1 − λ_init
    eps        the ε of the norm
    init       λ_init of the norm

    A function takes q (…, n_q, 2 d_k), k (…, n_k, 2 d_k), v (…, n_k, d_v), and the other inputs of the attention, and
    returns (…, n_q, d_v). Where code has 2h heads of width d_k, heads 2i and 2i + 1 are the halves of head i.

    >>> import numpy as np
    >>> q, k, v = np.zeros((1, 2)), np.zeros((2, 2)), np.array([[1.0], [3.0]])
    >>> Differential(factor=0.25)(q, k, v)
    array([[1.5]])

    Source: Ye et al., Differential Transformer (2024), equations 1 and 3.
    """

    attention: Attention = field(default_factory=Attention)
    factor: int | float | Fraction | Literal["given"] = "given"
    norm: Literal["rms"] | None = None
    eps: int | float | Fraction = 0
    init: int | float | Fraction = 0

    __repr__ = fields.brief

    def __post_init__(self) -> None:
        if not isinstance(self.attention, Attention):
            raise fields.refusal(self, "attention", "be an Attention")
        if self.factor != "given" and not fields.finite(self.factor):
            raise fields.refusal(self, "factor", "be a finite number or 'given'")
        if self.norm not in (None, "rms"):
            raise fields.refusal(self, "norm", "be 'rms' or None")
        if not fields.finite(self.eps) or self.eps < 0:
            raise fields.refusal(self, "eps", "be a finite number of at least 0")
        if not fields.finite(self.init) or self.init == 1:
            raise fields.refusal(self, "init", "be a finite number other than 1")
        if self.norm is None and (self.eps or self.init):
            raise InputError("Differential: eps and init belong to norm; hint: norm='rms'")
        if self.norm is not None and not self.eps:
            # The difference of two equal rows of weights is 0.
            raise InputError(
                "Differential: without ε the norm of a row of zeros is 0/0; hint: eps=1e-5"
            )
        if not self.attention.is_softmax or self.attention.lse or self.attention.dropout:
            raise InputError(
                "Differential subtracts two softmaxes, without lse and dropout; hint: such an attention"
            )
        attending.check(self.attention, "Differential", "nd")

    def __call__(self, q: Array, k: Array, v: Array, **more: Any) -> Any:
        """Return the output: λ is the input ``lam`` (h,) if it is given, and ``gain`` (d_v,) belongs to the norm.

        Raises ``InputError`` for inputs of other shapes.
        """
        needed = inputs.needed(self.attention, "qkv")
        known = [*needed, *["lam"] * (self.factor == "given"), *["gain"] * (self.norm is not None)]
        for name in more:
            if name not in known:
                takes = ", ".join(("q", "k", "v", *known))
                raise InputError(f"Differential takes no {name} here; it takes {takes}")
        of_attention = {n: a for n, a in more.items() if n in needed}
        for half in _take_halves({"q": q, "k": k, "v": v, **of_attention}):
            inputs.check_inputs(self.attention, half)
        # Other shapes would be broadcast along tokens, or over heads.
        expected = {"lam": (self.attention.heads,), "gain": tuple(v.shape[-1:])}
        for name in [n for n in expected if n in more]:
            shape = tuple(more[name].shape) if hasattr(more[name], "shape") else ()
            if shape != expected[name] and (shape or name == "gain" or self.attention.heads > 1):
                raise InputError(
                    f"Differential: {name} has the shape {shape}, expected {expected[name]}"
                )
        return _run(self, _subtract_weights, rms_norm, q=q, k=k, v=v, **more)


Halves = tuple[dict[str, Any], dict[str, Any]]
#: From the attention, λ and the inputs of both halves to each head's output.
Difference = Callable[[Attention, Any, Halves], Any]
#: From each head's output, ε and the gain to its norm.
Norm = Callable[[Any, Any, Any], Any]


def _run(spec: Differential, subtract: Difference, norm: Norm, /, **inputs: Any) -> Any:
    """Return the output by one way of subtracting, and one of normalising."""
    gain = inputs.pop("gain", None)
    factor = _factor_of(spec, inputs)
    halves = _take_halves(inputs)
    output = subtract(spec.attention, factor, halves)
    return output if spec.norm is None else _normalise(spec, norm, output, gain)


def combine_outputs(
    spec: Differential, norm: Norm, one: Any, other: Any, factor: Any, gain: Any = None
) -> Any:
    """Return A₁ V − λ A₂ V of two outputs, by a form of the norm if the specification has one."""
    output = one - factor * _store(other)
    return output if spec.norm is None else _normalise(spec, norm, output, gain)


def _normalise(spec: Differential, norm: Norm, output: Any, gain: Any) -> Any:
    return norm(output, Fraction(spec.eps), gain) * _round_constant(1 - spec.init, output)


def _factor_of(spec: Differential, inputs: dict[str, Any]) -> Any:
    """Return λ, taken out of the inputs if it is one of them: for several heads as (h, 1, 1)."""
    if spec.factor != "given":
        return _round_constant(spec.factor, inputs["q"])
    if "lam" not in inputs:
        raise InputError("Differential: λ is an input; hint: lam=…, or Differential(factor=0.8)")
    factor = inputs.pop("lam")
    return per_head(factor) if spec.attention.heads > 1 else factor


def _round_constant(value: float | Fraction, like: Any) -> Any:
    """Return a constant, which code may hold in the format of the inputs."""
    return _store(number(value, like))


def _store(a: Any) -> Any:
    """Return the same numbers; on ``rounded``, as code may store them: in the format of the inputs."""
    return a.as_input() if hasattr(a, "as_input") else a


def _take_halves(inputs: Mapping[str, Any]) -> Halves:
    """Return the inputs of both attentions: the halves of the columns of q and k, and all of v and of the masks."""
    first, second = dict(inputs), dict(inputs)
    for name in ("q", "k"):
        columns = int(inputs[name].shape[-1])
        if columns % 2:
            raise InputError(
                f"Differential: {name} has {columns} columns, which are no two halves; hint: 2 d_k columns"
            )
        first[name] = inputs[name][..., : columns // 2]
        second[name] = inputs[name][..., columns // 2 :]
    return first, second


# -- ways --------------------------------------------------------------------------------------------------------------
def _weights_and_values(attention: Attention, half: dict[str, Any]) -> tuple[Any, Any]:
    values = reference.variant_values(attention, half)
    steps = attention.pipeline([n for n in half if half[n] is not None])
    return values["weights"], values[reference.values_name(steps)]


def _subtract_weights(attention: Attention, factor: Any, halves: Halves) -> Any:
    """Return (A₁ − λ A₂) V."""
    (one, v), (other, _) = (_weights_and_values(attention, half) for half in halves)
    difference = _store(one) - factor * _store(other)
    return weighted_values(_store(difference), v)


def _subtract_outputs(way: Compute, attention: Attention, factor: Any, halves: Halves) -> Any:
    """Return A₁ V − λ A₂ V, each by this way of computing (output, L)."""
    one, other = (_store(way(**half)[0]) for half in halves)
    return one - factor * other


def _list_ways(spec: Differential) -> tuple[Compute, ...]:
    """Return every way of subtracting, with every form of the norm."""
    differences: list[Difference] = [_subtract_weights]
    differences += [
        partial(_subtract_outputs, way) for way in lse.ways(replace(spec.attention, lse=True))
    ]
    forms = NORM_FORMS if spec.norm is not None else NORM_FORMS[:1]
    return tuple(partial(_run, spec, subtract, norm) for norm in forms for subtract in differences)


def _make_norm_form(form: Callable[..., Any]) -> Norm:
    return lambda x, eps, gain: form(eps, mean_square, x, gain)


#: o/√(mean(o²) + ε) · g; then o r · g with r the reciprocal of the root; o s with s = g r; and the first with o/√…
#: stored in the format of the inputs, before it is multiplied by the gain.
NORM_FORMS: tuple[Norm, ...] = (rms_norm, *map(_make_norm_form, (folded, affine_folded, stored)))


# -- the definition ----------------------------------------------------------------------------------------------------
def subject(spec: Differential, layout: Layout = "nd") -> Definition:
    """Return the definition of the output."""
    attention = spec.attention
    attending.check(attention, "Differential", layout)

    def laid(run: Compute) -> Compute:
        return attending.in_order(layout, ("q", "k", "v"), run)

    def made(variant: reference.Variant) -> Compute:
        return laid(partial(_run, spec, partial(_of_variants, (variant, variant)), rms_norm))

    names = frozenset(("q", "k", "v", *inputs.needed(attention, "qkv")))
    wrong = WrongAttention(attention, names, made)
    return attending.of_attention(
        attention,
        layout,
        wrong,
        title=called(spec),
        step="weights",
        outputs=("output",),
        inputs=_list_inputs(spec, layout),
        ways=tuple(map(laid, _list_ways(spec))),
        mistakes=Later(lambda: (replace(m, way=laid(m.run)) for m in _yield_mistakes(spec))),
        others=Later(lambda: _yield_wrong_attentions(spec, wrong, laid)),
        numbered=(
            *attending.by_number(attention, made, {*SCORES, "weights"}),
            *_yield_numbered(spec, laid),
        ),
        settings=attending.settings(attention) | _settings(spec),
        inner=_make_inner_attention(spec, layout, wrong),
    )


def _settings(spec: Differential) -> dict[str, Any]:
    result: dict[str, Any] = {"head_dim": lambda arrays: arrays["q"].shape[-1] // 2}
    if spec.factor != "given":
        result |= dict.fromkeys(_NAMES_OF_FACTOR, float(spec.factor))
    if spec.norm is not None:
        result |= {"eps": float(spec.eps)} | dict.fromkeys(_NAMES_OF_INIT, float(spec.init))
    return result


def _list_inputs(spec: Differential, layout: Layout) -> tuple[Input, ...]:
    """Return the inputs of the attention with twice the columns of q and k; then λ and the gain."""
    attention = spec.attention
    result = [
        replace(i, shape=i.shape.replace("d_k", "2*d_k")) if i.name in ("q", "k") else i
        for i in attending.inputs(attention, layout)
    ]
    if spec.factor == "given":
        heads = "h" if attention.heads > 1 else "1"
        result.append(Input("lam", heads, _WORDS["lam"], _draw_factors))
    if spec.norm is not None:
        result.append(Input("gain", "d_v", _WORDS["gain"], _draw_gains, needed=False, step="norm"))
    return tuple(result)


def _draw_factors(shape: tuple[int, ...], rng: Random) -> Floats:
    return rng.choice(_FACTORS, shape)


def _draw_gains(shape: tuple[int, ...], rng: Random) -> Floats:
    return rng.integers(1, 7, shape) / 4.0


def _make_inner_attention(
    spec: Differential, layout: Layout, wrong: WrongAttention
) -> InnerAttention:
    """Return the attention of which both halves get the same queries and keys, so the output is 1 − λ times its own."""
    inner = attending.inner(spec.attention, layout, wrong)

    def arrange(inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        one = inner.arrange(inputs) or {}
        return {n: _double_columns(a) if n in ("q", "k") else a for n, a in one.items()}

    def largest_score(inputs: Mapping[str, Floats]) -> float:
        return max(inner.largest_score(half) for half in _take_halves(inputs))

    def attended(call: Call, arrays: Mapping[str, Floats]) -> Floats | None:
        inputs, factor = arrange(arrays), spec.factor
        if factor == "given":
            factor = 0.5
            inputs["lam"] = np.full(max(1, spec.attention.heads), factor)
        outputs = call(inputs)
        if outputs is None or factor == 1:
            return None
        found = attending.reshape_as_attended(layout, outputs[0], arrays)
        return None if found is None else np.asarray(found / (1 - float(factor)))

    return replace(
        inner,
        arrange=arrange,
        largest_score=largest_score,
        arrays_of=lambda inputs: None,
        # A norm hides by which factor the rows differ from those of an attention.
        attended=attended if spec.norm is None else None,
        returned=False,
    )


def _double_columns(a: Floats) -> Floats:
    return np.concatenate((a, a), axis=-1)


# -- mistakes ----------------------------------------------------------------------------------------------------------
#: Steps that code writes once for each half, so that one of them may be wrong.
_STEPS_OF_ONE_HALF = ("scale", "mask", "softcap", "bias")


#: What both attentions are, the first and the second.
Variants = tuple[reference.Variant, reference.Variant]


def _in_one_half(place: int, variant: reference.Variant) -> Variants:
    """Return this variant for one of the two attentions, and the right one for the other."""
    return (reference.RIGHT, variant) if place else (variant, reference.RIGHT)


def _of_variants(
    variants: Variants,
    attention: Attention,
    factor: Any,
    halves: Halves,
) -> Any:
    """Return A₁ V − λ A₂ V with a variant of the attention for each half."""
    one, other = (
        reference.variant_values(attention, half, variant)["output"]
        for half, variant in zip(halves, variants, strict=True)
    )
    return one - factor * other


def _yield_wrong_attentions(
    spec: Differential, wrong: WrongAttention, laid: Callable[[Compute], Compute]
) -> Iterator[Mistake]:
    """Yield the mistakes of the attention: in both halves, then in one of them."""
    yield from attending.known_mistakes(wrong)
    for place, word in enumerate(("first", "second")):

        def made(variant: reference.Variant, place: int = place) -> Compute:
            pair = _in_one_half(place, variant)
            return laid(partial(_run, spec, partial(_of_variants, pair), rms_norm))

        lead = f"in the {word} of the two attentions alone: "
        one = replace(wrong, run=made, lead=lead, takes=lambda m: m.step in _STEPS_OF_ONE_HALF)
        yield from attending.known_mistakes(one)


def _yield_mistakes(spec: Differential) -> Iterator[Mistake]:
    """Yield mistakes in the difference, in its halves, and in the norm."""
    for words, wrong in _WRONG_DIFFERENCES.items():
        yield Mistake("weights", words, partial(_run, spec, wrong, rms_norm))
    for words, exchanged in _WRONG_HALVES.items():
        yield Mistake("split", words, partial(_run_with_other_halves, spec, exchanged))
    if spec.attention.scale is None and spec.attention.score == "dot":
        words = "scores are scaled by 1/√(2 d_k), the width of both halves"
        narrow = partial(_run, spec, _scale_by_both_widths, rms_norm)
        yield Mistake("scale", words, narrow)
    if isinstance(spec.attention.position, Rotary):
        words = "whole heads are rotated, not each of their halves"
        rotated = partial(_run, spec, _rotate_whole_heads, rms_norm)
        yield Mistake("position", words, rotated)
    if spec.attention.masks_anything:
        for place, word in enumerate(("first", "second")):
            unmasked = partial(_run, spec, partial(_without_mask, place), rms_norm)
            yield Mistake("mask", f"the {word} softmax has no mask", unmasked)
    if spec.factor == "given" and spec.attention.heads > 1:
        for words, other in _FACTORS_OF_OTHER_HEADS.items():
            wrong_factors = partial(_run_with_other_factors, spec, other)
            yield Mistake("weights", words, wrong_factors)
    if spec.norm is not None:
        yield from _yield_norm_mistakes(spec)


def _difference_of_weights(change: Callable[[Any, Any, Any], Any]) -> Difference:
    """Return a difference with other weights, made of λ and the weights of both halves."""

    def subtract(attention: Attention, factor: Any, halves: Halves) -> Any:
        (one, v), (other, _) = (_weights_and_values(attention, half) for half in halves)
        return weighted_values(change(factor, one, other), v)

    return subtract


def _subtract_scores(attention: Attention, factor: Any, halves: Halves) -> Any:
    """Return softmax(S₁ − λ S₂) V."""
    first, second = (reference.variant_values(attention, half) for half in halves)
    name = "scaled" if "scaled" in first else "scores"
    # Forbidden keys are forbidden afterwards, as −∞ takes no part in a difference.
    difference = first[name] - factor * second[name]
    variant = reference.Variant({name: lambda spec, values: difference})
    return reference.variant_values(attention, halves[0], variant)["output"]


def _clipped(factor: Any, one: Any, other: Any) -> Any:
    difference = one - factor * other
    return namespace_of(difference).maximum(difference, 0 * difference)


def _by_its_sum(factor: Any, one: Any, other: Any) -> Any:
    difference = one - factor * other
    return difference / namespace_of(difference).sum(difference, axis=-1, keepdims=True)


_WRONG_DIFFERENCES: dict[str, Difference] = {
    "λ is left out: the whole second softmax is subtracted": _difference_of_weights(
        lambda factor, one, other: one - other
    ),
    "the second softmax is left out": _difference_of_weights(lambda factor, one, other: one),
    "λ times the second softmax is added, not subtracted": _difference_of_weights(
        lambda factor, one, other: one + factor * other
    ),
    "the second softmax is added, without λ": _difference_of_weights(
        lambda factor, one, other: one + other
    ),
    "λ multiplies the first softmax, not the second": _difference_of_weights(
        lambda factor, one, other: factor * one - other
    ),
    "λ multiplies both softmaxes": _difference_of_weights(
        lambda factor, one, other: factor * (one - other)
    ),
    "the softmaxes are mixed: (1 − λ) times the first, less λ times the second": (
        _difference_of_weights(lambda factor, one, other: one - factor * (one + other))
    ),
    "the second softmax has the factor 1 − λ, not λ": _difference_of_weights(
        lambda factor, one, other: one - other + factor * other
    ),
    "the second softmax has the factor λ², not λ": _difference_of_weights(
        lambda factor, one, other: one - factor * factor * other
    ),
    "the difference is negated: λ times the second softmax, less the first": (
        _difference_of_weights(lambda factor, one, other: factor * other - one)
    ),
    "negative weights of the difference are set to 0": _difference_of_weights(_clipped),
    "the weights of the difference are divided by their sum": _difference_of_weights(_by_its_sum),
    "scores are subtracted, and one softmax is taken: softmax(S₁ − λ S₂)": _subtract_scores,
}


def _exchange(a: Any) -> Any:
    half = int(a.shape[-1]) // 2
    return namespace_of(a).concat((a[..., half:], a[..., :half]), axis=-1)


def _repeat_half(start: int, a: Any) -> Any:
    half = int(a.shape[-1]) // 2
    part = a[..., start * half : (start + 1) * half]
    return namespace_of(a).concat((part, part), axis=-1)


def _take_alternating(a: Any) -> Any:
    return namespace_of(a).concat((a[..., 0::2], a[..., 1::2]), axis=-1)


@dataclass(frozen=True)
class _OtherHalves:
    """Other columns of queries and keys, before their halves are taken."""

    queries: Callable[[Any], Any] = lambda a: a
    keys: Callable[[Any], Any] = lambda a: a


_first_twice, _second_twice = partial(_repeat_half, 0), partial(_repeat_half, 1)
_WRONG_HALVES: dict[str, _OtherHalves] = {
    "the halves are exchanged: λ times the first softmax is subtracted from the second": (
        _OtherHalves(_exchange, _exchange)
    ),
    "queries of one half meet keys of the other": _OtherHalves(queries=_exchange),
    "the halves are the columns with even and with odd numbers": (
        _OtherHalves(_take_alternating, _take_alternating)
    ),
    "both softmaxes are those of the first half": _OtherHalves(_first_twice, _first_twice),
    "both softmaxes are those of the second half": _OtherHalves(_second_twice, _second_twice),
    "both softmaxes have the queries of the first half": _OtherHalves(queries=_first_twice),
    "both softmaxes have the queries of the second half": _OtherHalves(queries=_second_twice),
    "both softmaxes have the keys of the first half": _OtherHalves(keys=_first_twice),
    "both softmaxes have the keys of the second half": _OtherHalves(keys=_second_twice),
}


def _run_with_other_halves(spec: Differential, other: _OtherHalves, **inputs: Any) -> Any:
    changed = inputs | {"q": other.queries(inputs["q"]), "k": other.keys(inputs["k"])}
    return _run(spec, _subtract_weights, rms_norm, **changed)


def _scale_by_both_widths(attention: Attention, factor: Any, halves: Halves) -> Any:
    q = halves[0]["q"]
    both = mistake.root(q, 2 * int(q.shape[-1]))
    variant = reference.Variant({"scaled": lambda spec, values: values["scores"] / both})
    return _of_variants((variant, variant), attention, factor, halves)


def _rotate_whole_heads(attention: Attention, factor: Any, halves: Halves) -> Any:
    """Return the difference with queries and keys that were rotated with twice the columns, and cut afterwards."""
    one, other = halves
    concat = namespace_of(one["q"]).concat
    whole = one | {n: concat((one[n], other[n]), axis=-1) for n in ("q", "k")}
    values = reference.variant_values(attention, whole)
    names = ("q_rotated", "k_rotated")
    first, second = (
        reference.Variant({n: partial(_cut_half, values[n], place) for n in names})
        for place in (0, 1)
    )
    return _of_variants((first, second), attention, factor, halves)


def _cut_half(columns: Any, place: int, spec: Attention, values: Any) -> Any:
    half = int(columns.shape[-1]) // 2
    return columns[..., place * half : (place + 1) * half]


def _without_mask(place: int, attention: Attention, factor: Any, halves: Halves) -> Any:
    unmasked = reference.Variant(
        {"masked": lambda spec, values: mistake.before(spec, values, "masked")}
    )
    return _of_variants(_in_one_half(place, unmasked), attention, factor, halves)


def _take_first_factor(lam: Any) -> Any:
    return lam[:1] + 0 * lam


def _take_mean_factor(lam: Any) -> Any:
    return namespace_of(lam).mean(lam, axis=0, keepdims=True) + 0 * lam


def _take_next_factors(lam: Any) -> Any:
    return namespace_of(lam).roll(lam, -1, axis=0)


def _reverse_factors(lam: Any) -> Any:
    return namespace_of(lam).flip(lam, axis=0)


#: λ of other heads, from all of them: (h,).
_FACTORS_OF_OTHER_HEADS: dict[str, Callable[[Any], Any]] = {
    "each head has the λ of the first head": _take_first_factor,
    "each head has the λ of the next head": _take_next_factors,
    "each head has the λ of the head at its place from the last": _reverse_factors,
    "each head has the mean of all λ": _take_mean_factor,
}


def _run_with_other_factors(spec: Differential, other: Callable[[Any], Any], **inputs: Any) -> Any:
    return _run(spec, _subtract_weights, rms_norm, **inputs | {"lam": other(inputs["lam"])})


# -- mistakes of the norm ----------------------------------------------------------------------------------------------
def _yield_norm_mistakes(spec: Differential) -> Iterator[Mistake]:
    """Yield mistakes in the norm, in its place, and in the factor after it."""

    def mistaken(words: str, how: Callable[..., Any]) -> Mistake:
        return Mistake("norm", words, partial(how, spec))

    yield mistaken("the norm of the output is left out", _run_without_norm)
    yield mistaken(
        "each of the two outputs is normalised, not their difference", _run_with_norms_before
    )
    for words, factor in _OTHER_FACTORS_OF_NORM.items():
        yield mistaken(words, partial(_run_with_other_factor_of_norm, factor))
    axes = _AXES_OF_HEADS if spec.attention.heads > 1 else {}
    for words, how in norms.norms("rms", Fraction(spec.eps), axes):
        # This norm has no bias.
        if "bias" in words:
            continue
        yield mistaken(f"in the norm of the output: {words}", partial(_run_with_other_norm, how))


_AXES_OF_HEADS = {(-2,): "the tokens", (-1, -3): "the columns of all heads"}
#: Other factors after the norm, from λ_init and λ.
_OTHER_FACTORS_OF_NORM: dict[str, Callable[[Any, Any], Any]] = {
    "the factor 1 − λ_init of the norm is left out": lambda init, factor: 0 * init + 1,
    "the factor of the norm is λ_init, not 1 − λ_init": lambda init, factor: init,
    "the factor of the norm is 1 − λ, not 1 − λ_init": lambda init, factor: 1 - factor,
    "the norm is divided by 1 − λ_init, not multiplied": lambda init, factor: 1 / (1 - init),
}


def _run_without_norm(spec: Differential, **inputs: Any) -> Any:
    output = _run_heads(spec, **inputs)
    return output * number(1 - spec.init, output)


def _run_heads(spec: Differential, **inputs: Any) -> Any:
    """Return each head's output before the norm."""
    bare = replace(spec, norm=None, eps=0, init=0)
    inputs.pop("gain", None)
    return _run(bare, _subtract_weights, rms_norm, **inputs)


def _run_with_norms_before(spec: Differential, **inputs: Any) -> Any:
    gain = inputs.pop("gain", None)
    factor = _factor_of(spec, inputs)
    one, other = (
        rms_norm(spec.attention(**half), Fraction(spec.eps), gain) for half in _take_halves(inputs)
    )
    difference = one - factor * other
    return difference * number(1 - spec.init, difference)


def _run_with_other_factor_of_norm(
    other: Callable[[Any, Any], Any], spec: Differential, **inputs: Any
) -> Any:
    gain = inputs.get("gain")
    factor = _factor_of(spec, dict(inputs))
    output = _run_heads(spec, **inputs)
    return rms_norm(output, Fraction(spec.eps), gain) * other(number(spec.init, output), factor)


def _run_with_other_norm(how: norms.Norm, spec: Differential, **inputs: Any) -> Any:
    return _normalise(spec, how, _run_heads(spec, **inputs), inputs.get("gain"))


def _yield_numbered(
    spec: Differential, laid: Callable[[Compute], Compute]
) -> Iterator[MistakeFamily]:
    """Yield another λ, and λ times a number where it is an input."""

    def times(x: float) -> Compute:
        def subtract(attention: Attention, factor: Any, halves: Halves) -> Any:
            return _subtract_weights(attention, factor * number(x, factor), halves)

        return laid(partial(_run, spec, subtract, rms_norm))

    if spec.factor == "given":
        yield MistakeFamily("weights", "λ is multiplied by {}", times, _OTHER_FACTORS)
    else:
        other: Callable[[float], Compute] = lambda x: laid(replace(spec, factor=x))  # noqa: E731
        yield MistakeFamily(
            "weights", "λ is {}", other, _OTHER_FACTORS, lambda x: replace(spec, factor=x)
        )

"""``DepthAttention``: a learned query attends to the outputs of the layers before, for each token by itself.

It is an ``Attention`` of one query whose keys and values are the same array, and whose keys have a norm. The steps, the
mistakes and the bounds are those of that attention. Code computes it in more ways: the gain of the norm may
multiply the query, and the root may divide the product of query and output. Each is run on the kind ``rounded``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.fields import brief, finite, refusal
from symattn.attention.letters_of_attention import SCORES
from symattn.attention.norms import rms_norm
from symattn.attention.scores import weighted_values
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.bounds import reference
from symattn.bounds.called_target import Layout
from symattn.bounds.mistake import Compute, Mistake
from symattn.document.codec import called
from symattn.document.errors import InputError, Undecided
from symattn.document.keywords import Answering
from symattn.verification.definitions import attending, lse
from symattn.verification.definitions.definition_forms import Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import WrongAttention
from symattn.verification.definitions.norms import (
    affine_folded,
    folded,
    mean_square,
    root_of,
    stored,
)
from symattn.verification.input_source import Random

Numbers = np.ndarray
# Layers, tokens and width of each case; few layers and many, more and fewer than tokens.
_SIZES = (
    (2, 3, 4), (3, 2, 5), (5, 4, 2), (4, 4, 3), (1, 2, 3), (2, 1, 8), (9, 2, 3), (3, 17, 2), (17, 3, 2), (33, 2, 1),
    (2, 2, 65),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DepthAttention(Answering):
    """h = Σ_l p_l V_l for each token, p = softmax over l of w · RMSNorm(V_l), with a learned query w of the layer.

    norm    norm of the keys: ``rms``, with an input ``gain`` if it is given, or None
    eps     the ε of the norm
    layers  the axis of the layers in ``outputs``: ``first``, as ``stack`` makes it, or ``inner``, before the columns

    A function takes the query w (d,), and outputs (L, …, d), or (…, L, d), of L earlier layers, the embedding among
    them, and returns (…, d). With blocks the outputs are sums of those of a block's layers, the last one as far as the
    block has come. There is no scale.

    >>> import numpy as np
    >>> outputs = np.array([[[1.0, 0.0]], [[3.0, 2.0]]])
    >>> DepthAttention()(np.zeros(2), outputs)
    array([[2., 1.]])

    Source: Kimi Team, Attention Residuals (2026). Weights of layers that no output changes: Bapna et al., Training
    Deeper Neural Machine Translation Models with Transparent Attention (2018).
    """

    norm: Literal["rms"] | None = "rms"
    eps: int | float | Fraction = Fraction(1, 10**6)
    layers: Literal["first", "inner"] = "first"

    __repr__ = brief

    def __post_init__(self) -> None:
        if self.norm not in (None, "rms"):
            raise refusal(self, "norm", "be 'rms' or None")
        if self.layers not in ("first", "inner"):
            raise refusal(self, "layers", "be 'first' or 'inner'")
        if not finite(self.eps) or self.eps < 0:
            raise refusal(self, "eps", "be a finite number of at least 0")

    # One object for every run, since the steps of an attention are cached per object.
    @cached_property
    def of_token(self) -> Attention:
        """The attention of each token: one query, and no scale."""
        if self.norm is None:
            return Attention(scale=1)
        return Attention(scale=1, qk_norm="rms", qk_norm_of="keys", eps=self.eps)

    def __call__(self, w: Array, outputs: Array, gain: Array | None = None) -> Any:
        """Return h (…, d). Raises ``InputError`` for inputs of other shapes."""
        width = tuple(outputs.shape[-1:])
        if len(outputs.shape) < 2:
            raise InputError(
                f"DepthAttention: outputs have the shape {tuple(outputs.shape)}; hint: (layers, …, d)"
            )
        if 0 in outputs.shape:
            raise InputError(
                f"DepthAttention: outputs have the shape {tuple(outputs.shape)}: an empty array has no attention"
            )
        for name, vector in (("w", w), ("gain", gain)):
            if vector is not None and tuple(vector.shape) != width:
                raise InputError(
                    f"DepthAttention: {name} has the shape {tuple(vector.shape)}, expected {width}"
                )
        if gain is not None and self.norm is None:
            raise InputError("DepthAttention: a gain belongs to norm; hint: norm='rms'")
        return _run(self, partial(_attend_by_variant, self, reference.RIGHT), w, outputs, gain)


#: From the query (1, d), the outputs of the layers (…, L, d), and the gain of their norm or None to h (…, 1, d).
Attend = Callable[[Any, Any, Any], Any]


def _run(spec: DepthAttention, attend: Attend, w: Any, outputs: Any, gain: Any = None) -> Any:
    """Return the output (…, d) by a way of attending."""
    first = spec.layers == "first"
    values = namespace_of(outputs).moveaxis(outputs, 0, -2) if first else outputs
    return attend(w[None, :], values, gain)[..., 0, :]


def _attend_by_variant(
    spec: DepthAttention, variant: reference.Variant, query: Any, values: Any, gain: Any
) -> Any:
    arrays = {"q": query, "k": values, "v": values}
    if gain is not None:
        arrays["g_k"] = gain
    return reference.variant_values(spec.of_token, arrays, variant)["output"]


# -- the definition ----------------------------------------------------------------------------------------------------
def subjects(spec: DepthAttention, layout: Layout = "nd") -> Iterator[Definition]:
    """Yield the definition for outputs (L, b, n, d), then for (L, n, d).

    Of one token a softmax over the last axis is one over the layers, so that (L, d) alone decides nothing.
    """
    definition = subject(spec)
    yield definition
    shapes = [{n: size for n, size in s.items() if n != "b"} for s in definition.shapes]
    yield replace(definition, shapes=tuple(shapes))


def subject(spec: DepthAttention) -> Definition:
    """Return the definition of the output."""
    attention = spec.of_token
    names = frozenset("qkv") | (frozenset(["g_k"]) if spec.norm else frozenset())

    def run_by(attend: Attend) -> Compute:
        return partial(_run, spec, attend)

    def made(variant: reference.Variant) -> Compute:
        return run_by(partial(_attend_by_variant, spec, variant))

    wrong = WrongAttention(attention, names, made)
    return Definition(
        title=called(spec),
        step="weights",
        inputs=tuple(_yield_inputs(spec)),
        outputs=("output",),
        ways=tuple(map(run_by, _yield_ways(spec))),
        mistakes=Later(
            lambda: (
                Mistake(step, words, run_by(attend))
                for step, words, attend in _yield_mistakes(spec)
            )
        ),
        others=Later(lambda: attending.known_mistakes(wrong)),
        shapes=tuple(_yield_sizes()),
        numbered=tuple(attending.by_number(attention, made, {*SCORES, "weights"})),
        settings={"eps": float(spec.eps)} if spec.norm else {},
    )


def _yield_inputs(spec: DepthAttention) -> Iterator[Input]:
    shape = "n_k b n_q d_k" if spec.layers == "first" else "b n_q n_k d_k"
    words = "v values V blocks x hidden hidden_states sources stack layers"
    yield Input("w", "d_k", "query q proj pseudo_query u", step="score")
    yield Input("outputs", shape, words, step="values")
    if spec.norm is not None:
        words = "weight gamma g norm_weight"
        yield Input("gain", "d_k", words, _draw_gains, needed=False, step="norm")


def _draw_gains(shape: tuple[int, ...], rng: Random) -> Numbers:
    return rng.integers(1, 7, shape) / 4.0


def _yield_sizes() -> Iterator[dict[str, int]]:
    for case, (layers, tokens, width) in enumerate(_SIZES):
        # Items beside tokens only in the first cases, as entries multiply.
        yield {"b": 2 if case < 2 else 1, "n_k": layers, "n_q": tokens, "d_k": width}


# -- ways --------------------------------------------------------------------------------------------------------------
#: From the outputs (…, L, d), ε and the gain to the keys.
Norm = Callable[[Any, Any, Any], Any]


def _yield_ways(spec: DepthAttention) -> Iterator[Attend]:
    """Yield the definition, every way of a softmax, and every form of the norm, in keys, query or scores."""
    yield partial(_attend_by_variant, spec, reference.RIGHT)
    normalise = rms_norm if spec.norm is not None else _keep
    for way in lse.ways(Attention(scale=1, lse=True)):
        yield partial(_attend_with_keys, way, normalise, spec.eps)
    if spec.norm is None:
        return
    plain = Attention(scale=1, lse=True)
    for form in (folded, affine_folded, stored):
        yield partial(_attend_with_keys, plain, partial(_normalise_by, form), spec.eps)
    yield partial(_attend_with_gain_in_query, plain, spec.eps)
    yield partial(_attend_with_divided_products, spec)


def _keep(outputs: Any, eps: Any, gain: Any) -> Any:
    return outputs


def _normalise_by(form: Callable[..., Any], outputs: Any, eps: Any, gain: Any) -> Any:
    return form(eps, mean_square, outputs, gain)


def _attend_with_keys(
    way: Compute, normalise: Norm, eps: Any, query: Any, values: Any, gain: Any
) -> Any:
    """Return the output by a way of computing (output, L) of given keys."""
    return way(q=query, k=normalise(values, eps, gain), v=values)[0]


def _attend_with_gain_in_query(way: Compute, eps: Any, query: Any, values: Any, gain: Any) -> Any:
    """Return the output with w ⊙ g in the place of w: w · (x ⊙ g) = (w ⊙ g) · x."""
    with_gain = query if gain is None else query * gain
    return _attend_with_keys(way, rms_norm, eps, with_gain, values, None)


def _attend_with_divided_products(spec: DepthAttention, query: Any, values: Any, gain: Any) -> Any:
    """Return the output with the scores (w ⊙ g) · V_l / √(mean(V_l²) + ε), as code that keeps no keys."""
    with_gain = query if gain is None else query * gain
    _, square = mean_square(values)
    products = with_gain @ values.mT / root_of(square, spec.eps).mT
    return weighted_values(softmax(products), values)


def _attend_to_part(right: Attend, part: slice, query: Any, values: Any, gain: Any) -> Any:
    return right(query, _take(values, part), gain)


# -- mistakes ----------------------------------------------------------------------------------------------------------
def _yield_mistakes(spec: DepthAttention) -> Iterator[tuple[str, str, Attend]]:
    """Yield mistakes in the layers that are read, in what becomes of their outputs, and in the axis of the softmax."""
    right = partial(_attend_by_variant, spec, reference.RIGHT)
    normalise = rms_norm if spec.norm is not None else _keep

    def keys_of(values: Any, gain: Any) -> Any:
        return normalise(values, spec.eps, gain)

    def attend_to(query: Any, keys: Any, values: Any) -> Any:
        return Attention(scale=1)(query, keys, values)

    def over_tokens(query: Any, values: Any, gain: Any) -> Any:
        if len(values.shape) < 3:
            raise Undecided("there is no axis of tokens")
        scores = query @ keys_of(values, gain).mT
        # The softmax takes the last axis, so that the axis of tokens is moved there, and back.
        weights = softmax(namespace_of(scores).moveaxis(scores, -3, -1))
        return weighted_values(namespace_of(scores).moveaxis(weights, -1, -3), values)

    yield "normalize", "the softmax runs over the tokens, not over the layers", over_tokens
    yield (
        "weights",
        "outputs of layers are added up, as in a residual stream",
        lambda w, v, g: _add(v),
    )
    words = "the mean of the layers' outputs is taken: the query is not read"
    yield "weights", words, lambda w, v, g: _add(v) / int(v.shape[-2])
    words = "the newest output is added to the mean over the layers, as in a residual stream"
    yield "values", words, lambda w, v, g: right(w, v, g) + v[..., -1:, :]
    for words, part in _PARTS.items():
        yield "values", words, partial(_attend_to_part, right, part)
    yield (
        "values",
        "keys are of the sums of the outputs so far, as of a residual stream, not of each output",
        lambda w, v, g: attend_to(w, keys_of(_sum_so_far(v), g), v),
    )
    yield (
        "values",
        "values are the sums of the outputs so far, as of a residual stream, not each output",
        lambda w, v, g: attend_to(w, keys_of(v, g), _sum_so_far(v)),
    )
    yield (
        "values",
        "keys and values are the sums of the outputs so far, as of a residual stream",
        lambda w, v, g: right(w, _sum_so_far(v), g),
    )
    if spec.norm is not None:
        yield (
            "norm",
            "values are the keys: outputs are normalised where they are added up, too",
            lambda w, v, g: attend_to(w, keys_of(v, g), keys_of(v, g)),
        )


#: Layers that are read in the place of all.
_PARTS: dict[str, slice] = {
    "the newest output is left out": slice(None, -1),
    "the embedding, the first of the outputs, is left out": slice(1, None),
    "the newest output alone is read": slice(-1, None),
}


def _take(values: Any, part: slice) -> Any:
    """Return the outputs of some layers. Raises ``Undecided`` if that is all or none of them."""
    layers = int(values.shape[-2])
    if len(range(layers)[part]) in (0, layers):
        raise Undecided("all layers are read, or none")
    return values[..., part, :]


def _add(values: Any) -> Any:
    return namespace_of(values).sum(values, axis=-2, keepdims=True)


def _sum_so_far(values: Any) -> Any:
    return namespace_of(values).cumsum(values, axis=-2)

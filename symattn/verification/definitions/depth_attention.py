"""``DepthAttention``: a learned query attends to the outputs of the layers before, for each token by itself.

It is an ``Attention`` of one query whose keys and values are the same array, and whose keys have a norm; its steps
contain those of that attention, with their mistakes. Code computes it in more ways: the gain of the norm may multiply
the query, and the root may divide the product of query and output. Each is run on the kind ``rounded``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.fields import finite, refusal
from symattn.attention.flow import Step
from symattn.attention.letters_of_attention import SCORES
from symattn.attention.norms import rms_norm
from symattn.attention.scores import weighted_values
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Layout
from symattn.bounds.mistake import Compute
from symattn.bounds.reference import Values
from symattn.document.errors import InputError
from symattn.verification.definitions import attending, lse
from symattn.verification.definitions.attention_steps import (
    ComputeAttention,
    FlowWithAttention,
    change_attention,
    replace_attention,
)
from symattn.verification.definitions.definition_forms import Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import WrongAttention
from symattn.verification.definitions.inputs_by_letters import FAMILIES
from symattn.verification.definitions.inputs_by_letters import Numbers as InputNumbers
from symattn.verification.definitions.norms import (
    affine_folded,
    draw_near_eps,
    folded,
    mean_square,
    root_of,
    stored,
)
from symattn.verification.definitions.stated_definition import define_in_steps
from symattn.verification.input_source import Random

Numbers = np.ndarray
# Layers, tokens and width of each case; few layers and many, more and fewer than tokens.
_SIZES = (
    (2, 3, 4), (3, 2, 5), (5, 4, 2), (4, 4, 3), (1, 2, 3), (2, 1, 8), (9, 2, 3), (3, 17, 2), (17, 3, 2), (33, 2, 1),
    (2, 2, 65),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class DepthAttention(FlowWithAttention):
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
    >>> DepthAttention().write_formulas(["w", "outputs", "gain"])[:4]
    ['Q = row(w)', 'V = rows(H)', 'K_norm = RMSNorm(V, g)', 'S = Q K_normᵀ']

    Source: Kimi Team, Attention Residuals (2026). Weights of layers that no output changes: Bapna et al., Training
    Deeper Neural Machine Translation Models with Transparent Attention (2018).
    """

    norm: Literal["rms"] | None = "rms"
    eps: int | float | Fraction = Fraction(1, 10**6)
    layers: Literal["first", "inner"] = "first"

    letters: ClassVar[Mapping[str, str]] = {
        "w": "w",
        "outputs": "H",
        "gain": "g",
        "query": "Q",
        "layer_outputs": "V",
        "h": "h",
    }
    axes: ClassVar[Mapping[str, str]] = {
        "query": "1 d_k",
        # Each token has an attention of its own, of one query.
        "layer_outputs": "n_q n_k d_k",
        "k_normed": "n_q n_k d_k",
        **dict.fromkeys(("scores", "scaled", "weights"), "n_q 1 n_k"),
        "output": "n_q 1 d_k",
        "h": "n_q d_k",
    }
    returned: ClassVar[tuple[str, ...]] = ("h",)
    optional: ClassVar[frozenset[str]] = frozenset(["gain"])

    def __post_init__(self) -> None:
        if self.norm not in (None, "rms"):
            raise refusal(self, "norm", "be 'rms' or None")
        if self.layers not in ("first", "inner"):
            raise refusal(self, "layers", "be 'first' or 'inner'")
        if not finite(self.eps) or self.eps < 0:
            raise refusal(self, "eps", "be a finite number of at least 0")

    # One object for every run, since the steps of an attention are cached per object.
    @cached_property
    def inner(self) -> Attention:
        """See ``FlowWithAttention``: that of each token, with one query and no scale."""
        if self.norm is None:
            return Attention(scale=1)
        return Attention(scale=1, qk_norm="rms", qk_norm_of="keys", eps=self.eps)

    @cached_property
    def taken(self) -> Mapping[str, str]:
        """See ``FlowWithAttention``."""
        arrays = {"q": "query", "k": "layer_outputs", "v": "layer_outputs"}
        return arrays if self.norm is None else {**arrays, "g_k": "gain"}

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``: the query as a row, the layers' outputs as rows of each token, and their attention."""
        yield self.state_step(
            "query", lambda w: w[None, :], "row(@0)", ("w",), role="arranged", blames="score"
        )
        is_first = self.layers == "first"
        yield self.state_step(
            "layer_outputs",
            _move_layers_before_columns if is_first else _keep,
            "rows(@0)" if is_first else "@0",
            ("outputs",),
            role="layers",
            blames="values",
        )
        yield from self.state_attention(names)
        yield self.state_step(
            "h", lambda o: o[..., 0, :], "row(@0)", ("output",), role="arranged", blames="values"
        )

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
        return self.return_run(w=w, outputs=outputs, gain=gain)


def _move_layers_before_columns(outputs: Array) -> Array:
    return namespace_of(outputs).moveaxis(outputs, 0, -2)


def _keep(outputs: Array) -> Array:
    return outputs


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
    run_variant = partial(change_attention, spec)
    wrong = WrongAttention(spec.inner, frozenset(spec.taken), run_variant)
    return define_in_steps(
        spec,
        "weights",
        tuple(_yield_inputs(spec)),
        tuple(_yield_sizes()),
        tuple(_yield_ways(spec)),
        outputs=("output",),
        families=FAMILIES | ({"tiny": _draw_outputs_near_eps} if spec.norm and spec.eps else {}),
        others=Later(lambda: attending.known_mistakes(wrong)),
        numbered=tuple(attending.by_number(spec.inner, run_variant, {*SCORES, "weights"})),
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


def _draw_outputs_near_eps(rng: Random) -> InputNumbers:
    """Draw small outputs of layers, which tell whether a norm or the scores are divided by √d."""
    return lambda name, shape: (draw_near_eps if name == "outputs" else _draw_normal)(rng, shape)


def _draw_normal(rng: Random, shape: tuple[int, ...]) -> Numbers:
    return rng.standard_normal(shape)


def _draw_gains(shape: tuple[int, ...], rng: Random) -> Numbers:
    return rng.integers(1, 7, shape) / 4.0


def _yield_sizes() -> Iterator[dict[str, int]]:
    for case, (layers, tokens, width) in enumerate(_SIZES):
        # Items beside tokens only in the first cases, as entries multiply.
        yield {"b": 2 if case < 2 else 1, "n_k": layers, "n_q": tokens, "d_k": width}


# -- ways --------------------------------------------------------------------------------------------------------------
#: From the outputs (…, L, d), ε and the gain or None to the keys.
Norm = Callable[[Any, Any, Any], Any]


def _yield_ways(spec: DepthAttention) -> Iterator[Compute]:
    """Yield the definition, every way of a softmax, and every form of the norm, in keys, query or scores."""
    yield spec.return_run
    compute: list[ComputeAttention] = []
    normalise = rms_norm if spec.norm is not None else _keep_for_keys
    for way in lse.ways(Attention(scale=1, lse=True)):
        compute.append(partial(_attend_with_keys, way, normalise))
    if spec.norm is not None:
        plain = Attention(scale=1, lse=True)
        for form in (folded, affine_folded, stored):
            compute.append(partial(_attend_with_keys, plain, partial(_normalise_by, form)))
        compute.append(partial(_attend_with_gain_in_query, plain))
        compute.append(_attend_with_divided_products)
    yield from (partial(replace_attention, spec, attend) for attend in compute)


def _keep_for_keys(outputs: Any, eps: Any, gain: Any) -> Any:
    return outputs


def _normalise_by(form: Callable[..., Any], outputs: Any, eps: Any, gain: Any) -> Any:
    return form(eps, mean_square, outputs, gain)


def _attend_with_keys(
    way: Compute, normalise: Norm, spec: Attention, arrays: Values
) -> dict[str, Any]:
    """Return the output by a way of computing (output, L) of given keys."""
    keys = normalise(arrays["k"], spec.eps, arrays.get("g_k"))
    return {"output": way(q=arrays["q"], k=keys, v=arrays["v"])[0]}


def _attend_with_gain_in_query(way: Compute, spec: Attention, arrays: Values) -> dict[str, Any]:
    """Return the output with w ⊙ g in the place of w: w · (x ⊙ g) = (w ⊙ g) · x."""
    without_gain = {**arrays, "q": _put_gain_into_query(arrays), "g_k": None}
    return _attend_with_keys(way, rms_norm, spec, without_gain)


def _attend_with_divided_products(spec: Attention, arrays: Values) -> dict[str, Any]:
    """Return the output with the scores (w ⊙ g) · V_l / √(mean(V_l²) + ε), as code that keeps no keys."""
    values = arrays["v"]
    _, square = mean_square(values)
    products = _put_gain_into_query(arrays) @ values.mT / root_of(square, spec.eps).mT
    return {"output": weighted_values(softmax(products), values)}


def _put_gain_into_query(arrays: Values) -> Any:
    gain = arrays.get("g_k")
    return arrays["q"] if gain is None else arrays["q"] * gain

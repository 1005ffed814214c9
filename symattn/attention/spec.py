"""``Attention``: one frozen description that is a specification, a function on any kind of array, and a document."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from symattn.attention.choices import check_fields
from symattn.attention.flow import Step
from symattn.attention.inputs import check_inputs
from symattn.attention.latent import Latent
from symattn.attention.pipeline import pipeline
from symattn.document.model import Document
from symattn.errors import InputError

Scale = int | float | Fraction | None


@dataclass(frozen=True, kw_only=True)
class Attention:
    """softmax(Q Kᵀ / √d_k + M) V, and its variants by fields.

    scale         factor of the scores; None is 1/√d_k, 1 is none
    causal        key j for query i iff j ≤ i + o, see ``alignment``
    alignment     ``bottom-right``: o = n_k − n_q; ``top-left``: o = 0
    mask          an input ``mask``: ``boolean`` (True may attend) or ``additive``
    padding       an input ``keep``: booleans over the keys, False for padding
    heads         number of heads h: the projections' columns are split among them, or q, k, v have an axis of heads
    kv_heads      number of heads of keys and values: query head t reads head ⌊t · kv_heads / heads⌋; None is heads
    packed        one matrix w_in (and bias b_in) of columns q | k | v in the place of w_q, w_k, w_v
    latent        keys and values from a latent: see ``Latent``
    qk_norm       queries and keys normalised, head by head: ``rms`` or ``layer`` with gains g_q, g_k where given, or
                  ``l2``, of length 1
    eps           the ε of qk_norm
    stabilised    whether the row maximum is subtracted before exponentiating
    fully_masked  what a row without any allowed key gives: ``zeros``, ``nan`` or ``error``

    Call it with q, k, v, or with x (tokens), y (for cross-attention), w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o; with x
    alone it is parameter-free. Shapes: q (…, n_q, d_k), k (…, n_k, d_k), v (…, n_k, d_v) → (…, n_q, d_v), with an axis
    of heads before the last two if there are several.

    >>> import numpy as np
    >>> Attention(causal=True)(np.zeros((2, 3)), np.zeros((2, 3)), np.array([[1.0], [3.0]]))
    array([[1.],
           [2.]])

    Source: Vaswani et al., Attention Is All You Need (2017), equation 1 and §3.2.
    """

    scale: Scale = None
    causal: bool = False
    alignment: Literal["bottom-right", "top-left"] = "bottom-right"
    mask: Literal["boolean", "additive"] | None = None
    padding: bool = False
    heads: int = 1
    kv_heads: int | None = None
    packed: bool = False
    latent: Latent | None = None
    qk_norm: Literal["rms", "layer", "l2"] | None = None
    eps: int | float | Fraction = 0
    stabilised: bool = True
    fully_masked: Literal["zeros", "nan", "error"] = "zeros"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def key_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def masks_anything(self) -> bool:
        """Whether some score may be forbidden."""
        return self.causal or self.padding or self.mask is not None

    def pipeline(self, given: Iterable[str]) -> tuple[Step, ...]:
        """The steps from the inputs named in ``given`` to the output."""
        return pipeline(self, frozenset(given))

    def document(self, given: Iterable[str] = ("q", "k", "v")) -> Document:
        """The formula, the shapes and every step, for the inputs named in ``given``."""
        from symattn.attention.document import document

        return document(self, given)

    def trace(self, *qkv: Any, **inputs: Any) -> dict[str, Any]:
        """Every named array of a run, in order: the inputs, then q, k, v, scores, scaled, masked, weights, output."""
        if len(qkv) > 3:
            raise InputError(f"Attention takes q, k, v by position, {len(qkv)} arrays were given; name the others")
        given = {**dict(zip("qkv", qkv, strict=False)), **inputs}
        values = {name: array for name, array in given.items() if array is not None}
        check_inputs(self, values)
        for step in self.pipeline(values):
            values[step.name] = step.run(*[values[name] for name in step.of])
        return values

    def __call__(self, *qkv: Any, **inputs: Any) -> Any:
        """The output of attention on the given arrays."""
        return self.trace(*qkv, **inputs)["output"]

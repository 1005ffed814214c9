"""``Attention``: one frozen description that is a specification, a function on any kind of array, and a document."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from symattn.attention.choices import check_fields
from symattn.attention.flow import Step
from symattn.attention.inputs import by_name, check_inputs
from symattn.attention.latent import Latent
from symattn.attention.pipeline import pipeline
from symattn.attention.positions.fields import Position
from symattn.document.model import Document

Scale = int | float | Fraction | Literal["1/d_k", "given"] | None
Window = int | tuple[int | None, int | None] | None


@dataclass(frozen=True, kw_only=True)
class Attention:
    """softmax(Q Kᵀ / √d_k + M) V, and its variants by fields.

    score         how queries and keys are compared: ``dot``; ``general`` Q W Kᵀ with w_s; ``additive``
                  tanh(Q W + K U) v with w_s, u_s, v_s; ``cosine``; ``distance`` −‖q − k‖²/2
    scale         factor of the scores; None is 1/√d_k for dot products and 1 for other scores; ``1/d_k``; ``given`` is
                  an input ``scale``, one number for each head
    truncate      number of columns of queries and keys that scores see, the first ones
    softcap       c for scores c tanh(S/c)
    bias          an input ``bias`` of finite numbers, added to the scores; a mask is what forbids
    causal        key j for query i iff j ≤ i + o, see ``alignment``
    alignment     ``bottom-right``: o = n_k − n_q; ``top-left``: o = 0
    window        (l, r): keys from l before the query's place i + o to r after it, None for an open side; of a causal
                  mask w keys: (w − 1, 0)
    block         number of places in a block: key j for query i iff they are in one block
    prefix        number of keys that all queries see; causal after them
    mask          an input ``mask``: ``boolean`` (True may attend) or ``additive``
    padding       an input ``keep``: booleans over the keys, False for padding
    documents     packed documents: labels ``doc``, or ``doc_q`` and ``doc_k``; places are counted in each document
    heads         number of heads h: the projections' columns are split among them, or q, k, v have an axis of heads
    kv_heads      number of heads of keys and values: query head t reads head ⌊t · kv_heads / heads⌋; None is heads
    packed        one matrix w_in (and bias b_in) of columns q | k | v in the place of w_q, w_k, w_v
    latent        keys and values from a latent: see ``Latent``
    qk_norm       queries and keys normalised, head by head: ``rms`` or ``layer`` with gains g_q, g_k where given, or
                  ``l2``, of length 1
    eps           the ε of qk_norm
    position      where tokens stand: ``Rotary``, ``Alibi``, ``Buckets``, ``Shaw``, ``TransformerXL``, ``Disentangled``
    normaliser    what makes weights of scores: ``softmax``, ``sigmoid`` (less log n_k, unless a bias is given),
                  ``relu`` (over n_k), ``sparsemax``, ``entmax`` (1.5)
    base          2 for powers of two in the place of powers of e
    sink          a logit that takes weight and gives nothing: ``given``, an input ``sink``, one for each head; ``zero``
    stabilised    whether the row maximum is subtracted before exponentiating
    fully_masked  what a row without any allowed key gives: ``zeros``, ``nan`` or ``error``
    dropout       rate; an input ``drop`` of booleans says what is kept
    lse           whether the result is (output, L), L the logarithm of what each row is divided by

    Call it with q, k, v, or with x (tokens), y (for cross-attention), w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o; with x
    alone it is parameter-free. Shapes: q (…, n_q, d_k), k (…, n_k, d_k), v (…, n_k, d_v) → (…, n_q, d_v), with an axis
    of heads before the last two if there are several.

    >>> import numpy as np
    >>> Attention(causal=True)(np.zeros((2, 3)), np.zeros((2, 3)), np.array([[1.0], [3.0]]))
    array([[1.],
           [2.]])

    Source: Vaswani et al., Attention Is All You Need (2017), equation 1 and §3.2.
    """

    score: Literal["dot", "general", "additive", "cosine", "distance"] = "dot"
    scale: Scale = None
    truncate: int | None = None
    softcap: int | float | Fraction | None = None
    bias: bool = False
    causal: bool = False
    alignment: Literal["bottom-right", "top-left"] = "bottom-right"
    window: Window = None
    block: int | None = None
    prefix: int | None = None
    mask: Literal["boolean", "additive"] | None = None
    padding: bool = False
    documents: bool = False
    heads: int = 1
    kv_heads: int | None = None
    packed: bool = False
    latent: Latent | None = None
    qk_norm: Literal["rms", "layer", "l2"] | None = None
    eps: int | float | Fraction = 0
    position: Position | None = None
    normaliser: Literal["softmax", "sigmoid", "relu", "sparsemax", "entmax"] = "softmax"
    base: Literal[2] | None = None
    sink: Literal["given", "zero"] | None = None
    stabilised: bool = True
    fully_masked: Literal["zeros", "nan", "error"] = "zeros"
    dropout: int | float | Fraction = 0
    lse: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def key_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def masks_anything(self) -> bool:
        """Whether some score may be forbidden."""
        places = self.causal or self.window is not None or self.block is not None
        return places or self.padding or self.documents or self.mask is not None

    @property
    def sides(self) -> tuple[int | None, int | None]:
        """How many keys before and after the query's place are in the window, None for an open side."""
        return (self.window - 1, 0) if isinstance(self.window, int) else self.window or (None, None)

    def pipeline(self, given: Iterable[str]) -> tuple[Step, ...]:
        """The steps from the inputs named in ``given`` to the output."""
        return pipeline(self, frozenset(given))

    def document(self, given: Iterable[str] = ("q", "k", "v")) -> Document:
        """The formula, the shapes and every step, for the inputs named in ``given``."""
        from symattn.attention.document import document

        return document(self, given)

    def trace(self, *qkv: Any, **inputs: Any) -> dict[str, Any]:
        """Every named array of a run, in order: the inputs, then q, k, v, scores, scaled, masked, weights, output."""
        values = by_name(qkv, inputs)
        check_inputs(self, values)
        for step in self.pipeline(values):
            values[step.name] = step.run(*[values[name] for name in step.of])
        return values

    def __call__(self, *qkv: Any, **inputs: Any) -> Any:
        """The output of attention on the given arrays; with ``lse``, the output and L, (…, n_q) as the scores are."""
        found = self.trace(*qkv, **inputs)
        return (found["output"], found["lse"]) if self.lse else found["output"]

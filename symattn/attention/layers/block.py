"""``Block``: attention, cross-attention and a feed-forward layer, each with its norm, around a residual stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from symattn.arrays.array import Array
from symattn.attention.fields import Described, check, refusal
from symattn.attention.flow import Step as Part
from symattn.attention.flow import Trace, steps_of, traced
from symattn.attention.layers.block_parts import block_parts, check_arrays, check_names
from symattn.attention.layers.steps import ACTIVATIONS
from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.document.model import Document
from symattn.document.printable import Shown

Norm: TypeAlias = Literal["layer", "rms"] | None
EPS = Fraction(1, 10**5)


@dataclass(frozen=True, kw_only=True, repr=False)
class Block(Described, Shown):
    """One layer of a Transformer: X' = X + Attention(Norm(X)), X'' = X' + FeedForward(Norm(X')).

    attention   the attention of the tokens to themselves
    cross       attention of the tokens to others (Y), between the two: a decoder's that reads an encoder
    norm        ``layer`` (LayerNorm), ``rms`` (RMSNorm) or None
    order       where the norm stands: ``pre``: X + f(Norm(X)); ``post``: Norm(X + f(X)); ``inner``: X + Norm(f(X));
                ``sandwich``: X + Norm(f(Norm(X)))
    parallel    whether the feed-forward layer reads X, as attention does, and not what attention gave:
                X'' = X' + FeedForward(Norm(X))
    activation  f, one of ``steps.ACTIVATIONS``, such as ``relu``, ``gelu``, ``silu``; None: no feed-forward layer
    gated       (f(Z W_gate) ⊙ Z W_up) W_down instead of f(Z W_up) W_down: SwiGLU with ``silu``, GeGLU with ``gelu``
    eps         the norms' ε, inside the root

    Call it with the tokens x (…, n, d_model), y (…, m, d_y) for cross-attention, and its parameters by name. A name
    says which part it belongs to:

    attention.w_q, attention.b_q, …     every input of the attention but x and y, such as masks: attention.keep
    cross.w_q, cross.keep, …            every input of the cross-attention
    mlp.w_up, mlp.w_gate, mlp.w_down    the feed-forward layer; mlp.b_up, mlp.b_gate, mlp.b_down are its biases
    attention_norm.gain, cross_norm.gain, mlp_norm.gain, and .bias: the norms before or after that part; those of the
                                        second norm of a sandwich: attention_norm_after.gain, …

    so that ``np.savez(file, **parameters)`` and ``json.dumps`` take a mapping of parameters as it is. Weights multiply
    from the right; biases and gains that are not given are left out.

    >>> import numpy as np
    >>> block = Block(attention=Attention(), norm=None, activation=None)
    >>> block(np.array([[1.0, 2.0], [1.0, 2.0]]))
    array([[2., 4.],
           [2., 4.]])

    Sources: Vaswani et al., Attention Is All You Need (2017), §3.1 and §3.3 (post); Xiong et al., On Layer
    Normalization in the Transformer Architecture (2020), figure 1 (pre); Liu et al., Swin Transformer V2 (2022), §3.2
    (inner); Gemma Team, Gemma 2 (2024), §2 (sandwich); Chowdhery et al., PaLM (2022), §2 (parallel).
    """

    attention: Attention
    cross: Attention | None = None
    norm: Norm = "layer"
    order: Literal["pre", "post", "inner", "sandwich"] = "pre"
    parallel: bool = False
    activation: str | None = "relu"
    gated: bool = False
    eps: int | float | Fraction = EPS

    def __post_init__(self) -> None:
        if not isinstance(self.attention, Attention):
            raise refusal(self, "attention", "be an Attention")
        if not isinstance(self.cross, Attention | None):
            raise refusal(self, "cross", "be an Attention or None")
        check(self)
        if self.activation not in (*ACTIVATIONS, None):
            raise refusal(self, "activation", f"be one of {', '.join(ACTIVATIONS)}, None")
        if self.gated and self.activation is None:
            raise InputError(
                "Block: gated is True, but there is no feed-forward layer to gate; hint: give an activation"
            )
        if self.attention.lse or (self.cross and self.cross.lse):
            raise InputError("Block: lse gives a second result, for which a block has no place; hint: lse=False")
        if self.parallel and self.order == "post":
            raise InputError("Block: parallel parts read X, and after a norm outside it is gone; hint: order='pre'")

    def pipeline(self, input_names: Iterable[str]) -> tuple[Part, ...]:
        """Return the steps from the inputs named in ``input_names`` to the output."""
        return steps_of(self, input_names, _steps)

    def trace(self, x: Array, y: Array | None = None, **inputs: object) -> Trace:
        """Every named array of a run, in order: the inputs, then those of each part under its name, then output."""
        return traced(self, {"x": x, "y": y, **inputs}, check_arrays)

    def __call__(self, x: Array, y: Array | None = None, **inputs: object) -> Any:
        """Return the tokens after the block: (…, n, d_model)."""
        return self.trace(x, y, **inputs)["output"]

    def document(self, names: Iterable[str] = ()) -> Document:
        """The formula, the shapes and every step; without names, for all weights and no biases of linear layers."""
        from symattn.attention.layers.layer_documents import block_document

        return block_document(self, names)


def _steps(block: Block, names: frozenset[str]) -> list[Part]:
    check_names(block, sorted(names))
    return block_parts(block, {name: name for name in names})

"""``Transformer``: from the numbers of tokens to logits, one description that is a function on any kind of array."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from symattn.arrays.array import Array
from symattn.attention.fields import Described, check, finite, refusal
from symattn.attention.flow import Step as Part
from symattn.attention.flow import Trace, traced
from symattn.attention.layers.block import EPS, Block, Norm
from symattn.attention.layers.transformer_inputs import check_arrays, check_names
from symattn.attention.layers.transformer_parts import transformer_parts
from symattn.document.errors import InputError
from symattn.document.model import Document
from symattn.document.printable import Shown


@dataclass(frozen=True, kw_only=True, repr=False)
class Transformer(Described, Shown):
    """Logits of tokens: embeddings and positions, blocks, a norm, and one logit for each word of the vocabulary.

    decoder         blocks, one after another; with ``cross`` they read the encoder's output
    encoder         blocks; alone, it is the whole model, and with a decoder it reads ``source``
    embedding_norm  a norm of the embedded tokens: ``layer``, ``rms`` or None
    norm            a norm after the last block of each stack
    eps             these norms' ε, inside the root
    scaled          whether embeddings are multiplied by √d_model
    positions       what is added to embeddings: ``given`` (an input ``position_embedding``, such as a learned table),
                    ``sinusoidal`` or None; rotary and relative positions are fields of ``Attention``
    tied            logits by the embeddings, X Eᵀ, instead of by an input ``unembedding``
    softcap         c for c tanh(logits / c), or None

    Call it with the tokens' numbers, whole numbers (…, n) from 0, and its parameters by name:

    embedding           (vocabulary, d_model); source_embedding for the encoder's tokens, if they are others
    position_embedding  (n or more, d_model); source_position_embedding for the encoder's tokens, if it is another
    unembedding         (d_model, vocabulary), unembedding_bias (vocabulary,)
    embedding_norm.gain, encoder_norm.gain, decoder_norm.gain, and .bias
    decoder.0.attention.w_q, …  the parameters of the first block, by their names in ``Block``; encoder.0. likewise
    decoder.attention.keep, …   without a number: for every block of the stack

    so that ``np.savez(file, **parameters)`` and ``json.dumps`` take a mapping of parameters as it is.

    >>> import numpy as np
    >>> from symattn import Attention
    >>> model = Transformer(decoder=(Block(attention=Attention(causal=True), activation=None),), tied=True)
    >>> model(np.array([1, 0]), embedding=np.eye(2)).shape
    (2, 2)

    Sources: Vaswani et al., Attention Is All You Need (2017), §3; Radford et al., GPT-2 (2019), §2.3 (decoder alone,
    norm at the end); Devlin et al., BERT (2019), §3 (encoder alone); Gemma Team, Gemma 2 (2024), §2 (softcap of
    logits); Le Scao et al., BLOOM (2022), §3.2 (norm of the embeddings).
    """

    decoder: tuple[Block, ...] = ()
    encoder: tuple[Block, ...] = ()
    embedding_norm: Norm = None
    norm: Norm = "layer"
    eps: int | float | Fraction = EPS
    scaled: bool = False
    positions: Literal["given", "sinusoidal"] | None = None
    tied: bool = False
    softcap: int | float | Fraction | None = None

    def __post_init__(self) -> None:
        check(self)
        if self.softcap is not None and (not finite(self.softcap) or self.softcap <= 0):
            raise refusal(self, "softcap", "be a finite number above 0, or None")
        for field in ("decoder", "encoder"):
            blocks = getattr(self, field)
            if not isinstance(blocks, tuple) or not all(isinstance(block, Block) for block in blocks):
                raise refusal(self, field, "be a tuple of Blocks")
        self._check_together()

    def _check_together(self) -> None:
        if not self.decoder and not self.encoder:
            raise InputError("Transformer: neither encoder nor decoder has blocks; hint: decoder=(Block(…),)")
        if any(block.cross for block in self.encoder):
            raise InputError("Transformer: a block of the encoder has cross-attention, and nothing to attend to")
        crossed = [block.cross is not None for block in self.decoder]
        if any(crossed) and not self.encoder:
            raise InputError("Transformer: the decoder has cross-attention, and there is no encoder to attend to")
        if self.encoder and self.decoder and not any(crossed):
            raise InputError("Transformer: no block of the decoder has cross-attention, so that it ignores the encoder")

    def pipeline(self, input_names: Iterable[str]) -> tuple[Part, ...]:
        """The steps from the inputs named in ``input_names`` to the logits."""
        names = list(input_names)
        check_names(self, names)
        return tuple(transformer_parts(self, names))

    def trace(self, tokens: Array, source: Array | None = None, **inputs: object) -> Trace:
        """Every named array of a run, in order: the inputs, then those of each part under its name, then logits."""
        return traced(self, {"tokens": tokens, "source": source, **inputs}, check_arrays)

    def __call__(self, tokens: Array, source: Any = None, **inputs: Any) -> Any:
        """The logits of the tokens: (…, n, vocabulary)."""
        return self.trace(tokens, source, **inputs)["logits"]

    def document(self) -> Document:
        """The formula, the shapes and every step, for all weights and no biases of linear layers."""
        from symattn.attention.layers.transformer_document import transformer_document

        return transformer_document(self)

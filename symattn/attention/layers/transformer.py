"""``Transformer``: from the numbers of tokens to logits, one description that is a function on any kind of array."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import made_wide
from symattn.attention.fields import Described, check, finite, refusal
from symattn.attention.flow import Step as Part
from symattn.attention.flow import Trace, traced
from symattn.attention.layers import block as parts
from symattn.attention.layers import steps as layers
from symattn.attention.layers.block import EPS, Block, Norm, below
from symattn.attention.letters_of_attention import Named
from symattn.attention.positions.angles import sinusoidal
from symattn.attention.positions.rotary import inverse_frequencies, tables
from symattn.attention.projections import project
from symattn.attention.scores import softcap
from symattn.attention.sizes import AxisLengths, check_holds, written
from symattn.document.errors import InputError, among
from symattn.document.model import Document
from symattn.document.notation import name
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
            if not isinstance(blocks, tuple) or not all(
                isinstance(block, Block) for block in blocks
            ):
                raise refusal(self, field, "be a tuple of Blocks")
        if not self.decoder and not self.encoder:
            raise InputError(
                "Transformer: neither encoder nor decoder has blocks; hint: decoder=(Block(…),)"
            )
        if any(block.cross for block in self.encoder):
            raise InputError(
                "Transformer: a block of the encoder has cross-attention, and nothing to attend to"
            )
        crossed = [block.cross is not None for block in self.decoder]
        if any(crossed) and not self.encoder:
            raise InputError(
                "Transformer: the decoder has cross-attention, and there is no encoder to attend to"
            )
        # An encoder that nothing reads would be computed in vain.
        if self.encoder and self.decoder and not any(crossed):
            raise InputError(
                "Transformer: no block of the decoder has cross-attention, so that it ignores the encoder"
            )

    def pipeline(self, input_names: Iterable[str]) -> tuple[Part, ...]:
        """Return the steps from the inputs named in ``input_names`` to the logits."""
        names = list(input_names)
        check_names(self, names)
        return tuple(transformer_parts(self, names))

    def trace(self, tokens: Array, source: Array | None = None, **inputs: object) -> Trace:
        """Every named array of a run, in order: the inputs, then those of each part under its name, then logits."""
        return traced(self, {"tokens": tokens, "source": source, **inputs}, check_arrays)

    def __call__(self, tokens: Array, source: Any = None, **inputs: Any) -> Any:
        """Return the logits of the tokens: (…, n, vocabulary)."""
        return self.trace(tokens, source, **inputs)["logits"]

    def document(self) -> Document:
        """Return the formula, the shapes and every step, for all weights and no biases of linear layers."""
        from symattn.attention.layers.layer_documents import transformer_document

        return transformer_document(self)


# -- the steps ---------------------------------------------------------------------------------------------------------
# Letters of embedded tokens, of the tokens that blocks read, and of logits.
_E, _X, _L = name("X", "0", role="input"), name("X", role="input"), name("L", role="output")


def transformer_parts(model: Transformer, given: Collection[str]) -> list[Part]:
    """Return the steps of a model from the inputs named in ``given`` to the logits."""
    stream = parts.Stream(
        {n: n for n in given}, {n: array.symbol for n, array in own_arrays(model).items()}
    )
    encoded = ""  # the encoder's last step, which cross-attention reads
    for stack in stacks(model):
        _add_token_embedding_steps(model, stream, stack)
        for prefix, block, names in block_names(model, given):
            if prefix.startswith(stack):
                # Only blocks with cross-attention read the encoder.
                tokens = {"x": stream.now} | ({"y": encoded} if block.cross and encoded else {})
                for part in parts.block_parts(block, names | tokens, prefix):
                    stream.append(part)
        if model.norm:
            stream.norm(model.norm, model.eps, f"{stack}_norm", f"{stack}_norm.output", name("Z"))
        encoded = stream.now
    _add_logit_steps(model, stream)
    return stream.parts


def _add_token_embedding_steps(model: Transformer, stream: parts.Stream, stack: str) -> None:
    """Add the embedded tokens of a stack."""
    ids = ids_of(model, stack)

    def run(table: Array, ids: Array) -> Array:
        rows = layers.embed(table, ids)
        return layers.widen(rows) if model.scaled else rows

    table = embedding_of(stream.names, ids)
    written = "√d_model " * model.scaled + ("E'_{@1}" if table == "source_embedding" else "E_{@1}")
    stream.add(
        f"{stack}.embedded", run, [table, ids], _E, written, "one row of the table for each token"
    )
    if model.positions:
        result, letter = (
            f"{stack}.positioned",
            # The last step before the blocks has the letter X, whichever it is.
            _X if not model.embedding_norm else name("X'", role="input"),
        )
        if model.positions == "sinusoidal":
            reason = "sinusoidal positions: sines and cosines of the place, at falling frequencies"
            stream.add(result, _add_sinusoidal, [stream.now], letter, "@0 + P", reason)
        else:
            of = [stream.now, positions_of(stream.names, ids_of(model, stack))]
            stream.add(
                result, learned, of, letter, "@0 + @1", "one row of positions for each place"
            )
    if model.embedding_norm:
        stream.norm(
            model.embedding_norm, model.eps, "embedding_norm", f"{stack}.embedding_norm.output", _X
        )


def sinusoids(positions: object, width: int, like: Array) -> Array:
    """The sinusoidal embeddings of positions: sin(p ω_l) and cos(p ω_l) in columns 2l and 2l + 1, ω_l = 10000^(−2l/d).

    Shapes: positions (…, n) → (…, n, d). Source: Vaswani et al., Attention Is All You Need (2017), §3.5.
    """
    return sinusoidal(*tables(positions, inverse_frequencies(width, 10000, like)))


def learned(x: Array, table: Array) -> Array:
    """x_i + e_i with the rows e_i of a learned table.

    Shapes: x (…, n, d), table (m, d) with n ≤ m. Source: Gehring et al., Convolutional Sequence to Sequence
    Learning (2017), §3.1; so in BERT and GPT-2.
    """
    return x + table[..., : x.shape[-2], :]


def _add_sinusoidal(x: Array) -> Any:
    # Positions are plain integers: angles need a number of rows.
    places = namespace_of(x).arange(int(x.shape[-2]))
    return x + made_wide(partial(sinusoids, places, int(x.shape[-1])), x)


def _add_logit_steps(model: Transformer, stream: parts.Stream) -> None:
    bias = ["unembedding_bias"] if "unembedding_bias" in stream.names else []
    table = (
        embedding_of(stream.names, ids_of(model, stacks(model)[-1]))
        if model.tied
        else "unembedding"
    )
    run, reason = project, "one logit for each word"
    if model.tied:  # Press, Wolf, Using the Output Embedding to Improve Language Models (2017)
        run, reason = (lambda x, table, *bias: project(x, table.mT, *bias)), "the embeddings again"
    # Capped logits have the name "logits", so that the result has one name in both cases.
    result = "logits" if model.softcap is None else "logits_uncapped"
    written = f"@0 @1{'ᵀ' * model.tied}{' + @2' * len(bias)}"
    stream.add(result, run, [stream.now, table, *bias], _L, written, reason)
    if model.softcap is not None:
        cap, words = (
            partial(softcap, cap=model.softcap),
            f"softcap: c tanh(L/c), c = {model.softcap}",
        )
        stream.add("logits", cap, [result], name("L'", role="output"), "softcap(@0)", words)


# -- inputs, and checks that arrays fit each other ---------------------------------------------------------------------
# In the order in which they run: the decoder reads the encoder.
STACKS = ("encoder", "decoder")
# Inputs that are numbers of tokens, not elements of a kind.
IDS: dict[str, Named] = {
    "tokens": Named("t", "Numbers of the tokens", "… n", "input", holds="whole numbers"),
    "source": Named(
        "s", "Numbers of the encoder's tokens", "… n_k", "input", holds="whole numbers"
    ),
}
# All inputs of a model besides those of its blocks and norms.
ARRAYS: dict[str, Named] = IDS | {
    "embedding": Named("E", "Embeddings", "vocabulary d_model"),
    "source_embedding": Named(
        "E'", "Embeddings of the encoder's tokens", "source_vocabulary d_model"
    ),
    "position_embedding": Named("P", "Positions, one row each", "rows d_model"),
    "source_position_embedding": Named(
        "P'", "Positions of the encoder's tokens", "source_rows d_model"
    ),
    "unembedding": Named("W_U", "Unembedding", "d_model words", "output"),
    "unembedding_bias": Named("b_U", "Its bias", "words", "output"),
}


class Shaped(NamedTuple):
    """A placeholder for an array that is yet to be computed. Its dtype is unknown, as with letters."""

    shape: tuple[Any, ...]
    dtype: None = None


def stacks(model: Transformer) -> tuple[str, ...]:
    """Return the stacks that have blocks."""
    return tuple(stack for stack in STACKS if getattr(model, stack))


def ids_of(model: Transformer, stack: str) -> str:
    """Return the name of the input that holds the tokens of a stack."""
    # The encoder reads ``source`` only beside a decoder; alone it reads the tokens.
    return "source" if stack == "encoder" and model.decoder else "tokens"


def own_arrays(model: Transformer) -> dict[str, Named]:
    """Return the inputs of a model other than those of its blocks."""
    both = len(stacks(model)) == 2
    wanted = {
        "source": both,
        "source_embedding": both,
        "position_embedding": model.positions == "given",
        "source_position_embedding": model.positions == "given" and both,
        "unembedding": not model.tied,
    }
    result = {n: named for n, named in ARRAYS.items() if wanted.get(n, True)}
    if model.embedding_norm:
        result |= parts.norm_arrays("embedding_norm", "E")
    if model.norm:
        for stack in stacks(model):
            result |= parts.norm_arrays(f"{stack}_norm", stack[0])
    return result


def block_names(
    model: Transformer, names: Iterable[str]
) -> Iterator[tuple[str, Block, dict[str, str]]]:
    """Yield each block's prefix and inputs by its own names: ``attention.w_q`` → ``decoder.0.attention.w_q``."""
    names = list(names)
    for stack in stacks(model):
        shared = _inputs_shared_by_stack(stack, names)
        for index, block in enumerate(getattr(model, stack)):
            prefix = f"{stack}.{index}."
            yield prefix, block, shared | below(prefix, names)


def _inputs_shared_by_stack(stack: str, names: Iterable[str]) -> dict[str, str]:
    """Return the inputs that are given once for all blocks of a stack."""
    return {
        n: full
        for n, full in below(f"{stack}.", names).items()
        # A number after the stack names one block.
        if not n.partition(".")[0].isdecimal()
    }


def check_names(model: Transformer, input_names: Iterable[str]) -> None:
    """Raise InputError for a missing or unknown input."""
    input_names = set(input_names)
    own = own_arrays(model)
    used = {full for _, _, names in block_names(model, input_names) for full in names.values()}
    used |= {
        full
        for stack in stacks(model)
        for full in _inputs_shared_by_stack(stack, input_names).values()
    }
    for n in input_names:
        if n not in own and n not in used:
            raise InputError(
                f"unknown input {n!r}{among(n, (*own, *(f'{stack}.0.…' for stack in stacks(model))))}"
            )
    optional = ("source_embedding", "source_position_embedding", "unembedding_bias")
    missing = [n for n in own if n not in input_names and n not in optional and "_norm." not in n]
    if missing:
        raise InputError(
            f"the model needs the input{'s' * (len(missing) > 1)} {', '.join(missing)}"
        )
    for prefix, block, names in block_names(model, input_names):
        # The model makes x and y; a block alone expects them.
        with_tokens = {"x", *names} | ({"y"} if block.cross else set())
        with parts.place_named(prefix.removesuffix(".")):
            for n in parts.TOKENS:
                if n in names:
                    raise InputError(
                        f"{n} is made by the model; give {' and '.join(i for i in IDS if i in own)} alone"
                    )
            parts.check_names(block, with_tokens)


def check_arrays(model: Transformer, inputs: Mapping[str, Any]) -> None:
    """Raise InputError for an ill-shaped input."""
    sizes = AxisLengths(words={"words": "the vocabulary"})
    for n, named in own_arrays(model).items():
        if n in inputs:
            sizes.bind(n, inputs[n], named.shape)
            check_holds(n, inputs[n], named.holds)
    # Rows of tables are looked up before blocks are checked, so that errors name the tokens.
    for stack in stacks(model):
        ids = ids_of(model, stack)
        _check_range(ids, inputs[ids], embedding_of(inputs, ids), inputs)
    _check_rows(model, inputs)
    width = inputs["embedding"].shape[-1]
    # Blocks read embedded tokens, of which the shape is known before any step runs.
    embedded = {
        stack: Shaped((*inputs[ids_of(model, stack)].shape, width)) for stack in stacks(model)
    }
    for prefix, block, names in block_names(model, inputs):
        arrays = {n: inputs[full] for n, full in names.items()} | {
            "x": embedded[prefix.partition(".")[0]]
        }
        if block.cross:
            arrays["y"] = embedded["encoder"]
        with parts.place_named(prefix.removesuffix(".")):
            parts.check_arrays(block, arrays)


def _check_range(name: str, ids: Array, table: str, inputs: Mapping[str, Any]) -> None:
    """Raise InputError for tokens that are not rows of the table; letters are not checked."""
    if ids.dtype is None:
        return
    xp: Any = namespace_of(ids)
    rows = int(inputs[table].shape[0])
    for result in (int(xp.min(ids)), int(xp.max(ids))):
        if not 0 <= result < rows:
            raise InputError(f"{name} holds {result}; {table} has the rows 0 to {rows - 1}")


def _check_rows(model: Transformer, inputs: Mapping[str, Any]) -> None:
    for stack in stacks(model):
        ids = ids_of(model, stack)
        table = positions_of(inputs, ids) if model.positions == "given" else None
        if table and int(inputs[table].shape[0]) < int(inputs[ids].shape[-1]):
            rows = f"{table} has shape {written(inputs[table])}: {inputs[table].shape[0]} rows"
            raise InputError(f"{rows} for {inputs[ids].shape[-1]} places")


def positions_of(names: Iterable[str], ids: str) -> str:
    """Return the name of the input that holds the positions of some tokens."""
    own = f"{ids}_position_embedding"
    # The encoder's tokens use the common table unless they have one of their own.
    return own if own in names else "position_embedding"


def embedding_of(names: Iterable[str], ids: str) -> str:
    """Return the name of the input that holds the embeddings of some tokens."""
    own = f"{ids}_embedding"
    return own if own in names else "embedding"

"""Blocks and Transformers as documents: inputs, every step with its shape and reason, and conventions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from symattn.attention import inputs
from symattn.attention.document import conventions, parameters, shape, step, table, times
from symattn.attention.flow import Step as Part
from symattn.attention.layers import transformer
from symattn.attention.layers.block import (
    ORDERS,
    TITLES,
    attention_letters,
    below,
    norm_places,
    own_arrays,
    sublayers,
)
from symattn.attention.layers.steps import ACTIVATIONS
from symattn.attention.layers.transformer import stacks
from symattn.attention.letters_of_attention import N_Q, SIZES, SYMBOLS, N
from symattn.document.formulas import formula, running_text
from symattn.document.model import Block as Piece
from symattn.document.model import Document, Heading, Items, Paragraph, Step, Steps, Text
from symattn.document.notation import Node, WrittenNumber, name, replaced

if TYPE_CHECKING:
    from symattn.attention.layers.block import Block
    from symattn.attention.layers.transformer import Transformer

# Headings of the parts of a block.
_SECTIONS = {"attention": "Attention", "cross": "Cross-attention", "mlp": "Feed-forward layer"}
# Letters of lengths, with those that only layers have.
_LETTERS = SIZES | {"n": N, "m": name("m"), "d_ff": name("d", "ff")}
_WIDE = ("up", "gate", "hidden")  # the arrays of a feed-forward layer that are d_ff wide


def block_document(block: Block, input_names: Iterable[str]) -> Document:
    """Return the document of ``block`` for the inputs named in ``input_names``; for all weights if none are."""
    names = list(input_names) or default_names(block)
    blocks: tuple[Piece, ...] = (
        Steps(tuple(Step(formula) for formula in whole_formulas(block))),
        Heading(("Inputs",)),
        table(block_rows(block, names)),
        Heading(("Steps",)),
        *sections(block, block.pipeline(names), names),
        Heading(("Conventions",)),
        Items(tuple(block_conventions(block))),
    )
    return Document(
        "derivation", "block", ("Transformer block",), blocks, parameters=parameters(block)
    )


def default_names(block: Block) -> list[str]:
    """Return the inputs of a block: its tokens, all weights, gains, and biases of LayerNorm."""
    result = ["x"] + ["y"] * (block.cross is not None)
    for norm in norm_places(block):
        result += [f"{norm}.gain"] + [f"{norm}.bias"] * (block.norm == "layer")
    for part in sublayers(block):
        if part == "mlp":
            result += ["mlp.w_up", *["mlp.w_gate"] * block.gated, "mlp.w_down"]
        else:
            spec = getattr(block, part)
            weights = ["w_q", "w_k", "w_v"]
            # Packed and latent attention have matrices of their own, which ``needed`` lists.
            if spec.packed or spec.latent:
                weights = ["w_q"] * bool(spec.latent and not spec.latent.queries)
            result += [f"{part}.{n}" for n in [*weights, "w_o", *inputs.needed(spec, ())]]
    return result


def whole_formulas(block: Block) -> Iterator[Node]:
    """Return one formula for each part: X' = X + Attention(LayerNorm(X))."""
    where = ORDERS[block.order] if block.norm else ()
    words = {
        "attention": "Attention({})",
        "cross": "CrossAttention({}, Y)",
        "mlp": "FeedForward({})",
    }
    x = "X"

    def normed(place: str, inner: str) -> str:
        return f"{TITLES[str(block.norm)]}({inner})" if place in where else inner

    for part in sublayers(block):
        read = "X" if block.parallel and part == "mlp" else x
        got = f"{x} + {normed('after', words[part].format(normed('before', read)))}"
        after = f"{x}'"
        yield formula(f"{after} = {normed('outside', got)}", {"X": "input", "Y": "input"})
        x = after


def block_rows(
    block: Block, names: Iterable[str], prefix: str = ""
) -> Iterator[tuple[str, Node, Text]]:
    """Name, letter and shape of each input."""
    own = own_arrays(block)
    names = list(names)
    for n in names:
        if n in own:
            yield prefix + n, own[n].symbol, times(lengths(own[n].shape))
        else:
            part, _, array = n.partition(".")
            symbol = replaced(SYMBOLS[array], attention_letters(part))
            yield (
                prefix + n,
                symbol,
                times(shape(array, getattr(block, part), _input_names_of_part(part, names))),
            )


def _input_names_of_part(part: str, names: Iterable[str]) -> list[str]:
    return ["x", *(["y"] if part == "cross" else []), *below(f"{part}.", names)]


def lengths(letters: str) -> tuple[Node, ...]:
    """Return a shape in letters, without axes of batches."""
    return tuple(_LETTERS.get(axis) or name(axis) for axis in letters.split() if axis != "…")


def sections(
    block: Block, parts: Iterable[Part], names: Sequence[str], prefix: str = ""
) -> Iterator[Piece]:
    """Yield the steps of a block, a section for each of its parts."""
    rest = list(parts)
    for part in sublayers(block):
        end = f"{prefix}{'output' if part == sublayers(block)[-1] else f'{part}_stream'}"
        # The residual is the last step of each part, so it ends the section.
        last = next(i for i, p in enumerate(rest) if p.name == end)
        mine, rest = rest[: last + 1], rest[last + 1 :]
        yield Heading((_SECTIONS[part],), 2)
        yield Steps(
            tuple(
                step(p, _lengths_of_block_array(block, p.name.removeprefix(prefix), names))
                for p in mine
            )
        )


def _lengths_of_block_array(block: Block, array: str, names: Sequence[str]) -> tuple[Node, ...]:
    part, _, own = array.partition(".")
    if part in ("attention", "cross"):
        results = shape(own, getattr(block, part), _input_names_of_part(part, names))
        # Within a block queries and tokens have one length, n.
        return tuple(replaced(size, {N_Q: N}) for size in results)
    return lengths("n d_ff" if part == "mlp" and own in _WIDE else "n d_model")


def block_conventions(block: Block) -> list[Text]:
    """Return the conventions of a block: its activation, its norm, and those of its attentions."""
    result: list[Text] = []
    if block.activation:
        activation = ACTIVATIONS[block.activation]
        result.append(running_text(f"${activation.sign}(x) = {activation.formula}$"))
    if block.norm:
        result.append(norm_convention(block.norm, block.eps))
    for part in ("attention", "cross"):
        spec = getattr(block, part)
        result += [text for text in conventions(spec) if text not in result] if spec else []
    return result


def norm_convention(norm: str, eps: int | float | Fraction) -> Text:
    """Return the convention of a norm."""
    of_rms = norm == "rms"
    words = (
        "the mean is that of each token"
        if of_rms
        else "mean and variance are those of each token, the variance with the divisor $d_model$"
    )
    # Formulas have no ε where it is 0.
    return running_text(f"$ε = {WrittenNumber(eps).typed}$: {words}" if eps else words)


# -- a Transformer: inputs, the blocks that differ, conventions --------------------------------------------------------
def transformer_document(model: Transformer) -> Document:
    """Return the document of ``model``, for all weights, gains, and biases of LayerNorm."""
    names = _input_names_of_model(model)
    parts = model.pipeline(names)
    result: list[Text] = []
    if model.norm or model.embedding_norm:
        result.append(norm_convention(model.norm or str(model.embedding_norm), model.eps))
    for stack in stacks(model):
        for _, block, _ in _yield_distinct_blocks(model, stack):
            result += [text for text in block_conventions(block) if text not in result]
    blocks: tuple[Piece, ...] = (
        Heading(("Inputs",)),
        table(_yield_model_input_rows(model, names)),
        *_yield_equal_block_notes(model),
        Heading(("Steps",)),
        *_yield_sections_of_stacks(model, parts),
        Heading(("Conventions",)),
        Items(tuple(result)),
    )
    return Document(
        "derivation", "transformer", ("Transformer",), blocks, parameters=parameters(model)
    )


def _input_names_of_model(model: Transformer) -> list[str]:
    """Return the inputs of a model: its tokens, tables, weights, gains, and biases of LayerNorm."""
    optional = ("source_embedding", "source_position_embedding", "unembedding_bias")
    rms = {"embedding_norm": model.embedding_norm == "rms", "encoder_norm": model.norm == "rms"}
    rms["decoder_norm"] = rms["encoder_norm"]
    without = [f"{norm}.bias" for norm, gains_alone in rms.items() if gains_alone]
    result = [n for n in transformer.own_arrays(model) if n not in optional and n not in without]
    for stack in stacks(model):
        for index, block in enumerate(getattr(model, stack)):
            result += [f"{stack}.{index}.{n}" for n in default_names(block) if n not in ("x", "y")]
    return result


def _yield_distinct_blocks(
    model: Transformer, stack: str
) -> Iterator[tuple[int, Block, list[int]]]:
    """Yield the blocks of a stack that differ, each with its number and those of all that are like it."""
    blocks: Sequence[Block] = getattr(model, stack)
    for index, block in enumerate(blocks):
        # Equal blocks have equal steps, which are printed once.
        if block not in blocks[:index]:
            yield index, block, [i for i, other in enumerate(blocks) if other == block]


def _yield_model_input_rows(
    model: Transformer, names: Sequence[str]
) -> Iterator[tuple[str, Node, Text]]:
    own = transformer.own_arrays(model)
    for n in names:
        if n in own:
            yield n, own[n].symbol, times(lengths(own[n].shape))
    for stack in stacks(model):
        for index, block, _ in _yield_distinct_blocks(model, stack):
            needed = [n for n in default_names(block) if n not in ("x", "y")]
            yield from block_rows(block, needed, f"{stack}.{index}.")


def _yield_equal_block_notes(model: Transformer) -> Iterator[Piece]:
    """Return which blocks take the same inputs as an earlier one."""
    for stack in stacks(model):
        for index, _, alike in _yield_distinct_blocks(model, stack):
            if len(alike) > 1:
                others = ", ".join(f"{stack}.{i}" for i in alike[1:])
                yield Paragraph(
                    (f"{others}: the same inputs as {stack}.{index}, with values of their own.",)
                )


def _yield_sections_of_stacks(model: Transformer, parts: Sequence[Part]) -> Iterator[Piece]:
    for stack in stacks(model):
        yield Heading((f"What the {stack} reads",), 2)
        before = (f"{stack}.embedded", f"{stack}.positioned", f"{stack}.embedding_norm.output")
        yield _document_steps_of_size([p for p in parts if p.name in before], "n d_model")
        yield from _yield_block_sections(model, stack, parts)
        after = [p for p in parts if p.name == f"{stack}_norm.output"]
        if after:
            yield Heading((f"Norm after the {stack}",), 2)
            yield _document_steps_of_size(after, "n d_model")
        if stack == "encoder" and model.decoder:
            last = [p for p in parts if p.name.startswith("encoder")][-1]
            where = "" if model.norm else " of the last block"
            yield Paragraph(
                (SYMBOLS["y"], ", to which the decoder attends, is ", last.symbol, f"{where}.")
            )
    yield Heading(("Logits",), 2)
    yield _document_steps_of_size(
        [p for p in parts if p.name.startswith("logits")],
        "n vocabulary" if model.tied else "n words",
    )


def _yield_block_sections(model: Transformer, stack: str, parts: Sequence[Part]) -> Iterator[Piece]:
    for index, block, alike in _yield_distinct_blocks(model, stack):
        prefix = f"{stack}.{index}."
        words = (
            f"Block{'s' * (len(alike) > 1)} {', '.join(str(i + 1) for i in alike)} of the {stack}"
        )
        yield Heading((words,), 2)
        mine = [p for p in parts if p.name.startswith(prefix)]
        for piece in sections(block, mine, default_names(block), prefix):
            yield Paragraph(piece.title) if isinstance(piece, Heading) else piece
        if len(getattr(model, stack)) > 1:
            yield Paragraph((mine[-1].symbol, " is the X of the next block."))


def _document_steps_of_size(parts: Sequence[Part], size: str) -> Steps:
    return Steps(tuple(step(p, lengths(size)) for p in parts))

"""A Transformer as a document: its parts in one formula each, what goes in, every step, the conventions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from symattn.attention.document import parameters, step, table, times
from symattn.attention.flow import Step as Part
from symattn.attention.layers import block_document
from symattn.attention.layers.transformer_inputs import own_arrays, stacks
from symattn.attention.letters_of_attention import SYMBOLS
from symattn.document.model import Block as Piece
from symattn.document.model import Document, Heading, Items, Paragraph, Steps, Text
from symattn.document.notation import Node

if TYPE_CHECKING:
    from symattn.attention.layers.block import Block
    from symattn.attention.layers.transformer import Transformer


def transformer_document(model: Transformer) -> Document:
    """The document of ``model``, for all weights, gains, and biases of LayerNorm."""
    names = _names(model)
    parts = model.pipeline(names)
    blocks: tuple[Piece, ...] = (
        Heading(("Inputs",)),
        table(_rows(model, names)),
        *_others(model),
        Heading(("Steps",)),
        *_sections(model, parts),
        Heading(("Conventions",)),
        Items(tuple(_conventions(model))),
    )
    return Document("derivation", "transformer", ("Transformer",), blocks, parameters=parameters(model))


def _names(model: Transformer) -> list[str]:
    """The inputs of a model: its tokens, tables, weights, gains, and biases of LayerNorm."""
    optional = ("source_embedding", "source_position_embedding", "unembedding_bias")
    rms = {"embedding_norm": model.embedding_norm == "rms", "encoder_norm": model.norm == "rms"}
    rms["decoder_norm"] = rms["encoder_norm"]
    without = [f"{norm}.bias" for norm, gains_alone in rms.items() if gains_alone]
    result = [n for n in own_arrays(model) if n not in optional and n not in without]
    for stack in stacks(model):
        for index, block in enumerate(getattr(model, stack)):
            result += [f"{stack}.{index}.{n}" for n in block_document.default_names(block) if n not in ("x", "y")]
    return result


def _distinct(model: Transformer, stack: str) -> Iterator[tuple[int, Block, list[int]]]:
    """The blocks of a stack that differ, each with its number and those of all that are like it."""
    blocks: Sequence[Block] = getattr(model, stack)
    for index, block in enumerate(blocks):
        if block not in blocks[:index]:
            yield index, block, [i for i, other in enumerate(blocks) if other == block]


def _rows(model: Transformer, names: Sequence[str]) -> Iterator[tuple[str, Node, Text]]:
    own = own_arrays(model)
    for n in names:
        if n in own:
            yield n, own[n].symbol, times(block_document.lengths(own[n].shape))
    for stack in stacks(model):
        for index, block, _ in _distinct(model, stack):
            needed = [n for n in block_document.default_names(block) if n not in ("x", "y")]
            yield from block_document.block_rows(block, needed, f"{stack}.{index}.")


def _others(model: Transformer) -> Iterator[Piece]:
    """Which blocks take the same inputs as one before them."""
    for stack in stacks(model):
        for index, _, alike in _distinct(model, stack):
            if len(alike) > 1:
                others = ", ".join(f"{stack}.{i}" for i in alike[1:])
                yield Paragraph((f"{others}: the same inputs as {stack}.{index}, with values of their own.",))


def _sections(model: Transformer, parts: Sequence[Part]) -> Iterator[Piece]:
    for stack in stacks(model):
        yield Heading((f"What the {stack} reads",), 2)
        before = (f"{stack}.embedded", f"{stack}.positioned", f"{stack}.embedding_norm.output")
        yield _steps([p for p in parts if p.name in before], "n d_model")
        yield from _blocks(model, stack, parts)
        after = [p for p in parts if p.name == f"{stack}_norm.output"]
        if after:
            yield Heading((f"Norm after the {stack}",), 2)
            yield _steps(after, "n d_model")
        if stack == "encoder" and model.decoder:
            last = [p for p in parts if p.name.startswith("encoder")][-1]
            where = "" if model.norm else " of the last block"
            yield Paragraph((SYMBOLS["y"], ", to which the decoder attends, is ", last.symbol, f"{where}."))
    yield Heading(("Logits",), 2)
    yield _steps([p for p in parts if p.name.startswith("logits")], "n vocabulary" if model.tied else "n words")


def _blocks(model: Transformer, stack: str, parts: Sequence[Part]) -> Iterator[Piece]:
    for index, block, alike in _distinct(model, stack):
        prefix = f"{stack}.{index}."
        words = f"Block{'s' * (len(alike) > 1)} {', '.join(str(i + 1) for i in alike)} of the {stack}"
        yield Heading((words,), 2)
        mine = [p for p in parts if p.name.startswith(prefix)]
        for piece in block_document.sections(block, mine, block_document.default_names(block), prefix):
            yield Paragraph(piece.title) if isinstance(piece, Heading) else piece
        if len(getattr(model, stack)) > 1:
            yield Paragraph((mine[-1].symbol, " is the X of the next block."))


def _steps(parts: Sequence[Part], size: str) -> Steps:
    return Steps(tuple(step(p, block_document.lengths(size)) for p in parts))


def _conventions(model: Transformer) -> list[Text]:
    result: list[Text] = []
    if model.norm or model.embedding_norm:
        result.append(block_document.norm_convention(model.norm or str(model.embedding_norm), model.eps))
    for stack in stacks(model):
        for _, block, _ in _distinct(model, stack):
            result += [text for text in block_document.block_conventions(block) if text not in result]
    return result

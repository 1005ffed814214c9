"""The steps of a Transformer: embeddings and positions, the blocks of each stack, the norm at the end, the logits."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import made_wide
from symattn.attention.flow import Step as Part
from symattn.attention.layers import steps as layers
from symattn.attention.layers.block_parts import Stream, block_parts
from symattn.attention.layers.transformer_inputs import (
    block_names,
    embedding_of,
    ids_of,
    own_arrays,
    positions_of,
    stacks,
)
from symattn.attention.letters_of_attention import D_MODEL, affine
from symattn.attention.positions.rotary import learned, sinusoids
from symattn.attention.projections import project
from symattn.attention.scores import softcap
from symattn.document.notation import Name, Node, Root, Transposed, call, name

if TYPE_CHECKING:
    from symattn.attention.layers.transformer import Transformer

_E, _X, _L = name("X", "0", role="input"), name("X", role="input"), name("L", role="output")


def transformer_parts(model: Transformer, given: Collection[str]) -> list[Part]:
    """The steps of a model from the inputs named in ``given`` to the logits."""
    stream = Stream({n: n for n in given}, {n: array.symbol for n, array in own_arrays(model).items()})
    encoded = ""  # the encoder's last step, which cross-attention reads
    for stack in stacks(model):
        _embedded(model, stream, stack)
        for prefix, block, names in block_names(model, given):
            if prefix.startswith(stack):
                tokens = {"x": stream.now} | ({"y": encoded} if block.cross and encoded else {})
                for part in block_parts(block, names | tokens, prefix):
                    stream.append(part)
        if model.norm:
            stream.norm(model.norm, model.eps, f"{stack}_norm", f"{stack}_norm.output", name("Z"))
        encoded = stream.now
    _logits(model, stream)
    return stream.parts


def _embedded(model: Transformer, stream: Stream, stack: str) -> None:
    """The embedded tokens of a stack."""
    ids = ids_of(model, stack)
    run, writes = partial(_embed, model.scaled), partial(_embed_formula, model.scaled)
    of = [embedding_of(stream.names, ids), ids]
    stream.add(f"{stack}.embedded", run, of, _E, writes, "one row of the table for each token")
    if model.positions:
        _positioned(model, stream, stack)
    if model.embedding_norm:
        stream.norm(model.embedding_norm, model.eps, "embedding_norm", f"{stack}.embedding_norm.output", _X)


def _embed(scaled: bool, table: Array, ids: Array) -> Array:
    rows = layers.embed(table, ids)
    return layers.widen(rows) if scaled else rows


def _embed_formula(scaled: bool, table: Name, ids: Node) -> Node:
    rows = Name(table.base, (ids,))
    return Root(D_MODEL) * rows if scaled else rows


def _positioned(model: Transformer, stream: Stream, stack: str) -> None:
    result, letter = f"{stack}.positioned", _X if not model.embedding_norm else name("X'", role="input")
    if model.positions == "sinusoidal":
        reason = "sinusoidal positions: sines and cosines of the place, at falling frequencies"
        stream.add(result, _add_sinusoidal, [stream.now], letter, lambda x: x + name("P"), reason)
    else:
        of = [stream.now, positions_of(stream.names, ids_of(model, stack))]
        stream.add(result, learned, of, letter, add, "one row of positions for each place")


def _add_sinusoidal(x: Array) -> Any:
    places = namespace_of(x).arange(int(x.shape[-2]))
    return x + made_wide(partial(sinusoids, places, int(x.shape[-1])), x)


def _logits(model: Transformer, stream: Stream) -> None:
    bias = ["unembedding_bias"] if "unembedding_bias" in stream.names else []
    table = embedding_of(stream.names, ids_of(model, stacks(model)[-1])) if model.tied else "unembedding"
    run, writes = (_tied, _tied_formula) if model.tied else (project, affine)
    reason = "the embeddings again" if model.tied else "one logit for each word"
    result = "logits" if model.softcap is None else "logits_uncapped"
    stream.add(result, run, [stream.now, table, *bias], _L, writes, reason)
    if model.softcap is not None:
        cap, words = partial(softcap, cap=model.softcap), f"softcap: c tanh(L/c), c = {model.softcap}"
        stream.add("logits", cap, [result], name("L'", role="output"), partial(call, "softcap"), words)


def _tied(x: Array, table: Array, bias: Array | None = None) -> Array:
    logits = layers.unembed(x, table)
    return logits if bias is None else logits + bias


def _tied_formula(x: Node, table: Node, *bias: Node) -> Node:
    return affine(x, Transposed(table), *bias)

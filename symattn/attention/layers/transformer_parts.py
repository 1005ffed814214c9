"""The steps of a Transformer: embeddings and positions, the blocks of each stack, the norm at the end, the logits."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import made_wide
from symattn.attention.flow import Step as Part
from symattn.attention.layers import steps as layers
from symattn.attention.layers.block_parts import TITLES, block_parts, norm_step
from symattn.attention.layers.transformer_inputs import (
    block_names,
    embedding_of,
    ids_of,
    own_arrays,
    positions_of,
    stacks,
)
from symattn.attention.notation import D_MODEL
from symattn.attention.positions.absolute import learned, sinusoids
from symattn.attention.projections import project
from symattn.attention.softcap import softcap
from symattn.document.model import Text
from symattn.document.notation import Name, Node, Root, Transposed, call, name

if TYPE_CHECKING:
    from symattn.attention.layers.transformer import Transformer

_E, _X, _L = name("X", "0", role="input"), name("X", role="input"), name("L", role="output")


def transformer_parts(model: Transformer, given: Collection[str]) -> Iterator[Part]:
    """The steps of a model from the inputs named in ``given`` to the logits."""
    last: Part | None = None
    for stack in stacks(model):
        for part in _stack(model, given, stack, last):
            yield part
            last = part
    assert last
    yield from _logits(model, given, last)


def _stack(model: Transformer, given: Collection[str], stack: str, encoded: Part | None) -> Iterator[Part]:
    """The steps of one stack; with the encoder's last one, which cross-attention reads."""
    parts = list(_embedded(model, given, stack))
    for prefix, block, names in block_names(model, given):
        if prefix.startswith(stack):
            tokens = {"x": parts[-1].name} | ({"y": encoded.name} if block.cross and encoded else {})
            parts += block_parts(block, names | tokens, prefix)
    if model.norm:
        parts.append(_norm(model, given, f"{stack}_norm", parts[-1], name("Z")))
    yield from parts


def _embedded(model: Transformer, given: Collection[str], stack: str) -> Iterator[Part]:
    """The embedded tokens of a stack."""
    ids = ids_of(model, stack)
    arrays = own_arrays(model)
    table = embedding_of(given, ids)
    letter = arrays[table].symbol
    assert isinstance(letter, Name)
    rows = Name(letter.base, (arrays[ids].symbol,))
    formula = Root(D_MODEL) * rows if model.scaled else rows
    run = partial(_embed, model.scaled)
    part = Part(f"{stack}.embedded", (table, ids), run, _E, formula, ("one row of the table for each token",))
    yield part
    if model.positions:
        part = _positioned(model, given, stack, part)
        yield part
    if model.embedding_norm:
        yield _norm(model, given, "embedding_norm", part, _X, f"{stack}.embedding_norm.output")


def _embed(scaled: bool, table: Array, ids: Array) -> Array:
    rows = layers.embed(table, ids)
    return layers.widen(rows) if scaled else rows


def _positioned(model: Transformer, given: Collection[str], stack: str, before: Part) -> Part:
    made, letter = f"{stack}.positioned", _X if not model.embedding_norm else name("X'", role="input")
    if model.positions == "sinusoidal":
        reason: Text = ("sinusoidal positions: sines and cosines of the place, at falling frequencies",)
        return Part(made, (before.name,), _add_sinusoidal, letter, before.symbol + name("P"), reason)
    table = positions_of(given, ids_of(model, stack))
    formula = before.symbol + own_arrays(model)[table].symbol
    return Part(made, (before.name, table), learned, letter, formula, ("one row of positions for each place",))


def _add_sinusoidal(x: Array) -> Any:
    places = namespace_of(x).arange(int(x.shape[-2]))
    return x + made_wide(partial(sinusoids, places, int(x.shape[-1])), x)


def _norm(model: Transformer, given: Collection[str], norm: str, before: Part, letter: Node, made: str = "") -> Part:
    kind = model.embedding_norm if norm == "embedding_norm" else model.norm
    assert kind
    arrays = own_arrays(model)
    letters = {n: arrays[f"{norm}.{n}"].symbol for n in ("gain", "bias") if f"{norm}.{n}" in given}
    run, formula = norm_step(kind, model.eps, before.symbol, letters)
    of = (before.name, *(f"{norm}.{n}" for n in letters))
    return Part(made or f"{norm}.output", of, run, letter, formula, (f"{TITLES[kind]} of each token",))


def _logits(model: Transformer, given: Collection[str], before: Part) -> Iterator[Part]:
    arrays = own_arrays(model)
    bias = ["unembedding_bias"] if "unembedding_bias" in given else []
    table = embedding_of(given, ids_of(model, stacks(model)[-1])) if model.tied else "unembedding"
    weight = Transposed(arrays[table].symbol) if model.tied else arrays[table].symbol
    formula = before.symbol * weight + arrays[bias[0]].symbol if bias else before.symbol * weight
    made = "logits" if model.softcap is None else "logits_uncapped"
    reason: Text = ("the embeddings again",) if model.tied else ("one logit for each word",)
    yield Part(made, (before.name, table, *bias), _tied if model.tied else project, _L, formula, reason)
    if model.softcap is not None:
        words: Text = (f"softcap: c tanh(L/c), c = {model.softcap}",)
        letter, formula = name("L'", role="output"), call("softcap", _L)
        yield Part("logits", (made,), partial(_capped, model.softcap), letter, formula, words)


def _tied(x: Array, table: Array, bias: Array | None = None) -> Array:
    logits = layers.unembed(x, table)
    return logits if bias is None else logits + bias


def _capped(cap: object, logits: Array) -> Array:
    return softcap(logits, namespace_of(logits).asarray(cap, dtype=logits.dtype))

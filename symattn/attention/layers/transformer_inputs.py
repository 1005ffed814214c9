"""Which inputs a Transformer takes, and whether the given arrays fit each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from symattn.arrays.namespace import namespace_of
from symattn.attention.layers import block_inputs
from symattn.attention.layers.block import Block
from symattn.attention.layers.block_inputs import below, norm_arrays, place_named
from symattn.attention.letters_of_attention import Named
from symattn.attention.sizes import AxisLengths, check_holds, written
from symattn.document.errors import InputError
from symattn.document.notation import Name, name

if TYPE_CHECKING:
    from symattn.attention.layers.transformer import Transformer

STACKS = ("encoder", "decoder")
IDS: dict[str, Named] = {
    "tokens": Named(name("t", role="input"), "Numbers of the tokens", "… n", "whole numbers"),
    "source": Named(name("s", role="input"), "Numbers of the encoder's tokens", "… n_k", "whole numbers"),
}
ARRAYS: dict[str, Named] = IDS | {
    "embedding": Named(name("E"), "Embeddings", "vocabulary d_model"),
    "source_embedding": Named(Name("E'"), "Embeddings of the encoder's tokens", "source_vocabulary d_model"),
    "position_embedding": Named(name("P"), "Positions, one row each", "rows d_model"),
    "source_position_embedding": Named(Name("P'"), "Positions of the encoder's tokens", "source_rows d_model"),
    "unembedding": Named(name("W", "U", role="output"), "Unembedding", "d_model words"),
    "unembedding_bias": Named(name("b", "U", role="output"), "Its bias", "words"),
}


class Shaped(NamedTuple):
    """A placeholder for an array that is yet to be computed. Its type is not known, as with letters."""

    shape: tuple[Any, ...]
    dtype: None = None


def stacks(model: Transformer) -> tuple[str, ...]:
    """The stacks that have blocks."""
    return tuple(stack for stack in STACKS if getattr(model, stack))


def ids_of(model: Transformer, stack: str) -> str:
    """Which input holds the tokens of a stack."""
    return "source" if stack == "encoder" and model.decoder else "tokens"


def own_arrays(model: Transformer) -> dict[str, Named]:
    """Every input that a model takes beside those of its blocks."""
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
        result |= norm_arrays("embedding_norm", "E")
    if model.norm:
        for stack in stacks(model):
            result |= norm_arrays(f"{stack}_norm", stack[0])
    return result


def block_names(model: Transformer, names: Iterable[str]) -> Iterator[tuple[str, Block, dict[str, str]]]:
    """Yield each block's prefix and inputs by its own names: ``attention.w_q`` → ``decoder.0.attention.w_q``."""
    names = list(names)
    for stack in stacks(model):
        shared = _shared(stack, names)
        for index, block in enumerate(getattr(model, stack)):
            prefix = f"{stack}.{index}."
            yield prefix, block, shared | below(prefix, names)


def _shared(stack: str, names: Iterable[str]) -> dict[str, str]:
    """The inputs that are given once for every block of a stack."""
    return {n: full for n, full in below(f"{stack}.", names).items() if not n.partition(".")[0].isdecimal()}


def check_names(model: Transformer, input_names: Iterable[str]) -> None:
    """Raise InputError for a missing or unknown input."""
    input_names = set(input_names)
    own = own_arrays(model)
    used = {full for _, _, names in block_names(model, input_names) for full in names.values()}
    used |= {full for stack in stacks(model) for full in _shared(stack, input_names).values()}
    for n in input_names:
        if n not in own and n not in used:
            known = ", ".join((*own, *(f"{stack}.0.…" for stack in stacks(model))))
            raise InputError(f"unknown input {n!r}; known: {known}")
    optional = ("source_embedding", "source_position_embedding", "unembedding_bias")
    missing = [n for n in own if n not in input_names and n not in optional and "_norm." not in n]
    if missing:
        raise InputError(f"the model needs the input{'s' * (len(missing) > 1)} {', '.join(missing)}")
    for prefix, block, names in block_names(model, input_names):
        with_tokens = {"x", *names} | ({"y"} if block.cross else set())
        with place_named(prefix.removesuffix(".")):
            for n in block_inputs.TOKENS:
                if n in names:
                    raise InputError(f"{n} is made by the model; give {' and '.join(i for i in IDS if i in own)} alone")
            block_inputs.check_names(block, with_tokens)


def check_arrays(model: Transformer, inputs: Mapping[str, Any]) -> None:
    """Raise InputError for an ill-shaped input."""
    sizes = AxisLengths(words={"words": "the vocabulary"})
    for n, named in own_arrays(model).items():
        if n in inputs:
            sizes.bind(n, inputs[n], named.shape)
            check_holds(n, inputs[n], named.holds)
    for stack in stacks(model):
        ids = ids_of(model, stack)
        _check_range(ids, inputs[ids], embedding_of(inputs, ids), inputs)
    _check_rows(model, inputs)
    width = inputs["embedding"].shape[-1]
    embedded = {stack: Shaped((*inputs[ids_of(model, stack)].shape, width)) for stack in stacks(model)}
    for prefix, block, names in block_names(model, inputs):
        arrays = {n: inputs[full] for n, full in names.items()} | {"x": embedded[prefix.partition(".")[0]]}
        if block.cross:
            arrays["y"] = embedded["encoder"]
        with place_named(prefix.removesuffix(".")):
            block_inputs.check_arrays(block, arrays)


def _check_range(name: str, ids: Any, table: str, inputs: Mapping[str, Any]) -> None:
    """Raise InputError for numbers of tokens that are no rows of the table; letters have no numbers."""
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
    """Which input holds the positions of some tokens."""
    own = f"{ids}_position_embedding"
    return own if own in names else "position_embedding"


def embedding_of(names: Iterable[str], ids: str) -> str:
    """Which input holds the embeddings of some tokens."""
    own = f"{ids}_embedding"
    return own if own in names else "embedding"

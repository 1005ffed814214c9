"""The inputs of a block, and checks that arrays fit each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from symattn.attention import inputs
from symattn.attention.letters_of_attention import Named
from symattn.attention.sizes import AxisLengths, check_batches, check_holds
from symattn.document.errors import InputError, among

if TYPE_CHECKING:
    from symattn.attention.layers.block import Block


_WORDS = {"n": "the number of tokens"}
TOKENS: dict[str, Named] = {
    "x": Named("X", "Tokens", "… n d_model", "input"),
    "y": Named("Y", "Tokens of the other sequence", "… n_k d_y", "input"),
}
MLP: dict[str, Named] = {
    "mlp.w_up": Named("W_up", "Up: to the width of the feed-forward layer", "d_model d_ff"),
    "mlp.b_up": Named("b_up", "Its bias", "d_ff"),
    "mlp.w_gate": Named("W_gate", "Gate of the feed-forward layer", "d_model d_ff"),
    "mlp.b_gate": Named("b_gate", "Its bias", "d_ff"),
    "mlp.w_down": Named("W_down", "Down: back to the width of the model", "d_ff d_model"),
    "mlp.b_down": Named("b_down", "Its bias", "d_model"),
}


def norm_arrays(norm: str, index: str | int) -> dict[str, Named]:
    """Return the gain and the bias of the norm called ``norm``, with an index to their letters."""
    return {
        f"{norm}.gain": Named(f"g_{index}", "Gain of the norm", "d_model"),
        f"{norm}.bias": Named(f"b_{index}", "Bias of the norm", "d_model"),
    }


def sublayers(block: Block) -> tuple[str, ...]:
    """Return the parts of a block that have a norm and a residual, in order."""
    wanted = {"attention": True, "cross": block.cross is not None, "mlp": block.activation is not None}
    return tuple(part for part, present in wanted.items() if present)


def norms(block: Block) -> Iterator[str]:
    """Yield the names of a block's norms, in order."""
    if block.norm:
        for part in sublayers(block):
            yield f"{part}_norm"
            if block.order == "sandwich":
                yield f"{part}_norm_after"


def own_arrays(block: Block) -> dict[str, Named]:
    """Return the inputs of a block other than those of its attentions."""
    result = {"x": TOKENS["x"]} | ({"y": TOKENS["y"]} if block.cross else {})
    for index, norm in enumerate(norms(block), 1):
        result |= norm_arrays(norm, index)
    if block.activation:
        result |= {n: a for n, a in MLP.items() if block.gated or "gate" not in n}
    return result


def attention_names(block: Block, names: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each attention with its inputs by its own names, ``w_q`` → ``attention.w_q``, and its tokens."""
    names = list(names)
    yield "attention", {"x": "x", **below("attention.", names)}
    if block.cross:
        yield "cross", {"x": "x", "y": "y", **below("cross.", names)}


def check_names(block: Block, names: Iterable[str]) -> None:
    """Raise InputError for a missing or unknown input."""
    names = set(names)
    own = own_arrays(block)
    parts = tuple(f"{part}." for part in sublayers(block) if part != "mlp")
    for n in names:
        if n not in own and not n.startswith(parts):
            raise InputError(f"unknown input {n!r}{among(n, (*own, *(f'{part}…' for part in parts)))}")
    for n in names:
        if n.rpartition(".")[2] in inputs.TOKENS and n not in own:
            raise InputError(f"{n} is made by the block; give {' and '.join(t for t in TOKENS if t in own)} alone")
    needed = ["x", *(["y"] if block.cross else [])]
    needed += ["mlp.w_up", *(["mlp.w_gate"] if block.gated else []), "mlp.w_down"] if block.activation else []
    missing = [n for n in needed if n not in names]
    if missing:
        raise InputError(f"the block needs the input{'s' * (len(missing) > 1)} {', '.join(missing)}")


def check_arrays(block: Block, arrays: Mapping[str, Any], sizes: AxisLengths | None = None) -> None:
    """Raise InputError for an ill-shaped input."""
    sizes = AxisLengths(words=_WORDS) if sizes is None else sizes
    own = {n: named for n, named in own_arrays(block).items() if n in arrays}
    tokens = {n: arrays[n] for n in TOKENS if n in own}
    for n, named in own.items():
        sizes.bind(n, arrays[n], named.shape)
        check_holds(n, arrays[n], named.holds)
    check_batches(tokens, dict.fromkeys(tokens, 2))
    for part, names in attention_names(block, arrays):
        with place_named(part):
            inputs.check_inputs(getattr(block, part), {n: arrays[where] for n, where in names.items()})


@contextmanager
def place_named(place: str) -> Iterator[None]:
    """Raise the InputErrors of a part of a description with the part's name before them."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


# -- names with a prefix -----------------------------------------------------------------------------------------------
def below(prefix: str, names: Iterable[str]) -> dict[str, str]:
    """Return the names that begin with ``prefix``, by the rest of the name."""
    return {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}

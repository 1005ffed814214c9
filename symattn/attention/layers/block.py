"""``Block``: attention, cross-attention and a feed-forward layer, each with its norm, around a residual stream.

Its inputs, with checks that arrays fit each other, and the steps of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, TypeAlias

from symattn.arrays.array import Array
from symattn.attention import inputs, norms
from symattn.attention.fields import Described, check, refusal
from symattn.attention.flow import Step as Part
from symattn.attention.flow import Trace, steps_of, traced
from symattn.attention.layers import steps as layers
from symattn.attention.layers.steps import ACTIVATIONS
from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS, Named
from symattn.attention.projections import project
from symattn.attention.sizes import AxisLengths, check_batches, check_holds, same, written
from symattn.attention.spec import Attention
from symattn.document.errors import InputError, among
from symattn.document.model import Document
from symattn.document.notation import Name, Node, name, replaced
from symattn.document.printable import Shown

Norm: TypeAlias = Literal["layer", "rms"] | None
# The default ε of torch's LayerNorm, as an exact number.
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
        # Without a feed-forward layer there is nothing to gate.
        if self.gated and self.activation is None:
            raise InputError(
                "Block: gated is True, but there is no feed-forward layer to gate; hint: give an activation"
            )
        if self.attention.lse or (self.cross and self.cross.lse):
            raise InputError(
                "Block: lse gives a second result, for which a block has no place; hint: lse=False"
            )
        if self.parallel and self.order == "post":
            raise InputError(
                "Block: parallel parts read X, and after a norm outside it is gone; hint: order='pre'"
            )

    def pipeline(self, input_names: Iterable[str]) -> tuple[Part, ...]:
        """Return the steps from the inputs named in ``input_names`` to the output."""
        return steps_of(self, input_names, _steps_of_block)

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


def _steps_of_block(block: Block, names: frozenset[str]) -> list[Part]:
    check_names(block, sorted(names))
    return block_parts(block, {name: name for name in names})


# Words for a length in errors about arrays that do not fit.
_WORDS = {"n": "the number of tokens"}
# The inputs that the caller passes; the block makes those of its attentions.
TOKENS: dict[str, Named] = {
    "x": Named("X", "Tokens", "… n d_model", "input"),
    "y": Named("Y", "Tokens of the other sequence", "… n_k d_y", "input"),
}
# The parameters of the feed-forward layer, with letters and shapes.
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
    wanted = {
        "attention": True,
        "cross": block.cross is not None,
        "mlp": block.activation is not None,
    }
    return tuple(part for part, present in wanted.items() if present)


def norm_places(block: Block) -> Iterator[str]:
    """Yield the names of a block's norms, in order."""
    if block.norm:
        for part in sublayers(block):
            yield f"{part}_norm"
            # A sandwich has two norms around each part, with parameters of their own.
            if block.order == "sandwich":
                yield f"{part}_norm_after"


def own_arrays(block: Block) -> dict[str, Named]:
    """Return the inputs of a block other than those of its attentions."""
    result = {"x": TOKENS["x"]} | ({"y": TOKENS["y"]} if block.cross else {})
    for index, norm in enumerate(norm_places(block), 1):
        result |= norm_arrays(norm, index)
    if block.activation:
        # Without a gate its weights are unknown inputs.
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
            raise InputError(
                f"unknown input {n!r}{among(n, (*own, *(f'{part}…' for part in parts)))}"
            )
    # Tokens of an attention are computed by the block, so that a caller cannot pass them.
    for n in names:
        if n.rpartition(".")[2] in inputs.TOKENS and n not in own:
            raise InputError(
                f"{n} is made by the block; give {' and '.join(t for t in TOKENS if t in own)} alone"
            )
    needed = ["x", *(["y"] if block.cross else [])]
    needed += (
        ["mlp.w_up", *(["mlp.w_gate"] if block.gated else []), "mlp.w_down"]
        if block.activation
        else []
    )
    missing = [n for n in needed if n not in names]
    if missing:
        raise InputError(
            f"the block needs the input{'s' * (len(missing) > 1)} {', '.join(missing)}"
        )


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
        # Errors name the part, since both attentions have inputs of the same names.
        with place_named(part):
            inputs.check_inputs(
                getattr(block, part), {n: arrays[where] for n, where in names.items()}
            )


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


#: Where the norm of a part stands: before it, after it, or outside, after the residual.
ORDERS: dict[str, tuple[str, ...]] = {
    "pre": ("before",),
    "post": ("outside",),
    "inner": ("after",),
    "sandwich": ("before", "after"),
}
# Names of the norms in formulas.
TITLES = {"layer": "LayerNorm", "rms": "RMSNorm"}
# The function of each value of ``norm``.
_NORMS: dict[str, Callable[..., Any]] = {"layer": norms.layer_norm, "rms": norms.rms_norm}


def block_parts(block: Block, names: Mapping[str, str], prefix: str = "") -> list[Part]:
    """Return the steps of a block whose inputs are called ``names``; computed arrays get ``prefix``."""
    letters = {n: array.symbol for n, array in own_arrays(block).items()}
    stream = Stream(names, letters | {names["x"]: SYMBOLS["x"]}, prefix, names["x"])
    wanted = sublayers(block)
    for index, part in enumerate(wanted, 1):
        # The last part makes the output; all others make the stream that the next part reads.
        last = index == len(wanted)
        letter = Name("X" + "'" * index, role="input")
        # Parallel parts read the same tokens, but add to the stream one after the other.
        source = names["x"] if block.parallel and part == "mlp" else stream.now
        _add_sublayer_with_norm(
            block, stream, part, source, "output" if last else f"{part}_stream", letter
        )
    return stream.parts


@dataclass
class Stream:
    """The steps so far, the current name of the tokens, and the letters of inputs and computed arrays."""

    names: Mapping[str, str]
    letters: dict[str, Node]
    prefix: str = ""
    now: str = ""
    parts: list[Part] = field(default_factory=list)

    def add(
        self,
        name: str,
        run: Callable[..., object],
        of: list[str],
        symbol: Node,
        written: str,
        reason: str = "",
        *,
        role: str = "",
        blames: str = "",
    ) -> None:
        """Add a step called ``name``; ``of`` names inputs, by their keys in ``names``, or arrays computed before."""
        # The letters of the operands alone: a formula has no other names to replace.
        letters = {self.names.get(n, n): self.letters[n] for n in of}
        step = Part(self.prefix + name, tuple(letters), run, symbol, written, letters, reason)
        self.append(replace(step, role=role, blames=blames))

    def append(self, part: Part) -> None:
        """Add a step, whose array the next one reads."""
        self.parts.append(part)
        self.now, self.letters[part.name] = part.name, part.symbol

    def norm(self, kind: str, eps: object, norm: str, result: str, letter: Node) -> None:
        """Add the norm called ``norm`` of the current tokens, with its parameters as far as they are given."""
        # Parameters that are absent are left out of the formula, too.
        keys = [n for n in ("gain", "bias") if f"{norm}.{n}" in self.names]
        run = partial(_by_keyword, partial(_NORMS[kind], eps=eps), keys)
        parameters = [f"{norm}.{n}" for n in keys]
        places = {key: f"@{place}" for place, key in enumerate(keys, 1)}
        written = norms.write_norm(kind, "@0", **places, eps=eps)
        of, reason = [self.now, *parameters], f"{TITLES[kind]} of each token"
        record = {"role": f"{kind} norm", "blames": "norm"}
        self.add(result, run, of, letter, written, reason, **record)


def _add_sublayer_with_norm(
    block: Block, stream: Stream, part: str, source: str, result: str, letter: Node
) -> None:
    """Add a part that reads ``source``, with its norm and residual; ``result`` and ``letter`` name its result."""
    # The residual adds to the stream, also where the part reads other tokens.
    x, stream.now = stream.now, source
    # Without a norm the order does not matter.
    where = ORDERS[block.order] if block.norm else ()
    norm = partial(stream.norm, block.norm or "", block.eps)
    if "before" in where:
        norm(f"{part}_norm", f"{part}_norm.output", name("Z"))
    (_add_mlp_steps if part == "mlp" else _add_attention_steps)(block, stream, part)
    if "after" in where:
        # The second norm of a sandwich has a name of its own.
        after = f"{part}_norm_after" if "before" in where else f"{part}_norm"
        norm(after, f"{after}.output", name("N"))
    added = result if "outside" not in where else f"{part}_sum"
    sum_ = letter if "outside" not in where else name("R")
    run, record = partial(_add_part_to_residual, part), {"role": "residual", "blames": "residual"}
    stream.add(added, run, [x, stream.now], sum_, "@0 + @1", "residual", **record)
    if "outside" in where:
        norm(f"{part}_norm", result, letter)


def _add_part_to_residual(part: str, x: Array, y: Array) -> Array:
    # Attention may change the width, and NumPy would broadcast a width of 1 silently.
    if not same(x.shape[-1], y.shape[-1]):
        raise InputError(
            f"{part} gives tokens of shape {written(y)}; the tokens it is added to have {written(x)}"
        )
    return layers.residual(x, y)


def _by_keyword(
    function: Callable[..., object], keywords: Sequence[str], x: object, *arguments: object
) -> Any:
    return function(x, **dict(zip(keywords, arguments, strict=True)))


def _add_attention_steps(block: Block, stream: Stream, part: str) -> None:
    """Add the steps of the attention called ``part`` of the current tokens."""
    spec = getattr(block, part)
    names = below(f"{part}.", stream.names)
    where = {n: stream.names[full] for n, full in names.items()} | {"x": stream.now}
    if part == "cross":
        # Cross-attention reads keys and values from the other sequence.
        where |= {"y": stream.names["y"]}
    tokens = {"x": stream.letters[stream.now]}
    of_part = attention_letters(part)
    # Tokens have the letter that they have in the stream at this place.
    own = {array: replaced(symbol, of_part) for array, symbol in SYMBOLS.items()} | tokens

    def called(array: str) -> str:
        return where.get(array, f"{stream.prefix}{part}.{array}")

    letters = {called(array): letter for array, letter in own.items()}
    for step in spec.pipeline(where):
        of, result = tuple(map(called, step.of)), called(step.name)
        stream.append(replace(step, name=result, of=of, symbol=letters[result], letters=letters))


def attention_letters(part: str) -> dict[Node, Node]:
    """Return the letters of cross-attention: those of attention with an index c; the tokens keep theirs."""
    if part != "cross":
        return {}
    result: dict[Node, Node] = {}
    for array, named in ARRAYS.items():
        s = named.symbol
        # Tokens are the same arrays in both attentions, so they have no index.
        if isinstance(s, Name) and array not in ("x", "y"):
            result[s] = Name(s.base, (*s.sub, Name("c")), s.role, s.bold)
    return result


def _add_mlp_steps(block: Block, stream: Stream, part: str) -> None:
    assert block.activation
    activation, z = ACTIVATIONS[block.activation], stream.now
    if block.gated:
        _add_linear_mlp_step(stream, "gate", z, name("G"))
    _add_linear_mlp_step(stream, "up", z, name("U"))
    run = partial(layers.gated, activation.run) if block.gated else activation.run
    # The gate comes first, as ``gated`` takes it.
    of = [f"{stream.prefix}mlp.{n}" for n in ("gate", "up") if block.gated or n == "up"]
    written = f"{activation.sign}(@0){' ⊙ @1' * block.gated}"
    reason = f"{'gated, ' * block.gated}number by number"
    record = {"role": "activation", "blames": "project"}
    stream.add("mlp.hidden", run, of, name("F"), written, reason, **record)
    _add_linear_mlp_step(stream, "down", stream.now, name("M"), "output")


def _add_linear_mlp_step(
    stream: Stream, which: str, x: str, letter: Node, result: str = ""
) -> None:
    names = [n for n in (f"mlp.w_{which}", f"mlp.b_{which}") if n in stream.names]
    written = "@0 @1" + " + @2" * (len(names) > 1)
    record = {"role": "projection", "blames": "project"}
    stream.add(f"mlp.{result or which}", project, [x, *names], letter, written, **record)

"""The steps of a block: its parts, each with its norm, around the residual stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.attention import norms
from symattn.attention.flow import Step as Part
from symattn.attention.layers import steps as layers
from symattn.attention.layers.block_inputs import below, own_arrays, sublayers
from symattn.attention.layers.steps import ACTIVATIONS
from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS
from symattn.attention.projections import project
from symattn.attention.sizes import same, written
from symattn.document.errors import InputError
from symattn.document.notation import Name, Node, name, replaced

if TYPE_CHECKING:
    from symattn.attention.layers.block import Block

#: Where the norm of a part stands: before it, after it, or outside, after the residual.
ORDERS: dict[str, tuple[str, ...]] = {
    "pre": ("before",),
    "post": ("outside",),
    "inner": ("after",),
    "sandwich": ("before", "after"),
}
TITLES = {"layer": "LayerNorm", "rms": "RMSNorm"}
_NORMS: dict[str, Callable[..., Any]] = {"layer": norms.layer_norm, "rms": norms.rms_norm}


def block_parts(block: Block, names: Mapping[str, str], prefix: str = "") -> list[Part]:
    """Return the steps of a block whose inputs are called ``names``; computed arrays get ``prefix``."""
    letters = {n: array.symbol for n, array in own_arrays(block).items()}
    stream = Stream(names, letters | {names["x"]: SYMBOLS["x"]}, prefix, names["x"])
    wanted = sublayers(block)
    for index, part in enumerate(wanted, 1):
        last = index == len(wanted)
        letter = Name("X" + "'" * index, role="input")
        source = names["x"] if block.parallel and part == "mlp" else stream.now
        _sublayer(block, stream, part, source, "output" if last else f"{part}_stream", letter)
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
    ) -> None:
        """Add a step called ``name``; ``of`` names inputs, by their keys in ``names``, or arrays computed before."""
        letters = {self.names.get(n, n): self.letters[n] for n in of}
        self.append(Part(self.prefix + name, tuple(letters), run, symbol, written, letters, reason))

    def append(self, part: Part) -> None:
        """Add a step, whose array the next one reads."""
        self.parts.append(part)
        self.now, self.letters[part.name] = part.name, part.symbol

    def norm(self, kind: str, eps: object, norm: str, result: str, letter: Node) -> None:
        """Add the norm called ``norm`` of the current tokens, with its parameters as far as they are given."""
        keys = [n for n in ("gain", "bias") if f"{norm}.{n}" in self.names]
        run = partial(_by_keyword, partial(_NORMS[kind], eps=eps), keys)
        parameters = [f"{norm}.{n}" for n in keys]
        # g ⊙ (x − mean(x)) / √(var(x) + ε) + b, or g ⊙ x / √(mean(x²) + ε) + b
        written = "{@0 − mean(@0)}/√{var(@0) + ε}" if kind == "layer" else "@0/√{mean(@0²) + ε}"
        written = (f"@1 ⊙ {{{written}}}" if "gain" in keys else written) + f" + @{len(keys)}" * ("bias" in keys)
        self.add(result, run, [self.now, *parameters], letter, written, f"{TITLES[kind]} of each token")


def _sublayer(block: Block, stream: Stream, part: str, source: str, result: str, letter: Node) -> None:
    """Add a part that reads ``source``, with its norm and residual; ``result`` and ``letter`` name its result."""
    x, stream.now = stream.now, source
    where = ORDERS[block.order] if block.norm else ()
    norm = partial(stream.norm, block.norm or "", block.eps)
    if "before" in where:
        norm(f"{part}_norm", f"{part}_norm.output", name("Z"))
    (_mlp if part == "mlp" else _attention)(block, stream, part)
    if "after" in where:
        after = f"{part}_norm_after" if "before" in where else f"{part}_norm"
        norm(after, f"{after}.output", name("N"))
    added = result if "outside" not in where else f"{part}_sum"
    sum_ = letter if "outside" not in where else name("R")
    stream.add(added, partial(_added, part), [x, stream.now], sum_, "@0 + @1", "residual")
    if "outside" in where:
        norm(f"{part}_norm", result, letter)


def _added(part: str, x: Array, y: Array) -> Array:
    if not same(x.shape[-1], y.shape[-1]):
        raise InputError(f"{part} gives tokens of shape {written(y)}; the tokens it is added to have {written(x)}")
    return layers.residual(x, y)


def _by_keyword(function: Callable[..., object], keywords: Sequence[str], x: object, *arguments: object) -> Any:
    return function(x, **dict(zip(keywords, arguments, strict=True)))


def _attention(block: Block, stream: Stream, part: str) -> None:
    """Add the steps of the attention called ``part`` of the current tokens."""
    spec = getattr(block, part)
    names = below(f"{part}.", stream.names)
    where = {n: stream.names[full] for n, full in names.items()} | {"x": stream.now}
    if part == "cross":
        where |= {"y": stream.names["y"]}
    tokens = {"x": stream.letters[stream.now]}
    of_part = attention_letters(part)
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
        if isinstance(s, Name) and array not in ("x", "y"):
            result[s] = Name(s.base, (*s.sub, Name("c")), s.role, s.bold)
    return result


def _mlp(block: Block, stream: Stream, part: str) -> None:
    assert block.activation
    activation, z = ACTIVATIONS[block.activation], stream.now
    if block.gated:
        _linear(stream, "gate", z, name("G"))
    _linear(stream, "up", z, name("U"))
    run = partial(layers.gated, activation.run) if block.gated else activation.run
    of = [f"{stream.prefix}mlp.{n}" for n in ("gate", "up") if block.gated or n == "up"]
    written = f"{activation.sign}(@0){' ⊙ @1' * block.gated}"
    stream.add("mlp.hidden", run, of, name("F"), written, f"{'gated, ' * block.gated}number by number")
    _linear(stream, "down", stream.now, name("M"), "output")


def _linear(stream: Stream, which: str, x: str, letter: Node, result: str = "") -> None:
    names = [n for n in (f"mlp.w_{which}", f"mlp.b_{which}") if n in stream.names]
    stream.add(f"mlp.{result or which}", project, [x, *names], letter, "@0 @1" + " + @2" * (len(names) > 1))

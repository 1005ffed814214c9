"""The steps of a block: its parts, each with its norm, around the residual stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.attention import norms
from symattn.attention.flow import Step as Part
from symattn.attention.layers import steps as layers
from symattn.attention.layers.activations import ACTIVATIONS
from symattn.attention.layers.block_inputs import below, own_arrays, sublayers
from symattn.attention.notation import ARRAYS, SYMBOLS
from symattn.attention.projections import project
from symattn.attention.sizes import same, written
from symattn.document.errors import InputError
from symattn.document.model import Text
from symattn.document.notation import Name, Node, Over, Product, Root, call, name, replaced

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
HADAMARD = name("⊙")


def block_parts(block: Block, names: Mapping[str, str], prefix: str = "") -> list[Part]:
    """The steps of a block whose inputs are found under ``names``; what it computes gets ``prefix``."""
    symbol = SYMBOLS["x"]
    stream = _Stream(block, names, prefix, names["x"], symbol)
    wanted = sublayers(block)
    for index, part in enumerate(wanted, 1):
        last = index == len(wanted)
        letter = Name("X" + "'" * index, role="input")
        source = (names["x"], symbol) if block.parallel and part == "mlp" else (stream.now, stream.symbol)
        _sublayer(stream, part, source, "output" if last else f"{part}_stream", letter)
    return stream.parts


@dataclass
class _Stream:
    """The steps so far, and the name and letter of the tokens as they are now."""

    block: Block
    names: Mapping[str, str]
    prefix: str
    now: str
    symbol: Node
    parts: list[Part] = field(default_factory=list)

    def add(
        self, name: str, run: Callable[..., Any], of: list[str], symbol: Node, formula: Node, reason: Text = ()
    ) -> None:
        """A step called ``name``; ``of`` names inputs of the block or arrays computed before."""
        where = tuple(self.names.get(n, n) for n in of)
        self.parts.append(Part(self.prefix + name, where, run, symbol, formula, reason))
        self.now, self.symbol = self.prefix + name, symbol

    def letter(self, array: str) -> Node:
        """The letter of an input."""
        return own_arrays(self.block)[array].symbol

    def given(self, *arrays: str) -> list[str]:
        """Those of the inputs that are given."""
        return [n for n in arrays if n in self.names]


def _sublayer(stream: _Stream, part: str, source: tuple[str, Node], result: str, letter: Node) -> None:
    """One part, which reads ``source``, with its norm and residual: ``result`` and ``letter`` name what comes out."""
    x, symbol = stream.now, stream.symbol
    stream.now, stream.symbol = source
    where = ORDERS[stream.block.order] if stream.block.norm else ()
    if "before" in where:
        _norm(stream, f"{part}_norm", f"{part}_norm.output", name("Z"))
    (_mlp if part == "mlp" else _attention)(stream, part)
    if "after" in where:
        norm = f"{part}_norm_after" if "before" in where else f"{part}_norm"
        _norm(stream, norm, f"{norm}.output", name("N"))
    added = result if "outside" not in where else f"{part}_sum"
    sum_ = letter if "outside" not in where else name("R")
    stream.add(added, partial(_added, part), [x, stream.now], sum_, symbol + stream.symbol, ("residual",))
    if "outside" in where:
        _norm(stream, f"{part}_norm", result, letter)


def _added(part: str, x: Array, y: Array) -> Array:
    if not same(x.shape[-1], y.shape[-1]):
        raise InputError(f"{part} gives tokens of shape {written(y)}; the tokens it is added to have {written(x)}")
    return layers.residual(x, y)


def _norm(stream: _Stream, norm: str, result: str, letter: Node) -> None:
    block = stream.block
    assert block.norm
    given = {n: stream.letter(f"{norm}.{n}") for n in ("gain", "bias") if f"{norm}.{n}" in stream.names}
    run, formula = norm_step(block.norm, block.eps, stream.symbol, given)
    of = [stream.now, *(f"{norm}.{n}" for n in given)]
    stream.add(result, run, of, letter, formula, (f"{TITLES[block.norm]} of each token",))


def norm_step(norm: str, eps: Any, x: Node, given: Mapping[str, Node]) -> tuple[Callable[..., Any], Node]:
    """A norm of the tokens x, as a function of them and of what is given of ``gain`` and ``bias``, and its formula."""
    return partial(_normed, _NORMS[norm], eps, tuple(given)), norm_formula(norm, x, **given)


def _normed(norm: Callable[..., Any], eps: Any, keywords: tuple[str, ...], x: Array, *given: Any) -> Any:
    return norm(x, eps, **dict(zip(keywords, given, strict=True)))


def norm_formula(norm: str, x: Node, gain: Node | None = None, bias: Node | None = None) -> Node:
    """g ⊙ (x − mean(x)) / √(var(x) + ε) + b, or g ⊙ x / √(mean(x²) + ε) + b."""
    eps = Name("ε")
    if norm == "layer":
        formula: Node = Over(x - call("mean", x), Root(call("var", x) + eps))
    else:
        formula = Over(x, Root(call("mean", x**2) + eps))
    formula = formula if gain is None else Product((gain, HADAMARD, formula))
    return formula if bias is None else formula + bias


def _attention(stream: _Stream, part: str) -> None:
    """The steps of the attention called ``part``, of the tokens as they are now."""
    spec = getattr(stream.block, part)
    names = below(f"{part}.", stream.names)
    where = {n: stream.names[full] for n, full in names.items()} | {"x": stream.now}
    if part == "cross":
        where |= {"y": stream.names["y"]}
    letters = attention_letters(part)
    tokens = {SYMBOLS["x"]: stream.symbol}
    for step in spec.pipeline(where):
        of = tuple(where.get(n, f"{stream.prefix}{part}.{n}") for n in step.of)
        formula = replaced(replaced(step.formula, letters), tokens)
        made = f"{stream.prefix}{part}.{step.name}"
        stream.parts.append(Part(made, of, step.run, replaced(step.symbol, letters), formula, step.reason))
    stream.now, stream.symbol = stream.parts[-1].name, stream.parts[-1].symbol


def attention_letters(part: str) -> dict[Node, Node]:
    """The letters of cross-attention: those of attention with an index c; the tokens keep theirs."""
    if part != "cross":
        return {}
    found: dict[Node, Node] = {}
    for array, named in ARRAYS.items():
        s = named.symbol
        if isinstance(s, Name) and array not in ("x", "y"):
            found[s] = Name(s.base, (*s.sub, Name("c")), s.role, s.bold)
    return found


def _mlp(stream: _Stream, part: str) -> None:
    block = stream.block
    assert block.activation
    activation = ACTIVATIONS[block.activation]
    z = stream.now, stream.symbol
    up, gate = name("U"), name("G")
    if block.gated:
        _linear(stream, "gate", *z, gate)
    _linear(stream, "up", *z, up)
    inner = call(activation.sign, gate if block.gated else up)
    whole = Product((inner, HADAMARD, up)) if block.gated else inner
    run = partial(layers.gated, activation.run) if block.gated else activation.run
    of = [f"{stream.prefix}mlp.{n}" for n in ("gate", "up") if block.gated or n == "up"]
    stream.add("mlp.hidden", run, of, name("F"), whole, (f"{'gated, ' * block.gated}number by number",))
    _linear(stream, "down", stream.now, stream.symbol, name("M"), "output")


def _linear(stream: _Stream, which: str, x: str, symbol: Node, letter: Node, result: str = "") -> None:
    names = stream.given(f"mlp.w_{which}", f"mlp.b_{which}")
    formula = symbol * stream.letter(names[0])
    if len(names) > 1:
        formula = formula + stream.letter(names[1])
    stream.add(f"mlp.{result or which}", project, [x, *names], letter, formula)

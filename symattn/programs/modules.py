"""Modules that hold their weights, as functions of tokens and of weights that are given in their place.

What is asked of the library of a module is its ``Host``.

The names in ``state_dict`` say which weight is which: ``q_proj.weight``, ``attn.c_attn.weight``, ``to_out.0.bias``. A
``Linear`` keeps (columns out, columns in), the ``Conv1D`` of Transformers the other order. What names leave open is
found by trial: the order of a bare square matrix, and whether queries, keys and values that stand in one matrix stand
side by side, or side by side for each head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from itertools import product
from typing import Any, Literal

from symattn.attention.layers.block import Block
from symattn.attention.spec import Attention
from symattn.bounds.domain import Domain
from symattn.document.errors import InputError
from symattn.document.keywords import ROLES, plain
from symattn.programs.frameworks import Tensor, Tensors, import_torch
from symattn.programs.hosts import OWN, Host, Order
from symattn.programs.packed import Wrapper, side_by_side
from symattn.programs.request import Request

_HEADS = ("num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads", "num_query_heads")


@dataclass(frozen=True)
class ModuleSlot:
    """A weight or bias of a module: its name, what stands in it side by side, and the order of its axes, if known."""

    name: str
    kind: Literal["w", "b"]
    roles: tuple[str, ...]
    shape: tuple[int, ...]
    order: Order | None

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs that go into it: ``w_q``, ``w_k``, ``w_v``."""
        return tuple(f"{self.kind}_{role}" for role in self.roles)


@dataclass(frozen=True)
class ModuleReading:
    """How weights are read: the order of bare square matrices, and whether q, k, v are side by side for each head."""

    order: Order = "out in"
    by_head: bool = False


def readings(host: Host, request: Request, name: str) -> Iterator[HeldAttention]:
    """The module as a function, in every way in which its weights can be read. Raises ``InputError`` where none is."""
    label = name or "the module"
    slots = tuple(_slot(host, key, tuple(weight.shape), label) for key, weight in host.weights().items())
    _check(host.module, slots, request.spec, label)
    host = host.prepared(request.dtype)
    square = any(s.kind == "w" and s.order is None for s in slots)
    packed = any(len(s.roles) == 3 for s in slots) and request.spec.heads == request.spec.key_heads > 1
    for by_head, order in product((False, True) if packed else (False,), _ORDERS if square else _ORDERS[:1]):
        yield HeldAttention(host, slots, ModuleReading(order, by_head), request, label)


_ORDERS: tuple[Order, ...] = ("out in", "in out")


def _slot(host: Host, key: str, shape: tuple[int, ...], label: str) -> ModuleSlot:
    """Return the slot of a parameter, by its name and by the layer that it belongs to."""
    path, _, last = key.rpartition(".")
    own = plain(last) in OWN
    words = [part for part in path.split(".") if not part.isdecimal()]
    word = plain(words[-1] if words else "") if own else plain(last).removesuffix("weight").removesuffix("bias")
    kind: Literal["w", "b"] = "b" if plain(last).endswith("bias") else "w"
    if word not in ROLES or len(shape) != (1 if kind == "b" else 2):
        raise InputError(
            f"{label} holds {key} {shape}, which is not a projection that is known by its name; "
            "give a function of x, w_q, w_k, w_v instead"
        )
    order = host.order(key, shape, ROLES[word])
    if order is None and len(shape) == 2 and len(ROLES[word]) > 1 and shape[0] != shape[1]:
        order = "out in" if shape[0] > shape[1] else "in out"  # by which side is that of several projections
    return ModuleSlot(key, kind, ROLES[word], shape, order)


def _check(module: object, slots: tuple[ModuleSlot, ...], spec: Attention, label: str) -> None:
    """Raise ``InputError`` where a projection lacks or stands twice, or the numbers of heads are others."""
    entries = [n for s in slots for n in s.names]
    for n in ("w_q", "w_k", "w_v"):
        if n not in entries:
            raise InputError(f"{label} holds its own weights, and no {n} among them is known by its name")
    twice = next((n for n in entries if entries.count(n) > 1), None)
    if twice:
        raise InputError(f"{label} holds two weights that may be {twice}; give one layer of attention alone")
    heads = heads_of(module) or spec.heads
    if heads != spec.heads:
        raise InputError(
            f"{label} has {heads} heads, and the specification {spec.heads}; say --heads {heads}, in Python "
            f"heads={heads}"
        )


def heads_of(module: object) -> int | None:
    """Return how many heads a module says that it has; None where it does not say."""
    return next((n for name in _HEADS if isinstance(n := getattr(module, name, None), int)), None)


class HeldAttention(Wrapper):
    """A module as a function of ``x``, of its other arguments, and of ``w_q, w_k, w_v, w_o, b_q, …`` by name."""

    reading: ModuleReading

    def __init__(
        self, host: Host, slots: tuple[ModuleSlot, ...], reading: ModuleReading, request: Request, label: str
    ) -> None:
        self._host, self._xp, self._spec, self._slots, self.reading = host, host.xp, request.spec, slots, reading
        self.d_model, self.width = self._sizes(label)
        self._tokens = host.tokens()
        rest = [p for p in host.parameters() if p.name not in self._tokens]
        self._names = tuple(dict.fromkeys(n for s in slots for n in s.names))
        own = [*(p.replace(kind=Parameter.KEYWORD_ONLY) for p in rest), *map(_keyword, self._names)]
        super().__init__(host.text, (Parameter("x", Parameter.POSITIONAL_OR_KEYWORD), *own), reading, label)
        self.note = f"The module is called with other weights in place of its own: {', '.join(s.name for s in slots)}."
        if reading.by_head:
            self.note += " Each head has its own q, k and v there, side by side."
        if reading.order == "in out":
            self.note += " Bare square matrices are read as they are, not transposed."

    @property
    def traceable(self) -> bool:
        """Return whether JAX can trace it."""
        return getattr(self._xp, "__name__", "") == "jax.numpy"

    def within(self, domain: Domain) -> Domain:
        """The domain with the sizes of the module alone."""
        return replace(domain, square_weights=True, min_width=self.width, max_width=self.width, same_width=True)

    def __call__(self, x: Tensor, **keywords: Tensor) -> Tensor:
        weights = {n: keywords.pop(n) for n in self._names}
        state = {s.name: self._filled(s, weights) for s in self._slots}
        d = x.shape[-1]
        output = self._host.run(state, dict.fromkeys(self._tokens, self._wide(x, -1)), keywords)
        first, *others = output if isinstance(output, (tuple, list)) else (output,)
        first = first[..., :d] if "w_o" in weights else first
        return (first, *others) if others else first

    def _filled(self, slot: ModuleSlot, weights: Tensors) -> Tensor:
        """The array of the module's own shape that holds these weights."""
        parts = [weights[n] for n in slot.names]
        if slot.kind == "w" and slot.roles != ("o",):
            parts = [self._wide(w, 0) for w in parts]
        elif slot.roles == ("o",):
            parts = [self._wide(w, -1) for w in parts]
        joined = side_by_side(self._xp, parts, self._spec.heads if len(parts) == 3 and self.reading.by_head else 1)
        return joined if slot.kind == "b" or (slot.order or self.reading.order) == "in out" else joined.mT

    def _wide(self, a: Tensor, axis: int) -> Tensor:
        """Zeros at the end of an axis of d_model, where the module has more columns than its heads fill."""
        more = self.d_model - a.shape[axis]
        if more <= 0:
            return a
        shape = list(a.shape)
        shape[axis] = more
        return self._xp.concat([a, self._xp.zeros(shape, dtype=a.dtype)], axis=axis)

    def _sizes(self, label: str) -> tuple[int, int]:
        """d_model, and the width of a head."""
        h, g = self._spec.heads, self._spec.key_heads
        slot = next(s for s in self._slots if s.kind == "w" and "q" in s.roles)
        out, d_model = slot.shape if (slot.order or self.reading.order) == "out in" else slot.shape[::-1]
        columns = h + 2 * g if len(slot.roles) == 3 else h
        if out % columns or d_model < h * (out // columns):
            raise InputError(
                f"{label}: {slot.name} {slot.shape} is not a projection of {d_model} columns to {h} heads; "
                "give a function of x, w_q, w_k, w_v instead"
            )
        return d_model, out // columns


def _keyword(name: str) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY)


_GAINS, _SHIFTS = ("weight", "gamma", "scale", "gain", "g"), ("bias", "beta", "shift")


class HeldNorm:
    """A module of a norm as a function of ``x``, ``gain`` and ``bias``, of its own width alone."""

    def __init__(self, host: Host, request: Request, label: str) -> None:
        entries = {key: tuple(weight.shape) for key, weight in host.weights().items()}
        self._names = {_of_norm(key, shape, label): key for key, shape in entries.items()}
        self.sizes = {"d": next(iter(entries.values()))[0]}
        self._host, self._token = host.prepared(request.dtype), host.tokens()[0]
        self.__name__, self.__wrapped__ = label, host.text
        self.__signature__ = Signature([_keyword("x"), *map(_keyword, self._names)])
        self.note = (
            f"The module is called with other weights in place of its own, {', '.join(self._names.values())}, "
            f"and with rows of {self.sizes['d']} numbers."
        )

    def __call__(self, x: Tensor, **keywords: Tensor) -> Tensor:
        return self._host.run({key: keywords[n] for n, key in self._names.items()}, {self._token: x}, {})


def _of_norm(key: str, shape: tuple[int, ...], label: str) -> str:
    """The input that a parameter of a norm is."""
    last = plain(key.rpartition(".")[2])
    result = "gain" if last in _GAINS else "bias" if last in _SHIFTS else None
    if result is None or len(shape) != 1:
        raise InputError(f"{label} holds {key} {shape}, which is not a gain or bias of a norm; give a function of x")
    return result


# -- torch's layer of an encoder ---------------------------------------------------------------------------------------
# It is a function of its tokens and of weights that are given in the place of its own.

#: The inputs of a block, and the parameters that hold them. Weights of linear layers are (columns out, columns in).
_LINEAR = {"w_o": "self_attn.out_proj.weight", "w_up": "linear1.weight", "w_down": "linear2.weight"}
_ROWS = {"b_up": "linear1.bias", "b_down": "linear2.bias", "ln1_weight": "norm1.weight", "ln1_bias": "norm1.bias",
         "ln2_weight": "norm2.weight", "ln2_bias": "norm2.bias"}  # fmt: skip
_PACKED, _QKV = "self_attn.in_proj_weight", ("w_q", "w_k", "w_v")


def is_layer(function: object) -> bool:
    """Return whether it is torch's layer of an encoder or of a decoder."""
    nn = import_torch().nn
    return isinstance(function, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer))


class HeldLayer:
    """A ``TransformerEncoderLayer`` as a function of ``x``, ``w_q``, ``w_o``, ``w_up``, ``ln1_weight``, …, of its own
    sizes alone.

    Raises InputError for a decoder's layer, and where the block is not of this kind.
    """

    def __init__(self, host: Host, request: Request, label: str) -> None:
        module = host.module
        spec: Any = request.spec  # of type Block: the request of a definition has its specification there
        _check_block(module, spec, label)
        self._causal = bool(spec.attention.causal)
        self._host = host.prepared(request.dtype)
        self._state = {name: host.xp.zeros_like(p) for name, p in self._host.weights().items()}
        m, h = module.self_attn.embed_dim, module.self_attn.num_heads
        self.sizes = {"m": m, "f": module.linear1.out_features, "d_k": m // h, "d_v": m // h}
        self._rows = {name: key for name, key in _ROWS.items() if key in self._state}
        self.__name__, self.__wrapped__ = label, host.text
        names = ("x", *_QKV, *_LINEAR, *self._rows)
        self.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in names])
        self.note = (
            "The layer is called with other weights in place of its own, of its own sizes, and with biases of its "
            "attention that are 0."
        )

    def __call__(self, x: Tensor, **keywords: Tensor) -> Tensor:
        xp = self._host.xp
        state = {**self._state, _PACKED: xp.cat([keywords[name].mT for name in _QKV])}
        state |= {key: keywords[name].mT for name, key in _LINEAR.items()}
        state |= {key: keywords[name] for name, key in self._rows.items()}
        result: dict[str, Tensor] = {}
        if self._causal:
            n = x.shape[-2]
            result = {"src_mask": xp.ones(n, n, dtype=xp.bool).triu(1), "is_causal": True}
        return self._host.run(state, {"src": x}, result)


def _check_block(module: object, spec: Block, label: str) -> None:
    """Raise ``InputError`` where the layer and the block are not of one kind."""
    if not isinstance(module, import_torch().nn.TransformerEncoderLayer):
        raise InputError(
            f"{label} is a decoder's layer, and Block is verified without cross-attention; hint: its self-attention, "
            "or a TransformerEncoderLayer"
        )
    heads = module.self_attn.num_heads
    if spec.attention.heads != heads:
        raise InputError(
            f"{label} has {heads} heads, and the specification {spec.attention.heads}; say --heads {heads}, in Python "
            f"heads={heads}"
        )
    plain = Attention(heads=heads, causal=spec.attention.causal)
    if spec.attention != plain or spec.norm != "layer" or spec.gated or spec.activation is None or spec.parallel:
        raise InputError(
            f"{label} computes Block(attention=Attention(heads={heads}), norm='layer') with an activation that is not "
            "gated; hint: such a specification, causal or not"
        )

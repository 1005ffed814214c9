"""Modules with weights, as functions of tokens and of weights that are passed in place of the module's own.

``Host`` is the interface to the library of a module.

The names in ``state_dict`` say which weight is which: ``q_proj.weight``, ``attn.c_attn.weight``, ``to_out.0.bias``. A
``Linear`` keeps (columns out, columns in), the ``Conv1D`` of Transformers the other order. What names leave open is
determined by trial: the order of a bare square matrix, and whether queries, keys and values in one matrix are side by
side, or side by side for each head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from inspect import Parameter
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from symattn.attention.spec import Attention
from symattn.bounds.domain import Domain
from symattn.document.errors import InputError
from symattn.document.keywords import ROLES, plain
from symattn.programs.frameworks import Tensor, Tensors, import_torch
from symattn.programs.hosts import OWN, Host, Order
from symattn.programs.names import PLACED, Function, gain, meaning, on_first
from symattn.programs.packed import Wrapper, side_by_side
from symattn.programs.request import Request

if TYPE_CHECKING:
    from symattn.attention.layers.block import Block  # most modules are attention

#: Attributes in which a module may have its number of heads.
_HEADS = (
    "num_heads",
    "n_heads",
    "n_head",
    "nhead",
    "heads",
    "num_attention_heads",
    "num_query_heads",
    "num_qo_heads",
    "n_q_heads",
    "num_q_heads",
)
#: Attributes in which a module may have the number of heads of its keys and values.
_KEY_HEADS = (
    "num_kv_heads",
    "num_key_value_heads",
    "n_kv_heads",
    "n_kv_head",
    "kv_heads",
    "num_kv",
)


@dataclass(frozen=True)
class ModuleSlot:
    """A weight or bias of a module: its name, the inputs that are side by side in it, and the order of its axes, if
    known."""

    name: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    order: Order | None = "in out"

    def filled(
        self, xp: object, parts: Sequence[Tensor], order: Order = "out in", heads: int = 1
    ) -> Tensor:
        """Return the array with these inputs side by side, or side by side for each of ``heads``; ``order`` applies if
        the slot's own is unknown."""
        joined = side_by_side(xp, parts, heads) if len(parts) > 1 else parts[0]
        return joined if joined.ndim == 1 or (self.order or order) == "in out" else joined.mT


@dataclass(frozen=True)
class ModuleReading:
    """How to read weights: the order of bare square matrices, and whether q, k, v are side by side for each head."""

    order: Order = "out in"
    by_head: bool = False


#: Inputs of attention on heads with a number for each head, which a module may hold.
BY_HEAD = ("sink", "slopes")


def readings(host: Host, request: Request, name: str) -> Iterator[HeldAttention | HeldInputs]:
    """Yield the module as a function, for each way to read its weights. Raises ``InputError`` if there is none."""
    label = name or "the module"
    if of_inputs := _match_weights_with_inputs(host, request):
        yield HeldInputs(host.prepared(request.dtype), of_inputs, request.spec.heads, label)
        return
    normed = request.spec.qk_norm in ("rms", "layer")
    slots = tuple(
        _make_parameter_slot(host, key, tuple(weight.shape), label, normed)
        for key, weight in host.weights().items()
    )
    entries = [n for s in slots for n in s.names]
    for n in ("w_q", "w_k", "w_v"):
        if n not in entries:
            raise InputError(
                f"{label} holds its own weights, and no {n} among them is known by its name"
            )
    twice = next((n for n in entries if entries.count(n) > 1), None)
    if twice:
        raise InputError(
            f"{label} holds two weights that may be {twice}; give one layer of attention alone"
        )
    _check_heads(label, heads_of(host.module) or request.spec.heads, request.spec)
    host = host.prepared(request.dtype)
    square = any(s.order is None for s in slots)
    packed = (
        any(len(s.names) == 3 for s in slots) and request.spec.heads == request.spec.key_heads > 1
    )
    # What names leave open is tried: joined heads, and the order of bare square matrices.
    for by_head, order in product(
        (False, True) if packed else (False,), _ORDERS if square else _ORDERS[:1]
    ):
        yield HeldAttention(host, slots, ModuleReading(order, by_head), request, label)


def _match_weights_with_inputs(host: Host, request: Request) -> dict[str, str]:
    """Return the input that each weight of a module of q, k and v stands for; empty if one stands for none."""
    weights = {key: meaning(key.rpartition(".")[2]) for key in host.weights()}
    taken = {what for what in weights.values() if what in BY_HEAD and what in request.extras}
    is_of_rows = {meaning(name) for name in host.tokens()} == {"q", "k", "v"}
    # Each weight has an input of its own.
    if not is_of_rows or len(taken) != len(weights):
        return {}
    return {key: str(what) for key, what in weights.items()}


#: Orders of the axes of a weight; the one of torch's Linear comes first.
_ORDERS: tuple[Order, ...] = ("out in", "in out")


def _make_parameter_slot(
    host: Host, key: str, shape: tuple[int, ...], label: str, normed: bool
) -> ModuleSlot:
    """Return the slot of a parameter by its name and by its layer; gains are accepted if q and k are ``normed``."""
    path, _, last = key.rpartition(".")
    own = plain(last) in OWN
    words = [part for part in path.split(".") if not part.isdecimal()]
    word = (
        plain(words[-1] if words else "")
        if own
        else plain(last).removesuffix("weight").removesuffix("bias")
    )
    kind = "b" if plain(last).endswith("bias") else "w"
    one = gain(words[-1], last) if own and words else gain(word, "weight")
    if one and len(shape) == 1 and normed:
        return ModuleSlot(key, (one,), shape)
    if word not in ROLES or len(shape) != (1 if kind == "b" else 2):
        hint = (
            "say --qk-norm rms or layer" if one else "give a function of x, w_q, w_k, w_v instead"
        )
        raise InputError(
            f"{label} holds {key} {shape}, which is not a projection that is known by its name; {hint}"
        )
    order = host.order(key) if kind == "w" else "in out"
    if order is None and len(shape) == 2 and len(ROLES[word]) > 1 and shape[0] != shape[1]:
        # several projections make the longer side
        order = "out in" if shape[0] > shape[1] else "in out"
    return ModuleSlot(key, tuple(f"{kind}_{role}" for role in ROLES[word]), shape, order)


def _check_heads(label: str, heads: int, spec: Attention) -> None:
    if heads != spec.heads:
        raise InputError(
            f"{label} has {heads} heads, and the specification {spec.heads}; say --heads {heads}, in Python "
            f"heads={heads}"
        )


def heads_of(module: object) -> int | None:
    """Return the number of heads that a module names, or None."""
    return _first_whole_number(module, _HEADS)


def key_heads_of(module: object) -> int | None:
    """Return the number of heads of keys and values that a module names, or None."""
    return _first_whole_number(module, _KEY_HEADS)


def _first_whole_number(module: object, names: Sequence[str]) -> int | None:
    return next((n for name in names if isinstance(n := getattr(module, name, None), int)), None)


class ModuleAsFunction(Wrapper):
    """A module of a ``_host`` as a function of its tokens and weights."""

    _host: Host

    @property
    def called(self) -> Function | None:
        """The module, if another version of it can be called in the same way."""
        return self._host.module if self._host.may_be_edited else None

    def around(self, function: Function) -> Wrapper:
        """Return the wrapper of another version of the module."""
        result = copy(self)
        result._host = self._host.around(function)
        return result


class HeldAttention(ModuleAsFunction):
    """A module as a function of ``x``, of its other arguments, and of ``w_q, w_k, w_v, w_o, b_q, …`` by name.

    If the specification is packed, ``w_in`` and ``b_in`` are in the place of those of q, k and v, whether the module
    itself has them side by side or not.
    """

    reading: ModuleReading

    def __init__(
        self,
        host: Host,
        slots: tuple[ModuleSlot, ...],
        reading: ModuleReading,
        request: Request,
        label: str,
    ) -> None:
        self._host, self._xp, self._spec, self._slots, self.reading = (
            host,
            host.xp,
            request.spec,
            slots,
            reading,
        )
        self.d_model, self.width = self._model_and_head_widths(label)
        self._tokens = host.tokens()
        # All other parameters are passed by name.
        rest = [p for p in host.parameters() if p.name not in self._tokens]
        entries = dict.fromkeys(n for s in slots for n in s.names)
        self._names = tuple(_join_packed_names(entries, label) if self._spec.packed else entries)
        own = [
            *(p.replace(kind=Parameter.KEYWORD_ONLY) for p in rest),
            # The weights become parameters, each once, though slots may share them.
            *map(_make_keyword_parameter, self._names),
        ]
        super().__init__(
            host.text, (Parameter("x", Parameter.POSITIONAL_OR_KEYWORD), *own), reading, label
        )
        self.note = f"The module is called with other weights in place of its own: {', '.join(s.name for s in slots)}."
        if reading.by_head:
            self.note += " Each head has its own q, k and v there, side by side."
        if reading.order == "in out":
            self.note += " Bare square matrices are read as they are, not transposed."

    @property
    def traceable(self) -> bool:
        """Return whether JAX can trace the module."""
        return getattr(self._xp, "__name__", "") == "jax.numpy"

    def within(self, domain: Domain) -> Domain:
        """Return the domain restricted to the sizes of the module."""
        return replace(
            domain, square_weights=True, min_width=self.width, max_width=self.width, same_width=True
        )

    def __call__(self, x: Tensor, **keywords: Tensor) -> Tensor:
        weights: Tensors = {n: keywords.pop(n) for n in self._names}
        if self._spec.packed:
            weights = self._split_packed_columns(weights)
        state = {}  # arrays of the module's own shapes with these weights
        for s in self._slots:
            # The output projection has columns of d_model, all other projections have rows.
            axis = -1 if s.names[0].endswith("_o") else 0
            parts = [
                self._pad_to_model_width(weights[n], axis) if n[0] == "w" or axis else weights[n]
                for n in s.names
            ]
            heads = self._spec.heads if len(parts) == 3 and self.reading.by_head else 1
            state[s.name] = s.filled(self._xp, parts, self.reading.order, heads)
        d = x.shape[-1]
        output = self._host.run(
            state, dict.fromkeys(self._tokens, self._pad_to_model_width(x, -1)), keywords
        )
        # Columns that only fill up d_model are cut off again.
        return on_first(lambda first: first[..., :d] if "w_o" in weights else first, output)

    def _split_packed_columns(self, weights: Tensors) -> Tensors:
        """Return the weights with those of q, k and v apart: columns of w_in and entries of b_in."""
        h, g = self._spec.heads, self._spec.key_heads
        result = dict(weights)
        for kind in "wb":
            packed = result.pop(f"{kind}_in", None)
            if packed is None:
                continue
            width = packed.shape[-1] // (h + 2 * g)
            start = 0
            for role, heads in (("q", h), ("k", g), ("v", g)):
                end = start + heads * width
                result[f"{kind}_{role}"] = packed[..., start:end]
                start = end
        return result

    def _pad_to_model_width(self, a: Tensor, axis: int) -> Tensor:
        """Pad an axis of d_model with zeros if the module has more columns than its heads fill."""
        more = self.d_model - a.shape[axis]
        if more <= 0:
            return a
        shape = list(a.shape)
        shape[axis] = more
        return self._xp.concat([a, self._xp.zeros(shape, dtype=a.dtype)], axis=axis)

    def _model_and_head_widths(self, label: str) -> tuple[int, int]:
        """Return d_model, and the width of a head."""
        h, g = self._spec.heads, self._spec.key_heads
        # The projection of queries alone or packed gives the width of a head.
        slot = next(s for s in self._slots if "w_q" in s.names)
        out, d_model = (
            slot.shape if (slot.order or self.reading.order) == "out in" else slot.shape[::-1]
        )
        # A packed projection has h heads of queries and g each of keys and values.
        columns = h + 2 * g if len(slot.names) == 3 else h
        # The columns must split into heads, and heads fit into d_model.
        if out % columns or d_model < h * (out // columns):
            raise InputError(
                f"{label}: {slot.name} {slot.shape} is not a projection of {d_model} columns to {h} heads; "
                "give a function of x, w_q, w_k, w_v instead"
            )
        return d_model, out // columns


class HeldInputs(ModuleAsFunction):
    """A module of q, k and v that holds inputs of its definition, such as sinks, as a function of these as well."""

    def __init__(self, host: Host, of_inputs: Mapping[str, str], heads: int, label: str) -> None:
        self._host, self._of_inputs = host, of_inputs
        self._shapes = {key: tuple(host.weights()[key].shape) for key in of_inputs}
        for key, shape in self._shapes.items():
            if prod(shape) != heads:
                raise InputError(
                    f"{label} holds {key} {shape}, and the specification has {heads} heads"
                )
        own = host.parameters()
        required = [p for p in own if p.kind in PLACED and p.default is Parameter.empty]
        own_inputs = (Parameter(n, Parameter.POSITIONAL_OR_KEYWORD) for n in of_inputs.values())
        # Parameters with a default follow those without one.
        rest = (p for p in own if p not in required)
        super().__init__(host.text, (*required, *own_inputs, *rest), "inputs", label)
        self.note = (
            f"The module is called with other numbers in place of its own: {', '.join(of_inputs)}."
        )

    def __call__(self, *places: Tensor, **keywords: Tensor) -> Tensor:
        arguments = self.__signature__.bind(*places, **keywords).arguments
        state = {
            key: arguments.pop(name).reshape(self._shapes[key])
            for key, name in self._of_inputs.items()
        }
        tokens = {name: arguments.pop(name) for name in self._host.tokens()}
        return self._host.run(state, tokens, arguments)


def _join_packed_names(names: Iterable[str], label: str) -> Iterator[str]:
    """Yield the names with w_in in the place of w_q, w_k, w_v, and b_in in that of the biases.

    Raises ``InputError`` if some of q, k and v alone have a bias.
    """
    names = tuple(names)
    biases = [n for n in names if n in ("b_q", "b_k", "b_v")]
    if len(biases) in (1, 2):
        raise InputError(
            f"{label} holds {' and '.join(biases)} alone, which is no bias of packed columns; leave out --packed"
        )
    yield "w_in"
    if biases:
        yield "b_in"
    yield from (n for n in names if n[:2] not in ("w_", "b_") or n[2:] not in ("q", "k", "v"))


def _make_keyword_parameter(name: str) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY)


#: Names of the gain and of the bias of a norm.
_GAINS, _SHIFTS = ("weight", "gamma", "scale", "gain", "g"), ("bias", "beta", "shift")


class HeldModule(ModuleAsFunction):
    """A module as a function of ``x`` and of weights by name, for its own sizes only."""

    def __init__(
        self,
        host: Host,
        slots: Sequence[ModuleSlot],
        sizes: Mapping[str, int],
        label: str,
        note: str,
    ) -> None:
        self._host, self._slots, self.sizes = host, slots, sizes
        names = ("x", *(n for s in slots for n in s.names))
        super().__init__(host.text, map(_make_keyword_parameter, names), None, label)
        self.note = f"{note} is called with other weights in place of its own"
        self.reservations: tuple[str, ...] = ()  # what limits a verdict
        self.rest: Tensors = {}  # other weights of the module
        self.more: Function = lambda x: {}  # further arguments of a call with tokens

    def __call__(self, x: Tensor, **keywords: Tensor) -> Tensor:
        state = {
            s.name: s.filled(self._host.xp, [keywords[n] for n in s.names]) for s in self._slots
        }
        return self._host.run({**self.rest, **state}, {self._host.tokens()[0]: x}, self.more(x))


class HeldNorm(HeldModule):
    """A module of a norm as a function of ``x``, ``gain`` and ``bias``."""

    def __init__(self, host: Host, request: Request, label: str) -> None:
        shapes = {key: tuple(weight.shape) for key, weight in host.weights().items()}
        slots = []
        for key, shape in shapes.items():
            last = plain(key.rpartition(".")[2])
            name = "gain" if last in _GAINS else "bias" if last in _SHIFTS else None
            # A norm's weights are vectors.
            if name is None or len(shape) != 1:
                what = "which is not a gain or bias of a norm; give a function of x"
                raise InputError(f"{label} holds {key} {shape}, {what}")
            slots.append(ModuleSlot(key, (name,), shape))
        # All weights of a norm have the width of a row.
        (d,) = slots[0].shape
        super().__init__(host.prepared(request.dtype), slots, {"d": d}, label, "The module")
        self.note += f", {', '.join(shapes)}, and with rows of {d} numbers."


# -- torch's encoder layer, as a function of its tokens and of weights in place of its own -----------------------------
#: The parameters, and the inputs of a block in them. Weights of linear layers are (columns out, columns in).
_LAYER = {"self_attn.in_proj_weight": "w_q w_k w_v", "self_attn.out_proj.weight": "w_o", "linear1.weight": "w_up",
          "linear2.weight": "w_down", "linear1.bias": "b_up", "linear2.bias": "b_down", "norm1.weight": "ln1_weight",
          "norm1.bias": "ln1_bias", "norm2.weight": "ln2_weight", "norm2.bias": "ln2_bias"}  # fmt: skip


def is_layer(function: object) -> bool:
    """Return whether a function is torch's encoder or decoder layer."""
    nn = import_torch().nn
    return isinstance(function, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer))


class HeldLayer(HeldModule):
    """A ``TransformerEncoderLayer`` as a function of ``x``, ``w_q``, ``w_o``, ``w_up``, ``ln1_weight``, ….

    Raises ``InputError`` for a decoder layer, and for a block of another kind.
    """

    def __init__(self, host: Host, request: Request, label: str) -> None:
        module = host.module
        # of type Block: the request of a definition has its specification there
        spec: Any = request.spec
        _check_block(module, spec, label)
        host = host.prepared(request.dtype)
        # Zeros stand for weights that the block does not have, such as biases of attention.
        zeros = {name: host.xp.zeros_like(p) for name, p in host.weights().items()}
        slots = [
            ModuleSlot(key, tuple(names.split()), (), "out in")
            for key, names in _LAYER.items()
            if key in zeros
        ]
        m, h = module.self_attn.embed_dim, module.self_attn.num_heads
        sizes = {"m": m, "f": module.linear1.out_features, "d_k": m // h, "d_v": m // h}
        super().__init__(host, slots, sizes, label, "The layer")
        self.note += ", and of its own sizes."
        if any(name.endswith("bias") and name not in _LAYER for name in zeros):
            self.reservations = (
                "In every call the biases of its attention are 0, as the block has none.",
            )
        self.rest = zeros
        if spec.attention.causal:
            # In torch's masks True forbids a key.
            true = host.xp.tensor(True)
            self.more = lambda x: {
                "src_mask": true.repeat(2 * x.shape[-2:-1]).triu(1),
                "is_causal": True,
            }


def _check_block(module: object, spec: Block, label: str) -> None:
    """Raise ``InputError`` if the layer and the block are not of the same kind."""
    if not isinstance(module, import_torch().nn.TransformerEncoderLayer):
        raise InputError(
            f"{label} is a decoder's layer, and Block is verified without cross-attention; hint: its self-attention, "
            "or a TransformerEncoderLayer"
        )
    heads = module.self_attn.num_heads
    _check_heads(label, heads, spec.attention)
    # torch's layer has no other options of attention.
    plain = Attention(heads=heads, causal=spec.attention.causal)
    if (
        spec.attention != plain
        or spec.norm != "layer"
        or spec.gated
        or spec.activation is None
        or spec.parallel
    ):
        raise InputError(
            f"{label} computes Block(attention=Attention(heads={heads}), norm='layer') with an activation that is not "
            "gated; hint: such a specification, causal or not"
        )

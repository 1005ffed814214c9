"""torch's layer of an encoder as a function of its tokens and of weights that are given in the place of its own."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from symattn.attention.layers.block import Block
from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.programs.frameworks import import_torch
from symattn.programs.hosts import Host
from symattn.programs.request import Request

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
        _check(module, spec, label)
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

    def __call__(self, x: Any, **keywords: Any) -> Any:
        xp = self._host.xp
        state = {**self._state, _PACKED: xp.cat([keywords[name].mT for name in _QKV])}
        state |= {key: keywords[name].mT for name, key in _LINEAR.items()}
        state |= {key: keywords[name] for name, key in self._rows.items()}
        result: dict[str, Any] = {}
        if self._causal:
            n = x.shape[-2]
            result = {"src_mask": xp.ones(n, n, dtype=xp.bool).triu(1), "is_causal": True}
        return self._host.run(state, {"src": x}, result)


def _check(module: object, spec: Block, label: str) -> None:
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

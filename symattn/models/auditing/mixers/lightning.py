"""Layers of lightning attention that compute their recurrence in their own forward pass, such as MiniMax's.

No function of its own is called that could be read. What the projection returned, what the norm received and the final
state are noted while the layer runs, and judged when it ends: with queries, keys and values of silu(x W), which stand
side by side for each head, and with the decay e^{−s} of a head, the output is Σ_{j≤i} e^{−s (i−j)} (q_i · k_j) v_j.

The slope of head i of h is s = 2^{−8(i+1)/h} (1 − l/(L − 1 + 10⁻⁵) + 10⁻⁵) in layer l of L.
Source: MiniMax, MiniMax-01: Scaling Foundation Models with Lightning Attention (2025), section 2.2; Transformers'
MiniMax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.models.auditing import promises
from symattn.models.auditing.mixers.chosen_heads import choose_heads, take_heads
from symattn.models.auditing.mixers.recurrent_call import RecurrentCall
from symattn.models.auditing.received import UnreadCall
from symattn.models.auditing.setting import Args, Floats, Kwargs, Module, Tensor, numbers
from symattn.programs.frameworks import dtype_name
from symattn.verification.definitions.linear import LinearAttention

#: Attributes by which such a layer is known.
_PARTS = ("qkv_proj", "act_fn", "slope_rate", "norm", "out_proj", "layer_idx", "num_hidden_layers")
#: Formats in which the law covers decays that a layer stores before they are multiplied.
_COVERED = ("float32", "float64")
# Roundings of a slope and of its product with a number of tokens, in units of float32.
_ROUNDINGS_OF_SLOPES = 12
_ULP = 2.0**-24


def is_lightning(module: Module | None) -> bool:
    """Return whether a module is a layer of lightning attention, by its parts."""
    return module is not None and all(hasattr(module, name) for name in _PARTS)


@dataclass
class _Pass:
    """What a layer computed so far: the output of its projection, and what its norm received.

    ``before`` is the state in the cache when it began, and ``known`` says whether the caches of its model are known.
    """

    projected: Tensor
    before: Tensor | None
    known: bool
    mixed: Tensor | None = None


class LightningPasses:
    """The passes of layers of lightning attention that have begun."""

    def __init__(self) -> None:
        self._passes: WeakKeyDictionary[Module, _Pass] = WeakKeyDictionary()

    def note(
        self,
        layer: Module | None,
        part: Module,
        args: Args,
        out: Any,
        context: promises.ModelCall | None,
    ) -> None:
        """Note what a part of a layer received and returned, in a call of a model."""
        if layer is None or not is_lightning(layer):
            return
        if part is layer.qkv_proj:
            before = None if context is None else _state_in(context, layer.layer_idx)
            self._passes[layer] = _Pass(out, before, context is not None)
        elif part is layer.norm and args and layer in self._passes:
            self._passes[layer].mixed = args[0]

    def has_pass(self, layer: Module) -> bool:
        """Return whether a pass of a layer was noted whole."""
        noted = self._passes.get(layer)
        return noted is not None and noted.mixed is not None

    def read(
        self, layer: Module, args: Args, kwargs: Kwargs, out: Any
    ) -> tuple[RecurrentCall, Any]:
        """Return the recurrence of a pass that ended, and what it gave. Raises ``UnreadCall``."""
        noted = self._passes.pop(layer)
        passed = signature(layer.forward).bind_partial(*args, **kwargs).arguments
        if promises.cache_in(passed) is not None and not noted.known:
            raise UnreadCall("it runs outside of a model, so that the state before it is unknown")
        state = out[1] if isinstance(out, tuple) and len(out) > 1 else None
        return _read_pass(layer, noted, passed.get("attention_mask"), state)


def _state_in(context: promises.ModelCall, place: int) -> Tensor | None:
    """Return a copy of the state of a layer in the cache with which a model was called; None if there is none."""
    read = getattr(promises.cache_in(context.arguments), "get_linear_cache", None)
    stored: Any = None if read is None else read(place)
    # Other kinds of layers leave an empty list at their place.
    return stored.detach().clone() if hasattr(stored, "detach") else None


def _read_pass(
    layer: Module, noted: _Pass, mask: Tensor | None, state: Tensor | None
) -> tuple[RecurrentCall, Any]:
    projected, before, mixed = noted.projected, noted.before, noted.mixed
    assert mixed is not None
    name = dtype_name(projected)
    if name not in FORMATS:
        raise UnreadCall(f"its arrays are of {name}")
    if name not in _COVERED:
        raise UnreadCall(f"in {name} it stores decays and the state, which no bound covers")
    batch, length, width = projected.shape
    slopes = _slopes_of(layer)
    heads = len(slopes)
    if width % (3 * heads) or tuple(mixed.shape) != (batch, length, width // 3):
        raise UnreadCall(f"its norm received an array of the shape {tuple(mixed.shape)}")
    of_tokens = layer.act_fn(projected) * _mask_of_tokens(mask, batch, length)
    q, k, v = of_tokens.reshape(batch, length, heads, -1).chunk(3, dim=-1)
    chosen = choose_heads(batch * heads, length)
    decay = -slopes[np.asarray(chosen) % heads]
    arrays = {role: take_heads(x, heads, chosen) for role, x in (("q", q), ("k", k), ("v", v))}
    arrays["g"] = _repeat_for_tokens(decay, length)
    if before is not None:
        arrays["initial_state"] = numbers(before.flatten(0, 1)[list(chosen)])
    # If its stored slopes are others, a wrong pass may be explained by them.
    stored = numbers(layer.slope_rate).reshape(-1)
    others: dict[str, Mapping[str, Floats]] = {}
    if stored.shape == slopes.shape and not np.allclose(stored, slopes, rtol=1e-3, atol=0):
        of_chosen = -stored[np.asarray(chosen) % heads]
        others["decays are those of its array slope_rate, not those of its place and heads"] = {
            "g": _repeat_for_tokens(of_chosen, length)
        }
    call = RecurrentCall(
        LinearAttention(feature="identity", normalised=False, gate="token"),
        arrays,
        chosen,
        Format(name),
        "lightning attention, decays of heads",
        f"{heads} heads {length} token{'s' * (length != 1)} {name}",
        gate_errors=_ROUNDINGS_OF_SLOPES * _ULP * np.abs(arrays["g"]),
        value_errors=np.zeros_like(arrays["v"]),
        size=getattr(layer, "block_size", None),
        others=others,
    )
    return call, (mixed.reshape(batch, length, heads, -1), state)


def _slopes_of(layer: Module) -> Floats:
    """Return the slope of each head by the layer's place, (h,)."""
    heads = int(layer.slope_rate.numel())
    base = 2.0 ** (-8 / heads)
    share = layer.layer_idx / (layer.num_hidden_layers - 1 + 1e-5)
    return np.asarray(base ** np.arange(1, heads + 1) * (1 - share + 1e-5))


def _mask_of_tokens(mask: Tensor | None, batch: int, length: int) -> Any:
    """Return the factors of tokens (b, n, 1), 0 for padding, as Transformers masks the states of recurrences."""
    if mask is None:
        return 1
    if tuple(mask.shape) != (batch, length):
        raise UnreadCall(f"its mask has the shape {tuple(mask.shape)}")
    return mask[:, :, None]


def _repeat_for_tokens(of_heads: Floats, length: int) -> Floats:
    return np.repeat(of_heads[:, None, None], length, axis=1)

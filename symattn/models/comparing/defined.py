"""The definition of attention in the place of a model's own: attention implementations of transformers.

Source: the interface of ``transformers.modeling_utils.AttentionInterface``, which models call with their queries, keys
and values (b, h, n, d), a mask (b, 1 or h, n_q, n_k) and what their configuration adds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.document.errors import InputError, Refused
from symattn.models.configurations import CannotTell
from symattn.models.configurations import attention as promised

#: The definition as given, with the mask that transformers builds for ``eager`` or ``sdpa``; and with that of the
#: configuration.
EAGER, SDPA, CONFIGURED = "symattn-definition", "symattn-definition-sdpa", "symattn-configuration"
_FORBIDS = -1e4  # in a mask that is added: what is as low forbids a key, in every format
#: Arrays that say nothing about the scores beside the mask.
_HARMLESS = ("position_ids", "cache_position", "s_aux", "position_embeddings", "attention_mask", "position_bias")
_PLACES = ("causal", "window", "block", "prefix", "alignment")  # what of a specification forbids keys by place


class Undefined(Refused):
    """The model asks its attention for something that the definition is not told of here."""


class Calls:
    """How often the definition was called since it was last asked."""

    made = 0


def register() -> None:
    """Make the definition known to transformers by its names."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask

    ways: dict[str, tuple[Callable[..., Any], Any]] = {
        EAGER: (_two_sided, eager_mask), SDPA: (_as_sdpa, sdpa_mask), CONFIGURED: (_configured, eager_mask),
    }  # fmt: skip
    for name, (places, mask) in ways.items():
        AttentionInterface.register(name, partial(attention, places))
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, mask)


def attention(
    places: Callable[[Any, bool, int], Attention | None],
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: object,
    scaling: float | None = None,
    **told: Any,
) -> tuple[Any, None]:
    """softmax(scale · Q Kᵀ, capped, + bias + mask) V of each item, in float64: (b, n_q, h, d_v).

    ``places`` says which keys are forbidden by place, whatever the mask says (None: the mask alone). Raises
    ``Undefined`` for an array that the model passes besides and that may change the scores.
    """
    import torch

    Calls.made += 1
    for name, given in told.items():
        if isinstance(given, torch.Tensor) and name not in _HARMLESS:
            raise Undefined(f"the model passes {name} to its attention, which the definition is not told of")
    n_q, n_k = query.shape[-2], key.shape[-2]
    allowed, bias = _mask(attention_mask, n_q, n_k)
    bias = _joined(bias, told.get("position_bias"), n_k)
    by_place = places(module, attention_mask is None, n_q)
    sink = told.get("s_aux")
    spec = Attention(
        heads=query.shape[1],
        kv_heads=key.shape[1],
        scale=float(scaling if scaling is not None else getattr(module, "scaling", None) or query.shape[-1] ** -0.5),
        softcap=told.get("softcap"),
        sink=None if sink is None else "given",
        mask=None if by_place is not None else "boolean",
        bias=bias is not None,
        fully_masked="zeros",
        **({} if by_place is None else {name: getattr(by_place, name) for name in _PLACES}),
    )
    given = {} if sink is None else {"sink": sink.detach().double().cpu().numpy()}
    q, k, v = (a.detach().double().cpu().numpy() for a in (query, key, value))

    def of_item(b: int) -> np.ndarray:
        own = dict(given)
        if by_place is None:
            own["mask"] = allowed[b % len(allowed)]
        if bias is not None:
            own["bias"] = bias[b % len(bias)]
        return np.asarray(spec(q[b], k[b], v[b], **own))

    found = np.stack([of_item(b) for b in range(len(q))])
    return torch.from_numpy(found).to(query.dtype).to(query.device).transpose(1, 2).contiguous(), None


# -- which keys are forbidden by place ---------------------------------------------------------------------------------
def _two_sided(module: object, bare: bool, n_q: int) -> Attention | None:
    """As the eager functions do: without a mask every key is seen."""
    return Attention() if bare else None


def _as_sdpa(module: object, bare: bool, n_q: int) -> Attention | None:
    """As transformers calls torch's function: without a mask several queries see earlier keys, if it is causal."""
    causal = bool(getattr(module, "is_causal", True)) and n_q > 1
    return Attention(causal=causal, alignment="top-left" if causal else "bottom-right") if bare else None


def _configured(module: Any, bare: bool, n_q: int) -> Attention | None:
    """As the configuration of the model says of this layer. Raises ``Undefined`` where it is not read."""
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int) or not hasattr(module, "config"):
        raise Undefined("its attention does not say of which layer it is")
    if getattr(module.config, "is_encoder_decoder", False):
        raise Undefined("whether attention of a model with an encoder is of that, or of the decoder, is not told")
    try:
        return promised(module.config, layer)
    except (CannotTell, InputError) as error:
        raise Undefined(str(error)) from None


# -- the mask ----------------------------------------------------------------------------------------------------------
def _mask(given: Any, n_q: int, n_k: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Which keys a mask allows, (b, h or 1, n_q, n_k), and what it adds to the scores, if it does."""
    if given is None:
        return np.ones((1, 1, n_q, n_k), dtype=bool), None
    found = given[..., :n_k].detach().cpu()
    found = (found.double() if found.dtype.is_floating_point else found).numpy()
    if found.dtype == bool:
        return found, None
    allowed = found > _FORBIDS
    bias = np.where(allowed, found, 0.0)
    return allowed, bias if bias.any() else None


def _joined(bias: np.ndarray | None, other: Any, n_k: int) -> np.ndarray | None:
    """Both biases of the scores, (b, h or 1, n_q, n_k)."""
    if other is None:
        return bias
    found: np.ndarray = other[..., :n_k].detach().double().cpu().numpy()
    return found if bias is None else found + bias

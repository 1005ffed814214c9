"""The definition of attention in the place of a model's own: attention implementations of transformers.

Source: the interface of ``transformers.modeling_utils.AttentionInterface``, whose arguments are read as in an audit.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.models.auditing.interfaces import of_arguments
from symattn.models.auditing.promised_mask import visible
from symattn.models.auditing.received import UnreadCall, setting_of
from symattn.models.configurations import attention as promised

if TYPE_CHECKING:
    from torch import Tensor

#: The definition as given, with the mask that transformers builds for ``eager`` or ``sdpa``; and with that of the
#: configuration.
EAGER, SDPA, CONFIGURED = "symattn-definition", "symattn-definition-sdpa", "symattn-configuration"
#: Arrays that say nothing about the scores beside the mask.
_HARMLESS = ("position_ids", "cache_position", "s_aux", "position_embeddings", "attention_mask", "position_bias")


class Calls:
    """How often the definition was called since it was last asked."""

    made = 0


def register() -> None:
    """Make the definition known to transformers by its names."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask

    ways: dict[str, tuple[str, Any]] = {
        EAGER: ("eager", eager_mask),
        SDPA: ("sdpa", sdpa_mask),
        CONFIGURED: (CONFIGURED, eager_mask),
    }
    for name, (kind, mask) in ways.items():
        AttentionInterface.register(name, partial(attention, kind))
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, mask)


def attention(
    kind: str,
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """softmax(scale · Q Kᵀ, capped, + bias + mask) V of each item, in float64: (b, n_q, h, d_v).

    ``kind`` says what forbids keys: the mask, with which ``eager`` and ``sdpa`` functions do what transformers' own do,
    or the configuration. Raises ``UnreadCall`` for a further array of the model that may change the scores.
    """
    import torch

    Calls.made += 1
    for name, given in more.items():
        if isinstance(given, torch.Tensor) and name not in _HARMLESS:
            raise UnreadCall(f"the model passes {name} to its attention, which the definition does not receive")
    own = {"module": module, "query": query, "key": key, "value": value, "attention_mask": attention_mask}
    scale = getattr(module, "scaling", None) if scaling is None else scaling
    n_q, n_k = query.shape[-2], key.shape[-2]
    setting = setting_of(of_arguments(kind, {**more, **own, "scaling": scale}), range(n_q))
    if kind == CONFIGURED:
        setting = setting.with_mask(visible(_configured(module), list(range(n_q)), n_q, n_k)[None, None])
    o = np.asarray(replace(setting.spec(), fully_masked="zeros")(**setting.inputs()))
    return torch.from_numpy(o).to(query.dtype).to(query.device).transpose(1, 2).contiguous(), None


def _configured(module: Any) -> Attention:
    """Return what the configuration of the model says of this layer. Raises ``UnreadCall`` where it is not read."""
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int) or not hasattr(module, "config"):
        raise UnreadCall("its attention does not say of which layer it is")
    if getattr(module.config, "is_encoder_decoder", False):
        raise UnreadCall("nothing states whether its attention belongs to the encoder or to the decoder")
    try:
        return promised(module.config, layer)
    except InputError as error:
        raise UnreadCall(str(error)) from None

"""Find out whether a model is promised to be causal: by its configuration, or by its class."""

from __future__ import annotations

from typing import Any

from symattn.document.errors import SymattnError
from symattn.models.auditing.setting import Kwargs, Module
from symattn.models.configurations import promised_layers


def promised_causal(model: Module, kwargs: Kwargs) -> bool | None:
    """Return whether no output may depend on later tokens; None if nothing is promised for this call.

    The row of the family says so, else fields of the configuration, else that Transformers lists its class among those
    for causal language models. A mask of more than two axes, and tokens of several types, are the caller's own.
    """
    config = getattr(model, "config", None)
    if not hasattr(config, "model_type"):
        return None
    # Masks of their own may show later tokens.
    masked = getattr(kwargs.get("attention_mask"), "ndim", 2) > 2
    of_types = [x for name, x in kwargs.items() if "token_type_ids" in name]
    kinds = [x for x in of_types if hasattr(x, "any")]
    if masked or any(bool(x.any()) for x in kinds):
        return None
    try:
        # Every layer has to be causal.
        return all(
            promised_layers.attention(config, layer=i, called=True).causal
            for i in range(promised_layers.layers(config))
        )
    except SymattnError:
        return _by_fields(config)


def _by_fields(config: Any) -> bool | None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    # XLM and Flaubert have the field ``causal``, XLNet ``attn_type``.
    is_two_sided = getattr(config, "use_bidirectional_attention", None) or (
        getattr(config, "attn_type", None) == "bi"
    )
    if is_two_sided or any(getattr(config, n, None) is False for n in ("is_causal", "causal")):
        return False
    # An encoder may see everything.
    if getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", True) is False:
        return None
    # The class alone is what is left.
    return True if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else None

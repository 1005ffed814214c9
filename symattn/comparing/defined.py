"""The definition of attention in the place of a model's own: an attention implementation of transformers.

Source: the interface of ``transformers.modeling_utils.AttentionInterface``, which models call with their queries, keys
and values (b, h, n, d), a mask (b, 1, n_q, n_k) and what their configuration adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.errors import Refused

NAME = "symattn-definition"
_FORBIDS = -1e4  # in a mask that is added: what is as low forbids a key, in every format
#: Arrays that say nothing about the scores beside the mask.
_HARMLESS = ("position_ids", "cache_position", "s_aux", "position_embeddings", "attention_mask")


class Undefined(Refused):
    """The model asks its attention for something that the definition is not told of here."""


class Calls:
    """How often the definition was called since it was last asked."""

    made = 0


def register() -> str:
    """Make the definition known to transformers by its name, which is returned."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask

    AttentionInterface.register(NAME, attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, eager_mask)
    return NAME


def attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **told: Any
) -> tuple[Any, None]:
    """softmax(scale · Q Kᵀ, capped, + mask) V of each item, in float64: (b, n_q, h, d_v).

    Raises ``Undefined`` for an array that the model passes besides and that may change the scores.
    """
    import torch

    Calls.made += 1
    for name, given in told.items():
        if isinstance(given, torch.Tensor) and name not in _HARMLESS:
            raise Undefined(f"the model passes {name} to its attention, which the definition is not told of")
    sink = told.get("s_aux")
    spec = Attention(
        heads=query.shape[1],
        kv_heads=key.shape[1],
        scale=float(scaling if scaling is not None else getattr(module, "scaling", None) or query.shape[-1] ** -0.5),
        softcap=told.get("softcap"),
        sink=None if sink is None else "given",
        mask="boolean",
        fully_masked="zeros",
    )
    given = {} if sink is None else {"sink": sink.detach().double().numpy()}
    mask = _mask(attention_mask, query.shape[-2], key.shape[-2])
    q, k, v = (a.detach().double().cpu().numpy() for a in (query, key, value))
    found = [spec(q[b], k[b], v[b], mask=mask[b if len(mask) > 1 else 0], **given) for b in range(len(q))]
    output = torch.from_numpy(np.stack(found)).to(query.dtype).to(query.device)
    return output.transpose(1, 2).contiguous(), None


def _mask(given: Any, n_q: int, n_k: int) -> np.ndarray:
    """The mask as booleans (b, n_q, n_k); without one all keys are seen by one query, and earlier ones by several."""
    if given is None:
        return np.tri(n_q, n_k, n_k - n_q, dtype=bool)[None]
    found = given[:, 0, :, :n_k].detach().cpu()
    found = (found.double() if found.dtype.is_floating_point else found).numpy()
    if found.dtype == bool:
        return np.asarray(found)
    if not ((found == 0) | (found <= _FORBIDS)).all():
        raise Undefined("the model adds a bias to its mask, which the definition is not told of")
    return np.asarray(found == 0)

"""A walk through one head of a checkpoint: ``symattn walk --config config.json --weights model.safetensors``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from symattn.attention.codec.field_values import written
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary
from symattn.attention.positions.relative import slopes
from symattn.attention.spec import Attention
from symattn.derivations.walks import walk
from symattn.document.codec import command
from symattn.document.errors import InputError
from symattn.document.model import Document, Note
from symattn.models.checkpoint import Checkpoint
from symattn.models.configurations import promised_layers
from symattn.models.configurations.configuration import configuration
from symattn.models.configurations.stored_weights import inputs

from .model_formulas import place_of

#: Scores are computed from the last of these arrays that a trace has.
_QUERIES, _KEYS = (
    ("q", "q_normed", "q_rotated", "q_joined"),
    ("k", "k_normed", "k_rotated", "k_joined"),
)
_MOST_IDS = 32
NOTE = (
    "Queries, keys and values are those of {head}, computed in float64 by the definition from the weights of the file: "
    "projected, and normalised and rotated where the model does so. From there on every number is exact. The tokens "
    "are rows {ids} of the embedding, not the output of a layer before, and no norm is applied to them."
)


def walk_head(
    config: object,
    weights: str | os.PathLike[str],
    layer: int = 0,
    head: int = 0,
    ids: Sequence[int] = (0, 1, 2),
    **wishes: Any,
) -> Document:
    """Walk through one head of a checkpoint on a few tokens, starting from queries, keys and values.

    ``config`` is as for ``attention``, ``weights`` a file of safetensors, ``ids`` the token ids; ``wishes`` are those
    of ``walk``. Raises InputError if a file, layer, head or token does not exist.
    """  # fmt: skip
    if not 1 <= len(ids) <= _MOST_IDS:
        raise InputError(f"{len(ids)} tokens were requested; a walk takes 1 to {_MOST_IDS}")
    c = configuration(config)
    spec = promised_layers.attention(c, layer)
    if not 0 <= head < spec.heads:
        raise InputError(f"head {head} was requested; {c} has {spec.heads}, counted from 0")
    file = Checkpoint(weights)
    arrays = inputs(file.attention(layer), spec, promised_layers.known(c)[1])
    plain, given = of_head(spec, {"x": file.rows(ids), **arrays}, head)
    page = walk({"inputs": given, "attention": written(plain, changed=True)}, **wishes)
    words = NOTE.format(head=f"head {head} of layer {layer}", ids=", ".join(map(str, ids)))
    where = {
        "config": place_of(config),
        "weights": os.fspath(weights),
        "layer": layer,
        "head": head,
        "ids": tuple(ids),
    }
    return replace(page.opened_by(Note((words,))), command=command("walk", options=where))


def of_head(
    spec: Attention, arrays: dict[str, np.ndarray], head: int
) -> tuple[Attention, dict[str, Any]]:
    """Return the attention of one head without projections, and its inputs: q, k, v, and its sink, slope or biases."""
    trace = spec.trace(**arrays)
    group = 1 if spec.latent else spec.group
    q, k = (
        next(trace[name] for name in reversed(names) if name in trace)
        for names in (_QUERIES, _KEYS)
    )
    own: dict[str, Any] = {
        "q": _of(q, head),
        "k": _of(k, head // group),
        "v": _of(trace["v"], head // group),
    }
    position = spec.position
    if isinstance(position, Rotary):
        position = None
    elif isinstance(position, Alibi):
        own["slopes"] = np.asarray(slopes(spec.heads, np.zeros(1)))[head : head + 1]
        position = replace(position, slopes="given")
    elif isinstance(position, Buckets):
        own["b_rel"] = arrays["b_rel"][:, head : head + 1]
    elif position is not None:
        raise InputError(
            f"{type(position).__name__} takes queries and keys of tokens, which a walk of one head does not have"
        )
    if spec.sink == "given":
        own["sink"] = arrays["sink"][head : head + 1]
    # Queries and keys have been normalised: only the ε of values is left.
    plain = replace(
        spec, heads=1, kv_heads=None, latent=None, qk_norm=None, qk_norm_place="before",
        qk_norm_over="head", qk_norm_of="both", eps=spec.eps if spec.value_norm else 0, position=position,
    )  # fmt: skip
    return plain, own


def _of(array: np.ndarray, head: int) -> np.ndarray:
    """Return the array of one head; an array may be shared by all heads."""
    return array if array.ndim == 2 else array[min(head, len(array) - 1)]

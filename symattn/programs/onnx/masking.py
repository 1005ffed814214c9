"""Which keys a query sees: the causal frontier, the window and the padding of an ONNX node, beside its mask.

The query i has the place i + offset among the keys. The offset is the number of keys that came before the queries:
those of the past, or of a cache, or none. Source: ONNX, Operator Schemas, Attention-25.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import masks
from symattn.attention.sizes import same
from symattn.document.errors import InputError, Refused
from symattn.programs.graphs.values import are_booleans

_BROADCAST = 23  # the opset in which one column of a mask stands for all keys
Found = tuple[dict[str, Any], dict[str, Any]]  # fields of ``Attention``, and inputs


@dataclass(frozen=True)
class Frontier:
    """From ``left`` keys before the query to ``right`` keys after it, None an open side; ``causal`` is right = 0.

    ``offset`` is one number, or one for each element of the batch.
    """

    causal: bool
    left: int | None
    right: int | None
    offset: Any

    @classmethod
    def of(cls, attributes: Mapping[str, Any], offset: Any) -> Frontier:
        """The frontier that a node's attributes say."""
        return cls(
            bool(attributes.get("is_causal", 0)),
            _side(attributes, "left_window_size"),
            _side(attributes, "right_window_size"),
            offset,
        )

    @property
    def window(self) -> tuple[int | None, int | None] | None:
        """The window's sides, if it has one."""
        return None if self.left is None and self.right is None else (self.left, self.right)

    def fields(self, n_q: int, n_k: int) -> dict[str, Any] | None:
        """The fields of ``Attention`` that say the same, if there are such."""
        if not self.causal and self.window is None:
            return {}
        bottom = isinstance(self.offset, int) and same(self.offset, n_k - n_q)
        if not bottom and not (isinstance(self.offset, int) and self.offset == 0):
            return None
        alignment = "bottom-right" if bottom else "top-left"
        return {"causal": self.causal, "window": self.window, "alignment": alignment}

    def seen(self, n_q: int, n_k: int) -> Any:
        """Return the mask as booleans: (n_q, n_k), or (b, 1, n_q, n_k) where the offset differs along the batch."""
        if not (isinstance(n_q, int) and isinstance(n_k, int)):
            raise Refused("a causal frontier behind a cache, for numbers of queries and keys that were left open")
        offset = self.offset if isinstance(self.offset, int) else self.offset[:, None, None, None]
        places = masks.Places(np.arange(n_q)[:, None] + offset, np.arange(n_k)[None, :])
        seen = masks.causal(places) if self.causal else np.asarray(True)
        return seen & masks.sides(places, self.left, self.right) if self.window else seen


def masks_of(
    frontier: Frontier, n_q: int, n_k: int, mask: Any = None, lengths: object = None, opset: int | None = None
) -> Found:
    """Fields and inputs for a frontier, a mask (booleans, or numbers to add) and the lengths of a cache."""
    fields, inputs = _padding(n_k, mask, lengths, opset)
    if mask is not None:
        mask = _of_scores(mask, n_k, repeated="keep" not in inputs)
        fields |= {"mask": "boolean" if are_booleans(mask) else "additive"}
        inputs |= {"mask": mask}
    structure = frontier.fields(n_q, n_k)
    if structure is not None:
        return fields | structure, inputs
    seen = frontier.seen(n_q, n_k)
    if fields.get("mask") == "boolean":
        return fields, inputs | {"mask": mask & seen}
    if mask is not None:
        fields, inputs = fields | {"bias": True}, inputs | {"bias": mask}
    return fields | {"mask": "boolean"}, inputs | {"mask": seen}


def _padding(n_k: int, mask: Any, lengths: Any, opset: int | None) -> Found:
    """Keys behind the end of a cache, and those for which a mask has no columns, are seen by no query."""
    width = n_k if mask is None else mask.shape[-1]
    if lengths is None and same(width, n_k):
        return {}, {}
    if width > n_k:
        raise InputError(f"attn_mask has {width} columns; there are {n_k} keys")
    if lengths is None and _repeats(width, n_k, opset):
        return {}, {}
    ends = np.asarray(width) if lengths is None else np.minimum(lengths, width)
    return {"padding": True}, {"keep": masks.real_keys(ends, n_k)}


def _repeats(width: int, n_k: int, opset: int | None) -> bool:
    """Return whether a mask of fewer columns than keys is repeated for all keys.

    Opset 23 repeats one column, and has no fewer; later ones hide the keys without a column.
    """
    if opset == _BROADCAST and width != 1:
        raise InputError(f"attn_mask has {width} columns; opset {opset} wants one or {n_k}, a column for each key")
    if opset is None and width == 1:
        what = f"attn_mask has one column; there are {n_k} keys"
        raise InputError(
            f"{what}: opset 23 repeats it, later ones hide the other keys; hint: give a column for each key"
        )
    return opset == _BROADCAST


def _of_scores(mask: Any, n_k: int, repeated: bool) -> Any:
    """A mask with axes of queries and keys, (h, n_q, n_k) with one of batches too, and a column for each key.

    What is in new columns does not matter: they are padding, unless the one column is ``repeated``.
    """
    mask = mask[None, ...] if mask.ndim in (1, 3) else mask
    if repeated or same(mask.shape[-1], n_k):
        return mask
    xp, missing = namespace_of(mask), n_k - mask.shape[-1]
    return xp.concat([mask, xp.zeros((*mask.shape[:-1], missing), dtype=mask.dtype)], axis=-1)


def _side(attributes: Mapping[str, Any], name: str) -> int | None:
    size: int = attributes.get(name, -1)
    if size < -1:
        raise InputError(f"Attention: {name} must be -1, for an open side, or a number of keys, got {size}")
    return None if size == -1 else size

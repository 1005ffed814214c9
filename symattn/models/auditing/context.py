"""The call of a model of transformers that a call of attention is inside of: its configuration, padding and cache."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.models.auditing.setting import Mask

NO_CONFIGURATION = "there is no configuration"


class NoPromise(Exception):
    """Raised where it is not known what is promised; the words say why."""


@dataclass(frozen=True)
class ModelCall:
    """A model, the arguments that it was called with, and how many tokens its cache held before.

    ``lossy``: the cache may return other numbers than it is given. ``compared`` holds what was found of masks, which
    layers share.
    """

    model: Any
    arguments: dict[str, Any]
    past: int
    lossy: bool = False
    compared: dict[Any, Any] = field(default_factory=dict, compare=False)

    @property
    def config(self) -> Any:
        """Return the configuration of the model."""
        return getattr(self.model, "config", None)

    @property
    def caches(self) -> bool:
        """Return whether keys go into a cache: transformers then looks for no packed documents."""
        result = self.arguments.get("use_cache")
        given = self.arguments.get("past_key_values") is not None
        return given or bool(getattr(self.config, "use_cache", False) if result is None else result)

    def padding(self, name: str, total: int) -> Mask | None:
        """A mask of two axes as booleans (b, total), None where there is none or all is kept.

        Raises ``NoPromise`` for one of another form.
        """
        mask = self.arguments.get(name)
        if mask is None:
            return None
        if not hasattr(mask, "ndim") or mask.ndim != 2:
            raise NoPromise(f"{name} of the caller is not a mask of two axes, so its meaning is unknown")
        keep = mask.detach().cpu().numpy().astype(bool)
        if keep.shape[1] < total:
            raise NoPromise(f"{name} is of {keep.shape[1]} tokens, and there are {total}")
        keep = keep[:, :total]
        return None if keep.all() else keep

    def documents(self, total: int) -> NDArray[np.int64] | None:
        """Labels (b, total) of documents that are packed one after another, by position_ids that begin anew."""
        places = self.arguments.get("position_ids")
        if places is None or self.arguments.get("attention_mask") is not None or places.ndim != 2:
            return None
        at = places.detach().cpu().numpy()
        if at.shape[1] != total:
            return None
        labels: NDArray[np.int64] = np.cumsum(np.diff(at, axis=1, prepend=at[:, :1] - 1) != 1, axis=1)
        return labels if labels.any() else None


def context_of(model: Any, args: Any, kwargs: Any) -> ModelCall:
    """The context that a call of a model makes. A static cache's count is a live tensor, so it is read at once."""
    given = dict(kwargs)
    if args:
        with suppress(TypeError):
            given = dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)
    cache = given.get("past_key_values")
    length = getattr(cache, "get_seq_length", None)
    return ModelCall(model, given, int(length()) if length is not None else 0, _lossy(cache))


def _lossy(cache: Any) -> bool:
    """Return whether a cache may return other numbers than it is given.

    It has quantized some, as Transformers' layers with ``nbits`` or ``fp8_dtype`` do after their first call, or its
    code is none of Transformers', so that what it does is not known.
    """
    if cache is None:
        return False
    layers = list(getattr(cache, "layers", ()))
    codes = [getattr(type(held), "update", None) for held in (cache, *layers)]
    if any(getattr(code, "__module__", "") != "transformers.cache_utils" for code in codes):
        return True
    quantized = [held for held in layers if hasattr(held, "nbits") or hasattr(held, "fp8_dtype")]
    return any(getattr(held, "is_initialized", True) for held in quantized)

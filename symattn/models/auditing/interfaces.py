"""The arguments of the two functions that most attention goes through, by name.

``transformers``' attention functions (eager, sdpa, flex, flash) take a module, queries, keys, values and a mask, and by
keywords a scale, a cap, sinks, a window, a bias of positions. ``scaled_dot_product_attention`` is torch's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from symattn.attention.spec import Attention
from symattn.models.auditing.received import Received, UnreadCall

#: Arrays that attention functions take besides the first five.
_ARRAYS = ("s_aux", "sinks", "position_bias", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k")
_TORCH = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def of_transformers(function: Callable[..., Any], name: str | None, args: Any, kwargs: Any) -> Received:
    """Read the call of an attention function of transformers. Raises ``UnreadCall`` where its meaning is not known."""
    given = _bound(function, args, kwargs)
    _check_known(function, given)
    return of_arguments(_kind(function, name), given)


def of_arguments(kind: str, given: Mapping[str, Any]) -> Received:
    """Return what an attention function of this kind receives by these names. Raises ``UnreadCall`` if unknown."""
    module, q, k = given.get("module"), given["query"], given["key"]
    if given.get("cache") is not None:
        raise UnreadCall("a paged cache holds the keys")
    mask = _dense(given.get("attention_mask"), q, k)
    if kind == "flash":
        _check_packing(given)
        mask = _padding(mask, q, k)
    return Received(
        via=f"transformers {kind}",
        q=q,
        k=k,
        v=given["value"],
        masks=[m for m in (mask, given.get("position_bias")) if m is not None],
        scale=given.get("scaling"),
        softcap=given.get("softcap"),
        sink=_sinks(given, int(q.shape[1])),
        places=_places(kind, given, module, mask is None, int(q.shape[-2])),
        dropout=float(given.get("dropout") or 0.0),
        eager=kind == "eager",
        module=module,
        window=given.get("sliding_window"),
    )


def of_torch(args: Any, kwargs: Any) -> Received:
    """Read a call of ``scaled_dot_product_attention``."""
    given = dict(zip(_TORCH, args, strict=False)) | kwargs
    causal = bool(given.get("is_causal"))
    mask = given.get("attn_mask")
    return Received(
        via="torch sdpa",
        q=given["query"],
        k=given["key"],
        v=given["value"],
        masks=[] if mask is None else [mask],
        scale=given.get("scale"),
        places=Attention(causal=causal, alignment="top-left"),
        dropout=float(given.get("dropout_p") or 0.0),
        grouped=bool(given.get("enable_gqa")),
    )


def _bound(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        names = ("module", "query", "key", "value", "attention_mask")
        return dict(zip(names, args, strict=False)) | dict(kwargs)
    given = dict(bound.arguments)
    rest = [p.name for p in bound.signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    for name in rest:
        given |= given.pop(name, {})
    first = ("module", "query", "key", "value", "attention_mask")
    return dict(zip(first, bound.args[:5], strict=False)) | given


def _check_known(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raises ``UnreadCall`` where the function names an array as its argument of which it is not known what it does."""
    try:
        named = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        return
    for name in named[5:]:
        if hasattr(given.get(name), "dtype") and name not in _ARRAYS:
            raise UnreadCall(f"its argument {name} is an array whose effect is unknown")


def _sinks(given: Mapping[str, Any], heads: int) -> Any:
    """A number for each head, by either of its names. Raises ``UnreadCall`` for sinks of another shape."""
    result = [held for name in ("s_aux", "sinks") if (held := given.get(name)) is not None]
    if result and result[0].numel() != heads:
        raise UnreadCall(
            f"its sinks have the shape {tuple(result[0].shape)}, and are not one number for each of {heads} heads"
        )
    return result[0] if result else None


def _kind(function: Callable[..., Any], name: str | None) -> str:
    own = getattr(function, "__name__", "")
    for known in ("sdpa", "flex", "flash", "paged"):
        if known in own or known in (name or ""):
            return known
    return "eager" if name in (None, "eager") else str(name)


def _places(kind: str, given: Mapping[str, Any], module: Any, bare: bool, n_q: int) -> Attention:
    """The mask that a function makes itself where it is given none, as its code says."""
    result = given.get("is_causal")
    causal = bool(getattr(module, "is_causal", True) if result is None else result) and n_q > 1
    if kind == "sdpa":
        return Attention(causal=causal and bare, alignment="top-left")
    if kind == "flash":
        window = given.get("sliding_window")  # as far on either side as before a query of a causal mask
        return Attention(causal=causal, window=window if causal or window is None else (window - 1, window - 1))
    return Attention()


def _check_packing(given: Mapping[str, Any]) -> None:
    """Flash functions take documents that are packed one after another. Raises ``UnreadCall`` for such."""
    if any(given.get(name) is not None for name in ("cu_seq_lens_q", "cu_seq_lens_k", "cu_seqlens_q", "cu_seqlens_k")):
        raise UnreadCall("its sequences are packed: cu_seq_lens is not read")
    places = given.get("position_ids")
    if places is None or given.get("attention_mask") is not None:
        return
    if bool((places.diff(dim=-1) != 1).any()):
        raise UnreadCall("its position_ids begin anew: packed sequences are not read")


def _padding(mask: Any, q: Any, k: Any) -> Any:
    """Return the mask of a flash function: (b, n_k), nonzero for tokens, also for the queries, which are the last.

    A single query is no padding. Raises ``UnreadCall`` for a mask of another form.
    """
    if mask is None:
        return None
    n_q, size = int(q.shape[-2]), (int(k.shape[0]), int(k.shape[-2]))
    if tuple(mask.shape) != size:
        raise UnreadCall(f"its mask has the shape {tuple(mask.shape)}, and padding has {size}")
    keep = mask.bool()
    keys = keep[:, None, None, :]
    return keys if n_q == 1 else keys & keep[:, None, -n_q:, None]


def _dense(mask: Any, q: Any, k: Any) -> Any:
    """A mask as a tensor. Raises ``UnreadCall`` for an unknown form."""
    if mask is None or hasattr(mask, "dtype"):
        return mask
    if hasattr(mask, "mask_mod"):
        from torch.nn.attention.flex_attention import create_mask

        sizes = (int(q.shape[0]), None, int(q.shape[-2]), int(k.shape[-2]))
        return create_mask(mask.mask_mod, *sizes, device=str(q.device))
    raise UnreadCall(f"its mask is {type(mask).__name__}, an unknown form")

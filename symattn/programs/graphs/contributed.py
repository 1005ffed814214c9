"""ONNX Runtime's own operators MultiHeadAttention and GroupQueryAttention, as ONNX's ``Attention`` with what they add.

Source: ONNX Runtime, ContribOperators.md, com.microsoft.MultiHeadAttention and com.microsoft.GroupQueryAttention. What
they have besides, such as a padding mask that adds −10000 to scores, packed inputs, sinks and quantised caches, is
refused by its name.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from symattn.attention.sizes import same
from symattn.document.errors import InputError
from symattn.programs.graphs.fused import attention, rotary_embedding
from symattn.programs.graphs.operators import arange, part
from symattn.programs.graphs.values import Context, are_booleans, is_plain, length, whole

_OPSET = 25  # of Attention, whose attributes are told here


def multi_head_attention(
    c: Context, query: object, key: object = None, value: object = None, bias: Any = None,
    key_padding_mask: object = None, attention_bias: Any = None, past_key: Any = None, past_value: Any = None,
    past_sequence_length: object = None, cache_indirection: object = None, *,
    num_heads: int, scale: float = 0.0, unidirectional: int = 0, **more: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Attention of queries (b, n_q, h d_k), keys and values alike, with a ``bias`` of the three side by side.

    A query i of ``unidirectional`` attention sees the keys up to i and those of the past; there must be as many new
    keys as queries, since the source does not say what other numbers mean.
    """
    more.pop("mask_filter_value", None)  # of the padding mask alone
    given = {"key_padding_mask": key_padding_mask, "past_sequence_length": past_sequence_length}
    _refuse(given | {"cache_indirection": cache_indirection} | more)
    tokens = _unpacked(c, query, key, value)
    if unidirectional and not same(tokens[0].shape[-2], tokens[1].shape[-2]):
        raise InputError("unidirectional attention of another number of new keys than of queries is not read")
    if bias is not None:
        ends = list(accumulate((whole(x.shape[-1], "the columns") for x in tokens), initial=0))
        if tuple(bias.shape) != (ends[-1],):
            raise InputError(f"bias has the shape {tuple(bias.shape)}, expected {(ends[-1],)}")
        parts = (part(c, c.lifted(bias), 0, start, end) for start, end in pairwise(ends))
        tokens = tuple(x + b for x, b in zip(tokens, parts, strict=True))
    past = 0 if past_key is None else length(past_key.shape[-2])
    _check_bias(attention_bias, past + length(tokens[1].shape[-2]))
    result = _told(scale, is_causal=unidirectional, q_num_heads=num_heads, kv_num_heads=num_heads)
    return attention(c, *tokens, attention_bias, past_key, past_value, opset=_OPSET, **result)[:3]


def group_query_attention(
    c: Context, query: object, key: object = None, value: object = None, past_key: Any = None, past_value: Any = None,
    seqlens_k: object = None, total_sequence_length: object = None, cos_cache: Any = None, sin_cache: Any = None,
    position_ids: Any = None, attention_bias: Any = None, head_sink: object = None, *,
    num_heads: int, kv_num_heads: int, scale: float = 0.0, softcap: float = 0.0,
    do_rotary: int = 0, rotary_interleaved: int = 0, local_window_size: int = -1, **more: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Causal attention with fewer heads of keys; a query sees the ``local_window_size`` last keys, its own among them.

    With ``do_rotary`` queries and new keys are turned by the angles of their places, those of the past counted. All
    sequences must be as long as their keys: lengths that differ along a batch are refused.
    """
    _refuse({"head_sink": head_sink} | {name: x for name, x in more.items() if x not in (0, -1, "NONE")})
    if local_window_size == 0 or local_window_size < -1:
        raise InputError(f"local_window_size is {local_window_size}, which is not read")
    q, k, v = _unpacked(c, query, key, value)
    past = 0 if past_key is None else length(past_key.shape[-2])
    if not same(q.shape[-2], k.shape[-2]):
        raise InputError("another number of new keys than of queries is not read")
    _check_lengths(seqlens_k, total_sequence_length, length(q.shape[0]), past + length(k.shape[-2]))
    _check_bias(attention_bias, past + length(k.shape[-2]))
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise InputError("do_rotary needs cos_cache and sin_cache")
        places = position_ids if position_ids is not None else arange(c, past, past + length(q.shape[-2]))
        heads = (num_heads, kv_num_heads)
        q, k = (
            rotary_embedding(c, x, cos_cache, sin_cache, places, rotary_interleaved, n, 2 * cos_cache.shape[-1])
            for x, n in zip((q, k), heads, strict=True)
        )
    result = _told(scale, is_causal=1, q_num_heads=num_heads, kv_num_heads=kv_num_heads)
    result |= {"softcap": softcap} if softcap else {}
    result |= {"left_window_size": local_window_size - 1} if local_window_size > 0 else {}
    return attention(c, q, k, v, attention_bias, past_key, past_value, opset=_OPSET, **result)[:3]


def _refuse(others: dict[str, Any]) -> None:
    """Raise InputError for an input or attribute that is given and not read."""
    if strange := next((name for name, x in others.items() if x is not None), None):
        raise InputError(f"{strange} is not read")


def _unpacked(c: Context, *tokens: Any) -> tuple[Any, ...]:
    if any(x is None or x.ndim != 3 for x in tokens):
        raise InputError("queries, keys and values that are not three arrays of three axes are not read")
    return tuple(map(c.lifted, tokens))


def _told(scale: float, **attributes: Any) -> dict[str, Any]:
    """Attributes; a scale of 0 is none."""
    return attributes | ({"scale": scale} if scale else {})


def _check_bias(bias: Any, keys: Any) -> None:
    """Check that what is added to scores has four axes, a column for each key, and no booleans."""
    if bias is None:
        return
    if bias.ndim != 4 or not same(bias.shape[-1], keys) or are_booleans(bias):
        shape = tuple(bias.shape)
        raise InputError(f"attention_bias has the shape {shape}; it must be numbers of four axes, the last of {keys}")


def _check_lengths(seqlens_k: Any, total: Any, sequences: Any, keys: Any) -> None:
    """``seqlens_k`` holds the number of keys of each sequence less 1, ``total`` the most keys of any."""
    for name, x in (("seqlens_k", seqlens_k), ("total_sequence_length", total)):
        if x is None:
            raise InputError(f"there is no {name}")
        if not is_plain(x):
            raise InputError(f"{name} is computed from the inputs, which is not read")
    lengths, longest = (np.asarray(x).reshape(-1) for x in (seqlens_k, total))
    if not same(len(lengths), sequences):
        raise InputError(f"seqlens_k has {len(lengths)} entries for {sequences} sequences")
    if not all(same(length(n) + 1, keys) for n in lengths):
        raise InputError(f"seqlens_k says that some of {keys} keys are padding, which is not read")
    if len(longest) != 1 or not same(length(longest[0]), keys):
        raise InputError(f"total_sequence_length does not say that there are {keys} keys")

"""torch's own modules of attention, in every way in which they are called: arguments, masks, layouts, formats."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_D, _HEADS, _N, _KEYS = 16, 4, 9, 7


class Way(NamedTuple):
    """A call in words, the module, and what calls it. Its fast path is taken without gradients alone."""

    words: str
    module: Any
    run: Callable[[], Any]


def ways(dtype: torch.dtype, batch_first: bool = True, training: bool = False) -> Iterator[Way]:
    """All calls of all modules in one format."""
    torch.manual_seed(0)
    x, y = torch.randn(2, _N, _D, dtype=dtype), torch.randn(2, _KEYS, _D, dtype=dtype)
    x, y = (x, y) if batch_first else (x.transpose(0, 1), y.transpose(0, 1))
    padding = torch.arange(_N) >= torch.tensor([_N, 6])[:, None]
    added = torch.zeros(2, _N, dtype=dtype).masked_fill(padding, -torch.inf)
    causal = nn.Transformer.generate_square_subsequent_mask(_N, dtype=dtype)
    how: dict[str, Any] = {"batch_first": batch_first, "dtype": dtype}
    masks: dict[str, dict[str, Any]] = {"bare": {}, "padded": {"key_padding_mask": padding}}
    masks |= {"causal": {"attn_mask": causal}, "hinted": {"attn_mask": causal, "is_causal": True}}
    masks["causal and padded"] = {"attn_mask": causal, "key_padding_mask": added}

    attention = nn.MultiheadAttention(_D, _HEADS, **how).train(training)
    for weights in (True, False):
        for words, given in masks.items():
            run = partial(attention, x, x, x, need_weights=weights, **given)
            yield Way(f"attention, {words}, weights={weights}", attention, run)
        yield Way(
            f"attention to others, weights={weights}", attention, partial(attention, x, y, y, need_weights=weights)
        )
    for first in (True, False):
        layer = nn.TransformerEncoderLayer(_D, _HEADS, 32, dropout=0.0, norm_first=first, **how).train(training)
        stack = nn.TransformerEncoder(layer, 2).train(training)
        for words in ("bare", "padded", "causal", "hinted"):
            layers, stacks = (_renamed(masks[words], name) for name in ("src_mask", "mask"))
            yield Way(f"layer of an encoder, {words}, norm_first={first}", layer, partial(layer, x, **layers))
            yield Way(f"encoder, {words}, norm_first={first}", stack, partial(stack, x, **stacks))
    decoder = nn.TransformerDecoderLayer(_D, _HEADS, 32, dropout=0.0, **how).train(training)
    hidden = {"tgt_mask": causal, "tgt_key_padding_mask": added}
    yield Way("layer of a decoder", decoder, partial(decoder, x, y, **hidden))
    both = nn.Transformer(_D, _HEADS, 1, 1, 32, dropout=0.0, **how).train(training)
    yield Way("transformer", both, partial(both, y, x, tgt_mask=causal))


def _renamed(given: dict[str, Any], mask: str) -> dict[str, Any]:
    names = {"attn_mask": mask, "key_padding_mask": "src_key_padding_mask"}
    return {names.get(name, name): value for name, value in given.items()}


def functions(dtype: torch.dtype) -> Iterator[Way]:
    """Calls of ``scaled_dot_product_attention``."""
    q, k, v = torch.randn(3, 2, _HEADS, _N, _D, dtype=dtype)
    keep = torch.arange(_N) < torch.tensor([_N, 6])[:, None, None, None]
    for given in ({}, {"is_causal": True}, {"attn_mask": keep}, {"scale": 0.3}):
        yield Way(f"sdpa, {', '.join(given) or 'bare'}", None, lambda given=given: _called(q, k, v, **given))
    yield Way("sdpa, grouped", None, lambda: _called(q, k[:, :2], v[:, :2], enable_gqa=True))


def _called(*arrays: torch.Tensor, **given: Any) -> Any:
    """By the name that is looked up when it is called."""
    return nn.functional.scaled_dot_product_attention(*arrays, **given)

"""Public reports on attention, as small programs: what they showed, replayed on a CPU with random weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Run = Callable[[], Any]
_sdpa = nn.functional.scaled_dot_product_attention


def nans(x: Any) -> int:
    return int(x.isnan().sum())


def empty_row_of_booleans() -> int:
    """pytorch#103963: rows of a boolean mask without any True."""
    q, k, v = torch.rand(3, 1, 1, 8, 8)
    mask = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
    mask[..., :4, :4] = True
    return nans(_sdpa(q, k, v, mask))


def empty_row_of_padding() -> int:
    """pytorch#103749: the last query is padding, and sees nothing."""
    q, k, v = (torch.randn(1, 2, n, 8) for n in (6, 10, 10))
    mask = torch.ones(6, 10, dtype=torch.bool).tril()
    mask[-1] = False
    return nans(_sdpa(q, k, v, mask[None, None], scale=0.125))


def row_of_least_numbers() -> int:
    """pytorch#110213: a row in which the least number of the format is added to every score."""
    q, k, v = torch.randn(3, 1, 1, 3, 4)
    least = torch.finfo(q.dtype).min
    return nans(_sdpa(q, k, v, torch.tensor([[least] * 3, [1.0] * 3, [1.0] * 3])[None, None]))


def empty_row_in_evaluation() -> int:
    """pytorch#163997: rows of −∞ in one sequence alone, without gradients."""
    q, k, v = torch.randn(3, 1, 2, 6, 8)
    mask = torch.zeros(1, 1, 6, 6)
    mask[..., 4:, :] = -torch.inf
    return nans(_sdpa(q, k, v, mask))


def nan_behind_a_mask() -> int:
    """pytorch#101967: a key that is NaN, and that no query may see."""
    q = torch.arange(8.0).reshape(1, 2, 4)
    k = q.clone()
    k[0, 1, 0] = torch.nan
    return nans(_sdpa(q, k, q, torch.tensor([[[True, False], [True, False]]])))


def masked_head(weights: bool) -> int:
    """pytorch#160064: a head whose queries see nothing, with and without its weights asked for."""
    x = torch.randn(1, 5, 3)
    mask = torch.tensor([False, False, True]).view(-1, 1, 1).expand(-1, 5, 5)
    attention = nn.MultiheadAttention(3, 3, batch_first=True)
    return nans(attention(x, x, x, attn_mask=mask, average_attn_weights=False, need_weights=weights)[0])


def _encoder(**options: Any) -> Any:
    nested = options.pop("nested", True)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=nested).eval()


def bias_in_the_fast_path() -> int:
    """pytorch#118628: a mask of numbers."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        return nans(layer(torch.randn(3, 5, 8), src_mask=torch.rand(5, 5)))


def empty_rows_in_the_fast_path(fast: bool) -> int:
    """pytorch#190486: padding that is longer than the band of a causal mask is wide."""
    places = torch.arange(16)
    apart = places[:, None] - places
    given = {"mask": (apart < 0) | (apart >= 4), "src_key_padding_mask": (places >= 4)[None]}
    encoder, x = _encoder(norm_first=True, nested=False), torch.randn(1, 16, 16)
    with torch.set_grad_enabled(not fast):
        return nans(encoder(x, **given))


def padding_in_evaluation() -> float:
    """pytorch#86120: how far the padded batch in evaluation is from the same with gradients, at tokens."""
    encoder, x = _encoder(), torch.randn(2, 6, 16)
    hidden = torch.arange(6) >= torch.tensor([6, 4])[:, None]
    with torch.no_grad():
        fast = encoder(x, src_key_padding_mask=hidden)
    return float((fast - encoder(x, src_key_padding_mask=hidden))[~hidden].abs().max())


def cut_off_in_evaluation() -> tuple[int, ...]:
    """pytorch#97111: the shape of (3, 6, 16) tokens of which all but the first of each sequence are padding."""
    hidden = torch.ones(3, 6, dtype=torch.bool)
    hidden[:, 0] = False
    with torch.no_grad():
        return tuple(_encoder()(torch.randn(3, 6, 16), src_key_padding_mask=hidden).shape)


def tokens() -> Any:
    return torch.arange(1, 13)[None]


def seen_later(model: Any) -> float:
    """How far the logits before the last token depend on it: 0 where attention is causal."""
    other = tokens()
    other[0, -1] = 40
    return float((model(tokens()).logits - model(other).logits)[:, :-1].abs().max())


def static_cache(model: Any) -> float:
    """transformers#30437: how far a prefill into a static cache is from one without a cache, no mask given."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=32)
    cached = model(tokens(), past_key_values=cache, use_cache=True).logits
    return float((cached - model(tokens()).logits).abs().max())

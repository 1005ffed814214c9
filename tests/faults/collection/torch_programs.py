"""Programs in torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from symattn import Attention
from symattn.attention.positions.position_fields import Rotary
from tests.faults.collection.entries import At, Family

if TYPE_CHECKING:
    import torch

Tensor = Any
FAMILY = Family("torch", torch=True)
right, wrong = FAMILY.right, FAMILY.wrong
_CAUSAL = Attention(causal=True)
_TOP_LEFT = Attention(causal=True, alignment="top-left")
_BOOLEAN = Attention(mask="boolean")
_ADDITIVE = Attention(mask="additive")
_GROUPS = Attention(heads=4, kv_heads=2)
_TWO = Attention(heads=2)
_ROPE = Attention(heads=2, causal=True, position=Rotary())
_PAIRS = Attention(heads=2, causal=True, position=Rotary(layout="interleaved"))


@right("torch's own function", layout="bhnd")
def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q, k, v)


@right("torch's own function, is_causal, which is aligned at the top left", spec=_TOP_LEFT)
def sdpa_causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@right("torch's own function with a mask", spec=_BOOLEAN)
def sdpa_masked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


@right("torch's own function in bfloat16", precision="bfloat16")
def sdpa_bfloat(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q, k, v)


@right("groups of heads", spec=_GROUPS)
def sdpa_groups(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=True)[0]


@right("softmax in float32 for float16 scores", precision="float16", spec=_CAUSAL)
def softmax_in_float(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    s = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    n_q, n_k = s.shape[-2:]
    hidden = torch.ones(n_q, n_k, dtype=torch.bool).triu(n_k - n_q + 1)
    s = s.masked_fill(hidden, torch.finfo(s.dtype).min)
    return torch.softmax(s, dim=-1, dtype=torch.float32).to(q.dtype) @ v


@right("baddbmm with an additive mask", spec=_ADDITIVE)
def by_baddbmm(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
    import torch

    s = torch.baddbmm(attn_mask[None].to(q.dtype), q[None], k[None].transpose(1, 2), alpha=q.shape[-1] ** -0.5)
    return torch.bmm(s.softmax(-1), v[None])[0]


@right("self-attention by linear maps and views", spec=_TWO)
def self_attention(
    x: torch.Tensor, w_q: torch.Tensor, w_k: torch.Tensor, w_v: torch.Tensor, w_o: torch.Tensor, num_heads: int
) -> torch.Tensor:
    n = x.shape[0]
    q, k, v = ((x @ w).view(n, num_heads, -1).transpose(0, 1) for w in (w_q, w_k, w_v))
    a = ((q @ k.transpose(1, 2)) / math.sqrt(q.shape[-1])).softmax(dim=-1)
    return (a @ v).transpose(0, 1).reshape(n, -1) @ w_o


def _rope(x: torch.Tensor, first: int) -> torch.Tensor:
    import torch

    d = x.shape[-1]
    inv = 1.0 / (10000.0 ** (torch.arange(0, d, 2, dtype=torch.float64) / d))
    theta = torch.outer(torch.arange(first, first + x.shape[-2], dtype=torch.float64), inv)
    cos, sin = theta.cos().to(x.dtype), theta.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _causal_softmax(s: torch.Tensor) -> torch.Tensor:
    import torch

    n_q, n_k = s.shape[-2:]
    return s.masked_fill(torch.ones(n_q, n_k, dtype=torch.bool).triu(n_k - n_q + 1), -math.inf).softmax(-1)


@right("rotations before the product", spec=_ROPE)
def rope(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k = _rope(q, k.shape[-2] - q.shape[-2]), _rope(k, 0)
    return _causal_softmax(q @ k.mT * q.shape[-1] ** -0.5) @ v


@right("online softmax in tiles of 16", at=At(n_k=40))
def tiles(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    m = q.new_full((*q.shape[:-1], 1), -math.inf)
    z, acc = torch.zeros_like(m), q.new_zeros((*q.shape[:-1], v.shape[-1]))
    for kt, vt in zip(k.split(16, dim=-2), v.split(16, dim=-2), strict=True):
        s = q @ kt.mT / math.sqrt(q.shape[-1])
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        p, a = (s - new).exp(), (m - new).exp()
        z, acc, m = z * a + p.sum(-1, keepdim=True), acc * a + p @ vt, new
    return acc / z


@right("pairs of columns as complex numbers, for which torch wants memory without gaps", spec=_PAIRS, layout="bnhd")
def rope_complex(xq: torch.Tensor, xk: torch.Tensor, xv: torch.Tensor) -> torch.Tensor:
    """Take (batch, seqlen, n_heads, head_dim)."""
    import torch

    n, m, d = xq.shape[1], xk.shape[1], xq.shape[-1]
    angles = torch.outer(torch.arange(m).float(), 1.0 / 10000 ** (torch.arange(0, d, 2).float() / d))
    turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]

    def turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3).type_as(x).transpose(1, 2)

    s = turned(xq, turns[:, m - n :]) @ turned(xk, turns).transpose(2, 3) / math.sqrt(d)
    return (_causal_softmax(s) @ xv.transpose(1, 2)).transpose(1, 2)


@wrong("scale", "torch's own function with scale 1/d", "1/d_k", near="sdpa")
def sdpa_scaled_by_width(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q, k, v, scale=1.0 / q.shape[-1])


@wrong("scale", "queries scaled before a function that scales", "1/d_k|twice", near="sdpa")
def sdpa_scaled_before(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q * q.shape[-1] ** -0.5, k, v)


@wrong(
    "mask",
    "is_causal is aligned at the top left, the cache asks for the bottom right",
    "corner|top-left|aligned|alignment",
    spec=_CAUSAL,
    shows="n_q != n_k",
    near="softmax_in_float",
)
def sdpa_with_cache(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@wrong("mask", "True taken for 'ignore', as key_padding_mask has it", "inverted", spec=_BOOLEAN, near="sdpa_masked")
def mask_of_other_polarity(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
    import torch

    s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(s.masked_fill(attn_mask, torch.finfo(s.dtype).min), dim=-1) @ v


@wrong(
    "mask",
    "a boolean mask cast and added",
    "added",
    spec=_BOOLEAN,
    near="sdpa_masked",
    source="microsoft/onnxscript#656",
)
def mask_cast_and_added(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
    import torch

    s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(s + attn_mask.to(s.dtype), dim=-1) @ v


@wrong(
    "normalize",
    "softmax(dim=1) of an array with heads",
    "over the queries|query axis",
    spec=_TWO,
    near="self_attention",
    source="FudanNLP/fastNLP#254",
)
def softmax_dimension(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=1) @ v


@wrong(
    "split|score",
    "keys repeated in the order of tiles, not of groups",
    "group|head|turn|tile",
    spec=_GROUPS,
    near="sdpa_groups",
)
def groups_by_repeat(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    r = q.shape[0] // k.shape[0]
    k, v = k.repeat(r, 1, 1), v.repeat(r, 1, 1)
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


@wrong(
    "split", "view without a transpose", "split|reshape", spec=_TWO, near="self_attention", source="reczoo/FuxiCTR#30"
)
def heads_by_view(
    x: torch.Tensor, w_q: torch.Tensor, w_k: torch.Tensor, w_v: torch.Tensor, w_o: torch.Tensor, num_heads: int
) -> torch.Tensor:
    n = x.shape[0]
    q, k, v = ((x @ w).view(num_heads, n, -1) for w in (w_q, w_k, w_v))
    a = ((q @ k.transpose(1, 2)) / math.sqrt(q.shape[-1])).softmax(dim=-1)
    return (a @ v).transpose(0, 1).reshape(n, -1) @ w_o


@wrong(
    "merge",
    "heads merged without a transpose",
    "merged|reshape",
    spec=_TWO,
    near="self_attention",
    source="jsbaan/transformer-from-scratch#6",
)
def heads_merged_by_view(
    x: torch.Tensor, w_q: torch.Tensor, w_k: torch.Tensor, w_v: torch.Tensor, w_o: torch.Tensor, num_heads: int
) -> torch.Tensor:
    n = x.shape[0]
    q, k, v = ((x @ w).view(n, num_heads, -1).transpose(0, 1) for w in (w_q, w_k, w_v))
    a = ((q @ k.transpose(1, 2)) / math.sqrt(q.shape[-1])).softmax(dim=-1)
    return (a @ v).reshape(n, -1) @ w_o


@wrong(
    "position",
    "new queries rotated from position 0",
    "position|start|queries|cache length",
    spec=_ROPE,
    shows="n_q < n_k",
    near="rope",
    source="RobertCsordas/moeut#6",
)
def rope_from_zero(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k = _rope(q, 0), _rope(k, 0)
    return _causal_softmax(q @ k.mT * q.shape[-1] ** -0.5) @ v


@wrong("merge", "the accumulator of tiles is not rescaled", "rescal", near="tiles", at=At(n_k=40, spread=2.0))
def tiles_not_rescaled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    m = q.new_full((*q.shape[:-1], 1), -math.inf)
    z, acc = torch.zeros_like(m), q.new_zeros((*q.shape[:-1], v.shape[-1]))
    for kt, vt in zip(k.split(8, dim=-2), v.split(8, dim=-2), strict=True):
        s = q @ kt.mT / math.sqrt(q.shape[-1])
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        p = (s - new).exp()
        z, acc, m = z * (m - new).exp() + p.sum(-1, keepdim=True), acc + p @ vt, new
    return acc / z


@wrong("score", "autocast to float16 inside", "float16|half|precision|rounded", near="sdpa")
def scores_in_half(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = (q.half() @ k.half().mT).float() / math.sqrt(q.shape[-1])
    return s.softmax(-1) @ v


@wrong("call", "queries scaled in place", "changes|mutates|in place|argument", near="sdpa")
def scaled_in_place(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q.mul_(q.shape[-1] ** -0.5)
    return (q @ k.mT).softmax(-1) @ v

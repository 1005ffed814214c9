"""Programs in torch."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from symattn import Alibi, Attention, Domain, LayerNorm, RMSNorm, Rotary
from tests.faults.collection.entries import At, Family

if TYPE_CHECKING:
    import torch

FAMILY = Family("torch", torch=True)
right = FAMILY.right
_CAUSAL = Attention(causal=True)
_TOP_LEFT = Attention(causal=True, alignment="top-left")
_BOOLEAN = Attention(mask="boolean")
_ADDITIVE = Attention(mask="additive")
_GROUPS = Attention(heads=4, kv_heads=2)
_TWO = Attention(heads=2)
_ROPE = Attention(heads=2, causal=True, position=Rotary())
_PAIRS = Attention(heads=2, causal=True, position=Rotary(layout="interleaved"))
_WINDOW = Attention(causal=True, window=4)
_SINK = Attention(heads=2, sink="given")
_CAP = Attention(causal=True, softcap=4)
_RMS_QK = Attention(heads=2, qk_norm="rms", eps=1e-6)
_ALIBI = Attention(heads=4, causal=True, position=Alibi())
_DROP = Attention(dropout=0.5)
_LAYER = LayerNorm()
_RMS = RMSNorm(eps=Fraction(1, 10**6))
_EMPTY = Domain(fully_masked_rows=True)
_ROWS = At(n_q=3, d_k=6)


Tensor = Any


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


def mask_of_other_polarity(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
    import torch

    s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(s.masked_fill(attn_mask, torch.finfo(s.dtype).min), dim=-1) @ v


def mask_cast_and_added(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
    import torch

    s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(s + attn_mask.to(s.dtype), dim=-1) @ v


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch_matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])


def torch_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.matmul(a, b)


def hidden(q: torch.Tensor, k: torch.Tensor, more: int = 1) -> torch.Tensor:
    """Keys after the query's place."""
    import torch

    n_q, n_k = q.shape[-2], k.shape[-2]
    return torch.ones(n_q, n_k, dtype=torch.bool).triu(n_k - n_q + more)


@right("a window of four keys", spec=_WINDOW)
def window(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = scores(q, k).masked_fill(hidden(q, k) | ~hidden(q, k, -3), -math.inf)
    return s.softmax(-1) @ v


@right("the sink as one more column", spec=_SINK)
def sink_column(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    import torch

    s = scores(q, k)
    wide = torch.cat([s, sinks.reshape(-1, 1, 1).expand(-1, s.shape[1], 1)], dim=-1)
    return wide.softmax(-1)[..., :-1] @ v


@right("capped, then masked", spec=_CAP)
def capped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = torch_tanh(scores(q, k) / 4) * 4
    return s.masked_fill(hidden(q, k), -math.inf).softmax(-1) @ v


def torch_tanh(x: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.tanh(x)


@right("queries and keys normalised, head by head", spec=_RMS_QK)
def qk_normed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g_q: torch.Tensor, g_k: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    q, k = F.rms_norm(q, (q.shape[-1],), g_q, 1e-6), F.rms_norm(k, (k.shape[-1],), g_k, 1e-6)
    return scores(q, k).softmax(-1) @ v


@right("slopes by powers of two", spec=_ALIBI)
def alibi(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _with_slopes(q, k, v, 1.0)


def _with_slopes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sign: float, first: int = 1) -> torch.Tensor:
    import torch

    h, n_q, n_k = q.shape[0], q.shape[1], k.shape[1]
    slopes = 2.0 ** (-8.0 * torch.arange(first, h + first) / h)
    far = torch.arange(n_k)[None, :] - torch.arange(n_k - n_q, n_k)[:, None]
    s = scores(q, k) + sign * slopes[:, None, None] * far
    return s.masked_fill(hidden(q, k), -math.inf).softmax(-1) @ v


@right("torch's layer norm", spec=_LAYER, at=_ROWS)
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)


@right("Llama's RMS norm", spec=_RMS, at=_ROWS)
def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    import torch

    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


@right("rows without any key give zeros", spec=_BOOLEAN, domain=_EMPTY)
def empty_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    p = scores(q, k).masked_fill(~mask, -math.inf).softmax(-1)
    return p.nan_to_num(0.0) @ v


@right("float16 by torch's own function", precision="float16")
def sdpa_half(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q, k, v)


@right("a kept weight is given", spec=_DROP)
def dropout_given(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, drop: torch.Tensor) -> torch.Tensor:
    return (scores(q, k).softmax(-1) * drop / 0.5) @ v


def tril(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    s = scores(q, k)
    return s.masked_fill(torch.tril(torch.ones_like(s)) == 0, -math.inf).softmax(-1) @ v


def qk_unit(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g_q: torch.Tensor, g_k: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    q, k = F.normalize(q, dim=-1) * g_q, F.normalize(k, dim=-1) * g_k
    return scores(q, k).softmax(-1) @ v


def padded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    extra = -k.shape[-2] % 32
    k, v = F.pad(k, (0, 0, 0, extra)), F.pad(v, (0, 0, 0, extra))
    return scores(q, k).softmax(-1) @ v


FAMILY.wrong(
    globals(),
    """
sdpa_scaled_by_width (sdpa), scale: torch's own function with scale 1/d
    says 1/d_k; layout="nd"
    v) → v, scale=1.0 / q.shape[-1])
sdpa_scaled_before (sdpa), scale: queries scaled before a function that scales
    says 1/d_k|twice; layout="nd"
    q, → q * q.shape[-1] ** -0.5,
sdpa_with_cache (softmax_in_float), mask: is_causal is aligned at the top left, the cache asks for the bottom right
    says corner|top-left|aligned|alignment; shows n_q != n_k; precision="float32"
    import torch.nn.functional as F
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
mask_of_other_polarity (sdpa_masked), mask: True taken for 'ignore', as key_padding_mask has it
    says inverted
mask_cast_and_added (sdpa_masked), mask: a boolean mask cast and added
    says added; source microsoft/onnxscript#656
softmax_dimension(q, k, v) (self_attention), normalize: softmax(dim=1) of an array with heads
    says over the queries|query axis; source FudanNLP/fastNLP#254
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=1) @ v
groups_by_repeat (sdpa_groups), split|score: keys repeated in the order of tiles, not of groups
    says group|head|turn|tile
    r = q.shape[0] // k.shape[0]
    k, v = k.repeat(r, 1, 1), v.repeat(r, 1, 1)
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v
heads_by_view (self_attention), split: view without a transpose
    says split|reshape; source reczoo/FuxiCTR#30
    n, num_heads, -1).transpose(0, 1 → num_heads, n, -1
heads_merged_by_view (self_attention), merge: heads merged without a transpose
    says merged|reshape; source jsbaan/transformer-from-scratch#6
    transpose(0, 1).reshape → reshape
rope_from_zero (rope), position: new queries rotated from position 0
    says position|start|queries|cache length; shows n_q < n_k; source RobertCsordas/moeut#6
    k.shape[-2] - q.shape[-2] → 0
tiles_not_rescaled (tiles), merge: the accumulator of tiles is not rescaled
    says rescal; at=At(n_k=40, spread=2.0)
    zip(k.split(16, dim=-2), v.split(16 → zip(k.split(8, dim=-2), v.split(8
    acc * a → acc
scores_in_half (sdpa), score: autocast to float16 inside
    says float16|half|precision|rounded; layout="nd"
    s = (q.half() @ k.half().mT).float() / math.sqrt(q.shape[-1])
    return s.softmax(-1) @ v
scaled_in_place (sdpa), call: queries scaled in place
    says changes|mutates|in place|argument; layout="nd"
    q.mul_(q.shape[-1] ** -0.5)
    return (q @ k.mT).softmax(-1) @ v
window_too_large (window), mask: the window counts one key too many
    says window & many|wide|more|long
    3 → 4
tril (window), mask: tril without a diagonal for the cache
    says corner|top-left|aligned|alignment; shows n_q != n_k; spec=_CAUSAL
triu_zero (window), mask: triu(diagonal=0): a token does not see itself
    says own key|itself|off by one; spec=_CAUSAL
    return scores(q, k).masked_fill(hidden(q, k, 0), -1e9).softmax(-1) @ v
triu_two (window), mask: triu(diagonal=2): the next token is seen
    says next key|off by one; spec=_CAUSAL
    return scores(q, k).masked_fill(hidden(q, k, 2), -math.inf).softmax(-1) @ v
minus_ten (empty_rows), mask: (1 - mask) * -10
    says −10|-10; at=At(spread=0.5); domain=Domain(); source lucidrains/nGPT-pytorch#11
    return (scores(q, k) + (1 - mask.to(q.dtype)) * -10.0).softmax(-1) @ v
times_mask (empty_rows), mask: scores times the mask
    says multiplied|become 0; domain=Domain()
    return (scores(q, k) * mask).softmax(-1) @ v
weights_times_mask (empty_rows), mask: weights times the mask, after the softmax
    says after the softmax|not normalised again; domain=Domain()
    return (scores(q, k).softmax(-1) * mask) @ v
empty_rows_nan (empty_rows), mask: rows without any key give NaN
    says fully masked|no key|without any key|every key
    return scores(q, k).masked_fill(~mask, -math.inf).softmax(-1) @ v
additive_as_bool (by_baddbmm), mask: the additive mask is made boolean: every nonzero entry is open
    says additive|boolean|nonzero|finite
    return scores(q, k).masked_fill(attn_mask < 0, -math.inf).softmax(-1) @ v
sink_bare (sink_column), sink: e^sink without the maximum
    says sink & maximum|e^
    s = scores(q, k)
    e = (s - s.amax(-1, keepdim=True)).exp()
    return e @ v / (e.sum(-1, keepdim=True) + sinks.exp().reshape(-1, 1, 1))
sink_lost (sink_column), sink: the sink is left out
    says sink & left out|ignored|missing
    return scores(q, k).softmax(-1) @ v
capped_after_mask (capped), softcap: masked, then capped
    says cap & after; source onnx/onnx#7865
    s = scores(q, k).masked_fill(hidden(q, k), -math.inf)
    return (torch_tanh(s / 4) * 4).softmax(-1) @ v
capped_before_scale (capped), softcap: capped before the scale
    says cap & before; at=At(spread=2.0); source huggingface/trl#5691
    s = torch_tanh(torch_matmul(q, k.mT) / 4) * 4 / math.sqrt(q.shape[-1])
    return s.masked_fill(hidden(q, k), -math.inf).softmax(-1) @ v
qk_unit (qk_normed), norm: F.normalize in place of the RMS norm
    says norm|length|l2|√d
qk_queries_only (qk_normed), norm: only the queries are normalised
    says keys & not normalised|norm
    import torch.nn.functional as F
    return scores(F.rms_norm(q, (q.shape[-1],), g_q, 1e-6), k).softmax(-1) @ v
alibi_sign (alibi), bias|position: the sign of the slopes
    says sign; source meta-pytorch/attention-gym#86
    1 → -1
alibi_early (alibi), bias|position: slopes from 2^0 on
    says slope
    0) → 0, 0)
unbiased (layer_norm), norm: torch.std, which has the divisor n - 1
    says d − 1|d-1|n − 1|divisor; source harvardnlp/annotated-transformer#119
    variance = x.var(-1, keepdim=True)
    return weight * (x - x.mean(-1, keepdim=True)) / (variance + 1e-5).sqrt() + bias
rms_eps_outside (rms_norm), norm: eps after the root
    says outside the root; at=At(n_q=3, d_k=6, spread=2.0**-9); source allenai/OLMo#281
    return weight * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6)
dropout_unscaled (dropout_given), dropout: F.dropout's factor is forgotten
    says dropout|kept|scaled
    drop / 0.5) @ v → drop) @ v
softmax_minus_two (sdpa), normalize: softmax over the queries
    says over the queries|query axis; at=At(n_k=5); layout="nd"
    return scores(q, k).softmax(-2) @ v
exp2_bare (tiles), exp: exp2 without log2 e
    says powers of 2|power of 2|exp2|base 2|2^s|2ˣ
    s = scores(q, k)
    p = (s - s.amax(-1, keepdim=True)).exp2()
    return p @ v / p.sum(-1, keepdim=True)
no_maximum (tiles), max: no maximum: overflow
    says maximum|largest|overflow; shows scores above 88; at=At(spread=30.0)
    p = scores(q, k).exp()
    return p @ v / p.sum(-1, keepdim=True)
weights_in_bfloat (sdpa), values: weights cast to bfloat16
    says bfloat16|weights|precision|rounded|half; layout="nd"
    return scores(q, k).softmax(-1).bfloat16().to(v.dtype) @ v
half_returned (sdpa), output: the result stays float16
    says float16|dtype|type; layout="nd"
    return (scores(q, k).softmax(-1) @ v).half()
padded (tiles), mask: zero keys fill the last tile of 32
    says padding|fill|zero keys; shows n_k % 32 != 0; source jax-ml/jax#27224
""",
)

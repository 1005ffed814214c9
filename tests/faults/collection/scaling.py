"""Scores, their scale, and the cap."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from symattn import Attention
from tests.faults.collection.entries import At, Family
from tests.faults.programs import softmax

Array = Any
FAMILY = Family("scaling")
right = FAMILY.right
_CAP = Attention(softcap=5)
_CAP_CAUSAL = Attention(softcap=5, causal=True)
_GIVEN = Attention(scale=Fraction(1, 3))
_HEADS = Attention(heads=2)
_WIDE = At(spread=2.0)


@right("the definition as textbooks have it")
def plain(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@right("queries arrive unscaled, keys are scaled before the product")
def scaled_keys(q: Array, k: Array, v: Array) -> Array:
    k = k * q.dtype.type(q.shape[-1] ** -0.5)
    return softmax(np.einsum("id,jd->ij", q, k)) @ v


@right("q and k each times d^(-1/4)")
def quarter_each(q: Array, k: Array, v: Array) -> Array:
    f = q.dtype.type(q.shape[-1] ** -0.25)
    return softmax((q * f) @ (k * f).T) @ v


@right("the scale multiplies exponents, after the maximum is subtracted")
def scale_after_max(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T
    e = np.exp((s - s.max(axis=-1, keepdims=True)) * s.dtype.type(q.shape[-1] ** -0.5))
    return (e @ v) / e.sum(axis=-1, keepdims=True)


@right("a base-2 exponential with log2 e folded into the scale")
def exp2_folded(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T * np.asarray(math.log2(math.e) / math.sqrt(q.shape[-1]), q.dtype)
    p = np.exp2(s - s.max(axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True)) @ v


@right("configured scale, passed on", spec=_GIVEN)
def configured_scale(q: Array, k: Array, v: Array, scale: float = 1.0) -> Array:
    return softmax(q @ k.T * q.dtype.type(scale)) @ v


@right("scores of one head after another, scale of a head's width", spec=_HEADS)
def per_head_loop(q: Array, k: Array, v: Array) -> Array:
    out = [softmax(q[h] @ k[h].T / np.float32(math.sqrt(q.shape[-1]))) @ v[h] for h in range(len(q))]
    return np.stack(out)


@right("cap by a hyperbolic tangent", spec=_CAP, at=_WIDE)
def capped(q: Array, k: Array, v: Array, softcap: float) -> Array:
    s = q @ k.T * q.dtype.type(q.shape[-1] ** -0.5)
    return softmax(np.tanh(s / q.dtype.type(softcap)) * q.dtype.type(softcap)) @ v


@right("cap by a logistic function, tanh x = 2 / (1 + e^(-2x)) - 1", spec=_CAP_CAUSAL, at=_WIDE)
def capped_by_logistic(q: Array, k: Array, v: Array, softcap: float) -> Array:
    c = q.dtype.type(softcap)
    s = q @ k.T / q.dtype.type(math.sqrt(q.shape[-1]))
    s = c * (2 / (1 + np.exp(-2 * s / c)) - 1)
    n_q, n_k = s.shape
    s = np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, -np.inf).astype(q.dtype)
    return softmax(s) @ v


@right("capped and causal, the cap before the mask", spec=_CAP_CAUSAL, at=_WIDE)
def capped_then_masked(q: Array, k: Array, v: Array) -> Array:
    s = 5 * np.tanh(q @ k.T / q.dtype.type(5 * math.sqrt(q.shape[-1])))
    rows, cols = np.indices(s.shape)
    s[cols > rows + s.shape[1] - s.shape[0]] = -np.inf
    return softmax(s) @ v


def pairs_of_columns(q: Array, k: Array, v: Array) -> Array:
    s = np.zeros((len(q), len(k)), q.dtype)
    for c in range(0, q.shape[1] - 1, 2):
        s += q[:, c : c + 2] @ k[:, c : c + 2].T
    return softmax(s / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


FAMILY.wrong(
    globals(),
    """
by_width (plain), scale: scores are divided by d_k
    says 1/d_k|by d_k; shows d_k > 1
    return softmax(q @ k.T / q.shape[-1]) @ v
no_scale (plain), scale: scores are not scaled
    says not scaled|unscaled|no scale; shows d_k > 1; source fla-org/flash-linear-attention#395
    return softmax(np.matmul(q, k.swapaxes(-1, -2))) @ v
divided_by_inverse_root (plain), scale: divides by d_k**-0.5, which multiplies by the root
    says multiplied by √d_k|times √d_k; shows d_k > 1; source esceptico/perceiver-io#9
    scale = q.shape[-1] ** -0.5
    return softmax(q @ k.T / np.float32(scale)) @ v
scaled_twice (scaled_keys), scale: q is scaled, and the scores once more
    says 1/d_k|twice; shows d_k > 1
    f = q.dtype.type(q.shape[-1] ** -0.5)
    q = q * f
    s = q @ k.T
    s *= f
    return softmax(s) @ v
root_of_value_width (plain), scale: the width of the values in place of the keys'
    says √d_v; shows d_v != d_k; source juho-lee/set_transformer#18
    (q.shape[-1]) → (v.shape[-1])
quarter_once (quarter_each), scale: d^(-1/4) on the queries alone
    says d_k^(-1/4)|d_k^-1/4|1/d_k^(1/4)|d_k^(−1/4)|d_k^{-1/4}|d_k^(1/4)|fourth root|⁴√d_k|−1/4|^0.25; shows d_k > 1
    (k * f) → k
root_of_model_width (per_head_loop), scale: all heads' width: sqrt(h d_k)
    says √d_model|√(h d_k)|√(h·d_k); shows heads > 1; source lucidrains/vit-pytorch#65
    width = q.shape[0] * q.shape[-1]
    s = np.einsum("hid,hjd->hij", q, k) * q.dtype.type(width**-0.5)
    return np.einsum("hij,hjd->hid", softmax(s), v)
configured_scale_ignored (configured_scale), scale: the configured scale is ignored
    says configured scale|given scale|scale is ignored; shows scale != 1/sqrt(d_k);
        source huggingface/pytorch-image-models#2280
    return softmax(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v
both_scales (configured_scale), scale: the configured scale and the default one both
    says twice|configured scale|also|as well|and by 1/√d_k|besides|both
    q = q / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(q @ k.T * q.dtype.type(scale)) @ v
root_of_length (plain), scale: root of the number of keys
    says √n_k|√n; shows n_k != d_k
    q.shape[-1] → k.shape[0]
integer_root (plain), scale: sqrt taken of an int32 floor
    says ⌊√d_k⌋|integer|whole|floor|rounded down; shows d_k no square; at=At(d_k=6)
    root = int(math.sqrt(q.shape[-1]))
    return softmax(q @ k.T / np.float32(root)) @ v
hard_coded_width (plain), scale: head dimension 64 hard-coded
    says 1/8|0.125|64; shows d_k != 64
    return softmax(q @ k.T * np.float32(0.125)) @ v
exp2_bare (exp2_folded), exp: exp2 without log2 e
    says powers of 2|power of 2|exp2|base 2|2^s|2ˣ
    np.asarray(math.log2(math.e) / math.sqrt(q.shape[-1] → q.dtype.type(q.shape[-1]
    ]), q.dtype) → ] ** -0.5)
queries_twice (plain), score: scores of queries with queries
    says q qᵀ|queries are used as keys; domain=Domain(square=True)
    k. → q.
scores_transposed (plain), score: K Q^T for Q K^T
    says k qᵀ|exchanged|transposed; domain=Domain(square=True)
    q @ k → k @ q
scores_in_half (plain), score: scores formed in float16 before scaling
    says float16|half|overflow|65504; shows |q.k| > 65504, and by rounding; at=At(spread=200.0);
        source stanford-crfm/mistral#67
    s = (q.astype(np.float16) @ k.T.astype(np.float16)).astype(q.dtype)
    return softmax(s / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v
one_tile_of_the_head (plain), score: only the first 64 components take part
    says 64|first columns|truncated|columns; shows d_k > 64; at=At(d_k=70)
    block = 64
    s = q[:, :block] @ k[:, :block].T
    return softmax(s / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v
pairs_of_columns (plain), score: the last odd component is dropped by a loop over pairs
    says odd|last column|last component|pairs; shows d_k odd; at=At(d_k=5)
cap_before_scale(q, k, v) (capped), softcap: the cap comes before the scale
    says cap & before; source huggingface/trl#5691
    s = 5 * np.tanh(q @ k.T / np.float32(5))
    return softmax(s / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v
cap_after_mask(q, k, v, softcap) (capped_then_masked), softcap: the cap comes after the mask: -inf becomes -cap
    says cap & after; shows some key forbidden; source onnx/onnx#7865
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    n_q, n_k = s.shape
    s = np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, -np.inf).astype(q.dtype)
    s = np.tanh(s / q.dtype.type(softcap)) * q.dtype.type(softcap)
    return softmax(s) @ v
cap_not_multiplied_back (capped), softcap: the cap is not multiplied back
    says cap & not multiplied|without|tanh(s/c)
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(np.tanh(s / q.dtype.type(softcap))) @ v
cap_by_clipping (capped), softcap: scores are cut at the cap, no tanh
    says cap & clip|cut|clamp
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(np.clip(s, -softcap, softcap)) @ v
cap_left_out(q: Array, k: Array, v: Array, softcap: float=0.0) (capped), softcap: the cap is left out
    says cap & left out|ignored|missing|no cap|not capped
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(s) @ v
""",
)

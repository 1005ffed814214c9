"""A right kernel of Triton, for mistakes in single lines: causal attention of several heads, tile by tile."""

from typing import Any

import torch
import triton
import triton.language as tl

TILE = 16


@triton.jit
def scores_of_tile(x, k, at, j, n_k, d, stride_kn, stride_kd, scale, D: tl.constexpr):
    c = tl.arange(0, D)
    inside = (j[:, None] < n_k) & (c[None, :] < d)
    y = tl.load(k + at + j[:, None] * stride_kn + c[None, :] * stride_kd, mask=inside, other=0.0)
    return tl.dot(x, tl.trans(y)) * scale


@triton.jit
def forward(q, k, v, o, stride_qh, stride_qn, stride_qd, stride_kh, stride_kn, stride_kd,
            stride_vh, stride_vn, stride_vd, n_q, n_k, d, e, scale,
            D: tl.constexpr, E: tl.constexpr, T: tl.constexpr):  # fmt: skip
    first = tl.program_id(0) * T
    head = tl.program_id(1)
    i = first + tl.arange(0, T)
    c = tl.arange(0, D)
    f = tl.arange(0, E)
    late = n_k - n_q
    of_q = q + head * stride_qh + i[:, None] * stride_qn + c[None, :] * stride_qd
    x = tl.load(of_q, mask=(i[:, None] < n_q) & (c[None, :] < d), other=0.0)
    top = tl.full([T], -float("inf"), tl.float32)
    total = tl.zeros([T], tl.float32)
    acc = tl.zeros([T, E], tl.float32)
    end = tl.minimum(n_k, first + T + late)
    for start in range(0, end, T):
        j = start + tl.arange(0, T)
        s = scores_of_tile(x, k, head * stride_kh, j, n_k, d, stride_kn, stride_kd, scale, D)
        seen = (j[None, :] < n_k) & (j[None, :] <= i[:, None] + late)
        s = tl.where(seen, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        old = tl.exp2(top - new)
        total = total * old + tl.sum(p, 1)
        of_v = v + head * stride_vh + j[:, None] * stride_vn + f[None, :] * stride_vd
        z = tl.load(of_v, mask=(j[:, None] < n_k) & (f[None, :] < e), other=0.0)
        acc = acc * old[:, None] + tl.dot(p, z)
        top = new
    acc = acc / total[:, None]
    of_o = o + (head * n_q + i[:, None]) * e + f[None, :]
    tl.store(of_o, acc, mask=(i[:, None] < n_q) & (f[None, :] < e))


def attention(q: Any, k: Any, v: Any) -> Any:
    (h, n_q, d), (n_k, e) = q.shape, v.shape[1:]
    o = torch.empty(h, n_q, e, dtype=q.dtype)
    scale = d**-0.5 * 1.4426950408889634
    wide, wide_out = max(16, triton.next_power_of_2(d)), max(16, triton.next_power_of_2(e))
    forward[(triton.cdiv(n_q, TILE), h)](q, k, v, o, *q.stride(), *k.stride(), *v.stride(),
                                         n_q, n_k, d, e, scale, D=wide, E=wide_out, T=TILE)  # fmt: skip
    return o

"""Attention by tiles in Triton, for docs/kernels.md: float32 inside, exponentials stored where they meet the values."""

import triton
import triton.language as tl


@triton.jit
def flash(q, k, v, o, n, scale, D: tl.constexpr, T: tl.constexpr):
    """q, k, v, o (n, D) of float16, row by row; n is a multiple of T, and a program has T queries."""
    i, c = tl.program_id(0) * T + tl.arange(0, T), tl.arange(0, D)
    x = tl.load(q + i[:, None] * D + c[None, :])
    m, total, acc = tl.full([T], -float("inf"), tl.float32), tl.zeros([T], tl.float32), tl.zeros([T, D], tl.float32)
    for start in range(0, n, T):
        at = (start + tl.arange(0, T))[:, None] * D + c[None, :]
        s = tl.dot(x, tl.trans(tl.load(k + at))) * scale
        new = tl.maximum(m, tl.max(s, 1))
        p, old, y = tl.exp(s - new[:, None]), tl.exp(m - new), tl.load(v + at)
        total, acc, m = total * old + tl.sum(p, 1), acc * old[:, None] + tl.dot(p.to(y.dtype), y), new
    tl.store(o + i[:, None] * D + c[None, :], (acc / total[:, None]).to(tl.float16))

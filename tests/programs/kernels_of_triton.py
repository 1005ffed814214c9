"""Functions of torch that launch kernels of Triton: right ones, on any numbers of tokens and any widths."""

from typing import Any

import torch
import triton
import triton.language as tl

T = 16


def padded(n: int) -> int:
    return max(16, triton.next_power_of_2(n))


@triton.jit
def tiles(q, k, v, o, n_q, n_k, d, e, scale, D: tl.constexpr, E: tl.constexpr, T: tl.constexpr):
    i, c, f = tl.program_id(0) * T + tl.arange(0, T), tl.arange(0, D), tl.arange(0, E)
    x = tl.load(q + i[:, None] * d + c[None, :], mask=(i[:, None] < n_q) & (c[None, :] < d), other=0.0)
    m, total, acc = tl.full([T], -float("inf"), tl.float32), tl.zeros([T], tl.float32), tl.zeros([T, E], tl.float32)
    for start in range(0, n_k, T):
        j = start + tl.arange(0, T)
        y = tl.load(k + j[:, None] * d + c[None, :], mask=(j[:, None] < n_k) & (c[None, :] < d), other=0.0)
        z = tl.load(v + j[:, None] * e + f[None, :], mask=(j[:, None] < n_k) & (f[None, :] < e), other=0.0)
        s = tl.where(j[None, :] < n_k, tl.dot(x, tl.trans(y)) * scale, -float("inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p, old = tl.exp(s - new[:, None]), tl.exp(m - new)
        total = total * old + tl.sum(p, 1)
        acc = acc * old[:, None] + tl.dot(p.to(z.dtype), z)
        m = new
    acc = acc / total[:, None]
    tl.store(o + i[:, None] * e + f[None, :], acc, mask=(i[:, None] < n_q) & (f[None, :] < e))


def plain(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.contiguous() for x in (q, k, v))
    (n_q, d), (n_k, e) = q.shape, v.shape
    o = torch.empty(n_q, e, dtype=q.dtype)
    tiles[(triton.cdiv(n_q, T),)](q, k, v, o, n_q, n_k, d, e, d**-0.5, D=padded(d), E=padded(e), T=T)
    return o


@triton.jit
def tile_of_heads(acc, total, m, x, k, v, kn, kd, vn, vd, start, i, n_q, n_k, d, e, scale,
                  D: tl.constexpr, E: tl.constexpr, T: tl.constexpr):  # fmt: skip
    j, c, f = start + tl.arange(0, T), tl.arange(0, D), tl.arange(0, E)
    y = tl.load(k + j[None, :] * kn + c[:, None] * kd, mask=(j[None, :] < n_k) & (c[:, None] < d), other=0.0)
    z = tl.load(v + j[:, None] * vn + f[None, :] * vd, mask=(j[:, None] < n_k) & (f[None, :] < e), other=0.0)
    s = tl.dot(x, y)
    seen = (j[None, :] < n_k) & (j[None, :] <= i[:, None] + n_k - n_q)
    s = s * scale + tl.where(seen, 0, -1.0e6)
    new = tl.maximum(m, tl.max(s, 1))
    s -= new[:, None]
    p, old = tl.math.exp2(s), tl.math.exp2(m - new)
    return tl.dot(p.to(z.dtype), z, acc * old[:, None]), total * old + tl.sum(p, 1), new


@triton.jit
def heads(q, k, v, o, lse, qb, qh, qn, qd, kb, kh, kn, kd, vb, vh, vn, vd, n_q, n_k, d, e, h, group, scale,
          D: tl.constexpr, E: tl.constexpr, T: tl.constexpr):  # fmt: skip
    first, at = tl.program_id(0) * T, tl.program_id(1)
    b, g = at // h, at % h
    i, c, f = first + tl.arange(0, T), tl.arange(0, D), tl.arange(0, E)
    x = tl.load(q + b * qb + g * qh + i[:, None] * qn + c[None, :] * qd,
                mask=(i[:, None] < n_q) & (c[None, :] < d), other=0.0)  # fmt: skip
    k += b * kb + g // group * kh
    v += b * vb + g // group * vh
    m, total, acc = tl.zeros([T], tl.float32) - float("inf"), tl.zeros([T], tl.float32), tl.zeros([T, E], tl.float32)
    scale *= 1.44269504
    end = tl.minimum(n_k, first + T + n_k - n_q)
    for start in range(0, end, T):
        acc, total, m = tile_of_heads(acc, total, m, x, k, v, kn, kd, vn, vd, start, i, n_q, n_k, d, e, scale,
                                      D=D, E=E, T=T)  # fmt: skip
    tl.store(lse + at * n_q + i, (m + tl.math.log2(total)) * 0.6931471805599453, mask=i < n_q)
    acc = (acc / total[:, None]).to(o.dtype.element_ty)
    tl.store(o + (at * n_q + i[:, None]) * e + f[None, :], acc, mask=(i[:, None] < n_q) & (f[None, :] < e))


def causal(q: Any, k: Any, v: Any) -> Any:
    (b, h, n_q, d), (n_k, e) = q.shape, v.shape[2:]
    o, lse = q.new_empty(b, h, n_q, e), torch.empty(b, h, n_q)
    heads[(triton.cdiv(n_q, T), b * h)](q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), n_q, n_k, d, e,
                                        h, h // k.shape[1], d**-0.5, D=padded(d), E=padded(e), T=T)  # fmt: skip
    return o, lse


def output(q: Any, k: Any, v: Any) -> Any:
    return causal(q, k, v)[0]


def turned(q: Any, k: Any, v: Any) -> Any:
    """Arrays as (b, n, h, d)."""
    return causal(*(x.transpose(1, 2) for x in (q, k, v)))[0].transpose(1, 2)


@triton.jit
def by_descriptors(q, k, v, o, n, scale, D: tl.constexpr, T: tl.constexpr):
    first = tl.program_id(0) * T
    of_q = tl.make_tensor_descriptor(q, [n, D], [D, 1], [T, D])
    of_k = tl.make_tensor_descriptor(k, [n, D], [D, 1], [T, D])
    of_v = tl.make_tensor_descriptor(v, [n, D], [D, 1], [T, D])
    x = of_q.load([first, 0])
    m, total, acc = tl.full([T], -float("inf"), tl.float32), tl.zeros([T], tl.float32), tl.zeros([T, D], tl.float32)
    for start in range(0, n, T):
        j = start + tl.arange(0, T)
        s = tl.where(j[None, :] < n, tl.dot(x, of_k.load([start, 0]).T) * scale, -float("inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p, old = tl.exp(s - new[:, None]), tl.exp(m - new)
        total, acc = total * old + tl.sum(p, 1), acc * old[:, None] + tl.dot(p.to(x.dtype), of_v.load([start, 0]))
        m = new
    of_o = tl.make_tensor_descriptor(o, [n, D], [D, 1], [T, D])
    of_o.store([first, 0], (acc / total[:, None]).to(o.dtype.element_ty))


def square(q: Any, k: Any, v: Any) -> Any:
    """As many queries as keys, of a width that 16 divides, and that of the values."""
    o = torch.empty_like(q)
    by_descriptors[(triton.cdiv(len(q), T),)](q, k, v, o, len(q), q.shape[1] ** -0.5, D=q.shape[1], T=T)
    return o


@triton.jit
def part_of_keys(q, k, v, out, n_k, d, e, size, scale, D: tl.constexpr, E: tl.constexpr, T: tl.constexpr):
    """out (n_q, parts, e + 1): the part's output, and its log-sum-exp in the last column."""
    i, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    c, f = tl.arange(0, D), tl.arange(0, E)
    x = tl.load(q + i * d + c, mask=c < d, other=0.0)
    m, total, acc = -float("inf"), 0.0, tl.zeros([E], tl.float32)
    end = tl.minimum(n_k, (part + 1) * size)
    for start in range(part * size, end, T):
        j = start + tl.arange(0, T)
        y = tl.load(k + j[:, None] * d + c[None, :], mask=(j[:, None] < end) & (c[None, :] < d), other=0.0)
        z = tl.load(v + j[:, None] * e + f[None, :], mask=(j[:, None] < end) & (f[None, :] < e), other=0.0)
        s = tl.where(j < end, tl.sum(x[None, :] * y, 1) * scale, -float("inf"))
        new = tl.maximum(m, tl.max(s, 0))
        p, old = tl.exp(s - new), tl.exp(m - new)
        total = total * old + tl.sum(p, 0)
        acc = acc * old + tl.sum(p[:, None] * z, 0)
        m = new
    at = out + (i * parts + part) * (e + 1)
    tl.store(at + f, acc / total, mask=f < e)
    tl.store(at + e, m + tl.log(total))


@triton.jit
def merge(parts_of, out, parts, e, E: tl.constexpr):
    i, f = tl.program_id(0), tl.arange(0, E)
    m, total, acc = -float("inf"), 0.0, tl.zeros([E], tl.float32)
    for part in range(parts):
        at = parts_of + (i * parts + part) * (e + 1)
        x, lse = tl.load(at + f, mask=f < e, other=0.0), tl.load(at + e)
        new = tl.maximum(m, lse)
        old, p = tl.exp(m - new), tl.exp(lse - new)
        acc, total, m = acc * old + x * p, total * old + p, new
    tl.store(out + i * e + f, acc / total, mask=f < e)


def _split(q: Any, k: Any, v: Any, size: int = 20) -> Any:
    q, k, v = (x.contiguous() for x in (q, k, v))
    (n_q, d), (n_k, e) = q.shape, v.shape
    parts = torch.empty(n_q, triton.cdiv(n_k, size), e + 1)
    part_of_keys[(n_q, parts.shape[1])](q, k, v, parts, n_k, d, e, size, d**-0.5, D=padded(d), E=padded(e), T=T)
    return parts


def split(q: Any, k: Any, v: Any) -> Any:
    parts, o = _split(q, k, v), torch.empty(len(q), v.shape[1], dtype=q.dtype)
    merge[(len(q),)](parts, o, parts.shape[1], v.shape[1], E=padded(v.shape[1]))
    return o


def merged_by_torch(q: Any, k: Any, v: Any) -> Any:
    parts = _split(q, k, v)
    weights = torch.softmax(parts[..., -1], -1)
    return (parts[..., :-1] * weights[..., None]).sum(1).to(q.dtype)


@triton.jit
def rows(q, k, v, o, n, scale, D: tl.constexpr, N: tl.constexpr):
    """A row of queries in each program, no key masked before it is read."""
    i, j, c = tl.program_id(0), tl.arange(0, N), tl.arange(0, D)
    x, at = tl.load(q + i * D + c), j[:, None] * D + c[None, :]
    s = tl.where(j < n, tl.sum(x[None, :] * tl.load(k + at), 1) * scale, -float("inf"))
    p = tl.exp(s - tl.max(s, 0))
    tl.store(o + i * D + c, tl.sum(p[:, None] * tl.load(v + at), 0) / tl.sum(p, 0))


def unmasked(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.contiguous() for x in (q, k, v))
    o = torch.empty_like(q)
    rows[(len(q),)](q, k, v, o, len(k), q.shape[1] ** -0.5, D=q.shape[1], N=padded(len(k)))
    return o


def without_kernels(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


@triton.autotune(configs=[triton.Config({"T": n}, num_warps=4) for n in (1, 16, 32)], key=["n_k"])
@triton.heuristics({"D": lambda given: padded(given["d"]), "E": lambda given: padded(given["e"])})
@triton.jit
def tuned_tiles(q, k, v, o, n_q, n_k, d, e, scale, D: tl.constexpr, E: tl.constexpr, T: tl.constexpr):
    tl.static_assert(T >= 16)
    i, c, f = tl.program_id(0) * T + tl.arange(0, T), tl.arange(0, D), tl.arange(0, E)
    x = tl.load(q + i[:, None] * d + c[None, :], mask=(i[:, None] < n_q) & (c[None, :] < d), other=0.0)
    total, acc = tl.zeros([T], tl.float32), tl.zeros([T, E], tl.float32)
    for start in range(0, n_k, T):
        j = start + tl.arange(0, T)
        y = tl.load(k + j[:, None] * d + c[None, :], mask=(j[:, None] < n_k) & (c[None, :] < d), other=0.0)
        z = tl.load(v + j[:, None] * e + f[None, :], mask=(j[:, None] < n_k) & (f[None, :] < e), other=0.0)
        p = tl.where(j[None, :] < n_k, tl.exp(tl.dot(x, tl.trans(y)) * scale), 0.0)
        total += tl.sum(p, 1)
        acc += tl.dot(p.to(z.dtype), z)
    tl.store(o + i[:, None] * e + f[None, :], acc / total[:, None], mask=(i[:, None] < n_q) & (f[None, :] < e))


def tuned(q: Any, k: Any, v: Any) -> Any:
    """A kernel whose tiles a tuner chooses, by times that nothing measures here."""
    q, k, v = (x.contiguous() for x in (q, k, v))
    (n_q, d), (n_k, e) = q.shape, v.shape
    o = torch.empty(n_q, e, dtype=q.dtype)
    tuned_tiles[lambda given: (triton.cdiv(n_q, given["T"]),)](q, k, v, o, n_q, n_k, d, e, d**-0.5)
    return o


def prepared(q: Any, k: Any, v: Any) -> Any:
    """Operators of torch before the launch."""
    q = torch.stack([q, q.flip(0)])[0] + q.new_zeros(q.shape)
    v = torch.cumsum(torch.cat([v[:1], v.diff(dim=0)]), 0)
    return plain(q, k + k[:0].flip(0).sum(0), v)


def ranked(q: Any, k: Any, v: Any) -> Any:
    """An operator that is not read, before the launch."""
    return plain(q.sort(-1).values, k, v)

"""Attention in plain torch: every field of the specification by the operations that its users write, for autograd."""

from __future__ import annotations

import math
from typing import Any

from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, Rotary, Shaw, TransformerXL
from symattn.attention.spec import Attention
from tests.attention.torch_weights import INF, mask, of_heads, weights


def attention(spec: Attention, given: dict[str, Any]) -> Any:
    """The output, or the output and the logarithms; ``given`` are tensors by the names of inputs."""
    import torch

    q, k, v, width = qkv(spec, given)
    if spec.heads != spec.key_heads:
        k, v = (t.repeat_interleave(spec.heads // spec.key_heads, dim=-3) for t in (k, v))
    if spec.truncate:
        q, k = q[..., : spec.truncate], k[..., : spec.truncate]
    s = related(spec, scored(spec, given, q, k), given, q, k)
    s = placed(spec, scaled(spec, s, width, given), given)
    if spec.bias:
        s = s + of_heads(given["bias"], s)
    allowed = mask(spec, s, given)
    if spec.mask == "additive":
        s = s + of_heads(given["mask"], s)
        allowed = allowed & (of_heads(given["mask"], s) > -INF)
    p, lse = weights(spec, s.masked_fill(~allowed, -INF), allowed, given)
    if spec.dropout:
        p = p.masked_fill(~of_heads(given["drop"], p), 0) / (1 - float(spec.dropout))
    o = p @ v
    if isinstance(spec.position, Shaw) and spec.position.values:
        o = o + torch.einsum("...ij,ijc->...ic", p, given["a_v"][clipped(spec, p)])
    if spec.latent is not None and spec.latent.absorbed:
        o = o @ split(given["w_uv"], spec.heads)
    if "x" in given and spec.heads > 1:
        o = o.transpose(-3, -2).flatten(-2)
    if "w_o" in given:
        o = o @ given["w_o"] + given.get("b_o", 0)
    return (o, lse) if spec.lse else o


def split(x: Any, heads: int) -> Any:
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2) if heads > 1 else x


# -- queries, keys, values ---------------------------------------------------------------------------------------------
def qkv(spec: Attention, given: dict[str, Any]) -> tuple[Any, Any, Any, int]:
    """With norms and rotations; and d_k."""
    if spec.latent is not None:
        return latent(spec, given)
    if "x" not in given:
        q, k, v = (given[n] for n in "qkv")
    else:
        q, k, v = projected(spec, given)
    q, k = (normed(spec, t, given.get(f"g_{n}"), given.get(f"beta_{n}")) for t, n in ((q, "q"), (k, "k")))
    if isinstance(spec.position, Rotary):
        q, k = both_rotated(spec, given, q, k)
    return q, k, v, q.shape[-1]


def projected(spec: Attention, given: dict[str, Any]) -> list[Any]:
    import torch

    x, h, g = given["x"], spec.heads, spec.key_heads
    y = given.get("y", x)
    if spec.packed:
        d = given["w_in"].shape[-1] // (h + 2 * g)
        parts = torch.split(x @ given["w_in"] + given.get("b_in", 0), [h * d, g * d, g * d], dim=-1)
    elif "w_q" in given:
        sources = zip("qkv", (x, y, y), strict=True)
        parts = [t @ given[f"w_{n}"] + given.get(f"b_{n}", 0) for n, t in sources]
    else:
        parts = [x, y, y]
    return [split(t, n) if h == 1 or n > 1 else t[..., None, :, :] for t, n in zip(parts, (h, g, g), strict=True)]


def normed(spec: Attention, x: Any, gain: Any, bias: Any) -> Any:
    import torch.nn.functional as f

    if spec.qk_norm == "l2":
        return x / x.norm(dim=-1, keepdim=True)
    if spec.qk_norm == "rms":
        return f.rms_norm(x, x.shape[-1:], gain, float(spec.eps))
    return x if spec.qk_norm is None else f.layer_norm(x, x.shape[-1:], gain, bias, float(spec.eps))


def latent(spec: Attention, given: dict[str, Any]) -> tuple[Any, Any, Any, int]:
    import torch

    h, x = spec.heads, given["x"]
    q = split(x @ given["w_q"] if "w_q" in given else (x @ given["w_dq"]) @ given["w_uq"], h)
    c, kr = x @ given["w_dkv"], x @ given["w_kr"]
    r = kr.shape[-1]
    qn, qr = q[..., :-r], q[..., -r:]
    if isinstance(spec.position, Rotary):
        qr, kr = both_rotated(spec, given, qr, kr)
    if spec.latent is not None and spec.latent.absorbed:
        qn, own, v = qn @ split(given["w_uk"], h).mT, c, c
        own, v, kr = (t[..., None, :, :] if h > 1 else t for t in (own, v, kr))
    else:
        own, v = split(c @ given["w_uk"], h), split(c @ given["w_uv"], h)
        kr = kr[..., None, :, :].expand(*own.shape[:-1], r) if h > 1 else kr
    return torch.cat([qn, qr], -1), torch.cat([own, kr], -1), v, q.shape[-1]


def both_rotated(spec: Attention, given: dict[str, Any], q: Any, k: Any) -> tuple[Any, Any]:
    cos, sin = given.get("cos"), given.get("sin")
    if cos is None:
        cos, sin = tables(spec.position, k.shape[-2], k.shape[-1])
    late = 0 if spec.alignment == "top-left" else k.shape[-2] - q.shape[-2]
    rows = slice(late, late + q.shape[-2])
    own = [given[n] if n in given else t[..., rows, :] for n, t in (("cos_q", cos), ("sin_q", sin))]
    layout = spec.position.layout  # type: ignore[union-attr]
    return rotated(q, *own, layout), rotated(k, cos, sin, layout)


def tables(asked: Any, n: int, width: int) -> tuple[Any, Any]:
    import torch

    if asked.triples:
        angles = torch.tensor([math.atan2(b, a) for a, b, _ in asked.triples], dtype=torch.float64)
    else:
        r = asked.width or width
        angles = float(asked.base) ** -(torch.arange(0, r, 2, dtype=torch.float64) / r)
    angles = (torch.arange(n) + asked.start)[:, None] * angles
    return angles.cos(), angles.sin()


def rotated(x: Any, cos: Any, sin: Any, layout: str) -> Any:
    import torch

    f = cos.shape[-1]
    if 2 < cos.ndim < x.ndim:
        cos, sin = cos[..., None, :, :], sin[..., None, :, :]
    there, rest = x[..., : 2 * f], x[..., 2 * f :]
    if layout == "half":
        a, b = there[..., :f], there[..., f:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)
    a, b = there[..., 0::2], there[..., 1::2]
    pairs = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([pairs, rest], -1)


# -- scores ------------------------------------------------------------------------------------------------------------
def scored(spec: Attention, given: dict[str, Any], q: Any, k: Any) -> Any:
    if spec.score == "general":
        return q @ given["w_s"] @ k.mT
    if spec.score == "additive":
        hidden = ((q @ given["w_s"])[..., :, None, :] + (k @ given["u_s"])[..., None, :, :]).tanh()
        return (given["v_s"][..., None, None, :] * hidden).sum(-1)
    if spec.score == "cosine":
        return (q / q.norm(dim=-1, keepdim=True)) @ (k / k.norm(dim=-1, keepdim=True)).mT
    if spec.score == "distance":
        return -((q[..., :, None, :] - k[..., None, :, :]) ** 2).sum(-1) / 2
    return q @ k.mT


def scaled(spec: Attention, s: Any, width: int, given: dict[str, Any]) -> Any:
    if spec.scale == "given":
        s = s * (given["scale"][:, None, None] if spec.heads > 1 else given["scale"])
    elif spec.scale == "1/d_k":
        s = s / width
    elif spec.scale is not None:
        s = s * float(spec.scale)
    elif spec.score == "dot":
        terms = spec.position.terms if isinstance(spec.position, Disentangled) else 1
        s = s / math.sqrt(width * terms)
    return s if spec.softcap is None else float(spec.softcap) * (s / float(spec.softcap)).tanh()


def ahead(spec: Attention, s: Any) -> Any:
    """j − i."""
    import torch

    n_q, n_k = s.shape[-2:]
    late = 0 if spec.alignment == "top-left" else n_k - n_q
    return torch.arange(n_k)[None, :] - torch.arange(n_q)[:, None] - late


def clipped(spec: Attention, s: Any) -> Any:
    most = spec.position.most  # type: ignore[union-attr]
    return ahead(spec, s).clamp(-most, most) + most


def related(spec: Attention, s: Any, given: dict[str, Any], q: Any, k: Any) -> Any:
    """Terms by distance that have part in the scale."""
    import torch

    asked = spec.position
    if isinstance(asked, Shaw):
        return s + torch.einsum("...ic,ijc->...ij", q, given["a_k"][clipped(spec, s)])
    if isinstance(asked, TransformerXL):
        r = split(given["r"] @ given["w_r"], spec.heads)
        u, w = (b[:, None, :] if spec.heads > 1 else b for b in (given["b_u"], given["b_w"]))
        index = (ahead(spec, s) + s.shape[-1] - 1).clamp(max=r.shape[-2] - 1)
        return s + u @ k.mT + torch.einsum("...ic,...ijc->...ij", q + w, r[..., index, :])
    if isinstance(asked, Disentangled):
        behind = -ahead(spec, s)
        if asked.to_position:
            p = split(given["p"] @ given["w_pk"] + given.get("b_pk", 0), spec.heads)
            s = s + torch.einsum("...ic,...ijc->...ij", q, p[..., spanned(asked, behind), :])
        if asked.to_content:
            p = split(given["p"] @ given["w_pq"] + given.get("b_pq", 0), spec.heads)
            index = spanned(asked, -behind if asked.backwards else behind)
            s = s + torch.einsum("...jc,...ijc->...ij", k, p[..., index, :])
    return s


def spanned(asked: Any, behind: Any) -> Any:
    """Where no buckets are, a row for each distance."""
    assert asked.max_distance is None
    return behind.clamp(-asked.span, asked.span - 1) + asked.span


def placed(spec: Attention, s: Any, given: dict[str, Any]) -> Any:
    """Terms by distance after the scale."""
    import torch

    asked, distance = spec.position, ahead(spec, s)
    if isinstance(asked, Alibi):
        h = spec.heads
        slopes = given["slopes"] if "slopes" in given else 2.0 ** (-8 * torch.arange(1, h + 1, dtype=s.dtype) / h)
        far = distance.abs() if asked.two_sided else -distance
        return s - (slopes[:, None, None] if s.ndim > 2 else slopes) * far
    if isinstance(asked, Buckets):
        return s + given["b_rel"][buckets(asked, distance)].movedim(-1, 0)
    return s


def buckets(asked: Any, distance: Any) -> Any:
    """T5's, for two directions."""
    import torch

    half = asked.number // 2
    near, size = half // 2, distance.abs()
    far = near + (
        torch.log(size.clamp(min=1) / near) / math.log(asked.max_distance / near) * (half - near)
    ).long().clamp(max=half - near - 1)
    return torch.where(size < near, size, far) + half * (distance > 0)

"""Attention with a cap, a sink or a bias as a function of torch, with a backward pass by hand, right or wrong."""

from collections.abc import Callable
from typing import Any


def varied(wrong: str = "") -> Callable[..., Any]:
    """``cap``: its derivative is left out; ``sink``: D is as if there were none; ``bias``: dB is scaled; ``scale``: dK
    is not.
    """
    import torch

    class Varied(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, bias: Any, sink: Any, s: float, cap: float | None) -> Any:
            x = (q.float() @ k.float().mT) * s
            z = torch.tanh(x / cap) if cap else torch.zeros_like(x)
            t = (z * cap if cap else x) + (0 if bias is None else bias.float())
            own = None if sink is None else sink.float().reshape(1, -1, 1, 1).expand(*t.shape[:-1], 1)
            p = (t if own is None else torch.cat([t, own], -1)).softmax(-1)[..., : t.shape[-1]]
            ctx.save_for_backward(q, k, v, p, z)
            ctx.s, ctx.like = s, bias
            return (p @ v.float()).to(q.dtype)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            q, k, v, p, z = (t.float() for t in ctx.saved_tensors)
            dp, g = g.float() @ v.mT, g.float()
            d = (p * dp).sum(-1, keepdim=True)
            ds = p * (dp - (d / p.sum(-1, keepdim=True) if wrong == "sink" else d))
            db = ds * (ctx.s if wrong == "bias" else 1)
            ds = ds if wrong == "cap" else ds * (1 - z * z)
            dtype, like = ctx.saved_tensors[0].dtype, ctx.like
            found = (ctx.s * ds @ k, (1 if wrong == "scale" else ctx.s) * ds.mT @ q, p.mT @ g)
            of_bias = db.sum_to_size(like.shape).to(like.dtype) if like is not None and like.requires_grad else None
            return *(t.to(dtype) for t in found), of_bias, None, None, None

    return lambda q, k, v, s, bias=None, sink=None, cap=None: Varied.apply(q, k, v, bias, sink, s, cap)


def eager(wrong: str = "") -> Callable[..., Any]:
    """In the place of the eager functions of Gemma 2, GPT-OSS and T5, which hand over the same by keywords."""
    attend = varied(wrong)

    def eager_attention_forward(
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        scaling: float | None = None,
        softcap: float | None = None,
        s_aux: Any = None,
        position_bias: Any = None,
        **more: Any,
    ) -> Any:
        times = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(times, 1) for t in (key, value))
        parts = [b for b in (attention_mask, position_bias) if b is not None]
        bias = sum(parts[1:], parts[0]) if parts else None
        out = attend(query, key, value, scaling or query.shape[-1] ** -0.5, bias, s_aux, softcap)
        return out.transpose(1, 2).contiguous(), None

    return eager_attention_forward

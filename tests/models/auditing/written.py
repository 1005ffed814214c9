"""Attention as a function of torch's own kind, with a backward pass by hand: right, or with a mistake."""

from collections.abc import Callable
from typing import Any


def written(wrong: str = "") -> Callable[..., Any]:
    """A function of q, k, v, the scale, a bias, a sink, a cap, ``is_causal`` and ``dropout_p``.

    ``wrong``: ``scale``: dK is not scaled; ``sums``: no row sums are subtracted; ``mask``: it is forgotten; ``cap``:
    its derivative is left out; ``sink``: the sums are as if there were none; ``bias``: dB is scaled; ``key``: there is
    no dK; ``dropout``: it is forgotten, ``values``: in dV alone, ``drawn``: it is drawn again.
    """
    import torch

    class Written(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, bias: Any, sink: Any, s: float, cap: Any, *how: Any) -> Any:
            causal, rate = how
            x = (q.float() @ k.float().mT) * s
            z = torch.tanh(x / cap) if cap else torch.zeros_like(x)
            t = z * cap if cap else x
            t = t if bias is None else t + bias.float()
            t = t.masked_fill(torch.ones(t.shape[-2:]).triu(1).bool(), -torch.inf) if causal else t
            if sink is None:
                p = t.softmax(-1)
            else:
                own = sink.float().reshape(1, -1, 1, 1).expand(*t.shape[:-1], 1)
                p = torch.cat([t, own], -1).softmax(-1)[..., : t.shape[-1]]
            c = torch.empty_like(p).bernoulli_(1 - rate) / (1 - rate) if rate else torch.ones_like(p)
            ctx.save_for_backward(q, k, v, p, z, c)
            ctx.s, ctx.bias = s, bias
            return ((p * c if rate else p) @ v.float()).to(q.dtype)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            q, k, v, p, z, c = (t.float() for t in ctx.saved_tensors)
            s, g, bias = ctx.s, g.float(), ctx.bias
            p = (s * q @ k.mT).softmax(-1) if wrong == "mask" else p
            c = {"dropout": torch.ones_like(c), "drawn": c.flip(-1)}.get(wrong, c)
            dp = c * (g @ v.mT)
            d = (p * dp).sum(-1, keepdim=True) / (p.sum(-1, keepdim=True) if wrong == "sink" else 1)
            ds = p * (dp if wrong == "sums" else dp - d)
            db = ds * (s if wrong == "bias" else 1)
            ds = ds if wrong == "cap" else ds * (1 - z * z)
            dk = None if wrong == "key" else (1 if wrong == "scale" else s) * ds.mT @ q
            found = (s * ds @ k, dk, (p if wrong == "values" else p * c).mT @ g)
            of_bias = db.sum_to_size(bias.shape).to(bias.dtype) if bias is not None and bias.requires_grad else None
            return *(None if t is None else t.to(ctx.saved_tensors[0].dtype) for t in found), of_bias, *[None] * 5

    def attend(
        q: Any, k: Any, v: Any, s: Any = None, bias: Any = None, sink: Any = None, cap: Any = None,
        is_causal: bool = False, dropout_p: float = 0.0,
    ) -> Any:  # fmt: skip
        return Written.apply(q, k, v, bias, sink, s or q.shape[-1] ** -0.5, cap, is_causal, dropout_p)

    return attend


def eager(wrong: str = "") -> Callable[..., Any]:
    """In the place of the eager functions of Gemma 2, GPT-OSS and T5, which hand over the same by keywords."""
    attend = written(wrong)

    def eager_attention_forward(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: Any = None, **more: Any
    ) -> Any:
        times = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(times, 1) for t in (key, value))
        parts = [b for b in (attention_mask, more.get("position_bias")) if b is not None]
        bias = sum(parts[1:], parts[0]) if parts else None
        out = attend(query, key, value, scaling, bias, more.get("s_aux"), more.get("softcap"))
        return out.transpose(1, 2).contiguous(), None

    return eager_attention_forward

"""Attention as functions of torch with a backward pass by hand: right ones, and ones with a mistake."""

from collections.abc import Callable
from typing import Any

Grads = tuple[Any, Any, Any]


def written(back: Callable[..., Grads]) -> Callable[..., Any]:
    """Attention as a function of torch's own kind, with a backward pass by hand: ``back`` of q, k, v, P, dO and s."""

    import torch

    class Written(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
            scores = (q.float() @ k.float().mT) * q.shape[-1] ** -0.5
            if causal:
                scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
            p = scores.softmax(-1)
            ctx.save_for_backward(q, k, v, p)
            return (p @ v.float()).to(q.dtype)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            q, k, v, p = (t.float() for t in ctx.saved_tensors)
            dtype = ctx.saved_tensors[0].dtype
            found = back(q, k, v, p, g.float(), q.shape[-1] ** -0.5)
            return *(None if t is None else t.to(dtype) for t in found), None

    return lambda q, k, v, is_causal=False: Written.apply(q, k, v, is_causal)


def right(q: Any, k: Any, v: Any, p: Any, g: Any, s: float) -> Grads:
    dp = g @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True))
    return s * ds @ k, s * ds.mT @ q, p.mT @ g


def unscaled(*given: Any) -> Grads:
    dq, dk, dv = right(*given)
    return dq, dk / given[-1], dv


def without_sums(q: Any, k: Any, v: Any, p: Any, g: Any, s: float) -> Grads:
    ds = p * (g @ v.mT)
    return s * ds @ k, s * ds.mT @ q, p.mT @ g


def unmasked(q: Any, k: Any, v: Any, p: Any, g: Any, s: float) -> Grads:
    return right(q, k, v, (s * q @ k.mT).softmax(-1), g, s)


def dropping(back: Callable[..., Grads]) -> Callable[..., Any]:
    """Attention with dropout and a backward pass by hand: ``back`` of q, k, v, P, c, dO and s."""

    import torch

    class Dropping(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, rate: float) -> Any:
            p = ((q.float() @ k.float().mT) * q.shape[-1] ** -0.5).softmax(-1)
            c = torch.empty_like(p).bernoulli_(1 - rate) / (1 - rate)
            ctx.save_for_backward(q, k, v, p, c)
            return ((p * c) @ v.float()).to(q.dtype)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            q, k, v, p, c = (t.float() for t in ctx.saved_tensors)
            found = back(q, k, v, p, c, g.float(), q.shape[-1] ** -0.5)
            return *(t.to(ctx.saved_tensors[0].dtype) for t in found), None

    return lambda q, k, v, dropout_p=0.0: Dropping.apply(q, k, v, dropout_p)


def dropped(q: Any, k: Any, v: Any, p: Any, c: Any, g: Any, s: float) -> Grads:
    dp = c * (g @ v.mT)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True))
    return s * ds @ k, s * ds.mT @ q, (p * c).mT @ g


def forgotten(q: Any, k: Any, v: Any, p: Any, c: Any, g: Any, s: float) -> Grads:
    return dropped(q, k, v, p, 1.0, g, s)


def of_values(q: Any, k: Any, v: Any, p: Any, c: Any, g: Any, s: float) -> Grads:
    return (*dropped(q, k, v, p, c, g, s)[:2], p.mT @ g)


def drawn_again(q: Any, k: Any, v: Any, p: Any, c: Any, g: Any, s: float) -> Grads:
    return dropped(q, k, v, p, c.flip(-1), g, s)

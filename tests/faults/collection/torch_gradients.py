"""Gradients in torch: forward passes that autograd differentiates, and backward passes by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from symattn import Attention, Gradient
from tests.faults.collection.entries import Family

if TYPE_CHECKING:
    import torch

FAMILY = Family("torch_gradients", torch=True, spec=Gradient(Attention()))
right = FAMILY.right
_CAUSAL = Gradient(Attention(causal=True))
_CAP = Gradient(Attention(softcap=5))


def softmax(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)


@right("autograd through the definition")
def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return softmax(q, k) @ v


@right("autograd through torch's own function")
def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q, k, v)


@right("autograd, the maximum detached, on which nothing depends", spec=_CAUSAL)
def maximum_detached(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    s = q @ k.mT / math.sqrt(q.shape[-1])
    n_q, n_k = s.shape[-2:]
    s = s.masked_fill(torch.ones(n_q, n_k, dtype=torch.bool).triu(n_k - n_q + 1), -math.inf)
    e = (s - s.amax(-1, keepdim=True).detach()).exp()
    return e / e.sum(-1, keepdim=True) @ v


@right("by hand, in torch")
def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor) -> Any:
    p, scale = softmax(q, k), q.shape[-1] ** -0.5
    ds = p * (dout @ v.mT - (dout * (p @ v)).sum(-1, keepdim=True))
    return ds @ k * scale, ds.mT @ q * scale, p.mT @ dout


@right("capped, by autograd", spec=_CAP)
def capped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (5 * (q @ k.mT / math.sqrt(q.shape[-1]) / 5).tanh()).softmax(-1) @ v


FAMILY.wrong(
    globals(),
    """
sum_detached (maximum_detached), backward: the sum is detached
    says row sum|subtracted|jacobian|delta|Σ|normalis|sum; spec=Gradient(Attention())
    s = q @ k.mT / math.sqrt(q.shape[-1])
    e = (s - s.amax(-1, keepdim=True).detach()).exp()
    return e / e.sum(-1, keepdim=True).detach() @ v
weights_detached (forward), backward: the weights are detached: queries and keys get no gradient
    says the gradient stops at the weights
    ) @ v → ).detach() @ v
keys_detached (forward), backward: keys are detached in the scores
    says dk|keys|zero
    return softmax(q, k.detach()) @ v
queries_unscaled (by_hand), backward: dQ without the scale
    says scale
    dq, dk, dv = by_hand(q, k, v, dout)
    return dq * math.sqrt(q.shape[-1]), dk, dv
cap_straight_through (capped), backward: the derivative of the cap is left out
    says cap|tanh
    s = q @ k.mT / math.sqrt(q.shape[-1])
    return (s + (5 * (s / 5).tanh() - s).detach()).softmax(-1) @ v
row_sums_left_out (by_hand), backward: the row sums are left out
    says row sum|subtracted|jacobian|delta|Σ|softmax
    p, scale = softmax(q, k), q.shape[-1] ** -0.5
    ds = p * (dout @ v.mT) * scale
    return ds @ k, ds.mT @ q, p.mT @ dout
""",
)

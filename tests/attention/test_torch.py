"""Multi-head attention is what ``torch.nn.MultiheadAttention`` computes, to the rounding errors of the operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from symattn.attention.spec import Attention
from tests.bounded import bounded

pytestmark = pytest.mark.torch
E, H, B, N_Q, N_K = 12, 3, 2, 4, 5


def module(bias: bool, seed: int, **sizes: Any) -> Any:
    import torch

    torch.manual_seed(seed)
    made = torch.nn.MultiheadAttention(E, H, bias=bias, batch_first=True, dtype=torch.float64, **sizes)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.5)
    return made.eval()


def weights(made: Any) -> dict[str, np.ndarray]:
    """The module's parameters under this package's names: torch multiplies by transposed weights."""
    if made.in_proj_weight is None:
        parts = [made.q_proj_weight, made.k_proj_weight, made.v_proj_weight]
    else:
        parts = made.in_proj_weight.chunk(3)
    found = {f"w_{role}": p.detach().numpy().T for role, p in zip("qkv", parts, strict=True)}
    found["w_o"] = made.out_proj.weight.detach().numpy().T
    if made.in_proj_bias is not None:
        found |= {f"b_{role}": p.detach().numpy() for role, p in zip("qkv", made.in_proj_bias.chunk(3), strict=True)}
        found["b_o"] = made.out_proj.bias.detach().numpy()
    return found


def agree(made: Any, spec: Attention, x: np.ndarray, y: np.ndarray | None, masks: dict[str, Any], call: Any) -> None:
    """Both lie within the bound of float64, and so within twice the bound of each other."""
    import torch

    inputs = {"x": x, **({} if y is None else {"y": y}), **weights(made)}
    keys = torch.tensor(x if y is None else y)
    with torch.no_grad():
        theirs = made(torch.tensor(x), keys, keys, need_weights=False, **call)[0].numpy()
    ours = spec(**inputs, **masks)
    with np.errstate(invalid="ignore"):
        radius = spec(**{n: bounded(np.float64).lift(a) for n, a in inputs.items()}, **masks).planes[1]
    assert theirs.shape == ours.shape
    assert (np.abs(theirs - ours) <= 2 * radius).all()
    assert (radius < 2.0**-35).all()


def tokens(n: int, *batch: int, width: int = E) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(*batch, n, width))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [(), (B,)])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_self_and_cross_attention(bias: bool, batch: tuple[int, ...], cross: bool, seed: int) -> None:
    y = tokens(N_K, *batch) if cross else None
    agree(module(bias, seed), Attention(heads=H), tokens(N_Q, *batch), y, {}, {})


def test_keys_and_values_of_another_width() -> None:
    made = module(False, 0, kdim=7, vdim=7)
    agree(made, Attention(heads=H), tokens(N_Q, B), tokens(N_K, B, width=7), {}, {})


def test_causal() -> None:
    """torch's boolean masks say True where a query may *not* attend."""
    import torch

    forbidden = torch.ones(N_Q, N_Q, dtype=torch.bool).triu(1)
    for call in ({"attn_mask": forbidden}, {"attn_mask": forbidden, "is_causal": True}):
        agree(module(True, 1), Attention(heads=H, causal=True), tokens(N_Q, B), None, {}, call)


def test_boolean_and_additive_masks() -> None:
    import torch

    rng = np.random.default_rng(8)
    allowed = rng.random((N_Q, N_K)) < 0.6
    allowed[:, 0] = True
    added = np.where(allowed, rng.normal(size=allowed.shape), -np.inf)
    x, y = tokens(N_Q, B), tokens(N_K, B)
    boolean = {"attn_mask": torch.tensor(~allowed)}
    agree(module(True, 2), Attention(heads=H, mask="boolean"), x, y, {"mask": allowed}, boolean)
    agree(
        module(True, 2), Attention(heads=H, mask="additive"), x, y, {"mask": added}, {"attn_mask": torch.tensor(added)}
    )


def test_a_mask_for_each_batch_and_head() -> None:
    import torch

    allowed = np.random.default_rng(9).random((B, H, N_Q, N_K)) < 0.6
    allowed[..., 0] = True
    call = {"attn_mask": torch.tensor(~allowed).reshape(B * H, N_Q, N_K)}
    spec = Attention(heads=H, mask="boolean")
    agree(module(True, 3), spec, tokens(N_Q, B), tokens(N_K, B), {"mask": allowed}, call)


def test_padding_for_each_batch() -> None:
    import torch

    keep = np.array([[True, True, False, True, False], [True, False, True, True, True]])
    call = {"key_padding_mask": torch.tensor(~keep)}
    x, y = tokens(N_Q, B), tokens(N_K, B)
    agree(module(True, 4), Attention(heads=H, padding=True), x, y, {"keep": keep}, call)
    causal = torch.ones(N_Q, N_K, dtype=torch.bool).triu(1)
    spec = Attention(heads=H, padding=True, causal=True, alignment="top-left")
    agree(module(False, 4), spec, x, y, {"keep": keep}, {**call, "attn_mask": causal})


@pytest.mark.parametrize(
    "wrong",
    [
        Attention(heads=1),
        Attention(heads=H, scale=1),
        Attention(heads=H, causal=True),
        Attention(heads=2),
    ],
)
def test_another_specification_does_not_agree(wrong: Attention) -> None:
    with pytest.raises(AssertionError):
        agree(module(True, 5), wrong, tokens(N_Q, B), None, {}, {})


def test_scaled_dot_product_attention() -> None:
    import torch

    q, k, v = tokens(N_Q, B, width=3), tokens(N_K, B, width=3), tokens(N_K, B, width=2)
    arrays = [torch.tensor(a) for a in (q, k, v)]
    for spec, call in (
        (Attention(), {}),
        (Attention(scale=0.3), {"scale": 0.3}),
        (Attention(causal=True, alignment="top-left"), {"is_causal": True}),
    ):
        theirs = torch.nn.functional.scaled_dot_product_attention(*arrays, **call).numpy()
        with np.errstate(invalid="ignore"):
            radius = spec(*map(bounded(np.float64).lift, (q, k, v))).planes[1]
        assert (np.abs(theirs - spec(q, k, v)) <= 2 * radius).all()

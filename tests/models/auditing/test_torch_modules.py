"""torch's own modules: all calls are read, right ones pass, and what is seeded, or wrong in torch itself, is named."""

from typing import Any
from unittest.mock import patch

import pytest

from symattn import audit

torch = pytest.importorskip("torch")
_RECEIVED = "symattn.models.auditing.received."
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning")]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("grad", [False, True])
def test_every_call_is_read_and_passes(dtype: str, grad: bool) -> None:
    from tests.models.auditing.torch_modules import functions, ways

    seen = set()
    for way in (*ways(getattr(torch, dtype)), *functions(getattr(torch, dtype))):
        with torch.set_grad_enabled(grad), audit(way.module) as report:
            way.run()
        assert report.findings
        assert {f.state for f in report.findings} == {"pass as given"}, way.words
        seen |= {f.via for f in report.findings}
    assert ("torch fast path" in seen) != grad


def _layer(norm_first: bool = False) -> Any:
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first).eval()


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_fast_path_takes_an_added_mask_for_a_boolean_one(norm_first: bool) -> None:
    """Of torch 2.13 itself: a bias by distance, where gradients are off, and there alone."""
    layer, x = _layer(norm_first), torch.randn(2, 9, 16)
    apart = -(torch.arange(9.0)[:, None] - torch.arange(9.0)).abs()
    with torch.no_grad(), audit(layer) as report:
        layer(x, src_mask=apart)
    (found,) = report.findings
    assert (found.via, found.state, found.certified) == ("torch fast path", "wrong", True)
    assert found.cause == "what is added to the scores is read as a mask: every nonzero number forbids"
    with audit(layer) as report:
        layer(x, src_mask=apart)
    assert [f.state for f in report.findings] == ["pass as given"]


def test_rows_of_nan_are_told() -> None:
    """A sequence that is padding alone, through the fast path: pytorch gives NaN there."""
    hidden = torch.zeros(2, 9, dtype=torch.bool)
    hidden[1] = True
    with torch.no_grad(), audit(layer := _layer()) as report:
        out = layer(torch.randn(2, 9, 16), src_key_padding_mask=hidden)
    assert int(out.isnan().any(-1).sum()) == 9
    (found,) = report.findings
    assert (found.state, found.empty, found.undefined) == ("pass as given", 36, 36)
    assert "36 fully masked rows left out, 36 of them NaN or infinite" in report.coverage


def test_a_causal_hint_alone_is_ignored_by_the_fast_path() -> None:
    """Of torch 2.13 itself, which raises an error while gradients are on; no operator tells of it."""
    layer, x = _layer(), torch.randn(2, 9, 16)
    with torch.no_grad(), audit(layer) as report:
        assert torch.equal(layer(x, is_causal=True), layer(x))
    assert [f.state for f in report.findings] == ["pass as given", "pass as given"]
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        layer(x, is_causal=True)


def test_another_mask_in_the_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask that the operator is called with is kept from it."""
    again = patch(f"{_RECEIVED}_rerun_fused_attention").get_original()[0]
    monkeypatch.setattr(
        f"{_RECEIVED}_rerun_fused_attention", lambda x, given, h: again(x, given | {"mask": None, "mask_type": None}, h)
    )
    hidden = torch.arange(9) >= torch.tensor([9, 6])[:, None]
    with torch.no_grad(), audit(layer := _layer()) as report:
        layer(torch.randn(2, 9, 16), src_key_padding_mask=hidden)
    assert report.findings[0].cause == "the mask is ignored"


@pytest.mark.parametrize("scale", [None, 0.2])
def test_a_fused_kernel_scales_scores_and_no_queries(scale: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA without a mask. Queries that are scaled and rounded for it accuse it where √d is no power of two."""
    project = patch(f"{_RECEIVED}_project_packed_qkv").get_original()[0]

    def fused(x: Any, given: dict[str, Any], h: int) -> Any:
        parts = project(x, given["qkv_weight"], given["qkv_bias"], h)
        return torch.nn.functional.scaled_dot_product_attention(*parts, scale=scale).transpose(1, 2).reshape(x.shape)

    monkeypatch.setattr(f"{_RECEIVED}_rerun_fused_attention", fused)
    monkeypatch.setattr(f"{_RECEIVED}_are_queries_scaled_first", lambda x, mask: False)
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(128, 4, batch_first=True, dtype=torch.float16).eval()
    torch.nn.init.normal_(attention.in_proj_bias, std=0.1)
    x = torch.randn(2, 160, 128, dtype=torch.float16)
    with torch.no_grad(), audit(attention) as report:
        attention(x, x, x, need_weights=False)
    assert [f.state for f in report.findings] == ["pass as given" if scale is None else "wrong"]
    if scale is None:
        monkeypatch.setattr(f"{_RECEIVED}_are_queries_scaled_first", lambda x, mask: True)
        with torch.no_grad(), audit(attention) as report:
            attention(x, x, x, need_weights=False)
        assert [f.state for f in report.findings] == ["wrong"]


def test_the_same_kernel_runs_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where weights are asked for, an accelerator takes another one."""
    asked, operator = [], torch._native_multi_head_attention

    def told(*args: Any) -> Any:
        asked.append(args[10])
        return operator(*args)

    attention = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 9, 16)
    monkeypatch.setattr(torch, "_native_multi_head_attention", told)
    for weights in (True, False):
        with torch.no_grad(), audit(attention, dependence=False):
            attention(x, x, x, need_weights=weights)
    assert asked == [True, True, False, False]


SEEDS: dict[str, dict[str, Any]] = {"scores are not scaled": {"scale": 1.0}, "the mask is ignored": {"attn_mask": None}}


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("words", SEEDS)
def test_what_is_seeded_into_the_function_below_is_named(
    words: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    right, functional = torch.nn.functional.scaled_dot_product_attention, torch.nn.functional
    mask = torch.nn.Transformer.generate_square_subsequent_mask(24, dtype=getattr(torch, dtype))
    q, k, v = 3 * torch.randn(3, 2, 4, 24, 16, dtype=getattr(torch, dtype))

    def wrong(*args: Any, **given: Any) -> Any:
        return right(*args, **given | SEEDS[words])

    monkeypatch.setattr(functional, "scaled_dot_product_attention", wrong)
    with audit() as report:
        functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert report.findings[0].cause == words

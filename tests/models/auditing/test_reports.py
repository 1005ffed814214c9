"""Public reports replayed on torch 2.13 and transformers 5.23: which still hold, and what an audit says of them."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from symattn import audit

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning")]

Run = Callable[[], Any]
_sdpa = nn.functional.scaled_dot_product_attention


def nans(x: Any) -> int:
    return int(x.isnan().sum())


def empty_row_of_booleans() -> int:
    """pytorch#103963: rows of a boolean mask without any True."""
    q, k, v = torch.rand(3, 1, 1, 8, 8)
    mask = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
    mask[..., :4, :4] = True
    return nans(_sdpa(q, k, v, mask))


def empty_row_of_padding() -> int:
    """pytorch#103749: the last query is padding, and sees nothing."""
    q, k, v = (torch.randn(1, 2, n, 8) for n in (6, 10, 10))
    mask = torch.ones(6, 10, dtype=torch.bool).tril()
    mask[-1] = False
    return nans(_sdpa(q, k, v, mask[None, None], scale=0.125))


def row_of_least_numbers() -> int:
    """pytorch#110213: a row in which the least number of the format is added to every score."""
    q, k, v = torch.randn(3, 1, 1, 3, 4)
    least = torch.finfo(q.dtype).min
    return nans(_sdpa(q, k, v, torch.tensor([[least] * 3, [1.0] * 3, [1.0] * 3])[None, None]))


def empty_row_in_evaluation() -> int:
    """pytorch#163997: rows of −∞ in one sequence alone, without gradients."""
    q, k, v = torch.randn(3, 1, 2, 6, 8)
    mask = torch.zeros(1, 1, 6, 6)
    mask[..., 4:, :] = -torch.inf
    return nans(_sdpa(q, k, v, mask))


def nan_behind_a_mask() -> int:
    """pytorch#101967: a key that is NaN, and that no query may see."""
    q = torch.arange(8.0).reshape(1, 2, 4)
    k = q.clone()
    k[0, 1, 0] = torch.nan
    return nans(_sdpa(q, k, q, torch.tensor([[[True, False], [True, False]]])))


def masked_head(weights: bool) -> int:
    """pytorch#160064: a head whose queries see nothing, with and without its weights asked for."""
    x = torch.randn(1, 5, 3)
    mask = torch.tensor([False, False, True]).view(-1, 1, 1).expand(-1, 5, 5)
    attention = nn.MultiheadAttention(3, 3, batch_first=True)
    return nans(attention(x, x, x, attn_mask=mask, average_attn_weights=False, need_weights=weights)[0])


def _encoder(**options: Any) -> Any:
    nested = options.pop("nested", True)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=nested).eval()


def bias_in_the_fast_path() -> int:
    """pytorch#118628: a mask of numbers."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        return nans(layer(torch.randn(3, 5, 8), src_mask=torch.rand(5, 5)))


def empty_rows_in_the_fast_path(fast: bool) -> int:
    """pytorch#190486: padding that is longer than the band of a causal mask is wide."""
    places = torch.arange(16)
    apart = places[:, None] - places
    given = {"mask": (apart < 0) | (apart >= 4), "src_key_padding_mask": (places >= 4)[None]}
    encoder, x = _encoder(norm_first=True, nested=False), torch.randn(1, 16, 16)
    with torch.set_grad_enabled(not fast):
        return nans(encoder(x, **given))


def padding_in_evaluation() -> float:
    """pytorch#86120: how far the padded batch in evaluation is from the same with gradients, at tokens."""
    encoder, x = _encoder(), torch.randn(2, 6, 16)
    hidden = torch.arange(6) >= torch.tensor([6, 4])[:, None]
    with torch.no_grad():
        fast = encoder(x, src_key_padding_mask=hidden)
    return float((fast - encoder(x, src_key_padding_mask=hidden))[~hidden].abs().max())


def cut_off_in_evaluation() -> tuple[int, ...]:
    """pytorch#97111: the shape of (3, 6, 16) tokens of which all but the first of each sequence are padding."""
    hidden = torch.ones(3, 6, dtype=torch.bool)
    hidden[:, 0] = False
    with torch.no_grad():
        return tuple(_encoder()(torch.randn(3, 6, 16), src_key_padding_mask=hidden).shape)


def tokens() -> Any:
    return torch.arange(1, 13)[None]


def seen_later(model: Any) -> float:
    """How far the logits before the last token depend on it: 0 where attention is causal."""
    other = tokens()
    other[0, -1] = 40
    return float((model(tokens()).logits - model(other).logits)[:, :-1].abs().max())


def static_cache(model: Any) -> float:
    """transformers#30437: how far a prefill into a static cache is from one without a cache, no mask given."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=32)
    cached = model(tokens(), past_key_values=cache, use_cache=True).logits
    return float((cached - model(tokens()).logits).abs().max())


#: The program, what it gives, the state of the call, the rows that were left out, and those of them that are NaN.
REPLAYED: dict[str, tuple[Run, Any, str, int, int]] = {
    "pytorch#103963, mended": (empty_row_of_booleans, 0, "pass as given", 4, 0),
    "pytorch#103749, mended": (empty_row_of_padding, 0, "pass as given", 2, 0),
    "pytorch#110213, not on a CPU": (row_of_least_numbers, 0, "pass as given", 1, 0),
    "pytorch#163997, not seen": (empty_row_in_evaluation, 0, "pass as given", 4, 0),
    "pytorch#101967, there": (nan_behind_a_mask, 8, "cannot tell", 0, 0),
    "pytorch#160064, there": (partial(masked_head, True), 15, "pass as given", 5, 5),
    "pytorch#160064, without weights": (partial(masked_head, False), 0, "pass as given", 5, 0),
    "pytorch#118628, there": (bias_in_the_fast_path, 120, "wrong", 0, 0),
    "pytorch#190486, there": (partial(empty_rows_in_the_fast_path, True), 144, "pass as given", 36, 36),
    "pytorch#190486, with gradients": (partial(empty_rows_in_the_fast_path, False), 0, "pass as given", 36, 0),
    "pytorch#97111, not seen": (cut_off_in_evaluation, (3, 6, 16), "pass as given", 0, 0),
}


@pytest.mark.parametrize("name", REPLAYED)
def test_a_report_on_torch(name: str) -> None:
    run, given, state, empty, undefined = REPLAYED[name]
    torch.manual_seed(0)
    with torch.set_grad_enabled("163997" not in name), audit() as report:
        assert run() == given
    (found,) = report.findings
    assert (found.state, found.empty, found.undefined) == (state, empty, undefined)
    assert found.certified == (state == "wrong")


def test_padding_in_evaluation_is_right_where_there_are_tokens() -> None:
    """pytorch#86120."""
    torch.manual_seed(0)
    with audit() as report:
        assert padding_in_evaluation() < 1e-5
    assert {f.state for f in report.findings} == {"pass as given"}


def _model(family: str, implementation: str, **fields: Any) -> Any:
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, f"{family}Config")(vocab_size=64, num_key_value_heads=2, **sizes, **fields)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    model.set_attn_implementation(implementation)
    return model.eval()


def _passes(model: Any, run: Run, configured: bool = True) -> Any:
    with torch.no_grad(), audit(model) as report:
        found = run()
    assert report.findings
    assert {f.state for f in report.findings} == {"pass" if configured else "pass as given"}
    assert ("0 compared with a configuration" in report.coverage) != configured
    return found


@pytest.mark.transformers
def test_a_prefill_into_a_static_cache_is_causal() -> None:
    """transformers#30437."""
    model = _model("Llama", "sdpa")
    assert _passes(model, lambda: static_cache(model)) == 0


@pytest.mark.transformers
def test_weights_that_are_asked_for_do_not_cost_the_mask() -> None:
    """transformers#30652."""
    model = _model("Llama", "sdpa", output_attentions=False)
    told = partial(model, output_attentions=True)
    assert _passes(model, lambda: seen_later(told)) == 0


@pytest.mark.transformers
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_window_counts_its_own_token(implementation: str) -> None:
    """transformers#29623: the eager way and SDPA are held to one window; FlashAttention needs a GPU."""
    model = _model("Mistral", implementation, sliding_window=4)
    _passes(model, lambda: model(tokens()))


@pytest.mark.transformers
def test_gemma2_refuses_what_cannot_cap() -> None:
    """transformers#32848."""
    with pytest.raises(ValueError, match="does not support an attention implementation through torch"):
        _model("Gemma2", "sdpa", head_dim=8)


@pytest.mark.transformers
def test_doge_and_tokens_to_come() -> None:
    """transformers#48748: mended. With the hint taken back an audit finds it by the mask of the calls, although no
    configuration of Doge is read, and ``generation`` finds which way of running it has it."""
    from transformers.models.doge import modeling_doge

    from symattn import generation

    model = _model("Doge", "sdpa")
    right = modeling_doge.create_causal_mask

    def before(**given: Any) -> Any:
        return right(**{name: x for name, x in given.items() if name != "allow_is_causal_skip"})

    assert _passes(model, lambda: seen_later(model), configured=False) == 0
    assert generation(model, 12, ways=["eager"]).verdict.value == "no fault"
    with patch.object(modeling_doge, "create_causal_mask", before):
        with torch.no_grad(), audit(model) as report:
            assert seen_later(model) > 0.01
        assert {f.state for f in report.findings} == {"wrong"}
        words = "CERTIFIED WRONG, though no configuration is read: the query of token 0 sees the key of the later token"
        assert all(f.verdict.startswith(words) for f in report.findings)
        found = generation(model, 12, ways=["eager", "sdpa", "other continuation"])
    assert found.wrong == ("prefill", "other continuation", "sdpa")

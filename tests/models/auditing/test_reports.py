"""Public reports replayed on torch 2.13 and transformers 5.23: which still hold, and what an audit says of them."""

from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("torch")

import torch

from symattn import audit
from tests.models.auditing import reports

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning")]

#: The program, what it gives, the state of the call, the rows that were left out, and those of them that are NaN.
REPLAYED: dict[str, tuple[reports.Run, Any, str, int, int]] = {
    "pytorch#103963, mended": (reports.empty_row_of_booleans, 0, "pass as given", 4, 0),
    "pytorch#103749, mended": (reports.empty_row_of_padding, 0, "pass as given", 2, 0),
    "pytorch#110213, not on a CPU": (reports.row_of_least_numbers, 0, "pass as given", 1, 0),
    "pytorch#163997, not seen": (reports.empty_row_in_evaluation, 0, "pass as given", 4, 0),
    "pytorch#101967, there": (reports.nan_behind_a_mask, 8, "cannot tell", 0, 0),
    "pytorch#160064, there": (partial(reports.masked_head, True), 15, "pass as given", 5, 5),
    "pytorch#160064, without weights": (partial(reports.masked_head, False), 0, "pass as given", 5, 0),
    "pytorch#118628, there": (reports.bias_in_the_fast_path, 120, "wrong", 0, 0),
    "pytorch#190486, there": (partial(reports.empty_rows_in_the_fast_path, True), 144, "pass as given", 36, 36),
    "pytorch#190486, with gradients": (partial(reports.empty_rows_in_the_fast_path, False), 0, "pass as given", 36, 0),
    "pytorch#97111, not seen": (reports.cut_off_in_evaluation, (3, 6, 16), "pass as given", 0, 0),
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
        assert reports.padding_in_evaluation() < 1e-5
    assert {f.state for f in report.findings} == {"pass as given"}


def _model(family: str, implementation: str, **fields: Any) -> Any:
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, f"{family}Config")(vocab_size=64, num_key_value_heads=2, **sizes, **fields)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    model.set_attn_implementation(implementation)
    return model.eval()


def _passes(model: Any, run: reports.Run, configured: bool = True) -> Any:
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
    assert _passes(model, lambda: reports.static_cache(model)) == 0


@pytest.mark.transformers
def test_weights_that_are_asked_for_do_not_cost_the_mask() -> None:
    """transformers#30652."""
    model = _model("Llama", "sdpa", output_attentions=False)
    told = partial(model, output_attentions=True)
    assert _passes(model, lambda: reports.seen_later(told)) == 0


@pytest.mark.transformers
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_window_counts_its_own_token(implementation: str) -> None:
    """transformers#29623: the eager way and SDPA are held to one window; FlashAttention needs a GPU."""
    model = _model("Mistral", implementation, sliding_window=4)
    _passes(model, lambda: model(reports.tokens()))


@pytest.mark.transformers
def test_gemma2_refuses_what_cannot_cap() -> None:
    """transformers#32848."""
    with pytest.raises(ValueError, match="does not support an attention implementation through torch"):
        _model("Gemma2", "sdpa", head_dim=8)


@pytest.mark.transformers
def test_doge_and_tokens_to_come() -> None:
    """transformers#48748: mended. With the hint taken back ``generation`` finds it; an audit does not, since no
    configuration of Doge is read, and a call is right as given."""
    from transformers.models.doge import modeling_doge

    from symattn.models.comparing.generation import generation

    model = _model("Doge", "sdpa")
    right = modeling_doge.create_causal_mask

    def before(**given: Any) -> Any:
        return right(**{name: x for name, x in given.items() if name != "allow_is_causal_skip"})

    assert _passes(model, lambda: reports.seen_later(model), configured=False) == 0
    assert generation(model, 12, ways=["eager"]).verdict.value == "no fault"
    with patch.object(modeling_doge, "create_causal_mask", before):
        assert _passes(model, lambda: reports.seen_later(model), configured=False) > 0.01
        found = generation(model, 12, ways=["eager", "sdpa", "other continuation"])
    assert found.wrong == ("prefill", "other continuation", "sdpa")

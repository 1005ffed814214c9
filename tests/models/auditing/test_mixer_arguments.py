"""What a call of a recurrence or a convolution received: unread arguments, rounded steps, overflow, samples."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from symattn import audit, reports  # noqa: E402
from symattn.models.auditing.begun import CallSite  # noqa: E402
from symattn.models.auditing.mixers import reading  # noqa: E402
from symattn.models.auditing.mixers.mixer_judge import judge_mixer, read_mixer  # noqa: E402
from tests.models.auditing.test_recurrences import _TOKENS, hybrid  # noqa: E402

pytestmark = pytest.mark.transformers
_F32, _BF16, _F16 = torch.float32, torch.bfloat16, torch.float16


def judged(reader: Any, args: Any, kwargs: dict[str, Any], out: Any) -> reports.CallFinding:
    site = CallSite(None, "layer", "call", None)
    return judge_mixer(site, read_mixer(reader, args, kwargs), out, None, False)


def draw(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def convolved(x: Any, w: Any, b: Any, before: Any = None) -> Any:
    before = torch.zeros_like(x[..., : w.shape[1] - 1]) if before is None else before
    return torch.nn.functional.conv1d(torch.cat([before, x], -1), w[:, None], b, groups=x.shape[1])


CONVOLUTION = draw(2, 8, 30), draw(8, 4), draw(8)


def delta_rule() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """The arguments of a delta rule from a state, and what Transformers returns for them."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    q, k, v = draw(1, 20, 2, 8), draw(1, 20, 2, 8) / 4, draw(1, 20, 2, 8)
    args = (q, k, v, -draw(1, 20, 2).abs() / 10, draw(1, 20, 2).sigmoid())
    kwargs = {"initial_state": draw(1, 2, 8, 8), "output_final_state": True, "use_qk_l2norm_in_kernel": True}
    return args, kwargs, torch_chunk_gated_delta_rule(*args, **kwargs)


# -- arguments that are not read ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"gk": torch.ones(1)}, "its argument gk is unknown"),
        ({"cu_seqlens": torch.tensor([0, 20])}, "several sequences are packed into one"),
        ({"cu_seq_lens_q": torch.tensor([0, 20])}, "several sequences are packed into one"),
        ({"head_first": True}, "heads come before tokens"),
        ({"beta": None}, "it received no beta"),
    ],
)
def test_an_argument_that_is_not_read_leaves_the_call_undecided(more: dict[str, Any], reason: str) -> None:
    (q, k, v, g, beta), kwargs, out = delta_rule()
    call = judged(reading.read_delta_rule, (q, k, v), {"g": g, "beta": beta, **kwargs, **more}, out)
    assert (call.state, call.reason) == ("cannot tell", reason)


def test_arguments_that_are_not_set_or_of_no_effect_are_read() -> None:
    args, kwargs, out = delta_rule()
    more = {"cu_seqlens": None, "head_first": False, "output_attentions": True}
    assert judged(reading.read_delta_rule, args, {**kwargs, **more}, out).state == "pass as given"


def test_arguments_by_position_beyond_the_known_ones_are_not_dropped() -> None:
    args, kwargs, out = delta_rule()
    call = judged(reading.read_delta_rule, (*args, 64, *kwargs.values()), {}, out)
    assert "9 arguments by position, of which 5 are known" in call.reason


def test_a_convolution_from_a_state_is_not_read_as_one_without() -> None:
    before = draw(2, 8, 3)
    call = judged(reading.read_convolution, CONVOLUTION, {"initial_states": before}, convolved(*CONVOLUTION, before))
    assert call.reason == "its argument initial_state is unknown"


def test_a_final_state_that_is_not_returned_is_wrong() -> None:
    args, kwargs, (out, _) = delta_rule()
    call = judged(reading.read_delta_rule, args, kwargs, (out, None))
    assert call.certified
    assert "no final state" in call.verdict


# -- numbers -----------------------------------------------------------------------------------------------------------
def test_a_bias_of_nan_is_before_the_call() -> None:
    x, w, _ = CONVOLUTION
    bias = torch.full((8,), torch.nan)
    assert judged(reading.read_convolution, (x, w, bias), {}, convolved(x, w, bias)).state == "cannot tell"


def test_only_numbers_near_the_largest_ones_may_overflow() -> None:
    x, w, b = (a.to(_F16) for a in CONVOLUTION)
    large = x * 2e4
    assert torch.isfinite(large).all()
    out = convolved(large, w, b)
    assert not torch.isfinite(out).all()
    assert (
        judged(reading.read_convolution, (large, w, b), {}, out).verdict == "CANNOT TELL: numbers of float16 overflow"
    )
    # An infinity that no sum explains.
    wrong = convolved(x, w, b)
    wrong[0, 0, 0] = torch.inf
    assert judged(reading.read_convolution, (x, w, b), {}, wrong).certified


def test_a_convolution_under_autocast_may_round_its_factors() -> None:
    with torch.autocast("cpu", _BF16):
        out = convolved(*CONVOLUTION).float()
        assert judged(reading.read_convolution, CONVOLUTION, {}, out).state == "pass as given"
    assert judged(reading.read_convolution, CONVOLUTION, {}, out).certified


def scan(dt: Any, bias: Any) -> reports.CallFinding:
    """Judge a scan of one token, in which errors of Δ are those of the output."""
    from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan

    heads = dt.shape[-1]
    x, b, c = draw(1, 1, heads, 4), draw(1, 1, 1, 4), draw(1, 1, 1, 4)
    args = (x, dt, -torch.ones(heads), b, c, 8)
    kwargs = {"dt_bias": bias, "dt_softplus": True}
    return judged(reading.read_scan, args, kwargs, mamba2_chunk_scan(*args, **kwargs))


def test_a_bias_that_is_stored_in_the_format_of_steps_is_rounded() -> None:
    # Biases halfway between numbers of bfloat16, which nearly cancel.
    bias = -20.0625 - torch.arange(16) / 8
    assert scan((19 + torch.arange(16) / 8)[None, None].to(_BF16), bias).state == "pass as given"
    assert scan((19 + torch.arange(16) / 8)[None, None], bias).state == "pass as given"


def test_steps_below_the_normal_numbers_have_few_digits() -> None:
    assert (
        scan(torch.linspace(-15.5, -12, 64)[None, None].to(_F16), torch.zeros(64, dtype=_F16)).state == "pass as given"
    )


def test_a_function_that_is_replaced_during_an_audit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.qwen3_next import modeling_qwen3_next as file

    own = file.causal_conv1d_fn
    monkeypatch.setattr(file, "causal_conv1d_fn", own)  # put back at the end
    with torch.no_grad(), audit(model := hybrid(), dependence=False):
        model(_TOKENS[:, :8])
        seen = file.causal_conv1d_fn
        replacement = lambda *args, **kwargs: seen(*args, **kwargs)  # noqa: E731
        file.causal_conv1d_fn = replacement
    assert seen is not own
    assert file.causal_conv1d_fn is replacement


# -- samples, parts and gradients --------------------------------------------------------------------------------------
def test_some_channels_of_a_large_convolution_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_JUDGED_NUMBERS", 90)
    out = convolved(*CONVOLUTION)
    call = judged(reading.read_convolution, CONVOLUTION, {}, out)
    assert call.state == "pass as given"
    assert "8 channels, 3 of 16 judged 30 tokens" in call.semantics
    out[1, 7] += 1  # the last one is judged
    assert judged(reading.read_convolution, CONVOLUTION, {}, out).certified


def test_heads_of_a_large_call_are_judged_by_their_own_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    q, k, v = draw(2, 9, 2, 8), draw(2, 9, 2, 8), draw(2, 9, 6, 8)
    args = (q, k, v, -draw(2, 9, 6).abs(), draw(2, 9, 6).sigmoid())
    kwargs = {"use_qk_l2norm_in_kernel": True, "output_final_state": True, "initial_state": draw(2, 6, 8, 8)}
    out, state = torch_chunk_gated_delta_rule(*args, **kwargs)
    own = reading.choose_heads
    monkeypatch.setattr(reading, "choose_heads", lambda count, length: own(count, length, 27))
    call = judged(reading.read_delta_rule, args, kwargs, (out, state))
    assert call.state == "pass as given"
    assert "3 of 12 heads judged" in call.semantics
    state[1, 5] *= 1.01
    assert judged(reading.read_delta_rule, args, kwargs, (out, state)).certified


def test_a_convolution_does_not_judge_the_state_space_behind_it() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "intermediate_size": 64}
    model = transformers.MambaForCausalLM(transformers.MambaConfig(vocab_size=97, **sizes)).eval()
    with torch.no_grad(), audit(model) as report:
        model(_TOKENS[:, :20])
    assert [call.state for call in report.findings] == ["pass as given"] * 2
    assert [(part.sees, part.judged) for part in report.mixing] == [("all earlier tokens", False)] * 2
    assert "0 of 2 token-mixing parts judged" in report.coverage


def test_a_convolution_judges_a_part_that_sees_as_few_tokens() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.Lfm2Config(
        vocab_size=97, num_hidden_layers=2, layer_types=["conv", "full_attention"], conv_L_cache=3, **sizes
    )
    with torch.no_grad(), audit(model := transformers.Lfm2ForCausalLM(config).eval()) as report:
        model(_TOKENS[:, :20])
    assert [part.judged for part in report.mixing] == [True, True]


def test_gradients_of_a_recurrence_are_not_judged_and_that_is_said() -> None:
    with audit(model := hybrid(), gradients=True, dependence=False) as report:
        model(_TOKENS, labels=_TOKENS).loss.backward()
    mixers = [call for call in report.findings if "self_attn" not in call.layer]
    assert mixers
    assert all(call.verdict.startswith("CANNOT TELL of gradients: gradients of recurrences") for call in mixers)
    assert all(np.isfinite(call.given.ratio) for call in mixers if call.given)

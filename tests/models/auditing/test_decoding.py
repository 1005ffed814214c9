"""Passes from a cache: steps of recurrences and convolutions are judged, and all of them compared with one pass."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from symattn import Verdict, audit  # noqa: E402
from symattn.models.auditing.audit_report import AuditReport  # noqa: E402
from symattn.models.auditing.begun import CallSite  # noqa: E402
from symattn.models.auditing.mixers import reading  # noqa: E402
from symattn.models.auditing.mixers.mixer_judge import judge_mixer, read_mixer  # noqa: E402
from symattn.models.inferring.tiny_models import tiny  # noqa: E402
from tests.models.auditing.test_mixer_arguments import draw  # noqa: E402
from tests.models.auditing.test_recurrences import (  # noqa: E402
    _MAMBA,
    _TOKENS,
    hybrid,
    recurrent,
    replaced,
    state_space,
)

pytestmark = pytest.mark.transformers
_START, _END = 9, 12


def decoded(model: Any, probe: bool = True, **arguments: Any) -> AuditReport:
    """Audit a pass, and three that go on from its cache with one token each."""
    with torch.no_grad(), audit(model, dependence=probe) as report:
        out = model(_TOKENS[:, :_START], use_cache=True, **arguments)
        name = "cache_params" if hasattr(out, "cache_params") else "past_key_values"
        for t in range(_START, _END):
            model(_TOKENS[:, t : t + 1], use_cache=True, **{name: getattr(out, name)})
    return report


# -- steps -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_right_steps_of_mamba_2_are_judged(dtype: Any) -> None:
    report = decoded(state_space(dtype), probe=False)
    steps = recurrent(report, "selective_state_update") + recurrent(report, "causal_conv1d_update")
    assert [call.state for call in steps] == ["pass as given"] * 6
    assert steps[0].semantics.startswith("state space of Mamba-2, gates of tokens, D x added, GQA 4:2 1 token")


def _step(change: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda own: lambda state, x, dt, a, b, c, d, **kwargs: change(own, state, x, dt, a, b, c, d, kwargs)


def _forgetful(own: Any) -> Any:
    def run(x: Any, state: Any, *rest: Any, **kwargs: Any) -> Any:
        return own(x, state.clone(), *rest, **kwargs)

    return run


def _rounded(own: Any) -> Any:
    def run(state: Any, *rest: Any, **kwargs: Any) -> Any:
        out = own(state, *rest, **kwargs)
        state.copy_(state.bfloat16())
        return out

    return run


@pytest.mark.parametrize(
    ("name", "change", "cause"),
    [
        (
            "mamba2_selective_state_update",
            _step(lambda own, s, x, dt, a, b, c, d, k: own(s, x, dt, a, c, b, d, **k)),
            "B and C are exchanged",
        ),
        ("mamba2_selective_state_update", _rounded, "the final state is rounded to bfloat16"),
        ("causal_conv1d_update", _forgetful, "the call leaves the state of the convolution as it was"),
    ],
)
def test_a_wrong_step_is_found_and_named(name: str, change: Callable[[Any], Any], cause: str) -> None:
    with replaced(_MAMBA + name, change):
        report = decoded(state_space(torch.float32), probe=False)
    assert cause in {call.cause for call in report.findings if call.state == "wrong"}
    assert {call.cause for call in report.findings if call.state == "wrong"} <= {cause, ""}


def test_a_step_gated_by_z_is_judged_with_its_gate() -> None:
    from transformers.models.mamba2.modeling_mamba2 import mamba2_selective_state_update

    heads, width, states = 4, 8, 6
    b, c, z = draw(1, 2, states), draw(1, 2, states), draw(1, heads, width)
    of_heads = [draw(heads)[:, None].expand(-1, width) for _ in range(3)]
    decay = -draw(heads).exp()[:, None, None].expand(-1, width, states)
    args = (draw(1, heads, width, states), draw(1, heads, width), of_heads[0][None], decay, b, c, of_heads[1])
    kwargs = {"dt_bias": of_heads[2], "dt_softplus": True, "z": z}
    site = CallSite(None, "layer", "call", None)
    for wrong in (False, True):
        state = args[0].clone()
        # It is read before it runs, since it overwrites its state.
        call = read_mixer(reading.read_scan_step, (state, *args[1:]), kwargs)
        out = mamba2_selective_state_update(state, *args[1:], **{**kwargs, "z": None if wrong else z})
        finding = judge_mixer(site, call, out, None, True)
        assert finding.state == ("wrong" if wrong else "pass as given")
        assert finding.cause == "the output is not gated by z" * wrong


# -- compared with one pass --------------------------------------------------------------------------------------------
def test_right_passes_from_a_cache_agree_with_one() -> None:
    report = decoded(hybrid())
    assert report.coverage.endswith("3 passes from a cache agree with one of all tokens")
    assert report.verdict is Verdict.AS_GIVEN
    with audit(model := hybrid()) as report:
        model.generate(_TOKENS[:, :_START], max_new_tokens=3, do_sample=False)
    assert report.coverage.endswith("2 passes from a cache agree with one of all tokens")


def _other_beta(model: Any) -> None:
    """Exchange the columns of β and of the gates in passes of one token."""
    part = model.model.layers[0].linear_attn.in_proj_ba
    part.register_forward_hook(lambda module, args, out: out.flip(-1) if out.shape[1] == 1 else out)


def _other_scale(model: Any) -> None:
    part = model.model.layers[1].self_attn.q_norm
    part.register_forward_hook(lambda module, args, out: out * 1.01 if out.shape[1] == 1 else out)


@pytest.mark.parametrize(("change", "part"), [(_other_beta, "linear_attn"), (_other_scale, "self_attn.q_norm")])
def test_a_difference_in_decoding_is_found_in_its_part(change: Callable[[Any], None], part: str) -> None:
    change(model := hybrid())
    report = decoded(model)
    assert report.verdict is Verdict.FAULT
    (found,) = report.decoding
    assert found.difference is not None
    assert part in found.difference.module
    assert (found.difference.token, found.difference.received) == (_START, True)
    assert "in decoding from the cache" in report.document().reason[0]


def test_a_state_that_a_cache_rounds_is_found() -> None:
    own = transformers.DynamicCache.update_recurrent_state

    def rounding(self: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return own(self, state.bfloat16(), *args, **kwargs)

    with patch.object(transformers.DynamicCache, "update_recurrent_state", rounding):
        report = decoded(hybrid())
    assert [one.difference.module for one in report.decoding if one.difference] == ["model.layers.0.linear_attn"]


def test_what_a_part_does_from_a_cache_and_nothing_reads_is_not_judged() -> None:
    class OwnCache(transformers.DynamicCache):
        """A cache of another class, which the probe cannot make anew."""

    model = hybrid()
    with patch.dict(reading._READERS, clear=False) as readers:
        del readers[r"(chunk|recurrent)_(gated_delta_rule|kimi_delta_attention|kda)$"]
        readers[r"chunk_gated_delta_rule$"] = reading.read_delta_rule
        del readers[r"causal_conv1d_update$"]
        report = decoded(model, past_key_values=OwnCache(config=model.config))
    assert "not compared with one pass of all tokens: its cache is of the class OwnCache" in report.coverage
    assert [part.name for part in report.unjudged] == ["model.layers.0.linear_attn"]


def test_choices_between_equal_scores_are_no_fault_of_a_cache() -> None:
    # Two heads of an indexer give many scores of 0, between which the number of tokens decides.
    report = decoded(tiny("deepseek_v32", num_hidden_layers=2).float())
    (found,) = report.decoding
    assert found.faults == []
    assert not any(part.leak for part in report.mixing)


# -- training ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("changed", [False, True])
def test_a_pass_in_training_is_compared_with_one_in_evaluation(changed: bool) -> None:
    model = hybrid()
    # Dropout is left out of the comparison.
    model.model.layers[1].self_attn.attention_dropout = 0.2
    if changed:
        part = model.model.layers[0].linear_attn.in_proj_ba
        part.register_forward_hook(lambda module, args, out: out * 1.1 if module.training else out)
    with audit(model.train()) as report:
        model(_TOKENS[:, :_END])
    (found,) = report.training
    assert found.reason == ""
    assert bool(found.difference) is changed
    if changed:
        assert "in training, its output of token" in found.faults[0]
        assert "in_proj_ba" in found.faults[0]
        assert report.verdict is Verdict.FAULT

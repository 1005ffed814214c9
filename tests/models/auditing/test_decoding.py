"""Passes from a cache: steps of recurrences and convolutions are judged, and all of them compared with one pass."""

import copy
import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from weakref import ref

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from symattn import (  # noqa: E402
    Verdict,
    audit,
    configurations,
    reports,
)
from symattn.models.auditing.begun import CallSite  # noqa: E402
from symattn.models.auditing.dependence import decoding  # noqa: E402
from symattn.models.auditing.dependence.pass_outputs import RecordedPass  # noqa: E402
from symattn.models.auditing.layers.layer_hooks import Layers  # noqa: E402
from symattn.models.auditing.mixers import reading  # noqa: E402
from symattn.models.auditing.mixers.mixer_judge import judge_mixer, read_mixer  # noqa: E402
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


def decoded(model: Any, probe: bool = True, **arguments: Any) -> reports.AuditReport:
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
    # Its exponential overflows, so that the gate is 0.
    z[0, 0, 0] = -90.0
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


def test_a_small_state_in_a_rough_format_is_rounded_as_it_must_be() -> None:
    from transformers.models.mamba2.modeling_mamba2 import mamba2_selective_state_update

    heads, width, states = 4, 8, 6
    of_heads = [draw(heads)[:, None].expand(-1, width) for _ in range(2)]
    decay = -draw(heads).exp()[:, None, None].expand(-1, width, states)
    # Numbers of float16 below 6e-5 have fewer digits.
    state, x = (draw(1, heads, width, states) * 1e-6).half(), draw(1, heads, width) * 1e-6
    args = (state, x, of_heads[0][None], decay, draw(1, 2, states), draw(1, 2, states), of_heads[1])
    call = read_mixer(reading.read_scan_step, args, {"dt_softplus": True})
    out = mamba2_selective_state_update(*args, dt_softplus=True)
    assert judge_mixer(CallSite(None, "layer", "call", None), call, out, None, True).state == "pass as given"


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
    report = decoded(configurations.tiny("deepseek_v32", num_hidden_layers=2).float())
    (found,) = report.decoding
    assert found.faults == []
    assert not any(part.leak for part in report.mixing)


class Own(torch.nn.Module):
    """A model with a cache of its own, which a user interrupts when it runs in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(2, 2)

    def forward(self, inputs_embeds: Any, past_key_values: Any = None, use_cache: bool = True) -> Any:
        if self.head.weight.dtype is torch.float64:
            raise KeyboardInterrupt
        return SimpleNamespace(past_key_values=past_key_values or OwnCache(), logits=self.head(inputs_embeds))


class OwnCache:
    """Nothing is stored in it."""


def test_an_audit_holds_neither_models_nor_caches_that_the_user_dropped() -> None:
    with audit(dependence=True):
        model = Own().eval()
        # Fewer tokens than a probe of single ones needs.
        out = model(draw(1, 2, 2))
        dropped = ref(model), ref(out.past_key_values)
        del model, out
        gc.collect()
        assert [one() for one in dropped] == [None, None]


def test_an_interrupted_probe_leaves_nothing_replaced() -> None:
    own, model = torch.nn.functional.scaled_dot_product_attention, Own().eval()

    def decode() -> None:
        with audit(model):
            cache = model(draw(1, 2, 2)).past_key_values
            model(draw(1, 1, 2), past_key_values=cache)

    with pytest.raises(KeyboardInterrupt):
        decode()
    assert torch.nn.functional.scaled_dot_product_attention is own


def test_probes_change_no_numbers_that_numpy_draws() -> None:
    class Drawing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            np.random.rand()
            return x

    np.random.seed(3)
    with audit(model := Drawing()) as report:
        model(draw(1, 5, 2))
    drawn = np.random.rand()
    assert report.dependence
    np.random.seed(3)
    assert np.random.rand(2)[1] == drawn


def test_long_passes_and_rotations_by_length_within_a_part_are_not_run_again() -> None:
    root = torch.nn.Sequential(torch.nn.Linear(4, 8)).eval()
    recorded = decoding.RecordedDecoding(lambda: None, "DynamicCache")
    tokens = torch.zeros(1, 1, dtype=torch.int64).expand(1, 2**25)
    recorded.passes.append(RecordedPass("input_ids", tokens, {}, None))
    assert decoding.probe_decoding(root, {}, recorded).reason == (
        "the outputs of its modules for 33554432 tokens are too many to compare in float64"
    )
    root[0].config = SimpleNamespace(rope_parameters={"rope_type": "longrope"})
    reason = decoding.probe_decoding(root, {}, recorded).reason
    assert reason == "its rotations depend on the number of tokens so far"


def test_decoding_of_one_model_leaves_parts_of_another_judged() -> None:
    report = reports.AuditReport("models")
    report.findings.append(reports.CallFinding("attn", "call", given=reports.CallJudgement(0.5, "")))
    part = reports.MixingPart("attn", "Attention", "earlier tokens")
    report.dependence = [reports.Dependence(True, [part], model=number) for number in (0, 1)]
    report.decoding = [reports.Decoding(1, reason="its cache is of another class", model=1)]
    unjudged = [d.unjudged for d in report._mark_judged_dependence()]
    assert [len(parts) for parts in unjudged] == [0, 1]


def test_hooks_of_layers_stay_in_the_copy_that_a_probe_runs() -> None:
    layers = Layers(list[Any]().append)
    assert copy.deepcopy(layers) is layers


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


def test_weights_that_a_model_scales_for_evaluation_are_no_fault_of_training() -> None:
    sizes = {"hidden_size": 16, "attention_hidden_size": 16, "intermediate_size": 32, "context_length": 32}
    config = transformers.RwkvConfig(vocab_size=97, num_hidden_layers=2, rescale_every=1, **sizes)
    torch.manual_seed(0)
    with audit(model := transformers.RwkvForCausalLM(config).train()) as report:
        model(_TOKENS[:, :_END], use_cache=False)
    (found,) = report.training
    assert (found.reason, found.faults) == ("its weights are others in evaluation", [])

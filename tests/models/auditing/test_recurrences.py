"""Recurrences and convolutions that a running model calls: right ones pass, wrong ones are found and named."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from symattn import (  # noqa: E402
    Verdict,
    audit,
    reports,
)
from tests.models.auditing.test_dependence_models import HYBRID_SIZES  # noqa: E402

pytestmark = pytest.mark.transformers
_QWEN = "transformers.models.qwen3_next.modeling_qwen3_next."
_MAMBA = "transformers.models.mamba2.modeling_mamba2."
# More tokens than a chunk of 64 has.
_TOKENS = torch.arange(70)[None] * 7 % 43 + 3
_DTYPES = [torch.float32, torch.bfloat16]


def hybrid(dtype: Any = torch.float32) -> Any:
    """Return a tiny Qwen3-Next: a layer of the gated delta rule, and one of attention."""
    torch.manual_seed(0)
    sizes = {**HYBRID_SIZES, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
    model = transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**sizes)).to(dtype).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):
            torch.nn.init.constant_(parameter, -3.0)  # else states forget in a few tokens
    return model


def state_space(dtype: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 2, "chunk_size": 32}
    config = transformers.Mamba2Config(vocab_size=97, num_hidden_layers=1, expand=2, **sizes)
    return transformers.Mamba2ForCausalLM(config).to(dtype).eval()


def audited(model: Any, tokens: Any = _TOKENS, **arguments: Any) -> reports.AuditReport:
    with torch.no_grad(), audit(model, dependence=False) as report:
        model(tokens, **arguments)
    return report


def recurrent(report: reports.AuditReport, name: str) -> list[reports.CallFinding]:
    return [call for call in report.findings if name in call.via]


@contextmanager
def replaced(path: str, change: Callable[[Any], Any]) -> Iterator[None]:
    own = patch(path).get_original()[0]
    with patch(path, change(own)):
        yield


# -- right ones --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", _DTYPES)
def test_a_right_delta_rule_passes_with_the_convolution_before_it(dtype: Any) -> None:
    report = audited(hybrid(dtype))
    assert report.verdict is Verdict.AS_GIVEN
    calls = recurrent(report, "chunk_gated_delta_rule")
    assert [call.layer for call in calls] == ["model.layers.0.linear_attn"]
    assert calls[0].semantics.startswith(
        "gated delta rule, gates of tokens, queries and keys of length 1, GQA 4:2 70 tokens"
    )
    assert len(recurrent(report, "causal_conv1d_fn")) == 1
    # The row of the model's family speaks of its softmax attention alone.
    states = {call.state for call in report.findings if "linear_attn" in call.layer}
    assert states == {"pass as given"}
    assert [c.state for c in report.findings if "self_attn" in c.layer] == ["pass"]


@pytest.mark.parametrize("dtype", _DTYPES)
def test_a_right_state_space_passes(dtype: Any) -> None:
    report = audited(state_space(dtype), use_cache=True)
    assert report.verdict is Verdict.AS_GIVEN
    assert [call.state for call in recurrent(report, "mamba2_chunk_scan")] == ["pass as given"]


def test_steps_of_generation_start_from_the_state() -> None:
    with audit(model := hybrid(), dependence=False) as report:
        model.generate(_TOKENS[:, :24], max_new_tokens=3, do_sample=False)
    assert len(recurrent(report, "torch_recurrent_gated_delta_rule")) == 2
    assert report.verdict is Verdict.AS_GIVEN


def test_what_runs_after_an_audit_is_what_ran_before() -> None:
    path = patch(_QWEN + "torch_chunk_gated_delta_rule")
    own = path.get_original()[0]
    audited(hybrid())
    assert path.get_original()[0] is own


# -- wrong ones --------------------------------------------------------------------------------------------------------
def _delta_rule(decay_late: bool = False, with_beta: bool = True) -> Callable[[Any], Any]:
    def wrong(own: Any) -> Any:
        def run(q: Any, k: Any, v: Any, g: Any, beta: Any, initial_state: Any = None, **_: Any) -> Any:
            q, k = (
                (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()).repeat_interleave(v.shape[2] // x.shape[2], 2)
                for x in (q, k)
            )
            state, rows = torch.zeros(*v.shape[::2], k.shape[-1], v.shape[-1]), []
            for t in range(q.shape[1]):
                decay, b = g[:, t, :, None, None].exp(), beta[:, t, :, None] if with_beta else 1.0
                state = state if decay_late else state * decay
                u = b * (v[:, t] - (k[:, t, :, None] @ state)[..., 0, :])
                state = state * decay if decay_late else state
                state = state + k[:, t, ..., None] * u[..., None, :]
                rows.append((q[:, t, :, None] @ state)[..., 0, :] / k.shape[-1] ** 0.5)
            return torch.stack(rows, 1).to(v.dtype), None

        return run

    return wrong


def _keywords(**changed: Any) -> Callable[[Any], Any]:
    return lambda own: lambda *args, **kwargs: own(*args, **{**kwargs, **changed})


def _tiled(own: Any) -> Any:
    def run(q: Any, k: Any, v: Any, **kwargs: Any) -> Any:
        times = v.shape[2] // k.shape[2]
        return own(q.repeat(1, 1, times, 1), k.repeat(1, 1, times, 1), v, **kwargs)

    return run


def _ended_transposed(own: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        out, state = own(*args, **kwargs)
        return out, None if state is None else state.mT.contiguous()

    return run


def _next_gate(own: Any) -> Any:
    return lambda q, k, v, g, **kwargs: own(q, k, v, g=g.roll(-1, 1), **kwargs)


#: By cause: the wrong function, and whether a cache has the final state.
WRONG: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "what a token replaces is read from the state before it decays": (_delta_rule(decay_late=True), False),
    "β is left out: it counts as 1": (_delta_rule(with_beta=False), False),
    "queries and keys are not normalised": (_keywords(use_qk_l2norm_in_kernel=False), False),
    "heads of keys are tiled (repeat), not repeated (repeat_interleave)": (_tiled, False),
    "each token has the gate of the next one": (_next_gate, False),
    "the final state is transposed": (_ended_transposed, True),
}


@pytest.mark.parametrize("cause", WRONG)
def test_a_wrong_delta_rule_is_found_and_named(cause: str) -> None:
    change, cached = WRONG[cause]
    with replaced(_QWEN + "torch_chunk_gated_delta_rule", change):
        report = audited(hybrid(), use_cache=cached)
    assert report.verdict is Verdict.FAULT
    calls = recurrent(report, "chunk_gated_delta_rule")
    assert all(call.certified for call in calls)
    assert cause in calls[0].cause


def test_a_step_that_ignores_its_state_is_found_and_named() -> None:
    with (
        replaced(_QWEN + "torch_recurrent_gated_delta_rule", _keywords(initial_state=None)),
        audit(model := hybrid(), dependence=False) as report,
    ):
        model.generate(_TOKENS[:, :24], max_new_tokens=2, do_sample=False)
    wrong = [call for call in report.findings if call.state == "wrong"]
    assert wrong
    assert {call.cause for call in wrong} == {"the initial state is ignored"}


def _undiscretised(own: Any) -> Any:
    return lambda x, dt, *rest, **kwargs: own(x / torch.nn.functional.softplus(dt + kwargs["dt_bias"])[..., None], dt,
                                              *rest, **{**kwargs, "D": kwargs["D"] * 0})  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        _keywords(D=None),
        lambda own: lambda x, dt, a, *rest, **kwargs: own(x, dt, a * 1.05, *rest, **kwargs),
        _undiscretised,
    ],
)
def test_a_wrong_state_space_is_found(change: Callable[[Any], Any]) -> None:
    with replaced(_MAMBA + "mamba2_chunk_scan", change):
        report = audited(state_space(torch.float32))
    assert report.verdict is Verdict.FAULT
    assert all(call.certified for call in recurrent(report, "mamba2_chunk_scan"))


def _reading_one_token_ahead(own: Any) -> Any:
    """Cut the padded convolution one token on, so that the first token's sum has a term more than it may have."""

    def convolved(x: Any, weight: Any, bias: Any = None, **_: Any) -> Any:
        channels, taps = weight.shape
        padded = torch.nn.functional.pad(x, (taps - 1, 1))
        sums = torch.nn.functional.conv1d(padded, weight[:, None], bias, groups=channels)
        return torch.nn.functional.silu(sums[..., 1:])

    return convolved


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (
            lambda own: lambda x, *rest, **kwargs: own(torch.nn.functional.pad(x, (0, 1))[..., 1:], *rest, **kwargs),
            "the convolution is one token late: it sees the next token",
        ),
        (_reading_one_token_ahead, "the convolution is one token late: it sees the next token"),
        (_keywords(activation=None), "the activation of the convolution is left out"),
    ],
)
@pytest.mark.parametrize("dtype", _DTYPES)
def test_a_wrong_convolution_is_found_and_named(change: Callable[[Any], Any], cause: str, dtype: Any) -> None:
    with replaced(_QWEN + "causal_conv1d_fn", change):
        report = audited(hybrid(dtype))
    wrong = [call for call in report.findings if call.state == "wrong"]
    assert {call.cause for call in wrong} == {cause}


def test_a_part_with_a_call_that_is_not_read_is_not_judged() -> None:
    # Gates above 0 are none of decays, of which alone there is a law.
    with replaced(_QWEN + "torch_chunk_gated_delta_rule", lambda own: own), torch.no_grad():
        model = hybrid()
        for name, parameter in model.named_parameters():
            if name.endswith("dt_bias"):
                parameter.fill_(float("nan"))
        with audit(model) as report:
            model(_TOKENS)
    assert not [part for part in report.mixing if part.judged and "linear_attn" in part.name]
    assert report.verdict is Verdict.UNDECIDED

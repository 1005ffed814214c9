"""The probe of dependence: leaks of later tokens are found in parts of any class, and right parts are not accused."""

import random
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from symattn import (  # noqa: E402
    SymattnError,
    Verdict,
    audit,
    reports,
)
from symattn.models.auditing.dependence.token_rows import digests  # noqa: E402
from tests.models.auditing.mixers import LEAKING, RIGHT, Experts, Model, Part, attention, decayed  # noqa: E402

pytestmark = pytest.mark.torch
FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
MIXER = "layers.1.mixer"


def probed(model: Any, dtype: str = "float32", causal: bool | None = True, n: int = 24) -> reports.AuditReport:
    """Return the report of one pass of two items."""
    model = model.to(FORMATS[dtype]).eval()
    ids = (torch.arange(2 * n) * 7 % 47).view(2, n)
    with torch.no_grad(), audit(model, causal=causal) as report:
        model(ids)
    return report


def made(mixer: Any, rest: Any = None) -> Any:
    torch.manual_seed(0)
    return Model(mixer, rest)


@pytest.mark.parametrize(
    ("name", "dtype"),  # torch transforms no bfloat16
    [(name, dtype) for name in RIGHT for dtype in FORMATS if (name, dtype) != ("fourier", "bfloat16")],
)
def test_a_right_part_is_counted_and_not_accused(name: str, dtype: str) -> None:
    mix, sees = RIGHT[name]
    report = probed(made(Part(mix)), dtype)
    parts = {part.name: part for part in report.mixing}
    assert set(parts) == {"layers.0.mixer", MIXER}
    assert parts[MIXER].state == "no leak"
    assert parts[MIXER].sees == sees or dtype == "bfloat16"  # in which small effects are rounded away
    assert report.verdict is Verdict.AS_GIVEN


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("name", LEAKING)
def test_a_leak_is_a_fault_with_its_part(name: str, dtype: str) -> None:
    report = probed(made(Part(LEAKING[name])), dtype)
    assert report.verdict is Verdict.FAULT
    assert [part.name for part in report.mixing if part.leak] == [MIXER]
    words = report.dependence[0].faults
    assert len(words) == 1
    assert words[0].startswith(f"{MIXER} (Part): the output of ")
    with pytest.raises(SymattnError, match=r"layers\.1\.mixer"):
        report.raise_if_wrong()


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("leaks", [False, True])
def test_experts_mix_tokens_only_if_their_router_does(leaks: bool, dtype: str) -> None:
    report = probed(made(Part(attention), Experts(sees_mean=leaks)), dtype)
    assert [part.name for part in report.mixing if part.leak] == ["layers.1.rest"] * leaks
    assert ("layers.1.rest" in {part.name for part in report.mixing}) == leaks


def test_the_first_module_with_the_leak_is_named() -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(16, 16), Part(LEAKING["convolution one token late"]))
    leak = next(part.leak for part in probed(made(inner)).mixing if part.leak)
    assert (leak.module, leak.token - leak.output) == (f"{MIXER}.1.out", 1)  # the mix itself is no module


def test_a_leak_outside_of_all_parts_is_found() -> None:
    class Mean(Model):
        def forward(self, ids: Any) -> Any:
            x = self.embed(ids)
            x = x + x.mean(1, keepdim=True)
            return self.head(self.layers[1](self.layers[0](x)))

    torch.manual_seed(0)
    report = probed(Mean(Part(attention)))
    assert report.verdict is Verdict.FAULT
    assert "layers.0" in report.dependence[0].faults[0]


def test_a_layer_that_mixes_tokens_beside_its_attention_is_a_part() -> None:
    class Shifting(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.mixer = Part(attention)

        def forward(self, x: Any) -> Any:
            return RIGHT["shift"][0](self.mixer(x))

    parts = {part.name: (part.sees, part.judged) for part in probed(made(Shifting())).mixing}
    assert parts[f"{MIXER}.mixer"] == ("all earlier tokens", True)
    assert parts[MIXER][0] == "2 tokens"


def test_without_a_promise_later_tokens_are_no_fault() -> None:
    model = made(Part(LEAKING["lost mask"]))
    allowed, unknown = probed(model, causal=False), probed(model, causal=None)
    assert [allowed.mixing[1].state, unknown.mixing[1].state.partition(";")[0]] == [
        "as promised",
        "no configuration says whether the model is causal",
    ]
    assert {allowed.verdict, unknown.verdict} == {Verdict.AS_GIVEN}


def test_unjudged_parts_stand_in_the_coverage_and_are_strictly_open() -> None:
    report = probed(made(Part(RIGHT["recurrence"][0])))
    unjudged = "layers.1.mixer (Part): all earlier tokens, no leak"
    assert f"1 of 2 token-mixing parts judged; 1 not: {unjudged}" in report.coverage
    report.raise_if_wrong()
    with pytest.raises(SymattnError, match="1 of 2 token-mixing parts"):
        report.raise_if_wrong(strict=True)


@pytest.mark.parametrize("case", ["chance", "one token", "switched off"])
def test_what_was_not_probed_is_said(case: str) -> None:
    drawn = random.Random(0)
    model = made(Part(lambda x: attention(x) * drawn.random()) if case == "chance" else Part(attention))
    if case == "one token":
        report = probed(model, n=1)
    else:
        with audit(model.eval(), dependence=case == "chance", causal=True) as report:
            model(torch.arange(12)[None])
    said = {
        "chance": "a repeated pass gives other numbers",
        "one token": "no pass had 4 tokens",
        "switched off": "calls read",
    }
    assert said[case] in report.coverage
    assert not any(part.leak for part in report.mixing)


@pytest.mark.parametrize("leaks", [False, True])
def test_a_model_in_training_is_probed_with_what_it_drew(leaks: bool) -> None:
    mixer = torch.nn.Sequential(Part(LEAKING["norm over tokens"] if leaks else decayed), torch.nn.Dropout(0.5))
    model = made(mixer).train()
    with audit(model, causal=True) as report:
        model(torch.arange(24)[None])
    assert [part.name for part in report.mixing if part.leak] == [MIXER] * leaks
    assert MIXER in {part.name for part in report.mixing}


def test_the_model_gives_what_it_gave_and_draws_what_it_drew() -> None:
    model = made(Part(RIGHT["recurrence"][0])).eval()
    ids = torch.arange(12)[None]
    torch.manual_seed(1)
    with torch.no_grad():
        plain, drawn = model(ids), torch.rand(1)
        torch.manual_seed(1)
        with audit(model):
            audited, again = model(ids), torch.rand(1)
    assert torch.equal(plain, audited)
    assert torch.equal(drawn, again)


def test_a_module_that_ends_in_another_thread_is_no_part_of_a_pass() -> None:
    model = made(Part(RIGHT["recurrence"][0])).eval()
    go = threading.Event()

    class Waiting(torch.nn.Module):  # begun before the passes of the model, ended within the last of them
        def forward(self, x: Any) -> Any:
            go.wait(60)
            return x

    thread = threading.Thread(target=Waiting(), args=(torch.zeros(2, 24, 16),))
    passes = 0

    def end_the_other(module: Any, args: Any) -> None:
        nonlocal passes
        passes += 1
        if passes == 2:  # the first pass that is probed
            go.set()
            thread.join()

    with torch.no_grad(), audit(model, causal=True) as report:
        thread.start()
        model.layers[0].register_forward_pre_hook(end_the_other)
        model((torch.arange(48) * 7 % 47).view(2, 24))
    assert not thread.is_alive()
    assert [part.state for part in report.mixing] == ["no leak", "no leak"]


def test_numbers_of_one_byte_have_digests() -> None:
    import torch

    x = torch.tensor([[[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]]]).to(torch.float8_e4m3fn)
    first, second, third = digests(x)[0].tolist()
    assert first == third != second


class _PaddedOnce(Model):
    """A model that refuses a second pass with padding."""

    padded = 0

    def forward(self, ids: Any, attention_mask: Any = None) -> Any:
        self.padded += attention_mask is not None
        if self.padded > 1:
            raise ValueError("only once")
        return super().forward(ids)


def test_padding_that_cannot_be_changed_is_said() -> None:
    torch.manual_seed(0)
    model, ids = _PaddedOnce(Part(attention)).eval(), torch.arange(24)[None]
    mask = torch.ones_like(ids)
    mask[:, :5] = 0
    with torch.no_grad(), audit(model, causal=True) as report:
        model(ids)
        model(ids, attention_mask=mask)
    assert "; dependence on padding was not tried: a repeated pass raised ValueError: only once" in report.coverage

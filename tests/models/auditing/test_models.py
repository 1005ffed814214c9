"""Tiny models of Transformers: right ones pass, and faults that were made in real ones are found and named."""

from typing import Any

import pytest

from tests.models.auditing.families import decoding, inputs, made
from tests.models.auditing.seeds import CALLS, Seed, seeded

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from symattn import audit  # noqa: E402

pytestmark = pytest.mark.transformers


@pytest.mark.parametrize("seed", CALLS, ids=lambda seed: seed.words)
def test_a_seeded_fault_is_found_and_named(seed: Seed) -> None:
    report = seeded(seed, "float32")
    assert {f.state for f in report.findings} >= {"wrong"}
    assert all(seed.words in f.cause for f in report.findings if f.state == "wrong")


@pytest.mark.parametrize(
    "name", ["gemma2", "gpt_oss", "bloom", "t5", "opt", "olmo2", "olmo3", "olmoe", "flex_olmo", "hunyuan_v1_dense"]
)
def test_a_right_model_passes_and_gives_what_it_gave(name: str) -> None:
    model = made(name, torch.bfloat16)
    given = inputs(name, torch.bfloat16, "left")
    with torch.no_grad():
        plain = model(**given)[0]
        with audit(model) as report:
            audited = model(**given)[0]
    assert torch.equal(plain, audited)
    assert {f.state for f in report.findings} == {"pass"}
    assert all(f.intent is not None for f in report.findings)


@pytest.mark.parametrize("padding", ["left", "right"])
def test_queries_of_padding_may_see_no_key(padding: str) -> None:
    model = made("deberta-v2", torch.float32)  # its mask forbids whatever is of padding on either side
    with audit(model) as report:
        model(**inputs("deberta-v2", torch.float32, padding))
    assert {f.state for f in report.findings} == {"pass"}
    assert report.findings[0].empty == 5 * 4


def test_queries_that_lose_every_key_are_a_fault() -> None:
    """GPT-Neo's local layers count the places of queries from the end of a static cache, its empty room included."""
    model = made("gpt_neo", torch.float32)
    with audit(model) as report:
        decoding(model, inputs("gpt_neo", torch.float32), static=True)()
    local = [f for f in report.findings if ".1." in f.layer]
    assert {f.state for f in local} == {"wrong"}
    assert local[0].cause == "the mask of the call leaves 104 of 104 queries no key at all"
    assert {f.state for f in report.findings if f not in local} == {"pass"}


@pytest.mark.parametrize("static", [False, True])
def test_decoding_from_a_cache_passes(static: bool) -> None:
    model = made("mistral", torch.float32, "sdpa")
    with audit(model) as report:
        decoding(model, inputs("mistral", torch.float32, "none" if static else "left"), static)()
    assert {f.state for f in report.findings} == {"pass"}
    assert len(report.findings) == 8


def quiet(name: str) -> Any:
    """A model as its class makes it in bfloat16, whose scores are so small that rounding hides what is done to them."""
    model = made(name, torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.1 if parameter.ndim == 2 else 1)
    return model


@pytest.mark.parametrize(
    ("name", "argument", "change", "words"),
    [
        ("llama", "scaling", lambda x: x * 1.02, "scores are scaled by 1.02 times the correct scale"),
        ("gemma2", "attn_logit_softcapping", lambda x: None, "the softcap is left out"),
        ("gemma2", "attn_logit_softcapping", lambda x: x * 1.01, "the softcap is 5.05, expected 5"),
        ("gpt_oss", "sliding_window", lambda x: x + 1, "the window is 7, expected 6"),
    ],
)
def test_an_argument_that_is_not_promised_is_a_fault_whatever_the_numbers_show(
    name: str, argument: str, change: Any, words: str
) -> None:
    model = quiet(name)
    wrong = next(m for m in model.modules() if hasattr(m, "layer_idx") and hasattr(m, argument))
    setattr(wrong, argument, change(getattr(wrong, argument)))
    with torch.no_grad(), audit(model) as report:
        model(**inputs(name, torch.bfloat16))
    first, second = report.findings
    assert (first.state, first.asked, second.state) == ("wrong", (words,), "pass")
    assert first.verdict == f"CERTIFIED WRONG, against the configuration: {words}"
    assert first.given is not None
    assert first.given.legal


def test_a_mask_is_compared_in_queries_that_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    right = modeling_llama.create_causal_mask

    def one_cell(**given: Any) -> Any:
        mask = right(**given)
        mask[..., 201, 202] = 0
        return mask

    monkeypatch.setattr(modeling_llama, "create_causal_mask", one_cell)
    model = quiet("llama")
    with torch.no_grad(), audit(model, rows=2) as report:
        model(torch.arange(300)[None] % 50)
    assert {(f.state, f.cells, f.cause) for f in report.findings} == {("wrong", 4, "the mask is different")}


def test_what_is_held_to_no_configuration_passes_as_given_alone() -> None:
    config = transformers.CodeGenConfig(vocab_size=50, n_embd=32, n_layer=1, n_head=4, rotary_dim=4)
    model = transformers.CodeGenModel(config).eval()
    with torch.no_grad(), audit(model) as report:
        model(torch.arange(6)[None])
    assert (report.verdict.value, report.exit_code) == ("pass as given", 0)
    assert [f.verdict for f in report.findings] == ["pass as given"]
    assert report.undecided == "undecided: 1 of 1 calls (1 compared only with what they received)"
    report.raise_if_wrong()
    with pytest.raises(AssertionError, match=r"no family is called 'codegen'[^\n]*\nundecided: 1 of 1"):
        report.raise_if_wrong(strict=True)


def test_a_mask_that_adds_ten_in_place_of_infinity_is_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    right = modeling_llama.create_causal_mask
    monkeypatch.setattr(modeling_llama, "create_causal_mask", lambda **given: right(**given).clamp(min=-10.0))
    model = quiet("llama")
    with torch.no_grad(), audit(model) as report:
        model(**inputs("llama", torch.bfloat16))
    assert {f.asked for f in report.findings} == {("there is a bias that is not promised", "the mask is ignored")}

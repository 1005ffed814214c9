"""Tiny models of Transformers: right ones pass, and faults that were made in real ones are found and named."""

from __future__ import annotations

import pytest

from tests.auditing.families import decoding, inputs, made
from tests.auditing.seeds import SEEDS, seeded

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from symattn import audit  # noqa: E402

pytestmark = pytest.mark.transformers


@pytest.mark.parametrize("words", SEEDS)
def test_a_seeded_fault_is_found_and_named(words: str) -> None:
    report = seeded(words, "float32")
    assert {f.state for f in report.findings} >= {"wrong"}
    assert all(words in f.cause for f in report.findings if f.state == "wrong")


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

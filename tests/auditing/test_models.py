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


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "bloom", "t5"])
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


@pytest.mark.parametrize("static", [False, True])
def test_decoding_from_a_cache_passes(static: bool) -> None:
    model = made("mistral", torch.float32, "sdpa")
    with audit(model) as report:
        decoding(model, inputs("mistral", torch.float32, "none" if static else "left"), static)()
    assert {f.state for f in report.findings} == {"pass"}
    assert len(report.findings) == 8

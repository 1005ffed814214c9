"""Layers of tiny models: right ones pass in every part, and a fault is found in the part that it was made in."""

from __future__ import annotations

import pytest

from symattn.evidence import Verdict
from symattn.sources.configurations.layouts import LAYOUTS
from tests.auditing.families import decoding, inputs
from tests.auditing.layers.families import made
from tests.auditing.layers.seeds import SEEDS, Seed, seeded

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from symattn import audit  # noqa: E402

pytestmark = pytest.mark.transformers


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.part}-{seed.words[:30]}")
def test_a_fault_is_found_in_its_part_and_named(seed: Seed, dtype: str) -> None:
    report = seeded(seed, dtype)
    wrong = [part for layer in report.layers for part in layer.parts if part.wrong]
    assert seed.part in {part.part for part in wrong}
    assert all(seed.words in part.cause for part in wrong if part.part == seed.part)
    assert report.verdict is Verdict.FAULT


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", LAYOUTS)
def test_a_right_model_passes_in_every_part(family: str, dtype: str) -> None:
    model = made(family, getattr(torch, dtype))
    given = inputs(family, model.dtype, "left")
    with torch.no_grad():
        plain = model(**given)[0]
        with audit(model, layers=True, rows=1) as report:
            audited = model(**given)[0]
    assert torch.equal(plain, audited)
    assert [layer.state for layer in report.layers] == ["pass", "pass"], report.layers[0].verdict
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_decoding_from_a_cache_passes(family: str, static: bool) -> None:
    model = made(family, torch.bfloat16, "sdpa")
    with audit(model, layers=True, rows=1) as report:
        decoding(model, inputs(family, model.dtype, "none" if static else "left"), static)()
    assert [layer.state for layer in report.layers] == ["pass"] * 8

"""Layers of Transformers give what specifications give, within the rounding of each step; others do not."""

import importlib.metadata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Rotary, rounded
from symattn.attention.presets import PRESETS
from symattn.attention.variants import AGREES, VARIANTS
from tests.models.cases import CASES
from tests.models.page import PAGE, inside, made
from tests.models.seen import run

pytestmark = pytest.mark.transformers
ROOT = Path(__file__).parents[2]


def refused(bounded: Any, got: np.ndarray) -> bool:
    """Whether some number is further from the exact one than rounding explains; the bound must say something."""
    assert np.all(np.isfinite(bounded.bound))
    return not np.all(bounded.within(got))


@pytest.mark.parametrize("name", CASES)
def test_the_layer_gives_what_the_specification_gives(name: str) -> None:
    bounded, got = CASES[name].bounded(), CASES[name].seen.output
    assert got.dtype == np.float64
    assert bounded.plain_shape == got.shape
    assert not refused(bounded, got)
    for element in np.ndindex(got.shape):
        moved = got.copy()
        moved[element] += np.copysign(2 * bounded.bound[element] + 2.0**-40, got[element])
        if element[1] < 2:  # of each token two numbers
            assert refused(bounded, moved)


@pytest.mark.parametrize("name", CASES)
def test_other_attention_is_refused(name: str) -> None:
    for wrong in CASES[name].wrong:
        assert refused(CASES[name].of(wrong), CASES[name].seen.output), wrong.words


def test_what_is_taken_in_float32_is_not_taken_in_float64() -> None:
    some = [case for case in CASES.values() if case.single]
    assert len(some) > 10
    for of in some:
        assert refused(run(*of.as_run), of.seen.output), of.model


def equal(a: Any, b: Any) -> bool:
    """Whether exact values that are known to 50 bits and more are equal, as far as that is known."""
    pairs = list(zip(a.value.entries.flat, b.value.entries.flat, strict=True))
    assert all(max(x.rad(), y.rad()) < 2.0**-50 for x, y in pairs)
    return all(x.overlaps(y) for x, y in pairs)


@pytest.mark.parametrize("name", ["bloom_of_three", "bloom_of_six", "mpt", "deepseek_v3"])
def test_formulas_of_equal_value_have_it(name: str) -> None:
    of = CASES[name]
    exact = run(of.spec, of.inputs)
    assert of.biased or of.same
    assert equal(exact, of.bounded())
    for told in of.same:
        assert equal(exact, run(replace(of.spec, **told), of.inputs))
    assert not any(equal(exact, of.of(wrong)) for wrong in of.wrong)


def test_the_scale_of_deepseek_v3() -> None:
    """(1 + log(40)/10)²/√d_k, as the layer has it, with each operation rounded to float64."""
    xp = rounded("float64").xp
    lift = rounded("float64").lift
    factor = 1 + xp.log(lift(40)) * lift(1) / lift(10)
    scale = factor * factor / xp.sqrt(lift(7))
    layer = CASES["deepseek_v3"].seen.layer.scaling
    assert scale.within(layer).all()
    assert not scale.within(layer * (1 + 2.0**-44)).any()


def test_every_preset_is_tried() -> None:
    assert {of.preset for of in CASES.values()} - {""} == set(PRESETS)


def test_the_version_is_the_one_that_is_pinned() -> None:
    pinned = (ROOT / ".ci" / "run").read_text(encoding="utf-8").split()
    assert f"transformers=={importlib.metadata.version('transformers')}" in pinned


def test_the_page_is_what_the_layers_give() -> None:
    assert inside(PAGE.read_text(encoding="utf-8")) == made(), "hint: python -m tests.models.page"


#: Which layer shows a variant.
SHOWN = {
    "dot": "t5_encoder", "scaled dot": "bert", "RMS norm of q and k": "qwen3", "softcap": "gemma2", "causal": "gpt2",
    "sliding window": "mistral", "padding": "bert", "sink": "gpt_oss", "self-attention": "bert",
    "cross-attention": "t5_cross", "multi-head": "bert", "multi-query": "falcon", "grouped-query": "llama",
    "grouped-query, of tokens": "llama", "packed projections": "gpt2", "latent": "deepseek_v3",
    "latent, absorbed": "deepseek_v3", "rotary, half": "llama", "rotary, interleaved": "gptj",
    "rotary, in part": "gpt_neox", "rotary, true frequencies": "mistral", "rotary, latent": "deepseek_v3",
    "ALiBi": "bloom_of_six", "T5 buckets": "t5_encoder", "Transformer-XL": "xlnet",
}  # fmt: skip
_SIZES = ("heads", "kv_heads", "triples", "width")


def told(spec: Any, prefix: str = "") -> frozenset[tuple[str, object]]:
    """The fields that differ from the usual, and those of their values; numbers by their type."""
    found: set[tuple[str, object]] = set()
    for name, field in spec.__dataclass_fields__.items():
        value = getattr(spec, name)
        if name in _SIZES or value == field.default:
            continue
        inner = hasattr(value, "__dataclass_fields__")
        kept = type(value).__name__ if inner else value if isinstance(value, (str, bool)) else ""
        found |= {(prefix + name, kept)} | (told(value, f"{prefix}{name}.") if inner else frozenset())
    return frozenset(found)


def compared(name: str) -> list[Attention]:
    """The specifications that a layer was compared with."""
    of = CASES[name]
    return [of.spec, *(replace(of.spec, **fields) for fields in of.same)]


@pytest.mark.parametrize("variant", AGREES["Transformers"])
def test_a_layer_has_what_the_variant_has(variant: str) -> None:
    asked = told(VARIANTS[variant].spec)
    assert any(asked <= told(spec) for spec in compared(SHOWN[variant]))


def test_a_part_of_the_columns_is_rotated() -> None:
    of = CASES[SHOWN["rotary, in part"]]
    assert isinstance(of.spec.position, Rotary)
    assert of.spec.position.width == of.inputs["w_q"].shape[-1] // of.spec.heads // 2


def test_what_is_listed_is_tried() -> None:
    assert set(AGREES["Transformers"]) == set(SHOWN)
    assert set(SHOWN.values()) <= set(CASES)

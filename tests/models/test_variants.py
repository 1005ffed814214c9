"""What the table of variants says of Transformers: some layer that was compared has what the variant has."""

from dataclasses import replace
from typing import Any

import pytest

from symattn.attention.positions.position_fields import Rotary
from symattn.attention.spec import Attention
from symattn.attention.variants import AGREES, VARIANTS
from tests.models.cases import CASES

pytestmark = pytest.mark.transformers

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


def test_heads_of_keys_are_as_many_as_the_names_say() -> None:
    groups = {"multi-head": (1, 3), "multi-query": (3, 1), "grouped-query": (2, 2)}
    for variant, (queries, keys) in groups.items():
        spec = CASES[SHOWN[variant]].spec
        assert (spec.heads // spec.key_heads, spec.key_heads) == (queries, keys)


def test_a_part_of_the_columns_is_rotated() -> None:
    of = CASES[SHOWN["rotary, in part"]]
    assert isinstance(of.spec.position, Rotary)
    assert of.spec.position.width == of.inputs["w_q"].shape[-1] // of.spec.heads // 2


def test_what_is_listed_is_tried() -> None:
    assert set(AGREES["Transformers"]) == set(SHOWN)
    assert set(SHOWN.values()) <= set(CASES)


def test_some_variants_are_shown_by_few_layers() -> None:
    """The comparison of fields tells variants apart."""
    by = {v: [n for n in CASES if told(VARIANTS[v].spec) <= told(CASES[n].spec)] for v in SHOWN}
    assert by["softcap"] == ["gemma2"]
    assert by["sink"] == ["gpt_oss"]
    assert by["rotary, interleaved"] == ["deepseek_v3", "gptj"]
    assert by["sliding window"] == ["mistral", "gemma2", "gpt_oss"]

"""The attention of named models: ``like("llama")``, with the number of heads of one published size.

A preset describes what a layer computes from its tokens. If layers alternate, it is the layer that differs more from
plain attention, and the note says so. Fields are changed by name: ``like("llama", heads=4, kv_heads=2)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from symattn.attention.latent import Latent
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary
from symattn.attention.positions.rotary_fields import YarnScaling
from symattn.attention.spec import Attention
from symattn.document.errors import InputError, among, named

# The ε of RMSNorm that several models have.
_MILLIONTH = Fraction(1, 10**6)


@dataclass(frozen=True)
class Preset:
    """The specification of a model's attention, and where the model is described."""

    spec: Attention
    model: str
    source: str
    note: str = ""


PRESETS: dict[str, Preset] = {
    "gpt2": Preset(
        Attention(heads=12, causal=True, packed=True),
        "GPT-2, 124M",
        "Radford et al., Language Models are Unsupervised Multitask Learners (2019)",
        "q, k and v come from one matrix with a bias.",
    ),
    "bert": Preset(
        Attention(heads=12, padding=True),
        "BERT base",
        "Devlin et al., BERT (2019), §3",
    ),
    "t5": Preset(
        Attention(heads=8, scale=1, position=Buckets(number=32, max_distance=128), padding=True),
        "T5 small, encoder",
        "Raffel et al., Exploring the Limits of Transfer Learning (2020), §2.1",
        "The scores are not scaled; the decoder is causal with buckets of one direction.",
    ),
    "bloom": Preset(
        Attention(heads=112, causal=True, position=Alibi()),
        "BLOOM, 176B",
        "BigScience, BLOOM (2022), §3.2",
    ),
    "llama": Preset(
        Attention(
            heads=32,
            kv_heads=8,
            causal=True,
            position=Rotary(
                base=500000,
                scaling=YarnScaling(factor=8, length=8192, fast=4, ramp="turns", weight=0),
            ),
        ),
        "Llama 3.1, 8B",
        "Llama Team, The Llama 3 Herd of Models (2024), §3.2",
        "Llama 2 has base 10000, no scaling, and below 70B as many heads of keys as of queries.",
    ),
    "mistral": Preset(
        Attention(heads=32, kv_heads=8, causal=True, window=4096, position=Rotary()),
        "Mistral 7B",
        "Jiang et al., Mistral 7B (2023), §2",
    ),
    "gemma2": Preset(
        Attention(
            heads=16,
            kv_heads=8,
            causal=True,
            window=4096,
            scale=Fraction(1, 16),
            softcap=50,
            position=Rotary(),
        ),
        "Gemma 2, 9B",
        "Gemma Team, Gemma 2 (2024), §2 and table 1",
        "Every other layer has no window.",
    ),
    "gpt-oss": Preset(
        Attention(
            heads=64,
            kv_heads=8,
            causal=True,
            window=128,
            sink="given",
            position=Rotary(base=150000, scaling=YarnScaling(factor=32, length=4096, whole=False)),
        ),
        "gpt-oss-20b",
        "OpenAI, gpt-oss-120b & gpt-oss-20b Model Card (2025), §2.2",
        "Every other layer has no window.",
    ),
    "qwen3": Preset(
        Attention(
            heads=32,
            kv_heads=8,
            causal=True,
            qk_norm="rms",
            eps=_MILLIONTH,
            position=Rotary(base=1000000),
        ),
        "Qwen3, 8B",
        "Qwen Team, Qwen3 Technical Report (2025), §2",
    ),
    "deepseek-v3": Preset(
        Attention(
            heads=128,
            causal=True,
            latent=Latent(queries=True, norm="rms", eps=_MILLIONTH),
            position=Rotary(
                layout="interleaved",
                scaling=YarnScaling(factor=40, length=4096, weight=1, shared=1),
            ),
        ),
        "DeepSeek-V3",
        "DeepSeek-AI, DeepSeek-V3 Technical Report (2024), §2.1.1",
        "At long contexts the scale is multiplied by (1 + log(40)/10)², which is left to the field scale.",
    ),
}


def small(name: str, **fields: object) -> tuple[Attention, str]:
    """Return ``like(…)`` with few heads, unless ``fields`` set them, and a sentence on what was cut.

    >>> spec, words = small("llama")
    >>> (spec.heads, spec.kv_heads), words
    ((8, 2), '32 heads, 8 of keys and values, are cut to 8 and 2')
    """
    spec = like(name, **fields)
    return (spec, "") if "heads" in fields or "kv_heads" in fields else few_heads(spec)


def few_heads(spec: Attention, alone: int = 4, shared: int | None = None) -> tuple[Attention, str]:
    """Return the specification with few heads, and a sentence on what was cut.

    At most two heads of keys are left, or ``alone`` if each head has its own; each is shared by as many heads of
    queries as before, or at most ``shared``.

    >>> few_heads(Attention(heads=32, kv_heads=8))[1]
    '32 heads, 8 of keys and values, are cut to 8 and 2'
    """
    group, keys = spec.group, spec.key_heads
    # Slopes of ALiBi follow another rule if the number of heads is not a power of two.
    few = min(keys, 2 if group > 1 else alone if keys & (keys - 1) == 0 else 6)
    heads = few * min(group, shared or group)
    # The specification has few heads already.
    if heads >= spec.heads:
        return spec, ""
    if group == 1:
        return replace(spec, heads=heads, kv_heads=None), f"{spec.heads} heads are cut to {heads}"
    words = f"{spec.heads} heads, {keys} of keys and values, are cut to {heads} and {few}"
    return replace(spec, heads=heads, kv_heads=few), words


def like(name: str, **fields: Any) -> Attention:
    """Return the attention of a named model, with changed fields. Raises InputError for unknown names.

    >>> like("mistral", window=3).kv_heads
    8
    """
    if named("like()", name) not in PRESETS:
        raise InputError(f"unknown model {name!r}{among(name, PRESETS)}")
    return replace(PRESETS[name].spec, **fields)

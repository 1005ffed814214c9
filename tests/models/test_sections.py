"""Multimodal rotations by sections (Qwen2-VL, Qwen3-VL): the field, given tables, and Transformers' modules."""

from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Rotary, configurations

#: Tokens of text around an image of 2 × 2 patches.
PLACES = np.array([[0, 1, 2, 2, 2, 2, 4], [0, 1, 2, 2, 3, 3, 4], [0, 1, 2, 3, 2, 3, 4]])
BASE = 100.0
BLOCKS = Rotary(given="positions", base=100, sections=(2, 3, 3))
IN_TURN = Rotary(given="positions", base=100, sections=(4, 2, 2), section_order="interleaved")


def tables(rows: list[int]) -> dict[str, np.ndarray]:
    """Cosines and sines (n, pairs): each pair has the place of its row."""
    angles = PLACES[rows].T * BASE ** (-np.arange(len(rows)) / len(rows))
    return {"cos": np.cos(angles), "sin": np.sin(angles)}


def drawn(width: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, 7, columns)) for columns in (width, width, 3)]


@pytest.mark.parametrize(("rope", "rows"), [(BLOCKS, [0, 0, 1, 1, 1, 2, 2, 2]), (IN_TURN, [0, 1, 2, 0, 1, 2, 0, 0])])
def test_sections_are_tables_with_the_place_of_each_row(rope: Rotary, rows: list[int]) -> None:
    # Two columns more than the sections turn pass unchanged.
    for width in (16, 18):
        arrays = drawn(width)
        output = Attention(heads=2, causal=True, position=rope)(*arrays, positions=PLACES)
        same = Attention(heads=2, causal=True, position=Rotary(given="tables"))(*arrays, **tables(rows))
        assert np.abs(output - same).max() < 1e-14
        alike = Attention(heads=2, causal=True, position=rope)(*arrays, positions=PLACES[:1].repeat(3, 0))
        assert np.abs(output - alike).max() > 1e-2
        # Equal rows are an ordinary rotation.
        plain = Rotary(given="positions", base=100, width=16)
        ordinary = Attention(heads=2, causal=True, position=plain)(*arrays, positions=PLACES[0])
        assert np.abs(alike - ordinary).max() < 1e-14


@pytest.mark.transformers
@pytest.mark.parametrize("rope", [BLOCKS, IN_TURN])
def test_sections_are_those_of_transformers(rope: Rotary) -> None:
    import torch
    from transformers.models.qwen2_vl import configuration_qwen2_vl, modeling_qwen2_vl
    from transformers.models.qwen3_vl import configuration_qwen3_vl, modeling_qwen3_vl

    fields: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    fields["rope_parameters"] = {"rope_type": "default", "rope_theta": BASE, "mrope_section": [*(rope.sections or ())]}
    if rope is BLOCKS:
        config: Any = configuration_qwen2_vl.Qwen2VLTextConfig(**fields)
        made: Any = modeling_qwen2_vl.Qwen2VLRotaryEmbedding(config)
    else:
        config = configuration_qwen3_vl.Qwen3VLTextConfig(**fields)
        made = modeling_qwen3_vl.Qwen3VLTextRotaryEmbedding(config)
    assert configurations.attention(config).position == rope
    q, k, v = (torch.tensor(x)[None] for x in drawn(16))
    cos, sin = made(q, torch.tensor(PLACES)[:, None])
    turned = modeling_qwen2_vl.apply_rotary_pos_emb(q, k, cos, sin)
    right = torch.nn.functional.scaled_dot_product_attention(*turned, v, is_causal=True)[0].numpy()
    output = Attention(heads=2, causal=True, position=rope)(*drawn(16), positions=PLACES)
    # Transformers makes its tables in float32.
    assert np.abs(output - right).max() < 1e-6


#: The configuration of Qwen2-VL as it was first published: no part for the text, and the sections are called a type.
PUBLISHED = {
    "model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
    "num_hidden_layers": 28, "rope_theta": 1e6, "use_sliding_window": False, "max_window_layers": 28,
    "sliding_window": 32768, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
}  # fmt: skip


def test_older_configurations_call_sections_a_type() -> None:
    rope = Rotary(base=1000000, given="positions", sections=(16, 24, 24))
    assert configurations.attention(PUBLISHED) == Attention(causal=True, heads=28, kv_heads=4, position=rope)
    for sections in ([16, 24], "16", [16, 24, 24.5]):
        wrong = {**PUBLISHED, "rope_scaling": {"type": "mrope", "mrope_section": sections}}
        with pytest.raises(InputError, match="mrope_section"):
            configurations.attention(wrong)

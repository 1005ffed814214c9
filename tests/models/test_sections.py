"""Multimodal rotations by sections (Qwen2-VL): an attention with given tables, against the module of Transformers."""

import numpy as np
import pytest

from symattn import Attention, Rotary

#: How many pairs of columns turn by the time, the height and the width of a token.
SECTIONS = (2, 3, 3)
#: Tokens of text around an image of 2 × 2 patches.
PLACES = np.array([[0, 1, 2, 2, 2, 2, 4], [0, 1, 2, 2, 3, 3, 4], [0, 1, 2, 3, 2, 3, 4]])
BASE = 100.0


def tables() -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines (n, pairs): each pair has the place of the axis of its section."""
    pairs = sum(SECTIONS)
    axes = np.repeat(np.arange(3), SECTIONS)
    angles = PLACES[axes].T * BASE ** (-np.arange(pairs) / pairs)
    return np.cos(angles), np.sin(angles)


@pytest.mark.transformers
def test_given_tables_are_the_sections_of_transformers() -> None:
    import torch
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding, apply_rotary_pos_emb

    rope = {"rope_type": "default", "rope_theta": BASE, "mrope_section": [*SECTIONS]}
    config = Qwen2VLTextConfig(hidden_size=32, num_attention_heads=2, num_key_value_heads=2, rope_parameters=rope)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 7, 16, generator=generator, dtype=torch.float64) for _ in range(3))
    cos, sin = Qwen2VLRotaryEmbedding(config)(q, torch.tensor(PLACES)[:, None])
    turned = apply_rotary_pos_emb(q, k, cos, sin)
    right = torch.nn.functional.scaled_dot_product_attention(*turned, v, is_causal=True).numpy()
    spec = Attention(heads=2, causal=True, position=Rotary(given="tables"))
    own = dict(zip(("cos", "sin"), tables(), strict=True))
    output = spec(q.numpy(), k.numpy(), v.numpy(), **own)
    # Transformers makes its tables in float32.
    assert np.abs(output - right).max() < 1e-6
    # Sections matter: one place for all pairs is another rotation.
    alike = np.cos(PLACES[0][:, None] * BASE ** (-np.arange(8) / 8))
    assert np.abs(spec(q.numpy(), k.numpy(), v.numpy(), **{**own, "cos": alike}) - right).max() > 1e-2

"""What libraries store is what their presets say, bit for bit."""

from typing import Any

import pytest

import symattn
from symattn import Attention
from symattn.arrays.formats import Format
from symattn.bounds.contracts import Contract, family, near
from symattn.verification.arithmetic.contract_presets import PRESETS, REPLAYED, named

NAMES = [name for name, preset in PRESETS.items() if preset.held]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_told_by_its_contract(name: str) -> None:
    for tile in (16, 128):
        assert named(PRESETS[name].contract(Format("float16"), tile)) == (name,)
    assert named(Contract(Format("float16"), ("scores",), "summed", 32)) == ()


def test_every_preset_is_among_what_is_tried_and_none_in_fp8_is_told() -> None:
    made = family(Attention(), frozenset("qkv"), Format("bfloat16"), 256)
    tried = [c for one in made for c in (one, *near(one, Attention()))]
    assert {name for c in tried for name in named(c)} == set(PRESETS)
    fp8 = [preset.contract(Format("float8_e4m3fn"), output=Format("bfloat16")) for preset in REPLAYED.values()]
    assert [named(c) for c in fp8] == [()]


def math(q: Any, k: Any, v: Any) -> Any:
    import torch

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def eager(q: Any, k: Any, v: Any) -> Any:
    import torch
    from transformers.models.llama.modeling_llama import eager_attention_forward

    module = torch.nn.Module().eval()
    module.num_key_value_groups = 1
    arrays = (a[None, None] for a in (q, k, v))
    out, _ = eager_attention_forward(module, *arrays, None, scaling=q.shape[-1] ** -0.5)
    return out[0, :, 0]


REAL = {"PyTorch's math path on a CPU": math, "Transformers' eager attention": eager}


@pytest.mark.torch
@pytest.mark.transformers
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_the_library_gives_the_bits_of_its_preset(name: str, dtype: str) -> None:
    pytest.importorskip("transformers")
    found = symattn.arithmetic(REAL[name], Attention(), dtype=dtype, framework="torch", layout="nd")
    assert found.known
    assert found.share > 0.99
    assert found.like == (name,)
    assert f"So does {name}." in " ".join(found.document().text().split())
    other = next(n for n in NAMES if n != name)
    assert other not in found.like

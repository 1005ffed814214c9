"""What is read of PyTorch's attention on a CPU and of Transformers' eager function, held to their outputs again."""

from typing import Any

import pytest

import symattn
from symattn import Domain, summation
from symattn.verification.summing.order import Order
from tests.verification.sums import Adding, lanes, loop, tiles, tree_of

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def math(q: Any, k: Any, v: Any) -> Any:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def flash(q: Any, k: Any, v: Any) -> Any:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def eager(q: Any, k: Any, v: Any) -> Any:
    from types import SimpleNamespace

    from transformers.models.llama.modeling_llama import eager_attention_forward

    module = SimpleNamespace(num_key_value_groups=1, training=False)
    return eager_attention_forward(module, q, k, v, None, q.shape[-1] ** -0.5)[0].transpose(1, 2)


def told(function: Any) -> Order:
    answer = symattn.arithmetic(
        function, dtype="float32", domain=Domain(same_width=True), layout="bhnd", framework="torch"
    )
    return answer.order


@pytest.mark.parametrize("function", [math, flash, pytest.param(eager, marks=pytest.mark.transformers)])
def test_attention_in_float32_has_an_order_that_explains_it(function: Any) -> None:
    """Which one is the machine's affair: its matrix products decide. All tell one, with float32 inside."""
    found = told(function)
    assert found.tree is not None, found.words
    assert found.widths is not None
    assert found.widths[1].digits == 24


def adds(adding: Adding) -> Any:
    """A sum over rows by tensors alone, in an order that is known whatever the machine."""
    return lambda x: adding(list(x.unbind(-1)))


@pytest.mark.parametrize("adding", [loop, lanes(4), tiles(16)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_are_asked(adding: Adding, dtype: str) -> None:
    found = summation(adds(adding), terms=64, dtype=dtype, framework="torch")
    assert found.tree == tree_of(adding, 64)
    assert found.widths is not None
    assert found.widths[0].digits == {"float32": 24, "bfloat16": 8}[dtype]

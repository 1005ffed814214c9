"""Functions of torch tensors."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from symattn import InputError
from symattn.programs.child import Child
from symattn.programs.loading import load
from symattn.programs.request import Request
from symattn.programs.target import target
from tests.programs.programs import Program
from tests.verification.naming import convicts

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.torch

SDPA = "torch.nn.functional:scaled_dot_product_attention"
INPUTS = {"q": np.eye(2, 4), "k": np.ones((3, 4)), "v": np.arange(15.0).reshape(3, 5)}


def test_a_builtin() -> None:
    found = load(SDPA)
    assert found.display == f"{SDPA}(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)"
    runner = target(found.function, Request(causal=True, scale=0.5, alignment="top-left"), found.name)
    assert runner.describe() == f"{SDPA}(q, k, v, is_causal=True, scale=0.5)"
    outcome = runner.run(INPUTS)
    assert outcome.output is not None
    np.testing.assert_allclose(outcome.output, [INPUTS["v"][0], INPUTS["v"][:2].mean(0)])


def test_a_builtin_in_a_child() -> None:
    with Child(SDPA, Request(dtype="bfloat16", masks=("mask",))) as runner:
        assert runner.convention.framework == "torch"
        outcome = runner.run({**INPUTS, "mask": np.tri(2, 3, dtype=bool)})
    assert outcome.dtype == "bfloat16"
    assert outcome.output is not None
    np.testing.assert_array_equal(outcome.output[0], INPUTS["v"][0])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("memory", ["contiguous", "strided", "transposed"])
def test_dtypes_go_in_and_out_exactly(dtype: str, memory: str) -> None:
    inputs = {"k": np.ones((3, 4)), "v": np.ones((3, 5)), "q": np.array([[-0.0, np.nan], [1.5, -3.0]])}
    outcome = target(lambda q, k, v: q, Request(dtype=dtype, framework="torch")).run(inputs, memory)
    assert outcome.dtype == dtype
    assert outcome.output is not None
    np.testing.assert_array_equal(outcome.output, inputs["q"])
    assert np.signbit(outcome.output[0, 0])
    assert outcome.mutated == ()


def test_changed_inputs_are_named() -> None:
    def careless(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q.mul_(2)
        v.resize_(1, 1)
        return k

    assert target(careless, Request()).run(INPUTS).mutated == ("q", "v")


def test_a_buffer_that_is_used_again() -> None:
    import torch

    buffer = torch.zeros(3, 5)

    def reusing(q: Any, k: Any, v: Any) -> Any:
        return buffer.copy_(v)

    runner = target(reusing, Request(framework="torch"))
    assert not runner.run(INPUTS).overwrote
    assert runner.run({**INPUTS, "v": INPUTS["v"] + 1}).overwrote


@pytest.mark.parametrize("layout", ["nd", "bhnd", "bnhd"])
def test_layouts(layout: str) -> None:
    import torch

    def attention(q: Any, k: Any, v: Any) -> Any:
        turn = (lambda a: a.transpose(1, 2)) if layout == "bnhd" else (lambda a: a)
        return turn(torch.nn.functional.scaled_dot_product_attention(turn(q), turn(k), turn(v)))

    outcome = target(attention, Request(layout=layout)).run(INPUTS)
    assert outcome.output is not None
    np.testing.assert_allclose(outcome.output, np.tile(INPUTS["v"].mean(0), (2, 1)))


def test_the_framework_is_seen() -> None:
    import torch

    def named(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.mT, -1) @ v

    def annotated(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return v

    class Own(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return v

    sdpa = torch.nn.functional.scaled_dot_product_attention
    for function in (annotated, Own(), sdpa, functools.partial(sdpa, dropout_p=0.0)):
        convention = target(function, Request()).convention
        assert (convention.framework, convention.notes) == ("torch", ())
    assert target(named, Request()).convention.framework == "torch"


def test_the_framework_is_tried() -> None:
    convention = target(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, Request()).convention
    assert convention.framework == "torch"
    assert "tensors are passed, since NumPy arrays gave AttributeError" in convention.notes[-1]
    refused = target(lambda q, k, v: q.nothing, Request()).convention
    assert refused.framework == "numpy"
    assert "refused as well" in refused.notes[-1]


def test_gradients_and_tuples_do_not_stand_in_the_way() -> None:
    import torch

    weight = torch.ones((), requires_grad=True)
    outcome = target(lambda q, k, v: (weight * v, q), Request(framework="torch")).run(INPUTS)
    assert outcome.returned == 2
    assert outcome.output is not None
    np.testing.assert_array_equal(outcome.output, INPUTS["v"])


def test_complex_tensors_are_no_output() -> None:
    import torch

    error = target(lambda q, k, v: torch.complex(v, v), Request(framework="torch")).run(INPUTS).error
    assert str(error) == "returned an array of complex128"


def test_classes_of_modules_are_refused(program: Program) -> None:
    program("import torch\nclass Attention(torch.nn.Module):\n    def forward(self, q, k, v): return v\n")
    with pytest.raises(InputError, match="is a class"):
        load("attn.py:Attention")


def test_a_module_is_read_by_its_forward() -> None:
    from torch import nn

    class Layer(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.softmax((q @ k.mT).masked_fill(~mask, -torch.inf), -1) @ v

    import torch

    runner = target(Layer(), Request(masks=("mask",)), "layer")
    assert [a.input for a in runner.convention.arguments] == ["q", "k", "v", "mask"]


def test_the_bits_of_one_element_with_a_stride() -> None:
    import torch

    from symattn.programs.frameworks import arrays

    one = torch.tensor([7, 8], dtype=torch.int64)[::2]
    assert arrays("torch").bits(one) == np.int64(7).tobytes()


def test_a_function_of_numpy_that_uses_torch_inside_gets_numpy() -> None:
    import torch

    def inside(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (torch.from_numpy(a) for a in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).numpy()

    for layout in ("auto", "nd"):
        found = target(inside, Request(layout=layout)).convention
        assert found.framework == "numpy"
        assert "NumPy arrays are passed, since tensors gave TypeError" in found.notes[-1]


def test_a_function_of_four_axes_that_does_not_name_torch_gets_tensors() -> None:
    def unnamed(q: Any, k: Any, v: Any) -> Any:
        _, _, _, d = q.shape
        return (q @ k.transpose(-1, -2) / d**0.5).softmax(-1) @ v

    found = target(unnamed, Request(layout="auto", dtype="float32")).convention
    assert (found.framework, found.layout) == ("torch", "bhnd")
    assert any("tensors are passed, since NumPy arrays gave" in n for n in found.notes)


def test_what_is_right_with_tensors_alone_gets_tensors() -> None:
    import torch

    def attention(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        e = s.exp() if isinstance(s, torch.Tensor) else np.exp(2 * s)
        return e / e.sum(-1)[..., None] @ v

    found = target(attention, Request(layout="auto")).convention
    assert found.framework == "torch"
    assert "NumPy arrays gave an output that is not right" in found.notes[-1]


def test_a_wrong_function_is_wrong_in_both_frameworks() -> None:
    def wrong(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v

    assert convicts(wrong, examples=0)


def test_a_norm_of_numpy_that_uses_torch_inside_gets_numpy() -> None:
    import torch

    from symattn import RMSNorm, verify

    def norm(x: Any, weight: Any, eps: float = 1e-5) -> Any:
        return torch.nn.functional.rms_norm(torch.from_numpy(x), weight.shape, torch.from_numpy(weight), eps).numpy()

    report = verify(norm, RMSNorm(), examples=0)
    assert report.verdict.value == "no fault"
    assert any("NumPy arrays are passed, since tensors gave" in n for n in report.notes)

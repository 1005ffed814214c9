"""The examples of docs/kernels.md: each passes as it stands, and its assertion refuses another output."""

import re
from pathlib import Path
from typing import Any

import pytest

from symattn import Attention
from symattn.testing import AttentionFault, assert_close_to_exact

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"
_EXAMPLE = re.compile(r"^## (.+?)$|<!-- run: (\w+) -->\n```python\n(.*?)```", re.MULTILINE | re.DOTALL)


def examples(mark: str) -> list[Any]:
    """The examples with a mark, by the headings that they stand under."""
    found, heading = [], ""
    for title, marked, code in _EXAMPLE.findall(_PAGE.read_text(encoding="utf-8")):
        heading = title or heading
        if marked == mark:
            found.append(pytest.param(heading, code, id=f"{heading} {len(found)}"))
    return found


def play(code: str, names: dict[str, Any]) -> None:
    """Run an example; its assertion has to refuse the same output with its rows in reverse."""
    asked: list[tuple[Any, ...]] = []

    def asserted(*given: Any, **told: Any) -> None:
        assert_close_to_exact(*given, **told)
        out, *inputs = given
        wrong = out.flip(-2) if hasattr(out, "flip") else out[..., ::-1, :]
        with pytest.raises(AttentionFault):
            assert_close_to_exact(wrong, *inputs, **told)
        asked.append(given)

    exec(compile(code, str(_PAGE), "exec"), {"Attention": Attention, **names, "assert_close_to_exact": asserted})
    assert len(asked) == 1
    assert len(code.splitlines()) <= 6


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # of torch: flex_attention is not compiled; the compiler is deprecated in parts
@pytest.mark.parametrize(("heading", "code"), examples("torch"))
def test_with_torch(heading: str, code: str) -> None:
    import torch
    from torch.nn.attention import flex_attention as flex

    torch.manual_seed(0)
    names = {n: getattr(flex, n) for n in ("flex_attention", "create_block_mask", "create_mask")}
    play(code, {"torch": torch, **names})


@pytest.mark.jax
@pytest.mark.parametrize(("heading", "code"), examples("jax"))
def test_with_jax(heading: str, code: str) -> None:
    play(code, _jax())


@pytest.mark.guests
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("heading", "code"), examples("guests"))
def test_with_others(heading: str, code: str) -> None:
    play(code, {"ONNX Runtime": _onnxruntime, "Triton": _triton}[heading]())


@pytest.mark.guests
def test_tritons_interpreter_is_told_apart_from_a_kernel() -> None:
    import numpy as np

    from symattn.programs.calls import Target
    from symattn.programs.request import Request
    from symattn.programs.target import target

    names = _triton()

    def attention(q: Any, k: Any, v: Any) -> Any:
        out = names["torch"].empty_like(q, dtype=names["torch"].float16)
        names["flash"][(1,)](q, k, v, out, 32, 32**-0.5, D=32, T=32)
        return out

    def called(dtype: str) -> Target:
        return target(attention, Request(dtype=dtype, framework="torch", layout="nd"))

    inputs = dict(zip("qkv", np.random.default_rng(0).integers(-2, 3, (3, 32, 32)).astype(float), strict=True))
    assert called("float16").run(inputs).runtime == ""
    assert "itself multiplies matrices wrong in bfloat16" in called("bfloat16").run(inputs).runtime
    q = names["torch"].zeros(1, 32, dtype=names["torch"].bfloat16)
    with pytest.raises(AttentionFault, match=r"\Atriton .* itself multiplies .*\n.*not the fault of the function"):
        assert_close_to_exact(q + 1, q, q, q)


def _jax() -> dict[str, Any]:
    import jax
    import numpy as np

    return {"jax": jax, "np": np}


def _onnxruntime() -> dict[str, Any]:
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

    shape = (1, 4, 128, 64)
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, shape) for n in "qkv"]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)]
    node = helper.make_node("Attention", list("qkv"), ["y"], is_causal=1)
    graph = helper.make_graph([node], "attention", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return {"np": np, "onnxruntime": onnxruntime, "model": model}


def _triton() -> dict[str, Any]:
    import os

    os.environ["TRITON_INTERPRET"] = "1"
    import torch

    from tests.docs.triton_kernel import flash

    torch.manual_seed(0)
    return {"torch": torch, "flash": flash}

"""Where the reference implementation of the package does not do what the operators' text says; no case shows it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.programs.onnx.cases import Case, model
from tests.programs.onnx.judging import judge

pytestmark = pytest.mark.onnx


def drawn(dtype: str, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.normal(size=shape).astype(dtype) for shape in shapes]


def made(
    inputs: dict[str, np.ndarray], outputs: str = "Y", operator: str = "Attention", opset: int = 25, **attributes: Any
) -> Case:
    """A case whose expected outputs are still to come."""
    import onnx

    domain, opset = ("ai.onnx.preview", 1) if operator == "FlexAttention" else ("", opset)
    names = outputs.replace("-", "").split(" ")
    node = onnx.helper.make_node(operator, list(inputs), names, domain=domain, **attributes)
    return Case("made", opset, node, inputs, {})


def computed(case: Case, inlined: bool = False) -> Case:
    """The case with what the reference gives, for the node or for the function that defines it."""
    from onnx.inliner import inline_selected_functions
    from onnx.reference import ReferenceEvaluator

    whole = model(case)
    if inlined:
        whole = inline_selected_functions(whole, [(case.node.domain, case.operator)], inline_schema_functions=True)
    names = [name for name in case.node.output if name]
    results = ReferenceEvaluator(whole).run(names, dict(case.inputs))
    return replace(case, expected=dict(zip(names, results, strict=True)))


QKV = dict(zip("QKV", drawn("float32", (1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6)), strict=True))


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_scores_that_are_shown_without_a_cap(mode: int) -> None:
    """Mode 0 shows the product of queries and keys; the reference shows it capped, the operator's function does not."""
    case = made(QKV, "Y - - S", softcap=0.5, qk_matmul_output_mode=mode)
    assert judge(computed(case, inlined=True)).reproduced
    assert judge(computed(case)).reproduced == (mode != 0)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1, 1, 5), (3, 5)])
def test_a_causal_mask_beside_a_mask_without_an_axis_of_queries(shape: tuple[int, ...]) -> None:
    """Such as one of padding. Without a window, the reference takes the frontier of the first query for every query,
    or stops where there is one axis; the operator's function does not."""
    case = made({**QKV, "mask": np.broadcast_to(np.arange(5) != 2, shape)}, is_causal=1)
    assert judge(computed(case, inlined=True)).reproduced
    assert judge(computed(made(dict(case.inputs), is_causal=1, left_window_size=5))).reproduced
    if len(shape) == 1:
        with pytest.raises(ValueError, match="not enough values to unpack"):
            computed(case)
    else:
        assert judge(computed(case)).reproduced == (shape == (3, 5))


@pytest.mark.parametrize("opset", [23, 24])
def test_a_mask_of_one_column(opset: int) -> None:
    """Opset 23 repeats it, later ones hide the other keys: so does the operator's function, and the reference hides
    them in both."""
    case = made({**QKV, "mask": np.array([[0.5], [-1], [2]], np.float32)}, opset=opset)
    assert judge(computed(case, inlined=True)).reproduced
    assert judge(computed(case)).reproduced == (opset != 23)


@pytest.mark.parametrize(("d_k", "reproduced"), [(16, True), (8, False)])
def test_flex_attention_of_doubles(d_k: int, reproduced: bool) -> None:
    """The reference rounds √scale to float32, so that its doubles are singles unless that is exact."""
    inputs = dict(zip("QKV", drawn("float64", (1, 2, 3, d_k), (1, 2, 5, d_k), (1, 2, 5, 6)), strict=True))
    assert judge(computed(made(inputs, operator="FlexAttention"))).reproduced == reproduced

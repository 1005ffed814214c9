"""The cases of ONNX are what the definitions give, and what is changed is not."""

import doctest
import importlib.metadata
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, functional, graphs
from tests.programs.onnx.cases import OPERATORS, Case, cases, held
from tests.programs.onnx.judging import Outcome, compare, judge, lifting, outcomes
from tests.programs.onnx.page import PAGE, every, inside, made

pytestmark = pytest.mark.onnx
ROOT = Path(__file__).parents[3]

# Cases whose expected outputs differ from the definition by more than rounding, each with the reason.
DIFFERENT: dict[str, str] = {}


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_case_is_reproduced(operator: str) -> None:
    found = {o.case.name: o.differences for o in outcomes(operator)}
    assert found
    assert {name: words for name, words in found.items() if words and name not in DIFFERENT} == {}
    assert not [name for name in DIFFERENT if name in found and not found[name]], "reproduced by now"


def test_every_case_that_the_package_holds_is_there() -> None:
    """The package's own list, of which the modules of the operators hold all."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = collect_testcases(None)
    names = {c.name for c in every if c.model.graph.node[0].op_type in OPERATORS and "_expanded" not in c.name}
    assert {case.name for case in cases()} == names
    assert sum(held().values()) == len(names)


def test_the_version_is_the_one_that_is_pinned() -> None:
    assert f"onnx=={importlib.metadata.version('onnx')}" in (ROOT / ".ci" / "run").read_text(encoding="utf-8").split()
    assert sum(held().values()) == 178


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_output_that_is_off_by_a_few_bounds_is_refused(operator: str) -> None:
    """One element moved by four times what is allowed, in every output of every case."""
    for outcome in outcomes(operator):
        for name in outcome.case.expected:
            changed = moved(outcome, name)
            assert changed is None or not compare(changed, outcome.given).reproduced, (outcome.case.name, name)


def moved(outcome: Outcome, name: str) -> Case | None:
    """The case with an element moved, the one for which least is allowed; None if all are −∞."""
    given, expected = outcome.given[name], outcome.case.expected[name].astype(np.float64)
    allowed = np.where(np.isfinite(expected), given.bound, np.inf)
    if not np.isfinite(allowed).any():
        return None
    place = allowed.argmin()
    expected.flat[place] = np.nextafter(expected.flat[place] + 4 * allowed.min(), np.inf)
    return replace(outcome.case, expected={**outcome.case.expected, name: expected})


CHANGED: list[tuple[str, dict[str, Any]]] = [
    ("test_attention_3d_scaled", {"scale": 0.0101}),
    ("test_attention_3d_scaled", {"scale": None}),
    ("test_attention_4d", {"scale": 1 / 8}),
    ("test_attention_4d_causal", {"is_causal": None}),
    ("test_attention_4d_causal_bf16", {"is_causal": None}),
    ("test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal", {"is_causal": None}),
    ("test_attention_4d_causal_nonpad_continued_prefill", {"is_causal": None}),
    ("test_attention_4d_softcap", {"softcap": None}),
    ("test_attention_3d_softcap", {"softcap": 2.9}),
    ("test_attention_4d_softcap_neginf_mask", {"softcap": None}),
    ("test_attention_3d", {"q_num_heads": 1, "kv_num_heads": 1}),
    ("test_attention_bidirectional_window", {"left_window_size": 2}),
    ("test_attention_bidirectional_window", {"right_window_size": 1}),
    ("test_attention_bidirectional_window", {"right_window_size": -1}),
    ("test_attention_local_window", {"left_window_size": 1}),
    ("test_attention_local_window_with_past", {"left_window_size": 3}),
    ("test_attention_24_fullymasked_qk_matmul_output_mode3_zero", {"qk_matmul_output_mode": 2}),
    ("test_attention_4d_with_qk_matmul_softcap", {"qk_matmul_output_mode": 0}),
    ("test_flexattention_causal_mask", {"score_mod": None}),
    ("test_flexattention_soft_cap", {"score_mod": None}),
    ("test_flexattention_prob_mod", {"prob_mod": None}),
    ("test_linear_attention_decode_step", {"update_rule": "delta"}),
    ("test_linear_attention_decode_step", {"update_rule": "gated"}),
    ("test_linear_attention_decode_step", {"scale": 0.5}),
    ("test_softmax_axis_0", {"axis": 1}),
    ("test_logsoftmax_axis_2", {"axis": 1}),
    ("test_layer_normalization_3d_axis0_epsilon", {"epsilon": None}),
    ("test_rms_normalization_3d_axis2_epsilon", {"epsilon": 0.11}),
    ("test_rotary_embedding", {"interleaved": 1}),
    ("test_rotary_embedding_no_position_ids_interleaved", {"interleaved": 0}),
]


@pytest.mark.parametrize(("name", "attributes"), CHANGED)
def test_another_attribute_is_refused(name: str, attributes: dict[str, Any]) -> None:
    assert not judge(named(name).with_attributes(**attributes)).reproduced


def named(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def another(name: str, change: Callable[[Any], Any]) -> Outcome:
    """A case of one output, compared with something else made of its attention."""
    case = named(name)
    lift = lifting(case.dtype)
    return compare(case, {"Y": change(graphs.attention_of(case.node, {n: lift(x) for n, x in case.inputs.items()}))})


def test_the_other_alignment_is_refused() -> None:
    def aligned(found: Any) -> Any:
        assert found.spec.alignment == "top-left"
        return replace(found.spec, alignment="bottom-right")(**found.inputs)

    assert another("test_attention_4d_causal", lambda found: found.spec(**found.inputs)).reproduced
    assert not another("test_attention_4d_causal", aligned).reproduced


def test_the_other_order_of_heads_is_refused() -> None:
    """Query head h reads the head ⌊h / r⌋ of keys, not h mod r."""

    def tiled(found: Any) -> Any:

        shared = {role: functional.tile_heads(found.inputs[role], 2) for role in "kv"}
        return replace(found.spec, kv_heads=None)(**{**found.inputs, **shared})

    name = "test_attention_4d_gqa_causal_nonpad_decode"
    assert another(name, lambda found: found.spec(**found.inputs)).reproduced
    assert not another(name, tiled).reproduced


def test_modifiers_that_are_fields_of_attention() -> None:
    """The graphs of FlexAttention that mask later keys, and that cap, are what these fields say."""
    for name, fields in (
        ("test_flexattention_causal_mask", {"causal": True, "alignment": "top-left"}),
        ("test_flexattention_soft_cap", {"softcap": 20.0}),
    ):
        case = named(name)
        lift = lifting(case.dtype)
        given = dict(zip("qkv", (lift(x) for x in case.inputs.values()), strict=True))
        (expected,) = case.expected
        assert compare(case, {expected: Attention(heads=2, **fields)(**given)}).reproduced
        assert not compare(case, {expected: Attention(heads=2)(**given)}).reproduced


#: Values of attributes that are not whole numbers, or not 1 by their kind.
_VALUES = {"scale": 0.5, "softcap": 2.0, "qk_matmul_output_mode": 0}


@pytest.mark.parametrize(
    ("operator", "domain", "opset", "shape"),
    [("Attention", "", 25, (1, 2, 4)), ("FlexAttention", "ai.onnx.preview", 1, (1, 1, 2, 4))],
)
def test_every_attribute_of_an_operator_is_read(operator: str, domain: str, opset: int, shape: tuple[int, ...]) -> None:
    import onnx

    names = onnx.defs.get_schema(operator, opset, domain).attributes.keys() - {"score_mod", "prob_mod"}
    attributes = {name: _VALUES.get(name, 1) for name in names}
    arrays = {name: np.ones(shape, np.float32) for name in "qkv"}
    node = onnx.helper.make_node(operator, [*"qkv"], ["y"], domain=domain, **attributes)
    assert graphs.attention_of(node, arrays).spec.scale == 0.5
    other = onnx.helper.make_node(operator, [*"qkv"], ["y"], domain=domain, nonsense=1)
    with pytest.raises(InputError, match="nonsense"):
        graphs.attention_of(other, arrays)


@pytest.mark.parametrize("opset", [23, 24])
def test_what_an_older_opset_lacks_is_refused(opset: int) -> None:
    import onnx

    helper, latest = onnx.helper, onnx.defs.get_schema("Attention", 25, "")
    older = onnx.defs.get_schema("Attention", opset, "")
    arrays = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 3, 4]) for name in "qkvy"]
    lengths = onnx.numpy_helper.from_array(np.array([3]), "lengths")
    inputs = [i.name for i in latest.inputs]
    later = [([*"qkv"], {name: 1}) for name in latest.attributes.keys() - older.attributes.keys()]
    later += [([*"qkv", *[""] * (inputs.index(name) - 3), "lengths"], {})
              for name in inputs if name not in [i.name for i in older.inputs]]  # fmt: skip
    for given, attributes in later:
        node = helper.make_node("Attention", given, ["y"], **attributes)
        graph = helper.make_graph([node], "g", arrays[:3], arrays[3:], [lengths])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        with pytest.raises(InputError, match=f"opset {opset} has no "):
            graphs.verify_graph(model, Attention())
    assert len(later) == {23: 3, 24: 2}[opset]


def test_the_page_shows_what_a_run_gives() -> None:
    """docs/onnx.md; ``python -m tests.programs.onnx.page`` writes its tables."""
    assert inside(PAGE.read_text(encoding="utf-8")) == made(every())


def test_the_example_of_the_page() -> None:
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0


def test_a_case_that_differs_is_listed() -> None:
    (first, *_) = outcomes("Softmax")
    listed = made([replace(first, differences=("y: 1 of 3 elements",))])
    assert f"- `{first.case.name}`: y: 1 of 3 elements" in listed
    assert "| Softmax-13 | 1 | 0 |" in listed

"""Operators and versions of ONNX that are easily misread: as the standard has them, or refused."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto
from onnx.helper import make_node, make_tensor_value_info

from symattn import Attention, InputError, graphs
from symattn.programs.graphs.graph_operators import divide_whole
from symattn.programs.graphs.values import Context, cast
from tests.programs.graphs.models import bare, layer
from tests.refusals import refuses

pytestmark = pytest.mark.onnx
_LIKE = Context(np.zeros(1))


def _verdict(model: Any) -> str:
    return graphs.verify_graph(model, Attention(), prove=False).verdict.value


def test_the_bare_graph_passes() -> None:
    assert _verdict(bare()) == "no fault"


def test_a_cast_of_computed_numbers_to_whole_ones_is_refused() -> None:
    cut = [make_node("Cast", ["q"], ["whole"], to=TensorProto.INT64)]
    cut += [make_node("Cast", ["whole"], ["q2"], to=TensorProto.FLOAT)]
    refuses(_verdict, bare(cut), says="cast of computed numbers to whole ones")
    alike = [make_node("CastLike", ["q", "like"], ["q2"])]
    assert _verdict(bare(alike, like=np.float32(1))) == "no fault"
    refuses(_verdict, bare(alike, like=np.int64(1)), says="cast of computed numbers to whole ones")


def test_a_constant_is_cut_off_by_a_cast() -> None:
    to = [make_node("Identity", ["q"], ["q2"]), make_node("Cast", ["scale"], ["whole"], to=TensorProto.INT64)]
    to += [make_node("Cast", ["whole"], ["used"], to=TensorProto.FLOAT)]
    assert _verdict(bare(to, scale=np.float32(0.5))) == "fault"
    kept = [to[0], make_node("Cast", ["scale"], ["used"], to=TensorProto.FLOAT16)]
    assert _verdict(bare(kept, scale=np.float32(0.5))) == "no fault"


def test_casts_of_plain_values() -> None:
    assert cast(_LIKE, -1.7, "int") == -1
    assert cast(_LIKE, np.array([True, True]), "int").sum() == 2
    assert cast(_LIKE, 0.5, "bool")
    refuses(cast, _LIKE, -np.inf, "int", says="infinite")


def test_whole_numbers_are_divided_toward_zero() -> None:
    assert divide_whole(_LIKE, np.array([-7, 7, -7]), np.array([2, -2, -2])).tolist() == [-3, -3, 3]
    refuses(divide_whole, _LIKE, np.array(1), np.array(0), says="divided by 0")


@pytest.mark.parametrize("opset", [10, 26])
def test_another_opset_is_refused(opset: int) -> None:
    with pytest.raises(InputError, match=f"is of opset {opset}"):
        _verdict(bare(opset=opset))


def test_softmax_of_old_opsets_is_over_all_axes_from_its_own() -> None:
    for flat in (None, 1, -2):
        refuses(_verdict, bare(opset=11, flat=flat), says="Softmax over several axes")
    assert _verdict(bare(opset=11, flat=2)) == _verdict(bare(opset=12, flat=-1)) == "no fault"
    assert _verdict(bare(opset=13)) == "no fault"


def test_flatten_gives_two_axes() -> None:
    there = make_node("Flatten", ["q"], ["rows"], axis=2)
    back = [make_node("Shape", ["q"], ["lengths"]), make_node("Reshape", ["rows", "lengths"], ["q2"])]
    assert _verdict(bare([there, *back])) == "no fault"
    refuses(_verdict, bare([there, make_node("Transpose", ["rows"], ["q2"], perm=[0, 1, 2])]), says="Transpose")


def test_a_reduction_over_no_axes_may_do_nothing() -> None:
    assert _verdict(bare([make_node("ReduceSum", ["q"], ["q2"], noop_with_empty_axes=1)])) == "no fault"
    with pytest.raises(InputError, match="MatMul"):  # one number is left, which no longer fits
        _verdict(bare([make_node("ReduceSum", ["q"], ["q2"])]))


_WRONG = {
    "no attribute": [make_node("Constant", [], ["one"]), make_node("Mul", ["q", "one"], ["q2"])],
    "no inputs": [make_node("Identity", ["q"], ["q2"]), make_node("MatMul", [], ["spare"])],
    "an axis twice": [make_node("Transpose", ["q"], ["q2"], perm=[0, 0, 1])],
    "no such axis": [make_node("Concat", ["q"], ["q2"], axis=9)],
}


@pytest.mark.parametrize("name", list(_WRONG))
def test_a_node_that_cannot_be_computed_ends_the_run(name: str) -> None:
    with pytest.raises(InputError, match=_WRONG[name][-1 if name != "no attribute" else 0].op_type):
        _verdict(bare(_WRONG[name]))


@pytest.mark.parametrize("length", [-3, 0, 10**7])
def test_a_length_that_no_axis_has_is_refused(length: int) -> None:
    model = bare()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = length
    with pytest.raises(InputError, match=f"has the length {length}"):
        _verdict(model)


def test_axes_that_are_too_long_together_are_refused() -> None:
    model = bare()
    for given in model.graph.input:
        given.type.tensor_type.shape.dim[1].dim_value = 2**16
    refuses(_verdict, model, says="entries; at most")


@pytest.mark.parametrize(("kind", "held"), [("FLOAT", 1), ("FLOAT", 0), ("BFLOAT16", 3)])
def test_data_of_another_length_is_refused(kind: str, held: int) -> None:
    model = bare([make_node("Add", ["q", "b_q"], ["q2"])], b_q=np.zeros(4, np.float32))
    array = model.graph.initializer[0]
    array.ClearField("raw_data")
    array.data_type = getattr(TensorProto, kind)
    getattr(array, "float_data" if kind == "FLOAT" else "int32_data").extend([0] * held)
    with pytest.raises(InputError, match=f"holds {held} numbers; the file is damaged"):
        _verdict(model)


def test_the_first_output_is_judged() -> None:
    model = bare()
    model.graph.output.insert(0, make_tensor_value_info("w", TensorProto.FLOAT, ["b", "n", "n"]))
    assert _verdict(model) == "fault"
    model.graph.output.append(model.graph.output.pop(0))
    assert _verdict(model) == "no fault"


def test_a_weight_that_is_the_output_is_a_fault() -> None:
    model = layer()
    del model.graph.node[-2:]  # no node takes c_proj.weight any more
    model.graph.output[0].CopyFrom(make_tensor_value_info("c_proj.weight", TensorProto.FLOAT, [8, 4]))
    assert graphs.verify_graph(model, Attention(causal=True, heads=2), prove=False).verdict.value == "fault"


def test_a_weight_that_no_node_takes_is_no_hindrance() -> None:
    assert _verdict(bare(w_o=np.zeros((4, 4), np.float32))) == "no fault"


def test_a_name_that_no_array_has_is_refused() -> None:
    refuses(graphs.verify_graph, bare(), Attention(), names={"q": "typo"}, says="no input or weight called 'typo'")


def _scaled_by(nodes: list[Any], **constants: Any) -> Any:
    """The bare graph, whose scale those nodes make of constants."""
    return bare([make_node("Identity", ["q"], ["q2"]), *nodes], scale=np.float32(1), **constants)


def test_a_range_of_floats_is_divided_as_floats() -> None:
    nodes = [make_node("Range", ["zero", "two", "one"], ["r"]), make_node("Div", ["r", "two"], ["halves"])]
    nodes += [make_node("ReduceSum", ["halves"], ["used"], keepdims=0)]
    floats = {n: np.float32(x) for n, x in (("zero", 0), ("one", 1), ("two", 2))}
    assert _verdict(_scaled_by(nodes, **floats)) == "no fault"  # 0/2 + 1/2
    with pytest.raises(InputError, match="a range of numbers that are not whole"):
        _verdict(_scaled_by(nodes, **floats | {"two": np.float32(2.5)}))


@pytest.mark.parametrize(("number", "fits"), [(250, True), (256, False), (-1, False)])
def test_a_cast_keeps_what_fits_alone(number: int, fits: bool) -> None:
    nodes = [make_node("Cast", ["n"], ["byte"], to=TensorProto.UINT8), make_node("Sub", ["byte", "byte"], ["zero"])]
    nodes += [
        make_node("Cast", ["zero"], ["nought"], to=TensorProto.FLOAT),
        make_node("Add", ["nought", "half"], ["used"]),
    ]
    model = _scaled_by(nodes, n=np.int64(number), half=np.float32(0.5))
    if fits:
        assert _verdict(model) == "no fault"
    else:
        with pytest.raises(InputError, match=f"Cast: {number} does not fit uint8"):
            _verdict(model)


def test_a_sum_of_bytes_that_wraps_around_is_refused() -> None:
    nodes = [make_node("Add", ["n", "n"], ["sum"]), make_node("Cast", ["sum"], ["used"], to=TensorProto.FLOAT)]
    refuses(_verdict, _scaled_by(nodes, n=np.uint8(200)), says="Add: 400 does not fit uint8")

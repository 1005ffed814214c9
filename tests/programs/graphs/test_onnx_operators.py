"""Operators and versions of ONNX that are easily misread: as the standard has them, or refused."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto
from onnx.helper import make_node, make_tensor_value_info

from symattn import Attention, InputError, graphs
from tests.programs.graphs.models import bare, layer
from tests.refusals import refuses

pytestmark = pytest.mark.onnx


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


def _scaled_by_quotient(nodes: list[Any], number: float, **constants: Any) -> Any:
    """Attention scaled by half of ``computed`` / number, where the nodes compute it: right if both are equal."""
    nodes = [make_node("Identity", ["q"], ["q2"]), *nodes, make_node("Cast", ["computed"], ["f"], to=TensorProto.FLOAT)]
    nodes.append(make_node("Mul", ["f", "factor"], ["used"]))
    return bare(nodes, scale=np.float32(1), factor=np.float32(0.5 / number), **constants)


def test_casts_of_plain_values() -> None:
    for value, to, number in (
        (np.float32(-1.7), TensorProto.INT64, -1),
        (np.array([True]), TensorProto.INT64, 1),
        (np.float32(0.5), TensorProto.BOOL, 1),
    ):
        cast = [make_node("Cast", ["value"], ["computed"], to=to)]
        assert _verdict(_scaled_by_quotient(cast, number, value=value)) == "no fault"
    cast = [make_node("Cast", ["value"], ["computed"], to=TensorProto.INT64)]
    refuses(_verdict, _scaled_by_quotient(cast, 1, value=np.float32(-np.inf)), says="infinite")


def _whole(operator: str, a: int, b: int, number: float = 1.0) -> Any:
    return _scaled_by_quotient([make_node(operator, ["a", "b"], ["computed"])], number, a=np.int64(a), b=np.int64(b))


@pytest.mark.parametrize(("a", "b", "quotient"), [(-7, 2, -3), (7, -2, -3), (-7, -2, 3)])
def test_whole_numbers_are_divided_toward_zero(a: int, b: int, quotient: int) -> None:
    assert _verdict(_whole("Div", a, b, quotient)) == "no fault"
    refuses(_verdict, _whole("Div", a, 0), says="divided by 0")


@pytest.mark.parametrize(
    ("operator", "a", "b"),
    [("Pow", 10, 10**15), ("Pow", 2, 63), ("Mul", 2**32, 2**31), ("Add", 2**62, 2**62)],
)
def test_what_64_bits_do_not_hold_is_refused_and_not_computed_first(operator: str, a: int, b: int) -> None:
    with pytest.raises(InputError, match="beyond 64 bits"):
        _verdict(_whole(operator, a, b))


@pytest.mark.parametrize(
    ("operator", "a", "b", "number"),
    [("Pow", 2, 62, 2.0**62), ("Pow", 1, 10**15, 1), ("Pow", 3, 0, 1), ("Add", -1, 5, 4)],
)
def test_what_64_bits_hold_is_computed(operator: str, a: int, b: int, number: float) -> None:
    assert _verdict(_whole(operator, a, b, number)) == "no fault"


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

"""Read ONNX models into the common form. A file is not trusted; of weights only the shapes are read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from symattn.document.errors import InputError, MissingExtra
from symattn.programs.graphs.onnx_table import ONNX, TYPES
from symattn.programs.graphs.running import Graph, GraphArray, GraphNode, Ref
from symattn.programs.graphs.values import UNKNOWN, Value, as_int64, type_name
from symattn.programs.onnx import FLOATS
from symattn.programs.refusing import one_line

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

# A larger model is refused before it is parsed; weights can be external data.
MOST_BYTES = 2**28
_SMALL = 2**16  # most entries of a constant
# More axes than this are taken for a damaged file.
_MOST_AXES = 16
_LONGEST = 2**16  # largest fixed length of an input's axis
#: The opsets whose operators the table describes.
_OPSETS = range(11, 26)
_FLATTENING = 13  # the first opset whose Softmax is over one axis


def read(path: str | Path) -> Graph:
    """Return the graph of an .onnx file.

    Initializers of floats with axes are weights with arbitrary numbers; others are constants. Raises ``InputError`` for
    a file that cannot be read, is damaged or too large, and for data outside of its folder; ``MissingExtra`` if onnx is
    not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtra("onnx", "onnx") from error
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(
                f"{path} is larger than {MOST_BYTES >> 20} MiB; hint: weights as external data"
            )
        model = onnx.load_model_from_string(file.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except InputError:
        raise
    except Exception as error:  # protobuf's own, which is untyped
        raise InputError(
            f"{path} is not an ONNX model, or is damaged: {str(error)[:100]}"
        ) from None
    return of_model(model, file)


def of_model(model: ModelProto, file: Path = Path("model.onnx")) -> Graph:
    """Return the graph of a ``ModelProto``; ``file`` gives its name and the place of its external data."""
    g, name = model.graph, file.name
    arrays = {a.name: a for a in g.initializer}
    # A second array of one name would replace the first one unnoticed.
    if len(arrays) < len(g.initializer) or g.sparse_initializer:
        raise InputError(f"{name}: sparse initializers, and two with one name, are not read")
    # Older exporters list initializers among the inputs, too.
    inputs = tuple(
        _read_onnx_graph_input(name, v, place)
        for place, v in enumerate(g.input)
        if v.name not in arrays
    )
    weights, constants = [], {}
    for key, a in arrays.items():
        shape = _check_initializer_shape(f"{name}: {key[:40]!r}", a, file)
        # The numbers of weights do not matter; a scalar, such as a scale, keeps its value.
        if a.data_type in FLOATS and len(shape) > 0:
            weights.append(GraphArray(key, shape, label=_label_of_onnx_weight(g, key)))
        else:
            constants[key] = _read_onnx_constant(f"{name}: {key[:40]!r}", a, shape)
    opset, spelled = _read_supported_opset(name, model), _inline_missing_operators(name, model)
    known = (*spelled.input, *spelled.value_info, *spelled.output)
    types = {v.name: _convert_onnx_type_number(v.type.tensor_type.elem_type) for v in known}
    nodes = tuple(_convert_onnx_node(name, n, opset, types) for n in spelled.node)
    outputs = tuple(v.name for v in g.output)
    # The first output is the one that is judged.
    return Graph(ONNX, name, inputs, tuple(weights), constants, nodes, outputs[:1])


def _read_supported_opset(name: str, model: ModelProto) -> int:
    """Return the version of ONNX's own operators. Raises ``InputError`` for an unsupported one."""
    # Operators of other domains have versions of their own.
    result = {o.version for o in model.opset_import if o.domain in ("", "ai.onnx")}
    if len(result) != 1 or not result <= set(_OPSETS):
        outcome = (
            f"is of opset {', '.join(map(str, sorted(result)))}"
            if result
            else "is empty, or names no opset"
        )
        raise InputError(
            f"{name} {outcome}; {_OPSETS[0]} to {_OPSETS[-1]} are read; hint: another export"
        )
    return int(result.pop())


def _inline_missing_operators(name: str, model: ModelProto) -> GraphProto:
    """Return the graph without its numbers, with types of values, and with operators missing in the table inlined.

    ONNX itself inlines what it defines by other operators. The model's own functions are left as they are, since they
    may grow without limit. Raises ``InputError`` if type inference fails.
    """
    from onnx import defs, helper, inliner, shape_inference

    g = model.graph
    # Initializers become typed inputs without numbers, of which inference needs the shapes only.
    known = [helper.make_tensor_value_info(a.name, a.data_type, a.dims) for a in g.initializer]
    graph = helper.make_graph(g.node, g.name, [*g.input, *known], g.output, value_info=g.value_info)
    bare = helper.make_model(graph, opset_imports=model.opset_import)
    others = [
        ("", schema.name) for schema in defs.get_all_schemas() if schema.name not in ONNX.rules
    ]
    with suppress(Exception):  # untyped errors of its C++; remaining operators are refused by name
        bare = inliner.inline_selected_functions(bare, others, inline_schema_functions=True)
    try:
        return shape_inference.infer_shapes(bare).graph
    except Exception as error:
        raise InputError(f"{name}: {one_line(error).partition('] ')[2][:120]}") from None


def _convert_onnx_type_number(number: int) -> str:
    from onnx import TensorProto

    known = number in TensorProto.DataType.values()
    return (
        # ONNX calls float64 DOUBLE.
        type_name(TensorProto.DataType.Name(number).lower().replace("double", "float64"))
        if known
        else ""
    )


def _label_of_onnx_weight(graph: GraphProto, key: str) -> str:
    """Return the label of a weight: its name, or, if an exporter made that up, the layer of the node that takes it."""
    if not key.startswith("onnx::"):
        return key
    user = next((n.name for n in graph.node if key in n.input), "")
    return ".".join([*user.strip("/").split("/")[:-1], "weight"])


def _read_onnx_graph_input(name: str, value: ValueInfoProto, place_of_input: int) -> GraphArray:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise InputError(f"{name}: the input {value.name[:40]!r} is not a tensor of known axes")
    shape: list[int | str] = []
    for k, n in enumerate(tensor.shape.dim):
        if n.HasField("dim_value") and not 1 <= n.dim_value <= _LONGEST:
            place = f"{name}: the input {value.name[:40]!r} has the length {n.dim_value}"
            raise InputError(f"{place}; 1 to {_LONGEST} is read; hint: leave that axis open")
        # An open axis without a usable name has a length of its own, named by its place: two are not equal.
        letter = n.dim_param if n.dim_param.isidentifier() else f"_n_{place_of_input}_{k}"
        shape.append(n.dim_value if n.HasField("dim_value") else letter)
    return GraphArray(value.name, tuple(shape), tensor.elem_type in FLOATS)


def _check_initializer_shape(place: str, a: TensorProto, file: Path) -> tuple[int, ...]:
    """Return the shape of an initializer; check that its data fits, or is in a file next to the model."""
    shape = tuple(a.dims)
    if len(shape) > _MOST_AXES or any(n < 0 for n in shape):
        raise InputError(f"{place} has the shape {shape[:_MOST_AXES]}; the file is damaged")
    if (
        a.data_location == 1
    ):  # in a file, which is not read, and must nevertheless be in the model's folder
        location = {e.key: e.value for e in a.external_data}.get("location", "")
        folder = file.resolve().parent
        # Resolved first, so that neither links nor ``..`` lead out of the folder.
        there = (folder / location).resolve()
        if not there.is_relative_to(folder) or there == folder:
            raise InputError(
                f"{place} has its data at {location[:80]!r}, outside of the model's folder"
            )
    else:
        _check_data(place, a, shape)
    return shape


def _check_data(place: str, a: TensorProto, shape: tuple[int, ...]) -> None:
    """Raise ``InputError`` if an array of a supported type has another number of entries than its shape."""
    from onnx import helper

    # Weights of other types are refused where an operator reads them.
    if a.data_type not in TYPES:
        return
    if a.HasField("raw_data"):
        unit, count, entry = (
            "bytes",
            len(a.raw_data),
            helper.tensor_dtype_to_np_dtype(a.data_type).itemsize,
        )
    # Without raw bytes, the numbers stand in a field for their type.
    else:
        unit, count, entry = (
            "numbers",
            len(getattr(a, helper.tensor_dtype_to_field(a.data_type))),
            1,
        )
    if math.prod(shape) * entry != count:
        raise InputError(
            f"{place} has the shape {shape}, and holds {count} {unit}; the file is damaged"
        )


def _read_onnx_constant(place: str, a: TensorProto, shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of a constant."""
    from onnx import numpy_helper

    # Checked before the array is allocated: a small file may claim a large shape.
    if math.prod(shape) > _SMALL or a.data_location == 1:
        raise InputError(
            f"{place} is a constant of shape {shape}; at most {_SMALL} entries in the model itself are read"
        )
    try:
        values = np.asarray(numpy_helper.to_array(a))
        return as_int64(values) if values.dtype.kind in "iu" else values
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(f"{place} cannot be read: {str(error)[:80]}") from None


def _convert_onnx_node(
    name: str, proto: NodeProto, opset: int, types: Mapping[str, str]
) -> GraphNode:
    operator = (
        proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
    )
    operands = tuple(Ref(i) if i else None for i in proto.input)
    attributes = dict(_yield_onnx_attributes(f"{name}: {operator}", proto))
    # Below opset 13 Softmax flattens the axes from ``axis`` on, which is 1 by default.
    if operator == "Softmax" and opset < _FLATTENING:
        attributes = {"axis": 1, **attributes, "flattening": True}
    if operator == "Attention":
        if "opset" in attributes:  # set below; the operator has no such attribute
            raise InputError(f"{name}: Attention: unknown attribute 'opset'")
        attributes = {**attributes, "opset": opset}
    return GraphNode(
        operator,
        operands,
        tuple(proto.output),
        attributes,
        tuple(types.get(o, UNKNOWN) for o in proto.output),
    )


def _yield_onnx_attributes(place: str, proto: NodeProto) -> Iterator[tuple[str, Value]]:
    from onnx import helper

    for attribute in proto.attribute:
        # Type 4 is a tensor, whose size has to be checked before it is read.
        if attribute.type == 4:
            yield attribute.name, _read_onnx_constant(place, attribute.t, tuple(attribute.t.dims))
            continue
        try:
            value = helper.get_attribute_value(attribute)
        except ValueError as error:
            raise InputError(
                f"{place}: {attribute.name} cannot be read: {str(error)[:80]}"
            ) from None
        yield attribute.name, value.decode(errors="replace") if isinstance(value, bytes) else value

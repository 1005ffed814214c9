"""Models of ONNX in the common form. Nothing of a file is believed; weights are not even read, but for their shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from symattn.errors import InputError, MissingExtra
from symattn.sources.graphs.form import Given, Graph, Node, Ref

MOST_BYTES = 2**28
_FLOATS = (1, 10, 11, 16)  # FLOAT, FLOAT16, DOUBLE, BFLOAT16
_SMALL = 2**16  # entries of a constant
_MOST_AXES = 16


def read(path: str) -> Graph:
    """The graph of an .onnx file.

    Initializers of floats with axes are weights, which any numbers may stand for; others are constants. Raises
    ``InputError`` for a file that cannot be read, is damaged or too large, and for data outside of its folder;
    ``MissingExtra`` where onnx is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtra("onnx", "onnx") from error
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is larger than {MOST_BYTES >> 20} MiB; mend: weights as external data")
        model = onnx.load_model_from_string(file.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except InputError:
        raise
    except Exception as error:  # protobuf's own, which has no types
        raise InputError(f"{path} is no ONNX model, or is damaged: {str(error)[:100]}") from None
    return of_model(model, file)


def of_model(model: Any, file: Path = Path("model.onnx")) -> Graph:
    """The graph of a ``ModelProto``; ``file`` is where it was, for its name and its external data."""
    g, name = model.graph, file.name
    arrays = {a.name: a for a in g.initializer}
    if len(arrays) < len(g.initializer) or g.sparse_initializer:
        raise InputError(f"{name}: sparse initializers, and two with one name, are not read")
    inputs = tuple(_given(name, v) for v in g.input if v.name not in arrays)
    weights, constants = [], {}
    for key, a in arrays.items():
        shape = _shape(f"{name}: {key[:40]!r}", a, file)
        if a.data_type in _FLOATS and len(shape) > 0:
            weights.append(Given(key, shape, label=_label(g, key)))
        else:
            constants[key] = _array(f"{name}: {key[:40]!r}", a, shape)
    nodes = tuple(_node(name, n) for n in g.node)
    outputs = tuple(v.name for v in g.output)
    return Graph("onnx", name, inputs, tuple(weights), constants, nodes, outputs[:1])


def _label(graph: Any, key: str) -> str:
    """What a weight is called: its name, or where an exporter has made that up, the layer of the node that takes it."""
    if not key.startswith("onnx::"):
        return key
    user = next((n.name for n in graph.node if key in n.input), "")
    return ".".join([*user.strip("/").split("/")[:-1], "weight"])


def _given(name: str, value: Any) -> Given:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise InputError(f"{name}: the input {value.name[:40]!r} is no tensor of known axes")
    shape: list[int | str] = []
    for k, n in enumerate(tensor.shape.dim):
        letter = n.dim_param if n.dim_param.isidentifier() else f"n_{len(value.name)}_{k}"
        shape.append(n.dim_value if n.HasField("dim_value") else letter)
    return Given(value.name, tuple(shape), tensor.elem_type in _FLOATS)


def _shape(place: str, a: Any, file: Path) -> tuple[int, ...]:
    """The shape of an initializer, whose data must be as long, or in a file beside the model."""
    shape = tuple(a.dims)
    if len(shape) > _MOST_AXES or any(n < 0 for n in shape):
        raise InputError(f"{place} has the shape {shape[:_MOST_AXES]}; the file is damaged")
    if a.data_location == 1:
        _check_external(place, {e.key: e.value for e in a.external_data}, file)
    elif a.raw_data and a.data_type in (1, 7, 10, 11):
        size = {1: 4, 7: 8, 10: 2, 11: 8}[a.data_type]
        if math.prod(shape) * size != len(a.raw_data):
            raise InputError(f"{place} has the shape {shape}, and holds {len(a.raw_data)} bytes; the file is damaged")
    return shape


def _check_external(place: str, told: Mapping[str, str], file: Path) -> None:
    """Data of weights is not read; a place outside of the model's folder is refused all the same."""
    folder = file.resolve().parent
    there = (folder / told.get("location", "")).resolve()
    if not there.is_relative_to(folder) or there == folder:
        raise InputError(f"{place} has its data at {told.get('location', '')[:80]!r}, outside of the model's folder")


def _array(place: str, a: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of a constant."""
    from onnx import numpy_helper

    if math.prod(shape) > _SMALL or a.data_location == 1:
        raise InputError(
            f"{place} is a constant of shape {shape}; at most {_SMALL} entries in the model itself are read"
        )
    try:
        return np.asarray(numpy_helper.to_array(a))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(f"{place} cannot be read: {str(error)[:80]}") from None


def _node(name: str, proto: Any) -> Node:
    operator = proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
    operands = tuple(Ref(i) if i else None for i in proto.input)
    return Node(operator, operands, tuple(proto.output), dict(_attributes(f"{name}: {operator}", proto)))


def _attributes(place: str, proto: Any) -> Iterator[tuple[str, Any]]:
    from onnx import helper

    for attribute in proto.attribute:
        if attribute.type == 4:
            yield attribute.name, _array(place, attribute.t, tuple(attribute.t.dims))
            continue
        try:
            value = helper.get_attribute_value(attribute)
        except ValueError as error:
            raise InputError(f"{place}: {attribute.name} cannot be read: {str(error)[:80]}") from None
        yield attribute.name, value.decode(errors="replace") if isinstance(value, bytes) else value

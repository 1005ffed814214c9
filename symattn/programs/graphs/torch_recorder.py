"""Record the operators of torch that a function calls, without ``torch.export``, whose import takes seconds.

The function runs on tensors that stand for its inputs. Each holds zeros, from which only shapes, strides and types
come: an operator whose result depends on numbers in another way ends the recording, and so does reading them. So
a graph holds what the function does at these shapes, whatever the numbers are. Operators that write into a tensor, and
those without a rule, also end it: ``torch.export`` then makes functional ones of them, or says why it cannot.

A function may catch the error that ends its recording, and go on in another way than with numbers. So the recording
remembers the first one, and any error of torch, which zeros or tensors without memory may have caused.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.document.errors import InputError
from symattn.programs.frameworks import import_torch
from symattn.programs.graphs.running import Graph, GraphArray, GraphNode, Ref
from symattn.programs.graphs.torch_table import RULES, TORCH
from symattn.programs.graphs.values import Value, as_int64, type_name
from symattn.programs.names import Function
from symattn.programs.refusing import one_line

if TYPE_CHECKING:
    from torch import Tensor

#: Options for where a tensor is stored, not what it is.
PLACED = ("device", "layout", "pin_memory", "memory_format")
#: Types of torch as types of values; all formats of floats are one type.
_TYPES = {
    "bool": "bool",
    "int64": "int",
    "int32": "int",
    "int16": "int",
    "int8": "int",
    "uint8": "int",
}
_TYPES |= dict.fromkeys(("float64", "float32", "float16", "bfloat16"), "float")
#: The package of torch.compile: where it is loaded, the function may call compiled code, which has no operators.
COMPILER = "torch._dynamo"


#: Torch's own attention, whose code residues do not see: it is taken as documented.
ATTENTION = "aten.scaled_dot_product_attention"
#: Its parameters that are passed by position, and the values of those that are optional.
_OF_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_USUAL_OF_ATTENTION = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False}


class NotRecorded(InputError):
    """Raised if calls of operators alone do not say what a function computes."""


def record(function: Function, shapes: Sequence[tuple[int, ...]], dtype: str, label: str) -> Graph:
    """Return the graph of a function at these shapes. Raises ``NotRecorded`` if it cannot be recorded."""
    if COMPILER in sys.modules:
        raise NotRecorded(f"{label} may call what torch has compiled")
    torch = import_torch()
    recording = _Recording(torch, label)
    try:
        zeros = [torch.zeros(shape, dtype=getattr(torch, dtype)) for shape in shapes]
        inputs = [recording.add_input(x) for x in zeros]
        with (
            warnings.catch_warnings(),
            _make_function_mode(torch, recording),
            _make_recording_mode(torch, recording),
        ):
            warnings.simplefilter("ignore")  # torch's own
            output = function(*inputs)
        return recording.graph_of(output)
    except NotRecorded:
        raise
    except Exception as error:  # a user's function may raise anything
        raise recording.refuse_error(error) from error


class _Recording:
    """The inputs, constants and nodes so far; tensors of this recording have names."""

    def __init__(self, torch: Any, label: str) -> None:
        self._torch, self._label = torch, label
        self._inputs: list[GraphArray] = []
        self._nodes: list[GraphNode] = []
        self._constants: dict[str, Value] = {}
        # The tensor is kept with its name: no other one gets its address.
        self._of_constants: dict[int, tuple[Tensor, str]] = {}
        self._first_refusal: NotRecorded | None = None
        self._stand_in_class = _make_stand_in_class(torch, self)

    def refuse(self, reason: str) -> NotRecorded:
        """Return the error that ends the recording: the first one, as the function may have caught it."""
        self._first_refusal = self._first_refusal or NotRecorded(f"{self._label} {reason}")
        return self._first_refusal

    def refuse_error(self, error: Exception) -> NotRecorded:
        """Return what ends the recording after an error, which may depend on numbers."""
        return self.refuse(f"cannot be recorded: {one_line(error)}")

    def add_input(self, zeros: Tensor) -> Tensor:
        """Return a tensor that stands for an input."""
        name = f"input_{len(self._inputs)}"
        array = GraphArray(name, tuple(zeros.shape), zeros.is_floating_point())
        self._inputs.append(array)
        return self._stand_in(_zeros_of(zeros), name)

    def run(self, operator: Any, places: Sequence[Value], keywords: Mapping[str, Value]) -> Value:
        """Return the result of an operator, as tensors that stand for it, and record the call."""
        name = str(getattr(operator, "overloadpacket", operator))
        if name not in RULES or operator._schema.is_mutable or self._selects(operator, places):
            raise self.refuse(f"calls {operator}, which is not recorded")
        try:
            result = operator(*_zeros_of(places), **_zeros_of(keywords))
        except Exception as error:
            raise self.refuse_error(error) from error
        result_types, number = _types_of(result), len(self._nodes)
        if not result_types:
            raise self.refuse(f"reads what {operator} returns")
        operands = tuple(map(self._operand, places))
        named = {k: self._operand(x) for k, x in keywords.items() if k not in PLACED}
        self._nodes.append(GraphNode(name, operands, (f"value_{number}",), named, result_types[:1]))
        if isinstance(result, self._torch.Tensor):
            return self._stand_in(result, f"value_{number}")
        items = [self._item(x, number, k) for k, x in enumerate(result)]
        return items if isinstance(result, list) else tuple(items)

    def run_attention(self, function: Function, arguments: Mapping[str, Value]) -> Value:
        """Return the result of torch's own attention, which is recorded as one operator, without its derivative."""
        if self._needs_derivative(arguments):
            raise self.refuse("derives torch's own attention")
        # On zeros it is a call of torch's alone.
        with _without_modes():
            result = function(**_zeros_of(dict(arguments)))
        named = {name: self._operand(x) for name, x in arguments.items()}
        operands = tuple(named.pop(name, None) for name in _OF_ATTENTION)
        name = f"value_{len(self._nodes)}"
        self._nodes.append(GraphNode(ATTENTION, operands, (name,), named, _types_of(result)))
        return self._stand_in(result, name)

    def graph_of(self, output: Value) -> Graph:
        """Return the graph of what the function returned: a tensor, or several."""
        if self._first_refusal is not None:
            raise self._first_refusal
        if COMPILER in sys.modules:
            raise self.refuse("may have called what torch compiled meanwhile")
        if not all(self._is_unchanged(*known) for known in self._of_constants.values()):
            raise self.refuse("changes tensors that it has read")
        outputs = output if isinstance(output, (tuple, list)) else [output]
        if not all(self._is_own(x) for x in outputs):
            raise self.refuse("returns other things than computed tensors")
        names = tuple(x.symattn_name for x in outputs)
        inputs, nodes = tuple(self._inputs), _nodes_behind(names, self._nodes)
        return Graph(TORCH, self._label, inputs, (), self._constants, nodes, names)

    def _item(self, tensor: Tensor, of: int, index: int) -> Tensor:
        """Return what stands for one of several results of a node."""
        name = f"value_{len(self._nodes)}"
        of_item = (Ref(f"value_{of}"), index)
        self._nodes.append(GraphNode("getitem", of_item, (name,), types=_types_of(tensor)))
        return self._stand_in(tensor, name)

    def _stand_in(self, zeros: Tensor, name: str) -> Tensor:
        result: Tensor = self._stand_in_class(zeros)
        result.symattn_name, result.symattn_recording = name, self
        return result

    def _is_own(self, x: object) -> bool:
        return getattr(x, "symattn_recording", None) is self

    def _needs_derivative(self, arguments: Mapping[str, Value]) -> bool:
        needed = any(getattr(x, "requires_grad", False) for x in arguments.values())
        return needed and self._torch.is_grad_enabled()

    def _is_unchanged(self, tensor: Tensor, name: str) -> bool:
        """Return whether a constant has its numbers still: NumPy may write into the memory of a tensor."""
        return np.array_equal(values_of(tensor), self._constants[name], equal_nan=True)

    def _selects(self, operator: Any, places: Sequence[Value]) -> bool:
        """Return whether the shape of a result depends on numbers, as where a mask of booleans is an index."""
        dynamic = self._torch.Tag.dynamic_output_shape in operator.tags
        indices = places[1] if dynamic and len(places) > 1 else ()
        kinds = {str(x.dtype) for x in indices if x is not None}
        return dynamic and (not indices or not kinds.isdisjoint(("torch.bool", "torch.uint8")))

    def _operand(self, x: Value) -> Value:
        """Return an operand as a node has it; a tensor of another origin is a constant."""
        if self._is_own(x):
            return Ref(x.symattn_name)
        if isinstance(x, self._torch.Tensor):
            return Ref(self._name_of_constant(x))
        if isinstance(x, (list, tuple)):
            return [self._operand(part) for part in x]
        return operand_of(x)

    def _name_of_constant(self, tensor: Tensor) -> str:
        if _is_stand_in(tensor):
            raise self.refuse("keeps tensors between calls")
        known = self._of_constants.get(id(tensor))
        if known is None:
            known = tensor, f"constant_{len(self._constants)}"
            self._constants[known[1]] = values_of(tensor)
            self._of_constants[id(tensor)] = known
        elif not self._is_unchanged(*known):
            raise self.refuse("changes tensors that it has read")
        return known[1]


def _nodes_behind(outputs: Sequence[str], nodes: Sequence[GraphNode]) -> tuple[GraphNode, ...]:
    """Return the nodes on which outputs depend, in their order."""
    needed, used = {*outputs}, []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed |= {ref.name for ref in node.refs()}
            used.append(node)
    return tuple(reversed(used))


def _make_stand_in_class(torch: Any, recording: _Recording) -> type:
    """Return the class of tensors that stand for values: they have a shape, strides and a type, but no memory."""

    def refuse_memory(*_: object, **__: object) -> Value:
        raise recording.refuse("reads the memory of a tensor, or replaces it")

    class RecordedTensor(torch.Tensor):  # type: ignore[misc]
        @staticmethod
        def __new__(cls: type, zeros: Tensor) -> Tensor:
            result: Tensor = torch.Tensor._make_wrapper_subclass(
                cls,
                zeros.shape,
                strides=zeros.stride(),
                storage_offset=zeros.storage_offset(),
                dtype=zeros.dtype,
                device=zeros.device,
            )
            result.symattn_zeros = zeros
            return result

        __torch_function__ = torch._C._disabled_torch_function_impl
        # What is set has another graph than the tensor that holds it.
        data = property(torch.Tensor.data.__get__, refuse_memory)

        @classmethod
        def __torch_dispatch__(cls, operator: Any, *_: object, **__: object) -> Value:
            raise recording.refuse(f"calls {operator} outside of its recording")

    for name in ("numpy", "tolist", "data_ptr", "storage", "untyped_storage", "_typed_storage"):
        setattr(RecordedTensor, name, refuse_memory)
    for name in ("__array__", "__dlpack__"):
        setattr(RecordedTensor, name, refuse_memory)
    return RecordedTensor


def _make_recording_mode(torch: Any, recording: _Recording) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Record(TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Else each mode loads the package of torch.compile, to be left out by that.
            return False

        def __torch_dispatch__(
            self, operator: Any, types: object, places: Any = (), keywords: Any = None
        ) -> Value:
            return recording.run(operator, places, keywords or {})

    return Record()


def _make_function_mode(torch: Any, recording: _Recording) -> Any:
    """Return a mode in which torch's own attention is one operator, and every error of torch ends the recording."""
    from torch.overrides import TorchFunctionMode

    attention = torch.nn.functional.scaled_dot_product_attention

    class Follow(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: object, places: Any = (), keywords: Any = None
        ) -> Value:
            keywords = keywords or {}
            try:
                if function is not attention:
                    return function(*places, **keywords)
                by_name = dict(zip(_OF_ATTENTION, places, strict=False)) | keywords
                return recording.run_attention(function, {**_USUAL_OF_ATTENTION, **by_name})
            except NotRecorded:
                raise
            except Exception as error:
                raise recording.refuse_error(error) from error

    return Follow()


def _without_modes() -> AbstractContextManager[None]:
    from torch.utils._python_dispatch import _disable_current_modes

    result: AbstractContextManager[None] = _disable_current_modes()
    return result


def _is_stand_in(x: object) -> bool:
    return hasattr(x, "symattn_zeros")


def _zeros_of(x: Value) -> Value:
    """Return operands with zeros in the place of all tensors that stand for values."""
    if _is_stand_in(x):
        return x.symattn_zeros
    if isinstance(x, (list, tuple)):
        return [_zeros_of(part) for part in x]
    if isinstance(x, dict):
        return {name: _zeros_of(part) for name, part in x.items()}
    return x


def _types_of(result: Value) -> tuple[str, ...]:
    """Return the types of tensors, ("",) for several; () for a result that holds anything else."""
    if hasattr(result, "dtype"):
        return (type_name(result.dtype),)
    if isinstance(result, (list, tuple)) and all(hasattr(x, "dtype") for x in result):
        return ("",)
    return ()


def operand_of(x: Value) -> Value:
    """Return a plain operand; types of tensors become those of values."""
    if type(x).__name__ == "dtype":
        return _TYPES.get(str(x).removeprefix("torch."), str(x))
    return x


def values_of(tensor: Tensor) -> np.ndarray:
    """Return a copy of the numbers of a tensor: floats of any format as float64, whole numbers as int64."""
    if tensor.is_floating_point():
        return np.array(tensor.detach().cpu().double().numpy())
    values = np.array(tensor.cpu().numpy())
    return as_int64(values) if values.dtype.kind in "iu" else values

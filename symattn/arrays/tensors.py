"""torch's tensors as a kind of array: functions of the array standard that torch lacks or calls by another name.

All others are torch's own functions. Arrays are created on the device of the tensors at hand, so that nothing is copied
between devices.
Source: Python array API standard, 2024.12.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.plain import numbers
from symattn.document.errors import MissingExtra

#: torch's names of dtypes by their class in the standard.
_CLASSES = {
    "bool": ("bool",),
    "integral": ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float16", "bfloat16", "float32", "float64"),
}


@dataclass(frozen=True)
class Tensors:
    """The functions of tensors on ``device``."""

    torch: Any
    device: Any

    inf, nan, pi, e, newaxis = math.inf, math.nan, math.pi, math.e, None

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look up such names before the fields exist.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.torch, name)

    # -- creation -----------------------------------------------------------------------------------------------------
    def asarray(self, x: object, dtype: object = None, copy: bool | None = None) -> Any:
        return self.torch.asarray(x, dtype=dtype, device=self.device, copy=copy)

    def arange(self, *bounds: object, dtype: object = None) -> Any:
        return self.torch.arange(*bounds, dtype=dtype, device=self.device)

    def empty(self, shape: object, dtype: object = None) -> Any:
        return self.torch.empty(shape, dtype=dtype or self.torch.float64, device=self.device)

    def zeros(self, shape: object, dtype: object = None) -> Any:
        return self.torch.zeros(shape, dtype=dtype or self.torch.float64, device=self.device)

    # -- types --------------------------------------------------------------------------------------------------------
    def isdtype(self, dtype: object, kind: object) -> bool:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        return any(
            getattr(self.torch, name) == dtype for dtypes in kinds for name in _CLASSES[dtypes]
        )

    def astype(self, x: Any, dtype: Any, copy: bool = True) -> Any:
        return x.to(dtype, copy=copy)

    # -- functions ----------------------------------------------------------------------------------------------------
    def maximum(self, a: object, b: object) -> Any:
        return self.torch.maximum(*self._convert_operands_to_tensors(a, b))

    def minimum(self, a: object, b: object) -> Any:
        return self.torch.minimum(*self._convert_operands_to_tensors(a, b))

    def _convert_operands_to_tensors(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Return the operands as tensors; a number gets the dtype of the other one."""
        tensor = self.torch.is_tensor
        return (
            # Plain numbers get the other operand's dtype: torch has promotion rules of its own.
            a if tensor(a) else self.asarray(a, dtype=b.dtype),
            b if tensor(b) else self.asarray(b, dtype=a.dtype),
        )

    def max(self, x: object, axis: object = None, keepdims: bool = False) -> Any:
        torch_axes = () if axis is None else axis
        return (
            # Reducing no axis changes nothing, but torch would reduce all of them.
            x if axis == () else self.torch.amax(x, torch_axes, keepdim=keepdims)
        )

    def min(self, x: object, axis: object = None, keepdims: bool = False) -> Any:
        torch_axes = () if axis is None else axis
        return x if axis == () else self.torch.amin(x, torch_axes, keepdim=keepdims)

    def sum(
        self, x: object, axis: object = None, dtype: object = None, keepdims: bool = False
    ) -> Any:
        return x if axis == () else self.torch.sum(x, dim=axis, keepdim=keepdims, dtype=dtype)

    def mean(self, x: object, axis: object = None, keepdims: bool = False) -> Any:
        return x if axis == () else self.torch.mean(x, dim=axis, keepdim=keepdims)

    def sort(self, x: object, axis: int = -1, descending: bool = False) -> Any:
        return self.torch.sort(x, dim=axis, descending=descending, stable=True).values

    def argsort(
        self, x: object, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Any:
        return self.torch.argsort(x, dim=axis, descending=descending, stable=stable)

    def cumulative_sum(self, x: object, axis: int = -1) -> Any:
        return self.torch.cumsum(x, dim=axis)

    def take(self, x: object, indices: object, axis: int) -> Any:
        return self.torch.index_select(x, axis, indices)

    def take_along_axis(self, x: object, indices: object, axis: int = -1) -> Any:
        return self.torch.take_along_dim(x, indices, dim=axis)

    def repeat(self, x: object, times: object, axis: int | None = None) -> Any:
        return self.torch.repeat_interleave(x, times, dim=axis)

    def flip(self, x: object, axis: int) -> Any:
        return self.torch.flip(x, (axis,))

    def expand_dims(self, x: object, axis: int = 0) -> Any:
        return self.torch.unsqueeze(x, axis)

    def permute_dims(self, x: Array, axes: Any) -> Any:
        return self.torch.permute(x, tuple(axes))

    def vecdot(self, a: object, b: object, axis: int = -1) -> Any:
        return self.torch.linalg.vecdot(a, b, dim=axis)

    def unique(self, x: object, axis: int, return_inverse: bool) -> Any:
        """Do as NumPy's ``unique``; in the standard it takes no axis."""
        return self.torch.unique(x, dim=axis, return_inverse=return_inverse)


def is_tensor(x: object) -> bool:
    """Return whether x is a tensor, without importing torch."""
    # Without torch loaded no object can be a tensor, so torch is not imported here.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def namespace(tensor: Any) -> Tensors:
    """Return the functions of tensors on the device of this one. Raises AttributeError if it is not a tensor."""
    if not is_tensor(tensor):
        raise AttributeError(
            f"{type(tensor).__name__!r} object has no attribute '__array_namespace__'"
        )
    return Tensors(sys.modules["torch"], tensor.device)


def dtype_kind(x: Any) -> str:
    """Return NumPy's letter for the dtype: b for booleans, i or u for integers, f for floats, c for complex numbers."""
    if not is_tensor(x):
        return str(x.dtype.kind)
    if x.is_floating_point() or x.is_complex():
        return "c" if x.is_complex() else "f"
    return "b" if x.dtype == sys.modules["torch"].bool else "i"


@dataclass(frozen=True)
class TensorKind:
    """float64 tensors of torch on a device."""

    name: str = "torch"
    device: str = "cpu"

    @cached_property
    def xp(self) -> Tensors:
        try:
            import torch
        except ImportError as error:
            raise MissingExtra("torch", "torch") from error
        return Tensors(torch, torch.device(self.device))

    @property
    def dtype(self) -> Any:
        return self.xp.float64

    def lift(self, data: object) -> Any:
        """Return data rounded to float64. Raises InputError for NaN and infinity."""
        return self.xp.asarray(numbers(self.name, data))


def copied(array: Any) -> Any:
    """Return a tensor as a NumPy array; other arrays are returned as they are."""
    # NumPy reads memory of the processor only.
    return array.cpu().numpy() if is_tensor(array) else array

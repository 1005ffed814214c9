"""Tensors that are judged on the device on which they are, so that of them no more than a verdict is copied.

q, k, v and the output in half precision on one device are read there, and all of the sharp test is computed there in
float64. Other arrays and tensors are copied to the CPU and judged by NumPy, in the same code: those that the CPU has
anyway, those on a device without float64 (Apple's ``mps``), and what the worst case alone judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.arrays.tensors import dtype_kind, is_tensor
from symattn.bounds.sharp.limits import FORMATS

#: Kinds of device whose tensors are copied.
COPIED = ("cpu", "mps")


def shared_device(inputs: Mapping[str, Any]) -> Any:
    """The device on which q, k and v are judged; None where they are copied."""
    arrays = [inputs[name] for name in "qkv" if name in inputs]
    if not all(is_tensor(a) and str(a.dtype).removeprefix("torch.") in FORMATS for a in arrays):
        return None
    devices = {a.device for a in arrays}
    return None if len(devices) != 1 or arrays[0].device.type in COPIED else arrays[0].device


def on_device(tensor: Any, narrow: bool) -> Any:
    """The numbers of a tensor as float64, or where they are ``narrow`` as float32; others are booleans or int64."""
    xp = namespace_of(tensor)
    if dtype_kind(tensor) == "b":
        return tensor
    wide = xp.int64 if dtype_kind(tensor) == "i" else xp.float32 if narrow else xp.float64
    return xp.astype(tensor.detach(), wide)


def tensor_on(device: Any, array: Any) -> Any:
    """An array of NumPy as a tensor on a device."""
    import torch

    return torch.as_tensor(array, device=device)

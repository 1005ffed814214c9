"""Arrays as one part of a layer hands them to the next: whether they are the same, and which numbers are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.models.auditing.layers.seen import Array
from symattn.models.auditing.setting import Floats
from symattn.models.auditing.tensors import dtype_of, numbers

_ENTRIES = 2048  # of arrays of which each number stands alone
#: Code that multiplies by ``weight`` and adds ``bias``, and whether that matrix is for tokens on the left as it is.
_PLAIN = {
    "torch.nn.modules.linear.Linear.forward": False,
    "transformers.models.falcon.modeling_falcon.FalconLinear.forward": False,
    "transformers.pytorch_utils.Conv1D.forward": True,
}


class Open(Exception):
    """A part of which nothing can be told; the words say why."""


def in_words(name: str) -> str:
    """An array that was seen, in words."""
    return {"x": "the tokens that the layer is given", "attention.answered": "the result of attention"}.get(
        name, f"what {name} gave"
    )


def format_of(*arrays: Array) -> str:
    """The roughest format of what a part reads and gives. Raises Open for one whose arithmetic is not known."""
    for array in arrays:
        if array.dtype not in FORMATS:
            raise Open(f"it is computed in {array.dtype}, whose arithmetic is not known")
    return max((a.dtype for a in arrays), key=lambda dtype: Format(dtype).u)


def same(wanted: Array, got: Array) -> bool:
    """Return whether the numbers are the same, once they are stored in the format of what was received."""
    if wanted.values.shape != got.values.shape:
        return False
    values = wanted.values
    if got.dtype != wanted.dtype and got.dtype in FORMATS:
        values = np.asarray(Format(got.dtype).rounded(values), dtype=np.float64)
    return np.array_equal(values, got.values, equal_nan=True)


def some(array: Floats) -> Floats:
    """Some columns, evenly chosen, the first and the last among them."""
    columns = array.shape[-1]
    count = min(columns, max(_ENTRIES // max(len(array), 1), 2))
    return array[..., np.linspace(0, columns - 1, count).round().astype(int)]


def narrow(table: Floats, width: int) -> Floats:
    """A table for ``width`` columns with each angle once, of one that may have it twice, in halves or side by side."""
    if table.shape[-1] != width:
        return table
    halves = np.array_equal(table[..., : width // 2], table[..., width // 2 :])
    return table[..., : width // 2] if halves else table[..., ::2]


def matrix(module: Any) -> tuple[Floats, Floats | None]:
    """The matrix of a linear layer for tokens on the left, and its bias.

    Raises Open for a module that may do more than multiply by the numbers it holds, as where weights are quantized.
    """
    import torch

    forward = type(module).forward
    code = f"{forward.__module__}.{forward.__qualname__}"
    held = [getattr(module, name, None) for name in ("weight", "bias")]
    plain = all(type(t) in (torch.Tensor, torch.nn.Parameter) and dtype_of(t) in FORMATS for t in held if t is not None)
    if code not in _PLAIN or not plain or held[0] is None:
        raise Open(f"it is {type(module).__name__}, whose matrix is not known")
    w, b = (None if t is None else numbers(t) for t in held)
    assert w is not None
    return (w if _PLAIN[code] else w.T), b

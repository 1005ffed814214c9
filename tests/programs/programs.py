"""What the tests of sources share: the type of the fixture ``program``, and right functions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.programs import softmax

Program = Callable[..., Path]


def attention(q: Any, k: Any, v: Any) -> Any:
    """Attention of arrays with any axes before the last two."""
    return softmax(q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)) @ v


RIGHT = """
    import numpy as np

    def attention(q, k, v):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v
"""

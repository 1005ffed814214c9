"""What the tests of sources share: the type of the fixture ``program``, and a right function."""

from collections.abc import Callable
from pathlib import Path

Program = Callable[..., Path]

RIGHT = """
    import numpy as np

    def attention(q, k, v):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v
"""

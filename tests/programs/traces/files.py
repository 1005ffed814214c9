"""Traces for tests: made by plain float32 code with faults that can be asked for, written as their formats say."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL"}
HEADS, SHARED = 4, 2


def made(dtype: Any, fault: str = "", n: int = 48, d: int = 16, seed: int = 0) -> dict[str, np.ndarray]:
    """q, k, v, o, lse, weights, scores of a causal attention of four heads, two of keys; o is stored in ``dtype``."""
    random = np.random.default_rng(seed)
    q, k, v = (random.standard_normal((1, m, n, d)).astype(dtype) for m in (HEADS, SHARED, SHARED))
    wide = [x.astype(np.float32) for x in (q, k, v)]
    again = np.tile if fault == "heads" else np.repeat
    keys, values = (again(x, (1, 2, 1, 1)) if fault == "heads" else again(x, 2, axis=1) for x in wide[1:])
    s = wide[0] @ keys.swapaxes(-1, -2) / np.float32(np.sqrt(d)) * np.float32(1.03 if fault == "scale" else 1)
    s = np.where(np.tril(np.ones((n, n), bool), fault == "mask"), s, np.float32(-np.inf))
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    total = e.sum(axis=-1, keepdims=True)
    lse = (np.log(total) + s.max(axis=-1, keepdims=True))[..., 0]
    return {
        "q": q,
        "k": k,
        "v": v,
        "o": (e / total @ values).astype(dtype),
        "lse": lse,
        "weights": e / total,
        "scores": s,
    }


def header(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The header of a safetensors file of these arrays."""
    at, found = 0, {}
    for name, a in arrays.items():
        found[name] = {"dtype": NAMES[a.dtype.name], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    return found


def write(path: Path, arrays: dict[str, np.ndarray], told: Any = None, length: int | None = None) -> str:
    """A safetensors file, with another header or another length of it where they are told."""
    text = json.dumps(header(arrays) if told is None else told).encode()
    size = struct.pack("<Q", len(text) if length is None else length)
    path.write_bytes(size + text + b"".join(a.tobytes() for a in arrays.values()))
    return str(path)

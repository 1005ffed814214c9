"""Wrong programs, written to files of a test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from symattn.programs.loading import load

HEAD = "import numpy as np\n\n\n"
FLASH = """
def attention(q, k, v):
    m, total = np.full((len(q), 1), -np.inf, q.dtype), np.zeros((len(q), 1), q.dtype)
    acc = np.zeros((len(q), v.shape[1]), q.dtype)
    for j in range(0, len(k), 4):
        s = q @ k[j : j + 4].T / np.sqrt(q.shape[1]).astype(q.dtype)
        new = np.maximum(m, s.max(1, keepdims=True))
        a, p = np.exp(m - new), np.exp(s - new)
        total = total * a + p.sum(1, keepdims=True)
        acc, m = acc + p @ v[j : j + 4], new  # the sum so far
    return acc / total
"""
PLAIN = """
def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v):
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))  # scores
    return softmax(s) @ v
"""


def write(folder: Path, text: str, name: str = "attn") -> Path:
    """Write a program to a file of the folder."""
    path = folder / f"{name}.py"
    path.write_text(HEAD + text.lstrip("\n"), encoding="utf-8")
    return path


def loaded(folder: Path, text: str, name: str = "attn", function: str = "attention") -> Callable[..., Any]:
    """Return a function of a program that is written to a file of the folder."""
    found: Callable[..., Any] = load(f"{write(folder, text, name)}:{function}").function
    return found

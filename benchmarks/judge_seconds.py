"""Processor seconds of ``symattn judge``, of right kernels and of wrong ones, the candidate's processes included.

The first rows are files with one function of a library, those that are installed; the next ones are kernels in PyTorch
beside a reference in KernelBench's form, whose inputs have the named shape and format; further rows are right entrants
of the arena by their names, in this process. One thread. With the word ``files`` alone only the first rows are run.
Command: ``OMP_NUM_THREADS=1 python -m benchmarks.judge_seconds 'half.variants.*' 'gradients.*' 'latents.*' 'lse.*'``
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.arena_entrants import entrants
from symattn import judge
from symattn.programs.judging.judging import CandidateJudge
from symattn.programs.verifying import Options

SHAPES = {"4 × 1024 × 64": (4, 1024, 64), "16 × 2048 × 128": (16, 2048, 128)}
FORMATS = ("float32", "float16", "bfloat16")
#: The classes ``Model`` and ``ModelNew``: the scores' factor, and how many of the last keys are left out.
KERNELS = {
    "right": ("q.shape[-1] ** -0.5", 0),
    "scale 1/d": ("q.shape[-1] ** -1", 0),
    "scale 10 % off": ("1.1 * q.shape[-1] ** -0.5", 0),
    "last key lost": ("q.shape[-1] ** -0.5", 1),
}
TEXT = """
import torch

class {name}(torch.nn.Module):
    def forward(self, q, k, v):
        n = k.shape[-2] - {lost} if k.shape[-2] > {lost} else k.shape[-2]
        s = q.float() @ k[..., :n, :].float().mT * ({factor})
        return (torch.softmax(s, -1) @ v[..., :n, :].float()).to(q.dtype)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn({shape}, dtype=torch.{dtype}) for _ in range(3)]
"""


#: A file of each library: plain attention as ``right``, and 1/d in the place of 1/√d as ``wrong``.
FILES = {
    "numpy": """
import numpy as np

def attention(q, k, v, scale):
    scores = q @ k.T * np.asarray(scale, q.dtype)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
""",
    "torch": """
import torch

def attention(q, k, v, scale):
    return torch.softmax(q @ k.mT * scale, -1) @ v
""",
    "jax": """
import jax

def attention(q, k, v, scale):
    return jax.nn.softmax(q @ k.T * scale, axis=-1) @ v
""",
}
#: The two functions of each file.
FUNCTIONS = """
def right(q, k, v):
    return attention(q, k, v, q.shape[-1] ** -0.5)

def wrong(q, k, v):
    return attention(q, k, v, q.shape[-1] ** -1.0)
"""


def by_file(library: str, function: str) -> tuple[str, float]:
    """Return the status of a function in a file, and the processor seconds."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "kernel.py")
        path.write_text(FILES[library] + FUNCTIONS)
        judgement = judge(f"{path}:{function}", seed=54)
    return judgement.status.value, judgement.seconds.processor


def by_reference(shape: tuple[int, ...], dtype: str, kernel: str) -> tuple[str, float]:
    """Return the status of a kernel beside a reference, and the processor seconds."""
    with TemporaryDirectory() as folder:
        reference, candidate = Path(folder, "reference.py"), Path(folder, "kernel.py")
        factor, lost = KERNELS["right"]
        reference.write_text(
            TEXT.format(name="Model", factor=factor, lost=lost, shape=shape, dtype=dtype)
        )
        factor, lost = KERNELS[kernel]
        candidate.write_text(
            TEXT.format(name="ModelNew", factor=factor, lost=lost, shape=shape, dtype=dtype)
        )
        judgement = judge(str(candidate), reference=str(reference), seed=54)
    return judgement.status.value, judgement.seconds.processor


def by_name(pattern: str) -> Iterator[tuple[str, str, float]]:
    """Yield the right entrants of the arena whose names fit, their status, and the processor seconds."""
    for entrant in entrants():
        if entrant.is_right and not entrant.text and fnmatchcase(entrant.name, pattern):
            how = Options(
                dtype=entrant.precision,
                contract=entrant.contract,
                domain=entrant.entry.domain,
                verdict_alone=True,
            )
            began = time.process_time()
            judgement = CandidateJudge(entrant.entry.program, entrant.spec, how, 54).judgement()
            yield entrant.name, judgement.status.value, time.process_time() - began


def main() -> None:
    print("| shape | format | kernel | status | processor seconds |\n|---|---|---|---|---|")
    for library in filter(find_spec, FILES):
        for function in ("right", "wrong"):
            status, seconds = by_file(library, function)
            print(f"| {library} | float32 | {function} | {status} | {seconds:.1f} |", flush=True)
    if sys.argv[1:] == ["files"]:
        return
    for words, shape in SHAPES.items():
        for dtype in FORMATS:
            for kernel in KERNELS:
                status, seconds = by_reference(shape, dtype, kernel)
                print(f"| {words} | {dtype} | {kernel} | {status} | {seconds:.1f} |", flush=True)
    for pattern in sys.argv[1:]:
        for name, status, seconds in by_name(pattern):
            print(f"| | | {name} | {status} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()

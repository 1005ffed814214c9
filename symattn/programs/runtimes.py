"""A test of the machine: it multiplies right in half precision, or wrong outputs are not the function's fault."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from operator import matmul
from typing import Any

import numpy as np

from symattn.arrays.tensors import is_tensor
from symattn.programs.frameworks import arrays, numpy_dtype, read

_INTERPRETER = "triton.runtime.interpreter"  # imported by the first kernel that is to be interpreted
_LARGE = {"bfloat16": (16, 16), "float16": (32, 64)}  # from their product on, the format has even numbers alone
tl: Any = None  # Triton's interpreter looks for its language among the globals of a kernel


def _by_triton(a: Any, b: Any) -> Any:
    global tl
    import triton
    import triton.language as tl

    @triton.jit
    def product(a, b, out):  # type: ignore[no-untyped-def]
        at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at)).to(out.dtype.element_ty))

    product[(1,)](a, b, out := a.clone())
    return out


#: By the module of a runtime, its product of two of its arrays of 16 × 16 numbers.
PRODUCTS = {"numpy": matmul, "torch": matmul, "triton": _by_triton}


@cache
def wrong_product(runtime: str, dtype: str) -> str:
    """Say what a runtime itself computes wrong in half precision; "" where it is right, or does not compute it.

    Every legal implementation gives the same bits: the numbers are small and whole, and one sum is rounded, and lies
    nearer to one neighbour than to the other.
    """
    if dtype not in _LARGE:
        return ""
    i = np.arange(16.0)
    a, b = ((f * i[:, None] + i) % 5 - 2 for f in (2, 3))
    a[0], b[:, 0] = 0, 0
    a[0, :2], b[:2, 0] = (_LARGE[dtype][0], 1), (_LARGE[dtype][1], 1.5)
    try:
        make = arrays("numpy" if runtime == "numpy" else "torch").make
        with np.errstate(all="ignore"):
            both = read(PRODUCTS[runtime](make(a, dtype), make(b, dtype)))[0], a @ b
            got, right = (x.astype(numpy_dtype(dtype)).astype(float).ravel() for x in both)
    except Exception:  # it raises under the function, too, which then gives nothing to judge
        return ""
    words = next((f"{x:g}, expected {y:g}" for x, y in zip(got, right, strict=True) if x != y), "")
    name = f"{runtime} {getattr(sys.modules.get(runtime), '__version__', '')}"
    other = " or ".join(f"--dtype {kind}" for kind in ("float32", "float16") if kind != dtype)
    return words and f"{name} itself multiplies matrices wrong in {dtype}, {words}; hint: {other}"


def suspect(q: Any) -> str:
    """Say which runtime in this process computes wrong in the format of an array, and so may have made an output."""
    dtype = str(getattr(q, "dtype", "")).removeprefix("torch.")
    runtimes = ("torch" if is_tensor(q) else "numpy", *(("triton",) if _INTERPRETER in sys.modules else ()))
    return next(filter(None, (wrong_product(runtime, dtype) for runtime in runtimes)), "")


@contextmanager
def suspects(framework: str, dtype: str) -> Iterator[list[str]]:
    """Collect what computes wrong under a call: the framework, and Triton's interpreter where it runs meanwhile."""
    result, executor = [wrong_product(framework, dtype)], getattr(sys.modules.get(_INTERPRETER), "GridExecutor", None)
    if not executor or not (interpreted := wrong_product("triton", dtype)):
        yield result
        return
    from unittest.mock import patch

    with patch.object(executor, "__call__", autospec=True, side_effect=executor.__call__) as launched:
        yield result
    result += [interpreted] if launched.called else []

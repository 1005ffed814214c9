"""A runtime that multiplies wrong in half precision is named, in place of the function that it runs under."""

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn import CannotRun, verify
from symattn.programs import frameworks
from symattn.programs.request import Request
from symattn.programs.target import target
from symattn.testing import AttentionFault, assert_close_to_exact


def of_bits(a: Any, b: Any) -> Any:
    """The bits of the numbers are multiplied."""
    return (a.view(np.uint16).astype(float) @ b.view(np.uint16)).astype(a.dtype)


def rounded_down(a: Any, b: Any) -> Any:
    """The bits that the format has not are cut off."""
    exact = a.astype(float) @ b.astype(float)
    near = exact.astype(a.dtype)
    towards = np.nextafter(near, a.dtype.type(0))
    return np.where(np.abs(near.astype(float)) > np.abs(exact), towards, near).astype(a.dtype)


def attention(q: Any, k: Any, v: Any, product: Any = np.matmul) -> Any:
    s = product(q, k.T).astype(np.float32) / np.sqrt(np.float32(q.shape[-1]))
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v.astype(np.float32)).astype(q.dtype)


def by_bits(q: Any, k: Any, v: Any) -> Any:
    with np.errstate(all="ignore"):
        return attention(q, k, v, of_bits)


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """Put a product in the place of NumPy's."""

    def replace(product: Any) -> None:
        monkeypatch.setitem(frameworks.PRODUCTS, "numpy", product)
        frameworks.wrong_product.cache_clear()

    yield replace
    frameworks.wrong_product.cache_clear()


def run(dtype: str, function: Callable[..., Any] = attention) -> str:
    inputs = {"q": np.ones((2, 4)), "k": np.ones((3, 4)), "v": np.ones((3, 5))}
    outcome = target(function, Request(dtype=dtype, framework="numpy", layout="nd")).run(inputs)
    assert outcome.error is None
    return outcome.runtime


@pytest.mark.parametrize("product", [of_bits, rounded_down])
def test_a_wrong_product_is_seen(replaced: Any, product: Any) -> None:
    assert run("bfloat16") == run("float16") == ""
    replaced(product)
    for dtype in ("bfloat16", "float16"):
        assert re.match(rf"numpy .* itself multiplies .* in {dtype}, .*; hint: --dtype float32", run(dtype))
    assert run("float32") == ""


@pytest.mark.deep
def test_it_is_no_fault_of_a_function(replaced: Any) -> None:
    how: Any = {"dtype": "bfloat16", "framework": "numpy", "layout": "nd", "examples": 0, "budget": 0.1}
    replaced(of_bits)
    with pytest.raises(CannotRun, match=r"by_bits\(q, k, v\) is not judged: numpy"):
        verify(by_bits, **how)
    assert not verify(attention, **how).faults


def only_in_floats(q: Any, k: Any, v: Any, scale: float = 1.0) -> Any:
    def product(a: Any, b: Any) -> Any:
        return of_bits(a, b) if a.dtype.name == "bfloat16" else a @ b

    s = product(q, k.T) * (scale / np.sqrt(q.shape[-1]))
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v


@pytest.mark.deep
def test_residues_speak_where_a_runtime_multiplies_wrong(replaced: Any) -> None:
    how: Any = {"dtype": "bfloat16", "framework": "numpy", "layout": "nd", "examples": 0, "budget": 1}
    replaced(of_bits)
    with np.errstate(all="ignore"):
        report = verify(only_in_floats, **how)
        with pytest.raises(CannotRun, match=r"numpy .*; on residues it differs from the specification \(.* elements"):
            verify(partial(only_in_floats, scale=1.01), **how)
    assert (report.verdict.value, [check.name for check in report.checks]) == ("undecided", ["semantics"])
    assert report.checks[0].epsilon is not None
    assert "numpy" in report.missing[0]


def test_an_interpreter_counts_for_what_it_runs(monkeypatch: Any) -> None:
    class GridExecutor:
        def __call__(self, *arrays: Any) -> Any:
            return attention(*arrays)

    def kernel(q: Any, k: Any, v: Any) -> Any:
        return GridExecutor()(q, k, v)

    monkeypatch.setitem(sys.modules, "triton.runtime.interpreter", SimpleNamespace(GridExecutor=GridExecutor))
    monkeypatch.setattr(frameworks, "wrong_product", lambda *of: "wrong" if of == ("triton", "float16") else "")
    assert (run("bfloat16", kernel), run("float16"), run("float16", kernel)) == ("", "", "wrong")


def test_an_assertion_names_the_runtime_first(replaced: Any) -> None:
    q = np.ones((2, 4), ml_dtypes.bfloat16)
    replaced(of_bits)
    assert_close_to_exact(q, q, q, q)
    with pytest.raises(AttentionFault, match=r"\Anumpy .* itself multiplies .*\n.*not the fault of the function"):
        assert_close_to_exact(2 * q, q, q, q)

"""Functions that take one query at a time are determined by trial."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, verify
from symattn.programs.request import Request
from symattn.programs.target import target
from tests.programs.programs import attention
from tests.verification.naming import convicts

TWO = Attention(heads=2, causal=True)


def one(q: Any, k: Any, v: Any) -> Any:
    assert q.shape[-2] == 1
    return attention(q, k, v)


def without(q: Any, k_cache: Any, v_cache: Any) -> Any:
    b, h, d = q.shape
    assert k_cache.shape[:2] == (b, h)
    return attention(q.reshape(b, h, 1, d), k_cache, v_cache).reshape(b, h, -1)


def without_before_heads(q: Any, k: Any, v: Any) -> Any:
    _, h, _ = q.shape
    assert k.shape[2] == h
    return attention(q[:, :, None], k.swapaxes(1, 2), v.swapaxes(1, 2))[:, :, 0]


def unscaled(q: Any, k: Any, v: Any) -> Any:
    return without(q * np.float32(q.shape[-1] ** 0.5), k, v)


def request(spec: Attention, **promised: bool) -> Request:
    return Request.of(spec, framework="numpy", dtype="float32", layout="auto", domain=Domain(**promised))


@pytest.mark.parametrize(
    ("function", "spec", "reading", "layout"),
    [
        (one, Attention(), "one query", "nd"), (one, TWO, "one query", "nd"),
        (without, TWO, "no axis of queries", "bhnd"),
        (without_before_heads, TWO, "no axis of queries before the heads", "bnhd"),
    ],
)  # fmt: skip
def test_one_query(function: Callable[..., Any], spec: Attention, reading: str, layout: str) -> None:
    found = target(function, request(spec), "f")
    how = found.convention
    assert (how.reading, how.layout) == (reading, layout)
    assert "--decoding" in how.notes[0]
    assert how.domain is not None
    assert how.domain.decoding
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal((2, 2, m, 4)).astype(np.float32) for n, m in (("q", 1), ("k", 5), ("v", 5))}
    for runner in (found, target(function, request(spec), "f", how)):
        output = runner.run(inputs).output
        assert output is not None
        assert np.allclose(output, attention(**inputs), atol=1e-6)


@pytest.mark.deep
def test_a_function_that_is_wrong_for_one_query_is_called_so_only_where_that_is_promised() -> None:
    assert not hasattr(target(unscaled, request(TWO), "f").convention, "reading")
    found = target(unscaled, request(TWO, decoding=True), "f").convention
    assert found.reading == "no axis of queries"


@pytest.mark.deep
def test_right_and_wrong_ones_are_told_apart() -> None:
    assert verify(without, TWO, framework="numpy", examples=5).verdict.value == "no fault"
    domain = Domain(decoding=True)
    assert convicts(unscaled, TWO, framework="numpy", examples=5, domain=domain)


@pytest.mark.deep
@pytest.mark.parametrize("wrong", [lambda o: o.T, lambda o: o.ravel()], ids=("transposed", "flat"))
def test_what_gives_a_wrong_shape_for_several_queries_is_not_taken_for_one(wrong: Callable[[Any], Any]) -> None:
    """For a vector as query these would be right."""

    def function(q: Any, k: Any, v: Any) -> Any:
        return wrong(attention(q, k, v))

    assert not hasattr(target(function, request(Attention()), "f").convention, "reading")
    report = verify(function, Attention(), domain=Domain(max_tokens=3, max_width=3), examples=0)
    assert report.verdict.value == "fault"

"""Functions that take queries, keys and values, or their projections, in one array."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, verify
from symattn.programs.request import Request
from symattn.programs.target import target
from tests.programs.programs import Program, attention
from tests.verification.naming import convicts

TWO = Attention(heads=2)


def flash(qkv: Any) -> Any:
    assert qkv.ndim == 5
    assert qkv.shape[2] == 3
    return attention(*(qkv[:, :, i].swapaxes(1, 2) for i in range(3))).swapaxes(1, 2)


def flash_of_two(q: Any, kv: Any) -> Any:
    assert kv.ndim == 5
    assert kv.shape[2] == 2
    return attention(*(a.swapaxes(1, 2) for a in (q, kv[:, :, 0], kv[:, :, 1]))).swapaxes(1, 2)


def first(qkv: Any) -> Any:
    assert qkv.shape[0] == 3
    return attention(*qkv)


def last(qkv: Any) -> Any:
    return attention(*np.split(qkv, 3, axis=-1))


def projected(x: Any, w_qkv: Any) -> Any:
    q, k, v = (a.reshape(*a.shape[:-1], 2, -1).swapaxes(-2, -3) for a in np.split(x @ w_qkv, 3, axis=-1))
    return _merged(attention(q, k, v))


def projected_by_head(x: Any, w_qkv: Any, b_qkv: Any) -> Any:
    together = x @ w_qkv + b_qkv
    together = together.reshape(*together.shape[:-1], 2, -1).swapaxes(-2, -3)
    return _merged(attention(*np.split(together, 3, axis=-1)))


def _merged(out: Any) -> Any:
    out = out.swapaxes(-2, -3)
    return out.reshape(*out.shape[:-2], -1)


def agreed(function: Callable[..., Any], spec: Attention) -> Any:
    how = target(function, Request.of(spec, framework="numpy", dtype="float32", layout="auto"), "f").convention
    assert hasattr(how, "reading")
    return how


def test_heads_side_by_side_are_no_packed_projection() -> None:
    def side_by_side(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v)

    with pytest.raises(InputError, match=r"w_in is known; name it w_in; if q, k and v .* --layout nc for --packed"):
        verify(side_by_side, Attention(heads=2, packed=True))


@pytest.mark.parametrize(
    ("function", "spec", "reading", "layout"),
    [
        (flash, TWO, "stacked", "bnhd"), (flash_of_two, TWO, "stacked", "bnhd"), (first, TWO, "first", "nd"),
        (last, TWO, "side by side", "nd"), (last, Attention(), "side by side", "nd"),
        (projected, TWO, "side by side", "nd"), (projected_by_head, TWO, "by head", "nd"),
    ],
)  # fmt: skip
def test_how_the_parts_stand_is_found(function: Callable[..., Any], spec: Attention, reading: str, layout: str) -> None:
    how = agreed(function, spec)
    assert (how.reading, how.layout) == (reading, layout)
    assert "determined by trial" in how.notes[0]
    assert how.domain is not None
    assert how.domain.same_width
    again = target(function, Request.of(spec, framework="numpy", dtype="float32", layout="auto"), "f", how)
    assert again.convention == how


@pytest.mark.deep
def test_right_and_wrong_ones_are_told_apart() -> None:
    def keys_first(qkv: Any) -> Any:
        k, q, v = np.split(qkv, 3, axis=-1)
        return attention(q, k, v)

    def heads_apart(x: Any, w_qkv: Any) -> Any:
        q, k, v = (a.reshape(*a.shape[:-1], -1, 2).swapaxes(-1, -2) for a in np.split(x @ w_qkv, 3, axis=-1))
        return _merged(attention(*(a.swapaxes(-2, -3) for a in (q, k, v))))

    def found(function: Callable[..., Any], spec: Attention) -> str:
        return verify(function, spec, framework="numpy", examples=5).verdict.value

    assert [found(f, s) for f, s in ((last, Attention()), (flash, TWO), (projected, TWO))] == ["no fault"] * 3
    for function, spec in ((keys_first, Attention()), (heads_apart, TWO)):
        assert convicts(function, spec, framework="numpy", examples=5)


@pytest.mark.deep
def test_no_test_is_written_for_parts_that_stand_together(tmp_path: Path, program: Program) -> None:
    from symattn.programs.repeat import repeat_target, written

    program("import numpy as np\ndef f(qkv):\n    return np.split(qkv, 3, axis=-1)[2] * 2\n")
    inputs = {n: np.ones((2, 2)) for n in "qkv"}
    one = repeat_target("attn.py:f", Attention(), inputs, framework="numpy")
    assert one.report.verdict.value == "fault"
    with pytest.raises(InputError, match="is not called with just the arrays that the case has"):
        written("attn.py:f", [("case", one)], tmp_path, "")

"""LogSoftmax over one axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.softmax import exponentials, row_max
from tests.programs.onnx.calls import Call

Arrays = dict[str, Any]


def log_softmax_of(call: Call) -> Arrays:
    return {"output": over_axis(call.inputs["input"], call.attributes["axis"], log_softmax)}


def log_softmax(s: Any) -> Any:
    """s_j − m − log Σ_l e^{s_l − m}: subtracted one after another, so that a large m costs no digits."""
    xp = namespace_of(s)
    return s - row_max(s) - xp.log(xp.sum(exponentials(s), axis=-1, keepdims=True))


def over_axis(x: Any, axis: int, function: Callable[[Any], Any]) -> Any:
    """A function of the last axis, along another one."""
    xp = namespace_of(x)
    order = list(range(x.ndim))
    order[axis], order[-1] = order[-1], order[axis]
    return xp.permute_dims(function(xp.permute_dims(x, order)), order)


OPERATORS: Mapping[str, Callable[[Call], Arrays]] = {
    "LogSoftmax": log_softmax_of,
}

"""Softmax, LogSoftmax and the two normalisations: over one axis, or over all axes from one on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.norms import centre, layer_norm, rms_norm
from symattn.attention.softmax import exponentials, row_max, softmax
from tests.onnx.calls import Call

Arrays = dict[str, Any]


def softmax_of(call: Call) -> Arrays:
    return {"output": over_axis(call.inputs["input"], call.attributes["axis"], softmax)}


def log_softmax_of(call: Call) -> Arrays:
    return {"output": over_axis(call.inputs["input"], call.attributes["axis"], log_softmax)}


def log_softmax(s: Any) -> Any:
    """s_j − m − log Σ_l e^{s_l − m}: subtracted one after another, so that a large m costs no digits."""
    xp = namespace_of(s)
    return s - row_max(s) - xp.log(xp.sum(exponentials(s), axis=-1, keepdims=True))


def layer_normalization(call: Call) -> Arrays:
    """Y = (X − mean)/√(variance + ε) · Scale + B, beside the mean and 1/√(variance + ε)."""
    eps = call.attributes["epsilon"]
    x, back = flattened(call.inputs["X"], call.attributes["axis"])
    xp = namespace_of(x)
    gain, bias = (flattened(call.inputs[name], 0)[0] if name in call.inputs else None for name in ("Scale", "B"))
    return {
        "Y": back(layer_norm(x, eps, gain, bias)),
        "Mean": back(xp.mean(x, axis=-1, keepdims=True)),
        "InvStdDev": back(1 / xp.sqrt(xp.mean(centre(x) * centre(x), axis=-1, keepdims=True) + eps)),
    }


def rms_normalization(call: Call) -> Arrays:
    x, back = flattened(call.inputs["X"], call.attributes["axis"])
    gain, _ = flattened(call.inputs["scale"], 0)
    return {"Y": back(rms_norm(x, call.attributes["epsilon"], gain))}


def over_axis(x: Any, axis: int, function: Callable[[Any], Any]) -> Any:
    """A function of the last axis, along another one."""
    xp = namespace_of(x)
    order = list(range(x.ndim))
    order[axis], order[-1] = order[-1], order[axis]
    return xp.permute_dims(function(xp.permute_dims(x, order)), order)


def flattened(x: Any, axis: int) -> tuple[Any, Callable[[Any], Any]]:
    """The axes from ``axis`` on as one, and the way back, which leaves an axis of length 1 for one that was summed."""
    xp = namespace_of(x)
    rows, columns = tuple(x.shape[:axis]), tuple(x.shape[axis:])

    def back(y: Any) -> Any:
        return xp.reshape(y, rows + (columns if y.shape[-1] != 1 else (1,) * len(columns)))

    size = 1
    for n in columns:
        size *= n
    return xp.reshape(x, (*rows, size)), back


OPERATORS: Mapping[str, Callable[[Call], Arrays]] = {
    "Softmax": softmax_of,
    "LogSoftmax": log_softmax_of,
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
}

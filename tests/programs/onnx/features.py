"""What a case shows, in words: the attributes and inputs of attention, and the format."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.programs.onnx.cases import Case

_ROLES = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")


def features(case: Case) -> list[str]:
    """The features of a case of Attention or FlexAttention, in the order of the page."""
    names = dict(zip(_ROLES, case.node.input, strict=False))
    given = {role: case.inputs[name] for role, name in names.items() if name}
    attributes = {a.name: _value(a) for a in case.node.attribute}
    return [words for words, shows in FEATURES.items() if shows(given, attributes, case)]


def _value(attribute: Any) -> Any:
    from onnx.helper import get_attribute_value

    return get_attribute_value(attribute)


Shows = Callable[[dict[str, np.ndarray], dict[str, Any], Case], bool]

FEATURES: dict[str, Shows] = {
    "heads side by side in three axes": lambda x, a, _: x["Q"].ndim == 3,
    "fewer heads of keys than of queries": lambda x, a, _: _heads(x, a, "Q") != _heads(x, a, "K"),
    "d_v ≠ d_k": lambda x, a, _: _width(x, a, "V") != _width(x, a, "K"),
    "`scale`": lambda x, a, _: "scale" in a,
    "`softcap`": lambda x, a, _: "softcap" in a,
    "`is_causal`": lambda x, a, _: "is_causal" in a,
    "`left_window_size`, `right_window_size`": lambda x, a, _: "left_window_size" in a,
    "boolean mask": lambda x, a, _: "attn_mask" in x and x["attn_mask"].dtype == bool,
    "mask of numbers": lambda x, a, _: "attn_mask" in x and x["attn_mask"].dtype != bool,
    "mask with fewer columns than keys": lambda x, a, _: _narrow(x),
    "`past_key`, `past_value`": lambda x, a, _: "past_key" in x,
    "`nonpad_kv_seqlen`": lambda x, a, _: "nonpad_kv_seqlen" in x,
    "a row fully masked": lambda x, a, case: _zero_row(case),
    "`qk_matmul_output`, mode 0": lambda x, a, case: _mode(a, case) == 0,
    "`qk_matmul_output`, mode 1": lambda x, a, case: _mode(a, case) == 1,
    "`qk_matmul_output`, mode 2": lambda x, a, case: _mode(a, case) == 2,
    "`qk_matmul_output`, mode 3": lambda x, a, case: _mode(a, case) == 3,
    "`softmax_precision`": lambda x, a, _: "softmax_precision" in a,
    "`score_mod`": lambda x, a, _: "score_mod" in a,
    "`prob_mod`": lambda x, a, _: "prob_mod" in a,
}


def _heads(x: dict[str, np.ndarray], a: dict[str, Any], role: str) -> int:
    heads: int = x[role].shape[1] if x[role].ndim == 4 else a["q_num_heads" if role == "Q" else "kv_num_heads"]
    return heads


def _width(x: dict[str, np.ndarray], a: dict[str, Any], role: str) -> int:
    return x[role].shape[-1] // (1 if x[role].ndim == 4 else _heads(x, a, role))


def _narrow(x: dict[str, np.ndarray]) -> bool:
    past = x["past_key"].shape[-2] if "past_key" in x else 0
    return "attn_mask" in x and x["attn_mask"].shape[-1] < x["K"].shape[-2] + past


def _zero_row(case: Case) -> bool:
    """No weight at all gives zeros; nothing else in these cases does."""
    return not next(iter(case.expected.values())).astype(float).any(axis=-1).all()


def _mode(a: dict[str, Any], case: Case) -> int | None:
    mode: int = a.get("qk_matmul_output_mode", 0)
    return mode if len(case.node.output) == 4 else None

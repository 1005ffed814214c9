"""ONNX Runtime's own operators: beside that runtime where it is installed; flipped ones refuted, others refused."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

from symattn import Attention, InputError, graphs

pytestmark = pytest.mark.onnx
_PAST = ["past_key", "past_value"]
_ROLES = {
    "MultiHeadAttention": ["query", "key", "value", "bias", "key_padding_mask", "attention_bias", *_PAST],
    "GroupQueryAttention": [
        "query", "key", "value", *_PAST, "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache",
        "position_ids", "attention_bias", "head_sink",
    ],
}  # fmt: skip
_OPSETS = (("", 21), ("com.microsoft", 1))


def model(operator: str, given: Mapping[str, np.ndarray], **attributes: Any) -> Any:
    """One node for arrays by the names of its inputs; it gives y and the keys and values with their past."""
    names = [role if role in given else "" for role in _ROLES[operator]]
    told = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    past = ["present_key", "present_value"] if "past_key" in given or operator.startswith("Group") else []
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", *past)]
    node = helper.make_node(operator, names, ["y", *past], domain="com.microsoft", **attributes)
    made = helper.make_model(
        helper.make_graph([node], "node", told, results), opset_imports=[helper.make_opsetid(*o) for o in _OPSETS]
    )
    made.ir_version = 10
    return made


def _numbers(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    return [random.normal(size=s).astype(np.float32) for s in shapes]


def _tokens(*columns: int, n_q: int = 5, n_k: int = 5) -> dict[str, np.ndarray]:
    shapes = [(2, n, d) for n, d in zip((n_q, n_k, n_k), columns, strict=True)]
    return dict(zip(("query", "key", "value"), _numbers(*shapes), strict=True))


def _lengths(keys: int) -> dict[str, np.ndarray]:
    return {"seqlens_k": np.full(2, keys - 1, np.int32), "total_sequence_length": np.array(keys, np.int32)}


def _past(heads: int, columns: int) -> dict[str, np.ndarray]:
    return dict(zip(("past_key", "past_value"), _numbers(*[(2, heads, 4, columns)] * 2), strict=True))


def _tables(width: int) -> dict[str, np.ndarray]:
    return dict(zip(("cos_cache", "sin_cache"), _numbers((16, width // 2), (16, width // 2)), strict=True))


MULTI, GROUP = "MultiHeadAttention", "GroupQueryAttention"
_HEADS = {"num_heads": 4, "kv_num_heads": 2}
PROMPT, WIDE = _tokens(32, 16, 16) | _lengths(5), _tokens(128, 64, 64) | _lengths(5)
ONE = _tokens(128, 64, 64, n_q=1, n_k=1) | _past(2, 32) | _lengths(5)
READ: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any]]] = {
    "plain": (MULTI, _tokens(8, 8, 8, n_k=3), {"num_heads": 2}),
    "causal": (MULTI, _tokens(8, 8, 8), {"num_heads": 2, "unidirectional": 1}),
    "with a bias of projections": (MULTI, _tokens(8, 8, 8) | {"bias": _numbers((24,))[0]}, {"num_heads": 2}),
    "scaled": (MULTI, _tokens(8, 8, 8), {"num_heads": 2, "scale": 0.25}),
    "with a bias of scores": (
        MULTI, _tokens(8, 8, 8) | {"attention_bias": _numbers((1, 2, 5, 5))[0]}, {"num_heads": 2},
    ),
    "behind a past": (MULTI, _tokens(8, 8, 8) | _past(2, 4), {"num_heads": 2, "unidirectional": 1}),
    "shared heads": (GROUP, PROMPT, _HEADS),
    "capped": (GROUP, PROMPT, {**_HEADS, "softcap": 0.75, "scale": 0.5}),
    "window of one": (GROUP, PROMPT, {**_HEADS, "local_window_size": 1}),
    "window": (GROUP, PROMPT, {**_HEADS, "local_window_size": 3}),
    "rotary": (GROUP, WIDE | _tables(32), {**_HEADS, "do_rotary": 1}),
    "rotary of neighbours": (GROUP, WIDE | _tables(32), {**_HEADS, "do_rotary": 1, "rotary_interleaved": 1}),
    "rotary in part": (GROUP, WIDE | _tables(16), {**_HEADS, "do_rotary": 1}),
    "rotary behind a past": (GROUP, ONE | _tables(32), {**_HEADS, "do_rotary": 1}),
}  # fmt: skip


@pytest.mark.guests
@pytest.mark.parametrize("name", READ)
def test_a_node_gives_what_the_runtime_gives(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    operator, given, attributes = READ[name]
    made = model(operator, given, **attributes)
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(["y"], given)[0]
    np.testing.assert_allclose(_computed(made, given), theirs, rtol=1e-4, atol=2e-6)


def _computed(made: Any, given: Mapping[str, np.ndarray]) -> Any:
    wide = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in given.items()}
    return graphs.run(graphs.read(made), wide, wide["query"])[0]


@pytest.mark.parametrize("name", [n for n in READ if n not in ("plain", "shared heads")])
def test_each_attribute_and_input_changes_the_output(name: str) -> None:
    operator, given, attributes = READ[name]
    plain = {n: x for n, x in attributes.items() if n in ("num_heads", "kv_num_heads")}
    tokens = {n: a for n, a in given.items() if n in ("query", "key", "value", "seqlens_k")}
    tokens |= _lengths(tokens["key"].shape[1]) if operator == GROUP else {}
    found, without = _computed(model(operator, given, **attributes), given), model(operator, tokens, **plain)
    assert not np.allclose(found, _computed(without, tokens), rtol=1e-2)


REFUSED: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any], str]] = {
    "padding": (
        MULTI, _tokens(8, 8, 8) | {"key_padding_mask": np.ones((2, 5), np.int32)}, {"num_heads": 2},
        "key_padding_mask is not read",
    ),
    "packed": (MULTI, {"query": np.ones((2, 5, 2, 3, 4), np.float32)}, {"num_heads": 2}, "three arrays of three axes"),
    "other lengths": (
        MULTI, _tokens(8, 8, 8, n_k=3), {"num_heads": 2, "unidirectional": 1}, "another number of new keys",
    ),
    "attribute": (MULTI, _tokens(8, 8, 8), {"num_heads": 2, "rotary": 1}, "rotary is not read"),
    "sinks": (GROUP, PROMPT, {**_HEADS, "smooth_softmax": 1}, "smooth_softmax is not read"),
    "given sinks": (GROUP, PROMPT | {"head_sink": np.ones(4, np.float32)}, _HEADS, "head_sink is not read"),
    "short": (GROUP, PROMPT | {"seqlens_k": np.array([4, 2], np.int32)}, _HEADS, "some of 5 keys are padding"),
    "empty window": (GROUP, PROMPT, {**_HEADS, "local_window_size": 0}, "local_window_size is 0"),
    "other length in all": (
        GROUP, PROMPT | {"total_sequence_length": np.array(9, np.int32)}, _HEADS, "does not say that there are 5 keys",
    ),
    "lengths of others": (GROUP, PROMPT | {"seqlens_k": np.array([4], np.int32)}, _HEADS, "1 entries for 2 sequences"),
    "fewer queries": (GROUP, _tokens(32, 16, 16, n_q=3) | _lengths(5), _HEADS, "another number of new keys"),
    "short bias": (MULTI, _tokens(8, 8, 8) | {"bias": np.ones(17, np.float32)}, {"num_heads": 2}, r"expected \(24,\)"),
    "long bias": (MULTI, _tokens(8, 8, 8) | {"bias": np.ones(30, np.float32)}, {"num_heads": 2}, r"expected \(24,\)"),
    "one column of bias": (
        MULTI, _tokens(8, 8, 8) | {"attention_bias": np.ones((1, 1, 5, 1), np.float32)}, {"num_heads": 2},
        "the last of 5",
    ),
    "booleans as bias": (
        GROUP, PROMPT | {"attention_bias": np.ones((1, 1, 5, 5), bool)}, _HEADS, "must be numbers of four axes",
    ),
    "no tables": (GROUP, PROMPT, {**_HEADS, "do_rotary": 1}, "needs cos_cache and sin_cache"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_by_its_name(name: str) -> None:
    operator, given, attributes, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        _computed(model(operator, given, **attributes), given)


def _layer(**attributes: Any) -> Any:
    """A model of four tokens in two sequences, with two heads of queries and one of keys."""
    shapes = {"q": 8, "k": 4, "v": 4, "y": 8}
    told = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4, d]) for n, d in shapes.items()]
    lengths = [numpy_helper.from_array(np.array(x, np.int32), n) for n, x in (("last", [3, 3]), ("whole", 4))]
    node = helper.make_node(
        GROUP, ["q", "k", "v", "", "", "last", "whole"], ["y", "pk", "pv"], domain="com.microsoft",
        num_heads=2, kv_num_heads=1, **attributes,
    )  # fmt: skip
    graph = helper.make_graph([node], "layer", told[:3], told[3:], lengths)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in _OPSETS])


def test_a_flipped_attribute_is_refuted() -> None:
    spec = Attention(causal=True, heads=2, kv_heads=1, window=2, scale=0.25)
    report = graphs.verify_graph(_layer(local_window_size=2, scale=0.25), spec)
    assert (report.verdict.value, report.checks[0].grade.value) == ("no fault", "tested")
    for wrong in (_layer(local_window_size=3, scale=0.25), _layer(local_window_size=2), _layer(scale=0.25)):
        assert graphs.verify_graph(wrong, spec).verdict.value == "fault"


def test_an_output_that_is_not_read_is_refused() -> None:
    made = model(MULTI, given := _tokens(8, 8, 8), num_heads=2)
    made.graph.node[0].output.extend(["present_key", "present_value", "scores"])
    with pytest.raises(InputError, match="the output 'scores' is not read"):
        _computed(made, given)

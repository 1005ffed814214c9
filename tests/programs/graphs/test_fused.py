"""Fused operators of ONNX: each attribute as ONNX's own evaluator has it, and a flipped one refuted."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from symattn import Attention, InputError, Rotary, graphs
from tests.programs.graphs.fused import FLOAT, attends, computed, layer, of_arrays

pytestmark = pytest.mark.onnx
_RANDOM = np.random.default_rng(3)
QKV = {name: _RANDOM.normal(size=(2, h, n, 4)) for name, h, n in (("Q", 4, 3), ("K", 2, 5), ("V", 2, 5))}
PACKED = {name: x.swapaxes(1, 2).reshape(2, x.shape[2], -1) for name, x in QKV.items()}
PAST = {name: _RANDOM.normal(size=(2, 2, 4, 4)) for name in ("past_key", "past_value")}
BOOLEANS = _RANDOM.random((2, 1, 3, 5)) < 0.6
NUMBERS = _RANDOM.normal(size=(4, 3, 5))

#: More inputs, the opset, outputs, and attributes.
READ: dict[str, tuple[dict[str, np.ndarray], int, str, dict[str, Any]]] = {
    "plain": ({}, 23, "Y", {}),
    "scale": ({}, 23, "Y", {"scale": 0.25}),
    "causal booleans, capped": ({"attn_mask": BOOLEANS}, 23, "Y", {"is_causal": 1, "softcap": 0.75}),
    "numbers for each head": ({"attn_mask": NUMBERS}, 24, "Y", {"is_causal": 1}),
    "one column, others hidden": ({"attn_mask": BOOLEANS[..., :1]}, 24, "Y", {}),
    "fewer columns": ({"attn_mask": NUMBERS[..., :3]}, 24, "Y", {}),
    "a past": (PAST, 23, "Y", {"is_causal": 1}),
    "keys with their past": (PAST, 23, "- K2", {}),
    "lengths": ({"nonpad_kv_seqlen": np.array([2, 5])}, 24, "Y", {"is_causal": 1}),
    "a window": ({}, 25, "Y", {"left_window_size": 1, "right_window_size": 2}),
    "scores": ({"attn_mask": BOOLEANS}, 25, "- - - S", {"softcap": 0.75, "qk_matmul_output_mode": 1}),
    "masked scores": ({"attn_mask": BOOLEANS}, 25, "- - - S", {"softcap": 0.75, "qk_matmul_output_mode": 2}),
    "weights": ({"attn_mask": BOOLEANS}, 25, "- - - S", {"qk_matmul_output_mode": 3}),
    "doubles": ({}, 25, "Y", {"softmax_precision": TensorProto.DOUBLE}),
}


@pytest.mark.parametrize("name", READ)
def test_an_attribute_is_read_as_the_reference_has_it(name: str) -> None:
    more, opset, outputs, attributes = READ[name]
    given = QKV | more
    ours, theirs = computed(of_arrays(given, outputs, opset, **attributes), given)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    changed, _ = computed(of_arrays(given, outputs, opset, **attributes), given | {x: -given[x] for x in "KV"})
    assert not np.allclose(changed, theirs, rtol=1e-3, atol=0, equal_nan=True)


def test_heads_side_by_side() -> None:
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    ours, theirs = computed(of_arrays(PACKED, **heads), PACKED)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    other, _ = computed(of_arrays(PACKED, q_num_heads=2, kv_num_heads=1), PACKED)
    assert not np.allclose(other, theirs, rtol=1e-3)


REFUSED: dict[str, tuple[dict[str, np.ndarray], int, dict[str, Any], str]] = {
    "too early": ({}, 24, {"left_window_size": 2}, "opset 24 has no left_window_size; 25 is the first"),
    "lengths too early": ({"nonpad_kv_seqlen": np.array([2, 5])}, 23, {}, "opset 23 has no nonpad_kv_seqlen"),
    "before it was there": ({}, 22, {}, "opset 22 has no Q; 23 is the first"),
    "short mask": ({"attn_mask": NUMBERS[..., :3]}, 23, {}, "3 columns; opset 23 wants one or 5"),
    "no number": ({}, 25, {"is_causal": "no"}, "is_causal is 'no'; known: 0 and 1"),
    "precision": ({}, 25, {"softmax_precision": 7}, "softmax_precision is 7"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_by_its_name(name: str) -> None:
    more, opset, attributes, words = REFUSED[name]
    given = QKV | more
    with pytest.raises(InputError, match=words):
        computed(of_arrays(given, opset=opset, **attributes), given)


CAUSAL = Attention(causal=True, heads=2)
#: A specification, the attributes that say it, and those with one flipped.
FLIPPED: dict[str, tuple[Attention, dict[str, Any], dict[str, Any]]] = {
    "is_causal": (CAUSAL, {"is_causal": 1}, {"is_causal": 0}),
    "scale": (Attention(heads=2, scale=0.25), {"scale": 0.25}, {"scale": 0.5}),
    "softcap": (Attention(heads=2, softcap=2), {"softcap": 2.0}, {"softcap": 0.0}),
    "left_window_size": (
        Attention(causal=True, heads=2, window=3),
        {"is_causal": 1, "left_window_size": 2},
        {"is_causal": 1, "left_window_size": 3},
    ),
}


@pytest.mark.parametrize("name", FLIPPED)
def test_a_flipped_attribute_is_refuted(name: str) -> None:
    spec, right, flipped = FLIPPED[name]
    report = graphs.verify_graph(layer([attends(**right)]), spec, prove=False)
    grade = "sampled" if spec.softcap else "tested"  # of tanh there is no bound
    assert (report.verdict.value, report.checks[0].grade.value) == ("no fault", grade)
    assert graphs.verify_graph(layer([attends(**flipped)]), spec, prove=False).verdict.value == "fault"


def test_a_causal_node_without_a_cache_is_aligned_top_left() -> None:
    model = layer([attends(is_causal=1)], sizes=("n", "m"))
    top = Attention(causal=True, heads=2, alignment="top-left")
    assert graphs.verify_graph(model, top, prove=False).verdict.value == "no fault"
    assert graphs.verify_graph(model, CAUSAL, prove=False).verdict.value == "fault"


def test_a_fused_node_is_proved_for_all_sizes_left_open() -> None:
    report = graphs.verify_graph(layer([attends(is_causal=1)]), CAUSAL)
    assert [c.grade.value for c in report.checks] == ["tested", "proved"]
    assert report.checks[1].name == "all b, n"


def _masked(right: bool) -> list[Any]:
    """A causal mask made of places, as exporters write it, beside a node that knows of none."""
    return [
        helper.make_node("Shape", ["q"], ["lengths"]),
        helper.make_node("Gather", ["lengths", "two"], ["n"], axis=0),
        helper.make_node("Range", ["zero", "n", "one"], ["j"]),
        helper.make_node("Unsqueeze", ["j", "axis"], ["i"]),
        helper.make_node("LessOrEqual", ["j", "i"] if right else ["i", "j"], ["seen"]),
        attends("q", "k", "seen"),
    ]


@pytest.mark.parametrize("prove", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_mask_of_places_is_one_of_booleans(prove: bool) -> None:
    whole = {"zero": np.array(0), "one": np.array(1), "two": np.array(2), "axis": np.array([1])}
    report = graphs.verify_graph(layer(_masked(True), **whole), CAUSAL, prove=prove)
    assert (report.verdict.value, report.checks[-1].grade.value) == ("no fault", "proved" if prove else "tested")
    report = graphs.verify_graph(layer(_masked(False), **whole), CAUSAL, prove=prove)
    assert (report.verdict.value, report.faults[0].step) == ("fault", "mask")


def test_a_mask_that_is_given_is_taken_by_its_type() -> None:
    given = {"attn_mask": (TensorProto.BOOL, ("n", "n"))}
    spec = Attention(heads=2, mask="boolean")
    model = layer([attends("q", "k", "attn_mask")], more=given)
    report = graphs.verify_graph(model, spec, prove=True)
    assert report.verdict.value == "no fault"
    assert "may be of booleans or of numbers" in " ".join(report.notes), "letters have no type: no proof"
    without = layer([attends()], more=given)
    with pytest.raises(InputError, match="is known to be mask"):
        graphs.verify_graph(without, spec, prove=False)


def _turned(interleaved: int) -> Any:
    turned = [
        helper.make_node("RotaryEmbedding", [name, "cos", "sin"], [f"{name}2"], interleaved=interleaved)
        for name in "qk"
    ]
    tables: dict[str, Any] = {name: (FLOAT, ("b", "n", 2)) for name in ("cos", "sin")}
    return layer([*turned, attends("q2", "k2", is_causal=1)], more=tables)


@pytest.mark.parametrize(("layout", "other"), [("half", 1), ("interleaved", 0)])
def test_the_layout_of_rotary_positions(layout: Any, other: int) -> None:
    spec = Attention(causal=True, heads=2, position=Rotary(given="tables", layout=layout))
    assert graphs.verify_graph(_turned(1 - other), spec, prove=False).verdict.value == "no fault"
    assert graphs.verify_graph(_turned(other), spec, prove=False).verdict.value == "fault"


def _normed(operator: str, **attributes: Any) -> Any:
    normed = [helper.make_node(operator, [name, f"{name}_norm.weight"], [f"{name}2"], **attributes) for name in "qk"]
    gains = {f"{name}_norm.weight": np.ones(4, np.float32) for name in "qk"}
    return layer([*normed, attends("q2", "k2")], **gains)


def test_normalised_queries_and_keys() -> None:
    spec = Attention(heads=2, qk_norm="rms", eps=0.25)
    assert graphs.verify_graph(_normed("RMSNormalization", epsilon=0.25), spec, prove=False).verdict.value == "no fault"
    for wrong in (_normed("RMSNormalization", epsilon=0.5), _normed("LayerNormalization", epsilon=0.25)):
        assert graphs.verify_graph(wrong, spec, prove=False).verdict.value == "fault"


def test_floats_of_attributes_stand_for_the_decimals_that_they_are_nearest_to() -> None:
    """Attributes are float32, in which 10⁻⁶ and 0.1 are not; another ε, scale or cap is refuted all the same."""
    normed, scaled = Attention(heads=2, qk_norm="rms", eps=1e-6), Attention(heads=2, scale=0.1, softcap=0.3)
    report = graphs.verify_graph(_normed("RMSNormalization", epsilon=1e-6), normed, prove=False)
    assert report.verdict.value == "no fault"
    assert "stands for 1e-06, of which it is the float32" in " ".join(report.notes)
    assert (
        graphs.verify_graph(layer([attends(scale=0.1, softcap=0.3)]), scaled, prove=False).verdict.value == "no fault"
    )
    for wrong in ({"scale": 0.1001, "softcap": 0.3}, {"scale": 0.1, "softcap": 0.3001}):
        assert graphs.verify_graph(layer([attends(**wrong)]), scaled, prove=False).checks[0].grade.value == "refuted"
    wrong_eps = graphs.verify_graph(_normed("RMSNormalization", epsilon=1.1e-6), normed, prove=False)
    assert wrong_eps.checks[0].grade.value == "refuted"


def test_a_node_does_not_tell_its_own_opset() -> None:
    with pytest.raises(InputError, match="unknown attribute 'opset'"):
        graphs.verify_graph(layer([attends(opset=25)], opset=22), Attention(heads=2), prove=False)

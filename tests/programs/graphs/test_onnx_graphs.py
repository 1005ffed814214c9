"""ONNX models: a whole layer is tested and proved, seeded faults are refuted and named, no file is believed."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper

from symattn import Attention, graphs
from symattn.graphs import proved
from symattn.programs.graphs.graph_program import GraphProgram
from symattn_cli.main import main
from tests.programs.graphs.models import bare, layer
from tests.refusals import refuses

pytestmark = pytest.mark.onnx
CAUSAL = Attention(causal=True, heads=2)


def test_a_whole_layer_is_tested_within_epsilon() -> None:
    report = graphs.verify_graph(layer(), CAUSAL, prove=False)
    check = report.checks[0]
    assert (report.verdict.value, check.grade.value) == ("no fault", "tested")
    assert check.epsilon is not None
    assert check.epsilon <= 1e-12
    printed = " ".join(str(report).split())
    assert f"NO FAULT: {check.cases} pairs of primes, tested ε" in printed
    largest = r"on residues n_q = \S+ n_k = \S+ .* at once \(2 of 2 stages\)"
    assert re.search(rf"Tried: {check.cases} pairs of primes; {largest}\. Grade: tested", printed)
    assert report.largest.residues == {"n_q": 140, "n_k": 140, "d_k": 4, "d_v": 4}
    assert "proved" not in printed


def test_a_layer_is_proved_for_all_sizes_that_it_leaves_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "layer.onnx"
    onnx.save(layer(d=2, width=4), path)
    assert main(["verify", str(path), "--causal", "--heads", "2"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(r"NO FAULT: \d+ pairs of primes, tested ε ≤ \S+; proved for all b, n\. ", printed)
    assert re.search(r"Tried: \d+ pairs of primes; .*\. Grade: .* Proved for all b, n\. ", printed)
    assert "! Hypothesis: every row has an allowed key" in printed, "a proof is printed with what it assumes"


FAULTS = {
    "flipped": ("mask", "the causal mask is transposed: a query sees itself and later keys"),
    "scale": ("scale", "scores are scaled by 0.8/√d_k"),
    "squared": (
        "scale",
        "; or ".join(f"scores are scaled by 1/{n}" for n in ("d_k (as by 1/√d_k twice)", "d_v", "d_model")),
    ),
    "own": ("mask", "the causal mask is off by one: a query does not see its own key"),
    "dealt": (
        "split",
        "columns are dealt to heads in turn, in place of a block for each head; they are merged in the same way",
    ),
    "heads": ("output", None),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_seeded_fault_is_refuted(fault: str) -> None:
    report = graphs.verify_graph(layer(fault), CAUSAL)
    step, words = FAULTS[fault]
    assert report.verdict.value == "fault"
    assert (report.faults[0].step, report.faults[0].cause) == (step, words)
    assert report.grade.grade.value == "refuted"
    assert "within what this arithmetic allows" not in str(report), "that is said of faults which bits alone tell"


def test_pairs_of_primes_without_a_bound_are_not_counted_as_calls() -> None:
    """Where the root of d_k is not a whole number, the grade is ``sampled``."""
    report = graphs.verify_graph(layer(d=2, width=2), CAUSAL, prove=False)
    assert report.checks[0].grade.value == "sampled"
    assert report.cases == 0
    assert f"NO FAULT: {report.checks[0].cases} pairs of primes, sampled" in " ".join(str(report).split())


def test_keys_and_values_that_are_exchanged_are_named() -> None:
    model = bare()
    model.graph.node[1].input[0], model.graph.node[-1].input[1] = "v", "k"
    fault = graphs.verify_graph(model, Attention(), prove=False).faults[0]
    assert (fault.step, fault.cause) == ("score", "keys and values are exchanged")


@pytest.mark.parametrize("field", [{"window": 7}, {"window": 8}, {"window": 16}, {"block": 8}, {"prefix": 9}])
def test_a_field_that_the_graph_lacks_is_a_fault_beyond_its_place(field: dict[str, int]) -> None:
    assert graphs.verify_graph(layer(), replace(CAUSAL, **field), prove=False).verdict.value == "fault"  # type: ignore[arg-type]


def test_a_graph_is_not_right_where_no_temperature_was_tried() -> None:
    for field in ({}, {"temperature_rate": 300}, {"temperature": "log"}):
        report = graphs.verify_graph(layer(), replace(CAUSAL, **{"temperature": 0.5, **field}), prove=False)
        assert report.verdict.value == "undecided"
        assert "Nothing was tried beyond the place" in str(report)


def test_a_window_is_tested_beyond_it() -> None:
    assert graphs.verify_graph(layer("window"), replace(CAUSAL, window=16), prove=False).verdict.value == "no fault"
    assert graphs.verify_graph(layer("window"), replace(CAUSAL, window=15), prove=False).verdict.value == "fault"


def test_a_window_that_only_the_graph_has_is_refuted() -> None:
    model, spec = layer("window", d=2, heads=1), Attention(causal=True)
    report = graphs.verify_graph(model, spec)
    assert (report.verdict.value, report.exit_code) == ("fault", 1)
    assert {report.checks[-1].grade.value, report.grade.grade.value} == {"refuted"}
    # Several blocks of tokens show it; a window longer than these is left to the proof, which refutes both alike.
    evidence, *_ = proved(GraphProgram.of(graphs.read(model), spec))
    assert evidence.grade.value == "refuted"


def test_a_place_too_far_to_try_leaves_a_graph_undecided() -> None:
    report = graphs.verify_graph(layer(), replace(CAUSAL, window=1000), prove=False)
    assert report.verdict.value == "undecided"
    assert "beyond the place 999" in report.missing[-1]


def test_an_unknown_operator_raises_by_name() -> None:
    model = layer("unknown")
    refuses(graphs.verify_graph, model, CAUSAL, says="operator Det is not read")


def test_weights_whose_names_say_nothing_are_told() -> None:
    model = layer()
    for node in model.graph.node:
        node.input[:] = ["blob" if name == "c_proj.weight" else name for name in node.input]
    model.graph.initializer[2].name = "blob"
    refuses(graphs.verify_graph, model, CAUSAL, says="what the weight 'blob' is")
    assert graphs.verify_graph(model, CAUSAL, names={"w_o": "blob"}, prove=False).verdict.value == "no fault"


def _broken() -> dict[str, tuple[Any, str]]:
    cycle, twice, external, lying, untyped = (layer() for _ in range(5))
    cycle.graph.node[0].input[0] = "y"
    twice.graph.node[1].output[0] = "xw"
    external.graph.initializer[0].ClearField("raw_data")
    external.graph.initializer[0].data_location = TensorProto.EXTERNAL
    external.graph.initializer[0].external_data.add(key="location", value="../../secret")
    lying.graph.initializer[0].dims[:] = [2**40, 2**20]
    untyped.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None))
    return {
        "cycle": (cycle, "a cycle"),
        "twice": (twice, "two values are called"),
        "outside": (external, "outside of the model's folder"),
        "lying shape": (lying, "the file is damaged"),
        "no tensor": (untyped, "not a tensor of known axes"),
    }


@pytest.mark.parametrize("name", ["cycle", "twice", "outside", "lying shape", "no tensor"])
def test_a_broken_model_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, words = _broken()[name]
    path = tmp_path / "layer.onnx"
    path.write_bytes(model.SerializeToString())
    assert main(["verify", str(path), "--causal", "--heads", "2"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_file_that_is_cut_off_or_no_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, whole = tmp_path / "layer.onnx", layer().SerializeToString()
    for content in (b"", whole[: len(whole) // 2], whole[:-3], b"\xff" * 100, b"text"):
        path.write_bytes(content)
        assert main(["verify", str(path), "--causal", "--heads", "2"]) == 2
        error = capsys.readouterr().err
        assert (error.count("\n"), "is empty" in error) == (1, not content)
    with path.open("wb") as opened:
        opened.truncate(2**30)
    assert main(["verify", str(path)]) == 2
    assert "larger than 256 MiB" in capsys.readouterr().err


def test_options_of_calls_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "layer.onnx"
    onnx.save(layer(), path)
    assert main(["verify", str(path), "--examples", "3"]) == 2
    assert "--examples applies to a function" in capsys.readouterr().err


def test_axes_without_names_have_lengths_of_their_own() -> None:
    """Two inputs whose names are equally long are not equally long themselves."""
    names = ("query", "value")
    arrays = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 4]) for name in (*names, "output")]
    node = helper.make_node("MatMul", [*names], ["output"])
    opset = helper.make_opsetid("", 21)
    model = helper.make_model(helper.make_graph([node], "node", arrays[:2], arrays[2:]), opset_imports=[opset])
    first, second = (x.shape for x in graphs.read(model).inputs)
    assert first != second
    assert (first[1], second[1]) == (4, 4)


@pytest.mark.parametrize(
    ("operator", "attributes", "words"),
    [
        ("MatMul", {"alpha": 2.0}, "MatMul: alpha = 2.0 is not read"),
        ("Concat", {}, "Concat: axis is missing"),
    ],
)
def test_an_attribute_that_is_not_taken_or_missing_is_named(
    operator: str, attributes: dict[str, float], words: str
) -> None:
    model = layer()
    node = model.graph.node[-1]
    node.op_type = operator
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    refuses(graphs.verify_graph, model, CAUSAL, prove=False, says=words)

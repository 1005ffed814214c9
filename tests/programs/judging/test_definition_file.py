"""Candidates that are judged by the ``definition.json`` of a benchmark."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from symattn import Attention, InputError, RMSNorm, Rotary, Softmax, judge, reports
from symattn.programs.judging.definition_file import read_definition
from symattn.programs.judging.workloads import read_workloads

REFERENCE = """
import torch

def run(hidden_states, weight):
    rows, width = hidden_states.shape
    assert width == 16
    x = hidden_states.float()
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float()).to(hidden_states.dtype)
"""
NORM = {
    "name": "rmsnorm_h16",
    "op_type": "rmsnorm",
    "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 16}},
    "inputs": {
        "hidden_states": {"shape": ["rows", "width"], "dtype": "float32"},
        "weight": {"shape": ["width"], "dtype": "float32"},
    },
    "outputs": {"output": {"shape": ["rows", "width"], "dtype": "float32"}},
    "reference": REFERENCE,
}
KERNEL = """
import torch

def run(hidden_states, weight, centred=False):
    x = hidden_states - hidden_states.mean(-1, keepdim=True) if centred else hidden_states
    return hidden_states / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

def centred(hidden_states, weight):
    return run(hidden_states, weight, True)
"""


def written(folder: Path, content: object) -> str:
    path = folder / "definition.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_axes_and_names_say_what_is_plausible(tmp_path: Path) -> None:
    kernel = read_definition(written(tmp_path, NORM))
    assert (kernel.constants, [*kernel.outputs], kernel.dtype) == ({"width": 16}, ["output"], "float32")
    assert (kernel.domain().min_width, kernel.domain().max_width) == (16, 16)
    assert RMSNorm(eps=1e-6) in kernel.plausible()
    axes = {name: {"type": "const", "value": size} for name, size in (("H", 8), ("G", 2), ("D", 64))}
    inputs = {n: {"shape": ["n", "G" if n in "kv" else "H", "D"], "dtype": "bfloat16"} for n in "qkv"}
    attention = NORM | {"axes": axes | {"n": {"type": "var"}}, "inputs": inputs, "outputs": {"out": {}, "lse": {}}}
    first, second, *_ = read_definition(written(tmp_path, attention)).plausible()
    assert first == Attention(heads=8, kv_heads=2, lse=True)
    assert second == Attention(heads=8, kv_heads=2, lse=True, causal=True)


def test_one_array_may_be_scores_and_arrays_beside_q_k_v_a_mask(tmp_path: Path) -> None:
    scores = NORM | {"inputs": {"input": {"shape": ["rows", "width"], "dtype": "float32"}}}
    assert Softmax() in read_definition(written(tmp_path, scores)).plausible()
    inputs = {n: {"shape": ["rows", "width"], "dtype": "float32"} for n in "qkv"}
    for name, dtype, first in (
        ("attention_mask", "bool", Attention(mask="boolean")),
        ("attention_mask", "float32", Attention(mask="additive")),
        ("cos", "float32", Attention(position=Rotary(given="tables"))),
    ):
        more = {name: {"shape": ["rows", "rows"], "dtype": dtype}}
        known = read_definition(written(tmp_path, NORM | {"inputs": inputs | more})).plausible()
        assert known[0] == first
    unknown = {"temperatures": {"shape": ["rows"], "dtype": "float32"}}
    assert read_definition(written(tmp_path, NORM | {"inputs": inputs | unknown})).plausible() == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reference": 3}, "reference a text"),
        ({"axes": {"width": {"type": "const", "value": 0}, "rows": {}}}, "no size"),
        ({"axes": {}}, "not among its axes"),
        ({"inputs": {"n": {"shape": None, "dtype": "int32"}}}, "array of floats"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_definition(written(tmp_path, NORM | change))
    without = {name: value for name, value in NORM.items() if name not in change}
    with pytest.raises(InputError, match="no definition of a kernel"):
        read_definition(written(tmp_path, without))


@pytest.mark.torch
def test_the_reference_of_a_file_judges_the_candidate(tmp_path: Path) -> None:
    tmp_path.joinpath("kernel.py").write_text(KERNEL)
    reference, kernel = written(tmp_path, NORM), str(tmp_path / "kernel.py")
    right = judge(kernel, reference=reference, examples=5)
    assert (right.status, right.definition) == (reports.Status.PASS_WITH_LIMITS, "RMSNorm(eps=1e-06)")
    assert right.limits[-1] == "no workloads of the benchmark were found beside its definition"
    assert judge(f"{kernel}:centred", reference=reference).status is reports.Status.FAIL


WORKLOADS = (
    {"uuid": "a", "axes": {"rows": 3}, "inputs": {"hidden_states": {"type": "random"}}},
    {"definition": "rmsnorm_h16", "workload": {"uuid": "b", "axes": {"rows": 1777}, "inputs": {}}, "solution": None},
    {"axes": {"rows": 3}},
    {"axes": {"rows": 10**9}},
)


def put(folder: Path, file: str, content: Iterable[object]) -> Path:
    """Write objects in JSON, one a line."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, content)))
    return path


@pytest.mark.torch
@pytest.mark.deep
@pytest.mark.parametrize(
    ("definition", "files"),
    [
        ("definitions/norm/h16.json", {"workloads/norm/h16.jsonl": WORKLOADS}),
        # What lies beside the definition counts.
        ("definitions/norm/h16.json", {"workloads/norm/h16.jsonl": [], "definitions/norm/workload.jsonl": WORKLOADS}),
    ],
)
def test_the_candidate_is_called_at_the_sizes_of_workloads(
    definition: str, files: dict[str, Iterable[object]], tmp_path: Path
) -> None:
    wrong_there = KERNEL + "\ndef wrong(hidden_states, weight):\n    out = run(hidden_states, weight)\n"
    wrong_there += "    return out * 2 if hidden_states.shape[0] == 1777 else out\n"
    tmp_path.joinpath("kernel.py").write_text(wrong_there)
    for file, content in files.items():
        put(tmp_path, file, content)
    reference, kernel = str(put(tmp_path, definition, [NORM])), str(tmp_path / "kernel.py")
    right = judge(kernel, reference=reference, examples=5)
    assert right.limits[-1].endswith("2 were tried, with random inputs; the others are larger")
    wrong = judge(f"{kernel}:wrong", reference=reference, examples=5)
    assert wrong.status is reports.Status.FAIL
    assert wrong.location is not None
    assert 1777 in wrong.location.sizes.values()


@pytest.mark.torch
@pytest.mark.deep
def test_a_size_of_workloads_without_an_answer_is_a_limit(tmp_path: Path) -> None:
    slow_there = (
        KERNEL + "\ndef slow(hidden_states, weight):\n    while hidden_states.shape[0] == 1777:\n        pass\n"
    )
    tmp_path.joinpath("kernel.py").write_text(slow_there + "    return run(hidden_states, weight)\n")
    tmp_path.joinpath("workload.jsonl").write_text("\n".join(map(json.dumps, WORKLOADS)))
    kernel = f"{tmp_path / 'kernel.py'}:slow"
    slow = judge(kernel, reference=written(tmp_path, NORM), examples=5, time_limit=1)
    assert slow.status is reports.Status.PASS_WITH_LIMITS
    assert any("rows = 1777" in limit and "no output was judged" in limit for limit in slow.limits)


def test_workloads_are_read(tmp_path: Path) -> None:
    read = read_workloads(put(tmp_path, "h16.jsonl", WORKLOADS), read_definition(written(tmp_path, NORM)))
    assert ([sizes["rows"] for sizes in read.sizes], read.lines) == ([3, 1777, 10**9], 4)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"axes": {"row": 3}}, "no value of the axis rows"),
        ({"axes": {"rows": -1}}, "no size"),
        ({"axes": {"rows": "3"}}, "no size"),
        ({"inputs": {}}, "is no workload"),
        ([], "is no workload"),
    ],
)
def test_a_workload_of_another_form_is_refused(tmp_path: Path, line: object, words: str) -> None:
    path = tmp_path / "workload.jsonl"
    path.write_text(json.dumps(line))
    with pytest.raises(InputError, match=words):
        read_workloads(path, read_definition(written(tmp_path, NORM)))


@pytest.mark.torch
def test_a_reference_of_no_definition_is_invalid(tmp_path: Path) -> None:
    tmp_path.joinpath("kernel.py").write_text(KERNEL)
    reference = written(tmp_path, NORM | {"reference": "def run(hidden_states, weight):\n    return hidden_states"})
    judgement = judge(str(tmp_path / "kernel.py"), reference=reference)
    assert judgement.status is reports.Status.INVALID_REFERENCE
    assert f"{reference}:run" in judgement.reason


@pytest.mark.torch
def test_what_only_the_sizes_of_workloads_show_of_a_reference(tmp_path: Path) -> None:
    """A reference that differs from the norm in rows beyond those of small inputs computes no norm."""
    late = REFERENCE.replace("    return (", "    x = torch.cat([x[:1500], 2 + x[1500:]])\n    return (")
    reference = written(tmp_path, NORM | {"reference": late})
    tmp_path.joinpath("kernel.py").write_text(KERNEL)
    tmp_path.joinpath("workload.jsonl").write_text("\n".join(map(json.dumps, WORKLOADS)))
    judgement = judge(f"{tmp_path}/kernel.py", reference=reference, examples=5)
    assert judgement.status is reports.Status.INVALID_REFERENCE, judgement


@pytest.mark.torch
@pytest.mark.deep
def test_a_reference_may_round_to_its_own_format(tmp_path: Path) -> None:
    """References of paged kernels allocate outputs in bfloat16, also for queries in float32."""
    rounding = REFERENCE.replace(".to(hidden_states.dtype)", ".to(torch.bfloat16)")
    arrays = {name: array | {"dtype": "bfloat16"} for name, array in NORM["inputs"].items()}
    kernel = tmp_path / "kernel.py"
    kernel.write_text(rounding.replace("+ 1e-6", "* 0 + 1"))
    judged = judge(str(kernel), reference=written(tmp_path, NORM | {"reference": rounding, "inputs": arrays}))
    assert (judged.status, judged.definition.split("(")[0]) == (reports.Status.FAIL, "RMSNorm")


@pytest.mark.torch
@pytest.mark.deep
def test_a_norm_may_write_into_an_output_of_its_axes(tmp_path: Path) -> None:
    """One row without an axis of rows is none of its inputs: no output of it has a shape."""
    kernel = tmp_path / "kernel.py"
    own = REFERENCE.replace("weight):", "weight, output):").replace("return (", "output[...] = (")
    kernel.write_text(own.replace("    rows, width = hidden_states.shape\n    assert width == 16\n", ""))
    right = judge(str(kernel), reference=written(tmp_path, NORM), examples=5)
    assert right.passed, right


ADDED = """
import torch

def run(hidden_states, residual, weight):
    x = hidden_states.float() + residual.float()
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight.float()
    return y.to(hidden_states.dtype){more}
"""
ADDED_KERNEL = """
import torch

def norm(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight

def run(hidden_states, residual, weight):
    return norm(hidden_states + residual, weight)

def after(hidden_states, residual, weight):
    return norm(hidden_states, weight) + residual

def both(hidden_states, residual, weight):
    return norm(hidden_states + residual, weight), hidden_states + residual

def stale(hidden_states, residual, weight):
    return norm(hidden_states + residual, weight), residual.clone()
"""


@pytest.mark.torch
@pytest.mark.deep
@pytest.mark.parametrize("is_returned", [False, True])
def test_a_norm_may_read_the_sum_with_a_residual(tmp_path: Path, is_returned: bool) -> None:
    rows = {"shape": ["rows", "width"], "dtype": "float32"}
    weight = NORM["inputs"]["weight"]  # type: ignore[index]
    more = ", x.to(hidden_states.dtype)" if is_returned else ""
    added = NORM | {
        "inputs": {"hidden_states": rows, "residual": rows, "weight": weight},
        "outputs": {"output": rows} | ({"sum": rows} if is_returned else {}),
        "reference": ADDED.replace("{more}", more),
    }
    reference = written(tmp_path, added)
    kernel = tmp_path / "kernel.py"
    kernel.write_text(ADDED_KERNEL)
    good, bad = ("both", "stale") if is_returned else ("run", "after")
    right = judge(f"{kernel}:{good}", reference=reference, examples=5)
    assert right.passed, right
    kind = "returned" if is_returned else "added"
    assert right.definition == f"RMSNorm(eps=1e-05, residual={kind!r})"
    wrong = judge(f"{kernel}:{bad}", reference=reference, examples=5)
    assert wrong.status is reports.Status.FAIL, wrong

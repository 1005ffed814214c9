"""Candidates that act against their judge, one of each class: each fails, or is said to have tampered."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from symattn import Attention, CannotRun, Judgement, judge, reports
from symattn.bounds.called_target import Convention
from symattn.document.errors import CannotRunHere
from symattn.programs import calls, frameworks, guard
from symattn.programs.calling import agree
from symattn.programs.calls import Target
from symattn.programs.child import TargetOptions
from symattn.programs.judging import references
from symattn.programs.judging.benchmark import Benchmark
from symattn.programs.judging.definition_file import read_definition
from symattn.programs.judging.judging import CandidateJudge, identity_of, with_further_calls
from symattn.programs.judging.references import ByReference, _with_own_inputs
from symattn.programs.judging.workloads import read_workloads, with_workloads
from symattn.programs.request import Request
from tests.printed import validator
from tests.programs.judging.hostile import BREAKING, FAILING, RIGHT, TAMPERING

SCHEMA = validator("judgement")


def judged(folder: Path, text: str, **options):
    path = folder / "kernel.py"
    path.write_text(RIGHT + text + "\n")
    judgement = judge(f"{path}:f", examples=10, **options)
    SCHEMA.validate(judgement.as_dict())
    return judgement


@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_is_named(name: str, tmp_path: Path) -> None:
    text, words = TAMPERING[name]
    judgement = judged(tmp_path, text)
    assert (judgement.status, judgement.exit_code) == (reports.Status.TAMPERED, 1), judgement
    assert words in judgement.reason
    assert judgement.tampering == (judgement.reason,)


@pytest.mark.parametrize("name", FAILING)
def test_a_hostile_candidate_fails(name: str, tmp_path: Path) -> None:
    judgement = judged(tmp_path, FAILING[name])
    assert judgement.status in (reports.Status.FAIL, reports.Status.TAMPERED), judgement


@pytest.mark.parametrize("name", BREAKING)
def test_a_candidate_that_breaks_the_judge_is_left_undecided(name: str, tmp_path: Path) -> None:
    judgement = judged(tmp_path, BREAKING[name])
    assert (judgement.status, judgement.passed) == (reports.Status.UNDECIDED, False), judgement
    assert "symattn's own code failed in its process" in judgement.reason


@pytest.mark.deep
def test_an_object_that_says_it_is_an_array_is_none(tmp_path: Path) -> None:
    text = (
        "class Other:\n    __class__ = np.ndarray\n    def __getattr__(self, name):\n        return lambda *_: self\n"
    )
    judgement = judged(tmp_path, f"{text}def f(q, k, v):\n    return Other()")
    assert judgement.status is reports.Status.FAIL, judgement


def test_a_library_of_the_candidates_own_has_no_arrays_that_are_read_unwatched(tmp_path: Path) -> None:
    text, words = TAMPERING["imports symattn when its output is read"]
    own_jax = "import sys, types\nsys.modules['jax'] = types.SimpleNamespace(Array=object)\n"
    judgement = judged(tmp_path, own_jax + text)
    assert judgement.status is reports.Status.TAMPERED, judgement
    assert words in judgement.reason


def test_a_scalar_of_a_class_of_the_candidates_own_is_not_read_unwatched() -> None:
    class Own(np.float64):
        @property
        def dtype(self):
            raise AssertionError("this is code of the candidate")

    assert calls._is_plain_array(np.float64(1))
    assert calls._is_plain_array(np.bool_(True))
    assert not calls._is_plain_array(Own(1))
    assert type(calls._export_call_output(Own(1))) is np.ndarray


@pytest.mark.deep
@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("def f(q, k, v):\n    raise OSError('no such kernel')", reports.Status.FAIL, "failed on every input"),
        (
            "def f(q, k, v):\n    raise RuntimeError('Found no NVIDIA driver: no cuda')",
            reports.Status.UNDECIDED,
            "on the CPU",
        ),
        ("import no_such_module_at_all\ndef f(q, k, v):\n    return v", reports.Status.FAIL, "cannot be imported"),
        (
            "def f(q, k, v):\n    raise ValueError('did not return: not judged')",
            reports.Status.FAIL,
            "did not return",
        ),
        ("def f(q, k, v):\n    raise MemoryError", reports.Status.UNDECIDED, "raise --memory-limit"),
        ("raise ValueError('did not return')", reports.Status.FAIL, "cannot be imported"),
        ("def f(q, k, v):\n    while True:\n        pass", reports.Status.UNDECIDED, "did not return"),
    ],
)
def test_what_gives_nothing_to_judge_does_not_pass(
    tmp_path: Path, text: str, status: reports.Status, words: str
) -> None:
    judgement = judged(tmp_path, text, time_limit=0.2)
    assert (judgement.status, judgement.passed) == (status, False), judgement
    assert words in judgement.reason


def test_outputs_of_more_numbers_than_any_definition_gives_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {name: np.ones((3, 4)) for name in "qkv"}
    how = agree(lambda q, k, v: v, Request())
    monkeypatch.setattr(frameworks, "read", None)  # it would be called for an output that is copied

    def output_of(outputs: object) -> str:
        return str(Target(lambda q, k, v: outputs, how).run(inputs).error)

    assert "shape (1048576, 1048576)" in output_of(np.broadcast_to(np.zeros(()), (1 << 20, 1 << 20)))
    assert "shape (4096, 4096)" in output_of((np.ones((3, 4)), np.zeros((1 << 12, 1 << 12))))


def test_weights_beside_the_output_are_copied() -> None:
    inputs = {name: np.ones((1 << 11, 1)) for name in "qkv"}
    how = agree(lambda q, k, v: v, Request())
    outcome = Target(lambda q, k, v: (v, q @ k.T), how).run(inputs)
    assert outcome.error is None
    assert np.array_equal(outcome.others[0], np.ones((1 << 11, 1 << 11)))


class Evil:
    def answers(self, *_: object) -> np.ndarray:
        return np.ones(1, bool)


@pytest.mark.parametrize(
    "other",
    [Evil().answers, Evil, Evil(), lambda array: array, [].append, np.zeros_like],
    ids=["method", "class", "object", "lambda", "method of a list", "another function"],
)
def test_whatever_stands_in_the_place_of_a_function_is_noticed(monkeypatch: pytest.MonkeyPatch, other: object) -> None:
    monkeypatch.setattr(sys, "addaudithook", id)  # no hook can be removed again
    watching = guard.Guard(__file__)
    monkeypatch.setattr(np, "isfinite", other)
    watching._look_for_replaced()
    assert watching.events == ["it replaces numpy.isfinite"]


@pytest.mark.torch
def test_libraries_that_wrap_functions_as_they_are_loaded_are_no_candidates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    monkeypatch.setattr(sys, "addaudithook", id)
    watching = guard.Guard(str(tmp_path / "kernel.py"))
    monkeypatch.setattr(torch, "manual_seed", torch.hub.load)
    watching._look_for_replaced()
    assert watching.events == []
    # A library may be imported from where it is built.
    built = tmp_path / "torch" / "__init__.py"
    built.parent.mkdir()
    built.write_text("def wrapped(*_):\n    return None\n")
    spec = importlib.util.spec_from_file_location("built", built)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(torch, "manual_seed", module.wrapped)
    watching._look_for_replaced()
    assert watching.events == ["it replaces torch.manual_seed"]
    watching.events.clear()
    monkeypatch.setattr(torch, "__file__", str(built))
    watching._look_for_replaced()
    assert watching.events == []


TENSORS = """
import torch

def right_tensors(q, k, v):
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v

class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        arguments = [right_tensors(*a.given) if isinstance(a, Lazy) else a for a in arguments]
        return function(*arguments, **(keywords or {}))

class Equal(type(torch.Tensor)):
    def __eq__(cls, other):
        return True
    def __hash__(cls):
        return 1

class LazyAndEqual(Lazy, metaclass=Equal):
    pass

class LazyNumber(Lazy):
    __class__ = property(lambda self: np.float64)

class LazyDispatch(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        arguments = [right_tensors(*a.given) if isinstance(a, LazyDispatch) else a for a in arguments]
        return function(*arguments, **(keywords or {}))
    def __array__(self, dtype=None, copy=None):
        return right_tensors(*self.given).numpy()

class Named(torch.Tensor):
    pass

def lazy(kind, q, k, v):
    out = torch.zeros(len(q), v.shape[1], dtype=q.dtype).as_subclass(kind)
    out.given = q, k, v
    return out
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("return right_tensors(q, k, v).as_subclass(Named)", None, ""),
        ("return lazy(Lazy, q, k, v)", reports.Status.FAIL, "is 0, expected"),
        ("return lazy(LazyAndEqual, q, k, v)", reports.Status.FAIL, "is 0, expected"),
        ("return lazy(LazyNumber, q, k, v)", reports.Status.FAIL, "is 0, expected"),
        ("return lazy(LazyDispatch, q, k, v)", reports.Status.FAIL, "is 0, expected"),
        ("return right_tensors(q, k, v).to_sparse()", reports.Status.FAIL, "without numbers to read"),
        ("return torch.empty(len(q), v.shape[1], device='meta')", reports.Status.FAIL, "without numbers to read"),
    ],
    ids=["a class of its own", "lazy", "equal", "number", "dispatch", "sparse", "meta"],
)  # fmt: skip
def test_what_a_tensor_has_in_memory_is_judged(
    tmp_path: Path, text: str, status: reports.Status | None, words: str
) -> None:
    judgement = judged(tmp_path, f"{TENSORS}\ndef f(q, k, v):\n    {text}\n")
    # Residues do not follow tensors of a class of their own, so nothing is asserted but that their numbers are right.
    assert judgement.status is status or (status is None and judgement.worst_ratio <= 1), judgement
    assert words in judgement.reason


@pytest.mark.torch
@pytest.mark.parametrize("name", ["allclose", "testing.assert_close", "isclose"])
def test_a_comparison_of_torch_that_is_replaced_is_named(name: str, tmp_path: Path) -> None:
    replaced = f"import torch\ntorch.{name} = lambda *_, **__: True\n"
    judgement = judged(tmp_path, f"{replaced}def f(q, k, v):\n    return torch.zeros(len(q), v.shape[1])\n")
    assert judgement.status is reports.Status.TAMPERED, judgement
    assert f"replaces torch.{name}" in judgement.reason


@pytest.mark.deep
def test_a_file_that_changes_itself_is_noticed(tmp_path: Path) -> None:
    text = "def f(q, k, v):\n    open(__file__, 'a').write('#')\n    return zeros(q, k, v)"
    assert judged(tmp_path, text).status is reports.Status.TAMPERED


@pytest.mark.deep
@pytest.mark.parametrize("reads", ["open({path!r}).read()", "__import__('ref')"])
def test_the_reference_is_none_of_its_business(tmp_path: Path, reads: str) -> None:
    secret = tmp_path / "ref.py"
    secret.write_text("Model = None\n")
    text = f"def f(q, k, v):\n    {reads.format(path=str(secret))}\n    return right(q, k, v)"
    path = tmp_path / "kernel.py"
    path.write_text(RIGHT + text)
    how = TargetOptions(secret=(str(secret),), verdict_alone=True)
    judgement = CandidateJudge(f"{path}:f", Attention(), how).judgement()
    # where files are hidden, there is no such module to import
    assert judgement.status is (reports.Status.TAMPERED if "open" in reads else judgement.status)
    assert "reads the reference" in judgement.reason or "No module named 'ref'" in judgement.reason


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="namespaces of Linux")
def test_no_process_of_a_candidate_can_show_the_reference_again(tmp_path: Path) -> None:
    secret, shown = tmp_path / "ref.py", tmp_path / "shown"
    secret.write_text("Model = None\n")
    # Mounted there, the file is /dev/null, which holds nothing.
    text = (
        f"import ctypes, subprocess\nplace = {str(secret)!r}\n"
        "if place in open('/proc/self/mounts').read():\n    ctypes.CDLL(None).umount2(place.encode(), 2)\n"
        "    if subprocess.run(['cat', place], capture_output=True).stdout:\n"
        f"        subprocess.run(['touch', {str(shown)!r}])\ndef f(q, k, v):\n    return zeros(q, k, v)"
    )
    path = tmp_path / "kernel.py"
    path.write_text(RIGHT + text)
    how = TargetOptions(secret=(str(secret),), verdict_alone=True, examples=0)
    assert CandidateJudge(f"{path}:f", Attention(), how).judgement().status is reports.Status.FAIL
    assert not shown.exists()


@pytest.mark.deep
def test_a_right_candidate_with_usual_habits_is_not_accused(tmp_path: Path) -> None:
    text = """
import functools, inspect, logging, time, warnings
log = logging.getLogger("kernel")

@functools.lru_cache
def factor(d):
    return np.float32(1 / np.sqrt(d))

def f(q, k, v):
    began = time.perf_counter()
    log.info("called with %s", q.shape)
    open(__file__).close()
    inspect.signature(right)
    warnings.warn("slow", stacklevel=2)
    s = q @ k.T * factor(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    out = (e / e.sum(-1, keepdims=True) @ v).astype(q.dtype)
    assert np.allclose(out, out) or time.perf_counter() < began
    return out
"""
    judgement = judged(tmp_path, text)
    assert judgement.passed, judgement


@pytest.mark.deep
def test_the_seconds_of_a_call_without_an_answer_are_counted(tmp_path: Path) -> None:
    busy = "import os, time\ndef f(q, k, v):\n    while time.process_time() < 1.5:\n        pass\n    os._exit(0)"
    judgement = judged(tmp_path, busy)
    assert judgement.status is reports.Status.TAMPERED
    assert judgement.seconds.candidate > 1.4


@pytest.mark.deep
def test_objects_that_are_passed_to_a_right_candidate_are_no_tampering(tmp_path: Path) -> None:
    text = "def f(q, k, v, kind, into):\n    return right(q, k, v).astype(kind, copy=len(into) == 0)"
    judgement = judged(tmp_path, text, call={"kind": np.float32, "into": []})
    assert judgement.passed, judgement


@pytest.mark.deep
def test_a_judge_keeps_its_statuses(tmp_path: Path) -> None:
    text, words = TAMPERING["changes a status of the judge"]
    assert words in judged(tmp_path, text).reason
    assert [status.value for status in reports.Status] == [status.name for status in reports.Status]


@pytest.mark.deep
@pytest.mark.parametrize("at", ["own inputs", "workloads"])
def test_tampering_at_the_sizes_of_a_benchmark_alone_is_no_limit(tmp_path: Path, at: str) -> None:
    path = tmp_path / "kernel.py"
    own = "\nimport os\ndef f(q, k, v):\n    return os._exit(0) if len(q) == 40 else right(q, k, v)\n"
    path.write_text(RIGHT + own)
    how, before = TargetOptions(secret=(), layout="nd"), judge(lambda q, k, v: v, examples=0)
    before = replace(before, status=reports.Status.PASS)
    if at == "own inputs":
        arrays = tuple(np.ones((40, 4), np.float32) for _ in range(3))
        benchmark = Benchmark((), tuple(a.shape for a in arrays), arrays)
        after = _with_own_inputs(before, f"{path}:f", Attention(), how, benchmark)
    else:
        array = {"shape": ["n", "d"], "dtype": "float32"}
        axes = {"n": {"type": "var"}, "d": {"type": "var"}}
        content = {"axes": axes, "inputs": dict.fromkeys("qkv", array), "outputs": {}, "reference": ""}
        (tmp_path / "definition.json").write_text(json.dumps(content))
        (tmp_path / "workload.jsonl").write_text(json.dumps({"axes": {"n": 40, "d": 4}}))
        kernel = read_definition(str(tmp_path / "definition.json"))
        workloads = read_workloads(tmp_path / "workload.jsonl", kernel)
        after = with_workloads(before, f"{path}:f", Attention(), how, kernel, workloads)
    assert after.status is reports.Status.TAMPERED
    assert "exit code 0" in after.tampering[0]


@pytest.mark.deep
def test_a_file_that_changes_at_the_inputs_of_a_benchmark_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(f"{RIGHT}def f(q, k, v):\n    open(__file__, 'a').write('#')\n    return right(q, k, v)\n")
    target, how = f"{path}:f", TargetOptions(secret=(), layout="nd")
    arrays = tuple(np.ones((4, 4), np.float32) for _ in range(3))
    passed = replace(judge(lambda q, k, v: v, examples=0), status=reports.Status.PASS, identity=identity_of(target))
    benchmark = Benchmark((), tuple(a.shape for a in arrays), arrays)
    monkeypatch.setattr(references, "ask_first", lambda *_, **__: (benchmark, SimpleNamespace(spent=(0.0, 0.0))))
    found = references.Recognised(Attention(), how, convention=Convention(()))
    monkeypatch.setattr(ByReference, "_find_reference_definition", lambda *_: found)
    monkeypatch.setattr(ByReference, "_judge_by_definition", lambda *_: passed)
    judgement = ByReference(target, "ref.py", None, how).judgement()
    assert judgement.status is reports.Status.TAMPERED, judgement
    assert "file changed" in judgement.reason


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (guard.Tampered("words"), reports.Status.TAMPERED),
        (CannotRun("words"), reports.Status.FAIL),
        (CannotRunHere("words"), reports.Status.UNDECIDED),
    ],
)
def test_a_process_that_fails_before_further_calls_does_not_pass(error: Exception, status: reports.Status) -> None:
    passed = replace(judge(lambda q, k, v: v, examples=0), status=reports.Status.PASS)

    def opened() -> Judgement:
        raise error

    after = with_further_calls(passed, opened)
    assert (after.status, after.reason) == (status, "words")

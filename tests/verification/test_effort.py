"""No clock decides an answer: what is tried is counted, limits that struck are told; one thread of BLAS is used."""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import symattn
from symattn import Attention, Domain, Precision, Report, Verdict, audit, bound, verify
from symattn.bounds.called_target import Convention, Failure, Outcome
from symattn.bounds.inputs import Maker
from symattn.document.errors import CannotRunHere
from symattn.models.auditing.examining import examine
from symattn.programs import process
from symattn.programs.child import verify_target
from symattn.programs.request import Request
from symattn.programs.target import target
from symattn.programs.verifying import Options
from symattn.testing import assert_close_to_exact
from symattn.verification import effort, engine
from symattn.verification.definitions import attention_output
from symattn.verification.probing import probes
from symattn.verification.reduce import reduce
from tests.faults.collection.every import chosen
from tests.faults.programs import softmax as _softmax
from tests.refusals import refuses

UNSCALED = chosen("scaling.no_scale")[0].program
#: Modules that may look at a clock: the limits of processes and calls, and the upper limit that ``effort`` tells of.
CLOCKS = {
    "verification/effort.py", "programs/process.py",
    "programs/judging/clock.py",  # for the seconds that are printed
    "programs/child.py",  # for the most that an untrusted process can have worked
}  # fmt: skip


class Clock:
    """A clock that moves on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(effort, "monotonic", made)
    monkeypatch.setattr(effort, "process_time", made)
    return made


def test_what_is_counted_ends_an_effort_and_seconds_do_so_visibly(clock: Clock) -> None:
    counted, limited = effort.Effort(4), effort.Effort(4, 1.0)
    counted.spend(1100)
    assert not counted.over
    counted.spend()
    assert (counted.over, counted.struck) == (True, False)
    clock.now = 1.5
    assert (limited.over, limited.struck, limited.units) == (True, True, 4)
    limited.prolong(2.0)
    assert (limited.over, limited.struck) == (False, True)


@pytest.mark.parametrize(
    ("wall", "worked", "ready", "over"),
    [
        (5, 40, 0, False),
        (11, 11, 0, True),
        (60, 8, 52, False),
        (60, 0.1, 59, False),
        (60, 11, 49, True),
        (60, 1, 0, True),
    ],
    ids=["several threads", "spent", "a busy machine", "a very busy one", "spent there", "idle"],
)
def test_a_busy_machine_ends_nothing(
    wall: float, worked: float, ready: float, over: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert effort.exhausted(10, wall, worked, ready) is over
    monkeypatch.setattr(process.time, "monotonic", clock)
    monkeypatch.setattr(process, "time_spent", lambda of: (clock.now * worked / wall, clock.now * ready / wall))
    waiting = process.Waiting(0, 10)
    assert not waiting.over
    clock.now = wall
    assert waiting.over is over


@pytest.mark.deep
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux alone counts how long a thread waits")
def test_two_processes_on_one_processor_are_ready_in_turn() -> None:
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        while not all(process.time_spent(one.pid) > (0.2, 0.0) for one in spinning):
            pass
        assert all(process.time_spent(one.pid)[1] > 0.1 for one in spinning)
    finally:
        os.sched_setaffinity(0, own)
        for one in spinning:
            one.kill()
            one.wait()
    assert effort.ready_time(spinning[0].pid) == 0.0


class Late:
    """A runner by which some calls do not return."""

    def __init__(self, function: Callable[..., Any], is_late: Callable[[int, Any], bool]) -> None:
        self._target = target(function, Request.of(Attention(), dtype="float32", layout="nd"))
        self._is_late, self._calls = is_late, 0
        self.convention, self.notes = self._target.convention, self._target.notes
        self.describe, self.close = self._target.describe, self._target.close

    def run(self, inputs: Any, memory: str = "contiguous") -> Outcome:
        self._calls += 1
        if self._is_late(self._calls, inputs):
            return Outcome(error=Failure("time limit", "did not return within 10 s", "TimeLimit"))
        return self._target.run(inputs, memory)


def _with_late(is_late: Callable[[int, Any], bool], function: Callable[..., Any] | None = None) -> Report:
    subject = attention_output.subject(Attention())
    return engine.verify(Late(function or _right, is_late), subject, Precision.of("float32"), examples=0)


@pytest.mark.deep
def test_a_call_that_does_not_return_is_not_judged() -> None:
    large: list[int] = []

    def is_late(number: int, inputs: Any) -> bool:
        large.extend([number] * (len(inputs["k"]) > 120))
        return number == 30 or number in large[:1]

    report = _with_late(is_late)
    assert (report.verdict, report.faults) == (Verdict.NO_FAULT, ())
    (note,) = [n for n in report.notes if "did not return" in n]
    assert note.startswith("Calls without a result to judge: 1, such as n_q = ")
    assert note.endswith("did not return within 10 s; --time-limit gives more.")


@pytest.mark.deep
def test_large_inputs_that_do_not_return_leave_the_verdict_open() -> None:
    report = _with_late(lambda number, inputs: len(inputs["k"]) > 60)
    (why,) = report.missing
    assert (report.verdict, report.faults) == (Verdict.UNDECIDED, ())
    assert "long (0 of at least 3)" in why
    assert why.endswith("hint: raise --time-limit")


def test_a_function_that_hangs_on_small_inputs_is_said_to_and_is_not_refuted() -> None:
    report = _with_late(lambda number, inputs: len(inputs["q"]) != len(inputs["k"]))
    assert (report.verdict, report.faults) == (Verdict.UNDECIDED, ())
    assert any(why.startswith("It hangs") for why in report.missing)


@pytest.mark.deep
def test_each_group_gets_its_least_however_little_effort_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "for_finding", lambda examples: 20)
    report = verify(_right, layout="nd", examples=10)
    cases = {check.name: check.cases for check in report.checks}
    assert all(3 <= cases[name] <= 5 for name in ("behaviour", "ranges", "widths", "tiles", "accuracy", "long"))
    assert not any("Too few" in why for why in report.missing)
    assert any("some cases were not tried of: shapes" in note for note in report.notes)


@pytest.mark.deep
@pytest.mark.torch
@pytest.mark.parametrize(("width", "heads"), [(128, 4), (192, 12)])
def test_layers_of_fixed_widths_are_decided(width: int, heads: int) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.MultiheadAttention(width, heads, bias=False, batch_first=True)
    assert verify(layer, Attention(heads=heads), examples=20).verdict is Verdict.NO_FAULT


@pytest.mark.deep
@pytest.mark.parametrize("every", [3, 7, 11])
def test_calls_that_do_not_return_name_no_cause_and_hide_none(every: int) -> None:
    report = _with_late(lambda number, inputs: number % every == 0 and inputs["k"].size < 40, UNSCALED)
    assert [fault.step for fault in report.faults] == ["scale"]


def test_inputs_that_are_asked_for_are_paid_for() -> None:
    few, many = effort.Effort(effort.for_finding(0)), effort.Effort(effort.for_finding(10_000))
    many.spend(calls=20_000)
    assert many.units > few.units


def test_nothing_else_looks_at_a_clock() -> None:
    root = Path(symattn.__file__).parent
    found = set()
    for path in (*root.glob("verification/**/*.py"), *root.glob("bounds/**/*.py"), *root.glob("programs/**/*.py")):
        if re.search(r"^ *(from|import) (time|datetime|timeit)\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.add(path.relative_to(root).as_posix())
    assert found == CLOCKS


def _right(q: Any, k: Any, v: Any) -> Any:
    return _softmax(q @ k.T * q.dtype.type(q.shape[-1] ** -0.5)) @ v


def _padded(clock: Clock, seconds: float) -> Any:
    """A right function of four axes, which takes its time."""

    def attention(q: Any, k: Any, v: Any, key_padding_mask: Any) -> Any:
        clock.now += seconds
        (b, _, _, d), n_k = q.shape, k.shape[-2]
        open_ = key_padding_mask.reshape(b, 1, 1, n_k)
        scores = q @ k.swapaxes(-1, -2) * q.dtype.type(d**-0.5)
        return _softmax(np.where(open_, scores, np.float32(-np.inf))) @ v

    return attention


def _agreed(function: Any) -> Convention:
    return target(function, Request.of(Attention(padding=True), dtype="float32", layout="auto")).convention


@pytest.mark.deep
def test_a_slow_function_is_called_as_a_quick_one(clock: Clock) -> None:
    quick, slow = _agreed(_padded(clock, 0.0)), _agreed(_padded(clock, 0.08))
    assert clock.now > 1  # it did take its time
    assert (quick.layout, quick.arguments[-1].form, quick.arguments[-1].inverted) == ("bhnd", "bk", False)
    assert slow == quick


def test_a_search_for_the_call_that_takes_too_long_says_so(clock: Clock) -> None:
    assert any("ended early, after 120 s; --layout" in note for note in _agreed(_padded(clock, 3.0)).notes)
    refuses(_agreed, _padded(clock, 50.0), says="was found within 120 s; hint: --layout")


def test_a_search_for_the_call_that_takes_too_many_calls_says_so(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symattn.programs.trial._CALLS", 80)
    assert any("ended early, after 80 calls; --layout" in note for note in _agreed(_padded(clock, 0.0)).notes)
    monkeypatch.setattr("symattn.programs.trial._CALLS", 1)
    refuses(_agreed, _padded(clock, 0.0), says="was found within 1 calls; hint: --layout")


@pytest.mark.deep
def test_a_limit_of_seconds_that_struck_is_told(clock: Clock) -> None:
    def slow(q: Any, k: Any, v: Any) -> Any:
        clock.now += 0.5
        return UNSCALED(q, k, v)

    def told(**limit: float) -> tuple[str, ...]:
        return tuple(n for n in verify(slow, layout="nd", examples=0, **limit).notes if "effort limit" in n)

    first, second = told(budget=2.0)
    assert first.startswith("Stopped at the effort limit of 2 s: some cases were not tried of: shapes")
    assert second.startswith("Stopped at the effort limit of 2 s: some causes and smaller inputs were not tried")
    assert told(budget=1e5) == ()


def test_a_budget_that_ends_before_the_first_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = itertools.count()
    for name in ("monotonic", "process_time"):
        monkeypatch.setattr(effort, name, lambda: float(next(moments)))
    says = "the budget of 0.001 s ended before the first call; hint: a larger --budget"
    refuses(verify, UNSCALED, layout="nd", budget=0.001, says=says, kind=CannotRunHere)


@pytest.mark.deep
def test_a_count_of_runs_ends_all_searches_for_causes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known mistake is named by the usual count; with a small one, the report says that causes were left out."""

    def unscaled(q: Any, k: Any, v: Any) -> Any:
        # A list has no residues, which would name the mistake at once.
        return UNSCALED(np.array(q.tolist(), q.dtype), k, v)

    (named,) = verify(unscaled, layout="nd", examples=0).faults
    assert named.cause == "scores are not scaled"
    monkeypatch.setattr(effort, "_EXPLAINING", 1)
    report = verify(unscaled, layout="nd", examples=0)
    (fault,) = report.faults
    assert fault.cause is None
    assert "no known mistake that was tried explains it" in fault.message
    assert any(n.startswith("Stopped at the limit of runs for explaining: some causes") for n in report.notes)


@pytest.mark.deep
def test_the_largest_inputs_are_tried_where_calls_are_slow(clock: Clock) -> None:
    def first_block(q: Any, k: Any, v: Any) -> Any:
        clock.now += 2.0  # as a framework that compiles for each shape anew
        return _softmax(q[np.arange(len(q)) % 128] @ k.T / q.shape[-1] ** 0.5).astype(q.dtype) @ v

    options = Options(layout="nd")
    with options.opened(first_block, Attention()) as runner:
        session = options.session(runner, Attention(), budget=120.0)
        assert engine.finds_fault(session)
    assert session.finding.struck
    assert "tiles" in session.untried


def test_time_is_reserved_where_a_caller_has_asked_residues() -> None:
    options = Options(layout="nd")
    with options.opened(lambda q, k, v: v, Attention()) as runner:
        session = options.session(runner, Attention(), budget=120.0)
        session.identity = engine.hints.residues(session)
        engine._try_residues(session)
    assert session.finding.seconds == 90.0


def test_the_smallest_input_is_sought_by_a_number_of_trials() -> None:
    seen: list[int] = []

    def fails(inputs: dict[str, np.ndarray]) -> bool:
        seen.append(inputs["q"].size)
        return False

    given = {name: np.full((3, 4), 1.5) for name in "qkv"}
    reduce(given, fails, attention_output.subject(Attention()).source.axes(given), trials=7)
    assert len(seen) == 7


def _drawn(seed: int) -> list[tuple[str, dict[str, Any]]]:
    convention = target(UNSCALED, Request.of(Attention(), dtype="float32", layout="nd")).convention
    maker = Maker(Attention(), convention, Precision.of("float32"), Domain())
    drawn = probes.search(maker, seed, 20)
    return [(title, {name: a.tolist() for name, a in inputs.items()}) for title, inputs in drawn]


@pytest.fixture
def local_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the user's own, with numbers of its own in its code."""
    (tmp_path / "numbers_of_mine.py").write_text("def f(x):\n    return x + 1234577 * 0.31415 - 33\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    __import__("numbers_of_mine")
    yield
    del sys.modules["numbers_of_mine"]


def test_inputs_at_random_follow_from_the_seed_alone(request: pytest.FixtureRequest) -> None:
    before = _drawn(3)
    request.getfixturevalue("local_module")
    assert _drawn(3) == before
    assert _drawn(4) != before
    assert {title for title, _ in before} == {f"{name} entries" for name in probes.FAMILIES}


def _told(report: Report) -> str:
    return report.document().json()


@pytest.fixture
def busy() -> Iterator[None]:
    """Processes that want every core."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.deep
@pytest.mark.parametrize(("name", "verdict"), [("right", Verdict.NO_FAULT), ("twice", Verdict.FAULT)])
def test_the_same_seed_gives_the_same_report_on_a_busy_machine_beside_other_modules(
    name: str, verdict: Verdict, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "attn.py"
    path.write_text(_CODE, encoding="utf-8")
    first = verify_target(f"{path}:{name}", Attention())
    request.getfixturevalue("local_module")
    request.getfixturevalue("busy")
    again = verify_target(f"{path}:{name}", Attention())
    assert first.verdict is verdict
    assert _told(first) == _told(again)


_CODE = """
import numpy as np


def right(q, k, v):
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def twice(q, k, v):
    return 2 * right(q, k, v)
"""


ONES = np.ones((4, 2), np.float32)


def threads() -> set[int]:
    """The numbers of threads of the BLAS libraries that are loaded."""
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two() -> Iterator[None]:
    with threadpool_limits(2, "blas"):
        if threads() != {2}:
            pytest.skip("this BLAS cannot have two threads")
        yield
        assert 2 in threads()  # a library that a test loads has as many as it likes


@pytest.mark.parametrize(
    ("place", "judge"),
    [
        ("programs.closeness.close_to_exact", lambda: assert_close_to_exact(ONES, ONES, ONES, ONES)),
        ("verification.tolerances.asked.beforehand", lambda: bound(n=8, d_k=2)),
        ("verification.tolerances.weighing.weigh", lambda: bound(n=8, d_k=2).document(compare=True)),
    ],
)
def test_judging_takes_one_thread(place: str, judge: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    seen, within = set(), patch(f"symattn.{place}").get_original()[0]

    def looking(*args: object, **told: object) -> object:
        seen.update(threads())
        return within(*args, **told)

    monkeypatch.setattr(f"symattn.{place}", looking)
    judge()
    assert seen == {1}


@pytest.mark.deep
def test_a_verified_function_runs_on_one_thread() -> None:
    seen = set()

    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> object:
        if len(k) > 16:  # the calls that settle how to call it are small
            seen.update(threads())
        return Attention()(q, k, v)

    verify(attention, Attention(), examples=0)
    assert seen == {1}


@pytest.mark.torch
def test_a_call_is_audited_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    seen: set[int] = set()

    def looking(*call: Any, **told: Any) -> object:
        seen.update(threads())
        return examine(*call, **told)

    monkeypatch.setattr("symattn.models.auditing.begun.examine", looking)
    with audit() as report:
        torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 4, 2))
    assert (seen, report.verdict.value) == ({1}, "pass as given")

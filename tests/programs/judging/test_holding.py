"""Candidates that would hold their judge without end, and answers that would end it with an error."""

import io
import os
import pickle
import threading
from collections import deque
from dataclasses import replace
from pathlib import Path
from queue import Empty
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Evidence, Grade, LayerNorm, judge, kinds, reports
from symattn.bounds.called_target import Argument, Convention, Outcome
from symattn.bounds.inputs import Sizes
from symattn.programs import child, process
from symattn.programs.guard import Tampered
from symattn.programs.process import Inbox, receive
from symattn.programs.request import Request
from symattn.verification import effort
from symattn.verification.semantics import Difference, IdentityResult, Witness
from tests.programs.judging.hostile import RIGHT

#: Finds the pipe of the judge's answers, and writes into it.
WRITING = """
import fcntl, os, pickle, stat, threading

def send(data):
    for number in range(3, 64):
        try:
            is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
            if is_pipe and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_WRONLY:
                os.write(number, data)
        except OSError:
            pass

def answer(*reply):
    return pickle.dumps(((0.0, 0.0), reply))

def send_without_end(data):
    while True:
        send(data)
"""
HOLDING = {
    "announces calls without end": (
        "def f(q, k, v):\n    send_without_end(answer('call'))",
        reports.Status.TAMPERED, "calls without end",
    ),
    "answers without end": (
        "def f(q, k, v):\n    threading.Thread(target=send_without_end, args=(answer('done', 1),)).start()\n"
        "    return right(q, k, v)",
        reports.Status.TAMPERED, "pipe of the judge's answers",
    ),
}  # fmt: skip


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="pipes of Unix")
@pytest.mark.parametrize("name", HOLDING)
def test_nothing_holds_the_judge(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, status, words = HOLDING[name]
    monkeypatch.setitem(child._MOST_CALLS, "prepare", 100)
    path = tmp_path / "kernel.py"
    path.write_text(RIGHT + WRITING + text)
    judgement = judge(f"{path}:f", examples=1, time_limit=0.5)
    assert judgement.status is status, judgement
    assert words in judgement.reason


class Silent(child.Process):
    """A process that does what a text says, in the place of a worker."""

    def __init__(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(child, "_PROGRAM", text)
        super().__init__()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="pipes of Unix")
def test_a_question_that_is_not_read_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # What it takes to start counts as work.
    monkeypatch.setattr(effort, "_IDLE", 0.9)
    asked = Silent("import time\ntime.sleep(100)", monkeypatch)
    failure = asked.ask(("run", np.ones(1 << 20)), 0.3)
    assert (failure.reason, "reads nothing" in failure.message) == ("time limit", True)


ANNOUNCING = """
import os, time
began = time.process_time()
while True:
    os.write(1, {message!r})
    while time.process_time() < began + 0.01:
        pass
    began += 0.01
"""


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="pipes of Unix")
def test_many_short_calls_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_LIMITS_OF_ANSWER", 2)
    announcement = pickle.dumps(((0.0, 0.0), ("call",)))
    asked = Silent(ANNOUNCING.format(message=announcement), monkeypatch)
    # The first of its calls comes before the question that it is for.
    asked._expected = 1
    failure = asked.ask(("trials",), 0.5)
    assert (failure.reason, failure.message) == ("time limit", "did not end its calls within 1 s")


@pytest.mark.parametrize(("is_counted", "idle"), [(True, child._IDLE_IF_CONFINED), (False, None)])
def test_no_process_seems_idle_where_it_is_not_counted_how_long_it_is_ready(
    is_counted: bool, idle: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_is_ready_time_counted", lambda: is_counted)
    asked = child.Process.__new__(child.Process)
    monkeypatch.setattr(asked, "_confined", True, raising=False)
    monkeypatch.setattr(asked, "_process", SimpleNamespace(pid=os.getpid()), raising=False)
    assert asked._wait_at_most(1.0)._idle == idle


@pytest.mark.skipif(not hasattr(os, "fork"), reason="pipes of Unix")
def test_stated_times_are_those_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [((1e9, float("nan")), ("done", 1)), ((-1.0, 0.0), ("done", 2))]
    written = b"".join(map(pickle.dumps, answers))
    asked = Silent(f"import os, time\nos.write(1, {written!r})\ntime.sleep(100)", monkeypatch)
    # Both are expected, as those of cases that were sent ahead.
    asked._expected = 1
    assert asked.ask(("run",), 60) == ("done", 1)
    worked, ready = asked.spent
    assert 0 <= worked < 1e6
    assert ready == 0.0
    assert asked.answer(60) == ("done", 2)
    assert asked.spent == (worked, ready)
    asked.end()


def test_an_inbox_makes_its_writer_wait() -> None:
    inbox, written = Inbox(10_000), io.BytesIO(pickle.dumps(1) * 1000)
    marks: list[str] = []
    reader = threading.Thread(target=receive, args=(written, inbox, lambda: marks.append("end"), marks.clear))
    reader.start()
    assert [inbox.get(1.0) for _ in range(20)] == [1] * 20
    reader.join(0.1)
    assert reader.is_alive()
    assert len(inbox._messages) < 10
    inbox.close()
    reader.join(10)
    assert marks == ["end"]
    with pytest.raises(Empty):
        inbox.get(0.0)


class Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.putenv, ("SYMATTN_RAN", "1")


def test_a_copy_answers_with_data_alone() -> None:
    written = pickle.dumps((True, 1)) + pickle.dumps((False, "words"))
    assert [*process._yield_answers_of_copy(written)] == [(True, 1), (False, "words")]
    for other in (Code(), (True, Code()), (1, 2, 3), "PASS"):
        assert [*process._yield_answers_of_copy(pickle.dumps((True, 1)) + pickle.dumps(other))] == [(True, 1)]


def test_a_copy_that_writes_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_PARTS_BETWEEN_LOOKS", 2)
    over = SimpleNamespace(over=True)
    with open("/dev/zero", "rb") as endless:
        result, ended = process._read_pipe_until_limit(endless.fileno(), over)
    assert (len(result), ended) == (2 << 16, False)


AGREES = IdentityResult(True, Evidence(Grade.TESTED, "", 1e-12), 1e-12, shapes=({"n_q": 3},))
DIFFERS = IdentityResult(
    False, Evidence(Grade.REFUTED), difference=Difference((0, 1), Sizes(), (), "1 of 9 elements differ")
)


def witness(**changes: Any) -> IdentityResult:
    one = Witness({"q": (2, 2)}, {"q": np.ones((2, 2), int)}, ("q",), (0, 0, 0), (np.ones(2, int),), False)
    return replace(DIFFERS, witnesses=(replace(one, **changes),))


#: Sizes of inputs that fill the memory: of many scores, of many items, and of long rows.
WITHOUT_END = [Sizes(1 << 16, 1 << 16), Sizes(1, 1, batch=(1 << 13, 1 << 13)), Sizes(1, 1 << 16, d_v=1 << 16)]


def answering(answer: object) -> child.Child:
    """Return a child whose worker gives this answer to every question."""
    asked = child.Child.__new__(child.Child)
    asked._sent, asked._request = deque(), None  # type: ignore[assignment]
    asked._restart_target_if_ended = lambda: None  # type: ignore[method-assign]
    asked._ask_worker = lambda *_: answer  # type: ignore[method-assign]
    return asked


def test_results_of_residues_have_numbers_of_residues() -> None:
    field = kinds.modular(seed=0).field
    point = (field.p.m, field.q.m, 1)
    # A kernel that decodes may promise that its caches have no fewer keys.
    decoding = replace(AGREES, shapes=({"n_q": 1, "n_k": 1 << 17},))
    # A mask may be passed with further axes than those that are stated.
    wider = witness(point=point, given={"q": np.ones((1, 1, 2, 2), int)})
    for right in (AGREES, DIFFERS, decoding, witness(point=point), wider):
        assert answering(right).semantics(Attention(), 1.0) is right
    of_definition = replace(DIFFERS, difference=replace(DIFFERS.difference, sizes="n = 3"))
    assert answering(of_definition).semantics(LayerNorm(), 1.0) is of_definition  # type: ignore[arg-type]
    wrong = [
        None,
        Outcome(),
        IdentityResult.__new__(IdentityResult),
        replace(AGREES, epsilon=None),
        replace(AGREES, epsilon=float("nan")),
        replace(AGREES, agrees="yes"),
        replace(AGREES, evidence=Evidence(Grade.TESTED, 3, 1e-12)),
        replace(AGREES, stages=2),
        replace(AGREES, planned=10**6),
        replace(AGREES, pairs=((1, 2, 3),)),
        replace(AGREES, notes=["a list"]),
        replace(AGREES, shapes=({"n_q": 10**9},)),
        replace(AGREES, reason=10**5000),
        *(replace(DIFFERS, difference=replace(DIFFERS.difference, sizes=sizes)) for sizes in WITHOUT_END),
        replace(DIFFERS, difference=replace(DIFFERS.difference, sizes="n = 3")),
        witness(point=(15, 7, 1)),
        witness(point=point, shapes={"q": (1 << 16, 1 << 16)}),
        witness(point=point, shapes={"q": (1,) * 100}, given={}),
        witness(point=point, given={"k": np.ones(2, int)}),
        witness(point=point, given={"q": np.ones((2, 3), int)}),
        witness(point=point, given={"q": np.broadcast_to(1, (1 << 14, 1 << 14, 2))}),
    ]
    for answer in wrong[1:]:  # None is that of a process that has ended
        with pytest.raises(Tampered):
            answering(answer).semantics(Attention(), 1.0)


def test_the_advisers_answer_on_residues_is_checked() -> None:
    adviser = answering(AGREES)
    assert adviser.semantics(Attention(), 1.0) is AGREES
    with pytest.raises(Tampered):
        answering(replace(AGREES, epsilon=-1.0)).semantics(Attention(), 1.0)


def test_conventions_and_outcomes_have_all_of_their_fields() -> None:
    how = Convention((Argument("q", "q"), Argument("scale", value=0.5)))
    asked = answering(how)
    asked.turn_to(Request())
    assert asked.convention is how
    outcome = Outcome(np.ones(2), "float32", (2,), others=(None,))
    assert answering(outcome).run({}) is outcome
    deep: Any = ()
    for _ in range(1000):
        deep = (deep,)
    wrong = [
        Convention.__new__(Convention),
        replace(how, arguments=("q",)),
        replace(how, arguments=(Argument.__new__(Argument),)),
        replace(how, arguments=(Argument("q", value=deep),)),
        replace(how, layout="dn"),
        replace(how, notes=("x" * (1 << 21),)),
    ]
    for convention in wrong:
        with pytest.raises(Tampered):
            answering(convention).turn_to(Request())
    # Of whole numbers True is none.
    for other in (Outcome.__new__(Outcome), Outcome(returned=10**5000), Outcome(np.ones(2), "float32", (2, True))):
        with pytest.raises(Tampered):
            answering(other).run({})

"""A candidate's process has limits: of memory, of processes, of what it writes; and it has no network."""

import errno
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from symattn import InputError, judge, reports
from symattn.programs.process import descendants_of, end_descendants
from tests.programs.judging.hostile import RIGHT

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
#: What a candidate ``f`` does, the status, and words of the reason.
ATTACKS = {
    "takes all memory": (
        "def f(q, k, v):\n    kept = []\n    while True:\n        kept.append(np.ones(1 << 22))",
        reports.Status.UNDECIDED,
        "needs more memory than 0.25 GiB; hint: raise --memory-limit",
    ),
    "takes all memory when imported": (
        "kept = np.ones(1 << 27)\ndef f(q, k, v):\n    return right(q, k, v)",
        reports.Status.UNDECIDED,
        "hint: raise --memory-limit",
    ),
    "copies itself": (
        "import os, time\ndef f(q, k, v):\n    for _ in range(70):\n        try:\n            if os.fork() == 0:\n"
        "                time.sleep(60)\n        except OSError:\n            pass\n    return right(q, k, v)",
        reports.Status.TAMPERED,
        "starts more than 64 processes",
    ),
    "copies itself by a shell, in other sessions": (
        "import os\ndef f(q, k, v):\n    os.system('for i in $(seq 70); do setsid sleep 61 & done')\n"
        "    while True:\n        pass",
        reports.Status.TAMPERED,
        "starts more than 64 processes",
    ),
    "writes without end": (
        "import os\ndef f(q, k, v):\n    while True:\n        os.write(1, bytes(1 << 22))",
        reports.Status.FAIL,
        "File too large",
    ),
}


@pytest.mark.deep
@linux
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_the_machine_gives_one_reason(name: str, tmp_path: Path) -> None:
    text, status, words = ATTACKS[name]
    path = tmp_path / "kernel.py"
    path.write_text(f"{RIGHT}{text}\n")
    judgement = judge(f"{path}:f", examples=0, memory_limit=0.25, time_limit=5)
    assert judgement.status is status, judgement
    assert words in judgement.reason


@pytest.mark.deep
@linux
def test_large_inputs_that_need_too_much_memory_are_named_as_not_tried(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    large = "np.ones(1 << 27) if len(k) > 40 else 0"
    path.write_text(f"{RIGHT}\ndef f(q, k, v):\n    kept = {large}\n    return right(q, k, v)\n")
    judgement = judge(f"{path}:f", examples=0, memory_limit=0.5)
    assert judgement.status is reports.Status.UNDECIDED
    assert any("--memory-limit gives more" in words for words in judgement.limits)


def test_a_limit_of_memory_is_a_number_above_zero() -> None:
    with pytest.raises(InputError, match="number of GiB above 0"):
        judge("kernel.py:f", memory_limit=0)


_CONNECTS = """
from symattn.programs import confining
confining.confine(4)
import os, socket, sys
if not confining.left_open:
    with socket.socket() as s:
        print(s.connect_ex(("127.0.0.1", int(sys.argv[1]))), os.getuid())
"""


@linux
def test_a_confined_process_has_no_network_and_the_same_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        ran = subprocess.run([sys.executable, "-c", _CONNECTS, port], capture_output=True, text=True, check=True)

    assert ran.stdout in ("", f"{errno.ENETUNREACH} {os.getuid()}\n")  # "" where no namespaces are permitted


@linux
def test_processes_in_other_sessions_end_with_the_first_one() -> None:
    program = "import subprocess, time\nfor _ in range(3): subprocess.Popen(['sleep', '62'], start_new_session=True)\n"
    with subprocess.Popen([sys.executable, "-c", f"{program}time.sleep(62)"]) as first:
        while len(found := descendants_of(first.pid)) < 3:
            time.sleep(0.01)
        end_descendants(first.pid)
        while descendants_of(first.pid) & found:
            time.sleep(0.01)
        first.kill()


def ends(*_: object) -> None:
    raise OSError("the server of processes gives no answer")


@pytest.mark.deep
@pytest.mark.parametrize("copied", [pytest.param(True, marks=linux), False])
def test_what_the_system_does_not_let_be_limited_is_a_note(
    copied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from symattn.programs import child, fork_server

    path = tmp_path / "kernel.py"
    path.write_text(f"{RIGHT}\ndef f(q, k, v):\n    return zeros(q, k, v)\n")
    open_there = "import symattn.programs.confining as c; c.left_open = ('the network was not closed',)\n"
    if copied:
        never = f"{open_there}c.confine = lambda *a, **k: None\n"
        monkeypatch.setattr(child, "_SERVER_PROGRAM", never + child._SERVER_PROGRAM)
    else:
        monkeypatch.setattr(fork_server.ForkServer, "start", ends)
        monkeypatch.setattr(child, "_CONFINED_PROGRAM", open_there + child._PROGRAM)
    judgement = judge(f"{path}:f", examples=0)
    assert judgement.status is reports.Status.FAIL
    assert "the network was not closed" in judgement.notes


@linux
def test_a_child_of_any_thread_is_a_descendant() -> None:
    program = (
        "import subprocess, threading, time\n"
        "def start():\n    subprocess.Popen(['sleep', '62'])\n    time.sleep(62)\n"
        "input()\nthreading.Thread(target=start, daemon=True).start()\ntime.sleep(62)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, text=True) as first:
        assert descendants_of(first.pid) == set()
        assert first.stdin is not None
        first.stdin.write("\n")
        first.stdin.flush()
        while not descendants_of(first.pid):
            time.sleep(0.01)
        end_descendants(first.pid)
        first.kill()

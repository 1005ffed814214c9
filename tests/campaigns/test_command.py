"""``symattn campaign``: over cores and on a cluster, killed and gone on with, and told in a summary."""

import builtins
import json
import os
import signal
import subprocess
import sys
import time
from inspect import signature
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from symattn.campaigns.backends import work
from symattn.campaigns.plan import planned
from symattn.campaigns.store import Store
from symattn.document.evidence import Verdict
from symattn.programs.loading import NoSuchAttribute
from symattn.programs.verifying import Options
from symattn.verification.report import Report
from symattn_cli.main import main

ATTENTION = """
    import numpy as np

    def right(q, k, v):
        s = q @ k.T / q.dtype.type(np.sqrt(q.shape[-1]))
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    def wrong(q, k, v):
        return right(q, k, -v)
"""
OPTIONS = ["--examples", "0", "--dtypes", "float32,float16"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("attn.py").write_text(dedent(ATTENTION), encoding="utf-8")
    return tmp_path


def verdicts(path: str = "out") -> dict[tuple[str, str], str]:
    found = Store(Path(path)).results().values()
    return {(record["target"].partition(":")[2], record["dtype"]): record["verdict"] for record in found}


EXPECTED = {("right", d): "no fault" for d in ("float32", "float16")} | {
    ("wrong", d): "fault" for d in ("float32", "float16")
}


def test_in_this_process(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = signature(Options)

    def told(target: str, *args: Any, **options: Any) -> Report:
        asked.bind(**options)
        if target == "attn.py:none":
            raise NoSuchAttribute("attn.py has no none")
        return Report(Verdict.NO_FAULT, f"{target}(q, k, v)", "float32", "all", 1, command="symattn verify x")

    monkeypatch.setattr("symattn.programs.verifying.verify_target", told)
    monkeypatch.setattr("symattn.programs.repeat.verify_target", told)
    command = ["campaign", "attn.py:right", "attn.py:none", "--examples", "0", "--jobs", "1", "-o", "out"]
    assert main(command) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "1 error, 1 no fault" in out
    assert "attn.py has no none" in out
    assert main(["campaign", "--summary", "out", "-f", "json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["name"], document["planned"]) == ("campaign", 2)
    assert {record["verdict"] for record in document["results"]} == {"error", "no fault"}


def test_a_defect_ends_no_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("symattn.programs.verifying.verify_target", broken)
    (job,) = planned(["a.py:f"], {}, ["float32"], {}, {})
    found = work(job)
    assert (found["verdict"], found["kind"], found["error"]) == ("error", "defect", "ZeroDivisionError: ours")


def test_a_preset_is_named_in_the_command_of_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, given = signature(Options), {}

    def told(*args: Any, **options: Any) -> Report:
        given.update(asked.bind(**options).arguments)
        return Report(Verdict.NO_FAULT, "f", "float32", "all", 1, command="symattn verify x")

    monkeypatch.setattr("symattn.programs.verifying.verify_target", told)
    (job,) = planned(["a.py:f"], {"small": {"like": "llama"}}, ["float32"], {}, {})
    assert work(job)["verdict"] == "no fault"
    assert given["origin"].options == {"like": "llama"}
    assert given["notes"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Missing targets"),
        (["attn.py:right"], "Missing targets, or -o DIR"),
        (["attn.py:right", "--summary", "out"], "goes without targets"),
        (["--summary", "nosuch"], "holds no campaign"),
        (["nosuch.toml", "-o", "out"], "cannot be read"),
        (["plan.toml", "--dtypes", "float32", "-o", "out"], "The file says"),
        (["attn.py:right", "--spec", "casual", "-o", "out"], "Did you mean 'causal'"),
        (["attn.py:right", "--dtypes", "float31", "-o", "out"], "float31"),
        (["attn.py:right", "--backend", "dusk", "-o", "out"], "Did you mean 'dask'"),
    ],
)
def test_wrong_usage(folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert main(["campaign", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err
    assert not Path("out").exists()


@pytest.mark.parametrize(("backend", "package"), [("joblib", "joblib"), ("dask", "dask")])
def test_a_missing_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], backend: str, package: str
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["campaign", "attn.py:right", "-o", "out", "--backend", backend]) == 2
    assert f"{package} is not installed; hint: pip install 'symattn[scale]'" in capsys.readouterr().err


def begin(*words: str) -> subprocess.Popen[bytes]:
    """The command in a process group of its own."""
    program = "import sys; from symattn_cli.main import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-c", program, "campaign", *words], env=environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for_a_result(process: subprocess.Popen[bytes], path: Path) -> bytes:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if path.exists() and path.read_bytes().count(b"\n"):
            return path.read_bytes()
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("no result in two minutes")


@pytest.mark.deep
@pytest.mark.scale
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_it_is_ended_and_nothing_is_lost(folder: Path, capsys: pytest.CaptureFixture[str], how: int) -> None:
    command = ["attn.py:right", "attn.py:wrong", *OPTIONS, "-o", "out", "--jobs", "2"]
    process = begin(*command)
    kept = wait_for_a_result(process, Path("out/results.jsonl"))
    if how == signal.SIGKILL:
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)
    _, err = process.communicate(timeout=60)
    if how == signal.SIGINT:
        assert process.returncode == 130, err.decode()
        assert b"are made and kept; the same command goes on" in err
    done = Path("out/results.jsonl").read_bytes()
    assert done.startswith(kept)
    assert done.count(b"\n") < 4
    assert main(["campaign", *command]) == 1
    assert Path("out/results.jsonl").read_bytes().startswith(done[: done.rfind(b"\n") + 1])
    keys = [json.loads(line)["key"] for line in Path("out/results.jsonl").read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 4
    assert verdicts() == EXPECTED
    check_summary(capsys.readouterr().out)


def check_summary(out: str) -> None:
    """Cases and times are those of the verifications."""
    assert "2 with faults, 2 no fault" in out
    rows = [line.split() for line in out.partition("Cases and times")[2].splitlines() if line.startswith("  attn.py")]
    results = {(r["target"], r["dtype"]): r for r in Store(Path("out")).results().values()}
    assert len(rows) == 4
    for target, spec, dtype, *told, cases, seconds in rows:
        found = results[target, dtype]
        steps = len(found["power"])
        words = f"no fault {steps} of {steps} steps" if target == "attn.py:right" else "fault –"
        assert (spec, " ".join(told), int(cases)) == ("plain", words, found["cases"])
        assert abs(float(seconds) - found["seconds"]) <= 0.06


QUICK = ["attn.py:right", "attn.py:wrong", "--examples", "0", "--backend", "dask", "-o", "out"]


@pytest.mark.deep
@pytest.mark.scale
@pytest.mark.filterwarnings("ignore")
def test_dask_without_a_scheduler_starts_a_cluster_here(folder: Path) -> None:
    assert main(["campaign", *QUICK, "--jobs", "2"]) == 1
    assert verdicts() == {("right", "float32"): "no fault", ("wrong", "float32"): "fault"}


@pytest.mark.deep
@pytest.mark.scale
@pytest.mark.filterwarnings("ignore")
def test_on_a_cluster_of_two_workers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        assert main(["campaign", *QUICK, "--scheduler", cluster.scheduler_address]) == 1
    assert verdicts() == {("right", "float32"): "no fault", ("wrong", "float32"): "fault"}
    assert main(["campaign", *QUICK, "-o", "other", "--scheduler", "tcp://127.0.0.1:9"]) == 2
    assert "no scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err

"""``symattn campaign``: its plan, over cores and on a cluster, killed and gone on with; results line by line."""

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

from symattn import Attention, InputError, Report, Rotary, Verdict
from symattn.programs.child import TargetOptions
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


def results(folder: str | Path = "out") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "results.jsonl").read_text(encoding="utf-8").splitlines()]


def verdicts(path: str = "out") -> dict[tuple[str, str], str]:
    found = results(path)
    return {(record["target"].partition(":")[2], record["dtype"]): record["verdict"] for record in found}


EXPECTED = {("right", d): "no fault" for d in ("float32", "float16")} | {
    ("wrong", d): "fault" for d in ("float32", "float16")
}


def _passed(target: str = "f") -> Report:
    return Report(Verdict.NO_FAULT, f"{target}(q, k, v)", "float32", "all", 1, command="symattn verify x")


def test_in_this_process(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = signature(TargetOptions)

    def told(target: str, *args: Any, **options: Any) -> Report:
        asked.bind(**options)
        if target == "attn.py:none":
            raise InputError("attn.py has no none")
        return _passed(target)

    monkeypatch.setattr("symattn.programs.child.verify_target", told)
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


def test_a_defect_ends_no_campaign(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("symattn.programs.child.verify_target", broken)
    assert main(["campaign", "a.py:f", "a.py:g", "--jobs", "1", "-o", "out"]) == 3
    for found in results():
        assert (found["verdict"], found["kind"], found["error"]) == ("error", "defect", "ZeroDivisionError: ours")
    assert len(results()) == 2


def test_a_preset_is_named_in_the_command_of_its_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, given = signature(TargetOptions), {}

    def told(*args: Any, **options: Any) -> Report:
        given.update(asked.bind(**options).arguments)
        return _passed()

    monkeypatch.setattr("symattn.programs.child.verify_target", told)
    assert main(["campaign", "a.py:f", "--spec", "like=llama", "--jobs", "1", "-o", "out"]) == 0
    assert given["origin"].options == {"like": "llama"}
    assert given["notes"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Missing targets"),
        (["attn.py:right"], "Missing -o DIR"),
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
    assert main(["campaign", *command, "-v"]) == 1
    assert Path("out/results.jsonl").read_bytes().startswith(done[: done.rfind(b"\n") + 1])
    keys = [json.loads(line)["key"] for line in Path("out/results.jsonl").read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 4
    assert verdicts() == EXPECTED
    check_summary(capsys.readouterr().out)


def check_summary(out: str) -> None:
    """Cases and times are those of the verifications."""
    assert "2 with faults, 2 no fault" in out
    rows = [line.split() for line in out.partition("Cases and times")[2].splitlines() if line.startswith("  attn.py")]
    by_job = {(r["target"], r["dtype"]): r for r in results()}
    assert len(rows) == 4
    for target, spec, dtype, *told, cases, seconds in rows:
        found = by_job[target, dtype]
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


EIGHT = ["a.py:f", "a.py:g", "--spec", "plain", "--spec", "causal", "--dtypes", "float32,float16", "--jobs", "1"]
FAULT = {"step": "scale", "cause": "scores are scaled by 1/d_k", "message": "…", "case": "abc"}


class _Stopped(BaseException):
    pass


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str, stop_at: int = 99) -> list[dict[str, Any]]:
    """Run a campaign in which every verification passes, up to one at which it is stopped; return what was passed."""
    made: list[dict[str, Any]] = []

    def told(target: str, spec: Attention, **options: Any) -> Report:
        if len(made) == stop_at:
            raise _Stopped
        made.append({"target": target, "spec": spec, **options})
        return _passed(target)

    monkeypatch.setattr("symattn.programs.child.verify_target", told)
    if stop_at == 99:
        assert main(["campaign", *(words or EIGHT), "-o", str(folder)]) == 0
    else:
        with pytest.raises(_Stopped):
            main(["campaign", *(words or EIGHT), "-o", str(folder)])
    return made


def plan_of(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "plan.json").read_text(encoding="utf-8")))


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The eight jobs of a campaign in ``tmp_path``, of which none is made."""
    run(monkeypatch, tmp_path, stop_at=0)
    return plan_of(tmp_path)


def store(folder: Path, job: dict[str, Any], verdict: str = "no fault", **more: Any) -> None:
    """Write the result of a job, as a campaign does."""
    result = {name: job[name] for name in ("key", "target", "spec", "dtype", "domain")} | {"verdict": verdict}
    if verdict == "error":
        result |= {"error": "a.py cannot be imported", "kind": "CannotRun"}
    else:
        faults = [FAULT] if verdict == "fault" else []
        result |= {"faults": faults, "cases": 7, "notes": ["It warns."], "command": "symattn x"}
    with (folder / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(result | more) + "\n")


def test_what_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, tmp_path, stop_at=3)
    keys = [job["key"] for job in plan_of(tmp_path)]
    assert [result["key"] for result in results(tmp_path)] == keys[:3]
    path = tmp_path / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key": "' + keys[3].encode() + b'", "verdict": "no fa')  # killed within a line
    assert main(["campaign", "--summary", str(tmp_path)]) == 3
    assert "5 of 8 verifications are not made yet" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert len(run(monkeypatch, tmp_path)) == 5
    shown = capsys.readouterr().err.split("\r")
    assert ["3 of 8, 0 with faults" in shown[1], "8 of 8, 0 with faults" in shown[-2]] == [True, True]
    assert path.read_bytes().startswith(whole)
    assert [result["key"] for result in results(tmp_path)] == keys
    assert run(monkeypatch, tmp_path) == []


def test_the_summary_of_a_part_is_undecided(
    tmp_path: Path, jobs: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = ["campaign", "--summary", str(tmp_path)]
    store(tmp_path, jobs[0])
    assert main(shown) == 3
    assert "7 of 8 verifications are not made yet" in " ".join(capsys.readouterr().out.split())
    for job in jobs[1:]:
        store(tmp_path, job)
    assert main(shown) == 0
    store(tmp_path, jobs[1], "error")
    assert main(shown) == 3


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "json"])
def test_the_summary_tells_verdicts_faults_and_errors(
    tmp_path: Path, jobs: list[dict[str, Any]], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for job, verdict in zip(jobs, ["fault", "fault", "error", "no fault"] * 2, strict=True):
        store(tmp_path, job, verdict)
    store(tmp_path, jobs[-1], notes=["It prints.", "It warns."])
    store(tmp_path, jobs[0], key="another plan")
    assert main(["campaign", "--summary", str(tmp_path), "-f", form, "-v"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    for words in ("a.py", "scores are scaled by", "cannot be imported", "a result of another plan"):
        assert words in text, words
    if form == "text":
        assert "FAULT: 4 with faults, 2 errors, 2 no fault; 42 cases." in text
        assert "symattn x --case abc" in text
        assert "! It warns. (6 verifications)" in text
        assert "! a.py:g: It prints." in text


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The line by which a campaign is refused."""
    assert main(["campaign", *map(str, words)]) == 2
    return capsys.readouterr().err


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("text", ["not json\n", "3\n", '{"verdict": "fault"}\n'])
def test_broken_results_are_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.jsonl").write_text(text, encoding="utf-8")
    assert "line 1 is not a result" in refused(capsys, "--summary", tmp_path)


@pytest.mark.usefixtures("jobs")
def test_a_result_of_which_the_disk_took_a_part_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write, path = os.write, tmp_path / "results.jsonl"
    monkeypatch.setattr("symattn.programs.child.verify_target", lambda target, spec, **_: _passed(target))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: write(handle, data[:5]))
        assert "the disk took a part of a result" in refused(capsys, *EIGHT, "-o", tmp_path)
    assert len(path.read_bytes()) == 5
    # Opening it again cuts the part off.
    run(monkeypatch, tmp_path, stop_at=0)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("text", ["", "3", '[{"key": 1}]', "[1]"])
def test_a_folder_without_a_plan_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds no campaign" in refused(capsys, "--summary", tmp_path / "none")
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    assert "not a plan" in refused(capsys, "--summary", tmp_path)
    assert "cannot be used" in refused(capsys, *EIGHT, "-o", tmp_path / "plan.json")


PLAN = """
targets = ["a.py:f", { target = "b.py:g", layout = "bhnd", call = ["x=1"] }]
dtypes = ["float32", "bfloat16", "float64"]

[options]
budget = 3
layout = "nd"

[specs.plain]
[specs.rotary]
causal = true
window = [3, 0]
scale = "1/8"
position = "Rotary(base=100)"
call = ["is_causal=true"]
[specs.llama]
like = "llama"

[domains.short]
max-tokens = 9
square = true
[domains.all]
"""


def test_a_file_is_multiplied_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN, encoding="utf-8")
    made = run(monkeypatch, tmp_path / "out", str(path), "--jobs", "1")
    jobs = plan_of(tmp_path / "out")
    assert len(jobs) == len(made) == 2 * 3 * 3 * 2
    assert len({job["key"] for job in jobs}) == len(jobs)
    names = ("b.py:g", "rotary", "float64", "short")
    (number,) = [i for i, j in enumerate(jobs) if (j["target"], j["spec"], j["dtype"], j["domain"]) == names]
    job = made[number]
    assert job["spec"] == Attention(causal=True, window=(3, 0), scale=1 / 8, position=Rotary(base=100))
    assert (job["target"], job["dtype"], job["notes"]) == ("b.py:g", "float64", ())
    assert {n: job[n] for n in ("budget", "layout", "call")} == {
        "budget": 3,
        "layout": "bhnd",
        "call": ["is_causal=true"],
    }
    assert (job["domain"].max_tokens, job["domain"].square) == (9, True)
    llama = made[next(i for i, j in enumerate(jobs) if j["spec"] == "llama")]
    assert (llama["spec"].heads, llama["spec"].kv_heads) == (8, 2)
    assert "are cut" in llama["notes"][0]


def test_keys_speak_of_everything_that_a_result_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keys(*lines: str, targets: str = '["a.py:f"]') -> list[str]:
        path = tmp_path / "plan.toml"
        path.write_text("\n".join((f"targets = {targets}", *lines)), encoding="utf-8")
        run(monkeypatch, tmp_path / "out", str(path), "--jobs", "1", stop_at=0)
        return [job["key"] for job in plan_of(tmp_path / "out")]

    plain = ("[specs.s]", "[domains.d]")
    others = [
        keys("[specs.s]", "causal = true", "[domains.d]"),
        keys('dtypes = ["float16"]', *plain),
        keys(*plain, "square = true"),
        keys(*plain, "[options]", "seed = 1"),
    ]
    assert len({keys(*plain)[0], *(key for (key,) in others)}) == 5
    assert keys(*plain) == keys(*plain)
    assert len(keys(targets='["a.py:f", "a.py:f"]')) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs a target"),
        ("targets = 'a.py:f'", "must be a list"),
        ("targets = ['attn.py']", "entry 1 names no target"),
        ("target = ['a.py:f']", "Did you mean 'targets'"),
        ("targets = ['a.py:f']\ndtypes = ['float31']", "'float31' is unknown"),
        ("targets = ['a.py:f']\nspecs = 3", "specs must be a table, got 3"),
        ("targets = ['a.py:f']\n[specs.x]\ncasual = true", "Did you mean 'causal'"),
        ("targets = ['a.py:f']\n[specs.x]\ncausal = 'perhaps'", "specs.x.causal"),
        ("targets = ['a.py:f']\n[specs.x]\nlike = 'nosuch'", "unknown model"),
        ("targets = ['a.py:f']\n[specs.x]\nwindow = 0", "window"),
        ("targets = ['a.py:f']\n[specs.x]\ncall = 'x=1'", "call is 'x=1'"),
        ("targets = ['a.py:f']\n[options]\nbudget = 'long'", "budget is 'long'"),
        ("targets = ['a.py:f']\n[options]\nbudget = nan", "budget must be a number of seconds above 0, got nan"),
        ("targets = ['a.py:f']\n[specs.x]\ntime_limit = 0", "time-limit must be a number of seconds above 0, got 0"),
        ("targets = ['a.py:f']\n[domains.x]\nmax_tokens = 0", "max_tokens must be an integer of at least 1, got 0"),
        ("targets = ['a.py:f']\n[domains.x]\nmax_tokens = 'many'", "must be an integer"),
        ("targets = [", "is not valid TOML"),
    ],
)
def test_what_means_nothing_is_refused(
    tmp_path: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    assert words in refused(capsys, path, "-o", tmp_path / "out")

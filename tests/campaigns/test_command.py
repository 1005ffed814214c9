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
from symattn.campaigns import backends
from symattn.campaigns.plan import Job, Store, planned, read
from symattn.campaigns.summary import summary
from symattn.document.render import render
from symattn.programs.child import TargetOptions
from symattn.programs.loading import NoSuchAttribute
from symattn_cli.main import main
from tests.refusals import refuses

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
    asked = signature(TargetOptions)

    def told(target: str, *args: Any, **options: Any) -> Report:
        asked.bind(**options)
        if target == "attn.py:none":
            raise NoSuchAttribute("attn.py has no none")
        return Report(Verdict.NO_FAULT, f"{target}(q, k, v)", "float32", "all", 1, command="symattn verify x")

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


def test_a_defect_ends_no_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("symattn.programs.child.verify_target", broken)
    (job,) = planned(["a.py:f"], {}, ["float32"], {}, {})
    found = backends.work(job)
    assert (found["verdict"], found["kind"], found["error"]) == ("error", "defect", "ZeroDivisionError: ours")


def test_a_preset_is_named_in_the_command_of_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, given = signature(TargetOptions), {}

    def told(*args: Any, **options: Any) -> Report:
        given.update(asked.bind(**options).arguments)
        return Report(Verdict.NO_FAULT, "f", "float32", "all", 1, command="symattn verify x")

    monkeypatch.setattr("symattn.programs.child.verify_target", told)
    (job,) = planned(["a.py:f"], {"small": {"like": "llama"}}, ["float32"], {}, {})
    assert backends.work(job)["verdict"] == "no fault"
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


JOBS = planned(["a.py:f", "a.py:g"], {"plain": {}, "causal": {"causal": True}}, ["float32", "float16"], {}, {})
FAULT = {"step": "scale", "cause": "scores are scaled by 1/d_k", "message": "…", "case": "abc"}


def made(job: Job, verdict: str = "no fault") -> dict[str, Any]:
    found = {"key": job.key, "target": job.target, "spec": job.spec, "dtype": job.dtype, "domain": job.domain}
    if verdict == "error":
        return {**found, "verdict": verdict, "error": "a.py cannot be imported", "kind": "CannotRun"}
    faults = [FAULT] if verdict == "fault" else []
    return {**found, "verdict": verdict, "faults": faults, "cases": 7, "notes": ["It warns."], "command": "symattn x"}


class _Stopped(BaseException):
    pass


def _work(verdicts: list[str], stop_at: int = 99) -> Any:
    def here(jobs: Any) -> Any:
        for number, job in enumerate(jobs):
            if number == stop_at:
                raise _Stopped
            yield made(job, verdicts[number % len(verdicts)])

    return here


def test_what_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "here", _work(["no fault"], stop_at=3))
    with pytest.raises(_Stopped):
        backends.run(JOBS, tmp_path / "out", cores=1)
    store = Store(tmp_path / "out")
    assert list(store.results()) == [job.key for job in JOBS[:3]]
    path = tmp_path / "out" / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key": "' + JOBS[3].key.encode() + b'", "verdict": "no fa')  # killed within a line
    assert len(store.results()) == 3
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(backends, "here", _work(["fault"]))
    left = backends.run(JOBS, tmp_path / "out", cores=1, progress=lambda done, planned, _: seen.append((done, planned)))
    assert left == len(JOBS) - 3
    assert path.read_bytes().startswith(whole)
    assert [json.loads(line)["key"] for line in path.read_bytes().splitlines()] == [job.key for job in JOBS]
    assert (seen[0], seen[-1]) == ((3, 8), (8, 8))
    assert backends.run(JOBS, tmp_path / "out", cores=1) == 0


def test_the_summary_of_a_part_is_undecided(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open(JOBS)
    store.append(made(JOBS[0]))
    document = summary(tmp_path)
    assert document.verdict is Verdict.UNDECIDED
    assert "7 of 8 verifications are not made yet" in " ".join(render(document, "text").split())
    for job in JOBS[1:]:
        store.append(made(job))
    assert summary(tmp_path).verdict is Verdict.NO_FAULT
    store.append(made(JOBS[1], "error"))
    assert summary(tmp_path).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "json"])
def test_the_summary_tells_verdicts_faults_and_errors(tmp_path: Path, form: str) -> None:
    store = Store(tmp_path)
    store.open(JOBS)
    for job, verdict in zip(JOBS, ["fault", "fault", "error", "no fault"] * 2, strict=True):
        store.append(made(job, verdict))
    store.append(made(JOBS[-1]) | {"notes": ["It prints.", "It warns."]})
    store.append({**made(JOBS[0]), "key": "another plan"})
    document = summary(tmp_path, "symattn campaign --summary out")
    assert document.verdict is Verdict.FAULT
    text = " ".join(render(document.whole(), form).split())
    for words in ("a.py", "scores are scaled by", "cannot be imported", "a result of another plan"):
        assert words in text, words
    if form == "text":
        assert "FAULT: 4 with faults, 2 errors, 2 no fault; 42 cases." in text
        assert "symattn x --case abc" in text
        assert "! It warns. (6 verifications)" in text
        assert "! a.py:g: It prints." in text


@pytest.mark.parametrize("text", ["not json\n", "3\n", '{"verdict": "fault"}\n'])
def test_broken_results_are_refused(tmp_path: Path, text: str) -> None:
    Store(tmp_path).open(JOBS)
    (tmp_path / "results.jsonl").write_text(text, encoding="utf-8")
    refuses(Store(tmp_path).results, says="line 1 is not a result")


def test_a_result_of_which_the_disk_took_a_part_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.open(JOBS)
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:5]))
    refuses(store.append, {"key": "a"}, says="the disk took a part of a result")
    # Opening it again cuts the part off.
    store.open(JOBS)
    assert store.results() == {}


@pytest.mark.parametrize("text", ["", "3", '[{"key": 1}]', "[1]"])
def test_a_folder_without_a_plan_is_refused(tmp_path: Path, text: str) -> None:
    refuses(summary, tmp_path / "none", says="holds no campaign")
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    refuses(summary, tmp_path, says="not a plan")
    refuses(Store(tmp_path / "plan.json").open, JOBS, says="cannot be used")


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


def test_a_file_is_multiplied_out(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN, encoding="utf-8")
    jobs = read(path)
    assert len(jobs) == 2 * 3 * 3 * 2
    assert len({job.key for job in jobs}) == len(jobs)
    job = next(j for j in jobs if (j.target, j.spec, j.dtype, j.domain) == ("b.py:g", "rotary", "float64", "short"))
    wanted = Attention(causal=True, window=(3, 0), scale=job.attention[0].scale, position=Rotary(base=100))
    assert job.attention == (wanted, "")
    assert (job.attention[0].scale, job.attention[0].position) == (1 / 8, Rotary(base=100))
    assert job.options == {"budget": 3, "layout": "bhnd", "call": ["is_causal=true"]}
    assert job.promised == {"max_tokens": 9, "square": True}
    llama, cut = next(j for j in jobs if j.spec == "llama").attention
    assert (llama.heads, llama.kv_heads) == (8, 2)
    assert "are cut" in cut


def test_keys_speak_of_everything_that_a_result_depends_on() -> None:
    def key(spec: object = {}, dtype: str = "float32", domain: object = {}, **options: object) -> str:
        return planned(["a.py:f"], {"s": spec}, [dtype], {"d": domain}, options)[0].key

    others = [key({"causal": True}), key(dtype="float16"), key(domain={"square": True}), key(seed=1)]
    assert len({key(), *others}) == 5
    assert key() == key()
    assert len(planned(["a.py:f", "a.py:f"], {}, ["float32"], {}, {})) == 1


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
def test_what_means_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        read(path)

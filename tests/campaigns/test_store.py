"""Results are kept line by line; a line that was torn is made again, and nothing else is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from symattn.campaigns import backends
from symattn.campaigns.backends import run
from symattn.campaigns.plan import Job, planned
from symattn.campaigns.store import Store
from symattn.campaigns.summary import summary
from symattn.document.evidence import Verdict
from symattn.document.render import render
from tests.refusals import refuses

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
        run(JOBS, tmp_path / "out", cores=1)
    store = Store(tmp_path / "out")
    assert list(store.results()) == [job.key for job in JOBS[:3]]
    path = tmp_path / "out" / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key": "' + JOBS[3].key.encode() + b'", "verdict": "no fa')  # killed within a line
    assert len(store.results()) == 3
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(backends, "here", _work(["fault"]))
    left = run(JOBS, tmp_path / "out", cores=1, progress=lambda done, planned, _: seen.append((done, planned)))
    assert left == len(JOBS) - 3
    assert path.read_bytes().startswith(whole)
    assert [json.loads(line)["key"] for line in path.read_bytes().splitlines()] == [job.key for job in JOBS]
    assert (seen[0], seen[-1]) == ((3, 8), (8, 8))
    assert run(JOBS, tmp_path / "out", cores=1) == 0


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
    text = " ".join(render(document, form).split())
    for words in ("a.py", "scores are scaled by", "cannot be imported", "1 results of other plans"):
        assert words in text, words
    if form == "text":
        assert "4 with faults, 2 errors, 2 no fault; 42 cases." in text
        assert "symattn x --case abc" in text
        assert "! It warns. (6 verifications)" in text
        assert "! a.py:g: It prints." in text


@pytest.mark.parametrize("text", ["not json\n", "3\n", '{"verdict": "fault"}\n'])
def test_broken_results_are_refused(tmp_path: Path, text: str) -> None:
    Store(tmp_path).open(JOBS)
    (tmp_path / "results.jsonl").write_text(text, encoding="utf-8")
    refuses(Store(tmp_path).results, says="line 1 is not a result")


@pytest.mark.parametrize("text", ["", "3", '[{"key": 1}]', "[1]"])
def test_a_folder_without_a_plan_is_refused(tmp_path: Path, text: str) -> None:
    refuses(summary, tmp_path / "none", says="holds no campaign")
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    refuses(summary, tmp_path, says="not a plan")
    refuses(Store(tmp_path / "plan.json").open, JOBS, says="cannot be used")

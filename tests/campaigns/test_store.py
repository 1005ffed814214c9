"""Which verifications a campaign makes, and their results, kept line by line: what was torn is made again."""

import json
from pathlib import Path
from typing import Any

import pytest

from symattn import Attention, Rotary
from symattn.campaigns import backends
from symattn.campaigns.backends import run
from symattn.campaigns.plan import Job, planned, read
from symattn.campaigns.store import Store
from symattn.campaigns.summary import summary
from symattn.document.errors import InputError
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


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "none.toml")

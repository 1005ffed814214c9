"""``symattn.judge`` and ``symattn judge``: one status, with what it rests on."""

import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from symattn import Attention, InputError, RMSNorm, judge, reports
from symattn.programs.judging.clock import Clock
from symattn_cli.main import main
from tests.printed import validator
from tests.refusals import refuses
from tests.verification.kernels import kernel

SCHEMA = validator("judgement")


def weights_of(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def right(q, k, v):
    return weights_of(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


def zeros(q, k, v):
    return np.zeros((len(q), v.shape[1]), q.dtype)


def mean(q, k, v):
    return np.repeat(v.mean(0, keepdims=True), len(q), axis=0)


def scaled_by_width(q, k, v):
    return weights_of(q @ k.T / q.dtype.type(q.shape[-1])) @ v


def one_percent_off(q, k, v):
    return right(q * q.dtype.type(1.01), k, v)


def without_the_last_of_many(q, k, v):
    return right(q, k[:-1], v[:-1]) if len(k) > 8 else right(q, k, v)


def changes_q(q, k, v):
    q *= 1
    q[0, 0] += 1
    return right(q, k, v)


def first_result(q, k, v, kept={}):  # noqa: B006 - state between calls is the mistake
    return kept.setdefault((q.shape, k.shape, v.shape), right(q, k, v))


WRONG = (zeros, mean, scaled_by_width, one_percent_off, without_the_last_of_many, changes_q, first_result)


@pytest.mark.parametrize("candidate", WRONG, ids=lambda f: f.__name__)
def test_a_wrong_candidate_fails_with_an_element_and_without_a_cause(candidate) -> None:
    judgement = judge(candidate, seed=3)
    assert (judgement.status, judgement.exit_code, judgement.holds) == (reports.Status.FAIL, 1, False)
    assert judgement.cause is None or candidate is changes_q
    entry = judgement.counterexample
    assert entry is not None
    if candidate is not changes_q:
        assert abs(entry.got - entry.expected) > entry.allowed
    SCHEMA.validate(judgement.as_dict())


@pytest.mark.deep
def test_a_right_candidate_passes_within_the_limit_of_this_process() -> None:
    judgement = judge(right, examples=20)
    assert judgement.status is reports.Status.PASS_WITH_LIMITS
    assert ["own process" in words for words in judgement.limits] == [True]
    assert {p.smallest for p in judgement.power} <= {0.001, 0.003, 0.01}
    SCHEMA.validate(judgement.as_dict())
    assert "\n" not in repr(judgement)


@pytest.mark.deep
def test_a_coarse_format_passes_with_limits_that_name_step_and_size() -> None:
    judgement = judge(right, dtype="float16", examples=20)
    named = [words for words in judgement.limits if "scores 1 % too large could not have been noticed" in words]
    assert judgement.status is reports.Status.PASS_WITH_LIMITS
    assert named
    assert next(p.smallest for p in judgement.power if p.step == "scores") > 0.01


def test_seconds_count_the_processes_of_candidate_and_reference() -> None:
    clock = Clock()
    clock.follow(SimpleNamespace(spent=(100.0, 0.0)))  # type: ignore[arg-type]
    clock.follow_reference(SimpleNamespace(spent=(1000.0, 0.0)))  # type: ignore[arg-type]
    seconds = clock.seconds()
    assert seconds.candidate == 100
    assert 1100 <= seconds.processor < 1200


def test_a_judgement_uses_one_thread_of_blas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reference is sought with small products, too, on which more threads wait for each other."""

    def refuse(*_: object) -> None:
        threads = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
        raise InputError(f"threads: {threads}")

    monkeypatch.setattr("symattn.programs.judging.references.ByReference._by_module", refuse)
    reference = tmp_path / "reference.py"
    reference.write_text("")
    refuses(judge, "kernel.py", reference=str(reference), says="threads: {1}")


def test_the_seed_is_fresh_and_repeats() -> None:
    first, second = judge(zeros), judge(zeros)
    assert first.seeds != second.seeds
    again = judge(zeros, seed=first.seeds["inputs"])
    assert (again.counterexample, again.reason) == (first.counterexample, first.reason)


@pytest.mark.deep
def test_the_cause_is_named_on_request() -> None:
    judgement = judge(scaled_by_width, why=True, examples=10)
    assert (judgement.status, judgement.step) == (reports.Status.FAIL, "scale")
    assert "1/d_k" in judgement.cause
    assert (judgement.code, judgement.as_dict()["code"]) == ("scale-twice", "scale-twice")
    assert judgement.repairs[0].is_whole
    SCHEMA.validate(judgement.as_dict())
    assert judge(scaled_by_width, examples=10).repairs == ()


@pytest.mark.deep
def test_other_definitions_and_definitions_that_are_none() -> None:
    def rms(x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True))

    assert judge(rms, RMSNorm(eps=0), examples=5).passed
    assert judge(lambda x: x, RMSNorm(eps=0), examples=5).status is reports.Status.FAIL
    with pytest.raises(InputError, match="not a specification"):
        judge(right, "attention")  # type: ignore[arg-type]


def test_a_candidate_that_raises_on_every_input_fails() -> None:
    def broken(q, k, v):
        return q @ v

    judgement = judge(broken, examples=0)
    assert judgement.status in (reports.Status.FAIL, reports.Status.UNDECIDED)
    assert not judgement.passed


FILE = """
import numpy as np

def causal(q, k, v):
    print("PASS")
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    s = np.where(np.tri(*s.shape, s.shape[1] - s.shape[0], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).astype(q.dtype)
"""


@pytest.mark.deep
def test_the_command_prints_one_judgement_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.joinpath("kernel.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    status = main(["judge", "kernel.py:causal", "--causal", "-f", "json"])
    data = json.loads(capsys.readouterr().out)
    SCHEMA.validate(data)
    assert (status, data["status"], data["limits"]) == (0, "PASS", [])
    assert data["definition"] == "Attention(causal=True)"
    assert len(data["identity"]["candidate"]) == len(data["identity"]["symattn"]) == 64
    assert data["sizes"]["floats"]["n_k"] > 500
    assert f"--seed {data['seeds']['inputs']}" in data["command"]
    assert main(["judge", "kernel.py:causal", "--no-why", "-q"]) == 1
    assert capsys.readouterr().out == "FAIL\n"
    assert main(["judge", "kernel.py:missing"]) == 2


@pytest.mark.deep
def test_a_scale_in_half_precision_fails_without_a_search_among_all_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    def stored(q, k, v):
        return one_percent_off(*(np.asarray(a, np.float32) for a in (q, k, v))).astype(np.float16)

    def search(*_: object) -> None:
        raise AssertionError("thousands of mistakes were compared")

    monkeypatch.setattr("symattn.verification.arithmetic.suspects.yield_known_mistakes", search)
    judgement = judge(stored, dtype="float16", seed=3)
    assert judgement.status is reports.Status.FAIL
    assert "scores are scaled by 1.01/√d_k" in judgement.reason


def in_half(dtype, factor=1.0, cap=None):
    """Return attention with sums in float32, of a scale that is ``factor`` times the right one."""

    def attention(q, k, v):
        q, k, v = (np.asarray(a, np.float32) for a in (q, k, v))
        scores = q @ k.T * np.float32(factor / np.sqrt(q.shape[-1]))
        scores = scores if cap is None else cap * np.tanh(scores / cap)
        return (weights_of(scores) @ v).astype(dtype)

    return attention


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_number_that_is_some_percent_off_in_half_precision_fails_by_its_first_bits(dtype: str) -> None:
    # In float16 single outputs show an error of a tenth.
    stored, more, less, cap = (
        (np.float16, 1.02, 0.98, 5.1) if dtype == "float16" else (ml_dtypes.bfloat16, 1.1, 0.95, 5.5)
    )
    capped = Attention(softcap=5.0)
    wrong = (
        (in_half(stored, more), Attention(), f"scaled by {more}/√d_k"),
        (in_half(stored, less), Attention(), f"scaled by {less}/√d_k"),
        (in_half(stored, cap=cap), capped, f"the cap is {cap}"),
    )
    for function, spec, words in wrong:
        judgement = judge(function, spec, dtype=dtype, seed=5)
        assert judgement.status is reports.Status.FAIL
        assert words in judgement.reason
        assert judgement.calls < 100  # of more than 200
    for function, spec in ((in_half(stored), Attention()), (in_half(stored, cap=5.0), capped)):
        assert judge(function, spec, dtype=dtype, seed=5).passed


@pytest.mark.deep
def test_an_early_mistake_that_fresh_inputs_do_not_confirm_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symattn.verification.arithmetic.bits_of_a_call.confirmed", lambda ranking, sample: False)
    monkeypatch.setattr("symattn.verification.arithmetic.aims.judge_jointly", lambda session, trial: None)
    looks: list[object] = []
    monkeypatch.setattr("symattn.verification.arithmetic.aims.tried", lambda *_, **__: looks.append(1))
    judgement = judge(in_half(np.float16, 1.02), dtype="float16", seed=5, examples=4)
    assert judgement.status is not reports.Status.FAIL
    assert not looks  # the same bits are not asked twice


@pytest.mark.deep
def test_outputs_that_are_judged_together_early_are_not_judged_together_again(monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[np.ndarray] = []

    def counted(spec, inputs, got, *rest):
        samples.append(got)
        return rows_of(spec, inputs, got, *rest)

    rows_of = patch("symattn.verification.arithmetic.rungs.some_rows").get_original()[0]
    monkeypatch.setattr("symattn.verification.arithmetic.rungs.some_rows", counted)

    def function(q, k, v):
        # The bits of such exponentials are those of no known arithmetic.
        return kernel(q, k, v, "bfloat16", exponential=5e-4)

    judgement = judge(function, Attention(causal=True), dtype="bfloat16", contract="fused", seed=5)
    assert judgement.status is reports.Status.PASS_WITH_LIMITS
    assert len(samples) == 1

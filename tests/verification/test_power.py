"""“No fault” needs enough that was tried: cases of every group, and of every step some that show it if it is wrong."""

import json

import numpy as np
import pytest

from symattn import Attention, Domain, LayerNorm, LinearAttention, Report, Rotary, Verdict, printing, reports, verify
from symattn.bounds.case_result import Case
from symattn.programs.verifying import Options
from symattn.verification import engine
from symattn.verification.power import least_shown, of_attention, powers
from symattn.verification.probing import probes
from tests.faults.definitions import RIGHT
from tests.faults.programs import causal, plain
from tests.verification.naming import convicts

SMALL = Domain(max_tokens=17, max_width=8)


class Exactly:
    """An output that is expected, and the same error allowed for each of its entries."""

    def __init__(self, near: np.ndarray, allowed: float) -> None:
        self.near, self.allowed = near, np.full(near.shape, allowed)


def _given(n_q: int, n_k: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {n: rng.standard_normal(s) for n, s in zip("qkv", ((n_q, 4), (n_k, 4), (n_k, 3)), strict=True)}


def _seen(spec: Attention, n_q: int, n_k: int, allowed: float) -> dict[str, reports.StepPower]:
    right, mutations = of_attention(spec, "qkv")
    given = _given(n_q, n_k)
    tried = [(given, [Exactly(np.asarray(right(given)[0]), allowed)])]
    return {power.step: power for power in powers(right, mutations, [_given(5, 7)], tried)}


def test_every_step_has_power_where_little_is_allowed() -> None:
    found = _seen(Attention(causal=True), 5, 7, 1e-9)
    assert set(found) == {"scores", "scaled scores", "masked scores", "weights", "output"}
    assert all(power.seen for power in found.values())


def test_a_mask_that_hides_nothing_in_any_case_has_none() -> None:
    found = _seen(Attention(causal=True), 1, 7, 1e-9)
    assert not found["masked scores"].seen
    assert found["scaled scores"].seen


def test_where_everything_is_allowed_nothing_has_power() -> None:
    assert not any(power.seen for power in _seen(Attention(), 5, 7, np.inf).values())
    assert not any(power.seen for power in _seen(Attention(), 5, 7, 1e3).values())


def test_a_step_that_no_promised_input_shows_is_not_asked_for() -> None:
    """With one key the scale does not matter; nor does the bias of the keys, which a softmax does not see."""
    right, mutations = of_attention(Attention(), "qkv")
    one = _given(3, 1)
    found = powers(right, mutations, [one], [(one, [Exactly(right(one)[0], 1e-9)])])
    assert [power.step for power in found] == ["weights", "output"]


@pytest.mark.deep
def test_the_share_is_what_would_be_seen() -> None:
    """A function that is off by a little more than twice the share is accused, whatever its rounding."""
    share = next(p.share for p in verify(plain, Attention(), domain=SMALL, examples=4).power if p.step == "output")

    def off(q, k, v):
        return (plain(q.astype(float), k.astype(float), v.astype(float)) * (1 + 0.01 * 2.02 * share)).astype(q.dtype)

    assert convicts(off, Attention(), domain=SMALL, examples=4)


def _cut(monkeypatch: pytest.MonkeyPatch, room: object, cases: int) -> None:
    """Nothing is tried after so many cases."""
    monkeypatch.setattr(room.Session, "over", property(lambda self: len(self.records) >= cases))  # type: ignore[attr-defined]


def test_too_few_cases_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _cut(monkeypatch, engine, 5)
    report = verify(causal, Attention(causal=True), domain=SMALL)
    assert (report.verdict, report.exit_code, report.faults) == (Verdict.UNDECIDED, 3, ())
    assert report.missing[0].startswith("Too few cases were tried of: worked (0 of at least 3), scale (0")
    assert "caps" not in report.missing[0]
    # The number of calls ended it, so that no more time would help.
    assert report.missing[0].endswith("; hint: a Domain of fewer tokens, of which more cases are tried")


@pytest.mark.deep
def test_a_fault_is_one_after_few_cases_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _cut(monkeypatch, engine, 5)
    report = verify(lambda q, k, v: 2 * plain(q, k, v), Attention(), domain=SMALL)
    assert (report.verdict, report.missing, report.power) == (Verdict.FAULT, (), ())


@pytest.mark.deep
def test_where_the_bound_hides_a_mistake_nothing_is_decided() -> None:
    """In 8 bits, with every array stored in them, weights may be anything."""
    report = verify(plain, Attention(), precision="float8_e4m3fn", domain=SMALL, examples=4)
    assert (report.verdict, report.faults) == (Verdict.UNDECIDED, ())
    assert "would have shown: scores 1 % too large; " in report.missing[0]
    assert "--dtype" in report.missing[0]


def test_a_rotation_in_bfloat16_hides_no_factor_of_the_scores() -> None:
    def zeros(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.zeros((len(q), v.shape[1]), v.dtype)

    how, spec = Options(dtype="bfloat16"), Attention(causal=True, position=Rotary(base=500_000))
    with how.opened(zeros, spec) as runner:
        session = how.session(runner, spec)
        for name, inputs in probes.scale(session.maker, np.random.default_rng(0)):
            session.take(Case("scale", name, inputs))
    tried = [(r.case.inputs, [part.expected for part in r.parts]) for r in session.records]
    _, mutations = of_attention(spec, "qkv")
    factor_left_out = next(m for kind in mutations["scaled scores"] for m in kind if m.words == "left out")
    assert least_shown(factor_left_out, tried) < 1


@pytest.mark.deep
def test_too_few_cases_of_a_definition_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    right = next(case for case in RIGHT if isinstance(case.spec, LayerNorm))
    whole = verify(right.function, right.spec, examples=4)
    assert whole.verdict is Verdict.NO_FAULT
    assert whole.power
    assert all(power.seen for power in whole.power)
    _cut(monkeypatch, engine, 5)
    report = verify(right.function, right.spec, examples=4)
    assert (report.verdict, report.faults) == (Verdict.UNDECIDED, ())
    assert "random (0 of at least 3)" in report.missing[0]


def delta_rule(q, k, v, beta):
    state, outputs = np.zeros((k.shape[1], v.shape[1]), v.dtype), []
    for t in range(len(q)):
        state = state + np.outer(k[t], beta[t] * (v[t] - k[t] @ state))
        outputs.append(q[t] @ state)
    return np.stack(outputs)


@pytest.mark.deep
def test_some_calls_are_bounded_where_float64_has_judged_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel for heads of one large width is never called with few entries."""
    spec = LinearAttention(feature="identity", normalised=False, delta=True)
    monkeypatch.setattr(engine, "_LARGE_CASE", -1)
    found = []
    for bounded in (0, engine._BOUNDED):
        monkeypatch.setattr(engine, "_BOUNDED", bounded)
        found.append(verify(delta_rule, spec, domain=Domain(max_tokens=9, max_width=6), examples=4))
    assert [report.verdict for report in found] == [Verdict.UNDECIDED, Verdict.NO_FAULT], found
    assert all(power.seen for power in found[1].power)


def test_a_report_says_what_would_have_been_seen() -> None:
    report = Report(
        Verdict.UNDECIDED, "f", "float32", "", 1,
        power=(reports.StepPower("weights", "left out", 0.5), reports.StepPower("q", "none", np.inf)),
        missing=("Nothing",),
    )  # fmt: skip
    text = printing.render(report.document().whole(), "text")
    assert "50 %" in text
    assert "not seen" in text
    assert text.splitlines()[2] == "UNDECIDED: nothing."
    assert "50 %" not in printing.render(report.document(), "text")
    record = json.loads(printing.render(report.document(), "json"))
    assert record["power"][1] == {"step": "q", "mistake": "none", "share": "inf"}
    assert record["missing"] == ["Nothing"]

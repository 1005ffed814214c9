"""Code that runs on residues: what agrees is tested, and what differs is no fault until floats show it."""

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, Grade, Gradient, Report, Rotary, Verdict, verify
from symattn.bounds.called_target import Convention
from symattn.document.codec import record
from symattn.programs.calling import agree
from symattn.programs.calls import Target
from symattn.programs.identity import identity
from symattn.programs.request import Request
from symattn.programs.target import target
from tests.sizes import SIZES
from tests.verification.sizes_together import ROTARY as CAUSAL_ROTARY
from tests.verification.sizes_together import attend, named

CALLS: list[str] = []
ROTARY = Attention(position=Rotary())


def attention(q: Any, k: Any, v: Any, more: Any = 0.0, factor: Any = 1.0) -> Any:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype) * factor
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / (e.sum(axis=-1, keepdims=True) + more) @ v


def plain(q: Any, k: Any, v: Any) -> Any:
    CALLS.append(type(q).__name__)
    return attention(q, k, v)


def harmless(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, np.float32(1e-20))


def with_small_sums(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / np.minimum(e.sum(axis=-1, keepdims=True), np.float32(2000)) @ v


def guarded(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    e = np.exp(np.minimum(s - s.max(axis=-1, keepdims=True), np.float32(0)))
    return e / np.maximum(e.sum(axis=-1, keepdims=True), np.float32(1e-9)) @ v


def wrong_for_64(q: Any, k: Any, v: Any) -> Any:
    return (
        attention(q, k, v, factor=q.dtype.type(1.5 if len(k) == len(q) == 64 else 1))
        if len(k) == 64
        else plain(q, k, v)
    )


def refused(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v * float(1 + 0 * v[0, 0]))


def wrong_for_wide(q: Any, k: Any, v: Any) -> Any:
    return plain(q, k, v) if q.shape[-1] < 112 else attention(q, k, v, factor=q.dtype.type(1.5))


def without_maxima(q: Any, k: Any, v: Any) -> Any:
    e = np.exp(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype))
    return e / e.sum(axis=-1, keepdims=True) @ v


def rotated(x: Any, places: Any, base: float = 10000.0) -> Any:
    angles = places[:, None] * base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    cos, sin, half = np.cos(angles).astype("f4"), np.sin(angles).astype("f4"), x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def rotary(q: Any, k: Any, v: Any, base: float = 10000.0) -> Any:
    keys = np.arange(len(k))
    return attention(rotated(q, keys[len(k) - len(q) :], base), rotated(k, keys, base), v)


def backward(q: Any, k: Any, v: Any, do: Any, factor: float = 1.0) -> Any:
    scale = 1 / np.sqrt(q.shape[-1])
    s = q @ k.T * scale
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    dp = do @ v.T
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True)) * scale
    return ds @ k, ds.T @ q * factor, p.T @ do


def endless(q: Any, k: Any, v: Any) -> Any:
    while type(q).__module__ != "numpy":
        pass
    return attention(q, k, v)


def verified(function: Any, **told: Any) -> Report:
    return verify(function, Attention(), **{"examples": 0, "domain": Domain(max_tokens=64, max_width=8), **told})


def check(report: Report) -> Any:
    return next((c for c in report.checks if c.name == "semantics"), None)


@pytest.mark.deep
def test_a_right_function_is_tested_and_its_report_says_with_which_epsilon() -> None:
    CALLS.clear()
    report = verified(plain)
    found = check(report)
    assert report.verdict is Verdict.NO_FAULT
    assert found is not None
    assert found.grade is Grade.TESTED
    assert 0 < (found.epsilon or 0) < 1e-11
    assert found.words.startswith("tested ε ≤ ")
    assert str(report.grade).startswith("tested ε ≤ ")
    assert "rounding, overflow, underflow and maxima are not covered" in " ".join(str(report).split())
    assert record(found)["epsilon"] == found.epsilon
    assert any("and all k, v" in note for note in report.notes)
    assert set(CALLS) == {"ndarray"}, "what residues change stays in a copy of the process"


@pytest.mark.deep
@pytest.mark.parametrize("function", [harmless, guarded])
def test_a_difference_that_no_float_shows_is_a_note(function: Any) -> None:
    """By 1e-20 in a denominator; by bounds at 0 and 1e-9."""
    report = verified(function)
    assert report.verdict is Verdict.NO_FAULT
    assert check(report) is None
    assert str(report.grade) == "sampled"
    assert any("Modulo random primes it differs" in note for note in report.notes)


def bounded(bound: str, q: Any, k: Any, v: Any) -> Any:
    """Attention with bounds on exponents, as code has them against overflow."""
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    low = s - s.max(axis=-1, keepdims=True)
    e = {
        "minimum": lambda: np.exp(-np.minimum(-low, 80)),
        "maximum": lambda: np.exp(np.maximum(low, -80)),
        "clip": lambda: np.exp(np.clip(low, -60, 0)),
        "where": lambda: np.where(low < -80, 0, np.exp(low)),
        "where not": lambda: np.where(low > -88, np.exp(low), 0),
        "where inside": lambda: np.exp(np.where(low < -80, -80, low)),
        "at -20": lambda: np.exp(np.maximum(low, -20)),
        "where at -20": lambda: np.where(low < -20, 0, np.exp(low)),
        "half": lambda: np.exp(np.maximum(low, -80) / 2),
        "last key": lambda: np.exp(np.maximum(low, -80)) * (np.arange(len(k)) < max(len(k) - 1, 8)),
    }[bound]()
    return e / e.sum(axis=-1, keepdims=True) @ v


@pytest.mark.deep
def test_bounds_on_exponents_that_cut_off_nothing_are_no_difference() -> None:
    """Whether they do is left to floats; a mistake beside them, at any size, is none of theirs."""
    right = ("minimum", "maximum", "clip", "where", "where not", "where inside")
    for kind in (*right, "at -20", "where at -20", "half", "last key"):
        function = partial(bounded, kind)
        found = identity(Target(function, agree(function, Request())), Attention())
        assert found.agrees is False, kind
        assert found.nearly is (kind in right), kind
        sizes = found.difference and found.difference.sizes
        assert (sizes == SIZES[2]) is (kind == "last key"), kind


@pytest.mark.deep
def test_a_difference_that_no_number_explains_is_undecided() -> None:
    """Sums above 2000 are wrong, which takes more keys than are tried."""
    report = verified(with_small_sums)
    assert report.verdict is Verdict.UNDECIDED
    assert "on residues it differs" in report.missing[0]


@pytest.mark.deep
def test_a_difference_at_some_size_leads_to_the_fault(no_causes: None) -> None:
    report = verified(wrong_for_64)
    assert report.verdict is Verdict.FAULT
    assert check(report) is None


@pytest.mark.exhaustive
def test_the_difference_is_at_the_smallest_size_that_shows_it() -> None:
    runner = target(wrong_for_64, Request.of(Attention(), dtype="float32", layout="auto"))
    found = runner.semantics(Attention(), 60.0)
    assert found.agrees is False
    assert found.difference is not None
    assert (found.difference.sizes.n_q, found.difference.sizes.n_k) == (64, 64)


@pytest.mark.deep
def test_what_cannot_run_on_residues_is_sampled_and_the_reason_is_told() -> None:
    report = verified(refused)
    assert report.verdict is Verdict.NO_FAULT
    assert any("not run on residues: modular: float() would round" in note for note in report.notes)


@pytest.mark.deep
def test_what_has_no_bound_on_residues_is_told_as_sampled() -> None:
    """Widths without a whole root: there is no bound on the probability that residues agree by chance."""
    report = verify(plain, Attention(), domain=Domain(width_multiple_of=3), examples=5)
    assert report.verdict is Verdict.NO_FAULT
    (note,) = (note for note in report.notes if "primes it" in note)
    assert note.startswith("Modulo random primes it agrees with the specification (sampled for random q")
    assert "), with no bound on the probability of a mistake" in note
    line = check(report)
    assert line is not None
    assert line.grade is Grade.SAMPLED


@pytest.mark.deep
def test_what_never_ends_on_residues_is_ended() -> None:
    runner = target(endless, Request.of(Attention(), dtype="float32", layout="auto"))
    found = runner.semantics(Attention(), 0.5)
    assert (found.agrees, found.reason) == (None, "it did not end within 0.5 s")


def test_tensors_without_their_framework_are_not_tried_and_labels_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    of_tensors = Target(plain, Convention(()))
    of_tensors.convention = Convention((), framework="torch")
    assert "torch" in of_tensors.semantics(Attention(), 1.0).reason
    spec = Attention(documents=True)
    runner = target(lambda q, k, v, doc: v, Request.of(spec, dtype="float32", framework="numpy", layout="nd"))
    assert runner.semantics(spec, 60.0).agrees is False


@pytest.mark.deep
@pytest.mark.parametrize("function", [wrong_for_wide, without_maxima])
def test_what_residues_do_not_show_is_left_to_floats(function: Any, no_causes: None) -> None:
    """A width that is not tried on them, and exponentials that overflow."""
    report = verify(function, Attention(), examples=4)
    assert report.verdict is Verdict.FAULT
    assert check(report) is not None


@pytest.mark.deep
def test_where_residues_say_what_is_computed_floats_are_few() -> None:
    cases = {c.name: c.cases for c in verify(plain, Attention()).checks}
    assert cases["scale"] < 12
    assert cases["accuracy"] < 60
    assert cases["ranges"] > 20


@pytest.mark.deep
def test_rotary_tables_that_a_function_makes_are_read_and_their_angles_told_apart() -> None:
    runner = target(rotary, Request.of(ROTARY, dtype="float32", layout="nd"))
    found = runner.semantics(ROTARY, 60.0)
    assert found.agrees
    assert found.epsilon is not None
    assert "cosines and sines" in found.evidence.where
    for wrong in (partial(rotary, base=10001.0), lambda q, k, v: attention(rotated(q, np.arange(len(q))), k, v)):
        found = Target(wrong, runner.convention).semantics(ROTARY, 60.0)
        assert found.agrees is False


@pytest.mark.deep
def test_a_library_that_is_an_argument_is_read_as_a_global_one() -> None:
    program = named(["q", "k", "v"], partial(attend, np, True, 0.0))
    runner = target(program, Request.of(CAUSAL_ROTARY, dtype="float32", layout="nd"))
    assert runner.semantics(CAUSAL_ROTARY, 60.0).agrees


@pytest.mark.deep
def test_gradients_are_tested_on_residues() -> None:
    report = verify(backward, Gradient(Attention()), examples=4)
    found = check(report)
    assert report.verdict is Verdict.NO_FAULT
    assert found is not None
    assert 0 < (found.epsilon or 0) < 1e-11
    report = verify(lambda q, k, v, do: backward(q, k, v, do, 1 + 2.0**-30), Gradient(Attention()), examples=4)
    assert check(report) is None
    said = (*report.notes, *report.missing)
    assert any("it differs from the specification" in words for words in said), said

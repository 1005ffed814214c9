"""Causes: at some sizes only, two at once, with a number that is fitted; and steps where no mistake is known."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Precision
from symattn.bounds.called_target import Outcome
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.domain import Domain
from symattn.bounds.judge import judge, of_attention
from symattn.bounds.mistake import Mistake
from symattn.programs.verify import verify
from symattn.verification.diagnosis.coarser import form
from symattn.verification.diagnosis.rows import affected
from symattn.verification.report import Fault
from symattn.verification.rules import known
from symattn.verification.rules.combining import combined
from tests.faults.rewrites import softmax as _softmax

Array = Any


def _scores(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)


def _causal(s: Array, by: int = 0) -> Array:
    n_q, n_k = s.shape[-2:]
    return np.where(np.tri(n_q, n_k, n_k - n_q + by, dtype=bool), s, s.dtype.type(-np.inf))


def _fault(program: Callable[..., Array], spec: Attention, **told: Any) -> Fault:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        (fault,) = verify(program, spec, **{"examples": 15, **told}).faults
    return fault


def _no_mask_where_64_divides(q: Array, k: Array, v: Array) -> Array:
    s = _scores(q, k)
    return _softmax(s if len(k) % 64 == 0 else _causal(s)) @ v


@pytest.mark.deep
def test_a_mistake_at_some_sizes_only_is_named_with_them() -> None:
    fault = _fault(_no_mask_where_64_divides, Attention(causal=True))
    assert fault.step == "mask"
    assert "the mask is ignored, where n_k is a multiple of 64" in str(fault.cause)


def _two_at_once(q: Array, k: Array, v: Array) -> Array:
    return _softmax(_causal(q @ k.T / q.dtype.type(q.shape[-1]), 1)) @ v


@pytest.mark.deep
def test_two_mistakes_at_once_are_both_named() -> None:
    fault = _fault(_two_at_once, Attention(causal=True))
    assert fault.step == "scale"
    assert "1/d_k" in str(fault.cause)
    assert "; and the causal mask is off by one: a query also sees the next key" in str(fault.cause)


def _filled_with_minus_three(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _softmax(np.where(mask, _scores(q, k), q.dtype.type(-3))) @ v


@pytest.mark.deep
def test_a_number_that_no_table_lists_is_fitted() -> None:
    fault = _fault(_filled_with_minus_three, Attention(mask="boolean"))
    assert fault.cause == "forbidden scores become −3, which leaves them a weight"


def _sines_of_the_bias(q: Array, k: Array, v: Array, bias: Array) -> Array:
    return _softmax(_scores(q, k) + np.sin(3 * bias)) @ v


@pytest.mark.deep
def test_a_step_without_which_all_is_right_is_to_blame() -> None:
    fault = _fault(_sines_of_the_bias, Attention(bias=True))
    assert (fault.step, fault.cause) == ("bias", None)
    assert "no known mistake explains it; all is right where the bias is 0" in fault.message


def _ten_for_the_maximum(q: Array, k: Array, v: Array) -> Array:
    e = np.exp(_scores(q, k) - q.dtype.type(10))
    return e / e.sum(axis=-1, keepdims=True) @ v


@pytest.mark.deep
def test_a_constant_in_place_of_the_maximum_is_told_from_none() -> None:
    fault = _fault(_ten_for_the_maximum, Attention())
    assert fault.step == "max"
    assert str(fault.cause).startswith("10 is subtracted, not the largest score of the row")


def _weights_in_bfloat16(q: Array, k: Array, v: Array) -> Array:
    import ml_dtypes

    return _softmax(_scores(q, k)).astype(ml_dtypes.bfloat16).astype(q.dtype) @ v


@pytest.mark.deep
def test_a_rounding_on_the_way_is_named() -> None:
    fault = _fault(_weights_in_bfloat16, Attention())
    assert fault.step == "values"
    assert "weights are rounded to bfloat16" in str(fault.cause)


def _unlike_anything(q: Array, k: Array, v: Array) -> Array:
    out = _softmax(_scores(q, k)) @ v
    out[-1:, 0] = np.sin(out[-1:, 0]) + 7
    return out


@pytest.mark.deep
def test_what_no_mistake_explains_is_described() -> None:
    fault = _fault(_unlike_anything, Attention())
    assert fault.cause is None
    assert "no known mistake explains it" in fault.message


def _twice_wrong(scale: float, values: Callable[[Array], Array]) -> Callable[[Array, Array, Array], Array]:
    """Scores divided by d_k^scale, no cap, other values."""

    def program(q: Array, k: Array, v: Array) -> Array:
        return _softmax(q @ k.T / q.dtype.type(q.shape[-1] ** scale)) @ values(v)

    return program


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "cause"),
    [
        (
            _twice_wrong(0.5, lambda v: v[::-1]),
            "the cap is left out; and values are taken from the last token to the first",
        ),
        (_twice_wrong(0.5, lambda v: v), "the cap is left out"),
    ],
)
def test_two_mistakes_are_named_of_which_neither_explains_a_case_alone(
    program: Callable[[Array, Array, Array], Array], cause: str
) -> None:
    assert _fault(program, Attention(softcap=2)).cause == cause


def _known(words: str) -> Mistake:
    every = known(Attention(causal=True), frozenset("qkv"))
    return next(m for m in every if m.cause.startswith(words))


def test_two_mistakes_in_one_step_are_not_made_at_once() -> None:
    first, second = _known("scores are not scaled"), _known("scores are multiplied by √d_k")
    assert combined(first, second) is None
    assert combined(first, first) is None
    both = combined(first, _known("the causal mask is off by one"))
    assert both is not None
    assert both.variant.steps.keys() == {"scaled", "masked", "weights"}


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ((slice(1, 2), slice(None), slice(None)), "head 2 of 3 only"),
        ((slice(None), slice(2, None), slice(None)), "queries from 3 on, of 4"),
        ((slice(None), slice(None), slice(None, 1)), "column 1 of 5 only"),
        ((slice(None), slice(None, None, 2), slice(None)), "every 2. of the queries from 1 on"),
        ((slice(None), slice(None), slice(None)), ""),
    ],
)
def test_what_is_affected_is_said(at: tuple[slice, ...], words: str) -> None:
    class Seen:
        ratios = np.zeros((3, 4, 5))

    Seen.ratios[at] = 2.0
    assert affected(Seen, True) == words  # type: ignore[arg-type]


def _quiet(q: Array, k: Array, v: Array) -> Array:
    e = np.exp(_scores(q, k))
    return e / (e.sum(axis=-1, keepdims=True) + 1) @ v


@pytest.mark.deep
def test_what_is_lost_does_not_hide_what_is_wrong_elsewhere() -> None:
    """A 1 in the sum of all rows, and no maximum: nothing is subtracted, and no constant is named."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = verify(_quiet, Attention(), examples=15).faults
    assert [fault.step for fault in found] == ["sink", "max"]
    assert "1 is added to the sum" in str(found[0].cause)
    assert str(found[1].cause).startswith("the largest score is not subtracted")


class _Remembers:
    """Positions of queries by their number alone, as the first call of that number had them."""

    def __init__(self, remembers: bool) -> None:
        self.made: dict[int, Array] = {}
        self.remembers = remembers

    def __call__(self, q: Array, k: Array, v: Array) -> Array:
        i = np.arange(len(k) - len(q), len(k))
        i = self.made.setdefault(len(q), i) if self.remembers else i
        return _softmax(np.where(np.arange(len(k)) <= i[:, None], _scores(q, k), -np.inf)) @ v


@pytest.mark.deep
def test_what_an_earlier_call_made_is_found_again() -> None:
    fault = _fault(_Remembers(True), Attention(causal=True))
    assert fault.step == "mask"
    assert fault.cause == "what an earlier call made is used again"
    assert not verify(_Remembers(False), Attention(causal=True), examples=5).faults


def _lowest(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _softmax(np.where(mask, _scores(q, k), q.dtype.type(-1e9))) @ v


def _negative(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _softmax(np.where(mask, _scores(q, k), q.dtype.type(-np.inf))) @ v


@pytest.mark.deep
def test_rows_without_any_key_are_told_from_masks_that_leak() -> None:
    spec, domain = Attention(mask="boolean"), Domain(fully_masked_rows=True)
    assert _fault(_lowest, spec, domain=domain).cause == "a row without any key gives the mean of all values"
    fault = _fault(_negative, spec, domain=domain)
    assert fault.step == "mask"
    assert "a row without any key gives NaN" in fault.message


def _ten_thousand(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _softmax(np.where(mask, _scores(q, k), q.dtype.type(-1e4))) @ v


@pytest.mark.deep
def test_a_number_that_is_not_pinned_down_is_given_as_a_range() -> None:
    fault = _fault(_ten_thousand, Attention(mask="boolean"), domain=Domain(max_abs_score=1e5))
    assert fault.step == "mask"
    assert "forbidden scores become a finite number (−10000 or another, between" in str(fault.cause)


def _keys_maximum(q: Array, k: Array, v: Array) -> Array:
    s = _scores(q, k)
    e = np.exp(s - s.max(axis=-2, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


@pytest.mark.deep
def test_a_maximum_over_the_wrong_axis_is_named() -> None:
    fault = _fault(_keys_maximum, Attention())
    assert fault.step == "max"
    assert "each key's largest score over the queries" in str(fault.cause)


def _by_parts(q: Array, k: Array, v: Array, parts: int = 4) -> Array:
    """As ring attention merges: o − σ(L_b − L)(o − o_b)."""
    s, out, total = _scores(q, k), np.float32(0) * v[:1], np.float32(-np.inf)
    for at in np.array_split(np.arange(len(k)), min(parts, len(k))):
        m = s[:, at].max(-1, keepdims=True)
        e = np.exp(s[:, at] - m)
        own, log_sum = e @ v[at] / e.sum(-1, keepdims=True), m + np.log(e.sum(-1, keepdims=True))
        with np.errstate(over="ignore"):
            out = out - (out - own) / (1 + np.exp(total - log_sum))
        total = np.logaddexp(total, log_sum)
    return out


def _of_form(program: Callable[..., Array], **inputs: Array) -> tuple[CaseResult, str]:
    given = {name: a.astype(np.float32) for name, a in inputs.items()}
    outcome = Outcome(program(**given).astype(np.float64), "float32")
    precision = Precision.of("float32")
    inputs = {n: a.astype(np.float64) for n, a in given.items()}
    judged = judge(of_attention(Attention(), precision, inputs), precision, Case("", "", inputs), outcome)
    return judged, form(Attention(), precision, [judged])


def test_a_merge_that_loses_relative_accuracy_is_within_its_own_bound() -> None:
    """On scores that rise and values that fall, in two to eight parts."""
    beyond = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(2, 30)), int(rng.choice([4, 16, 64]))
        q, k, v = 3 * rng.standard_normal((3, n, d))
        v[: n // 2] *= 10.0 ** rng.integers(0, 8)
        k[:, 0], q[:, 0] = np.linspace(0, rng.choice([10, 30, 60]), n), 2 * d**0.5
        judged, named = _of_form(partial(_by_parts, parts=int(rng.integers(2, 9))), q=q, k=k, v=v)
        beyond += judged.finding == "values"
        assert judged.finding != "values" or named.startswith("parts that are merged")
    assert beyond >= 8


def test_what_is_wrong_by_more_is_no_form() -> None:
    q, k, v = np.random.default_rng(1).standard_normal((3, 20, 16))
    for by in (1.003, 0.99):
        judged, found = _of_form(lambda q, k, v, by=by: _softmax(_scores(q, k) * by) @ v, q=q, k=k, v=v)
        assert (judged.finding, found) == ("values", "")


@pytest.mark.deep
def test_a_form_that_loses_relative_accuracy_is_told_as_that() -> None:
    assert _fault(_by_parts, Attention()).message.startswith("the output loses relative accuracy: it is within the bou")

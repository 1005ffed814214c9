"""Causes: at some sizes only, two at once, with a number that is fitted; and steps where no mistake is known."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn import Attention, Domain, Precision, Undecided, kind, verify
from symattn.bounds.called_target import Outcome
from symattn.bounds.case_result import Case
from symattn.bounds.judge import explained, judge, of_attention
from symattn.verification.diagnosis.blaming import affected
from symattn.verification.diagnosis.coarser import form
from symattn.verification.rules.known_mistakes import yield_known_mistakes
from symattn.verification.rules.two_mistakes import combine_mistakes
from tests.faults.programs import softmax as _softmax
from tests.verification.naming import Array, Named, Program, faults, scores


def _causal(s: Array, by: int = 0) -> Array:
    n_q, n_k = s.shape[-2:]
    return np.where(np.tri(n_q, n_k, n_k - n_q + by, dtype=bool), s, s.dtype.type(-np.inf))


def _no_mask_where_64_divides(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    return _softmax(s if len(k) % 64 == 0 else _causal(s)) @ v


def test_a_mistake_whose_numbers_are_undecided_is_no_explanation() -> None:
    # Exact values come late, and balls may not tell a divisor from 0.
    judged: Any = SimpleNamespace(outcome=SimpleNamespace(output=1.0, error=None), parts=[None], finding="values")

    def match(part: Any, wrong: Any) -> bool:
        raise Undecided("ball: is the divisor 0?")

    assert explained(judged, lambda: [judged], match) is None


def _with_maximum(top: Callable[[Array], Array], mask: Callable[[Array], Array] = lambda s: s) -> Program:
    """Something else in the place of the largest scores."""

    def program(q: Array, k: Array, v: Array) -> Array:
        s = mask(scores(q, k))
        e = np.exp(s - top(s))
        return e / e.sum(axis=-1, keepdims=True) @ v

    return program


def _filled(by: float) -> Program:
    """A number in the place of forbidden scores."""
    return lambda q, k, v, mask: _softmax(np.where(mask, scores(q, k), q.dtype.type(by))) @ v


def _put(by: float) -> Program:
    """The same by an operation that has no residues."""

    def program(q: Array, k: Array, v: Array, mask: Array) -> Array:
        s = scores(q, k)
        np.putmask(s, ~mask, by)
        return _softmax(s) @ v

    return program


def _started_in_place(at: float) -> Program:
    """A number below which there is no maximum, by an operation that has no residues."""

    def program(q: Array, k: Array, v: Array) -> Array:
        top = np.empty_like(q[:, :1])
        np.copyto(top, scores(q, k).max(axis=-1, keepdims=True))
        np.putmask(top, top < at, at)
        e = np.exp(scores(q, k) - top)
        total = e.sum(axis=-1, keepdims=True)
        return e @ v / np.where(total == 0, 1, total)

    return program


def _twice_wrong(q: Array, k: Array, v: Array) -> Array:
    """No cap, and other values: neither explains a case alone."""
    return _softmax(scores(q, k)) @ v[::-1]


def _weights_in_bfloat16(q: Array, k: Array, v: Array) -> Array:
    return _softmax(scores(q, k)).astype(ml_dtypes.bfloat16).astype(q.dtype) @ v


def _unlike_anything(q: Array, k: Array, v: Array) -> Array:
    out = _softmax(scores(q, k)) @ v
    out[-1:, 0] = np.sin(out[-1:, 0]) + 7
    return out


def _by_parts(q: Array, k: Array, v: Array, parts: int = 4) -> Array:
    """As ring attention merges: o − σ(L_b − L)(o − o_b)."""
    s, out, total = scores(q, k), np.float32(0) * v[:1], np.float32(-np.inf)
    for at in np.array_split(np.arange(len(k)), min(parts, len(k))):
        m = s[:, at].max(-1, keepdims=True)
        e = np.exp(s[:, at] - m)
        own, log_sum = e @ v[at] / e.sum(-1, keepdims=True), m + np.log(e.sum(-1, keepdims=True))
        with np.errstate(over="ignore"):
            out = out - (out - own) / (1 + np.exp(total - log_sum))
        total = np.logaddexp(total, log_sum)
    return out


def _orthogonal(d: int) -> Array:
    return np.linalg.qr(np.random.default_rng(d).standard_normal((d, d)))[0].astype(np.float32)


def _values_turned(q: Array, k: Array, v: Array) -> Array:
    return _softmax(scores(q, k)) @ (v @ _orthogonal(v.shape[1])) @ _orthogonal(v.shape[1]).T


def _forbidden_in_maximum(least: float, q: Array, k: Array, v: Array) -> Array:
    """The largest score is that of all keys, forbidden ones as ``least`` if that is not 0; sums of 0 become 1."""
    s, seen = scores(q, k), np.isfinite(_causal(scores(q, k)))
    e = np.where(seen, np.exp(s - np.where(seen, s, least or s).max(axis=-1, keepdims=True)), 0)
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v


def _masked(open_: Callable[[Array, Array], Array], fill: float = -np.inf) -> Program:
    """A mask by the places of queries, their rows and keys."""

    def program(q: Array, k: Array, v: Array) -> Array:
        s, rows = scores(q, k), np.arange(len(q))[:, None]
        return _softmax(np.where(open_(rows, np.arange(len(k)) - (len(k) - len(q))), s, s.dtype.type(fill))) @ v

    return program


PLAIN, CAUSAL, CAPPED, MASKED = Attention(), Attention(causal=True), Attention(softcap=2), Attention(mask="boolean")
EMPTY, LOW = {"domain": Domain(fully_masked_rows=True)}, {"domain": Domain(max_abs_score=1e5)}
NAMED = {
    "at some sizes only": Named(
        _no_mask_where_64_divides, CAUSAL, "mask", "…the mask is ignored, where n_k is a multiple of 64…"
    ),
    "not by a mistake that changes nothing where outputs are wrong": Named(
        _masked(lambda i, j: (j <= i) | (i < 3)), Attention(causal=True, prefix=3), "mask",
        "…forbidden keys are seen where the query's row ≤ 2…",
    ),
    "by a mistake that shows in long rows alone": Named(
        _masked(lambda i, j: (j - j[0]) % 128 + j[0] <= i), CAUSAL, "mask",
        "…the mask counts keys anew in each tile (tiles of 128)…",
    ),
    "two at once": Named(
        lambda q, k, v: _softmax(_causal(q @ k.T / q.dtype.type(q.shape[-1]), 1)) @ v, CAUSAL, "scale",
        "…1/d_k…; and the causal mask is off by one: a query also sees the next key…",
    ),
    "two, of which neither explains a case alone": Named(
        _twice_wrong, CAPPED, "softcap", "the cap is left out; and values are taken from the last token to the first"
    ),
    "two, of which one moves the entries on which an operation works": Named(
        lambda q, k, v: _softmax(q @ k.T) @ v[::-1], PLAIN, "scale",
        "scores are not scaled; and values are taken from the last token to the first",
    ),
    "one of these two": Named(lambda q, k, v: _softmax(scores(q, k)) @ v, CAPPED, "softcap", "the cap is left out"),
    "a number that no table lists": Named(
        _filled(-3), MASKED, "mask", "forbidden scores become −3, which leaves them a weight"
    ),
    "a number that the code has as a literal": Named(
        _filled(-1e4), MASKED, "mask",
        "masked scores are filled with −10000, not −∞: they count where others lie below it", told=LOW,
    ),
    "a number that is not pinned down": Named(
        _put(-3e4), MASKED, "mask",
        "masked scores are filled with a finite number (−10000 or another), not −∞: they count where others lie…",
        told=LOW,
    ),
    "a start of maxima that is not pinned down": Named(
        _started_in_place(-3e4), PLAIN, "max",
        "the running maximum starts at a finite number (−10000 or another), not at −∞: rows whose scores lie below it…",
        told=LOW,
    ),
    "a row without any key": Named(
        _filled(-1e9), MASKED, "mask", "a row without any key gives the mean of all values", told=EMPTY
    ),
    "such a row of the causal mask": Named(
        _masked(lambda i, j: j <= i, -1e9), CAUSAL, "mask", "a row without any key gives the mean of all values",
        told=EMPTY,
    ),
    "NaN in it": Named(_filled(-np.inf), MASKED, "mask", None, "…a row without any key gives NaN…", EMPTY),
    "a step without which all is right": Named(
        lambda q, k, v, bias: _softmax(scores(q, k) + np.sin(3 * bias)) @ v, Attention(bias=True), "bias", None,
        "…no known mistake explains it; the output is right where the bias is 0…",
    ),
    "a constant in place of the maximum": Named(
        _with_maximum(lambda s: s.dtype.type(10)), PLAIN, "max", "10 is subtracted, not the largest score of the row…"
    ),
    "a maximum over the wrong axis": Named(
        _with_maximum(lambda s: s.max(axis=-2, keepdims=True)), PLAIN, "max",
        "each key's largest score over the queries is subtracted, not each query's over the keys",
    ),
    "such maxima of a causal mask": Named(
        _with_maximum(lambda s: np.nan_to_num(s.max(axis=-2, keepdims=True), neginf=0), _causal), CAUSAL, "max",
        "each key's largest score over the queries is subtracted, not each query's over the keys",
    ),
    "such maxima before those of the rows": Named(
        lambda q, k, v: _softmax(scores(q, k) - scores(q, k).max(axis=-2, keepdims=True)) @ v, PLAIN, "max",
        "each key's largest score over the queries is subtracted, not each query's over the keys",
    ),
    "a rounding on the way": Named(_weights_in_bfloat16, PLAIN, "values", "…weights are rounded to bfloat16…"),
    "what no mistake explains": Named(_unlike_anything, PLAIN, "output", None, "…no known mistake explains it…"),
    "a form that loses relative accuracy": Named(
        _by_parts, PLAIN, "merge", None, "the output loses relative accuracy: it is within the bou…"
    ),
    "such a form that rounded exponentials would explain as well": Named(
        lambda q, k, v: _by_parts(q, k, v, -(-len(k) // 7)), PLAIN, "merge", None, "…within the bound of parts…"
    ),
    "queries and keys that are multiplied by an orthogonal matrix, as in quantised models": Named(
        lambda q, k, v: _softmax(scores(q @ _orthogonal(k.shape[1]), k @ _orthogonal(k.shape[1]))) @ v,
        PLAIN, "output", None, "…within the bound of queries and keys, or values and outputs, that are multiplied by…",
    ),
    "values and outputs so": Named(_values_turned, PLAIN, "output", None, "…values and outputs, that are multiplied…"),
    "a maximum of forbidden keys, too, beside which all exponentials vanish": Named(
        partial(_forbidden_in_maximum, 0), CAUSAL, "max", "the largest score with forbidden keys is subtracted…"
    ),
    "a maximum in which they have a number": Named(
        partial(_forbidden_in_maximum, -100), CAUSAL, "max", "forbidden scores count as −100 in the largest score of…"
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize("name", NAMED)
def test_it_is_named(name: str) -> None:
    NAMED[name].check()


def _known(words: str) -> Any:
    every = yield_known_mistakes(Attention(causal=True), frozenset("qkv"))
    return next(m for m in every if m.cause.startswith(words))


def test_two_mistakes_in_one_step_are_not_made_at_once() -> None:
    first, second = _known("scores are not scaled"), _known("scores are multiplied by √d_k")
    assert combine_mistakes(first, second) is None
    assert combine_mistakes(first, first) is None
    both = combine_mistakes(first, _known("the causal mask is off by one"))
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


@pytest.mark.deep
def test_what_is_lost_does_not_hide_what_is_wrong_elsewhere() -> None:
    """A 1 in the sum of all rows, and no maximum: nothing is subtracted, and no constant is named."""

    def quiet(q: Array, k: Array, v: Array) -> Array:
        e = np.exp(scores(q, k))
        return e / (e.sum(axis=-1, keepdims=True) + 1) @ v

    found = faults(quiet, PLAIN)
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
        return _softmax(np.where(np.arange(len(k)) <= i[:, None], scores(q, k), -np.inf)) @ v


@pytest.mark.deep
def test_what_an_earlier_call_made_is_found_again() -> None:
    Named(_Remembers(True), CAUSAL, "mask", "a result of an earlier call is reused").check()
    assert not verify(_Remembers(False), Attention(causal=True), examples=5).faults


def _of_form(program: Callable[..., Array], **inputs: Array) -> tuple[Any, str]:
    given = {name: a.astype(np.float32) for name, a in inputs.items()}
    outcome = Outcome(program(**given).astype(np.float64), "float32")
    precision = Precision.of("float32")
    inputs = {n: a.astype(np.float64) for n, a in given.items()}
    judged = judge(of_attention(Attention(), precision, inputs), precision, Case("", "", inputs), outcome)
    return judged, form(Attention(), precision, [judged])[1]


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
        judged, found = _of_form(lambda q, k, v, by=by: _softmax(scores(q, k) * by) @ v, q=q, k=k, v=v)
        assert (judged.finding, found) == ("values", "")


def test_a_mistake_that_balls_refuse_to_compute_is_undecided() -> None:
    """Enclosures left a logarithm open that balls find to be of 0, in a smaller input that is tried."""
    judged: Any = SimpleNamespace(outcome=SimpleNamespace(output=1, error=None), parts=[1], finding="values")

    def match(part: Any, wrong: Any) -> bool:
        return bool(kind("ball").xp.log(kind("ball").lift(0)))

    assert explained(judged, lambda: [1], match) is None  # type: ignore[list-item,arg-type]


@pytest.mark.deep
def test_an_operation_that_no_run_of_the_definition_has_yet_is_no_cause() -> None:
    """Replays of the recorded run accepted an array in a place before the one where it is computed."""

    def multiplied(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        s = scores(q, k)
        top = s.max(axis=-1, keepdims=True)
        e = np.exp(s - top)
        total = e.sum(axis=-1, keepdims=True)
        return e @ v / total, (top * (1 + np.log(total)))[:, 0]

    (fault,) = faults(multiplied, Attention(lse=True))
    assert fault.step == "lse"
    assert fault.cause is not None
    assert "⊙ max(scaled scores) instead of log(" in fault.cause

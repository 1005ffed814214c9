"""What is asked of plain attention is asked of every definition with an attention inside: weights that are read off
calls, stored formats, NaN behind a mask, and state between calls."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Cached, Domain, Gradient, InputError, Softmax, Verdict, verify
from tests.verification.naming import convicts

Array = np.ndarray
pytestmark = pytest.mark.deep
CAUSAL = Attention(causal=True)


def scores(q: Array, k: Array) -> Array:
    return q @ k.T / np.sqrt(np.float32(q.shape[-1]))


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_sums(s: Array) -> Array:
    largest = s.max(axis=-1, keepdims=True)
    return (largest + np.log(np.exp(s - largest).sum(axis=-1, keepdims=True)))[:, 0]


def without_some_keys(s: Array) -> Array:
    """Scores under a causal mask that also hides each fifth key from queries far behind it."""
    n_q, n_k = s.shape
    i, j = np.arange(n_q)[:, None] + n_k - n_q, np.arange(n_k)
    return np.where((j <= i) & ~((j % 5 == 3) & (i > j + 2)), s, -np.inf)


def causal(s: Array) -> Array:
    n_q, n_k = s.shape
    return np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, -np.inf)


def output_without_some_keys(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    s = without_some_keys(scores(q, k))
    return softmax(s) @ v, log_sums(s)


def gradient_without_some_keys(q: Array, k: Array, v: Array, do: Array) -> tuple[Array, Array, Array]:
    p = softmax(without_some_keys(scores(q, k)))
    dp = do @ v.T
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True)) / np.sqrt(np.float32(q.shape[-1]))
    return ds @ k, ds.T @ q, p.T @ do


def weights_without_some_keys(scores: Array) -> Array:
    keys = np.arange(scores.shape[-1])
    return softmax(np.where((keys % 5 == 3) & (len(keys) > 6), -np.inf, scores))


def output_of_half_weights(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    s = causal(scores(q, k))
    return softmax(s).astype(np.float16).astype(np.float32) @ v, log_sums(s)


def with_mask_of_an_earlier_call() -> Callable[..., tuple[Array, Array]]:
    known: dict[int, Array] = {}

    def output(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        n_q, n_k = len(q), len(k)
        mask = known.setdefault(n_q, np.tri(n_q, n_k, n_k - n_q, dtype=bool))
        s = np.where(np.resize(mask, (n_q, n_k)), scores(q, k), -np.inf)
        return softmax(s) @ v, log_sums(s)

    return output


LOST = "allowed keys are hidden where i − j ≥ 3 and j % 5 = 3"


@pytest.mark.parametrize(
    ("function", "spec", "step", "words"),
    [
        (output_without_some_keys, Attention(causal=True, lse=True), "mask", LOST),
        (gradient_without_some_keys, Gradient(CAUSAL), "backward", LOST),
        (
            weights_without_some_keys,
            Softmax(Attention()),
            "mask",
            "allowed keys are hidden where n_k ≥ 7 and j % 5 = 3",
        ),
        (output_of_half_weights, Attention(causal=True, lse=True), "values", "weights are rounded to float16"),
        (with_mask_of_an_earlier_call(), Attention(causal=True, lse=True), "mask", "a result of an earlier call"),
    ],
    ids=["log-sums", "gradients", "softmax", "stored format", "state"],
)
def test_what_calls_show_of_the_attention_inside_is_named(
    function: Callable[..., Any], spec: Any, step: str, words: str
) -> None:
    report = verify(function, spec)
    assert [fault.step for fault in report.faults] == [step]
    assert words in report.faults[0].message


@pytest.mark.parametrize("spec", [Attention(causal=True, lse=True), Gradient(CAUSAL), Softmax(Attention())])
def test_outputs_without_axes_are_a_fault(spec: Any) -> None:
    def first_entries(*arrays: Array) -> Any:
        entries = tuple(np.ravel(a)[0] for a in arrays)
        return entries[0] if len(entries) == 1 else entries[:2] if len(entries) == 3 else entries[:3]

    def of_three(q: Array, k: Array, v: Array) -> Any:
        return first_entries(q, k, v)

    def of_four(q: Array, k: Array, v: Array, do: Array) -> Any:
        return first_entries(q, k, v, do)

    def of_scores(scores: Array) -> Any:
        return first_entries(scores)

    function = {Attention: of_three, Gradient: of_four, Softmax: of_scores}[type(spec)]
    assert convicts(function, spec, examples=5)


def masked(q: Array, k: Array, v: Array, mask: Array) -> tuple[Array, Array]:
    s = np.where(mask, scores(q, k), -np.inf)
    return softmax(s) @ v, log_sums(s)


def with_hidden_rows_cleared(q: Array, k: Array, v: Array, mask: Array) -> tuple[Array, Array]:
    seen = mask.any(axis=0)[:, None]
    return masked(q, np.where(seen, k, 0), np.where(seen, v, 0), mask)


@pytest.mark.parametrize(("function", "leaks"), [(masked, True), (with_hidden_rows_cleared, False)])
def test_nan_behind_the_mask_is_tried_beside_log_sums(function: Callable[..., Any], leaks: bool) -> None:
    spec = Attention(mask="boolean", lse=True)
    report = verify(function, spec, domain=Domain(nonfinite_forbidden=True), examples=5)
    assert bool(report.faults) is leaks
    if leaks:
        assert report.faults[0].step == "mask"
    without = verify(function, spec, examples=5)
    assert without.verdict is not Verdict.FAULT
    if leaks:
        assert any("NaN in a value" in note for note in without.notes)


def test_nan_behind_the_mask_is_refused_where_no_output_is_an_attentions() -> None:
    with pytest.raises(InputError, match="does not return the output of an attention"):
        verify(gradient_without_some_keys, Gradient(CAUSAL), domain=Domain(nonfinite_forbidden=True))


def with_log_sums(turned: bool, forgotten: bool = False) -> Callable[..., tuple[Array, Array]]:
    """Two heads, tokens first; ``turned``: L with tokens first, too; ``forgotten``: without the largest score."""

    def output(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(np.float32(q.shape[-1]))
        largest = s.max(axis=-1, keepdims=True)
        e = np.exp(s - largest)
        total = e.sum(axis=-1, keepdims=True)
        sums = np.log(total) if forgotten else largest + np.log(total)
        heads_first = sums[..., 0]
        return np.einsum("hqk,khd->qhd", e / total, v), heads_first.T if turned else heads_first

    return output


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("layout", ["nhd", None])
def test_log_sums_have_tokens_or_heads_first(turned: bool, layout: Any) -> None:
    spec = Attention(lse=True, heads=2)
    options: dict[str, Any] = {"examples": 5} if layout is None else {"examples": 5, "layout": layout}
    report = verify(with_log_sums(turned), spec, **options)
    assert report.verdict is Verdict.NO_FAULT
    assert any("odulo random primes" in note for note in report.notes)
    (fault,) = verify(with_log_sums(turned, forgotten=True), spec, **options).faults
    assert "the maximum is not added" in fault.message


def cached_in_slots(clean: bool) -> Callable[..., tuple[Array, Array, Array]]:
    def attend(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array, length: Array) -> tuple[Array, ...]:
        n, filled = len(q), int(length)
        k_cache[filled : filled + n] = k
        v_cache[filled : filled + n] = v
        slots = np.arange(len(k_cache))
        seen = slots[None, :] <= filled + np.arange(n)[:, None]
        values = np.where((slots < filled + n)[:, None], v_cache, 0) if clean else v_cache
        s = np.where(seen, scores(q, k_cache), -np.inf)
        return (softmax(s) @ values).astype(q.dtype), k_cache, v_cache

    return attend


@pytest.mark.parametrize("clean", [True, False])
def test_nan_in_empty_slots_of_a_cache_is_tried(clean: bool) -> None:
    function, spec = cached_in_slots(clean), Cached(CAUSAL)
    report = verify(function, spec, domain=Domain(nonfinite_forbidden=True), examples=5)
    words = "NaN in an empty slot of the cache"
    assert [fault.step for fault in report.faults if words in fault.message] == ["mask"] * (not clean)
    assert verify(function, spec, examples=5).verdict is not Verdict.FAULT

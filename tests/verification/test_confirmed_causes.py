"""A cause is printed only if inputs of other sizes confirm it: programs with causes that hold at small sizes alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.verification.rules import own_numbers
from tests.verification.auditing_causes import audited
from tests.verification.naming import scores

Array = Any


def _softmax(s: Array) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _under(open_: Array, s: Array) -> Array:
    return np.where(open_, s, s.dtype.type(-np.inf))


def causal_if_square(q: Array, k: Array, v: Array) -> Array:
    """Apply the causal mask only if there are as many queries as keys."""
    s = scores(q, k)
    n, m = s.shape[-2:]
    return _softmax(_under(np.tri(n, m, dtype=bool) | (n != m), s)) @ v


def window_if_square(q: Array, k: Array, v: Array) -> Array:
    """Apply the window of four keys only if there are as many queries as keys, and the causal mask always."""
    s = scores(q, k)
    n, m = s.shape[-2:]
    i, j = np.arange(n)[:, None] + m - n, np.arange(m)
    return _softmax(_under((j <= i) & ((i - j < 4) | (n != m)), s)) @ v


def one_mask_for_four_queries(q: Array, k: Array, v: Array) -> Array:
    """Give each query the causal mask of the last one of its block."""
    s = scores(q, k)
    n, m = s.shape[-2:]
    last = np.arange(n)[:, None] // 4 * 4 + 3
    return _softmax(_under(np.arange(m) <= last + m - n, s)) @ v


def one_mask_for_five_queries(q: Array, k: Array, v: Array) -> Array:
    """Give each query the causal mask of the first one of its block."""
    s = scores(q, k)
    n, m = s.shape[-2:]
    first = np.arange(n)[:, None] // 5 * 5
    return _softmax(_under(np.arange(m) <= first + m - n, s)) @ v


def blocks_of_the_first_queries(q: Array, k: Array, v: Array) -> Array:
    """Compute each block of 48 queries from those of the first one."""
    return _softmax(scores(q[..., np.arange(q.shape[-2]) % 48, :], k)) @ v


def not_scaled_in_a_head(q: Array, k: Array, v: Array) -> Array:
    """Leave out the scale in the first head of each key head."""
    k, v = (np.repeat(a, 2, axis=-3) for a in (k, v))
    s = scores(q, k)
    s[..., ::2, :, :] *= np.sqrt(q.shape[-1]).astype(q.dtype)
    return _softmax(s) @ v


def mask_of_the_first_item(q: Array, k: Array, v: Array) -> Array:
    """Apply the causal mask to the first item of a batch alone, (b, h, n, d)."""
    s = scores(q, k)
    n, m = s.shape[-2:]
    item = np.arange(len(q))[:, None, None, None]
    return _softmax(_under(np.tri(n, m, m - n, dtype=bool) | (item > 0), s)) @ v


def zeros(q: Array, k: Array, v: Array) -> Array:
    return np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)


def mean_of_values(q: Array, k: Array, v: Array) -> Array:
    return np.broadcast_to(v.mean(axis=-2, keepdims=True), (*q.shape[:-1], v.shape[-1])).astype(q.dtype)


def of_keys_alone(q: Array, k: Array, v: Array) -> Array:
    """Weigh the values by a function of the keys alone."""
    weights = np.tanh(scores(k, k).sum(axis=-1))[..., None, :]
    return np.broadcast_to(weights @ v, (*q.shape[:-1], v.shape[-1])).astype(q.dtype)


def scaled_by_the_cap(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k) / q.dtype.type(7)
    return _softmax(7 * np.tanh(s / 7)) @ v


def maximum_before_the_cap(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Add the maximum of the scores before they are capped to the logarithm of the sum."""
    raw = scores(q, k)
    s = 4 * np.tanh(raw / 4)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    total = e.sum(axis=-1, keepdims=True)
    return e / total @ v, (raw.max(axis=-1, keepdims=True) + np.log(total))[..., 0]


def maximum_by_another_scale(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Scale the maximum by 1/√d_k, and the scores by 1/4."""
    raw = q @ k.swapaxes(-1, -2)
    top = raw.max(axis=-1, keepdims=True)
    e = np.exp((raw - top) / 4)
    total = e.sum(axis=-1, keepdims=True)
    stat = top / np.sqrt(q.shape[-1]).astype(q.dtype)
    return e / total @ v, (stat + np.log(total))[..., 0]


_LSE = "the maximum that is added to the logarithm of the sum is that of the"
#: The program, the specification, the precision, and the cause.
_CAUSES: tuple[tuple[Callable[..., Any], Any, str, str], ...] = (
    (zeros, Attention(), "float16", "the output is 0"),
    (one_mask_for_four_queries, Attention(causal=True), "float16",
     "there is one causal mask for each 4 queries: a query sees what the last query of its block sees"),
    (causal_if_square, Attention(causal=True), "float32", "the mask is ignored, where n_q ≠ n_k"),
    (window_if_square, Attention(causal=True, window=4), "float32",
     "the window is ignored, where n_q ≠ n_k"),
    (one_mask_for_five_queries, Attention(causal=True, heads=2), "float32",
     "there is one causal mask for each 5 queries: a query sees what the first query of its block sees"),
    (blocks_of_the_first_queries, Attention(), "float32",
     "queries are those of the first tile in every tile (tiles of 48)"),
    (blocks_of_the_first_queries, Attention(causal=True), "float32",
     "queries are those of the first tile in every tile (tiles of 48); and the mask is ignored"),
    (mean_of_values, Attention(), "float16", "the output is the mean of all values: queries and keys are ignored"),
    (not_scaled_in_a_head, Attention(heads=4, kv_heads=2), "float32",
     "scores are not scaled, for the first head of each key head alone"),
    (mask_of_the_first_item, Attention(heads=2, causal=True), "float32",
     "the mask is ignored, for all items of the batch but the first"),
    (of_keys_alone, Attention(), "float32", "the output does not depend on the queries"),
    (scaled_by_the_cap, Attention(softcap=7), "float32",
     "scores are scaled by the inverse of the specification's softcap/√d_k"),
    (maximum_by_another_scale, Attention(lse=True, scale=0.25), "float32",
     f"{_LSE} products, scaled by 1/√d_k and not by the given scale"),
    (maximum_before_the_cap, Attention(lse=True, softcap=4), "float32", f"{_LSE} scores before they are capped"),
)  # fmt: skip


#: As another row: a mask where sizes are equal, a mask for several queries, a maximum in the logarithm of the sum; and
#: causes that several larger inputs confirm.
_ALIKE = (causal_if_square, one_mask_for_five_queries, maximum_before_the_cap, blocks_of_the_first_queries)


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "spec", "precision", "cause"),
    [pytest.param(*row, marks=pytest.mark.exhaustive if row[0] in _ALIKE else ()) for row in _CAUSES],
)
def test_a_cause_is_what_no_other_size_contradicts(
    program: Callable[..., Any], spec: Attention, precision: str, cause: str
) -> None:
    layout = "bhnd" if program is mask_of_the_first_item else None
    named, against = audited(program, spec, precision=precision, examples=10, layout=layout)
    assert named == [cause]
    assert against == []


@pytest.mark.deep
def test_an_audit_refuses_a_cause_that_holds_at_small_sizes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symattn.verification.diagnosis.confirming.contradicts", lambda search, judged, mistake: False)
    named, against = audited(causal_if_square, Attention(causal=True), examples=10)
    assert named != ["the mask is ignored, where n_q ≠ n_k"]
    assert against != []


def test_a_number_that_two_fields_have_has_no_name() -> None:
    spec = Attention(softcap=30.0, scale=30.0)
    assert own_numbers.near(spec, 30.0) == []
    assert own_numbers.near(replace(spec, scale=None), 30.0) == [(30.0, "the specification's softcap")]

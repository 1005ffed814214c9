"""Mistakes that the grammar makes are named as what they are, and nothing else is."""

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from symattn import Attention, Domain, Rotary, YarnScaling
from tests.faults.programs import softmax as _softmax
from tests.verification.naming import Array, Named, faults, scores

PLAIN = Attention()


def _length(x: Array) -> Array:
    return np.sqrt((x * x).sum(axis=-1, keepdims=True))


def _over_query(q: Array, k: Array, v: Array) -> Array:
    return _softmax(q @ k.T / _length(q)) @ v


def _over_query_besides(q: Array, k: Array, v: Array) -> Array:
    return _softmax(scores(q, k) / _length(q)) @ v


def _over_key(q: Array, k: Array, v: Array) -> Array:
    return _softmax(q @ k.T / (_length(k).T + k.dtype.type(1e-30))) @ v


def _rounded(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(x.dtype)


def _stored(q: Array, k: Array, v: Array) -> Array:
    return _rounded(_softmax(_rounded(scores(q, k)))) @ v


def _exponentials(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp((s - s.max(axis=-1, keepdims=True)).astype(np.float32)).astype(s.dtype)
    return e / e.sum(axis=-1, keepdims=True) @ v


_YARN, _LN2 = YarnScaling(factor=4, length=64), np.float32(np.log(2))


def _rotated(of_queries: Rotary, of_keys: Rotary, q: Array, k: Array, v: Array) -> Array:
    one, other = (Attention(position=position).trace(q=q, k=k, v=v) for position in (of_queries, of_keys))
    return _softmax(scores(one["q_rotated"], other["k_rotated"])) @ v


def _loses_the_last(q: Array, k: Array, v: Array) -> Array:
    n = len(k) - (len(k) >= 200)
    return _softmax(scores(q, k[:n])) @ v[:n]


def _two_symptoms(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = scores(q, k)
    return _softmax(np.where(mask, s * np.abs(s), s.dtype.type(-1e9))) @ v


def _with_gains(q: Array, k: Array, v: Array, g_q: Array, g_k: Array) -> Array:
    q, k = (x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-6)) for x in (q, k))
    return _softmax(scores(q * g_k, k * g_k)) @ v


_EMPTY = "a row without any key gives the mean of all values"
_NAMED = [
    Named(_over_query, PLAIN, "scale", "…divided by the length of the query vector, ‖q‖, not by √d_k…"),
    Named(_over_query_besides, PLAIN, "scale", "…divided by the length of the query vector, ‖q‖ besides…"),
    Named(_over_key, PLAIN, "scale", "…divided by the length of the key vector, ‖k‖, not by √d_k…"),
    Named(lambda q, k, v: _softmax(scores(np.tanh(q), k)) @ v, PLAIN, "score", "…queries go through tanh…"),
    Named(lambda q, k, v: _softmax(scores(q, k)) @ (v * v), PLAIN, "values", "…values are squared…"),
    Named(lambda q, k, v: _softmax(scores(q, k)) @ np.tanh(v), PLAIN, "values", "…values go through tanh…"),
    Named(lambda q, k, v: _softmax(scores(q, k)) ** 2 @ v, PLAIN, "normalize", "…weights are squared…"),
    Named(
        lambda q, k, v, bias: _softmax(scores(q, k) + np.tanh(bias)) @ v,
        Attention(bias=True), "bias", "…biases go through tanh…",
    ),
    Named(_stored, PLAIN, "score", "…scaled scores and weights are rounded to bfloat16…"),
    Named(
        lambda q, k, v: _rotated(Rotary(), Rotary(layout="interleaved"), q, k, v), Attention(position=Rotary()),
        "position", "keys only: adjacent columns 2l and 2l + 1 are rotated together, not column l with l + r/2…",
    ),
    Named(
        lambda q, k, v: _rotated(Rotary(scaling=_YARN), Rotary(scaling=replace(_YARN, weight=0)), q, k, v),
        Attention(position=Rotary(scaling=_YARN)),
        "position", "…the factor of cosines and sines is left out of those of one of queries and keys…",
    ),
    Named(
        lambda q, k, v: _softmax(3 * np.tanh(scores(q, k) / _LN2 / 3) * _LN2) @ v, Attention(softcap=3),
        "softcap", "…the cap is applied to scores in base 2…",
    ),
    Named(
        _exponentials, PLAIN, "exp", "exponentials, and the differences that they are of, are rounded to float32",
        told={"precision": "float64"},
    ),
    Named(_loses_the_last, PLAIN, "mask", "the last key is dropped, where n_k ≥ 200", told={"budget": 1000}),
    Named(
        _two_symptoms, Attention(mask="boolean"), "score",
        f"scaled scores are multiplied by their absolute values; and {_EMPTY}", f"…{_EMPTY}…",
        {"domain": Domain(fully_masked_rows=True)},
    ),
    Named(_with_gains, Attention(qk_norm="rms", eps=1e-6), "norm",
          "uses normed rows ⊙ g_k instead of normed rows ⊙ g_q"),
]  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize("named", _NAMED, ids=lambda named: named.cause)
def test_it_is_named_with_its_step(named: Named) -> None:
    assert "; or " not in named.check(examples=10)


@pytest.mark.deep
@pytest.mark.parametrize("named", _NAMED[:3], ids=lambda named: named.cause)
def test_it_is_named_in_half_precision(named: Named) -> None:
    named.check(examples=10, precision="bfloat16")


def _masked(allowed: Callable[[Array, Array, int], Array]) -> Callable[[Array, Array, Array], Array]:
    """Attention under a mask of the places i of queries from the first corner, of keys j, and of n_k − n_q."""

    def program(q: Array, k: Array, v: Array) -> Array:
        i, j = np.arange(len(q))[:, None], np.arange(len(k))[None, :]
        open_ = allowed(i, j, len(k) - len(q))
        s = np.where(open_, scores(q, k), -np.inf)
        e = np.exp(s - np.where(open_.any(axis=-1), s.max(axis=-1), 0)[:, None])
        total = e.sum(axis=-1, keepdims=True)
        return (e / np.where(total == 0, 1, total)).astype(q.dtype) @ v

    return program


_MASKS: tuple[tuple[Callable[[Array, Array, int], Array], Attention, str], ...] = (
    (
        lambda i, j, o: (i - 3 <= j) & (j <= i + o),
        Attention(causal=True, window=4), "the window's left edge is aligned top-left",
    ),
    (
        lambda i, j, o: (i - 64 <= j) & (j <= i + o),
        Attention(causal=True, window=65), "the window's left edge is aligned top-left",
    ),
    (lambda i, j, o: i // 4 == j // 4, Attention(block=4), "blocks are aligned top-left"),
    (
        lambda i, j, o: ((i + o) // 4 * 4 <= j) & (j <= (i + o) // 4 * 4 + 4),
        Attention(block=4), "blocks are one key too long: a query sees the first key after its own block",
    ),
    (
        lambda i, j, o: ((i + o - 4) // 8 * 8 <= j) & (j <= i + o),
        Attention(causal=True, window=5), "the window begins where a tile of 8 does",
    ),
    (
        lambda i, j, o: j // 16 <= (i + o) // 16,
        Attention(causal=True), "the causal mask works in blocks of 16: a query sees all keys of its own block",
    ),
)  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize(("allowed", "spec", "cause"), _MASKS)
def test_a_mask_is_named_by_its_edge_and_corner(
    allowed: Callable[[Array, Array, int], Array], spec: Attention, cause: str
) -> None:
    assert "; or " not in Named(_masked(allowed), spec, "mask", f"{cause}…").check(examples=10)


def _uneven(q: Array, k: Array, v: Array) -> Array:
    a = _softmax(scores(q, k))
    return a * (1 + 1e-3 * np.cos(np.arange(a.shape[-1]))).astype(a.dtype) @ v


@pytest.mark.deep
def test_a_small_error_that_no_rounding_makes_is_not_told_as_one() -> None:
    (fault,) = faults(_uneven, PLAIN, examples=10)
    assert fault.cause is None
    assert "rounded" not in fault.message

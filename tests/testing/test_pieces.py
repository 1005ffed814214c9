"""Packed sequences and pages of keys: each sequence is judged alone, and what is not its own is found."""

from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn import Attention, InputError
from symattn.arrays.formats import Format
from symattn.testing import AttentionFault, assert_close_to_exact

CU = [0, 3, 3, 9, 15]
SPEC = Attention(causal=True, heads=4, kv_heads=2)
Array = np.ndarray


def kernel(q: Array, k: Array, v: Array) -> Array:
    """Causal, from the bottom right, with two query heads for each of keys."""
    k, v = (np.repeat(a.astype(np.float64), len(q) // len(k), axis=0) for a in (k, v))
    s = q.astype(np.float64) @ k.mT / sqrt(q.shape[-1])
    n, m = s.shape[-2:]
    e = np.exp(np.where(np.tri(n, m, m - n, dtype=bool), s, -np.inf))
    return (e @ v / e.sum(-1, keepdims=True)).astype(q.dtype)


def packed(dtype: Any = np.float32) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((h, 15, 4)).astype(dtype) for h in (4, 2, 2))
    parts = [kernel(*(a[:, i:j] for a in (q, k, v))) for i, j in ((0, 3), (3, 9), (9, 15))]
    return np.concatenate(parts, axis=1), q, k, v


@pytest.mark.parametrize("dtype", [np.float16, pytest.param(np.float32, marks=pytest.mark.deep)])
def test_sequences_see_their_own_tokens_alone(dtype: Any) -> None:
    out, q, k, v = packed(dtype)
    assert_close_to_exact(out, q, k, v, SPEC, cu_seqlens=CU)
    assert_close_to_exact(out, q, k, v, SPEC, cu_seqlens=(np.array(CU), np.array(CU)), rows=4)
    with pytest.raises(AttentionFault, match="In sequence 2, queries 3 to 8:\n"):
        assert_close_to_exact(kernel(q, k, v), q, k, v, SPEC, cu_seqlens=CU)
    out[3, 14, 0] += 0.1
    with pytest.raises(AttentionFault, match=r"In sequence 3, queries 9 to 14:\n(.|\n)*out\[3, 5, 0\]"):
        assert_close_to_exact(out, q, k, v, SPEC, cu_seqlens=CU)


@pytest.mark.deep
def test_what_only_stored_scores_make_legal_is_told_of_the_sequence() -> None:
    """A cap of 30 in place of one of 50, in the second of two sequences."""
    f, spec = Format("bfloat16"), Attention(heads=8, softcap=50.0)
    q, k, v = (
        f.rounded(a) for a in np.random.default_rng(1).standard_normal((3, 8, 256, 64)) * [[[[4]]], [[[1]]], [[[1]]]]
    )
    out = np.empty_like(v)
    for cap, rows in ((50.0, slice(128)), (30.0, slice(128, 256))):
        s = cap * np.tanh(q[:, rows] @ k[:, rows].mT / 8 / cap)
        e = np.exp(s - s.max(-1, keepdims=True))
        out[:, rows] = f.rounded(e @ v[:, rows] / e.sum(-1, keepdims=True))
    arrays = (a.astype(ml_dtypes.bfloat16) for a in (out, q, k, v))
    told = assert_close_to_exact(*arrays, spec, cu_seqlens=[0, 128, 256])
    assert str(told).startswith("In sequence 1, queries 128 to 255:\nA kernel that does not store scores could not")


@pytest.mark.parametrize("dtype", [np.float16, pytest.param(np.float32, marks=pytest.mark.deep)])
def test_pages_are_gathered_by_the_table(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    caches = [rng.standard_normal((9, 2, 4, 4)).astype(dtype) for _ in range(2)]
    q = rng.standard_normal((2, 4, 2, 4)).astype(dtype)
    table, lengths = np.array([[7, 0, 3], [2, 8, -1]]), [11, 5]
    own = [
        [np.concatenate(c[row[row >= 0]], axis=1)[:, :n] for c in caches] for row, n in zip(table, lengths, strict=True)
    ]
    out = np.stack([kernel(q[i], *own[i]) for i in range(2)])
    told: dict[str, Any] = {"block_table": table, "lengths": lengths}
    assert_close_to_exact(out, q, *caches, SPEC, **told)
    with pytest.raises(AttentionFault, match="In sequence 1:"):
        assert_close_to_exact(out, q, *caches, SPEC, block_table=np.array([[7, 0, 3], [2, 1, -1]]), lengths=lengths)
    with pytest.raises(AttentionFault, match="In sequence 0:"):
        assert_close_to_exact(out, q, *caches, SPEC, block_table=table, lengths=[10, 5])
    with pytest.raises(InputError, match=r"block_table\[1\].*blocks 0 to 8"):
        assert_close_to_exact(out, q, *caches, SPEC, block_table=table, lengths=[11, 12])
    with pytest.raises(InputError, match=r"lengths\[0\] must be from 1 to 12"):
        assert_close_to_exact(out, q, *caches, SPEC, block_table=table, lengths=[13, 5])


@pytest.mark.torch
def test_tensors() -> None:
    import torch

    arrays = [torch.from_numpy(a) for a in packed(np.float16)]
    assert_close_to_exact(*arrays, SPEC, cu_seqlens=torch.tensor(CU, dtype=torch.int32))
    caches = [a.unflatten(1, (3, 5)).swapaxes(0, 1) for a in arrays[2:]]
    q, table = arrays[1][None, :, -3:], torch.tensor([[2, 1, 0]])
    own = [torch.cat([a[i] for i in (2, 1, 0)], dim=1).numpy() for a in caches]
    out = torch.from_numpy(kernel(q[0].numpy(), *own))[None]
    assert_close_to_exact(out, q, *caches, SPEC, block_table=table, lengths=torch.tensor([15]))


def test_what_does_not_fit_is_said() -> None:
    out, q, k, v = packed()
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("rise from 0 to 15", {"cu_seqlens": [0, 5, 31]}),
        ("rise from 0 to 15", {"cu_seqlens": [0, 7, 5, 15]}),
        ("1 of whole numbers", {"cu_seqlens": [0.0, 15.0]}),
        ("sequences of queries", {"cu_seqlens": ([0, 5, 15], [0, 15])}),
        ("no keys", {"cu_seqlens": ([0, 5, 15], [0, 0, 15])}),
        ("one of them", {"cu_seqlens": CU, "lengths": [3]}),
        ("go together", {"block_table": [[0]]}),
        ("go together", {"lengths": [3]}),
        ("not split into sequences", {"cu_seqlens": CU, "mask": np.ones((30, 30), dtype=bool)}),
        ("how many of each", {"cu_seqlens": CU, "rows": [1, 2]}),
        ("block_table 1", {"block_table": [[0]], "lengths": [3]}),
    ]
    for words, told in wrong:
        with pytest.raises(InputError, match=words):
            assert_close_to_exact(out, q, k, v, SPEC, **told)


@pytest.mark.deep
def test_many_heads_of_queries_for_few_of_keys() -> None:
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((h, 40, 16)).astype(np.float16) for h in (64, 8, 8))
    spec = Attention(causal=True, heads=64, kv_heads=8)
    out = kernel(q, k, v)
    assert_close_to_exact(out, q, k, v, spec, rows=8)
    with pytest.raises(AttentionFault):
        assert_close_to_exact(np.roll(out, 1, axis=0), q, k, v, spec, rows=8)

"""Masks of packed documents and of batches, several masks at once, and masks that come late."""

from itertools import pairwise
from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family
from tests.faults.collection.masking import last_keys, scores, softmax

Array = Any
FAMILY = Family("packed")
right = FAMILY.right
_ADDITIVE = Attention(mask="additive")
_BLOCKS = Attention(causal=True, block=4)
_CROSS = Attention(documents=True)
_DOCUMENTS = Attention(causal=True, documents=True)
_PADDED = Attention(heads=2, padding=True)
_PREFIX = Attention(causal=True, prefix=3)
_SQUARE = Domain(square=True)


def hidden(allowed: Array, s: Array) -> Array:
    return np.where(allowed, s, s.dtype.type(-np.inf))


def _labelled(made: dict[str, Array]) -> dict[str, Array]:
    """Four documents of the keys, of which queries have three."""
    return {"doc_q": np.array([0, 0, 1, 3, 3]), "doc_k": np.array([0, 1, 1, 1, 2, 3, 3])}


def _bounds(given: dict[str, Array]) -> dict[str, Array]:
    return {f"cu_seqlens_{r}": np.searchsorted(given[f"doc_{r}"], np.arange(5)) for r in "qk"}


def _ending(made: dict[str, Array]) -> dict[str, Array]:
    return {"keep": np.arange(made["keep"].shape[-1]) < np.array([[3], [6]])}


def _counted(given: dict[str, Array]) -> dict[str, Array]:
    return {"seq_lens": given["keep"].sum(axis=-1)}


# -- documents ---------------------------------------------------------------------------------------------------------
@right("each document's queries with its keys", spec=_CROSS, at=At(given=_labelled), form=_bounds)
def varlen(q: Array, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array) -> Array:
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for t in range(len(cu_seqlens_q) - 1):
        rows, keys = (slice(cu[t], cu[t + 1]) for cu in (cu_seqlens_q, cu_seqlens_k))
        if cu_seqlens_q[t] < cu_seqlens_q[t + 1] and cu_seqlens_k[t] < cu_seqlens_k[t + 1]:
            out[rows] = softmax(scores(q[rows], k[keys])) @ v[keys]
    return out


def varlen_by_keys(q: Array, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array) -> Array:
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for start, end in pairwise(cu_seqlens_k):
        if len(q[start:end]):
            out[start:end] = softmax(scores(q[start:end], k[start:end])) @ v[start:end]
    return out


@right("labels that differ in a bit are not 0 under exclusive or", spec=_DOCUMENTS, domain=_SQUARE)
def labels_differ(q: Array, k: Array, v: Array, segment_ids: Array) -> Array:
    apart = (segment_ids[:, None] ^ segment_ids[None, :]) != 0
    return softmax(hidden(~apart & last_keys(len(q), len(k)), scores(q, k))) @ v


# -- batches -----------------------------------------------------------------------------------------------------------
@right("each item by itself, without its padding", spec=_PADDED, layout="bhnd", at=At(batch=(2,), given=_ending),
       form=_counted)  # fmt: skip
def item_by_item(query: Array, key: Array, value: Array, seq_lens: Array) -> Array:
    parts = zip(query, key, value, seq_lens, strict=True)
    return np.stack([softmax(scores(q, k[:, :n])) @ v[:, :n] for q, k, v, n in parts])


# -- masks that come late, or go by other places -----------------------------------------------------------------------
@right("exponentials of the mask as factors", spec=_ADDITIVE)
def mask_as_factor(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = scores(q, k)
    top = (s + mask).max(axis=-1, keepdims=True)
    e = np.exp(s + np.maximum(mask, s.dtype.type(-1e4)) - top) * (mask > -np.inf)
    return e @ v / e.sum(axis=-1, keepdims=True)


@right("blocks by whole quotients", spec=_BLOCKS)
def blocks(q: Array, k: Array, v: Array) -> Array:
    i, j = np.arange(len(q))[:, None] + len(k) - len(q), np.arange(len(k))[None, :]
    return softmax(hidden((i // 4 == j // 4) & (j <= i), scores(q, k))) @ v


@right("the first columns are open to all", spec=_PREFIX)
def prefix(q: Array, k: Array, v: Array) -> Array:
    return softmax(hidden(last_keys(len(q), len(k)) | (np.arange(len(k)) < 3), scores(q, k))) @ v


FAMILY.wrong(
    globals(),
    """
varlen_by_keys (varlen), mask: queries are cut by the bounds of the keys
    says queries are distinguished by the documents of the keys; shows bounds of queries and keys differ
joined_by_xor (labels_differ), mask: documents and the causal mask are joined by exclusive or
    says exclusive or; shows two documents, or a later key
    same = segment_ids[:, None] == segment_ids[None, :]
    s = np.where(same ^ last_keys(len(q), len(k)), scores(q, k), q.dtype.type(-1e9))
    return softmax(s) @ v
other_documents (labels_differ), mask: a query sees the keys of other documents
    says other documents
    apart = (segment_ids[:, None] ^ segment_ids[None, :]) != 0
    s = np.where(apart & last_keys(len(q), len(k)), scores(q, k), q.dtype.type(-1e9))
    return softmax(s) @ v
length_of_the_longest (item_by_item), mask: every item has the length of the longest one
    says longest|maximum; shows lengths differ
    _, _, n_k, _ = key.shape
    valid = np.arange(n_k) < seq_lens.max()
    return softmax(hidden(valid, scores(query, key))) @ value
mask_after_softmax (mask_as_factor), mask: the additive mask is added to the weights
    says after the softmax
    with np.errstate(invalid="ignore"):
        return (softmax(scores(q, k)) + mask) @ v
blocks_by_remainders (blocks), mask: the remainders of places are compared, not their quotients
    says in turn; shows more than one block, or two tokens
    i // 4 → i % 4
    j // 4 → j % 4
prefix_of_rows (prefix), mask: the first rows are open, not the first columns
    says applied to queries; shows more keys than the prefix; at=At(n_q=7); domain=_SQUARE
    (k)) < 3), scores(q → (q))[:, None] < 3), scores(q
""",
)

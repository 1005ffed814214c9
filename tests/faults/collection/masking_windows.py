"""Masks that are windows, documents, padding, or added."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At
from tests.faults.collection.masking import FAMILY, last_keys, scores, softmax

Array = Any
right, wrong = FAMILY.right, FAMILY.wrong
_ADDITIVE = Attention(mask="additive")
_DOCUMENTS = Attention(causal=True, documents=True)
_PADDED = Attention(padding=True)
_WINDOW = Attention(causal=True, window=3)


@right("an additive mask", spec=_ADDITIVE)
def additive(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(scores(q, k) + mask) @ v


@right("keys that are padding are cut out beforehand", spec=_PADDED)
def padding_cut_out(q: Array, k: Array, v: Array, keep: Array) -> Array:
    return softmax(scores(q, k[keep])) @ v[keep]


@right("a window of three keys, the query's own among them", spec=_WINDOW)
def window(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    n_q, n_k = s.shape
    far = (np.arange(n_q) + n_k - n_q)[:, None] - np.arange(n_k)
    return softmax(np.where((far >= 0) & (far < 3), s, q.dtype.type(-np.inf))) @ v


@right("the window by slices of keys", spec=_WINDOW)
def window_by_slices(q: Array, k: Array, v: Array) -> Array:
    late, out = len(k) - len(q), []
    for i in range(len(q)):
        near = slice(max(i + late - 2, 0), i + late + 1)
        out.append(softmax(scores(q[i : i + 1], k[near])) @ v[near])
    return np.concatenate(out)


@right("documents by their labels", spec=_DOCUMENTS, domain=Domain(square=True))
def documents(q: Array, k: Array, v: Array, doc: Array) -> Array:
    s = scores(q, k)
    together = doc[:, None] == doc[None, :]
    return softmax(np.where(together & last_keys(*s.shape), s, q.dtype.type(-np.inf))) @ v


@right("documents one after another", spec=_DOCUMENTS, domain=Domain(square=True))
def documents_apart(q: Array, k: Array, v: Array, doc: Array) -> Array:
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for label in np.unique(doc):
        here = doc == label
        n = int(here.sum())
        s = np.where(np.tri(n, dtype=bool), scores(q[here], k[here]), q.dtype.type(-np.inf))
        out[here] = softmax(s) @ v[here]
    return out


@wrong(
    "mask",
    "the finite part of an additive mask is lost",
    "additive|finite|as boolean|as a boolean",
    spec=_ADDITIVE,
    near="additive",
)
def additive_as_boolean(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(np.where(np.isneginf(mask), q.dtype.type(-np.inf), scores(q, k))) @ v


@wrong("mask", "the additive mask is scaled with the scores", "mask", "scale", spec=_ADDITIVE, near="additive")
def additive_scaled(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax((q @ k.T + mask) / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@wrong("mask", "the additive mask is subtracted", "subtracted|sign", spec=_ADDITIVE, near="additive")
def additive_subtracted(q: Array, k: Array, v: Array, mask: Array) -> Array:
    hidden = np.isneginf(mask)
    s = scores(q, k) - np.where(hidden, 0, mask)
    return softmax(np.where(hidden, -np.inf, s).astype(q.dtype)) @ v


@wrong(
    "mask",
    "a window of one key too few",
    "window",
    "few|narrow|short|less",
    spec=_WINDOW,
    near="window",
    source="huggingface/transformers#47010",
)
def window_too_small(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    n_q, n_k = s.shape
    far = (np.arange(n_q) + n_k - n_q)[:, None] - np.arange(n_k)
    return softmax(np.where((far >= 0) & (far < 2), s, q.dtype.type(-np.inf))) @ v


@wrong(
    "mask",
    "a window of one key too many",
    "window",
    "many|wide|long|more",
    spec=_WINDOW,
    near="window",
    source="ml-explore/mlx-lm#390",
)
def window_too_large(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    n_q, n_k = s.shape
    far = (np.arange(n_q) + n_k - n_q)[:, None] - np.arange(n_k)
    return softmax(np.where((far >= 0) & (far <= 3), s, q.dtype.type(-np.inf))) @ v


@wrong("mask", "the window is left out", "window", "left out|ignored|missing", spec=_WINDOW, near="window")
def window_ignored(q: Array, k: Array, v: Array, window: int = 0) -> Array:
    s = scores(q, k)
    return softmax(np.where(last_keys(*s.shape), s, q.dtype.type(-np.inf))) @ v


@wrong(
    "mask",
    "the window looks ahead as far as back",
    "window|causal",
    "both|ahead|later|causal mask is left out",
    spec=_WINDOW,
    near="window",
)
def window_both_sides(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    n_q, n_k = s.shape
    far = (np.arange(n_q) + n_k - n_q)[:, None] - np.arange(n_k)
    return softmax(np.where(np.abs(far) < 3, s, q.dtype.type(-np.inf))) @ v


@wrong(
    "mask",
    "packed documents see each other",
    "document",
    spec=_DOCUMENTS,
    domain=Domain(square=True),
    shows="two documents",
    near="documents",
    source="huggingface/nanoVLM#204",
)
def documents_mixed(q: Array, k: Array, v: Array, doc: Array) -> Array:
    s = scores(q, k)
    return softmax(np.where(last_keys(*s.shape), s, q.dtype.type(-np.inf))) @ v


@wrong(
    "mask",
    "documents are told apart, and the causal mask is lost",
    "causal",
    spec=_DOCUMENTS,
    domain=Domain(square=True),
    near="documents",
)
def documents_without_causal(q: Array, k: Array, v: Array, doc: Array) -> Array:
    s = scores(q, k)
    return softmax(np.where(doc[:, None] == doc[None, :], s, q.dtype.type(-np.inf))) @ v


@wrong(
    "mask",
    "the padding mask hides queries, not keys",
    "padding|transposed|queries",
    spec=_PADDED,
    domain=Domain(square=True),
    near="padding_cut_out",
    at=At(n_q=7),
)
def padding_of_queries(q: Array, k: Array, v: Array, keep: Array) -> Array:
    s = np.where(keep[:, None], scores(q, k), np.float32(-1e9))
    return softmax(s) @ v


@wrong(
    "mask",
    "only trailing padding is understood: the mask is taken as a length",
    "length|count|first keys|leading",
    spec=_PADDED,
    near="padding_cut_out",
    at=At(given=lambda made: {"keep": np.array([True, False, True, False, True, False, True])}),
)
def padding_as_length(q: Array, k: Array, v: Array, keep: Array) -> Array:
    n = int(keep.sum())
    return softmax(scores(q, k[:n])) @ v[:n]

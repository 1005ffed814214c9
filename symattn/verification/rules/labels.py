"""Mistakes in padding and packed documents: wrong lengths and labels, wrong comparisons, wrong tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.mistake import At, Mistake, Wrong, in_fields, in_inputs, in_steps
from symattn.bounds.reference import Variant
from symattn.verification.rules.forbidding import allowed, empty_as_mean, forbid, leaving_some_keys, opening


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield mistakes of a specification with padding, or with documents."""
    if spec.padding:
        yield opening("padding is applied to queries, not to keys", _queries_padded)
        words = "padding is applied to queries, not to keys (rows of padding give the mean of all values)"
        yield _filled(words, _queries_padded)
        yield in_inputs("mask", "lengths are off by one: one key of the padding is seen", keep=partial(_longer, 1))
        yield in_inputs("mask", "lengths are off by one: the last valid key is not seen", keep=partial(_longer, -1))
        if spec.heads > 1:
            words = "padding is that of another item of the batch: masks are repeated for heads in the wrong order"
            yield _filled(words, _of_other_items)
        for words, change in _OF_ITEMS.items():
            yield _reading(words, partial(_by_items, change))
    if spec.documents:
        yield from _documents(spec, names)


def _reading(words: str, change: Callable[[Inputs], dict[str, np.ndarray]]) -> Mistake:
    """Return the mistake of changed inputs; rows that then have no key are undefined."""
    variant = Variant(inputs=lambda spec, given: {**given, **change(given)})
    return leaving_some_keys(Mistake("mask", words, variant))


# -- padding -----------------------------------------------------------------------------------------------------------
def _filled(words: str, open_: Wrong) -> Mistake:
    """Return the mistake of a mask with a finite number instead of −∞ in rows without any key, which give the mean."""
    return in_steps("mask", words, masked=lambda at: empty_as_mean(at, forbid(at, open_(at))))


#: Wrong padding of all items of a batch, from their own, (items, n_k).
_OF_ITEMS: dict[str, Callable[[np.ndarray], Any]] = {
    "the padding of the longest item is used for all: the maximum of the lengths":
        lambda a: a.any(axis=0, keepdims=True),
    "the padding of the shortest item is used for all: the minimum of the lengths":
        lambda a: a.all(axis=0, keepdims=True),
    "the first item's padding is used for all": lambda a: a[:1],
    "padding is that of the next item of the batch": lambda a: np.roll(a, -1, axis=0),
}  # fmt: skip


def _by_items(change: Callable[[np.ndarray], Any], inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the padding changed for all items. Raises ``KeyError`` for a single item."""
    items = inputs["keep"].reshape(-1, inputs["keep"].shape[-1])
    if len(items) < 2:
        raise KeyError("there is one item only")
    return {"keep": np.broadcast_to(change(items), items.shape).reshape(inputs["keep"].shape)}


def _queries_padded(at: At) -> Any:
    keep, (n_q, n_k) = np.asarray(at.values["keep"]), at.shape[-2:]
    if n_q != n_k:
        raise ValueError("as many queries as keys")
    if at.spec.heads > 1 and keep.ndim == len(at.shape) - 2 > 1:  # the heads of an item share its padding
        keep = keep[..., None, :]
    return allowed(at, padding=False) & keep[..., :, None]


def _of_other_items(at: At) -> Any:
    """Return the mask if items and heads are joined item by item while the padding is repeated as a whole: row
    r = b·h + i gets the padding of item r mod B, not of b."""
    keep, (batch, heads) = np.asarray(at.values["keep"]), (at.shape[0], at.spec.heads)
    if len(at.shape) != 4 or keep.ndim < 2 or keep.shape[0] != batch or batch == 1:
        raise KeyError("there is one item only")
    rows = keep.reshape(batch, -1)[np.arange(batch * heads) % batch].reshape(batch, heads, 1, -1)
    return allowed(at, padding=False) & rows


def _longer(by: int, a: np.ndarray) -> np.ndarray:
    """Return the keys kept up to one position later, or one earlier."""
    n, j = a.shape[-1], np.arange(a.shape[-1])
    last = np.where(a.any(axis=-1, keepdims=True), n - 1 - a[..., ::-1].argmax(axis=-1)[..., None], -1)
    return a | (j == last + 1) if by > 0 else a & (j < last)


# -- documents ---------------------------------------------------------------------------------------------------------
def _documents(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    yield in_fields("mask", "the documents are ignored", documents=False)
    for words, change in _LABELS.items():
        yield _reading(words, lambda given, change=change: {n: change(a) for n, a in given.items() if "doc" in n})  # type: ignore[misc]
    for words, differ in _COMPARED.items():
        if spec.causal and differ in (np.less, np.greater):
            continue  # the causal mask makes this the same as ignoring documents
        if differ is not np.equal or replace(spec, documents=False).masks_anything:  # else the mask is inverted
            yield opening(words, partial(_apart, differ))
    for one, other in (("q", "k"), ("k", "q")) if "doc_q" in names else ():
        noun, of = ("queries", "keys") if one == "q" else ("keys", "queries")
        words = f"{noun} are distinguished by the documents of the {of}: by bounds, or labels, that are not theirs"
        yield _reading(words, partial(_of_others, f"doc_{one}", f"doc_{other}"))


#: Wrong conditions for labels a and b to count as different documents.
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "documents are distinguished by the last bit of their labels: every second one is treated as the same":
        lambda a, b: (a ^ b) & 1 != 0,
    "documents are distinguished by 1 − (a xor b) of their labels, which is 0 for some that differ, not for all":
        lambda a, b: a ^ b == 1,
    "documents are compared by ≥: earlier ones are seen too": np.less,
    "documents are compared by ≤: later ones are seen too": np.greater,
    "the comparison of documents is inverted: a query sees keys of other documents alone": np.equal,
}  # fmt: skip


def _apart(differ: Callable[[Any, Any], Any], at: At) -> Any:
    """Return the other masks, for pairs whose labels do not ``differ``."""
    of_queries, of_keys = (np.asarray(at.values[f"doc_{r}" if f"doc_{r}" in at.values else "doc"]) for r in "qk")
    return allowed(at, documents=False) & ~differ(of_queries[..., :, None], of_keys[..., None, :])


def _by_places(labels: np.ndarray) -> np.ndarray:
    """Return labels by position, as if all documents had the length of the longest."""
    return np.arange(labels.shape[-1]) // max(1, int(np.bincount(np.unique(labels, return_inverse=True)[1]).max()))


def _next(by: int, labels: np.ndarray) -> np.ndarray:
    """Return the labels of the tokens ``by`` positions later, within the sequence."""
    n = labels.shape[-1]
    return labels[..., np.clip(np.arange(n) + by, 0, n - 1)]


#: Wrong labels, from the right ones.
_LABELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "documents are distinguished by their positions, not by their labels": _by_places,
    "bounds of documents are off by one: the first token of each belongs to the one before": partial(_next, -1),
    "bounds of documents are off by one: the last token of each belongs to the next one": partial(_next, 1),
}


def _of_others(one: str, other: str, inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the labels at the same positions of the other tokens; beyond these, of no document."""
    n, labels = inputs[one].shape[-1], inputs[other]
    missing = [(0, 0)] * (labels.ndim - 1) + [(0, max(0, n - labels.shape[-1]))]
    return {one: np.pad(labels, missing, constant_values=-1)[..., :n]}

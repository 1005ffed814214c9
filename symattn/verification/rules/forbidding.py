"""Mistakes in masks: wrong forbidden scores, masks left out or joined wrongly, empty rows, padding, documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import masks
from symattn.attention.positions.position_fields import Alibi, Buckets
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.mistake import At, Mistake, Wrong, change, in_fields, in_inputs, in_steps
from symattn.bounds.reference import Change, Variant
from symattn.verification.rules.tiling import FIRST_TILE, WIDTHS, Taken, other_tiles


# -- the masks of a specification --------------------------------------------------------------------------------------
def allowed(at: At, **other: Any) -> np.ndarray:
    """Return which keys the masks, with ``other`` fields if given, allow: booleans (…, n_q, n_k); all without masks.

    A bias by distance is left out of that, since it may be defined only for causal masks.
    """
    # A bias by distance may need a causal mask, which other fields may leave out.
    if other and isinstance(at.spec.position, Alibi | Buckets):
        other["position"] = None
    at = replace(at, spec=replace(at.spec, **other), name="masked")
    # A forbidden key has the score −∞, so that finite scores are the allowed keys.
    return (
        np.asarray(at.xp.isfinite(at.right()))
        if at.spec.masks_anything
        else np.ones(at.shape, dtype=bool)
    )


def added(at: At) -> Any:
    """Return the scores before the masks, plus the finite part of an additive one."""
    s = at.before("masked")
    if at.spec.mask != "additive":
        return s
    xp, mask = namespace_of(s), at.values["mask"]
    finite = xp.where(xp.isfinite(mask), mask, 0)
    return masks.add_mask(s, masks.for_heads(finite, s) if at.spec.heads > 1 else finite)


def forbid(at: At, open_: Any) -> Any:
    """Return the scores where ``open_``, else −∞."""
    return masks.forbid(added(at), open_)


#: The weights of the keys that a wrong mask leaves; rows without any key are undefined.
SOME_KEYS: Change = change("weights", lambda at: at.weights(at.first))


# -- mistakes ----------------------------------------------------------------------------------------------------------
def opening(words: str, open_: Wrong) -> Mistake:
    """Return the mistake that other keys are allowed; rows without any key are undefined."""
    return leaving_some_keys(in_steps("mask", words, masked=lambda at: forbid(at, open_(at))))


def leaving_some_keys(mistake: Mistake) -> Mistake:
    """Return the mistake in a mask, with rows that it leaves without any key undefined."""
    return replace(
        mistake,
        way=replace(mistake.variant, steps={"weights": SOME_KEYS, **mistake.variant.steps}),
    )


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes of a specification that forbids something."""
    if spec.causal or spec.padding or spec.mask is not None:
        yield in_steps("mask", "the mask is ignored", masked=lambda at: added(at) * 1)
    if replace(
        spec, padding=False
    ).masks_anything:  # an inverted mask of padding alone is a mistake of its own
        yield opening("the mask is inverted", lambda at: ~allowed(at))
    for n in WIDTHS:
        words = f"the first {n} keys are" if n > 1 else "the first key is"
        yield opening(
            f"{words} always seen",
            lambda at, n=n: allowed(at) | (np.arange(at.shape[-1]) < n),  # type: ignore[misc]
        )
    for words, fill in _FILLED:
        yield in_steps("mask", words, masked=partial(_fill_forbidden_scores, fill))
    yield in_steps(
        "mask",
        "a boolean mask is added as 0 and 1",
        masked=lambda at: added(at) + allowed(at) * 1.0,
    )
    words = "weights are masked after the softmax, and not normalised again"
    yield in_steps(
        "mask", words, False, weights=lambda at: at.right(added(at)) * allowed(at).astype(float)
    )
    yield from _yield_mask_joining_mistakes(spec)
    yield from yield_mistakes_of_empty_rows()
    for words, tiles, taken in other_tiles():  # a kernel ignores the position of a tile
        for axis, noun in ((-1, "keys"), (-2, "queries")):
            # Queries are cut into tiles of one width, but not into parts.
            if axis == -1 or tiles.startswith("tiles"):
                anew = f"the mask counts {noun} anew in each tile"
                words_ = anew if words == FIRST_TILE else f"the mask of {noun} is {words}"
                yield opening(f"{words_} ({tiles})", partial(_of_another_tile, axis, taken))


Fill = Callable[[At, Any], Any]  # what replaces −∞, from the scores
# Two variants of one cause: they differ in float64, not in float32.
_NOTHING = "forbidden scores become 0 (a mask multiplied) or nearly 0 (−1e-9 filled in), which leaves them a weight"
_FILLED: tuple[tuple[str, Fill], ...] = (
    (_NOTHING, lambda at, s: at.number(0)),
    (_NOTHING, lambda at, s: at.number(-1e-9)),
    ("a boolean mask is added as 1 where it forbids", lambda at, s: s + 1),
)


def _fill_forbidden_scores(fill: Fill, at: At) -> Any:
    s = added(at)
    return at.xp.where(allowed(at), s, fill(at, s))


def _of_another_tile(axis: int, taken: Taken, at: At) -> Array:
    """Return the allowed keys, with each tile's part read from another tile of the mask."""
    there = allowed(at)
    return np.take(there, taken(int(there.shape[axis])), axis=axis)


def _yield_mask_joining_mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes that leave out one of several masks, or join them wrongly."""
    there = (
        spec.causal,
        spec.padding,
        spec.mask is not None,
        spec.window or spec.block,
        spec.documents,
    )
    # One mask alone cannot be joined wrongly.
    if sum(map(bool, there)) < 2:
        return
    if spec.padding:
        yield in_fields("mask", "the padding mask is left out", padding=False)
    if spec.mask is not None:
        yield in_fields("mask", "the mask given is left out", mask=None)
    joins = dict(_JOINS)
    if sum(map(bool, there)) == 2 and _window_forbids_later_keys(spec):
        # The window sees a part of what the causal mask sees. Joined by or, the window would merely be ignored; and as
        # all that the causal mask forbids is forbidden by both, this mask would merely be left out.
        del joins[_ONE_ALLOWS], joins[_BOTH_FORBID]
    for words, join in joins.items():
        yield opening(f"several masks are joined by {words}", partial(_as_one, join))


def _window_forbids_later_keys(spec: Attention) -> bool:
    """Return whether there is a causal mask, and a window that hides all that it hides."""
    after = spec.sides[1]
    return spec.causal and after is not None and after <= 0


_ONE_ALLOWS = "or: a key is seen that one of them allows"
_BOTH_FORBID = "exclusive or of what they forbid: a key is seen that two masks both forbid"
#: Wrong ways to join masks, from what each of them allows.
_JOINS: dict[str, Callable[[list[Any]], Any]] = {
    _ONE_ALLOWS: np.logical_or.reduce,
    "exclusive or: a key is seen that one of two masks allows and the other forbids": np.logical_xor.reduce,
    _BOTH_FORBID: lambda found: ~np.logical_xor.reduce([~a for a in found]),
}
_ALONE = Attention()


def _as_one(join: Callable[[list[Any]], Any], at: At) -> Any:
    spec, fields = at.spec, ("causal", "window", "block", "mask", "padding", "documents")
    own = {f: getattr(spec, f) for f in fields if getattr(spec, f) != getattr(_ALONE, f)}
    # Without the causal mask, an integer window would also reach ahead.
    if isinstance(spec.window, int):
        own["window"] = spec.sides
    bare = {f: getattr(_ALONE, f) for f in (*fields, "prefix", "position")}
    with_prefix = {"causal": {"prefix": spec.prefix}}
    each = [allowed(at, **(bare | {f: value} | with_prefix.get(f, {}))) for f, value in own.items()]
    return join(list(np.broadcast_arrays(*each)))


#: Wrong scores of rows without any key.
_EMPTY: dict[str, Wrong] = {
    "a row without any key gives the mean of all values": lambda at: at.number(0),
    "a row without any key is not masked at all: a large number is subtracted from all its scores": added,
}


def yield_mistakes_of_empty_rows() -> Iterator[Mistake]:
    """Yield mistakes in rows without any key alone."""
    for words, empty in _EMPTY.items():
        yield in_steps("mask", words, masked=partial(where_empty, empty))


def where_empty(fill: Wrong, at: At, s: Any = None) -> Any:
    """Return masked scores, with others in rows without any key."""
    s = at.of("masked") if s is None else s
    empty = ~np.asarray(namespace_of(s).isfinite(s)).any(axis=-1, keepdims=True)
    return namespace_of(s).where(empty, fill(at), s)


def of_labels(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield mistakes of a specification with padding, or with documents."""
    if spec.padding:
        # Queries of padding then have no keys: with a finite number for −∞ they give a mean.
        yield opening("padding is applied to queries, not to keys", _queries_padded)
        words = "padding is applied to queries, not to keys (rows of padding give the mean of all values)"
        yield _empty_filled(words, _queries_padded)
        yield in_inputs(
            "mask",
            "lengths are off by one: one key of the padding is seen",
            keep=partial(_shift_end_of_padding, 1),
        )
        yield in_inputs(
            "mask",
            "lengths are off by one: the last valid key is not seen",
            keep=partial(_shift_end_of_padding, -1),
        )
        if spec.heads > 1:
            # Masks (b, n) repeated in turn reach another item than those repeated one by one.
            words = "padding is that of another item of the batch: masks are repeated for heads in the wrong order"
            yield _empty_filled(words, _of_other_items)
        for words, change in _OF_ITEMS.items():
            yield _make_mask_reading_mistake(words, partial(_by_items, change))
    if spec.documents:
        yield from _yield_document_mistakes(spec, names)


def _make_mask_reading_mistake(
    words: str, change: Callable[[Inputs], dict[str, np.ndarray]]
) -> Mistake:
    """Return the mistake of changed inputs; rows that then have no key are undefined."""
    variant = Variant(inputs=lambda spec, given: {**given, **change(given)})
    return leaving_some_keys(Mistake("mask", words, variant))


# -- padding -----------------------------------------------------------------------------------------------------------
def _empty_filled(words: str, open_: Wrong) -> Mistake:
    """Return the mistake of a mask with a finite number instead of −∞ in rows without any key, which give the mean."""
    return in_steps(
        "mask",
        words,
        masked=lambda at: where_empty(lambda at: at.number(0), at, forbid(at, open_(at))),
    )


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
    if (
        at.spec.heads > 1 and keep.ndim == len(at.shape) - 2 > 1
    ):  # the heads of an item share its padding
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


def _shift_end_of_padding(by: int, a: np.ndarray) -> np.ndarray:
    """Return the keys kept up to one position later, or one earlier."""
    n = a.shape[-1]
    j = np.arange(a.shape[-1])
    # The place of the last valid key, or −1.
    last = np.where(
        a.any(axis=-1, keepdims=True), n - 1 - a[..., ::-1].argmax(axis=-1)[..., None], -1
    )
    return a | (j == last + 1) if by > 0 else a & (j < last)


# -- documents ---------------------------------------------------------------------------------------------------------
def _yield_document_mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    yield in_fields("mask", "the documents are ignored", documents=False)
    for words, relabel in _LABELS.items():
        yield _make_mask_reading_mistake(
            words,
            lambda given, relabel=relabel: {n: relabel(a) for n, a in given.items() if "doc" in n},  # type: ignore[misc]
        )
    for words, differ in _COMPARED.items():
        if spec.causal and differ in (np.less, np.greater):
            continue  # the causal mask makes this the same as ignoring documents
        if (
            differ is not np.equal or replace(spec, documents=False).masks_anything
        ):  # else the mask is inverted
            yield opening(words, partial(_allow_by_compared_labels, differ))
    for one, other in (("q", "k"), ("k", "q")) if "doc_q" in names else ():
        noun, of = ("queries", "keys") if one == "q" else ("keys", "queries")
        words = f"{noun} are distinguished by the documents of the {of}: by bounds, or labels, that are not theirs"
        yield _make_mask_reading_mistake(words, partial(_of_others, f"doc_{one}", f"doc_{other}"))


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


def _allow_by_compared_labels(differ: Callable[[Any, Any], Any], at: At) -> Any:
    """Return the other masks, for pairs whose labels do not ``differ``."""
    of_queries, of_keys = (
        np.asarray(at.values[f"doc_{r}" if f"doc_{r}" in at.values else "doc"]) for r in "qk"
    )
    return allowed(at, documents=False) & ~differ(of_queries[..., :, None], of_keys[..., None, :])


def _by_places(labels: np.ndarray) -> np.ndarray:
    """Return labels by position, as if all documents had the length of the longest."""
    return np.arange(labels.shape[-1]) // max(
        1, int(np.bincount(np.unique(labels, return_inverse=True)[1]).max())
    )


def _shift_document_labels(by: int, labels: np.ndarray) -> np.ndarray:
    """Return the labels of the tokens ``by`` positions later, within the sequence."""
    n = labels.shape[-1]
    return labels[..., np.clip(np.arange(n) + by, 0, n - 1)]


#: Wrong labels, from the right ones.
_LABELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "documents are distinguished by their positions, not by their labels": _by_places,
    "bounds of documents are off by one: the first token of each belongs to the one before": partial(
        _shift_document_labels, -1
    ),
    "bounds of documents are off by one: the last token of each belongs to the next one": partial(
        _shift_document_labels, 1
    ),
}


def _of_others(one: str, other: str, inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the labels at the same positions of the other tokens; beyond these, of no document."""
    n, labels = inputs[one].shape[-1], inputs[other]
    missing = [(0, 0)] * (labels.ndim - 1) + [(0, max(0, n - labels.shape[-1]))]
    return {one: np.pad(labels, missing, constant_values=-1)[..., :n]}

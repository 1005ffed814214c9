"""Mistakes in masks: wrong forbidden scores, masks left out, masks joined wrongly, and rows without any key."""

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
from symattn.bounds.mistake import At, Mistake, Wrong, change, in_fields, in_steps
from symattn.bounds.reference import Change
from symattn.verification.rules.tiling import FIRST_TILE, WIDTHS, Taken, other_tiles


# -- the masks of a specification --------------------------------------------------------------------------------------
def allowed(at: At, **other: Any) -> np.ndarray:
    """Return which keys the masks, with ``other`` fields if given, allow: booleans (…, n_q, n_k); all without masks.

    A bias by distance is left out of that, since it may be defined only for causal masks.
    """
    if other and isinstance(at.spec.position, Alibi | Buckets):
        other["position"] = None
    at = replace(at, spec=replace(at.spec, **other), name="masked")
    return np.asarray(at.xp.isfinite(at.right())) if at.spec.masks_anything else np.ones(at.shape, dtype=bool)


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
    return replace(mistake, variant=replace(mistake.variant, steps={"weights": SOME_KEYS, **mistake.variant.steps}))


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes of a specification that forbids something."""
    if not spec.masks_anything:
        return
    if spec.causal or spec.padding or spec.mask is not None:
        yield in_steps("mask", "the mask is ignored", masked=lambda at: added(at) * 1)
    if replace(spec, padding=False).masks_anything:  # an inverted mask of padding alone is a mistake of its own
        yield opening("the mask is inverted", lambda at: ~allowed(at))
    for n in WIDTHS:
        words = f"the first {n} keys are" if n > 1 else "the first key is"
        yield opening(f"{words} always seen", lambda at, n=n: allowed(at) | (np.arange(at.shape[-1]) < n))  # type: ignore[misc]
    for words, fill in _FILLED:
        yield in_steps("mask", words, masked=partial(_filled, fill))
    yield in_steps("mask", "a boolean mask is added as 0 and 1", masked=lambda at: added(at) + allowed(at) * 1.0)
    words = "weights are masked after the softmax, and not normalised again"
    yield in_steps("mask", words, False, weights=lambda at: at.right(added(at)) * allowed(at).astype(float))
    yield from _joined(spec)
    for words, empty in _EMPTY.items():
        yield in_steps("mask", words, masked=partial(where_empty, empty))
    for words, tiles, taken in other_tiles():  # a kernel ignores the position of a tile
        for axis, noun in ((-1, "keys"), (-2, "queries")):
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


def _filled(fill: Fill, at: At) -> Any:
    s = added(at)
    return at.xp.where(allowed(at), s, fill(at, s))


def _of_another_tile(axis: int, taken: Taken, at: At) -> Array:
    """Return the allowed keys, with each tile's part read from another tile of the mask."""
    there = allowed(at)
    return np.take(there, taken(int(there.shape[axis])), axis=axis)


def _joined(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes that leave out one of several masks, or join them wrongly."""
    there = (spec.causal, spec.padding, spec.mask is not None, spec.window or spec.block, spec.documents)
    if sum(map(bool, there)) < 2:
        return
    if spec.padding:
        yield in_fields("mask", "the padding mask is left out", padding=False)
    if spec.mask is not None:
        yield in_fields("mask", "the mask given is left out", mask=None)
    for words, join in _JOINS.items():
        yield opening(f"several masks are joined by {words}", partial(_as_one, join))


#: Wrong ways to join masks, from what each of them allows.
_JOINS: dict[str, Callable[[list[Any]], Any]] = {
    "or: a key is seen that one of them allows": np.logical_or.reduce,
    "exclusive or: a key is seen that one of two masks allows and the other forbids": np.logical_xor.reduce,
    "exclusive or of what they forbid: a key is seen that two masks both forbid":
        lambda found: ~np.logical_xor.reduce([~a for a in found]),
}  # fmt: skip
_ALONE = Attention()


def _as_one(join: Callable[[list[Any]], Any], at: At) -> Any:
    spec, fields = at.spec, ("causal", "window", "block", "mask", "padding", "documents")
    own = {f: getattr(spec, f) for f in fields if getattr(spec, f) != getattr(_ALONE, f)}
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


def where_empty(fill: Wrong, at: At, s: Any = None) -> Any:
    """Return masked scores, with others in rows without any key."""
    s = at.of("masked") if s is None else s
    empty = ~np.asarray(namespace_of(s).isfinite(s)).any(axis=-1, keepdims=True)
    return namespace_of(s).where(empty, fill(at), s)


def empty_as_mean(at: At, s: Any) -> Any:
    """Return masked scores with zeros in rows without any key, which then give the mean."""
    return where_empty(lambda at: at.number(0), at, s)

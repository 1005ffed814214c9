"""Mistakes in masks: what becomes of forbidden scores, which masks apply, how they are joined; rows without any key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import masks
from symattn.attention.positions.fields import Alibi, Buckets
from symattn.attention.spec import Attention
from symattn.bounds.at import At, told
from symattn.bounds.mistake import Mistake, before, in_fields, in_steps, number, own, shape, weights
from symattn.bounds.reference import Values
from symattn.verification.rules.tiling import WIDTHS, Edges, cuts

_BARE = Attention()


# -- the masks of a specification --------------------------------------------------------------------------------------
def allowed(spec: Attention, values: Values) -> Any:
    """Return the keys that the specification's masks allow: booleans (…, n_q, n_k); all, where it has none."""
    if not spec.masks_anything:
        return np.ones(shape(values), dtype=bool)
    s = before(spec, values, "masked")
    return np.asarray(namespace_of(s).isfinite(own(spec, values, "masked")))


def with_masks(spec: Attention, **fields: Any) -> Attention:
    """The specification with other masks, to ask what they allow: a bias by distance, which has no part in that, may
    be defined for causal masks alone."""
    if isinstance(spec.position, Alibi | Buckets):
        spec = replace(spec, position=None)
    return replace(spec, **fields)


def added(spec: Attention, values: Values) -> Any:
    """The scores before the masks, with the finite part of an additive one."""
    s = before(spec, values, "masked")
    if spec.mask != "additive":
        return s
    xp, mask = namespace_of(s), values["mask"]
    finite = xp.where(xp.isfinite(mask), mask, 0)
    return masks.add_mask(s, masks.for_heads(finite, s) if spec.heads > 1 else finite)


def forbid(spec: Attention, values: Values, open_: Any) -> Any:
    """The scores where ``open_``, else −∞."""
    return masks.forbid(added(spec, values), open_)


def some_keys(spec: Attention, values: Values) -> Any:
    """The weights of what a wrong mask has left; see ``weights``."""
    return weights(spec, values, before(spec, values, "weights"))


# -- mistakes ----------------------------------------------------------------------------------------------------------
Open = Callable[[Attention, Values], Any]


def opening(words: str, open_: Open) -> Mistake:
    """Return the mistake that other keys are allowed; of rows without any nothing is said."""
    return in_steps(
        "mask", words, weights=some_keys, masked=lambda spec, values: forbid(spec, values, open_(spec, values))
    )


def leaving_some_keys(mistake: Mistake) -> Mistake:
    """Return the mistake in how a mask is read; of rows that it leaves without any key nothing is said."""
    return replace(mistake, variant=replace(mistake.variant, steps={"weights": some_keys}))


def _filling(words: str, fill: Callable[[At, Any], Any]) -> Mistake:
    """Something finite in the place of −∞: ``fill`` of the scores."""

    def wrong(at: At) -> Any:
        s = added(at.spec, at.values)
        return at.xp.where(allowed(at.spec, at.values), s, fill(at, s))

    return told("mask", words, masked=wrong)


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes of a specification that forbids something."""
    if not spec.masks_anything:
        return
    if spec.causal or spec.padding or spec.mask is not None:
        yield told("mask", "the mask is ignored", masked=lambda at: added(at.spec, at.values) * 1)
    if replace(spec, padding=False).masks_anything:  # else it is that of padding that is inverted
        yield opening("the mask is inverted", lambda spec, values: ~allowed(spec, values))
    for n in WIDTHS:
        words = f"the first {n} keys are" if n > 1 else "the first key is"
        yield opening(f"{words} always seen", partial(_with_first, n))
    yield _filling(_NOTHING, lambda at, s: at.number(0))
    yield _filling(_NOTHING, lambda at, s: at.number(-1e-9))
    yield _filling("a boolean mask is added as 1 where it forbids", lambda at, s: s + 1)
    yield told("mask", "a boolean mask is added as 0 and 1", masked=_added_as_one)
    words = "weights are masked after the softmax, and not normalised again"
    yield told("mask", words, False, weights=_masked_late)
    yield from _joined(spec)
    yield from _empty_rows()
    if spec.causal and not spec.documents:
        for n in WIDTHS[1:]:
            words = f"the causal mask works in blocks of {n}: a query sees all keys of its own block"
            yield opening(words, partial(_by_blocks, n))
    yield from _counted_anew()


def _with_first(n: int, spec: Attention, values: Values) -> Any:
    there = allowed(spec, values)
    return there | (np.arange(there.shape[-1]) < n)


def _counted_anew() -> Iterator[Mistake]:
    """A kernel in tiles forgets at which key, or at which query, a tile begins, where it masks."""
    for tiles, edges in cuts():
        if tiles != "tiles of one key":
            words = f"the mask counts keys anew in each tile ({tiles})"
            yield opening(words, partial(_from_the_first, -1, edges))
            if tiles.startswith("tiles"):
                yield opening(
                    f"the mask counts queries anew in each tile ({tiles})", partial(_from_the_first, -2, edges)
                )


def _from_the_first(axis: int, edges: Edges, spec: Attention, values: Values) -> Array:
    """Return the allowed keys, each tile's part read from the first tile on."""
    there = allowed(spec, values)
    ends = edges(int(there.shape[axis]))
    if len(ends) < 3:
        raise KeyError("there is one tile only")
    return np.take(there, np.concatenate([np.arange(b - a) for a, b in pairwise(ends)]), axis=axis)


# Two variants of one cause: float64 tells them apart, float32 does not.
_NOTHING = "forbidden scores become 0 (a mask multiplied) or nearly 0 (−1e-9 filled in), which leaves them a weight"


def _added_as_one(at: At) -> Any:
    return added(at.spec, at.values) + allowed(at.spec, at.values).astype(float)


def _masked_late(at: At) -> Any:
    return at.right(added(at.spec, at.values)) * allowed(at.spec, at.values).astype(float)


def _by_blocks(n: int, spec: Attention, values: Values) -> Any:
    """Another causal mask, by the blocks of the places j and i + o, with the other masks as they are."""
    window = None if spec.window is None else (spec.sides[0], None)
    n_q, n_k = shape(values)[-2:]
    i = np.arange(n_q)[:, None] + spec.offset(n_q, n_k)
    rest = with_masks(spec, causal=False, prefix=None, window=window)
    return allowed(rest, values) & (np.arange(n_k)[None, :] // n <= i // n)


def _joined(spec: Attention) -> Iterator[Mistake]:
    """Leave out one of several masks, or join them by or."""
    single = {"causal": spec.causal, "padding": spec.padding, "mask": spec.mask is not None,
              "window": spec.window is not None or spec.block is not None, "documents": spec.documents}  # fmt: skip
    if sum(single.values()) < 2:
        return
    if spec.padding:
        yield in_fields("mask", "the padding mask is left out", padding=False)
    if spec.mask is not None:
        yield in_fields("mask", "the mask given is left out", mask=None)
    for words, join in _JOINS.items():
        yield opening(f"several masks are joined by {words}", partial(_as_one, join))


#: How masks are joined, of what each of them allows.
_JOINS: dict[str, Callable[[list[Any]], Any]] = {
    "or: a key is seen that one of them allows": np.logical_or.reduce,
    "exclusive or: a key is seen that one of two masks allows and the other forbids": np.logical_xor.reduce,
    "exclusive or of what they forbid: a key is seen that two masks both forbid":
        lambda found: ~np.logical_xor.reduce([~a for a in found]),
}  # fmt: skip


def _as_one(join: Callable[[list[Any]], Any], spec: Attention, values: Values) -> Any:
    fields = ("causal", "window", "block", "mask", "padding", "documents")
    window = spec.sides if isinstance(spec.window, int) else spec.window
    single = [{f: getattr(spec, f)} for f in fields if getattr(spec, f) != getattr(_BARE, f)]
    single = [one | {"window": window} if "window" in one else one for one in single]
    usual = {"heads": spec.heads, "kv_heads": spec.kv_heads, "alignment": spec.alignment}
    usual |= {"prefix": spec.prefix} if spec.causal else {}
    alone = [replace(_BARE, **(usual | one | ({} if "causal" in one else {"prefix": None}))) for one in single]
    result = [allowed(s, values) for s in alone]
    return join(list(np.broadcast_arrays(*result)))


def _empty_rows() -> Iterator[Mistake]:
    words = "a row without any key is not masked at all: a large number is subtracted from all its scores"
    for told_, make in (("a row without any key gives the mean of all values", _zeros), (words, added)):
        yield in_steps("mask", told_, masked=lambda spec, values, make=make: _where_empty(make, spec, values))  # type: ignore[misc]


def _zeros(spec: Attention, values: Values) -> Any:
    return number(values["scores"], 0)


def empty_as_mean(spec: Attention, values: Values, s: Any) -> Any:
    """Return masked scores with zeros in rows without any key, which then give the mean."""
    return _where_empty(_zeros, spec, values, s)


def _where_empty(make: Open, spec: Attention, values: Values, s: Any = None) -> Any:
    """Masked scores, with others in rows without any key."""
    s = own(spec, values, "masked") if s is None else s
    xp = namespace_of(s)
    return xp.where(~np.asarray(xp.isfinite(s)).any(axis=-1, keepdims=True), make(spec, values), s)

"""Mistakes in masks: which keys a query may attend to, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import masks
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    before,
    both,
    in_fields,
    in_inputs,
    in_steps,
    masked,
    number,
    own,
    shape,
    weights,
    with_fields,
)
from symattn.verification.reference import Values


def grid(spec: Attention, values: Values) -> tuple[Any, Any]:
    """j and i + o, by which a causal mask says j ≤ i + o."""
    *_, n_q, n_k = shape(values)
    o = 0 if spec.alignment == "top-left" else n_k - n_q
    return np.arange(n_k)[None, :], np.arange(n_q)[:, None] + o


def allowed(spec: Attention, values: Values) -> Any:
    """What the specification's masks allow: booleans (…, n_q, n_k)."""
    s = before(spec, values, "masked")
    return np.asarray(namespace_of(s).isfinite(own(spec, values, "masked")))


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


def ignored(spec: Attention, values: Values) -> Any:
    """Nothing is forbidden."""
    return added(spec, values) * 1


def inverted(spec: Attention, values: Values) -> Any:
    """What is allowed is forbidden, and the other way round."""
    return forbid(spec, values, ~allowed(spec, values))


def filled(value: float, spec: Attention, values: Values) -> Any:
    """Forbidden scores replaced by a number that is not far below the others."""
    s = added(spec, values)
    return namespace_of(s).where(allowed(spec, values), s, number(s, value))


def lowered(by: float, spec: Attention, values: Values) -> Any:
    """A number added to forbidden scores."""
    s = added(spec, values)
    return namespace_of(s).where(allowed(spec, values), s, s + number(s, by))


def added_as_one(spec: Attention, values: Values) -> Any:
    """A boolean mask added as 0 and 1."""
    return added(spec, values) + allowed(spec, values).astype(float)


def added_as_forbidden(spec: Attention, values: Values) -> Any:
    """A boolean mask added as 1 where it forbids."""
    return added(spec, values) + (~allowed(spec, values)).astype(float)


def masked_after(spec: Attention, values: Values) -> Any:
    """Weights set to zero after the softmax, and not normalised again."""
    return own(spec, values, "weights", added(spec, values)) * allowed(spec, values).astype(float)


def as_booleans(rule: Callable[..., Any], spec: Attention, values: Values) -> Any:
    """Another causal mask, with the other masks as they are: ``rule(j, i + o)``."""
    open_ = _without_causal(spec, values) & rule(*grid(spec, values))
    return forbid(spec, values, open_)


def _without_causal(spec: Attention, values: Values) -> Any:
    bare = replace(spec, causal=False, prefix=None, window=_as_sides(spec))
    if not bare.masks_anything:
        return np.ones(shape(values), dtype=bool)
    return allowed(bare, values)


def _as_sides(spec: Attention) -> Any:
    return spec.sides if isinstance(spec.window, int) else spec.window


def among_blocks(width: int, j: Any, i: Any) -> Any:
    """Causal among blocks of keys and queries only, by their own numbers."""
    return j // width <= i // width


def among_key_blocks(width: int, j: Any, i: Any) -> Any:
    """A block of keys is seen as a whole where its first key is."""
    return j // width * width <= i


def queries_padded(spec: Attention, values: Values) -> Any:
    """Padding taken from the queries in place of the keys."""
    bare = replace(spec, padding=False)
    open_ = allowed(bare, values) if bare.masks_anything else np.ones(shape(values), dtype=bool)
    keep = np.asarray(values["keep"])
    n_q, n_k = shape(values)[-2:]
    if spec.heads > 1 and keep.ndim == len(shape(values)) - 2 > 1:  # the heads of an item share its padding
        keep = keep[..., None, :]
    if n_q != n_k:
        raise ValueError("as many queries as keys")
    return forbid(spec, values, open_ & keep[..., :, None])


def _causal(spec: Attention) -> bool:
    return spec.causal and not spec.documents


def _square_mask(spec: Attention) -> bool:
    return spec.mask is not None


def _given_mask(spec: Attention) -> bool:
    return spec.mask == "boolean"


def _several_masks(spec: Attention) -> bool:
    window = spec.window is not None or spec.block is not None
    return spec.causal + spec.padding + (spec.mask is not None) + window + spec.documents > 1


def _last_axes(spec: Attention, mask: np.ndarray) -> np.ndarray:
    """The mask as given, its last two axes exchanged."""
    return mask.swapaxes(-1, -2)


def _rule(words: str, rule: Callable[..., Any], applies: Callable[[Attention], bool] = _causal) -> Mistake:
    return in_steps("mask", words, applies, masked=partial(as_booleans, rule), weights=some_keys)


def _not_by_place_alone(spec: Attention) -> bool:
    """Where there is more to ignore than a window, blocks or documents, which have words of their own."""
    return spec.causal or spec.padding or spec.mask is not None


_LEFT = "which leaves them a weight"
# Two variants of one cause: float64 tells them apart, float32 does not.
_NOTHING = f"forbidden scores become 0 (a mask multiplied) or nearly 0 (−1e-9 filled in), {_LEFT}"


def any_mask(spec: Attention, values: Values) -> Any:
    """What one of the masks allows."""
    single = [
        replace(_BARE, causal=spec.causal, prefix=spec.prefix, alignment=spec.alignment),
        replace(_BARE, window=spec.window, alignment=spec.alignment),
        replace(_BARE, block=spec.block, alignment=spec.alignment),
        replace(_BARE, mask=spec.mask),
        replace(_BARE, padding=spec.padding),
    ]
    found = [allowed(replace(s, heads=spec.heads, kv_heads=spec.kv_heads), values) for s in single if s.masks_anything]
    open_ = found[0]
    for more in found[1:]:
        open_ = open_ | more
    return forbid(spec, values, open_)


_BARE = Attention()


MISTAKES: tuple[Mistake, ...] = (
    in_steps("mask", "the mask is ignored", _not_by_place_alone, masked=ignored),
    in_steps("mask", "the mask is inverted", masked, masked=inverted, weights=some_keys),
    *(
        _rule(f"the causal mask goes by blocks of {n}: a query sees all keys of its own block", partial(rule, n))
        for n in (2, 4, 8, 16, 32, 64, 128)
        for rule in (among_blocks, among_key_blocks)
    ),
    in_steps("mask", "a boolean mask is added as 0 and 1", masked, masked=added_as_one),
    in_steps("mask", "a boolean mask is added as 1 where it forbids", masked, masked=added_as_forbidden),
    in_steps("mask", _NOTHING, masked, masked=partial(filled, 0.0)),
    in_steps("mask", _NOTHING, masked, masked=partial(filled, -1e-9)),
    in_steps(
        "mask",
        "weights are masked after the softmax, and not normalised again",
        masked,
        rows=False,
        weights=masked_after,
    ),
    in_fields(
        "mask", "the padding mask is left out", both(_several_masks, lambda s: s.padding), with_fields(padding=False)
    ),
    in_fields("mask", "the mask given is left out", both(_several_masks, _square_mask), with_fields(mask=None)),
    in_inputs("mask", "the mask given is transposed", _square_mask, mask=_last_axes),
    in_inputs("mask", "the mask given is inverted", both(_given_mask, _several_masks), mask=lambda spec, a: ~a),
    in_inputs(
        "mask", "the mask given is read from its end: keys backwards", _square_mask, mask=lambda spec, a: a[..., ::-1]
    ),
    in_inputs("mask", "of the mask given only the first row is read", _square_mask, mask=lambda spec, a: a[..., :1, :]),
    in_inputs(
        "mask", "the padding mask is inverted: True is taken for padding", lambda s: s.padding, keep=lambda spec, a: ~a
    ),
    in_inputs("mask", "padding is counted at the other end", lambda s: s.padding, keep=lambda spec, a: a[..., ::-1]),
    in_inputs(
        "mask",
        "the mask is off by one key: it is read one place too far",
        lambda s: s.padding,
        keep=lambda spec, a: np.roll(a, 1, axis=-1),
    ),
    in_steps(
        "mask",
        "padding is applied to queries, not to keys",
        lambda s: s.padding,
        masked=queries_padded,
        weights=some_keys,
    ),
    in_steps(
        "mask",
        "several masks are joined by or: a key is seen that one of them allows",
        _several_masks,
        masked=any_mask,
        weights=some_keys,
    ),
)

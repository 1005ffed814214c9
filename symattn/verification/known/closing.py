"""Mistakes after the weights: what they meet, how heads are merged, and the output."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import projections, softmax
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    BARE,
    Mistake,
    final,
    in_steps,
    number,
    own,
    plain_softmax,
    several,
    softmaxed,
    unpacked,
)
from symattn.verification.reference import Values


def _met(values: Values) -> Any:
    """What the weights meet."""
    return values["v_shared" if "v_shared" in values else "v"]


def moved_values(by: int, spec: Attention, values: Values) -> Any:
    """Each weight meets the value of another key."""
    v = _met(values)
    return namespace_of(v).roll(v, by, axis=-2)


def flipped_values(spec: Attention, values: Values) -> Any:
    """Values from the last key to the first."""
    v = _met(values)
    return namespace_of(v).flip(v, axis=-2)


def transposed_values(spec: Attention, values: Values) -> Any:
    """The values' memory read as if they lay by columns."""
    v = _met(values)
    return namespace_of(v).reshape(v.mT, v.shape)


def first_head_values(spec: Attention, values: Values) -> Any:
    """The first head's values for every head."""
    v = _met(values)
    return namespace_of(v).broadcast_to(v[..., :1, :, :], v.shape)


def other_head_values(spec: Attention, values: Values) -> Any:
    """Each head with the values of the next one."""
    v = _met(values)
    return namespace_of(v).roll(v, -1, axis=-3)


def first_batch_values(spec: Attention, values: Values) -> Any:
    """The first batch item's values for every one."""
    v = _met(values)
    if len(v.shape) < 3 + (spec.heads > 1):
        raise KeyError("there is no batch")
    return namespace_of(v).broadcast_to(v[:1, ...], v.shape)


def weights_transposed(spec: Attention, values: Values) -> Any:
    """Aᵀ."""
    return own(spec, values, "weights").mT


def unweighted(spec: Attention, values: Values) -> Any:
    """All weights of a row alike, over the keys that are allowed."""
    s = final(spec, values)
    xp = namespace_of(s)
    return softmax.softmax(xp.where(xp.isfinite(s), s * 0 if not spec.masks_anything else 0, s), fully_masked="zeros")


def hardest(spec: Attention, values: Values) -> Any:
    """Weight 1 for the key with the highest score."""
    s = final(spec, values)
    xp = namespace_of(s)
    top = s == xp.max(s, axis=-1, keepdims=True)
    e = xp.where(top, number(s, 1), 0)
    return e / xp.sum(e, axis=-1, keepdims=True)


def _projected_out(values: Values, merged: Any) -> Any:
    return projections.project(merged, values["w_o"], values.get("b_o")) if "w_o" in values else merged


def merged_bare(spec: Attention, values: Values) -> Any:
    """Heads laid side by side by a reshape alone, their axis not moved."""
    a = values["attended"]
    *batch, _, n, d = (int(k) for k in a.shape)
    return _projected_out(values, namespace_of(a).reshape(a, (*batch, n, spec.heads * d)))


def merged_backwards(spec: Attention, values: Values) -> Any:
    """Heads side by side, the last one first."""
    a = values["attended"]
    return _projected_out(values, projections.merge_heads(namespace_of(a).flip(a, axis=-3)))


def merged_interleaved(spec: Attention, values: Values) -> Any:
    """The first columns of all heads, then the second ones, and so on."""
    a = values["attended"]
    xp, (*batch, h, n, d) = namespace_of(a), (int(k) for k in a.shape)
    return _projected_out(values, xp.reshape(xp.moveaxis(a, -3, -1), (*batch, n, h * d)))


def mean_of_heads(spec: Attention, values: Values) -> Any:
    """The heads' mean in place of each of them."""
    a = values["attended"]
    xp = namespace_of(a)
    mean = xp.broadcast_to(xp.mean(a, axis=-3, keepdims=True), a.shape)
    return _projected_out(values, projections.merge_heads(mean))


def no_output_projection(spec: Attention, values: Values) -> Any:
    """The heads side by side, W_O left out."""
    return projections.merge_heads(values["attended"]) if spec.heads > 1 else values["attended"]


def no_output_bias(spec: Attention, values: Values) -> Any:
    """W_O without its bias."""
    if "b_o" not in values:
        raise KeyError("there is no bias")
    merged = no_output_projection(spec, values)
    return projections.project(merged, values["w_o"])


def output_transposed(spec: Attention, values: Values) -> Any:
    """W_Oᵀ."""
    return projections.project(no_output_projection(spec, values), values["w_o"].mT, values.get("b_o"))


def output_with_tokens(spec: Attention, values: Values) -> Any:
    """The tokens added to the output."""
    return own(spec, values, "output") + values["x"]


def _across(x: Any) -> Any:
    """Heads and batch read in the other order: what lies head by head is taken to lie item by item."""
    if len(x.shape) < 4:
        raise KeyError("there is no batch")
    xp, (*rest, b, h, n, d) = namespace_of(x), (int(k) for k in x.shape)
    return xp.reshape(xp.swapaxes(x, -4, -3), (*rest, b, h, n, d))


def weights_across(spec: Attention, values: Values) -> Any:
    """The weights of other heads and items; see ``values_across``."""
    return _across(own(spec, values, "weights"))


def values_across(spec: Attention, values: Values) -> Any:
    """The values of other heads and items, so that whole outputs change places."""
    return _across(_met(values))


def keys_flipped(spec: Attention, values: Values) -> Any:
    """Scores of the keys in the opposite order."""
    s = own(spec, values, "scores")
    return namespace_of(s).flip(s, axis=-1)


def keys_moved(by: int, spec: Attention, values: Values) -> Any:
    """Scores of the keys beside."""
    s = own(spec, values, "scores")
    return namespace_of(s).roll(s, by, axis=-1)


def weightless(column: int, spec: Attention, values: Values) -> Any:
    """The weight of one key as 0, and the others as they are."""
    a = own(spec, values, "weights")
    n = int(a.shape[-1])
    return a * (np.arange(n) != column % n).astype(float)


def without_column(column: int, spec: Attention, values: Values) -> Any:
    """One column of the values as 0."""
    v = _met(values)
    n = int(v.shape[-1])
    return v * (np.arange(n) != column % n).astype(float)


def positive_values(spec: Attention, values: Values) -> Any:
    """max(V, 0)."""
    v = _met(values)
    return namespace_of(v).maximum(v, 0)


MISTAKES: tuple[Mistake, ...] = (
    in_steps("values", "keys are used as values", of="k"),
    in_steps("values", "queries are used as values", of="q"),
    in_steps("values", "the tokens are used as values", unpacked, of="x"),
    in_steps("values", "the weights are transposed", softmaxed, rows=False, weights=weights_transposed),
    in_steps("values", "each weight meets the value of the next key", of="changed", changed=partial(moved_values, -1)),
    in_steps("values", "each weight meets the value of the key before", of="changed", changed=partial(moved_values, 1)),
    in_steps("values", "values are taken from the last key to the first", of="changed", changed=flipped_values),
    in_steps("values", "values are read as if they were transposed", of="changed", changed=transposed_values),
    in_steps(
        "values", "the first head's values are taken for every head", several, of="changed", changed=first_head_values
    ),
    in_steps("values", "each head takes the values of the next one", several, of="changed", changed=other_head_values),
    in_steps(
        "values", "the first batch item's values are taken for every one", of="changed", changed=first_batch_values
    ),
    in_steps("scale", "the scores have no influence: all weights of a row are equal", softmaxed, weights=unweighted),
    in_steps("values", "only the key with the highest score is taken", plain_softmax, weights=hardest),
    in_steps("merge", f"heads are merged {BARE}", several, output=merged_bare),
    in_steps("merge", "heads are merged in the opposite order", several, output=merged_backwards),
    in_steps("merge", "columns of heads are interleaved where they are merged", several, output=merged_interleaved),
    in_steps("merge", "the mean of the heads is taken in place of each of them", several, output=mean_of_heads),
    in_steps(
        "merge",
        "heads and batch items are mixed: what lies head by head is read item by item",
        several,
        of="changed",
        weights=weights_across,
        changed=values_across,
    ),
    in_steps("output", "the output projection is left out", output=no_output_projection),
    in_steps("output", "the bias of the output is left out", output=no_output_bias),
    in_steps("output", "the output projection is transposed", output=output_transposed),
    in_steps("residual", "the tokens are added to the output", output=output_with_tokens),
    in_steps("values", "keys are taken from the last to the first, values are not", unpacked, scores=keys_flipped),
    in_steps("values", "keys are one place on from their values", unpacked, scores=partial(keys_moved, 1)),
    in_steps("values", "keys are one place back from their values", unpacked, scores=partial(keys_moved, -1)),
    in_steps("values", "the first key's value is lost: 0 is taken for it", rows=False, weights=partial(weightless, 0)),
    in_steps("values", "the last key's value is lost: 0 is taken for it", rows=False, weights=partial(weightless, -1)),
    in_steps(
        "values",
        "the first column of the values is lost: 0 is taken for it",
        of="changed",
        changed=partial(without_column, 0),
    ),
    in_steps(
        "values",
        "the last column of the values is lost: 0 is taken for it",
        of="changed",
        changed=partial(without_column, -1),
    ),
    in_steps("values", "negative values become 0", of="changed", changed=positive_values),
)

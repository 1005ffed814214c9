"""Wrong steps: what a mistake computes in place of a step of attention, on any kind of array.

Each takes the specification and all arrays computed so far, as ``reference.Change`` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import masks, projections, scores, softmax
from symattn.attention.spec import Attention
from symattn.verification.reference import SCORES, Values


def _shape(values: Values) -> tuple[int, ...]:
    """(…, n_q, n_k)"""
    return tuple(int(n) for n in values["scores"].shape)


def _size(values: Values, name: str, axis: int = -1) -> int:
    return int(values[name].shape[axis])


def _root(values: Values, n: int) -> Any:
    xp = namespace_of(values["scores"])
    return xp.sqrt(xp.asarray(n, dtype=values["scores"].dtype))


# --- score and scale -------------------------------------------------------------------------------------------------


def product(left: str, right: str, spec: Attention, values: Values) -> Any:
    """left rightᵀ in place of Q Kᵀ."""
    return scores.dot_scores(values[left], values[right])


def by_width(spec: Attention, values: Values) -> Any:
    """S / d_k."""
    return values["scores"] / _size(values, "q")


def times_root(spec: Attention, values: Values) -> Any:
    """S √d_k."""
    return values["scores"] * _root(values, _size(values, "q"))


def unscaled(spec: Attention, values: Values) -> Any:
    """S."""
    return values["scores"] * 1


def by_root_of_model(spec: Attention, values: Values) -> Any:
    """S / √d_model; where q, k, v come with an axis of heads, d_model is all heads together."""
    if len(values["q"].shape) > 3:
        return values["scores"] / _root(values, _size(values, "q", -3) * _size(values, "q"))
    return values["scores"] / _root(values, _size(values, "x"))


def by_root_of(name: str, axis: int, spec: Attention, values: Values) -> Any:
    """S over the root of another size."""
    return values["scores"] / _root(values, _size(values, name, axis))


# --- mask ------------------------------------------------------------------------------------------------------------


def _grid(spec: Attention, values: Values) -> tuple[Any, Any]:
    """j and i + o, by which a causal mask says j ≤ i + o."""
    *_, n_q, n_k = _shape(values)
    o = 0 if spec.alignment == "top-left" else n_k - n_q
    return np.arange(n_k)[None, :], np.arange(n_q)[:, None] + o


def _allowed(spec: Attention, values: Values, causal: Any = None) -> Any:
    """What the specification's masks allow, with another causal mask where one is given."""
    if causal is None and spec.masks_anything:
        step = next(s for s in spec.pipeline(frozenset(values)) if s.name == "masked")
        return np.asarray(namespace_of(values["scores"]).isfinite(step.run(*[values[n] for n in step.of])))
    open_ = np.ones(_shape(values), dtype=bool)
    if spec.mask == "boolean":
        open_ &= np.asarray(values["mask"])
    if spec.mask == "additive":
        open_ &= np.asarray(namespace_of(values["scores"]).isfinite(values["mask"]))
    if spec.padding:
        open_ &= masks.padding(np.asarray(values["keep"]))
    if spec.causal:
        j, i = _grid(spec, values)
        open_ &= (j <= i) if causal is None else causal
    return open_


def _biased(spec: Attention, values: Values) -> Any:
    """The scores before the masks, with the finite part of an additive one."""
    s = values[[name for name in SCORES if name in values and name != "masked"][-1]]
    if spec.mask != "additive":
        return s
    xp = namespace_of(s)
    return s + xp.where(xp.isfinite(values["mask"]), values["mask"], 0)


def shifted(by: int, spec: Attention, values: Values) -> Any:
    """j ≤ i + o + by."""
    j, i = _grid(spec, values)
    return masks.forbid(_biased(spec, values), _allowed(spec, values, j <= i + by))


def other_corner(spec: Attention, values: Values) -> Any:
    """The causal mask of the other alignment."""
    *_, n_q, n_k = _shape(values)
    o = n_k - n_q if spec.alignment == "top-left" else 0
    causal = np.arange(n_k)[None, :] <= np.arange(n_q)[:, None] + o
    return masks.forbid(_biased(spec, values), _allowed(spec, values, causal))


def inverted(spec: Attention, values: Values) -> Any:
    """What is allowed is forbidden, and the other way round."""
    return masks.forbid(_biased(spec, values), ~_allowed(spec, values))


def upper_triangle(spec: Attention, values: Values) -> Any:
    """j ≥ i + o."""
    j, i = _grid(spec, values)
    return masks.forbid(_biased(spec, values), _allowed(spec, values, j >= i))


def ignored(spec: Attention, values: Values) -> Any:
    """Nothing is forbidden."""
    return _biased(spec, values) * 1


def added(spec: Attention, values: Values) -> Any:
    """A boolean mask added as 0 and 1."""
    return _biased(spec, values) + _allowed(spec, values).astype(float)


def filled(value: float, spec: Attention, values: Values) -> Any:
    """Forbidden scores replaced by a number that is not far below the others."""
    xp = namespace_of(values["scores"])
    return xp.where(_allowed(spec, values), _biased(spec, values), xp.asarray(value))


def masked_after(spec: Attention, values: Values) -> Any:
    """Weights set to zero after the softmax, and not normalised again."""
    return softmax.softmax(_biased(spec, values)) * _allowed(spec, values).astype(float)


def without(part: str, spec: Attention, values: Values) -> Any:
    """Of several masks, one left out."""
    open_ = np.ones(_shape(values), dtype=bool)
    if part != "mask" and spec.mask is not None:
        mask = values["mask"]
        open_ &= np.asarray(mask if spec.mask == "boolean" else namespace_of(values["scores"]).isfinite(mask))
    if part != "padding" and spec.padding:
        open_ &= masks.padding(np.asarray(values["keep"]))
    if part != "causal" and spec.causal:
        j, i = _grid(spec, values)
        open_ &= j <= i
    return masks.forbid(_biased(spec, values), open_)


# --- softmax ---------------------------------------------------------------------------------------------------------


def _received(values: Values) -> Any:
    return values[[name for name in SCORES if name in values][-1]]


def some_keys(spec: Attention, values: Values) -> Any:
    """Softmax over the keys; a row that the mistake leaves none is undefined, since code then gives zeros, NaN, or
    (where −10⁹ stands for −∞) weights that are no consequence of the mistake."""
    return softmax.softmax(_received(values), fully_masked="nan")


def over_queries(spec: Attention, values: Values) -> Any:
    """Softmax over the queries: columns sum to 1."""
    return softmax.softmax(_received(values).mT, fully_masked="zeros").mT


def over_heads(spec: Attention, values: Values) -> Any:
    """Softmax over the heads."""
    xp, s = namespace_of(values["scores"]), _received(values)
    return xp.moveaxis(softmax.softmax(xp.moveaxis(s, -3, -1), fully_masked="zeros"), -1, -3)


def not_normalised(spec: Attention, values: Values) -> Any:
    """e^{s − m} without division by the sum."""
    return softmax.exponentials(_received(values))


def powers_of_two(spec: Attention, values: Values) -> Any:
    """2^s in place of e^s."""
    s = _received(values)
    return softmax.softmax(s * namespace_of(s).log(namespace_of(s).asarray(2, dtype=s.dtype)))


def padded_tile(width: int, spec: Attention, values: Values) -> Any:
    """Zero keys that fill the last tile take part in the sum."""
    xp, s = namespace_of(values["scores"]), _received(values)
    extra = -int(s.shape[-1]) % width
    m = xp.maximum(softmax.row_max(s), 0)
    e = xp.exp(s - m)
    return e / (xp.sum(e, axis=-1, keepdims=True) + xp.exp(-m) * extra)


def one_key_less(column: int, spec: Attention, values: Values) -> Any:
    """The first or the last key takes no part."""
    n = _shape(values)[-1]
    kept = np.arange(n) != column % n
    return softmax.softmax(masks.forbid(_received(values), kept), fully_masked="nan")


# --- roles, values, output -------------------------------------------------------------------------------------------


def weights_transposed(spec: Attention, values: Values) -> Any:
    """Aᵀ."""
    return softmax.softmax(_received(values), fully_masked="zeros").mT


def merged_bare(spec: Attention, values: Values) -> Any:
    """Heads laid side by side by a reshape alone, their axis not moved."""
    a = values["attended"]
    shape = (_size(values, "attended", -2), spec.heads * _size(values, "attended"))
    return _projected_out(values, namespace_of(a).reshape(a, shape))


def split_bare(role: str, spec: Attention, values: Values) -> Any:
    """Heads as blocks of a reshape alone, their axis not moved."""
    y = projected(role, role, spec, values, split=False)
    n, width = (int(k) for k in y.shape)
    return namespace_of(y).reshape(y, (spec.heads, n, width // spec.heads))


def projected(role: str, by: str, spec: Attention, values: Values, split: bool = True) -> Any:
    """q, k or v by the projection of another of them."""
    source = values["y"] if "y" in values and role != "q" else values["x"]
    y = projections.project(source, values[f"w_{by}"], values.get(f"b_{by}"))
    return projections.split_heads(y, spec.heads) if split and spec.heads > 1 else y


def from_queries(role: str, spec: Attention, values: Values) -> Any:
    """Cross-attention with keys or values from the queries' tokens."""
    y = projections.project(values["x"], values[f"w_{role}"], values.get(f"b_{role}"))
    return projections.split_heads(y, spec.heads) if spec.heads > 1 else y


def no_output_projection(spec: Attention, values: Values) -> Any:
    """The heads side by side, W_O left out."""
    return projections.merge_heads(values["attended"]) if spec.heads > 1 else values["attended"]


def _projected_out(values: Values, merged: Any) -> Any:
    return projections.project(merged, values["w_o"], values.get("b_o")) if "w_o" in values else merged

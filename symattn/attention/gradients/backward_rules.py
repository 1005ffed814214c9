"""For each step of attention, the rule that takes a gradient back through it: which formula, with which fields."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention import masks
from symattn.attention.gradients import backward_steps as steps
from symattn.attention.gradients import positions, rows, scores
from symattn.attention.gradients.backward_steps import At, Gradients, Rule
from symattn.attention.positions import relative
from symattn.attention.positions.buckets import t5_bucket
from symattn.attention.positions.fields import Alibi, Buckets, Disentangled, Shaw, TransformerXL
from symattn.attention.scores import per_head, scale_by, scale_by_root, scale_by_width
from symattn.attention.stages.positions import _row

# -- scores ------------------------------------------------------------------------------------------------------------
_SCORES: dict[str, Callable[..., Gradients]] = {
    "dot": scores.dot_gradients,
    "general": scores.general_gradients,
    "additive": scores.additive_gradients,
    "cosine": scores.cosine_gradients,
    "distance": scores.distance_gradients,
}


def scored(at: At, g: Any) -> Gradients:
    return _SCORES[at.spec.score](*at.x, g)


def scaled(at: At, g: Any) -> Gradients:
    """The scale is a factor of the gradient, too."""
    spec, s = at.spec, at.x[0]
    if spec.scale == "given":
        t = at.x[1]
        ds, dt = scores.scale_gradients(s, per_head(t) if spec.heads > 1 else t, g)
        return ds, namespace_of(dt).reshape(dt, t.shape)
    if spec.scale is None:
        terms = spec.position.terms if isinstance(spec.position, Disentangled) else 1
        return scale_by_root(g, at.x[1], terms), None
    if spec.scale == "1/d_k":
        return scale_by_width(g, at.x[1]), None
    return (scale_by(g, spec.scale),)


def capped(at: At, g: Any) -> Gradients:
    return (scores.softcap_gradient(at.y, at.spec.softcap, g),)


def biased(at: At, g: Any) -> Gradients:
    return g, _of_mask(at, at.x[1], g)


def masked(at: At, g: Any) -> Gradients:
    """Nothing comes back from forbidden scores; an additive mask is a bias."""
    ds = scores.mask_gradient(at.y, g)
    rest = [_of_mask(at, x, ds) if n == "mask" and at.spec.mask == "additive" else None for n, x in _others(at)]
    return ds, *rest


def _others(at: At) -> list[tuple[str, Any]]:
    return list(zip(at.names[1:], at.x[1:], strict=True))


def _of_mask(at: At, mask: Any, g: Any) -> Any:
    """The gradient by what was added to scores, and is the same for heads and rows that it lacks."""
    wide = masks.for_heads(mask, g) if at.spec.heads > 1 else mask
    return namespace_of(g).reshape(scores.summed_like(g, wide), mask.shape)


# -- positions in scores -----------------------------------------------------------------------------------------------
def positioned(at: At, g: Any) -> Gradients:
    asked = at.spec.position
    if isinstance(asked, Alibi):
        return g, positions.slopes_gradient(at.x[1], g, asked.two_sided, at.spec.alignment)
    ahead = _ahead(g, at.spec.alignment)
    if isinstance(asked, Buckets):
        index = t5_bucket(ahead, asked.number, asked.max_distance, asked.bidirectional)
        return g, positions.bucket_gradient(at.x[1], index, g)
    if isinstance(asked, Shaw):
        return g, *positions.relative_key_gradients(at.x[1], at.x[2], relative.clipped(ahead, asked.most), g)
    if isinstance(asked, TransformerXL):
        _, q, k, table, u, w = at.x
        index = relative.from_far_to_near(_ahead(g, "bottom-right"), g.shape[-1], table.shape[-2])
        return g, *positions.bias_gradients(q, k, table, index, u, w, g)
    assert isinstance(asked, Disentangled)
    return g, *_disentangled(asked, at.x[1:], -ahead, g)


def _ahead(s: Any, alignment: str) -> Any:
    return relative.ahead(s.shape[-2], s.shape[-1], s, alignment)


def _disentangled(asked: Disentangled, given: Gradients, behind: Any, g: Any) -> Gradients:
    found: list[Any] = []
    if asked.to_position:
        q, table = given[:2]
        found += positions.relative_key_gradients(q, table, _row(asked, behind), g)
    if asked.to_content:
        k, table = given[-2:]
        index = _row(asked, -behind if asked.backwards else behind)
        found += positions.relative_key_gradients(k, table, index.mT, g.mT)
    return tuple(found)


# -- weights and values ------------------------------------------------------------------------------------------------
def weighed(at: At, g: Any) -> Gradients:
    spec, s = at.spec, at.x[0]
    if spec.sink == "given":
        ds, db = rows.sink_gradients(at.y, g, spec.base)
        return ds, _of_sink(at, db)
    if spec.normaliser == "sigmoid":
        return (rows.sigmoid_gradient(at.y, g),)
    if spec.normaliser == "relu":
        return (rows.relu_gradient(s, g),)
    if spec.normaliser == "sparsemax":
        return (rows.sparsemax_gradient(at.y, g),)
    if spec.normaliser == "entmax":
        return (rows.entmax15_gradient(at.y, g),)
    return (rows.softmax_gradient(at.y, g, spec.base),)


def _of_sink(at: At, db: Any) -> Any:
    """One sink for all rows (of a head)."""
    sink = at.x[1]
    wide = per_head(sink) if at.spec.heads > 1 else sink
    return namespace_of(db).reshape(scores.summed_like(db, wide), sink.shape)


def summed(at: At, g: Any) -> Gradients:
    """log Σ e^s."""
    spec, lse, wide = at.spec, at.y[..., None], g[..., None]
    ds = rows.log_sum_exp_gradient(at.x[0], lse, wide, spec.base)
    if spec.sink != "given":
        return (ds,)
    sink = per_head(at.x[1]) if spec.heads > 1 else at.x[1]
    return ds, _of_sink(at, rows.log_sum_exp_gradient(sink, lse, wide, spec.base))


def dropped(at: At, g: Any) -> Gradients:
    keep = masks.for_heads(at.x[1], g) if at.spec.heads > 1 else at.x[1]
    return rows.dropout_gradient(keep, g, Fraction(str(at.spec.dropout))), None


def valued(at: At, g: Any) -> Gradients:
    """A V, and the rows of a table of relative values."""
    p, v, *table = at.x
    dp, dv = scores.product_gradients(p, v, g)
    if not table:
        return dp, dv
    asked = at.spec.position
    assert isinstance(asked, Shaw)
    index = relative.clipped(_ahead(p, at.spec.alignment), asked.most)
    more, dtable = positions.relative_value_gradients(p, table[0], index, g)
    return dp + more, dv, dtable


def attended(at: At, g: Any) -> Gradients:
    """A V; or weighted latents as weighted values; or the heads merged and projected."""
    if at.names[0] in ("weights", "dropped"):
        return valued(at, g)
    return steps.expanded(at, g) if at.names[-1] == "w_uv" else steps.merged(at, g)


#: By the name of a step.
RULES: dict[str, Rule] = {
    **{f"{kind}_{role}": steps.unpacked(role) for kind in "wb" for role in "qkv"},
    **dict.fromkeys(("q", "k", "v", "k_n", "r_k", "p_k", "p_q"), steps.projected),
    **dict.fromkeys(("c_q", "c_kv"), steps.compressed),
    "k_r": steps.of_tokens,
    "q_n": steps.first_columns,
    "q_r": steps.last_columns,
    "q_absorbed": steps.absorbed,
    "v_absorbed": steps.alike,
    **dict.fromkeys(("q_joined", "k_joined"), steps.joined),
    **dict.fromkeys(("q_normed", "k_normed"), steps.normed),
    **dict.fromkeys(("cos", "sin", "cos_q", "sin_q", "slopes"), steps.nothing),
    **dict.fromkeys(("q_rotated", "k_rotated", "q_r_rotated", "k_r_rotated"), steps.rotated),
    **dict.fromkeys(("k_shared", "v_shared"), steps.shared),
    **dict.fromkeys(("q_cut", "k_cut"), steps.truncated),
    "scores": scored,
    "positioned": positioned,
    "scaled": scaled,
    "capped": capped,
    "biased": biased,
    "masked": masked,
    "weights": weighed,
    "lse": summed,
    "dropped": dropped,
    **dict.fromkeys(("attended_latents", "attended", "output"), attended),
}

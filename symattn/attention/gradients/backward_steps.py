"""For each step of attention before the scores, the rule that takes a gradient back through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from symattn.attention.gradients import linear, norms, positions, scores
from symattn.attention.gradients.attention import shared_gradient
from symattn.attention.positions import rotary
from symattn.attention.positions.fields import Rotary
from symattn.attention.projections import merge_heads, project, split_heads
from symattn.attention.spec import Attention

Gradients = tuple[Any, ...]


@dataclass(frozen=True)
class At:
    """A step on the way back: the specification, the names and arrays it was computed of, and what it computed."""

    spec: Attention
    names: tuple[str, ...]
    x: tuple[Any, ...]
    y: Any


Rule = Callable[[At, Any], Gradients]


def nothing(at: At, g: Any) -> Gradients:
    """What is the same for all numbers near by, such as tables of positions."""
    return tuple(None for _ in at.x)


# -- projections and heads ---------------------------------------------------------------------------------------------
def projected(at: At, g: Any) -> Gradients:
    """X W + b, split into heads; or the tokens themselves."""
    if len(at.x) == 1:
        return (g,)
    whole = merge_heads(g) if at.spec.heads > 1 else g
    return linear.project_gradients(at.x[0], at.x[1], whole)[: len(at.x)]


def of_tokens(at: At, g: Any) -> Gradients:
    """X W without heads."""
    x, w = at.x
    return linear.project_gradients(x, w, g)[:2]


def unpacked(role: str) -> Rule:
    """The columns of one role of a packed matrix or bias."""
    return lambda at, g: (linear.unpacked_gradient(at.x[0], g, role, at.spec.heads, at.spec.key_heads),)


def merged(at: At, g: Any) -> Gradients:
    """The heads side by side, times W_O."""
    spec, attended = at.spec, at.x[0]
    heads = spec.heads > 1 and attended.ndim > at.y.ndim
    if len(at.x) == 1:
        return (split_heads(g, spec.heads) if heads else g,)
    flat = merge_heads(attended) if heads else attended
    dx, *rest = linear.project_gradients(flat, at.x[1], g)
    return (split_heads(dx, spec.heads) if heads else dx, *rest)[: len(at.x)]


def shared(at: At, g: Any) -> Gradients:
    """A head of keys or values that several heads of queries read."""
    return (shared_gradient(g, at.spec.heads // at.spec.key_heads),)


# -- latents -----------------------------------------------------------------------------------------------------------
def compressed(at: At, g: Any) -> Gradients:
    """X W, normalised if asked."""
    x, w, *gain = at.x
    asked = at.spec.latent
    assert asked is not None
    if asked.norm is None:
        return of_tokens(at, g)
    dc, dgain, _ = norms.rms_norm_gradients(project(x, w), g, asked.eps, *gain)
    return (*linear.project_gradients(x, w, dc)[:2], *([dgain] if gain else []))


def first_columns(at: At, g: Any) -> Gradients:
    """The part of the queries without positions; the second array says only how wide it is."""
    return linear.padded(g, 0, at.x[0].shape[-1] - g.shape[-1]), None


def last_columns(at: At, g: Any) -> Gradients:
    """The part of the queries with positions."""
    return linear.padded(g, at.x[0].shape[-1] - g.shape[-1], 0), None


def truncated(at: At, g: Any) -> Gradients:
    return (linear.padded(g, 0, at.x[0].shape[-1] - g.shape[-1]),)


def absorbed(at: At, g: Any) -> Gradients:
    """Q W_UKᵀ, head by head."""
    q, w = at.x
    dq, dw = scores.product_gradients(q, _of_heads(at.spec, w).mT, g)
    return dq, _side_by_side(at.spec, dw.mT)


def expanded(at: At, g: Any) -> Gradients:
    """O W_UV, head by head."""
    o, w = at.x
    do, dw = scores.product_gradients(o, _of_heads(at.spec, w), g)
    return do, _side_by_side(at.spec, dw)


def _of_heads(spec: Attention, w: Any) -> Any:
    return split_heads(w, spec.heads) if spec.heads > 1 else w


def _side_by_side(spec: Attention, dw: Any) -> Any:
    return merge_heads(dw) if spec.heads > 1 else dw


def joined(at: At, g: Any) -> Gradients:
    """[own, shared]; absorbed keys have an axis of heads of length 1 in front."""
    own, shared = at.x
    alone = g.ndim > max(own.ndim, shared.ndim)
    return linear.joined_gradients(own, shared, g[..., 0, :, :] if alone else g)


def alike(at: At, g: Any) -> Gradients:
    """The same for every head, by an axis of length 1."""
    return (g[..., 0, :, :] if g.ndim > at.x[0].ndim else g,)


# -- queries and keys --------------------------------------------------------------------------------------------------
def normed(at: At, g: Any) -> Gradients:
    """RMSNorm, LayerNorm or length 1, with gain and bias where given."""
    if at.spec.qk_norm == "l2":
        return (norms.unit_gradient(at.x[0], g),)
    given = {name.split("_")[0]: x for name, x in zip(at.names[1:], at.x[1:], strict=True)}
    back = norms.rms_norm_gradients if at.spec.qk_norm == "rms" else norms.layer_norm_gradients
    dx, dgain, dbias = back(at.x[0], g, at.spec.eps, given.get("g"))
    return (dx, *({"g": dgain, "beta": dbias}[n] for n in given))


def rotated(at: At, g: Any) -> Gradients:
    """Rotated back; tables that were given have gradients, too."""
    x, cos, sin = at.x
    asked, alignment = at.spec.position, at.spec.alignment
    assert isinstance(asked, Rotary)
    some = x.shape[-2] != cos.shape[-2]  # queries rotated by some rows of the keys' tables
    rows = [rotary.for_queries(t, x.shape[-2], alignment) if some else t for t in (cos, sin)]
    wide = [rotary.for_heads(t, x) for t in rows]
    dx, *found = positions.rotate_gradients(x, wide[0], wide[1], g, asked.layout)
    found = [d[..., 0, :, :] if d.ndim > t.ndim else d for d, t in zip(found, rows, strict=True)]
    return dx, *(positions.rows_of_all(d, cos, alignment) if some else d for d in found)

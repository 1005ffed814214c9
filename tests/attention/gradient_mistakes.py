"""Mistakes in backward passes: where each shows, which function has it, and what it does in the place of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.gradients import backward_layers, backward_rules, backward_steps
from symattn.attention.gradients import layers as gradients_layers
from symattn.attention.gradients import linear as gradients_linear
from symattn.attention.gradients import norms as gradients_norms
from symattn.attention.gradients import positions as gradients_positions
from symattn.attention.gradients import rows as gradients_rows
from symattn.attention.gradients import scores as gradients_scores
from symattn.attention.layers.block_parts import _added
from symattn.attention.norms import unit
from symattn.attention.positions.rotary import rotate


def _sum(x: Any, axis: Any = -1) -> Any:
    return namespace_of(x).sum(x, axis=axis, keepdims=True)


def _with(function: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` and then ``change`` of what it gives."""
    return lambda *args, **how: change(*found) if isinstance(found := function(*args, **how), tuple) else change(found)


ROWS, SCORES, NORMS, LINEAR = gradients_rows, gradients_scores, gradients_norms, gradients_linear
PLACES, LAYERS = gradients_positions, gradients_layers
_RMS = gradients_norms.rms_norm_gradients
#: By what is wrong: the case that shows it, a module or a table, the name in it, and the mistake.
MISTAKES: dict[str, tuple[str, Any, Any, Callable[..., Any]]] = {
    "no row sum": ("scaled dot", ROWS, "softmax_gradient", lambda p, g, base=None: p * g),
    "row sum outside": ("causal", ROWS, "softmax_gradient", lambda p, g, base=None: p * g - _sum(p * g)),
    "row sum over queries": (
        "scaled dot",
        ROWS,
        "softmax_gradient",
        lambda p, g, base=None: p * (g - _sum(p * g, axis=-2)),
    ),
    "no scale": ("scaled dot", backward_rules, "scale_by_root", lambda g, q, terms=1: g),
    "no terms in the scale": (
        "DeBERTa",
        backward_rules,
        "scale_by_root",
        lambda g, q, terms=1, f=backward_rules.scale_by_root: f(g, q),
    ),
    "the sink's sign": ("sink", ROWS, "sink_gradients", _with(ROWS.sink_gradients, lambda ds, db: (ds, -db))),
    "the sink without its weight": (
        "sink",
        ROWS,
        "sink_gradients",
        lambda p, g, base=None: (ROWS.softmax_gradient(p, g), -_sum(p * g)),
    ),
    "rows normalised without the sink": (
        "softmax off by one",
        ROWS,
        "softmax_gradient",
        lambda p, g, base=None: p * (g - _sum(p * g) / _sum(p)),
    ),
    "no log 2": ("base 2", ROWS, "softmax_gradient", lambda p, g, base=None: p * (g - _sum(p * g))),
    "log 2 in L": (
        "combined: lse in powers of two",
        ROWS,
        "log_sum_exp_gradient",
        lambda s, lse, g, base=None, f=ROWS.log_sum_exp_gradient: f(s, lse, g, base) * ROWS.logarithm_of(base, s),
    ),
    "L's sink": (
        "combined: lse with a sink",
        ROWS,
        "log_sum_exp_gradient",
        lambda s, lse, g, base=None, f=ROWS.log_sum_exp_gradient: f(s, lse, g) if s.shape[-1] > 1 else 0 * f(s, lse, g),
    ),
    "sigmoid's slope": ("sigmoid", ROWS, "sigmoid_gradient", lambda a, g: a * g),
    "ReLU over n_k": ("ReLU", ROWS, "relu_gradient", lambda s, g: namespace_of(s).where(s > 0, g, 0)),
    "mean over all keys": (
        "sparsemax",
        ROWS,
        "sparsemax_gradient",
        lambda p, g: namespace_of(p).where(p > 0, g - namespace_of(g).mean(g, axis=-1, keepdims=True), 0),
    ),
    "entmax as sparsemax": ("entmax", ROWS, "entmax15_gradient", ROWS.sparsemax_gradient),
    "dropout not scaled": (
        "dropout",
        ROWS,
        "dropout_gradient",
        lambda keep, g, rate: namespace_of(g).where(keep, g, 0),
    ),
    "no slope of the cap": ("softcap", SCORES, "softcap_gradient", lambda y, cap, g: g),
    "the cap's slope without c": ("softcap", SCORES, "softcap_gradient", lambda y, cap, g: g * (1 - y * y)),
    "heads not summed": (
        "grouped-query",
        backward_steps,
        "shared_gradient",
        lambda g, times: g[..., ::times, :, :],
    ),
    "heads summed in the other order": (
        "grouped-query",
        backward_steps,
        "shared_gradient",
        lambda g, times: sum(namespace_of(g).split(g, times, axis=-3)),
    ),
    "rotated forth": (
        "rotary, half",
        PLACES,
        "rotate_gradients",
        lambda x, cos, sin, g, layout: (rotate(g, cos, sin, layout), 0 * cos, 0 * sin),
    ),
    "the other layout": (
        "rotary, interleaved",
        PLACES,
        "rotate_gradients",
        lambda x, cos, sin, g, layout: (rotate(g, cos, -sin, "half"), 0 * cos, 0 * sin),
    ),
    "sines for cosines": (
        "rotary, given tables",
        PLACES,
        "rotate_gradients",
        _with(PLACES.rotate_gradients, lambda dx, dcos, dsin: (dx, dsin, dcos)),
    ),
    "the slope's sign": ("ALiBi, given slopes", PLACES, "slopes_gradient", _with(PLACES.slopes_gradient, lambda d: -d)),
    "buckets of the keys": (
        "T5 buckets",
        PLACES,
        "bucket_gradient",
        lambda table, index, g, f=PLACES.bucket_gradient: f(table, namespace_of(index).flip(index), g),
    ),
    "queries for distances not moved": (
        "Shaw",
        PLACES,
        "relative_key_gradients",
        _with(PLACES.relative_key_gradients, lambda dq, da: (0 * dq, da)),
    ),
    "weights without their table": (
        "Shaw",
        PLACES,
        "relative_value_gradients",
        _with(PLACES.relative_value_gradients, lambda dp, dc: (0 * dp, dc)),
    ),
    "u and w": (
        "Transformer-XL",
        PLACES,
        "bias_gradients",
        _with(PLACES.bias_gradients, lambda dq, dk, dr, du, dw: (dq, dk, dr, dw, du)),
    ),
    "no mean of the product": (
        "RMS norm of q and k",
        NORMS,
        "rms_norm_gradients",
        lambda x, g, eps=0, gain=None: (
            g * gain / namespace_of(x).sqrt(namespace_of(x).mean(x * x, axis=-1, keepdims=True) + eps),
            *_RMS(x, g, eps, gain)[1:],
        ),
    ),
    "gain left out": (
        "RMS norm of q and k",
        NORMS,
        "rms_norm_gradients",
        lambda x, g, eps=0, gain=None: _RMS(x, g, eps),
    ),
    "not centred": ("LayerNorm of q and k", NORMS, "centre", lambda x: x),
    "along the vector": (
        "q and k of length 1",
        NORMS,
        "unit_gradient",
        lambda x, g: g * namespace_of(x).sum(unit(x) * unit(x), axis=-1, keepdims=True),
    ),
    "the columns of another role": (
        "packed projections",
        LINEAR,
        "unpacked_gradient",
        lambda w, g, role, *heads, f=LINEAR.unpacked_gradient: f(w, g, {"q": "k", "k": "v", "v": "q"}[role], *heads),
    ),
    "the shared part of one head": (
        "latent",
        LINEAR,
        "joined_gradients",
        lambda own, shared, g, f=LINEAR.joined_gradients: (
            f(own, shared, g)[0],
            g[..., 0, :, own.shape[-1] :] if own.ndim > shared.ndim else f(own, shared, g)[1],
        ),
    ),
    "ReLU's slope": ("model: decoder", LAYERS.SLOPES, "relu", lambda x: 0 * x + 1),
    "the slope of the other GELU": ("model: encoder", LAYERS.SLOPES, "gelu", LAYERS.gelu_tanh_slope),
    "SiLU's slope": ("model: decoder, rms", LAYERS.SLOPES, "silu", LAYERS.sigmoid_slope),
    "embeddings of the logits alone": (
        "model: decoder",
        LINEAR,
        "embed_gradient",
        lambda table, ids, g: 0 * table,
    ),
    "tokens met twice": (
        "model: decoder",
        LINEAR,
        "embed_gradient",
        lambda table, ids, g, f=LINEAR.embed_gradient: f(table, ids[..., :2], g[..., :2, :]),
    ),
    "no residual": (
        "model: decoder",
        backward_layers._LAYERS,
        _added,
        lambda fixed, x, y, g: (0 * g, g),
    ),
    "the capped logits": ("model: capped", backward_layers, "softcap_gradient", lambda y, cap, g: g),
}

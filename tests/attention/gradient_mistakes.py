"""Mistakes in backward passes: where each shows, which function has it, and what it does in the place of that."""

from collections.abc import Callable
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.gradients import backward as gradients_backward
from symattn.attention.gradients import scores as gradients_scores


def _sum(x: Any, axis: Any = -1) -> Any:
    return namespace_of(x).sum(x, axis=axis, keepdims=True)


def _with(function: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` and then ``change`` of what it gives."""
    return lambda *args, **how: change(*found) if isinstance(found := function(*args, **how), tuple) else change(found)


def _last_alone(ways: Any, ends: Any, values: Any, names: Any) -> dict[str, Any]:
    """Of the steps that read an array, the first is forgotten where a later one has been counted."""
    found = dict(ends)
    for way in reversed(list(ways)):
        if way.name in found:
            parts = zip(way.of, way.back(found[way.name]), strict=True)
            found |= {name: part for name, part in parts if part is not None}
    return {n: found[n] if n in found else 0 * values[n] for n in names}


BACKWARD, SCORES = gradients_backward, gradients_scores
#: By what is wrong: the case that shows it, a module or a table, the name in it, and the mistake.
MISTAKES: dict[str, tuple[str, Any, Any, Callable[..., Any]]] = {
    "no row sum": ("scaled dot", SCORES, "softmax_gradient", lambda p, g, base=None: p * g),
    "row sum outside": ("causal", SCORES, "softmax_gradient", lambda p, g, base=None: p * g - _sum(p * g)),
    "row sum over queries": (
        "scaled dot",
        SCORES,
        "softmax_gradient",
        lambda p, g, base=None: p * (g - _sum(p * g, axis=-2)),
    ),
    "the sink's sign": ("sink", SCORES, "sink_gradients", _with(SCORES.sink_gradients, lambda ds, db: (ds, -db))),
    "the sink without its weight": (
        "sink",
        SCORES,
        "sink_gradients",
        lambda p, g, base=None: (SCORES.softmax_gradient(p, g), -_sum(p * g)),
    ),
    "rows normalised without the sink": (
        "softmax off by one",
        SCORES,
        "softmax_gradient",
        lambda p, g, base=None: p * (g - _sum(p * g) / _sum(p)),
    ),
    "no log 2": ("base 2", SCORES, "softmax_gradient", lambda p, g, base=None: p * (g - _sum(p * g))),
    "sigmoid's slope": ("sigmoid", SCORES, "sigmoid_gradient", lambda a, g: a * g),
    "ReLU over n_k": ("ReLU", SCORES, "relu_gradient", lambda s, g: namespace_of(s).where(s > 0, g, 0)),
    "mean over all keys": (
        "sparsemax",
        SCORES,
        "sparsemax_gradient",
        lambda p, g: namespace_of(p).where(p > 0, g - namespace_of(g).mean(g, axis=-1, keepdims=True), 0),
    ),
    "entmax as sparsemax": ("entmax", SCORES, "entmax15_gradient", SCORES.sparsemax_gradient),
    "no slope of the cap": ("softcap", BACKWARD, "softcap_gradient", lambda y, cap, g: g),
    "the cap's slope without c": ("softcap", BACKWARD, "softcap_gradient", lambda y, cap, g: g * (1 - y * y)),
    "one of two readers": ("self-attention", BACKWARD, "pulled", _last_alone),
    "the first operand alone": (
        "multi-head",
        BACKWARD,
        "through",
        lambda run, x, g, f=BACKWARD.through: (f(run, x, g)[0], *(None for _ in x[1:])),
    ),
}

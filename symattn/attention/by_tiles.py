"""Any ``Attention`` by tiles: its own scores, of which the softmax is never whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.inputs import check_inputs
from symattn.attention.scores import per_head
from symattn.attention.tiled import Forward, forward, sliced
from symattn.errors import InputError

if TYPE_CHECKING:
    from symattn.attention.flow import Step
    from symattn.attention.spec import Attention


def by_tiles(attention: Attention, rows: Sequence[Any], keys: Sequence[Any], *qkv: Any, **inputs: Any) -> Any:
    """What ``attention`` gives on these inputs, its weights by tiles between the bounds of ``rows`` and ``keys``.

    Whatever comes before the weights (projections, positions, masks, heads that are shared) and after them runs as it
    is written; softmax and the sum over values are those of ``tiled.forward``.

    >>> import numpy as np
    >>> from symattn.attention.spec import Attention
    >>> q, v = np.zeros((3, 2)), np.array([[1.0], [3.0], [8.0]])
    >>> by_tiles(Attention(causal=True), (0, 1, 3), (0, 2, 3), q, q, v)
    array([[1.],
           [2.],
           [4.]])

    Raises InputError for weights that no state (m, ℓ, a) holds: other normalisers, powers of two, dropped weights, and
    positions that are added to values.
    """
    _check(attention)
    given = {**dict(zip("qkv", qkv, strict=False)), **inputs}
    values = {name: array for name, array in given.items() if array is not None}
    check_inputs(attention, values)
    weights: Step | None = None
    for step in attention.pipeline(values):
        if step.name == "weights":
            weights = step
        elif weights is not None and "weights" in step.of:
            values[step.name] = _streamed(attention, values, weights, step, rows, keys).output
        else:
            values[step.name] = step.run(*[values[name] for name in step.of])
    return (values["output"], values["lse"]) if attention.lse else values["output"]


def _check(attention: Attention) -> None:
    for field, plain in (("normaliser", "softmax"), ("base", None), ("dropout", 0)):
        if getattr(attention, field) != plain:
            raise InputError(f"attention by tiles has {field} {plain!r}, not {getattr(attention, field)!r}")
    if getattr(attention.position, "values", False):
        raise InputError("attention by tiles has no positions that are added to values")


def _streamed(
    attention: Attention, values: dict[str, Any], weights: Step, step: Step, rows: Sequence[Any], keys: Sequence[Any]
) -> Forward:
    scores, v = values[weights.of[0]], values[step.of[1]]
    sink = _sink(attention, scores, values.get("sink"))
    fully_masked = attention.fully_masked if attention.masks_anything else "nan"
    return forward(sliced(scores), v, rows, keys, sink=sink, fully_masked=fully_masked)


def _sink(attention: Attention, scores: Any, given: Any) -> Any:
    """The sink of each row (…, n_q, 1), or None."""
    if attention.sink is None:
        return None
    xp = namespace_of(scores)
    logit = xp.asarray(0, dtype=scores.dtype) if given is None else given
    logit = per_head(logit) if given is not None and attention.heads > 1 else logit
    return xp.broadcast_to(logit, (*scores.shape[:-1], 1))

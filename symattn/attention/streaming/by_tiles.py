"""Any ``Attention`` by tiles: its own scores, of which the softmax is never whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.inputs import check_inputs
from symattn.attention.stages.weighing import of_rows
from symattn.attention.streaming.tiled import Forward, forward, sliced
from symattn.errors import InputError

if TYPE_CHECKING:
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
    given = {**dict(zip("qkv", qkv, strict=False)), **inputs}
    run = Run(attention, rows, keys, {name: array for name, array in given.items() if array is not None})
    return (run.values["output"], run.values["lse"]) if attention.lse else run.values["output"]


class Run:
    """A run by tiles: every named array but the weights, the steps, and what the forward pass kept."""

    def __init__(self, attention: Attention, rows: Sequence[Any], keys: Sequence[Any], given: dict[str, Any]) -> None:
        _check(attention)
        check_inputs(attention, given)
        self.attention, self.values, self.steps = attention, dict(given), attention.pipeline(given)
        self.weights = next(step for step in self.steps if step.name == "weights")
        self.valued = next(step for step in self.steps if "weights" in step.of)
        for step in self.steps:
            if step is self.valued:
                self.saved = self._streamed(rows, keys)
                self.values[step.name] = self.saved.output
            elif step is not self.weights:
                self.values[step.name] = step.run(*[self.values[name] for name in step.of])

    def _streamed(self, rows: Sequence[Any], keys: Sequence[Any]) -> Forward:
        attention = self.attention
        scores, v = self.values[self.weights.of[0]], self.values[self.valued.of[1]]
        self.sink = _sink(attention, scores, self.values.get("sink"))
        fully_masked = attention.fully_masked if attention.masks_anything else "nan"
        return forward(sliced(scores), v, rows, keys, sink=self.sink, fully_masked=fully_masked)


def _check(attention: Attention) -> None:
    for field, plain in (("normaliser", "softmax"), ("base", None), ("dropout", 0)):
        if getattr(attention, field) != plain:
            raise InputError(f"attention by tiles has {field} {plain!r}, not {getattr(attention, field)!r}")
    if getattr(attention.position, "values", False):
        raise InputError("attention by tiles has no positions that are added to values")


def _sink(attention: Attention, scores: Any, given: Any) -> Any:
    """The sink of each row (…, n_q, 1), or None."""
    if attention.sink is None:
        return None
    xp = namespace_of(scores)
    logit = xp.asarray(0, dtype=scores.dtype) if given is None else given
    logit = logit if given is None else of_rows(attention, logit)
    return xp.broadcast_to(logit, (*scores.shape[:-1], 1))

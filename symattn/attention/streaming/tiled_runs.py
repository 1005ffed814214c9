"""Runs of an ``Attention`` by tiles, forward and backward, and the parts of a tile: weights are never stored whole.

Tile bounds are an argument, ``(0, 128, 256)``, so that the definitions run where sizes are letters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import chain, pairwise
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.derivative import cotangents, differentiable, vjp_by_operands
from symattn.attention.inputs import check_inputs
from symattn.attention.sizes import same
from symattn.attention.stages.weights import of_rows
from symattn.attention.streaming.states import (
    PartialOutput,
    SoftmaxState,
    finish,
    lse,
    merge,
    reference,
    tile_state,
)
from symattn.document.errors import InputError

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


class TileRun:
    """A run by tiles: its steps, every named array but the weights, and the states saved by the forward pass."""

    def __init__(
        self, attention: Attention, rows: Sequence[Any], keys: Sequence[Any], inputs: dict[str, Any]
    ) -> None:
        # A state (m, ℓ, a) sums exponentials to base e; other weights have no such state.
        for field, plain in (("normaliser", "softmax"), ("base", None), ("dropout", 0)):
            if getattr(attention, field) != plain:
                raise InputError(
                    f"attention by tiles has {field} {plain!r}, not {getattr(attention, field)!r}"
                )
        # Values that depend on the query cannot be summed in a state.
        if getattr(attention.position, "values", False):
            raise InputError("attention by tiles has no positions that are added to values")
        check_inputs(attention, inputs)
        self.attention, self.values, self.steps = (
            attention,
            dict(inputs),
            attention.pipeline(inputs),
        )
        self.weights = next(step for step in self.steps if step.name == "weights")
        # The step that multiplies weights by values: tiles replace both.
        self.valued = next(step for step in self.steps if "weights" in step.of)
        for step in self.steps:
            # Weights are never stored: the states of tiles take their place.
            if step is self.valued:
                self.values[step.name] = self._stream_over_tiles(rows, keys)
            elif step is not self.weights:
                self.values[step.name] = step.run(*[self.values[name] for name in step.of])

    def _stream_over_tiles(self, rows: Sequence[object], keys: Sequence[object]) -> Array:
        attention = self.attention
        self.scores, self.v = self.values[self.weights.of[0]], self.values[self.valued.of[1]]
        self.sink = sink_of_rows(attention, self.scores, self.values.get("sink"))
        self.states = row_states(self.scores, self.v, rows, keys, self.sink)
        # Without a mask no row is empty, so the plain quotient suffices.
        fully_masked = attention.fully_masked if attention.masks_anything else "nan"
        return _concatenate_query_tiles([finish(state, fully_masked) for state in self.states])


def cut(bounds: Sequence[object]) -> list[slice]:
    """Return the slices between consecutive bounds."""
    return [slice(lo, hi) for lo, hi in pairwise(bounds)]


def sink_of_rows(attention: Attention, scores: Array, sink: Array | None) -> Any:
    """Return the logit of each row's sink, (…, n_q, 1), by default 0; None if the attention has no sink."""
    if attention.sink is None:
        return None
    xp = namespace_of(scores)
    logit = xp.asarray(0, dtype=scores.dtype) if sink is None else of_rows(attention, sink)
    # Each tile of queries cuts its rows from the sinks.
    return xp.broadcast_to(logit, (*scores.shape[:-1], 1))


def row_states(
    s: Array, v: Array, rows: Sequence[object], keys: Sequence[object], sink: Array | None = None
) -> list[SoftmaxState]:
    """Return the state of each tile of queries: the states of the tiles of keys, merged one after the other.

    A ``sink`` b (…, n_q, 1) is one more key without a value, with the state (b, 1, 0). Shapes: s (…, n_q, n_k),
    v (…, n_k, d_v). Source: Dao et al., FlashAttention (2022), algorithm 1; Dao, FlashAttention-2 (2023), algorithm 1.
    """
    result = []
    for r in cut(rows):
        # One state at a time, since each is as large as the output.
        states = (tile_state(s[..., r, c], v[..., c, :]) for c in cut(keys))
        # The sink comes first: its finite maximum keeps all later states finite.
        first = [] if sink is None else [SoftmaxState(sink[..., r, :], 1, 0)]
        result.append(reduce(merge, chain(first, states)))
    return result


def _concatenate_query_tiles(parts: list[Any]) -> Array:
    """Concatenate the rows of all tiles of queries."""
    return namespace_of(parts[0]).concat(parts, axis=-2)


# -- backward ----------------------------------------------------------------------------------------------------------
def backward_by_tiles(
    attention: Attention,
    rows: Sequence[object],
    keys: Sequence[object],
    cotangent: Array,
    inputs: Mapping[str, object],
    wrt: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Return the gradients of ⟨G, Attention(…)⟩ with respect to the inputs ``wrt``, or to all numeric inputs, by name.

    The forward pass, by tiles between the bounds ``rows`` and ``keys``, saves the output and the log-sum-exp of each
    row, from which the weights of each tile are recomputed. Steps before and after the weights are differentiated each
    on a tape. Raises InputError as ``by_tiles`` does, and for ``lse``.

    >>> import numpy as np
    >>> from symattn.attention.spec import Attention
    >>> given = {"q": np.zeros((1, 2)), "k": np.eye(2), "v": np.array([[1.0], [3.0]])}
    >>> backward_by_tiles(Attention(scale=1), (0, 1), (0, 1, 2), np.ones((1, 1)), given, wrt=["q"])
    {'q': array([[-0.5,  0.5]])}
    """
    # A second output would need a cotangent of its own, which tiles do not pass back.
    if attention.lse:
        raise InputError("the backward pass by tiles starts from the output alone; hint: lse=False")
    under, names = differentiable(inputs, wrt)
    run = TileRun(
        attention, rows, keys, {name: array for name, array in inputs.items() if array is not None}
    )
    ends = {"output": cotangents(under, run.values["output"], cotangent)[0][1]}
    gradients = dict(ends)
    # In reverse order the gradient of an array is complete when its step is reached.
    for step in reversed(list(_yield_backward_steps(run, rows, keys))):
        # Nothing that has a gradient depends on this step.
        if step.name not in gradients:
            continue
        for name, part in zip(step.of, step.pull_back(gradients[step.name]), strict=True):
            if part is not None:
                gradients[name] = gradients[name] + part if name in gradients else part
    return {n: gradients[n] if n in gradients else 0 * run.values[n] for n in names}


class BackwardStep(NamedTuple):
    """A step's name, its operands, and the function from the gradient of its result to those of its operands."""

    name: str
    of: tuple[str, ...]
    pull_back: Callable[[Any], tuple[Any, ...]]


def _yield_backward_steps(
    run: TileRun, rows: Sequence[object], keys: Sequence[object]
) -> Iterator[BackwardStep]:
    """Yield the backward function of each step; weights and weighted values are one step."""
    for step in run.steps:
        if step is run.valued:
            of = (run.weights.of[0], step.of[1], *run.weights.of[1:])
            # Weights and weighted values are one step backwards, as the weights are recomputed.
            yield BackwardStep(step.name, of, partial(_stream_over_tiles, run, rows, keys))
        elif step is not run.weights:
            operands = tuple(run.values[name] for name in step.of)
            pull_back = partial(vjp_by_operands, step.run, operands)
            yield BackwardStep(step.name, step.of, pull_back)


def _stream_over_tiles(
    run: TileRun, rows: Sequence[object], keys: Sequence[object], g: Array
) -> tuple[Any, ...]:
    """dS, dV and, if there is a given sink, its gradient, from dO."""
    saved = PartialOutput(
        run.values[run.valued.name], _concatenate_query_tiles([lse(state) for state in run.states])
    )
    results = score_and_value_gradients(run.scores, run.v, saved, g, rows, keys)
    # Without a sink as input the gradients are those of scores and values.
    if len(run.weights.of) == 1:
        return results
    sink = run.values["sink"]
    # A sink per head is read by all queries, so its gradient is the sum over them.
    by_sink = _sum_to_shape_of(sink_gradient(run.sink, saved, g), of_rows(run.attention, sink))
    return *results, namespace_of(by_sink).reshape(by_sink, sink.shape)


def _sum_to_shape_of(g: Array, x: Array) -> Array:
    """Return the gradient of a broadcast array x: g summed over the axes that x lacks or has with length 1."""
    xp, extra = namespace_of(g), g.ndim - x.ndim
    # Broadcast axes: length 1 in x, another length in g.
    wide = [
        axis
        for axis, length in enumerate(x.shape, start=extra)
        if same(length, 1) and not same(g.shape[axis], 1)
    ]
    g = xp.sum(g, axis=tuple(wide), keepdims=True) if wide else g
    return xp.sum(g, axis=tuple(range(extra))) if extra else g


def score_and_value_gradients(
    s: Array,
    v: Array,
    saved: PartialOutput,
    g: Array,
    rows: Sequence[object],
    keys: Sequence[object],
) -> tuple[Array, Array]:
    """(dS, dV), each tile once: dS is the gradient with respect to the scores, and to a bias (n_q, n_k) that is added
    last; dV = Σ Pᵀ dO over the tiles of queries.

    Shapes: s (…, n_q, n_k), v (…, n_k, d_v), g (…, n_q, d_v) → (…, n_q, n_k), (…, n_k, d_v). Source: Dao et al.,
    FlashAttention (2022), algorithm 4; Dao, FlashAttention-2 (2023), algorithm 2.
    """

    def tile(r: slice, c: slice) -> tuple[Array, Array]:
        partial_output = PartialOutput(*[x[..., r, :] for x in saved])
        return tile_gradients(s[..., r, c], v[..., c, :], partial_output, g[..., r, :])

    result = [[tile(r, c) for c in cut(keys)] for r in cut(rows)]
    # Tiles of scores lie side by side; tiles of values add up over the queries.
    ds = [namespace_of(s).concat([by_scores for by_scores, _ in row], axis=-1) for row in result]
    dv = [
        reduce(add, [by_values for _, by_values in column]) for column in zip(*result, strict=True)
    ]
    return _concatenate_query_tiles(ds), _concatenate_query_tiles(dv)


def tile_gradients(s: Array, v: Array, saved: PartialOutput, g: Array) -> tuple[Array, Array]:
    """(dS, dV) of a tile: P ⊙ (dO Vᵀ − D) and Pᵀ dO, from the tile's rows of ``saved`` and ``g``."""
    p = tile_weights(s, saved.lse)
    # D needs the whole row, so it comes from the saved output, not from the tile.
    return p * (g @ v.mT - row_products(g, saved.output)), p.mT @ g


def tile_weights(s: Array, whole: Array) -> Array:
    """P = e^{s − L} of a tile, from the log-sum-exp L of its rows. Source: Dao, FlashAttention-2 (2023), §3.1.1."""
    # For a row without keys L = −∞, and e^(−∞ − 0) = 0 is the right weight.
    return namespace_of(s).exp(s - reference(whole))


def row_products(g: Array, output: Array) -> Array:
    """D_i = Σ_c dO_ic O_ic, which equals Σ_j P_ij dP_ij but needs no keys. Shapes: (…, n_q, d_v) → (…, n_q, 1).

    Source: Dao et al., FlashAttention (2022), appendix B.2.
    """
    return namespace_of(g).sum(g * output, axis=-1, keepdims=True)


def sink_gradient(sink: Array, saved: PartialOutput, g: Array) -> Array:
    """−p_i D_i with the sink's weight p_i = e^{b_i − L_i}: the gradient with respect to the sink of each row.

    Shapes: sink (…, n_q, 1), g (…, n_q, d_v) → (…, n_q, 1); for one sink per head, sum over the queries.
    """
    return -tile_weights(sink, saved.lse) * row_products(g, saved.output)

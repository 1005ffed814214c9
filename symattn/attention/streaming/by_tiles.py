"""Any ``Attention`` by tiles: its own scores, of which the softmax is never whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.derivative import cotangents, differentiable
from symattn.attention.gradients.backward import Way, pulled, way
from symattn.attention.gradients.scores import summed_like
from symattn.attention.inputs import check_inputs
from symattn.attention.stages.weights import of_rows
from symattn.attention.streaming import tiled
from symattn.document.errors import InputError

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def by_tiles(
    attention: Attention, rows: Sequence[object], keys: Sequence[object], *qkv: object, **inputs: object
) -> Any:
    """Return what ``attention`` gives on these inputs, with the weights in tiles between the bounds of ``rows`` and
    ``keys``.

    Everything before the weights (projections, positions, masks, shared heads) and after them runs as usual;
    softmax and the sum over values are those of ``tiled.forward``.

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
    arrays = {**dict(zip("qkv", qkv, strict=False)), **inputs}
    run = TileRun(attention, rows, keys, {name: array for name, array in arrays.items() if array is not None})
    return (run.values["output"], run.values["lse"]) if attention.lse else run.values["output"]


class TileRun:
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

    def _streamed(self, rows: Sequence[object], keys: Sequence[object]) -> tiled.Forward:
        attention = self.attention
        scores, v = self.values[self.weights.of[0]], self.values[self.valued.of[1]]
        self.sink = _sink(attention, scores, self.values.get("sink"))
        fully_masked = attention.fully_masked if attention.masks_anything else "nan"
        return tiled.forward(tiled.sliced(scores), v, rows, keys, sink=self.sink, fully_masked=fully_masked)


def _check(attention: Attention) -> None:
    for field, plain in (("normaliser", "softmax"), ("base", None), ("dropout", 0)):
        if getattr(attention, field) != plain:
            raise InputError(f"attention by tiles has {field} {plain!r}, not {getattr(attention, field)!r}")
    if getattr(attention.position, "values", False):
        raise InputError("attention by tiles has no positions that are added to values")


def _sink(attention: Attention, scores: Array, given: Any) -> Any:
    """The sink of each row (…, n_q, 1), or None."""
    if attention.sink is None:
        return None
    xp = namespace_of(scores)
    logit = xp.asarray(0, dtype=scores.dtype) if given is None else given
    logit = logit if given is None else of_rows(attention, logit)
    return xp.broadcast_to(logit, (*scores.shape[:-1], 1))


# -- backward ----------------------------------------------------------------------------------------------------------
def backward_by_tiles(
    attention: Attention,
    rows: Sequence[object],
    keys: Sequence[object],
    cotangent: Array,
    inputs: Mapping[str, object],
    wrt: Iterable[str] | None = None,
) -> dict[str, Any]:
    """The gradients of ⟨G, Attention(…)⟩ by every input named in ``wrt``, or by all that hold numbers, by their names.

    Of the forward pass, by tiles between the bounds of ``rows`` and ``keys``, the output and the log-sum-exp of each
    row are kept, and the weights of each tile are computed from them. What comes before and after the weights is taken
    back as in ``backward``. Raises InputError as ``by_tiles`` does, and for ``lse``.

    >>> import numpy as np
    >>> from symattn.attention.spec import Attention
    >>> given = {"q": np.zeros((1, 2)), "k": np.eye(2), "v": np.array([[1.0], [3.0]])}
    >>> backward_by_tiles(Attention(scale=1), (0, 1), (0, 1, 2), np.ones((1, 1)), given, wrt=["q"])
    {'q': array([[-0.5,  0.5]])}
    """
    if attention.lse:
        raise InputError("the backward pass by tiles starts from the output alone; hint: lse=False")
    under, names = differentiable(inputs, wrt)
    run = TileRun(attention, rows, keys, {name: array for name, array in inputs.items() if array is not None})
    ends = {"output": cotangents(under, run.values["output"], cotangent)[0][1]}
    return pulled(_ways(run, rows, keys), ends, run.values, names)


def _ways(run: TileRun, rows: Sequence[object], keys: Sequence[object]) -> Iterator[Way]:
    """The way back through each step; the weights and what they are for are one."""
    for step in run.steps:
        if step is run.valued:
            of = (run.weights.of[0], step.of[1], *run.weights.of[1:])
            yield Way(step.name, of, partial(_streamed, run, rows, keys))
        elif step is not run.weights:
            yield way(run.attention, step, run.values)


def _streamed(run: TileRun, rows: Sequence[object], keys: Sequence[object], g: Array) -> tuple[Any, ...]:
    """dS, dV and, where one is given, the gradient by the sink, from dO."""
    at, v, saved = tiled.sliced(run.values[run.weights.of[0]]), run.values[run.valued.of[1]], tiled.with_lse(run.saved)
    results = tiled.score_and_value_gradients(at, v, saved, g, rows, keys)
    if len(run.weights.of) == 1:
        return results
    sink = run.values["sink"]
    by_sink = summed_like(tiled.sink_gradient(run.sink, saved, g), of_rows(run.attention, sink))
    return *results, namespace_of(by_sink).reshape(by_sink, sink.shape)

"""The backward pass of any ``Attention`` by tiles: the weights are never whole, and are computed again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.derivative import cotangents, differentiable
from symattn.attention.gradients.backward import Way, pulled, way
from symattn.attention.gradients.scores import summed_like
from symattn.attention.stages.weighing import of_rows
from symattn.attention.streaming.by_tiles import Run
from symattn.attention.streaming.tiled import score_gradient, sink_gradient, sliced, value_gradient, with_lse
from symattn.errors import InputError

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def backward_by_tiles(
    attention: Attention,
    rows: Sequence[Any],
    keys: Sequence[Any],
    cotangent: Any,
    inputs: Mapping[str, Any],
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
        raise InputError("the backward pass by tiles starts from the output alone; mend: lse=False")
    under, names = differentiable(inputs, wrt)
    run = Run(attention, rows, keys, {name: array for name, array in inputs.items() if array is not None})
    ends = {"output": cotangents(under, run.values["output"], cotangent)[0][1]}
    return pulled(_ways(run, rows, keys), ends, run.values, names)


def _ways(run: Run, rows: Sequence[Any], keys: Sequence[Any]) -> Iterator[Way]:
    """The way back through each step; the weights and what they are for are one."""
    for step in run.steps:
        if step is run.valued:
            of = (run.weights.of[0], step.of[1], *run.weights.of[1:])
            yield Way(step.name, of, partial(_streamed, run, rows, keys))
        elif step is not run.weights:
            yield way(run.attention, step, run.values)


def _streamed(run: Run, rows: Sequence[Any], keys: Sequence[Any], g: Any) -> tuple[Any, ...]:
    """dS, dV and, where one is given, the gradient by the sink, from dO."""
    at, v, saved = sliced(run.values[run.weights.of[0]]), run.values[run.valued.of[1]], with_lse(run.saved)
    found = score_gradient(at, v, saved, g, rows, keys), value_gradient(at, v, saved, g, rows, keys)
    if len(run.weights.of) == 1:
        return found
    sink = run.values["sink"]
    by_sink = summed_like(sink_gradient(run.sink, saved, g), of_rows(run.attention, sink))
    return *found, namespace_of(by_sink).reshape(by_sink, sink.shape)

"""The backward pass as it is implemented: step by step from the output back, from arrays saved by the forward pass.

Caps and weights have rules that start from saved arrays, as in FlashAttention; every other step is differentiated on a
tape. ``derivative.vjp`` gives the same from the definition as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.derivative import cotangents, differentiable, vjp
from symattn.attention.flow import Step
from symattn.attention.gradients import scores
from symattn.attention.gradients.attention import softcap_gradient
from symattn.attention.spec import Attention
from symattn.attention.stages.weights import of_rows

Gradients = tuple[Any, ...]


class Way(NamedTuple):
    """A step's name, its operands, and the function from the gradient of its result to those of its operands."""

    name: str
    of: tuple[str, ...]
    back: Callable[[Any], Gradients]


def backward(
    spec: Attention, cotangent: Any, inputs: Mapping[str, Any], wrt: Iterable[str] | None = None
) -> dict[str, Any]:
    """Return the gradients of ⟨G, f(…)⟩ with respect to the inputs ``wrt``, or to all numeric inputs, by name.

    ``cotangent`` G has the shape of the output; with ``lse`` it is a pair, one of which may be None. The forward pass
    saves every intermediate array, as frameworks do. Raises InputError for names and shapes that do not fit.

    >>> import numpy as np
    >>> q, k, v = np.zeros((1, 2)), np.eye(2), np.array([[1.0], [3.0]])
    >>> backward(Attention(scale=1), np.ones((1, 1)), {"q": q, "k": k, "v": v}, wrt=["q"])
    {'q': array([[-0.5,  0.5]])}
    """
    under, names = differentiable(inputs, wrt)
    values = spec.trace(**inputs)
    outputs, output_gradients = (
        (("output", "lse"), cotangent) if spec.lse else (("output",), (cotangent,))
    )
    pairs = iter(cotangents(under, tuple(values[n] for n in outputs), output_gradients))
    # An output without a cotangent has no part in the sum.
    ends = {
        n: next(pairs)[1] for n, g in zip(outputs, output_gradients, strict=True) if g is not None
    }
    steps = spec.pipeline(n for n, x in inputs.items() if x is not None)
    return pulled([way(spec, step, values) for step in steps], ends, values, names)


def pulled(
    ways: Iterable[Way], ends: Mapping[str, object], values: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Any]:
    """Return the gradients of the arrays ``names``, from those of the arrays in ``ends``, through steps in order."""
    result = dict(ends)
    # In reverse order the gradient of an array is complete when its step is reached.
    for way in reversed(list(ways)):
        # Nothing that has a gradient depends on this step.
        if way.name not in result:
            continue
        for name, part in zip(way.of, way.back(result[way.name]), strict=True):
            if part is not None:
                result[name] = result[name] + part if name in result else part
    return {n: result[n] if n in result else 0 * values[n] for n in names}


def way(spec: Attention, step: Step, values: Mapping[str, Any]) -> Way:
    """Return the backward function of a step of ``spec``: its rule if it has one, else a tape."""
    x, rule = tuple(values[name] for name in step.of), RULES.get(step.name)
    if rule is None or (step.name == "weights" and spec.normaliser not in scores.FROM_WEIGHTS):
        return Way(step.name, step.of, partial(_pull_back_through, step.run, x))
    return Way(step.name, step.of, partial(rule, spec, x, values[step.name]))


def _pull_back_through(
    function: Callable[..., object], operands: tuple[object, ...], g: Array
) -> tuple[Any, ...]:
    """Return the gradients of ⟨g, function(*operands)⟩, one for each operand; None for those that hold no numbers.

    Of two equal arguments of a maximum, the second counts as the larger, as in floats.
    """
    named = {str(place): x for place, x in enumerate(operands)}
    gradients = vjp(lambda **arrays: function(*arrays.values()), g, named, ties="second")
    return tuple(map(gradients.get, named))


# -- rules: functions of the specification, a step's operands, its result, and the gradient of the result --------------
def _gradients_of_weights_step(
    spec: Attention, x: tuple[Any, ...], p: Array, g: Array
) -> Gradients:
    if spec.sink == "given":
        ds, db = scores.sink_gradients(p, g, spec.base)
        # A sink of a head is read by all rows of that head.
        return ds, namespace_of(db).reshape(scores.summed_like(db, of_rows(spec, x[1])), x[1].shape)
    return (scores.FROM_WEIGHTS[spec.normaliser](spec.base, x[0], p, g),)


#: The rules by name of step.
RULES: dict[str, Callable[..., Gradients]] = {
    "capped": lambda spec, x, y, g: (softcap_gradient(y, spec.softcap, g),),
    "weights": _gradients_of_weights_step,
}

"""Compare the entries of a walk with those of the printed formulas, and with products of weights and values.

Each step is computed from its input arrays: exactly, or in balls if one of its numbers has left the decidable field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import flint
import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.arrays.exact import Exact
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.flow import Step
from symattn.attention.spec import Attention
from symattn.derivations.attention.inputs import MASKS, DerivationRequest
from symattn.derivations.attention.textbook import pairs, part
from symattn.derivations.enclosed import Enclosed, ball_of, least_proven
from symattn.derivations.walks import run
from symattn.document.errors import Refused

Arrays = Mapping[str, Any]
_MOST = 100_000  # the most products of elements; more would make a reader wait
_BITS = 256  # of balls for numbers that leave the decidable field


def step_agrees(arrays: Arrays, request: DerivationRequest, step: Step) -> bool | None:
    """Return whether the entries of one step are those of its formulas; None if they are too many. Raises Unread."""
    if step.name not in arrays or any(name not in arrays for name in step.of):
        return False
    result, first = arrays[step.name], arrays[step.of[0]]
    if result.size * max(first.shape[-1:], default=1) > _MOST:
        return None
    inputs = {name: arrays[name] for name in (*step.of, step.name, *(n for n in MASKS if n in arrays))}
    if not any(isinstance(x, Enclosed) for x in result.flat):
        try:
            return _agrees(inputs, request, step, Exact)
        except Refused:  # such as tanh
            pass
    with precision(_BITS):
        return _agrees(inputs, request, step, Ball)


def _agrees(arrays: Arrays, derivation_request: DerivationRequest, step: Step, kind: object) -> bool:
    lifted = {name: _lifted(x, kind) for name, x in arrays.items()}
    return all(same(x, y) for x, y in pairs(derivation_request, step, lifted, lifted[step.name], kind))


def _lifted(array: np.ndarray, kind: Any) -> Any:
    """Return numbers as an array of the kind; leave truth values and integers unchanged."""
    if isinstance(array.flat[0], int):
        return np.asarray(array.tolist())
    if kind is Exact and any(isinstance(x, Enclosed) for x in array.flat):
        raise Refused("a ball is no exact number")
    balls = np.frompyfunc(lambda x: x if isinstance(x, (Forbidden, Undefined)) else ball_of(x, _BITS), 1, 1)
    return kind(array if kind is Exact else balls(array))


def products_agree(arrays: Arrays, last: Step) -> bool | None:
    """Return whether every product is a_ij v_j; None if that is too much work."""
    if arrays["weighted"].size > _MOST:
        return None
    weights, values, result = arrays[last.of[0]], arrays[last.of[1]], arrays["weighted"]
    for *front, i, j, c in np.ndindex(*result.shape):
        product = part(weights, tuple(front), 2)[i, j] * part(values, tuple(front), 2)[j, c]
        if not same(result[(*front, i, j, c)], product):
            return False
    return True


def same(x: Any, y: Any) -> bool:
    """Return whether two elements are equal, or have overlapping balls."""
    if isinstance(x, (Forbidden, Undefined)) or isinstance(y, (Forbidden, Undefined)):
        return type(x) is type(y)
    if isinstance(x, flint.arb):
        return bool(x.overlaps(y))
    if isinstance(x, Enclosed) or isinstance(y, Enclosed):
        return x.overlaps(y) if isinstance(x, Enclosed) else bool(y.overlaps(x))
    return bool(x == y)


def digits_proven(arrays: Arrays, step: Step) -> int | None:
    """Return the smallest number of digits that balls prove for a step or its inputs; None if all are exact."""
    return least_proven(x for name in (step.name, *step.of) for x in np.asarray(arrays[name]).flat)


# -- latents -----------------------------------------------------------------------------------------------------------
def other_way(spec: Attention, inputs: Mapping[str, object], output: np.ndarray) -> tuple[Attention, bool, bool]:
    """Return the specification with matrices absorbed, or not, whether outputs agree, and whether that is exact."""
    assert spec.latent is not None
    other = replace(spec, latent=replace(spec.latent, absorbed=not spec.latent.absorbed))
    result = run.exact(other, inputs)["output"]
    exact = not any(isinstance(x, Enclosed) for x in (*result.flat, *output.flat))
    return other, result.shape == output.shape and all(map(same, result.flat, output.flat)), exact

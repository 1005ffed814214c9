"""The entries of a step by its formulas: read as they are printed, in numbers or letters, without the step's own code.

What softmax projects instead, sparsemax and entmax, has no formula for a single entry: of its weights it is shown that
they are what the threshold of those above 0 gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.flow import Step
from symattn.attention.inputs import lengths
from symattn.attention.spec import Attention
from symattn.derivations.attention.entry_formulas import entry_formulas
from symattn.derivations.attention.inputs import MASKS, DerivationRequest
from symattn.derivations.attention.reading import defines, every, sides_of
from symattn.document.notation import equals
from symattn.proof.relations.part_values import Unread

Pairs = list[tuple[Any, Any]]


def pairs(request: DerivationRequest, step: Step, values: Mapping[str, Any], array: Any, kind: Any) -> Pairs:
    """Pair each entry of ``array`` with the one that the formulas of the step give.

    ``values`` are the arrays of the step and its masks: NumPy arrays of truth values and integers, others of the
    ``kind``. Raises Unread for formulas that cannot be read or leave entries out, Refused for what the kind lacks.
    """
    own = len(lengths(step.name, request.spec, request.names, request.lengths))
    own += request.spec.heads > 1 and step.name == "output" and not step.of[0].startswith("attended")
    front = array.shape[: len(array.shape) - own]
    result: Pairs = []
    for batch in np.ndindex(*front):
        item = {name: _of_batch(request, name, x, batch) for name, x in values.items()}
        result += _of_item(request, step, item, array.entries[batch], kind)
    return result


def part(array: Array, front: tuple[int, ...], last: int) -> Array:
    """Return the last axes of an array at these places of the leading axes, with broadcasting."""
    own = array.ndim - last
    places = front[len(front) - own :]
    return array[tuple(0 if n == 1 else p for p, n in zip(places, array.shape, strict=False))] if own else array


def _of_batch(request: DerivationRequest, name: str, x: Array, batch: tuple[int, ...]) -> Array:
    """Return the array of one item of a batch."""
    last = len(lengths(name, request.spec, request.names, request.lengths))
    last += request.spec.heads > 1 and x.ndim - last > len(batch)
    return part(x, batch, last)


def _of_item(
    request: DerivationRequest, step: Step, values: Mapping[str, object], array: np.ndarray, kind: Any
) -> Pairs:
    spec = request.spec
    if step.name == "weights" and spec.normaliser in ("sparsemax", "entmax"):
        return _projected(spec, values[step.of[0]], array, kind)
    request = replace(request, masks={name: _permits(x) for name, x in values.items() if name in MASKS})
    formulas = [(equals(step.symbol, step.formula), step.reason), *entry_formulas(request, step)]
    numbered = kind(np.arange(array.size).astype(object).reshape(array.shape))
    arrays = {**{name: values[name] for name in step.of}, step.name: numbered}
    alone = replace(step, run=_no_code)
    result: Pairs = []
    covered: set[int] = set()
    readings = list(every(alone, (), formulas))
    for (before, _), read, (formula, _) in zip(formulas, readings[1:], formulas[1:], strict=False):
        if defines(step, formula):
            continue
        for side in sides_of(request, alone, arrays, read.definitions, formula, before, kind):
            places, entries, where = np.broadcast_arrays(*side)
            result += [(array.flat[at], x) for at, x in zip(places[where], entries[where], strict=True)]
            covered |= {*places[where]}
    if len(covered) != array.size:
        raise Unread("formulas that do not give every entry")
    return result


def _permits(mask: object) -> Any:
    """Return truth values of an additive mask; other masks as they are."""
    finite = np.vectorize(lambda x: not isinstance(x, Forbidden), otypes=[bool])
    return finite(mask.entries) if hasattr(mask, "entries") else mask


def _no_code(*_: object) -> Any:
    raise Unread("the step's own code is no textbook")


def _projected(spec: Attention, scores: Any, weights: np.ndarray, kind: Any) -> Pairs:
    """Return max(s − τ, 0), for entmax max(s/2 − τ, 0)², with the τ for which the weights sum to 1.

    No other weights are of this form.
    """
    half = Fraction(1, 2) if spec.normaliser == "entmax" else 1
    zero, result = kind.lift(0).item(), []
    rows = (x.reshape(-1, weights.shape[-1]) for x in (scores.entries, weights))
    for row, line in zip(*rows, strict=True):
        allowed = [j for j, s in enumerate(row) if not isinstance(s, Forbidden)]
        above = [j for j in allowed if not isinstance(line[j], Undefined) and line[j] != 0]
        expected = dict.fromkeys(
            range(len(row)), zero if allowed or spec.fully_masked == "zeros" else Undefined("no key")
        )
        if above:
            s, xp = kind(row[above]) * half, kind.xp
            mean, one = xp.mean(s), xp.asarray(1)
            tau = mean - (one if half == 1 else xp.sqrt((one - xp.sum((s - mean) ** 2)) * len(above))) / len(above)
            gaps = xp.maximum(kind(row[allowed]) * half - tau, xp.asarray(0))
            expected |= zip(allowed, (gaps if half == 1 else gaps * gaps).entries, strict=True)
        elif allowed:
            expected[allowed[0]] = kind.lift(1).item()  # some key has a weight
        result += [(a, expected[j]) for j, a in enumerate(line)]
    return result

"""Compare the entries of a walk with those of the printed formulas, and with products of weights and values.

Each step is computed from its input arrays: exactly, or in balls if one of its numbers has left the decidable field.

Formulas are read as they are printed, in numbers or letters, without the step's own code. What softmax projects
instead, sparsemax and entmax, has no formula for a single entry: of its weights it is shown that they are what the
threshold of those above 0 gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.ball import Ball, precision
from symattn.arrays.exact import Exact
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.flow import Step
from symattn.attention.inputs import lengths
from symattn.attention.spec import Attention
from symattn.derivations.attention import reading
from symattn.derivations.attention.entry_formulas import entry_formulas
from symattn.derivations.attention.inputs import MASKS, DerivationRequest
from symattn.derivations.enclosed import Enclosed, ball_of, least_proven
from symattn.document.errors import Refused
from symattn.document.notation import equals
from symattn.proof.relations.part_values import Unread

Pairs = list[tuple[Any, Any]]


def pairs(
    request: DerivationRequest, step: Step, values: Mapping[str, Any], array: Any, kind: Any
) -> Pairs:
    """Pair each entry of ``array`` with the one that the formulas of the step give.

    ``values`` are the arrays of the step and its masks: NumPy arrays of truth values and integers, others of the
    ``kind``. Raises Unread for formulas that cannot be read or leave entries out, Refused for what the kind lacks.
    """
    # The array's own axes; those before are of a batch.
    own = len(lengths(step.name, request.spec, request.names, request.lengths))
    # Without tokens the heads stay an axis of the output.
    own += request.spec.heads > 1 and step.name == "output" and "x" not in request.names
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
    if not own:
        return array
    # An axis of length 1 is shared by all items.
    return array[tuple(0 if n == 1 else p for p, n in zip(places, array.shape, strict=False))]


def _of_batch(request: DerivationRequest, name: str, x: Array, batch: tuple[int, ...]) -> Array:
    """Return the array of one item of a batch."""
    last = len(lengths(name, request.spec, request.names, request.lengths))
    last += request.spec.heads > 1 and x.ndim - last > len(batch)
    return part(x, batch, last)


def _of_item(
    request: DerivationRequest,
    step: Step,
    values: Mapping[str, object],
    array: np.ndarray,
    kind: Any,
) -> Pairs:
    spec = request.spec
    if step.name == "weights" and spec.normaliser in ("sparsemax", "entmax"):
        return _pair_projected_weights(spec, values[step.of[0]], array, kind)
    request = replace(
        request,
        masks={name: _convert_mask_to_booleans(x) for name, x in values.items() if name in MASKS},
    )
    equation = equals(step.symbol, step.formula)
    formulas = [(equation, step.reason), *entry_formulas(request, step)]
    # Each entry of the left side is its own number, so that formulas say which they give.
    numbers = np.arange(array.size).astype(object)
    numbered = kind(numbers.reshape(array.shape))
    arrays = {**{name: values[name] for name in step.of}, step.name: numbered}
    alone = replace(step, run=_no_code)
    result: Pairs = []
    covered: set[int] = set()
    readings = list(reading.every(alone, (), formulas))
    consecutive = zip(formulas, readings[1:], formulas[1:], strict=False)
    for (before, _), read, (formula, _) in consecutive:
        # A formula that defines a letter gives no entry.
        if reading.defines(step, formula):
            continue
        for side in reading.sides_of(
            request, alone, arrays, read.definitions, formula, before, kind
        ):
            places, entries, where = np.broadcast_arrays(*side)
            placed = zip(places[where], entries[where], strict=True)
            result += [(array.flat[at], x) for at, x in placed]
            covered |= {*places[where]}
    # Every entry has to be given by some formula.
    if len(covered) != array.size:
        raise Unread("formulas that do not give every entry")
    return result


def _convert_mask_to_booleans(mask: object) -> Any:
    """Return truth values of an additive mask; other masks as they are."""
    finite = np.vectorize(lambda x: not isinstance(x, Forbidden), otypes=[bool])
    return finite(mask.entries) if hasattr(mask, "entries") else mask


def _no_code(*_: object) -> Any:
    raise Unread("the step's own code is no textbook")


def _pair_projected_weights(spec: Attention, scores: Any, weights: np.ndarray, kind: Any) -> Pairs:
    """Return max(s − τ, 0), for entmax max(s/2 − τ, 0)², with the τ for which the weights sum to 1.

    No other weights are of this form.
    """
    half = Fraction(1, 2) if spec.normaliser == "entmax" else 1
    zero, result = kind.lift(0).item(), []
    arrays_of_rows = (scores.entries, weights)
    rows = (x.reshape(-1, weights.shape[-1]) for x in arrays_of_rows)
    for row, line in zip(*rows, strict=True):
        allowed = [j for j, s in enumerate(row) if not isinstance(s, Forbidden)]
        above = [j for j in allowed if not isinstance(line[j], Undefined) and line[j] != 0]
        expected = dict.fromkeys(
            range(len(row)),
            zero if allowed or spec.fully_masked == "zeros" else Undefined("no key"),
        )
        if above:
            s, xp = kind(row[above]) * half, kind.xp
            mean, one = xp.mean(s), xp.asarray(1)
            tau = mean - (
                one if half == 1 else xp.sqrt((one - xp.sum((s - mean) ** 2)) * len(above))
            ) / len(above)
            differences = kind(row[allowed]) * half - tau
            gaps = xp.maximum(differences, xp.asarray(0))
            expected |= zip(allowed, (gaps if half == 1 else gaps * gaps).entries, strict=True)
        elif allowed:
            expected[allowed[0]] = kind.lift(1).item()  # some key has a weight
        result += [(a, expected[j]) for j, a in enumerate(line)]
    return result


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
    masks = (n for n in MASKS if n in arrays)
    inputs = {name: arrays[name] for name in (*step.of, step.name, *masks)}
    if not any(isinstance(x, Enclosed) for x in result.flat):
        try:
            return _are_step_entries_equal(inputs, request, step, Exact)
        except Refused:  # such as tanh
            pass
    with precision(_BITS):
        return _are_step_entries_equal(inputs, request, step, Ball)


def _are_step_entries_equal(
    arrays: Arrays, derivation_request: DerivationRequest, step: Step, kind: object
) -> bool:
    lifted = {name: _lift_walk_array(x, kind) for name, x in arrays.items()}
    entries = pairs(derivation_request, step, lifted, lifted[step.name], kind)
    return all(same(x, y) for x, y in entries)


def _lift_walk_array(array: np.ndarray, kind: Any) -> Any:
    """Return numbers as an array of the kind; leave truth values and integers unchanged."""
    if isinstance(array.flat[0], int):
        return np.asarray(array.tolist())
    if kind is Exact and any(isinstance(x, Enclosed) for x in array.flat):
        raise Refused("a ball is no exact number")
    balls = np.frompyfunc(
        lambda x: x if isinstance(x, (Forbidden, Undefined)) else ball_of(x, _BITS), 1, 1
    )
    return kind(array if kind is Exact else balls(array))


def products_agree(arrays: Arrays, last: Step) -> bool | None:
    """Return whether every product is a_ij v_j; None if that is too much work."""
    if arrays["weighted"].size > _MOST:
        return None
    weights = arrays[last.of[0]]
    values = arrays[last.of[1]]
    result = arrays["weighted"]
    for *front, i, j, c in np.ndindex(*result.shape):
        weight = part(weights, tuple(front), 2)[i, j]
        product = weight * part(values, tuple(front), 2)[j, c]
        if not same(result[(*front, i, j, c)], product):
            return False
    return True


def same(x: Any, y: Any) -> bool:
    """Return whether two elements are equal, or have overlapping balls."""
    if isinstance(x, (Forbidden, Undefined)) or isinstance(y, (Forbidden, Undefined)):
        # −∞ equals −∞ alone, and undefined only undefined.
        return type(x) is type(y)
    if isinstance(x, flint.arb):
        # Balls cannot be equal, but they can be apart.
        return bool(x.overlaps(y))
    if isinstance(x, Enclosed) or isinstance(y, Enclosed):
        if isinstance(x, Enclosed):
            return x.overlaps(y)
        return bool(y.overlaps(x))
    return bool(x == y)


def digits_proven(arrays: Arrays, step: Step) -> int | None:
    """Return the smallest number of digits that balls prove for a step or its inputs; None if all are exact."""
    entries = (x for name in (step.name, *step.of) for x in np.asarray(arrays[name]).flat)
    return least_proven(entries)


# -- latents -----------------------------------------------------------------------------------------------------------

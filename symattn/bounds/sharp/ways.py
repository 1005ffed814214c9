"""Right ways to compute whose effect is not random: which constant scales scores, and which scaled arrays are stored.

What such a kernel stores is known, so it is compared with the output for this scale, these queries and keys instead.
Also the guard: right ways to store the weights, replayed on the same rows, show whether roundings are independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import log, sqrt
from numbers import Real
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.attention.enclosing.pattern import Head
from symattn.attention.spec import Attention
from symattn.bounds.contracts import Contract, Made, family, replay, stored_scales
from symattn.bounds.sharp import rows_in_float64
from symattn.bounds.sharp.limits import Floats, Stores
from symattn.bounds.storing import rounded

# Replays return outputs as they are before they are stored.
_EXACT = Format("float64")
_THIRDS = 6  # of u, between two numbers of the format that are 2u of themselves apart
_PHASES = 4  # of a binade, from which thirds are counted: only at some are numbers of several sizes rounded together


def ways(spec: Attention, head: Head, how: Stores) -> Iterator[tuple[Attention, Head]]:
    """Yield ways to scale: by the scale or a constant of the format; queries, or also keys, stored times it or not.

    For each scale: as given; queries stored times the scale, or times the scale and log₂ e; queries and keys stored
    times its root. With wide scores only the first of these: nothing but weights is stored then; in FP8 only the scale
    as given, as that is float32's.
    """
    yield spec, head
    s = scale_of(spec, head.q.shape[-1])
    # A scale that is an array has no constants here, and FP8 scales in float32.
    if not s or how.output is not None:
        return
    # log₂ e goes into the scale unless powers are of 2 already or a cap comes in between.
    constants = _rounded_scale_constants(
        s, how.format, 1.0 if spec.base == 2 or spec.capped else log(2)
    )
    yield from ((replace(spec, scale=c), head) for c in constants)
    # Queries are stored scaled where scores are stored too; a root needs s > 0.
    if not how.scores or spec.base == 2 or s < 0:
        return
    stored, unscaled = how.format.rounded, replace(spec, scale=1)
    q = rows_in_float64.wide(head.q)
    for c in (s, *constants):
        yield unscaled, replace(head, q=stored(q * c))
        rescaled = q * (c / log(2))
        yield replace(spec, scale=log(2)), replace(head, q=stored(rescaled))
        root = sqrt(c)
        half_scaled = stored(q * root)
        yield unscaled, replace(head, q=half_scaled, k=stored(rows_in_float64.wide(head.k) * root))


def _rounded_scale_constants(s: float, f: Format, unit: float) -> list[float]:
    """Return s rounded to the format, as a divisor of scores, as its reciprocal, and times 1/unit: log₂ e if powers of
    2 may follow.

    Subnormal results, which are far from s, are left out.
    """
    neighbours = constants(np.array([s]), f, unit)
    every = neighbours[:, 0].tolist()
    return [c for c in sorted(set(every)) if c != s]


def constants(s: Floats, f: Format, unit: float) -> Floats:
    """Return ``_rounded_scale_constants`` for each of several scales, in rows; s itself in place of constants far
    from it."""
    result = np.stack([*stored_scales(f, s, unit).values()])
    # Constants farther from s are subnormal, and no legal way to scale.
    with np.errstate(all="ignore"):
        close = np.abs(result / s - 1) <= 3 * f.u
        return np.where(close, result, s)


def scale_of(spec: Attention, width: int) -> float | None:
    """Return the factor of scores as a number; None where it is given as an array."""
    if spec.scale is None:
        return 1 / sqrt(width)
    if spec.scale == "1/d_k":
        return 1 / width
    return float(spec.scale) if isinstance(spec.scale, Real | Fraction) else None


def replays(block: rows_in_float64.QueryBlock, how: Stores) -> Iterator[Floats]:
    """Yield the outputs of right implementations for a block's queries: every contract that stores no more.

    Outputs come before as well as after they are stored, since storing hides less than half an ulp.
    """
    shared: Made = {}
    inputs = frozenset(block.given)
    for contract in family(block.spec, inputs, how.format, len(block.values)):
        # Stored queries are ways of their own; more stored scores than N1 allows are not right.
        if contract.queries or (contract.scores and not how.scores):
            continue
        # In FP8 exponentials are stored before they are divided.
        if how.output is not None and contract.powers == "normalised":
            continue
        # scores, shared with the following contracts
        shared = {} if contract.powers == "" else shared
        for relative in _yield_reference_contracts(
            replace(contract, output=_EXACT, times=how.times), how
        ):
            out = replay(
                relative,
                block.spec,
                block.given,
                # A contract without powers fills the cache; others start from a copy.
                made=shared if contract.powers == "" else dict(shared),
            )
            yield from (out, rounded(how.last, out))


def _yield_reference_contracts(contract: Contract, how: Stores) -> Iterator[Contract]:
    """Yield the contract with exponentials relative to each kind of reference that N1 allows.

    Exponentials that lie closer together than numbers of the format are rounded together, by an amount that depends on
    the reference: with a fixed one it may be half an ulp. Ulps are u to 2u of such a number, so among references a
    third of u apart one gives at least two thirds of that. Exponentials of two sizes are rounded so only at some
    references, which are sought at several phases of a binade.
    """
    yield contract
    # Only exponentials as they are stored depend on their reference.
    if contract.powers not in ("alone", "summed") or how.output is not None:
        return
    if contract.tiles:
        yield replace(contract, reference="stale")
    else:
        for phase, step in product(range(_PHASES), range(_THIRDS)):
            times = 2 ** (phase / _PHASES) + step * how.u / 3
            yield replace(contract, reference="fixed", times=times)


# -- gradients: the factor of the scores of a head is a number, given ones too ----------------------------------------
def own_heads(
    spec: Attention, inputs: Mapping[str, object]
) -> tuple[list[tuple[Attention, Head]], tuple[int, ...]]:
    """Return the heads, each with a specification whose scale is a number, and the shape of the output.

    Raises the errors of ``every_head``.
    """
    of, every, shape = rows_in_float64.every_head(*_without_scale(spec, inputs))
    # Heads share the scale of the specification.
    if spec.scale != "given":
        return [(of, head) for head in every], shape
    numbers = np.asarray(inputs["scale"]).reshape(-1)
    # One scale for all heads, or one for each.
    scales = (float(numbers[head.index[-1] if len(numbers) > 1 else 0]) for head in every)
    return [
        (replace(of, scale=scale), head) for scale, head in zip(scales, every, strict=True)
    ], shape


def bounded(spec: Attention, inputs: Mapping[str, object]) -> bool:
    """Return whether the bound of gradients covers this: dot products times a scale, masks, biases, caps and sinks."""
    return spec.base is None and rows_in_float64.applies(*_without_scale(spec, inputs))


def scalings(
    spec: Attention, inputs: Mapping[str, Any], how: Stores
) -> Iterator[tuple[Attention, Mapping[str, Any]]]:
    """Yield the attention with its own scale, then with each constant of the format that may replace it."""
    if spec.scale != "given":
        s = scale_of(spec, inputs["q"].shape[-1])
        alternatives = _rounded_scale_constants(s, how.format, log(2)) if s else []
        yield from ((replace(spec, scale=scale), inputs) for scale in (spec.scale, *alternatives))
        return
    yield spec, inputs
    # The scale is an array: each constant replaces all of its entries.
    array = np.asarray(inputs["scale"], dtype=np.float64)
    for other in constants(array, how.format, log(2)):
        if (other != array).any():
            yield spec, {**inputs, "scale": other}


def largest_scale(spec: Attention, inputs: Mapping[str, Any]) -> float:
    """Return the largest absolute value of the factors of scores."""
    if spec.scale == "given":
        return float(np.abs(inputs["scale"]).max())
    return abs(scale_of(spec, inputs["q"].shape[-1]) or 0.0)


def _without_scale(
    spec: Attention, inputs: Mapping[str, object]
) -> tuple[Attention, dict[str, Any]]:
    if spec.scale != "given":
        return spec, dict(inputs)
    others = {name: a for name, a in inputs.items() if name != "scale"}
    return replace(spec, scale=1), others

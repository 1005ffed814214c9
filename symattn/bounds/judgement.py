"""Whether a right implementation can give an output: by the worst case, and in half precision by the sharp filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.arrays.special import Forbidden
from symattn.arrays.tensors import copied
from symattn.attention.inputs import shape
from symattn.attention.spec import Attention
from symattn.bounds.case_result import ratio
from symattn.bounds.judge import expected, in_float64, products
from symattn.bounds.log_sums import log_sums
from symattn.bounds.sharp import elements, means
from symattn.bounds.sharp.blocks import Made, applies, wide
from symattn.bounds.sharp.elements import Accused
from symattn.bounds.sharp.limits import Stores
from symattn.bounds.sharp.means import Mean
from symattn.bounds.sharp.sample import averaged, chosen, only
from symattn.document.errors import InputError, Refused

Arrays = Mapping[str, Any]  # of NumPy, or tensors on a device that are judged there
_MOST = 5_000_000  # products of weights and values that balls are made for at once
_FEW = 20_000  # products, up to which balls take no time
_LOOKED = 32  # accused rows that the worst case looks at, the worst one among them


@dataclass(frozen=True, eq=False)
class Measured:
    """For each element of an output: the error as a part of what the worst case allows, the exact value, what is
    allowed."""

    ratios: np.ndarray
    exact: np.ndarray
    allowed: np.ndarray

    @property
    def worst(self) -> tuple[int, ...]:
        """The index of the largest ratio."""
        return tuple(int(i) for i in np.unravel_index(int(self.ratios.argmax()), self.ratios.shape))

    @property
    def beyond(self) -> bool:
        """Whether some element is none that an implementation in the arithmetic can give."""
        return bool((self.ratios > 1).any())


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is beyond which limit, empty where nothing is, and the largest error as a part of what is legal.

    ``worst case``: no implementation in the arithmetic gives this. ``elements``, ``means``: a right output gives this
    with a probability of at most alpha, if roundings are independent, and never where ``certain``. ``measured`` is by
    the worst case, of ``rows``; ``accused`` and ``mean`` are what the filter says.
    """

    beyond: Literal["", "worst case", "elements", "means"]
    ratio: float
    at: tuple[int, ...]
    measured: Measured | None = None
    rows: Sequence[int] = ()
    accused: Accused | None = None
    mean: Mean | None = None

    @property
    def certain(self) -> bool:
        """Whether no rounding, however it falls, explains it."""
        by_filter = self.mean.certain if self.mean else self.accused.certain if self.accused else 0.0
        return self.beyond == "worst case" or (bool(self.beyond) and by_filter > 1)


def judge_output(
    spec: Attention,
    inputs: Arrays,
    got: Any,
    precision: Precision,
    how: Stores | None = None,
    alpha: float = 1.0,
    rows: Sequence[int] | None = None,
    most: int | None = None,
) -> Judgement:
    """Judge ``got`` (…, n_q, d_v) as the output of ``spec`` for ``inputs``, whose queries are called ``rows``.

    Without ``how`` the worst case decides. With it, the filter of half precision looks first, which is fast, and what
    it accuses is looked at by the worst case too, which is beyond doubt; of few elements the worst case is first. Where
    the filter says nothing, or its hypothesis is not supported by right replays, the worst case alone decides. Means
    are of at most ``most`` rows of a head (None: ``sample.averaged``). Raises ``InputError`` where there are too many
    elements for balls, which some specifications need.
    """
    if how is None or not applies(spec, inputs):
        return _by_worst_case(spec, inputs, got, precision)
    if prod(got.shape) * inputs["k"].shape[-2] <= _FEW:
        first = _by_worst_case(spec, inputs, got, precision)
        if first.beyond:
            return first
    try:
        found = by_filter(spec, inputs, got, how, alpha, rows, most)
    except Refused:
        return _by_worst_case(spec, inputs, got, precision)
    accused = found.accused
    if accused is None or not accused.count:
        return found
    some = sorted(accused.rows[:_LOOKED] if accused.counts else accused.rows)
    certified = _by_worst_case(*only(spec, inputs, some), got[..., some, :], precision, some)
    if certified.beyond or not accused.counts:
        return replace(certified, accused=accused)
    return replace(found, measured=certified.measured, rows=some)


def by_filter(
    spec: Attention,
    inputs: Arrays,
    got: Any,
    how: Stores,
    alpha: float,
    rows: Sequence[int] | None = None,
    most: int | None = None,
) -> Judgement:
    """Judge by roundings to nearest: each element, and then weighted means of them, with ``alpha`` shared by both.

    Elements are not ``beyond`` where right replays need too much of their tolerance. Raises ``Refused`` where nothing
    is known.
    """
    made: Made = {}
    accused = elements.judged(spec, inputs, how, got, alpha / 2, made)
    if accused.count:
        return Judgement("elements" if accused.counts else "", accused.share, accused.worst, accused=accused)
    most, n = most or averaged(prod(got.shape[:-2]), inputs["k"].shape[-2]), got.shape[-2]
    some = chosen(spec, inputs, most) if n > most else list(range(n))
    called = some if rows is None else [rows[i] for i in some]
    kept = made if len(some) == n else None
    mean = means.judged(*only(spec, inputs, some), how, got[..., some, :], alpha / 2, called, kept)
    if mean is None or not mean.counts:
        return Judgement("", accused.share, accused.worst)
    return Judgement("means", mean.share, accused.worst, rows=some, mean=mean)


def _by_worst_case(
    spec: Attention, inputs: Arrays, got: Any, precision: Precision, rows: Sequence[int] | None = None
) -> Judgement:
    measured = measure(spec, {name: copied(a) for name, a in inputs.items()}, copied(got), precision)
    at = measured.worst
    beyond: Literal["", "worst case"] = "worst case" if measured.beyond else ""
    rows = range(got.shape[-2]) if rows is None else rows
    return Judgement(beyond, float(measured.ratios[at]), (*at[:-2], rows[at[-2]], at[-1]), measured, rows)


def measure(spec: Attention, inputs: Arrays, got: np.ndarray, precision: Precision) -> Measured:
    """Compare with the worst case: all at once in float64 where that decides, else by elements of the batch.

    Of many products in a format narrower than float64, what enclosures leave open counts as legal.
    """
    inputs = widened(inputs)
    quick = in_float64(spec, inputs, precision)
    if quick is not None and quick.decides(got):
        return Measured(quick.ratios(got), quick.near, quick.allowed)
    n = products(spec, inputs)
    lenient = precision.input.name != "float64" and n > _FEW
    measured = Measured(*(np.zeros(got.shape) for _ in range(3)))
    for index in np.ndindex(got.shape[: got.ndim - 2 - (spec.heads > 1)]):
        try:
            right = expected(spec, element(spec, inputs, index), precision, most=_MOST, lenient=lenient)
        except Refused as error:
            if n <= _MOST:
                raise
            raise InputError(
                f"{got.shape[-2]} queries, {inputs['k'].shape[-2]} keys, {got.shape[-1]} columns are too many for this "
                "specification and dtype; hint: give a slice of the queries or of the heads"
            ) from error
        measured.ratios[index], measured.allowed[index] = right.ratios(got[index]), right.allowed
        measured.exact[index] = right.near
    return measured


def measure_logarithms(spec: Attention, inputs: Arrays, got: np.ndarray, precision: Precision) -> Measured:
    """The same for logarithms of the sums of rows, (…, n_q)."""
    inputs = widened(inputs)
    own = 1 + (spec.heads > 1)
    measured = Measured(*(np.zeros(got.shape) for _ in range(3)))
    for index in np.ndindex(got.shape[: got.ndim - own]):
        exact, allowed = log_sums(spec, element(spec, inputs, index), precision)
        measured.ratios[index] = np.frompyfunc(ratio, 3, 1)(got[index], exact.entries, allowed).astype(float)
        measured.exact[index] = np.vectorize(_middle, otypes=[float])(exact.entries)
        measured.allowed[index] = allowed
    return measured


def _middle(x: object) -> float:
    return float(x.mid()) if hasattr(x, "mid") else -np.inf if isinstance(x, Forbidden) else np.nan


def widened(inputs: Arrays) -> dict[str, Any]:
    """The inputs with float64 in place of float32."""
    return {name: wide(a) if a.dtype == namespace_of(a).float32 else a for name, a in inputs.items()}


def element(spec: Attention, inputs: Arrays, index: tuple[int, ...]) -> dict[str, Any]:
    """The inputs of one element of the batch."""
    axes = {name: len(shape(name, spec, inputs).replace("…", "").split()) for name in inputs}
    return {name: _at(a, index, axes[name]) for name, a in inputs.items()}


def _at(array: np.ndarray, index: tuple[int, ...], own: int) -> np.ndarray:
    """The element of a batch that an index names; axes of length 1 stand for all."""
    front = array.shape[: max(0, array.ndim - own)]
    at = tuple(min(i, n - 1) for i, n in zip(index[len(index) - len(front) :], front, strict=True))
    return np.asarray(array[at])

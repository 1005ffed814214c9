"""Judge outputs: can a right implementation give them, by the worst case, or in half precision by the filter?

Log-sums are judged by the worst case: how far the logarithm of the sum of a row's exponentials can be off.
Statement. Let L = ln Σ e^{t_j} over the keys that a row may see (and its sink), and L̂ what an implementation gives
that computes it with the softmax of ``worst_case``, under H1 to H7 there. With the letters of its proof,
  |L̂ − L| ≤ B + g(1)(|L| + B) + η,   B = max_j (τ'_j + r_j + b⁰_j) + g(4)(|m| + 2τ*) + (g(4) + 2ε')(|m| + Λ)
                                        + merges · max_j e_j + 2κηn e^{(−m)⁺},
the last term with −m only where nothing may have been subtracted, and B = ∞ where it is above 1.

Proof. By step 2 the sum is Σ e^{t_j − m̂} e^{θ_j + ρ_j}, but for underflow, with m̂ the reference as it is subtracted
(or 0), |θ_j| ≤ τ'_j + r_j, and |ρ_j| ≤ b⁰_j by step 4. Since Σ p_j e^{x_j} lies between the least and the largest of
the e^{x_j}, its logarithm is that of the exact sum, ln Σ e^{t_j − m̂}, up to the first term of B. The reference that is
added back may have passed its two roundings or not: g(2)|m̂|, with |m̂| ≤ (1 + g(2))(|m| + τ*), is less than the second.
By step 3 the logarithm, of size at most |m| + Λ if nothing was subtracted, is off by 2ε' of its size, and the sum with
m̂, its storing and a change of base by g(4): the third. Each merge by log-sum-exps adds two logarithms, sums and an
exponential of a difference, which is e_j of step 3b. Underflow moves a sum, which is at least 1, or e^m where nothing
was subtracted, by at most κηn, and the logarithm by twice its part of the sum, if that is at most 1/2. The last
rounding is that of the result.                                                                                      ∎
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.ball import precision as bits
from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.arrays.special import Forbidden
from symattn.arrays.tensors import copied
from symattn.attention.inputs import shape
from symattn.attention.spec import Attention
from symattn.bounds.arithmetic import g, number, rate, size, upper, xp
from symattn.bounds.balls import _Bound
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import ExactOutput, Expected
from symattn.bounds.judge import expected, in_float64, products
from symattn.bounds.reference import Run, run, usual
from symattn.bounds.sharp import elements, means, rows_in_float64
from symattn.bounds.sharp.elements import Accused
from symattn.bounds.sharp.limits import Stores
from symattn.bounds.sharp.means import MeanBeyondLimit
from symattn.bounds.sharp.sample import averaged, chosen, only
from symattn.document.errors import InputError, Refused, Undecided

Arrays = Mapping[str, Any]  # of NumPy, or tensors on a device that are judged there
# largest number of products of weights and values that are computed in balls at once
_MOST = 5_000_000
_FEW = 20_000  # products, up to which balls are fast
_LOOKED = 32  # accused rows that the worst case checks, including the worst one


@dataclass(frozen=True, eq=False)
class Measured:
    """For each element of an output: the error as a part of what the worst case allows, the exact value, and the
    error allowed."""

    ratios: np.ndarray
    near: np.ndarray
    allowed: np.ndarray

    @classmethod
    def of(cls, right: Expected, got: np.ndarray) -> Measured:
        """Return the measures of one output."""
        return cls(right.ratios(got), right.near, right.allowed)

    @classmethod
    def whole(
        cls, shape: tuple[int, ...], parts: Iterable[tuple[tuple[int, ...], Measured]]
    ) -> Measured:
        """Return the measures of an output of this shape, from those of its batch elements."""
        ratios, near, allowed = (np.zeros(shape) for _ in range(3))
        for index, part in parts:
            ratios[index], near[index], allowed[index] = part.ratios, part.near, part.allowed
        return cls(ratios, near, allowed)

    @property
    def worst(self) -> tuple[int, ...]:
        """The index of the largest ratio."""
        place = np.unravel_index(int(self.ratios.argmax()), self.ratios.shape)
        return tuple(int(i) for i in place)

    @property
    def beyond(self) -> bool:
        """Return whether no implementation in the arithmetic can give some element."""
        return bool((self.ratios > 1).any())


@dataclass(frozen=True, eq=False)
class Judgement:
    """The limit that an output exceeds, if any, and the largest error as a part of the legal one.

    ``worst case``: no implementation in the arithmetic gives this. ``elements``, ``means``: a right output gives this
    with a probability of at most alpha, if roundings are independent, and never if ``certain``. ``measured`` is by the
    worst case, for ``rows``; ``accused`` and ``mean`` are the filter's results.
    """

    beyond: Literal["", "worst case", "elements", "means"]
    ratio: float
    at: tuple[int, ...]
    measured: Measured | None = None
    rows: Sequence[int] = ()
    accused: Accused | None = None
    mean: MeanBeyondLimit | None = None

    @property
    def certain(self) -> bool:
        """Return whether no rounding, however it falls, explains it."""
        by_filter = (
            self.mean.certain if self.mean else self.accused.certain if self.accused else 0.0
        )
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
    factors: np.ndarray | None = None,
) -> Judgement:
    """Judge ``got`` (…, n_q, d_v) as the output of ``spec`` for ``inputs``, whose queries are reported as ``rows``.

    Without ``how`` the worst case decides. With it, the fast filter of half precision comes first, and the worst case,
    which is certain, checks what it accuses; for few elements the worst case comes first. If the filter does not apply,
    or right replays do not support its hypothesis, the worst case alone decides. Means are of at most ``most`` rows of
    a head (None: ``sample.averaged``). With ``factors``, by which dropout multiplies weights, all roundings together
    decide (``sharp.backward``), if arrays are stored as ``how`` says. Raises ``InputError`` for too many elements if
    the specification needs balls.
    """
    if factors is not None:
        from symattn.bounds.sharp.backward_bounds import (
            outputs as dropped,
        )  # most outputs do not need it

        assert how is not None
        return _judge_measured(Measured.of(dropped(spec, inputs, how, factors), got), rows)
    if how is None or not rows_in_float64.applies(spec, inputs):
        return _judge_by_worst_case(spec, inputs, got, precision)
    # Few elements: the worst case is fast, and certain.
    if prod(got.shape) * inputs["k"].shape[-2] <= _FEW:
        first = _judge_by_worst_case(spec, inputs, got, precision)
        if first.beyond:
            return first
    try:
        judgement = judge_by_filter(spec, inputs, got, how, alpha, rows, most)
    # The filter does not apply after all.
    except Refused:
        return _judge_by_worst_case(spec, inputs, got, precision)
    accused = judgement.accused
    # Nothing is accused, or means alone are.
    if accused is None or not accused.count:
        return judgement
    # Without the law of rounding every accused row is checked, since only the worst case counts.
    checked = sorted(accused.rows[:_LOOKED] if accused.counts else accused.rows)
    certified = _judge_by_worst_case(
        *only(spec, inputs, checked), got[..., checked, :], precision, checked
    )
    if certified.beyond or not accused.counts:
        return replace(certified, accused=accused)
    return replace(judgement, measured=certified.measured, rows=checked)


def judge_by_filter(
    spec: Attention,
    inputs: Arrays,
    got: Any,
    how: Stores,
    alpha: float,
    rows: Sequence[int] | None = None,
    most: int | None = None,
) -> Judgement:
    """Judge by roundings to nearest: each element, and then weighted means of them, with ``alpha`` shared by both.

    Elements are not ``beyond`` if right replays need too much of their tolerance. Raises ``Refused`` if the filter does
    not apply.
    """
    result: rows_in_float64.Made = {}
    # Both tests share alpha, and the elements' last blocks are used again by the means.
    accused = elements.judged(spec, inputs, how, got, alpha / 2, result)
    if accused.count:
        return Judgement(
            "elements" if accused.counts else "", accused.share, accused.worst, accused=accused
        )
    items = prod(got.shape[:-2])
    most = most or averaged(items, inputs["k"].shape[-2])
    n = got.shape[-2]
    # Means need rows from all over the output, whether or not they have errors.
    sample = chosen(spec, inputs, most) if n > most else list(range(n))
    called = sample if rows is None else [rows[i] for i in sample]
    # Blocks of other rows are of no use.
    reusable = result if len(sample) == n else None
    some = only(spec, inputs, sample)
    sampled = got[..., sample, :]
    mean = means.judged(*some, how, sampled, alpha / 2, called, reusable)
    if mean is None or not mean.counts:
        return Judgement("", accused.share, accused.worst)
    return Judgement("means", mean.share, accused.worst, rows=sample, mean=mean)


def _judge_by_worst_case(
    spec: Attention,
    inputs: Arrays,
    got: object,
    precision: Precision,
    rows: Sequence[int] | None = None,
) -> Judgement:
    own_inputs = {n: copied(a) for n, a in inputs.items()}
    return _judge_measured(measure(spec, own_inputs, copied(got), precision), rows)


def _judge_measured(measured: Measured, rows: Sequence[int] | None) -> Judgement:
    at = measured.worst
    beyond: Literal["", "worst case"] = "worst case" if measured.beyond else ""
    rows = range(measured.ratios.shape[-2]) if rows is None else rows
    row = rows[at[-2]]
    place = (*at[:-2], row, at[-1])
    return Judgement(beyond, float(measured.ratios[at]), place, measured, rows)


def measure(spec: Attention, inputs: Arrays, got: np.ndarray, precision: Precision) -> Measured:
    """Compare with the worst case: all at once in float64 if that decides, else by batch element.

    With many products in a format narrower than float64, what enclosures leave open counts as legal.
    """
    inputs = widened(inputs)
    n = products(spec, inputs)
    lenient = precision.input.name != "float64" and n > _FEW
    quick = in_float64(spec, inputs, precision)
    # An output within the enclosures needs no balls.
    if quick is not None and (lenient or quick.decides(got)):
        return Measured.of(replace(quick, lenient=lenient), got)

    def part(index: tuple[int, ...]) -> Measured:
        own = element(spec, inputs, index)
        return Measured.of(expected(spec, own, precision, most=_MOST, lenient=lenient), got[index])

    try:
        # Axes of the batch: all but heads, rows and columns.
        front_axes = got.shape[: got.ndim - 2 - len(spec.head_axis)]
        batch = np.ndindex(front_axes)
        return Measured.whole(got.shape, ((index, part(index)) for index in batch))
    except Refused as error:
        # Few products and still refused: another reason, so the error stands.
        if n <= _MOST:
            raise
        raise InputError(
            f"{got.shape[-2]} queries, {inputs['k'].shape[-2]} keys, {got.shape[-1]} columns are too many for this "
            "specification and dtype; hint: give a slice of the queries or of the heads"
        ) from error


def measure_logarithms(
    spec: Attention, inputs: Arrays, got: np.ndarray, precision: Precision
) -> Measured:
    """Compare log-sum-exps of rows, (…, n_q), with the worst case."""
    inputs = widened(inputs)

    def part(index: tuple[int, ...]) -> Measured:
        right = log_sums(spec, element(spec, inputs, index), precision)
        result = Measured.of(right, got[index])
        # A row without any key has the logarithm −∞, which is no number to compare.
        forbidden = np.frompyfunc(lambda x: isinstance(x, Forbidden), 1, 1)(right.exact)
        is_forbidden = forbidden.astype(bool)
        return replace(result, near=np.where(is_forbidden, -np.inf, result.near))

    front_axes = got.shape[: got.ndim - 1 - len(spec.head_axis)]
    batch = np.ndindex(front_axes)
    return Measured.whole(got.shape, ((index, part(index)) for index in batch))


def widened(inputs: Arrays) -> dict[str, Any]:
    """Return the inputs with float64 in place of float32."""
    return {
        name: rows_in_float64.wide(a) if a.dtype == namespace_of(a).float32 else a
        for name, a in inputs.items()
    }


def element(spec: Attention, inputs: Arrays, index: tuple[int, ...]) -> dict[str, Any]:
    """Return the inputs of one element of the batch."""
    result = {}
    for name, a in inputs.items():
        own = len(shape(name, spec, inputs).replace("…", "").split())
        front = a.shape[: max(0, a.ndim - own)]
        # axes of length 1 are broadcast
        # Axes are matched from the right; broadcast ones are read at 0.
        own_index = zip(index[-len(front) :], front, strict=False)
        result[name] = np.asarray(a[tuple(min(i, n - 1) for i, n in own_index)])
    return result


# Bits of balls for log-sum-exps, far more than float64's 53.
_BITS = 192


def log_sums(spec: Attention, inputs: Inputs, precision: Precision) -> ExactOutput:
    """Return the exact log-sum-exps (…, n_q), −∞ for a row without any key, and how far legal ones may be from them.

    Raises ``InputError`` unless scores are scaled dot products under masks.
    """
    if not usual(replace(spec, sink=None)):
        raise InputError(
            "the logarithms of sums are judged where scores are scaled dot products under masks alone"
        )
    with bits(_BITS):
        reference = run(replace(spec, lse=True), inputs)
        exact = reference.values["lse"]
        try:
            return ExactOutput(exact.entries, _bound_logsumexp_error(reference, exact, precision))
        except Undecided:  # exponentials of errors beyond all range
            return ExactOutput(exact.entries, np.full(exact.plain_shape, np.inf))


def _bound_logsumexp_error(reference: Run, exact: Ball, precision: Precision) -> np.ndarray:
    bound = _Bound(reference, precision)
    four, six = g(4, precision.score), g(6, precision.score)
    # b⁰_j of step 4, as an exponent.
    additions = Ball.lift(bound.counts.below + bound.rescalings)
    sums = additions * rate(precision.accumulate)
    first_errors = bound.tau + bound.rule.first + sums
    moved = xp.max(xp.where(bound.open, first_errors, 0), axis=-1)
    grown = bound.rule.grown[..., 0]
    m = size(bound.m)[..., 0]
    star = bound.star[..., 0]
    spread = bound.log_n + 2 * star + grown
    # The third term of B: (g(4) + 2ε')(|m| + Λ).
    taken = (four + 2 * bound.eps) * (m + spread)
    # e_j of step 3b, at its largest.
    merging = six * (xp.max(bound._length(), axis=-1) + spread)
    merging = merging + 2 * bound.eps * (bound.log_n + grown) + bound.eps
    if bound.counts.merges:
        merging = merging / bound.counts.room(six + 2 * bound.eps)
    eta = max(precision.score.eta, precision.accumulate.eta) * bound.counts.underflowing
    lost = (bound._without_subtraction() * eta * (2 * bound.n))[..., 0]  # the change by underflow
    of_logarithm = four * (m + 2 * star)
    # B, before rounding
    total = moved + of_logarithm + taken + merging * bound.counts.merges + lost
    f, over = precision.returned, bound.may_overflow()
    largest = size(number(exact)) + total
    result = upper(total + largest * g(1, f) + f.eta)
    # Underflow of more than half the sum is outside the proof.
    result[(upper(lost) > 1) | (over.any(axis=-1) if over.ndim > result.ndim else over)] = np.inf
    return result

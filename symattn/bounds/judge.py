"""The exact output of attention, what is allowed about it, and whether a call or a variant gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.ball import precision as bits
from symattn.arrays.enclosure import Enclosure
from symattn.arrays.precision import Precision
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.enclosed import Enclosed, enclose
from symattn.attention.spec import Attention
from symattn.bounds import enclosed, plain
from symattn.bounds.case_result import UNFIT, Case, CaseResult, Expected, compared, largest, matches, middles
from symattn.bounds.reference import RIGHT, Run, Variant, canonical, changed, run
from symattn.bounds.target import Inputs, Outcome
from symattn.bounds.worst_case import allowed
from symattn.document.errors import InputError, Refused, Undecided

_START, _LIMIT = 128, 4096
_NEARBY, _MOVED = 2.0**-20, ("q", "x")  # how far inputs are moved where a comparison on them is not decided
_FAR, _LONG = 64.0, 100  # products, and numbers of keys, from which on keys that are left out make a difference
_SCORES = 1 << 23  # that are enclosed at once, where there is a limit to what balls are made for
_SHARP = 2.0**-20  # the reference's radius is less than this part of what is allowed


@dataclass(frozen=True)
class Traced(Expected):
    """The exact output with the run that gave it, and how far a legal implementation may be from it.

    The run is one on enclosures where these are narrow enough for what is allowed, and else on balls. It is made when
    it is asked for where the output alone is known without it, ``quick``. Where it is ``lenient``, what enclosures
    leave open counts as legal, and balls are not made.
    """

    made: Callable[[], Run]
    allowed: np.ndarray
    quick: Enclosed | None = None
    lenient: bool = False

    @classmethod
    def of(cls, run: Run, allowed: np.ndarray) -> Traced:
        """With a run that is there."""
        return cls(lambda: run, allowed)

    @cached_property
    def run(self) -> Run:
        """The run."""
        return self.made()

    @cached_property
    def in_balls(self) -> Run:
        """The run on balls whose radius is negligible against what is allowed."""
        return self.run if self.run.kind is Ball else _sharp(self.run, self.allowed)

    @property
    def entries(self) -> np.ndarray:
        """The exact output's entries: balls, and undefined ones."""
        entries: np.ndarray = self.in_balls.output.entries
        return entries

    @cached_property
    def near(self) -> np.ndarray:
        """The exact output as float64; NaN where it is no number."""
        return centres(self.run.output) if self.quick is None else self.quick.centre

    def widened(self, allowed: np.ndarray) -> Traced:
        """The same output, where so much is allowed."""
        return replace(self, allowed=allowed)

    def ratios(self, got: np.ndarray) -> np.ndarray:
        """See ``Expected.ratios``; by enclosures where these decide all entries."""
        if self.quick is not None:
            found, sure = _ratios(got, *self.quick, self.allowed)
            if sure or self.lenient:
                return found
        if self.run.kind is Enclosure:
            found, sure = _ratios(got, self.run.output.mid, self.run.output.rad, self.allowed)
            if sure or self.lenient:
                return found
        return super().ratios(got)

    def decides(self, got: np.ndarray) -> bool:
        """Whether enclosures in float64 say of each entry whether it is legal."""
        return self.quick is not None and _ratios(got, *self.quick, self.allowed)[1]

    def decisive(self) -> np.ndarray:
        """Where the allowed error is smaller than what other weights could do: |y − o| for y one of the values."""
        return np.asarray(self.allowed < largest(centres(self.run.values["v"])))

    @property
    def narrow(self) -> bool:
        """Whether the radius of an enclosed output is negligible against what is allowed."""
        mid, rad = (self.run.output.mid, self.run.output.rad) if self.quick is None else self.quick
        return bool(((rad <= self.allowed * _SHARP) | (np.isnan(mid) & (rad == 0)) | (self.allowed == 0)).all())


def expected(
    spec: Attention,
    inputs: Inputs,
    precision: Precision,
    variant: Variant = RIGHT,
    most: int | None = None,
    lenient: bool = False,
) -> Traced:
    """Run the definition at the precision at which its radius is negligible against what is allowed.

    Where that is ``lenient``, enclosures are taken as wide as they are. Raises ``Refused`` where balls were to be made
    for more than ``most`` products of weights and values.
    """
    if variant.steps or variant.values != RIGHT.values or not variant.rows:
        return _by_balls(spec, inputs, precision, variant)
    spec, inputs = changed(canonical(spec), inputs, variant)
    quick = in_float64(spec, inputs, precision)
    if quick is not None and (lenient or quick.narrow):
        return replace(quick, lenient=lenient)
    return _by_run(spec, inputs, precision, None if quick is None else quick.allowed, most, lenient)


def in_float64(spec: Attention, inputs: Inputs, precision: Precision) -> Traced | None:
    """The output in float64, enclosed, and what is allowed, of a whole batch; None for what is not plain enough."""
    try:
        found = enclose(spec, inputs) if plain.applies(spec, inputs) else None
    except (Refused, InputError):
        return None
    if found is None:
        return None
    fast = plain.allowed(spec, inputs, precision)
    return Traced(lambda: _by_run(spec, inputs, precision, fast).run, fast, found)


def _by_run(
    spec: Attention,
    inputs: Inputs,
    precision: Precision,
    fast: np.ndarray | None,
    most: int | None = None,
    lenient: bool = False,
) -> Traced:
    """On enclosures where their radius is negligible, else in balls."""
    large = most is not None and products(spec, inputs) > _SCORES * inputs["v"].shape[-1]
    found = None if large else _enclosed(spec, inputs, precision, fast)
    if found is not None and (lenient or found.narrow):
        return replace(found, lenient=lenient)
    return _by_balls(spec, inputs, precision, RIGHT, fast if found is None else found.allowed, most)


def _by_balls(
    spec: Attention,
    inputs: Inputs,
    precision: Precision,
    variant: Variant,
    fast: np.ndarray | None = None,
    most: int | None = None,
) -> Traced:
    if most is not None and (n := products(spec, inputs)) > most:
        raise Refused(f"{n} products of weights and values are too many for balls")
    at = _START
    while True:
        try:
            with bits(at):
                reference = run(spec, inputs, variant)
                bound = fast if fast is not None else allowed(reference, precision)
            if at >= _LIMIT or _is_sharp(reference.output.entries, bound):
                return Traced.of(reference, bound)
        except Undecided:
            if at >= _LIMIT:
                raise
        at *= 2


def products(spec: Attention, inputs: Inputs) -> int:
    """How many products of weights and values the output of an element of a batch takes."""
    return spec.heads * prod(int(inputs[name].shape[-2]) for name in "qk") * int(inputs["v"].shape[-1])


def _unsaid(spec: Attention, inputs: Inputs) -> Traced:
    """Where a comparison depends on rounding, as at the edge of what sparse weights keep: any numbers are legal.

    What is expected besides, shapes and which entries are numbers, is that of inputs nearby.
    """
    near = {n: a * (1 + _NEARBY) if n in _MOVED and a.dtype.kind == "f" else a for n, a in inputs.items()}
    with bits(_START):
        reference = run(spec, near)
    return Traced.of(reference, np.full(reference.output.plain_shape, np.inf))


def _enclosed(spec: Attention, inputs: Inputs, precision: Precision, fast: np.ndarray | None) -> Traced | None:
    """The definition on enclosures, and the bound of that run where ``fast`` does not say it; None where there is none.

    Variants are left to balls.
    """
    if fast is None and not enclosed.encloses(spec, inputs):
        return None
    try:
        with np.errstate(all="ignore"):  # a bound that overflows becomes +∞ or NaN, and then balls decide
            reference = run(spec, inputs, kind=Enclosure)
            return Traced.of(reference, enclosed.of_run(reference, precision) if fast is None else fast)
    except (Refused, Undecided):
        return None


def _sharp(reference: Run, allowed: np.ndarray) -> Run:
    at = _START
    while True:
        try:
            with bits(at):
                found = run(reference.spec, reference.inputs, reference.variant)
            if at >= _LIMIT or _is_sharp(found.output.entries, allowed):
                return found
        except Undecided:
            if at >= _LIMIT:
                raise
        at *= 2


def _ratios(got: np.ndarray, centre: np.ndarray, radius: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, bool]:
    """Ratios by enclosures, at most 1 for entries that these leave open, and whether there are none of these.

    Rounding in the difference and in the quotient is outweighed by 2⁻⁴⁰ of what they are.
    """
    undefined = np.isnan(centre)
    with np.errstate(all="ignore"):
        off = np.abs(got - centre)
        most, least = (off + radius) * (1 + 2.0**-40), np.maximum(off - radius, 0) * (1 - 2.0**-40)
        below, beyond = most <= limits, least > limits
        inside = np.where(most == 0, 0.0, np.minimum(most / limits, 1.0))
        outside = np.maximum(least / limits, 1 + 2.0**-40)
        found = np.where(beyond, outside, inside)
        strange = np.where(undefined, np.where(np.isnan(got), 0.0, np.inf), np.inf)
        found = np.where(undefined | ~np.isfinite(got), strange, found)
        found = np.where(np.isinf(limits) & ~undefined, 0.0, found)
    sure = below | beyond | undefined | ~np.isfinite(got) | np.isinf(limits)
    return found, bool((sure & ~(undefined & (radius > 0))).all())


def judge(spec: Attention, precision: Precision, case: Case, outcome: Outcome) -> CaseResult:
    """Compare what the function gave with what is legal."""
    try:
        right = expected(spec, case.inputs, precision)
    except Undecided:
        return replace(compared(case, outcome, [_unsaid(spec, case.inputs)], precision), undecided=True)
    return compared(case, outcome, [_without_far_keys(spec, case.inputs, precision, right)], precision)


def _without_far_keys(spec: Attention, inputs: Inputs, precision: Precision, right: Traced) -> Traced:
    """The same output, with the smaller one of what is allowed and of what is allowed under an additive mask of zeros,
    where keys far below the others are left out (``bounds``, step 7): a function without a mask is one that adds zeros.
    """
    n_k = max(inputs[n].shape[-2] for n in ("k", "y", "x") if n in inputs)
    near = "q" in inputs and _length(inputs["q"]) * _length(inputs["k"]) < _FAR
    if spec.mask == "additive" or n_k < _LONG or near or right.decisive().all():
        return right
    spec = replace(canonical(spec), mask="additive")
    open_ = inputs.get("mask", np.ones(right.run.final_scores.plain_shape[-2:], dtype=bool))
    inputs = {**inputs, "mask": np.where(open_, 0.0, -np.inf)}
    found = _enclosed(spec, inputs, precision, None)
    return right if found is None else right.widened(np.fmin(right.allowed, found.allowed))


def _length(a: np.ndarray) -> float:
    """The largest norm of a row."""
    return float(np.sqrt(np.square(a.astype(np.float64)).sum(axis=-1).max(initial=0.0)))


def traced(judged: CaseResult) -> Traced:
    """What is expected of attention's output, with its run."""
    found = judged.parts[0].expected
    assert isinstance(found, Traced)
    return found


def centres(a: Any) -> np.ndarray:
    """The middles of an array of balls or of enclosures as float64; NaN for what is no number."""
    return np.asarray(a.mid) if isinstance(a, Enclosure) else middles(a.entries)


def _is_sharp(entries: np.ndarray, bound: np.ndarray) -> bool:
    for x, limit in zip(entries.flat, bound.flat, strict=True):
        if not isinstance(x, Undefined | Forbidden) and limit and not x.rad() <= limit * _SHARP:
            return False
    return True


def explains(spec: Attention, precision: Precision, judged: CaseResult, variant: Variant) -> bool | None:
    """Whether a variant of the definition gives what the function gave; None where that cannot be told.

    It cannot be told where the right definition would give that as well, or where the right value is one that an
    implementation of the variant might give too.
    """
    try:
        wrong = expected(spec, judged.case.inputs, precision, variant)
    except (Undecided, KeyError):  # undecided; or it changes an array that is not there
        return None
    except UNFIT:  # the variant cannot be computed for these shapes
        return judged.finding == "raises" or None if judged.outcome.error else False
    got = judged.outcome.output
    if got is None:
        return None if judged.outcome.error else False
    if got.shape != wrong.allowed.shape:
        return False
    return matches(judged.parts[0], wrong, np.isfinite(wrong.near) & np.isfinite(wrong.allowed))

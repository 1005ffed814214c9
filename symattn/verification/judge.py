"""The exact output of attention, what is allowed about it, and whether a call or a variant gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.ball import precision as bits
from symattn.arrays.enclosure import Enclosure
from symattn.arrays.precision import Precision
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.enclosed import Enclosed, enclose
from symattn.attention.spec import Attention
from symattn.errors import InputError, Refused, Undecided
from symattn.verification.bounding import enclosed, plain
from symattn.verification.bounds import allowed
from symattn.verification.case_result import UNFIT, Case, CaseResult, Expected, compared, largest, matches, middles
from symattn.verification.reference import RIGHT, Run, Variant, canonical, changed, run
from symattn.verification.target import Inputs, Outcome

_START, _LIMIT = 128, 4096
_NEARBY, _MOVED = 2.0**-20, ("q", "x")  # how far inputs are moved where a comparison on them is not decided
_SHARP = 2.0**-20  # the reference's radius is less than this part of what is allowed


@dataclass(frozen=True)
class Traced(Expected):
    """The exact output with the run that gave it, and how far a legal implementation may be from it.

    The run is one on enclosures where these are narrow enough for what is allowed, and else on balls. It is made when
    it is asked for where the output alone is known without it, ``quick``.
    """

    made: Callable[[], Run]
    allowed: np.ndarray
    quick: Enclosed | None = None

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
            if sure:
                return found
        if self.run.kind is Enclosure:
            found, sure = _ratios(got, self.run.output.mid, self.run.output.rad, self.allowed)
            if sure:
                return found
        return super().ratios(got)

    def decisive(self) -> np.ndarray:
        """Where the allowed error is smaller than what other weights could do: |y − o| for y one of the values."""
        return np.asarray(self.allowed < largest(centres(self.run.values["v"])))

    @property
    def narrow(self) -> bool:
        """Whether the radius of an enclosed output is negligible against what is allowed."""
        return _narrow(self.run.output.mid, self.run.output.rad, self.allowed)


def _narrow(mid: np.ndarray, rad: np.ndarray, allowed: np.ndarray) -> bool:
    return bool(((rad <= allowed * _SHARP) | (np.isnan(mid) & (rad == 0)) | (allowed == 0)).all())


def expected(spec: Attention, inputs: Inputs, precision: Precision, variant: Variant = RIGHT) -> Traced:
    """Run the definition at the precision at which its radius is negligible against what is allowed."""
    if variant.steps or variant.values != RIGHT.values or not variant.rows:
        return _by_balls(spec, inputs, precision, variant)
    spec, inputs = changed(canonical(spec), inputs, variant)
    fast = plain.allowed(spec, inputs, precision) if plain.applies(spec, inputs) else None
    quick = None if fast is None else _quick(spec, inputs, fast)
    if fast is None or quick is None:
        return _by_run(spec, inputs, precision, fast)
    return Traced(lambda: _by_run(spec, inputs, precision, fast).run, fast, quick)


def _quick(spec: Attention, inputs: Inputs, allowed: np.ndarray) -> Enclosed | None:
    """The output in float64, enclosed, where its radius is negligible."""
    try:
        found = enclose(spec, inputs)
    except (Refused, InputError):
        return None
    return found if _narrow(*found, allowed) else None


def _by_run(spec: Attention, inputs: Inputs, precision: Precision, fast: np.ndarray | None) -> Traced:
    """On enclosures where their radius is negligible, else in balls."""
    found = _enclosed(spec, inputs, precision, fast)
    if found is not None and found.narrow:
        return found
    return _by_balls(spec, inputs, precision, RIGHT, fast if found is None else found.allowed)


def _by_balls(
    spec: Attention, inputs: Inputs, precision: Precision, variant: Variant, fast: np.ndarray | None = None
) -> Traced:
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
    """Ratios by enclosures, and whether these say of each entry on which side of 1 it is.

    Rounding in the difference and in the quotient is outweighed by 2⁻⁴⁰ of what they are.
    """
    undefined = np.isnan(centre)
    with np.errstate(all="ignore"):
        off = np.abs(got - centre)
        most, least = (off + radius) * (1 + 2.0**-40), np.maximum(off - radius, 0) * (1 - 2.0**-40)
        below, beyond = most <= limits, least > limits
        inside = np.where(most == 0, 0.0, np.minimum(most / limits, 1.0))
        outside = np.maximum(least / limits, 1 + 2.0**-40)
        found = np.where(below, inside, outside)
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
    return compared(case, outcome, [right], precision)


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

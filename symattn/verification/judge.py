"""One call, judged: is what came back within what is legal?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.ball import precision as bits
from symattn.arrays.enclosure import Enclosure
from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.precision import Precision
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.spec import Attention
from symattn.errors import Refused, SymattnError, Undecided
from symattn.verification.bounding import plain
from symattn.verification.bounds import allowed
from symattn.verification.reference import RIGHT, Run, Variant, canonical, changed, run
from symattn.verification.target import Inputs, Memory, Outcome

_START, _LIMIT = 128, 4096
_NEARBY, _MOVED = 2.0**-20, ("q", "x")  # how far inputs are moved where a comparison on them is not decided
_SHARP = 2.0**-20  # the reference's radius is less than this part of what is allowed

Finding = Literal["values", "not finite", "shape", "dtype", "raises", "mutates", "overwrites"]


@dataclass(frozen=True, eq=False)
class Case:
    """Inputs to try, and what for."""

    group: str
    name: str
    inputs: Inputs
    memory: Memory = "contiguous"
    alone: bool = (
        True  # whether the function is told apart by these inputs alone, not by what it was called with before
    )

    @property
    def size(self) -> int:
        """Number of entries of the inputs."""
        return sum(int(np.asarray(a).size) for a in self.inputs.values())


@dataclass(frozen=True)
class Expected:
    """The exact output of the definition, or of a variant, and how far a legal implementation may be from it.

    The run is one on enclosures where these are narrow enough for what is allowed, and else on balls.
    """

    run: Run
    allowed: np.ndarray

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
        return centres(self.run.output)

    def ratios(self, got: np.ndarray) -> np.ndarray:
        """|got − exact| / allowed for each entry: above 1 exactly where no legal implementation gives ``got``.

        +∞ for NaN or infinity where a number is legal; 0 where nothing is said.
        """
        if self.run.kind is Enclosure:
            found, sure = _ratios(got, self.run.output, self.allowed)
            if sure:
                return found
        return np.asarray(np.frompyfunc(ratio, 3, 1)(got, self.entries, self.allowed), dtype=np.float64)

    def decisive(self) -> np.ndarray:
        """Where the allowed error is smaller than what other weights could do: |y − o| for y one of the values."""
        size = float(np.max(np.abs(self.run.values["v"].midpoints()), initial=0.0))
        return np.asarray(self.allowed < size)

    @property
    def narrow(self) -> bool:
        """Whether the radius of an enclosed output is negligible against what is allowed."""
        mid, rad = self.run.output.mid, self.run.output.rad
        return bool(((rad <= self.allowed * _SHARP) | (np.isnan(mid) & (rad == 0)) | (self.allowed == 0)).all())


def expected(spec: Attention, inputs: Inputs, precision: Precision, variant: Variant = RIGHT) -> Expected:
    """Run the definition at the precision at which its radius is negligible against what is allowed."""
    fast = None
    if not variant.steps and variant.values == RIGHT.values and variant.rows:
        spec, inputs = changed(canonical(spec), inputs, variant)
        variant, fast = RIGHT, plain.allowed(spec, inputs, precision) if plain.applies(spec, inputs) else None
        enclosed = _enclosed(spec, inputs, precision, fast)
        if enclosed is not None and enclosed.narrow:
            return enclosed
        fast = fast if enclosed is None else enclosed.allowed
    at = _START
    while True:
        try:
            with bits(at):
                reference = run(spec, inputs, variant)
                bound = fast if fast is not None else allowed(reference, precision)
            if at >= _LIMIT or _is_sharp(reference.output.entries, bound):
                return Expected(reference, bound)
        except Undecided:
            if at >= _LIMIT:
                raise
        at *= 2


def _unsaid(spec: Attention, inputs: Inputs) -> Expected:
    """Where a comparison depends on rounding, as at the edge of what sparse weights keep: any numbers are legal.

    What is expected besides, shapes and which entries are numbers, is that of inputs nearby.
    """
    near = {n: a * (1 + _NEARBY) if n in _MOVED and a.dtype.kind == "f" else a for n, a in inputs.items()}
    with bits(_START):
        reference = run(spec, near)
    return Expected(reference, np.full(reference.output.plain_shape, np.inf))


def _enclosed(spec: Attention, inputs: Inputs, precision: Precision, fast: np.ndarray | None) -> Expected | None:
    """The definition on enclosures, and the bound of that run where ``fast`` does not say it; None where there is none.

    Variants are left to balls.
    """
    if fast is None and not plain.encloses(spec, inputs):
        return None
    try:
        reference = run(spec, inputs, kind=Enclosure)
        return Expected(reference, plain.of_run(reference, precision) if fast is None else fast)
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


def _ratios(got: np.ndarray, exact: Enclosure, limits: np.ndarray) -> tuple[np.ndarray, bool]:
    """Ratios by enclosures, and whether these say of each entry on which side of 1 it is.

    Rounding in the difference and in the quotient is outweighed by 2⁻⁴⁰ of what they are.
    """
    centre, radius, undefined = exact.mid, exact.rad, np.isnan(exact.mid)
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


@dataclass(frozen=True, eq=False)
class Judged:
    """A case, what the function gave, and what is wrong with it (None: nothing)."""

    case: Case
    outcome: Outcome
    expected: Expected
    finding: Finding | None
    ratios: np.ndarray | None = None
    undecided: bool = False  # whether nothing is said of numbers, since the definition compares what may be equal

    @property
    def worst(self) -> float:
        """The largest ratio; 0 where no values could be compared."""
        return float(self.ratios.max(initial=0.0)) if self.ratios is not None else 0.0

    @property
    def where(self) -> tuple[int, ...]:
        """The index of the worst entry."""
        assert self.ratios is not None
        return tuple(int(i) for i in np.unravel_index(int(self.ratios.argmax()), self.ratios.shape))

    @cached_property
    def decisive(self) -> bool:
        """Whether some entry could have shown a fault."""
        return bool(self.expected.decisive().any())


def judge(spec: Attention, precision: Precision, case: Case, outcome: Outcome) -> Judged:
    """Compare what the function gave with what is legal."""
    try:
        right = expected(spec, case.inputs, precision)
    except Undecided:
        return replace(_judged(_unsaid(spec, case.inputs), precision, case, outcome), undecided=True)
    return _judged(right, precision, case, outcome)


def _judged(right: Expected, precision: Precision, case: Case, outcome: Outcome) -> Judged:
    if outcome.error is not None or outcome.output is None:
        return Judged(case, outcome, right, "raises")
    if outcome.output.shape != right.allowed.shape:
        return Judged(case, outcome, right, "shape")
    right = _stored_as(right, outcome.dtype, precision)
    ratios = right.ratios(outcome.output)
    return Judged(case, outcome, right, _finding(ratios, outcome, precision), ratios)


def _stored_as(right: Expected, dtype: str, precision: Precision) -> Expected:
    """What is allowed where a narrower type was returned: that is a fault of its own, and is not blamed on values."""
    if holds(dtype, precision.returned) or dtype not in FORMATS:
        return right
    f = Format(dtype)
    size = np.abs(np.nan_to_num(right.near))
    more = 2 * float(f.u) * (size + right.allowed) + float(f.eta)
    return Expected(right.run, (right.allowed + more) * (1 + 2.0**-40))


def _finding(ratios: np.ndarray, outcome: Outcome, precision: Precision) -> Finding | None:
    if (ratios > 1).any():
        assert outcome.output is not None
        lost = np.isinf(ratios) & ~np.isfinite(outcome.output)
        return "not finite" if lost.any() and not ((ratios > 1) & ~lost).any() else "values"
    if not holds(outcome.dtype, precision.returned):
        return "dtype"
    if outcome.mutated:
        return "mutates"
    return "overwrites" if outcome.overwrote else None


def holds(dtype: str, wanted: Format) -> bool:
    """Whether numbers of ``dtype`` are at least as fine as ``wanted``."""
    return dtype in FORMATS and Format(dtype).u <= wanted.u


def centres(a: Any) -> np.ndarray:
    """The middles of an array of balls or of enclosures as float64; NaN for what is no number."""
    return np.asarray(a.mid) if isinstance(a, Enclosure) else middles(a.entries)


def middles(entries: np.ndarray) -> np.ndarray:
    """The middles of balls as float64; NaN for what is no number."""
    return np.asarray(np.frompyfunc(_middle, 1, 1)(entries), dtype=np.float64)


def _middle(x: Any) -> float:
    return float("nan") if isinstance(x, Undefined | Forbidden) else float(x.mid())


def ratio(got: float, exact: Any, limit: float) -> float:
    """|got − exact| / limit of one entry, see ``Expected.ratios``."""
    if isinstance(exact, Undefined | Forbidden):
        return 0.0 if (np.isneginf(got) if isinstance(exact, Forbidden) else np.isnan(got)) else np.inf
    if np.isinf(limit):
        return 0.0
    if not np.isfinite(got):
        return np.inf
    off = abs(flint.arb(float(got)) - exact)
    if off <= limit:
        return min(float(off.upper()) / limit, 1.0) if limit else 0.0
    # At the limit precision a ball that touches the bound counts as legal: only certainty accuses.
    return max(float(off.lower()) / limit if limit else np.inf, 1.0 + 2.0**-40) if off > limit else 1.0


def _is_sharp(entries: np.ndarray, bound: np.ndarray) -> bool:
    for x, limit in zip(entries.flat, bound.flat, strict=True):
        if not isinstance(x, Undefined | Forbidden) and limit and not x.rad() <= limit * _SHARP:
            return False
    return True


def explains(spec: Attention, precision: Precision, judged: Judged, variant: Variant) -> bool | None:
    """Whether a variant of the definition gives what the function gave; None where that cannot be told.

    It cannot be told where the right definition would give that as well, or where the right value is one that an
    implementation of the variant might give too.
    """
    try:
        wrong = expected(spec, judged.case.inputs, precision, variant)
    except (Undecided, KeyError):  # undecided; or it changes an array that is not there
        return None
    except (SymattnError, ValueError, IndexError, TypeError):  # the variant cannot be computed for these shapes
        return judged.finding == "raises" or None if judged.outcome.error else False
    got = judged.outcome.output
    if got is None:
        return None if judged.outcome.error and judged.finding == "raises" else False
    if got.shape != wrong.allowed.shape:
        return False
    return _compared(judged, wrong, got)


def _compared(judged: Judged, wrong: Expected, got: np.ndarray) -> bool | None:
    told = np.isfinite(wrong.near) & np.isfinite(wrong.allowed)
    ratios = np.where(told, wrong.ratios(got), 0.0)
    if (ratios > 1).any():
        return False
    if judged.ratios is None:  # a wrong shape, and the variant has the same
        return True if told.any() else None
    off = (judged.ratios > 1) & told
    apart = np.frompyfunc(distance, 2, 1)(judged.expected.entries, wrong.entries).astype(np.float64)
    return True if (off & (apart > wrong.allowed)).any() else None


def distance(x: Any, y: Any) -> float:
    """|x − y| of two exact entries; +∞ where one is no number."""
    special = isinstance(x, Undefined | Forbidden) or isinstance(y, Undefined | Forbidden)
    return float("inf") if special else abs(float(x.mid()) - float(y.mid()))

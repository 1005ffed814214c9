"""The exact output of attention, the error allowed, and whether a call or a variant is within it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.ball import precision as bits
from symattn.arrays.enclosure import Enclosure
from symattn.arrays.precision import Precision
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.enclosed import EnclosedOutput, enclose
from symattn.attention.spec import Attention
from symattn.bounds import enclosed, plain_bound
from symattn.bounds.balls import allowed
from symattn.bounds.called_target import Inputs, Outcome
from symattn.bounds.case_result import (
    UNFIT,
    Case,
    CaseResult,
    Expected,
    Part,
    compared,
    largest,
    matches,
    middles,
    screening_error,
    shares,
)
from symattn.bounds.exponents import least_far_distance
from symattn.bounds.reference import RIGHT, Run, Variant, canonical, changed, run
from symattn.document.errors import InputError, Refused, Undecided

# Bits of balls: where a run starts, and where it gives up.
_START, _LIMIT = 128, 4096
# how far inputs are moved if a comparison on them is undecided
_NEARBY = 2.0**-20
_MOVED = ("q", "x")
_FAR = 64.0  # least product of norms for which leaving out far keys matters
_LONG = 100  # least number of keys for which it does
_SCORES = 1 << 23  # enclosed at once, if the number of products for balls is limited
_SHARP = 2.0**-20  # the radius of balls is less than this part of what is allowed
# The same for enclosures, by which a ratio may be too large. What they leave open is decided by balls in any case.
_NARROW = 2.0**-18


@dataclass(frozen=True)
class Traced(Expected):
    """The exact output with its run, and how far a legal implementation may be from it.

    The run is on enclosures if these are narrow enough for the allowed error, else on balls. If the output alone is
    known without a run, as ``quick``, the run is made on demand; ``givens`` are then the specification and the inputs,
    ``values`` those of the inputs, and no two scores of a row are more than ``widest`` apart.
    """

    make: Callable[[], Run]
    allowed: np.ndarray
    quick: EnclosedOutput | None = None
    lenient: bool = False
    givens: tuple[Attention, Inputs] | None = None
    values: np.ndarray | None = None
    widest: float = np.inf

    @classmethod
    def of(cls, run: Run, allowed: np.ndarray) -> Traced:
        """Return the output of an existing run."""
        return cls(lambda: run, allowed)

    @cached_property
    def run(self) -> Run:
        """The run."""
        return self.make()

    @cached_property
    def in_balls(self) -> Run:
        """The run on balls whose radius is negligible against what is allowed."""
        # Without a run the balls need no enclosures either.
        if self.givens is not None:
            return _run_on_sharp_balls(*self.givens, RIGHT, lambda result: self.allowed)[0]
        run = self.run
        if run.kind is Ball:
            return run
        # A run on enclosures is repeated in balls, narrow against the allowed error.
        of_run = (run.spec, run.inputs, run.variant)
        return _run_on_sharp_balls(*of_run, lambda result: self.allowed)[0]

    @property
    def entries(self) -> np.ndarray:
        """The exact output's entries: balls, and undefined ones."""
        entries: np.ndarray = self.in_balls.output.entries
        return entries

    def enclosures(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the enclosure of the output alone, then that of the run."""
        if self.quick is not None:
            yield self.quick
        if self.run.kind is Enclosure:
            yield self.run.output.mid, self.run.output.rad

    @cached_property
    def near(self) -> np.ndarray:
        """The exact output as float64; NaN where it is no number."""
        return centres(self.run.output) if self.quick is None else self.quick.centre

    def ratios(self, got: np.ndarray) -> np.ndarray:
        """See ``Expected.ratios``; a row with scores or values of 0/0 is not judged.

        There a query, key or value of length 0 is divided by its length, and the definition has no value: code that
        bounds the length from below returns a number, other code NaN.
        """
        result = super().ratios(got)
        return np.where(self.unsaid, 0.0, result) if np.isinf(result).any() else result

    @cached_property
    def unsaid(self) -> np.ndarray:
        """The rows in which a score or a value is 0/0 although the inputs are numbers, with an axis of columns."""
        run = self.run
        # NaN in the inputs makes scores undefined by right, and is judged as such.
        if any(a.dtype.kind == "f" and np.isnan(a).any() for a in run.inputs.values()):
            return np.zeros(1, dtype=bool)
        rows: np.ndarray = np.any(run.kind.xp.isnan(run.final_scores), axis=-1, keepdims=True)
        values = run.kind.xp.isnan(run.values[run.values_name])
        rows = rows | np.any(values, axis=(-2, -1), keepdims=True)
        # heads that are joined
        return rows if rows.ndim == self.allowed.ndim else np.any(rows, axis=-3)

    def decides(self, got: np.ndarray) -> bool:
        """Return whether enclosures in float64 say of each entry if it is legal."""
        return self.quick is not None and bool(shares(got, *self.quick, self.allowed)[1].all())

    def decisive(self) -> np.ndarray:
        """Return where less is allowed than other weights could change the output: |y − o| for y one of the values."""
        # Other weights give a mean of the values, so y is among their extremes.
        values = self.values
        if values is None:
            values = centres(self.run.values[self.run.values_name])
        return np.asarray(self.allowed < largest(values))

    @property
    def narrow(self) -> bool:
        """Return whether the radius of an enclosed output is negligible against what is allowed."""
        mid, rad = next(self.enclosures())
        undefined = np.isnan(mid) & (rad == 0)
        return bool(
            (
                # An undefined entry, or one without any allowed error, has no radius to compare.
                (rad <= self.allowed * _NARROW) | undefined | (self.allowed == 0)
            ).all()
        )


def expected(
    spec: Attention,
    inputs: Inputs,
    precision: Precision,
    variant: Variant = RIGHT,
    most: int | None = None,
    lenient: bool = False,
) -> Traced:
    """Run the definition at a precision at which its radius is negligible against the allowed error.

    If ``lenient``, enclosures are used however wide they are. Raises ``Refused`` if balls would be needed for more than
    ``most`` products of weights and values.
    """
    # Changed steps may have no enclosure, so balls decide.
    if variant.steps or variant.values != RIGHT.values or not variant.rows:
        return _by_run(spec, inputs, precision, None, variant=variant)
    spec, inputs = changed(spec, inputs, variant)
    quick = in_float64(spec, inputs, precision)
    # The fast path, for nearly every call.
    if quick is not None and (lenient or quick.narrow):
        return replace(quick, lenient=lenient)
    return _by_run(spec, inputs, precision, None if quick is None else quick.allowed, most, lenient)


def in_float64(spec: Attention, inputs: Inputs, precision: Precision) -> Traced | None:
    """Return the output of a whole batch in float64, enclosed, and its bound; None if attention is not plain enough."""
    try:
        # Errors in the inputs are reported by the slow path, which says more.
        result = enclose(spec, inputs) if plain_bound.applies(spec, inputs) else None
    except (Refused, InputError):
        return None
    if result is None:
        return None
    fast, _, widest = plain_bound.evaluate(spec, inputs, precision)
    values = np.asarray(inputs["v"], dtype=np.float64)
    # The exact run is lazy, since few calls need it.
    make = lambda: _by_run(spec, inputs, precision, fast).run  # noqa: E731
    return Traced(make, fast, result, givens=(spec, inputs), values=values, widest=widest)


def in_floats(spec: Attention, inputs: Inputs, precision: Precision, near: np.ndarray) -> Traced:
    """Return the output ``near`` in float64 with a narrow allowed error; the run is made on demand."""
    quick = EnclosedOutput(near, np.zeros_like(near))
    return Traced(
        lambda: expected(spec, inputs, precision).run,
        screening_error(near, precision),
        quick,
        values=near,
    )


def _by_run(
    spec: Attention,
    inputs: Inputs,
    precision: Precision,
    fast: np.ndarray | None,
    most: int | None = None,
    lenient: bool = False,
    variant: Variant = RIGHT,
) -> Traced:
    """Run on enclosures if their radius is negligible, else in balls; variants run in balls."""
    count = products(spec, inputs) if most is not None else 0
    # Enclosures of more scores would take too much memory at once.
    if variant is RIGHT and (not count or count <= _SCORES * inputs["v"].shape[-1]):
        result = _run_on_enclosures(spec, inputs, precision, fast)
        if result is not None and (lenient or result.narrow):
            return replace(result, lenient=lenient)
        fast = fast if result is None else result.allowed
    # Balls are slow: too many would take minutes.
    if most is not None and count > most:
        raise Refused(f"{count} products of weights and values are too many for balls")
    return Traced.of(
        *_run_on_sharp_balls(
            spec, inputs, variant, lambda run: allowed(run, precision) if fast is None else fast
        )
    )


def _run_on_sharp_balls(
    spec: Attention, inputs: Inputs, variant: Variant, bound: Callable[[Run], np.ndarray]
) -> tuple[Run, np.ndarray]:
    """Return a run on balls whose radius is negligible against the allowed error, and that error."""
    # The precision doubles until radii are negligible or a comparison is decided.
    at = _START
    while True:
        try:
            with bits(at):
                result = run(spec, inputs, variant)
                limits = bound(result)
            pairs = zip(result.output.entries.flat, limits.flat, strict=True)
            if at >= _LIMIT or all(
                isinstance(x, Undefined | Forbidden) or not limit or x.rad() <= limit * _SHARP
                for x, limit in pairs
            ):
                return result, limits
        except Undecided:
            # The highest precision decides nothing either: the caller must know.
            if at >= _LIMIT:
                raise
        at *= 2


def products(spec: Attention, inputs: Inputs) -> int:
    """Return the number of products of weights and values in the output of one batch element."""
    return (
        spec.counts["h"]
        * prod(int(inputs[name].shape[-2]) for name in "qk")
        * int(inputs["v"].shape[-1])
    )


def _expect_any_numbers(spec: Attention, inputs: Inputs) -> Traced:
    """Return an output of which any numbers are legal, for comparisons that depend on rounding, as in sparse weights.

    Its shape, and which entries are numbers, are those for inputs nearby.
    """
    near = {
        n: a * (1 + _NEARBY) if n in _MOVED and a.dtype.kind == "f" else a
        for n, a in inputs.items()
    }
    with bits(_START):
        reference = run(spec, near)
    return Traced.of(reference, np.full(reference.output.plain_shape, np.inf))


def _run_on_enclosures(
    spec: Attention, inputs: Inputs, precision: Precision, fast: np.ndarray | None
) -> Traced | None:
    """Run the definition on enclosures, with the bound of that run unless it is ``fast``; None if there is none.

    Variants are left to balls.
    """
    if fast is None and not enclosed.encloses(spec, inputs):
        return None
    try:
        with np.errstate(
            all="ignore"
        ):  # a bound that overflows becomes +∞ or NaN, and then balls decide
            reference = run(spec, inputs, kind=Enclosure)
            return Traced.of(
                reference, enclosed.of_run(reference, precision)[0] if fast is None else fast
            )
    except (Refused, Undecided):
        return None


# -- calls -------------------------------------------------------------------------------------------------------------
class Legal(NamedTuple):
    """The legal outputs of a call by equivalent ways of computing, each with its own bound, computed on demand.

    ``unsaid`` gives shapes, and which entries are numbers, if no way is decided. Axes of length 1 may differ in the
    outputs ``loose``; a call may change the inputs ``changes``. ``similar`` says that no way is known to lose digits
    that the first one keeps, so that all bounds are of about the same size. One bound covers every way of the outputs
    ``settled``, also those ways that are undecided.
    """

    ways: Sequence[Callable[[], Sequence[Expected]]]
    unsaid: Callable[[], Sequence[Expected]]
    loose: Collection[int] = ()
    changes: Collection[str] = ()
    similar: bool = False
    settled: Collection[int] = ()


#: Error in parts of the first way's bound, from which similar ways are not asked if a function is known to be wrong.
FAR_BEYOND_FIRST_WAY = 1000.0


def is_far_beyond(judged: CaseResult, legal: Legal, precision: Precision) -> bool:
    """Return whether each wrong output of a call is off by many times the bound of the first of similar ways."""
    if not legal.similar or judged.finding != "values":
        return False
    wrong = (part for part in judged.parts if part.wrong)
    return all(is_far_off(part.got, part.expected, precision) for part in wrong)


def is_far_off(got: np.ndarray | None, right: Expected, precision: Precision) -> bool:
    """Return whether some entry of an output is off by many times the bound of one of several similar ways."""
    if got is None or got.shape != right.allowed.shape:
        return True
    # Where a way is exact its bound is 0, and others may round numbers of the output's size.
    usual = right.allowed + float(precision.returned.u) * largest(right.near)
    return bool((np.abs(got - right.near) >= FAR_BEYOND_FIRST_WAY * usual).any())


def judge(
    legal: Legal, precision: Precision, case: Case, outcome: Outcome, whole: bool = False
) -> CaseResult:
    """Compare the outputs of a call with the legal ones.

    What is within the bound of the first way is legal; the other ways are run if it is not, or for the ``whole``. A way
    with a comparison that depends on rounding has no bound: what the others allow is still legal, and what they refuse
    is undecided, since an implementation in that way may give it.
    """

    compare = partial(
        compared, case, outcome, precision=precision, loose=legal.loose, changes=legal.changes
    )
    every = [_outputs_unless_undecided(legal.ways[0])]
    if every[0] is not None:
        # The first way covers most calls; others only where it finds numbers beyond.
        case_result = compare(every[0])
        if len(legal.ways) == 1 or (
            not whole and case_result.finding not in ("values", "not finite")
        ):
            return replace(case_result, whole=len(legal.ways) == 1)
    every += map(_outputs_unless_undecided, legal.ways[1:])
    known = [outputs for outputs in every if outputs is not None]
    # No way is decided, so the shapes alone are judged.
    if not known:
        return replace(compare(legal.unsaid()), undecided=True)
    right = union(known)
    case_result = compare(right)
    if len(known) == len(every) or case_result.finding not in ("values", "not finite"):
        return replace(case_result, whole=len(known) == len(every))
    # An undecided way might give these numbers, so any number is legal, but for outputs with one bound of all ways.
    unbounded = [
        output if k in legal.settled else output.widened(np.full_like(output.allowed, np.inf))
        for k, output in enumerate(right)
    ]
    case_result = compare(unbounded)
    is_settled = not case_result.wrong.isdisjoint(legal.settled)
    return replace(case_result, undecided=not is_settled, whole=False)


def _outputs_unless_undecided(way: Callable[[], Sequence[Expected]]) -> Sequence[Expected] | None:
    """Return the outputs of a way of computing; None if a comparison depends on rounding."""
    try:
        return way()
    except Undecided:
        return None


def union(ways: Sequence[Sequence[Expected]]) -> list[Expected]:
    """Return the outputs of the first of equal ways, with the largest of their bounds, +∞ if one has none."""
    return [
        same[0].widened(np.maximum.reduce([output.allowed for output in same]))
        if len(same) > 1
        else same[0]
        for same in zip(*ways, strict=True)
    ]


def explained(
    judged: CaseResult,
    wrong: Callable[[], Sequence[Expected]],
    match: Callable[[Part, Expected], bool | None],
    among: Collection[int] | None = None,
) -> bool | None:
    """Return whether a mistake reproduces the outputs, all or those ``among``; None if that is undecided.

    It is if the right definition may give them too, or if the mistake cannot be computed or bounded: ``wrong`` returns
    its outputs, and ``match`` whether one of them agrees with the call's.
    """
    try:
        outputs = wrong()
    except (Undecided, KeyError):  # undecided; or it changes an array that is not there
        return None
    except UNFIT:  # the mistake cannot be computed for these shapes
        return judged.finding == "raises" or None if judged.outcome.error else False
    if judged.outcome.output is None:
        return None if judged.outcome.error else False
    parts = zip(judged.parts, outputs, strict=False)  # a mistake may be in fewer outputs
    try:
        answers = [match(*pair) for k, pair in enumerate(parts) if among is None or k in among]
    # What enclosures leave open is computed in balls only here, which may not tell a divisor from 0, and have no
    # logarithm of 0.
    except (Undecided, Refused):
        return None
    return False if False in answers else True if True in answers else None


def holds(right: Sequence[Expected], judged: CaseResult) -> bool:
    """Return whether all outputs of a call are within other bounds."""
    pairs = zip(right, judged.parts, strict=True)
    return all(p.got is not None and bool((e.ratios(p.got) <= 1).all()) for e, p in pairs)


def of_attention(spec: Attention, precision: Precision, inputs: Inputs) -> Legal:
    """Return the legal outputs of attention: a single bound covers every way of computing.

    It is the smaller of the allowed error and that under an additive mask of zeros, by which keys far below the others
    are left out (``worst_case``, step 7): a function without a mask is one that adds zeros.
    """

    def way() -> list[Expected]:
        right = expected(spec, inputs, precision)
        keys = ("k", "y", "x")
        n_k = max(inputs[n].shape[-2] for n in keys if n in inputs)
        near = (
            "q" in inputs and _largest_row_norm(inputs["q"]) * _largest_row_norm(inputs["k"]) < _FAR
        )
        # Leaving out far keys matters for long rows of large scores, and not where all is decisive.
        if spec.mask == "additive" or n_k < _LONG or near or right.decisive().all():
            return [right]
        # Then no key is far below another one, and both bounds are the same.
        if right.widest < least_far_distance(precision):
            return [right]
        # Lengths tell the shape of the scores, of which a run would be made for it alone.
        shape = tuple(
            next(inputs[n].shape[-2] for n in names if n in inputs)
            for names in (("q", "x"), ("k", "y", "x"))
        )
        open_ = inputs.get("mask", np.ones(shape, dtype=bool))
        zeros = {**inputs, "mask": np.where(open_, 0.0, -np.inf)}
        result = _run_on_enclosures(
            replace(canonical(spec), mask="additive"), zeros, precision, None
        )
        # fmin ignores a NaN bound, which says nothing.
        if result is None:
            return [right]
        tighter = np.fmin(right.allowed, result.allowed)
        return [right.widened(tighter)]

    return Legal([way], lambda: [_expect_any_numbers(spec, inputs)])


def _largest_row_norm(a: np.ndarray) -> float:
    """Return the largest norm of a row."""
    squares = np.square(a.astype(np.float64))
    return float(np.sqrt(squares.sum(axis=-1).max(initial=0.0)))


def traced(judged: CaseResult) -> Traced:
    """Return the expected output of attention with its run."""
    result = judged.parts[0].expected
    assert isinstance(result, Traced)
    return result


def centres(a: Any) -> np.ndarray:
    """Return the middles of an array of balls or of enclosures as float64; NaN for what is no number."""
    return np.asarray(a.mid) if isinstance(a, Enclosure) else middles(a.entries)


def explains(
    spec: Attention, precision: Precision, judged: CaseResult, variant: Variant
) -> bool | None:
    """Return whether a variant of the definition gives what the function gave; None where that cannot be determined.

    It cannot be determined where the right definition would give that as well, or where the right value is one that an
    implementation of the variant might give too.
    """

    def match(part: Part, wrong: Expected) -> bool | None:
        # Only entries where the mistake has a number and a bound can confirm it.
        finite_near = np.isfinite(wrong.near)
        return matches(part, wrong, finite_near & np.isfinite(wrong.allowed))

    return explained(
        judged, lambda: [expected(spec, judged.case.inputs, precision, variant)], match
    )

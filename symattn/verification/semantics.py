"""Does a function compute what a specification says? An identity test at random points, with a proved error bound.

The function and the specification run on the same ``modular`` arrays. Some inputs are whole numbers, drawn once (the
queries, in another run the keys); all others are letters, drawn anew for every pair of primes. A function that differs
from the specification, for these numbers and some values of the letters, and for any numbers in the place of maxima
(one number for the maxima of the same numbers), passes with probability at most ε: ``symattn.arrays.residues.degree``
has the proof. The test does not cover rounding, and a difference is no fault until floats show it: 1e-9 in a
denominator is truly unequal, and harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from random import Random
from typing import Any

import numpy as np

from symattn.arrays.modular import Modular, modular
from symattn.arrays.notes import listening, note
from symattn.arrays.residues import degree, primes
from symattn.arrays.residues.field import Work
from symattn.arrays.residues.functions import LARGE, NOT_LINEAR
from symattn.attention.inputs import TOKENS, lengths
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT
from symattn.bounds.inputs import Sizes, lengths_by_letter
from symattn.document.errors import InputError, SymattnError, Undecided
from symattn.document.evidence import Evidence, Grade

# The probability of a wrong yes of a whole test, which its runs share.
EPSILON = 1e-12
SPARE = 2  # pairs that may be set aside because a divisor happened to be 0 in them
SAMPLED = 3  # pairs if there is no bound
UNBOUNDED = "no bound on the error"  # before the reason, in the evidence of runs that agree
_TOO_LARGE = "its expressions have too large a degree for these primes"
_WORK = 100_000  # ``Work`` of one test,
_WORK_OF_REFUTING = 40_000  # and of one that may refute alone,
_CELLS_OF_WORK = 4096  # of so many scores
OUTSIDE = "out of bounds"  # in the note on a kernel that reads or writes there
LARGEST = 2  # largest of the whole numbers that are drawn
_NEAR = 2.0**-18  # relative difference of angles that float32 hardly resolves
_ROUGHLY = 2.0**-9  # the same, where near angles may count as equal
_LIKE = {"do": "attended"}  # the gradient of each head's output, where a derivative is tested
# inputs that may be large although all exponents are small
_FACTORS_OF_SCORES = ("scale", "softcap", "slopes")
# numbers from LARGE on cut off nothing, so that every other bound on factors shows
_LARGE_FACTOR = LARGE - 1.0

#: Sizes at which a mistake that gives the same residues at ``SIZES`` is asked again.
HELD_OUT = (Sizes(20, 21, 4, 3, 6), Sizes(13, 37, 4, 2, 6), Sizes(5, 139, 4, 2, 6))

#: Returns the function for arrays of a kind, which takes the inputs by name.
Prepare = Callable[[type[Modular]], Callable[[Mapping[str, Any]], Any]]
#: Returns the masks for sizes, by name.
Masks = Callable[[Sizes, Random], Mapping[str, np.ndarray]]


#: Roots of d_k = 4^t are whole, and so have a bound.
SIZES = (
    Sizes(3, 5, 4, 3, 6),
    Sizes(7, 7, 16, 5, 6),
    Sizes(4, 9, 1, 2, 6),
    Sizes(17, 33, 64, 20, 6),
)


@dataclass(frozen=True)
class Difference:
    """The first element in which the function differs from the specification, with the sizes and inputs of the run."""

    index: tuple[int, ...]
    sizes: Any
    numbers: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class Witness:
    """The outputs of a function at one point, with what reproduces its inputs, to compare a mistake with."""

    shapes: Mapping[str, tuple[int, ...]]
    given: Mapping[str, np.ndarray]
    numbers: tuple[str, ...]
    point: tuple[int, int, int]  # the primes, and the seed
    outputs: tuple[np.ndarray, ...]
    right: bool  # whether the definition has the same outputs there

    def gives(self, run: Callable[[dict[str, Any]], Sequence[Any]]) -> bool:
        """Return whether a mistake gives the same residues there; False if it does not run on them.

        If the mistake has no place there, as with a single tile, the definition must give them.
        """
        kind = _make_modular_reading(self.point)
        try:
            with listening():
                outputs = tuple(
                    map(
                        _residues_of_output,
                        run(_place_residue_inputs(kind, self.shapes, self.given, self.numbers)),
                    )
                )
        except KeyError:
            return self.right
        # A mistake that residues cannot run explains nothing.
        except (*UNFIT, SymattnError, AttributeError, primes.NoRoot):
            return False
        return len(outputs) == len(self.outputs) and all(map(np.array_equal, outputs, self.outputs))


@dataclass(frozen=True)
class IdentityResult:
    """The result of an identity test. ``agrees`` is None if the function could not be run, or nothing was decided.

    ``nearly``: it differs, but not if numbers that floats hardly distinguish count as equal (``modular``, rough).
    ``shapes`` are the sizes at which it agrees with a bound, and ``unbounded`` those without; of ``planned`` stages of
    sizes, ``stages`` agree, and ``stopped`` says why the next one did not run.
    """

    agrees: bool | None
    evidence: Evidence
    epsilon: float | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    difference: Difference | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    nearly: bool = False
    witnesses: tuple[Witness, ...] = ()
    held_out: tuple[Witness, ...] = ()  # outputs at other sizes, by which no mistake is chosen
    shapes: tuple[Mapping[str, int], ...] = ()
    unbounded: tuple[Mapping[str, int], ...] = ()
    stages: int = 1
    planned: int = 1
    stopped: str = ""

    @property
    def settled(self) -> bool:
        """Return whether every stage of sizes that was planned ran, and agrees."""
        return bool(self.agrees) and self.stages == self.planned

    def joined(self, other: IdentityResult) -> IdentityResult:
        """Return both results as one if both agree: their probabilities of a wrong yes add up."""
        shapes = self.shapes + other.shapes
        unbounded = self.unbounded + other.unbounded
        # If one part has no bound, neither has the joint result, whose grade is then that part's.
        if self.epsilon is None or other.epsilon is None:
            return replace(
                self if other.epsilon is None else other, shapes=shapes, unbounded=unbounded
            )
        # Both results hold for the same classes of inputs, so that only the sizes are added.
        total = self.epsilon + other.epsilon
        further = other.evidence.where.partition(", at ")[2]
        evidence = Evidence(Grade.TESTED, f"{self.evidence.where}; {further}", total)
        pairs = self.pairs + other.pairs
        notes = tuple(dict.fromkeys((*self.notes, *other.notes)))
        both = replace(self, evidence=evidence, epsilon=total, pairs=pairs, notes=notes)
        return replace(both, shapes=shapes, unbounded=unbounded)


def join_stages(
    results: Sequence[IdentityResult], planned: int, unfinished: str = ""
) -> IdentityResult:
    """Return the results of consecutive stages of sizes as one: one that differs, else those that agree, joined.

    Of ``planned`` stages all ran, or one did not agree, or ``unfinished`` says why the next one did not end.
    """
    differing = [result for result in results if result.agrees is False]
    if differing:
        # A difference of numbers that are nearly equal says less, so it comes last.
        return next((result for result in differing if not result.nearly), differing[0])
    if not results[0].agrees:
        return results[0]
    agreeing = [result for result in results if result.agrees]
    joined = reduce(IdentityResult.joined, agreeing)
    return replace(
        joined,
        stages=len(agreeing),
        planned=planned,
        stopped=results[-1].reason or unfinished,
    )


def identity_test(
    prepare: Prepare,
    spec: Attention,
    names: Sequence[str] = ("q", "k", "v"),
    sizes: Sequence[Sizes] = SIZES,
    epsilon: float = EPSILON,
    seed: int = 0,
    masks: Masks | None = None,
    tables: bool = False,
    held_out: Sequence[Sizes] = (),
    is_refuting: bool = False,
) -> IdentityResult:
    """Test whether the function computes ``spec`` at all ``sizes``; a wrong yes has probability at most ε.

    ``names`` are the inputs that both take. Each size has two runs: with small whole queries, then with such keys (with
    ``x``: whole tokens and query weights, then whole tokens and key weights). Tables of cosines and sines are whole
    numbers if they are inputs, or, with ``tables``, if the function makes them. ``masks`` makes the masks for sizes; by
    default each query may see the first key. If the function differs, its outputs at sizes ``held_out`` are kept as
    well. ``is_refuting``: each size has one run, at one pair of primes, which proves nothing where it agrees. Raises
    ``InputError`` for names and sizes that do not fit the specification.
    """

    def made(wanted: Sequence[Sizes], random: Random) -> list[ResidueRun]:
        runs = []
        work = residue_work(wanted, is_refuting)
        for s in wanted:
            named = {name: int(getattr(s, name)) for name in ("n_q", "n_k", "d_k", "d_v")}
            choices = _choose_whole_number_inputs(names)
            for numbers in choices[:1] if is_refuting else choices:
                shapes = _shapes_of_identity_inputs(s, spec, tuple(names))
                fixed = dict(
                    masks(s, random) if masks else _draw_identity_test_masks(shapes, spec, random)
                )
                runs.append(
                    ResidueRun(
                        spec, s, numbers, shapes, fixed, random, work, tables=tables, named=named
                    )
                )
        return runs

    runs = made(sizes, Random(seed))
    for run in runs:
        run.is_refuting = is_refuting
    # Another seed, so that held-out inputs do not repeat those that chose the mistake.
    return settle(runs, prepare, epsilon, lambda: made(held_out, Random(seed + 1)))


def residue_work(sizes: Sequence[Sizes] = SIZES, is_refuting: bool = False) -> Work:
    """Return the work that one test may do at these sizes, which grows with the scores of the largest one.

    One that ``is_refuting`` may do less: where it ends early, nothing is lost but a chance to refute.
    """
    if is_refuting:
        return Work(_WORK_OF_REFUTING)
    most = max((s.n_q * s.n_k for s in sizes), default=0)
    return Work(_WORK * max(1.0, most / _CELLS_OF_WORK))


def settle(
    runs: Sequence[ResidueRun],
    prepare: Prepare,
    epsilon: float,
    held_out: Callable[[], Sequence[ResidueRun]] = tuple,
) -> IdentityResult:
    """Return the joint result of all runs; stop at the first run that differs or is refused.

    If one differs, the outputs in all runs are kept, and those in the ``held_out`` ones, which are made for that.
    """
    with listening() as notes:
        for run in runs:
            # A wrong yes of any run is one of the test, so that the runs share ε.
            run.settle(prepare, epsilon / len(runs))
            if run.difference or run.reason:
                break
    last = next((r for r in runs if r.difference or r.reason), None)
    pairs = tuple(pair for r in runs for pair in r.pairs)
    where = _describe_residue_classes(runs)
    shapes = tuple(run.named for run in runs)
    if last is not None:
        difference = last.difference
        # All runs before the last one agree, so that only the later ones can differ.
        remaining = (
            _difference_of_rough(runs[runs.index(last) :], prepare, epsilon) if difference else None
        )
        nearly = difference is not None and remaining is None
        difference = remaining or difference
        words = difference.message if difference else last.reason
        evidence = Evidence(Grade.UNDECIDED, f"{words} ({last})")
        agrees = False if difference else None
        if difference and last.angles is not None and last.angles.used:
            notes.append("a cosine or sine stands for any function of its angle")
        # A mistake is chosen by ``seen`` and confirmed on ``apart``, at other sizes.
        witnesses = _collect_residue_witnesses(runs, prepare) if difference and not nearly else ()
        apart = (
            _collect_residue_witnesses(_with_roots(held_out(), runs), prepare) if witnesses else ()
        )
        return IdentityResult(
            agrees, evidence, None, pairs, difference, words, tuple(notes), nearly, witnesses, apart
        )
    if any(r.epsilon is None for r in runs):
        why = "; ".join(dict.fromkeys(words for r in runs for words in r.unbounded)) or _TOO_LARGE
        evidence = Evidence(Grade.SAMPLED, f"{where}; {UNBOUNDED}: {why}")
        return IdentityResult(True, evidence, None, pairs, notes=tuple(notes), unbounded=shapes)
    total = sum(r.epsilon or 0.0 for r in runs)
    tested = Evidence(Grade.TESTED, where, total)
    return IdentityResult(True, tested, total, pairs, notes=tuple(notes), shapes=shapes)


def _with_roots(held_out: Sequence[ResidueRun], runs: Sequence[ResidueRun]) -> Sequence[ResidueRun]:
    """Return the held-out runs with primes that have the roots of unity that the other runs asked for."""
    needed = tuple(sorted({root for run in runs for root in run.roots}))
    for run in held_out:
        run.roots = needed
    return held_out


def _collect_residue_witnesses(runs: Sequence[ResidueRun], prepare: Prepare) -> tuple[Witness, ...]:
    """Return the outputs in every run; none if tables are read or the function cannot be run."""
    result = []
    for run in runs:
        point = (*primes.prime_pairs(run.roots)[-1], run.random.getrandbits(31))
        kind = _make_modular_reading(point)
        kind.field.work = run.work
        # Computed inputs and angles are not reproduced by a ``Witness``.
        if run.made or (run.angles is not None and run.angles.used):
            return ()
        try:
            with listening():
                got = prepare(kind)(_place_residue_inputs(kind, run.shapes, run.given, run.numbers))
                outputs = tuple(map(_residues_of_output, got if isinstance(got, tuple) else (got,)))
                wanted = run.compute(
                    **_place_residue_inputs(
                        _make_modular_reading(point), run.shapes, run.given, run.numbers
                    )
                )
                expected = map(
                    _residues_of_output, wanted if isinstance(wanted, tuple) else (wanted,)
                )
                right = all(map(np.array_equal, expected, outputs))
        except Exception:  # the function may raise anything
            return ()
        result.append(Witness(run.shapes, run.given, run.numbers, point, outputs, right))
    return tuple(result)


def _place_residue_inputs(
    kind: type[Modular],
    shapes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, np.ndarray],
    numbers: tuple[str, ...],
) -> dict[str, Any]:
    """Return the inputs: given numbers and masks, and new letters for the rest, drawn in this order."""
    # Masks and integer inputs stay NumPy arrays, whole numbers in place of letters become residues.
    plain = {n for n, a in given.items() if a.dtype.kind in "biu"} - {*numbers}
    placed = {n: a if n in plain else kind.literal(a) for n, a in given.items()}
    result = {n: placed[n] if n in placed else kind.letters(*shape) for n, shape in shapes.items()}
    # Residues are drawn when they are first read: reading all here fixes their order.
    for x in result.values():
        if isinstance(x, kind):
            _ = (x.state.value and x.state.value.value, x.state.exponent and x.state.exponent.value)
    return result


def _make_modular_reading(point: tuple[int, int, int]) -> type[Modular]:
    kind = modular(*point)
    kind.field.meant = True
    return kind


def _residues_of_output(x: Modular) -> np.ndarray:
    """Return the residues of an output; for a logarithm, those of its argument."""
    return (x if x.state.value is not None else x._unary("exp", x)).residues()


def _difference_of_rough(
    runs: Sequence[ResidueRun], prepare: Prepare, epsilon: float
) -> Difference | None:
    """Return the first difference that stays once numbers that floats hardly distinguish count as equal.

    The first run differs. If it can no longer be run, its difference stays. A bound at which ``exp`` is negligible is
    harmless for exponents alone, so that factors of the scores are large numbers.
    """
    for run in runs:
        again = copy(run)
        again.given = run.given | {
            name: np.full(run.shapes[name], _LARGE_FACTOR)
            for name in _FACTORS_OF_SCORES
            if name in run.shapes
        }
        # The sines and cosines of near angles count as equal as well.
        again.difference, again.rough, again.angles = (
            None,
            True,
            run.angles and KnownAngles(run.random, _ROUGHLY),
        )
        again.settle(prepare, epsilon)
        if again.difference or (again.reason and run is runs[0]):
            return again.difference or run.difference
        # A later run that cannot be repeated says nothing about the first.
        if again.reason:
            break
    return None


def _choose_whole_number_inputs(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return which inputs are whole numbers in each run, so that exponents are linear in the others."""
    tables = tuple(n for n in ("cos", "sin", "cos_q", "sin_q") if n in names)
    tokens = tuple(n for n in ("x", "y") if n in names)
    if not tokens:
        return [("q", *tables), ("k", *tables)]
    # Tokens alone are queries and keys at once, so that one run has both as whole numbers.
    if "w_q" not in names:
        return [(*tokens, *tables)]
    return [(*tokens, "w_q", "b_q", *tables), (*tokens, "w_k", "b_k", *tables)]


def _describe_residue_classes(runs: Sequence[ResidueRun]) -> str:
    sizes = "; ".join(dict.fromkeys(str(r.sizes) for r in runs))
    classes = ", and ".join(dict.fromkeys(r.holds_for for r in runs))
    return f"{classes}, at {sizes}"


class KnownAngles:
    """Whole numbers in place of cosines and sines of known angles: equal ones if floats hardly distinguish the angles.

    Rotary tables that a function makes itself thereby become inputs; whether their entries are correct is left to
    floats.
    """

    def __init__(self, random: Random, near: float) -> None:
        self._random, self._near = np.random.default_rng(random.getrandbits(64)), near
        self._known = np.zeros(1)  # sizes of angles, in order,
        # and numbers for each of them
        self._numbers = {"cos": np.ones(1, np.int64), "sin": np.zeros(1, np.int64)}
        # the same at every point
        self._tables: dict[tuple[tuple[int, ...], bytes], dict[str, np.ndarray]] = {}

    def of(self, name: str, angles: np.ndarray) -> np.ndarray:
        """Return the numbers for an array of angles."""
        key = (angles.shape, angles.tobytes())
        if key not in self._tables:
            # Cosines are even and sines odd, so that only sizes of angles need numbers.
            sizes, inverse = np.unique(np.abs(angles), return_inverse=True)
            self._draw_new_angle_numbers(sizes[~self._near_ones(sizes)[1]])
            places = self._near_ones(sizes)[0][inverse].reshape(angles.shape)
            cos, sin = (self._numbers[n][places] for n in ("cos", "sin"))
            self._tables[key] = {"cos": cos, "sin": sin * np.where(angles < 0, -1, 1)}
        return self._tables[key][name]

    @property
    def used(self) -> bool:
        """Return whether any angles were looked up."""
        return bool(self._tables)

    def _near_ones(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the place of the nearest known angle for each size, and whether it is near enough."""
        after = (
            # The place of the first known angle that is not smaller, hence its neighbour before.
            np.clip(np.searchsorted(self._known, sizes), 1, len(self._known) - 1)
            if len(self._known) > 1
            else 0
        )
        before = np.maximum(after - 1, 0)
        apart = [np.abs(self._known[place] - sizes) for place in (before, after)]
        places = np.broadcast_to(np.where(apart[0] <= apart[1], before, after), sizes.shape)
        return places, np.minimum(*apart) <= self._near * sizes

    def _draw_new_angle_numbers(self, sizes: np.ndarray) -> None:
        """Draw numbers for new angles, which are in order; for near ones once."""
        # A size apart from the one before is apart from all before; only others are compared with the last one drawn.
        is_new = np.diff(sizes, prepend=-np.inf) > self._near * sizes
        last = 0
        for place in np.flatnonzero(~is_new).tolist():
            last = place - 1 if is_new[place - 1] else last
            is_new[place] = sizes[place] - sizes[last] > self._near * sizes[place]
        new = sizes[is_new]
        known = np.concatenate([self._known, new])
        # The search for neighbours needs the angles in order.
        order = np.argsort(known, kind="stable")
        self._known = known[order]
        for name, numbers in self._numbers.items():
            drawn = self._random.integers(-1, 2, len(new))
            self._numbers[name] = np.concatenate([numbers, drawn])[order]


class ResidueRun:
    """A test of the definition ``compute`` at one choice of sizes, and of the inputs that are whole numbers.

    The inputs ``fixed`` are given arrays, such as masks; some are ``made`` from the others; the rest are letters.
    With ``tables``, cosines and sines of known angles are whole numbers as well.
    """

    def __init__(
        self,
        compute: Callable[..., Any],
        sizes: object,
        numbers: tuple[str, ...],
        shapes: Mapping[str, tuple[int, ...]],
        fixed: Mapping[str, np.ndarray],
        random: Random,
        work: Work,
        made: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = None,
        tables: bool = False,
        named: Mapping[str, int] | None = None,
    ) -> None:
        self.named = named or {}  # the sizes by the letters of the definition
        self.compute, self.sizes, self.random, self.work = compute, sizes, random, work
        self.numbers = tuple(n for n in numbers if n in shapes)
        self.loose: Collection[int] = ()  # outputs whose axes of length 1 may differ
        # one pair of primes that agrees is enough, and gives no bound
        self.is_refuting = False
        self.shapes = shapes
        self.given = {n: _draw_whole_number_array(shapes[n], random) for n in self.numbers} | dict(
            fixed
        )
        self.made, self.angles = made or {}, KnownAngles(random, _NEAR) if tables else None
        self.pairs: list[tuple[int, int]] = []
        self.epsilon: float | None = 0.0
        self.rough = self.ordered = self.free = self.nested = self.capped = False  # see ``Field``
        self.stand_ins = self.leveled = False  # the same
        self.roots: tuple[int, ...] = ()  # the primes must have these roots of unity
        self.difference: Difference | None = None
        self.reason = ""
        self.unbounded: dict[str, None] = {}  # why there is no bound, if there is none

    def __str__(self) -> str:
        return (
            f"{', '.join(self.numbers)} whole numbers; {self.sizes}"
            if self.numbers
            else str(self.sizes)
        )

    @property
    def holds_for(self) -> str:
        """The class of inputs for which equality was tested."""
        others = [n for n in self.shapes if n not in self.given]
        tables = ("cosines and sines",) if self.angles is not None and self.angles.used else ()
        numbers = (*self.numbers, *tables)
        drawn = f"random {', '.join(numbers)} (whole numbers up to {LARGEST})" if numbers else ""
        return "for " + " and ".join(
            filter(None, (drawn, f"all {', '.join(others)}" if others else ""))
        )

    def settle(self, prepare: Prepare, epsilon: float) -> None:
        """Draw pairs of primes until enough agree or two differ; if they do not agree, read the code in other ways.

        Maxima are one of their arguments, as max + log(1 + e^−|x − y|) requires; numbers that stand for −∞ have levels,
        as a hidden tile requires that is filled with one; powers have exponents of their own, as tanh written by
        exponentials requires in a softmax.
        """
        self._settle_roots(prepare, epsilon)
        if self.difference is not None and self.free and not (self.rough or self.ordered):
            again = self._settle_again(prepare, epsilon, difference=None, ordered=True)
            # Only a reading that agrees replaces the result; otherwise the first difference stays.
            if not again.difference and not again.reason:
                vars(self).update(vars(again))
        if (self.difference is not None or self.reason) and self.stand_ins and not self.leveled:
            again = self._settle_again(prepare, epsilon, difference=None, reason="", leveled=True)
            if not again.difference and not again.reason:
                vars(self).update(vars(again))
        # An exponential that stands for any function may differ where the true one does not.
        if self.difference is not None and self.nested:
            self.difference, self.reason = None, f"modular: {NOT_LINEAR}"
        if self.reason.endswith(NOT_LINEAR) and not self.capped:
            again = self._settle_again(prepare, epsilon, reason="", capped=True, nested=True)
            if not again.reason:
                vars(self).update(vars(again))

    def _settle_again(self, prepare: Prepare, epsilon: float, **fields: Any) -> ResidueRun:
        """Return another run of the code, settled with these fields changed."""
        again = copy(self)
        vars(again).update(fields)
        again.settle(prepare, epsilon)
        return again

    def _settle_roots(self, prepare: Prepare, epsilon: float) -> None:
        roots: set[int] = set()
        while True:
            try:
                return self._test_identity_at_points(prepare, epsilon, tuple(sorted(roots)))
            except primes.NoRoot as missing:
                roots.add(missing.prime)
                # The test draws 64 different pairs.
                if len(primes.prime_pairs(tuple(sorted(roots)))) < 64:
                    self.reason = f"too few primes have roots of {sorted(roots)}"
                    return None

    def _test_identity_at_points(
        self, prepare: Prepare, epsilon: float, roots: tuple[int, ...]
    ) -> None:
        self.roots, choices = roots, len(primes.prime_pairs(roots))
        agreeing: dict[Any, list[_Point]] = {}
        differing: list[_Point] = []
        for drawn, (p, q) in enumerate(primes.draw_primes(64, self.random, roots), start=1):
            point = _Point(self, self._make_modular_kind(p, q), prepare)
            if self.reason:
                return
            if point.difference:
                differing.append(point)
                # One differing pair may be an accident, such as a divisor that is 0.
                if len(differing) > 1:
                    self.difference = point.difference
                    return
                continue
            # Pairs count together only if the same numbers were equal in all of them.
            group = agreeing.setdefault(point.answers, [])
            group.append(point)
            needed = None if self.is_refuting else point.needed(epsilon, choices)
            enough = 1 if self.is_refuting else needed or SAMPLED
            # The bound is for all ways to set so many pairs aside.
            if len(group) >= enough and drawn - len(group) <= SPARE:
                self.pairs = [x.pair for x in group]
                self.epsilon = (
                    degree.escape(point.chance.bound(choices), point.decided, needed, SPARE)
                    if needed
                    else None
                )
                return
            # Pairs outside the largest group are set aside, this one or others.
            if drawn - max(map(len, agreeing.values())) > SPARE:
                break
        self.reason = "which numbers are equal changed from one pair of primes to the next; another seed may decide it"

    def _make_modular_kind(self, p: int, q: int) -> type[Modular]:
        kind: Any = modular(p, q, self.random.getrandbits(63), self.rough)
        kind.field.meant, kind.field.ordered, kind.field.capped = True, self.ordered, self.capped
        kind.field.leveled = self.leveled
        if self.angles is not None:
            kind.tables = lambda name, angles, of=self.angles.of: kind.lift(of(name, angles))
        return kind  # type: ignore[no-any-return]

    def inputs(self, kind: type[Modular]) -> dict[str, Any]:
        """Return given numbers and masks, new letters for the rest, and the inputs that are made from them."""
        result = _place_residue_inputs(kind, self.shapes, self.given, self.numbers)
        return result | {name: make(result) for name, make in self.made.items()}


class _Point:
    """The function and the specification at one point."""

    def __init__(self, run: ResidueRun, kind: type[Modular], prepare: Prepare) -> None:
        self.pair = (kind.field.p.m, kind.field.q.m)
        self.difference: Difference | None = None
        self._run = run
        self._compared = degree.Chance()
        inputs = run.inputs(kind)
        try:
            expected = run.compute(**inputs)
        # A definition may decide by the order of numbers, as a sparsemax does.
        except Undecided as error:
            run.reason = str(error)
            return
        copies = {n: x.copy() for n, x in inputs.items()}  # the function may change its inputs
        kind.field.work = run.work
        try:
            self._compare_all(kind, prepare(kind)(copies), expected)
        # The caller adds the missing root of unity and starts again.
        except primes.NoRoot:
            raise
        # Code of a user may raise anything; the error says why nothing is decided.
        except Exception as error:
            run.reason = (
                str(error)
                if isinstance(error, SymattnError)
                else f"{type(error).__name__}: {error}"
            )
        run.free |= kind.field.free
        run.nested |= kind.field.nested
        run.stand_ins |= kind.field.stand_ins
        run.unbounded = {**run.unbounded, **kind.field.unbounded}
        decisions = kind.field.decisions
        self.decided, self.answers = decisions.count, tuple(sorted(decisions.answers.items()))
        self.chance = decisions.chance.either(self._compared)

    def _compare_all(self, kind: type[Modular], got: Any, expected: Any) -> None:
        """Compare the first returned item with a single output, or each item with the output at its place."""
        if not isinstance(expected, tuple):
            return self._compare_modular_output(kind, first_of(got), expected)
        # More outputs than the definition has are ignored, as floats ignore them.
        if not isinstance(got, tuple) or len(got) < len(expected):
            return self._record_residue_difference(
                (), f"the function did not return {len(expected)} arrays"
            )
        # One difference is enough: the sizes of its run are tried in floats.
        for k, (one, other) in enumerate(zip(got, expected, strict=False)):
            if self.difference is None:
                self._compare_modular_output(
                    kind, _in_axes(one, other) if k in self._run.loose else one, other
                )
        return None

    def _compare_modular_output(self, kind: type[Modular], got: object, expected: Modular) -> None:
        if not isinstance(got, kind):
            self._record_residue_difference(
                (),
                f"the function returned {type(got).__name__}, not an array of the kind that it was given",
            )
        elif got.plain_shape != expected.plain_shape:
            # A difference of shapes is one whatever the numbers are.
            self._record_residue_difference(
                (), f"the function returned shape {got.plain_shape}, not {expected.plain_shape}"
            )
        else:
            same, chance = kind.compared(got, expected)
            self._compared = self._compared.either(chance)
            undefined = kind._undefined(got) & kind._undefined(expected)
            # 0/0 has no value in either, so that nothing can be compared.
            if undefined.any():
                note("some elements are 0/0 in both the function and the specification")
            same = same | undefined
            if not same.all():
                index = tuple(int(i) for i in np.argwhere(~same)[0])
                share = f"{np.count_nonzero(~same)} of {same.size} elements"
                self._record_residue_difference(
                    index, f"{share} differ from the specification, the first at {list(index)}"
                )

    def _record_residue_difference(self, index: tuple[int, ...], message: str) -> None:
        self.difference = Difference(index, self._run.sizes, self._run.numbers, message)

    def needed(self, epsilon: float, choices: int) -> int | None:
        """Return how many pairs bring the probability of a wrong yes to ε."""
        return degree.pairs_needed(self.chance.bound(choices), self.decided, epsilon, SPARE)


def _in_axes(got: Any, expected: Modular) -> Any:
    """Return an output with the expected axes of length 1, as the comparison of floats takes it."""
    shapes = [
        [n for n in x.plain_shape if n != 1] for x in (got, expected) if isinstance(x, Modular)
    ]
    return got.reshape(expected.plain_shape) if len(shapes) == 2 and shapes[0] == shapes[1] else got


def drawn(
    sizes: Sizes, spec: Attention, names: Sequence[str], random: Random
) -> tuple[dict[str, tuple[int, ...]], dict[str, np.ndarray]]:
    """Return the shapes of the inputs ``names`` at these sizes, and masks in which every query may see the first key.

    Raises ``InputError`` for names and sizes that do not fit the specification.
    """
    shapes = _shapes_of_identity_inputs(sizes, spec, tuple(names))
    return shapes, _draw_identity_test_masks(shapes, spec, random)


def first_of(output: object) -> Any:
    """Return the first of several items that a function returned."""
    return output[0] if isinstance(output, tuple) and output else output


def spec_width(spec: Attention) -> int | None:
    """Return how many columns are rotated, or None if the specification does not say so."""
    return getattr(spec.position, "width", None)


def _shapes_of_identity_inputs(
    sizes: Sizes, spec: Attention, names: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    # tokens alone are queries too
    width = sizes.d_model if any(n.startswith("w_") for n in names) else sizes.d_k
    letters = lengths_by_letter(spec, replace(sizes, d_model=width))
    for name in names:
        if _LIKE.get(name, name) not in ARRAYS:
            raise InputError(
                f"identity test: unknown input {name!r}; known: {', '.join(sorted(ARRAYS))}"
            )
    result = {name: lengths(_LIKE.get(name, name), spec, names, letters) for name in names}
    return {
        name: (*sizes.batch, *shape) if name in (*TOKENS, *_LIKE) else shape
        for name, shape in result.items()
    }


def _draw_whole_number_array(shape: tuple[int, ...], random: Random) -> np.ndarray:
    """Draw whole numbers; they differ along every axis, so that a transposition is detected."""
    return np.random.default_rng(random.getrandbits(64)).integers(-LARGEST, LARGEST + 1, shape)


def _draw_identity_test_masks(
    shapes: Mapping[str, tuple[int, ...]], spec: Attention, random: Random
) -> dict[str, np.ndarray]:
    """Return masks in which every query may see the first key."""
    result = {}
    for name in ("mask", "keep"):
        if name in shapes:
            # Half of the entries on average, by the sign of a random whole number.
            allowed = _draw_whole_number_array(shapes[name], random) >= 0
            # A query without keys would be 0/0.
            allowed[..., 0] = True
            additive = name == "mask" and spec.mask == "additive"
            result[name] = (
                np.where(allowed, _draw_whole_number_array(shapes[name], random), -np.inf)
                if additive
                else allowed
            )
    return result

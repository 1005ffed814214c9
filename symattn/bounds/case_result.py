"""The judgement of one call: for each output the expected and actual values, and the error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import flint
import numpy as np

from symattn.arrays.formats import FORMATS, HALF, Format
from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.arrays.special import Forbidden, Undefined
from symattn.bounds.called_target import Inputs, Memory, Outcome
from symattn.document.errors import SymattnError

#: Exceptions of code that has no result for the given sizes or numbers.
UNFIT = (
    SymattnError,
    ValueError,
    IndexError,
    TypeError,
    KeyError,
    ZeroDivisionError,
    OverflowError,
)
Finding = Literal["values", "not finite", "shape", "dtype", "raises", "mutates", "overwrites"]
#: Findings of wrong numbers, or too many or too few of them: known mistakes may explain these.
OF_VALUES: tuple[Finding, ...] = ("values", "not finite", "shape")


@dataclass(frozen=True, eq=False)
class Case:
    """Inputs to try, and their purpose.

    ``alone`` says whether these inputs alone show a fault, whatever the function was called with before. With
    ``interpreted``, NumPy runs the programs that JAX would compile for the call.
    """

    group: str
    name: str
    inputs: Inputs
    memory: Memory = "contiguous"
    alone: bool = True
    interpreted: bool = False

    @property
    def way(self) -> Memory:
        """How the runner is to make the call."""
        return "interpreted" if self.interpreted else self.memory

    @cached_property
    def size(self) -> int:
        """Number of entries of the inputs."""
        return sum(int(np.asarray(a).size) for a in self.inputs.values())


# roundings of the largest entry that a screened output may be off
_UNITS = 32.0
_UNITS_OF_HALF = 8.0  # the same in half precision, of the largest entry of a row


class Expected(ABC):
    """One output of the definition, or of a variant: its exact entries, and how far a legal implementation may be from
    each (``allowed``).

    Enclosures are compared first, and exact entries if these leave something open; in a ``lenient`` comparison what is
    left open counts as legal.
    """

    allowed: np.ndarray
    lenient: bool = False

    @property
    @abstractmethod
    def entries(self) -> np.ndarray:
        """The exact entries: balls, and undefined ones."""

    def enclosures(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield middles and radii in float64, fastest to compute first."""
        return iter(())

    @cached_property
    def near(self) -> np.ndarray:
        """The exact entries as float64; NaN where they are no numbers."""
        return middles(self.entries)

    def ratios(self, got: np.ndarray) -> np.ndarray:
        """Return |got − exact| / allowed for each entry: above 1 exactly where no legal implementation gives ``got``.

        It is +∞ for NaN or infinity in place of a number, and 0 where the allowed error is infinite.
        """
        # Enclosures first: the exact entries cost much more.
        for middle, radius in self.enclosures():
            result, sure = shares(got, middle, radius, self.allowed)
            if self.lenient or sure.all():
                return np.asarray(result)
        return np.asarray(
            np.frompyfunc(ratio, 3, 1)(got, self.entries, self.allowed), dtype=np.float64
        )

    def decisive(self) -> np.ndarray:
        """Return where an entry could show a fault: the allowed error is below the largest entry."""
        # 1e-300 avoids that an output of zeros has no decisive entry at all.
        return np.asarray(self.allowed < max(largest(self.near), 1e-300))

    def widened(self, allowed: np.ndarray) -> Self:
        """Return the same output with another allowed error."""
        return replace(self, allowed=allowed)  # type: ignore[type-var]


@dataclass(frozen=True)
class ExactOutput(Expected):
    """An output by its exact entries alone."""

    exact: np.ndarray
    allowed: np.ndarray

    @property
    def entries(self) -> np.ndarray:
        """See ``Expected.entries``."""
        return self.exact


@dataclass(frozen=True)
class EnclosedInFloats(Expected):
    """An output enclosed in float64; ``make`` returns its exact entries, for what the enclosures leave open."""

    middle: np.ndarray
    radius: np.ndarray
    allowed: np.ndarray
    make: Callable[[], np.ndarray]

    def enclosures(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See ``Expected.enclosures``; a comparison with −∞ is left to the exact entries."""
        # An entry of −∞ has no enclosure to compare with.
        if not np.isneginf(self.middle).any():
            yield self.middle, self.radius

    @cached_property
    def near(self) -> np.ndarray:
        """See ``Expected.near``."""
        return np.where(np.isfinite(self.middle), self.middle, np.nan)

    @property
    def entries(self) -> np.ndarray:
        """See ``Expected.entries``."""
        return self.make()


@dataclass(frozen=True)
class ScreenedOutput(Expected):
    """An output in float64, with an allowed error below that of any way of computing: what is within it is legal, and
    nothing else is said of the rest."""

    values: np.ndarray
    allowed: np.ndarray

    def enclosures(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See ``Expected.enclosures``; the radius is negligible against what is allowed."""
        yield self.values, np.zeros_like(self.values)

    @cached_property
    def near(self) -> np.ndarray:
        """See ``Expected.near``."""
        return self.values

    @property
    def entries(self) -> np.ndarray:
        """See ``Expected.entries``."""
        ball = np.frompyfunc(
            lambda x: flint.arb(float(x)) if np.isfinite(x) else Undefined("it is open"), 1, 1
        )
        return np.asarray(ball(self.values), dtype=object)


@dataclass(frozen=True)
class PartlyOpen(Expected):
    """An output of which the definition leaves the entries ``open_`` undefined, such as 0/0: any value is legal there.

    Code that bounds a divisor from below returns numbers, other code NaN.
    """

    known: Expected
    open_: np.ndarray
    allowed: np.ndarray

    @property
    def entries(self) -> np.ndarray:
        """See ``Expected.entries``."""
        return self.known.entries

    def enclosures(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See ``Expected.enclosures``."""
        return self.known.enclosures()

    @cached_property
    def near(self) -> np.ndarray:
        """See ``Expected.near``."""
        return self.known.near

    def ratios(self, got: np.ndarray) -> np.ndarray:
        """See ``Expected.ratios``; 0 for open entries."""
        return np.where(self.open_, 0.0, self.known.widened(self.allowed).ratios(got))


class ByLaw(ScreenedOutput):
    """An output in float64 whose own error is part of what is allowed; no way of computing gives what is beyond."""


def screening_error(near: np.ndarray, precision: Precision) -> np.ndarray:
    """Return an error for each entry that most implementations stay below, and that the bound of large sums allows.

    In half precision it is relative to the largest entry of the row, not of all rows: under a causal mask late rows are
    means over many keys, so small that a few roundings of the first row would hide them.
    """
    unit = float(precision.input.u)
    # A scalar has no rows.
    if precision.input.name not in HALF or near.ndim == 0:
        return np.full(near.shape, _UNITS * unit * largest(near))
    finite = np.where(np.isfinite(near), near, 0.0)
    sizes = np.abs(finite).max(axis=-1, keepdims=True, initial=0.0)
    # A copy, as a broadcast array cannot be written to.
    return np.broadcast_to(_UNITS_OF_HALF * unit * sizes, near.shape).copy()


@dataclass(frozen=True)
class Part:
    """One output: the expected one, the actual one (None: no array), and the ratios if both have the same shape."""

    expected: Expected
    got: np.ndarray | None = None
    ratios: np.ndarray | None = None

    @property
    def worst(self) -> float:
        """The largest ratio; 0 where no values could be compared."""
        return float(self.ratios.max(initial=0.0)) if self.ratios is not None else 0.0

    @property
    def wrong(self) -> bool:
        """Return whether some entry is none that a legal implementation gives."""
        return self.ratios is not None and bool((self.ratios > 1).any())


@dataclass(frozen=True, eq=False)
class CaseResult:
    """A case, the result of its call, and what is wrong with it (None: nothing).

    ``undecided`` says that numbers were not judged, since the definition compares numbers that may be equal, or the
    call did not return; ``whole``, that the allowed error is the largest bound of all ways of computing, not that of
    the first way alone.
    """

    case: Case
    outcome: Outcome
    parts: tuple[Part, ...]
    finding: Finding | None
    undecided: bool = False
    whole: bool = True

    @property
    def ratios(self) -> np.ndarray | None:
        """The ratios of the first output; None where no values could be compared."""
        return self.parts[0].ratios

    @property
    def worst(self) -> float:
        """The largest ratio; 0 where no values could be compared."""
        return max(part.worst for part in self.parts)

    @property
    def is_screened(self) -> bool:
        """Return whether the outputs were compared with float64 alone, within an error that is no bound."""
        return any(type(part.expected) is ScreenedOutput for part in self.parts)

    @property
    def where(self) -> tuple[int, tuple[int, ...]]:
        """The output with the worst entry, and the index of that entry."""
        of = max(range(len(self.parts)), key=lambda k: self.parts[k].worst)
        ratios = self.parts[of].ratios
        assert ratios is not None
        place = np.unravel_index(int(ratios.argmax()), ratios.shape)
        return of, tuple(int(i) for i in place)

    @property
    def wrong(self) -> frozenset[int]:
        """The outputs with entries that no legal implementation gives."""
        return frozenset(k for k, part in enumerate(self.parts) if part.wrong)

    @cached_property
    def decisive(self) -> bool:
        """Return whether some entry could have shown a fault."""
        # A call that did not return shows nothing.
        return not self.outcome.late and any(
            bool(part.expected.decisive().any()) for part in self.parts
        )


def compared(
    case: Case,
    outcome: Outcome,
    right: Sequence[Expected],
    precision: Precision,
    loose: Collection[int] = (),
    changes: Collection[str] = (),
) -> CaseResult:
    """Compare the result of a call with the expected outputs.

    Axes of length 1 may differ in the outputs ``loose``; a call may change the inputs ``changes``.
    """
    # A call that exceeds the limits may be slow for reasons of the machine: no verdict.
    if outcome.late:
        return CaseResult(case, outcome, tuple(map(Part, right)), None, undecided=True)
    if outcome.error is not None or outcome.output is None:
        return CaseResult(case, outcome, tuple(map(Part, right)), "raises")
    # Missing outputs are None, surplus ones are ignored.
    returned = (outcome.output, *outcome.others)
    padded = [*returned, *[None] * len(right)]
    got = padded[: len(right)]
    got = [
        _restore_expected_axes(a, e) if k in loose else a
        for k, (a, e) in enumerate(zip(got, right, strict=True))
    ]
    # Ratios need equal shapes, so a wrong shape comes first.
    pairs = zip(got, right, strict=True)
    if any(a is None or a.shape != e.allowed.shape for a, e in pairs):
        return CaseResult(case, outcome, tuple(map(Part, right, got)), "shape")
    is_fine = holds(outcome.dtype, precision.returned)
    if outcome.dtype in WIDER or not is_fine:
        right = [_stored_as(e, outcome.dtype) for e in right]
    parts = tuple(Part(e, a, e.ratios(a)) for e, a in zip(right, got, strict=True) if a is not None)
    return CaseResult(
        case, outcome, parts, _classify_wrong_outcome(parts, outcome, is_fine, changes)
    )


def _restore_expected_axes(got: np.ndarray | None, right: Expected) -> np.ndarray | None:
    """Return the array with the expected axes of length 1."""
    # Only axes of length 1 may differ; any other shape is an error.
    if got is None or [n for n in got.shape if n != 1] != [
        n for n in right.allowed.shape if n != 1
    ]:
        return got
    return got.reshape(right.allowed.shape)


def _stored_as(right: Expected, dtype: str) -> Expected:
    """Return the expected output with the error allowed for a dtype that is narrower than wanted, or above float64.

    A narrower dtype is a fault of its own, not one of values; a wider one has been rounded to float64.
    """
    # A narrower dtype is another finding, so its rounding is allowed here.
    if dtype in FORMATS:
        f = Format(dtype)
        largest_entry = np.abs(np.nan_to_num(right.near)) + right.allowed
        more = 2 * float(f.u) * largest_entry + float(f.eta)
    # Types wider than float64 are rounded to float64 before they are compared.
    elif dtype in WIDER:
        largest_value = np.abs(np.nan_to_num(right.near)) + right.allowed
        more = 2.0**-52 * largest_value
    else:
        return right
    return right.widened((right.allowed + more) * (1 + 2.0**-40))


def _classify_wrong_outcome(
    parts: Sequence[Part], outcome: Outcome, is_fine: bool, changes: Collection[str]
) -> Finding | None:
    # Wrong values come first: other findings matter less beside them.
    beyond = [(part, part.ratios > 1) for part in parts if part.ratios is not None and part.wrong]
    if beyond:
        # NaN or infinity in every wrong entry is a finding of its own.
        lost = all(
            np.isinf(p.ratios[b]).all() and not np.isfinite(p.got[b]).any()  # type: ignore[index]
            for p, b in beyond
        )
        return "not finite" if lost else "values"
    if not is_fine:
        return "dtype"
    if set(outcome.mutated) - set(changes):
        return "mutates"
    return "overwrites" if outcome.overwrote else None


def matches(part: Part, wrong: Expected, judged: np.ndarray, exact: bool = True) -> bool | None:
    """Return whether the output is that of the mistake ``wrong`` in the entries ``judged``; None if that is undecided.

    It is if the right definition gives the output as well, or if an implementation of the mistake might give the right
    value. A mistake that is not ``exact`` gives the same numbers as the definition, but for roundings.
    """
    if part.got is None or part.got.shape != wrong.allowed.shape:
        return False
    if (np.where(judged, wrong.ratios(part.got), 0.0) > 1).any():
        return False
    if part.ratios is None:  # a wrong shape, which the mistake has too
        return True if judged.any() else None
    off = (part.ratios > 1) & judged
    if not exact:
        return True if off.any() else None
    apart = np.abs(part.expected.near - wrong.near)
    # A number apart from NaN is as far as can be.
    apart = np.where(np.isnan(apart), np.inf, apart)  # one of them is no number
    return True if (off & (apart > wrong.allowed)).any() else None


# -- entries -----------------------------------------------------------------------------------------------------------
#: Types that hold more than float64.
WIDER = ("longdouble", "float128", "float96")


def holds(dtype: str, wanted: Format) -> bool:
    """Return whether numbers of ``dtype`` are at least as fine as ``wanted``."""
    if dtype == wanted.name or dtype in WIDER:
        return True
    return dtype in FORMATS and Format(dtype).u <= wanted.u


def largest(near: np.ndarray) -> float:
    """Return the largest absolute value of the finite entries."""
    return float(np.abs(near[np.isfinite(near)]).max(initial=0.0))


def middles(entries: np.ndarray) -> np.ndarray:
    """Return the middles of balls as float64; NaN for entries that are not numbers."""
    middle = np.frompyfunc(
        lambda x: np.nan if isinstance(x, Undefined | Forbidden) else float(x.mid()), 1, 1
    )
    return np.asarray(middle(entries), dtype=np.float64)


def shares(got: Any, middle: Any, radius: Any, limits: object) -> tuple[Any, Any]:
    """Return ratios by enclosures, at most 1 for entries that these leave open, and which entries they decide.

    A part of 2⁻⁴⁰ outweighs the rounding of the difference and of the quotient.
    """
    xp: Any = namespace_of(got)
    with np.errstate(all="ignore"):
        off = xp.abs(got - middle)
        most = (off + radius) * (1 + 2.0**-40)
        below = most <= limits
        # Most outputs are right in all entries: then there is nothing else to tell apart.
        if bool(below.all()) and bool(xp.isfinite(most).all()):
            return xp.where(most == 0, 0.0, most / limits), below
        least = xp.maximum(off - radius, 0.0) * (1 - 2.0**-40)
        beyond = least > limits
        # With an exact 0 in both, the ratio is 0 whatever the limit.
        undefined = xp.isnan(middle)
        inside = xp.where(most == 0, 0.0, xp.minimum(most / limits, 1.0))
        # Above 1 even if the quotient rounds down to it.
        outside = xp.maximum(least / limits, 1 + 2.0**-40)
        result = xp.where(beyond, outside, inside)
        # NaN agrees with an undefined entry, and with nothing else.
        strange = xp.where(undefined & xp.isnan(got), 0.0, xp.inf)
        result = xp.where(undefined | ~xp.isfinite(got), strange, result)
        result = xp.where(xp.isinf(limits) & ~undefined, 0.0, result)
    # An undefined middle of positive radius is an unknown entry, which only balls decide.
    no_number = ~xp.isfinite(got)
    sure = below | beyond | undefined | no_number | xp.isinf(limits)
    return result, sure & ~(undefined & (radius > 0))


def are_within(got: np.ndarray, middle: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return which entries have a ratio of at most 1 by ``shares`` with radius 0, or an undefined middle.

    >>> are_within(np.array([1.0, 2.0, np.inf]), np.ones(3), np.array([0.0, 0.5, np.inf]))
    array([ True, False,  True])
    """
    with np.errstate(all="ignore"):
        off = np.abs(got - middle) * (1 - 2.0**-40)
        return np.asarray((off <= limits) | np.isnan(middle) | np.isinf(limits))


def ratio(got: float, exact: object, limit: float) -> float:
    """|got − exact| / limit of one entry, see ``Expected.ratios``."""
    # A forbidden entry wants −∞, an undefined one NaN.
    if isinstance(exact, Undefined | Forbidden):
        agrees = np.isneginf(got) if isinstance(exact, Forbidden) else np.isnan(got)
        return 0.0 if agrees else np.inf
    # An infinite bound says nothing, whatever the output is.
    if np.isinf(limit):
        return 0.0
    if not np.isfinite(got):
        return np.inf
    off = abs(flint.arb(float(got)) - exact)
    if off <= limit:
        return min(float(off.upper()) / limit, 1.0) if limit else 0.0
    # At the limit precision a ball that touches the bound counts as legal: only certainty accuses.
    if off > limit:
        return max(float(off.lower()) / limit if limit else np.inf, 1.0 + 2.0**-40)
    return 1.0

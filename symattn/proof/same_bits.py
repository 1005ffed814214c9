"""Decide whether two computations do the same operations on the same numbers, so that they give the same bits.

Few identities hold in rounded arithmetic: + and × are not associative. But +, × and max of IEEE 754-2019 commute if
there is one NaN and max is its ``maximum``, for which −0 < +0. A ``RoundedTerm`` is a computation of which only that is
known. The certificate has the terms in order of computation, and numbers that show a difference; the checker orders and
rounds by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays import kind
from symattn.document.errors import Refused
from symattn.document.evidence import Evidence, Grade
from symattn.proof.certificate import Alike, accepted
from symattn.proof.theorem import Decision, Refutation

# The operations that commute under the conditions above.
COMMUTING = frozenset({"+", "×", "max"})


@dataclass(frozen=True)
class RoundedTerm:
    """An operation and its operands; those of +, × and max are sorted if the term is ``ordered``."""

    operation: str
    operands: tuple[Any, ...] = ()
    ordered: bool = field(default=True, compare=False, repr=False)

    @classmethod
    def of(cls, operation: str, *operands: Any) -> RoundedTerm:
        """Return the operation on ``operands``, which must be terms."""
        if not all(isinstance(x, RoundedTerm) for x in operands):
            raise Refused(f"a rounded {operation} with a number")
        ordered = any(x.ordered for x in operands)
        # Sorted operands make computations equal that differ in their order alone.
        commuting = ordered and operation in COMMUTING
        return cls(operation, tuple(sorted(operands, key=repr)) if commuting else operands, ordered)

    def __add__(self, other: object) -> RoundedTerm:
        return RoundedTerm.of("+", self, other)

    def __mul__(self, other: object) -> RoundedTerm:
        return RoundedTerm.of("×", self, other)

    def __sub__(self, other: object) -> RoundedTerm:
        return RoundedTerm.of("−", self, other)

    def __truediv__(self, other: object) -> RoundedTerm:
        return RoundedTerm.of("/", self, other)

    def __array_namespace__(self) -> type[Operations]:
        return Operations


class Operations:
    """The array namespace of terms."""

    @staticmethod
    def maximum(a: RoundedTerm, b: RoundedTerm) -> RoundedTerm:
        """Return max(a, b)."""
        return RoundedTerm.of("max", a, b)

    @staticmethod
    def exp(a: RoundedTerm) -> RoundedTerm:
        """Return an unknown function of a: only equal arguments are known to give equal bits."""
        return RoundedTerm.of("exp", a)

    @staticmethod
    def isfinite(a: RoundedTerm) -> RoundedTerm:
        """Return whether a is finite, as an unknown function of a."""
        return RoundedTerm.of("isfinite", a)

    @staticmethod
    def where(condition: RoundedTerm, a: object, b: object) -> RoundedTerm:
        """Return a or b by the condition."""
        ordered = condition.ordered
        every = [
            x if isinstance(x, RoundedTerm) else RoundedTerm("number", (str(x),), ordered)
            for x in (condition, a, b)
        ]
        return RoundedTerm.of("where", *every)


class DifferingResults(NamedTuple):
    """A format, input numbers in it and, if a difference was sought, two results that differ."""

    format: str
    inputs: tuple[Fraction, ...]
    unequal: tuple[float, float] | None

    def __str__(self) -> str:
        return f"in {self.format}" + (
            ": {:.9g} and {:.9g}".format(*self.unequal) if self.unequal else ""
        )


@dataclass(frozen=True)
class SameBits:
    """The statement that both computations in ``same`` agree bit for bit, and those in ``different`` not always.

    Each takes ``inputs`` numbers and returns a pair of sequences. The false variant is that ``different`` agree too.
    Inputs at the places in ``tied`` are drawn equal: exponentials of their differences are then e⁰, so the numbers show
    a difference however other exponentials are computed.
    """

    inputs: int
    same: Callable[..., Any]
    different: Callable[..., Any]
    tied: tuple[int, ...] = ()
    formats: tuple[str, ...] = ("float32", "float16", "bfloat16")
    seeds: int = 20

    def decide(self) -> Decision:
        results = self.same(*self._make_input_terms())
        left, right = (tuple(x) for x in results)
        if left != right:
            return Decision(Evidence(Grade.UNDECIDED, "both do not do the same operations"))
        result = self._find_first_differing_inputs(False)
        if not result:
            return Decision(
                Evidence(Grade.UNDECIDED, "no numbers were found for which the bits differ")
            )
        words = "both do the same operations on the same numbers, but for the order of the operands of +, × and max"
        table: dict[tuple[Any, ...], int] = {}
        # Unordered terms, since the checker has to order operands by itself.
        both = [
            [
                [_place_term_in_table(x, table) for x in side]
                for side in f(*self._make_input_terms(False))
            ]
            for f in (self.same, self.different)
        ]
        (a, b), (c, d) = (map(tuple, pair) for pair in both)
        premise = Alike(tuple(table), (a, b), (c, d), result.format, result.inputs)
        evidence = accepted(Evidence(Grade.PROVED, "every format"), (), (premise,))
        return Decision(evidence, ((words,), (f"the others differ {result}",)), premises=(premise,))

    def refute(self) -> Refutation:
        result = self._find_first_differing_inputs(False)
        results = self.different(*self._make_input_terms())
        a, b = (tuple(x) for x in results)
        return Refutation(bool(result), str(result or ""), accepted=a == b)

    def witness(self) -> str:
        return str(self._find_first_differing_inputs(True) or "")

    def _make_input_terms(self, ordered: bool = True) -> list[RoundedTerm]:
        return [RoundedTerm("input", (i,), ordered) for i in range(self.inputs)]

    def _find_first_differing_inputs(self, alike: bool) -> DifferingResults | None:
        """Return the first inputs at which ``same`` agree (``alike``), or at which ``different`` do not."""
        for name in self.formats:
            # Fixed seeds make the certificate reproducible.
            for seed in range(self.seeds):
                numbers = np.abs(np.random.default_rng(seed).normal(size=self.inputs))
                for place in self.tied:
                    numbers[place] = numbers[self.tied[0]]
                inputs = [kind(name).lift([x]) for x in numbers]
                left, right = (self.same if alike else self.different)(*inputs)
                pairs = [
                    (_first_entry_as_float(a), _first_entry_as_float(b))
                    for a, b in zip(left, right, strict=True)
                ]
                unequal = next((p for p in pairs if p[0] != p[1]), None)
                if alike != bool(unequal):
                    return DifferingResults(
                        name, tuple(Fraction(_first_entry_as_float(x)) for x in inputs), unequal
                    )
        return None


def _place_term_in_table(x: RoundedTerm, table: dict[tuple[Any, ...], int]) -> int:
    """Add a term to a table, after its operands, and return its place."""
    operands = tuple(
        _place_term_in_table(y, table) if isinstance(y, RoundedTerm) else y for y in x.operands
    )
    # Equal terms share a place, so that the table has each computation once.
    return table.setdefault((x.operation, *operands), len(table))


def _first_entry_as_float(x: object) -> float:
    numbers = x.numpy() if hasattr(x, "numpy") else x
    return float(np.asarray(numbers).astype(np.float64)[0])

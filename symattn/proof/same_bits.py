"""Decide whether two computations do the same operations on the same numbers, so that they give the same bits.

Of rounded arithmetic little is an identity: + and × do not associate. But +, × and max of IEEE 754-2019 give the same
result whichever operand comes first, where there is one NaN and max is its ``maximum``, for which −0 < +0. A
``RoundedTerm`` is a computation of which no more than that is known. The certificate has the terms as they are
computed, and numbers that show a difference; the checker orders and rounds by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays import kind
from symattn.arrays.formats import Format
from symattn.document.errors import Refused
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Text
from symattn.proof.certified import accepted
from symattn.proof.premises import Alike
from symattn.proof.statement import all_true
from symattn.proof.theorem import Decision, Refutation

COMMUTING = frozenset({"+", "×", "max"})


@dataclass(frozen=True)
class RoundedTerm:
    """An operation and its operands; those of +, × and max stand in one fixed order, if they are ``ordered``."""

    operation: str
    operands: tuple[Any, ...] = ()
    ordered: bool = field(default=True, compare=False, repr=False)

    @classmethod
    def of(cls, operation: str, *operands: Any) -> RoundedTerm:
        """The operation done to ``operands``, which are terms."""
        if not all(isinstance(x, RoundedTerm) for x in operands):
            raise Refused(f"a rounded {operation} with a number")
        ordered = any(x.ordered for x in operands)
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
    """The functions that terms offer."""

    @staticmethod
    def maximum(a: RoundedTerm, b: RoundedTerm) -> RoundedTerm:
        """max(a, b)."""
        return RoundedTerm.of("max", a, b)

    @staticmethod
    def exp(a: RoundedTerm) -> RoundedTerm:
        """A function of a of which nothing is known but that the same argument gives the same bits."""
        return RoundedTerm.of("exp", a)

    @staticmethod
    def isfinite(a: RoundedTerm) -> RoundedTerm:
        """Return whether a is finite: of that, too, only that the same a gives the same answer."""
        return RoundedTerm.of("isfinite", a)

    @staticmethod
    def where(condition: RoundedTerm, a: object, b: object) -> RoundedTerm:
        """a or b, whichever the condition says."""
        ordered = condition.ordered
        every = [
            x if isinstance(x, RoundedTerm) else RoundedTerm("number", (str(x),), ordered) for x in (condition, a, b)
        ]
        return RoundedTerm.of("where", *every)


class DifferingResults(NamedTuple):
    """A format and numbers in it, and where it was looked for, two results that differ."""

    format: str
    inputs: tuple[Fraction, ...]
    unequal: tuple[float, float] | None

    def __str__(self) -> str:
        return f"in {self.format}" + (": {:.9g} and {:.9g}".format(*self.unequal) if self.unequal else "")


@dataclass(frozen=True)
class SameBits:
    """Both computations that ``same`` gives agree bit for bit, and those that ``different`` gives do not always.

    Each takes ``inputs`` numbers and gives a pair of sequences. The false variant is that ``different`` agree too.
    Inputs whose places are in ``tied`` are drawn equal: where exponentials are of differences of them alone, they are
    e⁰, and the numbers show a difference whatever the exponential of others is.
    """

    inputs: int
    same: Callable[..., Any]
    different: Callable[..., Any]
    tied: tuple[int, ...] = ()
    formats: tuple[str, ...] = ("float32", "float16", "bfloat16")
    seeds: int = 20

    def decide(self) -> Decision:
        left, right = (tuple(x) for x in self.same(*self._terms()))
        if left != right:
            return Decision(Evidence(Grade.UNDECIDED, "both do not do the same operations"))
        result = self._first(False)
        if not result:
            return Decision(Evidence(Grade.UNDECIDED, "no numbers were found for which the bits differ"))
        words = "both do the same operations on the same numbers, but for the order of the operands of +, × and max"
        premise = self._alike(result)
        evidence = accepted(Evidence(Grade.PROVED, "every format"), (), (premise,))
        return Decision(evidence, ((words,), (f"the others differ {result}",)), premises=(premise,))

    def refute(self) -> Refutation:
        result = self._first(False)
        a, b = (tuple(x) for x in self.different(*self._terms()))
        return Refutation(bool(result), str(result or ""), accepted=a == b)

    def witness(self) -> str:
        return str(self._first(True) or "")

    def _terms(self, ordered: bool = True) -> list[RoundedTerm]:
        return [RoundedTerm("input", (i,), ordered) for i in range(self.inputs)]

    def _alike(self, differing_results: DifferingResults) -> Alike:
        """The premise, with the operands in the order in which the computations take them."""
        table: dict[tuple[Any, ...], int] = {}
        both = [
            [[_placed(x, table) for x in side] for side in f(*self._terms(False))] for f in (self.same, self.different)
        ]
        (a, b), (c, d) = (map(tuple, pair) for pair in both)
        return Alike(tuple(table), (a, b), (c, d), differing_results.format, differing_results.inputs)

    def _first(self, alike: bool) -> DifferingResults | None:
        """Where ``same`` agree, or ``different`` do not."""
        for name in self.formats:
            for seed in range(self.seeds):
                numbers = np.abs(np.random.default_rng(seed).normal(size=self.inputs))
                for place in self.tied:
                    numbers[place] = numbers[self.tied[0]]
                given = [kind(name).lift([x]) for x in numbers]
                left, right = (self.same if alike else self.different)(*given)
                pairs = [(_number(a), _number(b)) for a, b in zip(left, right, strict=True)]
                unequal = next((p for p in pairs if p[0] != p[1]), None)
                if alike != bool(unequal):
                    return DifferingResults(name, tuple(Fraction(_number(x)) for x in given), unequal)
        return None


def _placed(x: RoundedTerm, table: dict[tuple[Any, ...], int]) -> int:
    """The place of a term in a table, those of its operands before it."""
    operands = tuple(_placed(y, table) if isinstance(y, RoundedTerm) else y for y in x.operands)
    return table.setdefault((x.operation, *operands), len(table))


def _number(x: object) -> float:
    return float(np.asarray(x.numpy() if hasattr(x, "numpy") else x).astype(np.float64)[0])


# -- statements about number formats, checked in each of the formats named, of all its numbers where few ---------------
Holds = Callable[[Format], Any]


@dataclass(frozen=True)
class InFormats:
    """``holds`` says of a format whether the statement is true in it, ``false`` of the false variant.

    Each gives a truth value or an array of such. The false variant is refuted by one format in which it fails.
    """

    formats: tuple[str, ...]
    holds: Holds
    false: Holds
    looked_at: str = ""
    argument: Text = ()

    def decide(self) -> Decision:
        wrong = self._first(self.holds, False)
        if wrong:
            return Decision(Evidence(Grade.REFUTED, wrong.removeprefix("in ")))
        if not self.formats:
            return Decision(Evidence(Grade.UNDECIDED, "no format is named"))
        where = (f"{self.looked_at} " if self.looked_at else "") + ", ".join(self.formats)
        return Decision(Evidence(Grade.CHECKED, where), (self.argument,) if self.argument else ())

    def refute(self) -> Refutation:
        wrong = self._first(self.false, False)
        return Refutation(bool(wrong), wrong)

    def witness(self) -> str:
        return self._first(self.holds, True)

    def _first(self, holds: Holds, truth: bool) -> str:
        """Return the first format in which it is true, or false; empty if there is none."""
        cases = ((name, all_true(holds(Format(name)))) for name in self.formats)
        with np.errstate(all="ignore"):
            return next((f"in {name}" for name, result in cases if result is truth), "")

"""Whether two computations do the same operations on the same numbers, so that they give the same bits.

Of rounded arithmetic little is an identity: + and × do not associate. But IEEE 754's +, × and max give the same
result whichever operand comes first. ``Term`` is a computation of which no more than that is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.arrays import kind
from symattn.errors import Refused
from symattn.evidence import Evidence, Grade
from symattn.proof.theorem import Decision, Refutation

COMMUTING = frozenset({"+", "×", "max"})


@dataclass(frozen=True)
class Term:
    """An operation and its operands; the operands of +, × and max stand in one fixed order."""

    operation: str
    operands: tuple[Any, ...] = ()

    @classmethod
    def of(cls, operation: str, *operands: Any) -> Term:
        """The operation done to ``operands``, which are terms."""
        if not all(isinstance(x, Term) for x in operands):
            raise Refused(f"a rounded {operation} with a number")
        return cls(operation, tuple(sorted(operands, key=repr)) if operation in COMMUTING else operands)

    def __add__(self, other: Any) -> Term:
        return Term.of("+", self, other)

    def __mul__(self, other: Any) -> Term:
        return Term.of("×", self, other)

    def __sub__(self, other: Any) -> Term:
        return Term.of("−", self, other)

    def __truediv__(self, other: Any) -> Term:
        return Term.of("/", self, other)

    def __array_namespace__(self) -> type[Operations]:
        return Operations


class Operations:
    """The functions that terms offer."""

    @staticmethod
    def maximum(a: Term, b: Term) -> Term:
        """max(a, b)."""
        return Term.of("max", a, b)

    @staticmethod
    def exp(a: Term) -> Term:
        """A function of a of which nothing is known but that the same argument gives the same bits."""
        return Term.of("exp", a)

    @staticmethod
    def isfinite(a: Term) -> Term:
        """Whether a is finite: of that, too, only that the same a gives the same answer."""
        return Term.of("isfinite", a)

    @staticmethod
    def where(condition: Term, a: Any, b: Any) -> Term:
        """a or b, whichever the condition says."""
        return Term.of("where", *[x if isinstance(x, Term) else Term(repr(x)) for x in (condition, a, b)])


@dataclass(frozen=True)
class SameBits:
    """Both computations that ``same`` gives agree bit for bit, and those that ``different`` gives do not always.

    Each takes ``inputs`` numbers and gives a pair of sequences. The false variant is that ``different`` agree too.
    """

    inputs: int
    same: Callable[..., Any]
    different: Callable[..., Any]
    formats: tuple[str, ...] = ("float32", "float16", "bfloat16")
    seeds: int = 20

    def decide(self) -> Decision:
        left, right = self.same(*[Term(f"x{i}") for i in range(self.inputs)])
        if tuple(left) != tuple(right):
            return Decision(Evidence(Grade.UNDECIDED, "both do not do the same operations"))
        found = self._first(False)
        if not found:
            return Decision(Evidence(Grade.UNDECIDED, "no numbers were found for which the bits differ"))
        words = "both do the same operations on the same numbers, but for the order of the operands of +, × and max"
        return Decision(Evidence(Grade.ARGUED, "every format"), ((words,), (f"the others differ {found}",)))

    def refute(self) -> Refutation:
        found = self._first(False)
        a, b = (tuple(x) for x in self.different(*[Term(f"x{i}") for i in range(self.inputs)]))
        return Refutation(bool(found), found, accepted=a == b)

    def witness(self) -> str:
        return self._first(True)

    def _first(self, alike: bool) -> str:
        """Where ``same`` agree, or ``different`` do not."""
        for name in self.formats:
            for seed in range(self.seeds):
                numbers = np.random.default_rng(seed).normal(size=self.inputs)
                given = [kind(name).lift([x]) for x in numbers]
                left, right = (self.same if alike else self.different)(*given)
                pairs = [(_number(a), _number(b)) for a, b in zip(left, right, strict=True)]
                unequal = next((p for p in pairs if p[0] != p[1]), None)
                if alike != bool(unequal):
                    return f"in {name}" + (f": {unequal[0]:.9g} and {unequal[1]:.9g}" if unequal else "")
        return ""


def _number(x: Any) -> float:
    return float(np.asarray(x.numpy() if hasattr(x, "numpy") else x).astype(np.float64)[0])

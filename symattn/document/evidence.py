"""Grades: the evidence for an equality that symattn prints, and the verdict of a whole document.

No other labels are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Grade(Enum):
    """The grade of an equality: how it was established.

    >>> [grade.value for grade in Grade]
    ['coq', 'proved', 'argued', 'checked', 'tested', 'searched', 'enclosed', 'sampled', 'refuted', 'undecided']
    """

    COQ = "coq"
    PROVED = "proved"
    ARGUED = "argued"
    CHECKED = "checked"
    TESTED = "tested"
    SEARCHED = "searched"
    ENCLOSED = "enclosed"
    SAMPLED = "sampled"
    REFUTED = "refuted"
    UNDECIDED = "undecided"

    @property
    def means(self) -> str:
        """The meaning of the grade, as pages and the table in docs/trust.md print it.

        >>> Grade.ENCLOSED.means
        'computed with rigorous error bounds, for this input'
        """
        return _MEANS[self]


_MEANS = {
    Grade.COQ: "proved, and the proof assistant Coq has also checked every equation and bound",
    Grade.PROVED: "true for all sizes, under the printed hypotheses; an independent checker accepted the certificate",
    Grade.ARGUED: "proved, except for a last step in words, which is printed",
    Grade.CHECKED: "decided at the listed sizes: in exact numbers, case by case, or by a difference that reduces to 0",
    Grade.TESTED: "accepted by a random identity test, with a probability of at most ε of accepting a false statement",
    Grade.SEARCHED: "no counterexample was found; what was tried is printed, and it proves nothing",
    Grade.ENCLOSED: "computed with rigorous error bounds, for this input",
    Grade.SAMPLED: "compared in floating point on the inputs that were tried; no proof either way",
    Grade.REFUTED: "false: a counterexample is printed",
    Grade.UNDECIDED: "neither shown nor refuted; this never counts as a pass",
}


class Verdict(Enum):
    """The verdict of a verification or an audit; ``AS_GIVEN``, only of audits, does not refer to a configuration.

    >>> from symattn import Report
    >>> Report(Verdict.UNDECIDED, "attention(q, k, v)", "float32", "all inputs", seed=1).exit_code
    3
    """

    NO_FAULT = "no fault"
    AS_GIVEN = "pass as given"
    FAULT = "fault"
    UNDECIDED = "undecided"

    @property
    def holds(self) -> bool | None:
        """Whether what was asked holds: False for a fault, None if that is undecided."""
        # None, as neither answer of a yes or no may stand for what is undecided.
        return {Verdict.FAULT: False, Verdict.UNDECIDED: None}.get(self, True)

    @property
    def exit_code(self) -> int:
        """The exit code: 0 no fault, 1 a fault, 3 undecided."""
        return {Verdict.FAULT: 1, Verdict.UNDECIDED: 3}.get(self, 0)


# From the best to the worst of a document: a refutation is worse than an open question.
_ORDER = (
    *(g for g in Grade if g not in (Grade.UNDECIDED, Grade.REFUTED)),
    Grade.UNDECIDED,
    Grade.REFUTED,
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A grade and where it holds; ``epsilon`` is the probability of a wrong acceptance, for the grade ``tested`` only.

    >>> print(Evidence(Grade.CHECKED, "n = 2, …, 6"))
    checked: n = 2, …, 6
    >>> print(Evidence(Grade.TESTED, epsilon=1e-12))
    tested ε ≤ 1e-12
    """

    grade: Grade
    where: str = ""
    epsilon: float | None = None

    RECORD = "grade, where, epsilon?"

    def __post_init__(self) -> None:
        # An ε beside another grade would read as if that one could be wrong by chance.
        if (self.grade is Grade.TESTED) != (self.epsilon is not None):
            raise ValueError("epsilon belongs to the grade 'tested', and to no other")

    def __str__(self) -> str:
        words = (
            self.grade.value
            if self.epsilon is None
            else f"{self.grade.value} ε ≤ {self.epsilon:.0e}"
        )
        return f"{words}: {self.where}" if self.where else words


def weakest(evidence: Iterable[Evidence]) -> Grade:
    """Return the worst grade of the evidence, or ``undecided`` if there is none."""
    return max((e.grade for e in evidence), key=_ORDER.index, default=Grade.UNDECIDED)


def at_least_checked(grade: Grade) -> bool:
    """Return whether the grade is ``checked`` or better."""
    return _ORDER.index(grade) <= _ORDER.index(Grade.CHECKED)


def both(words: Sequence[str]) -> str:
    """Join words: A1; A1 and A2; A1, A2 and A4; but A1–A3 for all labels up to A3."""
    first_labels = [f"A{i}" for i in range(1, len(words) + 1)]
    if len(words) > 2 and list(words) == first_labels:
        return f"{words[0]}–{words[-1]}"
    all_but_last = [", ".join(words[:-1])] if words[1:] else []
    return " and ".join([*all_but_last, *words[-1:]])

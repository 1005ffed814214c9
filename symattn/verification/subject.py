"""The subject of verification: inputs of every kind that tell, the outputs that are legal, the mistakes that are known.

``Attention`` is one subject, ``verification.attention.OfAttention``; definitions made of arrays by name are
others, ``definitions.definition_subject.Definition``. One engine tries, judges and explains them all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.judge import Legal
from symattn.bounds.reference import lifted
from symattn.document.errors import SymattnError
from symattn.verification.power import LEAST
from symattn.verification.report import Counterexample, Fault, StepPower

if TYPE_CHECKING:
    from symattn.arrays.field.quotient import Quotient
    from symattn.verification.diagnosis.causes import Cause, Search
    from symattn.verification.diagnosis.observe import ObservedScale
    from symattn.verification.engine import Session
    from symattn.verification.reduce import Axes

Array = np.ndarray
Random = np.random.Generator
#: What yields the cases of a group.
Cases = Callable[["Session", Random], Iterator[Case]]


class Subject(ABC):
    """A definition, ready to be verified.

    outputs   names of what is returned, in order
    step      the step that a fault is in of which no more is known
    what      what inputs are to fit, in words
    enough    wrong cases, after which more of the first groups would tell nothing new
    random    the group of inputs at random
    misshapen the step of a wrong shape that nothing explains
    climbed   entries of inputs below which larger errors are sought from there
    meant     groups that ask what is computed, and little of its arithmetic
    costs     how many runs one counts for
    """

    outputs: tuple[str, ...]
    step: str
    what: str = "the definition"
    enough: float = float("inf")
    random: str = "random"
    misshapen: str = "output"
    climbed: int = 600
    meant: frozenset[str] = frozenset()
    costs: int = 1

    # -- inputs --------------------------------------------------------------------------------------------------------
    @abstractmethod
    def first(self) -> Mapping[str, Cases]:
        """The groups that are tried in any case: what is seen there is what a diagnosis rests on."""

    @abstractmethod
    def between(self, session: Session, rng: Random) -> None:
        """Try more after the first groups, beside the groups."""

    def later(self) -> Mapping[str, Cases]:
        """The groups that are tried as long as no fault is known."""
        return {}

    def last(self) -> Mapping[str, Cases]:
        """The cases that are tried after inputs at random."""
        return {}

    def required(self, session: Session) -> dict[str, int]:
        """How many cases of further groups a verdict takes."""
        return {self.random: min(LEAST, session.examples)}

    @abstractmethod
    def drawn(self, session: Session, examples: int) -> Iterator[Case]:
        """So many inputs at random."""

    @abstractmethod
    def altered(self, session: Session, inputs: Inputs, rng: Random) -> dict[str, Array]:
        """Inputs that differ a little from these, in which larger errors are sought."""

    @abstractmethod
    def unseen(self, session: Session, mistakes: object) -> Iterator[Case]:
        """Inputs that no mistake was found by: those who explain the function must explain it there too."""

    @abstractmethod
    def sized(self, session: Session, sizes: Mapping[str, int], rng: Random) -> Iterator[dict[str, Array] | None]:
        """Normal inputs of these sizes, and others that show more; None for those that the domain has not."""

    @abstractmethod
    def fits(self, session: Session, inputs: Inputs) -> bool:
        """Return whether there is a result for these inputs, and the domain has such."""

    def promised(self, session: Session, inputs: Inputs) -> bool:
        """Return whether inputs made for the definition and the domain are promised."""
        return self.fits(session, inputs)

    @abstractmethod
    def sizes(self, judged: CaseResult) -> dict[str, int]:
        """The sizes of a case, as a domain names them, n_q, n_k, d_k, d_v, and those of batches."""

    def measured(self, judged: CaseResult) -> dict[str, int]:
        """The sizes by which mistakes are told apart that are made at some of them only: ``batch`` is one."""
        return self.sizes(judged)

    def told(self, judged: CaseResult) -> dict[str, int]:
        """The sizes of a case, in the definition's own letters."""
        return self.sizes(judged)

    # -- outputs -------------------------------------------------------------------------------------------------------
    @abstractmethod
    def legal(self, precision: Precision, inputs: Inputs) -> Legal:
        """Return the legal outputs of a call with these inputs."""

    @abstractmethod
    def right(self, arrays: Mapping[str, Any]) -> Sequence[Any]:
        """Compute the outputs on any kind of array."""

    def exact(self, inputs: Inputs, of: int, at: tuple[int, ...]) -> Quotient | None:
        """The expected entry of an output in exact numbers; None where they cannot hold it."""
        from symattn.arrays.exact import Exact
        from symattn.arrays.field.quotient import Quotient

        try:
            entry = self.right({n: lifted(np.asarray(a), Exact) for n, a in inputs.items()})[of].entries[at]
        except (SymattnError, TypeError, AttributeError):
            return None
        return entry if isinstance(entry, Quotient) else None

    # -- causes --------------------------------------------------------------------------------------------------------
    @abstractmethod
    def search(self, session: Session, wrong: list[CaseResult], right: list[CaseResult]) -> Search[Any]:
        """A search for mistakes that explain all ``wrong`` cases and contradict no ``right`` one."""

    @abstractmethod
    def axes(self, inputs: Inputs) -> Axes:
        """Return the roles of the inputs' axes, for the reduction."""

    @abstractmethod
    def free(self, inputs: Inputs) -> tuple[str, ...]:
        """The inputs whose numbers may be any: tokens, queries, keys, values."""

    def completed(self, session: Session, inputs: Inputs) -> dict[str, Array]:
        """The inputs, where some of them are made of others."""
        return dict(inputs)

    def explained(self, example: Counterexample, smallest: CaseResult, cause: Cause[Any]) -> Counterexample:
        """The counterexample with what its cause lets one show besides."""
        return example

    def observed(self, session: Session, step: str) -> tuple[ObservedScale, ...]:
        """Measurements that a fault of this step is shown with."""
        return ()

    def expectation(self, step: str) -> str:
        """Return the right behaviour of this step, in words that follow a cause."""
        return ""

    def remembered(self, session: Session) -> Fault | None:
        """The fault of a function that uses again what an earlier call made, where no known mistake explains it."""
        return None

    def misconduct(self, session: Session) -> Iterator[Fault]:
        """Further faults of how the function behaves."""
        yield from ()

    def look_closer(self, session: Session) -> None:  # noqa: B027 - most subjects have nothing more
        """Look for what no bound shows, where no fault is known."""

    def form(self, session: Session, wrong: Sequence[CaseResult]) -> str:
        """Name a form of the definition that loses relative accuracy, and whose own bound holds all errors, or ""."""
        return ""

    @abstractmethod
    def coarse(self, session: Session, narrow: str) -> tuple[str, str]:
        """The step to blame where arithmetic in a ``narrow`` format could make all errors, and what shows it."""

    @abstractmethod
    def blamed(self, session: Session, smallest: CaseResult, records: Sequence[CaseResult]) -> tuple[str, str]:
        """The step to blame where no known mistake explains a fault, and what shows it, in words."""

    # -- the report ----------------------------------------------------------------------------------------------------
    @abstractmethod
    def words(self, session: Session) -> str:
        """Return the promises or sizes that were tried, in words."""

    def fields(self) -> dict[str, str]:
        """The fields of the specification that are not the usual ones."""
        return {}

    @abstractmethod
    def power(self, session: Session) -> tuple[StepPower, ...]:
        """Return the power of the judged cases for each step."""

    def notes(self, session: Session, faults: bool) -> Iterator[str]:
        """Yield further notes for a reader."""
        yield from ()

"""The subject of a verification: which inputs to try, which outputs are legal, which mistakes are known.

``Attention`` is one subject, ``verification.attention.OfAttention``, which says why it is one of its own; definitions
of arrays by name are others, ``definitions.definition_subject.Definition``. One engine tries, judges and explains all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Case, CaseResult, Expected, ScreenedOutput, screening_error
from symattn.bounds.judge import Legal, Traced
from symattn.bounds.reference import float64_outputs, lifted
from symattn.document.errors import SymattnError
from symattn.verification import reduce
from symattn.verification.diagnosis.observe import ObservedScale, scales
from symattn.verification.power import LEAST
from symattn.verification.report import Counterexample, SmallestSeen, StepPower

if TYPE_CHECKING:
    from symattn.arrays.field.quotient import Quotient
    from symattn.bounds.inputs import Maker
    from symattn.bounds.mistake import Mistake
    from symattn.verification.diagnosis.causes import Cause, Search
    from symattn.verification.engine import Session
    from symattn.verification.probing.probes import Group

Array = np.ndarray
Random = np.random.Generator
#: Yields the cases of a group.
Cases = Callable[["Session", Random], Iterator[Case]]
#: The same inputs twice: with zeros in some numbers, and with NaN there.
InputPairs = Iterator[tuple[dict[str, Array], dict[str, Array]]]


class Subject(ABC):
    """A definition, ready to be verified.

    outputs   names of the returned arrays, in order
    step      the step to name when nothing more is known of a fault
    what      what the inputs must fit, in words
    enough    number of wrong cases after which the first groups show nothing new
    random    name of the group of random inputs
    misshapen the step to name for a wrong shape that nothing explains
    climbed   largest number of input entries from which larger errors are sought
    meant     groups that test what is computed rather than its arithmetic
    costs     number of runs that one run counts for
    trials    effort of the search for a smaller input that shows a fault
    returns_attended  whether the first output is that of an attention, as ``attended`` returns it
    leak      what a leak of NaN is, in words
    screened_groups  groups whose calls are compared with float64 first, however small they are
    described the specification, whose numbers have names; None if it is unknown
    settings  values of parameters that are not arrays, by name
    changes   inputs that a call may change
    loose     outputs whose axes of length 1 may differ
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
    trials: int = reduce.TRIALS
    returns_attended: bool = False
    leak: str = "NaN in a key or value that no query may attend to reaches an output"
    screened_groups: frozenset[str] = frozenset()
    described: Any = None
    settings: Mapping[str, Any] = MappingProxyType({})
    changes: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()

    # -- inputs --------------------------------------------------------------------------------------------------------
    @abstractmethod
    def first(self) -> Mapping[str, Cases]:
        """Return the groups that are always tried; a diagnosis rests on them."""

    @abstractmethod
    def between(self, session: Session, rng: Random) -> None:
        """Try what belongs to no group, after the first groups."""

    def later(self) -> Mapping[str, Cases]:
        """Return the groups that are tried while no fault is known."""
        return {}

    def last(self) -> Mapping[str, Cases]:
        """Return the groups that are tried after the random inputs."""
        return {}

    def cases_of_probes(self, groups: Mapping[str, Group]) -> dict[str, Cases]:
        """Return groups of probes of that attention as groups of cases; none if there is no attention."""
        if self.attention is None:
            return {}
        return {
            name: partial(self._yield_cases_of_probes, name, group)
            for name, group in groups.items()
        }

    def _yield_cases_of_probes(
        self, name: str, group: Group, session: Session, rng: Random
    ) -> Iterator[Case]:
        for title, made in group(self.maker(session), rng):
            # A probe may have no inputs in the domain, and some sizes have no place in a definition.
            case = None if made is None else self.case_of_attention(session, name, title, made, rng)
            if case is not None:
                yield case

    @property
    def spec_on_residues(self) -> Attention | None:
        """The specification to compare a function with on residues; None if the runner has the definition itself."""
        return None

    @property
    @abstractmethod
    def attention(self) -> Attention | None:
        """The attention that is verified, or that the definition contains; None if there is none."""

    @abstractmethod
    def maker(self, session: Session) -> Maker:
        """Return the maker of inputs of that attention. Raises ``InputError`` if there is none."""

    @abstractmethod
    def case_of_attention(
        self, session: Session, group: str, title: str, made: Mapping[str, Array], rng: Random
    ) -> Case | None:
        """Return a case in which that attention has these inputs; None if there is none."""

    @abstractmethod
    def attended(self, session: Session, made: Mapping[str, Array]) -> Array | None:
        """Return the output of that attention by the function, for these inputs; None if no output shows it."""

    @abstractmethod
    def arrays_of_attention(self, inputs: Inputs) -> dict[str, Array] | None:
        """Return the arrays of that attention for these inputs; None if they are unknown."""

    @abstractmethod
    def final_scores(self, judged: CaseResult) -> Array | None:
        """Return the scores of that attention in a case, −∞ where a key is forbidden; None if they are unknown."""

    def required(self, session: Session) -> dict[str, int]:
        """Return how many cases of further groups a verdict requires."""
        return {self.random: min(LEAST, session.examples)}

    @abstractmethod
    def drawn(self, session: Session, examples: int) -> Iterator[Case]:
        """Draw ``examples`` random inputs."""

    @abstractmethod
    def altered(self, session: Session, inputs: Inputs, rng: Random) -> dict[str, Array]:
        """Return slightly changed inputs, whose errors may be larger."""

    @abstractmethod
    def unseen(self, session: Session, mistakes: Sequence[Mistake]) -> Iterator[Case]:
        """Yield held-out inputs, on which the ``mistakes`` must explain the function as well."""

    @abstractmethod
    def of_other_sizes(
        self, session: Session, mistakes: Sequence[Mistake], rng: Random
    ) -> Iterator[Case]:
        """Yield held-out inputs of sizes that nothing was tried at: n_q ≠ n_k, odd lengths, several tiles together."""

    @abstractmethod
    def sized(
        self, session: Session, sizes: Mapping[str, int], rng: Random
    ) -> Iterator[dict[str, Array] | None]:
        """Yield normal and more telling inputs of these sizes; None for those outside the domain."""

    def resized(
        self, session: Session, sizes: Mapping[str, int], rng: Random
    ) -> Iterator[dict[str, Array]]:
        """Yield inputs of these sizes, in which some are large and the others are not."""
        yield from (inputs for inputs in self.sized(session, sizes, rng) if inputs is not None)

    @abstractmethod
    def fits(self, session: Session, inputs: Inputs) -> bool:
        """Return whether the definition has a result for these inputs and the domain contains them."""

    def promised(self, session: Session, inputs: Inputs) -> bool:
        """Return whether the domain promises these inputs, which were made for it."""
        return self.fits(session, inputs)

    @abstractmethod
    def sizes(self, judged: CaseResult) -> dict[str, int]:
        """Return the sizes of a case under the names that a domain uses: n_q, n_k, d_k, d_v, and batch sizes."""

    def measured(self, judged: CaseResult) -> dict[str, int]:
        """Return the sizes, ``batch`` among them, on which it may depend whether a mistake occurs."""
        return self.sizes(judged)

    def own_sizes(self, judged: CaseResult) -> dict[str, int]:
        """Return the sizes of a case in the definition's own letters."""
        return self.sizes(judged)

    # -- outputs -------------------------------------------------------------------------------------------------------
    @abstractmethod
    def legal(self, precision: Precision, inputs: Inputs) -> Legal:
        """Return the legal outputs of a call with these inputs."""

    def screened(self, precision: Precision, inputs: Inputs) -> Sequence[Expected] | None:
        """Return the outputs in float64 with a narrow allowed error, or None if they are not to be screened.

        What is within this error is legal; only what is not needs the bounds, which take long for large inputs.
        """
        outputs = float64_outputs(self.right, inputs)
        return [ScreenedOutput(near, screening_error(near, precision)) for near in outputs]

    @abstractmethod
    def right(self, arrays: Mapping[str, Any]) -> Sequence[Any]:
        """Compute the outputs on any kind of array."""

    def exact(self, inputs: Inputs, of: int, at: tuple[int, ...]) -> Quotient | None:
        """Return the expected entry of an output in exact numbers, or None if these cannot represent it."""
        from symattn.arrays.exact import Exact
        from symattn.arrays.field.quotient import Quotient

        try:
            # Exact numbers have no exponentials of some arguments, and raise.
            exact_inputs = {n: lifted(np.asarray(a), Exact) for n, a in inputs.items()}
            entry = self.right(exact_inputs)[of].entries[at]
        except (SymattnError, TypeError, AttributeError):
            return None
        return entry if isinstance(entry, Quotient) else None

    # -- causes --------------------------------------------------------------------------------------------------------
    @abstractmethod
    def search(self, session: Session, wrong: list[CaseResult], right: list[CaseResult]) -> Search:
        """Return a search for mistakes that explain all ``wrong`` cases and contradict no ``right`` one."""

    @abstractmethod
    def axes(self, inputs: Inputs) -> reduce.Axes:
        """Return the roles of the inputs' axes, for the reduction."""

    @abstractmethod
    def free(self, inputs: Inputs) -> tuple[str, ...]:
        """Return the inputs whose numbers are arbitrary: tokens, queries, keys, values."""

    def completed(self, session: Session, inputs: Inputs) -> dict[str, Array]:
        """Return the inputs with those added that are computed from others."""
        return dict(inputs)

    def explained(
        self, example: Counterexample, smallest: CaseResult, cause: Cause
    ) -> Counterexample:
        """Return the counterexample with the steps to its worst row, if one mistake in these explains it."""
        mistake = cause.only if cause.sure else None
        # Ways around a mistake have steps of their own.
        change = None if mistake is None or mistake.around else mistake.change_of_steps
        if change is None or not _has_rows_of_attention(smallest) or not cause.shows(smallest):
            return example
        return replace(example, steps=reduce.steps(smallest, change))

    def observed(self, session: Session, step: str) -> tuple[ObservedScale, ...]:
        """Return the scales that the weights show, for a fault of the scale of an attention that is returned."""
        if step != "scale" or self.attention is None or not self.returns_attended:
            return ()
        return scales(self.attention, session.records)

    def expectation(self, step: str) -> str:
        """Return the expected scale in words to append to a cause, for a fault of the scale of an attention."""
        if step != "scale" or self.attention is None:
            return ""
        scale = self.attention.scale
        if scale is None and self.attention.score == "dot":
            return "; expected 1/√d_k"
        return "; expected none" if scale in (1, None) else f"; expected {scale}"

    def weightless(self, session: Session, rng: Random) -> InputPairs:
        """Yield inputs in pairs: with zeros in numbers that have the weight 0 whatever they are, and with NaN there."""
        yield from ()

    def look_closer(self, session: Session) -> None:  # noqa: B027 - most subjects have nothing more
        """Search for faults that no bound shows, if no fault is known."""

    def form(self, session: Session, wrong: Sequence[CaseResult]) -> tuple[str, str]:
        """Return step and name of a form of the definition that loses relative accuracy and whose own bound covers all
        errors, or ("", "")."""
        return "", ""

    @abstractmethod
    def coarse(self, session: Session, narrow: str) -> tuple[str, str]:
        """Return the step to blame if arithmetic in a ``narrow`` format could cause all errors, and the evidence."""

    @abstractmethod
    def blamed(
        self, session: Session, smallest: CaseResult, records: Sequence[CaseResult]
    ) -> tuple[str, str]:
        """Return the step to blame for a fault that no known mistake explains, and the evidence in words."""

    # -- the report ----------------------------------------------------------------------------------------------------
    @abstractmethod
    def words(self, session: Session) -> str:
        """Describe the promises or sizes that were tried."""

    def fields(self) -> dict[str, str]:
        """Return the fields of the specification that differ from the defaults."""
        return {}

    @abstractmethod
    def power(self, session: Session) -> tuple[StepPower, ...]:
        """Return the power of the judged cases for each step."""

    def smallest_seen(self, session: Session) -> tuple[SmallestSeen, ...]:
        """Return the smallest relative errors of a step's numbers that the judged cases would have shown."""
        return ()

    def reservations(self, session: Session) -> Iterator[str]:
        """Yield what limits the verdict, such as inputs that are wrong and outside of the domain."""
        yield from ()

    def notes(self, session: Session, faults: bool) -> Iterator[str]:
        """Yield further notes for a reader."""
        yield from ()


def _has_rows_of_attention(judged: CaseResult) -> bool:
    """Return whether the worst entry of a case is one of an attention's output that was judged by a run."""
    if judged.ratios is None or not isinstance(judged.parts[0].expected, Traced):
        return False
    output, _ = judged.where
    return output == 0

"""How inputs of a definition are made: in groups, at random, held out, of given sizes, and smaller ones.

A definition has one source. ``definitions.inputs_by_letters`` draws its arrays by the letters of their axes, and
``definitions.inputs_by_roles`` makes those of an attention by their roles in its flow of steps, with heads, projections
and further axes in front, as a function takes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Case, CaseResult
from symattn.verification import reduce
from symattn.verification.power import LEAST
from symattn.verification.probing.groups import NEEDS

if TYPE_CHECKING:
    from symattn.attention.spec import Attention
    from symattn.bounds.inputs import Maker
    from symattn.bounds.mistake import Mistake
    from symattn.verification.engine import Session
    from symattn.verification.probing.probes import Group

Array = np.ndarray
Random = np.random.Generator
#: Yields the cases of a group.
Cases = Callable[["Session", Random], Iterator[Case]]
#: The same inputs twice: with zeros in some numbers, and with NaN there.
InputPairs = Iterator[tuple[dict[str, Array], dict[str, Array]]]


class InputSource(ABC):
    """A maker of inputs for one definition; ``random`` is the name of the group of random ones."""

    random: str

    # -- groups of cases -----------------------------------------------------------------------------------------------
    @abstractmethod
    def first(self) -> Mapping[str, Cases]:
        """Return the groups that are always tried; a diagnosis rests on them."""

    @abstractmethod
    def between(self, session: Session, rng: Random) -> None:
        """Try what belongs to no group, after the first groups."""

    @abstractmethod
    def later(self) -> Mapping[str, Cases]:
        """Return the groups that are tried while no fault is known."""

    @abstractmethod
    def last(self) -> Mapping[str, Cases]:
        """Return the groups that are tried after the random inputs."""

    def required(self, session: Session) -> dict[str, int]:
        """Return how many cases of further groups a verdict requires."""
        return {self.random: min(LEAST, session.examples)}

    @abstractmethod
    def drawn(self, session: Session, examples: int) -> Iterator[Case]:
        """Draw ``examples`` random inputs."""

    @abstractmethod
    def drawn_for_power(self, session: Session) -> list[dict[str, Array]]:
        """Return inputs on which a mistake must have an effect to count as one."""

    # -- the attention -------------------------------------------------------------------------------------------------
    @property
    @abstractmethod
    def attention(self) -> Attention | None:
        """The attention whose inputs these are, or contain; None if there is none."""

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

    def cases_of_probes(self, groups: Mapping[str, Group]) -> dict[str, Cases]:
        """Return groups of probes of that attention as groups of cases, where it has what they need."""
        attention = self.attention
        if attention is None:
            return {}
        return {
            name: partial(self._yield_cases_of_probes, name, group)
            for name, group in groups.items()
            if name not in NEEDS or NEEDS[name].are_met(attention)
        }

    def _yield_cases_of_probes(
        self, name: str, group: Group, session: Session, rng: Random
    ) -> Iterator[Case]:
        for title, made in group(self.maker(session), rng):
            # A probe may have no inputs in the domain, and some sizes have no place in a definition.
            case = None if made is None else self.case_of_attention(session, name, title, made, rng)
            if case is not None:
                yield case

    # -- inputs beside known ones --------------------------------------------------------------------------------------
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

    def completed(self, session: Session, inputs: Inputs) -> dict[str, Array]:
        """Return the inputs with those added that are computed from others."""
        return dict(inputs)

    def weightless(self, session: Session, rng: Random) -> InputPairs:
        """Yield inputs in pairs: with zeros in numbers that have the weight 0 whatever they are, and with NaN there."""
        yield from ()

    # -- what inputs are -----------------------------------------------------------------------------------------------
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

    @abstractmethod
    def axes(self, inputs: Inputs) -> reduce.Axes:
        """Return the roles of the inputs' axes, for the reduction."""

    @abstractmethod
    def free(self, inputs: Inputs) -> tuple[str, ...]:
        """Return the inputs whose numbers are arbitrary: tokens, queries, keys, values."""

    @abstractmethod
    def axes_of_outputs(self, judged: Sequence[CaseResult]) -> Mapping[str, int]:
        """Return the axes of batch items and of heads that the outputs of these cases have, counted from the end."""

    # -- what to tell a reader of them ---------------------------------------------------------------------------------
    @abstractmethod
    def notes(self, session: Session) -> Iterator[str]:
        """Yield notes on how the function behaved with inputs that are no plain numbers."""

    @abstractmethod
    def reservations(self, session: Session) -> Iterator[str]:
        """Yield what was not tried, or is wrong and outside of the domain."""

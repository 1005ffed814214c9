"""The attention inside a definition, so that the inputs which are made for an attention reach every definition of one.

Probes are written once, for queries, keys, values and masks: scores of every magnitude, offsets, ties, masks that hide
whole tiles, lengths around those of tiles. Gradients and log-sums take the same arrays, a cache holds the first keys, a
softmax takes the scores. ``InnerAttention.arrange`` says how, and the definition draws what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.called_target import Argument, Convention
from symattn.bounds.case_result import Case
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker
from symattn.verification.probing.probes import Group
from symattn.verification.subject import Array, Cases, Random

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_subject import Definition
    from symattn.verification.engine import Session

#: The axes of arrays that all heads share.
_FORMS = {"mask": "qk", "bias": "qk", "drop": "qk"}

#: How often inputs are halved to keep a promise on their scores; beyond, scores do not follow them.
MAX_HALVINGS = 40

#: From the arrays of an attention in the layout (…, h, n, d) to those of a definition; None if these sizes have none.
Arrange: TypeAlias = "Callable[[Mapping[str, Array]], dict[str, Array] | None]"


@dataclass(frozen=True)
class InnerAttention:
    """The attention of a definition, the names of its arrays, and how they become inputs of the definition.

    ``largest_score`` returns the largest |s| of inputs of the definition, before masks; scores are proportional to the
    input ``scaling``.
    """

    spec: Attention
    names: tuple[str, ...]
    arrange: Arrange
    largest_score: Callable[[Mapping[str, Array]], float]
    scaling: str = "q"

    def maker(self, session: Session) -> Maker:
        """Return the maker of inputs of the attention, within the domain of the verification."""
        arguments = tuple(Argument(name, name, form=_FORMS.get(name, "")) for name in self.names)
        return Maker(self.spec, Convention(arguments), session.precision, session.domain)

    def keeps(self, inputs: Mapping[str, Array], domain: Domain) -> bool:
        """Return whether inputs keep the promise on scores, if there is one."""
        return domain.max_abs_score is None or self.largest_score(inputs) <= domain.max_abs_score

    def tamed(self, inputs: dict[str, Array], domain: Domain) -> dict[str, Array]:
        """Return the inputs, halved until they keep the promise on scores."""
        for _ in range(MAX_HALVINGS):
            if self.keeps(inputs, domain):
                break
            inputs = {**inputs, self.scaling: inputs[self.scaling] / 2}
        return inputs

    def groups(self, definition: Definition, groups: Mapping[str, Group]) -> dict[str, Cases]:
        """Return groups of probes as groups of cases of the definition."""
        return {name: partial(self._cases, definition, name, group) for name, group in groups.items()}

    def _cases(self, definition: Definition, name: str, group: Group, session: Session, rng: Random) -> Iterator[Case]:
        for title, made in group(self.maker(session), rng):
            case = None if made is None else definition.case_of_attention(session, name, title, made, rng)
            if case is not None:
                yield case


def with_leading_axes(axes: int, array: Array) -> Array:
    """Return the array with axes of length 1 in front, up to this number of axes."""
    return np.asarray(array)[(None,) * max(0, axes - np.ndim(array))]

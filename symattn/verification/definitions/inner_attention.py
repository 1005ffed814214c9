"""The attention inside a definition, so that the inputs which are made for an attention reach every definition of one.

Probes are written once, for queries, keys, values and masks: scores of every magnitude, offsets, ties, masks that hide
whole tiles, lengths around those of tiles. Gradients and log-sums take the same arrays, a cache holds the first keys, a
softmax takes the scores. ``InnerAttention.arrange`` says how, and the definition draws what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.called_target import Argument, Convention
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker
from symattn.bounds.mistake import Compute, Mistake
from symattn.bounds.reference import Variant
from symattn.verification.input_source import Array

if TYPE_CHECKING:
    from symattn.verification.engine import Session

#: The axes of arrays that all heads share.
_FORMS = {"mask": "qk", "bias": "qk", "drop": "qk"}

#: How often inputs are halved to keep a promise on their scores; beyond, scores do not follow them.
MAX_HALVINGS = 40

#: From the arrays of an attention in the layout (…, h, n, d) to those of a definition; None if these sizes have none.
Arrange: TypeAlias = "Callable[[Mapping[str, Array]], dict[str, Array] | None]"

#: From inputs of the definition to the outputs of the verified function; None if it has none.
Call: TypeAlias = "Callable[[Mapping[str, Array]], Sequence[Array] | None]"

#: From such calls, and arrays of an attention, to the output of that attention by the function; None if none shows it.
Attended: TypeAlias = "Callable[[Call, Mapping[str, Array]], Array | None]"


@dataclass(frozen=True)
class WrongAttention:
    """How a mistake of an attention becomes a mistake of a definition that contains it.

    spec    the attention whose steps are changed
    names   its inputs
    run     the definition with a variant of that attention, as a way of computing
    blamed  the step to blame; "": that of the mistake
    lead    words in front of those of the mistake
    takes   whether a mistake changes something that the definition has
    """

    spec: Attention
    names: frozenset[str]
    run: Callable[[Variant], Compute]
    blamed: str = ""
    lead: str = ""
    takes: Callable[[Mistake], bool] = lambda mistake: True

    def convert_mistakes(self, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
        """Yield the mistakes of the definition that these mistakes of its attention are."""
        for mistake in filter(self.takes, mistakes):
            yield Mistake(
                self.blamed or mistake.step,
                self.lead + mistake.cause,
                self.run(mistake.variant),
                around=tuple(map(self.run, mistake.around)),
                in_floats=mistake.in_floats,
                general=mistake.general,
                inner=mistake.variant,
            )


@dataclass(frozen=True)
class InnerAttention:
    """The attention of a definition, the names of its arrays, and how they become inputs of the definition.

    ``largest_score`` returns the largest |s| of inputs of the definition, before masks; scores are proportional to the
    input ``scaling``. ``arrays_of`` undoes ``arrange``; None if it cannot be undone. ``attended`` reads the output of
    the attention off the function, and ``wrong`` makes its mistakes; without them neither is asked for. ``returned``
    says that this output is the definition's first one.
    """

    spec: Attention
    names: tuple[str, ...]
    arrange: Arrange
    largest_score: Callable[[Mapping[str, Array]], float]
    scaling: str = "q"
    arrays_of: Arrange = lambda inputs: None
    attended: Attended | None = None
    wrong: WrongAttention | None = None
    returned: bool = False

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
            # Halving is exact in the format, down to the least normal number.
            inputs = {**inputs, self.scaling: inputs[self.scaling] / 2}
        return inputs


def with_leading_axes(axes: int, array: Array) -> Array:
    """Return the array with axes of length 1 in front, up to this number of axes."""
    return np.asarray(array)[(None,) * max(0, axes - np.ndim(array))]

"""Ways of computing a definition in stated steps, and mistakes in it: some of its steps give other arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from symattn.attention.stated_flow import (
    OtherStep,
    StatedFlow,
    run_with_changes,
    select_returned,
)
from symattn.bounds.mistake import Compute, Mistake, Wrong, change

#: Makes a function of arrays as they are passed out of one of arrays as the steps take them.
Laid = Callable[[Compute], Compute]


@dataclass(frozen=True, eq=False)
class ChangedSteps:
    """A run of a definition's steps, of which ``steps`` are computed otherwise, from all arrays so far.

    ``reads`` are inputs that are read as other arrays. ``laid`` brings arrays into the axes of the steps.
    """

    spec: StatedFlow
    steps: Mapping[str, OtherStep]
    reads: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    laid: Laid = lambda run: run

    def __call__(self, /, **inputs: object) -> Any:
        """Return what the definition returns."""
        return self.laid(self._run)(**inputs)

    def _run(self, /, **inputs: object) -> Any:
        read = {name: other(inputs[name]) for name, other in self.reads.items() if name in inputs}
        return select_returned(self.spec, run_with_changes(self.spec, self.steps, inputs | read))

    def join(self, other: ChangedSteps) -> ChangedSteps | None:
        """Return both changes at once; None if they change one step or input, or different definitions."""
        same = (self.steps.keys() & other.steps.keys()) | (self.reads.keys() & other.reads.keys())
        if self.spec != other.spec or same:
            return None
        return replace(
            self, steps={**self.steps, **other.steps}, reads={**self.reads, **other.reads}
        )


def in_stated_steps(
    spec: StatedFlow,
    blamed: str,
    words: str,
    steps: Mapping[str, Wrong],
    exact: bool = True,
    reads: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Mistake:
    """Return a mistake in the steps named, as ``in_steps`` does for an attention, and in inputs that are ``reads``."""
    changes = {name: change(name, wrong) for name, wrong in steps.items()}
    return Mistake(blamed, words, ChangedSteps(spec, changes, reads or {}), exact)

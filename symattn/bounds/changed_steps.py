"""Ways of computing a definition in stated steps, and mistakes in it: some of its steps give other arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symattn.attention.stated_flow import (
    OtherStep,
    StatedFlow,
    run_with_changes,
    select_returned,
)
from symattn.bounds.mistake import Mistake, Wrong, change


@dataclass(frozen=True, eq=False)
class ChangedSteps:
    """A run of a definition's steps, of which ``steps`` are computed otherwise, from all arrays so far."""

    spec: StatedFlow
    steps: Mapping[str, OtherStep]

    def __call__(self, /, **inputs: object) -> Any:
        """Return what the definition returns."""
        return select_returned(self.spec, run_with_changes(self.spec, self.steps, inputs))

    def join(self, other: ChangedSteps) -> ChangedSteps | None:
        """Return both changes at once; None if they change one step, or different definitions."""
        if self.spec != other.spec or self.steps.keys() & other.steps.keys():
            return None
        return ChangedSteps(self.spec, {**self.steps, **other.steps})


def in_stated_steps(
    spec: StatedFlow, blamed: str, words: str, steps: Mapping[str, Wrong], exact: bool = True
) -> Mistake:
    """Return a mistake in the steps named, as ``in_steps`` does for an attention."""
    changes = {name: change(name, wrong) for name, wrong in steps.items()}
    return Mistake(blamed, words, ChangedSteps(spec, changes), exact)

"""Trials of edits in the child process of a target, with its limits of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symattn.attention.spec import Attention
from symattn.bounds.called_target import Convention, Failure, Inputs, Memory, Outcome
from symattn.bounds.domain import Domain
from symattn.document.errors import CannotRun
from symattn.programs.repairing.edits import Edit
from symattn.programs.repairing.trials import JudgedSample, Opened, Samples, Screened

if TYPE_CHECKING:
    from symattn.programs.child import Child
    from symattn.verification.semantics import IdentityResult


class TrialsInChild:
    """``Trials`` in the child. If a chunk of edits ends the process, none of its edits passes, and a new one starts."""

    def __init__(self, child: Child, samples: Samples) -> None:
        self._child, self._samples = child, samples
        self._opened_in: object = None

    def open(self) -> Opened | None:
        """See ``Trials.open``."""
        answer = self._child.ask("open_trials", self._samples)
        self._opened_in = self._child.process
        return None if isinstance(answer, Failure) else answer

    def add(self, samples: Sequence[JudgedSample]) -> None:
        """See ``Trials.add``."""
        self._ask_trials_in_child("add", tuple(samples))
        # A process that starts anew is to have them too.
        self._samples = self._samples.with_more(samples)

    def edits(self, tier: int) -> list[Edit]:
        """See ``Trials.edits``."""
        answer = self._ask_trials_in_child("edits", tier)
        return [] if isinstance(answer, Failure) else answer

    def screen(self, several: Sequence[tuple[Edit, ...]]) -> list[Screened]:
        """See ``Trials.screen``."""
        answer = self._ask_trials_in_child("screen", list(several))
        return [] if isinstance(answer, Failure) else answer

    def score(self, edits: Sequence[Edit]) -> list[float]:
        """See ``Trials.score``."""
        answer = self._ask_trials_in_child("score", list(edits))
        return [0.0] * len(edits) if isinstance(answer, Failure) else answer

    def repaired(self, edits: Sequence[Edit]) -> tuple[int, int]:
        """See ``Trials.repaired``."""
        answer = self._ask_trials_in_child("repaired", list(edits))
        return (0, 1) if isinstance(answer, Failure) else answer

    def version(self, edits: Sequence[Edit]) -> EditedInChild:
        """Return the edited function, called in the child."""
        return EditedInChild(self._child, self, tuple(edits))

    def ready(self) -> bool:
        """Open the trials again if the process has ended since; return whether they are open."""
        if self._child.process is None or self._child.process is not self._opened_in:
            return self.open() is not None
        return True

    def _ask_trials_in_child(self, question: str, *rest: Any) -> Any:
        if not self.ready():
            return Failure("ended", "the source cannot be opened again")
        return self._child.ask("trials", question, *rest)


class EditedInChild:
    """A ``Runner`` of an edited function in the child. Raises ``CannotRun`` if a call ends the process."""

    notes: tuple[str, ...] = ()

    def __init__(self, child: Child, trials: TrialsInChild, edits: tuple[Edit, ...]) -> None:
        self._child, self._trials, self._edits = child, trials, edits

    @property
    def convention(self) -> Convention:
        """How the function is called, as before the edit."""
        return self._child.convention

    @property
    def spent(self) -> tuple[float, float]:
        """See ``Child.spent``."""
        return self._child.spent

    def describe(self) -> str:
        """Return the function and its arguments."""
        return self._child.describe()

    def close(self) -> None:
        """Leave the child to its owner."""

    def run(self, inputs: Inputs, memory: Memory = "contiguous") -> Outcome:
        """Call the edited function once; see ``Runner``."""
        outcome: Outcome = self._ask_edited_target(0.0, "run", dict(inputs), memory)
        return outcome

    def semantics(
        self, spec: Attention, seconds: float, domain: Domain | None = None
    ) -> IdentityResult:
        """Return the identity test on residues."""
        # Longer than the identity test's own limit, so that the process ends only as a last resort.
        result: IdentityResult = self._ask_edited_target(
            60.0 + 2 * seconds, "semantics", spec, seconds, domain
        )
        return result

    def _ask_edited_target(self, seconds: float, question: str, *rest: Any) -> Any:
        if not self._trials.ready():
            raise CannotRun("the source cannot be opened again")
        answer = self._child.ask("edited", self._edits, question, *rest, seconds=seconds)
        if isinstance(answer, Failure):
            raise CannotRun(str(answer))
        return answer

"""Trials of edits in the child process of a target, with its limits of time.

The process may be that of a candidate that is not trusted: its answers have the form of those of ``Trials``, or the
search ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from symattn.attention.spec import Attention
from symattn.bounds.called_target import Convention, Failure, Inputs, Memory, Outcome
from symattn.bounds.domain import Domain
from symattn.document.errors import CannotRun
from symattn.programs.answers import is_complete, is_identity, is_outcome
from symattn.programs.guard import Tampered
from symattn.programs.repairing.edit_messages import read_edits
from symattn.programs.repairing.edits import TIERS, Edit
from symattn.programs.repairing.trials import JudgedSample, Opened, Samples, Screened
from symattn.verification.repair import Replacement

if TYPE_CHECKING:
    from symattn.programs.child import Child
    from symattn.verification.semantics import IdentityResult


#: What a process that ends counts as, in calls: its last chunk, and the wait for its end.
_WORK_OF_END = 10_000
#: Larger numbers, and longer texts for a reader, are none of an edit: to show or compare them takes long, or raises.
_LARGEST, _LONGEST_TEXT = 1 << 40, 1000


class TrialsInChild:
    """``Trials`` in the child. If a chunk of edits ends the process, none of its edits passes, and a new one starts."""

    def __init__(self, child: Child, samples: Samples) -> None:
        self._child, self._samples = child, samples
        self._opened_in: object = None
        # by processes that have ended, and by this one
        self._work_before, self._work = 0.0, 0.0

    def open(self) -> Opened | None:
        """See ``Trials.open``."""
        answer = self._child.ask("open_trials", self._samples)
        self._opened_in = self._child.process
        if answer is None or isinstance(answer, Failure):
            return None
        opened: Opened = _checked_answer(answer, _is_opened(answer))
        return opened

    def add(self, samples: Sequence[JudgedSample]) -> None:
        """See ``Trials.add``."""
        self._ask_trials_in_child("add", tuple(samples))
        # A process that starts anew is to have them too.
        self._samples = self._samples.with_more(samples)

    def edits(self, tier: int) -> list[Edit]:
        """See ``Trials.edits``."""
        answer = self._ask_trials_in_child("edits_as_text", tier)
        if isinstance(answer, Failure):
            return []
        edits = _read_edits_of_text(answer)
        checked: list[Edit] = _checked_answer(edits, _is_list_of(edits, _is_edit))
        return checked

    def screen(self, several: Sequence[tuple[Edit, ...]]) -> list[Screened]:
        """See ``Trials.screen``."""
        answer = self._ask_trials_in_child("screen", list(several))
        if isinstance(answer, Failure):
            return []
        numbers = range(len(several))
        is_right = _is_list_of(answer, lambda one: _is_screened(one, numbers))
        screened: list[Screened] = _checked_answer(answer, is_right)
        return screened

    def score(self, edits: Sequence[Edit]) -> list[float]:
        """See ``Trials.score``."""
        answer = self._ask_trials_in_child("score", list(edits))
        if isinstance(answer, Failure):
            return [0.0] * len(edits)
        is_right = _is_list_of(answer, _is_number) and len(answer) == len(edits)
        scores: list[float] = _checked_answer(answer, is_right)
        return scores

    def work_done(self) -> float:
        """See ``Trials.work_done``; a process that ended has told nothing of its last questions."""
        answer = self._ask_trials_in_child("work_done")
        if not isinstance(answer, Failure):
            self._work = float(_checked_answer(answer, _is_number(answer)))
        return self._work_before + self._work

    def repaired(self, edits: Sequence[Edit]) -> tuple[int, int]:
        """See ``Trials.repaired``."""
        answer = self._ask_trials_in_child("repaired", list(edits))
        if isinstance(answer, Failure):
            return 0, 1
        is_right = type(answer) is tuple and len(answer) == 2 and all(map(_is_whole, answer))
        counts: tuple[int, int] = _checked_answer(answer, is_right)
        return counts

    def version(self, edits: Sequence[Edit]) -> EditedInChild:
        """Return the edited function, called in the child."""
        return EditedInChild(self._child, self, tuple(edits))

    def ready(self) -> bool:
        """Open the trials again if the process has ended since; return whether they are open."""
        if self._child.process is None or self._child.process is not self._opened_in:
            self._work_before, self._work = self._work_before + self._work + _WORK_OF_END, 0.0
            return self.open() is not None
        return True

    def _ask_trials_in_child(self, question: str, *rest: Any) -> Any:
        if not self.ready():
            return Failure("ended", "the source cannot be opened again")
        return self._child.ask("trials", question, *rest)


def _checked_answer(answer: Any, is_right: bool) -> Any:
    """Return an answer of the child. Raises ``Tampered`` unless it has the form of one of ``Trials``."""
    if not is_right:
        raise Tampered("it answers for the judge's own code")
    return answer


def _is_list_of(answer: Any, is_right: Callable[[Any], bool]) -> bool:
    return type(answer) is list and all(map(is_right, answer))


def _read_edits_of_text(answer: Any) -> list[Edit] | None:
    """Return the edits of an answer, or None if it is no text of edits."""
    try:
        return read_edits(answer) if type(answer) is str else None
    except ValueError:
        return None


def _is_whole(x: Any) -> bool:
    return type(x) is int and -_LARGEST <= x <= _LARGEST


def _is_number(x: Any) -> bool:
    return _is_whole(x) or (type(x) is float and isfinite(x))


def _is_short(x: Any) -> bool:
    return type(x) is str and len(x) <= _LONGEST_TEXT


def _is_opened(x: Any) -> bool:
    if not is_complete(x, Opened) or not type(x.file) is type(x.digest) is str:
        return False
    # No path has a null character.
    return "\0" not in x.file and _is_whole(x.longest_block) and x.longest_block >= 0


def _is_screened(x: Any, numbers: range) -> bool:
    if not is_complete(x, Screened):
        return False
    is_known = type(x.number) is int and x.number in numbers
    flags = x.passes, x.strays, x.widens, x.agrees
    return is_known and all(type(flag) is bool for flag in flags) and _is_number(x.gained)


def _is_edit(x: Any) -> bool:
    """Return whether an object is an edit of a text, with fields of their types."""
    if not is_complete(x, Edit) or type(x.replacements) is not tuple or not x.replacements:
        return False
    whole, texts = (x.tier, x.place, x.node, x.group, x.alike, x.times), (x.rule, x.old, x.new)
    is_plain = all(map(_is_whole, whole)) and all(map(_is_short, texts))
    flags = x.likely, x.reads_idle_name, x.repeats_call
    is_plain = is_plain and all(type(flag) is bool for flag in flags) and type(x.expression) is str
    is_known = is_plain and x.tier in TIERS and 1 <= x.times <= len(x.replacements)
    return is_known and all(map(_is_replacement, x.replacements))


def _is_replacement(x: Any) -> bool:
    if not is_complete(x, Replacement):
        return False
    # Columns are counted from 0, lines from 1.
    starts, ends = (x.line, x.column), (x.end_line, x.end_column)
    whole = all(map(_is_whole, (*starts, *ends)))
    return whole and (1, 0) <= starts <= ends and x.end_column >= 0 and type(x.new) is str


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
    def is_trusted(self) -> bool:
        """See ``Child.is_trusted``."""
        return self._child.is_trusted

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
        answer = self._ask_edited_target(0.0, "run", dict(inputs), memory)
        outcome: Outcome = _checked_answer(answer, is_outcome(answer))
        return outcome

    def semantics(
        self, spec: Attention, seconds: float, domain: Domain | None = None
    ) -> IdentityResult:
        """Return the identity test on residues."""
        # Longer than the identity test's own limit, so that the process ends only as a last resort.
        answer = self._ask_edited_target(60.0 + 2 * seconds, "semantics", spec, seconds, domain)
        result: IdentityResult = _checked_answer(
            answer, is_identity(answer, isinstance(spec, Attention))
        )
        return result

    def _ask_edited_target(self, seconds: float, question: str, *rest: Any) -> Any:
        if not self._trials.ready():
            raise CannotRun("the source cannot be opened again")
        answer = self._child.ask("edited", self._edits, question, *rest, seconds=seconds)
        if isinstance(answer, Failure):
            raise CannotRun(str(answer))
        return answer

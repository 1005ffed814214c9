"""The search for repairs: which edits are tried, and that none is tried twice."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from symattn.programs.repairing.choosing import _EditSearch
from symattn.programs.repairing.edits import Edit
from symattn.programs.repairing.trials import Opened
from symattn.verification.repair import Replacement


class Trials:
    """Trials in which the first edit passes all samples, and has no version for the last questions."""

    def __init__(self, edits: list[Edit]) -> None:
        self.every, self.screened = edits, list[int]()

    def edits(self, tier: int) -> list[Edit]:
        return self.every if tier == 1 else []

    def screen(self, several: Any) -> list[tuple[int, bool]]:
        self.screened += [edit.line for (edit,) in several]
        return [(number, False) for number, (edit,) in enumerate(several) if edit.line == 0]

    def version(self, edits: Any) -> None:
        return None


def test_edits_alike_to_a_refused_one_are_tried_next_and_once() -> None:
    edits = [Edit("operator", 1, 0, (Replacement(k, 0, k, 1, "a"),), "b", "a", True, k) for k in range(120)]
    for alike, number in enumerate((0, 20, 110)):
        edits[number] = replace(edits[number], group=1, alike=alike)
    trials: Any = Trials(edits)
    session: Any = SimpleNamespace(budget=1e9, runner=None)
    samples: Any = SimpleNamespace(all=())
    found = _EditSearch(session, trials, Opened("f.py", "", 16), samples, 1).found()
    assert trials.screened == [*range(50), 110, *range(50, 110), *range(111, 120)]
    assert found.note == "No edit of its source that was tried makes it right: 120, one or two at a time."

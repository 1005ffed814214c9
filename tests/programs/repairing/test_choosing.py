"""The search for repairs: which edits are tried, and that none is tried twice."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from symattn.document.evidence import Grade
from symattn.programs.repairing import choosing
from symattn.programs.repairing.choosing import _EditSearch
from symattn.programs.repairing.edits import Edit
from symattn.programs.repairing.oracle import EditAnswer
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


class TrialsByAnotherPath:
    """Trials of a kernel in which edit 60 alone passes, by another path; each tier has 900 edits."""

    def __init__(self, same_path: int = -1) -> None:
        self.same_path, self.screened = same_path, list[int]()

    def edits(self, tier: int) -> list[Edit]:
        lines = range(1000 * tier, 1000 * tier + 900)
        return [Edit("operator", tier, 0, (Replacement(n, 0, n, 1, "a"),), "b", "a", True, n) for n in lines]

    def screen(self, several: Any) -> list[tuple[int, bool]]:
        lines = [edit.line for (edit,) in several]
        self.screened += lines
        return [(n, line == 1060) for n, line in enumerate(lines) if line in (1060, self.same_path)]

    def version(self, edits: Any) -> object:
        return object()


@pytest.mark.parametrize(("same_path", "lines"), [(-1, 350 + 250), (2220, 350 + 250), (1280, 300)])
def test_a_bounded_number_of_kernels_edits_follows_one_by_another_path(
    monkeypatch: pytest.MonkeyPatch, same_path: int, lines: int
) -> None:
    monkeypatch.setattr(choosing, "examine", lambda *_: EditAnswer(Grade.SAMPLED))
    trials: Any = TrialsByAnotherPath(same_path)
    session: Any = SimpleNamespace(budget=1e9, runner=None)
    samples: Any = SimpleNamespace(all=())
    repairs = _EditSearch(session, trials, Opened("f.py", "", 16), samples, 1).found().repairs
    assert len(trials.screened) == lines
    assert [(r.line, r.path) for r in repairs] == [(same_path, "same")] * (same_path > 0) + [(1060, "other")]

"""The search for repairs: which edits are tried, and that none is tried twice."""

from dataclasses import replace
from fractions import Fraction
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Grade, reports
from symattn.programs.repairing.choosing import _EditSearch, numbers_of
from symattn.programs.repairing.edits import Edit
from symattn.programs.repairing.likelihood import rarity_of, size_of
from symattn.programs.repairing.oracle import EditAnswer
from symattn.programs.repairing.trials import Opened, Screened
from symattn.verification.effort import Effort

EXAMINE = "symattn.programs.repairing.choosing.examine"


class Trials:
    """Trials in which the first edit passes all samples, and has no version for the last questions."""

    def __init__(self, edits: list[Edit]) -> None:
        self.every, self.screened = edits, list[int]()

    def edits(self, tier: int) -> list[Edit]:
        return self.every if tier == 1 else []

    def screen(self, several: Any) -> list[Screened]:
        self.screened += [edit.line for (edit,) in several]
        return [Screened(number, True) for number, (edit,) in enumerate(several) if edit.line == 0]

    def version(self, edits: Any) -> None:
        return None

    def work_done(self) -> float:
        return 0.0


def test_edits_alike_to_a_refused_one_are_tried_next_and_once() -> None:
    edits = [Edit("operator", 1, 0, (reports.Replacement(k, 0, k, 1, "a"),), "b", "a", True, k) for k in range(120)]
    for alike, number in enumerate((0, 20, 110)):
        edits[number] = replace(edits[number], group=1, alike=alike)
    trials: Any = Trials(edits)
    session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf))
    samples: Any = SimpleNamespace(all=())
    found = _EditSearch(session, trials, Opened("f.py", "", 16), samples, 1).found()
    assert trials.screened == [*range(50), 110, *range(50, 110), *range(111, 120)]
    assert found.note == "120 edits of its source were tried, one or two at a time, and none makes it right."


class TrialsByAnotherPath:
    """Trials of a kernel in which edit 60 alone passes, by another path; each tier has 900 edits."""

    def __init__(self, same_path: int = -1) -> None:
        self.same_path, self.screened = same_path, list[Any]()

    def edits(self, tier: int) -> list[Edit]:
        lines = range(1000 * tier, 1000 * tier + 900)
        return [Edit("operator", tier, 0, (reports.Replacement(n, 0, n, 1, "a"),), "b", "a", True, n) for n in lines]

    def screen(self, several: Any) -> list[Screened]:
        lines = [edit.line for (edit,) in several]
        self.screened += lines
        return [Screened(n, True, line == 1060) for n, line in enumerate(lines) if line in (1060, self.same_path)]

    def version(self, edits: Any) -> object:
        return object()

    def work_done(self) -> float:
        return 0.0


@pytest.mark.parametrize(("same_path", "lines"), [(-1, 350 + 250), (2220, 350 + 250), (1280, 300)])
def test_a_bounded_number_of_kernels_edits_follows_one_by_another_path(
    monkeypatch: pytest.MonkeyPatch, same_path: int, lines: int
) -> None:
    monkeypatch.setattr(EXAMINE, lambda *_: EditAnswer(Grade.SAMPLED))
    trials: Any = TrialsByAnotherPath(same_path)
    session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf))
    samples: Any = SimpleNamespace(all=())
    repairs = _EditSearch(session, trials, Opened("f.py", "", 16), samples, 1).found().repairs
    assert len(trials.screened) == lines
    assert [(r.line, r.path) for r in repairs] == [(same_path, "same")] * (same_path > 0) + [(1060, "other")]


class TrialsOfTwoMistakes(TrialsByAnotherPath):
    """Trials in which edit 2007 repairs 9 of 10 calls, and with edit 2700 all of them."""

    def add(self, samples: Any) -> None:
        raise AssertionError("no single edit was refuted")

    def screen(self, several: Any) -> list[Screened]:
        lines = [tuple(edit.line for edit in edits) for edits in several]
        self.screened += lines
        passed = [Screened(n, True) for n, pair in enumerate(lines) if pair == (2007, self.same_path)]
        return passed + [Screened(n, False) for n, one in enumerate(lines) if one == (2007,)]

    def score(self, edits: Any) -> list[float]:
        return [9.0 * (edit.line == 2007) for edit in edits]

    def repaired(self, edits: Any) -> tuple[int, int]:
        return 9, 0


@pytest.mark.parametrize("second", [2700, -1], ids=["two", "one"])
def test_an_edit_that_repairs_calls_is_paired_with_insertions(monkeypatch: pytest.MonkeyPatch, second: int) -> None:
    monkeypatch.setattr(EXAMINE, lambda *_: EditAnswer(Grade.SAMPLED))
    trials: Any = TrialsOfTwoMistakes(second)
    session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf), seed=0)
    samples: Any = SimpleNamespace(all=[SimpleNamespace(wrong=True)] * 10)
    (repair,) = _EditSearch(session, trials, Opened("f.py", ""), samples, 10).found().repairs
    lines = {r.line for r in repair.replacements}
    assert (lines, repair.repaired) == (({2007, 2700}, 10) if second > 0 else ({2007}, 9))
    # All edits of tiers 1 and 2, but the half itself, and no pair twice.
    pairs = [pair for pair in trials.screened if len(pair) == 2]
    assert len(pairs) == len({*pairs}) == 900 + 900 - 1
    assert repair.tried == repair.possible == 3 * 900 + 2 * 900 - 1
    ends = ["line 2007: `b` → `a`", "line 2700: `b` → `a`"] if second > 0 else []
    assert [f"line {part.line}: {part.change}" for part in repair.parts] == ends


class TrialsOfOneRightPart(TrialsOfTwoMistakes):
    """Trials in which one of two edits passes all samples alone as well."""

    def screen(self, several: Any) -> list[Screened]:
        alone = [n for n, edits in enumerate(several) if [edit.line for edit in edits] == [self.same_path]]
        return [*super().screen(several), *(Screened(n, True) for n in alone)]

    def version(self, edits: Any) -> Any:
        return edits


@pytest.mark.parametrize(
    ("second", "lines"),
    [
        (EditAnswer(Grade.SAMPLED), {2700}),
        (EditAnswer(None, broke_off=True), {2007}),
        (EditAnswer(None), {2007, 2700}),
    ],
    ids=["right", "unknown", "wrong"],
)
def test_two_edits_are_reported_only_if_no_part_of_them_may_be_right_alone(
    monkeypatch: pytest.MonkeyPatch, second: EditAnswer, lines: set[int]
) -> None:
    """The part had no answer among the single edits, as where the last questions have an end."""
    answers = iter([EditAnswer(None), second])

    def examine(_: Any, edits: Any, *rest: Any) -> EditAnswer:
        return EditAnswer(Grade.SAMPLED) if len(edits) == 2 else next(answers)

    monkeypatch.setattr(EXAMINE, examine)
    trials: Any = TrialsOfOneRightPart(2700)
    session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf), seed=0)
    samples: Any = SimpleNamespace(all=[SimpleNamespace(wrong=True)] * 10)
    (repair,) = _EditSearch(session, trials, Opened("f.py", ""), samples, 10).found().repairs
    assert {r.line for r in repair.replacements} == lines


class TrialsOfHalves(TrialsOfTwoMistakes):
    """Trials of 900 edits of tiers 1 and 2 each, of which some repair calls, best first; none repairs all."""

    def __init__(self, repaired: dict[int, int]) -> None:
        super().__init__()
        self.parts = repaired

    def edits(self, tier: int) -> list[Edit]:
        return super().edits(tier) if tier < 3 else []

    def screen(self, several: Any) -> list[Screened]:
        lines = [tuple(edit.line for edit in edits) for edits in several]
        self.screened += lines
        return [Screened(n, False) for n, one in enumerate(lines) if len(one) == 1 and one[0] in self.parts]

    def score(self, edits: Any) -> list[float]:
        ranks = [*self.parts][::-1]
        return [1.0 + ranks.index(e.line) if e.line in self.parts else 0.0 for e in edits]

    def repaired(self, edits: Any) -> tuple[int, int]:
        return self.parts.get(edits[0].line, 0), 0


@pytest.mark.parametrize(
    ("repaired", "pairs", "best"),
    [({2007: 2}, 900, 2007), ({2007: 3}, 900 + 899, 2007), ({1007: 3, 1008: 4}, 2 * 899 - 1 + 2 * 900, 1008)],
    ids=["fewer than a quarter", "a quarter", "two halves"],
)
def test_no_pair_is_tried_twice_and_the_edit_that_repairs_most_is_reported(
    repaired: dict[int, int], pairs: int, best: int
) -> None:
    trials: Any = TrialsOfHalves(repaired)
    session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf), seed=0)
    samples: Any = SimpleNamespace(all=[SimpleNamespace(wrong=True)] * 10)
    (repair,) = _EditSearch(session, trials, Opened("f.py", ""), samples, 10).found().repairs
    tried = [frozenset(pair) for pair in trials.screened if len(pair) == 2]
    assert len(tried) == len({*tried}) == pairs
    assert (repair.line, repair.repaired, repair.tried) == (best, max(repaired.values()), repair.possible)


def test_a_note_says_that_edits_without_last_questions_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pass the samples, and six fail the last questions, which are slow."""
    monkeypatch.setattr(EXAMINE, lambda *_: EditAnswer(None, new_search=True))
    edits = [Edit("operator", 1, 0, (reports.Replacement(k, 0, k, 1, "a"),), "b", "a", True, k) for k in range(9)]
    trials: Any = Trials(edits)
    trials.screen = lambda several: [Screened(n, True) for n, one in enumerate(several) if len(one) == 1]
    trials.score, trials.version = (lambda edits: [0.0] * len(edits)), lambda edits: object()
    session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf), seed=0)
    note = _EditSearch(session, trials, Opened("f.py", ""), SimpleNamespace(all=()), 1).found().note  # type: ignore[arg-type]
    assert note == "9 edits of its source were tried, and none makes it right. Others were not tried to the end."


def test_counted_work_ends_a_search_and_a_note_says_what_was_left() -> None:
    """Half of the 6000 units of 3 s are for edits; each edit takes twenty."""
    trials: Any = TrialsByAnotherPath()
    trials.screen, trials.score = (lambda several: trials.screened.extend(several) or []), lambda edits: []
    trials.work_done = lambda: 20.0 * len(trials.screened)
    session: Any = SimpleNamespace(budget=3, runner=None, effort_of_searches=Effort(inf), seed=0)
    note = _EditSearch(session, trials, Opened("f.py", ""), SimpleNamespace(all=()), 1).found().note  # type: ignore[arg-type]
    left = "Not tried: 650 of tier 1, 900 of tier 2, 900 of tier 3 (raise --budget)."
    assert note == f"250 edits of its source were tried, and none makes it right. {left}"


def test_an_edit_that_passes_all_samples_gets_its_last_questions_beyond_the_effort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The work ends with the part of edits that holds the right one; of two that pass the better one is examined."""
    examined: list[Any] = []
    monkeypatch.setattr(EXAMINE, lambda _, edited, *__: examined.append(edited) or EditAnswer(None))
    trials: Any = TrialsByAnotherPath()
    trials.screen = lambda several: [
        Screened(n, True) for n, (edit,) in enumerate(several) if edit.line in (1060, 1070)
    ]
    trials.version = lambda edits: edits[0].line
    trials.score, trials.work_done = (lambda edits: [0.0] * len(edits)), lambda: 1e9 if examined else 5000.0
    session: Any = SimpleNamespace(budget=3, runner=None, effort_of_searches=Effort(inf), seed=0)
    repairs = _EditSearch(session, trials, Opened("f.py", ""), SimpleNamespace(all=()), 1).found()  # type: ignore[arg-type]
    assert examined == [1060]
    assert "(raise --budget)" in repairs.note
    examined.clear()
    monkeypatch.setattr(EXAMINE, lambda *_: EditAnswer(Grade.SAMPLED))
    (repair,) = _EditSearch(session, trials, Opened("f.py", ""), SimpleNamespace(all=()), 1).found().repairs  # type: ignore[arg-type]
    assert repair.line == 1060


@pytest.mark.parametrize(("left", "pairs"), [(1, "1 pair"), (3, "3 pairs"), (1200, "1,200 pairs")])
def test_a_note_says_that_a_pair_is_of_edits(monkeypatch: pytest.MonkeyPatch, left: int, pairs: str) -> None:
    """All single edits and all pairs that a search may try were tried, and further pairs are possible."""
    monkeypatch.setattr("symattn.programs.repairing.choosing.MAX_PAIRS_OF_HALVES", 900 + 899 - left)
    trials: Any = TrialsOfHalves({2007: 3})
    session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf), seed=0)
    samples: Any = SimpleNamespace(all=[SimpleNamespace(wrong=True)] * 10)
    note = _EditSearch(session, trials, Opened("f.py", ""), samples, 10).found().note
    assert note.endswith(f"and none makes it right. Not tried: {pairs} of edits.")


@pytest.mark.parametrize("longest_block", [0, 16])
def test_edits_spend_of_the_count_of_all_searches_unless_they_are_interpreted(longest_block: int) -> None:
    trials: Any = TrialsByAnotherPath()
    trials.screen, trials.score = (lambda several: trials.screened.extend(several) or []), lambda edits: []
    trials.work_done = lambda: float(len(trials.screened))
    together = Effort(600)
    session: Any = SimpleNamespace(budget=1e9, runner=None, seed=0, effort_of_searches=together)
    opened = Opened("f.py", "", longest_block)
    _EditSearch(session, trials, opened, SimpleNamespace(all=()), 1).found()  # type: ignore[arg-type]
    assert together.units == (600 if longest_block else -150)  # ended by the third part of 250 edits


@pytest.mark.parametrize(("longest", "chosen"), [(1100, "len(k)"), (1500, "1400")])
def test_a_limit_beyond_all_lengths_comes_after_an_edit_without_one(
    monkeypatch: pytest.MonkeyPatch, longest: int, chosen: str
) -> None:
    """Both pass, though 1400 keys for 700 only move the mistake to longer calls."""
    monkeypatch.setattr(EXAMINE, lambda *_: EditAnswer(Grade.SAMPLED))
    texts = [("700", "1400"), ("min(len(k), 700)", "len(k)")]
    edits = [
        Edit("constant", 1, 0, (reports.Replacement(5, 0, 5, k, new),), old, new, True)
        for k, (old, new) in enumerate(texts)
    ]
    trials: Any = Trials(edits)
    trials.screen = lambda several: [Screened(n, True) for n, _ in enumerate(several)]
    trials.version = lambda edits: object()
    session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf), lengths={7, longest})
    (repair,) = _EditSearch(session, trials, Opened("f.py", ""), SimpleNamespace(all=()), 1).found().repairs  # type: ignore[arg-type]
    assert (repair.new, repair.path) == (chosen, "same")
    # Alone it is reported, with the reservation, unless the specification has this number.
    for numbers, path in ((), "beyond"), ((1400,), "same"):
        trials.every, samples = edits[:1], SimpleNamespace(all=(), numbers=numbers)
        (repair,) = _EditSearch(session, trials, Opened("f.py", ""), samples, 1).found().repairs  # type: ignore[arg-type]
        assert repair.path == (path if longest < 1400 else "same")
        assert ("may only move the mistake to longer calls" in repair.words) == (repair.path == "beyond")


class TrialsAtRandom:
    """Trials in which a few edits of several sizes pass, some of them by another path."""

    def __init__(self, rng: np.random.Generator) -> None:
        texts = ["a", "a b", "a b c", "a b c d", "2"]
        every = enumerate(rng.choice(texts, 1200))
        self.every = [
            Edit("term", 1, 0, (reports.Replacement(n, 0, n, 1, str(t)),), "b", str(t), n % 3 > 0) for n, t in every
        ]
        kinds = rng.choice(["passes", "strays", "fails"], 1200, p=[0.004, 0.004, 0.992])
        self.passing = {n: kind == "strays" for n, kind in enumerate(kinds) if kind != "fails"}
        self.right = {n for n in self.passing if rng.random() < 0.4}
        self.screened: list[int] = []

    def screen(self, several: Any) -> list[Screened]:
        lines = [edit.line for (edit,) in several]
        self.screened += lines
        return [Screened(k, True, self.passing[n]) for k, n in enumerate(lines) if n in self.passing]

    def version(self, edits: Any) -> Any:
        return edits[0].line

    def work_done(self) -> float:
        return 0.0


def test_small_edits_first_find_what_all_edits_of_a_tier_find(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, fewer = np.random.default_rng(5), 0
    for _ in range(20):
        trials: Any = TrialsAtRandom(rng)
        answers = {n: EditAnswer(Grade.SAMPLED if n in trials.right else None, new_search=True) for n in trials.passing}
        monkeypatch.setattr(EXAMINE, lambda _, n, *rest, answers=answers: answers[n])
        session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf), seed=0)
        searches = [
            _EditSearch(session, trials, Opened("f.py", ""), SimpleNamespace(all=()), 1)  # type: ignore[arg-type]
            for _ in range(2)
        ]
        several = [(edit,) for edit in trials.every]
        ends = [s._settle_edit_candidates(several, by_size=k > 0) for k, s in enumerate(searches)]
        assert ends[0] == ends[1]
        assert searches[0]._accepted == searches[1]._accepted
        fewer += searches[1]._tried < searches[0]._tried
    assert fewer > 5


def _edit(rule: str, old: str, new: str) -> Edit:
    return Edit(rule, 1, 0, (reports.Replacement(1, 0, 1, len(old), new),), old, new, likely=True)


def test_of_equal_sizes_a_token_is_exchanged_before_a_1_is_added_to_a_sum_and_to_a_length() -> None:
    exchanged = _edit("range", "(d > 0) & (d <= w)", "(d >= 0) & (d < w)")
    of_sum, of_length = _edit("±1", "past + t", "past + t + 1"), _edit("±1", "k.shape[0]", "k.shape[0] + 1")
    assert {size_of(edit) for edit in (exchanged, of_sum, of_length)} == {2.0}
    assert [rarity_of(edit) for edit in (exchanged, of_sum, of_length)] == [0, 1, 2]


def test_another_order_of_what_is_there_is_one_slip_however_long_its_text_is() -> None:
    line = "weights = np.exp(scores - top)"
    swapped = _edit("moved", "total = weights.sum(-1)", f"{line}; total = weights.sum(-1)")
    assert size_of(swapped) == size_of(_edit("variable", "a", "b"))
    # Over several statements is further, and a new line is as long as it is.
    assert size_of(swapped) < size_of(replace(swapped, tier=2)) < size_of(replace(swapped, rule="factor"))


def test_a_name_for_an_expression_is_smaller_than_an_expression_for_a_name() -> None:
    shorter = _edit("variable", "np.maximum(a, b).sum(-1)", "top")
    longer = _edit("expression", "top", "np.maximum(a, b).sum(-1)")
    assert 1 < size_of(shorter) < size_of(longer)


def test_brackets_that_move_come_before_a_factor_that_is_added() -> None:
    moved = replace(_edit("brackets", "b * v - r", "b * (v - r)"), tier=2)
    assert size_of(moved) < size_of(replace(_edit("factor", "r", "r * b"), tier=2))
    assert size_of(moved) > size_of(_edit("operator", "v - r", "v + r"))


def test_brackets_that_a_place_needs_are_no_part_of_a_change() -> None:
    plain, bracketed = _edit("±1", "arange(n)", "arange(n) + 1"), _edit("±1", "arange(n)", "(arange(n) + 1)")
    assert size_of(plain) == size_of(bracketed)
    assert rarity_of(plain) == rarity_of(bracketed)
    assert size_of(_edit("term", "(a) * (b)", "(a) + (b)")) == 1


def test_what_somebody_wrote_on_purpose_is_taken_away_after_a_factor_is_inserted() -> None:
    inserted = _edit("factor", "acc", "acc * a")
    unwrapped = _edit("unwrapped from others", "np.maximum(top, new)", "new")
    # A call that stands elsewhere as well is no smaller if it comes about by a removal.
    assert size_of(inserted) < size_of(replace(unwrapped, repeats_call=True)) == size_of(unwrapped)
    assert size_of(inserted) < size_of(_edit("variable of another shape", "s", "q"))


class TrialsOfIdle:
    """Trials in which a small edit of line 1 passes, and a larger one of line 2 that reads an idle name."""

    def __init__(self, reads: bool, strays: bool = False) -> None:
        small, large = _edit("constant", "2", "3"), _edit("factor", "x", "x * lost_factor")
        self.every = [small, replace(large, reads_idle_name=reads)]
        self.strays = strays

    def edits(self, tier: int) -> list[Edit]:
        return self.every if tier == 1 else []

    def screen(self, several: Any) -> list[Screened]:
        reads = [edits[0].reads_idle_name for edits in several]
        return [Screened(number, True, self.strays and r) for number, r in enumerate(reads)]

    def version(self, edits: Any) -> str:
        return edits[0].new

    def work_done(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("reads", "strays", "first"), [(True, False, "x * lost_factor"), (False, False, "3"), (True, True, "3")]
)
def test_an_edit_that_reads_what_nothing_reads_comes_first_if_the_code_keeps_its_path(
    monkeypatch: pytest.MonkeyPatch, reads: bool, strays: bool, first: str
) -> None:
    monkeypatch.setattr(EXAMINE, lambda *_: EditAnswer(Grade.SAMPLED, new_search=True))
    session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf), seed=0)
    trials: Any = TrialsOfIdle(reads, strays)
    search = _EditSearch(session, trials, Opened("f.py", ""), SimpleNamespace(all=()), 1)  # type: ignore[arg-type]
    assert search.found().repairs[0].new == first


@pytest.mark.parametrize("keeps_path", [True, False])
def test_all_edits_are_tried_after_one_that_takes_another_path(
    monkeypatch: pytest.MonkeyPatch, keeps_path: bool
) -> None:
    monkeypatch.setattr(EXAMINE, lambda *_: EditAnswer(Grade.SAMPLED, new_search=True))
    session: Any = SimpleNamespace(budget=1e9, runner=None, effort_of_searches=Effort(inf), seed=0)
    trials: Any = TrialsOfIdle(True, True)
    others = [_edit("constant", "2", str(number)) for number in range(10, 60)]
    apart = [replace(e, replacements=(reports.Replacement(k + 3, 0, k + 3, 1, e.new),)) for k, e in enumerate(others)]
    trials.every = [*trials.every[1:], *apart]
    screen = trials.screen
    last = "59" if keeps_path else ""
    trials.screen = lambda several: [
        replace(s, strays=several[s.number][0].new != last)
        for s in screen(several)
        if several[s.number][0].new in ("x * lost_factor", last)
    ]
    search = _EditSearch(session, trials, Opened("f.py", ""), SimpleNamespace(all=()), 1)  # type: ignore[arg-type]
    result = [(repair.new, repair.path) for repair in search.found().repairs]
    assert result == [("59", "same")] * keeps_path + [("x * lost_factor", "other")]
    assert search._tried == 51


def test_numbers_of_a_specification_are_floats_of_code_and_not_what_all_code_has() -> None:
    spec = Attention(qk_norm="rms", eps=Fraction(1, 10**6), softcap=0.3, scale=Fraction(1, 3), heads=4, causal=True)
    numbers = numbers_of(spec)
    assert {1e-6, 0.3, 1 / 3, 4} <= {*numbers}
    assert all(type(x) in (int, float) for x in numbers)
    assert not {0, 1} & {*numbers}

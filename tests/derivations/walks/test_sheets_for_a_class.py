"""Sheets for a class: steps left empty, numbers by a seed, exercises with checked solutions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import InputError, walk
from symattn.derivations.exercises import TASKS, checked, exercises
from symattn.derivations.steps import FalseStep


def test_empty_steps_hold_no_answers() -> None:
    whole, empty = walk("eight-step").text(), walk("eight-step", blank="5,6").text()
    for answer in ("e²/(1 + 2e²)", "0.468310531", "0.46831", "6.3379e-02"):
        assert answer in whole
        assert answer not in empty.partition("7  sum")[0]
    assert "q₁·k₂ = 1·4 + 0·4 + 2·0 = 4" in empty
    assert "____" in empty
    assert "468310531" not in walk("eight-step", blank=[4, 5, 6, 7]).json()


def test_answers_stand_at_the_end() -> None:
    told = walk("eight-step", blank=[5], answers=True).text()
    assert "0.468310531" in told.partition("Answers")[2]


def test_seeds_draw_other_numbers_that_stay_kind() -> None:
    one, two = (walk("eight-step", seed=seed, blank="5") for seed in (3, 4))
    assert one.text() == walk("eight-step", seed=3, blank="5").text()
    assert one.text() != two.text()


@pytest.mark.parametrize(
    ("wishes", "said"),
    [({"blank": "9"}, "blank is '9'"), ({"answers": True}, "answers belong"), ({"blank": "5", "step": 5}, "--step"),
     ({"seed": -1}, "seed must be an integer from 0")],
)  # fmt: skip
def test_bad_wishes(wishes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        walk("eight-step", **wishes)


def test_exercises_are_checked_for_many_seeds() -> None:
    for seed in range(5):
        found = exercises(seed, answers=True)
        assert found.holds
        assert len(list(found.evidence())) == 10
    assert exercises(1).text() != exercises(2).text()
    assert "Solution" not in exercises(1).text()


@pytest.mark.parametrize("number", range(10))
def test_a_wrong_solution_is_refused(number: int) -> None:
    task = TASKS[number](np.random.default_rng(number))
    checked(task)
    with pytest.raises(FalseStep):
        checked(replace(task, answer=task.answer + 1))

"""Mistakes drawn by rules, not chosen: which are repaired, and that what is accepted is right on new inputs."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, reports, verify
from tests.programs.repairing.drawn import MISTAKES, PROGRAMS
from tests.programs.repairing.programs import HEAD, loaded


@dataclass(frozen=True)
class Drawn:
    """A mistake: the program, the rule that made it, and the line before and after; ``reason`` why it stays."""

    program: str
    rule: str
    right: str
    wrong: str
    reason: str = ""

    @property
    def text(self) -> str:
        """The wrong program."""
        right = PROGRAMS[self.program][1]
        assert right.count(self.right) == 1
        return right.replace(self.right, self.wrong)


def _mistakes() -> list[Drawn]:
    paragraphs = re.split(r"\n(?=\S)", MISTAKES.strip())
    lines = ([line.strip() for line in p.splitlines()] for p in paragraphs)
    return [Drawn(*first.split(", "), *rest) for first, *rest in lines]


def _spec(program: str) -> Attention:
    spec: Attention = eval(f"Attention({PROGRAMS[program][0]})", {"Attention": Attention})
    return spec


def _inputs(program: str, n_q: int, n_k: int) -> list[Any]:
    random = np.random.default_rng(n_q * 100 + n_k)
    heads, groups = ((4,), (2,)) if program == "groups" else ((), ())
    shapes = (*heads, n_q, 6), (*groups, n_k, 6), (*groups, n_k, 3)
    arrays = [random.normal(size=shape).astype("f") for shape in shapes]
    if program == "masked":
        mask = random.random((n_q, n_k)) < 0.6
        mask[:, 0] = True
        return [*arrays, mask]
    return arrays


_SIZES = [(1, 1), (1, 9), (3, 4), (6, 6), (5, 7), (16, 33), (70, 70), (2, 150)]


def _agree(program: str, one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    pairs = ((one(*_inputs(program, *n)), other(*_inputs(program, *n))) for n in _SIZES)
    with np.errstate(all="ignore"):
        return all(np.abs(a - b).max() < 1e-4 for a, b in pairs)


def _edited(folder: Path, text: str, repair: reports.Repair) -> Callable[..., Any]:
    lines = reports.replaced((HEAD + text.lstrip("\n")).split("\n"), repair.replacements)
    return loaded(folder, "\n".join(lines)[len(HEAD) :], "edited")


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("drawn", _mistakes(), ids=lambda d: f"{d.program}-{d.rule}")
def test_a_drawn_mistake_is_repaired_and_each_repair_is_right_on_new_inputs(tmp_path: Path, drawn: Drawn) -> None:
    report = verify(loaded(tmp_path, drawn.text), _spec(drawn.program), examples=8, repair=True)
    assert report.faults
    right = loaded(tmp_path, PROGRAMS[drawn.program][1], "right")
    whole = [r for r in report.repairs if r.is_whole]
    for repair in whole:
        assert _agree(drawn.program, _edited(tmp_path, drawn.text, repair), right), repair.change
    assert bool(whole) == (not drawn.reason), [r.words for r in report.repairs]


def test_thirty_mistakes_are_drawn_and_most_of_them_are_repaired() -> None:
    drawn = _mistakes()
    assert len(drawn) >= 30
    assert len({d.rule for d in drawn}) >= 25
    assert sum(not d.reason for d in drawn) >= 0.8 * len(drawn)

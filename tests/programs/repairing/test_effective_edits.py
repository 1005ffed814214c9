"""Edits of kernels: those without effect are dropped, those alike come later, and each rule has its turn."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from symattn import reports
from symattn.programs.repairing.edits import Edit, enumerate_edits
from symattn.programs.repairing.effective_edits import effective_edits
from symattn.programs.repairing.likelihood import by_likelihood
from symattn.programs.repairing.observing import observe
from symattn.programs.repairing.source import Sources
from tests.programs.repairing.programs import loaded

PROGRAM = """
def attention(q, k, v, n=4):
    m, unequal = n + 0, n + 1
    for j in range(2):
        scale = n * (j + 1)
    return q * scale
"""


def _effective(folder: Path) -> tuple[list[Edit], list[Edit]]:
    sources = Sources(loaded(folder, PROGRAM))
    q = np.ones((2, 3))
    seen = observe(sources, lambda f: f(q, q, q))
    edits = enumerate_edits(sources, seen, tiers=(1,))
    return edits, effective_edits(sources, edits, [lambda f: f(q, q, q)])


def test_edits_that_change_no_value_or_raise_are_dropped(tmp_path: Path) -> None:
    edits, left = _effective(tmp_path)
    dropped = {(e.line, e.old, e.new) for e in edits} - {(e.line, e.old, e.new) for e in left}
    scales = {(old, new) for line, old, new in dropped if line == 7}
    # ``m`` is ``n``, and ``n + 0`` is ``n - 0``; a loop is judged in all of its passes.
    assert ("n", "m") in scales
    assert (5, "n + 0", "n - 0") in dropped
    assert ("n", "unequal") not in scales
    assert ("n * (j + 1)", "n / (j + 1)") not in scales
    # Numbers have no product of matrices.
    assert ("n * (j + 1)", "n @ (j + 1)") in scales


def test_edits_that_change_an_expression_alike_are_counted(tmp_path: Path) -> None:
    _, left = _effective(tmp_path)
    alike = {e.new: e.alike for e in left if e.line == 7 and e.old == "n"}
    assert alike["(n + 1)"] == 0
    assert alike["unequal"] == 1


def test_edits_of_what_raises_are_tried(tmp_path: Path) -> None:
    raising = "m = n + 0\n    unequal = n // (n - 4)"
    sources = Sources(loaded(tmp_path, PROGRAM.replace("m, unequal = n + 0, n + 1", raising)))
    q = np.ones((2, 3))

    def run(f: Callable[..., object]) -> None:
        with suppress(ZeroDivisionError):
            f(q, q, q)

    edits = enumerate_edits(sources, observe(sources, run), tiers=(1,))
    left = {(e.line, e.old, e.new) for e in effective_edits(sources, edits, [run])}
    assert (6, "n - 4", "n + 4") in left
    # Before it nothing changes.
    assert (5, "n + 0", "n - 0") not in left


def test_each_rule_has_its_turn_and_no_expression_all_of_them() -> None:
    def edit(rule: str, place: int, node: int, new: str) -> Edit:
        return Edit(rule, 1, place, (reports.Replacement(1, 0, 1, 1, new),), "a", new, True, node)

    several = [edit("operator", 1, 7, "b"), edit("operator", 1, 7, "c"), edit("operator", 1, 8, "d"),
               edit("moved", 1, 9, "e"), edit("operator", 0, 3, "f"), edit("axis", 1, 5, "g")]  # fmt: skip
    # Places count from 0; 1 is the kernel.
    assert [e.new for e in by_likelihood(several, {1})] == ["b", "g", "d", "e", "f", "c"]


def test_many_sums_do_not_come_before_a_mask() -> None:
    def edit(node: int, old: str, new: str) -> Edit:
        return Edit("operator", 1, 0, (reports.Replacement(node, 0, node, 5, new),), old, new, True, node)

    sums = [edit(k, "a + b", "a - b") for k in range(1, 9)]
    order = by_likelihood([*sums, edit(9, "m | n", "m & n")], {0})
    assert order[1].new == "m & n"


def test_brackets_that_a_place_needs_make_no_other_kind_of_change() -> None:
    def edit(node: int, new: str) -> Edit:
        return Edit("operator", 1, 0, (reports.Replacement(node, 0, node, 5, new),), "a * b", new, True, node)

    # Each kind of change has its turn.
    order = by_likelihood([edit(1, "(a + b)"), edit(2, "a + b"), edit(3, "a - b")], {0})
    assert [e.new for e in order] == ["(a + b)", "a - b", "a + b"]

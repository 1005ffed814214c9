"""One-line mistakes that were written by hand: repaired, and right on new inputs; the table that measures them."""

from pathlib import Path

import pytest

from symattn import Grade, reports
from tests.programs.repairing.measure import Measured, Program, measured, programs, table

#: Mistakes that no edit repairs, and why.
_OPEN = {
    "groups-mod": "it is called in another layout than is meant, in which the mistake raises nothing",
    "gradient-delta": "another reduction and another factor at once",
}
_EVERY = [*programs("first"), *programs("later")]


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("program", [p for p in _EVERY if p.name not in _OPEN], ids=lambda p: p.name)
def test_a_mistake_in_one_line_is_repaired_and_each_repair_is_right_on_new_inputs(
    tmp_path: Path, program: Program
) -> None:
    one = measured(program, tmp_path)
    assert one.repairs
    assert not one.different


def test_the_table_counts_by_tier_and_rule() -> None:
    program = _EVERY[0]
    at_line = reports.Replacement(program.line, 0, program.line, 1, "a")
    repairs = [
        reports.Repair("f.py", (where,), "b", "a", "term", "same", Grade.SAMPLED, None, tried, 9, 1, 1, tier=2)
        for where, tried in ((at_line, 7), (reports.Replacement(1, 0, 1, 1, "a"), 11))
    ]
    every = [Measured(program, [repair], 1.0) for repair in repairs] + [Measured(program, [], 3.0)]
    lines = [*table(every)]
    assert "| 2 | term | 2 | 1 | 9, 11 |" in lines
    assert "repaired: 2 of 3, 1 at the line" in lines
    assert lines[-1] == "seconds of the search: median 1.0, nine tenths 3.0, most 3.0"

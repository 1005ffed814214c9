"""Mutants by rule of every specification, in every format: each ends in a report, or in words for why there is none.

How many are verified depends on the run: one by default, forty in a deep one, a thousand in an exhaustive one.
"""

from dataclasses import replace

import pytest

from symattn import Attention, Domain, Verdict, verify
from symattn.attention.variants import VARIANTS
from tests.verification.drawn_mistakes import drawn
from tests.verification.mutants import mutant, right

DRAWN = range(1000)
OVERFLOWS = "not stabilised"  # that is a fault
SMALL = Domain(max_tokens=9, max_width=8)
QUICK, MORE = (51,), (*range(0, 1000, 25), 119, 124)


def _marked(number: int) -> object:
    some = () if number in QUICK else pytest.mark.deep if number in MORE else pytest.mark.exhaustive
    return pytest.param(number, marks=some)


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("number", [_marked(n) for n in DRAWN])
def test_a_mutant_ends_in_a_report(number: int) -> None:
    made = mutant(number)
    words = made.verified(examples=4)
    assert words.partition(":")[0] in ("no fault", "fault", "undecided", "cannot be run"), made.name


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in VARIANTS if n != OVERFLOWS])
def test_the_definition_itself_has_no_fault(name: str) -> None:
    """Every comparison of it included, such as which scores a sparse normaliser keeps."""
    report = verify(right(name), replace(VARIANTS[name].spec, lse=False), domain=SMALL, examples=4)
    assert (report.verdict, report.missing) == (Verdict.NO_FAULT, ())


@pytest.mark.deep
def test_a_defect_of_symattn_is_no_fault_of_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong while a case is judged is raised as it is: exit code 70, and no verdict."""
    from symattn.verification import engine

    def broken(*given: object) -> None:
        raise AttributeError("a defect")

    monkeypatch.setattr(engine, "judge", broken)
    with pytest.raises(AttributeError, match="a defect"):
        verify(right("causal"), Attention(causal=True))


EVERY = range(500)
NAMED = (17, 21, 25, 41, 139, 142, 180, 215, 247, 277, 289, 299)  # in their own words, of two both


@pytest.mark.long
@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.deep if n < 12 or n in NAMED else pytest.mark.exhaustive) for n in EVERY],
)
def test_a_drawn_mistake_is_found(number: int) -> None:
    word, said = drawn(number).outcome()
    assert word == "named" if number in NAMED else word != "not found", said

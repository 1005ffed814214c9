"""Random programs on exact arrays say what the same programs on Arb's balls say, computed element by element."""

from __future__ import annotations

from random import Random

import pytest

from symattn.arrays.field.quotient import Quotient
from tests.arrays import exact_programs as programs
from tests.arrays.balls import Nothing
from tests.lanes import one_in


def play(seed: int) -> None:
    """One program, its results checked step by step, then some of its numbers in all their guises."""
    rng = Random(seed)
    arrays = programs.run(rng, rng.randint(1, 8), programs.agree)
    elements = [pair for a in arrays for pair in zip(a.exact.entries.flat, a.reals.flat, strict=True)]
    numbers = [(x, r) for x, r in elements if not isinstance(r, Nothing) and programs.small(x)]
    for x, r in rng.sample(numbers, min(3, len(numbers))):
        programs.written(x, r)
    for _ in range(4):
        programs.compared(*rng.choice(numbers), *rng.choice(numbers))
    quotients = [x for x, _ in numbers if isinstance(x, Quotient)]
    programs.rewritten(*(rng.choice(quotients) for _ in range(3)))


@pytest.mark.parametrize("seed", range(3))
def test_long_sums_agree_with_balls(seed: int) -> None:
    programs.long_sums(Random(seed))


@pytest.mark.parametrize("seed", one_in(4, range(12)))
def test_random_programs_agree_with_balls(seed: int) -> None:
    for i in range(30):
        play(1000 * seed + i)


@pytest.mark.parametrize(
    "programs", [pytest.param(600, marks=pytest.mark.deep), pytest.param(4000, marks=pytest.mark.exhaustive)]
)
def test_many_random_programs_agree_with_balls(programs: int) -> None:
    for seed in range(1_000_000, 1_000_000 + programs):
        play(seed)

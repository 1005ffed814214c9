"""Random programs, and those of users, say on exact arrays what they say on balls; mistakes show."""

from fractions import Fraction
from itertools import permutations
from random import Random
from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.field.sums import PLAIN, Unit, converted
from symattn.arrays.modular import modular
from symattn.arrays.notes import listening
from symattn.arrays.residues import primes
from tests.arrays import exact_programs as programs
from tests.arrays.balls import Nothing
from tests.arrays.residues import agree
from tests.arrays.users import RIGHT, WRONG, Program, cast_to_float32_and_back
from tests.bounded import bounded
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


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_powers_over_one_unit_keep_their_values(order: tuple[int, ...]) -> None:
    """e^(−4/√3), e^(1/3), e^(1 + √3) and e^2 in one array, in any order."""
    root = Quotient.of(3).sqrt()
    exponents = [Quotient.of(-4) / root, Quotient.of(Fraction(1, 3)), root + 1, Quotient.of(2)]
    array = np.empty(4, dtype=object)
    array[:] = [exponents[i] for i in order]
    exact = kind("exact")
    powers = exact.xp.exp(exact.lift(array)).entries
    for x, power in zip(array, powers, strict=True):
        assert power == x.exp()
        assert power.to_float() == pytest.approx(np.exp(x.to_float()), rel=1e-14)


def test_a_sum_is_not_written_over_a_unit_of_another_root() -> None:
    f = {1: 1}
    assert converted(f, Unit(3, 3), Unit(1, 6)) == {Quotient.of(2).constant() * Quotient.of(3).sqrt().constant(): 1}
    assert converted(f, Unit(1, 3), PLAIN) == {Fraction(1, 3): 1}
    with pytest.raises(ValueError, match="not a multiple"):
        converted(f, Unit(3, 3), Unit(2, 3))


@pytest.mark.parametrize("seed", range(40))
def test_attention_with_roots_and_a_mask_is_the_same_on_residues(seed: int) -> None:
    draw, residues = np.random.default_rng(seed), modular(*primes.pairs((2, 3, 5, 7))[-1], seed=seed)
    d = (2, 3, 5, 12)[seed % 4]
    data = [draw.integers(-2, 3, shape) for shape in ((4, d), (5, d), (5, 2))]
    mask = np.where(draw.integers(0, 4, (4, 5)) > 0, draw.integers(-2, 3, (4, 5)) / 2, -np.inf)
    got, wanted = (
        Attention(mask="additive")(*map(k.lift, data), mask=k.literal(mask)) for k in (residues, kind("exact"))
    )
    assert agree(got, wanted)


RNG = np.random.default_rng(3)
Q, K, V = (RNG.integers(-6, 7, (4, 4)) / 4 for _ in range(3))


def exact(program: Program) -> Any:
    """The elements of the program's result on exact arrays."""
    return program(*map(kind("exact").lift, (Q, K, V))).entries


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_a_users_program_means_the_same_on_exact_arrays_and_balls(program: Program) -> None:
    truth = exact(program)
    with precision(120):
        balls = program(*map(kind("ball").lift, (Q, K, V))).entries
    assert truth.shape == balls.shape
    for x, ball in zip(truth.flat, balls.flat, strict=True):
        assert ball.overlaps(x.arb(200))
        assert ball.rel_accuracy_bits() > 90


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_what_numpy_computes_is_the_exact_result_rounded(program: Program) -> None:
    """The float64 result lies within the rounding errors of its own operations, see ``tests.bounded``."""
    arithmetic = bounded(np.float32 if program is cast_to_float32_and_back else np.float64)
    radius = program(*map(arithmetic.lift, (Q, K, V))).planes[1]
    assert (radius < 2**8 * arithmetic.u).all()
    result = np.asarray(program(Q, K, V), dtype=np.float64)
    truth = np.vectorize(lambda x: x.to_float(), otypes=[float])(exact(program))
    assert (np.abs(result - truth) <= radius).all()


@pytest.mark.parametrize(("program", "neighbour"), WRONG, ids=lambda f: f.__name__)
def test_a_mistake_shows_on_exact_arrays(program: Program, neighbour: Program) -> None:
    assert program(Q, K, V).shape == neighbour(Q, K, V).shape
    assert any(not x.same(y) for x, y in zip(exact(program).flat, exact(neighbour).flat, strict=True))


def test_programs_of_one_meaning_are_equal_exactly() -> None:
    """Not close: equal, as numbers like (1 + 4e²)/(1 + 2e²)."""
    by_name = {f.__name__: f for f in RIGHT}
    groups = [
        [
            "plain",
            "by_einsum",
            "written_in_place",
            "by_log_sum_exp",
            "by_tiles",
            "by_loops",
            "cast_to_float32_and_back",
        ],
        ["two_heads", "two_heads_in_a_list"],
        [name for name in by_name if name.startswith(("causal", "with_a"))],
    ]
    assert sum(map(len, groups)) == len(RIGHT)
    for first, *others in groups:
        for other in others:
            pairs = zip(exact(by_name[first]).flat, exact(by_name[other]).flat, strict=True)
            assert all(x.same(y) for x, y in pairs), other


def test_a_cast_in_a_users_program_is_noted() -> None:
    with listening() as notes:
        exact(cast_to_float32_and_back)
    assert "astype(float32) kept exact" in notes


def test_a_float_made_from_a_size_is_noted_and_shows() -> None:
    """math.sqrt(3) is not √3: the result differs from the exact one, and the note says why."""
    import math

    x = kind("exact").lift([[1, 2, Fraction(1, 2)]])
    with listening() as notes:
        scaled = x / math.sqrt(x.shape[-1])
    assert "a float was made from the size 3" in notes
    assert not (scaled == x / np.sqrt(x.shape[-1])).any()

"""Random programs, and those of users, say on exact arrays what they say on balls; mistakes show."""

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symattn import kind, kinds
from symattn.arrays.field.sums import Unit, converted
from tests.arrays import exact_programs as programs
from tests.arrays.balls import Nothing
from tests.arrays.users import RIGHT, WRONG, Program
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
    quotients = [x for x, _ in numbers if isinstance(x, kinds.Quotient)]
    programs.rewritten(*(rng.choice(quotients) for _ in range(3)))


@pytest.mark.parametrize("seed", range(3))
def test_long_sums_agree_with_balls(seed: int) -> None:
    programs.long_sums(Random(seed))


@pytest.mark.parametrize("seed", one_in(4, range(12)))
def test_random_programs_agree_with_balls(seed: int) -> None:
    for i in range(30):
        play(1000 * seed + i)


@pytest.mark.parametrize(
    "programs", [pytest.param(200, marks=pytest.mark.deep), pytest.param(4000, marks=pytest.mark.exhaustive)]
)
def test_many_random_programs_agree_with_balls(programs: int) -> None:
    for seed in range(1_000_000, 1_000_000 + programs):
        play(seed)


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_powers_over_one_unit_keep_their_values(order: tuple[int, ...]) -> None:
    """e^(−4/√3), e^(1/3), e^(1 + √3) and e^2 in one array, in any order."""
    root = kinds.Quotient.of(3).sqrt()
    exponents = [kinds.Quotient.of(-4) / root, kinds.Quotient.of(Fraction(1, 3)), root + 1, kinds.Quotient.of(2)]
    array = np.empty(4, dtype=object)
    array[:] = [exponents[i] for i in order]
    exact = kind("exact")
    powers = exact.xp.exp(exact.lift(array)).entries
    for x, power in zip(array, powers, strict=True):
        assert power == x.exp()
        assert power.to_float() == pytest.approx(np.exp(x.to_float()), rel=1e-14)


def test_a_sum_is_not_written_over_a_unit_of_another_root() -> None:
    assert converted({1: 1}, Unit(3, 3), Unit(1, 6)) == {
        kinds.Quotient.of(2).constant() * kinds.Quotient.of(3).sqrt().constant(): 1
    }
    with pytest.raises(ValueError, match="not a multiple"):
        converted({1: 1}, Unit(3, 3), Unit(2, 3))


def test_a_sum_of_exponentials_with_other_roots_is_that_of_its_terms() -> None:
    """e^(1/√3) + e^(1/6) + e^(√2/3) in any order, and without each of them again."""
    exponents = [kinds.Quotient.of(3).sqrt() / 3, kinds.Quotient.of(Fraction(1, 6)), kinds.Quotient.of(2).sqrt() / 3]
    powers = [x.exp() for x in exponents]
    whole = sum(powers, kinds.Quotient.of(0))
    assert whole.to_float() == pytest.approx(sum(np.exp(x.to_float()) for x in exponents), rel=1e-14)
    for order in permutations(powers):
        assert sum(order, kinds.Quotient.of(0)) == whole
        assert whole - order[0] - order[1] == order[2]


RNG = np.random.default_rng(3)
Q, K, V = (RNG.integers(-6, 7, (4, 4)) / 4 for _ in range(3))


def exact(program: Program) -> Any:
    """The elements of the program's result on exact arrays."""
    return program(*map(kind("exact").lift, (Q, K, V))).entries


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_a_users_program_means_the_same_on_exact_arrays_and_balls(program: Program) -> None:
    truth = exact(program)
    with kinds.precision(120):
        balls = program(*map(kind("ball").lift, (Q, K, V))).entries
    assert truth.shape == balls.shape
    for x, ball in zip(truth.flat, balls.flat, strict=True):
        assert ball.overlaps(x.arb(200))
        assert ball.rel_accuracy_bits() > 90


@pytest.mark.parametrize(("program", "neighbour"), WRONG, ids=lambda f: f.__name__)
def test_a_mistake_shows_on_exact_arrays(program: Program, neighbour: Program) -> None:
    assert program(Q, K, V).shape == neighbour(Q, K, V).shape
    assert any(not x.same(y) for x, y in zip(exact(program).flat, exact(neighbour).flat, strict=True))


def test_a_float_made_from_a_size_is_noted_and_shows() -> None:
    """math.sqrt(3) is not √3: the result differs from the exact one, and the note says why."""
    import math

    x = kind("exact").lift([[1, 2, Fraction(1, 2)]])
    with kinds.listening() as notes:
        scaled = x / math.sqrt(x.shape[-1])
    assert "a float was made from the size 3" in notes
    assert not (scaled == x / np.sqrt(x.shape[-1])).any()


# -- Views, found by random programs: what is written through any chain of them is what NumPy writes -------------------
Step = tuple[str, Callable[[Any, Any], Any]]


@st.composite
def steps(draw: st.DrawFn, shape: tuple[int, ...]) -> Step:
    """One way to look at an array of this shape: (xp, array) ↦ view or copy, as NumPy decides."""
    axes = st.integers(-len(shape), len(shape) - 1)
    found: list[tuple[str, Any]] = [("ravel", ()), ("copy", ()), ("expand_dims", (draw(st.integers(0, len(shape))),))]
    if shape:
        slices = tuple(draw(st.slices(n)) for n in shape[: draw(st.integers(0, len(shape)))])
        found += [("[]", (slices,)), ("flip", (draw(axes),)), ("swapaxes", (draw(axes), draw(axes)))]
        found += [("permute_dims", (tuple(draw(st.permutations(range(len(shape))))),)), ("moveaxis", (draw(axes), 0))]
        found += [("reshape", ((-1, shape[0]) if np.prod(shape) else shape,)), ("roll", (1, draw(axes)))]
        if all(shape):
            found.append(("take", (np.array([draw(st.integers(-shape[0], shape[0] - 1))]), 0)))
    name, arguments = draw(st.sampled_from(found))
    if name == "[]":
        return name, lambda xp, a: a[arguments[0]]
    return name, lambda xp, a: a.copy() if name == "copy" else getattr(xp, name)(a, *arguments)


@st.composite
def chains(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Step]]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    array, chain = np.zeros(shape), []
    for _ in range(draw(st.integers(1, 4))):
        chain.append(draw(steps(array.shape)))
        array = chain[-1][1](np, array)
    return shape, chain


def run(xp: Any, base: Any, chain: list[Step], value: Any) -> Any:
    view = base
    for _, step in chain:
        view = step(xp, view)
    view[...] = value
    return base


@pytest.mark.deep
@given(chains())
def test_what_is_written_through_a_chain_of_views_is_what_numpy_writes(program: Any) -> None:
    shape, chain = program
    numbers = np.arange(np.prod(shape), dtype=float).reshape(shape)
    wanted = run(np, numbers.copy(), chain, -7)
    for name in ("exact", "bfloat16"):
        target = kind(name)
        assert (run(target.xp, target.lift(numbers), chain, -7) == wanted).all()


@pytest.mark.deep
@given(chains())
def test_literal_arrays_and_their_numbers_change_together(program: Any) -> None:
    """Whether a number that was typed or one that was computed is put in: the array and its arithmetic agree."""
    shape, chain = program
    exact = kind("exact")
    wanted = run(np, np.zeros(shape), chain, -7)
    for value in (-7, exact.lift(-7)):
        literal = run(exact.xp, exact.xp.zeros(shape), chain, value)
        assert (literal == wanted).all()
        assert (literal + 1 == wanted + 1).all()
        assert (literal - 1 == wanted - 1).all()
        assert (literal * 1 == wanted).all()

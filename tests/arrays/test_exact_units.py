"""Exact arrays whose exponents belong to several units: found where residues and exact numbers did not agree."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays import kind
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.field.sums import PLAIN, Unit, converted
from symattn.arrays.modular import modular
from symattn.arrays.residues import primes
from tests.arrays.residues import agree


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

"""Rotary embeddings: frequencies, scalings for longer contexts and tables to many digits; complex numbers."""

from fractions import Fraction
from functools import partial
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
import sympy

from symattn import (
    Attention,
    InputError,
    LinearScaling,
    LongRopeScaling,
    NTKScaling,
    ProportionalScaling,
    Refused,
    Rotary,
    YarnScaling,
    functional,
    kind,
    kinds,
)
from symattn.arrays.enclosing import functions
from tests.arrays.evaluating import compare
from tests.attention.frequencies import BASE, BITS, LENGTH, ball, is_close, true_frequencies
from tests.refusals import refuses

Enclosure = kind("enclosure")


# -- frequencies and what a kind can hold ------------------------------------------------------------------------------
@pytest.mark.parametrize("width", [2, 6, 16])
def test_frequencies_in_balls(width: int) -> None:
    with kinds.precision(BITS), mpmath.workdps(70):
        assert is_close(functional.inverse_frequencies(width, BASE, ball()), true_frequencies(width))
        assert width == 2 or not is_close(
            functional.inverse_frequencies(width, BASE + 1, ball()), true_frequencies(width)
        )


def test_frequencies_are_exact_where_they_are_rational_or_square_roots() -> None:
    like = kind("exact").lift(0)
    found = functional.inverse_frequencies(8, 10000, like)
    assert [x.rational() for x in found.entries] == [1, Fraction(1, 10), Fraction(1, 100), Fraction(1, 1000)]
    roots = functional.inverse_frequencies(4, 2, like)
    assert str(roots.entries[1]) == "1/sqrt(2)"
    refuses(functional.inverse_frequencies, 6, 10000, like, kind=Refused, says="integer multiples only; use ball")
    letters = functional.inverse_frequencies(6, 10000, kind("symbolic").lift(0)).entries
    assert letters[1] == sympy.Integer(10000) ** sympy.Rational(-1, 3)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_tables_of_short_floats_are_rounded_once(dtype: str) -> None:
    """Positions beyond 2049, frequencies and angles are those of float64, whatever the tokens are stored in."""
    of, start = kind(dtype), 131071
    x = {name: of.lift(np.ones((2, 16))) for name in "qkv"}
    found = Attention(position=Rotary(base=BASE, start=start)).trace(**x)
    with mpmath.workdps(40):
        angles = [[(start + p) * w for w in true_frequencies(16)] for p in range(2)]
        wanted = {
            name: of.lift([[float(function(a)) for a in row] for row in angles])
            for name, function in (("cos", mpmath.cos), ("sin", mpmath.sin))
        }
    for name, table in wanted.items():
        plain = [np.asarray(a if isinstance(a, np.ndarray) else a.numpy(), dtype=float) for a in (found[name], table)]
        if dtype == "float64":
            np.testing.assert_allclose(*plain, atol=start * 2**-51)
        else:
            assert np.array_equal(*plain)


def test_frequencies_of_bases_that_are_powers() -> None:
    of = partial(functional.inverse_frequencies, like=kind("exact").lift(0))
    assert [x.rational() for x in of(6, Fraction(8, 27)).entries] == [1, Fraction(3, 2), Fraction(9, 4)]
    for root in (2, 3, 10**10):
        assert [x.rational() for x in of(6, root**3).entries] == [1, Fraction(1, root), Fraction(1, root**2)]
        for base in (root**3 - 1, root**3 + 1):
            refuses(of, 6, base, kind=Refused, says="integer multiples only; use ball")
    assert str(of(16, 16).entries[1]) == "1/sqrt(2)"


def test_pi_has_every_digit_of_a_kind() -> None:
    """YaRN by turns divides by 2π: between both ends of its ramp, a frequency depends on each digit."""
    scaling, width = YarnScaling(factor=8, length=LENGTH, ramp="turns"), 6

    def inside(frequency: Any) -> Any:
        kept = (frequency * LENGTH / (2 * mpmath.pi) - 1) / 31
        return frequency / 8 * (1 - kept) + frequency * kept

    with kinds.precision(BITS), mpmath.workdps(70):
        fast, between, slow = true_frequencies(width)
        wanted = [fast, inside(between), slow / 8]
        for like in (ball(), kinds.dual(kind("ball")).lift(0)):
            scaled = scaling.frequencies(functional.inverse_frequencies(width, BASE, like), BASE, 0)
            assert is_close(getattr(scaled, "value", scaled), wanted)
        assert not is_close(scaled.value, [fast, inside(between) + mpmath.mpf("1e-50"), slow / 8])
    floats = scaling.frequencies(functional.inverse_frequencies(width, BASE, np.zeros(())), BASE, 0)
    np.testing.assert_allclose(floats, [float(w) for w in wanted], rtol=1e-14)


# -- tables ------------------------------------------------------------------------------------------------------------
def test_tables_of_far_positions_in_balls() -> None:
    positions = np.array([[0, 1], [777, 131071]])
    with kinds.precision(BITS), mpmath.workdps(70):
        cos, sin = functional.tables(positions, functional.inverse_frequencies(6, BASE, ball()))
        angles = [[[int(p) * w for w in true_frequencies(6)] for p in row] for row in positions]
        assert is_close(cos, [[[mpmath.cos(a) for a in x] for x in row] for row in angles])
        assert is_close(sin, [[[mpmath.sin(a) for a in x] for x in row] for row in angles])
        assert not is_close(sin, [[[mpmath.sin(a + mpmath.mpf("1e-50")) for a in x] for x in row] for row in angles])


def test_true_angles_leave_the_exact_field() -> None:
    refuses(
        functional.tables,
        np.arange(2),
        functional.inverse_frequencies(4, 10000, kind("exact").lift(0)),
        kind=Refused,
        says="exact",
    )


def test_frequencies_need_a_number_of_columns() -> None:
    letters = kinds.Indexed.letters("x", "n", "d")
    with pytest.raises(InputError, match="a number of columns is needed; hint: give cos and sin"):
        functional.inverse_frequencies(letters.shape[-1], 10000, letters)
    refuses(functional.inverse_frequencies, 3, 10000, np.zeros(()), says="3 is not an even number")


TRIPLES = ((4, 3, 5), (-5, 12, 13), (0, 1, 1))


@pytest.mark.parametrize(("start", "n"), [(0, 6), (3, 2), (-2, 5), (-4, 1)])
def test_pythagorean_positions_are_powers(start: int, n: int) -> None:
    """e^{ipθ} = ((a + ib) / c)^p, by whole numbers alone."""
    cos, sin = functional.pythagorean_tables(n, TRIPLES, kind("exact").lift(0), start)
    for row in range(n):
        for column, (a, b, c) in enumerate(TRIPLES):
            x, y = Fraction(1), Fraction(0)
            for _ in range(abs(start + row)):
                x, y = (x * a - y * b) / c, (x * b + y * a) / c
            y = -y if start + row < 0 else y
            assert cos[row, column].item().rational() == x
            assert sin[row, column].item().rational() == y


def test_what_is_no_triple_is_refused() -> None:
    refuses(functional.pythagorean_tables, 2, [(3, 4, 6)], np.zeros(()), says="3, 4, 6 is not a Pythagorean triple")
    refuses(functional.pythagorean_tables, 2, [(0, 0, 0)], np.zeros(()), says="0, 0, 0 is not a Pythagorean triple")


# -- the rotation ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("layout", "columns"), [("half", "f+f+r"), ("interleaved", "f*2+r")])
def test_a_partial_rotation_on_letters(layout: str, columns: str) -> None:
    arrays = {"x": f"n {columns}", "cos": "n f", "sin": "n f"}
    compare(lambda x, cos, sin: functional.rotate(x, cos, sin, layout), arrays, {"n": 2, "f": 2, "r": 3})


def test_exact_scores_depend_on_the_distance_alone() -> None:
    """Moving all positions keeps q_i · k_j; turning the other way does not make it depend on less."""
    exact = kind("exact")
    q, k = (exact.lift(np.arange(12).reshape(2, 6) % 5 - start) for start in (1, 2))

    def scores(start: int, sign: int = 1) -> Any:
        cos, sin = functional.pythagorean_tables(3, TRIPLES, q, start)
        rotated_keys = functional.rotate_half(k, cos[:2], sign * sin[:2])
        return functional.dot_scores(
            functional.rotate_half(q, functional.for_queries(cos, 2), functional.for_queries(sin, 2)), rotated_keys
        )

    assert (scores(0) == scores(5)).all()
    assert (scores(0) == scores(-7)).all()
    assert not (scores(0, -1) == scores(5, -1)).all()


def test_a_table_is_the_same_for_every_head() -> None:
    table, x = np.zeros((2, 3, 4)), np.zeros((2, 5, 3, 8))
    assert functional.for_heads(table, x).shape == (2, 1, 3, 4)
    assert functional.for_heads(table[0], x).shape == (3, 4)
    assert functional.for_heads(table, x[:, 0]).shape == (2, 3, 4)


# -- absolute positions ------------------------------------------------------------------------------------------------
def test_sinusoids_in_balls() -> None:
    with kinds.precision(BITS), mpmath.workdps(70):
        found = functional.sinusoids(np.arange(3), 6, ball())
        columns = [(f, c) for c in true_frequencies(6, 10000) for f in (mpmath.sin, mpmath.cos)]
        assert is_close(found, [[f(p * w) for f, w in columns] for p in range(3)])


def test_learned_positions_on_letters() -> None:
    compare(functional.learned, {"x": "n d", "table": "n+r d"}, {"n": 2, "d": 2, "r": 1})


def test_sinusoidal_columns_alternate_and_angles_add() -> None:
    a, b = np.random.default_rng(5).normal(size=(2, 3, 4))
    x = functional.sinusoidal(np.cos(a), np.sin(a))
    np.testing.assert_allclose(x[:, 0::2], np.sin(a))
    np.testing.assert_allclose(x[:, 1::2], np.cos(a))
    cos, sin = functional.add_angles(np.cos(a), np.sin(a), np.cos(b), np.sin(b))
    np.testing.assert_allclose(cos, np.cos(a + b))
    np.testing.assert_allclose(sin, np.sin(a + b))


N, WIDTH, U = 200, 12, 2.0**-53
RNG = np.random.default_rng(5)


def enclosed(position: Rotary, n: int = N) -> dict[str, Enclosure]:
    x = {name: Enclosure.lift(RNG.standard_normal((n, WIDTH))) for name in "qkv"}
    return Attention(position=position).trace(**x)


@pytest.mark.parametrize(
    "position", [Rotary(), Rotary(base=500000, start=-7), Rotary(start=90, scaling=LinearScaling(factor=8))]
)
def test_every_entry_encloses_what_arb_gives(position: Rotary) -> None:
    values, slower = enclosed(position), 1 if position.scaling is None else 8
    with flint.ctx.workprec(200):
        for pair in range(WIDTH // 2):
            frequency = flint.arb(position.base) ** (flint.arb(-2 * pair) / WIDTH) / slower
            for p in range(N):
                exact = {
                    "sin": (frequency * (position.start + p)).sin(),
                    "cos": (frequency * (position.start + p)).cos(),
                }
                for name, x in exact.items():
                    mid, rad = (float(a[p, pair]) for a in (values[name].mid, values[name].rad))
                    assert abs(x - flint.arb(mid)) <= flint.arb(rad)


def test_radii_are_as_proved() -> None:
    frequencies = functional.inverse_frequencies(WIDTH, 10000, Enclosure.lift(np.zeros(())))
    r = max(float(table.rad.max()) for table in functional.tables(np.arange(3, 3 + N), frequencies))
    found = enclosed(Rotary(start=3))
    assert all(found[name].rad.max() <= 2 * (4.01 * r + 4 * U) for name in ("cos", "sin"))


def test_few_cosines_are_asked_of_arb(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, by_arb = [], functions._by_arb

    def counted(kind: str, name: str, a: Any) -> Any:
        asked.append(a.mid.size)
        return by_arb(kind, name, a)

    monkeypatch.setattr(functions, "_by_arb", counted)
    enclosed(Rotary(base=12345), n=256)
    assert sum(asked) <= 2 * (256 // 32 + 32) * WIDTH // 2 + WIDTH


TURNS = partial(YarnScaling, factor=8, length=LENGTH, ramp="turns")


def _long(factors: tuple[Any, ...]) -> LongRopeScaling:
    return LongRopeScaling(short=factors, long=factors, factor=1, length=LENGTH)


def test_a_scaling_in_letters() -> None:
    frequencies = functional.inverse_frequencies(4, 100, kind("symbolic").lift(0))
    half_way = YarnScaling(factor=2, length=40, fast=4, ramp="turns").frequencies(frequencies, 100, 0).entries
    turns = 40 / (2 * sympy.pi * 10)
    assert half_way[0] == 1
    assert sympy.simplify(half_way[1] - sympy.Rational(1, 20)) == 0  # it turns 2/π < 1 times
    assert turns < 1
    longer = YarnScaling(factor=2, length=126, fast=4, ramp="turns").frequencies(frequencies, 100, 0).entries
    assert sympy.N(longer[1]) > sympy.Rational(1, 20)


def test_yarn_as_written_is_not_yarn_as_it_is_run() -> None:
    """The ramp of the paper is even in the number of turns, that of the implementations in the index of the pair."""
    frequencies = functional.inverse_frequencies(128, 10000, np.zeros(()))
    written = YarnScaling(factor=16, length=4096, ramp="turns").frequencies(frequencies, 10000, 0)
    run = YarnScaling(factor=16, length=4096).frequencies(frequencies, 10000, 0)
    assert np.max(np.abs(written / run - 1)) > 0.6
    inside = (written != run) & (written != frequencies)
    assert 20 < int(np.argmax(inside)) < 46  # both leave the fast ones alone, and divide the slow ones by s
    np.testing.assert_allclose(written[46:], frequencies[46:] / 16)
    np.testing.assert_allclose(run[46:], frequencies[46:] / 16)


def test_the_range_of_the_ramp() -> None:
    def ends(width: int, length: int, **turns: int) -> tuple[list[int], list[int]]:
        """The pairs that keep their frequency, and those whose frequency is divided by 16."""
        frequencies = functional.inverse_frequencies(width, 10000, np.zeros(()))
        scaled = YarnScaling(factor=16, length=length, **turns).frequencies(frequencies, 10000, 0)
        return tuple(np.flatnonzero(scaled == frequencies / by).tolist() for by in (1, 16))  # type: ignore[return-value]

    assert ends(128, 4096) == ([*range(21)], [*range(46, 64)])
    assert ends(128, 4096, slow=32, fast=33) == ([*range(21)], [*range(21, 64)])
    assert ends(4, 8) == ([0], [1])  # nothing turns 32 times in 8 positions
    assert ends(2, 3 * 10**6) == ([0], [])  # kept below r = 2
    frequencies = functional.inverse_frequencies(6, 10000, np.zeros(()))
    scaled = YarnScaling(factor=16, length=3 * 10**7, fast=10**5).frequencies(frequencies, 10000, 0)
    # From pair 1 to r − 1 = 5, where no pair is: a quarter of the ramp at pair 2.
    np.testing.assert_allclose(scaled / frequencies, [1, 1, 1 - 15 / 64])


def test_scaling_refuses_what_makes_no_sense() -> None:
    one = functional.inverse_frequencies(2, 10000, np.zeros(()))
    refuses(NTKScaling(factor=2).frequencies, one, 10000, 0, says="infinite for r = 2")
    refuses(_long((1, 2)).frequencies, one, 10000, 0, says="a factor for each of 1 pairs; 2 were given")
    with pytest.raises(Refused, match="exact lacks π"):
        TURNS().frequencies(functional.inverse_frequencies(4, 10000, kind("exact").lift(0)), 10000, 0)


def test_dynamic_scaling_begins_after_the_trained_length() -> None:
    scaling = NTKScaling(factor=4, length=8192)
    assert [scaling.grown(n) for n in (8192, 100, 16384)] == [1, 1, 5]


def test_magnitudes() -> None:
    with kinds.precision(BITS), mpmath.workdps(70):
        yarn_16 = mpmath.log(16) / 10 + 1
        for how, wanted in (
            ({"factor": 16}, yarn_16),
            ({"factor": 16, "weight": 2}, 2 * yarn_16 - 1),
            ({"factor": 16, "weight": 2, "shared": 1}, (2 * yarn_16 - 1) / yarn_16),
            ({"factor": 1}, 1),
        ):
            assert is_close(YarnScaling(length=4096, **how).magnitude(ball())[None], [wanted])
        for factor, wanted in ((32, mpmath.sqrt(1 + mpmath.log(32) / mpmath.log(4096))), (0.5, 1)):
            scaling = LongRopeScaling(short=(1,), long=(1,), factor=factor, length=4096)
            assert is_close(scaling.magnitude(ball())[None], [wanted])


@pytest.mark.parametrize(("share", "f", "rotated"), [(0.3, 10, 3), (0.15, 20, 3), (0.7, 10, 7), (0.25, 10, 2)])
def test_a_share_of_pairs_is_that_of_its_decimal(share: float, f: int, rotated: int) -> None:
    assert ProportionalScaling(share=share).frequencies(np.ones(f), 10000, 1).sum() == rotated

"""Residues: exact arithmetic, planes that wait, generic maxima, logarithms, −∞, views, and what is refused by name."""

from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
import sympy

from symattn import Attention, Refused, Undecided, kinds
from symattn.arrays.residues.arithmetic import Modulus, ResidueExponential
from symattn.arrays.residues.primes import root
from symattn.arrays.residues.state import Plane
from tests.refusals import refuses

PAIR = kinds.prime_pairs((2, 3, 5, 7))[-1]
RNG = np.random.default_rng(7)


@pytest.fixture
def of() -> type[kinds.Modular]:
    return kinds.modular(*PAIR, seed=3)


def computed(array: kinds.Modular) -> list[bool]:
    """Which of the planes mod p and mod q have been computed."""
    state = array.state
    return [x is not None and x._compute is None for x in (state.value, state.exponent)]


# -- primes -----------------------------------------------------------------------------------------------------------
def test_pairs_are_primes_of_the_promised_form() -> None:
    known = kinds.prime_pairs()
    assert len(known) == len(set(known)) > 5000
    for p, q in Random(1).sample(known, 60):
        assert sympy.isprime(p)
        assert sympy.isprime(q)
        assert p == 2 * q + 1
        assert p % 4 == q % 4 == 3
        assert 1 << 22 < p < 1 << 23


def test_no_pair_is_left_out() -> None:
    top = [(2 * q + 1, q) for q in range((1 << 22) - 1, (1 << 22) - 3000, -4) if sympy.isprime(q)]
    assert [pair for pair in kinds.prime_pairs() if pair[1] > (1 << 22) - 3000] == sorted(
        pair for pair in top if sympy.isprime(pair[0])
    )


def test_roots_multiply_and_square_to_the_number() -> None:
    for m in PAIR:
        for n in (1, 2, 3, 6, 12, 35, 60, 64, 0):
            assert pow(root(n, m), 2, m) == n % m
        assert root(6, m) == root(2, m) * root(3, m) % m


def test_a_prime_without_a_root_is_named() -> None:
    pair = next(pair for pair in kinds.prime_pairs() if not kinds.has_root(11, pair[1]))
    with pytest.raises(kinds.NoRoot, match=r"11 has no square root mod \d+; draw the primes with roots=\(11,\)") as e:
        root(44, pair[1])
    assert e.value.prime == 11
    assert pair not in kinds.prime_pairs((11,))


def test_pairs_are_drawn_without_repetition_and_not_beyond_what_there_is() -> None:
    drawn = kinds.draw_primes(50, Random(2))
    assert len(set(drawn)) == 50
    assert kinds.draw_primes(50, Random(2)) == drawn
    refuses(kinds.draw_primes, 10**4, Random(2), says="pairs of primes with roots of")


@pytest.mark.parametrize("pair", [(7, 3), (4194319, 2097159), PAIR[::-1]])
def test_other_pairs_are_refused(pair: tuple[int, int]) -> None:
    refuses(kinds.modular, *pair, says="no pair of primes p = 2q")


# -- arithmetic -------------------------------------------------------------------------------------------------------
def test_residues_stay_small_and_right_at_the_edges() -> None:
    m = Modulus(PAIR[0])
    edge = np.array([2.0**52 - 1, -(2.0**52) + 1, 0, 1, m.m, m.m // 2, -(m.m // 2) - 1, 3 * m.m + 5])
    wanted = [int(x) % m.m for x in edge]
    reduced = m.reduced(edge.copy())
    assert (np.abs(reduced) <= m.m / 2 + 4).all()
    assert m.canonical(reduced).tolist() == wanted


@pytest.mark.parametrize("shape", [(), (0,), (3,), (65,), (129,), (7, 50), (40, 1000), (2, 3, 70000)])
def test_arithmetic_agrees_with_integers(shape: tuple[int, ...]) -> None:
    m = Modulus(PAIR[0])
    x, y = (RNG.integers(-(m.m // 2), m.m // 2 + 1, shape) for _ in range(2))
    a, b = (np.asarray(z, dtype=float) for z in (x, y))
    assert (m.canonical(m.add(a, b)) == (x + y) % m.m).all()
    assert (m.canonical(m.multiply(a, b)) == x * y % m.m).all()
    inverse = m.inverse(a)
    assert (m.canonical(m.multiply(inverse[a != 0], a[a != 0])) == 1).all()


def test_exp_is_a_power_of_one_generator_of_order_q() -> None:
    p, q = PAIR
    g = pow(5, 2, p)
    power = ResidueExponential(Modulus(p), q, g)
    s = np.concatenate([[0, 1, q // 2 + 4, -q // 2 - 4, -1, 2047, 2048], RNG.integers(-q // 2, q // 2, 300)])
    assert Modulus(p).canonical(power(s.astype(float))).tolist() == [pow(g, int(x) % q, p) for x in s]
    assert np.isnan(power(np.array([np.nan, 1.0])).tolist()).tolist() == [True, False]
    assert pow(g, q, p) == 1


# -- planes that wait -------------------------------------------------------------------------------------------------
def test_scores_are_not_computed_mod_p_nor_values_mod_q(of: type[kinds.Modular]) -> None:
    q, k, v = of.lift(RNG.integers(-2, 3, (6, 4))), of.letters(9, 4), of.letters(9, 3)
    steps = Attention(causal=True).trace(q, k, v)
    steps["output"].residues()
    assert [computed(steps[name]) for name in ("scores", "scaled", "v")] == [
        [False, True],
        [False, True],
        [True, False],
    ]


def test_masking_and_shifting_in_place_compute_nothing(of: type[kinds.Modular]) -> None:
    s = of.letters(8, 4) @ of.letters(4, 8)
    s[np.triu(np.ones((8, 8), dtype=bool), 1)] = -np.inf
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    assert computed(s) == [False, False]
    assert (s.residues() != 0).sum() == 36


@pytest.mark.deep
def test_a_long_chain_of_waiting_planes_does_not_exhaust_the_stack(of: type[kinds.Modular]) -> None:
    total = step = of.letters(2)
    for _ in range(5000):
        total = total + step
    assert (total == 5001 * step).all()


def test_a_plane_keeps_its_value_when_another_array_is_written_on_it() -> None:
    plane = Plane(np.zeros(3))
    later = Plane.after(lambda x: x + 1, plane)
    new = plane.overwritten(lambda x: x.__setitem__(0, 7.0))
    assert new is not plane
    assert (later.value == 1).all()
    alone = Plane(np.zeros(3))
    assert alone.overwritten(lambda x: x.__setitem__(0, 7.0)) is alone
    seen = Plane.after(lambda x: x[:2], alone, owned=False)
    assert seen.value[0] == 7
    assert alone.overwritten(lambda x: x.__setitem__(0, 8.0)) is not alone
    assert seen.value[0] == 7


def test_every_plane_holds_small_residues(of: type[kinds.Modular]) -> None:
    """Of arrays without axes too, for which NumPy hands back bare numbers."""
    top = PAIR[0] - 1
    x = of.lift(top)
    made = [
        x,
        x + x,
        x * x,
        np.exp(x),
        np.log(np.exp(x)),
        x / 3,
        of.lift([top, top]).sum(),
        of.letters(1)[0],
        np.sqrt(of.lift(12)),
    ]
    for array in made:
        for plane, m in zip(_planes(array), PAIR, strict=True):
            assert plane is None or (isinstance(plane, np.ndarray) and (np.abs(plane) <= m / 2 + 4).all())


def _planes(array: kinds.Modular) -> list[Any]:
    state = array.state
    return [x if x is None else x.value for x in (state.value, state.exponent)]


# -- views and assignment ---------------------------------------------------------------------------------------------
def test_forbidding_through_a_view_is_seen_in_the_array(of: type[kinds.Modular]) -> None:
    for view in (
        lambda z: z[0],
        lambda z: z.reshape(-1),
        lambda z: z.T[:, 0],
        lambda z: z[::-1][2, :],
        lambda z: z[:1],
    ):
        z = of.letters(3, 4)
        w = view(z)
        w[..., 1] = -np.inf
        assert np.isneginf(z)[0, 1]
        assert np.isneginf(z).sum() == 1
        assert np.isneginf(w).sum() == 1


def test_a_view_made_before_sees_what_comes_after(of: type[kinds.Modular]) -> None:
    z = of.letters(3, 4)
    before = z[1]
    z[1, 2] = -np.inf
    assert np.isneginf(before).tolist() == [False, False, True, False]
    z[1] = 5
    assert (before == 5).all()


def test_a_number_that_is_written_over_is_still_that_number_elsewhere(of: type[kinds.Modular]) -> None:
    for index in (..., ()):
        two = of.lift(2)
        two[index] = 5
        assert two == 5
        assert of.lift(2) + of.lift(2.0) == 4


def test_an_index_that_changes_later_changes_nothing(of: type[kinds.Modular]) -> None:
    z, index, mask = of.letters(4), np.array([0, 1]), np.array([True, False, False, True])
    picked, chosen = z[index], np.where(mask, z, 0)
    index[:], mask[:] = 3, False
    assert (picked == z[:2]).all()
    assert (chosen == z)[[0, 3]].all()


def test_values_written_over_half_an_exponent_leave_no_exponent(of: type[kinds.Modular]) -> None:
    z = of.letters(4)
    z[1:] = np.exp(of.letters(3))
    assert z.residues().shape == (4,)
    refuses(np.exp, z, kind=Refused, says="modular: an exponential or a quotient of data inside an exponent")


# -- maxima -----------------------------------------------------------------------------------------------------------
def test_a_maximum_is_none_of_the_arguments(of: type[kinds.Modular]) -> None:
    s = of.letters(40, 6)
    top, pair = s.max(axis=-1, keepdims=True), np.maximum(s, s[:, ::-1])
    assert not (top == s).any()
    assert not (pair == s).any()
    assert (np.maximum(of.lift(2), 3) == 3).all()  # but of known numbers the true one


def test_the_same_numbers_have_the_same_maxima(of: type[kinds.Modular]) -> None:
    s = of.letters(4, 6)
    first = s.max(axis=-1)
    assert (s.max(axis=-1) == first).all()
    assert (np.max(s) == np.max(s.copy())).all()
    assert (s[:, ::-1].max(axis=-1) == first).all()  # in another order
    assert (np.max(s) == first.max()).all()  # of all rows at once, or row by row
    tiles = [s[:, at : at + 4] for at in (0, 4)]
    assert (np.maximum(*(tile.max(axis=-1) for tile in tiles)) == first).all()
    assert (np.maximum(first, first) == first).all()
    s[0, 0] = 1
    assert (s.max(axis=-1) == first).tolist() == [False, True, True, True]


def test_maxima_of_other_numbers_differ(of: type[kinds.Modular]) -> None:
    s, top = of.letters(4, 6), lambda x: x.max(axis=-1)
    whole = top(s)
    assert not (whole == s.T).any()  # no maximum is one of its arguments
    assert not (top(s[:, :5]) == whole).any()
    assert not (top(np.concatenate([s, of.lift(np.zeros((4, 1)))], -1)) == whole).any()
    assert not (top(-s) == -whole).any()
    assert not (top(2 * s) == 2 * whole).any()  # a negative factor would make it false
    assert not (np.maximum(whole, -whole) == whole).any()
    masked = np.where(np.arange(6) < 5, s, -np.inf)
    assert (top(masked) == top(s[:, :5])).all()  # −∞ is the largest of nothing alone


def test_a_running_maximum_in_a_buffer_is_that_of_the_whole(of: type[kinds.Modular]) -> None:
    s = of.letters(4, 6)
    m = of.xp.full((4,), -np.inf)
    for tile in (s[:, :2], s[:, 2:5], s[:, 5:]):
        m[...] = np.maximum(m, tile.max(axis=-1))
    assert (m == s.max(axis=-1)).all()
    rows = of.xp.full((4,), -np.inf)
    for i in range(4):
        rows[i] = np.maximum(s[i, :3].max(), s[i, 3:].max())
    assert (rows == s.max(axis=-1)).all()


def test_the_maximum_of_forbidden_scores_is_forbidden(of: type[kinds.Modular]) -> None:
    s = np.where(np.tri(3, 3, -1, dtype=bool), of.letters(3, 3), -np.inf)
    assert np.isneginf(s.max(axis=-1)).tolist() == [True, False, False]
    assert np.isneginf(np.maximum(s, s.T)).tolist() == np.eye(3, dtype=bool).tolist()


def test_softmax_does_not_depend_on_the_maximum_and_a_missing_rescale_shows(of: type[kinds.Modular]) -> None:
    s, v = of.letters(3, 6), of.letters(6, 2)
    direct = (np.exp(s) / np.exp(s).sum(-1, keepdims=True)) @ v

    def online(rescaled: bool) -> Any:
        m = s[:, :3].max(-1, keepdims=True)
        o, z = np.exp(s[:, :3] - m) @ v[:3], np.exp(s[:, :3] - m).sum(-1, keepdims=True)
        new = np.maximum(m, s[:, 3:].max(-1, keepdims=True))
        r = np.exp(m - new)
        p = np.exp(s[:, 3:] - new)
        return ((o * r if rescaled else o) + p @ v[3:]) / (z * r + p.sum(-1, keepdims=True))

    assert (online(True) == direct).all()
    assert not (online(False) == direct).any()


# -- logarithms, −∞, undefined ----------------------------------------------------------------------------------------
def test_log_sum_exp_is_taken_back_by_exp(of: type[kinds.Modular]) -> None:
    s = of.letters(3, 5)
    m = s.max(-1, keepdims=True)
    lse = m + np.log(np.exp(s - m).sum(-1, keepdims=True))
    weights = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
    assert (np.exp(s - lse) == weights).all()
    assert (lse == np.log(np.exp(s).sum(-1, keepdims=True))).all()
    assert not (lse == m).any()
    assert repr(lse).startswith("modular(logarithms")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda lse: lse * 2, "a logarithm times anything but 1, -1"),
        (lambda lse: lse.sum(), "a sum over a logarithm"),
        (lambda lse: lse / 2, "a quotient with a logarithm"),
        (lambda lse: np.tanh(lse), "tanh of a logarithm"),
        (lambda lse: np.log(lse), "log of a logarithm"),
        (lambda lse: lse.residues(), "a logarithm has no value"),
        (lambda lse: lse[None] @ lse[:, None], "a logarithm in a product of matrices"),
    ],
)
def test_nothing_but_exp_takes_a_logarithm(program: Any, words: str, of: type[kinds.Modular]) -> None:
    with pytest.raises(Refused, match=f"modular: {words}"):
        program(np.log(np.exp(of.letters(3))))


def test_a_logarithm_of_0_is_forbidden(of: type[kinds.Modular]) -> None:
    e = np.where([True, False, True], np.exp(of.letters(3)), 0)
    logs = np.log(e)
    assert np.isneginf(logs).tolist() == np.isneginf(logs / np.log(of.lift(2))).tolist() == [False, True, False]
    assert (np.exp(logs) == e).all()
    assert (np.exp(logs - np.log(e.sum())) == e / e.sum()).all()
    assert not (np.exp(logs + 1) == e)[[0, 2]].any()
    assert np.isneginf(of.letters(2, 2) + np.log(of.lift(np.tri(2)))).tolist() == [[False, True], [False, False]]
    assert np.isnan(np.log(of.lift(0) / of.lift([0, 1]))).tolist() == [True, False]
    refuses(lambda: -logs, kind=Refused, says="a logarithm times anything but 1")


def test_forbidden_scores_obey_the_rules(of: type[kinds.Modular]) -> None:
    s = np.where([True, False], of.letters(2), -np.inf)
    assert np.isneginf(s + 1).tolist() == np.isneginf(s * 0.125).tolist() == [False, True]
    assert np.isneginf(s / np.sqrt(of.lift(7))).tolist() == [False, True]
    assert np.exp(s).residues()[1] == 0
    assert (s == s).all()
    assert not (s == 0)[1]
    for wrong in (lambda: -s, lambda: s * of.letters(2), lambda: s.sum(), lambda: 1 / s, lambda: s[None] @ s[:, None]):
        refuses(wrong, kind=Refused, says="-inf")


def test_zero_over_zero_is_an_element_that_equals_nothing(of: type[kinds.Modular]) -> None:
    e = np.exp(np.where(np.array([[True], [False]]), of.letters(2, 3), -np.inf))
    weights = e / e.sum(-1, keepdims=True)
    assert np.isnan(weights).tolist() == [[False] * 3, [True] * 3]
    assert (weights == weights).tolist() == [[True] * 3, [False] * 3]
    assert weights.residues()[1].tolist() == [-2] * 3
    assert (np.isnan(weights @ of.letters(3, 2)) == [[False], [True]]).all()
    assert (of.xp.where(np.isnan(weights), 0, weights)[1] == 0).all()


# -- literals, data, what is undecided -----------------------------------------------------------------------------
def test_sentinels_are_read_where_masks_are_written_and_noted(of: type[kinds.Modular]) -> None:
    s, keep = of.letters(2, 2), np.eye(2, dtype=bool)
    with kinds.listening() as notes:
        masked = np.where(keep, s, np.finfo(np.float32).min)
        by_arithmetic = s + (1.0 - of.literal_array(keep.astype(float))) * -1e9
        data = of.lift([-1e9, 1.0])
    assert (np.isneginf(masked) == ~keep).all()
    assert (np.isneginf(by_arithmetic) == ~keep).all()
    assert not np.isneginf(data).any()
    assert notes == [
        "the literal -3.4028234663852886e+38 was read as -inf",
        "the literal -1000000000.0 was read as -inf",
    ]


@pytest.mark.parametrize("data", [[np.nan], [np.inf], [-np.inf], [[1, 2], [3]], ["a"], [1j]])
def test_bad_data_is_refused(data: Any, of: type[kinds.Modular]) -> None:
    refuses(of.lift, data, says="modular: ")


def test_numbers_are_taken_exactly(of: type[kinds.Modular]) -> None:
    p = PAIR[0]
    assert of.lift([Fraction(1, 3), 2, -5]).residues().tolist() == [pow(3, -1, p), 2, p - 5]
    assert of.lift(0.1).residues() == Fraction(0.1).numerator * pow(Fraction(0.1).denominator, -1, p) % p
    assert of.lift(np.array([255], dtype=np.uint8)).residues()[0] == 255
    assert of.lift(np.array([2**63 + 1], dtype=np.uint64)).residues()[0] == (2**63 + 1) % p
    assert of.lift(2.0**60 + 2.0**10).residues() == (2**60 + 2**10) % p
    assert of.lift([of.lift(1), of.lift([1, 2])[1]]).residues().tolist() == [1, 2]


def test_a_number_without_a_residue_is_refused(of: type[kinds.Modular]) -> None:
    with pytest.raises(Refused, match=f"modular: 1/{PAIR[0]} has no residue mod {PAIR[0]}"):
        (of.letters(2) / PAIR[0]).residues()
    refuses(of.lift(Fraction(1, PAIR[0])).residues, kind=Refused, says="has no residue")


def test_other_functions_are_any_function_but_functions(of: type[kinds.Modular]) -> None:
    x = of.letters(50)
    with kinds.listening() as notes:
        y = np.tanh(x + x)
    assert notes == ["tanh stands for any function of its argument"]
    assert (y == np.tanh(2 * x)).all()
    assert len(set(y.tolist())) == 50
    assert not (y == np.sin(2 * x)).any()
    other = kinds.modular(*PAIR, seed=4)
    assert np.tanh(other.lift(1)).residues() != np.tanh(of.lift(1)).residues()


def test_an_order_is_told_only_where_it_is_known(of: type[kinds.Modular]) -> None:
    z = np.exp(of.letters(3)).sum()
    assert z > 0
    assert not z < 0
    assert of.lift(2) < 3
    assert (np.where([True, False], of.letters(2), -np.inf) > -np.inf).tolist() == [True, False]
    for undecided in (lambda: of.letters(3) > 0, lambda: z > 1, lambda: np.argmax(of.letters(3))):
        refuses(undecided, kind=Undecided, says="modular: residues have no order")


def test_elements_are_not_rounded(of: type[kinds.Modular]) -> None:
    x = of.letters(3)
    for wrong in (lambda: float(x[0]), lambda: np.asarray(x)):
        refuses(wrong, kind=Refused, says="modular: ")


def test_two_points_do_not_mix() -> None:
    a, b = kinds.modular(*PAIR, seed=1), kinds.modular(*PAIR, seed=2)
    with pytest.raises(Refused, match="mixed kinds"):
        a.letters(2) + b.letters(2)
    assert not (a.xp.exp(a.lift(1)).residues() == b.xp.exp(b.lift(1)).residues()).all()
    assert (
        kinds.modular(*PAIR, seed=1).letters(5).residues() == kinds.modular(*PAIR, seed=1).letters(5).residues()
    ).all()


def test_a_product_over_no_axis_and_of_no_keys(of: type[kinds.Modular]) -> None:
    assert (of.letters(2, 0) @ of.letters(0, 3) == 0).all()
    assert (of.letters(2, 0).sum(-1) == 0).all()
    refuses(of.letters(2, 0).max, -1, says="max over an empty axis")

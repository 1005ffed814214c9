"""``enclosure``: what is exact, what is forbidden, undefined and open, what is decided, and how narrow it is."""

from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest

from symattn import Attention, Refused, Undecided, kind, kinds, vjp
from symattn.arrays.enclosing import bounds, elementwise, functions
from symattn.arrays.enclosing.work import EnclosedWork
from tests.arrays.conformance import check
from tests.arrays.kinds import outside, specimens
from tests.arrays.operations import TABLE
from tests.refusals import refuses

Ball = kind("ball")
Enclosure = kind("enclosure")

xp = Enclosure.xp
INF = np.inf
#: The unit roundoff of float64.
U = 2.0**-53


def interval(*ends: tuple[float, float]) -> Enclosure:
    """Numbers in these intervals."""
    low, high = np.array(ends).T
    return Enclosure((low + high) / 2, (high - low) / 2)


# -- numbers in and out -----------------------------------------------------------------------------------------------
def test_floats_are_exact_and_other_numbers_enclosed() -> None:
    x = Enclosure.lift([0.1, 5e-324, 2**53])
    assert not x.rad.any()
    y = Enclosure.lift([Fraction(1, 3), "1/7", 2**53 + 1, flint.arb(1).exp()])
    assert ((y.rad > 0) & (y.rad < 2 * U * y.mid)).all()
    with kinds.precision(200):
        assert outside(y, Ball.lift([Fraction(1, 3), "1/7", 2**53 + 1, flint.arb(1).exp()])).outside == 0


def test_wide_integers_in_arrays_are_enclosed_too() -> None:
    wide = Enclosure.lift(np.array([2**62 + 1]))
    assert wide.rad.item() >= 1
    assert wide.balls().item().contains(2**62 + 1)


def test_arrays_in_lists_are_stacked() -> None:
    x = Enclosure.lift([1.0, 2.0]) / 3
    stacked = xp.asarray([x[0], x[1], 1])
    assert stacked.rad.tolist() == [*x.rad.tolist(), 0]
    assert xp.asarray([[x[0]], [x[1]]]).shape == (2, 1)


def test_ends_are_rounded_outward() -> None:
    third = Enclosure.lift(1) / Enclosure.lift(3)
    low, high = (Fraction(float(end)) for end in (third.low, third.high))
    assert low < Fraction(1, 3) < high
    assert high - low < Fraction(1, 2**51)
    whole = Enclosure.lift([2.0])
    assert whole.low == whole.high == 2


def test_which_floats_may_be_the_value() -> None:
    third = Enclosure.lift(1) / Enclosure.lift(3)
    assert third.may_be(1 / 3)
    assert not third.may_be(1 / 3 + 1e-15)
    masked = xp.where([True, False], Enclosure.lift([1.0, 1.0]), -INF)
    assert masked.may_be([1.0, -INF]).all()
    assert not masked.may_be([-INF, 1.0]).any()
    assert (Enclosure.lift([0.0]) / Enclosure.lift([0.0])).may_be(np.nan).all()
    assert not Enclosure.lift([0.0]).may_be(np.nan).any()


def test_what_cannot_be_held_is_refused() -> None:
    refuses(Enclosure.lift, [np.nan], says="enclosure: nan in the data")
    refuses(Enclosure.lift, np.zeros(2, dtype=np.longdouble), says="cannot be taken exactly")
    refuses(Enclosure._unary, "gamma", Enclosure.lift(1), kind=Refused, says="enclosure lacks gamma")


@pytest.mark.torch
def test_a_processor_that_flushes_subnormal_numbers_is_refused() -> None:
    import torch

    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    try:
        refuses(Enclosure.lift, [1.0], kind=Refused, says="subnormal numbers are flushed")
    finally:
        torch.set_flush_denormal(False)
    assert Enclosure.lift([1.0]).mid.item() == 1


# -- exact where floats are ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "work",
    [
        lambda x: x + 0.25,
        lambda x: x * 3 - 1.5,
        lambda x: x / 4,
        lambda x: 0 * x,
        lambda x: -x,
        lambda x: x @ np.array([[1.0, 0.5], [2, 3]]),
        lambda x: x.sum(),
        lambda x: x.max(axis=-1),
        lambda x: xp.sqrt(x * x),
        lambda x: x / xp.asarray([[0.5, 3.0]]) * 0,
        lambda x: (x * 6) / 3,
    ],
)
def test_what_is_exact_in_floats_has_no_radius(work: Any) -> None:
    assert not work(Enclosure.lift([[1.0, 0.5], [-3.0, 2.0]])).rad.any()


def test_grids() -> None:
    assert bounds.grid(np.array([0.75, 3.0, 0.0])) == 0.25
    assert bounds.grid(np.array([0.0])) == INF
    assert bounds.grid(np.array([5e-324, 1.0])) == 5e-324
    assert bounds.grid(np.array([-3 * 2.0**70])) == 2.0**70


def test_blocks_cover_an_array_once() -> None:
    for shape in ((), (0,), (7,), (3, 5), (2, 3, 50), (100000,), (3, 20000), (0, 4), (4, 0)):
        count = np.zeros(shape)
        for b in bounds.blocks(shape, 32):
            count[b] += 1
        assert (count == 1).all()


def test_sums_longer_than_is_bounded_are_refused() -> None:
    assert bounds.gamma(bounds.LONGEST) < 2.0**-32
    refuses(bounds.gamma, bounds.LONGEST + 1, kind=Refused, says="no more than 1048576")


# -- forbidden, undefined, open ---------------------------------------------------------------------------------------
def test_a_divisor_that_may_be_zero_leaves_an_element_open_and_its_neighbours_alone() -> None:
    q = Enclosure.lift([1.0, 1.0, 1.0]) / interval((-1, 2), (1, 2), (0, 0))
    assert q.rad[0] == INF
    assert q.rad[1] < 1
    assert not np.isfinite(q.mid[[0, 2]]).any()
    assert np.isnan(q[1:]).tolist() == [False, True]
    refuses(np.isnan, q, kind=Undecided, says="divisor may be zero")
    with pytest.raises(Undecided):
        q[:1] < 1  # noqa: B015
    assert "perhaps 0/0" in repr(q)
    later = xp.exp(q * 2 + 1) @ xp.ones((3, 1))
    assert np.isnan(later.mid).all()


def test_undefined_and_open_elements_stay_so() -> None:
    undefined = Enclosure.lift([0.0]) / Enclosure.lift([0.0])
    opened = Enclosure.lift([1.0]) / interval((-1, 1))
    for work in (
        lambda x: x + 1, lambda x: x * 0, lambda x: 2 / x, lambda x: -x, lambda x: xp.exp(x), lambda x: xp.tanh(x),
        lambda x: xp.sqrt(x), lambda x: xp.log(x), lambda x: xp.maximum(x, 1), lambda x: x.max(), lambda x: x.sum(),
        lambda x: x @ xp.zeros((1, 2)), lambda x: x - xp.exp(x), lambda x: xp.erf(x), lambda x: x / 8,
    ):  # fmt: skip
        for given, rad in ((undefined, 0), (opened, INF)):
            found = work(given)
            assert np.isnan(found.mid).all()
            assert (found.rad == rad).all(), rad
    both = undefined + opened
    assert np.isnan(both).all()


def test_overflow_leaves_a_number_of_which_nothing_is_known() -> None:
    x = Enclosure.lift([1e300, 1.0])
    for found in (x * x, x * 1e300, x / 1e-300, xp.exp(x), x * 2.0**1000, x + x * 1e8 * 1e8):
        assert found.rad[0] == INF
        assert np.isfinite(found.mid).all()
        assert not np.isnan(found).any()
        assert found.may_be([-7.0, 0.0])[0]
    assert np.isfinite((x * x).rad[1])
    product = x[:, None] @ x[None, :]
    assert (product.rad == INF).tolist() == [[True, False], [False, False]]
    assert (xp.tanh(x * x).rad <= 1).all()


def test_radii_that_underflow_before_they_are_multiplied() -> None:
    """γ|C_a| is 0 for such a small C_a, and the error of the product is not."""
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((3, 5)) * 1e-310, rng.standard_normal((5, 4)) * 1e300
    got = Enclosure.lift(a) @ Enclosure.lift(b)
    with kinds.precision(2200):
        found = outside(got, Ball.lift(a) @ Ball.lift(b))
    assert (found.outside, found.compared) == (0, 12)
    assert got.rad.max() < 1e-20


def test_radii_of_small_exponentials_do_not_underflow() -> None:
    x = Enclosure.lift(-699 + np.arange(60) / 8)
    e = xp.exp(x)
    for c, r in zip(e.mid.tolist(), e.rad.tolist(), strict=True):
        assert Fraction(r) >= Fraction(c) * Fraction(functions.EPSILON)


def test_roots_of_what_may_be_negative() -> None:
    refuses(xp.sqrt, Enclosure.lift([4.0, -1.0]), kind=Refused, says="sqrt of the negative number -1")
    refuses(xp.log, Enclosure.lift([-1.0]), kind=Refused, says="log of the negative number")
    root = xp.sqrt(interval((-1, 2), (1, 4)))
    assert root.rad[0] == INF
    assert root.low[1] <= 1
    assert root.high[1] >= 2
    assert xp.log(interval((-1, 2), (0, 1))).rad.tolist() == [INF, INF]


def test_minus_infinity_times_what_may_be_negative_is_refused() -> None:
    masked = xp.where([True, False], Enclosure.lift([1.0, 1.0]), -INF)
    for by in (interval((-1, 2)), 0, -2):
        with pytest.raises(Refused, match="-inf"):
            masked * by
    with pytest.raises(Refused, match="-inf"):
        masked / interval((-1, 2))
    assert np.isneginf(masked * interval((0.5, 2))).tolist() == [False, True]
    assert np.isneginf(masked / 8).tolist() == [False, True]


# -- comparisons ------------------------------------------------------------------------------------------------------
def test_intervals_that_overlap_are_not_ordered_and_not_compared() -> None:
    third = Enclosure.lift([1.0]) / 3
    again = 1 - Enclosure.lift([2.0]) / 3
    for compare in (
        lambda: third < again, lambda: third <= again, lambda: third == again,
        lambda: third == third, lambda: interval((0, 2)) == 1, lambda: xp.argsort(xp.concat([third, again])),
    ):  # fmt: skip
        with pytest.raises(Undecided, match=r"enclosure: is .* ± .* [<=] .*\?"):
            compare()
    assert (third < 0.34).all()
    assert (third != 0.34).all()
    assert not (third > again + 1e-9).any()


# -- what rows have in common -----------------------------------------------------------------------------------------
def test_the_radius_of_what_is_subtracted_from_a_row_cancels() -> None:
    s = Enclosure.lift(np.random.default_rng(0).standard_normal((5, 8)))
    exact, wide = s.max(axis=-1, keepdims=True), s.max(axis=-1, keepdims=True) + interval((-0.5, 0.5))

    def weights(m: Any) -> Any:
        e = xp.exp(s - m)
        return e, e / e.sum(axis=-1, keepdims=True), (e @ s.T) / xp.sum(e, axis=-1, keepdims=True)

    for narrow, loose in zip(weights(exact)[1:], weights(wide)[1:], strict=True):
        assert (loose.rad < 4 * narrow.rad + 1e-15).all()
    e = weights(wide)[0]
    assert (e.rad > 0.3 * e.mid).all()
    assert (e.low <= e.mid * np.exp(-0.5)).all()
    assert (e.high >= e.mid * np.exp(0.5)).all()


def test_what_is_in_common_is_settled_where_elements_are_read_moved_or_written() -> None:
    s, m = Enclosure.lift([[1.0, 2.0, 3.0]]), interval((2.5, 3.5))[None]
    shifted = s - m
    for read in (shifted.copy(), shifted[:, ::-1], shifted * 1, xp.where(True, shifted, 0), shifted + 0, shifted.mT):
        assert (read.rad >= 0.5).all()
    assert (xp.exp(shifted).T.rad > 0.3 * xp.exp(shifted).T.mid).all()
    view = shifted[:, 1:]
    view[...] = 7
    assert shifted.high[0, 1:].tolist() == [7, 7]
    assert shifted.rad[0, 0] >= 0.5
    view[...] = interval((0, 1), (2, 3))
    assert xp.exp(shifted).high[0, 2] > 20
    assert (shifted @ xp.ones((3, 1))).rad >= 1.5
    other = s - m
    shifted = s - m
    e, z = xp.exp(shifted), xp.exp(other).sum(axis=-1, keepdims=True)
    assert ((e / z).rad > 0.3 * (e / z).mid).all()


def test_only_the_same_factor_cancels() -> None:
    """e^x/x for x = s − m: what the exponents have in common as a factor, x has as a summand."""
    s, m = Enclosure.lift([[1.0, 2.0, 3.0]]), interval((22.5, 23.5))[None]
    x = s - m
    e = xp.exp(x)
    for t in (-0.5, 0.0, 0.5):
        true = np.exp(s.mid - 23 - t)
        assert (e / x).may_be(true / (s.mid - 23 - t)).all()
        assert (e / xp.exp(s - m)).may_be(np.exp(np.array([t]))).all()
    assert ((e / e).rad < 1e-14).all()


def test_a_masked_row_keeps_what_it_has_in_common_apart_from_minus_infinity() -> None:
    s = xp.where([[True, False, True]], Enclosure.lift([[0.5, 1.0, 2.0]]), -INF)
    shifted = s - (xp.max(s, axis=-1, keepdims=True) + interval((-1, 1)))
    assert np.isneginf(shifted).tolist() == [[False, True, False]]
    assert shifted.rad.tolist()[0][1] == 0
    e = xp.exp(shifted)
    assert (e.mid[0, 1], e.rad[0, 1]) == (0, 0)


# -- products ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 255, 513, 1100])
def test_long_sums_are_made_of_runs(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((3, n)), rng.standard_normal((n, 2))
    with kinds.precision(200):
        found = outside(Enclosure.lift(a) @ Enclosure.lift(b), Ball.lift(a) @ Ball.lift(b))
        assert (found.outside, found.compared) == (0, 6)
        for axis in (0, 1):
            assert outside(Enclosure.lift(a).sum(axis=axis), Ball.lift(a).sum(axis=axis)).outside == 0
    assert (Enclosure.lift(a) @ Enclosure.lift(b)).rad.max() <= bounds.gamma(min(n, 300) + 2) * (
        np.abs(a) @ np.abs(b)
    ).max() * 1.01


def test_products_of_intervals_around_zero_are_their_radii() -> None:
    around = Enclosure(np.zeros((2, 3)), np.ones((2, 3)))
    for product, most in ((around * around, 1), (around @ around.T, 3)):
        assert ((product.rad >= most) & (product.rad < most * 1.001)).all()
    large = Enclosure(np.zeros((90, 60)), np.ones((90, 60)))
    assert ((large * large).rad >= 1).all()


def test_values_far_too_large_where_weights_are_zero_do_no_harm() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((6, 4)) for _ in range(3))
    poisoned_k, poisoned_v = k.copy(), v.copy()
    poisoned_k[-1], poisoned_v[-1] = 1e30, -1e30
    allowed = np.ones((6, 6), dtype=bool)
    allowed[:, -1] = False
    clean = Attention()(*map(Enclosure.lift, (q, k[:-1], v[:-1])))
    masked = Attention(mask="boolean")(*map(Enclosure.lift, (q, poisoned_k, poisoned_v)), mask=allowed)
    assert np.isfinite(masked.rad).all()
    assert (masked.rad < 4 * clean.rad + 1e-14).all()


@pytest.mark.parametrize("size", [1e15, 1e18, 1e300])
def test_rows_of_which_nothing_can_be_said_do_not_stop_the_others(size: float) -> None:
    """Sums of exponentials are not 0, however wide, and 0 where all is masked."""
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((4, 3)) for _ in range(3))
    q[0] *= size
    allowed = np.array([[True] * 4, [False] * 4, [True, False] * 2, [True] * 4])
    spec = Attention(mask="boolean", scale=1)
    out, calm = (spec(*map(Enclosure.lift, (x, k, v)), mask=allowed) for x in (q, rng.standard_normal((4, 3))))
    assert out.rad[0].max() > 1
    assert not out.mid[1].any()
    assert (out.rad[1] < 1e-300).all()
    assert (out.rad[2:] < 1e-14).all()
    assert (calm.rad < 1e-14).all()
    e = xp.exp(Enclosure(np.zeros((1, 2)), np.full((1, 2), 400.0)))
    assert not (e == 0).any()
    e[0, 0] = 0
    assert (e[:, :1] == 0).all()
    with pytest.raises(Undecided):
        e == 0  # noqa: B015


def test_radii_are_narrow_for_normal_inputs() -> None:
    """A hundredth of what a float32 can tell apart, and more: 1e-5 of its units."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((256, 64)) for _ in range(3))
    out = Attention(causal=True)(*map(Enclosure.lift, (q, k, v)))
    assert np.median(out.rad) < 1e-5 * 2.0**-23
    grads = vjp(Attention(), Enclosure.lift(v), {n: Enclosure.lift(x) for n, x in zip("qkv", (q, k, v), strict=True)})
    assert all(np.median(x.rad) < 1e-5 * 2.0**-23 * 10 for x in grads.values())


# -- work that waits --------------------------------------------------------------------------------------------------
@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all arrays were large: cheap work on them waits until it is read."""
    monkeypatch.setattr(elementwise, "LATER", 0)
    monkeypatch.setattr(elementwise, "FEW", 0)


@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize("name", TABLE)
def test_work_that_waits_gives_what_is_asked_of_every_kind(name: str) -> None:
    for case in TABLE[name]:
        check(case, specimens()["enclosure"])


@pytest.mark.usefixtures("waiting")
def test_work_that_waits_does_not_see_later_changes() -> None:
    for write in (_all_of_it, _through_a_view, _through_a_transpose, _in_place):
        s = Enclosure.lift([[1.0, 2.0, 4.0], [0.5, 3.0, 1.0]]) + 0.0
        halves = s * 0.5
        shifted = halves - interval((0.9, 1.1), (1.9, 2.1))[:, None]
        thirds = halves / xp.asarray([[3.0], [3.0]])
        assert all(isinstance(x._content, EnclosedWork) for x in (halves, shifted, thirds))
        write(s)
        assert halves.mid.tolist() == [[0.5, 1, 2], [0.25, 1.5, 0.5]]
        write(halves)
        assert shifted.mid.tolist() == pytest.approx(np.array([[-0.5, 0, 1], [-1.75, -0.5, -1.5]]))
        assert thirds.mid.tolist() == pytest.approx(np.array([[0.5, 1, 2], [0.25, 1.5, 0.5]]) / 3)
        assert (s.mid == 9).any()
        assert (halves.mid == 9).any()


@pytest.mark.usefixtures("waiting")
def test_no_work_waits_on_an_array_that_has_views() -> None:
    s = Enclosure.lift([[1.0, 2.0], [0.5, 3.0]]) + 0.0
    row = s[0]
    halves = s * 0.5
    row[...] = 9
    assert halves.mid.tolist() == [[0.5, 1], [0.25, 1.5]]


def _all_of_it(x: Any) -> None:
    x[...] = 9


def _through_a_view(x: Any) -> None:
    row = x[0]
    row[1:] = 9


def _through_a_transpose(x: Any) -> None:
    x.T[0] = 9


def _in_place(x: Any) -> None:
    x *= 0
    x += 9


@pytest.mark.usefixtures("waiting")
def test_work_that_waits_is_refused_when_it_is_read() -> None:
    masked = xp.where([[True, False]], Enclosure.lift([[1.0, 1.0]]), -INF) + 0.0
    negative = masked * -2
    with pytest.raises(Refused, match="-inf"):
        negative.mid  # noqa: B018
    with pytest.raises(Refused, match="-inf"):
        (masked * 0.5) @ xp.ones((2, 1))


def test_large_arrays_are_enclosed_where_work_waits() -> None:
    """Rows of softmax in which nothing, something and everything is masked, against balls."""
    rng = np.random.default_rng(4)
    q, k, v = rng.standard_normal((200, 4)) * 3, rng.standard_normal((200, 4)), rng.standard_normal((200, 2))
    allowed = rng.random((200, 200)) < 0.5
    allowed[3], allowed[5] = False, True
    rows = [0, 3, 5, 199]
    got = Attention(mask="boolean")(*map(Enclosure.lift, (q, k, v)), mask=allowed)
    with kinds.precision(200):
        wanted = Attention(mask="boolean")(*map(Ball.lift, (q[rows], k, v)), mask=allowed[rows])
    found = outside(got[rows], wanted)
    assert (found.outside, found.compared) == (0, 8)

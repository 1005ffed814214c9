"""Buckets, slopes and relative terms: against logarithms of many digits and plain loops, and on every kind of array."""

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from symattn import Buckets, Refused, kind
from symattn.arrays.indexed import Indexed
from symattn.arrays.namespace import namespace_of
from symattn.attention.masks import causal
from symattn.attention.positions.relative import (
    ahead,
    biased,
    bucket,
    bucket_bias,
    clipped,
    deberta_bucket,
    deberta_starts,
    from_far_to_near,
    relative_keys,
    slope_exponents,
    slopes,
    t5_bucket,
    t5_starts,
    with_biases,
)
from tests.attention.by_loops_positions import logarithmic, t5
from tests.refusals import refuses


# -- buckets -----------------------------------------------------------------------------------------------------------
def t5_by_logarithms(distance: int, buckets: int, most: int) -> int:
    with mpmath.workdps(60):
        return t5(Buckets(number=buckets, max_distance=most, bidirectional=False), -distance)


def deberta_by_logarithms(distance: int, buckets: int, most: int) -> int:
    with mpmath.workdps(60):
        return min(buckets, logarithmic(distance, buckets, most))


SETTINGS = [(16, 128), (32, 128), (17, 27), (8, 20), (33, 129), (2, 3), (3, 2), (46, 164)]
EXACT = [(17, 27, 18, 14), (48, 81, 54, 40), (96, 162, 108, 80)]


@pytest.mark.parametrize(("buckets", "most"), SETTINGS)
def test_buckets_of_t5(buckets: int, most: int) -> None:
    distances = np.arange(2 * most)
    wanted = [t5_by_logarithms(int(a), buckets, most) for a in distances]
    assert bucket(distances, t5_starts(buckets, most)).tolist() == wanted
    assert max(wanted) == buckets - 1
    assert wanted[most] == buckets - 1


def test_buckets_of_t5_as_they_are_known() -> None:
    """32 buckets up to 128, as T5 has them in both directions; a rounded logarithm may miss where 16, 32, 64 begin."""
    assert t5_starts(16, 128) == (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)
    relative = np.array([-200, -128, -64, -63, -12, -8, -1, 0, 1, 8, 12, 63, 64, 128])
    assert t5_bucket(relative).tolist() == [15, 15, 14, 13, 9, 8, 1, 0, 17, 24, 25, 29, 30, 31]
    assert t5_bucket(relative, bidirectional=False).tolist()[7:] == [0] * 7
    assert t5_bucket(np.array([-16, -17, -18, -19, -21]), bidirectional=False).tolist() == [16, 16, 16, 17, 18]


@pytest.mark.parametrize(("buckets", "most", "distance", "right"), EXACT)
def test_a_bucket_begins_where_the_logarithm_is_a_whole_number(
    buckets: int, most: int, distance: int, right: int
) -> None:
    """There a rounded logarithm may be less: PyTorch's in single precision puts these distances one bucket lower."""
    m = buckets // 2
    with mpmath.workdps(60):
        steps = (buckets - m) * mpmath.log(mpmath.mpf(distance) / m) / mpmath.log(mpmath.mpf(most) / m)
        assert abs(steps - (right - m)) < mpmath.mpf("1e-50")
    assert bucket(np.array([distance - 1, distance]), t5_starts(buckets, most)).tolist() == [right - 1, right]


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (32, 128), (4, 16), (5, 9), (70, 600), (48, 300)])
def test_buckets_of_deberta(buckets: int, most: int) -> None:
    distances = np.arange(2 * most)
    wanted = [deberta_by_logarithms(int(a), buckets, most) for a in distances]
    assert bucket(distances, deberta_starts(buckets, most)).tolist() == wanted
    assert deberta_bucket(-distances, buckets, most).tolist() == [-w for w in wanted]


def test_buckets_that_make_no_sense() -> None:
    refuses(t5_starts, 16, 8, says="16 buckets up to the distance 8: there must be two or more, and 8 above 8")
    refuses(t5_bucket, np.arange(3), 7, 20, says="must be even for two directions, got 7")
    refuses(deberta_starts, 3, 20, says="3 buckets up to 20: there must be four or more")


def test_distances_are_cut() -> None:
    x = np.array([-9, -2, -1, 0, 1, 2, 9])
    assert clipped(x, 2).tolist() == [0, 0, 1, 2, 3, 4, 4]
    assert clipped(x, 2, 1).tolist() == [0, 0, 1, 2, 3, 3, 3]


def test_the_last_query_stands_at_the_last_key() -> None:
    assert ahead(np.zeros((2, 4))).tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]
    letters = Indexed.letters("s", "n", "n")
    refuses(clipped, ahead(letters), 2, kind=Refused, says="indexed lacks")


# -- slopes ------------------------------------------------------------------------------------------------------------
def test_slopes_of_eight_heads_are_halves() -> None:
    found = slopes(8, kind("exact").lift(0))
    assert [x.rational() for x in found.entries] == [Fraction(1, 2**h) for h in range(1, 9)]


def test_slopes_of_any_number_of_heads() -> None:
    assert slope_exponents(1) == (8,)
    assert slope_exponents(6) == (2, 4, 6, 8, 1, 3)
    assert slope_exponents(12) == (*range(1, 9), *(Fraction(t, 2) for t in (1, 3, 5, 7)))
    for heads in range(1, 40):
        assert len(set(slope_exponents(heads))) == heads
    roots = slopes(16, kind("exact").lift(0)).entries
    assert str(roots[0]) == "1/sqrt(2)"
    assert roots[1].rational() == Fraction(1, 2)
    refuses(slopes, 32, kind("exact").lift(0), kind=Refused, says="use ball")
    np.testing.assert_allclose(slopes(32, np.zeros(())), 2.0 ** -(np.arange(1, 33) / 4), rtol=2**-50)
    assert slopes(12, np.zeros((), np.float16)).dtype == np.float16


# -- terms of the scores -----------------------------------------------------------------------------------------------
def xl(q: Any, k: Any, table: Any, u: Any, w: Any) -> Any:
    index = from_far_to_near(ahead(q @ k.mT), k.shape[-2], table.shape[-2])
    return with_biases(q @ k.mT, q, k, table, index, u, w)


N_Q, N_K = 3, 4
AHEAD = ahead(np.zeros((N_Q, N_K)))
BUCKETS, CLIPPED, SPANNED = t5_bucket(AHEAD, 8, 16), clipped(AHEAD, 2), clipped(-AHEAD, 2, 1)
SCORES = (N_Q, N_K)


def test_one_table_for_each_head() -> None:
    draw = np.random.default_rng(3)
    s, q, tables = draw.normal(size=(2, *SCORES)), draw.normal(size=(2, N_Q, 2)), draw.normal(size=(2, 5, 2))
    whole = relative_keys(s, q, tables, CLIPPED)
    for h in range(2):
        np.testing.assert_array_equal(whole[h], relative_keys(s[h], q[h], tables[h], CLIPPED))


def test_terms_of_scores_without_heads() -> None:
    draw = np.random.default_rng(4)
    s, table, slope = draw.normal(size=SCORES), draw.normal(size=(8, 1)), draw.normal(size=1)
    np.testing.assert_array_equal(bucket_bias(s, table, BUCKETS), bucket_bias(s[None], table, BUCKETS)[0])
    np.testing.assert_array_equal(biased(s, slope), biased(s[None], slope)[0])


# -- the shift ---------------------------------------------------------------------------------------------------------
def relative_shift(x: Any) -> Any:
    """x_{i, j + n_q − 1 − i} by reshaping: what stands right of the last column is wrapped around, and to be masked.

    Source: Dai et al., Transformer-XL (2019), appendix B.
    """
    xp = namespace_of(x)
    *batch, n_q, n_k = x.shape
    padded = xp.concat([0 * x[..., :1], x], axis=-1)
    return xp.reshape(xp.reshape(padded, (*batch, n_k + 1, n_q))[..., 1:, :], (*batch, n_q, n_k))


@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1), (3, 3), (2, 5), (1, 4)])
def test_the_shift_looks_up_by_distance_where_the_mask_allows(n_q: int, n_k: int) -> None:
    exact = kind("exact")
    x = exact.lift(np.arange(2 * n_q * n_k).reshape(2, n_q, n_k))
    shifted, allowed = relative_shift(x), causal(x)
    index = from_far_to_near(ahead(x), n_k, n_k)
    for h, i, j in np.ndindex(2, n_q, n_k):
        if allowed[i, j]:
            assert (shifted[h, i, j] == x[h, i, int(index[i, j])]).all()
    assert n_q == 1 or not (shifted == x).all()


def test_queries_that_look_back_only_need_as_many_rows_as_keys() -> None:
    draw = np.random.default_rng(5)
    q, k, u, w = (draw.normal(size=shape) for shape in ((2, N_Q, 2), (2, N_K, 2), (2, 2), (2, 2)))
    table = draw.normal(size=(2, N_Q + N_K - 1, 2))
    seen = causal(np.zeros(SCORES))
    np.testing.assert_array_equal(xl(q, k, table, u, w)[:, seen], xl(q, k, table[:, :N_K], u, w)[:, seen])
    shifted = relative_shift((q + w[:, None]) @ table[:, :N_K].mT) + (q + u[:, None]) @ k.mT
    np.testing.assert_allclose(shifted[:, seen], xl(q, k, table, u, w)[:, seen])

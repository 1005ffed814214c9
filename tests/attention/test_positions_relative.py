"""Buckets, slopes and relative terms: against logarithms of many digits and plain loops, as a specification adds them.

Where queries and keys are zeros, or ones in one column, the scores with positions are entries of the table: a table
that counts its rows shows which row a query and a key have.
"""

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from symattn import Alibi, Attention, Buckets, Disentangled, Refused, Shaw, TransformerXL, kind, kinds
from tests.attention.by_loops_positions import logarithmic, t5
from tests.refusals import refuses


def positioned(spec: Attention, q: Any, k: Any, **given: Any) -> Any:
    """Return the scores with their terms by distance."""
    return spec.trace(q, k, k, **given)["positioned"]


def whole(x: Any) -> list[int]:
    return [int(a) for a in np.ravel(x)]


# -- buckets -----------------------------------------------------------------------------------------------------------
def of_t5(buckets: Buckets, distances: int, sees: str = "behind") -> list[int]:
    """Return the buckets of the keys at the distances 0, 1, … behind a query, or ahead of it."""
    table, q, k = np.arange(buckets.number)[:, None] * 1.0, np.zeros((1, 1)), np.zeros((distances, 1))
    if sees == "ahead":
        return whole(positioned(Attention(position=buckets, alignment="top-left"), q, k, b_rel=table))
    return whole(positioned(Attention(position=buckets, causal=not buckets.bidirectional), q, k, b_rel=table))[::-1]


def of_deberta(span: int, most: int, distances: int, sees: str = "behind") -> list[int]:
    """Return the signed buckets of the keys at the distances 0, 1, … behind a query, or ahead of it."""
    position = Disentangled(span=span, max_distance=most, to_content=False)
    spec = Attention(position=position, alignment="top-left" if sees == "ahead" else "bottom-right")
    table, q, k = np.arange(2 * span)[:, None] - span * 1.0, np.ones((1, 1)), np.zeros((distances, 1))
    found = whole(positioned(spec, q, k, p=table, w_pk=np.ones((1, 1))))
    return found if sees == "ahead" else found[::-1]


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
    wanted = [t5_by_logarithms(a, buckets, most) for a in range(2 * most)]
    assert of_t5(Buckets(number=buckets, max_distance=most, bidirectional=False), 2 * most) == wanted
    assert max(wanted) == buckets - 1
    assert wanted[most] == buckets - 1


def test_buckets_of_t5_as_they_are_known() -> None:
    """32 buckets up to 128, as T5 has them in both directions; a rounded logarithm may miss where 16, 32, 64 begin."""
    behind, ahead = of_t5(Buckets(), 201), of_t5(Buckets(), 201, "ahead")
    starts = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)
    assert tuple(behind.index(b) for b in range(1, 16)) == starts
    assert [behind[a] for a in (200, 128, 64, 63, 12, 8, 1, 0)] == [15, 15, 14, 13, 9, 8, 1, 0]
    assert [ahead[a] for a in (1, 8, 12, 63, 64, 128)] == [17, 24, 25, 29, 30, 31]
    one = Attention(position=Buckets(bidirectional=False), causal=True)
    table, two = np.arange(32.0)[:, None], np.zeros((2, 1))
    assert whole(positioned(one, two, two, b_rel=table)) == [0, 0, 1, 0]  # a key ahead is in the bucket 0
    assert [of_t5(Buckets(bidirectional=False), 22)[a] for a in (16, 17, 18, 19, 21)] == [16, 16, 16, 17, 18]


@pytest.mark.parametrize(("buckets", "most", "distance", "right"), EXACT)
def test_a_bucket_begins_where_the_logarithm_is_a_whole_number(
    buckets: int, most: int, distance: int, right: int
) -> None:
    """There a rounded logarithm may be less: PyTorch's in single precision puts these distances one bucket lower."""
    m = buckets // 2
    with mpmath.workdps(60):
        steps = (buckets - m) * mpmath.log(mpmath.mpf(distance) / m) / mpmath.log(mpmath.mpf(most) / m)
        assert abs(steps - (right - m)) < mpmath.mpf("1e-50")
    found = of_t5(Buckets(number=buckets, max_distance=most, bidirectional=False), distance + 1)
    assert found[distance - 1 :] == [right - 1, right]


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (32, 128), (4, 16), (5, 9), (70, 600), (48, 300)])
def test_buckets_of_deberta(buckets: int, most: int) -> None:
    wanted = [deberta_by_logarithms(a, buckets, most) for a in range(2 * most)]
    assert of_deberta(buckets, most, 2 * most) == [min(w, buckets - 1) for w in wanted]  # the table ends there
    assert of_deberta(buckets, most, 2 * most, "ahead") == [-w for w in wanted]


def test_buckets_that_make_no_sense() -> None:
    words = "16 buckets up to the distance 8: there must be two or more, and 8 above 8"
    refuses(Buckets, number=16, max_distance=8, bidirectional=False, says=words)
    refuses(Buckets, number=7, max_distance=20, says="be even for two directions, got 7")
    refuses(Disentangled, span=3, max_distance=20, says="3 buckets up to 20: there must be four or more")


def test_distances_are_cut() -> None:
    q, k = np.ones((10, 1)), np.zeros((10, 1))
    apart = np.arange(10)[None, :] - np.arange(10)[:, None]
    shaw = positioned(Attention(position=Shaw(most=2, values=False)), q, k, a_k=np.arange(5.0)[:, None])
    assert (shaw == np.clip(apart, -2, 2) + 2).all()
    spec = Attention(position=Disentangled(span=2, to_content=False))
    disentangled = positioned(spec, q, k, p=np.arange(4.0)[:, None], w_pk=np.ones((1, 1)))
    assert (disentangled == np.clip(-apart, -2, 1) + 2).all()


def test_the_last_query_stands_at_the_last_key() -> None:
    spec = Attention(position=Shaw(most=4, values=False))
    found = positioned(spec, np.ones((2, 1)), np.zeros((4, 1)), a_k=np.arange(-4.0, 5)[:, None])
    assert found.tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]
    letters = [kinds.Indexed.letters(name, *shape) for name, shape in (("x", "nd"), ("a", (9, "d")))]
    refuses(spec.trace, letters[0], letters[0], letters[0], a_k=letters[1], kind=Refused, says="indexed lacks")


# -- slopes ------------------------------------------------------------------------------------------------------------
def slopes(heads: int, lift: Any) -> Any:
    q = lift(np.zeros((heads, 1, 1)))
    return Attention(heads=heads, causal=True, position=Alibi()).trace(q, q, q)["slopes"]


def test_slopes_of_eight_heads_are_halves() -> None:
    found = slopes(8, kind("exact").lift)
    assert [x.rational() for x in found.entries] == [Fraction(1, 2**h) for h in range(1, 9)]


def test_slopes_of_any_number_of_heads() -> None:
    def exponents(heads: int) -> list[float]:
        return [-round(x, 12) for x in np.log2(slopes(heads, np.asarray)).tolist()]

    assert exponents(1) == [8]
    assert exponents(6) == [2, 4, 6, 8, 1, 3]
    assert exponents(12) == [*range(1, 9), 0.5, 1.5, 2.5, 3.5]
    for heads in range(1, 40):
        assert len(set(exponents(heads))) == heads
    roots = slopes(16, kind("exact").lift).entries
    assert str(roots[0]) == "1/sqrt(2)"
    assert roots[1].rational() == Fraction(1, 2)
    refuses(slopes, 32, kind("exact").lift, kind=Refused, says="use ball")
    np.testing.assert_allclose(slopes(32, np.asarray), 2.0 ** -(np.arange(1, 33) / 4), rtol=2**-50)
    assert slopes(12, np.float16).dtype == np.float16


# -- terms of the scores -----------------------------------------------------------------------------------------------
N_Q, N_K = 3, 4


def test_one_table_for_each_head() -> None:
    draw = np.random.default_rng(3)
    q, k, p = (draw.normal(size=shape) for shape in ((2, N_Q, 2), (2, N_K, 2), (4, 3)))
    w = draw.normal(size=(3, 4))
    position = Disentangled(span=2, to_content=False)
    one = Attention(position=position)
    both = positioned(Attention(heads=2, position=position), q, k, p=p, w_pk=w)
    for h in range(2):
        alone = positioned(one, q[h], k[h], p=p, w_pk=w[:, 2 * h : 2 * h + 2])
        np.testing.assert_allclose(both[h], alone, rtol=1e-14)
    assert not np.allclose(both[1], positioned(one, q[1], k[1], p=p, w_pk=w[:, :2]))


def test_terms_of_scores_without_heads() -> None:
    draw = np.random.default_rng(4)
    q, k, table, slope = (draw.normal(size=shape) for shape in ((N_Q, 2), (N_K, 2), (8, 1), (1,)))
    for position, given in (
        (Buckets(number=8, max_distance=16), {"b_rel": table}),
        (Alibi(slopes="given", two_sided=True), {"slopes": slope}),
    ):
        spec = Attention(position=position)  # type: ignore[arg-type]
        np.testing.assert_array_equal(positioned(spec, q, k, **given), positioned(spec, q[None], k[None], **given)[0])


# -- the shift ---------------------------------------------------------------------------------------------------------
def relative_shift(x: Any) -> Any:
    """x_{i, j + n_q − 1 − i} by reshaping: what stands right of the last column is wrapped around, and to be masked.

    Source: Dai et al., Transformer-XL (2019), appendix B.
    """
    xp = x.__array_namespace__()
    *batch, n_q, n_k = x.shape
    padded = xp.concat([0 * x[..., :1], x], axis=-1)
    return xp.reshape(xp.reshape(padded, (*batch, n_k + 1, n_q))[..., 1:, :], (*batch, n_q, n_k))


def xl(causal: bool, q: Any, k: Any, r: Any, w_r: Any, u: Any, w: Any) -> Any:
    spec = Attention(causal=causal, heads=q.shape[0], position=TransformerXL())
    return positioned(spec, q, k, r=r, w_r=w_r, b_u=u, b_w=w)


@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1), (3, 3), (2, 5), (1, 4)])
def test_the_shift_looks_up_by_distance_where_the_mask_allows(n_q: int, n_k: int) -> None:
    lift = kind("exact").lift
    q, r = lift(np.arange(2 * n_q * 2).reshape(2, n_q, 2) % 5 - 1), lift(np.arange(n_k * 2).reshape(n_k, 2) % 7)
    w_r, zeros = lift([[1, 0, 2, 1], [0, 1, 1, 1]]), lift(np.zeros((2, 2), int))
    tables = [r @ w_r[:, :2], r @ w_r[:, 2:]]
    found = xl(True, q, lift(np.zeros((2, n_k, 2), int)), r, w_r, zeros, zeros)
    for h in range(2):
        shifted = relative_shift((q[h] @ tables[h].mT)[None])[0]
        for i, j in np.argwhere(np.tri(n_q, n_k, n_k - n_q)):
            assert (shifted[int(i), int(j)] == found[h, int(i), int(j)]).all()


def test_queries_that_look_back_only_need_as_many_rows_as_keys() -> None:
    draw = np.random.default_rng(5)
    q, k, u, w = (draw.normal(size=shape) for shape in ((2, N_Q, 2), (2, N_K, 2), (2, 2), (2, 2)))
    r, w_r = draw.normal(size=(N_Q + N_K - 1, 3)), draw.normal(size=(3, 4))
    seen = np.tri(N_Q, N_K, N_K - N_Q, dtype=bool)
    few = xl(True, q, k, r[:N_K], w_r, u, w)[:, seen]
    np.testing.assert_array_equal(xl(False, q, k, r, w_r, u, w)[:, seen], few)
    table = np.stack([r[:N_K] @ w_r[:, :2], r[:N_K] @ w_r[:, 2:]])
    shifted = relative_shift((q + w[:, None]) @ table.mT) + (q + u[:, None]) @ k.mT
    np.testing.assert_allclose(shifted[:, seen], few)

"""Weights of scores: against loops over plain numbers, on every kind of array, and what is true of each way."""

from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest

from symattn import Attention, Refused, Undecided, functional, kind, kinds
from tests.attention.by_loops import simplex, tsallis
from tests.attention.definition import agrees, half, lift_of
from tests.refusals import refuses

Ball = kind("ball")


def steps(s: Any, seen: Any = None, given: Any = None, **fields: Any) -> Any:
    """Run the steps of an attention whose scores are s: its queries are s, and its keys the unit vectors."""
    given = dict(given or {})
    if seen is not None:
        fields["mask"], given["mask"] = "boolean", seen
    undefined = "sink" not in fields and fields.get("normaliser") not in ("sigmoid", "relu")
    fields = {"scale": 1, "fully_masked": "nan" if undefined else "zeros", **fields}
    units = s.__array_namespace__().eye(s.shape[-1], dtype=s.dtype)
    return Attention(**fields).trace(s, units, units, **given)


def weights(s: Any, seen: Any = None, **how: Any) -> Any:
    return steps(s, seen, **how)["weights"]


def log_sums(s: Any, seen: Any = None, **how: Any) -> Any:
    return steps(s, seen, lse=True, **how)["lse"][..., None]


def sunk(sink: Any) -> dict[str, Any]:
    """How attention has a sink that is given."""
    return {"sink": "given", "given": {"sink": sink}}


softmax = weights
off_by_one = partial(weights, sink="zero")
sigmoid_weights = partial(weights, normaliser="sigmoid")
relu_weights = partial(weights, normaliser="relu")
sparsemax = partial(weights, normaliser="sparsemax")
entmax = partial(weights, normaliser="entmax")


def test_softmax_is_the_power_of_the_score_less_the_logarithm() -> None:
    s = kind("exact").lift(APART)
    with_sink = sunk(half(s)[None])
    some, seen = s[:2], SEEN[:2]
    assert (functional.powers(some - log_sums(some, seen))[seen] == softmax(some, seen)[seen]).all()
    assert (functional.powers(s - log_sums(s, SEEN, **with_sink))[SEEN] == weights(s, SEEN, **with_sink)[SEEN]).all()
    assert not (functional.powers(some - log_sums(some, seen, **with_sink))[seen] == softmax(some, seen)[seen]).all()


def test_powers_of_two_are_powers_of_e() -> None:
    symbolic, ball = kind("symbolic"), kind("ball")
    s = symbolic.letters("s", 2, 2)
    assert (functional.powers_of_two(s) == functional.powers(s)).all()
    for x, y in zip(
        functional.powers_of_two(ball.lift(APART)).entries.flat,
        functional.powers(ball.lift(APART)).entries.flat,
        strict=True,
    ):
        assert x.overlaps(y)
        assert x.rad() < 1e-12
    for x, y in zip(
        functional.powers(ball.lift(APART), 2).entries.flat,
        functional.powers(ball.lift(APART)).entries.flat,
        strict=True,
    ):
        assert x.overlaps(y) == (x == 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_powers_of_two_in_floats(dtype: Any) -> None:
    """2^(s log₂ e) is off by half an ulp of the exponent, that is by 3 |s| u, and by the rounding of exp2."""
    s = np.linspace(-6, 6, 50).astype(dtype)
    true = np.exp(s.astype(np.longdouble))
    error = np.abs(functional.powers_of_two(s).astype(np.longdouble) - true) / true
    assert (error <= (3 * np.abs(s) + 4) * np.finfo(dtype).eps).all()
    assert functional.powers_of_two(s).dtype == dtype


def test_integer_scores_have_rational_weights_in_powers_of_two() -> None:
    weights = softmax(kind("exact").lift([[3, 1, 0]]), base=2)
    assert [x.rational() for x in weights.entries[0]] == [Fraction(8, 11), Fraction(2, 11), Fraction(1, 11)]


def test_a_row_that_is_fully_masked() -> None:
    exact = kind("exact")
    s, seen = exact.lift([[1, 2], [3, 4]]), np.array([[False, False], [True, True]])
    for sparse in (sparsemax, entmax):
        assert (sparse(s, seen, fully_masked="zeros")[0] == 0).all()
        assert ["0/0" in str(x) or "/0" in str(x) for x in sparse(s, seen).entries[0]] == [True, True]
        refuses(sparse, s, seen, fully_masked="error", says="a row of scores is fully masked")
        assert (sparse(s[1:], seen[1:], fully_masked="error") == sparse(exact.lift([[3, 4]]))).all()
    for weigh in (off_by_one, sigmoid_weights, relu_weights):
        assert (weigh(s, seen)[0] == 0).all()
        assert (weigh(s, seen)[1] == weigh(exact.lift([[3, 4]]))[0]).all()


@pytest.mark.parametrize("sink", [-1e4, 0.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_a_row_that_is_fully_masked_has_a_sink(sink: float, dtype: Any) -> None:
    """Zeros without 0/0, however small the sink is: the maximum is that of the sink, not 0."""
    s, seen = np.array([[0.0, 0.0], [1.0, 2.0]], dtype=dtype), np.array([[False, False], [True, True]])
    with_sink = sunk(np.array([sink], dtype=dtype))
    with np.errstate(all="raise", under="ignore"):
        found = weights(s, seen, **with_sink)
    assert (found[0] == 0).all()
    assert found[1].sum() <= 1 + 4 * np.finfo(dtype).eps
    assert (sink < 0) == (found[1].sum() > 0.99)
    assert log_sums(s, seen, **with_sink)[0] == sink


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_large_scores_do_not_overflow(dtype: Any) -> None:
    big = float(np.finfo(dtype).max) / 8
    s, seen = np.array([[big, -big, 0.0, 0.0]], dtype=dtype), np.array([[True, True, True, False]])
    with np.errstate(all="raise", under="ignore"):
        found = sigmoid_weights(s, seen)
        assert found.tolist() == [[1.0, 0.0, found[0, 2], 0.0]]
        for weigh in (partial(softmax, base=2), sparsemax, entmax, off_by_one):
            assert weigh(s, seen).tolist() == [[1.0, 0.0, 0.0, 0.0]]
        assert log_sums(s, seen).tolist() == [[big]]
    with np.errstate(all="ignore"):
        assert np.isnan(sigmoid_weights(s, seen, stabilised=False)[0, 0])


def test_sigmoid_of_one_key_is_softmax_beside_a_sink() -> None:
    s = kind("exact").lift([[0.5], [-2]])
    assert (sigmoid_weights(s) == off_by_one(s)).all()  # the bias is −log 1
    assert not (sigmoid_weights(kind("exact").lift([[0.5, 1]])) == off_by_one(kind("exact").lift([[0.5, 1]]))).any()


def test_sigmoid_weights_of_any_number_of_keys_have_a_bias_of_its_logarithm() -> None:
    """σ(s − log n) for n keys, which is e^s/(n + e^s)."""
    s = kind("exact").lift(APART)
    wanted = functional.powers(s) / (4 + functional.powers(s))
    assert (sigmoid_weights(s, SEEN)[SEEN] == wanted[SEEN]).all()
    assert not (sigmoid_weights(s, SEEN) == functional.powers(s) / (1 + functional.powers(s)))[SEEN].any()


def test_a_bias_of_sigmoid_weights_takes_the_place_of_the_logarithm() -> None:
    s = kind("exact").lift(APART)
    biased = {"bias": True, "given": {"bias": half(s) + 0 * s}}
    powers_with_bias = functional.powers(s + half(s))
    assert (sigmoid_weights(s, SEEN, **biased)[SEEN] == (powers_with_bias / (1 + powers_with_bias))[SEEN]).all()


@pytest.mark.parametrize("seed", range(5))
def test_sparse_weights_of_many_rows(seed: int) -> None:
    """Exact weights sum to one, do not see a shift, keep the order, and are what the loops say, ties included."""
    draw = np.random.default_rng(seed)
    data = draw.integers(-4, 5, (6, 5)) / 4
    seen = draw.random((6, 5)) < 0.8
    seen[:, seed] = True
    s = kind("exact").lift(data)
    for sparse, loops in ((sparsemax, simplex), (entmax, tsallis)):
        p = sparse(s, seen)
        assert (kind("exact").xp.sum(p, axis=-1) == 1).all()
        assert (sparse(s + Fraction(7, 3), seen) == p).all()
        assert agrees(lambda x, f=sparse: f(x, seen), rows(loops, seen), data)
        assert not agrees(softmax, rows(loops, seen), data)


def test_entmax_lies_between_softmax_and_sparsemax() -> None:
    s = kind("exact").lift([[1.5, 1, 0, -1]])
    some = [int((f(s) != 0).sum()) for f in (softmax, entmax, sparsemax)]
    assert some == [4, 3, 2]


def dropped(s: Any, rate: Fraction, keep: Any) -> Any:
    return steps(s, dropout=rate, given={"drop": keep} if rate else {})["output"]


@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(1, 2), Fraction(3, 4)])
def test_the_mean_of_dropped_weights_is_the_weights(rate: Fraction) -> None:
    """Every choice of what is kept, each with its probability."""
    s = kind("exact").lift([[1, 0.5], [0, -1]])
    a = softmax(s)
    mean, wrong = 0 * a, 0 * a
    for choice in product((False, True), repeat=4):
        keep = np.array(choice).reshape(2, 2)
        likely = Fraction(1)
        for kept in choice:
            likely *= 1 - rate if kept else rate
        mean = mean + likely * dropped(s, rate, keep)
        wrong = wrong + likely * dropped(s, rate, ~keep)
    assert (mean == a).all()
    assert (wrong == a).all() == (rate == Fraction(1, 2))


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5])
def test_a_rate_that_is_none(rate: float) -> None:
    refuses(Attention, dropout=rate, says="dropout")


SEEN = np.array([[True, True, True, True], [False, True, False, True], [False, False, False, False]])
#: No two keys of a row are equal, and no threshold is a score: floats decide the order as exact numbers do.
APART = [[0.75, -1.0, 0.5, 0.625], [0.25, 2.0, -1.0, 1.5], [0.125, 0.0, 1.0, 2.0]]


def rows(weigh: Any, seen: Any) -> Any:
    """A function of the scores that a row may see, for each row; the others get 0."""

    def run(s: Any) -> Any:
        out = []
        for i, row in enumerate(s):
            some = [j for j in range(len(row)) if seen[i][j]]
            weights = dict(zip(some, weigh([row[j] for j in some]), strict=True))
            out.append([weights.get(j, mpmath.mpf(0)) for j in range(len(row))])
        return out

    return run


EXACT, LETTERS = kind("exact"), kind("symbolic")
REFUSED = {
    "exact: 2^(1/2)": (lambda: softmax(EXACT.lift([[0.5, 0]]), base=2), Refused, "integer multiples only; use ball"),
    "exact: log₂ e": (lambda: functional.powers_of_two(EXACT.lift([1])), Refused, "division by a logarithm"),
    "exact: a root": (lambda: entmax(EXACT.xp.exp(EXACT.lift([[0.25, 0.5]]))), Refused, "not in the decided field"),
    "modular: ReLU": (lambda: relu_weights(lift_of("modular")([[1, -1]])), Undecided, "residues have no order"),
    "modular: sparsemax": (lambda: sparsemax(lift_of("modular")([[1, 0]])), Undecided, "residues have no order"),
    "letters: ReLU": (lambda: relu_weights(LETTERS.letters("s", 1, 2)), Undecided, "is 0 < s_"),
    "letters: entmax": (lambda: entmax(LETTERS.letters("s", 1, 2)), Undecided, "symbolic: is .* true"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_kind_lacks_is_refused_by_name(name: str) -> None:
    run, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        run()


def test_equal_scores_that_no_ball_decides_are_put_in_order() -> None:
    """√2 and √2 overlap at any precision; their order does not matter to sparse weights."""
    with kinds.precision(128):
        equal = Ball.xp.sqrt(Ball.lift(np.array([2.0, 3.0, 2.0, 5.0])))
        found = Ball.xp.sort(equal)
        for x, wanted in zip(found.entries, np.sqrt([2.0, 2.0, 3.0, 5.0]), strict=True):
            assert abs(float(x.mid()) - wanted) < 1e-15
            assert 0 < float(x.rad()) < 1e-30
        falling = Ball.xp.sort(equal, descending=True)
        assert [float(x.mid()) for x in falling.entries] == [float(x.mid()) for x in found.entries[::-1]]
        assert float(Ball.xp.sum(sparsemax(equal[None])).entries[()].mid()) == 1


# -- cosines -----------------------------------------------------------------------------------------------------------
def scores(q: Any, k: Any, score: str = "cosine") -> Any:
    return Attention(score=score, scale=1).trace(q, k, k)["scores"]


def test_cosines_do_not_see_lengths() -> None:
    exact = kind("exact")
    q, k = exact.lift([[1, 2], [0, -1]]), exact.lift([[3, 1], [1, 1]])
    long = q * exact.lift([[2], [5]])
    assert (scores(long, k) == scores(q, k)).all()
    assert not (scores(long, k, "dot") == scores(q, k, "dot")).all()
    assert (scores(q, q)[0, 0] == 1).all()


def test_cosines_run_on_residues_and_repeat() -> None:
    q, k = (lift_of("modular")([[1, 2], [3, -1]]) for _ in range(2))
    assert scores(q, q).tolist() == scores(q, q).tolist()
    with pytest.raises(Refused, match="mixed kinds"):
        scores(q, k)  # each kind of residues has a generator of its own


def test_a_zero_vector_has_no_cosine() -> None:
    s = scores(kind("exact").lift([[0, 0]]), kind("exact").lift([[1, 2]]))
    assert "0/0" in str(s.entries[0, 0])

"""What makes weights of scores: against loops over plain numbers, and on every kind of array."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from symattn.arrays import kind
from symattn.arrays.ball import Ball, precision
from symattn.attention.masks import forbid
from symattn.attention.scores import per_head
from symattn.attention.softmax import (
    dropout,
    entmax15,
    log_sum_exp,
    off_by_one,
    powers,
    powers_of_two,
    relu_weights,
    sigmoid_weights,
    sink_log_sum_exp,
    sink_weights,
    softmax,
    sparsemax,
)
from symattn.document.errors import Refused, Undecided
from tests.arrays.evaluating import compare
from tests.attention.pieces import Piece, agrees, half, lift_of
from tests.attention.weights_by_loops import (
    APART,
    RARE,
    SEEN,
    dropped,
    halves,
    logsum,
    logsum_of_two,
    nearest,
    ratio,
    rectified,
    rows,
    sigmoids,
    sinks_of_heads,
)


# -- the definitions ---------------------------------------------------------------------------------------------------
def masked(weigh: Any) -> Any:
    return lambda s, *more: weigh(forbid(s, SEEN), *more)


ORDER = {"modular": "residues have no order"}
TWO = {"modular": "a logarithm takes no factor there"}

NORMALISERS: dict[str, Piece] = {
    "softmax in powers of two": Piece(
        masked(lambda s: softmax(s, fully_masked="zeros", base=2)),
        rows(ratio(2)),
        masked(lambda s: softmax(s, fully_masked="zeros")),
        ((3, 4),),
        TWO,
        scale=1,
    ),
    "powers of two, not stabilised": Piece(
        masked(lambda s: softmax(s, False, "zeros", 2)),
        rows(ratio(2)),
        masked(lambda s: softmax(2 * s, False, "zeros", 2)),
        ((3, 4),),
        TWO,
        scale=1,
    ),
    "log-sum-exp": Piece(
        masked(log_sum_exp), logsum, masked(lambda s: log_sum_exp(forbid(s, SEEN[::-1]))), ((3, 4),),
        {"modular": "logarithms beside −∞ are compared as powers, below"},
    ),
    "powers of log-sum-exp": Piece(
        masked(lambda s: powers(log_sum_exp(s))),
        lambda s: [[mpmath.exp(x)] for [x] in logsum(s)],
        masked(lambda s: powers(log_sum_exp(2 * s))),
        ((3, 4),),
        scale=1,
    ),
    "log-sum-exp without masks": Piece(
        lambda s: log_sum_exp(s[:1], masked=False), lambda s: logsum(s)[:1], lambda s: log_sum_exp(s[1:2]), ((3, 4),)
    ),
    "a sink for each head": Piece(
        masked(lambda s, b: sink_weights(s, per_head(b))),
        sinks_of_heads,
        masked(lambda s, b: sink_weights(s / 2, per_head(b) / 2)),
        ((2, 3, 4), (2,)),
    ),
    "sinks, not stabilised": Piece(
        masked(lambda s, b: sink_weights(s, per_head(b), stabilised=False)),
        sinks_of_heads,
        masked(lambda s, b: sink_weights(s, 0 * per_head(b), stabilised=False)),
        ((2, 3, 4), (2,)),
    ),
    "softmax-off-by-one": Piece(
        masked(off_by_one), rows(ratio(mpmath.e, 0)), masked(lambda s: sink_weights(s, 2 * half(s))), ((3, 4),)
    ),
    "off by one in powers of two": Piece(
        masked(lambda s: off_by_one(s, base=2)), rows(ratio(2, 0)), masked(off_by_one), ((3, 4),), TWO, scale=1
    ),
    "log-sum-exp with a sink": Piece(
        masked(lambda s: sink_log_sum_exp(s, half(s))),
        lambda s: logsum(s, mpmath.mpf("0.5")),
        masked(log_sum_exp),
        ((3, 4),),
    ),
    "sigmoid": Piece(masked(sigmoid_weights), sigmoids(None), masked(lambda s: sigmoid_weights(s, 0)), ((3, 4),)),
    "sigmoid with a bias": Piece(
        masked(lambda s: sigmoid_weights(s, half(s))),
        sigmoids(mpmath.mpf("0.5")),
        masked(lambda s: sigmoid_weights(s, -half(s))),
        ((3, 4),),
    ),
    "sigmoid, not stabilised": Piece(
        masked(lambda s: sigmoid_weights(s, stabilised=False)),
        sigmoids(None),
        masked(lambda s: sigmoid_weights(s + 1, stabilised=False)),
        ((3, 4),),
    ),
    "ReLU": Piece(masked(relu_weights), rectified(1), masked(lambda s: relu_weights(s, 0)), ((3, 4),), ORDER),
    "ReLU over a root": Piece(
        masked(lambda s: relu_weights(s, Fraction(1, 2))),
        rectified(mpmath.mpf("0.5")),
        masked(relu_weights),
        ((3, 4),),
        ORDER,
    ),
    "sparsemax": Piece(
        masked(lambda s: sparsemax(s, "zeros")), rows(nearest), masked(lambda s: sparsemax(2 * s, "zeros")), (), ORDER,
        given=[APART],
    ),
    "entmax": Piece(
        masked(lambda s: entmax15(s, "zeros")), rows(halves), masked(lambda s: entmax15(2 * s, "zeros")), (), ORDER,
        given=[APART],
    ),
    "dropout": Piece(
        masked(lambda s: dropout(softmax(s, fully_masked="zeros"), RARE, Fraction(1, 4))),
        dropped,
        masked(lambda s: dropout(softmax(s, fully_masked="zeros"), ~RARE, Fraction(1, 4))),
        ((3, 4),),
    ),
}  # fmt: skip


def test_the_logarithm_to_the_base_of_two() -> None:
    piece = Piece(masked(lambda s: log_sum_exp(s, base=2)), logsum_of_two, masked(log_sum_exp), ((3, 4),))
    with precision(256):
        assert agrees(piece.run, piece, "ball")
        assert not agrees(piece.wrong, piece, "ball")


FORMS: dict[str, tuple[Any, dict[str, str]]] = {
    "log-sum-exp": (lambda s: log_sum_exp(s, masked=False), {"s": "n m"}),
    "log-sum-exp, masked": (lambda s, mask: powers(log_sum_exp(forbid(s, mask))), {"s": "n m", "mask": "n m"}),
    "sinks": (lambda s, b, mask: sink_weights(forbid(s, mask), per_head(b)), {"s": "h n m", "b": "h", "mask": "n m"}),
    "off by one": (off_by_one, {"s": "n m"}),
    "log-sum-exp with a sink": (sink_log_sum_exp, {"s": "n m", "sink": "n 1"}),
    "sigmoid": (lambda s, mask: sigmoid_weights(forbid(s, mask)), {"s": "n m", "mask": "n m"}),
    "sigmoid, not stabilised": (lambda s: sigmoid_weights(s, stabilised=False), {"s": "n m"}),
    "dropout": (lambda s, keep: dropout(softmax(s), keep, Fraction(1, 4)), {"s": "n m", "keep": "n m"}),
}


@pytest.mark.parametrize("name", FORMS)
def test_weights_for_all_sizes(name: str) -> None:
    run, arrays = FORMS[name]
    for sizes in ({"n": 1, "m": 2, "h": 2}, {"n": 2, "m": 3, "h": 1}):
        compare(run, arrays, sizes)


EXACT, LETTERS = kind("exact"), kind("symbolic")
REFUSED = {
    "exact: 2^(1/2)": (lambda: softmax(EXACT.lift([0.5, 0]), base=2), Refused, "integer multiples only; use ball"),
    "exact: log₂ e": (lambda: powers_of_two(EXACT.lift([1])), Refused, "division by a logarithm"),
    "exact: a root": (lambda: entmax15(EXACT.xp.exp(EXACT.lift([0.25, 0.5]))), Refused, "not in the decided field"),
    "modular: ReLU": (lambda: relu_weights(lift_of("modular")([1, -1])), Undecided, "residues have no order"),
    "modular: sparsemax": (lambda: sparsemax(lift_of("modular")([1, 0])), Undecided, "residues have no order"),
    "letters: ReLU": (lambda: relu_weights(LETTERS.letters("s", 2)), Undecided, "is 0 < s_1 true"),
    "letters: entmax": (lambda: entmax15(LETTERS.letters("s", 2)), Undecided, "symbolic: is .* true"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_kind_lacks_is_refused_by_name(name: str) -> None:
    run, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        run()


def test_equal_scores_that_no_ball_decides_are_put_in_order() -> None:
    """√2 and √2 overlap at any precision; their order does not matter to sparse weights."""
    with precision(128):
        equal = Ball.xp.sqrt(Ball.lift(np.array([2.0, 3.0, 2.0, 5.0])))
        found = Ball.xp.sort(equal)
        for x, wanted in zip(found.entries, np.sqrt([2.0, 2.0, 3.0, 5.0]), strict=True):
            assert abs(float(x.mid()) - wanted) < 1e-15
            assert 0 < float(x.rad()) < 1e-30
        falling = Ball.xp.sort(equal, descending=True)
        assert [float(x.mid()) for x in falling.entries] == [float(x.mid()) for x in found.entries[::-1]]
        assert float(Ball.xp.sum(sparsemax(equal)).entries[()].mid()) == 1

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
from symattn.attention.softmax import (
    entmax15,
    log_sum_exp,
    powers,
    powers_of_two,
    relu_weights,
    sigmoid_weights,
    sink_log_sum_exp,
    softmax,
    sparsemax,
)
from symattn.document.errors import Refused, Undecided
from tests.attention.pieces import Piece, half, lift_of
from tests.attention.weights_by_loops import (
    SEEN,
    logsum,
    rectified,
    sigmoids,
)


# -- the definitions ---------------------------------------------------------------------------------------------------
def masked(weigh: Any) -> Any:
    return lambda s, *more: weigh(forbid(s, SEEN), *more)


ORDER = {"modular": "residues have no order"}

#: What no specification has: without masks, powers of the sum, a bias that is a number, another power of n.
NORMALISERS: dict[str, Piece] = {
    "log-sum-exp without masks": Piece(
        lambda s: log_sum_exp(s[:1], masked=False), lambda s: logsum(s)[:1], lambda s: log_sum_exp(s[1:2]), ((3, 4),)
    ),
    "powers of log-sum-exp": Piece(
        masked(lambda s: powers(log_sum_exp(s))),
        lambda s: [[mpmath.exp(x)] for [x] in logsum(s)],
        masked(lambda s: powers(log_sum_exp(2 * s))),
        ((3, 4),),
        scale=1,
    ),
    "log-sum-exp with a number for a sink": Piece(
        masked(lambda s: sink_log_sum_exp(s, half(s))),
        lambda s: logsum(s, mpmath.mpf("0.5")),
        masked(log_sum_exp),
        ((3, 4),),
    ),
    "sigmoid with a number for a bias": Piece(
        masked(lambda s: sigmoid_weights(s, half(s))),
        sigmoids(mpmath.mpf("0.5")),
        masked(lambda s: sigmoid_weights(s, -half(s))),
        ((3, 4),),
    ),
    "ReLU over a root": Piece(
        masked(lambda s: relu_weights(s, Fraction(1, 2))),
        rectified(mpmath.mpf("0.5")),
        masked(relu_weights),
        ((3, 4),),
        ORDER,
    ),
}


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

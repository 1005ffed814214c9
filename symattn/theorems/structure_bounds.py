"""Structure, the bounds: hulls, ranks, and how far outputs move."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.scores import dot_scores
from symattn.attention.softmax import softmax as soft
from symattn.proof.gradients import gradient
from symattn.proof.listed import Listed
from symattn.proof.relations.functions import rank_of
from symattn.proof.statement import Declared, Pair
from symattn.proof.together import equations_by
from symattn.theorems.letters import ATTENTION, rows, weights


def _line(q: Any) -> Any:
    """Queries 0, 1, …, n − 1 on a line, in d dimensions."""
    xp = q.__array_namespace__()
    n, d = q.shape
    first = type(q).lift([[i] for i in range(n)])
    return xp.concat([first, xp.zeros((n, d - 1))], axis=-1) if d > 1 else first


score_rank = Listed(
    Declared({"q": "n d", "k": "n d"}),
    lambda n, d, q, k: [rank_of(dot_scores(q, k)) <= d, rank_of(soft(_line(q) @ _line(q).mT)) == n],
    lambda n, d, q: rank_of(soft(_line(q) @ _line(q).mT)) <= d,
    tuple({"n": n, "d": d} for n, d in ((2, 1), (3, 1), (4, 1), (3, 2), (4, 2), (4, 3))),
    ("The rank of a matrix whose size is a letter is no identity between its entries.",),
    1,
)


@equations_by(
    arrays={"x0": "1 1", "x": "n 1", "a": "1 1", "more": "r 1"},
    false=lambda x: (x.__array_namespace__().maximum(_slope_at_zero(rows(x, -x)), 1), 1 + 0 * x[:1]),
    rule="A function with a derivative that has no bound is not Lipschitz. The last two equations are of the tokens 0"
    " and a, and of 0, a and any number of others at 0: so it holds for every number of tokens from two on.",
)
def not_globally_lipschitz(x0: Array, x: Array, a: Array, more: Array) -> list[Pair]:
    xp = x.__array_namespace__()
    n = 1 + xp.sum(0 * more + 1, axis=0, keepdims=True)
    return [
        (gradient(_first_output, "x0", x0=x0, x=x), _slope(x0, x)),
        (_slope_at_zero(rows(a, -a)), (1 + 2 * a * a) / 3),
        (_slope_at_zero(a), (2 + a * a) / 4),
        (_slope_at_zero(rows(a, 0 * more)), (1 + a * a) / (n + 1) - a * a / ((n + 1) * (n + 1))),
    ]


def _first_output(x0: Array, x: Array) -> Any:
    tokens = rows(x0, x)
    return ATTENTION(tokens, tokens, tokens)[0, 0]


def _slope(x0: Array, x: Array) -> Any:
    """∂o₁/∂x₁ = p₁₁ + Σ_j p_1j x_j² − o₁² + x₁ p₁₁ (x₁ − o₁)."""
    tokens = rows(x0, x)
    p = weights(x0, tokens)
    o = p @ tokens
    own = p[:, :1]
    return own + p @ (tokens * tokens) - o * o + x0 * own * (x0 - o)


def _slope_at_zero(others: Any) -> Any:
    return _slope(0 * others[:1], others)

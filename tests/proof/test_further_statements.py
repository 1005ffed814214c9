"""Forty false statements and twenty true ones that are not in the catalogue, about attention and what it is made of.

No false one is proved or checked, and true ones are. Beside identities there are inequalities, whose gap looks right,
gradients, means, positions and statements that hold up to some size, at most points, or for one sign.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from symattn import Attention
from symattn.document.evidence import Grade
from symattn.proof.expectation import NORMAL, law_with
from symattn.proof.gradients import gradient
from symattn.proof.inequality import Certificate
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from tests.proof.identities import averaged
from tests.proof.test_false_statements import (
    abs_,
    centred,
    neither_proved_nor_checked,
    norm,
    relu,
    softmax,
    top,
    xp,
)

Sides = Callable[..., Any]
Stated = dict[str, tuple[Declared, Sides]]
PLAIN, CAUSAL = Attention(), Attention(causal=True)
VECTOR, PAIR, SCORES = {"x": "n"}, {"x": "n", "y": "n"}, {"s": "n m"}
QKV, SELF = {"q": "n d", "k": "m d", "v": "m e"}, {"q": "n d", "k": "n d", "v": "n e"}


def total(x: Any) -> Any:
    return xp(x).sum(x, axis=-1, keepdims=True)


def mean(x: Any) -> Any:
    return xp(x).mean(x, axis=-1, keepdims=True)


def lse(x: Any) -> Any:
    return xp(x).log(total(xp(x).exp(x)))


def rms(x: Any) -> Any:
    return x / xp(x).sqrt(mean(x * x))


def places(x: Any, n: Any) -> Any:
    return xp(x).arange(n)


def before(x: Any, n: Any) -> Any:
    return places(x, n)[None, :] <= places(x, n)[:, None]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + xp(x).exp(-x))


def weights(f: Sides) -> Sides:
    """∂ Σ f(s) u / ∂ s."""
    return lambda s, u: gradient(lambda s, u: xp(s).sum(f(s) * u), "s", s=s, u=u)


FALSE: Stated = {
    # softmax and sums of exponentials
    "softmax of a sum": (Declared({"s": "n m", "t": "n m"}), lambda s, t: (softmax(s + t), softmax(s) * softmax(t))),
    "softmax twice": (Declared(SCORES), lambda s: (softmax(softmax(s)), softmax(s))),
    "softmax shifted by columns": (Declared({"s": "n m", "t": "1 m"}), lambda s, t: (softmax(s + t), softmax(s))),
    "softmax of minus": (Declared(SCORES), lambda s: (softmax(-s), 1 - softmax(s))),
    "columns sum to 1": (Declared(SCORES), lambda s: (xp(s).sum(softmax(s), axis=0), 0 * s[0] + 1)),
    "a sum of logarithms": (Declared({"s": "n m", "t": "n m"}), lambda s, t: (lse(s + t), lse(s) + lse(t))),
    "lse is the maximum": (Declared(SCORES), lambda s: (lse(s), top(s))),
    "lse of equal scores": (Declared(SCORES), lambda s: (lse(0 * s + top(s)), top(s))),
    "the mean of exponentials": (Declared(VECTOR), lambda x: (mean(xp(x).exp(x)), xp(x).exp(mean(x)))),
    "two weights": (
        Declared({"x": "", "y": ""}),
        lambda x, y: (xp(x).exp(x) / (xp(x).exp(x) + xp(x).exp(y)), sigmoid(y - x)),
    ),
    # attention
    "queries mixed as values": (
        Declared({**QKV, "w": "d d"}),
        lambda q, k, v, w: (PLAIN(q @ w, k, v), PLAIN(q, k @ w, v)),
    ),
    "values twice": (Declared(SELF), lambda q, k, v: (PLAIN(q, k, PLAIN(q, k, v)), PLAIN(q, k, v))),
    "keys in another order": (Declared(QKV, {"pi": "m"}), lambda q, k, v, pi: (PLAIN(q, k[pi], v), PLAIN(q, k, v))),
    "causal tokens in another order": (
        Declared({"x": "n d"}, {"pi": "n"}),
        lambda x, pi: (CAUSAL(x[pi], x[pi], x[pi]), CAUSAL(x, x, x)[pi]),
    ),
    "top-left is bottom-right": (
        Declared(QKV),
        lambda q, k, v: (Attention(causal=True, alignment="top-left")(q, k, v), CAUSAL(q, k, v)),
    ),
    "a window of 12": (Declared(SELF), lambda q, k, v: (Attention(causal=True, window=12)(q, k, v), CAUSAL(q, k, v))),
    "a zero sink": (Declared(QKV), lambda q, k, v: (Attention(sink="zero")(q, k, v), PLAIN(q, k, v))),
    "softcap": (Declared(QKV), lambda q, k, v: (Attention(softcap=50)(q, k, v), PLAIN(q, k, v))),
    "scaled by the size": (Declared(QKV), lambda q, k, v: (Attention(scale="1/d_k")(q, k, v), PLAIN(q, k, v))),
    "one more key": (
        Declared({**QKV, "a": "1 d", "b": "1 e"}),
        lambda q, k, v, a, b: (
            PLAIN(q, xp(k).concat([k, a], axis=0), xp(v).concat([v, b], axis=0)),
            PLAIN(q, k, v) + b,
        ),
    ),
    "halves averaged": (
        Declared({**QKV, "j": "p d", "w": "p e"}),
        lambda q, k, v, j, w: (
            PLAIN(q, xp(k).concat([k, j], axis=0), xp(v).concat([v, w], axis=0)),
            (PLAIN(q, k, v) + PLAIN(q, j, w)) / 2,
        ),
    ),
    # norms
    "rms of a multiple": (Declared({"a": "", "x": "m n"}), lambda a, x: (rms(a * x), rms(x))),
    "rms of a shift": (Declared({"x": "m n", "t": "m 1"}), lambda x, t: (rms(x + t), rms(x))),
    "variance by n − 1": (Declared({"x": "m n"}), lambda x, n: (total(centred(x) ** 2) * n, (n - 1) * total(x * x))),
    "the norm of a product": (Declared(PAIR), lambda x, y: (norm(x * y), norm(x) * norm(y))),
    # gradients
    "the slope of softmax": (
        Declared({"s": "m", "u": "m"}),
        lambda s, u: (weights(softmax)(s, u), softmax(s) * (1 - softmax(s)) * u),
    ),
    "a softmax that is linear": (Declared({"s": "m", "u": "m"}), lambda s, u: (weights(softmax)(s, u), softmax(s) * u)),
    "the slope of a square": (Declared({"s": "m", "u": "m"}), lambda s, u: (weights(lambda s: s * s)(s, u), s * u)),
    "the slope of relu": (Declared({"s": "m", "u": "m"}), lambda s, u: (weights(relu)(s, u), u)),
    # positions and sums over them
    "Gauss without one": (Declared(VECTOR), lambda x, n: (2 * xp(x).sum(xp(x).where(before(x, n), 1, 0)), n * n)),
    "what comes before": (
        Declared({"x": "n"}),
        lambda x, n: (xp(x).sum(xp(x).where(before(x, n), x[None, :], 0), axis=1), xp(x).cumulative_sum(x) - x),
    ),
    "seven sizes": (
        Declared(VECTOR),
        lambda x, n: (
            (n - 1) * (n - 2) * (n - 3) * (n - 4) * (n - 5) * (n - 6) * (n - 7) * xp(x).sum(x),
            0 * xp(x).sum(x),
        ),
    ),
    # signs, maxima, numbers
    "the larger of opposites": (Declared(VECTOR), lambda x: (xp(x).maximum(x, -x), x)),
    "a difference of absolutes": (Declared(PAIR), lambda x, y: (abs_(x - y), abs_(x) - abs_(y))),
    "the maximum is a mean": (Declared(VECTOR), lambda x: (top(x), mean(x))),
    "a root of 2": (Declared(VECTOR), lambda x: (x * xp(x).sqrt(xp(x).asarray(2)), x * Fraction(99, 70))),
    "tanh of a double": (Declared(VECTOR), lambda x: (xp(x).tanh(2 * x), 2 * xp(x).tanh(x))),
    # means
    "a square of a mean": (
        Declared({"x": "", "s": "", "m": ""}, positive=("s",)),
        averaged(lambda E, s, m: (E(lambda x: x * x), m * m), {"x": law_with("s", "m")}),
    ),
    "one letter twice": (
        Declared({"x": "n", "s": ""}, positive=("s",)),
        averaged(lambda E, s, n: (E(lambda x: xp(x).sum(x) ** 4), n * s**4), {"x": law_with("s")}),
    ),
    "the fourth moment of the normal": (
        Declared({"x": "n"}),
        averaged(lambda E, n: (E(lambda x: xp(x).sum(x * x) ** 2), n * n), {"x": NORMAL}),
    ),
}

PROVED: Stated = {
    "softmax of a sum": (
        Declared({"s": "n m", "t": "n m"}),
        lambda s, t: (softmax(s + t), softmax(s) * softmax(t) / total(softmax(s) * softmax(t))),
    ),
    "lse of a shift": (Declared({"s": "n m", "t": "n 1"}), lambda s, t: (xp(s).exp(lse(s + t)), xp(s).exp(lse(s) + t))),
    "two weights": (
        Declared({"x": "", "y": ""}),
        lambda x, y: (xp(x).exp(x) / (xp(x).exp(x) + xp(x).exp(y)), sigmoid(x - y)),
    ),
    "rows sum to 1": (Declared(SCORES), lambda s: (total(softmax(s)), 0 * total(s) + 1)),
    "queries mixed": (
        Declared({**QKV, "w": "d d"}),
        lambda q, k, v, w: (PLAIN(q @ w, k, v), PLAIN(q, k @ xp(w).matrix_transpose(w), v)),
    ),
    "tokens in another order": (
        Declared({"x": "n d"}, {"pi": "n"}),
        lambda x, pi: (PLAIN(x[pi], x[pi], x[pi]), PLAIN(x, x, x)[pi]),
    ),
    "halves weighed": (
        Declared({"s": "n m", "t": "n p", "v": "m e", "w": "p e"}),
        lambda s, t, v, w: (
            softmax(xp(s).concat([s, t], axis=1)) @ xp(v).concat([v, w], axis=0),
            (xp(s).exp(s) @ v + xp(s).exp(t) @ w) / (total(xp(s).exp(s)) + total(xp(s).exp(t))),
        ),
    ),
    "variance": (Declared({"x": "m n"}), lambda x: (mean(centred(x) ** 2), mean(x * x) - mean(x) ** 2)),
    "rms of equal entries": (Declared({"x": "m 1"}, positive=("x",)), lambda x: (rms(x) * rms(x), 0 * x + 1)),
    "the slope of softmax": (
        Declared({"s": "m", "u": "m"}),
        lambda s, u: (weights(softmax)(s, u), softmax(s) * (u - total(softmax(s) * u))),
    ),
    "the slope of lse": (Declared({"s": "m"}), lambda s: (gradient(lambda s: lse(s)[0], "s", s=s), softmax(s))),
    "the slope of a square": (Declared({"s": "m", "u": "m"}), lambda s, u: (weights(lambda s: s * s)(s, u), 2 * s * u)),
    "Gauss": (Declared(VECTOR), lambda x, n: (2 * xp(x).sum(xp(x).where(before(x, n), 1, 0)), n * (n + 1))),
    "what comes before": (
        Declared({"x": "n"}),
        lambda x, n: (xp(x).sum(xp(x).where(before(x, n), x[None, :], 0), axis=1), xp(x).cumulative_sum(x)),
    ),
    "a square of a mean": (
        Declared({"x": "", "s": "", "m": ""}, positive=("s",)),
        averaged(lambda E, s, m: (E(lambda x: x * x), m * m + s * s), {"x": law_with("s", "m")}),
    ),
    "the fourth moment of the normal": (
        Declared({"x": "n"}),
        averaged(lambda E, n: (E(lambda x: xp(x).sum(x * x) ** 2), n * (n + 2)), {"x": NORMAL}),
    ),
}

CHECKED: Stated = {
    "the larger of opposites": (Declared(VECTOR), lambda x: (xp(x).maximum(x, -x) ** 2, x * x)),
    "lse of equal scores": (
        Declared({"s": "n m"}),
        lambda s, m: (total(xp(s).exp(top(s) + 0 * s)), m * xp(s).exp(top(s))),
    ),
    "relu of a difference": (Declared(PAIR), lambda x, y: (relu(x - y) + y, xp(x).maximum(x, y))),
    "the slope of relu": (Declared(VECTOR), lambda x: (relu(x) * relu(-x), 0 * x)),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_false_statement_is_neither_proved_nor_checked(name: str) -> None:
    neither_proved_nor_checked(*FALSE[name])


@pytest.mark.parametrize("name", PROVED)
def test_a_true_statement_is_proved(name: str) -> None:
    decision = Identity(*PROVED[name], false=()).decide()
    assert decision.evidence.grade is Grade.PROVED, decision


@pytest.mark.parametrize("name", CHECKED)
def test_a_true_statement_is_at_least_checked(name: str) -> None:
    decision = Identity(*CHECKED[name], false=()).decide()
    assert decision.evidence.grade in (Grade.PROVED, Grade.CHECKED), decision


# name: what is declared, (smaller, larger), a gap that is never negative, and what that takes for granted
WRONG: dict[str, tuple[Declared, Sides, Sides, dict[str, Any]]] = {
    "a square is larger": (Declared(VECTOR), lambda x: (x, x * x), lambda x: x * x, {}),
    "the gap of another pair": (Declared(PAIR), lambda x, y: (3 * x * y, x * x + y * y), lambda x, y: (x - y) ** 2, {}),
    "e^x is over x²": (Declared(VECTOR), lambda x: (x * x, xp(x).exp(x)), lambda x: xp(x).exp(x) - 1 - x, {}),
    "positive by name": (
        Declared(VECTOR),
        lambda x: (0 * x, -x * x),
        lambda x, h: h,
        {"assumed": {"h": ("n", lambda x: -x * x)}},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_false_inequality_is_not_proved(name: str) -> None:
    declared, sides, gap, more = WRONG[name]
    method = Certificate(declared, sides, gap, lambda **_: None, **{"assumed": {}, **more})
    decision = method.decide()
    granted = bool(more)  # under what is never met; there is no witness, so the theorem is undecided
    assert decision.evidence.grade in (Grade.REFUTED, Grade.UNDECIDED) or (granted and not method.witness())

"""True statements that are not in the catalogue stay proved, or at least checked."""

from collections.abc import Callable
from typing import Any

import pytest

from symattn import Attention
from symattn.attention.softmax import softmax
from symattn.proof.expectation import NORMAL, law_with
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from tests.proof.identities import averaged
from tests.proof.test_false_statements import abs_, centred, fourth, layer_norm, least, norm, relu, squares, top, xp

PLAIN, CAUSAL = Attention(), Attention(causal=True)
VECTOR, PAIR, SCALED = {"x": "n"}, {"x": "n", "y": "n"}, {"a": "", "x": "n"}
QKV = {"q": "n d", "k": "m d", "v": "m e"}
SELF = {"q": "n d", "k": "n d", "v": "n e"}


def add_up(x: Any) -> Any:
    return xp(x).sum(x, axis=-1, keepdims=True)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + xp(x).exp(-x))


def e2(x: Any) -> Any:
    return (xp(x).sum(x) ** 2 - xp(x).sum(x * x)) / 2


PROVED: dict[str, tuple[Declared, Callable[..., Any]]] = {
    "the same value where the divisor is zero": (
        Declared(VECTOR),
        lambda x: (xp(x).where(x != 0, x / xp(x).where(x != 0, x, 0 * x + 1), 0 * x + 1), 0 * x + 1),
    ),
    "rows by their squares, and back": (
        Declared({"x": "m n"}),
        lambda x: (x / (safe := xp(x).where(squares(x) == 0, 0 * squares(x) + 1, squares(x))) * safe, x),
    ),
    "binomial": (
        Declared(PAIR),
        lambda x, y: (add_up(x + y) ** 2, add_up(x) ** 2 + 2 * add_up(x) * add_up(y) + add_up(y) ** 2),
    ),
    "parallelogram": (
        Declared(PAIR),
        lambda x, y: (add_up((x + y) ** 2) + add_up((x - y) ** 2), 2 * add_up(x * x + y * y)),
    ),
    "lagrange": (
        Declared({"x": "2", "y": "2"}),
        lambda x, y: (
            add_up(x * x) * add_up(y * y) - add_up(x * y) ** 2,
            (x[0] * y[1] - x[1] * y[0]) ** 2 + 0 * add_up(x),
        ),
    ),
    "centred sums to zero": (Declared({"x": "m n"}), lambda x: (add_up(centred(x)), 0 * add_up(x))),
    "variance twice": (
        Declared({"x": "m n"}),
        lambda x: (xp(x).mean(centred(x) ** 2, axis=-1), xp(x).mean(x * x, axis=-1) - xp(x).mean(x, axis=-1) ** 2),
    ),
    "sigmoid mirrored": (Declared(VECTOR), lambda x: (sigmoid(-x), 1 - sigmoid(x))),
    "exponentials add": (Declared(PAIR), lambda x, y: (xp(x).exp(x + y) * xp(x).exp(-y), xp(x).exp(x))),
    "softmax of two copies": (Declared({"x": "m n", "t": "m 1"}), lambda x, t: (softmax(x + 3 * t), softmax(x - t))),
    "weights of equal keys": (
        Declared({"t": "m 1", "x": "m n"}),
        lambda t, x, n: (softmax(0 * x + t), 0 * x + 1 / (n + 0 * x)),
    ),
    "values may be scaled": (Declared({**QKV, "a": ""}), lambda q, k, v, a: (PLAIN(q, k, a * v), a * PLAIN(q, k, v))),
    "values may be mixed": (Declared({**QKV, "w": "e f"}), lambda q, k, v, w: (PLAIN(q, k, v @ w), PLAIN(q, k, v) @ w)),
    "permuted keys": (Declared(QKV, {"pi": "m"}), lambda q, k, v, pi: (PLAIN(q, k[pi], v[pi]), PLAIN(q, k, v))),
    "permuted twice": (Declared(VECTOR, {"pi": "n"}), lambda x, pi: (xp(x).sum(x[pi][pi]), xp(x).sum(x))),
    "causal rows sum to 1": (Declared(SELF), lambda q, k, v: (CAUSAL(q, k, 0 * v + 1), 0 * CAUSAL(q, k, v) + 1)),
    "the normal's sixth moment": (Declared({"x": ""}), averaged(lambda E: (E(lambda x: x**6), 15), {"x": NORMAL})),
    "the variance of a sum": (
        Declared({"x": "n", "y": "n", "s": "", "t": ""}),
        averaged(
            lambda E, n, s, t: (E.variance(lambda x, y: xp(x).sum(x + y)), n * (s * s + t * t)),
            {"x": law_with("s"), "y": law_with("t")},
        ),
    ),
    "unit pairs": (Declared({"c": "n", "s": "n"}, units=(("c", "s"),)), lambda c, s: (c**4 - s**4, c * c - s * s)),
    "logarithm of a product": (
        Declared(PAIR, positive=("x", "y")),
        lambda x, y: (xp(x).exp(xp(x).log(x) + xp(x).log(y)), x * y),
    ),
    "any circle": (Declared(VECTOR), lambda x: (xp(x).pi * x**2 + xp(x).pi * x**2, 2 * xp(x).pi * x * x)),
    "a cast of a mask": (
        Declared({"x": "n n"}),
        lambda x, n: (
            x * xp(x).astype(xp(x).arange(n)[:, None] == xp(x).arange(n), xp(x).float64),
            xp(x).where(xp(x).arange(n)[:, None] == xp(x).arange(n), x, 0 * x),
        ),
    ),
    "e2 of two": (Declared({"x": "2"}), lambda x: (e2(x), x[0] * x[1])),
    "e4 of three": (Declared({"x": "3"}), lambda x: (fourth(x), 0)),
    "sizes as numbers": (Declared(VECTOR), lambda x, n: ((n - 1) * (n + 1) * x, (n * n - 1) * x)),
}
CHECKED: dict[str, tuple[Declared, Callable[..., Any]]] = {
    "queries and keys turn together": (
        Declared({"q": "n d", "k": "m d", "v": "m e", "a": ""}, positive=("a",)),
        lambda q, k, v, a: (PLAIN(q * a, k / a, v), PLAIN(q, k, v)),
    ),
    "equal values": (
        Declared({"q": "n d", "k": "m d", "v": "1 e"}),
        lambda q, k, v: (PLAIN(q, k, v + 0 * k[:, :1]), v + 0 * PLAIN(q, k, k[:, :1])),
    ),
    "maximum of a sum with a number": (Declared({"x": "n", "t": "1"}), lambda x, t: (top(x + t), top(x) + t)),
    "root of a square": (Declared(VECTOR), lambda x: (xp(x).sqrt(x * x), abs_(x))),
    "positive multiples of a maximum": (Declared(SCALED, positive=("a",)), lambda a, x: (top(a * x), a * top(x))),
    "relu twice": (Declared(VECTOR), lambda x: (relu(relu(x)), relu(x))),
    "relu of positive multiples": (Declared(SCALED, positive=("a",)), lambda a, x: (relu(a * x), a * relu(x))),
    "relu splits": (Declared(VECTOR), lambda x: (relu(x) - relu(-x), x)),
    "clipping twice": (Declared(VECTOR), lambda x: (least(least(x, 5), 2), least(x, 2))),
    "norm of a multiple": (Declared(SCALED), lambda a, x: (norm(a * x), abs_(a) * norm(x))),
    "larger of two": (Declared(PAIR), lambda x, y: (2 * xp(x).maximum(x, y), x + y + abs_(x - y))),
    "layer norm of positive multiples": (
        Declared({"a": "", "x": "m n"}, positive=("a",)),
        lambda a, x: (layer_norm(a * x), layer_norm(x)),
    ),
    "a maximum is one of them": (Declared(VECTOR), lambda x: (xp(x).max(x - top(x), axis=-1), 0 * xp(x).sum(x))),
    "units that overlap": (
        Declared({"c": "n", "s": "n", "t": "n"}, units=(("c", "s"), ("c", "t"))),
        lambda c, s, t: (s * s, t * t),
    ),
    "overlap by a maximum": (
        Declared({"c": "n", "s": "n", "t": "n"}, units=(("c", "s"), ("c", "t"))),
        lambda c, s, t: (abs_(s), abs_(t)),
    ),
}


@pytest.mark.parametrize("name", PROVED)
def test_a_true_statement_stays_proved(name: str):
    decision = Identity(*PROVED[name], false=()).decide()
    assert decision.evidence.grade.value == "proved", decision


@pytest.mark.deep
@pytest.mark.parametrize("name", CHECKED)
def test_a_true_statement_stays_checked_and_says_why_it_is_not_proved(name: str):
    decision = Identity(*CHECKED[name], false=()).decide()
    assert decision.evidence.grade.value in ("checked", "proved"), decision
    if decision.evidence.grade.value == "checked":
        assert any("not proved for all sizes" in str(words) for words in decision.argument)

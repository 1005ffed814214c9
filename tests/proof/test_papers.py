"""True statements about attention from papers, which the catalogue does not hold: most are proved, the others checked.

They are about FlashAttention and its backward pass, split keys, ALiBi, rotary positions, linear attention, latents,
sinks, sigmoid attention, norms and their gains, temperatures, gradients, caches, means, and distances.
"""

from collections.abc import Callable
from typing import Any

import pytest

from symattn import Attention
from symattn.document.evidence import Grade
from symattn.proof.expectation import law_with
from symattn.proof.gradients import gradient
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from tests.proof.identities import averaged
from tests.proof.test_false_statements import centred, layer_norm, relu, softmax, top, xp
from tests.proof.test_further_statements import before, lse, mean, places, rms, sigmoid, total

Stated = dict[str, tuple[Declared, Callable[..., Any]]]
QKV, SCORES = {"q": "n d", "k": "m d", "v": "m e"}, {"s": "n m"}


def exp(x: Any) -> Any:
    return xp(x).exp(x)


def log(x: Any) -> Any:
    return xp(x).log(x)


def numbers(x: Any, n: Any) -> Any:
    """0, 1, …, n − 1 as numbers."""
    return xp(x).astype(places(x, n), x.dtype)


PROVED: Stated = {
    "flash: rescaled accumulators of two tiles": (
        Declared({"s": "n m", "t": "n p", "v": "m e", "w": "p e", "a": "n 1", "b": "n 1", "c": "n 1"}),
        lambda s, t, v, w, a, b, c: (
            (exp(a - c) * (exp(s - a) @ v) + exp(b - c) * (exp(t - b) @ w))
            / (exp(a - c) * total(exp(s - a)) + exp(b - c) * total(exp(t - b))),
            softmax(xp(s).concat([s, t], axis=1)) @ xp(v).concat([v, w], axis=0),
        ),
    ),
    "flash: the weights from the logsumexp": (Declared(SCORES), lambda s: (exp(s - lse(s)), softmax(s))),
    "flash backward: dS from D": (
        Declared({"s": "n m", "v": "m e", "g": "n e"}),
        lambda s, v, g: (
            gradient(lambda s, v, g: xp(s).sum((softmax(s) @ v) * g), "s", s=s, v=v, g=g),
            softmax(s) * (g @ v.mT - total(g * (softmax(s) @ v))),
        ),
    ),
    "flash backward: D is the row sum of P dP": (
        Declared({"s": "n m", "v": "m e", "g": "n e"}),
        lambda s, v, g: (total(softmax(s) * (g @ v.mT)), total(g * (softmax(s) @ v))),
    ),
    "split-k: three parts": (
        Declared({"s": "n m", "t": "n p", "u": "n r"}),
        lambda s, t, u: (exp(lse(xp(s).concat([s, t, u], axis=1))), exp(lse(s)) + exp(lse(t)) + exp(lse(u))),
    ),
    "split-k: the merge is a sigmoid": (
        Declared({"s": "n m", "t": "n p", "v": "m e", "w": "p e"}),
        lambda s, t, v, w: (
            softmax(xp(s).concat([s, t], axis=1)) @ xp(v).concat([v, w], axis=0),
            sigmoid(lse(s) - lse(t)) * (softmax(s) @ v) + sigmoid(lse(t) - lse(s)) * (softmax(t) @ w),
        ),
    ),
    "ALiBi: slopes add": (
        Declared({"s": "n n", "a": "", "b": ""}),
        lambda s, a, b, n: (
            softmax(s + a * numbers(s, n)[None, :] + b * numbers(s, n)[None, :]),
            softmax(s + (a + b) * numbers(s, n)[None, :]),
        ),
    ),
    "RoPE: a plane keeps its norm": (
        Declared({"x": "n", "y": "n", "c": "n", "s": "n"}, units=(("c", "s"),)),
        lambda x, y, c, s: ((c * x - s * y) ** 2 + (s * x + c * y) ** 2, x * x + y * y),
    ),
    "RoPE: a plane's scores": (
        Declared({"x": "n", "y": "n", "u": "n", "w": "n", "c": "n", "s": "n"}, units=(("c", "s"),)),
        lambda x, y, u, w, c, s: ((c * x - s * y) * (c * u - s * w) + (s * x + c * y) * (s * u + c * w), x * u + y * w),
    ),
    "RoPE: turning back": (
        Declared({"x": "n", "y": "n", "c": "n", "s": "n"}, units=(("c", "s"),)),
        lambda x, y, c, s: (c * (c * x - s * y) + s * (s * x + c * y), x),
    ),
    "linear attention: keys first": (
        Declared({"q": "n d", "k": "m d", "v": "m e"}, positive=("q", "k")),
        lambda q, k, v: ((q @ k.mT) @ v / total(q @ k.mT), (q @ (k.mT @ v)) / (q @ xp(k).sum(k, axis=0)[:, None])),
    ),
    "linear attention: elu+1 features scale": (
        Declared({"q": "n d", "k": "m d", "v": "m e", "a": ""}, positive=("q", "k", "a")),
        lambda q, k, v, a: (((a * q) @ k.mT) @ v / total((a * q) @ k.mT), (q @ k.mT) @ v / total(q @ k.mT)),
    ),
    "linear attention: causal by prefix sums": (
        Declared({"q": "n d", "k": "n d", "v": "n e"}),
        lambda q, k, v, n: (
            xp(q).where(before(q, n), q @ k.mT, 0 * (q @ k.mT)) @ v,
            xp(q).sum(q[:, :, None] * xp(q).cumulative_sum(k[:, :, None] * v[:, None, :], axis=0), axis=1),
        ),
    ),
    "retention: decay by a factor of both": (
        Declared({"s": "n n", "a": "n"}, positive=("a",)),
        lambda s, a: (s * (a[:, None] / a[None, :]), (s / a[None, :]) * a[:, None]),
    ),
    "MLA: queries absorb the up projection": (
        Declared({"q": "n d", "c": "m r", "u": "r d"}),
        lambda q, c, u: (q @ (c @ u).mT, (q @ u.mT) @ c.mT),
    ),
    "MLA: values after the weights": (
        Declared({"s": "n m", "c": "m r", "u": "r e"}),
        lambda s, c, u: (softmax(s) @ (c @ u), (softmax(s) @ c) @ u),
    ),
    "MLA: scores of two parts add": (
        Declared({"q": "n d", "k": "m d", "r": "n f", "t": "m f"}),
        lambda q, k, r, t: (xp(q).concat([q, r], axis=1) @ xp(k).concat([k, t], axis=1).mT, q @ k.mT + r @ t.mT),
    ),
    "sink: weights are scaled by one gate": (
        Declared({"s": "n m", "b": "n 1"}),
        lambda s, b: (exp(s) / (exp(b) + total(exp(s))), softmax(s) * sigmoid(lse(s) - b)),
    ),
    "sink: two sinks are one": (
        Declared({"s": "n m", "a": "n 1", "b": "n 1"}),
        lambda s, a, b: (
            exp(s) / (exp(a) + exp(b) + total(exp(s))),
            exp(s) / (exp(log(exp(a) + exp(b))) + total(exp(s))),
        ),
    ),
    "sink: the weights and the sink's share sum to 1": (
        Declared({"s": "n m", "b": "n 1"}),
        lambda s, b: (total(exp(s)) / (exp(b) + total(exp(s))) + sigmoid(b - lse(s)), 0 * b + 1),
    ),
    "softmax off by one": (Declared(SCORES), lambda s: (exp(s) / (1 + total(exp(s))), softmax(s) * sigmoid(lse(s)))),
    "sigmoid attention: of two keys it is softmax": (
        Declared({"s": "n", "t": "n"}),
        lambda s, t: (sigmoid(s - t), exp(s) / (exp(s) + exp(t))),
    ),
    "sigmoid: its slope": (
        Declared({"s": "n", "u": "n"}),
        lambda s, u: (gradient(lambda s, u: xp(s).sum(sigmoid(s) * u), "s", s=s, u=u), sigmoid(s) * sigmoid(-s) * u),
    ),
    "tanh by sigmoid": (
        Declared({"x": "n"}),
        lambda x: ((exp(x) - exp(-x)) / (exp(x) + exp(-x)), 2 * sigmoid(2 * x) - 1),
    ),
    "swish: x less its mirror": (Declared({"x": "n"}), lambda x: (x * sigmoid(x) - (-x) * sigmoid(-x), x)),
    "layer norm: the mean of squares": (
        Declared({"x": "m n"}),
        lambda x: (mean(centred(x) ** 2) + mean(x) ** 2, mean(x * x)),
    ),
    "layer norm: the same after centring": (Declared({"x": "m n"}), lambda x: (centred(centred(x)), centred(x))),
    "rms norm: gains fold into weights": (
        Declared({"x": "m n", "g": "n", "w": "n p"}),
        lambda x, g, w: ((rms(x) * g) @ w, rms(x) @ (g[:, None] * w)),
    ),
    "temperature: log ratios": (
        Declared({"s": "n", "b": ""}),
        lambda s, b: (softmax(b * s)[:, None] / softmax(b * s)[None, :], exp(b * (s[:, None] - s[None, :]))),
    ),
    "temperature: squared weights": (
        Declared(SCORES),
        lambda s: (softmax(2 * s), softmax(s) ** 2 / total(softmax(s) ** 2)),
    ),
    "gradient: of the logsumexp at a temperature": (
        Declared({"s": "m", "b": ""}, positive=("b",)),
        lambda s, b: (gradient(lambda s, b: (lse(b * s) / b)[0], "s", s=s, b=b), softmax(b * s)),
    ),
    "gradient: of cross entropy by targets": (
        Declared({"s": "m", "y": "m"}),
        lambda s, y: (gradient(lambda s, y: xp(s).sum(y * (lse(s) - s)), "s", s=s, y=y), softmax(s) * xp(s).sum(y) - y),
    ),
    "gradient: of a quadratic form": (
        Declared({"x": "n d", "w": "d d", "g": "n n"}),
        lambda x, w, g: (gradient(lambda x, w, g: xp(x).sum(g * (x @ w @ x.mT)), "w", x=x, w=w, g=g), x.mT @ g @ x),
    ),
    "gradient: values get the weights": (
        Declared({"s": "n m", "v": "m e", "g": "n e"}),
        lambda s, v, g: (
            gradient(lambda s, v, g: xp(s).sum((softmax(s) @ v) * g), "v", s=s, v=v, g=g),
            softmax(s).mT @ g,
        ),
    ),
    "gradient: the rows of dS sum to 0": (
        Declared({"s": "n m", "g": "n m"}),
        lambda s, g: (total(gradient(lambda s, g: xp(s).sum(softmax(s) * g), "s", s=s, g=g)), 0 * total(s)),
    ),
    "cache: one token more": (
        Declared({"q": "1 d", "k": "m d", "v": "m e", "j": "1 d", "w": "1 e"}),
        lambda q, k, v, j, w: (
            Attention(causal=True)(q, xp(k).concat([k, j], axis=0), xp(v).concat([v, w], axis=0)),
            Attention()(q, xp(k).concat([k, j], axis=0), xp(v).concat([v, w], axis=0)),
        ),
    ),
    "means: the variance of a mean": (
        Declared({"x": "n", "s": "", "m": ""}, positive=("s",)),
        averaged(lambda E, s, m, n: (E.variance(lambda x: xp(x).sum(x)), n * s * s), {"x": law_with("s", "m")}),
    ),
    "means: a product of independent sums": (
        Declared({"x": "n", "y": "n", "s": "", "t": ""}, positive=("s", "t")),
        averaged(
            lambda E, s, t, n: (E(lambda x, y: xp(x).sum(x * y) ** 2), n * s * s * t * t),
            {"x": law_with("s"), "y": law_with("t")},
        ),
    ),
    "means: the squared norm": (
        Declared({"x": "n", "s": ""}, positive=("s",)),
        averaged(lambda E, s, n: (E(lambda x: xp(x).sum(x * x)), n * s * s), {"x": law_with("s")}),
    ),
    "distance: by norms and dot products": (
        Declared({"q": "n d", "k": "m d"}),
        lambda q, k: (
            xp(q).sum((q[:, None, :] - k[None, :, :]) ** 2, axis=-1),
            xp(q).sum(q * q, axis=-1)[:, None] + xp(k).sum(k * k, axis=-1)[None, :] - 2 * q @ k.mT,
        ),
    ),
    "distance: softmax drops the query's norm": (
        Declared({"q": "n d", "k": "m d"}),
        lambda q, k: (
            softmax(-xp(q).sum((q[:, None, :] - k[None, :, :]) ** 2, axis=-1)),
            softmax(2 * q @ k.mT - xp(k).sum(k * k, axis=-1)[None, :]),
        ),
    ),
}

CHECKED: Stated = {
    "ALiBi: distance from the last key": (
        Declared({"s": "n n", "a": ""}),
        lambda s, a, n: (softmax(s - a * (n - 1 - numbers(s, n))[None, :]), softmax(s + a * numbers(s, n)[None, :])),
    ),
    "layer norm: a shift by a row": (
        Declared({"x": "m n", "t": "m 1"}),
        lambda x, t: (layer_norm(x + t), layer_norm(x)),
    ),
    "layer norm: gains fold into weights": (
        Declared({"x": "m n", "g": "n", "b": "n", "w": "n p"}),
        lambda x, g, b, w: ((layer_norm(x) * g + b) @ w, layer_norm(x) @ (g[:, None] * w) + b @ w),
    ),
    "causal: the last row sees all": (
        Declared(QKV),
        lambda q, k, v: (Attention(causal=True)(q[-1:], k, v), Attention()(q[-1:], k, v)),
    ),
    "entmax of order 2 of two keys": (
        Declared({"s": ""}),
        lambda s: (relu((1 + s) / 2) - relu((s - 1) / 2), xp(s).minimum(xp(s).maximum((1 + s) / 2, 0 * s), 0 * s + 1)),
    ),
    "relu attention: positive multiples": (
        Declared({"q": "n d", "k": "m d", "v": "m e", "a": ""}, positive=("a",)),
        lambda q, k, v, a: (relu((a * q) @ k.mT) @ v, a * (relu(q @ k.mT) @ v)),
    ),
    "softplus less its mirror": (Declared({"x": "n"}), lambda x: (log(1 + exp(x)) - log(1 + exp(-x)), x)),
    "max: of both signs": (Declared({"x": "n"}), lambda x: (top(xp(x).maximum(x, -x)), xp(x).maximum(top(x), top(-x)))),
    "delta rule: the new value is read": (
        Declared({"h": "d e", "k": "d", "v": "e"}),
        lambda h, k, v: (k @ (h + k[:, None] * (v - k @ h)[None, :]), k @ h + xp(k).sum(k * k) * (v - k @ h)),
    ),
}


@pytest.mark.parametrize("name", PROVED)
def test_it_is_proved(name: str) -> None:
    decision = Identity(*PROVED[name], false=()).decide()
    assert decision.evidence.grade is Grade.PROVED, decision


@pytest.mark.deep
@pytest.mark.parametrize("name", CHECKED)
def test_it_is_checked_at_least(name: str) -> None:
    decision = Identity(*CHECKED[name], false=()).decide()
    assert decision.evidence.grade in (Grade.PROVED, Grade.CHECKED), decision

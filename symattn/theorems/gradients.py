"""Gradients: of softmax, and of attention as backward passes compute them; of its steps in ``gradients_steps``."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.gradients.attention import Gradients, backward, softmax_vjp
from symattn.attention.notation import D_K, D_V, N_K, N_Q
from symattn.attention.scores import scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import Node, Over, Partial, Root, call, equals, name, node, relation, total
from symattn.proof.gradients import gradient, jacobian
from symattn.proof.relations.glossary import Definition, Glossary
from symattn.proof.rules import OfTheLargest
from symattn.proof.statement import Pair
from symattn.proof.theorem import Theorem, theorem
from symattn.proof.together import bound
from symattn.theorems import gradients_steps
from symattn.theorems.letters import (
    ATTENDING,
    ATTENTION,
    OUT,
    G,
    K,
    P,
    Q,
    V,
    largest,
    magnitude,
    over_keys,
    same,
    smallest,
    t,
    weights,
)
from symattn.theorems.sums import add_up, greatest, others, sign
from symattn.theorems.sums import weights as weights_of

TOPIC = "gradients"
QKVG = {"q": "n_q d_k", "k": "n_k d_k", "v": "n_k d_v", "g": "n_q d_v"}
HEADS = {f"{letter}_h": f"h {shape}" for letter, shape in QKVG.items()}
SQUARE = {"a": "n_q d_k", "b": "n_q d_v"}  # as many keys and values as queries, for false variants
MEANING = (("ℓ is the sum of the entries of ", G, " times those of ", OUT, "; dX is its gradient by X"),)
_ROW = Glossary(
    {"s": "m", "g": "m"},
    sizes={"m": "m", "n_k": "m"},
    index={"i": "m", "j": "m", "l": "m"},
    defined={"p": Definition((), call("softmax", "s"))},
)
FLASH = "Dao et al., FlashAttention (2022)"


def _p(*at: Any) -> Node:
    return name("p", *at, role="weight")


def _of(letter: str, *at: Any) -> Node:
    """∂ℓ/∂letter, as the backward pass names it: dS_ij."""
    return name("d" + letter, *at)


_DELTA = name("δ", "i", "j")
_INNER = total(name("l"), 1, N_K, _p("i", "l") * _of("P", "i", "l"))


_FORWARD = ATTENDING.also(
    defined={"ℓ": total("i", 1, N_Q, total("c", 1, D_V, name("G", "i", "c") * name("O", "i", "c")))}, loss="ℓ"
)
LETTERS = _FORWARD.also(
    defined={"dP": G * t(V), "dS": Definition(("i", "j"), _p("i", "j") * (_of("P", "i", "j") - _INNER))}
)


def _loss(q: Array, k: Array, v: Array, g: Array) -> Any:
    """⟨G, Attention(Q, K, V)⟩."""
    return (g * ATTENTION(q, k, v)).sum()


# -- softmax ----------------------------------------------------------------------------------------------------------


@theorem(
    "softmax-jacobian",
    TOPIC,
    same(Partial(_p("i"), name("s", "j", role="score")), _p("i") * (_DELTA - _p("j"))),
    letters=_ROW,
    arrays={"s": "m"},
    why="The derivative of a quotient. The maximum that is subtracted may be differentiated or not: it cancels.",
    false=lambda s: (jacobian(soft, "s", s=s), _diagonal(soft(s)) + soft(s)[:, None] * soft(s)[None, :]),
    false_says=same(Partial(_p("i"), name("s", "j", role="score")), _p("i") * (_DELTA + _p("j"))),
)
def softmax_jacobian(s: Array) -> list[Pair]:
    right = _diagonal(soft(s)) - soft(s)[:, None] * soft(s)[None, :]
    return [(jacobian(soft, "s", s=s), right), (jacobian(lambda s: soft(s, stabilised=False), "s", s=s), right)]


def _diagonal(p: Array) -> Array:
    xp = p.__array_namespace__()
    places = xp.arange(p.shape[0])
    return xp.where(places[:, None] == places[None, :], p[:, None], 0)


@theorem(
    "softmax-vjp",
    TOPIC,
    same(
        Partial(total(name("j"), 1, name("m"), name("g", "j") * _p("j")), name("s", "i", role="score")),
        _p("i") * (name("g", "i") - total(name("j"), 1, name("m"), name("g", "j") * _p("j"))),
    ),
    letters=_ROW,
    arrays={"s": "m", "g": "m"},
    why="The Jacobian, transposed, times g.",
    false=lambda s, g: (_pulled_back(s, g), soft(s) * g - (soft(s) * g).sum()),
    false_says="without the factor before the bracket in its second term",
)
def softmax_vjp_is(s: Array, g: Array) -> Pair:
    return _pulled_back(s, g), softmax_vjp(soft(s), g)


def _pulled_back(s: Array, g: Array) -> Any:
    return gradient(lambda s, g: (g * soft(s)).sum(), "s", s=s, g=g)


@theorem(
    "cross-entropy-gradient",
    TOPIC,
    same(Partial(-call("log", _p("y")), name("s", "j", role="score")), _p("j") - name("δ", "j", "y")),
    letters=_ROW.also(places={"y": 0}),
    arrays={"s": "1+m"},
    hypotheses=("the label y is the first class, which is no loss: classes may be renamed",),
    why="log p_y is the score less the logarithm of the denominator.",
    false=lambda s: (_cross_entropy_gradient(s), _label(s) - soft(s)),
    false_says=same(Partial(-call("log", _p("y")), name("s", "j", role="score")), name("δ", "j", "y") - _p("j")),
)
def cross_entropy_gradient(s: Array) -> Pair:
    return _cross_entropy_gradient(s), soft(s) - _label(s)


def _cross_entropy_gradient(s: Array) -> Any:
    return gradient(lambda s: -s.__array_namespace__().log(soft(s)[0]), "s", s=s)


def _label(s: Array) -> Array:
    xp = s.__array_namespace__()
    return xp.concat([0 * s[:1] + 1, 0 * s[1:]])


# -- the backward pass ------------------------------------------------------------------------------------------------


@theorem(
    "backward-dV",
    TOPIC,
    same(_of("V"), t(P) * G),
    letters=LETTERS,
    arrays=QKVG | SQUARE,
    hypotheses=MEANING,
    source=FLASH,
    why="The output is linear in the values.",
    false=lambda q, g, a, b: (gradient(_loss, "v", q=q, k=a, v=b, g=g), weights(q, a) @ g),
    false_says=(*same(_of("V"), P * G), ", for ", equals(N_Q, N_K)),
)
def backward_dv(q: Array, k: Array, v: Array, g: Array) -> Pair:
    return gradient(_loss, "v", q=q, k=k, v=v, g=g), _backward(q, k, v, g).v


@theorem(
    "backward-dQ",
    TOPIC,
    (
        equals(_of("Q"), Over(node(1), Root(D_K)) * _of("S") * K),
        " with ",
        equals(_of("S", "i", "j"), _p("i", "j") * (_of("P", "i", "j") - _INNER)),
        " and ",
        equals(_of("P"), G * t(V)),
    ),
    letters=_FORWARD,
    arrays=QKVG | HEADS,
    hypotheses=MEANING,
    source=FLASH,
    why="The chain rule through the softmax of each row; the scores of row i depend on query i alone. So for each head"
    " of several.",
    false=(
        lambda q, k, v, g: (gradient(_loss, "q", q=q, k=k, v=v, g=g), _ds(q, k, v, g) @ k),
        lambda q, k, v, g: (
            gradient(_loss, "q", q=q, k=k, v=v, g=g),
            scale_by_root(_rowsum_outside(q, k, v, g) @ k, q),
        ),
    ),
    false_says="without the factor of the scores; or with the row sum outside the product with the weights",
)
def backward_dq(q: Array, k: Array, v: Array, g: Array, q_h: Array, k_h: Array, v_h: Array, g_h: Array) -> list[Pair]:
    every = ((q, k, v, g), (q_h, k_h, v_h, g_h))
    return [(gradient(_loss, "q", q=q, k=k, v=v, g=g), _backward(q, k, v, g).q) for q, k, v, g in every]


@theorem(
    "backward-dK",
    TOPIC,
    same(_of("K"), Over(node(1), Root(D_K)) * t(_of("S")) * Q),
    letters=LETTERS,
    arrays=QKVG | SQUARE,
    hypotheses=MEANING,
    source=FLASH,
    why="The chain rule; the scores of column j depend on key j alone.",
    false=lambda q, g, a, b: (gradient(_loss, "k", q=q, k=a, v=b, g=g), scale_by_root(_ds(q, a, b, g) @ q, q)),
    false_says=(*same(_of("K"), Over(node(1), Root(D_K)) * _of("S") * Q), ", for ", equals(N_Q, N_K)),
)
def backward_dk(q: Array, k: Array, v: Array, g: Array) -> Pair:
    return gradient(_loss, "k", q=q, k=k, v=v, g=g), _backward(q, k, v, g).k


@theorem(
    "flash-rowsum",
    TOPIC,
    same(
        over_keys(_p("i", "j") * _of("P", "i", "j")),
        total(name("c"), 1, D_V, name("G", "i", "c") * name("O", "i", "c", role="output")),
    ),
    letters=_FORWARD,
    arrays=QKVG,
    hypotheses=((equals(_of("P"), G * t(V)), ", as ", G, " is the gradient by ", OUT),),
    source=FLASH,
    why="Both are the sum over keys and columns of weight, value and gradient; so the backward pass needs no row sum"
    " over keys.",
    false=lambda q, k, v, g: ((weights(q, k) * (g @ v.mT)).sum(axis=-1), (g @ v.mT).sum(axis=-1)),
    false_says=same(over_keys(_p("i", "j") * _of("P", "i", "j")), over_keys(_of("P", "i", "j"))),
)
def flash_rowsum(q: Array, k: Array, v: Array, g: Array) -> Pair:
    return (weights(q, k) * (g @ v.mT)).sum(axis=-1), (g * ATTENTION(q, k, v)).sum(axis=-1)


@theorem(
    "score-gradient-rows-sum-zero",
    TOPIC,
    (equals(over_keys(_of("S", "i", "j")), 0), ", hence ", equals(over_keys(_of("K", "j")), 0)),
    letters=LETTERS,
    arrays=QKVG,
    hypotheses=MEANING,
    why="The weights do not change when one number is added to all scores of a row, or one vector to all keys.",
    false=lambda q, k, v, g: (gradient(_loss, "q", q=q, k=k, v=v, g=g).sum(axis=0), 0 * q.sum(axis=0)),
    false_says=same(total(name("i"), 1, N_Q, _of("Q", "i")), 0),
)
def score_gradient_rows_sum_zero(q: Any, k: Any, v: Any, g: Any) -> list[Pair]:
    ds = _ds(q, k, v, g)
    dk = gradient(_loss, "k", q=q, k=k, v=v, g=g)
    return [(ds.sum(axis=-1), 0 * ds.sum(axis=-1)), (dk.sum(axis=0), 0 * k.sum(axis=0))]


@theorem(
    "value-gradient-conserved",
    TOPIC,
    same(over_keys(_of("V", "j")), total(name("i"), 1, N_Q, name("G", "i"))),
    letters=LETTERS,
    arrays=QKVG | SQUARE,
    hypotheses=MEANING,
    why="The weights of every row sum to one.",
    false=lambda q, g, a, b: (gradient(_loss, "v", q=q, k=a, v=b, g=g), g),
    false_says=(*same(_of("V", "j"), name("G", "j")), ", for ", equals(N_Q, N_K)),
)
def value_gradient_conserved(q: Any, k: Any, v: Any, g: Any) -> Pair:
    return gradient(_loss, "v", q=q, k=k, v=v, g=g).sum(axis=0), g.sum(axis=0)


_LARGEST = largest("j", _p("i", "j"))
_SPREAD = largest("j", _of("P", "i", "j")) - smallest("j", _of("P", "i", "j"))


def _ds_of(s: Array, g: Array) -> Array:
    """dS, from the scores and dP."""
    return softmax_vjp(weights_of(s), g)


def _total_change(s: Array, g: Array) -> Array:
    """Σ_j |dS_j|."""
    return add_up(abs(_ds_of(s, g)))


def _spread_of(g: Array) -> Array:
    return greatest(g, -1) + greatest(-g, -1)


def _saturation_gap(s: Array, m: Array, over: Any, under: Any, up: Any, down: Any) -> Any:
    """p_k Σ_j p_j F(e_k; k, j) + Σ_j p_j Σ_l p_l F(e_j; j, l) + (1 − p_k)² R, j being any key but k.

    F(e; j, l) = R − e (g_j − g_l) = ((1 + e) (R − g_j + g_l) + (1 − e) (R + g_j − g_l)) / 2 for R = high − low.
    """
    p, apart = weights_of(s), others(m, s)
    high, low = under[:, :, None] + over[:, None, :], under[:, None, :] + over[:, :, None]
    f = (up[:, :, None] * high + down[:, :, None] * low) / 2
    own = p * add_up(apart * p[:, None, :] * f)[..., 0]
    rest = add_up(apart * (p * add_up(p[:, None, :] * f)[..., 0])[:, None, :])[..., 0]
    left = add_up(apart * p[:, None, :])[..., 0]
    return own + rest + left * left * (over + under)


def _with_a_square(p: Any, g: Any) -> Any:
    left = 1 - p.max(axis=-1, keepdims=True)
    spread = g.max(axis=-1, keepdims=True) - g.min(axis=-1, keepdims=True)
    pulled: Any = abs(softmax_vjp(p, g))
    return pulled.sum(axis=-1, keepdims=True), 2 * left * left * spread


score_gradient_saturates = Theorem(
    "score-gradient-saturates",
    TOPIC,
    (relation(over_keys(magnitude(_of("S", "i", "j"))), "≤", 2 * (1 - _LARGEST) * _SPREAD),),
    OfTheLargest(
        bound(
            {"s": "1 m", "g": "1 m"},
            lambda s, g: (_total_change(s, g), 2 * (1 - weights_of(s)) * _spread_of(g)),
            _saturation_gap,
            lambda s, g: _with_a_square(soft(s), g),
            laws={
                "over": ("1 m", lambda g: g + greatest(-g, -1), "largest"),
                "under": ("1 m", lambda g: greatest(g, -1) - g, "largest"),
                "up": ("1 m", lambda s, g: 1 + sign(_ds_of(s, g)), "bounded"),
                "down": ("1 m", lambda s, g: 1 - sign(_ds_of(s, g)), "bounded"),
            },
        ),
        lambda s, g: (_total_change(s, g), 2 * (1 - greatest(weights_of(s), -1)) * _spread_of(g)),
    ),
    "this catalogue",
    (relation(over_keys(magnitude(_of("S", "i", "j"))), "≤", 2 * (1 - _LARGEST) ** 2 * _SPREAD),),
    ("The key itself moves with the weight of the others, and the others have no more weight than that.",),
    (("there are two keys or more",), (equals(_of("S", "i", "j"), _p("i", "j") * (_of("P", "i", "j") - _INNER)),)),
    ATTENDING.but("S").also({"S": "n_q n_k", "dP": "n_q n_k"}, sharp="far"),
)


def _backward(q: Array, k: Array, v: Array, g: Array) -> Gradients:
    return backward(q, k, v, weights(q, k), g)


def _ds(q: Array, k: Array, v: Array, g: Array) -> Any:
    return softmax_vjp(weights(q, k), g @ v.mT)


def _rowsum_outside(q: Array, k: Array, v: Array, g: Array) -> Any:
    changed = weights(q, k) * (g @ v.mT)
    return changed - changed.sum(axis=-1, keepdims=True)


THEOREMS: tuple[Theorem, ...] = (
    softmax_jacobian,
    softmax_vjp_is,
    backward_dv,
    backward_dq,
    backward_dk,
    flash_rowsum,
    score_gradient_rows_sum_zero,
    value_gradient_conserved,
    score_gradient_saturates,
    cross_entropy_gradient,
    *gradients_steps.THEOREMS,
)

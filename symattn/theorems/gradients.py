"""Gradients: of softmax, and of attention as backward passes compute them; of its steps in ``gradients_steps``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.gradients.attention import Gradients, backward, softmax_vjp
from symattn.attention.scores import scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.proof.gradients import gradient, jacobian
from symattn.proof.relations.glossary import Glossary
from symattn.proof.rules import OfTheLargest
from symattn.proof.statement import Pair
from symattn.proof.theorem import state, theorem
from symattn.proof.together import bound
from symattn.theorems.letters import ATTENDING, ATTENTION, QKV, weights
from symattn.theorems.reading import printed
from symattn.theorems.sums import add_up, equal_places, greatest, log, others, sign
from symattn.theorems.sums import weights as weights_of

TOPIC = "gradients"
MEANING = "ℓ is the sum of the entries of $G$ times those of $O$; dX is its gradient by X"
QKVG = {**QKV, "g": "n_q d_v"}
HEADS = {f"{letter}_h": f"h {shape}" for letter, shape in QKVG.items()}
SQUARE = {"a": "n_q d_k", "b": "n_q d_v"}  # as many keys and values as queries, for false variants
_ROW = Glossary(
    {"s": "m", "g": "m"},
    sizes={"m": "m", "n_k": "m"},
    index={"i": "m", "j": "m", "l": "m"},
).where("p = softmax(s)")
FLASH = "Dao et al., FlashAttention (2022)"


_FORWARD = ATTENDING.also(loss="ℓ").where("ℓ = Σ_{i=1}^{n_q} Σ_{c=1}^{d_v} G_i_c O_i_c")
LETTERS = _FORWARD.also().where("dP = G Vᵀ", "dS_ij = p_ij (dP_ij − Σ_{l=1}^{n_k} p_il dP_il)")


def pulled_back(of: Callable[..., Any], by: str, g: Array, **given: Any) -> Any:
    """The gradient of ⟨G, f⟩ by one of the arrays that are ``given`` to f."""
    return gradient(lambda g, **given: (g * of(**given)).sum(), by, g=g, **given)


def back(q: Array, k: Array, v: Array, g: Array, spec: Attention = ATTENTION) -> Gradients:
    """The gradients by Q, K and V, from the weights."""
    return backward(q, k, v, spec.trace(q, k, v)["weights"], g)


# -- softmax ----------------------------------------------------------------------------------------------------------


@theorem(
    "softmax-jacobian",
    TOPIC,
    "$∂p_i/∂s_j = p_i (δ_ij − p_j)$",
    letters=_ROW,
    arrays={"s": "m"},
    why="The derivative of a quotient. The maximum that is subtracted may be differentiated or not: it cancels.",
    false=lambda s: (jacobian(soft, "s", s=s), _diagonal(soft(s)) + soft(s)[:, None] * soft(s)[None, :]),
    false_says="$∂p_i/∂s_j = p_i (δ_ij + p_j)$",
)
def softmax_jacobian(s: Array) -> list[Pair]:
    right = _diagonal(soft(s)) - soft(s)[:, None] * soft(s)[None, :]
    return [(jacobian(soft, "s", s=s), right), (jacobian(weights_of, "s", s=s), right)]


def _diagonal(p: Array) -> Array:
    xp = p.__array_namespace__()
    return xp.where(equal_places(xp.arange(p.shape[0])), p[:, None], 0)


@theorem(
    "softmax-vjp",
    TOPIC,
    "$∂(Σ_{j=1}^m g_j p_j)/∂s_i = p_i (g_i − Σ_{j=1}^m g_j p_j)$",
    letters=_ROW,
    arrays={"s": "m", "g": "m"},
    why="The Jacobian, transposed, times g.",
    false=lambda s, g: (pulled_back(soft, "s", s=s, g=g), soft(s) * g - (soft(s) * g).sum()),
    false_says="without the factor before the bracket in its second term",
)
def softmax_vjp_is(s: Array, g: Array) -> Pair:
    return pulled_back(soft, "s", s=s, g=g), softmax_vjp(soft(s), g)


@theorem(
    "cross-entropy-gradient",
    TOPIC,
    "$∂(−log(p_y))/∂s_j = p_j − δ_j_y$",
    letters=_ROW.also(places={"y": 0}),
    arrays={"s": "1+m"},
    hypotheses=("the label y is the first class, which is no loss: classes may be renamed",),
    why="log p_y is the score less the logarithm of the denominator.",
    false=lambda s: (_cross_entropy_gradient(s), _label(s) - soft(s)),
    false_says="$∂(−log(p_y))/∂s_j = δ_j_y − p_j$",
)
def cross_entropy_gradient(s: Array) -> Pair:
    return _cross_entropy_gradient(s), soft(s) - _label(s)


def _cross_entropy_gradient(s: Array) -> Any:
    return gradient(lambda s: -log(soft(s)[0]), "s", s=s)


def _label(s: Array) -> Array:
    xp = s.__array_namespace__()
    return xp.concat([0 * s[:1] + 1, 0 * s[1:]])


# -- the backward pass ------------------------------------------------------------------------------------------------


@theorem(
    "backward-dV",
    TOPIC,
    "$dV = Pᵀ G$",
    letters=LETTERS,
    arrays=QKVG | SQUARE,
    hypotheses=(MEANING,),
    source=FLASH,
    why="The output is linear in the values.",
    false=lambda q, g, a, b: (pulled_back(ATTENTION, "v", q=q, k=a, v=b, g=g), weights(q, a) @ g),
    false_says="$dV = P G$, for $n_q = n_k$",
)
def backward_dv(q: Array, k: Array, v: Array, g: Array) -> Pair:
    return pulled_back(ATTENTION, "v", q=q, k=k, v=v, g=g), back(q, k, v, g).v


@theorem(
    "backward-dQ",
    TOPIC,
    "$dQ = 1/√d_k dS K$ with $dS_ij = p_ij (dP_ij − Σ_{l=1}^{n_k} p_il dP_il)$ and $dP = G Vᵀ$",
    letters=_FORWARD,
    arrays=QKVG | HEADS,
    hypotheses=(MEANING,),
    source=FLASH,
    why="The chain rule through the softmax of each row; the scores of row i depend on query i alone. So for each head"
    " of several.",
    false=(
        lambda q, k, v, g: (pulled_back(ATTENTION, "q", q=q, k=k, v=v, g=g), _ds(q, k, v, g) @ k),
        lambda q, k, v, g: (
            pulled_back(ATTENTION, "q", q=q, k=k, v=v, g=g),
            scale_by_root(_rowsum_outside(q, k, v, g) @ k, q),
        ),
    ),
    false_says="without the factor of the scores; or with the row sum outside the product with the weights",
)
def backward_dq(q: Array, k: Array, v: Array, g: Array, q_h: Array, k_h: Array, v_h: Array, g_h: Array) -> list[Pair]:
    every = ((q, k, v, g), (q_h, k_h, v_h, g_h))
    return [(pulled_back(ATTENTION, "q", q=q, k=k, v=v, g=g), back(q, k, v, g).q) for q, k, v, g in every]


@theorem(
    "backward-dK",
    TOPIC,
    "$dK = 1/√d_k dSᵀ Q$",
    letters=LETTERS,
    arrays=QKVG | SQUARE,
    hypotheses=(MEANING,),
    source=FLASH,
    why="The chain rule; the scores of column j depend on key j alone.",
    false=lambda q, g, a, b: (pulled_back(ATTENTION, "k", q=q, k=a, v=b, g=g), scale_by_root(_ds(q, a, b, g) @ q, q)),
    false_says="$dK = 1/√d_k dS Q$, for $n_q = n_k$",
)
def backward_dk(q: Array, k: Array, v: Array, g: Array) -> Pair:
    return pulled_back(ATTENTION, "k", q=q, k=k, v=v, g=g), back(q, k, v, g).k


flash_rowsum = printed(
    "flash-rowsum",
    TOPIC,
    "$Σ_{j=1}^{n_k} p_ij dP_ij = Σ_{c=1}^{d_v} G_i_c O_i_c$",
    letters=_FORWARD,
    hypotheses=("$dP = G Vᵀ$, as $G$ is the gradient by $O$",),
    source=FLASH,
    why="Both are the sum over keys and columns of weight, value and gradient; so the backward pass needs no row sum"
    " over keys.",
    false_says="$Σ_{j=1}^{n_k} p_ij dP_ij = Σ_{j=1}^{n_k} dP_ij$",
)


score_gradient_rows_sum_zero = printed(
    "score-gradient-rows-sum-zero",
    TOPIC,
    "$Σ_{j=1}^{n_k} dS_ij = 0$, hence $Σ_{j=1}^{n_k} dK_j = 0$",
    letters=LETTERS,
    hypotheses=(MEANING,),
    why="The weights do not change when one number is added to all scores of a row, or one vector to all keys.",
    false_says="$Σ_{i=1}^{n_q} dQ_i = 0$",
)


@theorem(
    "value-gradient-conserved",
    TOPIC,
    "$Σ_{j=1}^{n_k} dV_j = Σ_{i=1}^{n_q} G_i$",
    letters=LETTERS,
    arrays=QKVG | SQUARE,
    hypotheses=(MEANING,),
    why="The weights of every row sum to one.",
    false=lambda q, g, a, b: (pulled_back(ATTENTION, "v", q=q, k=a, v=b, g=g), g),
    false_says="$dV_j = G_j$, for $n_q = n_k$",
)
def value_gradient_conserved(q: Any, k: Any, v: Any, g: Any) -> Pair:
    return pulled_back(ATTENTION, "v", q=q, k=k, v=v, g=g).sum(axis=0), g.sum(axis=0)


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


score_gradient_saturates = state(
    "score-gradient-saturates",
    TOPIC,
    "$Σ_{j=1}^{n_k} |dS_ij| ≤ 2 (1 − max_j p_ij) (max_j dP_ij − min_j dP_ij)$",
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
    "$Σ_{j=1}^{n_k} |dS_ij| ≤ 2 (1 − max_j p_ij)² (max_j dP_ij − min_j dP_ij)$",
    "The key itself moves with the weight of the others, and the others have no more weight than that.",
    ("there are two keys or more", "$dS_ij = p_ij (dP_ij − Σ_{l=1}^{n_k} p_il dP_il)$"),
    ATTENDING.but("S").also({"S": "n_q n_k", "dP": "n_q n_k"}, sharp="far"),
)


def _ds(q: Array, k: Array, v: Array, g: Array) -> Any:
    return softmax_vjp(weights(q, k), g @ v.mT)


def _rowsum_outside(q: Array, k: Array, v: Array, g: Array) -> Any:
    changed = weights(q, k) * (g @ v.mT)
    return changed - changed.sum(axis=-1, keepdims=True)

"""Structure: what attention does to tokens that are permuted, split, shifted, mixed or repeated."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.errors import Refused
from symattn.document.formulas import formula
from symattn.proof.expectation import EntryLaw
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.values import Value
from symattn.proof.rules import MeanRule, Substitution
from symattn.proof.statement import Declared, Pair
from symattn.proof.theorem import theorem
from symattn.proof.together import also
from symattn.theorems.letters import ATTENDING, ATTENTION, CAUSAL, QKV, eye, rows, scaled_scores, textbook, weights
from symattn.theorems.reading import printed
from symattn.theorems.sums import identity_like

TOPIC = "structure"
TRIPLED = Attention(scale=3)


# -- the formula, and what depends on what ----------------------------------------------------------------------------


@theorem(
    "per-token-equals-matrix",
    TOPIC,
    "$o_i = Σ_{j=1}^{n_k} e^{q_i·k_j/√d_k}/(Σ_{l=1}^{n_k} e^{q_i·k_l/√d_k}) v_j$",
    letters=ATTENDING,
    arrays=QKV,
    source="Vaswani et al., Attention Is All You Need (2017)",
    why="Row i of the matrix formula holds the scores of query i alone. The second equation has the factor 3 of the"
    " scores in the place of the usual one.",
    false=lambda q, k, v: (soft(scaled_scores(q, k).mT).mT @ v, ATTENTION(q, k, v)),
    false_says="the softmax is over the queries",
)
def per_token_equals_matrix(q: Array, k: Array, v: Array) -> Any:
    xp = q.__array_namespace__()
    scores = xp.sum(q[:, None, :] * k[None, :, :], axis=-1)

    def per_token(s: Array) -> Array:
        p = xp.exp(s) / xp.sum(xp.exp(s), axis=-1, keepdims=True)
        return xp.sum(p[:, :, None] * v[None, :, :], axis=1)

    return [(per_token(scale_by_root(scores, q)), ATTENTION(q, k, v)), (per_token(3 * scores), TRIPLED(q, k, v))]


@theorem(
    "query-rows-independent",
    TOPIC,
    "$Attention([Q_1; Q_2], K, V) = [Attention(Q_1, K, V); Attention(Q_2, K, V)]$",
    letters=ATTENDING.also({"Q₁": "a d_k", "Q₂": "b d_k", "K₁": "m d_k", "V₁": "m d_v"}),
    arrays={"q": "a d_k", "u": "b d_k", "k": "n_k d_k", "v": "n_k d_v", "l": "m d_k", "w": "m d_v"},
    why="No row of queries enters the output of another; so queries may be processed in blocks.",
    false=lambda q, k, v, l, w: (ATTENTION(q, rows(k, l), rows(v, w)), ATTENTION(q, k, v) + ATTENTION(q, l, w)),  # noqa: E741
    false_says="the same for keys: the outputs of two blocks of keys add up,"
    " $Attention(Q, [K; K_1], [V; V_1]) = Attention(Q, K, V) + Attention(Q, K_1, V_1)$",
)
def query_rows_independent(q: Array, u: Array, k: Array, v: Array) -> Pair:
    return ATTENTION(rows(q, u), k, v), rows(textbook(q, k, v), textbook(u, k, v))


linear_in_values = printed(
    "linear-in-values",
    TOPIC,
    "$Attention(Q, K, a V + b V′) = a Attention(Q, K, V) + b Attention(Q, K, V′)$",
    letters=ATTENDING.also({"a": "", "b": "", "X": "n d", "Y": "n d"}),
    why="The weights do not look at the values.",
    false_says="self-attention is linear in X:"
    " $Attention(a X + b Y, a X + b Y, a X + b Y) = a Attention(X, X, X) + b Attention(Y, Y, Y)$",
    top=2,
)


_WEIGHTS = ("W_Q", "W_K", "W_V", "W", "U")


def _layer(x: Array, w_q: Array, w_k: Array, w_v: Array, w: Array, u: Array) -> Any:
    """Self-attention and a network on each row, both with residuals."""
    y = x + ATTENTION(x=x, w_q=w_q, w_k=w_k, w_v=w_v)
    return y + y.__array_namespace__().maximum(y @ w, 0) @ u


# -- symmetries -------------------------------------------------------------------------------------------------------


@theorem(
    "permutation-equivariance",
    TOPIC,
    "$f(Π X) = Π f(X)$",
    letters=Glossary(
        {"X": "n d", "W_Q": "d d_k", "W_K": "d d_k", "W_V": "d d", "W": "d e", "U": "e d"},
        permutations={"Π": "n"},
        functions={"f": lambda reader, x: Value(_layer(x.array, *map(reader.array, _WEIGHTS)), (), 2)},
    ),
    arrays={"x": "n d", "w_q": "d d_k", "w_k": "d d_k", "w_v": "d d", "w": "d e", "u": "e d"},
    permutations={"pi": "n"},
    source="Lee et al., Set Transformer (2019)",
    hypotheses=(
        "f is self-attention, or a layer of self-attention and a network on each row, both with residuals;"
        " no mask and no positions",
        ("Π", " is a permutation matrix"),
    ),
    why="A permutation of the tokens permutes the queries, and the sums over keys do not see it; nor do layers that"
    " are put on top of each other.",
    false=lambda x, w_q, w_k, w_v, pi: (
        CAUSAL(x=x[pi], w_q=w_q, w_k=w_k, w_v=w_v),
        CAUSAL(x=x, w_q=w_q, w_k=w_k, w_v=w_v)[pi],
    ),
    false_says="the same for causal self-attention",
)
def permutation_equivariance(x: Array, w_q: Array, w_k: Array, w_v: Array, w: Array, u: Array, pi: Any) -> Any:
    def attended(x: Array) -> Any:
        return ATTENTION(x=x, w_q=w_q, w_k=w_k, w_v=w_v)

    def layer(x: Array) -> Any:
        return _layer(x, w_q, w_k, w_v, w, u)

    return [
        (attended(x[pi]), attended(x)[pi]),
        (layer(x[pi]), layer(x)[pi]),
        (ATTENTION(x=x[pi]), ATTENTION(x=x)[pi]),
    ]


key_permutation_invariance = printed(
    "key-permutation-invariance",
    TOPIC,
    "$Attention(Q, Π K, Π V) = Attention(Q, K, V)$",
    letters=ATTENDING.also(permutations={"Π": "n_k"}),
    source="Lee et al., Set Transformer (2019)",
    why="Keys and values enter by sums over the keys.",
    false_says="$Attention(Q, Π K, V) = Attention(Q, K, V)$",
)


key_bias_redundant = printed(
    "key-bias-redundant",
    TOPIC,
    "$Attention(Q, K + 𝟏 bᵀ, V) = Attention(Q, K, V)$",
    letters=ATTENDING.also({"b": "d_k"}),
    why="It adds one number to all scores of a row. So the bias of the keys' linear layer has no effect, unless rotary"
    " positions or a normalisation of the keys come after it.",
    false_says="$Attention(Q + 𝟏 bᵀ, K, V) = Attention(Q, K, V)$",
)


value_bias_passes = printed(
    "value-bias-passes",
    TOPIC,
    "$Attention(Q, K, V + 𝟏 bᵀ) = Attention(Q, K, V) + 𝟏 bᵀ$",
    letters=ATTENDING.also({"b": "d_v"}),
    why="The weights of a row sum to one.",
    false_says="the same with softmax-off-by-one: $Σ_{j=1}^{n_k} w_ij (v_j + b) = Σ_{j=1}^{n_k} w_ij v_j + b$"
    " with $w_ij = e^{s_ij}/(1 + Σ_{l=1}^{n_k} e^{s_il})$",
)


CHANGED_BASIS = Substitution(
    Declared({**QKV, "m": "d_k d_k", "r": "d_k d_k", "z": "d_k d_k"}),
    lambda q, k, v, m, r: (ATTENTION(q @ m, k @ r, v), ATTENTION(q, k, v)),
    (lambda q, k, v, y: soft(scale_by_root(q @ y @ k.mT, q)) @ v),
    "y",
    "d_k d_k",
    lambda m, r: m @ r.mT,
    lambda m: identity_like(m),
    lambda q, k, v, z: (ATTENTION(q @ z, k @ z, v), ATTENTION(q, k, v)),
)
"""With M Rᵀ = I, for any two such matrices."""


@also(CHANGED_BASIS)
@theorem(
    "qk-gauge",
    TOPIC,
    "$Attention(Q M, K M⁻¹ᵀ, V) = Attention(Q, K, V)$",
    letters=ATTENDING.also(
        {"u": "d_k", "w": "d_k"},
        defined={"I": eye("d_k"), "M⁻¹": formula("I − u wᵀ/(1 + wᵀ u)")},
    ).where("M = I + u wᵀ"),
    arrays={
        **QKV,
        **{"m": "d_k e", "r": "d_k e", "u": "d_k 1", "w": "d_k 1", "z": "d_k d_k"},
        **{"x": "n d_k", "w_v": "d_k d_v", "w_o": "d_v h"},
    },
    hypotheses=("M is any invertible matrix; of one step, $1 + wᵀ u ≠ 0$",),
    source="Elhage et al., A Mathematical Framework for Transformer Circuits (2021)",
    why="Only $Q M (K M⁻¹ᵀ)ᵀ$ is seen. Likewise only $W_Q W_Kᵀ$ and $W_V W_O$ matter.",
    false=lambda q, k, v, z: (ATTENTION(q @ z, k @ z, v), ATTENTION(q, k, v)),
    false_says="$Attention(Q M, K M, V) = Attention(Q, K, V)$",
    top=2,
)
def qk_gauge(
    q: Array, k: Array, m: Array, r: Array, u: Array, w: Array, x: Array, w_v: Array, w_o: Array
) -> list[Pair]:
    undone = k - (k @ w) @ u.mT / (1 + w.mT @ u)
    layer = ATTENTION(x=x, w_q=m, w_k=r, w_v=w_v, w_o=w_o)
    return [
        (soft(scale_by_root(dot_scores(q @ m, k @ r), q)), soft(scale_by_root(q @ (m @ r.mT) @ k.mT, q))),
        (dot_scores(q + (q @ u) @ w.mT, undone), dot_scores(q, k)),
        (layer, soft(scale_by_root(x @ (m @ r.mT) @ x.mT, m)) @ x @ (w_v @ w_o)),
    ]


duplicate_all_keys = printed(
    "duplicate-all-keys",
    TOPIC,
    "$Attention(Q, K′, V′) = Attention(Q, K, V)$",
    letters=ATTENDING.also(
        {"r": "r"},
        defined={
            "K′": lambda reader: _repeated(reader.array("K"), reader.length("r")),
            "V′": lambda reader: _repeated(reader.array("V"), reader.length("r")),
            "K″": lambda reader: rows(reader.array("K"), reader.array("K")[:1]),
            "V″": lambda reader: rows(reader.array("V"), reader.array("V")[:1]),
        },
    ),
    hypotheses=("$K′$ and $V′$ hold every key and every value r times",),
    why="The numerator and the denominator of a weight are both multiplied by r.",
    false_says="repeating one key leaves the output unchanged: $Attention(Q, K″, V″) = Attention(Q, K, V)$",
    top=2,
)


def _repeated(x: Array, r: Array) -> Array:
    xp, (n, d) = x.__array_namespace__(), x.shape
    return xp.reshape(xp.broadcast_to(x[None], (r, n, d)), (r * n, d))


equal_scores_average = printed(
    "equal-scores-average",
    TOPIC,
    "$o_i = 1/n_k Σ_{j=1}^{n_k} v_j$",
    letters=ATTENDING.but("S").also({"c": "n_q"}),
    hypotheses=("the scores of row i are all equal, as those of the query 0 are: $S_ij = c_i$",),
    why="Equal scores have equal weights, which sum to one.",
    false_says="$o_i = Σ_{j=1}^{n_k} v_j$",
)


symmetric_scores_reversible = printed(
    "symmetric-scores-reversible",
    TOPIC,
    "$Z_i P_ij = Z_j P_ji$",
    letters=ATTENDING.also({"A": "n n"}, index={"i": "n", "j": "n"}).where("S = A + Aᵀ"),
    hypotheses=("$S = Sᵀ$; $Z_i = Σ_{j=1}^n e^{S_ij}$",),
    why="Both sides are the exponential of the score. Summed over i they say that Z is stationary under P.",
    false_says="$P = Pᵀ$",
)


KEPT = EntryLaw(("r",), lambda r: (1 - r, r * (1 - r)), lambda r: [(0 * r, r), (0 * r + 1, 1 - r)])


MEAN_OF_DROPPED = MeanRule(
    Declared({**QKV, "b": "n_q n_k", "keep": "1 1"}, positive=("keep",)),
    "b",
    lambda keep: keep,
    (lambda q, k, v, b, keep: (weights(q, k) * b / keep) @ v),
    (lambda q, k, v: ATTENTION(q, k, v)),
    lambda q, k, v: (_mean_over_drops(q, k, v), ATTENTION(q, k, v)),
)
"""With 1 − r, the probability to keep a weight, as the mean of B."""


@also(MEAN_OF_DROPPED)
@theorem(
    "dropout-unbiased",
    TOPIC,
    "$E[Σ_{j=1}^{n_k} P_ij B_ij/(1 − r) v_j_c] = Σ_{j=1}^{n_k} P_ij v_j_c$",
    letters=Glossary(
        {"B": "n_q n_k", "S": "n_q n_k", "V": "n_k d_v", "r": ""},
        index={"i": "n_q", "j": "n_k", "c": "d_v"},
        laws={"B": KEPT},
    ).where("P = softmax(S)"),
    arrays={**QKV, "b": "n_q n_k", "c": "n_q n_k", "s": "1 1", "u": "1 1", "keep": "1 1"},
    positive=("keep",),
    hypotheses=("the entries of B are 1 with probability 1 − r, else 0; 0 < r < 1",),
    why="The output is linear in B, so its mean is the output at the mean of B. Independence is not needed."
    " The rows of the weights that are left do not sum to one: where all of B is 0 they sum to 0.",
    false=lambda q, k, v: (_mean_over_drops(q, k, v), ATTENTION(q, k, v)),
    false_says="dropout of the scores is unbiased too",
    top=2,
)
def dropout_unbiased(q: Array, k: Array, v: Array, b: Array, c: Array, s: Array, u: Array, keep: Array) -> Any:
    def output(b: Array) -> Any:
        return (weights(q, k) * b / keep) @ v

    return [
        (output(s * b + u * c), s * output(b) + u * output(c)),
        (output(keep + 0 * b), ATTENTION(q, k, v)),
    ]


def _mean_over_drops(q: Array, k: Array, v: Array) -> Any:
    """The mean output over all ways to drop scores with probability 1/2 and to double the others."""
    if not all(isinstance(n, int) for n in (*q.shape, *k.shape)):
        raise Refused("the ways to drop scores are listed, and the sizes are letters")
    s: Any = scaled_scores(q, k)
    ways = [np.array(b).reshape(s.shape) for b in product((0, 2), repeat=int(s.shape[0] * s.shape[1]))]
    return sum((soft(s * type(s).lift(b)) @ v for b in ways[1:]), soft(s * 0) @ v) / len(ways)

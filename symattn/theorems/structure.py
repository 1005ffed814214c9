"""Structure: what attention does to tokens that are permuted, split, shifted, mixed or repeated."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.attention.notation import N_K
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.sinks import sink_weights
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.errors import Refused
from symattn.document.notation import Call, Over, Power, equals, name, node, relation, total
from symattn.proof.expectation import Law
from symattn.proof.relations.glossary import Definition, Glossary
from symattn.proof.relations.values import Value
from symattn.proof.rules import Mean, Substitution
from symattn.proof.statement import Declared, Pair
from symattn.proof.theorem import Theorem, theorem
from symattn.proof.together import also
from symattn.theorems import structure_bounds
from symattn.theorems.letters import (
    ATTENDING,
    ATTENTION,
    CAUSAL,
    ONES,
    PI,
    W_K,
    W_O,
    W_Q,
    W_V,
    K,
    M,
    P,
    Q,
    S,
    V,
    X,
    attention,
    dot,
    eye,
    over_keys,
    power_of_e,
    row,
    rows,
    same,
    softmax,
    stack,
    t,
    textbook,
    told,
    weights,
)

TOPIC = "structure"
QKV = {"q": "n_q d_k", "k": "n_k d_k", "v": "n_k d_v"}
TRIPLED = Attention(scale=3)
SHIFT, OTHER = name("b"), name("V'", role="value")
_Q1, _Q2 = name("Q", 1, role="query"), name("Q", 2, role="query")
_INVERSE = t(Power(M, node(-1)))
_WEIGHT, _SCORE = name("P", "i", "j", role="weight"), name("S", "i", "j", role="score")


def _f(x: Any) -> Call:
    return Call(name("f"), (x,))


# -- the formula, and what depends on what ----------------------------------------------------------------------------


@theorem(
    "per-token-equals-matrix",
    TOPIC,
    same(
        row("o", "i"),
        over_keys(Over(power_of_e(dot("i", "j")), total(name("l"), 1, N_K, power_of_e(dot("i", "l")))) * row("v", "j")),
    ),
    letters=ATTENDING,
    arrays=QKV,
    source="Vaswani et al., Attention Is All You Need (2017)",
    why="Row i of the matrix formula holds the scores of query i alone. The second equation has the factor 3 of the"
    " scores in the place of the usual one.",
    false=lambda q, k, v: (soft(scale_by_root(dot_scores(q, k), q).mT).mT @ v, ATTENTION(q, k, v)),
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
    same(attention(stack(_Q1, _Q2)), stack(attention(_Q1), attention(_Q2))),
    letters=ATTENDING.also({"Q₁": "a d_k", "Q₂": "b d_k"}),
    arrays={"q": "a d_k", "u": "b d_k", "k": "n_k d_k", "v": "n_k d_v", "l": "m d_k", "w": "m d_v"},
    why="No row of queries enters the output of another; so queries may be processed in blocks.",
    false=lambda q, k, v, l, w: (ATTENTION(q, rows(k, l), rows(v, w)), ATTENTION(q, k, v) + ATTENTION(q, l, w)),  # noqa: E741
    false_says="the same for keys: the outputs of two blocks of keys add up",
)
def query_rows_independent(q: Array, u: Array, k: Array, v: Array) -> Pair:
    return ATTENTION(rows(q, u), k, v), rows(textbook(q, k, v), textbook(u, k, v))


@theorem(
    "linear-in-values",
    TOPIC,
    same(attention(v=name("a") * V + SHIFT * OTHER), name("a") * attention() + SHIFT * attention(v=OTHER)),
    letters=ATTENDING.also({"a": "", "b": ""}),
    arrays={**QKV, "u": "n_k d_v", "a": "1 1", "b": "1 1"},
    why="The weights do not look at the values.",
    false=lambda k, v, a, b: (_tokens_only(a * k + b * k), a * _tokens_only(k) + b * _tokens_only(k)),
    false_says="self-attention is linear in X",
    top=2,
)
def linear_in_values(q: Array, k: Array, v: Array, u: Array, a: Array, b: Array) -> Pair:
    return ATTENTION(q, k, a * v + b * u), a * ATTENTION(q, k, v) + b * ATTENTION(q, k, u)


def _tokens_only(x: Array) -> Any:
    return ATTENTION(x, x, x)


_WEIGHTS = ("W_Q", "W_K", "W_V", "W", "U")


def _layer(x: Array, w_q: Array, w_k: Array, w_v: Array, w: Array, u: Array) -> Any:
    """Self-attention and a network on each row, both with residuals."""
    y = x + ATTENTION(x=x, w_q=w_q, w_k=w_k, w_v=w_v)
    return y + y.__array_namespace__().maximum(y @ w, 0) @ u


# -- symmetries -------------------------------------------------------------------------------------------------------


@theorem(
    "permutation-equivariance",
    TOPIC,
    same(_f(PI * X), PI * _f(X)),
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


@theorem(
    "key-permutation-invariance",
    TOPIC,
    same(attention(k=PI * K, v=PI * V), attention()),
    letters=ATTENDING.also(permutations={"Π": "n_k"}),
    arrays=QKV,
    permutations={"pi": "n_k"},
    source="Lee et al., Set Transformer (2019)",
    why="Keys and values enter by sums over the keys.",
    false=lambda q, k, v, pi: (ATTENTION(q, k[pi], v), ATTENTION(q, k, v)),
    false_says=same(attention(k=PI * K), attention()),
)
def key_permutation_invariance(q: Array, k: Array, v: Array, pi: Any) -> Pair:
    return ATTENTION(q, k[pi], v[pi]), ATTENTION(q, k, v)


@theorem(
    "key-bias-redundant",
    TOPIC,
    same(attention(k=K + ONES * t(SHIFT)), attention()),
    letters=ATTENDING.also({"b": "d_k"}),
    arrays={**QKV, "b": "1 d_k"},
    why="It adds one number to all scores of a row. So the bias of the keys' linear layer has no effect, unless rotary"
    " positions or a normalisation of the keys come after it.",
    false=lambda q, k, v, b: (ATTENTION(q + b, k, v), ATTENTION(q, k, v)),
    false_says=same(attention(Q + ONES * t(SHIFT)), attention()),
)
def key_bias_redundant(q: Array, k: Array, v: Array, b: Array) -> Pair:
    return ATTENTION(q, k + b, v), ATTENTION(q, k, v)


@theorem(
    "value-bias-passes",
    TOPIC,
    same(attention(v=V + ONES * t(SHIFT)), attention() + ONES * t(SHIFT)),
    letters=ATTENDING.also({"b": "d_v"}),
    arrays={**QKV, "b": "1 d_v"},
    why="The weights of a row sum to one.",
    false=lambda q, k, v, b: (_off_by_one(q, k) @ (v + b), _off_by_one(q, k) @ v + b),
    false_says="the same with softmax-off-by-one",
)
def value_bias_passes(q: Array, k: Array, v: Array, b: Array) -> Pair:
    return ATTENTION(q, k, v + b), ATTENTION(q, k, v) + b


def _off_by_one(q: Array, k: Array) -> Any:
    s = scale_by_root(dot_scores(q, k), q)
    return sink_weights(s, s.__array_namespace__().sum(0 * s, axis=-1, keepdims=True))


def _through(q: Array, k: Array, v: Array, y: Array) -> Any:
    return soft(scale_by_root(q @ y @ k.mT, q)) @ v


def _eye(m: Array) -> Array:
    xp, n = m.__array_namespace__(), m.shape[0]
    return xp.astype(xp.arange(n)[:, None] == xp.arange(n)[None, :], m.dtype)


CHANGED_BASIS = Substitution(
    Declared({**QKV, "m": "d_k d_k", "r": "d_k d_k", "z": "d_k d_k"}),
    lambda q, k, v, m, r: (ATTENTION(q @ m, k @ r, v), ATTENTION(q, k, v)),
    _through,
    "y",
    "d_k d_k",
    lambda m, r: m @ r.mT,
    _eye,
    lambda q, k, v, z: (ATTENTION(q @ z, k @ z, v), ATTENTION(q, k, v)),
)
"""With M Rᵀ = I, for any two such matrices."""


@also(CHANGED_BASIS)
@theorem(
    "qk-gauge",
    TOPIC,
    same(attention(Q * M, K * _INVERSE), attention()),
    letters=ATTENDING.also(
        {"u": "d_k", "w": "d_k"},
        defined={
            "I": eye("d_k"),
            "M": name("I") + name("u") * t(name("w")),
            "M⁻¹": name("I") - name("u") * t(name("w")) / (1 + t(name("w")) * name("u")),
        },
    ),
    arrays={
        **QKV,
        **{"m": "d_k e", "r": "d_k e", "u": "d_k 1", "w": "d_k 1", "z": "d_k d_k"},
        **{"x": "n d_k", "w_v": "d_k d_v", "w_o": "d_v h"},
    },
    hypotheses=(told("M is any invertible matrix; of one step, {}", relation(1 + t(name("w")) * name("u"), "≠", 0)),),
    source="Elhage et al., A Mathematical Framework for Transformer Circuits (2021)",
    why=("Only ", Q * M * t(K * _INVERSE), " is seen. Likewise only ", W_Q * t(W_K), " and ", W_V * W_O, " matter."),
    false=lambda q, k, v, z: (ATTENTION(q @ z, k @ z, v), ATTENTION(q, k, v)),
    false_says=same(attention(Q * M, K * M), attention()),
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


@theorem(
    "duplicate-all-keys",
    TOPIC,
    same(attention(k=name("K'", role="key"), v=OTHER), attention()),
    letters=ATTENDING.also(
        {"r": "r"},
        defined={
            "K′": lambda reader: _repeated(reader.array("K"), reader.length("r")),
            "V′": lambda reader: _repeated(reader.array("V"), reader.length("r")),
        },
    ),
    arrays={**QKV, "one": "r 1 1"},
    hypotheses=(told("{} and {} hold every key and every value r times", name("K'", role="key"), OTHER),),
    why="The numerator and the denominator of a weight are both multiplied by r.",
    false=lambda q, k, v: (_with_one_more(q, k, v), ATTENTION(q, k, v)),
    false_says="repeating one key leaves the output unchanged",
    top=2,
)
def duplicate_all_keys(q: Array, k: Array, v: Array, r: Array) -> Pair:
    return ATTENTION(q, _repeated(k, r), _repeated(v, r)), ATTENTION(q, k, v)


def _repeated(x: Array, r: Array) -> Array:
    xp, (n, d) = x.__array_namespace__(), x.shape
    return xp.reshape(xp.broadcast_to(x[None], (r, n, d)), (r * n, d))


def _with_one_more(q: Array, k: Array, v: Array) -> Any:
    return ATTENTION(q, rows(k, k[:1]), rows(v, v[:1]))


@theorem(
    "equal-scores-average",
    TOPIC,
    same(row("o", "i"), Over(node(1), N_K) * over_keys(row("v", "j"))),
    letters=ATTENDING.but("S").also({"c": "n_q"}),
    arrays={**QKV, "c": "n_q 1"},
    hypotheses=(
        told("the scores of row i are all equal, as those of the query 0 are: {}", equals(_SCORE, name("c", "i"))),
    ),
    why="Equal scores have equal weights, which sum to one.",
    false=lambda q, k, v: (ATTENTION(0 * q, k, v), _everywhere(q, v.sum(axis=0))),
    false_says=same(row("o", "i"), over_keys(row("v", "j"))),
)
def equal_scores_average(q: Any, k: Any, v: Any, c: Any) -> list[Pair]:
    mean = _everywhere(q, v.mean(axis=0))
    return [(soft(c + 0 * dot_scores(q, k)) @ v, mean), (ATTENTION(0 * q, k, v), mean)]


def _everywhere(q: Array, x: Array) -> Array:
    """The row x for every query."""
    return q.__array_namespace__().broadcast_to(x, (q.shape[0], x.shape[-1]))


@theorem(
    "symmetric-scores-reversible",
    TOPIC,
    same(name("Z", "i") * _WEIGHT, name("Z", "j") * name("P", "j", "i", role="weight")),
    letters=ATTENDING.also({"A": "n n"}, index={"i": "n", "j": "n"}, defined={"S": name("A") + t(name("A"))}),
    arrays={"a": "n n"},
    hypotheses=((equals(S, t(S)), "; ", equals(name("Z", "i"), total(name("j"), 1, name("n"), power_of_e(_SCORE)))),),
    why="Both sides are the exponential of the score. Summed over i they say that Z is stationary under P.",
    false=lambda a: (soft(a + a.mT), soft(a + a.mT).mT),
    false_says=same(P, t(P)),
)
def symmetric_scores_reversible(a: Array) -> list[Pair]:
    xp = a.__array_namespace__()
    s = a + a.mT
    z = xp.sum(xp.exp(s), axis=-1, keepdims=True)
    flow = z * soft(s)
    return [(flow, xp.exp(s)), (flow, flow.mT), (xp.sum(xp.exp(s), axis=0), z[:, 0])]


_DROPPED = Over(_WEIGHT * name("B", "i", "j"), 1 - name("r"))


_VALUE = name("v", "j", "c", role="value")
KEPT = Law(("r",), lambda r: (1 - r, r * (1 - r)), lambda r: [(0 * r, r), (0 * r + 1, 1 - r)])


def _dropped(q: Array, k: Array, v: Array, b: Array, keep: Array) -> Any:
    return (weights(q, k) * b / keep) @ v


def _undropped(q: Array, k: Array, v: Array) -> Any:
    return ATTENTION(q, k, v)


MEAN_OF_DROPPED = Mean(
    Declared({**QKV, "b": "n_q n_k", "keep": "1 1"}, positive=("keep",)),
    "b",
    lambda keep: keep,
    _dropped,
    _undropped,
    lambda q, k, v: (_mean_over_drops(q, k, v), ATTENTION(q, k, v)),
)
"""With 1 − r, the probability to keep a weight, as the mean of B."""


@also(MEAN_OF_DROPPED)
@theorem(
    "dropout-unbiased",
    TOPIC,
    same(Call(name("E"), (over_keys(_DROPPED * _VALUE),), square=True), over_keys(_WEIGHT * _VALUE)),
    letters=Glossary(
        {"B": "n_q n_k", "S": "n_q n_k", "V": "n_k d_v", "r": ""},
        index={"i": "n_q", "j": "n_k", "c": "d_v"},
        defined={"P": Definition((), softmax("S"))},
        laws={"B": KEPT},
    ),
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
    s: Any = scale_by_root(dot_scores(q, k), q)
    ways = [np.array(b).reshape(s.shape) for b in product((0, 2), repeat=int(s.shape[0] * s.shape[1]))]
    return sum((soft(s * type(s).lift(b)) @ v for b in ways[1:]), soft(s * 0) @ v) / len(ways)


THEOREMS: tuple[Theorem, ...] = (
    per_token_equals_matrix,
    structure_bounds.output_in_hull,
    permutation_equivariance,
    key_permutation_invariance,
    query_rows_independent,
    linear_in_values,
    key_bias_redundant,
    value_bias_passes,
    dropout_unbiased,
    qk_gauge,
    duplicate_all_keys,
    equal_scores_average,
    structure_bounds.score_rank,
    symmetric_scores_reversible,
    structure_bounds.not_globally_lipschitz,
    structure_bounds.nonexpansive_in_values,
)

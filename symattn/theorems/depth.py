"""Depth: what layers of attention do one after another, to the spread of tokens and to their sum."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import causal, forbid
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import Big, Fence, Node, Over, call, commas, equals, name, node, relation, total
from symattn.proof.relations.glossary import Definition, Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.values import Unread, Value
from symattn.proof.rules import Fold, OfTheLargest, Repeat
from symattn.proof.statement import Declared, Pair
from symattn.proof.theorem import Theorem, theorem
from symattn.proof.together import Together, also, bound, identity
from symattn.theorems.letters import ONES, P, magnitude, norm, power_of_e, said
from symattn.theorems.rotations import identity as identity_matrix
from symattn.theorems.sums import add_up, greatest, sign, squares, weights

TOPIC = "depth"
HALF = Fraction(1, 2)
EPS, L_, N_, I_MATRIX = name("ε"), name("L"), name("n"), name("I")
VECTOR = name("x")
DONG = "Dong, Cordonnier, Loukas, Attention is Not All You Need (2021)"


def _osc_of(_: Reader, x: Value) -> Value:
    """The largest entry of a vector less the smallest."""
    if x.rank != 1:
        raise Unread("osc of what is not a vector")
    xp = x.array.__array_namespace__()
    return Value(xp.max(x.array, axis=-1) + xp.max(-x.array, axis=-1), x.letters)


LETTERS = Glossary(
    {"S": "n n", "T": "n m", "x": "n"},
    {"n": "n"},
    {"i": "n", "j": "n", "k": "m"},
    {
        "P": lambda reader: soft(reader.array("S"), stabilised=False),
        "Q": lambda reader: soft(reader.array("T"), stabilised=False),
        "I": lambda reader: identity_matrix(reader, reader.length("n")),
    },
    functions={"osc": _osc_of},
)


def spread(x: Node) -> Node:
    """osc(x) = max x − min x."""
    return said("osc", x)


def row_with_sum_one(e: Array) -> Any:
    """e + (1 − Σ e) / n: every row with the sum 1 is of this form, with e the row itself."""
    n = add_up(e.__array_namespace__().ones_like(e))
    return e + (1 - add_up(e)) / n


# -- one layer ---------------------------------------------------------------------------------------------------------
MATRIX = {"e": "r n", "x": "n 1"}


def _differences(e: Array) -> Any:
    """P_ij − P_kj, for the rows i and k."""
    p = row_with_sum_one(e)
    return p[:, None, :] - p[None, :, :]


def _distances(e: Array) -> Array:
    """½ ‖P_i − P_k‖₁."""
    return add_up(abs(_differences(e)))[..., 0] * HALF


def _delta(e: Array) -> Array:
    """δ(P)."""
    return greatest(_distances(e))


def _apart(e: Array, x: Array) -> Any:
    """(Px)_i − (Px)_k."""
    y = row_with_sum_one(e) @ x
    return y - y.mT


def _osc(x: Array) -> Array:
    """The largest entry of each column less the smallest."""
    return greatest(x, -2) + greatest(-x, -2)


_CONTRACTION = OfTheLargest(
    bound(
        MATRIX,
        lambda e, x: (_apart(e, x), _delta(e) * _osc(x)),
        lambda over, under, above, below, rest, n: (
            (over @ above + under @ below)[..., 0] * HALF + rest * (above + below).sum(axis=0, keepdims=True) / n
        ),
        # The rows of a matrix with rows that sum to 1, all equal.
        lambda e, x: (squares((weights(e[:1]) @ x).mT + 0 * x.mT), squares(x.mT)),
        laws={
            "over": ("r r n", lambda e: abs(_differences(e)) - _differences(e), "magnitude"),
            "under": ("r r n", lambda e: abs(_differences(e)) + _differences(e), "magnitude"),
            "above": ("n 1", lambda x: x + greatest(-x, -2), "largest"),
            "below": ("n 1", lambda x: greatest(x, -2) - x, "largest"),
            "rest": ("r r", lambda e: _delta(e) - _distances(e), "largest"),
        },
    ),
    lambda e, x: (_osc(row_with_sum_one(e) @ x), _delta(e) * _osc(x)),
    (lambda e, x: (greatest(row_with_sum_one(e) @ x, -2) - (row_with_sum_one(e) @ x).mT, _delta(e) * _osc(x)),),
)

_COEFFICIENT = OfTheLargest(
    bound(
        MATRIX,
        lambda e, n: (_distances(e), 1 + n * greatest(-row_with_sum_one(e))),
        lambda p, more, less: add_up(p[:, None, :] * less + p[None, :, :] * more)[..., 0] * HALF,
        laws={
            "p": ("r n", lambda e: row_with_sum_one(e) + greatest(-row_with_sum_one(e)), "largest"),
            "more": ("r r n", lambda e: 1 + sign(_differences(e)), "bounded"),
            "less": ("r r n", lambda e: 1 - sign(_differences(e)), "bounded"),
        },
    ),
    lambda e, n: (_delta(e), 1 + n * greatest(-row_with_sum_one(e))),
)

_ROW_I, _ROW_K = name("P", "i", role="weight"), name("P", "k", role="weight")
dobrushin_contraction = Theorem(
    "dobrushin-contraction",
    TOPIC,
    (
        relation(spread(P * VECTOR), "≤", call("δ", P) * spread(VECTOR)),
        " with ",
        equals(
            call("δ", P), Over(node(1), node(2)) * Big("max", commas("i", "k"), None, None, norm(_ROW_I - _ROW_K, 1))
        ),
        "; ",
        relation(call("δ", P), "≤", 1 - N_ * said("min", P)),
    ),
    Together(
        (_CONTRACTION, _COEFFICIENT),
    ),
    "Dobrushin, Central limit theorem for non-homogeneous Markov chains (1956)",
    (relation(norm(P * VECTOR, 2), "≤", norm(VECTOR, 2)),),
    ("Two rows average what they have in common in the same way; only the rest can tell them apart.",),
    (("the rows of P are not negative and sum to 1; osc is the largest entry less the smallest",),),
    LETTERS.also(index={"k": "n"}, sharp="attained"),
)


# -- many layers -------------------------------------------------------------------------------------------------------
_MANY_LAYERS = Glossary(
    {"S": "L n n", "X₀": "n", "w": ""}, {"n": "n", "L": "L"}, {"i": "n", "l": "L"}, functions={"osc": _osc_of}
)
"""One column of the tokens, and the scores of each layer."""


def _below(width: Node) -> Definition:
    """Any number between 0 and 1/width."""
    return Definition((), 1 / (width + power_of_e("w")))


def _with_at_least(reader: Reader, rows: Any, to: Any, width: Any) -> Any:
    """(1 − ε width) P + ε to: all weights of which those that ``to`` names are no less than ε."""
    epsilon = reader.one(EPS).array
    return (1 - epsilon * width) * rows + epsilon * to


def _every_key(reader: Reader) -> Any:
    """The weights of every layer."""
    return _with_at_least(reader, weights(reader.array("S")), 1, reader.length("n"))


def _first_key(reader: Reader) -> Any:
    """The weights of every layer, with the causal mask."""
    places, p = reader.xp.arange(reader.length("n")), _causal_weights(reader.array("S"))
    return _with_at_least(reader, p, reader.xp.where(places == 0, reader.xp.asarray(1), reader.xp.asarray(0)), 1)


LAYER = {"e": "n n", "x": "n d", "eps": "1 1"}


def _mixed(e: Array, x: Array) -> Any:
    """P X."""
    return row_with_sum_one(e) @ x


def _spread_after(e: Any, x: Any) -> Any:
    """The largest entry of each column of P x less the smallest."""
    y = soft(e) @ x
    return y.max(axis=0) - y.min(axis=0)


def _factor(e: Any) -> Any:
    """1 − n min P."""
    p = soft(e)
    return 1 - (0 * p + 1).sum(axis=-1).max() * p.min()


def _with_skip(e: Any, x: Any) -> tuple[Any, Any]:
    """The spread of X + P X, and that of X times the factor."""
    y = x + soft(e) @ x
    return y.max(axis=0) - y.min(axis=0), _factor(e) * (x.max(axis=0) - x.min(axis=0))


def _cubed(e: Any, x: Any) -> tuple[Any, Any]:
    """The spread after a layer, and the cube of that before."""
    before = x.max(axis=0) - x.min(axis=0)
    return _spread_after(e, x), before * before * before


def _kept(eps: Any, n: Any) -> Any:
    """1 − nε."""
    return 1 - n * eps


_NONE_BELOW = {"p": ("n n", lambda e, eps: row_with_sum_one(e) - eps)}
_LEAST = {"eps": lambda e: row_with_sum_one(e).min(keepdims=True)}
_ONE_LAYER = OfTheLargest(
    bound(
        LAYER,
        lambda e, x, eps, n: (_mixed(e, x)[:, None, :] - _mixed(e, x)[None, :, :], _kept(eps, n) * _osc(x)),
        lambda p, above, below: (p @ below)[:, None, :] + (p @ above)[None, :, :],
        (_with_skip, _cubed),
        assumed=_NONE_BELOW,
        chosen=_LEAST,
        laws={
            "above": ("n d", lambda x: x + greatest(-x, -2), "largest"),
            "below": ("n d", lambda x: greatest(x, -2) - x, "largest"),
        },
    ),
    lambda e, x, eps, n: (_osc(_mixed(e, x)), _kept(eps, n) * _osc(x)),
    (lambda e, x, eps, n: (greatest(_mixed(e, x), -2) - _mixed(e, x), _kept(eps, n) * _osc(x)),),
)

_LAYERS = Repeat(
    _ONE_LAYER,
    bound(
        LAYER,
        lambda e, eps, n: (0, _kept(eps, n)),
        lambda p: add_up(p),
        assumed=_NONE_BELOW,
        chosen=_LEAST,
    ),
    "x",
    lambda state: _osc(state),
    _mixed,
    _kept,
)

rank_collapse = Theorem(
    "rank-collapse-averaging",
    TOPIC,
    (
        relation(
            spread(name("X", "L", role="input")),
            "≤",
            Fence("round", 1 - N_ * EPS) ** L_ * spread(name("X", 0, role="input")),
        ),
        " for ",
        equals(name("X", name("l") + 1, role="input"), name("P", "l", role="weight") * name("X", "l", role="input")),
    ),
    _LAYERS,
    DONG,
    ("the same with a skip connection, X + PX; or that the spread after a layer is at most the cube of that before",),
    ("Every token gets ε of the sum of all tokens, which is the same for all, and a mean with what is left.",),
    (
        ("the rows of every P sum to 1 and no entry is below ε, ", relation(EPS, "≥", 0)),
        ("no skip connection, no values, no MLP; osc is taken for each column",),
    ),
    _MANY_LAYERS.also(defined={"P": _every_key, "ε": _below(N_)}, sharp="apart"),
)


# -- causal ------------------------------------------------------------------------------------------------------------
CAUSAL_LAYER = {"s": "1+n 1+n", "x0": "1 d", "x": "n d", "eps": "1 1"}


def _causal_weights(s: Array) -> Any:
    return weights(forbid(s, causal(s)))


def _tokens(x0: Array, x: Array) -> Any:
    return x.__array_namespace__().concat([x0, x], axis=-2)


def _rows_after(s: Array, x0: Array, x: Array) -> Any:
    return (_causal_weights(s) @ _tokens(x0, x))[1:]


def _to_the_mean(s: Array, x0: Array, x: Array) -> tuple[Any, Any]:
    """The largest distance from the mean of all tokens, after a layer and before."""
    tokens = _tokens(x0, x)
    mean = tokens.mean(axis=0, keepdims=True)
    after = _causal_weights(s) @ tokens
    return abs(after - mean).max(axis=0), _shrinking(s) * abs(tokens - mean).max(axis=0)


def _shrinking(s: Array) -> Any:
    """1 less the least weight of the first token."""
    return 1 - _causal_weights(s)[:, 0].min()


def _token(i: str | int, layer: Node | int) -> Node:
    """(x_l)_i."""
    return Fence("round", name("X", layer, role="input"), node(i))


def _farthest(layer: Node | int) -> Node:
    """max_i |(x_l)_i − (x_0)_1|."""
    return Big("max", name("i"), None, None, magnitude(_token("i", layer) - _token(1, 0)))


def _farthest_from(x0: Array, x: Array) -> Array:
    """max_i |x_i − x_1|, for each column."""
    xp = x.__array_namespace__()
    return greatest(xp.concat([x - x0, x0 - x], axis=-2), -2)


_ENOUGH = {"own": ("n 1", lambda s, eps: _causal_weights(s)[1:, :1] - eps)}
_SMALLEST_SHARE = {"eps": lambda s: _causal_weights(s)[1:, :1].min(keepdims=True)}


def _causal_gap(s: Array, n: Any, own: Any, less: Any, more: Any) -> list[Any]:
    """(1 − ε) b ∓ y with y = Σ_j P_ij (x_j − x_1), and b the largest before, the mean of ``less`` and ``more``."""
    p, b = _causal_weights(s)[1:, 1:], (less + more).sum(axis=0, keepdims=True) / (2 * n)
    return [own * b + p @ less, own * b + p @ more]


_CAUSAL_LAYERS = Repeat(
    OfTheLargest(
        bound(
            CAUSAL_LAYER,
            lambda s, x0, x, eps: [
                (_rows_after(s, x0, x) - x0, (1 - eps) * _farthest_from(x0, x)),
                (x0 - _rows_after(s, x0, x), (1 - eps) * _farthest_from(x0, x)),
            ],
            _causal_gap,
            _to_the_mean,
            assumed=_ENOUGH,
            chosen=_SMALLEST_SHARE,
            laws={
                "less": ("n d", lambda x0, x: _farthest_from(x0, x) - (x - x0), "largest"),
                "more": ("n d", lambda x0, x: _farthest_from(x0, x) + (x - x0), "largest"),
            },
        ),
        lambda s, x0, x, eps: (_farthest_from(x0, _rows_after(s, x0, x)), (1 - eps) * _farthest_from(x0, x)),
    ),
    bound(
        CAUSAL_LAYER,
        lambda s, eps: (0, 1 - eps),
        lambda s, own: own + add_up(_causal_weights(s)[1:, 1:]),
        assumed=_ENOUGH,
        chosen=_SMALLEST_SHARE,
    ),
    "x",
    lambda x0, state: _farthest_from(x0, state),
    _rows_after,
    lambda eps: 1 - eps,
    bound(CAUSAL_LAYER, lambda eps: (1 - eps, 1 + 0 * eps), lambda eps: eps, positive=("eps",), strict=True),
)

causal_collapse = Theorem(
    "causal-collapse-to-first",
    TOPIC,
    (
        equals(_token(1, L_), _token(1, 0)),
        " and ",
        relation(_farthest(L_), "≤", Fence("round", 1 - EPS) ** L_ * _farthest(0)),
        " for ",
        equals(name("X", name("l") + 1, role="input"), name("P", "l", role="weight") * name("X", "l", role="input")),
        ", so all tokens tend to the first if ε is positive",
    ),
    Together(
        (_CAUSAL_LAYERS, identity(CAUSAL_LAYER, lambda s, x0, x: ((_causal_weights(s) @ _tokens(x0, x))[:1], x0)))
    ),
    "Wu et al., On the Role of Attention Masks and LayerNorm in Transformers (2024)",
    ("all tokens tend to their mean",),
    ("Every token gets at least ε of the first one, which attends to itself alone.",),
    (
        ("every P is causal, its allowed entries are positive, and its rows sum to 1",),
        ("no entry of the first column of any P is below ε; no skip connection, no values, no MLP",),
        ("X is one column of the tokens",),
    ),
    _MANY_LAYERS.also(defined={"P": _first_key, "ε": _below(node(1))}, sharp="apart"),
)


# -- rollout -----------------------------------------------------------------------------------------------------------
ROLLOUT = {"e": "n m", "f": "m l", "s": "n n"}


def _average(s: Array) -> Array:
    """½ (I + P)."""
    xp = s.__array_namespace__()
    n = s.shape[-1]
    return (xp.astype(xp.arange(n)[:, None] == xp.arange(n)[None, :], s.dtype) + s) * HALF


def _row_sums(e: Array, f: Array, s: Array) -> list[tuple[Any, Any]]:
    p, q = row_with_sum_one(e), row_with_sum_one(f)
    return [(add_up(x), 1) for x in (p, p @ q, _average(row_with_sum_one(s)))]


ROLLED = Over(node(1), node(2)) * Fence("round", I_MATRIX + P)
rollout_stochastic = Theorem(
    "rollout-stochastic",
    TOPIC,
    (
        equals(P * name("Q") * ONES, ONES),
        ", ",
        equals(ROLLED * ONES, ONES),
        ", ",
        relation(Fence("round", P * name("Q"), commas("i", "k")), "≥", 0),
        " and ",
        relation(Over(node(1), node(2)) * Fence("round", I_MATRIX + P, commas("i", "j")), "≥", 0),
        ", if that is so for ",
        P,
        " and ",
        name("Q"),
    ),
    Together(
        (
            identity(
                ROLLOUT,
                _row_sums,
                (
                    lambda s: (add_up(2 * _average(row_with_sum_one(s))), 1),
                    lambda s: (add_up(row_with_sum_one(s) * row_with_sum_one(s)), 1),
                ),
            ),
            bound(
                ROLLOUT,
                lambda e, f, s: [(0, e @ f), (0, _average(s))],
                lambda p, q, r: [p @ q, _average(r)],
                assumed={"p": ("n m", lambda e: e), "q": ("m l", lambda f: f), "r": ("n n", lambda s: s)},
                chosen={"e": lambda e: e * e, "f": lambda f: f * f, "s": lambda s: s * s},
            ),
        ),
    ),
    "Abnar, Zuidema, Quantifying Attention Flow in Transformers (2020)",
    (
        "I + P without the ½, ",
        equals(Fence("round", I_MATRIX + P) * ONES, ONES),
        "; products entry by entry",
    ),
    ("A mean of means is a mean; so is a product of any number of such matrices, one after the other.",),
    (("the rows of P and Q sum to 1; no entry is negative",),),
    LETTERS,
)


# -- residuals ---------------------------------------------------------------------------------------------------------
LAYERS = {"x": "n d", "u": "a n d", "w": "b n d", "y": "n d", "w1": "d d", "w2": "d d"}


def _unrolled(x: Array, u: Array) -> Array:
    """x + Σ_l u_l."""
    return x + x.__array_namespace__().sum(u, axis=0)


def _layers(*updates: Any) -> Any:
    return updates[0].__array_namespace__().concat(list(updates), axis=0)


_X_L, _F_L = name("x", "l", role="input"), name("f", "l")


def _any_layers(reader: Reader, x: Value) -> Value:
    """tanh(x W_l) of every layer l."""
    y = x.array[..., None, :, :] @ reader.array("W")
    return Value(reader.xp.tanh(y), x.letters, 3)


UPDATES_ADDED = Fold(
    Declared({"u": "a n d"}),
    "a",
    lambda u: (u.__array_namespace__().sum(u, axis=0),),
    lambda x, y, given: (x[0] + y[0],),
    lambda x, y, given: (y[0],),
)
"""What a run of layers adds is the sum of what its parts add, down to single layers."""


@also(UPDATES_ADDED)
@theorem(
    "residual-unrolls",
    TOPIC,
    (
        equals(
            name("x", "L", role="input"),
            name("x", 0, role="input") + total("l", 0, L_ - 1, call(_F_L, _X_L)),
        ),
        " for ",
        equals(name("x", name("l") + 1, role="input"), _X_L + call(_F_L, _X_L)),
    ),
    arrays=LAYERS,
    hypotheses=("the layers are any functions",),
    letters=Glossary({"x₀": "n d", "W": "L d d"}, {"L": "L"}, {"l": "L"}, functions={"f": _any_layers}),
    source="Veit, Wilber, Belongie, Residual Networks Behave Like Ensembles (2016)",
    why="Each layer adds to the sum of what those before it added.",
    false=lambda x, w1, w2: (_second(x, w1, w2), x + x @ w1 + x @ w2),
    false_says=(
        equals(
            name("x", "L", role="input"),
            name("x", 0, role="input") + total("l", 0, L_ - 1, call(_F_L, name("x", 0, role="input"))),
        ),
    ),
)
def residual_unrolls(x: Array, u: Array, w: Array, y: Array, w1: Array, w2: Array) -> list[Pair]:
    first = x + x @ w1
    return [
        (_unrolled(x, u) + y, _unrolled(x, _layers(u, y[None]))),
        (_unrolled(_unrolled(x, u), w), _unrolled(x, _layers(u, w))),
        (_second(x, w1, w2), _unrolled(x, _layers((x @ w1)[None], (first @ w2)[None]))),
    ]


def _second(x: Array, w1: Any, w2: Any) -> Any:
    """x₂ of two layers that are linear."""
    first = x + x @ w1
    return first + first @ w2


THEOREMS: tuple[Theorem, ...] = (
    dobrushin_contraction,
    rank_collapse,
    causal_collapse,
    rollout_stochastic,
    residual_unrolls,
)

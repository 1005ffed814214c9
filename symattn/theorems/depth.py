"""Depth: what layers of attention do one after another, to the spread of tokens and to their sum."""

from __future__ import annotations

from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import causal, forbid
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import name
from symattn.proof.joint_statements import Together, bound, identity
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Unread, Value
from symattn.proof.relations.reader import Reader
from symattn.proof.rules import Fold, OfTheLargest, Repeat
from symattn.proof.statement import Declared, Pair
from symattn.theorems.letters import add_up, eye, greatest, rows, weights
from symattn.theorems.texts import of_file


def _osc_of(_: Reader, x: Value) -> Value:
    """Return the largest entry of a vector minus the smallest."""
    if x.rank != 1:
        raise Unread("osc of what is not a vector")
    xp = x.array.__array_namespace__()
    largest = xp.max(x.array, axis=-1)
    return Value(largest + xp.max(-x.array, axis=-1), x.letters)


def row_with_sum_one(e: Array) -> Any:
    """Return e + (1 − Σ e) / n: every row with the sum 1 has this form, with e the row itself."""
    n = add_up(e.__array_namespace__().ones_like(e))
    return e + (1 - add_up(e)) / n


# -- many layers -------------------------------------------------------------------------------------------------------
_MANY_LAYERS = Glossary(
    {"S": "L n n", "X₀": "n", "w": ""},
    {"n": "n", "L": "L"},
    {"i": "n", "l": "L"},
    functions={"osc": _osc_of},
)
"""One column of the tokens, and the scores of each layer."""


def _with_at_least(reader: Reader, rows: Any, to: Any, width: Any) -> Any:
    """Return (1 − ε width) P + ε to: any weights, of which those named by ``to`` are at least ε."""
    epsilon = reader.one(name("ε")).array
    return (1 - epsilon * width) * rows + epsilon * to


def _first_key(reader: Reader) -> Any:
    """Return the weights of every layer, with the causal mask."""
    places = reader.xp.arange(reader.length("n"))
    p = _causal_weights(reader.array("S"))
    ones = reader.xp.asarray(1)
    least = reader.xp.where(places == 0, ones, reader.xp.asarray(0))
    return _with_at_least(reader, p, least, 1)


LAYER = {"e": "n n", "x": "n d", "eps": "1 1"}


def _column_oscillation(x: Array) -> Array:
    """Return the largest entry of each column minus the smallest."""
    return greatest(x, -2) + greatest(-x, -2)


def _mix_tokens_by_rows(e: Array, x: Array) -> Any:
    """P X."""
    return row_with_sum_one(e) @ x


def _with_skip(e: Any, x: Any) -> tuple[Array, Array]:
    """Return the spread of X + P X, and the spread of X times 1 − n min P."""
    p = soft(e)
    y = x + p @ x
    factor = 1 - (0 * p + 1).sum(axis=-1).max() * p.min()
    oscillation = x.max(axis=0) - x.min(axis=0)
    return y.max(axis=0) - y.min(axis=0), factor * oscillation


def _spread_and_cubed_spread(e: Array, x: Any) -> tuple[Array, Array]:
    """Return the spread after a layer, and the cube of that before."""
    y = soft(e) @ x
    before = x.max(axis=0) - x.min(axis=0)
    return y.max(axis=0) - y.min(axis=0), before * before * before


def _one_minus_n_epsilon(eps: Array, n: Array) -> Array:
    """1 − nε."""
    return 1 - n * eps


_NONE_BELOW = {"p": ("n n", lambda e, eps: row_with_sum_one(e) - eps)}
_LEAST = {"eps": lambda e: row_with_sum_one(e).min(keepdims=True)}
_ONE_LAYER = OfTheLargest(
    bound(
        LAYER,
        lambda e, x, eps, n: (
            _mix_tokens_by_rows(e, x)[:, None, :] - _mix_tokens_by_rows(e, x)[None, :, :],
            _one_minus_n_epsilon(eps, n) * _column_oscillation(x),
        ),
        lambda p, above, below: (p @ below)[:, None, :] + (p @ above)[None, :, :],
        (_with_skip, _spread_and_cubed_spread),
        assumed=_NONE_BELOW,
        chosen=_LEAST,
        laws={
            "above": ("n d", lambda x: x + greatest(-x, -2), "largest"),
            "below": ("n d", lambda x: greatest(x, -2) - x, "largest"),
        },
    ),
    lambda e, x, eps, n: (
        _column_oscillation(_mix_tokens_by_rows(e, x)),
        _one_minus_n_epsilon(eps, n) * _column_oscillation(x),
    ),
    (
        lambda e, x, eps, n: (
            greatest(_mix_tokens_by_rows(e, x), -2) - _mix_tokens_by_rows(e, x),
            _one_minus_n_epsilon(eps, n) * _column_oscillation(x),
        ),
    ),
)

_LAYERS = Repeat(
    _ONE_LAYER,
    bound(
        LAYER,
        lambda e, eps, n: (0, _one_minus_n_epsilon(eps, n)),
        lambda p: add_up(p),
        assumed=_NONE_BELOW,
        chosen=_LEAST,
    ),
    "x",
    lambda state: _column_oscillation(state),
    _mix_tokens_by_rows,
    _one_minus_n_epsilon,
)

rank_collapse = _LAYERS


# -- causal ------------------------------------------------------------------------------------------------------------
CAUSAL_LAYER = {"s": "1+n 1+n", "x0": "1 d", "x": "n d", "eps": "1 1"}


def _causal_weights(s: Array) -> Any:
    return weights(forbid(s, causal(s)))


def _rows_after(s: Array, x0: Array, x: Array) -> Any:
    return (_causal_weights(s) @ rows(x0, x))[1:]


def _to_the_mean(s: Array, x0: Array, x: Array) -> tuple[Any, Any]:
    """Return the largest distance from the mean of all tokens, after a layer and before."""
    tokens = rows(x0, x)
    mean = tokens.mean(axis=0, keepdims=True)
    after = _causal_weights(s) @ tokens
    least = _causal_weights(s)[:, 0].min()
    fall = abs(tokens - mean).max(axis=0)
    return abs(after - mean).max(axis=0), (1 - least) * fall


def _farthest_from(x0: Array, x: Array) -> Array:
    """max_i |x_i − x_1|, for each column."""
    return greatest(rows(x - x0, x0 - x), -2)


# Each later token gives the first one at least the share ε of its weight.
_ENOUGH = {"own": ("n 1", lambda s, eps: _causal_weights(s)[1:, :1] - eps)}
_SMALLEST_SHARE = {"eps": lambda s: _causal_weights(s)[1:, :1].min(keepdims=True)}


def _causal_gap(s: Array, n: Any, own: Any, less: Any, more: Any) -> list[Any]:
    """Return (1 − ε) b ∓ y with y = Σ_j P_ij (x_j − x_1), b the largest before, the mean of ``less`` and ``more``."""
    p = _causal_weights(s)[1:, 1:]
    b = (less + more).sum(axis=0, keepdims=True) / (2 * n)
    of_less = own * b + p @ less
    return [of_less, own * b + p @ more]


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
        lambda s, x0, x, eps: (
            _farthest_from(x0, _rows_after(s, x0, x)),
            (1 - eps) * _farthest_from(x0, x),
        ),
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
    bound(
        CAUSAL_LAYER,
        lambda eps: (1 - eps, 1 + 0 * eps),
        lambda eps: eps,
        positive=("eps",),
        strict=True,
    ),
)

causal_collapse = Together(
    (
        _CAUSAL_LAYERS,
        identity(CAUSAL_LAYER, lambda s, x0, x: ((_causal_weights(s) @ rows(x0, x))[:1], x0)),
    )
)


# -- residuals ---------------------------------------------------------------------------------------------------------
LAYERS = {"x": "n d", "u": "a n d", "w": "b n d", "y": "n d", "w1": "d d", "w2": "d d"}


def _add_all_layer_updates(x: Array, u: Array) -> Array:
    """x + Σ_l u_l."""
    return x + x.__array_namespace__().sum(u, axis=0)


def _stack_layer_updates(*updates: Array) -> Array:
    return updates[0].__array_namespace__().concat(list(updates), axis=0)


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


@partial(
    identity,
    LAYERS,
    false=lambda x, w1, w2: (_second_linear_layer(x, w1, w2), x + x @ w1 + x @ w2),
)
def residual_unrolls(x: Array, u: Array, w: Array, y: Array, w1: Array, w2: Array) -> list[Pair]:
    first = x + x @ w1
    return [
        (
            _add_all_layer_updates(x, u) + y,
            _add_all_layer_updates(x, _stack_layer_updates(u, y[None])),
        ),
        (
            _add_all_layer_updates(_add_all_layer_updates(x, u), w),
            _add_all_layer_updates(x, _stack_layer_updates(u, w)),
        ),
        (
            _second_linear_layer(x, w1, w2),
            _add_all_layer_updates(x, _stack_layer_updates((x @ w1)[None], (first @ w2)[None])),
        ),
    ]


def _second_linear_layer(x: Array, w1: Array, w2: Array) -> Array:
    """x₂ of two layers that are linear."""
    first = x + x @ w1
    return first + first @ w2


THEOREMS = of_file(
    "depth",
    {
        "weights": Glossary(sizes={}, defined={"I": eye("n")}, functions={"osc": _osc_of}),
        "rank-collapse-averaging": _MANY_LAYERS.also(
            defined={
                "P": lambda reader: _with_at_least(
                    reader, weights(reader.array("S")), 1, reader.length("n")
                )
            },
            sharp="apart",
        ).where("ε = 1/(n + e^w)"),
        "causal-collapse-to-first": _MANY_LAYERS.also(
            defined={"P": _first_key}, sharp="apart"
        ).where("ε = 1/(1 + e^w)"),
        "layers": Glossary(sizes={}, functions={"f": _any_layers}),
    },
    globals(),
)

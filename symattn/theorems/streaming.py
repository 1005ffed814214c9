"""Streaming: keys in tiles, states that merge, caches."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import causal as causal_mask
from symattn.attention.masks import forbid
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.attention.streaming.states import (
    SoftmaxState,
    finish,
    merge,
    merge_partial,
    online,
    partial_output,
    tile_state,
)
from symattn.document.formulas import ARRAY_ROLES, running_text
from symattn.document.notation import Node
from symattn.document.text import text
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.values import Several, Unread, Value, both
from symattn.proof.rules import Fold
from symattn.proof.statement import Declared, Pair
from symattn.proof.theorem import theorem
from symattn.proof.together import also
from symattn.theorems.letters import ATTENTION, CAUSAL, rows, scaled_scores, textbook
from symattn.theorems.reading import printed
from symattn.theorems.sums import add_up, beside, exp

TOPIC = "streaming"
TILES = {"s": "n_q a", "t": "n_q b", "v": "a d_v", "w": "b d_v", "m": "n_q 1", "l": "n_q 1", "z": "n_q 1"}
STATES = {f"{letter}{i}": shape for i in "123" for letter, shape in (("m", "n_q 1"), ("l", "n_q 1"), ("o", "n_q d_v"))}
CACHE = {"q": "p d_k", "k": "p d_k", "v": "p d_v"}
ANY_NUMBERS = "the maxima m may be any numbers, also stale ones or zero"
ONLINE = "Milakov, Gimelshein, Online normalizer calculation for softmax (2018)"
RABE = "Rabe, Staats, Self-attention Does Not Need O(n²) Memory (2021)"
# Merging the states of tiles, in any bracketing, gives the state of all keys, and with it the output.
TILES_MERGED = Fold(
    Declared({"s": "n_q a", "v": "a d_v", "maximum": "n_q 1"}),
    "a",
    tile_state,
    lambda x, y, given: merge(SoftmaxState(*x), SoftmaxState(*y), given["maximum"]),
    lambda x, y, given: (given["maximum"], x[1] + y[1], x[2] + y[2]),
    ("maximum",),
    lambda s, v, state: [(finish(SoftmaxState(*state)), soft(s) @ v)],
)


def _weighed(s: Any, v: Array) -> tuple[Any, Any]:
    """e^L and e^L o of a block, from its scores and values."""
    return add_up(exp(s)), exp(s) @ v


BLOCKS_MERGED = Fold(
    Declared({"s": "n_q a", "v": "a d_v"}),
    "a",
    _weighed,
    lambda x, y, given: (x[0] + y[0], x[1] + y[1]),
    lambda x, y, given: (x[0] + y[0], (x[1] + y[1]) / 2),
    finish=lambda s, v, state: [(state[1] / state[0], soft(s) @ v)],
)


def _both(s: Array, t: Array, v: Array, w: Array) -> tuple[Any, Any]:
    """Scores and values of both tiles, side by side."""
    return beside(s, t), rows(v, w)


def _without_maximum(x: SoftmaxState) -> list[Any]:
    """ℓ e^m and a e^m: two states with the same give the same output, and merge alike."""
    e = exp(x.maximum)
    return [x.normaliser * e, x.accumulated * e]


def _equal(x: Any, y: Any) -> list[tuple[Any, Any]]:
    return list(zip(x, y, strict=True))


# -- letters ----------------------------------------------------------------------------------------------------------
def named_state(i: int) -> Callable[[Reader], Several]:
    """A state of one query, of any numbers."""
    parts = (("m", 0), ("l", 0), ("a", 1))
    return lambda reader: Several(tuple(Value(reader.array(f"{x}{i}"), (), rank, rank == 1) for x, rank in parts))


def _merged_states(_: Reader, *several: Several) -> Several:
    """The state of all sets of keys, by the implementation."""
    states = [SoftmaxState(*(p.array[None, :] if p.rank else p.array[None, None] for p in s.parts)) for s in several]
    return _several(reduce(merge, states))


def _several(x: SoftmaxState) -> Several:
    return Several((Value(x.maximum[0, 0]), Value(x.normaliser[0, 0]), Value(x.accumulated[0, :], (), 1, True)))


def _but_for_m(x: Several) -> Several:
    """ℓ e^m and a e^m: what is equal for states that are equal up to the choice of m."""
    m, *others = x.parts
    return Several(tuple(both(part, m, lambda a, b: a * exp(b)) for part in others))


STATE_LETTERS = Glossary(
    {**{f"{x}{i}": shape for i in "123" for x, shape in (("m", ""), ("l", ""), ("a", "d_v"))}, "m": ""},
    defined={letter: named_state(i) for i, letter in enumerate("xyz", 1)},
    functions={
        "merge": _merged_states,
        "state": lambda _, keys: _several(tile_state(keys.array[None, :, 0], keys.array[:, 1:])),
    },
    alike=_but_for_m,
    rows=True,
)
"""Three states x, y and z of one query."""


def _of_blocks(part: str, whole: bool) -> Callable[[Reader], Any]:
    """The output (1 axis) or the log-sum-exp of each block of keys, or of all keys together."""

    def computed(reader: Reader) -> Value:
        s, v = reader.array("scores"), reader.array("values")
        if whole:
            s, v = (s.__array_namespace__().reshape(x, (1, x.shape[0] * x.shape[1], *x.shape[2:])) for x in (s, v))
        results = partial_output(s[:, None, :], v)
        array = results.output[:, 0, :] if part == "output" else results.lse[:, 0, 0]
        rank = len(array.shape) - 1
        return Value(array[0], (), rank, rank == 1) if whole else Value(array, ("b",), rank, rank == 1)

    return computed


BLOCK_LETTERS = Glossary(
    {"scores": "B n", "values": "B n d_v"},
    {"B": "B"},
    {"b": "B"},
    {"L_b": _of_blocks("lse", False), "o_b": _of_blocks("output", False), "o": _of_blocks("output", True),
     "L": _of_blocks("lse", True)},
    rows=True,
)  # fmt: skip
"""B blocks of keys of one query, the output o_b and the log-sum-exp L_b of each, and those of all keys together."""


# -- tiles ------------------------------------------------------------------------------------------------------------


def _block(letter: str) -> Callable[[Reader, tuple[Node, ...]], Value]:
    """Tile k of the rows of a matrix: tiles of one row, but for the last, which has all that are left."""

    def read(reader: Reader, parts: tuple[Node, ...]) -> Value:
        result, (index,) = reader.array(letter), parts
        k, count = reader.whole_number(index), reader.length("b")
        if not isinstance(k, int) or not 1 <= k <= count:
            raise Unread(f"the tile {text(index)}")
        return Value(result[k - 1 : None if k == count else k], (), 2)

    return read


def _state_of_tile(reader: Reader, k: Value, v: Value) -> Several:
    """The state of the keys and values of a tile, for the one query."""
    return _several(tile_state(scale_by_root(dot_scores(reader.array("Q")[None], k.array), k.array), v.array))


def _finished(_: Reader, x: Several) -> Value:
    """a / ℓ."""
    _, normaliser, accumulated = (part.array for part in x.parts)
    return Value(accumulated / normaliser, (), 1, True)


@also(TILES_MERGED)
@theorem(
    "two-block-merge",
    TOPIC,
    "$state([K_a; K_b]) = merge(state(K_a), state(K_b))$",
    arrays=TILES,
    hypotheses=(
        "a state is m, $ℓ = Σ_{j=1}^{n_k} e^{s_j − m}$ and $a = Σ_{j=1}^{n_k} e^{s_j − m} v_j$, for each query",
        ANY_NUMBERS,
    ),
    source=ONLINE,
    why="To take another maximum is to multiply all exponentials by one number.",
    letters=STATE_LETTERS.also({"Kₐ": "a 1+d_v", "K_b": "b 1+d_v"}),
    false=lambda s, t, v, w, m, l, z: _equal(  # noqa: E741
        _one_side(tile_state(s, v, m), tile_state(t, w, l), z)[1:], tile_state(*_both(s, t, v, w), z)[1:]
    ),
    false_says="one side is not rescaled",
)
def two_block_merge(s: Array, t: Array, v: Array, w: Array, m: Array, l: Array, z: Array) -> list[Pair]:  # noqa: E741
    whole = _both(s, t, v, w)
    x, y = tile_state(s, v, m), tile_state(t, w, l)
    return [
        *_equal(merge(x, y, z)[1:], tile_state(*whole, z)[1:]),
        *_equal(merge(x, y)[1:], tile_state(*whole, merge(x, y).maximum)[1:]),
    ]


def _one_side(x: SoftmaxState, y: SoftmaxState, m: Array) -> SoftmaxState:
    r = exp(x.maximum - m)
    return SoftmaxState(m, x.normaliser * r + y.normaliser, x.accumulated * r + y.accumulated)


@also(TILES_MERGED)
@theorem(
    "online-softmax",
    TOPIC,
    "$Attention(Q, K, V) = finish(merge(state(K_1, V_1), …, state(K_b, V_b)))$",
    arrays=TILES,
    letters=STATE_LETTERS.also(
        {"Q": "d_k", "K": "b*n d_k", "V": "b*n d_v"},
        sizes={"b": "b", "d_k": "d_k"},
        families={"K": _block("K"), "V": _block("V")},
        functions={"state": _state_of_tile, "finish": _finished},
    ),
    hypotheses=(
        "the keys come in any number of tiles of any sizes, in any order",
        "state(K, V) is m, ℓ and $a$ of a tile, and finish gives $a/ℓ$",
        ANY_NUMBERS,
    ),
    source=ONLINE,
    why="The output is a over ℓ, in which the maximum cancels.",
    false=lambda s, t, v, w: (finish(_only_normaliser(tile_state(s, v), tile_state(t, w))), _plain(s, t, v, w)),
    false_says="ℓ is rescaled and a is not",
)
def online_softmax(s: Array, t: Array, v: Array, w: Array, m: Array, l: Array, z: Array) -> list[Pair]:  # noqa: E741
    a, b = s.shape[-1], t.shape[-1]
    x, y = tile_state(s, v, m), tile_state(t, w, l)
    return [
        *_equal(merge(x, y, z)[1:], tile_state(*_both(s, t, v, w), z)[1:]),
        *_equal(merge(x, y, z)[1:], merge(y, x, z)[1:]),
        (finish(x), soft(s) @ v),
        (online(*_both(s, t, v, w), (0, a, a + b)), _plain(s, t, v, w)),
    ]


def _plain(s: Array, t: Array, v: Array, w: Array) -> Any:
    scores, values = _both(s, t, v, w)
    return soft(scores) @ values


def _only_normaliser(x: SoftmaxState, y: SoftmaxState) -> SoftmaxState:
    whole = merge(x, y)
    return SoftmaxState(whole.maximum, whole.normaliser, x.accumulated + y.accumulated)


@theorem(
    "merge-monoid",
    TOPIC,
    "$merge(merge(x, y), z) = merge(x, merge(y, z))$, $merge(x, y) = merge(y, x)$ and $merge(x, (m, 0, 0)) = x$",
    arrays=STATES,
    hypotheses=(
        "states are equal up to the choice of m: if they agree in $ℓ e^m$ and $a e^m$",
        "the unit has any finite m, or $−∞$",
    ),
    source=RABE,
    letters=STATE_LETTERS,
    why="Merging adds these two numbers, so states that are equal in this sense merge to equal ones.",
    false=lambda m1, m2, l1, o1: (merge(SoftmaxState(m1, l1, o1), SoftmaxState(m2, 0 * l1, 0 * o1)).maximum, m1),
    false_says="a unit of any finite m changes no state, so that m too is kept",
)
def merge_monoid(
    m1: Array, l1: Array, o1: Array, m2: Array, l2: Array, o2: Array, m3: Array, l3: Array, o3: Array
) -> list[Pair]:
    x, y, z = SoftmaxState(m1, l1, o1), SoftmaxState(m2, l2, o2), SoftmaxState(m3, l3, o3)
    unit, nothing = SoftmaxState(m2, 0 * l2, 0 * o2), _forbidden(m1, l1, o1)
    alike = (
        (merge(merge(x, y), z), merge(x, merge(y, z))),
        (merge(x, y), merge(y, x)),
        (merge(x, unit), x),
        (merge(unit, x), x),
        (merge(unit, SoftmaxState(m3, 0 * l3, 0 * o3)), unit),
    )
    exactly = ((merge(x, nothing), x), (merge(nothing, x), x))
    sums = [a + b for a, b in zip(_without_maximum(x), _without_maximum(y), strict=True)]
    return [
        *_equal(_without_maximum(merge(x, y)), sums),
        *(pair for a, b in alike for pair in _equal(_without_maximum(a), _without_maximum(b))),
        *(pair for a, b in exactly for pair in _equal(a, b)),
    ]


def _forbidden(m: Array, l: Array, o: Array) -> SoftmaxState:  # noqa: E741
    """The state of a tile in which every key is forbidden: (−∞, 0, 0)."""
    xp = m.__array_namespace__()
    return SoftmaxState(xp.full(m.shape, -xp.inf), 0 * l, 0 * o)


@also(BLOCKS_MERGED)
@theorem(
    "lse-merge",
    TOPIC,
    "$o = Σ_{b=1}^B e^{L_b − L} o_b$ and $L = log(Σ_{b=1}^B e^{L_b})$",
    arrays={**TILES, "x": "g n_q a", "y": "g a d_v", "q": "n_q d_k", "k": "a d_k"},
    hypotheses=(
        "the keys are split into blocks; $L_b$ is the log-sum-exp of the scores of block b",
        "$o_b$ is the output over the keys of block b alone",
    ),
    letters=BLOCK_LETTERS,
    source="Dao et al., Flash-Decoding for long-context inference (2023)",
    why="The numerator of a block is its output times the exponential of its log-sum-exp.",
    false=lambda s, t, v, w: ((soft(s) @ v + soft(t) @ w) / 2, _plain(s, t, v, w)),
    false_says="the mean of the outputs of the blocks: $o = (Σ_{b=1}^B o_b)/B$",
)
def lse_merge(s: Array, t: Array, v: Array, w: Array, x: Array, y: Array, q: Array, k: Array) -> list[Pair]:
    xp = s.__array_namespace__()
    blocks = partial_output(x, y)
    whole = xp.log(xp.sum(xp.exp(blocks.lse), axis=0))
    g, n, a = x.shape
    scores = xp.reshape(xp.permute_dims(x, (1, 0, 2)), (n, g * a))
    values = xp.reshape(y, (g * a, y.shape[-1]))
    merged = merge_partial(partial_output(s, v), partial_output(t, w))
    both = partial_output(*_both(s, t, v, w))
    output, lse = Attention(lse=True)(q, k, v)
    block, one = partial_output(scaled_scores(q, k), v), partial_output(s, v)
    return [
        *_equal((xp.exp(one.lse), xp.exp(one.lse) * one.output), _weighed(s, v)),
        (output, block.output),
        (xp.exp(lse), xp.exp(block.lse[:, 0])),
        (xp.sum(xp.exp(blocks.lse - whole) * blocks.output, axis=0), soft(scores) @ values),
        (merged.output, both.output),
        (xp.exp(merged.lse), xp.exp(both.lse)),
    ]


# -- caches -----------------------------------------------------------------------------------------------------------

_TOKENS = {**ARRAY_ROLES, "p": None}  # p is a number of tokens here
_LATER = {"q1": "n d_k", "k1": "n d_k", "v1": "n d_v"}


kv_cache_step = printed(
    "kv-cache-step",
    TOPIC,
    "$o_{n + 1} = Attention(q_{n + 1}, K, V)$ in causal attention over $n + 1$ tokens, with all their"
    " keys K and values V",
    source="Shazeer, Fast Transformer Decoding (2019)",
    letters=Glossary(
        {"Q": "n+1 d_k", "K": "n+1 d_k", "V": "n+1 d_v"},
        defined={
            "q_{n+1}": lambda reader: reader.array("Q")[reader.length("n") :][0],
            "K_n": lambda reader: reader.array("K")[: reader.length("n")],
            "V_n": lambda reader: reader.array("V")[: reader.length("n")],
            "o_{n+1}": lambda reader: CAUSAL(*map(reader.array, "QKV"))[reader.length("n") :][0],
        },
        rows=True,
    ),
    why="The last token may attend to all keys, and its row needs no other query.",
    false_says="a cache without the new key and value: $o_{n + 1} = Attention(q_{n + 1}, K_n, V_n)$",
)


@theorem(
    "causal-prefix-unchanged",
    TOPIC,
    running_text("the first $p$ rows of causal attention are $Causal(Q, K, V)$ of the first $p$ tokens alone", _TOKENS),
    arrays=CACHE | _LATER,
    hypotheses=(running_text("$p$ tokens, and any number of tokens after them", _TOKENS),),
    why="A token may not attend to later ones, so later ones change nothing before them.",
    false=lambda q, k, v, q1, k1, v1: (ATTENTION(q, k, v), _all(q, k, v, q1, k1, v1, ATTENTION)[: q.shape[0]]),
    false_says="the same without the mask",
)
def causal_prefix_unchanged(q: Array, k: Array, v: Array, q1: Array, k1: Array, v1: Array) -> Pair:
    return CAUSAL(q, k, v), _all(q, k, v, q1, k1, v1)[: q.shape[0]]


def _last_scores(reader: Reader) -> Any:
    q, k = map(reader.array, "QK")
    return scaled_scores(q[reader.length("p") :], k)


@theorem(
    "chunked-prefill-bottom-right",
    TOPIC,
    "$o_i_c = (Σ_{j ≤ i + m − n} e^{s_ij} v_j_c)/(Σ_{j ≤ i + m − n} e^{s_ij})$ in the last n rows of"
    " causal attention over m tokens: the mask of the last n queries is aligned at the bottom right",
    arrays=CACHE | _LATER,
    hypotheses=("there are $m$ tokens; i counts the last $n$ of them as queries, j all as keys",),
    letters=Glossary(
        {"Q": "p+n d_k", "K": "p+n d_k", "V": "p+n d_v"},
        {"m": "p+n", "n": "n", "p": "p"},
        index={"i": "n", "j": "p+n", "c": "d_v"},
        defined={"O": lambda reader: CAUSAL(*map(reader.array, "QKV"))[reader.length("p") :], "S": _last_scores},
    ),
    source="FlashAttention, README, 2.1: Change behavior of causal flag",
    why="Query i of the chunk is token i + m − n, and may attend to as many keys.",
    false=lambda q, k, v, q1, k1, v1: (
        Attention(causal=True, alignment="top-left")(q1, rows(k, k1), rows(v, v1)),
        _all(q, k, v, q1, k1, v1)[q.shape[0] :],
    ),
    false_says="the mask aligned at the top left: $o_i_c = (Σ_{j ≤ i} e^{s_ij} v_j_c)/(Σ_{j ≤ i} e^{s_ij})$",
)
def chunked_prefill_bottom_right(q: Array, k: Array, v: Array, q1: Array, k1: Array, v1: Array) -> list[Pair]:
    xp, keys, values = q.__array_namespace__(), rows(k, k1), rows(v, v1)
    j, i = xp.arange(keys.shape[0])[None, :], xp.arange(q1.shape[0])[:, None]
    stated = textbook(q1, keys, values, j <= i + k.shape[0])
    s = scaled_scores(q1, keys)
    by_scores = soft(forbid(s, causal_mask(s))) @ values
    last = _all(q, k, v, q1, k1, v1)[q.shape[0] :]
    return [(CAUSAL(q1, keys, values), stated), (by_scores, stated), (last, stated)]


def _all(q: Array, k: Array, v: Array, q1: Array, k1: Array, v1: Array, kind: Attention = CAUSAL) -> Any:
    """Attention over the old tokens and the new."""
    return kind(rows(q, q1), rows(k, k1), rows(v, v1))

"""Streaming: keys in tiles, states that merge, caches."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.attention.streaming.states import (
    SoftmaxState,
    finish,
    merge,
    online,
    partial_output,
    tile_state,
)
from symattn.document.formulas import ARRAY_ROLES
from symattn.document.notation import Node
from symattn.document.text import text
from symattn.proof.relations.functions import attending
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Several, Unread, Value, both
from symattn.proof.relations.reader import Reader
from symattn.proof.rules import Fold
from symattn.proof.statement import Declared, Pair
from symattn.proof.together import equations_by
from symattn.theorems.letters import ATTENTION, CAUSAL, rows, scaled_scores
from symattn.theorems.sums import add_up, beside, exp
from symattn.theorems.texts import theorems

TILES = {"s": "n_q a", "t": "n_q b", "v": "a d_v", "w": "b d_v", "m": "n_q 1", "l": "n_q 1", "z": "n_q 1"}
STATES = {f"{letter}{i}": shape for i in "123" for letter, shape in (("m", "n_q 1"), ("l", "n_q 1"), ("o", "n_q d_v"))}
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


@equations_by(
    arrays=TILES,
    false=lambda s, t, v, w, m, l, z: _equal(  # noqa: E741
        _one_side(tile_state(s, v, m), tile_state(t, w, l), z)[1:], tile_state(*_both(s, t, v, w), z)[1:]
    ),
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


@equations_by(
    arrays=TILES,
    false=lambda s, t, v, w: (finish(_only_normaliser(tile_state(s, v), tile_state(t, w))), _plain(s, t, v, w)),
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


@equations_by(
    arrays=STATES,
    false=lambda m1, m2, l1, o1: (merge(SoftmaxState(m1, l1, o1), SoftmaxState(m2, 0 * l1, 0 * o1)).maximum, m1),
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


# -- caches -----------------------------------------------------------------------------------------------------------


def _first_rows(attention: Attention) -> Callable[[Reader], Any]:
    """The rows of the first tokens, in attention over all."""

    def of_all(reader: Reader) -> Any:
        return attention(*(rows(reader.array(f"{x}₁"), reader.array(f"{x}₂")) for x in "QKV"))[: reader.length("p")]

    return of_all


TOP_LEFT = Attention(causal=True, alignment="top-left")
CHUNKS = Glossary(
    {
        **{"Q₁": "p d_k", "K₁": "p d_k", "V₁": "p d_v"},
        **{"Q₂": "n d_k", "K₂": "n d_k", "V₂": "n d_v"},
    },
    defined={"O₁": _first_rows(CAUSAL), "A₁": _first_rows(ATTENTION)},
    functions={"Causal": lambda _, *qkv: attending(CAUSAL)(*qkv)},
)
"""Tokens in two chunks."""


def _last_scores(reader: Reader) -> Any:
    q, k = map(reader.array, "QK")
    return scaled_scores(q[reader.length("p") :], k)


_TEXT = """
two-block-merge: Two blocks merge
$state([K_a; K_b]) = merge(state(K_a), state(K_b))$
letters: | Kₐ a 1+d_v, K_b b 1+d_v
for: a state is m, $ℓ = Σ_{j=1}^{n_k} e^{s_j − m}$ and $a = Σ_{j=1}^{n_k} e^{s_j − m} v_j$, for each query
for: the maxima m may be any numbers, also stale ones or zero
source: Milakov, Gimelshein, Online normalizer calculation for softmax (2018)
why: To take another maximum is to multiply all exponentials by one number.
false: one side is not rescaled
by two_block_merge
and TILES_MERGED

online-softmax: Online softmax
$Attention(Q, K, V) = finish(merge(state(K_1, V_1), …, state(K_b, V_b)))$
for: the keys come in any number of tiles of any sizes, in any order
for: state(K, V) is m, ℓ and $a$ of a tile, and finish gives $a/ℓ$
for: the maxima m may be any numbers, also stale ones or zero
source: Milakov, Gimelshein, Online normalizer calculation for softmax (2018)
why: The output is a over ℓ, in which the maximum cancels.
false: ℓ is rescaled and a is not
by online_softmax
and TILES_MERGED

merge-monoid: Merging is associative, with a neutral element
$merge(merge(x, y), z) = merge(x, merge(y, z))$, $merge(x, y) = merge(y, x)$ and $merge(x, (m, 0, 0)) = x$
for: states are equal up to the choice of m: if they agree in $ℓ e^m$ and $a e^m$
for: the unit has any finite m, or $−∞$
source: Rabe, Staats, Self-attention Does Not Need O(n²) Memory (2021)
why: Merging adds these two numbers, so states that are equal in this sense merge to equal ones.
false: a unit of any finite m changes no state, so that m too is kept
by merge_monoid

lse-merge: Merging by log-sum-exp
$o = Σ_{b=1}^B e^{L_b − L} o_b$ and $L = log(Σ_{b=1}^B e^{L_b})$
letters: blocks
for: the keys are split into blocks; $L_b$ is the log-sum-exp of the scores of block b
for: $o_b$ is the output over the keys of block b alone
source: Dao et al., Flash-Decoding for long-context inference (2023)
why: The numerator of a block is its output times the exponential of its log-sum-exp.
false: the mean of the outputs of the blocks: $o = (Σ_{b=1}^B o_b)/B$
and BLOCKS_MERGED

kv-cache-step: A step with a cache of keys and values
$o_{n + 1} = Attention(q_{n + 1}, K, V)$ in causal attention over $n + 1$ tokens, with all their keys K and values V
source: Shazeer, Fast Transformer Decoding (2019)
why: The last token may attend to all keys, and its row needs no other query.
false: a cache without the new key and value: $o_{n + 1} = Attention(q_{n + 1}, K_n, V_n)$

causal-prefix-unchanged: A causal prefix stays as it is
the first rows $O_1$ of causal attention over the tokens $[Q_1; Q_2]$, $[K_1; K_2]$, $[V_1; V_2]$ are causal attention
  over the first tokens alone: $O_1 = Causal(Q_1, K_1, V_1)$
letters: chunks
why: A token may not attend to later ones, so later ones change nothing before them.
false: the same without the mask: $A_1 = Attention(Q_1, K_1, V_1)$

chunked-prefill-bottom-right: Prefill in chunks, aligned at the bottom right
$o_i_c = (Σ_{j ≤ i + p} e^{s_ij} v_j_c)/(Σ_{j ≤ i + p} e^{s_ij})$ in the last n rows of causal attention over $p + n$
  tokens: the mask of the last n queries is aligned at the bottom right
for: i counts the last $n$ tokens as queries, j all as keys
source: FlashAttention, README, 2.1: Change behavior of causal flag
why: Query i of the chunk is token i + p, and may attend to as many keys.
false: the mask aligned at the top left, which gives $A$: $O = A$
"""

THEOREMS = theorems(
    "streaming",
    _TEXT,
    {
        "": STATE_LETTERS,
        "online-softmax": STATE_LETTERS.also(
            {"Q": "d_k", "K": "b*n d_k", "V": "b*n d_v"},
            sizes={"b": "b", "d_k": "d_k"},
            families={"K": _block("K"), "V": _block("V")},
            functions={"state": _state_of_tile, "finish": _finished},
        ),
        "blocks": BLOCK_LETTERS,
        "kv-cache-step": Glossary(
            {"Q": "n+1 d_k", "K": "n+1 d_k", "V": "n+1 d_v"},
            defined={
                "q_{n+1}": lambda reader: reader.array("Q")[reader.length("n") :][0],
                "K_n": lambda reader: reader.array("K")[: reader.length("n")],
                "V_n": lambda reader: reader.array("V")[: reader.length("n")],
                "o_{n+1}": lambda reader: CAUSAL(*map(reader.array, "QKV"))[reader.length("n") :][0],
            },
            rows=True,
        ),
        "chunks": CHUNKS,
        "chunked-prefill-bottom-right": Glossary(
            {"Q": "p+n d_k", "K": "p+n d_k", "V": "p+n d_v"},
            {"n": "n", "p": "p"},
            index={"i": "n", "j": "p+n", "c": "d_v"},
            defined={
                "O": lambda reader: CAUSAL(*map(reader.array, "QKV"))[reader.length("p") :],
                "A": lambda reader: TOP_LEFT(reader.array("Q")[reader.length("p") :], *map(reader.array, "KV")),
                "S": _last_scores,
            },
            roles={**ARRAY_ROLES, "p": None},
        ),
    },
    globals(),
)

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
    partial_output,
    tile_state,
)
from symattn.document.notation import Node
from symattn.document.text import text
from symattn.proof.relations.functions import attending
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Several, Unread, Value, both
from symattn.proof.relations.reader import Reader
from symattn.proof.rules import Fold
from symattn.proof.statement import Declared
from symattn.theorems.letters import ATTENTION, CAUSAL, add_up, exp, rows, scaled_scores
from symattn.theorems.texts import of_file

# Merging the states of tiles, in any bracketing, gives the state of all keys, and with it the output.
TILES_MERGED = Fold(
    Declared({"s": "n_q a", "v": "a d_v", "maximum": "n_q 1"}),
    "a",
    tile_state,
    lambda x, y, given: merge(SoftmaxState(*x), SoftmaxState(*y), given["maximum"]),
    lambda x, y, given: (
        *merge(SoftmaxState(*x), SoftmaxState(*y), given["maximum"])[:2],
        x[2] + y[2],
    ),
    ("maximum",),
    lambda s, v, state: [(finish(SoftmaxState(*state)), soft(s) @ v)],
)


BLOCKS_MERGED = Fold(
    Declared({"s": "n_q a", "v": "a d_v"}),
    "a",
    lambda s, v: (add_up(exp(s)), exp(s) @ v),  # e^L and e^L o of a block
    lambda x, y, given: (x[0] + y[0], x[1] + y[1]),
    lambda x, y, given: (x[0] + y[0], (x[1] + y[1]) / 2),
    finish=lambda s, v, state: [(state[1] / state[0], soft(s) @ v)],
)


# -- letters ----------------------------------------------------------------------------------------------------------
def named_state(i: int) -> Callable[[Reader], Several]:
    """Return a state of one query, made of arbitrary numbers."""
    parts = (("m", 0), ("ℓ", 0), ("a", 1))
    return lambda reader: Several(
        tuple(Value(reader.array(x + "₁₂₃"[i]), (), rank, rank == 1) for x, rank in parts)
    )


def _merged_states(_: Reader, *given: Several | Value) -> Several:
    """Return the merged state of all sets of keys, by the implementation; a number at the end is m."""
    sets = [x.parts for x in given if isinstance(x, Several)]
    last = given[-1]
    states = [
        SoftmaxState(*(p.array[None, :] if p.rank else p.array[None, None] for p in parts))
        for parts in sets
    ]
    maximum = last.array[None, None] if isinstance(last, Value) else None
    return _unpack_softmax_state(reduce(lambda x, y: merge(x, y, maximum), states))


def _state_of_key_tile(_: Reader, keys: Value, maximum: Value | None = None) -> Several:
    """Return the state of keys, given as scores and values side by side, with the largest score or another m."""
    m = None if maximum is None else maximum.array[None, None]
    keys_of_tile = keys.array[None, :, 0]
    return _unpack_softmax_state(tile_state(keys_of_tile, keys.array[:, 1:], m))


def _without_keys(reader: Reader) -> Several:
    """Return the state of a tile in which every key is forbidden: (−∞, 0, 0)."""
    zero, none = 0 * reader.array("ℓ₁"), 0 * reader.array("a₁")
    return Several(
        (Value(reader.xp.full(zero.shape, -reader.xp.inf)), Value(zero), Value(none, (), 1, True))
    )


def _unpack_softmax_state(x: SoftmaxState) -> Several:
    return Several(
        (Value(x.maximum[0, 0]), Value(x.normaliser[0, 0]), Value(x.accumulated[0, :], (), 1, True))
    )


def _but_for_m(x: Several) -> Several:
    """Return ℓ e^m and a e^m, which are equal for states that are equal up to the choice of m."""
    m, *others = x.parts
    return Several(tuple(both(part, m, lambda a, b: a * exp(b)) for part in others))


STATE_LETTERS = Glossary(
    {**{x + i: shape for i in "₁₂₃" for x, shape in (("m", ""), ("ℓ", ""), ("a", "d_v"))}, "m": ""},
    defined={**{letter: named_state(i) for i, letter in enumerate("xyz")}, "N": _without_keys},
    functions={
        "merge": _merged_states,
        "state": _state_of_key_tile,
        "maximum": lambda _, state: state.parts[0],
        "normaliser": lambda _, state: state.parts[1],
        "accumulated": lambda _, state: state.parts[2],
    },
    alike=_but_for_m,
    rows=True,
)
"""Three states x, y and z of one query."""


def _of_blocks(part: str, whole: bool) -> Callable[[Reader], Any]:
    """Return the output (1 axis) or the log-sum-exp of each block of keys, or of all keys together."""

    def computed(reader: Reader) -> Value:
        s, v = reader.array("scores"), reader.array("values")
        if whole:
            s, v = (
                s.__array_namespace__().reshape(x, (1, x.shape[0] * x.shape[1], *x.shape[2:]))
                for x in (s, v)
            )
        results = partial_output(s[:, None, :], v)
        array = results.output[:, 0, :] if part == "output" else results.lse[:, 0, 0]
        rank = len(array.shape) - 1
        if whole:
            return Value(array[0], (), rank, rank == 1)
        return Value(array, ("b",), rank, rank == 1)

    return computed


BLOCK_LETTERS = Glossary(
    {"scores": "B n", "values": "B n d_v"},
    {"B": "B"},
    {"b": "B"},
    {"L_b": _of_blocks("lse", False), "o_b": _of_blocks("output", False), "o": _of_blocks("output", True),
     "L": _of_blocks("lse", True)},
    rows=True,
)  # fmt: skip
"""B blocks of keys of one query, the output o_b and the log-sum-exp L_b of each, and those of all keys."""


# -- tiles ------------------------------------------------------------------------------------------------------------
def _make_row_tile_reader(letter: str) -> Callable[[Reader, tuple[Node, ...]], Value]:
    """Return tile k of the rows of a matrix: tiles of one row, except the last, which has all remaining rows."""

    def read(reader: Reader, parts: tuple[Node, ...]) -> Value:
        result, (index,) = reader.array(letter), parts
        k, count = reader.whole_number(index), reader.length("b")
        if not isinstance(k, int) or not 1 <= k <= count:
            raise Unread(f"the tile {text(index)}")
        return Value(result[k - 1 : None if k == count else k], (), 2)

    return read


def _state_of_tile(reader: Reader, k: Value, v: Value) -> Several:
    """Return the state of the keys and values of a tile, for the one query."""
    state_scores = scale_by_root(dot_scores(reader.array("Q")[None], k.array), k.array)
    return _unpack_softmax_state(tile_state(state_scores, v.array))


# -- caches -----------------------------------------------------------------------------------------------------------
def _first_rows(attention: Attention) -> Callable[[Reader], Any]:
    """Return the rows of the first tokens, in attention over all tokens."""

    def of_all(reader: Reader) -> Any:
        return attention(*(rows(reader.array(f"{x}₁"), reader.array(f"{x}₂")) for x in "QKV"))[
            : reader.length("p")
        ]

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


def _last_scores(reader: Reader) -> Array:
    q, k = map(reader.array, "QK")
    return scaled_scores(q[reader.length("p") :], k)


THEOREMS = of_file(
    "streaming",
    {
        "": STATE_LETTERS,
        "online-softmax": STATE_LETTERS.also(
            {"Q": "d_k", "K": "b*n d_k", "V": "b*n d_v"},
            sizes={"b": "b", "d_k": "d_k"},
            families={"K": _make_row_tile_reader("K"), "V": _make_row_tile_reader("V")},
            functions={
                "state": _state_of_tile,
                "finish": lambda _, x: Value(
                    x.parts[2].array / x.parts[1].array, (), 1, True
                ),  # a / ℓ
            },
        ),
        "blocks": BLOCK_LETTERS,
        "kv-cache-step": Glossary(
            {"Q": "n+1 d_k", "K": "n+1 d_k", "V": "n+1 d_v"},
            defined={
                "q_{n+1}": lambda reader: reader.array("Q")[reader.length("n") :][0],
                "K_n": lambda reader: reader.array("K")[: reader.length("n")],
                "V_n": lambda reader: reader.array("V")[: reader.length("n")],
                "o_{n+1}": lambda reader: CAUSAL(*map(reader.array, "QKV"))[reader.length("n") :][
                    0
                ],
            },
            rows=True,
        ),
        "chunks": CHUNKS,
        "last chunk": Glossary(
            sizes={},
            defined={
                "O": lambda reader: CAUSAL(*map(reader.array, "QKV"))[reader.length("p") :],
                "A": lambda reader: TOP_LEFT(
                    reader.array("Q")[reader.length("p") :], *map(reader.array, "KV")
                ),
                "S": _last_scores,
            },
        ),
    },
    globals(),
)

"""Positions: sinusoidal embeddings, linear biases, rotary ones, and the causal mask alone."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import causal as causal_mask
from symattn.attention.masks import forbid
from symattn.attention.positions.angles import linear_bias, rotate_half, sinusoidal
from symattn.attention.scores import dot_scores
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import Node
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value, spread
from symattn.proof.relations.reader import Reader
from symattn.proof.statement import Declared
from symattn.proof.together import Fails, Together, identity
from symattn.theorems.letters import CAUSAL, add_up, rows
from symattn.theorems.rotations import positions, rotation_matrix, turn, unit_vectors
from symattn.theorems.texts import of_file

LETTERS = positions(
    {},
    "pqkl",
    {
        "PE": lambda reader, parts: sinusoidal(*turn(reader, *parts)),
        # of the pairs (sin, cos), which the angle rotates in the opposite direction
        "M": lambda reader, parts: rotation_matrix(reader, tuple(-part for part in parts)),
    },
    sizes={"d_model": "f*2", "d_model/2": "f"},
).also(roles=dict.fromkeys("pqk"))


# -- sinusoidal --------------------------------------------------------------------------------------------------------
def _masked_rows(_: Reader, s: Value) -> Value:
    """Return the weights over j of scores s_ij, where j ≤ i."""
    scores = spread(s, ("i", "j"), 0)
    return Value(soft(forbid(scores, causal_mask(scores))), ("i", "j"))


# -- linear biases -----------------------------------------------------------------------------------------------------
def _biased_after(p: Any, s: Array, a: Array) -> Any:
    """Return s_ij − a (p + i) + a j: row i is that of token p + i."""
    xp = s.__array_namespace__()
    i, j = (xp.astype(xp.arange(n), s.dtype) for n in s.shape[-2:])
    return s - a * (p + i)[:, None] + a * j[None, :]


later_rows = identity(
    {"s": "h p+n p+n", "a": ""},
    lambda s, a, p: [
        (linear_bias(s, a), _biased_after(0, s, a)),
        (linear_bias(s[:, p:], a), _biased_after(p, s[:, p:], a)),
        (linear_bias(s, a)[:, p:], _biased_after(p, s[:, p:], a)),
    ],
)
"""The last rows of a matrix get the bias that they have in it."""


def _with_alibi(reader: Reader) -> Any:
    s, xp = reader.array("S"), reader.xp
    distance = xp.arange(s.shape[-2])[:, None] - xp.arange(s.shape[-1])[None, :]
    biased = s - reader.array("a") * xp.astype(distance, s.dtype)
    return soft(forbid(biased, causal_mask(biased)))


# -- absolute positions, and none --------------------------------------------------------------------------------------
COUNTS = {"k_0": "1 d", "k": "n d"}


def _marked(k_0: Array, k: Array) -> tuple[Array, Array]:
    """Return causal attention with queries 0 and values 1, 0, 0, …, and the number of keys that each row sees."""
    xp = k.__array_namespace__()
    keys, values = xp.concat([k_0, k], axis=-2), xp.concat([0 * add_up(k_0) + 1, 0 * add_up(k)], axis=-2)
    scores = dot_scores(0 * keys, keys)
    count = add_up(xp.astype(causal_mask(scores), keys.dtype))
    return CAUSAL(0 * keys, keys, values), count


def _moved_tokens(x: Array, y: Array) -> Any:
    """Return causal attention over two tokens in both orders."""
    xy, yx = rows(x, y), rows(y, x)
    swapped = CAUSAL(xy, xy, xy)
    return CAUSAL(yx, yx, yx), rows(swapped[1:], swapped[:1])


def _marked_row(reader: Reader) -> Array:
    """Return the first output of each row, with the value 1 of the first key and 0 of the others."""
    k = reader.array("K")
    return _marked(k[:1], k[1:])[0][:, 0]


nope_causal_counts = Together(
    (
        identity(
            COUNTS,
            lambda k_0, k: (_marked(k_0, k)[0] * _marked(k_0, k)[1], _marked(k_0, k)[1] * 0 + 1),
            lambda k_0, k, n: (_marked(k_0, k)[0] * (1 + n), _marked(k_0, k)[1] * 0 + 1),
        ),
        Fails(Declared({"x": "1 d", "y": "1 d"}), _moved_tokens),
    )
)


# -- rotary -----------------------------------------------------------------------------------------------------------
ROTARY = positions({"q": "f*2", "k": "f*2", "x": "f*2"}, "mnt", {"R": rotation_matrix})


def _evens_then_odds(x: Array) -> Array:
    xp = x.__array_namespace__()
    pairs = xp.reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2))
    return xp.concat([pairs[..., 0], pairs[..., 1]], axis=-1)


def _rotation_of_halves(reader: Reader, parts: tuple[Node, ...]) -> Array:
    """R′_p, likewise."""
    cosine, sine = turn(reader, *parts)
    every = _evens_then_odds(_evens_then_odds(unit_vectors(reader)).mT).mT
    return rotate_half(every, cosine[None, :], sine[None, :]).mT


THEOREMS = of_file(
    "positions",
    {
        "": LETTERS,
        "rotary": ROTARY,
        "rope-layouts": ROTARY.also(
            defined={"Π": lambda reader: _evens_then_odds(unit_vectors(reader)).mT},
            families={"R'": _rotation_of_halves},
        ),
        "rope-key-bias-not-redundant": positions(
            {"qᵢ": "f*2", "kⱼ": "f*2", "k_l": "f*2", "b": "f*2"}, "ijl", {"R": rotation_matrix}
        ),
        "masked": Glossary(functions={"softmax": _masked_rows}),
        "alibi": Glossary(
            sizes={},
            defined={
                # at least the most by which two scores differ
                "w": lambda reader: reader.array("S").max() - reader.array("S").min() + reader.array("u"),
                "p": _with_alibi,
            },
        ),
        "nope-causal-counts": Glossary({"K": "1+n d"}, {"n": "1+n"}, {"i": "1+n"}, {"o": _marked_row}),
    },
    globals(),
)

"""Positions: sinusoidal embeddings, linear biases, rotary ones, and the causal mask alone."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import causal as causal_mask
from symattn.attention.masks import forbid
from symattn.attention.positions.angles import linear_bias, rotate_half, sinusoidal
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import Node
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value, spread
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import (
    CAUSAL,
    add_up,
    positions,
    rotation_matrix,
    rows,
    turn,
    unit_vectors,
)
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
def _with_alibi(reader: Reader) -> Any:
    s, xp = reader.array("S"), reader.xp
    row_places = xp.arange(s.shape[-2])[:, None]
    distance = row_places - xp.arange(s.shape[-1])[None, :]
    biased = s - reader.array("a") * xp.astype(distance, s.dtype)
    return soft(forbid(biased, causal_mask(biased)))


# -- no positions ------------------------------------------------------------------------------------------------------
def _marked_row(reader: Reader) -> Any:
    """Return causal attention with queries 0 and the values 1, 0, 0, …"""
    k = reader.array("K")
    ones = 0 * add_up(k[:1]) + 1
    values = rows(ones, 0 * add_up(k[1:]))
    return CAUSAL(0 * k, k, values)[:, 0]


# -- rotary -----------------------------------------------------------------------------------------------------------
ROTARY = positions({"q": "f*2", "k": "f*2", "x": "f*2"}, "mnt", {"R": rotation_matrix})


def _evens_then_odds(x: Array) -> Array:
    xp = x.__array_namespace__()
    shape = (*x.shape[:-1], x.shape[-1] // 2, 2)
    pairs = xp.reshape(x, shape)
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
        "rope-sections": positions(dict.fromkeys("qkxy", "f*2"), "mnuwts", {"R": rotation_matrix}),
        "rope-layouts": ROTARY.also(
            defined={"Π": lambda reader: _evens_then_odds(unit_vectors(reader)).mT},
            families={"R'": _rotation_of_halves},
        ),
        "rope-key-bias-not-redundant": positions(
            {"qᵢ": "f*2", "kⱼ": "f*2", "k_l": "f*2", "b": "f*2"}, "ijl", {"R": rotation_matrix}
        ),
        "masked": Glossary(
            defined={"D": lambda reader: linear_bias(reader.array("T"), reader.array("a"))},
            functions={"softmax": _masked_rows},
        ),
        "alibi": Glossary(
            sizes={},
            defined={
                # at least the most by which two scores differ
                "w": lambda reader: (
                    reader.array("S").max() - reader.array("S").min() + reader.array("u")
                ),
                "p": _with_alibi,
            },
        ),
        "nope-causal-counts": Glossary(
            {"K": "1+m d", "x": "d", "y": "d"},
            {"n": "1+m"},
            {"i": "1+m", "j": "1+m"},
            {"o": _marked_row},
            {"C": lambda _, x: x.on(lambda x: CAUSAL(x, x, x))},
        ),
    },
    globals(),
)

"""Heads: side by side or as a sum, permuted, shared, merged, and read from a latent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.positions.angles import rotate_half
from symattn.attention.projections import grouped_attention, merge_heads, repeat_heads, tile_heads
from symattn.document.notation import name
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import ATTENTION
from symattn.theorems.texts import of_file


def _output_blocks(reader: Reader) -> Value:
    """Return block t of the rows of W_O, for each head."""
    heads, w = reader.array("H"), reader.array("W_O")
    shape = (heads.shape[0], heads.shape[-1], w.shape[-1])
    return Value(reader.xp.reshape(w, shape), ("t",), 2)


def _of_each_head(matrices: str) -> Any:
    """Return a matrix for each head."""
    return lambda reader: Value(reader.array(matrices), ("t",), 2)


def _make_reordered_heads(matrices: str) -> Any:
    """Return a matrix for each head, with the heads in the order of Π."""

    def permuted(reader: Reader) -> Value:
        w = reader.array(matrices)
        matrix_shape = (w.shape[0], w.shape[1] * w.shape[2])
        rows = reader.xp.reshape(w, matrix_shape)
        permutation = reader.one(name("Π")).array
        return Value(reader.xp.reshape(permutation @ rows, w.shape), ("t",), 2)

    return permuted


PROJECTIONS = {"Q": "queries", "K": "keys", "V": "values", "O": "outputs"}


def _outputs_of_query_heads(reader: Reader) -> Array:
    """Return the outputs of all query heads."""
    return grouped_attention(ATTENTION, *map(reader.array, "QKV"))


GROUPED = Glossary(
    {"Q": "g*r n_q d_k", "K": "g n_k d_k", "V": "g n_k d_v"},
    {"g": "g", "r": "r"},
    {"t": "g*r"},
    {"O": _outputs_of_query_heads},
    first=0,
)
"""Grouped-query attention, whose output is O."""


def _repeated_beside(letter: str) -> Any:
    """Return the heads of keys or values that the query heads read, side by side."""
    return lambda reader: merge_heads(repeat_heads(reader.array(letter), reader.length("r")))


def _make_relabelled_heads(of: Callable[[Reader], Any]) -> Callable[[Reader], Any]:
    """Permute the heads so that head a r + b is head b g + a."""

    def relabelled(reader: Reader) -> Any:
        x = of(reader)
        g = reader.length("g")
        r = reader.length("r")
        apart = reader.xp.reshape(x, (g, r, *x.shape[1:]))
        in_order = reader.xp.permute_dims(apart, (1, 0, 2, 3))
        return reader.xp.reshape(in_order, (r * g, *x.shape[1:]))

    return relabelled


def _rotate_rows_by_position(reader: Reader, x: Value) -> Value:
    """Return each row rotated by the angles of its position."""
    return Value(rotate_half(x.array, reader.array("cos"), reader.array("sin")), (), 2)


THEOREMS = of_file(
    "heads",
    {
        "": GROUPED,
        "blocks": Glossary(
            defined={
                "W_{O,t}": _output_blocks,
                "W_{O,1}": lambda reader: _output_blocks(reader).array[0],
            },
        ),
        "head-permutation": Glossary(
            {
                "X": "n d",
                "queries": "h d d_k",
                "keys": "h d d_k",
                "values": "h d d_v",
                "outputs": "h d_v d",
            },
            index={"t": "h"},
            defined={f"W_{{{letter},t}}": _of_each_head(of) for letter, of in PROJECTIONS.items()}
            | {
                f"W′_{{{letter},t}}": _make_reordered_heads(of)
                for letter, of in PROJECTIONS.items()
            },
            permutations={"Π": "h"},
        ),
        "tiled": GROUPED.also(
            {"W": "g*r d_v d"},
            defined={
                "K′": lambda reader: tile_heads(reader.array("K"), reader.length("r")),
                "V′": lambda reader: tile_heads(reader.array("V"), reader.length("r")),
                "Q′": _make_relabelled_heads(lambda reader: reader.array("Q")),
                "W′": _make_relabelled_heads(lambda reader: reader.array("W")),
                "O′": _make_relabelled_heads(_outputs_of_query_heads),
            },
        ),
        "mqa-is-gqa-one": GROUPED.also(
            defined={
                "O′": lambda reader: merge_heads(_outputs_of_query_heads(reader)),
                "Q′": lambda reader: merge_heads(reader.array("Q")),
                "K′": _repeated_beside("K"),
                "V′": _repeated_beside("V"),
            }
        ),
        "each": Glossary(
            defined={"W_{V,t}": _of_each_head("values"), "W_{O,t}": _of_each_head("outputs")},
        ),
        "rotated": Glossary(sizes={}, functions={"R": _rotate_rows_by_position}),
    },
    globals(),
)

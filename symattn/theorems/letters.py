"""The letters of the catalogue's statements, and the functions in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.positions.angles import add_angles, rotate_interleaved
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.document import notation as nt
from symattn.document.notation import Name, Node, name
from symattn.document.text import text
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Unread, Value
from symattn.proof.relations.reader import Reader

ATTENTION = Attention()  # softmax(Q Kᵀ / √d_k) V, the subject of most statements
CAUSAL = Attention(causal=True, fully_masked="nan")

ATTENDING = Glossary(
    given={"Q": "n_q d_k", "K": "n_k d_k", "V": "n_k d_v", "V′": "n_k d_v", "G": "n_q d_v"},
    index={"i": "n_q", "j": "n_k", "l": "n_k", "c": "d_v"},
    sharp="attained",
).where("S = Q Kᵀ/√d_k", "P = softmax(S)", "O = P V")
"""The meanings of the letters of attention in most statements."""


def of_tokens(attention: Attention) -> Callable[[Reader, Value], Value]:
    """Return self-attention, with the projections W_Q, W_K and W_V, as a function of formulas."""

    def attended(reader: Reader, x: Value) -> Value:
        weights = {word.lower(): reader.array(word) for word in ("W_Q", "W_K", "W_V")}
        return Value(attention(x=x.array, **weights), (), 2)

    return attended


def eye(sort: str) -> Callable[[Any], Any]:
    """Return the meaning of I: the identity matrix of a size."""

    return lambda reader: identity(reader, reader.length(sort))


def identity(reader: Any, length: Any) -> Any:
    """Return the identity matrix."""
    same = equal_places(reader.xp.arange(length))
    return reader.xp.where(same, reader.xp.asarray(1), reader.xp.asarray(0))


def rows(*arrays: Any) -> Any:
    """Return blocks of rows stacked vertically, as arrays."""
    return arrays[0].__array_namespace__().concat(list(arrays), axis=-2)


def scaled_scores(q: Array, k: Array) -> Array:
    """Q Kᵀ / √d_k."""
    return scale_by_root(dot_scores(q, k), q)


def weights(s: Array) -> Any:
    """softmax(s), without subtracting the maximum."""
    return softmax(s, stabilised=False)


def add_up(x: Array) -> Array:
    """Σ_j x_ij, as a column."""
    return x.__array_namespace__().sum(x, axis=-1, keepdims=True)


def exp(x: Array) -> Array:
    """e^x."""
    return x.__array_namespace__().exp(x)


def side_by_side(*arrays: Any) -> Any:
    """Return blocks of columns side by side."""
    return arrays[0].__array_namespace__().concat(list(arrays), axis=-1)


def equal_places(places: Any) -> Any:
    """[j = l]."""
    return places[:, None] == places[None, :]


def identity_like(x: Array) -> Array:
    """I, as large as a square matrix is."""
    xp = x.__array_namespace__()
    return xp.astype(equal_places(xp.arange(x.shape[-1])), x.dtype)


def squares(x: Array) -> Array:
    """‖x_i‖², as a column."""
    return add_up(x * x)


def greatest(x: Array, axis: int | None = None) -> Array:
    """max x, with axes of length one."""
    return x.__array_namespace__().max(x, axis=axis, keepdims=True)


# -- positions ---------------------------------------------------------------------------------------------------------
Family = Callable[[Reader, tuple[Node, ...]], Any]
OMEGA = name("ω", "f")


def positions(
    given: Mapping[str, str], letters: str, families: Mapping[str, Family], **more: Any
) -> Glossary:
    """Return the letters of a statement about positions: those of ``letters``, each with its angle in each plane f."""
    pairs = tuple((f"cos {p}", f"sin {p}") for p in letters)
    tables = {table: "f" for pair in pairs for table in pair}
    waves = {"cos": _make_position_wave(0), "sin": _make_position_wave(1)}
    index = {"f": "f", **more.pop("index", {})}
    return Glossary(
        {**given, **tables}, index=index, units=pairs, families={**waves, **families}, **more
    )


def turn(reader: Reader, p: Node) -> tuple[Array, Array]:
    """Return cosine and sine of the angle of a position in each plane."""
    match p:
        case nt.Neg(body):
            cosine, sine = turn(reader, body)
            return cosine, -sine
        case nt.Fence("round", body, None):
            return turn(reader, body)
        case nt.Sum(terms):
            return reduce(lambda a, b: add_angles(*a, *b), [turn(reader, term) for term in terms])
        case Name(letter, ()) if f"cos {letter}" in reader.arrays:
            return reader.array(f"cos {letter}"), reader.array(f"sin {letter}")
    raise Unread(f"the position {text(p)}")


def _make_position_wave(which: int) -> Family:
    """cos(ω_f p) or sin(ω_f p)."""

    def read(reader: Reader, arguments: tuple[Node, ...]) -> Value:
        match arguments:
            case (nt.Product((omega, p)),) if omega == OMEGA:
                return Value(turn(reader, p)[which], ("f",))
        raise Unread("an angle of no position")

    return read


def rotation_matrix(reader: Reader, parts: tuple[Node, ...]) -> Array:
    """Return R_p, by applying the implementation to each unit vector."""
    cosine, sine = turn(reader, *parts)
    return rotate_interleaved(unit_vectors(reader), cosine[None, :], sine[None, :]).mT


def unit_vectors(reader: Reader) -> Any:
    """Return the unit vectors of queries as rows; the entries 2f and 2f + 1 form a plane."""
    planes, two = identity(reader, reader.length("f")), identity(reader, 2)
    width = planes.shape[0] * 2
    blocks = planes[:, None, :, None] * two[None, :, None, :]
    return reader.xp.reshape(blocks, (width, width))

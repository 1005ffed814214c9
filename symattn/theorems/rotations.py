"""How printed positions are read: cos(ω_f p), sin(ω_f p) and R_p by tables of cosines and sines, those of sums by the
angle addition formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.positions.angles import add_angles, rotate_interleaved
from symattn.document import notation as nt
from symattn.document.notation import Name, Node, name
from symattn.document.text import text
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Unread, Value
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import identity

Family = Callable[[Reader, tuple[Node, ...]], Any]
OMEGA = name("ω", "f")


def positions(given: Mapping[str, str], letters: str, families: Mapping[str, Family], **more: Any) -> Glossary:
    """Return the letters of a statement about positions: those of ``letters``, each with its angle in each plane f."""
    pairs = tuple((f"cos {p}", f"sin {p}") for p in letters)
    tables = {table: "f" for pair in pairs for table in pair}
    waves = {"cos": _wave(0), "sin": _wave(1)}
    index = {"f": "f", **more.pop("index", {})}
    return Glossary({**given, **tables}, index=index, units=pairs, families={**waves, **families}, **more)


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


def _wave(which: int) -> Family:
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
    return reader.xp.reshape(planes[:, None, :, None] * two[None, :, None, :], (width, width))

"""``rope``: rotary embeddings make scores depend on distances alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.attention.positions.angles import add_angles, rotate_interleaved
from symattn.attention.scores import dot_scores
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.exactly import entries, exact
from symattn.document import notation as nt
from symattn.document.model import Document
from symattn.document.notation import Node
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import identity, positions, turn
from symattn.theorems.positions import ROTARY

# cosine and sine of the angle of one position in the example
ANGLE = (Fraction(3, 5), Fraction(4, 5))
# Query and key that are not parallel, so that turning them changes their score.
POSITIONS, QUERY, KEY = 3, (1, 0), (2, 1)


def derivation() -> Document:
    """Derive ⟨R_m q, R_n k⟩ = ⟨q, R_{n−m} k⟩."""
    defined = {  # the entries 2f and 2f + 1 of a vector
        "a": lambda reader: Value(reader.array("y")[:, 0], ("f",)),
        "b": lambda reader: Value(reader.array("y")[:, 1], ("f",)),
    }
    letters = {
        "plane": positions({"y": "f 2"}, "m", {"R": _in_a_plane}, defined=defined),
        "whole": ROTARY,
        "turned": Glossary(families={"R": _read_example_rotations}),
    }
    return DerivationText(
        letters,
        cosine=nt.Number(ANGLE[0]),
        sine=nt.Number(ANGLE[1]),
        q=nt.matrix([QUERY]),
        k=nt.matrix([KEY]),
        places=nt.matrix([range(POSITIONS)]),
        scores=nt.matrix([[entries(x) for x in row] for row in turned_scores()]),
    ).document("rope")


def _in_a_plane(reader: Reader, parts: tuple[Node, ...]) -> Value:
    """Return R_p in the plane f, a 2 × 2 matrix, by applying the implementation to (1, 0) and (0, 1)."""
    (cosine, sine), unit = turn(reader, *parts), identity(reader, reader.length("2"))
    cosines = cosine[:, None, None]
    return Value(rotate_interleaved(unit, cosines, sine[:, None, None]).mT, ("f",), 2)


def _read_example_rotations(reader: Reader, parts: tuple[Node, ...]) -> Value:
    """Return R_p of the example for each of its positions."""
    rotated = [rotate_interleaved(identity(reader, 2), *angle).mT for angle in turns()]
    return Value(reader.xp.stack(rotated), (reader.index(parts[0]),), 2)


def turns() -> list[tuple[Any, Any]]:
    """Return cosine and sine of the angle of each position of the example."""
    zero = exact([[0]])
    one = (zero + ANGLE[0], zero + ANGLE[1])
    angles = [(exact([[1]]), exact([[0]]))]
    for _ in range(POSITIONS - 1):
        angles.append(add_angles(*angles[-1], *one))
    return angles


def turned_scores() -> list[list[Any]]:
    """Return ⟨R_m q, R_n k⟩ of the example, by m and n. Raises FalseStep unless they are equal along diagonals."""
    angles = turns()
    result = [
        [
            dot_scores(
                rotate_interleaved(exact([QUERY]), *a), rotate_interleaved(exact([KEY]), *b)
            )[0, 0]
            for b in angles
        ]
        for a in angles
    ]
    inner = range(1, POSITIONS)
    if not all(result[i][j] == result[i - 1][j - 1] for i in inner for j in inner):
        raise FalseStep("the scores of the example are not equal along diagonals")
    return result

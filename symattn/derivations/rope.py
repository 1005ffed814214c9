"""``rope``: rotary embeddings make scores depend on distances alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.attention.positions.angles import add_angles, rotate_interleaved
from symattn.attention.scores import dot_scores
from symattn.derivations.exactly import entries, exact
from symattn.derivations.letters import k, q
from symattn.derivations.proving import hypotheses, known
from symattn.derivations.steps import FalseStep, together
from symattn.document import notation as nt
from symattn.document.model import Assumptions, Block, Caveat, Code, Document, Heading, Paragraph
from symattn.document.notation import Fence, Name, Node, Product, Transposed, call, equals, name
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section
from symattn.proof.relations.values import Value
from symattn.theorems import positions_rotary as theorems
from symattn.theorems.rotations import OMEGA, identity, positions, turn

_M, _N, _T = Name("m"), Name("n"), Name("t")
_A, _B, _X = Name("a"), Name("b"), Name("x")
ANGLE = (Fraction(3, 5), Fraction(4, 5))  # cosine and sine of the angle of one position in the example
POSITIONS, QUERY, KEY = 3, (1, 0), (2, 1)


def derivation() -> Document:
    """⟨R_m q, R_n k⟩ = ⟨q, R_{n−m} k⟩."""
    return Document(
        "derivation",
        "rope",
        ("Rotary positions",),
        _blocks(),
        hints=("symattn derive mla               what they stand in the way of", "symattn prove positions"),
    )


def _in_a_plane(reader: Reader, parts: tuple[Node, ...]) -> Value:
    """R_p in the plane f, a matrix of two rows, by what the implementation makes of (1, 0) and (0, 1)."""
    (cosine, sine), unit = turn(reader, *parts), identity(reader, reader.length("2"))
    return Value(rotate_interleaved(unit, cosine[:, None, None], sine[:, None, None]).mT, ("f",), 2)


def _entry_of_plane(place: int) -> Any:
    """The number 2f or 2f + 1 of a vector."""
    return lambda reader: Value(reader.array("y")[:, place], ("f",))


def _rotated(p: Node) -> Node:
    return name("R", p)


def _dot(x: Node, y: Node) -> Node:
    return Product((x, y), "·")


def _blocks() -> tuple[Block, ...]:
    relative, layouts, bias = map(known, (theorems.rope_relative, theorems.rope_layouts, theorems.rope_key_bias))
    whole = Section(theorems.LETTERS)
    score = _dot(_rotated(_M) * q(), _rotated(_N) * k())
    moved = _dot(q(), _rotated(_N - _M) * k())
    later = _dot(_rotated(_M + _T) * q(), _rotated(_N + _T) * k())
    return (
        _assumptions(),
        *_rotations(whole),
        Heading(("The score",)),
        together(
            whole.claim(equals(score, _dot(q(), Transposed(_rotated(_M)) * _rotated(_N) * k())),
                        "a rotation moved to the other side"),
            whole.claim(equals(score, moved), "angles add up"),
        ),
        whole.result("Result", equals(score, moved, later)),
        relative.wrong(),
        Heading(("Two orders of coordinates",)),
        *layouts.result(),
        layouts.wrong(),
        Heading(("A bias of the keys is felt",)),
        Paragraph(
            (
                "Without positions, one vector added to all keys changes nothing (",
                Code("symattn derive shift"), "). With them it does:",
            )
        ),
        *bias.result(),
        bias.wrong(),
        *_example(),
        Caveat(
            (
                "Scores depend on distances, but need not fall with them. Angles are taken as exact: in floating point",
                " those of large positions lose digits.",
            )
        ),
    )  # fmt: skip


def _assumptions() -> Assumptions:
    planes = (
        "the numbers ", 2 * Name("f"), " and ", 2 * Name("f") + 1, " of a query or key, counted from 0, span a plane; ",
        _rotated(_M), " turns it by ", OMEGA * _M,
    )  # fmt: skip
    sums = call("cos", _A) * call("cos", _B) - call("sin", _A) * call("sin", _B)
    return hypotheses((), planes, (equals(call("cos", _A + _B), sums), ", and likewise for the sine"))


def _rotations(whole: Section) -> tuple[Block, ...]:
    """What R_m is, and how rotations compose."""
    plane = Section(
        positions({"y": "f 2"}, "m", {"R": _in_a_plane}, defined={"a": _entry_of_plane(0), "b": _entry_of_plane(1)})
    )
    cosine, sine = call("cos", OMEGA * _M), call("sin", OMEGA * _M)
    there = nt.matrix([[_A * cosine - _B * sine], [_A * sine + _B * cosine]])
    group, vector = known(theorems.rope_group), nt.matrix([[_A], [_B]])
    return (
        Heading(("Rotations",)),
        together(
            plane.claim(equals(_rotated(_M), nt.matrix([[cosine, -sine], [sine, cosine]])),
                        ("in the plane ", Name("f"), ", as it is implemented")),
            plane.claim(equals(_rotated(_M) * vector, there), ("the numbers ", _A, " and ", _B, " of a vector there")),
            whole.claim(equals(_rotated(_M) * _rotated(_N), _rotated(_M + _N)), "in all planes: angles add up"),
            whole.claim(equals(Transposed(_rotated(_M)), _rotated(-_M)), "back by the same angle"),
            whole.claim(equals(Fence("norm", _rotated(_M) * _X), Fence("norm", _X)), "lengths stay"),
        ),
        group.wrong(),
    )  # fmt: skip


def turns() -> list[tuple[Any, Any]]:
    """Cosine and sine of the angle of each position of the example."""
    one = (exact([[0]]) + ANGLE[0], exact([[0]]) + ANGLE[1])
    angles = [(exact([[1]]), exact([[0]]))]
    for _ in range(POSITIONS - 1):
        angles.append(add_angles(*angles[-1], *one))
    return angles


def turned_scores() -> list[list[Any]]:
    """⟨R_m q, R_n k⟩ of the example, by m and n. Raises FalseStep if they are not equal along diagonals."""
    angles = turns()
    found = [
        [dot_scores(rotate_interleaved(exact([QUERY]), *a), rotate_interleaved(exact([KEY]), *b))[0, 0] for b in angles]
        for a in angles
    ]
    inner = range(1, POSITIONS)
    if not all(found[i][j] == found[i - 1][j - 1] for i in inner for j in inner):
        raise FalseStep("the scores of the example are not equal along diagonals")
    return found


def _example() -> tuple[Block, ...]:
    """One query and one key in all places, with an angle whose cosine is rational."""
    angles = turns()

    def rotation(reader: Reader, parts: tuple[Node, ...]) -> Value:
        rotated = [rotate_interleaved(identity(reader, 2), *angle).mT for angle in angles]
        return Value(reader.xp.stack(rotated), (reader.index(parts[0]),), 2)

    section = Section(
        Glossary({"q": "2", "k": "2", "P": "p"}, index={"m": "p", "n": "p"}, families={"R": rotation}, example=True)
    )
    table = name("S", "m", "n", role="score")
    score = equals(table, _dot(_rotated(_M) * q(), _rotated(_N) * k()))
    given = section.let(
        (
            "One plane, with the cosine ", nt.Number(ANGLE[0]), " and the sine ", nt.Number(ANGLE[1]),
            " for one position, ", equals(q(), nt.matrix([QUERY])), " and ", equals(k(), nt.matrix([KEY])),
            ", at the positions ", equals("P", nt.matrix([range(POSITIONS)])), "; let ", score, ":",
        )
    )  # fmt: skip
    found = turned_scores()
    matrix = nt.matrix([[entries(x) for x in row] for row in found])
    said = (_M, " by row, ", _N, " by column: equal along diagonals")
    return (
        Heading(("In numbers",)),
        Paragraph(given),
        together(section.claim(equals(name("S", role="score"), matrix), said)),
    )

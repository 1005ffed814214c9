"""``rope``: rotary embeddings make scores depend on distances alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.attention.positions.angles import add_angles, rotate_interleaved
from symattn.attention.scores import dot_scores
from symattn.derivations.exactly import THIS, entries, exact
from symattn.derivations.letters import k, q
from symattn.derivations.proving import hypotheses, known, shown
from symattn.derivations.steps import defined, hold, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Code, Document, Heading, Paragraph
from symattn.document.notation import Name, Node, Product, Transposed, call, equals, name
from symattn.proof.theorem import Method
from symattn.proof.together import identity
from symattn.theorems import positions_rotary as theorems

_M, _N, _T, _OMEGA = Name("m"), Name("n"), Name("t"), name("ω", "f")
_PLANE = {"a": "1 f", "b": "1 f", "cos_m": "1 f", "sin_m": "1 f"}
_TURNS = {"q": "1 f*2", "k": "1 f*2", "cos_m": "1 f", "sin_m": "1 f", "cos_n": "1 f", "sin_n": "1 f"}
_CIRCLES = (("cos_m", "sin_m"), ("cos_n", "sin_n"))
_ANGLE = (Fraction(3, 5), Fraction(4, 5))  # cosine and sine of the angle of one position in the example
_POSITIONS = 3


def derivation() -> Document:
    """⟨R_m q, R_n k⟩ = ⟨q, R_{n−m} k⟩."""
    return Document(
        "derivation",
        "rope",
        ("Rotary positions",),
        _blocks(),
        command="symattn derive rope",
        hints=("symattn derive mla               what they stand in the way of", "symattn prove positions"),
    )


def plane() -> Method:
    """In each plane (a, b) ↦ (a cos − b sin, a sin + b cos)."""

    def side_by_side(a: Any, b: Any) -> Any:
        pairs = a.__array_namespace__().stack([a, b], axis=-1)
        return a.__array_namespace__().reshape(pairs, (a.shape[0], a.shape[-1] * 2))

    def sides(a: Any, b: Any, cos_m: Any, sin_m: Any) -> Any:
        turned = side_by_side(a * cos_m - b * sin_m, a * sin_m + b * cos_m)
        return rotate_interleaved(side_by_side(a, b), cos_m, sin_m), turned

    return identity(_PLANE, sides)


def transposed() -> Method:
    """⟨R_m q, R_n k⟩ = ⟨q, R_mᵀ R_n k⟩ with R_mᵀ = R_{−m}."""

    def sides(q: Any, k: Any, cos_m: Any, sin_m: Any, cos_n: Any, sin_n: Any) -> Any:
        turned = rotate_interleaved(k, cos_n, sin_n)
        left = dot_scores(rotate_interleaved(q, cos_m, sin_m), turned)
        return left, dot_scores(q, rotate_interleaved(turned, cos_m, -sin_m))

    return identity(_TURNS, sides, units=_CIRCLES)


def _turned(p: Node) -> Node:
    return name("R", p)


def _blocks() -> tuple[Block, ...]:
    group, relative = known(theorems.rope_group), known(theorems.rope_relative)
    layouts, bias = known(theorems.rope_layouts), known(theorems.rope_key_bias)
    cosine, sine = call("cos", _OMEGA * _M), call("sin", _OMEGA * _M)
    score = Product((_turned(_M) * q(), _turned(_N) * k()), "·")
    a, b = Name("a"), Name("b")
    cosine_of_sum = call("cos", a) * call("cos", b) - call("sin", a) * call("sin", b)
    turned = nt.matrix([[a * cosine - b * sine], [a * sine + b * cosine]])
    planes = (
        "the numbers ",
        2 * Name("f"),
        " and ",
        2 * Name("f") + 1,
        " of a query or key span a plane; ",
        _turned(_M),
        " turns it by ",
        _OMEGA * _M,
    )
    return (
        hypotheses(
            (),
            planes,
            (equals(call("cos", a + b), cosine_of_sum), ", and likewise for the sine"),
        ),
        Heading(("Rotations",)),
        together(
            defined(equals(_turned(_M), nt.matrix([[cosine, -sine], [sine, cosine]])), ("in the plane ", Name("f"))),
            shown(equals(_turned(_M) * nt.matrix([[a], [b]]), turned), "as it is implemented", plane()),
            group.step(None, "angles add up, and lengths stay"),
        ),
        group.wrong(),
        Heading(("The score",)),
        together(
            shown(
                equals(score, Product((q(), Transposed(_turned(_M)) * _turned(_N) * k()), "·")),
                "a rotation moved to the other side",
                transposed(),
            ),
            relative.step(equals(score, Product((q(), _turned(_N - _M) * k()), "·")), "angles add up"),
        ),
        relative.result("Result 1"),
        relative.wrong(),
        Heading(("Two orders of coordinates",)),
        layouts.result("Result 2"),
        layouts.wrong(),
        Heading(("A bias of the keys is felt",)),
        Paragraph(
            (
                "Without positions, one vector added to all keys changes nothing (",
                Code("symattn derive shift"), "). With them it does:",
            )
        ),
        bias.result("Result 3"),
        bias.wrong(),
        *_example(),
        Caveat(
            (
                "Scores depend on distances, but need not fall with them. Angles are taken as exact: in floating point",
                " those of large positions lose digits.",
            )
        ),
    )  # fmt: skip


def _example() -> tuple[Block, ...]:
    """One query and one key in all places, with an angle whose cosine is rational."""
    one = (exact([[0]]) + _ANGLE[0], exact([[0]]) + _ANGLE[1])
    angles = [(exact([[1]]), exact([[0]]))]
    for _ in range(_POSITIONS - 1):
        angles.append(add_angles(*angles[-1], *one))
    query, key = exact([[1, 0]]), exact([[2, 1]])
    table = [
        [dot_scores(rotate_interleaved(query, *a), rotate_interleaved(key, *b))[0, 0] for b in angles] for a in angles
    ]
    toeplitz = all(
        bool(table[i][j] == table[i + 1][j + 1]) for i in range(_POSITIONS - 1) for j in range(_POSITIONS - 1)
    )
    matrix = nt.matrix([[entries(x) for x in row] for row in table])
    symbol = nt.Fence("round", Product((_turned(_M) * q(), _turned(_N) * k()), "·"))
    angle = ("One plane, with the cosine ", nt.Number(_ANGLE[0]), " and the sine ", nt.Number(_ANGLE[1]))
    pair = (" for one position, ", equals(q(), entries(query)), " and ", equals(k(), entries(key)))
    words = (*angle, *pair, ", at the positions 0, 1 and 2:")
    return (
        Heading(("In numbers",)),
        Paragraph(words),
        together(
            hold(toeplitz, equals(symbol, matrix), (_M, " by row, ", _N, " by column: equal along diagonals"), THIS)
        ),
    )

"""Each step of attention: what its loops say, no to its mistake, and every kind of array gives the same."""

from operator import itemgetter

import pytest

from symattn.arrays import kind
from symattn.attention.scores import cosine_scores, dot_scores
from symattn.document.errors import Refused
from tests.attention.pieces import CHECKS, Piece, agrees, lift_of
from tests.attention.test_positions_rotary import LEARNED, ROTATIONS
from tests.attention.test_weights import NORMALISERS
from tests.lanes import groups

FAMILIES: dict[str, dict[str, Piece]] = {
    "weights": NORMALISERS,
    "rotations": ROTATIONS,
    "learned positions": {"learned": LEARNED},
}
PIECES = {f"{family}: {name}": piece for family, pieces in FAMILIES.items() for name, piece in pieces.items()}


@pytest.mark.parametrize("names", groups(PIECES), ids=itemgetter(0))
def test_a_piece_is_what_its_loops_say_and_its_mistake_is_not(names: list[str]) -> None:
    for name in names:
        assert agrees(PIECES[name].run, PIECES[name]), name
        assert not agrees(PIECES[name].wrong, PIECES[name]), name


@pytest.mark.parametrize("of", CHECKS)
@pytest.mark.parametrize("names", groups(PIECES, 2), ids=["half", "other half"])
def test_pieces_on_every_kind(names: list[str], of: str) -> None:
    for name in names:
        if of not in PIECES[name].skipped:
            CHECKS[of](PIECES[name])


def test_cosines_do_not_see_lengths() -> None:
    exact = kind("exact")
    q, k = exact.lift([[1, 2], [0, -1]]), exact.lift([[3, 1], [1, 1]])
    long = q * exact.lift([[2], [5]])
    assert (cosine_scores(long, k) == cosine_scores(q, k)).all()
    assert not (dot_scores(long, k) == dot_scores(q, k)).all()
    assert (cosine_scores(q, q)[0, 0] == 1).all()


def test_cosines_run_on_residues_and_repeat() -> None:
    q, k = (lift_of("modular")([[1, 2], [3, -1]]) for _ in range(2))
    assert cosine_scores(q, q).tolist() == cosine_scores(q, q).tolist()
    with pytest.raises(Refused, match="mixed kinds"):
        cosine_scores(q, k)  # each kind of residues has a generator of its own


def test_a_zero_vector_has_no_cosine() -> None:
    s = cosine_scores(kind("exact").lift([[0, 0]]), kind("exact").lift([[1, 2]]))
    assert "0/0" in str(s.entries[0, 0])

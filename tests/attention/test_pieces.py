"""Each step of attention: what its loops say, no to its mistake, and every kind of array gives the same."""

from operator import itemgetter

import pytest

from tests.attention.pieces import CHECKS, Piece, agrees
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

"""Which sequences stand beside those that are judged, where a kernel takes several in one call."""

from __future__ import annotations

from typing import NamedTuple


class Neighbours(NamedTuple):
    """The sides of the judged sequences on which another one stands."""

    before: bool
    after: bool

    @property
    def number(self) -> int:
        """The number of other sequences."""
        return self.before + self.after

    def kept(self, count: int) -> slice:
        """Return which of ``count`` sequences are in the call, of which the first and the last are neighbours."""
        return slice(0 if self.before else 1, count if self.after else count - 1)


#: Outputs of neighbours are not judged, so that the first and the last sequence of a call are judged ones in turn.
_ARRANGEMENTS = (Neighbours(True, True), Neighbours(True, False), Neighbours(False, True))


def choose_neighbours(*lengths: int) -> Neighbours:
    """Return the neighbours in a call of sequences of these lengths, which are the same whenever it is repeated.

    They do not depend on the number of sequences, so that this can be chosen to have a given sum with them.
    """
    return _ARRANGEMENTS[sum(lengths) % len(_ARRANGEMENTS)]

"""Which sequences stand beside those that are judged, where a kernel takes several in one call."""

from __future__ import annotations

from typing import NamedTuple


class Neighbours(NamedTuple):
    """Whether another sequence comes before the judged ones, and after them."""

    before: bool
    after: bool

    def kept(self, count: int) -> slice:
        """Return which of ``count`` sequences are in the call, of which the first and the last are neighbours."""
        return slice(0 if self.before else 1, count if self.after else count - 1)


#: Outputs of neighbours are not judged, so that the first and the last sequence of a call are judged ones in turn.
_ARRANGEMENTS = (Neighbours(True, True), Neighbours(True, False), Neighbours(False, True))


def choose_neighbours(*sizes: int) -> Neighbours:
    """Return the neighbours in a call of these sizes, which are the same whenever it is repeated."""
    return _ARRANGEMENTS[sum(sizes) % len(_ARRANGEMENTS)]

"""How much is tried. What is counted decides; seconds are an upper limit, and where that struck it is told.

A call counts 1, and 1 more for every 512 elements of its inputs: the same on a fast machine and on a loaded one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any

from numpy.typing import NDArray

_FINDING, _EXAMPLE = 5000, 8  # for finding, and for each input at random that is asked for
_ELEMENTS = 512  # of the inputs of a call, that count as much as a call


@dataclass
class Effort:
    """What is left to spend. ``over``: no more is to be tried; ``struck``: it is the clock that ended it.

    >>> effort = Effort(3)
    >>> effort.spend(600)
    >>> effort.over
    False
    >>> effort.spend()
    >>> effort.over, effort.struck
    (True, False)
    """

    units: float
    seconds: float = inf
    struck: bool = False
    _end: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._end = monotonic() + self.seconds

    def spend(self, elements: int = 0, calls: float = 1) -> None:
        """Count calls whose inputs have so many elements together."""
        self.units -= calls + elements // _ELEMENTS

    def affords(self, inputs: Mapping[str, NDArray[Any]]) -> bool:
        """Whether one more call is to be made, with these inputs; it is counted."""
        if self.over:
            return False
        self.spend(sum(a.size for a in inputs.values()))
        return True

    @property
    def left(self) -> float:
        """Seconds until the upper limit."""
        return self._end - monotonic()

    @property
    def over(self) -> bool:
        """Whether nothing more is to be tried."""
        self.struck = self.struck or self.left < 0
        return self.struck or self.units <= 0


def for_finding(examples: int, seconds: float) -> Effort:
    """What one verification may spend on finding faults: several times what most functions need."""
    return Effort(_FINDING + _EXAMPLE * examples, seconds)


def spent(finding: Effort, explaining: Effort | None, seconds: float, untried: Sequence[str] = ()) -> Iterator[str]:
    """What ended the work before its end, in words."""
    left = f"; not tried: {', '.join(untried)}" if untried else ""
    if finding.struck:
        yield f"The time of {seconds:g} s was spent before every case had been tried{left}; --budget gives more."
    elif finding.units <= 0:
        yield f"One verification makes no more calls than these; not every case was tried{left}."
    if explaining is not None and explaining.struck:
        yield (
            f"The time of {seconds:g} s was spent before every cause and every smaller input had been tried; "
            "--budget gives more."
        )

"""How much is tried. A count decides; processor time is an upper limit, and reaching it is reported.

A run counts 1, and 1 more for every 512 elements of its inputs: the same on a fast machine and on a loaded one. Calling
and judging a function takes longer in itself: there it is 1 more for every 8192 elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic, process_time

_FINDING, _EXAMPLE = 5000, 8  # units for finding, and for each requested random input
_ELEMENTS = 512  # elements of the inputs of a run that count as much as a run
LIGHTER = 16  # factor by which elements count less if a function is called and judged
_IDLE = 0.02  # share of wall-clock time: a process with less is idle; on two cores, one of fifty busy ones gets more


def exhausted(limit: float, wall: float, worked: float) -> bool:
    """Return whether a process that ``worked`` for so many of ``wall`` seconds has spent ``limit`` seconds.

    Processor time counts, so that a busy machine ends nothing; an idle process is ended by wall-clock time.
    """
    return wall > limit and (worked > limit or worked < _IDLE * wall)


@dataclass
class Effort:
    """The effort that is left. ``over``: no more is to be tried; ``struck``: the limit of ``seconds`` has ended it.

    ``elsewhere`` returns the processor time of other processes that work on the same verification; ``kept`` units are
    reserved for later work.

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
    elsewhere: Callable[[], float] = field(default=lambda: 0.0, repr=False)
    struck: bool = False
    kept: float = 0.0
    _began: tuple[float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._began = self._now

    def spend(self, elements: int = 0, calls: float = 1) -> None:
        """Count ``calls`` whose inputs have so many ``elements`` in total."""
        self.units -= calls + elements // _ELEMENTS

    @property
    def left(self) -> float:
        """The seconds of processor time until the upper limit."""
        return self.seconds - (self._now[1] - self._began[1])

    @property
    def over(self) -> bool:
        """Return whether nothing more is to be tried."""
        if not self.struck and monotonic() - self._began[0] > self.seconds:  # else the slow clocks need not be read
            wall, worked = (now - before for now, before in zip(self._now, self._began, strict=True))
            self.struck = exhausted(self.seconds, wall, worked)
        return self.struck or self.units <= self.kept

    @property
    def _now(self) -> tuple[float, float]:
        """The wall-clock time, and the processor time."""
        return monotonic(), process_time() + self.elsewhere()


def for_random(examples: int) -> float:
    """Return the units that are reserved for random inputs."""
    return _EXAMPLE * examples


def for_finding(examples: int) -> float:
    """Return the units that one verification may spend on finding faults: several times what most functions need."""
    return _FINDING + for_random(examples)


def spent(finding: Effort, explaining: Effort | None, seconds: float, untried: Sequence[str] = ()) -> Iterator[str]:
    """Yield the limits that cut the work short."""
    left = f" of: {', '.join(untried)}" if untried else ""
    if finding.struck:
        yield f"Stopped at the effort limit of {seconds:g} s: some cases were not tried{left} (raise --budget)."
    elif finding.units <= 0 or untried:
        yield f"Stopped at the limit of calls for one verification: some cases were not tried{left}."
    if explaining is not None and explaining.struck:
        yield (
            f"Stopped at the effort limit of {seconds:g} s: some causes and smaller inputs were not tried "
            "(raise --budget)."
        )

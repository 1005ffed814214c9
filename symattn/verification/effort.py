"""How much is tried. A count decides; processor time is an upper limit, and reaching it is reported.

A run counts 1, and 1 more for every 512 elements of its inputs: the same on a fast machine and on a loaded one. Calling
and judging a function takes longer in itself: there it is 1 more for every 8192 elements.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic, process_time

# Units rather than seconds, so that a slow machine tries as much as a fast one.
_FINDING, _EXAMPLE = 5000, 8  # units for finding, and for each requested random input
# units for explaining a fault by a budget of so many seconds, in proportion more by a larger one,
_EXPLAINING, _USUAL_SECONDS = 42_000, 120.0
_OF_SECOND = 2000  # and no more for each second, which a smaller budget then allows
_SHARE_OF_EDITS = 1 / 2  # of them, at most; known mistakes get what edits leave
_WITHOUT_EDITS = 4  # times as many for known mistakes, where the source is not edited
_ELEMENTS = 512  # elements of the inputs of a run that count as much as a run
MAX_LATE_OF_SIZE = 2  # calls that time out, after which none with as many entries is made
LIGHTER = 16  # factor by which elements count less if a function is called and judged
_IDLE = 0.02  # share of wall-clock time: a process that runs, or waits for a processor, for less is idle


def exhausted(
    limit: float, wall: float, worked: float, ready: float = 0.0, idle: float | None = None
) -> bool:
    """Return whether a process that ``worked`` for so many of ``wall`` seconds has spent ``limit`` seconds.

    Processor time counts, so that a busy machine ends nothing: there a process is ``ready`` to run for the rest of the
    time. A process that was neither for a share ``idle`` of the time is ended by wall-clock time.
    """
    share = _IDLE if idle is None else idle
    return wall > limit and (worked > limit or worked + ready < share * wall)


def ready_time(process: int | str = "self") -> float:
    """Return the seconds for which threads of a process were ready and waited for a processor; 0 where none counts."""
    nanoseconds = 0
    threads, folder = list[str](), f"/proc/{process}/task"
    with contextlib.suppress(OSError):
        threads = os.listdir(folder)
    for thread in threads:
        # The thread has ended.
        with (
            contextlib.suppress(OSError, IndexError),
            open(f"{folder}/{thread}/schedstat", "rb") as file,
        ):
            nanoseconds += int(file.read().split()[1])
    return nanoseconds / 1e9


@dataclass
class Effort:
    """The effort that is left. ``over``: no more is to be tried; ``struck``: a limit of ``seconds`` has ended it once.

    ``elsewhere`` returns the processor time of other processes that work on the same verification, and how long they
    were ready to run; ``kept`` units are reserved for later work. What is spent is spent of the effort ``within`` which
    this one is granted, too.

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
    elsewhere: Callable[[], tuple[float, float]] = field(default=lambda: (0.0, 0.0), repr=False)
    struck: bool = False
    kept: float = 0.0
    within: Effort | None = field(default=None, repr=False)
    _began: tuple[float, float, float] = field(init=False, repr=False)
    _ended: bool = field(default=False, init=False, repr=False)  # by the limit that holds now

    def __post_init__(self) -> None:
        self._began = self._read_effort_clocks

    def spend(self, elements: int = 0, calls: float = 1) -> None:
        """Count ``calls`` whose inputs have so many ``elements`` in total."""
        self.units -= calls + elements // _ELEMENTS
        if self.within is not None:
            self.within.spend(elements, calls)

    def prolong(self, seconds: float) -> None:
        """Raise the limit to so many ``seconds`` from the beginning on; ``struck`` stays true for the report."""
        self.seconds, self._ended = seconds, False

    @property
    def left(self) -> float:
        """The seconds of processor time until the upper limit."""
        return self.seconds - (self._read_effort_clocks[1] - self._began[1])

    @property
    def over(self) -> bool:
        """Return whether nothing more is to be tried."""
        if (
            not self._ended and monotonic() - self._began[0] > self.seconds
        ):  # else the slow clocks need not be read
            spent = (
                now - before
                for now, before in zip(self._read_effort_clocks, self._began, strict=True)
            )
            self._ended = exhausted(self.seconds, *spent)
            self.struck = self.struck or self._ended
        return (
            self._ended or self.units <= self.kept or (self.within is not None and self.within.over)
        )

    @property
    def _read_effort_clocks(self) -> tuple[float, float, float]:
        """The wall-clock time, the processor time, and how long the processes were ready to run."""
        worked, ready = self.elsewhere()
        return monotonic(), process_time() + worked, ready_time() + ready


def for_random(examples: int) -> float:
    """Return the units that are reserved for random inputs."""
    return _EXAMPLE * examples


def for_finding(examples: int) -> float:
    """Return the units that one verification may spend on finding faults: several times what most functions need."""
    return _FINDING + for_random(examples)


def for_explaining(seconds: float, with_edits: bool = True) -> float:
    """Return the units that all searches for an explanation may spend together, by the budget in seconds."""
    units = _EXPLAINING * max(seconds / _USUAL_SECONDS, 1.0)
    return min(units, _OF_SECOND * seconds) if with_edits else _WITHOUT_EDITS * units


def for_edits(seconds: float) -> float:
    """Return the units that edits may spend of those for explaining."""
    return _SHARE_OF_EDITS * for_explaining(seconds)


def spent(
    finding: Effort,
    explaining: Effort | None,
    searches: Effort,
    seconds: float,
    untried: Sequence[str] = (),
) -> Iterator[str]:
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
    elif explaining is not None and searches.units <= 0:
        yield "Stopped at the limit of runs for explaining: some causes were not tried (raise --budget)."

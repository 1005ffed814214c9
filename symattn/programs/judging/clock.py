"""How long a judgement takes: reported, and without effect on any status."""

from __future__ import annotations

from time import perf_counter, process_time

from symattn.programs.child import Process
from symattn.programs.fork_server import ForkServer
from symattn.programs.judging.judgement import Seconds


class Clock:
    """The time since it was made, with that of a candidate's and a reference's processes which it is told of."""

    def __init__(self) -> None:
        self._began = perf_counter(), process_time()
        self._processes: list[Process | ForkServer] = []
        self._of_reference: list[Process] = []

    def follow(self, process: Process | ForkServer) -> None:
        """Count the processor time of a process as well, also if the candidate's calls end without an answer."""
        self._processes.append(process)

    def follow_reference(self, process: Process) -> None:
        """Count the processor time of a process in which a reference runs."""
        self._of_reference.append(process)

    def seconds(self) -> Seconds:
        """Return the seconds until now."""
        wall = perf_counter() - self._began[0]
        worked = process_time() - self._began[1]
        own = sum(process.spent[0] for process in self._processes)
        of_reference = sum(process.spent[0] for process in self._of_reference)
        return Seconds(round(wall, 3), round(worked + own + of_reference, 3), round(own, 3))

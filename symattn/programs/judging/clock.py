"""How long a judgement takes: reported, and without effect on any status."""

from __future__ import annotations

from time import perf_counter, process_time
from typing import Any

from symattn.bounds.called_target import Runner
from symattn.programs.judging.judgement import Seconds


class Clock:
    """The time since it was made, with that of the runners which it is given."""

    def __init__(self) -> None:
        self._began = perf_counter(), process_time()
        self._runners: list[Any] = []

    def follow(self, runner: Runner) -> None:
        """Count the processor time of a runner's own process as well."""
        if runner not in self._runners:
            self._runners.append(runner)

    def seconds(self) -> Seconds:
        """Return the seconds until now."""
        wall, worked = perf_counter() - self._began[0], process_time() - self._began[1]
        own = sum(getattr(runner, "spent", (0.0, 0.0))[0] for runner in self._runners)
        return Seconds(round(wall, 3), round(worked + own, 3), round(own, 3))

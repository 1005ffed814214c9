"""Traces: files in which a run left q, k, v and the output, judged without running anything."""

from symattn.programs.names import is_trace
from symattn.programs.traces.judging import verify_trace
from symattn.programs.traces.reading import read

__all__ = ["is_trace", "read", "verify_trace"]

"""Traces: files in which a run left q, k, v and the output, judged without running anything."""

from symattn.sources.names import is_trace
from symattn.sources.traces.judging import verify_trace
from symattn.sources.traces.reading import read

__all__ = ["is_trace", "read", "verify_trace"]

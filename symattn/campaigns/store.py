"""Store results of jobs: a line of JSON each, on the disk before the next one begins.

A process that is killed while it writes leaves at most an incomplete line, which is no result: it is cut off when
the campaign continues, and its job runs again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from symattn.campaigns.plan import Job
from symattn.document.codec import Record, record
from symattn.document.errors import InputError

RESULTS, PLAN = "results.jsonl", "plan.json"
_LONGEST = 10_000_000  # bytes of a line


class Store:
    """A folder with ``plan.json``, the jobs, and ``results.jsonl``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, jobs: Sequence[Job]) -> None:
        """Make the folder, write the jobs, and cut off an incomplete line."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part = self.folder / f".{PLAN}.part"
            part.write_text(json.dumps(record(jobs), indent=1) + "\n", encoding="utf-8")
            part.replace(self.folder / PLAN)
            with (self.folder / RESULTS).open("ab+") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LONGEST))
                tail = file.read()
                if tail and not tail.endswith(b"\n"):
                    file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be used: {error.strerror}") from error

    def append(self, record: Record) -> None:
        """Add a result, which is on the disk when this returns."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        handle = os.open(self.folder / RESULTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def results(self) -> dict[str, Record]:
        """Return the last result of each job by its key. Raises ``InputError`` for a broken line."""
        path = self.folder / RESULTS
        if not path.exists():
            return {}
        results: dict[str, Record] = {}
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    result = json.loads(line)
                except ValueError:
                    result = None
                if not isinstance(result, dict) or not isinstance(result.get("key"), str):
                    raise InputError(f"{path}, line {number} is not a result; hint: remove the line, and run again")
                results[result["key"]] = result
        return results

    def plan(self) -> tuple[Record, ...]:
        """Return the stored jobs. Raises ``InputError`` if there are none."""
        path = self.folder / PLAN
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            jobs = tuple(dict(job) for job in result)
            if not all({"key", "target", "spec", "dtype", "domain"} <= job.keys() for job in jobs):
                raise ValueError("no jobs")
        except OSError as error:
            raise InputError(f"{self.folder} holds no campaign: {PLAN}: {error.strerror}") from error
        except (ValueError, TypeError) as error:
            raise InputError(f"{path} is not a plan of a campaign") from error
        return jobs

"""What deciding the catalogue takes, and how much of it the certificates: writing them, and the checker.

``python benchmarks/proving.py`` decides every theorem in one process, false variants and witnesses included, and times
in the same run what is spent on certificates, so that what else the machine does weighs on both. ``--most`` says how
many of the slowest theorems are told.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from symattn.proof import certificate, inequality, joint_statements, rules, same_bits, theorem
from symattn.theorems import TOPICS, of_topic

USERS = (theorem, inequality, joint_statements, rules, same_bits)


class Clock:
    """Processor time inside of ``accepted``."""

    def __init__(self) -> None:
        self.spent = 0.0

    def timed(self, *arguments: Any) -> Any:
        start = time.process_time()
        try:
            return certificate.accepted(*arguments)
        finally:
            self.spent += time.process_time() - start


def measured(clock: Clock) -> list[tuple[float, float, str]]:
    """For each theorem the time of all, that of its certificates, and its name."""
    found = []
    for one in (t for topic in TOPICS for t in of_topic(topic)):
        before, start = clock.spent, time.process_time()
        theorem.decide(one)
        found.append((time.process_time() - start, clock.spent - before, one.name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=5)
    most = parser.parse_args().most
    clock = Clock()
    accepted: Callable[..., Any] = clock.timed
    for user in USERS:
        user.accepted = accepted  # type: ignore[attr-defined]
    found = measured(clock)
    whole, certificates = sum(t for t, _, _ in found), clock.spent
    print(f"{len(found)} theorems: {whole:.1f} s, {certificates:.1f} s of them for certificates")
    print(f"ratio of with and without: {whole / (whole - certificates):.2f} of the total,", end=" ")
    print(f"{statistics.median(t / (t - c) for t, c, _ in found):.2f} in the median")
    print(
        f"median of a theorem: {1000 * statistics.median(t for t, _, _ in found):.0f} ms", end=", "
    )
    print(f"{1000 * statistics.median(t - c for t, c, _ in found):.0f} ms without")
    for seconds, part, name in sorted(found, reverse=True)[:most]:
        print(f"{name}: {seconds:.2f} s, {part:.2f} s of them for certificates")


if __name__ == "__main__":
    main()

"""Commands as whole processes, against the import of what they need at least.

Each command runs in turn with its rival, and the median of the ratios is printed. Command:
``python benchmarks/startup.py``
"""

from __future__ import annotations

import subprocess
import sys
import time

RUNS = 9
PYTHON = [sys.executable, "-c"]
SYMATTN = [sys.executable, "-m", "symattn_cli"]
PAIRS = (
    (["--help"], "import click"),
    (["derive", "--dk", "4"], "import sympy"),
    (["walk", "eight-step"], "import sympy"),
)


def seconds(command: list[str]) -> float:
    """The wall time of a command, whose output is thrown away."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    for arguments, rival in PAIRS:
        (
            seconds([*SYMATTN, *arguments]),
            seconds([*PYTHON, rival]),
        )  # once, so that both are compiled and cached
        pairs = [(seconds([*SYMATTN, *arguments]), seconds([*PYTHON, rival])) for _ in range(RUNS)]
        ratio = sorted(a / b for a, b in pairs)[RUNS // 2]
        a, b = (sorted(times)[RUNS // 2] for times in zip(*pairs, strict=True))
        print(
            f"symattn {' '.join(arguments):<15} {a:.3f} s, python -c {rival!r} {b:.3f} s: {ratio:.2f} times"
        )


if __name__ == "__main__":
    main()

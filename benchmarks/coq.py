"""What the grade ``coq`` takes: deciding theorems, writing them for Coq, and Coq itself, in seconds of processor time.

``python -m benchmarks.coq`` does it for the whole catalogue in two processes, ``python -m benchmarks.coq NAME...`` for
some theorems. The theory is compiled before, as that happens once.
"""

from __future__ import annotations

import argparse
import resource

from symattn.proof.coq import theory
from symattn.proof.coq.coq_judges import settled
from symattn.theorems import catalogue
from symattn.theorems.runner import run


def spent(who: int) -> float:
    """Seconds of processor time of this process, or of those that it has begun and that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    theory.compiled()
    every = catalogue()
    start = spent(resource.RUSAGE_SELF)
    found = run([every[n] for n in names or every], catalogue, explain=True, cached=False)
    decided = spent(resource.RUSAGE_SELF)
    before = spent(resource.RUSAGE_CHILDREN)
    asked, judgement = settled([(d.theorem.name, d.certificates) for d in found], jobs=2)
    print(f"{len(found)} theorems decided: {decided - start:.1f} s")
    print(f"{sum(map(len, asked))} lemmas written: {spent(resource.RUSAGE_SELF) - decided:.1f} s")
    print(
        f"{len(judgement.accepted)} of them accepted by Coq: {spent(resource.RUSAGE_CHILDREN) - before:.1f} s"
    )


if __name__ == "__main__":
    main()

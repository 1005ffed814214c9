"""Mutants by the rules of mistakes themselves, whose names are known: are they found, and named as what they are?

    python -m tests.verification.named_mutants 100

draws that many, or those from one number to another, verifies each, and prints what became of it and the sums. A mutant
is drawn from its number alone: a variant of attention, a mistake that the rules know of it, and a format. It is
computed in float64 on NumPy and rounded to the format at the end. ``otherwise`` is one that is found and named with
other words: two mistakes may be one function for the inputs that were tried.
"""

from __future__ import annotations

import re
import sys
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symattn import Attention, verify
from symattn.attention.variants import VARIANTS
from symattn.bounds.case_result import UNFIT
from symattn.bounds.domain import Domain
from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import RIGHT, Variant, canonical, changed, trace
from symattn.document.errors import CannotRun
from symattn.verification.report import Report
from symattn.verification.rules import known
from tests.verification.mutants import DTYPES, as_function

Array = Any
_DOMAIN = Domain(max_tokens=40, max_width=20)
_SHOWN = 16  # the largest tile, part or width of a mistake that inputs of such sizes show


@dataclass(frozen=True)
class Named:
    """A variant of attention with one mistake, in a format."""

    family: str
    mistake: Mistake
    precision: str

    @property
    def spec(self) -> Attention:
        """What it is to compute."""
        return replace(VARIANTS[self.family].spec, lse=False)

    def outcome(self, examples: int = 10) -> tuple[str, str]:
        """What became of it, in a word, and what was said."""
        names = VARIANTS[self.family].names
        domain = replace(_DOMAIN, square="doc" in names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                report = verify(
                    as_function(names, self._compute), self.spec, precision=self.precision, domain=domain,
                    examples=examples,
                )  # fmt: skip
            except CannotRun as refusal:
                return "cannot be run", str(refusal)
        return self._judged(report)

    def _compute(self, **given: Array) -> Array:
        try:
            return _output(self.spec, given, self.mistake.variant)
        except UNFIT:  # there is nothing to mistake, for instance one tile only
            return _output(self.spec, given, RIGHT)

    def _judged(self, report: Report) -> tuple[str, str]:
        if not report.faults:
            return "not found", report.verdict.value
        causes = [f.cause for f in report.faults]
        said = " / ".join(f.message for f in report.faults)
        if any(self.mistake.cause in (cause or "") for cause in causes):
            return "named", said
        return "otherwise" if any(causes) else "not named", said


def drawn(number: int) -> Named:
    """The mutant of this number."""
    rng = np.random.default_rng((11, number))
    family = list(VARIANTS)[int(rng.integers(len(VARIANTS)))]
    spec = replace(VARIANTS[family].spec, lse=False)
    every = known(spec, frozenset(VARIANTS[family].names))
    mistakes = [m for m in every if all(int(n) <= _SHOWN for n in re.findall(r"\d+", m.cause))]
    mistake = mistakes[int(rng.integers(len(mistakes)))]
    return Named(family, mistake, str(rng.choice(DTYPES, p=(0.6, 0.2, 0.1, 0.1))))


def _output(spec: Attention, given: dict[str, Array], variant: Variant) -> Array:
    other, inputs = changed(canonical(spec), given, variant)
    return np.asarray(trace(other, dict(inputs), variant)["output"])


def main(first: int, last: int) -> None:
    """Verify the mutants of these numbers, and say what became of each, and how many became what."""
    found: Counter[str] = Counter()
    for number in range(first, last):
        one, started = drawn(number), time.process_time()
        try:
            word, said = one.outcome()
        except Exception as error:
            word, said = "CRASH", "".join(traceback.format_exception(error)[-4:])
        found[word] += 1
        spent = f"{time.process_time() - started:.1f} s"
        print(
            f"{number}: {one.family}, {one.precision}: {one.mistake.cause} → {word} [{spent}] {said}"[:1500], flush=True
        )
    print(", ".join(f"{word} {n}" for word, n in found.most_common()))


if __name__ == "__main__":
    main(*(0, int(sys.argv[1])) if len(sys.argv) == 2 else map(int, sys.argv[1:3]))

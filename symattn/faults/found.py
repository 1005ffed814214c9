"""Which rule finds a fault: picked tolerances at an everyday input, and the probes and the bound of ``verify``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds.case_result import Case
from symattn.faults.corpus import DOMAIN, EVERYDAY, Array, CorpusFault, Sample, convention, sample
from symattn.programs.target import Target
from symattn.verification.attention import OfAttention
from symattn.verification.engine import SEED, Session

SEEDS = range(5)
_CASES, _EXAMPLES, _BUDGET = 600, 50, 120.0
#: torch.testing.assert_close for float32: rtol and atol. Source: its documentation.
_TORCH = (1.3e-6, 1e-5)
Rule = Callable[[Sample, Array], bool]


def torchs(drawn: Sample, got: Array) -> bool:
    """Return whether ``torch.testing.assert_close`` with its defaults for float32 accepts an output."""
    rtol, atol = _TORCH
    return bool(np.allclose(got, drawn.exact, rtol=rtol, atol=atol))


def twice(drawn: Sample, got: Array) -> bool:
    """Return whether its largest error is at most twice that of a plain program, as FlashAttention's tests have it."""
    return bool(np.abs(got - drawn.exact).max() <= 2 * np.abs(drawn.right - drawn.exact).max())


RULES: dict[str, Rule] = {"torch's defaults": torchs, "twice a baseline": twice}


@dataclass(frozen=True)
class Detection:
    """The rules that find a fault at an everyday input, at one of five seeds at least, and after how many inputs
    the probes of ``verify`` do (None: none of them does)."""

    fault: CorpusFault
    rules: dict[str, bool]
    after: int | None


def found(fault: CorpusFault) -> Detection:
    """Ask every rule."""
    samples = [sample(fault, seed, EVERYDAY) for seed in SEEDS]
    rules = {name: any(not rule(s, s.wrong) for s in samples) for name, rule in RULES.items()}
    return Detection(fault, rules, probed(fault))


def probed(fault: CorpusFault, right: bool = False) -> int | None:
    """After how many inputs of ``verify`` the mistake, or the ``right`` program, is beyond the bound; None: never."""

    def program(**inputs: Array) -> Array:
        return np.asarray(fault.spec(**inputs), dtype=inputs["q"].dtype) if right else fault.wrong(inputs)

    target, subject = Target(program, convention(fault.spec)), OfAttention(fault.spec)
    session = Session(target, subject, Precision.of("float32"), DOMAIN, SEED, examples=_EXAMPLES, budget=_BUDGET)
    for count, case in enumerate(islice(_cases(session), _CASES), 1):
        if session.admits(case) and session.run_case(case).finding is not None:
            return count
    return None


def _cases(session: Session) -> Iterator[Case]:
    """In the order in which ``verify`` tries them: probes, inputs at random, and what takes longer."""
    rng, subject = np.random.default_rng(session.seed), session.subject
    for group in chain(subject.first().values(), subject.later().values()):
        yield from group(session, rng)
    yield from subject.drawn(session, session.examples)

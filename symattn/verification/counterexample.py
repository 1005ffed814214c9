"""A case as a reader wants it: inputs, the exact value expected, what came instead, and where it went wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.ball import precision as bits
from symattn.attention.spec import Attention
from symattn.bounds import judge, reference
from symattn.bounds.case_result import CaseResult, middles
from symattn.verification.report import Counterexample

if TYPE_CHECKING:
    from symattn.verification.subject import Subject

_FEW = 64  # entries up to which an exact value is formed, and steps are shown
_STEPS = ("scores", "scaled", "capped", "positioned", "biased", "masked", "weights", "dropped", "output")


def counterexample(subject: Subject, judged: CaseResult) -> Counterexample:
    """Return the counterexample that a case shows."""
    plain = shown(subject, judged)
    if judged.outcome.error is not None:
        return replace(plain, error=str(judged.outcome.error))
    if judged.ratios is None:
        return replace(plain, error=shapes(subject, judged))
    of, at = judged.where
    part = judged.parts[of]
    assert part.got is not None
    exact = subject.exact(judged.case.inputs, of, at) if judged.case.size <= _FEW else None
    wanted, got, allowed = (
        float(middles(part.expected.entries[at])),
        float(part.got[at]),
        float(part.expected.allowed[at]),
    )
    return replace(plain, index=at or (0,), exact=exact, expected=wanted, got=got, allowed=allowed)


def shown(subject: Subject, judged: CaseResult) -> Counterexample:
    """The inputs alone."""
    inputs = {name: np.asarray(a).tolist() for name, a in judged.case.inputs.items()}
    return Counterexample(inputs, sizes=subject.told(judged))


def shapes(subject: Subject, judged: CaseResult) -> str:
    """Name the shapes that came, and those expected."""
    if len(subject.outputs) == 1:
        return f"shape {judged.outcome.shape}, expected {judged.parts[0].expected.allowed.shape}"
    got = [part.got.shape if part.got is not None else "no array" for part in judged.parts]
    wanted = [f"{n} {p.expected.allowed.shape}" for n, p in zip(subject.outputs, judged.parts, strict=True)]
    return f"{', '.join(map(str, got))}, expected {', '.join(wanted)}"


def steps(spec: Attention, judged: CaseResult, variant: reference.Variant) -> tuple[tuple[str, str, str], ...]:
    """The worst row of every step of attention: right, and with the mistake; none of cases that are large."""
    if judged.case.size > _FEW or judged.ratios is None:
        return ()
    with bits(128):
        wrong = reference.run(spec, judged.case.inputs, variant).values
    right = judge.traced(judged).in_balls.values
    if len(right["scores"].plain_shape) != 2:
        return ()
    names = [name for name in _STEPS if name in right and name in wrong]
    row = judged.where[1][0]
    return tuple((name, _row(right[name], row), _row(wrong[name], row)) for name in names)


def _row(balls: Any, row: int) -> str:
    return "  ".join(_number(x) for x in balls.entries[row])


def _number(x: object) -> str:
    return f"{float(x.mid()):.6g}" if hasattr(x, "mid") else str(x).partition(" (")[0].replace("-inf", "−∞")

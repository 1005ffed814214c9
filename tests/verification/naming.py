"""Wrong programs as rows: what each computes, and what ``verify`` says of it."""

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symattn import Attention, Verdict, reports, verify
from symattn.programs.verifying import Options, verified

Array = Any
Program = Callable[..., Array]


def scores(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)


def faults(program: Program, spec: Attention, **told: Any) -> tuple[reports.Fault, ...]:
    """Return the faults of a program, whose warnings are of no account."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return verify(program, spec, **{"examples": 15, **told}).faults


def convicts(program: Program, spec: Any = None, **told: Any) -> bool:
    """Return whether a call shows a fault for certain, at the first one, without a search for its cause."""
    return verified(program, spec, Options(verdict_alone=True, **told)).verdict is Verdict.FAULT


@dataclass(frozen=True)
class Named:
    """A wrong program, the one step that is blamed, the cause and words of the message; ``…`` stands for any words."""

    program: Program
    spec: Attention
    step: str
    cause: str | None
    message: str = "…"
    told: Mapping[str, Any] = field(default_factory=dict)

    def check(self, **told: Any) -> str:
        """Fail where ``verify`` says anything else; return the cause."""
        (fault,) = faults(self.program, self.spec, **{**self.told, **told})
        assert fault.step == self.step
        assert _said(self.cause, fault.cause), fault.cause
        assert _said(self.message, fault.message), fault.message
        return str(fault.cause)


def _said(pattern: str | None, text: str | None) -> bool:
    if pattern is None or text is None:
        return pattern in (text, "…")
    return re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), text, re.DOTALL) is not None

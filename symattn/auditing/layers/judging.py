"""One part of a layer against its definition: how much of what rounding allows its error is, and which mistake fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from symattn.arrays.formats import FORMATS
from symattn.arrays.precision import Precision
from symattn.auditing.layers.finding import PartFinding
from symattn.auditing.setting import Floats
from symattn.errors import SymattnError
from symattn.verification.case_result import OF_VALUES, Case, CaseResult
from symattn.verification.definitions.judging import explains, judge
from symattn.verification.definitions.subject import Definition
from symattn.verification.target import Inputs, Outcome

NONE = "no known mistake explains it"
_TOLD = 3  # mistakes that are told where several fit


def fused(dtype: str) -> Precision:
    """Of a kernel: float32 or wider inside, and what it returns is rounded to the format."""
    return Precision.of(dtype, "fused")


def stored(dtype: str) -> Precision:
    """Of operators one after another: each stores what it gives in the format."""
    return Precision.of(dtype, "eager")


def judged(
    part: str, subject: Definition, inputs: Inputs, got: Sequence[Floats], dtypes: Sequence[Precision], search: bool
) -> PartFinding:
    """``got``, one array for each output, of ``inputs``; it is legal if one of the arithmetics allows it.

    Where ``search`` is false, no cause is looked for.
    """
    if not all(np.isfinite(a).all() for a in inputs.values()):
        return PartFinding(part, reason="NaN or infinity reaches it")
    case = Case("audit", part, inputs)
    outcome = Outcome(output=got[0], dtype="float64", shape=got[0].shape, others=tuple(got[1:]))
    try:
        found = [judge(subject, precision, case, outcome) for precision in dtypes]
    except SymattnError as error:
        return PartFinding(part, reason=str(error))
    legal = [r for r in found if r.finding not in OF_VALUES]
    if not legal:
        words = _cause(subject, dtypes[0], found[0]) if search else "its cause was not looked for"
        return PartFinding(part, min(r.worst for r in found), True, words)
    if any(r.undecided or not r.decisive for r in legal):
        return PartFinding(part, reason="the bound says nothing about these numbers")
    return PartFinding(part, min(r.worst for r in legal))


def _cause(subject: Definition, precision: Precision, found: CaseResult) -> str:
    """The one known mistake that gives what came; those that fit where several do."""
    if found.finding == "shape":
        return "it has another shape"
    fitting: list[str] = []
    for mistake in subject.mistakes:
        if explains(subject, precision, found, mistake) and mistake.cause not in fitting:
            fitting.append(mistake.cause)
    if len(fitting) < 2:
        return fitting[0] if fitting else NONE
    more = f", or {len(fitting) - _TOLD} others" if len(fitting) > _TOLD else ""
    return f"open, since several mistakes fit: {'; or '.join(fitting[:_TOLD])}{more}"


def known(dtype: Any) -> bool:
    """Whether the arithmetic of a format is known."""
    return str(dtype) in FORMATS

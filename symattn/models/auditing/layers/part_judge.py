"""One part of a layer against its definition: how much of what rounding allows its error is, and which mistake fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds.case_result import OF_VALUES, Case, CaseResult
from symattn.bounds.judge import holds, judge, union
from symattn.bounds.target import Inputs, Outcome
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import SymattnError
from symattn.models.auditing.call_causes import one_of
from symattn.models.auditing.setting import Floats
from symattn.verification.definitions.judging import expected, explains, legal
from symattn.verification.definitions.subject import Definition, DefinitionMistake

State = Literal["pass", "wrong", "cannot tell"]


@dataclass(frozen=True)
class PartFinding:
    """One part by its name in ``Block``, such as ``mlp_norm``.

    ``ratio`` is the largest error as a part of what rounding allows; ``wrong`` says that no rounding explains it.
    ``cause`` is the one known mistake that does, or the words that none does; ``reason`` says why nothing can be told;
    ``open`` are mistakes that give what came, too, within rounding.
    """

    part: str
    ratio: float = 0.0
    wrong: bool = False
    cause: str = ""
    reason: str = ""
    open: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """``cannot tell`` is never a pass."""
        return "wrong" if self.wrong else "cannot tell" if self.reason else "pass"

    RECORD = "part, state, ratio, cause, reason, not_excluded = open"


@dataclass(frozen=True)
class LayerFinding:
    """One pass through a layer: its name, its parts, or why there are none."""

    layer: str
    parts: tuple[PartFinding, ...] = ()
    reason: str = ""

    @property
    def state(self) -> State:
        """Return the state of the worst part; a layer of which a part is open is open."""
        states = {p.state for p in self.parts}
        if "wrong" in states:
            return "wrong"
        return "cannot tell" if self.reason or not states or "cannot tell" in states else "pass"

    @property
    def ratio(self) -> float:
        """The largest of its parts."""
        return max((p.ratio for p in self.parts), default=float("nan"))

    @property
    def verdict(self) -> str:
        """In words: every part that is wrong, else what is open."""
        wrong = [f"{p.part}: {p.cause}" for p in self.parts if p.wrong]
        if wrong:
            return f"CERTIFIED WRONG: {'; '.join(wrong)}"
        if self.state == "pass":
            open_ = [f"{p.part}: {words}" for p in self.parts for words in p.open]
            return f"pass (cannot exclude: {'; '.join(open_)})" if open_ else "pass"
        result = self.reason or "; ".join(f"{p.part}: {p.reason}" for p in self.parts if p.reason) or "no part ran"
        return f"CANNOT TELL: {result}"

    RECORD = "layer, state, verdict, parts"


NONE = "no known mistake explains it"


def fused(dtype: str) -> Precision:
    """Return the precision of a kernel: float32 or wider inside, and what it returns is rounded to the format."""
    return Precision.of(dtype, "fused")


def stored(dtype: str) -> Precision:
    """Return the precision of operators one after another: each stores its result in the format."""
    return Precision.of(dtype, "eager")


@one_blas_thread
def judged(
    part: str,
    subject: Definition,
    inputs: Inputs,
    got: Sequence[Floats],
    arithmetics: Sequence[Precision],
    search: bool,
    near: Sequence[DefinitionMistake] = (),
    beside: Floats | None = None,
) -> PartFinding:
    """``got``, one array for each output, of ``inputs``; it is legal if one of the arithmetics allows it.

    Where ``search`` is false, no cause is looked for. ``near`` are mistakes that change little: where one of them gives
    what came as well, that is told. ``beside`` is allowed of the first output besides, where a kernel promises less.
    """
    if not all(np.isfinite(a).all() for a in inputs.values()):
        return PartFinding(part, reason="NaN or infinity reaches it")
    case = Case("audit", part, inputs)
    outcome = Outcome(output=got[0], dtype="float64", shape=got[0].shape, others=tuple(got[1:]))
    try:
        result = [judge(legal(subject, p, inputs), p, case, outcome) for p in arithmetics]
    except SymattnError as error:
        return PartFinding(part, reason=str(error))
    right = [r for r in result if r.finding not in OF_VALUES or (beside is not None and _within(r, beside))]
    if not right:
        words = _cause(subject, arithmetics[0], result[0]) if search else "its cause was not looked for"
        return PartFinding(part, min(r.worst for r in result), True, words)
    if any(r.undecided or not r.decisive for r in right):
        return PartFinding(part, reason="the bound says nothing about these numbers")
    loosest = max(right, key=lambda r: float(r.parts[0].expected.allowed.max(initial=0.0)))
    fits = tuple(m.cause for m in near if _fits(subject, arithmetics[-1], loosest, m))
    return PartFinding(part, min(1.0, *(r.worst for r in right)), open=fits)


def _within(found: CaseResult, beside: Floats) -> bool:
    """Return whether a result that is off is legal where so much more is allowed."""
    first, *others = (part.expected for part in found.parts)
    return found.finding == "values" and holds([first.widened(first.allowed + beside), *others], found)


def _fits(subject: Definition, precision: Precision, right: CaseResult, mistake: DefinitionMistake) -> bool:
    """Return whether a mistake may give what came; it may err as the definition may, by any of its ways."""
    allowed = expected(subject, right.case.inputs, precision, [mistake.run])
    return holds(union([allowed, [part.expected for part in right.parts]]), right)


def _cause(subject: Definition, precision: Precision, found: CaseResult) -> str:
    """The one known mistake that gives what came; those that fit where several do."""
    if found.finding == "shape":
        return "it has another shape"
    fitting: list[str] = []
    for mistake in subject.mistakes:
        if explains(subject, precision, found, mistake) and mistake.cause not in fitting:
            fitting.append(mistake.cause)
    return one_of(fitting) or NONE

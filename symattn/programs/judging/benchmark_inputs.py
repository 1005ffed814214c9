"""A candidate called with arrays of a benchmark: their names in the definition, and the judgement of the call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symattn.arrays.formats import Format
from symattn.bounds.called_target import Runner
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.judge import judge
from symattn.document.errors import InputError
from symattn.programs import layouts
from symattn.verification.engine import Session

#: Numbers of axes with which an input has items, or heads, beside its scores or keys.
_AXES_WITH_ITEMS = {"bias": 3, "mask": 3, "keep": 2}


def by_definition(runner: Runner, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays by the names of the definition. Raises ``InputError`` if the candidate takes others."""
    how = runner.convention
    names = [a.input for a in how.arguments if a.input is not None and a.positional]
    # Positional parameters in order, as the benchmark passes its arrays.
    names = [name for name in names if name in how.inputs][: len(arrays)]
    if len(names) != len(arrays):
        raise InputError(
            f"they are {len(arrays)} arrays, and the candidate takes {', '.join(how.inputs)}"
        )
    axes = dict(zip(names, map(np.ndim, arrays), strict=True))
    for name in names:
        # Some code reads the first of three axes as items, other code as heads.
        if _AXES_WITH_ITEMS.get(name) == axes[name] and axes.get("q", 0) > 3:
            raise InputError(f"the first axis of their {name} may be one of heads or of items")
    # The call rounds to its format, and the definition must have the same numbers.
    rounded = (Format(how.dtype).rounded(a) if a.dtype.kind == "f" else a for a in arrays)
    inverted = {a.input for a in how.arguments if a.inverted}
    # A candidate's mask may say which keys to ignore, and that of the definition which to keep.
    own = (
        ~a if name in inverted and a.dtype == bool else a
        for name, a in zip(names, rounded, strict=True)
    )
    return {
        name: layouts.of_layout(name, a, how.layout) for name, a in zip(names, own, strict=True)
    }


def judge_case(session: Session, case: Case) -> CaseResult:
    """Call the candidate, and judge its output by the bounds of all ways of the definition, which tell its power.

    Where only the finding is asked for, ``Session.run_case`` compares large outputs with float64 first.
    """
    return judge(
        session.legal(case.inputs), session.precision, case, session.call(case), whole=True
    )


def reason_unjudged(judged: CaseResult) -> str:
    """Return why no output of a call was judged, such as a time limit; "" if one was."""
    if not judged.undecided:
        return ""
    error = judged.outcome.error
    return "the definition compares numbers that may be equal" if error is None else str(error)

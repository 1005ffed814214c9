"""The plainest description of what is wrong in an output: which heads, rows and columns."""

from __future__ import annotations

import numpy as np

from symattn.verification.judged import Judged

_NAMES = ("columns", "queries", "heads", "batch items")


def affected(judged: Judged, heads: bool) -> str:
    """In words: “head 2 only; queries from 5 on”. Empty where all is wrong, or nothing can be said plainly."""
    if judged.ratios is None:
        return ""
    off = np.asarray(judged.ratios > 1)
    names = list(_NAMES) if heads else [_NAMES[0], _NAMES[1], _NAMES[3], "outer batch items"]
    parts = []
    for place, name in list(enumerate(names))[::-1]:
        axis = off.ndim - 1 - place
        if axis >= 0 and off.shape[axis] > 1:
            found = np.asarray(off.any(axis=tuple(a for a in range(off.ndim) if a != axis)))
            words = _which(found, name)
            parts += [words] if words else []
    return "; ".join(parts)


def _which(wrong: np.ndarray, name: str) -> str:
    """Which of them, counted from 1; empty where all are."""
    at, n = np.flatnonzero(wrong), len(wrong)
    if len(at) in (0, n):
        return ""
    singular = name.removesuffix("s") if name != "queries" else "query"
    if len(at) == 1:
        return f"{singular} {at[0] + 1} of {n} only"
    if at[-1] - at[0] + 1 == len(at):
        if at[-1] == n - 1:
            return f"{name} from {at[0] + 1} on, of {n}"
        return f"{name} up to {at[-1] + 1} of {n}" if at[0] == 0 else f"{name} {at[0] + 1} to {at[-1] + 1} of {n}"
    steps = set(np.diff(at).tolist())
    if len(steps) == 1:
        return f"every {steps.pop()}. of the {name} from {at[0] + 1} on"
    return f"{len(at)} of {n} {name}"
